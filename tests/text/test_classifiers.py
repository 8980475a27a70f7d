"""Classifiers: scores equal to fastText's and transformers' own, columns, thresholds, fits, and what is damaged."""

# The alphabets are the point here:

import json
import math
import pickle
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datasets import Dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import StageError
from longcrawl.io.files import content_digest
from longcrawl.run.recipe import load_recipe
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


# -------------------- columns, thresholds, line ends


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_model):
    return str(write_model(tmp_path_factory.mktemp("m") / "model.bin", 3, "softmax", word_ngrams=2))


def test_several_labels_have_columns_and_rules_of_their_own(model):
    contents = [f"{one} {other}" for one in WORDS for other in WORDS]
    stage = lc.text.FastTextClassifier(model, ("en", "de"), at_least={"de": 0.2, "en": 0.1}, column="q")
    edited, checks = stage.edit(table(*contents))
    assert edited.column_names == ["id", "text", "q_en", "q_de"]
    assert [check.rule for check in checks] == ["at_least_en", "at_least_de"]
    both = probabilities(model, contents, [0, 1]).astype(float)
    assert np.array_equal(np.stack([edited["q_en"], edited["q_de"]], axis=1), both)
    crawl = lc.Crawl(Dataset(table(*contents))) | stage
    kept = (both >= [0.1, 0.2]).all(axis=1)
    assert 0 < kept.sum() < len(kept)
    assert crawl.data["id"] == [f"d{number}" for number in np.flatnonzero(kept)]
    for number in np.flatnonzero(~kept)[:5]:
        reason = crawl.why(f"d{number}")
        place = 0 if both[number, 0] < 0.1 else 1
        assert (reason.rule, reason.value, reason.threshold) == (
            ("at_least_en", both[number, 0], 0.1),
            ("at_least_de", both[number, 1], 0.2),
        )[place]
    assert lc.text.FastTextClassifier(model, "en").edit(table("the"))[1] == []


def test_a_fraction_of_the_documents_stays_whatever_their_order(model, tmp_path):
    contents = [" ".join(random.Random(seed).choices(WORDS, k=9)) + f" w{seed}" for seed in range(200)]
    scores = probabilities(model, contents, [0])[:, 0].astype(float)
    stage = lc.text.FastTextClassifier(model, "en", top_fraction=0.1, train_documents=None)
    rows = table(*contents)
    fitted = stage.fit([rows.slice(100), rows.slice(0, 100)], str(tmp_path))
    assert fitted == replace(stage, at_least=float(np.sort(scores)[-20]), top_fraction=None)
    crawl = lc.Crawl(Dataset(rows)) | stage
    assert crawl.data["id"] == [f"d{number}" for number in np.flatnonzero(scores >= np.sort(scores)[-20])]
    lost = int(np.argmin(scores))
    assert crawl.why(f"d{lost}").value == scores[lost]
    assert crawl.why(f"d{lost}").threshold == fitted.at_least
    both = lc.text.FastTextClassifier(model, ("en", "de"), {"en": 0.3}, {"de": 0.5}).fit([rows], str(tmp_path))
    assert both.at_least == {"en": 0.3, "de": float(np.sort(probabilities(model, contents, [1])[:, 0])[-100])}
    with pytest.raises(StageError, match="has no threshold yet: call stage.fit"):
        stage.edit(rows)
    with pytest.raises(StageError, match="has no score to fit top_fraction to"):
        stage.fit([rows.slice(0, 0)], str(tmp_path))


def test_a_run_decides_as_a_crawl_does(model, run_stages):
    contents = {f"d{seed}": " ".join(random.Random(seed).choices(WORDS, k=400)) for seed in range(8)}
    spec = {"model": model, "label": ["en", "de"], "top_fraction": {"en": 0.5}, "column": "q"}
    out = run_stages(contents, {"fast_text_classifier": spec})
    crawl = lc.Crawl(Dataset.from_dict({"id": list(contents), "text": list(contents.values())}))
    crawl = crawl | load_recipe(str(out / "recipe.yaml")).stages[0][1]
    assert {lc.why(out, name).rule for name in contents} == {None, "at_least_en"}
    for name in contents:
        assert replace(lc.why(out, name), edits=()) == crawl.why(name)
    materials = json.loads((out / "manifest.json").read_text())["materials"]
    assert materials["fast_text_classifier"][model]["sha256"] == content_digest(model)


EVERY = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x3100)]))


