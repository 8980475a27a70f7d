"""Rule sets over quality signals."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError

GOOD = {
    "rps_doc_word_count": 1000.0,
    "rps_doc_mean_word_length": 5.0,
    "rps_doc_symbol_to_word_ratio": 0.01,
    "rps_lines_start_with_bulletpoint.sum": 1.0,
    "ccnet_nlines": 10.0,
    "rps_doc_frac_chars_top_2gram": 0.05,
}


def documents(*changes):
    signals = [None if change is None else GOOD | change for change in changes]
    kind = pa.struct([(name, pa.float64()) for name in GOOD])
    return pa.table({"id": [f"d{i}" for i in range(len(signals))], "signals": pa.array(signals, kind)})


def card_rules(signals: dict) -> str | None:
    """The rules as RedPajama-V2's card words them, in order, one document at a time."""
    words, lines = signals["rps_doc_word_count"], signals["ccnet_nlines"]
    if words < 50:
        return "min_word_count"
    if words > 100_000:
        return "max_word_count"
    if signals["rps_doc_mean_word_length"] < 3:
        return "min_mean_word_length"
    if signals["rps_doc_mean_word_length"] > 10:
        return "max_mean_word_length"
    if signals["rps_doc_symbol_to_word_ratio"] > 0.1:
        return "max_symbol_to_word_ratio"
    if signals["rps_lines_start_with_bulletpoint.sum"] / lines > 0.9:
        return "max_bullet_line_fraction"
    if signals["rps_doc_frac_chars_top_2gram"] > 0.2:
        return "max_top_2gram_fraction"
    return None


signal_values = st.fixed_dictionaries(
    {
        "rps_doc_word_count": st.sampled_from([0.0, 49.0, 50.0, 51.0, 100_000.0, 100_001.0]),
        "rps_doc_mean_word_length": st.sampled_from([2.99999999, 3.0, 5.0, 10.0, 10.00000001]),
        "rps_doc_symbol_to_word_ratio": st.sampled_from([0.0, 0.1, 0.10000001]),
        "rps_lines_start_with_bulletpoint.sum": st.sampled_from([0.0, 9.0, 10.0]),
        "ccnet_nlines": st.sampled_from([10.0, 11.0]),
        "rps_doc_frac_chars_top_2gram": st.sampled_from([0.0, 0.2, 0.20000001]),
    }
)


@given(st.lists(signal_values, min_size=1, max_size=20))
def test_the_card_preset_equals_the_rules_written_out(rows):
    verdicts = lc.text.SignalRules("rpv2-card").judge(documents(*rows))
    assert verdicts["rule"].to_pylist() == [card_rules(row) for row in rows]


def test_the_ledger_gets_value_and_threshold():
    verdict = lc.text.SignalRules().judge(documents({"rps_doc_word_count": 41.0})).to_pylist()[0]
    assert verdict == {"rule": "min_word_count", "value": 41.0, "threshold": 50.0}


def test_thresholds_are_set_and_switched_off_one_by_one():
    long_book = documents({"rps_doc_word_count": 250_000.0})
    assert lc.text.SignalRules()(long_book) == [False]
    assert lc.text.SignalRules(thresholds={"max_word_count": None})(long_book) == [True]
    assert lc.text.SignalRules(thresholds={"max_word_count": 300_000})(long_book) == [True]
    assert lc.text.SignalRules(thresholds={"max_word_count": None, "min_word_count": 300_000})(long_book) == [False]


def test_unknown_presets_and_thresholds_list_the_known_ones():
    with pytest.raises(StageError, match="unknown preset 'gopher'; known: rpv2-card"):
        lc.text.SignalRules("gopher")
    with pytest.raises(StageError, match="no threshold 'max_words'; known: min_word_count, max_word_count"):
        lc.text.SignalRules(thresholds={"max_words": 3})
    with pytest.raises(StageError, match="signal_rules keeps nothing: min_word_count 50 is above max_word_count 20"):
        lc.text.SignalRules(thresholds={"max_word_count": 20})
    with pytest.raises(StageError, match="takes a number, or null"):
        lc.text.SignalRules(thresholds={"max_word_count": "many"})


def test_a_missing_signal_is_a_choice():
    table = documents(None, {"rps_doc_mean_word_length": None}, {})
    assert lc.text.SignalRules().judge(table)["rule"].to_pylist() == ["no_signals", "min_mean_word_length", None]
    assert lc.text.SignalRules(on_missing="keep")(table) == [True, True, True]
    with pytest.raises(StageError, match="d0 has no signal for 'min_word_count'"):
        lc.text.SignalRules(on_missing="error").judge(table)


def test_documents_without_the_signal_at_all_are_an_error():
    table = pa.table({"id": ["a"], "signals": pa.array([{"other": 1.0}])})
    with pytest.raises(StageError, match="have no signal 'rps_doc_word_count'; they have: other"):
        lc.text.SignalRules().judge(table)


def test_no_lines_is_a_missing_fraction_not_a_division_by_zero():
    verdict = lc.text.SignalRules().judge(documents({"ccnet_nlines": 0.0})).to_pylist()[0]
    assert (verdict["rule"], verdict["value"]) == ("max_bullet_line_fraction", None)
