"""C4's rules: each on small texts, and all of them against plain Python over all of Unicode."""

# The alphabets are the point here:
# ruff: noqa: RUF001

import dataclasses
import json
import re

import line_corrections as plain
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.stages import first_failure
from longcrawl.errors import StageError

AWKWARD = "aAbB {[]}12٣²½.!?…\"'”’)»\t\r\x85\u00a0\u2028\x0b\x1c\0éİıſKß中。\U0001d7d8\U0010ffff"
BITS = [
    "a", "Dr.", " ", "  ", "\n", "\r\n", "\r", "\x85", "\u2029", "\n\n", ".", "...", "…", "!", "?", '"', "'", "”", ")",
    "[1]", "[]", "[edit]", "[citation needed]", "[²]", "[٣", "]", "[", "{", "JavaScript", "javaſcript", "lorem Ipsum",
    "Use Cookies", "use cooKies", "terms of  use", "Terms of use.", "one two three.", "x" * 9, "é" * 8, "\u3000",
    "中文。",
]  # fmt: skip
texts = (
    st.text(st.sampled_from(AWKWARD + "\n"), max_size=60)
    | st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(AWKWARD + "\n\n"), max_size=60)
    | st.lists(st.sampled_from(BITS), max_size=30).map("".join)
    | st.lists(st.sampled_from(BITS), max_size=30).map(" ".join)
)
GOOD = "This line has words. And more of them!"
"""A line of two sentences."""


plain_settings = st.builds(
    plain.PlainC4,
    definitions=st.sampled_from(["paper", "datatrove"]),
    terminal=st.booleans(),
    min_words=st.sampled_from([3, 1, None]),
    max_length=st.sampled_from([1000, 8, None]),
    javascript=st.booleans(),
    policy=st.sampled_from(
        [plain.POLICY, (), ("é", "a b", "Ab", "ſ"), ("a\nb", "a\x85b", "é² a", "ſK"), ("bé b", "aa]")]
    ),
    citations=st.booleans(),
)


def stage_of(naive, **fields):
    """Return the stage with the settings of the plain implementation."""
    return lc.text.C4Quality(
        definitions=naive.definitions,
        terminal_punctuation="required" if naive.terminal else "ignored",
        min_words_per_line=naive.min_words,
        max_word_length=naive.max_length,
        javascript="drop" if naive.javascript else "keep",
        policy_phrases=naive.policy,
        citations="cut" if naive.citations else "keep",
        **fields,
    )


@pytest.fixture
def make_peer(monkeypatch):
    """Return a function that makes datatrove's own filter, which counts sentences as we do."""
    module = pytest.importorskip("datatrove.pipeline.filters.c4_filters", reason="datatrove is not installed")
    monkeypatch.setattr(module, "split_into_sentences", lambda line, _: range(plain.sentences(line)))
    monkeypatch.setattr(module.C4QualityFilter, "stat_update", lambda *_: None)
    return module.C4QualityFilter


