"""Line-wise corrections: each rule on small texts, and all of them against plain Python over all of Unicode."""

# The alphabets are the point here:
# ruff: noqa: RUF001

import line_corrections as plain
import numpy as np
import pyarrow as pa
import pytest
import yaml
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.refinedweb.line_corrections import LINE_PATTERNS, read_line_patterns

FULL_NAMES = {
    "uppercase": "max_uppercase_characters",
    "numerical": "min_numerical_characters",
    "short": "short_line_words",
}
PROSE = "Nine ordinary words that no rule has anything against. " * 12
LISTS = {
    "counters": ["likes", "Kelvin", "k", "个赞", "ß times", "a b"],
    "prefixes": ["sign-in", "é", "- -", "# to go", "1 a"],
    "suffixes": ["Read  more...", "more", "»", "# left", "a"],
    "anywhere": ["items in cart", "# items in cart", "a b", "ab", "-", "Σας", "İ", "b a b", "more", "- -"],
    "lines": ["Share this", "# people", "more »", "é é", "a b ab", "like 个赞"],
}
AWKWARD = "aAbB kKmM12½٣三.,+-_ \t\r\x85\u00a0\u2028\u3000\0éÉßẞΣςσİıſK»|…中個赞个\U0001d7d8\U0010ffff"
BITS = [
    *"ab", "AB", " ", "  ", "\n", "\r\n", "\n\n", "sign-in", "SIGN-IN", "read more...", "read\u00a0more...", "more",
    "3", "1,234.5", "2K+", "3k", "likes", "LIKES", "Kelvin", "items in cart", "ab", "a b", "- -", "»", "# to go",
    "to go", "left", "个赞", "share\u00a0this", "SHARE THIS\n", "people", "é", "б", ".", ",", "+", "1 a", "x" * 30,
]  # fmt: skip
texts = (
    st.text(st.sampled_from(AWKWARD + "\n"), max_size=50)
    | st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(AWKWARD + "\n\n"), max_size=50)
    | st.lists(st.sampled_from(BITS), max_size=25).map("".join)
)


@pytest.fixture(scope="module")
def patterns(tmp_path_factory):
    """Write the patterns of this module; gives their path."""
    path = tmp_path_factory.mktemp("patterns") / "lines.yaml"
    path.write_text(yaml.safe_dump({"default": "xx", "languages": {"yy": {"suffixes": ["more"]}, "xx": LISTS}}))
    return str(path)


def edited(text, language="en", **fields):
    """Return one text as the stage leaves it."""
    table = pa.table({"text": [text], "language": [language]})
    return lc.text.LineCorrections(**fields).edit(table)[0]["text"][0].as_py()


def assert_equals_plain(documents, kind, limits, path):
    naive = plain.PlainCorrections(LISTS, **limits)
    expected = [naive(text or "") for text in documents]
    named = {FULL_NAMES[name]: value for name, value in limits.items()}
    table = pa.table({"text": pa.array(documents, kind)})
    for counted in ("flagged", "removed"):
        made = lc.text.LineCorrections(patterns=path, language="xx", counted=counted, **named)
        found, (check,) = made.edit(table)
        assert found["text"].type == kind
        assert found["text"].to_pylist() == [
            None if text is None else want.text for text, want in zip(documents, expected, strict=True)
        ]
        assert check.value.to_pylist() == [getattr(want, counted) / max(want.words, 1) for want in expected]
    for text, want in zip(documents, expected, strict=True):
        assert text is None or made.changes(text) == want.changes


limits = st.fixed_dictionaries(
    {
        "uppercase": st.sampled_from([0.5, 0.0, 0.25, 1.0, None]),
        "numerical": st.sampled_from([1.0, 0.5, None]),
        "short": st.sampled_from([10, 2, 0, None]),
    }
)
DEFAULTS = {"uppercase": 0.5, "numerical": 1.0, "short": 10}


