"""Others' readings of Gopher's rules, by examples on which they differ."""

import pyarrow as pa
import pytest

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.gopher.stages import GopherQuality, GopherRepetition


def examples(**by_definitions):
    """Return an example for each definition; those whose kernels only `make slow` compiles are slow."""
    named = {name.replace("_", "-"): value for name, value in by_definitions.items()}
    slow = {"datatrove", "dclm", "dolma", "nemo-curator"}
    return [pytest.param(name, value, marks=[pytest.mark.slow] * (name in slow)) for name, value in named.items()]


def measured(stage, text):
    checks = stage.checks(pa.table({"text": pa.array([text], pa.string())}))
    return {check.rule: check.value[0].as_py() for check in checks}


def value_of(rule, text, definitions):
    stage = GopherQuality if hasattr(GopherQuality, rule) else GopherRepetition
    return measured(stage(definitions=definitions), text).get(rule)


PHRASE_TWICE = " ".join([*"abcdefghij", *"abcdefghij", *(f"w{number}" for number in range(40))])


@pytest.mark.parametrize(
    ("definitions", "share"), examples(paper=0.154, datatrove=0.053, dclm=0.154, dolma=0.018, nemo_curator=0.101)
)
def test_a_phrase_of_ten_words_twice_in_sixty(definitions, share):
    assert round(value_of("max_duplicate_10grams", PHRASE_TWICE, definitions), 3) == share


@pytest.mark.parametrize(
    ("definitions", "bullets"),
    examples(
        paper=["- x", "* x", "\N{EN DASH} x", " - x", "• x", "●x"],
        datatrove=["- x", " - x", "• x", "-x"],
        dclm=["- x", "* x", " - x", "• x", "●x", "-x", "*x"],
        dolma=["- x", "* x", "-x", "*x"],
        nemo_curator=["• x", "●x"],
    ),
)
def test_what_a_bullet_is(definitions, bullets):
    lines = ["- x", "* x", "\N{EN DASH} x", " - x", "• x", "●x", "-x", "*x", "+x", "x"]
    assert [line for line in lines if value_of("max_bullet_lines", line, definitions)] == bullets


@pytest.mark.slow
def test_datatrove_spells_ngrams_without_spaces():
    text = "ab c d e f x a bc d e f"
    assert value_of("max_duplicate_5grams", text, "datatrove") == 6 / len(text)
    assert value_of("max_duplicate_5grams", text, "paper") == 0


@pytest.mark.slow
def test_datatrove_skips_what_a_repeated_ngram_covers():
    text = "a b c d e " * 2 + "b c d e a"
    assert value_of("max_duplicate_5grams", text, "datatrove") == 10 / len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("definitions", "rule"), [("datatrove", "max_duplicate_paragraphs"), ("dclm", "max_duplicate_lines")]
)
def test_datatrove_asks_paragraphs_first(definitions, rule):
    crawl = lc.Crawl({"id": ["a"], "text": ["one two\n\n" * 9]}) | GopherRepetition(definitions=definitions)
    assert crawl.why("a").rule == rule


@pytest.mark.slow
def test_nemo_finds_the_most_frequent_ngram_inside_words():
    text = "to be to be or\nonto before"
    assert value_of("max_top_2gram", text, "nemo-curator") == 3 * len("to be") / len(text)


@pytest.mark.slow
def test_dclm_takes_the_longest_of_the_most_frequent():
    text = "a b a b longer words longer words"
    kept = len("ababc") - 1 + len("longerwords") * 2
    assert value_of("max_top_2gram", text, "dclm") == 2 * len("longerwords") / kept


@pytest.mark.slow
def test_dolma_has_no_rules_for_paragraphs():
    rules = set(measured(GopherRepetition(definitions="dolma"), ""))
    others = set(measured(GopherRepetition(), ""))
    assert others - rules == {"max_duplicate_paragraphs", "max_duplicate_paragraph_characters"}
    assert not rules - others


@pytest.mark.parametrize(("definitions", "share"), examples(paper=0, datatrove=0, dclm=0, dolma=0, nemo_curator=0))
@pytest.mark.parametrize("stage", [GopherQuality, GopherRepetition])
def test_an_empty_text_has_no_shares(stage, definitions, share):
    for text in ("", None):
        assert set(measured(stage(definitions=definitions), text).values()) == {share}


@pytest.mark.parametrize(
    ("definitions", "rule"),
    examples(
        paper="max_duplicate_5grams",
        datatrove=None,
        dclm="max_duplicate_5grams",
        dolma=None,
        nemo_curator="max_duplicate_10grams",
    ),
)
def test_verdicts_follow_the_reading(definitions, rule):
    table = pa.table({"text": [PHRASE_TWICE]})
    assert GopherRepetition(definitions=definitions).judge(table)["rule"][0].as_py() == rule


def test_unknown_definitions_are_refused():
    with pytest.raises(StageError, match="definitions"):
        GopherQuality(definitions="c4")


def test_places_are_known_for_the_paper_alone():
    assert GopherQuality().marks("a # b", "max_hash_ratio") == [(2, 3)]
    assert GopherQuality(definitions="dolma").marks("a # b", "max_hash_ratio") == []
    assert GopherQuality(definitions="dolma").marks("日", "max_unspaced_letters") == [(0, 1)]
