"""Training of fastText classifiers on two sets of documents, with a report on held-out documents."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Cell, Column, Table, Tabular, progress_bar
from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.io.files import check_target, make_folder, writing
from longcrawl.kernels.keyed_hash import keyed_hash
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.text.classifiers import score_texts
from longcrawl.text.fasttext import Model, Vectors, make_words, read_model, set_first_rows, train, write_model
from longcrawl.text.values import tables

LABELS = ("good", "bad")
MOST_BUCKETS = 1 << 21
STEPS, BYTES = 20_000, 1 << 30
"""Limits of the default number of epochs: as many as reach these steps within these bytes of text, but at least 5."""
THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
_PURPOSE = "train_classifier"
_AT_A_TIME = 1_000
_END = b"</s>"


class Held(NamedTuple):
    """The effect of a threshold on the held-out documents."""

    threshold: float
    precision: float  # share of good documents among those that reach the threshold, NaN if none does
    recall: float  # share of good documents that reach the threshold
    bad: float  # share of bad documents that reach the threshold


@dataclass(frozen=True)
class TrainedClassifier(Tabular):
    """A report on a trained model and its accuracy on held-out documents; prints as tables."""

    path: str
    labels: tuple[str, str]  # names of the labels, the good one first
    trained: tuple[int, int]  # number of training documents of each label
    held_out: tuple[int, int]  # number of held-out documents of each label
    in_both: int  # number of distinct texts that occur in both sets; they are not used
    repeated: int  # number of repeated documents of a set; only the first is used
    without_text: int  # number of documents without words; they are not used
    words: int  # number of words with their own row in the model
    epochs: int
    loss: float  # mean loss of a text in the last epoch, in nats
    auc: float  # probability that a held-out good document has a higher score than a held-out bad one
    thresholds: tuple[Held, ...]

    def at(self, threshold: float) -> Held:
        """Return the result of one of the listed thresholds."""
        return next(held for held in self.thresholds if held.threshold == threshold)

    def tables(self) -> Sequence[Table]:
        """Return the table of counts and the table of thresholds."""
        good, bad = self.labels
        counts: list[list[Cell]] = [["learnt from", *self.trained], ["held out", *self.held_out]]
        left_out = {"in both, left out": self.in_both, "repeated": self.repeated, "without text": self.without_text}
        notes = [f"{name}: {count:,}" for name, count in left_out.items() if count]
        title = f"{self.path}: {self.words:,} words, {self.epochs:,} epochs, loss {self.loss:.3f}"
        documents = Table([Column("documents"), Column(good, "count"), Column(bad, "count")], counts, title, notes)
        rows: list[list[Cell]] = [
            [f"{held.threshold:g}", "" if not isfinite(held.precision) else held.precision, held.recall, held.bad]
            for held in self.thresholds
        ]
        names = [Column("at_least", "name"), Column("precision", "share"), Column("recall", "share")]
        names.append(Column(f"of {bad}", "share"))
        return documents, Table(names, rows, f"held out, AUC {self.auc:.4f}, score of {good}")


class _Text(NamedTuple):
    digest: str
    label: int
    content: bytes


def train_classifier(
    good: Any,
    bad: Any,
    path: str | Path,
    labels: tuple[str, str] = LABELS,
    *,
    word_ngrams: int = 2,
    dimensions: int = 16,
    buckets: int | None = None,
    characters: tuple[int, int] = (0, 0),
    min_count: int = 2,
    epochs: int | None = None,
    learning_rate: float = 0.5,
    held_out: float = 0.1,
    seed: int = 0,
) -> TrainedClassifier:
    """Train a classifier on two sets of documents, write it as a fastText ``.bin``, and test it on held-out documents.

    This is fastText's supervised training with a softmax, on one core, with all texts in memory. For the same texts, in
    any order, and settings, the file is the same byte for byte on machines with the same numba and C library. Texts
    that occur in both sets are not used, but counted; of equal texts in one set only the first is used.

    >>> from tempfile import mkdtemp
    >>> good, bad = (pa.table({"text": [f"{word} {n}" for n in range(20)]}) for word in ("whale", "casino"))
    >>> found = train_classifier(good, bad, Path(mkdtemp()) / "model.bin", dimensions=4, buckets=64)
    >>> found.held_out, found.at(0.5)
    ((2, 2), Held(threshold=0.5, precision=1.0, recall=1.0, bad=0.0))

    Args:
        good: documents of the first label: a ``datasets.Dataset``, a crawl such as ``lc.open("good/")``, or an Arrow
            table, with the column ``text``.
        bad: documents of the second label, in the same form.
        path: the file to write, which must not exist.
        labels: the names of the labels in the model, without ``__label__``, the good one first.
        word_ngrams: the length of the longest word n-grams, in words; 1 for none.
        dimensions: the length of a row. The file has (words + buckets) rows of 4 bytes per dimension.
        buckets: the number of rows that all n-grams share by hash; None for a power of two with room for all of them,
            at most 2,097,152.
        characters: the lengths of the shortest and longest character n-grams inside words; (0, 0) for none.
        min_count: the number of occurrences from which a word has its own row.
        epochs: passes over the texts; None for 5, or, for small sets, 20,000 steps within 1 GiB of text.
        learning_rate: the rate of the first step; it falls linearly to 0 with the bytes seen.
        held_out: the share of each set to hold out, at least one document, by a keyed hash of the text.
        seed: the seed of the order, of the initial rows and of the choice of held-out documents.

    Raises:
        StageError: a set has fewer than two documents of its own, a setting is out of range, or the file exists.
    """
    path, asked = Path(path), _Settings(labels, word_ngrams, dimensions, buckets, characters, min_count, seed)
    asked.check()
    if not 0 < held_out < 1 or not 0 < learning_rate <= 10:
        given = f"{held_out!r} and {learning_rate!r}"
        raise StageError(f"held_out must be a share such as 0.1 and learning_rate at most 10, got {given}")
    if epochs is not None and epochs < 1:
        raise StageError(f"epochs must be 1 or more, got {epochs!r}")
    check_target(path, StageError, "choose another file, or remove it", example="model.bin")
    make_folder(path.parent, StageError, "choose a file in a folder that can be written")
    texts, left_out = _collect((good, bad), labels)
    chosen = _chosen(texts, held_out, labels, seed)
    learnt, held = ([text for text, out in zip(texts, chosen, strict=True) if out == side] for side in (0, 1))
    in_learnt, in_held = _in_each(learnt), _in_each(held)
    made = _write_trained(path, learnt, in_learnt, asked, epochs, learning_rate)
    return TrainedClassifier(str(path), labels, in_learnt, in_held, *left_out, *made, *_measure(path, held, labels[0]))


class _Settings(NamedTuple):
    labels: tuple[str, str]
    word_ngrams: int
    dimensions: int
    buckets: int | None
    characters: tuple[int, int]
    min_count: int
    seed: int

    def check(self) -> None:
        """Raise StageError if a setting is out of range."""
        named = [isinstance(name, str) and name.isprintable() and name.split() == [name] for name in self.labels]
        if len(named) != 2 or not all(named) or self.labels[0] == self.labels[1]:
            raise StageError(f"labels must be two different words, such as {LABELS}, got {self.labels!r}")
        shortest, longest = self.characters
        if not 0 <= shortest <= longest <= 64 or not 1 <= self.word_ngrams <= 64:
            given = f"{self.word_ngrams!r} and {self.characters!r}"
            raise StageError(f"word_ngrams must be 1 to 64, and characters such as (3, 5), got {given}")
        buckets = 1 if self.buckets is None else self.buckets
        if min(self.dimensions, self.min_count, buckets) < 1 or buckets > 10**8:
            raise StageError("dimensions and min_count must be 1 or more, and buckets 1 to 100,000,000")

    def buckets_for(self, texts: Sequence[_Text], words: int) -> int:
        """Return the number of rows that the n-grams of texts share, given their total number of words."""
        shortest, longest = self.characters
        ngrams = words * (self.word_ngrams - 1) + _bytes(texts) * (longest - shortest + 1) * (longest > 0)
        if not ngrams:
            return 0
        return self.buckets or min(MOST_BUCKETS, 1 << max(10, ngrams.bit_length()))


def _in_each(texts: Sequence[_Text]) -> tuple[int, int]:
    second = sum(text.label for text in texts)
    return len(texts) - second, second


def _bytes(texts: Sequence[_Text]) -> int:
    return sum(len(text.content) for text in texts)


def _collect(sets: tuple[Any, Any], labels: tuple[str, str]) -> tuple[list[_Text], tuple[int, int, int]]:
    """Return the texts in one set only, sorted, and how many are in both, repeated, and without text."""
    texts, repeated, without_text = list[_Text](), 0, 0
    by_label: list[dict[str, bytes]] = [{}, {}]
    for documents, known in zip(sets, by_label, strict=True):
        for content in _contents(documents):
            if not any(True for _ in _words(content)):
                without_text += 1
                continue
            digest = blake2b(content, digest_size=16).hexdigest()
            repeated += digest in known
            known.setdefault(digest, content)
    both = by_label[0].keys() & by_label[1].keys()
    for label, known in enumerate(by_label):
        if (count := len(known.keys() - both)) < 2:
            also = f", besides {len(both):,} that are in both sets" if both else ""
            raise StageError(
                f"{labels[label]!r} has {count:,} documents with text of its own{also}: at least two are needed"
            )
        texts += [_Text(digest, label, text) for digest, text in known.items() if digest not in both]
    return sorted(texts), (len(both), repeated, without_text)


def _contents(documents: Any) -> Iterator[bytes]:
    for table in tables(documents):
        texts = valid_texts(column(table, "text", _PURPOSE), _PURPOSE)
        yield from pc.fill_null(pc.cast(texts, pa.large_binary()), b"").to_pylist()


def _words(content: bytes) -> Iterator[bytes]:
    """Yield the words that fastText trains on. They end at ASCII white space and U+0000, and ``</s>`` ends the text."""
    for word in content.replace(b"\0", b" ").split():
        if word == _END:
            return
        if not word.startswith(b"__label__"):
            yield word


def _chosen(texts: Sequence[_Text], share: float, labels: tuple[str, str], seed: int) -> npt.NDArray[np.bool_]:
    hashes = keyed_hash((text.digest for text in texts), f"{_PURPOSE}.held_out", seed)
    chosen = np.zeros(len(texts), np.bool_)
    for label in range(len(labels)):
        places = np.flatnonzero([text.label == label for text in texts])
        count = min(ceil(share * len(places)), len(places) - 1)
        chosen[places[np.argsort(hashes[places], kind="stable")[:count]]] = True
    return chosen


def _write_trained(
    path: Path, texts: Sequence[_Text], counts: Sequence[int], asked: _Settings, epochs: int | None, rate: float
) -> tuple[int, int, float]:
    """Train and write a model; ``counts`` are the texts of each label. Return the words, epochs and mean loss."""
    # fastText lists the most frequent label first.
    order = sorted(range(2), key=lambda label: -counts[label])
    model, words = _first_model(texts, [asked.labels[label] for label in order], asked)
    passes = epochs or max(5, min(ceil(STEPS / len(texts)), BYTES // _bytes(texts)))
    loss = _learn(model, texts, order, passes, rate, asked.seed)
    if not np.isfinite(loss):
        raise StageError(f"training diverges with learning_rate {rate}: lower it")
    with writing(path, StageError, "choose a file in a folder that can be written"):
        write_model(path, model, words, [counts[label] for label in order], passes)
    return len(words), passes, loss


def _first_model(texts: Sequence[_Text], labels: Sequence[str], asked: _Settings) -> tuple[Model, list[int]]:
    counts = Counter(word for text in texts for word in _words(text.content))
    counts[_END] = len(texts)
    common = sorted(
        (each for each in counts.items() if each[1] >= asked.min_count), key=lambda each: (-each[1], each[0])
    )
    words, buckets = [word for word, _ in common], asked.buckets_for(texts, counts.total())
    rows = np.empty((len(words) + buckets, asked.dimensions), np.float32)
    set_first_rows(rows, asked.seed)
    tree = np.zeros((0, 2), np.int32), np.zeros(0, np.int32)
    output = np.zeros((len(labels), asked.dimensions), np.float32)
    vectors = Vectors(rows, output, np.ones(len(labels), np.float32), *tree, separate=False)
    data = np.frombuffer(b"".join(words) + b"\0", np.uint8).copy()
    bounds = np.cumsum([0, *map(len, words)], dtype=np.int64)
    found = make_words(data, bounds, None, buckets, asked.characters, asked.word_ngrams)
    return Model(tuple(labels), found, vectors, threading.local()), [count for _, count in common]


def _learn(model: Model, texts: Sequence[_Text], order: Sequence[int], epochs: int, rate: float, seed: int) -> float:
    data, offsets = text_buffers(pa.array([text.content for text in texts], pa.large_binary()))
    labels = np.array([order.index(text.label) for text in texts], np.int32)
    sizes = np.diff(offsets).astype(np.float64)
    loss = 0.0
    with progress_bar(total=epochs * len(texts), desc="train", unit=" documents") as bar:
        for epoch in range(epochs):
            steps = np.argsort(
                keyed_hash((text.digest for text in texts), f"{_PURPOSE}.epoch {epoch}", seed), kind="stable"
            )
            seen = epoch + (np.cumsum(sizes[steps]) - sizes[steps]) / sizes.sum()
            rates = (rate * (1 - seen / epochs)).astype(np.float32)
            loss = 0.0
            for start in range(0, len(steps), _AT_A_TIME):
                part = slice(start, start + _AT_A_TIME)
                loss += train(
                    model.words, model.vectors, data, offsets, model.memory(), steps[part], labels, rates[part]
                )
                bar.update(len(steps[part]))
    return loss / len(texts)


def _measure(path: Path, texts: Sequence[_Text], label: str) -> tuple[float, tuple[Held, ...]]:
    model = read_model(str(path))
    contents = pa.array([text.content for text in texts], pa.large_binary())
    scores = score_texts(model, contents, [model.labels.index(label)])[:, 0].astype(np.float64)
    is_bad = np.array([text.label for text in texts], np.bool_)
    good, bad = np.sort(scores[~is_bad]), np.sort(scores[is_bad])
    below, up_to = np.searchsorted(bad, good), np.searchsorted(bad, good, side="right")
    auc = float((below + up_to).mean() / 2 / len(bad))
    held = []
    for threshold in THRESHOLDS:
        reach, bad_reach = int((good >= threshold).sum()), int((bad >= threshold).sum())
        precision = reach / (reach + bad_reach) if reach + bad_reach else float("nan")
        held.append(Held(threshold, precision, reach / len(good), bad_reach / len(bad)))
    return auc, tuple(held)