@given(documents=st.lists(texts, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_datatrove_gives_the_same(make_peer, documents):
    from datatrove.data import Document

    for ending in ("required", "ignored"):
        peer = make_peer(min_num_sentences=2, filter_no_terminal_punct=ending == "required")
        stage = lc.text.C4Quality("datatrove", min_sentences=2, terminal_punctuation=ending)
        edited, checks = stage.edit(pa.table({"text": pa.array(documents, pa.string())}))
        stays = first_failure(len(documents), checks)["rule"].is_null().to_pylist()
        for text, found, kept in zip(documents, edited["text"].to_pylist(), stays, strict=True):
            document = Document(text=text, id="")
            assert (peer.filter(document) is True) == kept
            assert not kept or document.text == found


def test_datatrove_gives_the_same_of_real_pages(make_peer, real_data):
    from datatrove.data import Document

    texts = read_pages(real_data)
    edited, checks = lc.text.C4Quality("datatrove").edit(pa.table({"text": texts}))
    stays = first_failure(len(texts), checks)["rule"].is_null().to_pylist()
    for text, found, kept in zip(texts, edited["text"].to_pylist(), stays, strict=True):
        document = Document(text=text, id="")
        assert (make_peer().filter(document) is True) == kept
        assert not kept or document.text == found


def read_pages(real_data):
    import zstandard

    with zstandard.open(real_data / "short.jsonl.zst", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


@given(st.lists(texts | st.none(), max_size=4), st.sampled_from([pa.string(), pa.large_string()]), plain_settings)
@example(["", " ", "\n", "\n\n", "\0", " \x1c\x1d", "\ufeff", None, "."], pa.string(), plain.PlainC4())
@example(["a b c.[1]", "[1] a b c.", "a[2]b c d", "[edit]", "a b c. [12]", "[1"], pa.string(), plain.PlainC4())
@example(["a b c.[1]", "[1] a b c.", "x\n[1] a b.c", "a b. [1]"], pa.string(), plain.PlainC4("datatrove", min_words=2))
@example(
    ["a b [1]", "\n\n[1]a\n\nb[1] \n"], pa.large_string(), plain.PlainC4("datatrove", terminal=False, min_words=None)
)
@example(["a b c...", "a b c'", "a b c”", 'a b c"', "a b c…", "a b c.\t"], pa.string(), plain.PlainC4("datatrove"))
@example(["javascript { a.", "use cookies { a.", "lorem ipsum lorem ipsum b"], pa.string(), plain.PlainC4("datatrove"))
@example(
    ["A. B! C? d", "a.b c.) d", '"a." b', "... a ...", "a .) .", "1.5 m"], pa.string(), plain.PlainC4(terminal=False)
)
@settings(max_examples=2 * settings.default.max_examples, deadline=None)  # the first call compiles the kernels
def test_every_page_equals_plain_python(documents, kind, naive):
    expected = [naive(text or "") for text in documents]
    found, checks = stage_of(naive).edit(pa.table({"text": pa.array(documents, kind)}))
    assert found["text"].type == kind
    assert found["text"].to_pylist() == [
        None if text is None else want.text for text, want in zip(documents, expected, strict=True)
    ]
    assert [check.rule for check in checks] == ["lorem_ipsum", "curly_bracket", "min_sentences"]
    for at, check in enumerate(checks, 1):
        assert check.value.to_pylist() == [want[at] for want in expected]
        assert check.passes.to_pylist() == [want[at] >= 5 if at == 3 else want[at] == 0 for want in expected]


@given(texts, plain_settings)
@example("a b c.[1]\n[1] a b c.\n\n  [edit]\t\nx", plain.PlainC4())
@example("a b c.\r[1] a b c\x0b[1]\r\n\n[1]", plain.PlainC4("datatrove", terminal=False, min_words=None))
@example("javascript: use cookies.\nuse cookies here.\nuse cookies\nto.", plain.PlainC4())
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_changes_are_what_was_done_to_the_text(text, naive):
    stage = stage_of(naive)
    changes = stage.changes(text)
    assert changes == naive(text).changes
    assert applied(changes, text, naive) == stage.edit(pa.table({"text": [text]}))[0]["text"][0].as_py()


def applied(changes, text, naive):
    """Return a text with changes made to it; the rest stays, but for blank lines that no rule keeps."""
    left = {(change.line, change.before): change.after for change in changes}
    keeps_blank = not naive.terminal and naive.min_words is None
    lines, number = [], 1
    for whole in (
        re.findall(r"[^\n]*\n|[^\n]+\Z", text) if naive.definitions == "paper" else text.splitlines(keepends=True)
    ):
        line = whole.strip()
        after = left.get((number, line), line if line or keeps_blank else None)
        lines += [] if after is None else [after]
        number += whole.endswith("\n")
    return "\n".join(lines).strip()


def test_changes_name_the_first_rule_of_each_line():
    lines = [
        f"  {GOOD}\t",
        "",
        "Home | About",
        "Two words.",
        f"It is {'x' * 1001} long.",
        "Turn JavaScript on.",
        "We use cookies here.",
        "We use cookies and javascript here.",
        "It is known[1] here.[2] ",
        "[edit]",
        "Home javascript",
    ]
    changes = lc.text.C4Quality().changes("\n".join(lines))
    assert changes == [
        (3, lines[2], None, "terminal_punctuation"),
        (4, lines[3], None, "min_words_per_line"),
        (5, lines[4], None, "max_word_length"),
        (6, lines[5], None, "javascript"),
        (7, lines[6], None, "policy_phrases"),
        (8, lines[7], None, "javascript"),
        (9, "It is known[1] here.[2]", "It is known here.", "citations"),
        (10, "[edit]", None, "terminal_punctuation"),
        (11, lines[10], None, "terminal_punctuation"),
    ]
    assert lc.text.C4Quality().changes("\n".join(lines), "de") == changes
    assert {change.rule for change in changes} <= {field.name for field in dataclasses.fields(lc.text.C4Quality)}
    assert lc.text.C4Quality().changes("") == []


def test_changes_of_datatrove_are_counted_by_newlines():
    assert lc.text.C4Quality("datatrove").changes("One two three.\x85Home\r\nAbout\rIt is so[1] here.[2]") == [
        (1, "Home", None, "terminal_punctuation"),
        (2, "About", None, "terminal_punctuation"),
        (2, "It is so[1] here.[2]", "It is so here.", "citations"),
    ]


@pytest.mark.parametrize("definitions", ["paper", "datatrove"])
def test_explain_shows_what_happens_to_lines(definitions):
    told = lc.text.explain(f"{GOOD}\nHome\x0bAbout\nIt is[1] known.", lc.text.C4Quality(definitions, min_sentences=1))
    assert "c4_quality terminal_punctuation" in str(told)
    assert "c4_quality citations, 1 line changed:\n  line 3: It is[1] known. -> It is known." in str(told)
    assert "It is known." in told._repr_html_()
    assert told.verdict == "kept"


def cleaned(*lines, **fields):
    """Return the lines that stay of a text."""
    table = pa.table({"text": ["\n".join(lines)]})
    return lc.text.C4Quality(**fields).edit(table)[0]["text"][0].as_py().split("\n")


def left_by(text, said_to_be="en", **fields):
    """Return the reason why a text leaves, after lines of ten sentences."""
    row = {"id": ["document"], "text": ["\n".join([GOOD] * 5 + [text])], "language": [said_to_be]}
    return (lc.Crawl(Dataset.from_dict(row)) | lc.text.C4Quality(**fields)).why("document")


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("It ends in a full stop.", True),
        ("It ends in an exclamation mark! \t\r", True),
        ("Is it one?", True),
        ('It ends "so to say"', True),
        ("It ends “so to say”", True),
        ("It goes on...", True),
        ("It goes on…", False),
        ("It ends 'so to say'", False),
        ("It does not end", False),
        ("It ends (somewhat.)", False),
        ("Two words.", False),
        ("", False),
        ("It needs JavaScript to run.", False),
        ("It has javascripts in words.", False),
        ("Here are our Terms of Use.", False),
        ("We USE COOKIES on this page.", False),
        ("We use  cookies on this page.", True),
        ("It has a word: " + "x" * 999 + ".", True),
        ("It has a word: " + "é" * 1000 + ".", False),
    ],
)
def test_which_lines_stay(line, stays):
    assert cleaned(GOOD, line, GOOD) == [GOOD, *([line.strip()] if stays else []), GOOD]


def test_citation_marks_are_cut():
    assert cleaned(
        "It is known[1][23] well[]. [4]", "[edit] It is known[citation needed] here.", "Not[a] one[ 5]."
    ) == [
        "It is known well.",
        "It is known here.",
        "Not[a] one[ 5].",
    ]
    assert cleaned("It is[1] known.", citations="keep") == ["It is[1] known."]


def test_citation_numbers_are_of_the_decimal_digits_of_any_script():
    numerals = [character for character in map(chr, range(0x110000)) if character.isnumeric()]
    lines = [f"It is known[{numeral}] so." for numeral in numerals]
    assert cleaned(*lines) == [re.sub(r"\[\d*\]", "", line) for line in lines]


def test_every_rule_can_be_switched_off():
    lines = ["No end", "One.", "x" * 1001 + " is a word.", "Our cookie policy is here.", "Javascript is off here."]
    assert cleaned(*lines) == [""]
    assert cleaned(*lines, min_words_per_line=None) == ["One."]
    assert cleaned(*lines, terminal_punctuation="ignored", min_words_per_line=2) == ["No end"]
    assert cleaned(*lines, max_word_length=None) == [lines[2]]
    assert cleaned(*lines, policy_phrases=[]) == [lines[3]]
    assert cleaned(*lines, javascript="keep") == [lines[4]]
    assert cleaned("Nur Kekse gibt es.", policy_phrases=["kekse"]) == [""]
    with pytest.raises(StageError, match="policy_phrases has ' x': write words, without spaces around them"):
        lc.text.C4Quality(policy_phrases=[" x"])


def test_documents_leave_with_the_name_of_the_rule():
    assert left_by(GOOD).stage is None
    said = left_by("Here is a Lorem Ipsum")
    assert (said.rule, said.value, said.threshold) == ("lorem_ipsum", 1.0, 0.0)
    assert left_by("Here is a Lorem Ipsum", lorem_ipsum="keep").stage is None
    said = left_by("if (x) { y; } else {")
    assert (said.stage, said.rule, said.value) == ("c4_quality", "curly_bracket", 2.0)
    assert left_by("if (x) { y", curly_bracket="keep").stage is None
    assert left_by("a } alone").stage is None
    said = left_by("", min_sentences=11)
    assert (said.rule, said.value, said.threshold) == ("min_sentences", 10.0, 11.0)
    assert left_by("A last one of these.", min_sentences=11).stage is None


def test_definitions_change_verdicts():
    lines = [
        "It goes on...",
        "It ends 'so to say'",
        "It ends “so to say”",
        "It is known. [1]",
        "One two\x0b three four five.",
    ]
    assert cleaned(*lines) == [lines[0], lines[2], "It is known.", lines[4]]
    assert cleaned(*lines, definitions="datatrove") == [lines[1], "three four five."]
    for line in ("{ no end", "Javascript { is here."):
        assert left_by(line).rule == "curly_bracket"
        assert left_by(line, definitions="datatrove").stage is None
    assert left_by("Here it is { indeed.", definitions="datatrove").rule == "curly_bracket"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", 0),
        ("One.", 1),
        ("One. Two! Three? Four... Five", 5),
        ('He said "no." Then (yes!) he left.', 3),
        ("Version 3.14 is out.", 1),
        ("Dr. No came.", 2),
        (". . .", 0),
        ("One.\nTwo.\n", 2),
    ],
)
def test_how_sentences_are_counted(text, sentences):
    stage = lc.text.C4Quality(terminal_punctuation="ignored", min_words_per_line=None)
    assert stage.edit(pa.table({"text": [text]}))[1][-1].value.to_pylist() == [sentences]


