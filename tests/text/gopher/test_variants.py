"""Others' readings of Gopher's rules, against their definitions in plain Python."""

import re
import statistics
import unicodedata
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.text.gopher.stages import STOP_WORDS, GopherQuality, GopherRepetition

OTHERS = ("datatrove", "dclm", "dolma", "nemo-curator")
VARIANTS = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]
"""Each has kernels of its own, which take seconds to compile: all but one are in `make slow`."""

NEMO_BULLETS = tuple("•‣\N{HYPHEN BULLET}⁌⁍∙○●◘◦⦾⦿")
NEMO_ENDINGS = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
CONTROLS = {chr(point) for point in (*range(9), *range(11, 32), *range(127, 160))}
ASCII_PUNCTUATION = {chr(point) for point in range(33, 127) if not chr(point).isalnum()}
DATATROVE_PUNCTUATION = CONTROLS | ASCII_PUNCTUATION | set("、。「」《》（），：；？！…“”„’–—«»１►")  # noqa: RUF001  # its own
DATATROVE_OTHERS = set("•●◦○‣⁌⁍∙◘⦾⦿‘°¢→©\N{HYPHEN BULLET}")  # noqa: RUF001  # looks like others
"""Characters that the texts of this file are made of; `benchmarks/gopher_peers.py` compares all."""


def share(count, of):
    return count / of if of else 0.0


def grams(words, n):
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def letters(words):
    return sum(map(len, words))


def later(segments):
    """Return how many segments stood before, and their characters."""
    seen, found = set(), []
    for segment in segments:
        if segment in seen:
            found.append(segment)
        seen.add(segment)
    return len(found), letters(found)


def repeated(segments):
    """Return how many segments come more than once, and their characters."""
    counts = Counter(segments)
    found = [segment for segment in segments if counts[segment] > 1]
    return len(found), letters(found)


def filled(lines):
    return [line for line in lines if line.strip()]


def split_double(text):
    """Split at pairs of newlines."""
    parts, rest = [], text
    while "\n\n" in rest:
        part, _, rest = rest.partition("\n\n")
        parts.append(part)
    return [*parts, rest]


def most_frequent(words, n):
    counts = Counter(grams(words, n))
    return max(counts.items(), key=lambda item: item[1], default=None)


def quality(words, *, counted, lengths, hashes, ellipses, lines, bullets, endings, alphabetic, stop_words):
    length = lengths if isinstance(lengths, float) else share(letters(lengths), len(lengths))
    return {
        "min_words": len(counted),
        "max_words": len(counted),
        "min_mean_word_length": length,
        "max_mean_word_length": length,
        "max_hash_ratio": share(hashes, len(words)),
        "max_ellipsis_ratio": share(ellipses, len(words)),
        "max_bullet_lines": share(sum(line.startswith(bullets) for line in lines), len(lines)),
        "max_ellipsis_lines": share(sum(line.endswith(endings) for line in lines), len(lines)),
        "min_alphabetic_words": share(sum(map(alphabetic, words)), len(words)),
        "min_stop_words": stop_words,
    }


def has_letter(word):
    return any(map(str.isalpha, word))


def occurrences(words):
    return sum(word in STOP_WORDS for word in words)


def datatrove_quality(text, words):
    counted = [word for word in words if any(each not in DATATROVE_PUNCTUATION for each in word)]
    return quality(
        words,
        counted=counted,
        lengths=counted,
        hashes=text.count("#"),
        ellipses=text.count("...") + text.count("…"),
        lines=[line.strip() for line in text.splitlines()],
        bullets=("•", "-"),
        endings=("...", "…"),
        alphabetic=has_letter,
        stop_words=len(set(words) & set(STOP_WORDS)),
    )


def dclm_quality(text, words):
    symbols = sum(text.count(mark) for mark in ("#", "...", ". . .", "…"))
    return quality(
        words,
        counted=[word for word in words if word[0].isalnum()],
        lengths=words,
        hashes=symbols,
        ellipses=symbols,
        lines=[line.strip() for line in filled(text.split("\n"))],
        bullets=("●", "•", "*", "-"),
        endings=("...", ". . .", "…"),
        alphabetic=has_letter,
        stop_words=occurrences(map(str.lower, words)),
    )


def dolma_quality(text, words):
    symbols = sum("#" in word or "…" in word for word in words)
    return quality(
        words,
        counted=words,
        lengths=float(statistics.median(map(len, words))) if words else 0.0,
        hashes=symbols,
        ellipses=symbols,
        lines=re.split("\n+", text),
        bullets=("*", "-"),
        endings="…",
        alphabetic=has_letter,
        stop_words=occurrences(words),
    )


