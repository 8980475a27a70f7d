"""One document explained: rules, verdict, marks, and what it looks like in a terminal and in a notebook."""

import re
from html.parser import HTMLParser

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.places import LineChange
from longcrawl.core.stages import STAGES, Check, Edit, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.text.explain import WHOLE, MeasuredRule

STORY = "".join(f"<p>On day {n} the boats came back to the harbour before noon, as always.</p>" for n in range(9))
SPAM = "Buy <now> & save…\nBuy <now> & save…\n\n# # #\nA line that says something to the reader.\n"


@stage
class CutShouting(Edit):
    """Removes lines in capitals, takes exclamation marks away, and drops what has lost too many lines."""

    max_cut: float = 0.5
    language: str | None = None

    def edit(self, table):
        texts = column(table, "text", self.name).to_pylist()
        lines = [text.split("\n") for text in texts]
        kept = ["\n".join(line.replace("!", "") for line in each if not line.isupper()) for each in lines]
        share = pa.array([sum(map(str.isupper, each)) / len(each) for each in lines])
        checks = [Check("max_cut", share, pc.less_equal(share, self.max_cut), self.max_cut, "at_most")]
        return with_column(table, "text", pa.array(kept, pa.large_string())), checks

    def changes(self, text, language=None):
        if language == "xx":
            raise StageError("cut_shouting does not know 'xx'")
        found = []
        for number, line in enumerate(text.split("\n"), start=1):
            if line.isupper():
                found.append((number, line.strip(), None, "shouting"))
            elif "!" in line:
                found.append((number, line.strip(), line.strip().replace("!", ""), "exclamation"))
        return found


del STAGES[CutShouting.name]  # what other tests list as known


