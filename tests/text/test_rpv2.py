"""RedPajama-V2's signals from text: against plain Python over all of Unicode, and against the release's own values."""

# The alphabets are the point here:
# ruff: noqa: RUF001

import json
import math
import os
import re
import struct
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
import signals as plain
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.sources import BadFiles
from longcrawl.errors import StageError
from longcrawl.kernels import code_points as _unicode
from longcrawl.sources.redpajama_v2 import DOCUMENT_SIGNALS, LINE_SIGNALS, SIGNALS_TYPE, RedPajamaV2, line_signals_type

STOP_WORDS = {"en": ["the", "of", "a's", "Σ", "ab", "²"], "de": ["der", "the"]}
BAD_WORDS = {"en": ["ab", "a b", "b a b", "é", "é", "no  way", "x"], "fr": ["a"]}
NEEDS_A_MODEL = [name for name in DOCUMENT_SIGNALS if "_ml_" in name or "importance" in name]

AWKWARD = (
    "abcABC xyz  \n\n.!?…#{}'-_,;:\"1²½٣Ⅷ\u00a0\u2003\u2028\x85\x1c\x0b\t\r\0"
    "é\u0301\u0323\u0327ÅΣσςİıſǅßﬁ가각한\u200d\u00ad\u2019"
    "•‣\N{EN DASH}■”“😀中文字१ʰͅ参\ufffd\U0010ffff"
)
texts = st.text(st.sampled_from(AWKWARD), max_size=60) | st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(AWKWARD), max_size=60
)
repetitive = st.lists(
    st.sampled_from(["a", "b", "ab", "lorem", "ipsum", "ıpſum", "javascript", "...", "\n"]), max_size=60
)


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """Write the small lists of this module; gives the fields that name them."""
    folder = tmp_path_factory.mktemp("lists")
    (folder / "stop_words.json").write_text(json.dumps(STOP_WORDS))
    (folder / "bad_words").mkdir()
    for language, words in BAD_WORDS.items():
        (folder / "bad_words" / f"{language}.txt").write_text("\n".join(words) + "\n\n")
    (folder / "bad_words" / "README.md").write_text("not a list")
    return {"stop_words": str(folder / "stop_words.json"), "bad_words": str(folder / "bad_words")}


def assert_equals_plain(documents, lists):
    table = pa.table({"text": pa.array(documents, pa.large_string())})
    found = lc.text.Signals(line_signals=["all"], language="en", **lists)(table)
    bad_words = frozenset(BAD_WORDS["en"])
    for text, signals, lines in zip(
        documents, found["signals"].to_pylist(), found["line_signals"].to_pylist(), strict=True
    ):
        expected = plain.plain_signals(text, frozenset(STOP_WORDS["en"]), bad_words)
        assert {name: signals[name] for name in expected} == expected, text
        assert lines == plain.plain_line_signals(text), text
        assert all(signals[name] is None for name in signals.keys() - expected.keys())


@given(st.lists(texts, max_size=4))
@example(["", " ", "\n", "\n\n", "\0", "...", "…", ".", " \x1c\x1d", "\ufeff"])
@example(["ΑΣ", "ΑΣ.", "ΑΣ\u00adΑ", "Σ Σ", "ΟΔΥΣΣΕΥΣ 'Σ", "aΣ'\u0345b", "\u0345Σ"])
@example(["...\n. ..\n.. .\n... \n", "lorem ipsum Lorem, Ipsum xlorem ipsumx lorem ıpſum", "lorem ıpſum"])
@example(["e" + "\u0301\u0323\u0327" * 40 + " e\u0301", "\u0344\u0f73\u0f75" * 20, "x" * 300 + "\n" + "x" * 300])
@example(["A.²½.٣!\n•a\n \N{EN DASH} b”\n{}#…#...."])
@settings(max_examples=settings.default.max_examples, deadline=None)  # the first call compiles the kernels
def test_every_signal_equals_plain_python(lists, documents):
    assert_equals_plain(documents, lists)


@given(repetitive.map(" ".join))
@settings(deadline=None)
def test_repeated_words_equal_plain_python(lists, document):
    assert_equals_plain([document], lists)


@pytest.mark.slow
def test_long_documents_go_through_in_blocks(lists):
    lines = [f"Line {number} of {number % 7} ab É\u0301 the end." for number in range(3000)]
    assert_equals_plain(["\n".join(lines), " ".join(lines), "é" * 50_000, "a b " * 5000], lists)