def nemo_quality(text, words):
    symbols = sum(word in NEMO_ENDINGS or len(re.findall("#+", word)) / len(word) > 0.5 for word in words)
    return quality(
        words,
        counted=words,
        lengths=words,
        hashes=symbols,
        ellipses=symbols,
        lines=[line.strip().lower() for line in filled(text.split("\n"))],
        bullets=NEMO_BULLETS,
        endings=NEMO_ENDINGS,
        alphabetic=lambda word: regex.search(r"\p{Alphabetic}", word) is not None,
        stop_words=occurrences(words),
    )


def segment_shares(name, segments, duplicates, of):
    return {
        f"max_duplicate_{name}s": share(duplicates[0], len(segments)),
        f"max_duplicate_{name}_characters": share(duplicates[1], of),
    }


def gram_shares(top, duplicates):
    return {f"max_top_{n}gram": top(n) for n in range(2, 5)} | {
        f"max_duplicate_{n}grams": duplicates(n) for n in range(5, 11)
    }


def datatrove_repetition(text, words):
    paragraphs, lines = re.split(r"\n\n+", text.strip()), re.split("\n+", text)

    def top(n):
        gram, count = most_frequent(words, n) or ((), 0)
        return share(len(" ".join(gram)) * count, len(text))

    def duplicates(n):
        seen, at, found = set(), 0, 0
        while at + n <= len(words):
            gram = "".join(words[at : at + n])
            found += len(gram) if gram in seen else 0
            at += n if gram in seen else 1
            seen.add(gram)
        return share(found, len(text))

    return (
        segment_shares("line", lines, later(lines), len(text))
        | segment_shares("paragraph", paragraphs, later(paragraphs), len(text))
        | gram_shares(top, duplicates)
    )


def dclm_repetition(text, words):
    lines = [line.strip() for line in filled(text.split("\n"))]
    paragraphs = [part.strip() for part in filled(split_double(text))]
    kept = [word for word in words if word[0].isalnum()]

    def top(n):
        counts = Counter(grams(kept, n))
        most = max(counts.values(), default=0)
        lengths = [letters(gram) for gram, count in counts.items() if count == most]
        return share(most * max(lengths), letters(kept)) if most > 1 else 0.0

    def duplicates(n):
        counts = Counter(grams(kept, n))
        covered = {at + step for at, gram in enumerate(grams(kept, n)) if counts[gram] > 1 for step in range(n)}
        return share(sum(len(kept[at]) for at in covered), letters(kept))

    return (
        segment_shares("line", lines, repeated(lines), letters(lines))
        | segment_shares("paragraph", paragraphs, repeated(paragraphs), letters(paragraphs))
        | gram_shares(top, duplicates)
    )


def dolma_repetition(text, words):
    lines = re.split("\n+", text)

    def top(n):
        gram, count = most_frequent(words, n) or ((), 0)
        return share(letters(gram) * count, letters(words))

    def duplicates(n):
        counts = Counter(grams(words, n))
        found = sum(count * letters(gram) for gram, count in counts.items() if count > 1)
        return share(found, sum(count * letters(gram) for gram, count in counts.items()))

    return segment_shares("line", lines, repeated(lines), letters(words)) | gram_shares(top, duplicates)


def nemo_repetition(text, words):
    lines, paragraphs = filled(text.split("\n")), split_double(text)

    def top(n):
        if len(words) < n:
            return float(bool(words))
        gram = " ".join(most_frequent(words, n)[0])
        return share(len(text) - len(text.replace(gram, "")), len(text))

    def duplicates(n):
        if len(words) < n:
            return float(bool(words))
        seen, places = set(), []
        for at, gram in enumerate(grams(words, n)):
            if gram in seen:
                places.append(at)
            seen.add(gram)
        covered = {at + step for at in places for step in range(n)}
        spaces = {at + step for at in places for step in range(n - 1)}
        # Between an n-gram and one that begins before the other ends, the space before what is new counts as well.
        spaces |= {one + n - 1 for one, other in pairwise(places) if other < one + n}
        return share(sum(len(words[at]) for at in covered) + len(spaces), len(text))

    return (
        segment_shares("line", lines, later(lines), letters(lines))
        | segment_shares("paragraph", paragraphs, later(paragraphs), letters(paragraphs))
        | gram_shares(top, duplicates)
    )


QUALITY = {"datatrove": datatrove_quality, "dclm": dclm_quality, "dolma": dolma_quality, "nemo-curator": nemo_quality}
REPETITION = {
    "datatrove": datatrove_repetition,
    "dclm": dclm_repetition,
    "dolma": dolma_repetition,
    "nemo-curator": nemo_repetition,
}


