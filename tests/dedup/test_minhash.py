"""MinHash: signatures equal to datasketch's, the S-curve within statistical error, and the stage in crawl and run."""

# The alphabets are the point here:

import io
import itertools
import json
import pickle
import random
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from datasets import Dataset
from datasets.fingerprint import Hasher
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup import MinHash, SimilarityCurve, ngram_hash
from longcrawl.dedup.ngrams import WITHOUT_SPACES, split_words
from longcrawl.errors import StageError, TokenizerError
from longcrawl.run.recipe import parse_recipe

WORDS = [
    "to",
    "be",
    "or",
    "not",
    "that",
    "is",
    "the",
    "question",
    "Ωmega",
    "café",
    "a" * 8,
    "b" * 17,
    "中",
    "文字",
    "ไทย",
]
documents = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=40).map(" ".join)


def table_of(texts, ids=None):
    ids = ids or [f"{number:04d}" for number in range(len(texts))]
    return pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.large_string())})


def kept_ids(stage, table):
    removed = set(stage.resolve(stage.sketch(table))["id"].to_pylist())
    return [name for name in table["id"].to_pylist() if name not in removed]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """Return a small tokenizer.json, trained on the words of this module."""
    texts = pa.table({"text": [" ".join(WORDS * 3), "it is a question of the to and the be, " * 20]})
    trained = lc.tokens.Tokenize("trained", vocabulary_size=300).fit([texts], str(tmp_path_factory.mktemp("fit")))
    return trained.tokenizer


def datasketch_of(stage, text):
    import datasketch

    made = datasketch.MinHash(num_perm=stage.permutations, seed=stage.seed, hashfunc=ngram_hash)
    made.update_batch(stage.ngrams(text))
    return made


@given(
    st.lists(documents, min_size=1, max_size=8),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 6),
    st.sampled_from([0, 1, 42, (1 << 32) - 1]),
)
@example(["", " .!", "\0", "one", "to be or not", "to be or not to", "a a a a a a a a a"], 3, 2, 5, 1)
@settings(max_examples=settings.default.max_examples)
def test_signatures_of_words_equal_those_of_datasketch(texts, bands, rows, n, seed):
    stage = MinHash(bands=bands, rows=rows, ngram=n, unit="word", seed=seed)
    for text, ours in zip(texts, stage.to_datasketch(texts), strict=True):
        theirs = datasketch_of(stage, text)
        assert ours == theirs
        assert ours.hashvalues.dtype == theirs.hashvalues.dtype