@pytest.mark.slow
def test_no_character_has_more_points_per_byte_than_there_is_memory_for():
    from longcrawl.text.rpv2 import MOST_PER_BYTE

    for point in (point for point in range(0x110000) if not 0xD800 <= point < 0xE000):
        normal = unicodedata.normalize("NFD", chr(point).lower())
        assert len(normal) <= MOST_PER_BYTE * len(chr(point).encode())


def test_null_texts_give_null_signals():
    table = pa.table({"text": pa.array([None, "a b", None, ""], pa.string())})
    made = lc.text.Signals(line_signals=["rps_lines_num_words"])(table)
    assert made["signals"].is_null().to_pylist() == [True, False, True, False]
    assert made["line_signals"].to_pylist() == [
        None, {"rps_lines_num_words": [[0.0, 3.0, 2.0]]}, None, {"rps_lines_num_words": []},
    ]  # fmt: skip
    empty = made["signals"].to_pylist()[3]
    assert empty["rps_doc_mean_word_length"] is None
    assert empty["rps_doc_word_count"] == empty["rps_lines_num_words.sum"] == 0.0
    assert lc.text.SignalRules()(made) == [False] * 4


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slices_and_no_documents_at_all(kind):
    table = pa.table({"text": pa.array(["one", "two words", "é three words"], kind)})
    words = pa.compute.struct_field(lc.text.Signals()(table.slice(1))["signals"], "rps_doc_word_count")
    assert words.to_pylist() == [2.0, 3.0]
    none = lc.text.Signals(line_signals=["all"])(table.slice(0, 0))
    assert none.schema.field("signals").type == SIGNALS_TYPE
    assert none.schema.field("line_signals").type == line_signals_type(LINE_SIGNALS)
    assert none.num_rows == 0


def test_what_is_no_text_is_one_sentence():
    with pytest.raises(StageError, match="needs a column 'text' of strings, but it is int64"):
        lc.text.Signals()(pa.table({"text": [1]}))
    for offsets, content in (([0, 2], b"\xf4\xff"), ([0, 3, 1], b"abc")):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(content)]
        damaged = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
        with pytest.raises(StageError, match="column 'text' is damaged"):
            lc.text.Signals()(pa.table({"text": damaged}))


def test_a_line_of_many_megabytes_and_a_row_of_many_marks_end_soon():
    long = lc.text.Signals()(pa.table({"text": ["word " * 1_000_000, "e" + "\u0301\u0323" * 200_000]}))
    words = pa.compute.struct_field(long["signals"], "rps_doc_word_count")
    assert words.to_pylist() == [1_000_000.0, 1.0]


def test_lists_go_by_the_language_of_each_document(lists):
    table = pa.table({"text": ["the of", "the of", "the ab", "a", "the"], "language": ["en", "de", None, "fr", "xx"]})
    found = lc.text.Signals(**lists)(table)["signals"].to_pylist()
    assert [row["rps_doc_stop_word_fraction"] for row in found] == [1.0, 0.5, None, None, None]
    assert [row["rps_doc_ldnoobw_words"] for row in found] == [0.0, None, None, 1.0, None]
    assert lc.text.Signals(language="de", **lists)(table)["signals"][0]["rps_doc_stop_word_fraction"].as_py() == 0.5


def test_a_language_has_several_names_and_both_lists_may_take_another(tmp_path):
    (tmp_path / "stop_words.json").write_text('{"eng": ["the"], "fra_Latn": ["le"], "zh": ["a"]}')
    (tmp_path / "bad_words.json").write_text('{"en": ["the"], "deu": ["der"]}')
    fields = {"stop_words": str(tmp_path / "stop_words.json"), "bad_words": str(tmp_path / "bad_words.json")}
    names = ["en-GB", "eng_Latn", "fr", "de", "cmn_Hani", "english", None]
    table = pa.table({"text": ["the le a der"] * len(names), "language": names})
    found = lc.text.Signals(**fields)(table)["signals"].to_pylist()
    stops, bad = [0.25, 0.25, 0.25, None, 0.25, None, None], [1.0, 1.0, None, 1.0, None, None, None]
    assert [row["rps_doc_stop_word_fraction"] for row in found] == stops
    assert [row["rps_doc_ldnoobw_words"] for row in found] == bad
    for name, row in zip(names[:5], found, strict=False):
        alone = lc.text.Signals(language=name, **fields)(table.drop_columns("language"))
        assert alone["signals"][0].as_py() == row


