"""Sections of a card, of the little of a manifest that each of them reads."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core.funnel import Funnel, FunnelRow
from longcrawl.run.analysis import Lengths, bin_name
from longcrawl.run.card.sections import (
    SOURCES_LIMIT,
    compared_lengths,
    known_limits,
    looked_for,
    paragraphs,
    ranked_rules,
    takedowns,
)

COUNTS = st.dictionaries(st.integers(0, 6), st.integers(1, 9))


def test_rules_are_ranked_by_what_they_removed_over_all_stages():
    rows = (FunnelRow("a", 20, 13, {"long": 4, "none": 0, "short": 3}), FunnelRow("b", 13, 9, {"like": 4}))
    assert ranked_rules(Funnel("text", 20, rows)) == [("a", "long", 4), ("b", "like", 4), ("a", "short", 3)]


@given(COUNTS, COUNTS)
def test_lengths_before_and_after_stand_beside_each_other_in_every_bin(before, after):
    rows = compared_lengths(Lengths("characters", before), Lengths("characters", after))
    assert {name: came for name, came, *_ in rows if came} == {bin_name(each): before[each] for each in before}
    assert {row[0]: row[3] for row in rows if row[3]} == {bin_name(each): after[each] for each in after}
    assert sum(row[2] for row in rows) == pytest.approx(int(bool(before)))
    assert sum(row[4] for row in rows) == pytest.approx(int(bool(after)))


def test_a_stage_that_caps_words_and_what_stages_report_are_limits():
    stages = [{"min_chars": {"n": 100}}, {"gopher_quality": {"max_words": 100_000}}]
    manifest = {"output": {"format": "parquet", "by": None, "columns": ["text"]}, "recipe": {"stages": stages}}
    manifest["reports"] = {"min_hash": ["A sentence."]}
    limits = known_limits(manifest)
    assert "`gopher_quality` removes documents of more than 100,000 words" in " ".join(map(str, limits))
    assert [(each[0], each[1]) for each in limits[-2:-1]] == [("`min_hash`: ", "A sentence.")]
    assert SOURCES_LIMIT in limits[-1]
    stages.pop()
    assert len(known_limits(manifest)) == len(limits) - 1


def test_stages_that_look_for_duplicates_are_those_that_remove_them():
    stages = ["min_chars", "exact_documents", "min_hash", "related", "listed_duplicates", "exact_substring"]
    found = looked_for({"stages": [{name: {}} for name in stages]})
    assert found == ["exact_documents", "min_hash", "listed_duplicates", "exact_substring"]


def test_requests_are_listed_by_date_and_none_are_no_section():
    assert takedowns(SimpleNamespace(manifest={})) == ""
    records = [{"asked": "2026-11-02", "documents": 1}, {"asked": "2026-11-09", "documents": 1_200}]
    said = takedowns(SimpleNamespace(manifest={"takedowns": records}))
    assert said.splitlines()[-2:] == ["- 2026-11-02: 1 document", "- 2026-11-09: 1,200 documents"]
    assert paragraphs("", said, "") == said