@given(st.lists(documents, min_size=1, max_size=8), st.integers(1, 6))
@settings(max_examples=settings.default.max_examples // 2)
def test_signatures_of_tokens_equal_those_of_datasketch(tokenizer, texts, n):
    stage = MinHash(bands=3, rows=5, ngram=n, tokenizer=tokenizer)
    for text, ours in zip(texts, stage.to_datasketch(texts), strict=True):
        assert ours == datasketch_of(stage, text)


def test_datasketch_takes_what_we_give_it():
    import datasketch

    stage = MinHash(bands=16, rows=8, unit="word")
    words = [f"word{number}" for number in range(300)]
    texts = [" ".join(words), " ".join([*words[:290], "other"]), " ".join(reversed(words))]
    sketches = stage.to_datasketch(texts)
    index = datasketch.MinHashLSH(num_perm=128, params=(16, 8))
    for name, sketch in zip("abc", sketches, strict=True):
        index.insert(name, sketch)
    assert sorted(index.query(sketches[0])) == ["a", "b"]
    assert sketches[0].jaccard(sketches[1]) == pytest.approx(0.95, abs=0.06)
    assert datasketch.LeanMinHash(sketches[2]).jaccard(sketches[0]) == 0


def test_words_of_scripts_without_spaces_stand_alone():
    assert MinHash(unit="word", ngram=2).ngrams("《双城记》 is a tale") == [
        ("双", "城"), ("城", "记"), ("记", "is"), ("is", "a"), ("a", "tale"),
    ]  # fmt: skip
    edges = {point for first, last in WITHOUT_SPACES for point in (first - 1, first, last, last + 1)}
    text = "x".join(chr(point) for point in sorted(edges))
    stage = MinHash(bands=1, rows=2, ngram=1, unit="word")
    assert len(split_words(text)) > 2 * len(WITHOUT_SPACES)
    assert stage.to_datasketch([text])[0] == datasketch_of(stage, text)


@given(st.lists(documents, min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=settings.default.max_examples // 2)
def test_documents_share_a_band_key_when_they_share_its_values(texts, bands, rows):
    stage = MinHash(bands=bands, rows=rows, ngram=2, unit="word", verify=0.5)
    sketches = stage.sketch(table_of(texts))
    values = stage.signatures(texts).reshape(len(texts), bands, rows)
    grams = [{ngram_hash(gram) for gram in stage.ngrams(text)} for text in texts]
    assert sketches["n_ngrams"].to_pylist() == [len(each) for each in grams]
    assert [set(each) for each in sketches["ngrams"].to_pylist()] == grams
    keys = [None if key is None else np.frombuffer(key, np.uint64) for key in sketches["bands"].to_pylist()]
    assert [key is None for key in keys] == [not each for each in grams]
    for one, other in itertools.combinations([at for at in range(len(texts)) if grams[at]], 2):
        if len(grams[one]) > 1 and len(grams[other]) > 1:
            assert ((keys[one] == keys[other]) == (values[one] == values[other]).all(axis=1)).all()
        else:
            assert (keys[one] == keys[other]).all() == (grams[one] == grams[other])


def test_short_documents_are_compared_as_a_whole_and_empty_ones_kept():
    texts = ["", None, "!?", "Yes!", "yes", "yes yes", "no, thanks", "No thanks.", "", "yes " * 9, "YES " * 20]
    for stage in (MinHash.preset("fineweb", keep="first"), MinHash(bands=9, unit="word", keep="first", verify=0.9)):
        assert kept_ids(stage, table_of(texts)) == ["0000", "0001", "0002", "0003", "0005", "0006", "0008", "0009"]


def test_one_ngram_is_compared_by_all_its_bits():
    """With 200,000 documents of one n-gram each, 32 bits alone would link about five pairs."""
    texts = [f"{number} b c d e" for number in range(200_000)]
    stage = MinHash(bands=1, rows=1, unit="word", max_cluster=None)
    sketches = stage.sketch(table_of(texts))
    assert len(set(sketches["bands"].to_pylist())) == len(texts)
    assert len({*stage.signatures(texts).ravel().tolist()}) < len(texts)


def near_copies(seed=0, families=30):
    """Make families of a document and near copies of it, and documents of their own, shuffled."""
    chance = random.Random(seed)
    rows = []
    for family in range(families):
        words = [f"w{chance.randrange(5000)}" for _ in range(chance.randint(200, 400))]
        for copy in range(chance.randint(1, 4)):
            changed = list(words)
            for _ in range(copy):
                changed[chance.randrange(len(changed))] = "changed"
            rows.append({"id": f"{family}-{copy}", "text": " ".join(changed).capitalize() + "!" * copy})
    chance.shuffle(rows)
    return rows


@pytest.mark.variants
@pytest.mark.parametrize("keep", ["random", "longest", "first"])
def test_batches_do_not_matter_and_order_only_for_the_first(keep):
    rows = near_copies()
    stage = MinHash.preset("fineweb", keep=keep)
    found = []
    for turn in range(3):
        if keep != "first":
            random.Random(turn).shuffle(rows)
        data = Dataset.from_list(rows)
        batches = data.with_format("arrow").iter([7, 1000, 1][turn])
        sketches = pa.concat_tables([stage.sketch(batch) for batch in batches])
        found.append(stage.resolve(sketches).sort_by("id"))
        crawl = lc.Crawl(data) | stage
        assert sorted(crawl.ledger["id"].to_pylist()) == found[-1]["id"].to_pylist()
    assert found[0] == found[1] == found[2]
    kept = set(found[0]["kept_id"].to_pylist())
    assert not kept & set(found[0]["id"].to_pylist())
    if keep == "first":
        places = {row["id"]: place for place, row in enumerate(rows)}
        assert all(places[row["kept_id"]] < places[row["id"]] for row in found[0].to_pylist())
    if keep == "longest":
        lengths = {row["id"]: len(row["text"].encode()) for row in rows}
        assert all(lengths[row["kept_id"]] >= lengths[row["id"]] for row in found[0].to_pylist())


def test_near_copies_leave_and_the_ledger_says_why():
    rows = sorted(near_copies(), key=lambda row: int(row["id"][-1]))
    crawl = lc.Crawl(Dataset.from_list(rows)) | lc.dedup.MinHash.preset("refinedweb", unit="word", keep="first")
    assert sorted(crawl.data["id"][:]) == sorted(row["id"] for row in rows if row["id"].endswith("-0"))
    reason = crawl.why("3-1") if any(row["id"] == "3-1" for row in rows) else crawl.why("1-1")
    assert reason.rule == "near_duplicate"
    assert reason.kept_id == reason.id.replace("-1", "-0")
    assert 0.8 < reason.value <= 1
    assert crawl.funnel.kept == 30
    gone = crawl.removed("min_hash")
    assert set(gone["kept_id"][:]) <= set(crawl.data["id"][:])


def test_estimated_similarities_are_those_of_the_ngrams():
    rows = near_copies(1, 60)
    table = pa.Table.from_pylist(rows)
    estimated = {r["id"]: r for r in resolve(MinHash(unit="word", keep="first"), table)}
    measured = {r["id"]: r for r in resolve(MinHash(unit="word", keep="first", verify=0.1), table)}
    assert estimated.keys() == measured.keys()
    errors = [estimated[name]["value"] - measured[name]["value"] for name in measured]
    assert abs(np.mean(errors)) < 0.02
    assert np.max(np.abs(errors)) < 0.15


def resolve(stage, table):
    return stage.resolve(stage.sketch(table)).to_pylist()


def sets_of_similarity(rng, size, common, pairs):
    """Return texts of ``size`` distinct words each, neighbours with ``common`` of them in common."""
    for _ in range(pairs):
        words = [f"{number:x}" for number in rng.choice(1 << 40, 2 * size - common, replace=False)]
        yield " ".join(words[:size])
        yield " ".join(words[size - common :])


@pytest.mark.slow
@pytest.mark.parametrize(("bands", "rows"), [(14, 8), pytest.param(450, 20, marks=pytest.mark.slow), (20, 45)])
def test_the_share_of_pairs_found_is_that_of_the_curve(bands, rows):
    """Over five seeds, each with other permutations and other documents: within four standard errors, three in all."""
    pairs, size = 250, 60
    curve = SimilarityCurve(bands, rows)
    for common in (size * 7 // 10, size * 8 // 10, size * 9 // 10, size - 1):
        expected = float(curve(common / (2 * size - common)))
        shares = []
        for seed in range(5):
            stage = MinHash(bands=bands, rows=rows, ngram=1, unit="word", seed=seed)
            texts = list(sets_of_similarity(np.random.default_rng([seed, common]), size, common, pairs))
            keys = np.array(
                [list(memoryview(key).cast("Q")) for key in stage.sketch(table_of(texts))["bands"].to_pylist()]
            )
            shares.append(float((keys[::2] == keys[1::2]).any(axis=1).mean()))
        error = (max(expected * (1 - expected), 1 / pairs) / pairs) ** 0.5
        assert all(abs(share - expected) < 4 * error for share in shares), (common, expected, shares)
        assert abs(np.mean(shares) - expected) < 3 * error / 5**0.5, (common, expected, shares)


def test_the_curve_prints_its_shape(monkeypatch):
    text = str(MinHash.preset("refinedweb").curve)
    assert text.startswith("450 bands of 20: half of all pairs of similarity 0.723 are found")
    assert re.search(r"0\.80  0\.994[0-9]  █{40}", text)
    literal = SimilarityCurve(bands=20, rows=450)
    assert literal.half == pytest.approx(0.9925, abs=1e-4)
    assert float(literal(0.8)) == pytest.approx(20 * 0.8**450)
    assert SimilarityCurve(3, 2)([0.0, 1.0]).tolist() == [0.0, 1.0]
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(StageError, match=r"pip install 'longcrawl\[plots\]'"):
        literal.plot()


def test_the_curve_is_drawn():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = SimilarityCurve(14, 8).plot()
    assert SimilarityCurve(450, 20).plot(axes) is axes
    assert [line.get_label() for line in axes.lines] == ["14 bands of 8", "450 bands of 20"]


def test_only_the_beginning_of_a_text_is_compared():
    head = " ".join(WORDS)
    table = pa.table({"id": ["a", "b", "c"], "text": [head, f"{head} and an end", "é" * 9]})
    stage = MinHash(bands=4, rows=2, ngram=2, unit="word", max_characters=len(head))
    assert stage.removals(stage.sketch(table))["kept_id"].to_pylist() in (["a"], ["b"])
    cut = pa.array([text[: len(head)] for text in table["text"].to_pylist()])
    assert (stage.signatures(table["text"]) == replace(stage, max_characters=None).signatures(cut)).all()
    assert stage.ngrams(f"{head} and an end") == stage.ngrams(head)
    short = replace(stage, max_characters=3)
    assert short.ngrams("éé é é") == [("ee",)]  # characters, not bytes
    assert "max_characters" not in MinHash().settings() | MinHash(unit="word").hashed()
    assert stage.hashed()["max_characters"] == stage.settings()["max_characters"] == len(head)


def test_presets_and_thresholds():
    import datasketch

    assert MinHash.preset("refinedweb") == MinHash()
    assert (MinHash().bands, MinHash().rows, MinHash().ngram, MinHash().unit) == (450, 20, 5, "token")
    assert MinHash.preset("lee2022", verify=None) == MinHash(unit="word")
    assert MinHash.preset("fineweb", seed=3).seed == 3
    for threshold, permutations in ((0.8, 128), (0.5, 64), (0.95, 200), (0.3, 16)):
        theirs = datasketch.MinHashLSH(threshold=threshold, num_perm=permutations)
        stage = MinHash.for_threshold(threshold, permutations, unit="word")
        assert (stage.bands, stage.rows) == (theirs.b, theirs.r)
    weighted = datasketch.MinHashLSH(threshold=0.8, num_perm=128, weights=(0.1, 0.9))
    assert MinHash.for_threshold(0.8, false_positive_weight=0.1).bands == weighted.b
    with pytest.raises(StageError, match="threshold is 1.5, permutations 128 and"):
        MinHash.for_threshold(1.5)
    with pytest.raises(StageError, match="unknown preset 'fine'; known: fineweb, finepdfs, lee2022, refinedweb"):
        MinHash.preset("fine")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"bands": 0}, "min_hash.bands is 0: set it to 1 or more"),
        ({"rows": -1}, "min_hash.rows is -1"),
        ({"ngram": 0}, "min_hash.ngram is 0"),
        ({"bands": 9000, "rows": 200}, "use at most 1,048,576 hash values"),
        ({"seed": -1}, "min_hash.seed is -1: set it from 0 to 4,294,967,295"),
        ({"verify": 0.0}, "min_hash.verify is 0.0: set it above 0 and up to 1, or to null"),
        ({"min_size_ratio": 2}, "min_hash.min_size_ratio is 2"),
        ({"linkage": "star"}, "set verify, such as 0.8"),
        ({"unit": "char"}, "takes one of 'token', 'word', got 'char'"),
        ({"keep": "last"}, "takes one of 'random', 'longest', 'first'"),
    ],
)
def test_wrong_settings_are_one_sentence(fields, said):
    with pytest.raises(StageError, match=re.escape(said)):
        MinHash(**fields)