def test_a_language_without_a_list_is_one_sentence(lists, tmp_path):
    with pytest.raises(StageError) as raised:
        lc.text.Signals(language="xx", **lists).prepare()
    given = f"{lists['stop_words']} and {lists['bad_words']}"
    assert str(raised.value) == f"signals.language is 'xx', for which {given} has no list; known: de, en, fr"
    lc.text.Signals(language="xx").prepare()
    missing = lc.text.Signals(language="fra", **lists)(pa.table({"text": ["a"]}))["signals"][0]
    assert (missing["rps_doc_stop_word_fraction"].as_py(), missing["rps_doc_ldnoobw_words"].as_py()) == (None, 1.0)


def test_domains_are_looked_up_whole(tmp_path):
    (tmp_path / "domains.json").write_text('{"example.org": 5, "a.b:80": 7}')
    stage = lc.text.Signals(domain_categories=str(tmp_path / "domains.json"))
    urls = ["https://example.org/x?y", "http://www.example.org", None, "//a.b:80/", "example.org"]
    by_url = stage(pa.table({"text": ["x"] * 5, "url": urls}))["signals"].to_pylist()
    assert [row["rps_doc_ut1_blacklist"] for row in by_url] == [5.0, None, None, 7.0, None]
    by_domain = stage(pa.table({"text": ["x"], "url": ["https://example.org"], "source_domain": ["a.b:80"]}))
    assert by_domain["signals"][0]["rps_doc_ut1_blacklist"].as_py() == 7.0
    with pytest.raises(StageError, match="needs a column 'url'"):
        stage(pa.table({"text": ["x"]}))


def test_columns_of_ccnet_become_signals():
    columns = {"original_length": [7], "original_nlines": [2], "language_score": [0.5], "perplexity": [9.5]}
    made = lc.text.Signals()(pa.table({"text": ["a\nb"], "bucket": ["middle"], **columns}))["signals"][0].as_py()
    assert [made[name] for name in DOCUMENT_SIGNALS if name.startswith("ccnet_")] == [3.0, 7.0, 2.0, 2.0, 0.5, 9.5, 1.0]
    with pytest.raises(StageError, match="column 'perplexity' must have numbers"):
        lc.text.Signals()(pa.table({"text": ["a"], "perplexity": ["low"]}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("[1]", "has no lists by language"),
        ("{", "is not valid JSON"),
        ('{"en": [1]}', "something other than words"),
    ],
)
def test_wrong_lists_are_one_sentence(tmp_path, content, message):
    path = tmp_path / "lists.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StageError, match=message):
        lc.text.Signals(stop_words=str(path)).prepare()


def test_wrong_fields_are_one_sentence(tmp_path):
    with pytest.raises(StageError, match="no line signal 'lines'; known: rps_lines_ending"):
        lc.text.Signals(line_signals=["lines"])
    with pytest.raises(StageError, match="has no word lists"):
        lc.text.Signals(bad_words=str(tmp_path)).prepare()
    with pytest.raises(StageError, match="path of a fastText model"):
        lc.text.Signals(palm_model=str(tmp_path / "model.bin")).prepare()
    (tmp_path / "domains.json").write_text('{"a": "b"}')
    with pytest.raises(StageError, match="has no domain categories"):
        lc.text.Signals(domain_categories=str(tmp_path / "domains.json")).prepare()


