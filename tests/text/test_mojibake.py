"""Repair of mojibake: equal to ftfy's on each page, with the places of pages and of changes."""

# Wrongly decoded text is the point here:
# ruff: noqa: RUF001

import re
import sys

import ftfy
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError

PAGES = ["The boatâ\x80\x99s cafÃ© \ue001\n\n", "It&amp;s <b>\n&amp; so", " \x1b[31mred\x07\r\nsÃ³ “ﬁx” ｆ�"]
REPAIRED = ["The boat’s café \n\n", "It&amp;s <b>\n&amp; so", " red\nsó “ﬁx” ｆ"]
CONFIG = ftfy.TextFixerConfig(
    fix_latin_ligatures=False, fix_character_width=False, uncurl_quotes=False, normalization=None
)


def starts(pages):
    return [sum(map(len, pages[:number])) for number in range(len(pages))]


def documents():
    texts = ["".join(PAGES), "plain", None, "cafÃ©"]
    offsets = pa.array([starts(PAGES), [0], None, None], pa.list_(pa.int64()))
    return pa.table({"id": ["a", "b", "c", "d"], "text": texts, "page_offsets": offsets})


def test_pages_are_repaired_one_by_one():
    made = lc.text.FixText()(documents())
    assert made["text"].to_pylist() == ["".join(REPAIRED), "plain", None, "café"]
    assert made["page_offsets"].to_pylist() == [starts(REPAIRED), [0], None, None]


def test_every_changed_line_is_a_place():
    given = documents()
    _, _, places = lc.text.FixText().trace(given)
    made = lc.text.FixText()(given)["text"].to_pylist()
    for row, (before, after) in enumerate(zip(given["text"].to_pylist(), made, strict=True)):
        own = [place for place in places.to_pylist() if place["document"] == row]
        shift = sum(place["replaced_by"] - (place["end"] - place["start"]) for place in own)
        assert len(after or "") - len(before or "") == shift
        assert bool(own) == (before != after)
    assert [place["start"] for place in places.to_pylist()] == [8, 44, 56, 3]


@given(st.text(st.sampled_from("Ãâ©³\x80\x99\x9d\xa0€™ ab\n\r\t\x0c&<;amplt\x1b[m\x07\u2028\ufeff\ufffc�ﬁｆ“Å…船")))
def test_a_text_is_repaired_as_ftfy_does(text):
    unmapped = re.compile("[\ue000-\uf8ff\ufffd]")
    repaired = lc.text.FixText()(pa.table({"text": [text]}))["text"][0].as_py()
    assert repaired == unmapped.sub("", ftfy.fix_text(text, CONFIG))


def test_a_crawl_and_a_dataset_repair_alike():
    data = Dataset(documents())
    crawl = lc.Crawl(data) | lc.text.FixText()
    assert crawl.data[:] == data.map(lc.text.FixText(), batched=True)[:]
    assert crawl.funnel.rows[0].edits.documents == 2


def test_a_missing_package_is_one_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(StageError, match=r"fix_text needs the package ftfy: pip install 'longcrawl\[pdf\]'"):
        lc.text.FixText().prepare()