def test_wrong_tables_are_one_sentence():
    stage = MinHash(unit="word")
    with pytest.raises(StageError, match="min_hash needs a column 'text'; the documents have: id"):
        stage.sketch(pa.table({"id": ["a"]}))
    with pytest.raises(StageError, match="min_hash needs a column 'text' of strings, but it is int64"):
        stage.sketch(pa.table({"id": ["a"], "text": [1]}))
    with pytest.raises(StageError, match="needs an id for every document, but the id of row 0 is null"):
        stage.sketch(pa.table({"id": pa.array([None], pa.string()), "text": ["a"]}))
    broken = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, 2])), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(StageError, match="the column 'text' is damaged"):
        stage.sketch(pa.table({"id": ["a"], "text": broken}))
    with pytest.raises(TokenizerError, match="no tokenizer at"):
        MinHash(tokenizer="no/such/tokenizer.json").prepare()
    with pytest.raises(StageError, match="min_hash needs unique ids, but 'a' occurs twice"):
        lc.Crawl(Dataset.from_dict({"id": ["a", "a"], "text": ["x", "y"]})) | stage


def test_pickles_with_the_content_of_the_tokenizer(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(open(tokenizer, "rb").read())  # noqa: PTH123, SIM115  # a path as text
    stage = MinHash(tokenizer=str(path))
    before, pickled = Hasher.hash(stage), pickle.dumps(stage)
    assert pickle.loads(pickled) == stage
    assert Hasher.hash(MinHash(unit="word", tokenizer="no/such/tokenizer.json"))
    path.write_text(path.read_text() + "\n")
    assert Hasher.hash(stage) != before
    with pytest.raises(TokenizerError, match="changed since the stage was saved"):
        pickle.loads(pickled)


@pytest.mark.slow
def test_a_run_removes_what_a_crawl_removes(tmp_path):
    rows = near_copies(3, 40)
    (tmp_path / "texts").mkdir()
    for part in range(3):
        with (tmp_path / "texts" / f"{part}.jsonl").open("w") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows[part::3])
    stages = [
        {"min_hash": {"bands": 14, "rows": 8, "unit": "word"}},
        {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}},
        {"truncate": {"n": 32}},
        "shuffle",
    ]
    spec = {
        "longcrawl": 1,
        "name": "near",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(tmp_path / "texts")},
        "stages": stages,
        "outputs": {"rectangle": {"heldout": 0.1}},
    }
    lc.run(parse_recipe(spec), tmp_path / "one")
    lc.run(parse_recipe(spec), tmp_path / "two", num_proc=2)
    crawl = lc.open("text", id_field="id", data_dir=str(tmp_path / "texts")) | MinHash.preset("fineweb")
    funnel = lc.funnel(tmp_path / "one")
    assert funnel.rows[0].rules == {"near_duplicate": len(crawl.ledger)} == lc.funnel(tmp_path / "two").rows[0].rules
    for row in crawl.ledger.to_pylist():
        reason = lc.why(tmp_path / "one", row["id"])
        assert (reason.stage, reason.kept_id, reason.value) == ("min_hash", row["kept_id"], row["value"])
    assert lc.why(tmp_path / "one", crawl.data["id"][0]).stage is None


