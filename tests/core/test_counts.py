"""Counts of edits and queues add up, and are described in words."""

from longcrawl.core.counts import FROM_OCR, OCR, REFETCH, EditCounts, RuleEdits, add_edits, describe


def test_counts_are_described_by_queue():
    of = {"documents": 1, "pages": 0}
    told = {OCR: {"pages": of | {"pages": 2}}, REFETCH: {"cut": of, "rescued": of | {"documents": 1200}}, FROM_OCR: {}}
    assert describe(told) == [
        "1 document (2 pages) for OCR",
        "1,201 documents to fetch again",
        "0 documents with text from OCR",
    ]
    assert describe({}) == []


def test_edits_of_several_parts_are_added_by_rule():
    one = EditCounts(2, "characters", {"cut": RuleEdits(3, 30, 30)})
    other = EditCounts(1, "characters", {"cut": RuleEdits(1, 5, 5), "mask": RuleEdits(1, 7, 0)})
    added = add_edits([one, None, other])
    assert added.rules == {"cut": RuleEdits(4, 35, 35), "mask": RuleEdits(1, 7, 0)}
    assert str(added) == "3 edited, 35 characters cut, 7 characters masked"
    assert EditCounts.from_dict(added.as_dict()) == added