@given(st.lists(texts | st.none(), max_size=4), st.sampled_from([pa.string(), pa.large_string()]), limits)
@example(["", " ", "\n", "\n\n", "\0", " \x1c\x1d", "\ufeff", None], pa.string(), DEFAULTS)
@example(
    ["3 likes\n", "3 likes", "x\n3K+ LIKES!!\r\ny", "12个赞\n三个赞", "3k", "3kelvin", "3K Kelvin"],
    pa.string(),
    DEFAULTS,
)
@example(["sign-in", "sign-in\r\nsign-in\u2028b\n", "sign-ins", "é", "É", "e\u0301"], pa.large_string(), DEFAULTS)
@example(
    ["a 3 items in cart b", "3k items in cart", "x3 items in cart", "items in carts", "ab-ab"], pa.string(), DEFAULTS
)
@example(["3K", "3\U0001d7d8b", "3é", "3k", "1 a", "3+", "3."], pa.string(), DEFAULTS | {"numerical": None})
@example(
    ["more more", "5 left", "x 5 left", "a", "b a b a b", "ΣΑΣ σας ΣΑς"], pa.string(), DEFAULTS | {"uppercase": None}
)
@settings(max_examples=2 * settings.default.max_examples, deadline=None)  # the first call compiles the kernels
def test_every_text_equals_plain_python(patterns, documents, kind, limits):
    assert_equals_plain(documents, kind, limits, patterns)


ASCII = [*filter(str.isascii, BITS), "_", "\x1c", "\x0b", "A" * 7, "7" * 5, "word " * 3, "some of 60 characters " * 3]


@given(
    st.lists(st.lists(st.sampled_from(ASCII), max_size=40).map("".join), max_size=3), st.sampled_from(AWKWARD), limits
)
def test_lines_that_are_read_by_blocks_equal_plain_python(patterns, documents, other, limits):
    mixed = [text + other + text for text in documents]
    assert_equals_plain([*documents, *mixed, "z" * 64], pa.large_string(), limits, patterns)


@pytest.mark.parametrize("begin", range(58, 68))
def test_words_and_spaces_go_on_from_block_to_block(patterns, begin):
    documents = [
        "a " * (begin // 2) + "b" * 150 + "\nSHARE US\n",
        "A" * 30 + " " * (begin + 40) + "b" * 20,
        "A" * begin + "\u3000" * 3 + " " * 130 + "b" * begin,
        " " * begin + "_ 12 AB\x1c\x1d" + " " * 130 + "\n",
        " " * 10 + "AAAb\n3 likes_\n_3 likes\n3 likes!!\n" + "A" * 8 + " " * 9,
        "x" * begin + " 3 likes\n" + "b " * (begin // 2) + "c\n3 likes\n" + "1" * 70 + "\n2 b",
    ]
    documents += [line + "\n" + "z" * 64 for document in documents for line in document.split("\n")]
    assert_equals_plain([*documents, "z" * 64], pa.large_string(), DEFAULTS | {"uppercase": 0.25}, patterns)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("ABOUT us", "uppercase"),
        ("ABc d", None),  # two of five characters, the space is one of them
        ("ÀÉ", "uppercase"),
        ("中文", None),
        ("1", "numerical"),
        (" 12 345 \u0663 ½ Ⅷ", "numerical"),
        ("12,345", None),
        ("3 likes", "counter"),
        ("3likes", "counter"),
        ("1,234 Comments", "counter"),
        ("(1.2K views)", "counter"),
        ("10M+ downloads »", "counter"),
        ("3 kinds of likes", None),
        ("3 likes and 4 shares", None),
        ("likes", None),
    ],
)
def test_which_lines_are_discarded(line, rule):
    for before, after in (("", ""), (PROSE + "\n", ""), ("", "\r\n" + PROSE), (PROSE + "\n  ", " \t\n\n" + PROSE)):
        changes = lc.text.LineCorrections().changes(before + line + after, "en")
        number = before.count("\n") + 1
        assert changes == ([(number, line.strip(), None, rule)] if rule else [])


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("Sign-in to see the whole story", "to see the whole story"),
        ("sign-ins are counted", "sign-ins are counted"),
        ("Use the sign-in", "Use the sign-in"),
        ("The end of the news. Read more...", "The end of the news."),
        ("The end of the news. READ\u00a0MORE…", "The end of the news."),
        ("Bread more...", "Bread more..."),
        ("Read more... or less", "Read more... or less"),
        ("Home 3 items in cart Search", "Home Search"),
        ("Home (items in cart)", "Home ( )"),
        ("sign-in Shop items in cart Read more...", "Shop"),
        ("one two three four five six seven eight Read more...", "one two three four five six seven eight"),
        (
            "one two three four five six seven eight nine Read more...",
            "one two three four five six seven eight nine Read more...",
        ),
    ],
)
def test_which_lines_are_edited(line, after):
    assert edited(f"{PROSE}\n\t{line} \r\n{PROSE}") == f"{PROSE}\n\t{after} \r\n{PROSE}"


