"""Decontamination: removes training documents, or passages of them, that share n-grams with evaluation sets.

Sources: GPT-3 (arXiv 2005.14165, appendix C), Llama 2 (2307.09288, A.6), Tülu 3 (2411.15124, section 3.2).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import MASK, TAG, list_by_document, make_places, no_places
from longcrawl.core.registry import Conditions, preset_fields
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.dedup import evaluation_sets
from longcrawl.dedup.index import DESCRIPTION
from longcrawl.dedup.substring import cut_spans, masked_column
from longcrawl.errors import StageError, TokenizerError
from longcrawl.io.files import checksum, content_digest
from longcrawl.kernels.texts import check_not_masked, valid_texts
from longcrawl.tokens.encoders import TokenizerStage, load_encoder

Longs = npt.NDArray[np.int64]

CONTAMINATION = "contamination"

TAG_TYPE = pa.list_(pa.struct([("item", pa.string()), ("start", pa.int64()), ("end", pa.int64())]))

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gpt3": {"ngram": 13, "unit": "word", "policy": "cut", "window": 200, "min_piece": 200, "max_pieces": 10},
        "llama2": {"ngram": 11, "unit": "token", "policy": "drop", "min_overlap": 0.8},
        "tulu3": {"ngram": 8, "unit": "word", "policy": "drop", "min_overlap": 0.5},
    }
)


@stage
class Decontaminate(TokenizerStage, Edit):
    r"""Remove documents that contain items of evaluation sets, or cut, mask or tag the passages that do.

    Texts and items are normalised (:mod:`longcrawl.dedup.normalize`) and split into words or tokens. A document
    contains an item if at least ``min_overlap`` of the item's units are in n-grams that the document also has; with 0,
    one n-gram is enough. The passages that such n-grams cover are contaminated. Items with fewer units than an n-gram
    are not searched for; the card gives their number.

    The edit ledger lists every passage with its item, such as ``gsm8k#17``: the evaluation set and the row of the item,
    counted from 0. If two datasets have the same name, a digest is appended to the name. If items overlap, the shared
    passage belongs to the item that begins first or, of those that begin together, to the one that ends last.
    ``crawl.contamination()`` and ``longcrawl contamination RUN`` count passages, items and documents by evaluation set.

    ``policy`` decides what happens to documents with such passages:

    * "drop": the document is removed by the rule ``contaminated``, with the greatest share of an item found as value;
    * "cut": the passages are removed, with ``window`` characters on either side, and the remaining pieces are joined;
    * "mask": the column ``masked`` marks where no loss is computed, as that of ``ExactSubstring`` does;
    * "tag": the column ``contamination`` lists item, start and end; nothing else changes.

    Args:
        against: evaluation sets: datasets; .jsonl, .json, .parquet, .csv, .tsv and .txt files (an item per line);
            folders of ``save_to_disk``; ``ORG/NAME[@REVISION][:CONFIGURATION[:SPLIT]]`` on the Hub; or indexes written
            by :meth:`save_index_of_items`. If no split is named, the test split is read. One index of all sets is kept
            in ``$XDG_CACHE_HOME/longcrawl``.
        ngram: units in an n-gram.
        unit: "word", or "token" of ``tokenizer``. The first word of an item may have a different token inside a text.
        policy: "drop", "cut", "mask" or "tag".
        min_overlap: least share of an item's units that must be in shared n-grams.
        window: for "cut": characters removed on either side of a passage.
        min_piece: for "cut": a piece between two passages, before the first or after the last is also removed if it has
            fewer characters.
        max_pieces: for "cut": a document is removed if its passages split it into more pieces than this. Pieces that
            are too short count.
        min_characters: for "cut" and "mask": a document is removed if fewer characters remain, or remain unmasked.
        columns: columns that make an item; each evaluation set has at least one of them. Their values, and the texts of
            lists and structs, are joined by line breaks. By default, all columns with text except ``id``.
        tokenizer: a file, a Hub id or an object; see :func:`longcrawl.tokens.encoders.load_encoder`.

    At most 64 items are compared for each n-gram. :mod:`longcrawl.dedup.evaluation_sets` gives the probability that
    different n-grams share a hash.

    >>> from datasets import Dataset
    >>> import longcrawl as lc
    >>> exam = Dataset.from_dict({"question": ["Which of the planets of the sun has the largest moon of all?"]})
    >>> page = "Quiz night! Which of the planets of the sun has\nthe LARGEST moon of all? Answers on Monday."
    >>> crawl = lc.Crawl(Dataset.from_dict({"id": ["a"], "text": [page]}))
    >>> (crawl | lc.dedup.Decontaminate(against=[exam], ngram=8, policy="cut")).data["text"][0]
    'Quiz night! ? Answers on Monday.'

    Raises:
        StageError: an evaluation set cannot be read, or the documents are already masked: cutting or masking them again
            would lose those masks.
        TokenizerError: the tokenizer cannot be loaded.
    """

    against: tuple[str, ...] = ()
    ngram: int = 13
    unit: Literal["word", "token"] = "word"
    policy: Literal["drop", "cut", "mask", "tag"] = "drop"
    min_overlap: float = 0.0
    window: int = 0
    min_piece: int = 0
    max_pieces: int | None = None
    min_characters: int = 20
    columns: tuple[str, ...] = ()
    tokenizer: str = "gpt2"

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS
    rewrites = "text"
    code_version: ClassVar[str] = "2"
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "window": {"policy": ("cut",)},
            "min_piece": {"policy": ("cut",)},
            "max_pieces": {"policy": ("cut",)},
            "min_characters": {"policy": ("cut", "mask")},
        }
    )

    def __post_init__(self) -> None:
        given: Any = self.against
        several = given if isinstance(given, list | tuple) else [given]
        object.__setattr__(self, "against", tuple(map(evaluation_sets.keep_dataset, several)))
        super().__post_init__()
        if self.ngram < 1:
            raise StageError(f"{self.name}.ngram is {self.ngram}: take 1 or more")
        if not 0 <= self.min_overlap <= 1:
            raise StageError(f"{self.name}.min_overlap takes a share from 0 to 1, got {self.min_overlap:g}")
        for name in ("window", "min_piece", "min_characters"):
            if getattr(self, name) < 0:
                raise StageError(f"{self.name}.{name} must be 0 or more, got {getattr(self, name)}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "Decontaminate":
        """Return a stage with published settings; ``changes`` are other fields, such as ``against``.

        * "gpt3" (arXiv 2005.14165, appendix C): 13-grams of words are cut with 200 characters on either side, and so
          are pieces of fewer than 200; a document in more than 10 pieces is removed. GPT-3 made each piece a document;
          here they remain in one. Not implemented: GPT-3 ignored 13-grams found in more than 10 training documents.
        * "llama2" (arXiv 2307.09288, A.6): an item is "dirty" if 80 % of its tokens are in shared n-grams of more than
          10 tokens. Llama 2 removed nothing. Not implemented: up to 4 tokens of an n-gram could differ, and n-grams of
          several training documents counted together. Set ``tokenizer`` to the model's. Llama 3 (arXiv 2407.21783,
          5.1.4) uses 8-grams and a share chosen for each evaluation set, so it has no preset.
        * "tulu3" (arXiv 2411.15124, 3.2): 8-grams of words, and half of an item in one training document. Tülu 3
          counted "more than half" of spaCy tokens and compared only prompts: name their columns with ``columns``. Not
          implemented: datasets that contained more than 2 % of an evaluation set's items were removed as a whole.

        Raises:
            StageError: there is no such preset; the message lists the known ones.
        """
        return cls(**preset_fields(cls, name, changes))

    def files(self) -> tuple[str, ...]:
        """Return the local paths among the evaluation sets, and the tokenizer's file."""
        return (*super().files(), *(each for each in self.against if Path(each).exists()))

    def prepare(self) -> None:
        """Read the evaluation sets, build their index and compile the kernels."""
        if self.unit == "token":
            try:
                _ = load_encoder(self.tokenizer).token_bytes
            except TokenizerError as wrong:
                raise TokenizerError(
                    f"{self.name}.tokenizer: {wrong}; take a byte-level BPE such as gpt2, or set unit='word'"
                ) from wrong
        self._indexes().find(pa.array(["a text"], pa.large_string()), self.min_overlap)

    def limits(self) -> tuple[str, ...]:
        """Describe how many items each evaluation set has, and how many were too short to search for."""
        sizes = self._indexes().sizes()
        unit = f"{self.ngram} {self.unit}s"
        return tuple(
            f"{name}: {items:,} items, {short:,} of which have fewer than {unit} and were not looked for"
            for name, (items, short) in sizes.items()
        )

    def used_indexes(self) -> dict[str, str]:
        """Return the SHA-256 of the index that holds each evaluation set."""
        folders = self._folders()
        return {given: checksum(Path(folders[given], DESCRIPTION)) for given in self.against}

    def save_index_of_items(self, folder: str | Path) -> None:
        """Write an index of the evaluation sets, for ``against`` on machines that cannot read them."""
        names = [each for each in self.against if not _is_index(each)]
        evaluation_sets.write_evaluation_index(Path(folder), _read(tuple(names), self.columns), self._ngrams)

    def checks(self, table: pa.Table) -> Sequence[Check]:
        """Measure the greatest share of an item found in each document."""
        return self._edited(table, record="nothing").checks

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Apply ``policy`` to a batch of documents."""
        edited = self._edited(table, record="nothing")
        return edited.documents, edited.checks

    def trace(self, table: pa.Table) -> Edited:
        """Apply ``policy`` to a batch of documents, and list the passages with their items."""
        return self._edited(table, record="places")

    def marks(self, text: str, rule: str) -> Sequence[tuple[int, int]]:  # noqa: ARG002  # all rules are about these
        """Return the passages of a text that are shared with evaluation items."""
        found = self._indexes().find(pa.array([text], pa.large_string()), self.min_overlap)
        return [(start, stop) for start, stop in found.places.tolist()]

    def _edited(self, table: pa.Table, record: Literal["places", "nothing"]) -> Edited:
        texts = valid_texts(column(table, "text", self.name), self.name)
        if self.policy in ("cut", "mask"):
            check_not_masked(table, self.name)
        found = self._indexes().find(texts, self.min_overlap)
        lengths = np.zeros(len(texts), np.int64)
        if self.policy in ("cut", "mask"):
            lengths += pc.fill_null(pc.utf8_length(texts), 0).to_numpy()
        places, pieces = found.places, np.zeros(len(texts), np.int64)
        if self.policy == "cut":
            places, pieces = widen(found.rows, places, lengths, self.window, self.min_piece)
            table = with_column(table, "text", cut_spans(texts, found.rows, places))
        elif self.policy == "mask":
            table = with_column(table, "masked", masked_column(found.rows, places, table.num_rows))
        elif self.policy == "tag":
            spans = {"item": found.items, "start": pa.array(found.places[:, 0]), "end": pa.array(found.places[:, 1])}
            table = with_column(table, CONTAMINATION, list_by_document(found.rows, spans, len(texts)).cast(TAG_TYPE))
        checks = self._checks(found, places, lengths, pieces)
        if record == "nothing":
            return Edited(table, checks, no_places())
        rule, replaced_by = {"cut": ("cut", 0), "mask": (MASK, 1)}.get(self.policy, (TAG, 1))
        counts = replaced_by * (places[:, 1] - places[:, 0])
        return Edited(table, checks, make_places(found.rows, rule, places, counts, also_id=found.items))

    def _checks(self, found: evaluation_sets.Found, places: Longs, lengths: Longs, pieces: Longs) -> list[Check]:
        if self.policy == "tag":
            return []
        if self.policy == "drop":
            clean = np.ones(len(lengths), bool)
            clean[found.rows] = False
            return [Check("contaminated", pa.array(found.overlaps), pa.array(clean), self.min_overlap)]
        covered = np.zeros(len(lengths), np.int64)
        np.add.at(covered, found.rows, places[:, 1] - places[:, 0])
        left = lengths - covered
        passes = pa.array((covered == 0) | (left >= self.min_characters))
        checks = [Check("characters_left", pa.array(left), passes, self.min_characters, "at_least")]
        if self.policy == "cut" and self.max_pieces is not None:
            few = pa.array(pieces <= self.max_pieces)
            checks.insert(0, Check("max_pieces", pa.array(pieces), few, self.max_pieces, "at_most"))
        return checks

    @property
    def _ngrams(self) -> evaluation_sets.Ngrams:
        return evaluation_sets.Ngrams(self.ngram, self.unit, self.tokenizer)

    def _folders(self) -> dict[str, str]:
        if not self.against:
            raise StageError(f"{self.name}.against is empty: name evaluation sets, such as against: [exam.jsonl]")
        names = tuple(each for each in self.against if not _is_index(each))
        states = tuple(content_digest(each) for each in names)
        made = _made(names, states, self.columns, self._ngrams) if names else ""
        return {each: made if each in names else each for each in self.against}

    def _indexes(self) -> evaluation_sets.EvaluationIndexes:
        return evaluation_sets.open_evaluation_indexes(self._ngrams, *dict.fromkeys(self._folders().values()))


def _is_index(given: str) -> bool:
    return Path(given, DESCRIPTION).is_file()


def _read(names: tuple[str, ...], columns: tuple[str, ...]) -> list[evaluation_sets.EvaluationSet]:
    import datasets

    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        sets = [evaluation_sets.read_evaluation_set(name, columns) for name in names]
    finally:
        if shown:
            datasets.enable_progress_bars()
    alike = _repeated(sets)
    sets = [
        each._replace(name=evaluation_sets.kept_name(name) or each.name) if each.name in alike else each
        for name, each in zip(names, sets, strict=True)
    ]
    if twice := _repeated(sets):
        raise StageError(f"several evaluation sets are called {min(twice)}: name their files after them")
    return sets


def _repeated(sets: Sequence[evaluation_sets.EvaluationSet]) -> set[str]:
    counts = Counter(each.name for each in sets)
    return {name for name, count in counts.items() if count > 1}


@lru_cache(maxsize=4)
def _made(
    names: tuple[str, ...], _states: tuple[str | None, ...], columns: tuple[str, ...], ngrams: evaluation_sets.Ngrams
) -> str:
    return str(evaluation_sets.kept_index(_read(names, columns), ngrams))


def widen(rows: Longs, places: Longs, lengths: Longs, window: int, min_piece: int) -> tuple[Longs, Longs]:
    """Widen passages by ``window`` characters on either side, and count the pieces of each document before.

    ``places``, int64 [spans, 2], are characters, sorted within a document; ``lengths``, int64 [documents], too. Between
    two passages, the first takes its window before the second does. A piece with fewer than ``min_piece`` characters is
    merged into the passage before it or, at the start of the document, into the one after it.
    """
    wide = places.copy()
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    last = np.append(first[1:], True)[: len(rows)]
    following = np.append(places[1:, 0], 0)[: len(rows)]
    wide[:, 1] = np.minimum(places[:, 1] + window, np.where(last, lengths[rows], following))
    reached = np.where(first, 0, np.append(0, wide[:-1, 1])[: len(rows)])
    wide[:, 0] = np.maximum(places[:, 0] - window, reached)
    before, behind = wide[:, 0] - reached, lengths[rows] - wide[:, 1]
    pieces = np.zeros(len(lengths), np.int64)
    np.add.at(pieces, rows, np.add(before > 0, last & (behind > 0), dtype=np.int64))
    wide[:, 0] = np.where(first & (before < min_piece), 0, wide[:, 0])
    wide[:, 1] = np.where(last & (behind < min_piece), lengths[rows], wide[:, 1])
    short = np.flatnonzero(~first & (before < min_piece))
    wide[short - 1, 1] = wide[short, 0]
    return wide, pieces
