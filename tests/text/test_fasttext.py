"""Models of fastText: scores and training equal to fastText's own and to plain Python, and files that are no model."""

import math
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.classifiers import score_texts
from longcrawl.text.fasttext import read_model

WORDS = ["the", "boat", "Boot", "船", "harbour", "é", "e\u0301", "</s", "label", "x" * 40, "船" * 9, "-", "\u3000", "8"]


SIGNS = ["</s>", "__label__en", "\n", "\0", "\r\n", "\x0b", "  "]


texts = st.lists(st.sampled_from(WORDS) | st.sampled_from(SIGNS), max_size=14).map(" ".join)


SPACES = re.compile(r"[\0\t\n\v\f\r ]+")


f32 = np.float32


def table(*contents, **more):
    return pa.table({"id": [f"d{number}" for number in range(len(contents))], "text": list(contents), **more})


def probabilities(path, contents, labels=None):
    model = read_model(str(path))
    return score_texts(model, pa.array(contents, pa.large_string()), labels or range(len(model.labels)))


# -------------------- fastText in plain Python


def hashed(word):
    value = 2166136261
    for byte in word:
        value = ((value ^ (byte | (0xFFFFFF00 if byte >= 128 else 0))) * 16777619) % 2**32
    return value


def signed(value):
    return value - 2**32 if value >= 2**31 else value


def rows_of(model, text):
    """Return the rows of a text in the order in which fastText adds them."""
    words, buckets = model.words, model.words.buckets
    known = [bytes(words.data[start:stop]) for start, stop in zip(words.bounds, words.bounds[1:], strict=False)]
    tokens = []
    for word in SPACES.split(text):
        if word == "</s>":
            break
        if word and not word.startswith("__label__"):
            tokens.append(word.encode())
    rows = []
    for word in [*tokens, b"</s>"]:
        rows += [known.index(word)] if word in known else []
        letters = [*f"<{word.decode()}>"] if word != b"</s>" and words.longest else []
        for start in range(len(letters)):
            for length in range(max(words.shortest, 1), min(words.longest, len(letters) - start) + 1):
                if length > 1 or 0 < start < len(letters) - 1:
                    rows.append(len(known) + hashed("".join(letters[start : start + length]).encode()) % buckets)
    hashes = [signed(hashed(word)) for word in [*tokens, b"</s>"]]
    for first in range(len(hashes)):
        value = hashes[first] % 2**64
        for other in hashes[first + 1 : first + words.word_ngrams]:
            value = (value * 116049371 + other) % 2**64
            rows.append(len(known) + value % buckets)
    return rows


def score_plainly(model, text, loss):
    hidden = np.zeros(model.vectors.rows.shape[1], f32)
    rows = rows_of(model, text)
    for row in rows:
        hidden += model.vectors.rows[row]
    hidden *= f32(1 / len(rows))
    outputs = []
    for row in model.vectors.output:
        total = f32(0)
        for one, other in zip(row, hidden, strict=True):
            total += one * other
        outputs.append(total)
    if loss == "ova":
        sigmoids = [
            1 / (1 + math.exp(8 - int((each + 8) * 32) / 32)) if abs(each) <= 8 else each > 8 for each in outputs
        ]
        return [sigmoid + 1e-5 for sigmoid in sigmoids]
    powers = np.exp(np.array(outputs, np.float64) - max(outputs))
    return powers / powers.sum() + 1e-5


ngrams = st.sampled_from([(0, 0), (2, 4), (1, 2), (0, 3)])


@pytest.mark.parametrize("loss", ["softmax", "ova"])
@given(texts, st.integers(0, 30), st.sampled_from([1, 2, 3]), ngrams)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scores_equal_those_in_plain_python(tmp_path, write_model, loss, text, seed, word_ngrams, ngrams):
    more = {"word_ngrams": word_ngrams, "ngrams": ngrams, "buckets": 49, "dimensions": 2}
    path = write_model(tmp_path / "model.bin", seed, loss, **more)
    model = read_model.__wrapped__(str(path))
    found = score_texts(model, pa.array([text], pa.large_string()), range(len(model.labels)))[0]
    assert found == pytest.approx(score_plainly(model, text, loss), abs=2e-6)
    path.unlink()


QUANTISED = [(), ("norms",), ("norms", "output"), ("pruned", "output"), ("norms", "output", "pruned")]


ASKED = [" ".join(random.Random(seed).choices([*WORDS, *SIGNS[1:]], k=seed)) for seed in range(0, 60, 3)]


ASKED += [
    "the boat </s> Boot",
    "the boat </s> " + "Boot " * 200,
    "the boat " * 3_000,
    "the\nboat",
    "__label__en",
    "the\0boat",
]