def test_an_edited_line_with_nothing_left_goes_with_its_line_end():
    assert edited(f"{PROSE}\n  Read more... \r\n{PROSE}") == f"{PROSE}\n{PROSE}"
    assert lc.text.LineCorrections(language="en").changes("Sign-in  Read more...") == [
        (1, "Sign-in  Read more...", None, "prefix+suffix")
    ]


def test_a_line_of_the_patterns_goes_as_a_whole(tmp_path):
    (tmp_path / "own.yaml").write_text("languages: {en: {lines: [share this, '# people like it', 'Menü:']}}")
    own = {"patterns": str(tmp_path / "own.yaml"), "max_removed_words": None}
    text = "Share  THIS\nShare this now\n1,234 people like it\nmenü:\nMenü\nI share this"
    assert edited(text, **own) == "Share this now\nMenü\nI share this"
    changes = lc.text.LineCorrections(**own).changes(text, "en")
    assert [(each.line, each.after, each.rule) for each in changes] == [(line, None, "line") for line in (1, 3, 4)]


def test_untouched_lines_keep_every_byte():
    text = " a\r\n\n\t\u2028 b\x85c\r\n\x0b\r\0 \n\n end"
    assert edited(text) == text
    assert edited(text + "\n3 likes") == text + "\n"
    assert edited("3 likes\n" + text) == text


def test_thresholds_are_fields_and_none_switches_a_rule_off():
    text = "ABOUT us\n12 a 4\n3 likes\nshort Read more...\n" + PROSE
    assert edited(text) == "12 a 4\nshort\n" + PROSE
    assert edited(text, max_uppercase_characters=0.7) == "ABOUT us\n12 a 4\nshort\n" + PROSE
    assert edited(text, max_uppercase_characters=None) == "ABOUT us\n12 a 4\nshort\n" + PROSE
    assert edited(text, min_numerical_characters=0.7) == "short\n" + PROSE
    assert edited("12\n" + text, min_numerical_characters=None) == "12\n12 a 4\nshort\n" + PROSE
    assert (
        edited(text, short_line_words=2)
        == edited(text, short_line_words=None)
        == ("12 a 4\nshort Read more...\n" + PROSE)
    )
    assert edited(text, patterns=None) == "12 a 4\n3 likes\nshort Read more...\n" + PROSE
    table = pa.table({"text": ["3 likes"], "language": ["en"]})
    assert lc.text.LineCorrections(max_removed_words=None).edit(table)[1] == []


def test_a_document_leaves_when_more_than_its_share_of_words_was_touched():
    # 100 words each: five and six in discarded lines, and a line of six words of which the edit removes two.
    documents = [
        "w " * 95 + "\nA B C D E",
        "w " * 94 + "\nA B C D E F",
        "w " * 94 + "\none two three four Read more...",
    ]
    data = Dataset.from_dict({"id": ["five", "six", "edit"], "text": documents, "language": ["en"] * 3})
    flagged = lc.Crawl(data) | lc.text.LineCorrections()
    assert flagged.data["id"][:] == ["five"]
    assert (
        str(flagged.why("six")).splitlines()[0]
        == "six: removed at line_corrections, rule max_removed_words: 0.06 against 0.05"
    )
    removed = lc.Crawl(data) | lc.text.LineCorrections(counted="removed")
    assert removed.data["id"][:] == ["five", "edit"]
    assert removed.data["text"][1] == "w " * 94 + "\none two three four"
    assert removed.funnel.rows[0].rules == {"max_removed_words": 1}
    everything = lc.Crawl(data) | lc.text.LineCorrections(max_removed_words=None)
    assert len(everything.data) == 3


def test_documents_without_words_and_without_text_stay():
    data = Dataset.from_dict({"id": ["a", "b", "c"], "text": ["", " \n\r\n", None], "language": ["en"] * 3})
    crawl = lc.Crawl(data) | lc.text.LineCorrections()
    assert crawl.data["text"][:] == ["", " \n\r\n", None]