BAD_WORDS = {"en": ["bad", "very bad", "b.d", "ſo", "k"], "ja": ["悪い", "a"], "fr": ["mauvais"]}


@pytest.fixture(scope="module")
def bad_words(tmp_path_factory):
    """Write the small lists of this module; gives their path."""
    path = tmp_path_factory.mktemp("lists") / "bad_words.json"
    path.write_text(json.dumps(BAD_WORDS))
    return str(path)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("text", "language", "leaves"),
    [
        ("It is bad.", "en", True),
        ("It is BAD!", "en", True),
        ("It is badly done.", "en", False),
        ("It is_bad, no?", "en", False),
        ("It is b.d, or?", "en", True),
        ("A temperature of 3 K.", "en", True),
        ("It is bad.", "en-GB", True),
        ("It is bad.", "fr", False),
        ("It is bad.", None, False),
        ("It is bad.", "xx", False),
        ("これは悪いです. It is.", "ja", True),
        ("これは悪いです. It is.", "en", False),
        ("bad", "en", False),  # the line does not stay
    ],
)
def test_documents_with_a_listed_word_leave(bad_words, text, language, leaves):
    found = left_by(text, language, bad_words=bad_words)
    assert (found.rule == "bad_words") == leaves
    assert language is None or left_by(text, "xx", bad_words=bad_words, language=language).rule == found.rule


