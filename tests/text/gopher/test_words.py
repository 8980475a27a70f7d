"""Words and characters of pages, wherever they stand in 64 bytes."""

from collections import Counter

import filters as plain
import numpy as np
import pyarrow as pa
import pytest

from longcrawl.kernels import code_points as _unicode
from longcrawl.text.gopher import pages
from longcrawl.text.gopher import words as columns
from longcrawl.text.gopher.pages import Asked, count_pages
from longcrawl.text.gopher.words import CHARACTERS, NEWLINES, WORD_CHARACTERS, WORDS

TERMINAL = plain.terminal_marks()


def test_sentence_ends_are_unicodes():
    flags = columns.load_page_characters()
    assert {chr(point) for point in np.flatnonzero(flags & columns.TERMINAL)} == TERMINAL


def test_counting_copes_with_unicode_tables_that_are_neither_shipped_nor_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_unicode, "SHIPPED", tmp_path)
    (tmp_path / "cache").write_text("a file where the folder should be")
    columns.load_page_characters.cache_clear()
    assert count_pages(pa.array(["a b"], pa.large_string()), Asked(0))[WORDS].tolist() == [2]
    columns.load_page_characters.cache_clear()
    assert _unicode.cached_arrays("x", lambda: {"a": np.ones(1)})["a"].tolist() == [1]


def test_each_character_can_be_a_word():
    texts = pa.array(["我爱 abc中文x。", "ก็ดี", "plain words"], pa.large_string())
    assert count_pages(texts, Asked(0), words="characters")[WORDS].tolist() == [6, 2, 2]


UNMOVED = (WORDS, NEWLINES, columns.HASHES, columns.ELLIPSES, columns.ALPHABETIC_WORDS, columns.LINES)


SOME = [
    "é x",
    "…a b",
    "\u3000a",
    "a\u2003b",
    "語a b",
    "語語 é",
    "😀a",
    "𠀀a b",
    "ー𠀀The x",
    "\u2028x",
    "\r\nx",
    "\n\n x",
    "a\x1fb",
    "\x85é",
    "...",
    "#é",
]


@pytest.mark.parametrize("words", ["whitespace", "characters"])
def test_counts_are_the_same_wherever_64_bytes_end(words):
    moved = [before * size + piece for piece in SOME for before in ("x", "é") for size in range(1, 67)]
    texts = pa.array([text + end for text in moved for end in ("", " the end.\n")], pa.large_string())
    for definitions in ("paper", "datatrove"):
        counted = count_pages(texts, Asked(3, definitions), words)
        for named in UNMOVED:
            rows = counted[named].reshape(len(SOME), 2, 66, 2)
            assert (rows == rows[:, :, :1]).all()
        for named in (CHARACTERS, WORD_CHARACTERS):
            rows = counted[named].reshape(len(SOME), 2, 66, 2)
            assert (rows - rows[:, :, :1] == np.arange(66)[:, None]).all()


@pytest.mark.slow
def test_words_of_one_hash_are_told_apart():
    from longcrawl.kernels.ngrams import HASHED

    text = "longer-words other-words longer-words other-word a a b " * 3
    batch = pages._batch(pa.array([text], pa.large_string()), "whitespace")
    page = columns.make_page(batch)
    found, _ = columns.find_words(batch, 0, 0, page)
    page.word_keys[: found.words] = HASHED
    unique = columns.number_page_words(batch, page, found.words)
    spelled = text.split()
    assert [spelled[first] for first in page.repeats.firsts[:unique]] == list(dict.fromkeys(spelled))
    assert [spelled[page.repeats.firsts[number]] for number in page.repeats.ids[: found.words]] == spelled
    assert page.repeats.counts[:unique].tolist() == list(Counter(spelled).values())