def measured(stage, texts):
    checks = stage.checks(pa.table({"text": pa.array(texts, pa.string())}))
    values = {check.rule: check.value.to_pylist() for check in checks if check.rule != "max_unspaced_letters"}
    return [{rule: value[at] for rule, value in values.items()} for at in range(len(texts))]


def assert_as_defined(definitions, texts):
    for stage, oracles in ((GopherQuality, QUALITY), (GopherRepetition, REPETITION)):
        for text, found in zip(texts, measured(stage(definitions=definitions), texts), strict=True):
            assert found == oracles[definitions](text, text.split()), (text, definitions)


WORDS = st.sampled_from(
    [*STOP_WORDS, "The", "tHE", "WITH", "a", "b", "ab", "bc", "abc", "long-winded", "日本語", "É", "ß", "\u0301", "Ⅷ",
     "Ⓐ", "#", "##", "#a", "#a#", "#a#b", ".", "..", "...", "....", "…", "a…", "b...", "[...]", "(...)", "[…]", "-»",
     "x-»", "read", "Read", "more", "MORE..", "more...", "-", "*", "+", "•", "●", "◦", "\N{EN DASH}", "-x", "•x", "1",
     '"a', "\x7f", "\x00", "\N{KELVIN SIGN}", "İ", "ΟΔΟΣ"]
)  # fmt: skip
GAPS = st.sampled_from(
    [" ", " ", " ", "  ", "\n", "\n", "\n\n", "\n\n\n", "\n \n", " \n", "\n\n \n\n", "\r\n", "\r", "\n\r\n", "\t", "\v",
     "\f", "\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", ""]
)  # fmt: skip
LINES = st.sampled_from(
    [
        "- the",
        "* the",
        "\N{EN DASH} the",
        "• the",
        "and so on…",
        "and so on...",
        "and so on…  ",
        " - x",
        "Read more",
        ". . .",
        "",
    ]
)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def documents(draw):
    """Return texts of few words that come again and again, with blank lines and all kinds of white space."""
    few = draw(st.lists(st.one_of(WORDS, LINES, ANY), min_size=1, max_size=5))
    parts = draw(st.lists(st.tuples(st.one_of(st.sampled_from(few), WORDS), GAPS), max_size=40))
    phrase = "".join(word + gap for word, gap in parts)
    return draw(GAPS) * draw(st.integers(0, 2)) + phrase * draw(st.integers(1, 3)) + draw(GAPS)


def is_known(text):
    """Whether all marks of a text are of those of which this file says whether datatrove calls them punctuation."""
    known = DATATROVE_PUNCTUATION | DATATROVE_OTHERS
    return all(each.isalpha() or each.isspace() or each in known or each.isdecimal() for each in text)


def is_assigned(text):
    return all(unicodedata.category(each) != "Cn" for each in text)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(text=documents())
@pytest.mark.parametrize("definitions", VARIANTS)
def test_every_value_is_as_defined(definitions, text):
    found = measured(GopherRepetition(definitions=definitions), [text])[0]
    assert found == REPETITION[definitions](text, text.split())
    found = measured(GopherQuality(definitions=definitions), [text])[0]
    expected = QUALITY[definitions](text, text.split())
    unknown = set()
    if definitions == "datatrove" and not is_known(text):
        unknown = {"min_words", "max_words", "min_mean_word_length", "max_mean_word_length"}
    if definitions == "nemo-curator" and not is_assigned(text):
        unknown = {"min_alphabetic_words"}
    assert {rule: found[rule] for rule in set(found) - unknown} == {
        rule: expected[rule] for rule in set(expected) - unknown
    }


@pytest.mark.parametrize("definitions", VARIANTS)
def test_documents_of_a_batch_do_not_touch_each_other(definitions):
    texts = [
        "the the a\n\nthe the a",
        "",
        "\n",
        " \n ",
        "a\r\nb\n",
        "\n\na\n\n",
        "- x\n" * 9,
        "x " * 30,
        "日本語 a" * 9,
    ]
    assert_as_defined(definitions, texts)
    assert_as_defined(definitions, texts[::-1])


@pytest.mark.parametrize("definitions", VARIANTS)
def test_words_are_split_as_asked(definitions):
    text = "我們 the 我們。the\n" * 3
    words = ["我", "們", "the", "我", "們。the"] * 3
    found = measured(GopherRepetition(definitions=definitions, words="characters"), [text])[0]
    assert found == REPETITION[definitions](text, words)
    found = measured(GopherQuality(definitions=definitions, words="characters"), [text])[0]
    assert found == QUALITY[definitions](text, words)