@pytest.mark.variants
@pytest.mark.parametrize(
    ("listed", "language", "leaves"),
    [
        ("ja", "jpn_Jpan", True),
        ("jpn", "ja", True),
        ("cmn_Hans", "zh-CN", True),
        ("zh-TW", "zh-TW", True),
        ("tha", "th", True),
        ("ko", "kor", False),
        ("yue", "yue", False),
    ],
)
def test_scripts_without_spaces_go_by_any_name_of_their_language(tmp_path, listed, language, leaves):
    (tmp_path / f"{listed}.txt").write_text("bad")
    found = left_by("Itisbadlydone.", language, bad_words=str(tmp_path), min_words_per_line=None, min_sentences=None)
    assert (found.rule == "bad_words") == leaves


def test_bad_words_need_a_language(bad_words):
    with pytest.raises(StageError, match="c4_quality needs a column 'language'; the documents have: text"):
        lc.text.C4Quality(bad_words=bad_words).edit(pa.table({"text": ["a"]}))


@given(
    st.lists(st.sampled_from(["bad", "very", " ", "b.d", ".", "ſo", "k", "K", "é", "_", "\n", "B", "ad"]), max_size=12)
)
@settings(deadline=None)
def test_listed_words_equal_a_regular_expression(bad_words, pieces):
    text = "".join(pieces)
    stage = lc.text.C4Quality(
        terminal_punctuation="ignored", min_words_per_line=None, bad_words=bad_words, language="en"
    )
    found, checks = stage.edit(pa.table({"text": [text]}))
    words = "|".join(map(re.escape, BAD_WORDS["en"]))
    expected = re.search(rf"(?:\W|^)(?:{words})(?:\W|$)", found["text"][0].as_py().lower())
    assert checks[-1].passes.to_pylist() == [expected is None]