class Page(HTMLParser):
    """Reads HTML strictly: every tag is closed, in order; text and marks are kept."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open, self.text, self.marked, self.removed, self.put_in = [], "", [], "", ""
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag == "br":
            return
        self.open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        inside = [
            attributes for tag, attributes in self.open if tag == "div" and "pre-wrap" in attributes.get("style", "")
        ]
        if not inside:
            return
        tags = [tag for tag, _ in self.open]
        titles = [attributes["title"] for tag, attributes in self.open if tag == "span"]
        if titles:
            self.marked.append((data, titles[0]))
        if "del" in tags:
            self.removed += data
        if "ins" in tags:
            self.put_in += data


def rows(explanation) -> dict[str, MeasuredRule]:
    return {rule.rule: rule for rule in explanation.rules}


def test_every_rule_of_a_judge_has_the_value_and_verdict_of_its_check():
    judge = lc.text.GopherQuality()
    told = lc.text.explain(SPAM, judge)
    table = pa.table({"id": ["a"], "text": [SPAM]})
    checks = judge.checks(table)
    assert [
        (rule.stage, rule.rule, rule.value, rule.comparison, rule.threshold, rule.verdict == "passes")
        for rule in told.rules
    ] == [
        (
            "gopher_quality",
            check.rule,
            check.value[0].as_py(),
            check.comparison,
            check.threshold,
            check.passes[0].as_py(),
        )
        for check in checks
    ]
    assert told.verdict == "leaves"
    assert told.first_failure.rule == judge.judge(table)["rule"][0].as_py() == "min_words"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_the_verdict_is_that_of_a_crawl(text):
    stages = [lc.text.MinChars(5), lc.text.GopherQuality(min_words=3), lc.text.FineWebQuality()]
    table = pa.table({"id": ["a"], "text": pa.array([text], pa.large_string())})
    told = lc.text.explain(text, stages)
    verdicts = [each.judge(table)["rule"][0].as_py() for each in stages]
    first = next((rule for rule in verdicts if rule is not None), None)
    assert (told.first_failure.rule if told.first_failure else None) == first
    assert told.verdict == ("kept" if first is None else "leaves")
    Page(told._repr_html_())


def test_the_table_is_aligned_and_the_verdict_is_the_last_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = str(lc.text.explain(SPAM, [lc.text.GopherQuality(), lc.text.MinChars(5)])).split("\n")
    table = lines[: lines.index("")]
    assert table[0].split() == ["stage", "rule", "value", "threshold", "verdict"]
    assert {line.index(word) for line in table for word in ("passes", "FAILS") if word in line} == {
        table[0].index("verdict")
    }
    assert re.search(r"gopher_quality +min_words +19 +at least 50 +FAILS$", "\n".join(table), re.MULTILINE)
    assert re.search(r"min_chars +min_chars +\d+ +at least 5 +passes$", "\n".join(table), re.MULTILINE)
    assert lines[-1] == "REMOVED at gopher_quality: min_words is 19, must be at least 50 (5 of 12 rules fail)"
    assert "  line 4: #  (3 times)" in lines
    assert repr(lc.text.explain(SPAM, lc.text.MinChars(5))).endswith("\nKEPT: 0 of 1 rules fail")


def test_snippets_are_the_most_frequent_ones_on_one_line_of_the_terminals_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    long = "x" * 30 + "\x1b[31m\t" + "y" * 300
    lines = ["one", long, "two", "three", long, "four", "four", "three", "three", "two", "one"]
    said = str(lc.text.explain("\n".join(lines), lc.text.GopherRepetition())).split("\n")
    start = said.index("gopher_repetition max_duplicate_lines, 11 places:")
    assert said[start + 1] == "  line 4: three  (3 times)"
    assert said[start + 2] == "  line 1: one  (2 times)"
    assert re.fullmatch(r"  line 2: x{28}…  \(2 times\)", said[start + 3])
    assert len(said[start + 3]) <= 50
    assert "\x1b" not in "\n".join(said)


def test_each_stage_sees_the_text_as_edited_before():
    text = "BUY\nHello there!\nA plain line\n"
    told = lc.text.explain(text, [lc.text.MinChars(30), CutShouting(), lc.text.MinChars(30)])
    assert [(rule.stage, rule.value, rule.verdict) for rule in told.rules] == [
        ("min_chars", len(text), "passes"),
        ("cut_shouting", 0.25, "passes"),
        ("min_chars_2", len(text) - 5, "fails"),
    ]
    first, second = told.texts
    assert (first.stages, first.edited_by) == (("min_chars", "cut_shouting"), "cut_shouting")
    assert first.changes == (
        LineChange(1, "BUY", None, "shouting"),
        LineChange(2, "Hello there!", "Hello there", "exclamation"),
    )
    assert (second.text, second.stages) == ("\nHello there\nA plain line\n"[1:], ("min_chars_2",))


def test_an_edit_is_shown_line_by_line():
    text = "BUY <IT>\n  Hello & there!  \nA plain line\n"
    told = lc.text.explain(text, CutShouting())
    said = str(told)
    assert "cut_shouting shouting, 1 line changed:\n  line 1: removed: BUY <IT>" in said
    assert "cut_shouting exclamation, 1 line changed:\n  line 2: Hello & there! -> Hello & there" in said
    page = Page(told._repr_html_())
    assert page.removed == "BUY <IT>Hello & there!"
    assert page.put_in == "Hello & there"
    assert "A plain line" in page.text


def test_an_edit_asks_for_changes_in_the_language_that_it_edits_by():
    with pytest.raises(StageError, match=r"does not know 'xx'"):
        lc.text.explain("HA!", CutShouting(), language="xx")
    assert lc.text.explain("HA!", CutShouting(language="en"), language="xx").texts[0].changes


def test_only_rules_that_fail_are_marked_unless_all_are_asked_for():
    judge = lc.text.GopherQuality()
    failed = lc.text.explain(SPAM, judge)
    assert [rule.rule for rule, _ in failed.texts[0].marks] == [
        "max_hash_ratio",
        "max_ellipsis_ratio",
        "max_ellipsis_lines",
        "min_alphabetic_words",
    ]
    assert {rule.verdict for rule, _ in failed.texts[0].marks} == {"fails"}
    clean = "A line of # and words that are said to the reader."
    assert not lc.text.explain(clean, judge).texts[0].marks
    marked = lc.text.explain(clean, judge, show="all").texts[0].marks
    assert [(rule.rule, spans) for rule, spans in marked if rule.verdict == "passes"] == [
        ("max_hash_ratio", ((10, 11),)),
        ("min_alphabetic_words", ((10, 11),)),
    ]
    assert failed.rules == lc.text.explain(SPAM, judge, show="all").rules
    with pytest.raises(StageError, match=r"show takes one of 'failed', 'all', got 'none'"):
        lc.text.explain(SPAM, judge, show="none")


def test_the_notebook_shows_the_marked_places_in_colours_with_a_legend():
    told = lc.text.explain(SPAM, [lc.text.GopherQuality(min_words=None), lc.text.GopherRepetition()])
    source = told._repr_html_()
    assert "<now>" not in source
    assert "&lt;now&gt;" in source
    page = Page(source)
    for rule, spans in told.texts[0].marks:
        colour = re.search(
            rf"<span style='background:(hsl\([^']*\));color:#111'>{rule.rule}</span> \w+, (\d+) place", source
        )
        assert int(colour[2]) == len(spans)
        assert f"{colour[1]}" in source.split("pre-wrap")[1]
    name = "gopher_repetition max_duplicate_lines"
    assert "".join(data for data, title in page.marked if name in title.split("; ")) == "Buy <now> & save…" * 2
    assert ("#", "gopher_quality max_hash_ratio; gopher_quality min_alphabetic_words") in page.marked
    assert page.text.endswith(SPAM)
    assert told.verdict_line() in page.text


@pytest.mark.slow
def test_a_long_text_is_shown_around_its_marks_and_says_so():
    text = "Word. " * WHOLE + "\n# # # # #\n" + "Word. " * WHOLE
    hidden = lc.text.explain(text, lc.text.GopherQuality(max_words=None, max_hash_ratio=1e-6))
    page = Page(hidden._repr_html_())
    assert "(1,200,011 characters, too many to show; the 409 around its first marks are below)" in page.text
    assert [data for data, _ in page.marked] == ["#"] * 5
    assert page.text.count(" characters …]") == 2
    assert len(hidden._repr_html_()) < 20_000
    unmarked = lc.text.explain(text, lc.text.MinChars(5))
    assert "1,200,011 characters, too many to show; and no place is marked" in Page(unmarked._repr_html_()).text
    everywhere = lc.text.explain(text, lc.text.GopherRepetition())
    assert len(everywhere._repr_html_()) < 40 * WHOLE


def test_stages_that_one_document_cannot_explain_are_named():
    told = lc.text.explain("a text of some words", lc.load_recipe("longcrawl64").stages)
    assert [rule.rule for rule in told.rules] == ["min_words", "min_bytes"]
    reasons = {left.stage: left.reason for left in told.unexplained}
    assert list(reasons) == [
        "signal_rules",
        "listed_duplicates",
        "tokenize",
        "min_tokens",
        "truncate",
        "shuffle",
        "roll",
    ]
    assert "needs a column 'signals'" in reasons["signal_rules"]
    assert reasons["tokenize"] == reasons["min_tokens"] == "works on tokens, not on text"
    assert reasons["shuffle"] == "needs all documents to decide about one"
    assert "not explained: shuffle, which needs all documents to decide about one\n" in str(told)
    assert str(told).endswith("(2 of 2 rules fail); 7 stages not explained")
    alone = lc.text.explain("a text", lc.dedup.ExactDocuments())
    assert (alone.verdict, alone.rules) == ("unknown", ())
    assert str(alone).endswith("UNKNOWN: no rule applies; 1 stage not explained")
    Page(told._repr_html_() + alone._repr_html_())


def test_columns_and_rewrites_feed_the_rules_behind_them():
    signals = {"rps_doc_word_count": 7.0}
    assert rows(lc.text.explain("x", lc.text.MinWords(5), signals=signals))["min_words"].value == 7
    told = lc.text.explain("some words " * 40, [lc.text.Signals(), lc.text.SignalRules()])
    assert rows(told)["min_word_count"].value == 80
    assert not told.unexplained
    kept = lc.text.explain("ein Text", lc.text.Language(("de",)), language="de")
    assert (kept.verdict, kept.rules[0].measured, kept.rules[0].demand) == ("kept", "", "")
    assert lc.text.explain("ein Text", lc.text.Language(("de",))).verdict == "leaves"
    assert lc.text.explain("x", lc.dedup.ListedDuplicates(), duplicate=True).verdict == "leaves"
    with pytest.raises(StageError, match=r"needs a column 'duplicate'"):
        lc.text.explain("x", lc.dedup.ListedDuplicates())


def test_a_crawl_is_explained_by_its_steps():
    from datasets import Dataset

    crawl = (
        lc.Crawl(Dataset.from_dict({"id": ["a"], "text": [SPAM]})) | lc.text.MinChars(3) | lc.text.GopherRepetition()
    )
    told = lc.text.explain(SPAM, crawl.steps)
    reason = crawl.why("a")
    assert (told.first_failure.stage, told.first_failure.rule) == (reason.stage, reason.rule)
    assert (told.first_failure.value, told.first_failure.threshold) == (reason.value, reason.threshold)


def test_a_rule_without_a_threshold_for_the_language_is_off(tmp_path):
    (tmp_path / "mine.yaml").write_text("version: 1\nlanguages: {de: {min_words: null}}\n")
    judge = lc.text.GopherQuality(languages=str(tmp_path / "mine.yaml"), on_unknown_language="keep")
    german, unknown = (rows(lc.text.explain("kurz", judge, language=name)) for name in ("de", "xx"))
    assert (german["min_words"].verdict, german["min_words"].demand) == ("off", "")
    assert german["min_stop_words"].verdict == "fails"
    assert {rule.verdict for rule in unknown.values()} == {"off"}
    assert lc.text.explain("kurz", judge, language="xx").verdict == "kept"


def test_unknown_values_and_close_ones_are_spelled_so_that_they_tell():
    unknown = lc.text.explain("x", lc.text.SignalRules(), signals=dict.fromkeys(SIGNALS))
    assert unknown.first_failure.measured == "unknown"
    close = MeasuredRule("s", "r", 0.30000001, "at_most", 0.3, "fails")
    assert (close.measured, close.demand) == ("0.30000001", "at most 0.3")
    assert MeasuredRule("s", "r", 0.123456789, "at_most", 0.1, "fails").measured == "0.123457"


SIGNALS = ["rps_doc_word_count", "rps_doc_mean_word_length", "rps_doc_symbol_to_word_ratio",
           "rps_lines_start_with_bulletpoint.sum", "ccnet_nlines", "rps_doc_frac_chars_top_2gram"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "stages", "said"),
    [
        (None, lc.text.MinChars(5), r"takes one document's text, got NoneType"),
        ("a\ud800b", lc.text.MinChars(5), r"half of a surrogate pair at character 1"),
        ("x", "gopher_quality", r"takes a stage such as lc.text.GopherQuality\(\), or a list of them, got 'g'"),
        ("x", [lc.text.MinChars], r"or a list of them, got <class"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(text, stages, said):
    with pytest.raises(StageError, match=said):
        lc.text.explain(text, stages)


def test_an_odd_column_is_named():
    with pytest.raises(StageError, match=r"the column 'url' cannot be <object"):
        lc.text.explain("x", lc.text.MinChars(5), url=object())


def test_an_empty_text_can_be_explained():
    told = lc.text.explain("", [lc.text.GopherQuality(), lc.text.GopherRepetition(), lc.text.FineWebQuality()])
    assert told.first_failure.rule == "min_words"
    Page(told._repr_html_())


def test_a_page_is_explained_by_its_blocks_and_its_text_by_later_stages():
    page = f"<nav><a href=/>Home</a></nav><article>{STORY}</article>"
    found = lc.text.explain("", [lc.text.ExtractText(engine="blocks"), lc.text.MinChars(700)], html=page)
    assert [block.kept for block in found.page.blocks] == [False, *[True] * 9]
    assert found.verdict_line() == "REMOVED at min_chars: min_chars is 611, must be at least 700 (1 of 6 rules fail)"
    assert str(found).startswith("9 of 10 blocks are kept\n- ")
    assert "9 of 10 blocks are kept" in found._repr_html_()
    with pytest.raises(StageError, match="no stage extracts a text from html: add"):
        lc.text.explain("", lc.text.MinChars(1), html=page)