def test_all_ways_to_use_the_stage_agree(tmp_path):
    texts = {"a": PROSE + "\n3 likes\n", "b": "3 likes", "c": "Sign-in now.\r\n" + PROSE * 2, "d": None}
    data = Dataset.from_dict({"id": list(texts), "text": list(texts.values()), "language": ["en"] * 4})
    want = {"a": PROSE + "\n", "c": "now.\r\n" + PROSE * 2, "d": None}
    stage = lc.text.LineCorrections()
    crawl = lc.Crawl(data) | stage
    ways = [
        data.map(stage, batched=True),
        data.with_format("arrow").map(stage, batched=True).with_format(None),
        data.map(stage, batched=True, batch_size=1),
        data.to_iterable_dataset().map(stage, batched=True),
        (lc.Crawl(data.to_iterable_dataset()) | stage).data,
        crawl.data,
    ]
    assert [{row["id"]: row["text"] for row in way} for way in ways] == [want] * len(ways)
    assert crawl.why("b").rule == "max_removed_words"
    assert crawl.why("a").stage is None


@pytest.mark.slow
def test_a_recipe_runs_it(run_stages):
    stage = {"line_corrections": {"language": "en", "max_removed_words": 0.1}}
    out = run_stages({"good": PROSE * 10, "counters": "3 likes\n4 shares\n"}, stage)
    reason = lc.why(out, "counters")
    assert (reason.stage, reason.rule, reason.value, reason.threshold) == (
        "line_corrections",
        "max_removed_words",
        1.0,
        0.1,
    )
    assert lc.why(out, "good").stage is None


def test_a_language_without_patterns_is_refused_before_any_document(patterns):
    stage = lc.text.LineCorrections(language="de")
    table = pa.table({"text": ["Text."]})
    sentences = []
    for do in (stage.prepare, lambda: stage.edit(table)):
        with pytest.raises(StageError, match="no line patterns for the language 'de', only for: en; set on_") as raised:
            do()
        sentences.append(str(raised.value))
    assert sentences[0] == sentences[1]
    for language, unknown in (("en-GB", "error"), (None, "error"), ("de", "keep"), ("de", "default")):
        lc.text.LineCorrections(language=language, on_unknown_language=unknown).prepare()
    lc.text.LineCorrections(language="de", patterns=None).prepare()
    lc.text.LineCorrections(language="yy", patterns=patterns).prepare()


def test_languages_choose_phrases(patterns):
    text = "one two more\n5 left\n" + PROSE
    table = pa.table({"text": [text] * 4, "language": ["yy", "xx", "zz", None]})
    cut, kept = "one two\n5 left\n" + PROSE, "one two\n" + PROSE
    with pytest.raises(
        StageError, match="no line patterns for the language 'zz', only for: .*; set on_unknown_language"
    ):
        lc.text.LineCorrections(patterns=patterns).edit(table)
    default = lc.text.LineCorrections(patterns=patterns, on_unknown_language="default")
    assert default.edit(table)[0]["text"].to_pylist() == [cut, kept, kept, kept]
    assert default.changes(text, "yy") == [(1, "one two more", "one two", "suffix")]
    assert len(default.changes(text)) == 2
    keep = lc.text.LineCorrections(patterns=patterns, on_unknown_language="keep", max_removed_words=0.0)
    found, (check,) = keep.edit(table)
    assert found["text"].to_pylist() == [cut, kept, text, text]
    assert check.passes.to_pylist() == [False, False, True, True]
    named = lc.text.LineCorrections(patterns=patterns, language="yy")
    assert named.edit(table.drop(["language"]))[0]["text"].to_pylist() == [cut] * 4
    with pytest.raises(
        StageError, match="no line patterns for the language 'de', only for: en; set on_unknown_language"
    ):
        lc.text.LineCorrections().changes("x", "de")
    with pytest.raises(StageError, match="line_corrections needs a column 'language'; the documents have: text"):
        lc.text.LineCorrections().edit(table.drop(["language"]))