@pytest.mark.variants
@pytest.mark.parametrize("loss", ["hs", "softmax", "ova"])
@pytest.mark.parametrize("word_ngrams", [1, 2, 3])
def test_scores_equal_those_of_fasttext_in_every_bit(tmp_path, write_model, loss, word_ngrams):
    fasttext = pytest.importorskip("fasttext")
    for number, quantised in enumerate(QUANTISED):
        more = {"quantised": quantised, "dimensions": 5 + 11 * (number % 2), "buckets": (50, 70_000)[number % 2]}
        ngrams = [(0, 0), (2, 4)][number // 2 % 2]
        path = write_model(tmp_path / f"{number}.ftz", number, loss, ngrams=ngrams, word_ngrams=word_ngrams, **more)
        peer, labels = fasttext.load_model(str(path)), read_model(str(path)).labels
        for text, row in zip(ASKED, probabilities(path, ASKED), strict=True):
            line = text.replace("\n", " ") + "\n"
            listed = {name: score for score, name in peer.f.predict(line, -1, 0.0, "strict")}
            # Of a tree it lists what is at least 0.00001.
            assert row.tolist() == [f32(listed.get(f"__label__{label}", 0)) for label in labels], (quantised, text)


def test_negative_sampling_scores_as_one_against_all(tmp_path, write_model):
    sampled, separate = (write_model(tmp_path / f"{loss}.bin", 1, loss, word_ngrams=2) for loss in ("ns", "ova"))
    assert np.array_equal(probabilities(sampled, ASKED), probabilities(separate, ASKED))


def test_a_text_of_which_a_model_knows_nothing_has_no_score(tmp_path, write_model):
    path = write_model(tmp_path / "m.bin", ngrams=(0, 0), vocabulary=("boat",), loss="softmax")
    stage = lc.text.FastTextClassifier(str(path), "en", at_least=0.0)
    edited, (check,) = stage.edit(table("unknown words", "", "boat", None))
    assert [score is None for score in edited["quality"].to_pylist()] == [True, True, False, True]
    assert pc.fill_null(check.passes, False).to_pylist() == [False, False, True, False]


def test_a_model_that_is_cut_or_changed_is_one_sentence_or_answers(tmp_path, write_model):
    whole = write_model(tmp_path / "m.ftz", loss="ova", word_ngrams=2, quantised=("norms", "output")).read_bytes()
    stage, chance = lc.text.FastTextClassifier(str(tmp_path / "m.ftz"), "en"), random.Random(0)
    for _ in range(60):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole) if chance.random() < 0.3 else 250)] ^= 1 << chance.randrange(8)
        for content in (whole[: chance.randrange(len(whole))], bytes(flipped)):
            (tmp_path / "m.ftz").write_bytes(content)
            try:
                stage.edit(table("the boat 船"))
            except StageError as refused:
                assert str(tmp_path / "m.ftz") in str(refused)  # noqa: PT017  # either is right
                assert "\n" not in str(refused)  # noqa: PT017


def test_what_does_not_belong_into_a_model_is_one_sentence(tmp_path, write_model):
    path = write_model(tmp_path / "m.bin")
    whole = path.read_bytes()
    for content, sentence in {
        whole + b"more": "4 bytes follow its last vector",
        whole.replace(b"__label__en\0", b"__label__\xff\xfe\0"): "one of its labels is not UTF-8",
        whole.replace(b"__label__en\0", b"__label__de\0"): "it has the label 'de' more than once",
    }.items():
        path.write_bytes(content)
        with pytest.raises(
            StageError, match=rf"m\.bin cannot be read as a fastText model: {sentence}; download it again$"
        ):
            lc.text.FastTextClassifier(str(path), "de").prepare()


def learn_plainly(model, contents, order, labels, rates):
    """Return rows and output after fastText's steps, one by one."""
    rows, output = model.vectors.rows.copy(), model.vectors.output.copy()
    for text, rate in zip(order, rates, strict=True):
        listed = rows_of(model, contents[text])
        hidden = sum((rows[row] for row in listed), np.zeros(rows.shape[1], f32)) * f32(1 / len(listed))
        outputs = output.astype(np.float64) @ hidden
        powers = np.exp(outputs - outputs.max())
        step = (rate * (np.eye(len(output))[labels[text]] - powers / powers.sum())).astype(f32)
        gradient = step @ output * f32(1 / len(listed))
        output += step[:, None] * hidden
        for row in listed:
            rows[row] += gradient
    return rows, output


def test_training_is_that_of_fasttext(tmp_path, write_model):
    from longcrawl.kernels.texts import text_buffers
    from longcrawl.text.fasttext import train

    path = write_model(tmp_path / "m.bin", 1, "softmax", word_ngrams=2, ngrams=(0, 0), labels=("a", "b"), buckets=60)
    model, contents = read_model(str(path)), [text for text in ASKED if len(text) < 500]
    order = np.array([*range(len(contents)), *range(0, len(contents), 2)])
    labels, rates = np.arange(len(contents), dtype=np.int32) % 2, np.linspace(0.5, 0, len(order)).astype(f32)
    wanted = learn_plainly(model, contents, order, labels, rates)
    data, offsets = text_buffers(pa.array(contents, pa.large_string()))
    train(model.words, model.vectors, data, offsets, model.memory(), order, labels, rates)
    assert np.allclose(model.vectors.rows, wanted[0], atol=1e-4)
    assert np.allclose(model.vectors.output, wanted[1], atol=1e-4)
