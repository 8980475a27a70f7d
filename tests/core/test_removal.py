"""Documents that are taken out of an output: rows that fill their places, and the proof that they are gone."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.core import removal
from longcrawl.core.removal import Changes, Proof, filled_holes, rows_of_ids

WORDS = st.lists(st.integers(0, 3), max_size=30)


@given(st.integers(0, 40), st.data())
def test_the_last_rows_fill_the_holes_and_no_other_row_moves(rows, data):
    gone = sorted(data.draw(st.sets(st.integers(0, rows - 1)))) if rows else []
    source = filled_holes(rows, np.array(gone, np.int64)).tolist()
    assert sorted(source) == sorted(set(range(rows)) - set(gone))
    assert [place for place, row in enumerate(source) if row != place] == [each for each in gone if each < len(source)]


def test_rows_are_found_by_ids_of_any_type():
    ids = pa.array(["7", "9"])
    assert rows_of_ids(pa.table({"id": [9, 8, 7, 9]}), ids).tolist() == [0, 2, 3]
    assert rows_of_ids(pa.table({"id": ["a", None, "9"]}), ids).tolist() == [2]
    assert rows_of_ids(pa.table({"text": ["7"]}), ids).tolist() == []


@given(st.integers(1, 9), WORDS, WORDS)
def test_what_is_found_of_a_document_is_what_python_finds(blocks, length, removed, left):
    def stretches(values):
        return {tuple(values[start : start + length]) for start in range(len(values) - length + 1)}

    proof = Proof(length)
    proof.before(b"gone", np.array(removed, np.uint16), kept=False)
    proof.look([np.array(left, np.uint16)])
    assert (proof.windows, proof.found) == (len(stretches(removed)), len(stretches(removed) & stretches(left)))


@pytest.fixture(scope="module", params=[1, 7, removal.BLOCK])
def blocks(request):
    """Look at few values at a time, at seven and at all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removal, "BLOCK", request.param)
        yield


def test_what_is_kept_has_one_digest_in_any_order():
    documents = {b"a": np.arange(3), b"b": np.arange(4), b"c": np.arange(3)}
    proof = Proof(2)
    for name in (b"a", b"b", b"c"):
        proof.before(name, documents[name], kept=True)
    for name in (b"c", b"a"):
        proof.after(name, documents[name])
    assert proof.kept[0] != proof.kept[1]
    proof.after(b"b", documents[b"b"])
    assert proof.kept[0] == proof.kept[1]


def test_a_description_has_the_files_that_are_left(tmp_path):
    for name in ("kept", "changed", "dropped"):
        (tmp_path / name).write_text(name)
    changes = Changes(tmp_path, {"files": {"kept": {"bytes": 4}, "changed": {"bytes": 1}, "dropped": {"bytes": 7}}})
    changes.changed.append("changed")
    changes.drop("dropped")
    made = changes.finish("about.json", 1, Proof(2))
    assert (made.changed, made.dropped) == (("changed", "about.json"), ("dropped",))
    described = json.loads((tmp_path / "about.json").read_text())
    assert {name: each["bytes"] for name, each in described["files"].items()} == {"changed": 7, "kept": 4}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["about.json", "changed", "kept"]
