"""Entries of the ledger: what a rule removed, why, and how a document is found again."""

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from longcrawl.core.ledger import LEDGER_SCHEMA, Reason, count_rules, entries, find_reason
from longcrawl.core.stages import VERDICT_SCHEMA
from longcrawl.errors import LedgerError


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason("a"), "a: kept"),
        (
            Reason("a", "min_words", "min_words", 15_999, 16_000),
            "a: removed at min_words, rule min_words: 15,999 against 16,000",
        ),
        (Reason("a", "rules", "ratio", 0.125, 0.1), "a: removed at rules, rule ratio: 0.125 against 0.1"),
        (Reason("a", "rules", "ratio", None, 0.1), "a: removed at rules, rule ratio: unknown against 0.1"),
        (Reason("a", "listed", "listed_duplicate"), "a: removed at listed, rule listed_duplicate"),
        (Reason("a", "exact", "same_text", kept_id="b"), "a: removed at exact, rule same_text: a duplicate of b"),
        (
            Reason("a", "near", "like", 0.876, None, "b"),
            "a: removed at near, rule like: a duplicate of b, similarity 0.88",
        ),
    ],
)
def test_a_reason_is_one_line(reason, said):
    assert str(reason) == repr(reason) == said


def verdicts(*rules: str | None) -> pa.Table:
    rows = [{"rule": rule, "value": 1.0 if rule else None, "threshold": 2.0 if rule else None} for rule in rules]
    return pa.Table.from_pylist(rows, schema=VERDICT_SCHEMA)


def test_entries_are_the_documents_that_a_rule_names():
    gone = entries(pa.array(["a", "b", "c"]), verdicts(None, "long", "short"), "filter")
    assert gone.schema == LEDGER_SCHEMA
    assert gone.to_pylist() == [
        {"id": "b", "stage": "filter", "rule": "long", "value": 1.0, "threshold": 2.0, "kept_id": None},
        {"id": "c", "stage": "filter", "rule": "short", "value": 1.0, "threshold": 2.0, "kept_id": None},
    ]


def test_entries_of_removals_name_the_document_that_stays():
    removals = verdicts("same").append_column("kept_id", pa.array(["a"]))
    assert entries(pa.array(["b"]), removals, "exact")["kept_id"].to_pylist() == ["a"]


def test_ids_of_any_type_become_text():
    assert entries(pa.array([7, 8]), verdicts("long", None), "filter")["id"].to_pylist() == ["7"]


def test_no_documents_give_no_entries():
    assert entries(pa.array([], pa.string()), verdicts(), "filter").equals(LEDGER_SCHEMA.empty_table())


def test_rules_are_counted_by_name():
    gone = entries(pa.array(list("abcde")), verdicts("z", "a", None, "z", "b"), "filter")
    assert list(count_rules(gone).items()) == [("a", 1), ("b", 1), ("z", 2)]
    assert count_rules(LEDGER_SCHEMA.empty_table()) == {}


def test_a_reason_is_found_by_id():
    ledger = pa.concat_tables([entries(pa.array([name]), verdicts("long"), "filter") for name in "abb"])
    assert find_reason(pads.dataset(ledger), ["filter"], "a") == Reason("a", "filter", "long", 1.0, 2.0)
    assert find_reason(pads.dataset(ledger), ["filter"], "c") is None
    with pytest.raises(LedgerError, match="2 documents have the id 'b': ids must be unique to be explained"):
        find_reason(pads.dataset(ledger), ["filter"], "b")
