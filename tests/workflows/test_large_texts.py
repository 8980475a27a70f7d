"""Texts of 100 MB in one line, without spaces or of nothing but newlines go through every stage that reads text."""

import pyarrow as pa
import pytest

import longcrawl as lc

SIZE = 100_000_000
STAGES = [
    lc.text.GopherQuality(max_words=None),
    lc.text.GopherRepetition(),
    lc.text.FineWebQuality(),
    lc.text.LineCorrections(language="en"),
    lc.text.C4Quality(),
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["word ", "x", "\n", "é", "中"])
def test_a_text_of_100_mb_goes_through(piece):
    text = piece * (SIZE // len(piece.encode()))
    table = pa.table({"id": ["a", "b"], "text": pa.array([text, "after it"], pa.large_string())})
    words = len(text.split())
    values = lc.text.rule_values(table, STAGES[0])
    assert values["min_words"].to_pylist() == [words, 2]
    for stage in STAGES[1:]:
        assert lc.text.rule_values(table, stage).num_rows == 2
    signals = lc.text.Signals()(table)["signals"][0].as_py()
    assert signals["rps_doc_word_count"] == words
    assert signals["ccnet_length"] == len(text)