def write_model(path):
    """Write a fastText model of two dimensions: "town" speaks for __label__wiki, "pills" for __label__cc."""
    settings = [2, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100]
    entries = [("</s>", 0), ("town", 0), ("pills", 0), ("__label__wiki", 1), ("__label__cc", 1)]
    dictionary = b"".join(word.encode() + b"\0" + struct.pack("<qb", 9, kind) for word, kind in entries)
    matrices = [[0.0, 0.0, 1.0, 0.0, 0.0, 1.0], [4.0, 0.0, 0.0, 4.0]]
    path.write_bytes(
        struct.pack("<ii12id", 793712314, 12, *settings, 1e-4)
        + struct.pack("<iiiqq", len(entries), 3, 2, 99, -1)
        + dictionary
        + b"".join(struct.pack(f"<?qq{len(each)}f", False, len(each) // 2, 2, *each) for each in matrices)
    )


def test_a_model_scores_by_its_first_label(tmp_path):
    pytest.importorskip("fasttext", reason="fastText is not installed")
    write_model(tmp_path / "model.bin")
    table = pa.table({"text": ["a\ntown", "pills\n", "", None]})
    scores = lc.text.Signals(wikiref_model=str(tmp_path / "model.bin"))(table)["signals"].to_pylist()
    # Two tokens, the word and the end of the line, whose vector is zero: the logits are 2 and 0.
    sure = 1 / (1 + math.exp(-2))
    assert scores[0]["rps_doc_ml_wikiref_score"] == pytest.approx(sure, abs=1e-4)
    assert scores[1]["rps_doc_ml_wikiref_score"] == pytest.approx(1 - sure, abs=1e-4)
    assert scores[2]["rps_doc_ml_wikiref_score"] is None
    assert scores[3] is None


def test_rules_and_word_counts_work_on_any_source():
    words = " ".join(f"word{number}" for number in range(60))
    data = Dataset.from_dict({"id": ["good", "short", "symbols"], "text": [words, "too short", words + " #" * 40]})
    crawl = lc.Crawl(data) | lc.text.Signals() | lc.text.SignalRules() | lc.text.MinWords(60)
    assert crawl.data["id"][:] == ["good"]
    assert crawl.why("short").rule == "min_word_count"
    assert crawl.why("symbols").rule == "max_symbol_to_word_ratio"
    mapped = data.map(lc.text.Signals(), batched=True)
    assert mapped.features["signals"] == Dataset(lc.text.Signals()(data.with_format("arrow")[:])).features["signals"]


@pytest.mark.slow
def test_tables_that_are_not_shipped_are_kept_and_damaged_ones_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(_unicode, "SHIPPED", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = _unicode.load_characters.__wrapped__("re")
    (kept,) = (tmp_path / "longcrawl").iterdir()
    for damage in (None, b"", b"PK\3\4 damaged"):
        if damage is not None:
            kept.write_bytes(damage)
        again = _unicode.load_characters.__wrapped__("re")
        assert all(np.array_equal(one, other) for one, other in zip(made, again, strict=True))
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert np.array_equal(_unicode.load_characters.__wrapped__("re").flags, made.flags)


def test_raw_words_may_follow_the_package_regex():
    pattern = re.compile(r"\w+|[^\w\s]+")
    assert len(pattern.findall("e\u0301a 2² \x1c")) == 4
    table = pa.table({"text": ["e\u0301a 2² \x1c"]})
    by = {name: lc.text.Signals(raw_words=name)(table)["signals"][0].as_py() for name in ("re", "regex")}
    assert by["re"]["rps_doc_frac_no_alph_words"] == 0.5
    assert by["regex"]["rps_doc_frac_no_alph_words"] == 0.75
    assert by["re"]["rps_doc_num_sentences"] == by["regex"]["rps_doc_num_sentences"]


def release_tables(real_data, **chosen):
    languages = ("de", "en", "es", "fr", "it")
    source = RedPajamaV2(str(real_data / "rpv2"), languages=languages, line_signals=("all",), **chosen)
    for part in source.splits()["train"]:
        yield from source.read(part, BadFiles())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "least"), [({"snapshots": ("2022-49",)}, 180), pytest.param({}, 2000, marks=pytest.mark.slow)]
)
def test_every_value_of_the_release(real_data, capsys, chosen, least):
    """The sample was made with nltk 3.10 or later, hence ``regex``; the lists of stop words are not part of it."""
    artifacts = real_data / "rpv2" / "artifacts"
    stop_words = os.environ.get("LONGCRAWL_STOP_WORDS")
    stage = lc.text.Signals(
        line_signals=["all"],
        raw_words="regex",
        stop_words=stop_words,
        bad_words=str(artifacts / "bad_words"),
        domain_categories=str(artifacts / "domain_to_category_id.json.gz"),
    )
    passed_over = set(NEEDS_A_MODEL) | (set() if stop_words else {"rps_doc_stop_word_fraction"})
    values, documents = 0, 0
    for table in release_tables(real_data, **chosen):
        made = stage(table)
        for name in ("signals", "line_signals"):
            assert made.schema.field(name).type == table.schema.field(name).type
            for want, got in zip(table[name].to_pylist(), made[name].to_pylist(), strict=True):
                if want is None:
                    continue
                assert {**got, **dict.fromkeys(passed_over)} == {**want, **dict.fromkeys(passed_over)}
                spans = [value for key, value in want.items() if key not in passed_over]
                values += sum(len(value) if isinstance(value, list) else 1 for value in spans)
                documents += name == "signals"
        judged = [lc.text.SignalRules().judge(each) for each in (table, made)]
        assert judged[0] == judged[1]
    with capsys.disabled():
        print(f"\n{values:,} values of {documents:,} documents equal the release's")  # noqa: T201  # asked for
    assert documents > least