def test_lines_end_as_fasttext_or_dclm_have_it(tmp_path, write_model):
    plain = write_model(tmp_path / "m.bin", 1, "softmax", ngrams=(1, 2), word_ngrams=2)
    contents = [f"{mark}the boat{mark}\n{mark} Boot" for mark in EVERY if mark.isspace() or mark in "\x1c\x1e\0a"]
    joined = [" ".join(text.strip().splitlines()) for text in contents]
    for policy, meant in (("newline", contents), ("splitlines", joined)):
        stage = lc.text.FastTextClassifier(str(plain), "en", line_ends=policy)
        found = stage.measure(pa.array(contents, pa.large_string())).scores
        assert found["en"].to_pylist() == probabilities(plain, meant, [0])[:, 0].astype(float).tolist()
    assert joined != contents


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"label": "fr"}, "has no label 'fr'"),
        ({"label": ()}, "takes a label or several different ones, got ()"),
        ({"label": ("en", "en")}, "takes a label or several different ones"),
        ({"at_least": 0.1, "top_fraction": 0.1}, "has at_least and top_fraction for 'en': set one of them"),
        ({"top_fraction": 10}, "top_fraction is a share of at most 1, such as 0.1, got 10.0"),
        ({"at_least": {"de": 1}}, "at_least names 'de'; label has: en"),
        ({"label": ("en", "de"), "at_least": 0.5}, "at_least is one number for 2 labels: name them, such as {en: 0.5}"),
        ({"column": "text"}, "column is 'text': name a column of its own for the scores"),
        ({"model": ""}, "model is empty: name a fastText model, as longcrawl train-classifier writes one"),
        ({"model": "nowhere.bin"}, "nowhere.bin does not exist; give the path of a fastText model"),
        ({"model": "."}, ". is a folder; give the path of the fastText model in it (.bin or .ftz)"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_sentence(model, fields, sentence):
    with pytest.raises(StageError, match=re.escape(sentence)) as raised:
        lc.text.FastTextClassifier(**{"model": model, "label": "en", **fields}).prepare()
    assert "\n" not in str(raised.value)


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
        with pytest.raises(StageError, match=rf"m\.bin cannot be read as a fastText model: {sentence}; get it again$"):
            lc.text.FastTextClassifier(str(path), "de").prepare()


def test_a_changed_model_is_another_stage(tmp_path, write_model):
    path = write_model(tmp_path / "m.bin")
    stage = lc.text.FastTextClassifier(str(path), "en", at_least={"en": 0.5})
    assert stage == pickle.loads(pickle.dumps(stage))
    assert hash(stage) == hash(pickle.loads(pickle.dumps(stage)))
    before = pickle.dumps(stage)
    write_model(path, 1)
    assert pickle.dumps(stage) != before


# -------------------- training one's own

SEA, LUCK = ["whale", "ship", "sea", "captain", "harpoon", "sail"], ["casino", "win", "bonus", "spin", "card", "luck"]
BOTH = ["the", "a", "of", "and", "to", "in", "that", "it", "was"]


def topic(words, count, seed=0):
    """Return texts with common words, and some of a topic."""
    chance = random.Random(seed)
    return [" ".join(chance.choices([*words, *BOTH], k=25)) + f" {number}" for number in range(count)]


def columns(contents):
    return pa.table({"text": contents})


def test_a_trained_classifier_tells_two_topics_apart_whatever_the_order(tmp_path):
    good, bad = topic(SEA, 60), topic(LUCK, 50)
    found = lc.text.train_classifier(columns(good), columns(bad), tmp_path / "a.bin", dimensions=4, epochs=40)
    assert (found.trained, found.held_out, found.labels) == ((54, 45), (6, 5), ("good", "bad"))
    assert (found.auc, found.at(0.5)) == (1.0, (0.5, 1.0, 1.0, 0.0))
    assert "held out, AUC 1.0000, score of good" in str(found)
    random.Random(1).shuffle(good)
    parts = Dataset.from_dict({"text": bad[::-1]}).to_iterable_dataset()
    again = lc.text.train_classifier(columns(good), parts, tmp_path / "b.bin", dimensions=4, epochs=40)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()
    assert replace(again, path=found.path) == found
    other = lc.text.train_classifier(columns(good), columns(bad), tmp_path / "c.bin", dimensions=4, epochs=40, seed=1)
    assert (tmp_path / "c.bin").read_bytes() != (tmp_path / "b.bin").read_bytes()
    assert other.auc == 1.0
    new = topic(SEA, 30, seed=5) + topic(LUCK, 30, seed=6)
    kept = lc.text.FastTextClassifier(str(tmp_path / "a.bin"), "good", at_least=0.5)(columns(new))
    assert kept["text"].to_pylist() == new[:30]


@pytest.mark.parametrize("more", [{}, {"word_ngrams": 1}, {"characters": (2, 3), "word_ngrams": 3}])
def test_fasttext_reads_a_trained_model(tmp_path, more):
    fasttext = pytest.importorskip("fasttext")
    path, contents = tmp_path / "m.bin", topic(SEA, 20) + topic(LUCK, 30) + ["unknown"]
    lc.text.train_classifier(columns(contents[:20]), columns(contents[20:]), path, dimensions=3, epochs=5, **more)
    peer = fasttext.load_model(str(path))
    for text, (good,) in zip(
        contents, probabilities(path, contents, [read_model(str(path)).labels.index("good")]), strict=True
    ):
        assert {name: score for score, name in peer.f.predict(text + "\n", -1, 0.0, "strict")}["__label__good"] == good


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


def test_texts_of_both_sets_are_left_out_and_counted(tmp_path):
    good, bad = topic(SEA, 12), topic(LUCK, 12)
    more = [good[0], *bad[:2], "", None, "__label__x"]
    settings = {"dimensions": 2, "epochs": 1}
    found = lc.text.train_classifier(columns(good + more), columns(bad), tmp_path / "a.bin", **settings)
    assert (found.in_both, found.repeated, found.without_text) == (2, 1, 3)
    assert (sum(found.trained), sum(found.held_out)) == (19, 3)
    assert "in both, left out: 2\nrepeated: 1\nwithout text: 3" in str(found)
    lc.text.train_classifier(columns(good), columns(bad[2:]), tmp_path / "b.bin", **settings)
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


@pytest.mark.parametrize(
    ("good", "more", "sentence"),
    [
        ([], {}, "'good' has 0 documents with text of its own: give two or more"),
        (["x", "x", " "], {}, "'good' has 1 documents with text of its own: give two or more"),
        (topic(LUCK, 9), {}, "'good' has 0 documents with text of its own, besides 9 that are in both sets: give"),
        (["a", "b"], {"held_out": 1.0}, "held_out is a share such as 0.1"),
        (["a", "b"], {"labels": ("x", "x")}, "labels are two different words"),
        (["a", "b"], {"word_ngrams": 0}, "word_ngrams is 1 to 64"),
        (["a", "b"], {"labels": ("x", " y")}, "labels are two different words"),
        (["a", "b"], {"labels": ("x", "y\0z")}, "labels are two different words"),
        (["a", "b"], {"labels": (1, 2)}, "labels are two different words"),
        (["a", "b"], {"buckets": 0}, "dimensions and min_count are 1 or more, and buckets 1 to 100,000,000"),
        (["a", "b"], {"epochs": 0}, "epochs are 1 or more, got 0"),
    ],
)
def test_sets_that_teach_nothing_are_one_sentence(tmp_path, good, more, sentence):
    bad = columns(topic(LUCK, 9))
    with pytest.raises(StageError, match=re.escape(sentence)):
        lc.text.train_classifier(pa.table({"text": pa.array(good, pa.string())}), bad, tmp_path / "m.bin", **more)
    assert not (tmp_path / "m.bin").exists()


def test_a_model_is_not_written_over_another(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"mine")
    with pytest.raises(StageError, match=r"m.bin exists already: name another file"):
        lc.text.train_classifier(columns(["a", "b"]), columns(["c", "d"]), tmp_path / "m.bin")
    with pytest.raises(StageError, match="is a folder: name a file"):
        lc.text.train_classifier(columns(["a", "b"]), columns(["c", "d"]), Path(tmp_path))


def test_the_command_trains_of_folders_and_prints_what_the_model_is_worth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, words in (("good", SEA), ("bad", LUCK), ("empty", ())):
        Path(name).mkdir()
        for number, text in enumerate(topic(words, 12) if words else ()):
            Path(name, f"{number}.txt").write_text(text)
    asked = CliRunner().invoke(app, ["train-classifier", "good", "bad", "--out", "m.bin", "--epochs", "3"])
    assert asked.exit_code == 0, asked.output
    assert re.search(r"learnt from +10 +10\nheld out +2 +2\n", asked.output)
    assert re.search(r"\n0.5 +\S+ % +\S+ % +\S+ %\n", asked.output)
    kept = (lc.open("good") | lc.text.FastTextClassifier("m.bin", "good")).data
    assert len(kept["quality"]) == 12
    asked = CliRunner().invoke(app, ["train-classifier", "good", "empty", "--out", "n.bin"])
    assert re.match(r"'empty' has no documents, by the names of its files: ", str(asked.exception))
    assert not Path("n.bin").exists()