def real_documents(real_data, name="short"):
    with (real_data / f"{name}.jsonl.zst").open("rb") as packed:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), encoding="utf-8")
        return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["word", "token"])
def test_signatures_of_real_text_equal_those_of_datasketch(real_data, unit):
    texts = [document["text"] for document in real_documents(real_data)][::20]
    stage = MinHash(bands=14, rows=8, unit=unit, tokenizer=str(real_data / "gpt2-tokenizer.json"))
    for text, ours in zip(texts, stage.to_datasketch(texts), strict=True):
        assert ours == datasketch_of(stage, text)
    assert len(texts) > 250


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset", ["fineweb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lee2022", "refinedweb"))]
)
def test_unrelated_books_are_never_one_cluster(real_data, preset):
    books = [document for document in real_documents(real_data, "long") if document["kind"] == "book"]
    table = table_of([book["text"] for book in books], [book["id"] for book in books])
    assert len(books) > 100
    stage = MinHash.preset(preset, tokenizer=str(real_data / "gpt2-tokenizer.json"))
    assert stage.resolve(stage.sketch(table)).num_rows == 0


def one_long_text(words):
    """Return a text of random words of five letters, and one with the last hundredth of it replaced."""
    letters = np.random.default_rng(0).integers(97, 123, (words + words // 100, 6), dtype=np.uint8)
    letters[:, 5] = 32
    other = np.concatenate([letters[: words - words // 100], letters[words:]])
    return [pa.py_buffer(each).to_pybytes().decode() for each in (letters[:words], other)]


def resolve_long_texts(words):
    texts = [*one_long_text(words), "a few words of another text"]
    stage = MinHash.preset("fineweb", verify=0.9, linkage="star", keep="first")
    sketches = stage.sketch(table_of(texts))
    (row,) = stage.resolve(sketches).to_pylist()
    assert (row["id"], row["kept_id"]) == ("0001", "0000")
    assert row["value"] == pytest.approx(99 / 101, abs=1e-3)
    counts = sketches["n_ngrams"].to_pylist()
    assert counts[2] == 2
    # Of 32-bit hashes, some agree by chance.
    expected = (1 - np.exp(-(words - 4) / 2**32)) * 2**32
    assert counts[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_text_of_a_million_words():
    resolve_long_texts(1_000_000)


@pytest.mark.slow
def test_a_text_of_fifty_million_words():
    resolve_long_texts(50_000_000)
