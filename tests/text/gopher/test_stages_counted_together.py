"""Rules over raw text that follow each other count in one pass, and judge as they do one by one."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.run.part import Tally, run_fused
from longcrawl.text.gopher import stages as rules

QUALITY = lc.text.GopherQuality(min_words=3, stop_words=("the", "b"), min_stop_words=1)
REPETITION, LINES = lc.text.GopherRepetition(max_top_2gram=0.5), lc.text.FineWebQuality(short_line=4)
SPANISH = lc.text.GopherQuality(languages="gopher", min_words=1)
C4 = lc.text.C4Quality(min_words_per_line=1, min_sentences=1, terminal_punctuation="ignored")
ORDERS = [
    [REPETITION, QUALITY, LINES],
    [LINES, QUALITY, SPANISH, QUALITY, REPETITION],
    [QUALITY, C4, QUALITY, REPETITION],
    [QUALITY, lc.text.GopherRepetition(words="characters"), LINES],
]
OTHERS = [
    pytest.param(
        [kind(definitions=name) for name in names for kind in (lc.text.GopherRepetition, lc.text.GopherQuality)],
        marks=pytest.mark.slow,
    )
    for names in (["datatrove"], ["paper", "dolma", "nemo-curator", "dclm", "datatrove"])
]

WORDS = st.sampled_from(
    ["the", "The", "b", "de", "la", "word", "longer-words", "日本", "…", "#", "-", ".", "a.", "\n", "\n\n"]
)
TEXTS = st.lists(st.lists(WORDS, max_size=40).map(" ".join), min_size=1, max_size=8)


def table_of(texts):
    languages = ["es", "en", None]
    return pa.table(
        {
            "id": [str(number) for number in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
            "language": [languages[number % 3] for number in range(len(texts))],
        }
    )


def fused(stages, table):
    tally = Tally()
    (kept,) = run_fused([(f"{place}", stage) for place, stage in enumerate(stages)], [table], tally)
    return kept, tally.table()


def one_by_one(stages, table):
    tally = Tally()
    for place, stage in enumerate(stages):
        (table,) = run_fused([(f"{place}", stage)], [table], tally)
    return table, tally.table()


@pytest.mark.variants
@settings(max_examples=settings.default.max_examples, deadline=None)
@given(texts=TEXTS)
@pytest.mark.parametrize("stages", [*ORDERS, *OTHERS])
def test_documents_and_ledger_are_those_of_single_stages(stages, texts):
    table = table_of(texts)
    assert fused(stages, table) == one_by_one(stages, table)


def test_words_are_split_once(monkeypatch):
    passes = []
    count = rules.count_pages
    monkeypatch.setattr(rules, "count_pages", lambda *given: passes.append(given[1]) or count(*given))
    fused([REPETITION, QUALITY, LINES], table_of(["the b word " * 9, "the"]))
    (asked,) = passes
    assert asked.what == REPETITION.columns | QUALITY.columns | LINES.columns


def test_an_unknown_language_is_an_error_where_a_document_comes_to_its_rules():
    strict = lc.text.GopherRepetition(languages="gopher", on_unknown_language="error")
    table = table_of(["the first words", "the other words", "gone"])
    assert fused([QUALITY, strict], table)[1]["id"].to_pylist() == ["2"]
    with pytest.raises(StageError, match="no thresholds for the language null"):
        fused([QUALITY, strict], table_of(["the first words", "the other words", "the third words"]))


def test_seconds_of_what_is_counted_together_are_shared():
    stages = [lc.text.GopherRepetition(), lc.text.GopherQuality()]
    tally = Tally()
    list(
        run_fused(
            [(stage.name, stage) for stage in stages],
            [table_of([f"word{n} and so on\n" * 9_000 for n in range(20)])],
            tally,
        )
    )
    seconds = tally.clock.seconds
    assert min(seconds.values()) > sum(seconds.values()) / 4


class Longer(lc.text.GopherQuality):
    """Rules of somebody else, who looks at texts as well."""

    name = "longer"

    def checks(self, table):
        return [*super().checks(table), *lc.text.MinWords(n=4).checks(table)]


def test_rules_of_others_see_the_text():
    stages = [REPETITION, Longer(min_words=2, min_stop_words=0), QUALITY]
    table = table_of(["the first words", "the b other words", "gone"])
    assert fused(stages, table) == one_by_one(stages, table)
    assert fused(stages, table)[0]["text"].to_pylist() == ["the b other words"]
