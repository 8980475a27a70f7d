"""The places that are marked are those that the kernels count."""

import importlib.util
import re
from collections import Counter
from itertools import accumulate, pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.text.gopher.words import ALPHANUMERIC, MARK, UNSPACED, load_page_characters

STAGES = (lc.text.GopherQuality, lc.text.GopherRepetition, lc.text.FineWebQuality)
MODES = [
    "whitespace",
    "characters",
    pytest.param("icu", marks=pytest.mark.skipif(not importlib.util.find_spec("icu4py"), reason="icu4py is missing")),
]

TOKENS = ["a", "b", "ab", "the", "of", "Être", "42", "-", "*", "•", "• x", "#", "##", ".", "..", "...", "....", "…",
          "!", "東京", "東京タワー", "。", "ไทย", "ก\u0e31", "x東y", "東…", "-東", "\u0301", "\U0001d54f"]  # fmt: skip
SPACES = [" ", "  ", "\t", "\n", "\n", "\n\n", "\n \n", "\r\n", "\x85", "\u3000", "", " \n "]
TEXTS = st.lists(st.sampled_from(TOKENS) | st.sampled_from(SPACES), max_size=60).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=40
)
LINES = st.lists(st.sampled_from(["a b c", " a b c", "a", "", "a b c d e f a b c d e f", "東京。", "- x"]), max_size=12)


def measured(text: str, mode: str) -> dict[str, float]:
    table = pa.table({"id": ["a"], "text": pa.array([text], pa.large_string())})
    checks = [check for stage in STAGES for check in stage(words=mode).checks(table)]
    return {check.rule: check.value[0].as_py() for check in checks}


def marked(text: str, mode: str, rule: str) -> list[str]:
    stage = next(stage(words=mode) for stage in STAGES if rule in dir(stage))
    spans = stage.marks(text, rule)
    ends = [0, *(end for _, end in spans)]
    assert all(last <= begin < end <= len(text) for last, (begin, end) in zip(ends, spans, strict=False)), spans
    return [text[begin:end] for begin, end in spans]


def characters(places: list[str]) -> int:
    return sum(len("".join(place.split())) for place in places)


def share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def words_of(text: str, mode: str) -> list[str]:
    """Cut a text in plain Python; that there are as many words as the kernels count is asserted."""
    words = []
    for run in text.split():
        breaks = icu_breaks(run) if mode == "icu" else range(len(run))
        begins = [
            0,
            *(at for at in range(1, len(run)) if mode != "whitespace" and at in breaks and cuts(run, at, mode)),
        ]
        words += [run[begin:end] for begin, end in pairwise([*begins, len(run)])]
    return words


def cuts(run: str, at: int, mode: str) -> bool:
    """Whether a word can begin at a character: of a script without spaces, or behind one of such a script."""
    before, flag = load_page_characters()[[ord(run[at - 1]), ord(run[at])]]
    unspaced = flag & UNSPACED or (before & UNSPACED and flag & ALPHANUMERIC)
    return bool(unspaced) and (mode == "icu" or not flag & MARK)


def icu_breaks(run: str) -> set[int]:
    from icu4py.breakers import WordBreaker

    return set(accumulate(map(len, WordBreaker(run, "und"))))


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None)
@given(TEXTS | LINES.map("\n".join))
def test_what_is_marked_per_denominator_is_the_value_of_the_rule(mode, text):
    values = measured(text, mode)
    words = words_of(text, mode)
    assert len(words) == values["max_words"]
    lines = [line for line in text.split("\n") if line.strip()]
    stripped = [line.strip() for line in lines]
    inked = sum(map(len, words))
    of_words = {"max_hash_ratio": 0, "max_ellipsis_ratio": 0, "min_alphabetic_words": len(words)}
    for rule, all_of_them in of_words.items():
        assert values[rule] == share(abs(all_of_them - len(marked(text, mode, rule))), len(words)), rule
    of_lines = ["max_bullet_lines", "max_ellipsis_lines", "max_short_lines", "max_duplicate_lines"]
    for rule in of_lines:
        assert values[rule] == share(len(marked(text, mode, rule)), len(lines)), rule
    assert values["min_terminal_lines"] == share(len(lines) - len(marked(text, mode, "min_terminal_lines")), len(lines))
    in_lines = sum(map(len, marked(text, mode, "max_duplicate_line_characters")))
    assert values["max_duplicate_line_characters"] == share(in_lines, sum(map(len, stripped)))
    later = sum(map(len, marked(text, mode, "max_later_line_characters")))
    assert values["max_later_line_characters"] == share(later, len(text) - text.count("\n"))
    for n in range(5, 11):
        rule = f"max_duplicate_{n}grams"
        assert values[rule] == share(characters(marked(text, mode, rule)), inked), rule
    if mode == "whitespace":
        assert values["max_unspaced_letters"] == share(characters(marked(text, mode, "max_unspaced_letters")), inked)


@settings(deadline=None)
@given(LINES.map("\n".join))
def test_duplicate_paragraphs_stand_between_blank_lines(text):
    values = measured(text, "whitespace")
    paragraphs = [one.strip() for one in re.split(r"\n(?:[^\S\n]*\n)+", text) if one.strip()]
    found = marked(text, "whitespace", "max_duplicate_paragraphs")
    assert found == [one for one in paragraphs if paragraphs.count(one) > 1]
    assert values["max_duplicate_paragraphs"] == share(len(found), len(paragraphs))
    assert values["max_duplicate_paragraph_characters"] == share(sum(map(len, found)), sum(map(len, paragraphs)))


@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None)
@given(TEXTS)
def test_all_occurrences_of_the_top_ngram_are_marked(mode, text):
    """Overlapping ones are counted twice by the rule and marked once."""
    values, words = measured(text, mode), words_of(text, mode)
    for n in range(2, 5):
        grams = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
        ((top, times),) = Counter(grams).most_common(1) or [((), 0)]
        rule = f"max_top_{n}gram"
        places = marked(text, mode, rule)
        if times < 2:
            assert not places
            assert values[rule] == 0
            continue
        assert values[rule] == share(times * sum(map(len, top)), sum(map(len, words)))
        covered = {at + step for at, gram in enumerate(grams) if gram == top for step in range(n)}
        assert characters(places) == sum(len(words[at]) for at in covered)


def test_marks_of_a_small_page():
    text = "• one # two...\n• one # two...\n\n12 — no end\nA sentence.\n"
    quality, lines = lc.text.GopherQuality(), lc.text.FineWebQuality(short_line=11)
    found = {rule: marked(text, "whitespace", rule) for rule in ("max_hash_ratio", "max_ellipsis_ratio")}
    assert found == {"max_hash_ratio": ["#", "#"], "max_ellipsis_ratio": ["...", "..."]}
    assert marked(text, "whitespace", "min_alphabetic_words") == ["•", "#", "•", "#", "12", "—"]
    assert marked(text, "whitespace", "max_bullet_lines") == ["• one # two..."] * 2
    assert marked(text, "whitespace", "max_top_4gram") == ["• one # two..."] * 2
    assert marked(text, "whitespace", "min_terminal_lines") == ["12 — no end"]
    assert [text[slice(*span)] for span in lines.marks(text, "max_short_lines")] == ["12 — no end", "A sentence."]
    assert lines.marks(text, "max_later_line_characters") == [(15, 29)]
    assert quality.marks(text, "max_words") == quality.marks(text, "no_such_rule") == []