def test_a_language_goes_by_any_of_its_names():
    stage = lc.text.LineCorrections()
    assert [stage.changes("3 likes", name) for name in ("en", "en-GB", "eng_Latn")] == [
        stage.changes("3 likes", "en")
    ] * 3
    with pytest.raises(StageError, match="no line patterns for the language None, only for: en"):
        stage.changes("3 likes")


def test_no_phrases_need_no_language():
    table = pa.table({"text": ["12\n" + PROSE]})
    assert lc.text.LineCorrections(patterns=None).edit(table)[0]["text"].to_pylist() == [PROSE]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slices_chunks_and_no_documents_at_all(kind):
    texts = pa.chunked_array(
        [pa.array(["gone", "3 likes\né"], kind).slice(1), pa.array([None, "x", "12\ny", None], kind).slice(0, 3)]
    )
    table = pa.table({"text": texts})
    stage = lc.text.LineCorrections(language="en")
    assert stage.edit(table)[0]["text"].to_pylist() == ["é", None, "x", "y"]
    assert stage.edit(table.slice(1, 2))[0]["text"].to_pylist() == [None, "x"]
    none, (check,) = stage.edit(table.slice(0, 0))
    assert (none.num_rows, none["text"].type, len(check.value)) == (0, kind, 0)
    nulls = stage.edit(pa.table({"text": pa.nulls(2)}))[0]
    assert nulls["text"].to_pylist() == [None, None]


def test_what_is_no_text_is_one_sentence():
    stage = lc.text.LineCorrections(language="en")
    with pytest.raises(StageError, match="line_corrections needs a column 'text' of strings, but it is int64"):
        stage(pa.table({"text": [1]}))
    buffers = [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xf4\xff")]
    with pytest.raises(StageError, match="column 'text' is damaged"):
        stage(pa.table({"text": pa.Array.from_buffers(pa.string(), 1, buffers)}))


def test_lines_and_documents_of_any_size_end_soon():
    whole = "word " * 4_000_000
    marks = "3 " + "items in cart " * 500_000 + "12\n" * 1_000_000 + "-" * 1_000_000
    found, (check,) = lc.text.LineCorrections(language="en").edit(pa.table({"text": [whole, marks]}))
    assert found["text"][0].as_py() == whole
    assert found["text"][1].as_py() == "3 " + "items in cart " * 500_000 + "12\n" + "-" * 1_000_000
    assert check.passes.to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist; give the path of a YAML file of line patterns"),
        ("a: [", "is not valid YAML"),
        ("[1]", "holds no patterns by language"),
        ("languages: {no: {}}", "has the language False, which is not text; put it in quotes"),
        ("languages: {en: [likes]}", "has for 'en' something other than lists of phrases"),
        ("languages: {en: {counters: likes}}", "has for 'en' something other than lists of phrases"),
        ("languages: {en: {counter: [likes]}}", "has the list 'counter' for 'en'; known: counters, prefixes"),
        (
            "languages: {en: {anywhere: ['# ']}}",
            "has the phrase '#' among the anywhere of 'en'; write words, for counters without a #",
        ),
        ("languages: {en: {counters: ['# likes']}}", "has the phrase '# likes' among the counters of 'en'"),
        ("default: de\nlanguages: {en: {}}", "has the default 'de', not one of its languages: en"),
    ],
)
def test_wrong_patterns_are_one_sentence(tmp_path, content, message):
    path = tmp_path / "lines.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StageError, match=message):
        lc.text.LineCorrections(patterns=str(path)).prepare()


def test_shipped_patterns_are_no_rules_of_signals():
    assert LINE_PATTERNS.names() == ["refinedweb"]
    assert read_line_patterns("refinedweb").languages == ("en",)
    with pytest.raises(StageError, match=r"unknown line patterns 'c4'; known: refinedweb, or give the path of a .yaml"):
        lc.text.LineCorrections(patterns="c4").prepare()
    with pytest.raises(StageError, match="unknown preset 'refinedweb'"):
        lc.text.SignalRules("refinedweb")


def test_masked_texts_are_not_edited():
    table = pa.table({"text": ["a"], "masked": [[{"start": 0, "end": 1}]]})
    with pytest.raises(StageError, match="would shift what 'masked' points to; put it before the stage that masks"):
        lc.text.LineCorrections(language="en").edit(table)