def test_all_ways_to_use_the_stage_agree():
    texts = {"a": f"{GOOD}\nHome\n{GOOD}[1]\r\n{GOOD}", "b": "Home", "c": "{" + f"{GOOD}\n" * 3, "d": None}
    data = Dataset.from_dict({"id": list(texts), "text": list(texts.values())})
    stage = lc.text.C4Quality()
    crawl = lc.Crawl(data) | stage
    ways = [
        data.map(stage, batched=True),
        data.with_format("arrow").map(stage, batched=True).with_format(None),
        data.map(stage, batched=True, batch_size=1),
        data.to_iterable_dataset().map(stage, batched=True),
        (lc.Crawl(data.to_iterable_dataset()) | stage).data,
        crawl.data,
    ]
    want = {"a": f"{GOOD}\n{GOOD}\n{GOOD}"}
    assert [{row["id"]: row["text"] for row in way} for way in ways] == [want] * len(ways)
    assert [crawl.why(name).rule for name in "bcd"] == ["min_sentences", "curly_bracket", "min_sentences"]
    assert crawl.why("d").value == 0.0


@pytest.mark.slow
def test_a_recipe_runs_it(run_stages):
    stage = {"c4_quality": {"min_sentences": 3, "policy_phrases": ["terms of use"]}}
    out = run_stages({"good": "\n".join([GOOD] * 40), "code": "{" + GOOD * 40}, stage)
    reason = lc.why(out, "code")
    assert (reason.stage, reason.rule, reason.value, reason.threshold) == ("c4_quality", "curly_bracket", 1.0, 0.0)
    assert lc.why(out, "good").stage is None


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slices_chunks_and_no_documents_at_all(kind):
    chunks = [pa.array(["gone", "é ü ß.\nx"], kind).slice(1), pa.array([None, "x", "a b c!\n", None], kind).slice(0, 3)]
    table = pa.table({"text": pa.chunked_array(chunks)})
    stage = lc.text.C4Quality()
    assert stage.edit(table)[0]["text"].to_pylist() == ["é ü ß.", None, "", "a b c!"]
    assert stage.edit(table.slice(1, 2))[0]["text"].to_pylist() == [None, ""]
    none, checks = stage.edit(table.slice(0, 0))
    assert (none.num_rows, none["text"].type, len(checks)) == (0, kind, 3)
    assert stage.edit(pa.table({"text": pa.nulls(2)}))[0]["text"].to_pylist() == [None, None]


def test_what_is_no_text_is_one_sentence(tmp_path):
    with pytest.raises(StageError, match="c4_quality needs a column 'text' of strings, but it is int64"):
        lc.text.C4Quality()(pa.table({"text": [1]}))
    with pytest.raises(StageError, match="does not exist; give the path of a word list"):
        lc.text.C4Quality(bad_words=str(tmp_path / "none.json")).prepare()


def test_lines_and_documents_of_any_size_end_soon():
    whole = "word " * 4_000_000 + "end."
    many = "[1" * 1_000_000 + "\n" * 1_000_000 + "lorem ipsu" * 100_000 + "{" * 100_000
    found, checks = lc.text.C4Quality(min_sentences=1).edit(pa.table({"text": [whole, many]}))
    assert found["text"].to_pylist() == [whole, ""]
    assert [check.passes.to_pylist() for check in checks] == [[True, True], [True, False], [True, False]]


@pytest.mark.slow
def test_what_has_passed_once_passes_again(real_data):
    table = pa.table({"text": read_pages(real_data)})
    stage = lc.text.C4Quality()
    once = stage(table)
    assert 0 < once.num_rows < table.num_rows
    assert stage(once).num_rows == once.num_rows


def test_masked_texts_are_not_edited():
    table = pa.table({"text": ["a"], "masked": [[{"start": 0, "end": 1}]]})
    with pytest.raises(StageError, match="would shift what 'masked' points to; put it before the stage that masks"):
        lc.text.C4Quality().edit(table)
