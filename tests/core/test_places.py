"""Places at which a stage changed a text: as few letters as can be, and enough to make the edited text again."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.places import UNLISTED_SPACE, changed_places, edit_rows, replay
from longcrawl.errors import LedgerError

texts = st.text(st.sampled_from("aé漢😀 \n"), max_size=12)


@given(texts, texts)
def test_the_changed_part_is_as_small_as_a_naive_one(before, after):
    table, made = (pa.table({"text": pa.array([text])}) for text in (before, after))
    rows = changed_places(table, made).to_pylist()
    if before == after:
        assert rows == []
        return
    (row,) = rows
    start, end, new = row["start"], row["end"], row["replaced_by"]
    assert before[:start] + after[start : start + new] + before[end:] == after
    shorter = [
        (first, last)
        for first in range(len(before) + 1)
        for last in range(first, len(before) + 1)
        if last - first < end - start and after.startswith(before[:first]) and after.endswith(before[last:])
    ]
    assert not [1 for first, last in shorter if first + len(before) - last <= min(len(before), len(after))]


def test_a_text_that_was_not_there_before_is_no_edit():
    before = pa.table({"text": [None, "old", "old"], "html": ["<p>", "<p>", None]})
    after = pa.table({"text": ["new", "new", "new"]})
    assert changed_places(before, after)["document"].to_pylist() == [2]
    assert changed_places(before.drop_columns("text"), after).num_rows == 0


def test_a_batch_without_documents_has_no_edits():
    """pyarrow compares no buffer with an empty one: a part without a page ended a plan with its error."""
    before = pa.table({"text": pa.array(["a", None], pa.large_string())}).take(pa.array([], pa.int64()))
    assert changed_places(before, pa.table({"text": pa.array([], pa.large_string())})).num_rows == 0


# -------------------- edits give the text again

LINES = ["A line of text that stays here.", "3 likes", "END OF PAGE", "  12", "", "Gehört dazu. Read more...", "é漢😀."]


@given(st.lists(st.lists(st.sampled_from(LINES), max_size=6).map("\n".join), min_size=1, max_size=4), st.booleans())
def test_replayed_line_corrections_give_the_edited_text(documents, returns):
    documents = [text.replace("\n", "\r\n") for text in documents] if returns else documents
    table = pa.table({"id": [str(number) for number in range(len(documents))], "text": documents})
    made = lc.text.LineCorrections(language="en", max_removed_words=None).trace(table)
    rows = edit_rows(table, made.places, "line_corrections")
    for row, expected in zip(table.to_pylist(), made.documents["text"].to_pylist(), strict=True):
        assert replay(row["text"], rows.filter(pc.equal(rows["id"], row["id"]))) == expected
    changes = [len(lc.text.LineCorrections(language="en").changes(text)) for text in documents]
    assert rows.num_rows == sum(changes)


def test_a_run_of_lines_that_c4_discards_is_one_place():
    """One row per line made the stage a quarter slower: hard-wrapped pages lose a line in 88 bytes."""
    text = "Ménu\n\n Home \nIt is a line that stays.\nSearch\nshort.\nAlso short.\n\n"
    made = lc.text.C4Quality(min_sentences=None).trace(pa.table({"id": ["a"], "text": [text]}))
    rows = made.places.to_pylist()
    assert [(row["rule"], text[row["start"] : row["end"]]) for row in rows] == [
        ("terminal_punctuation", "Ménu\n\n Home"),
        ("terminal_punctuation", "Search"),
        ("min_words_per_line", "short.\nAlso short."),
    ]
    rows = edit_rows(pa.table({"id": ["a"]}), made.places, "c4_quality")
    with pytest.raises(LedgerError, match="white space that the ledger does not list"):
        replay(text, rows)


def test_a_line_with_several_phrases_counts_what_stands_there_now():
    text = "Sign-in Hellö items in cart there. Read more..."
    table = pa.table({"id": ["a"], "text": [text], "language": ["en"]})
    made = lc.text.LineCorrections(max_removed_words=None).trace(table)
    (row,) = made.places.to_pylist()
    assert made.documents["text"].to_pylist() == ["Hellö there."]
    assert len(text) - (row["end"] - row["start"]) + row["replaced_by"] == len("Hellö there.")
    with pytest.raises(LedgerError, match="which the ledger does not hold: run the stage on the text"):
        replay(text, edit_rows(table, made.places, "line_corrections"))


def test_rules_that_leave_white_space_out_of_the_ledger_are_known():
    from longcrawl.text.c4 import RULES

    assert set(UNLISTED_SPACE) == set(RULES.values())
