"""An index that tasks make: the files of the one that one process makes, byte for byte."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longcrawl.core.exchange import Sketched
from longcrawl.dedup import ExactDocuments, MinHash, MinHashSignatures, Urls, index
from longcrawl.dedup.index import Arrays
from longcrawl.errors import RunError
from longcrawl.run.engines import Local

WORDS = ["to", "be", "or", "not"]
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
grouped = st.lists(st.lists(texts, max_size=9), min_size=1, max_size=5)
MINHASH = {"bands": 3, "rows": 1, "ngram": 2, "unit": "word"}


def sketches(survey, groups):
    """Return a table of each group, with ids whose order is not that of the rows; some texts have no URL."""
    found, first = [], 0
    for group in groups:
        ids = [f"d{number * 7 % 101:03d}" for number in range(first, first + len(group))]
        urls = [f"http://example.org/{text.replace(' ', '-')}" if text else None for text in group]
        columns = [pa.array(column, pa.string()) for column in (ids, group, urls)]
        found.append(survey.sketch(pa.table(columns, names=["id", "text", "url"])))
        first += len(group)
    return found


def in_batches(found, group):
    """Return the sketches of a group as a run reads them: batches, of which some have no rows."""
    yield from (found[group].slice(0, 2), found[group].slice(2, 0), found[group].slice(2))


def all_batches(found):
    return pa.concat_tables(table for group in range(len(found)) for table in in_batches(found, group))


def kept_in(found, folder):
    # How many documents a group had before later stages is not what counts.
    return Sketched(Path(folder), tuple(len(each) + 3 for each in found), partial(in_batches, found))


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.mark.variants
@pytest.mark.parametrize(
    "make",
    [
        Urls,
        partial(MinHash, **MINHASH, verify=0.4, keep="longest"),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (ExactDocuments, partial(MinHash, **MINHASH))),
    ],
)
@given(groups=grouped, piece=st.sampled_from([1, 3, 100]))
@example(groups=[["", ""], [], ["to be or", "to be", "not to be"]], piece=1)
@example(groups=[["", ""], [""]], piece=3)
def test_tasks_make_the_files_of_one_process(make, groups, piece):
    survey = make()
    found = sketches(survey, groups)
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "PIECE", piece)
        whole, made = Path(root, "whole"), Path(root, "made")
        survey.save_index(all_batches(found), whole)
        survey.exchange_index(kept_in(found, Path(root, "work")), made, Local())
        assert files(made) == files(whole)


@pytest.mark.slow
def test_keys_of_which_all_but_the_last_bits_are_equal_are_sorted_as_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "PIECE", 4)
    survey = MinHashSignatures()
    bands = [[bytes([number % 3] * 52)] + [bytes([band, number % 5] * 26) for band in range(8)] for number in range(60)]
    ids = pa.array([f"{number:02d}" for number in range(60)])
    table = survey.sketch(pa.table({"id": ids, "signature_sim0.8": pa.array(bands, pa.list_(pa.binary()))}))
    found = [table.slice(start, 13) for start in range(0, 60, 13)]
    survey.save_index(pa.concat_tables(found), tmp_path / "whole")
    survey.exchange_index(kept_in(found, tmp_path / "work"), tmp_path / "made", Local(2))
    whole, made = files(tmp_path / "whole"), files(tmp_path / "made")
    assert made.keys() == whole.keys()
    assert len(whole) == 2 + 2 * 9 + 1
    assert [name for name in whole if name.endswith(".npy") and whole[name] != made[name]] == []


class Killed(Local):
    """Processes of this machine, of which all are killed after so many tasks."""

    def __init__(self, tasks):
        super().__init__()
        object.__setattr__(self, "left", tasks)

    def tasks(self, function, tasks):
        for result in super().tasks(function, tasks):
            object.__setattr__(self, "left", self.left - 1)
            if self.left < 0:
                raise RunError("killed")
            yield result


def test_a_killed_exchange_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "PIECE", 4)
    survey = MinHash(**MINHASH, verify=0.4)
    found = sketches(survey, [["to be or not", "to be", "be not to"], ["not to be or", ""], ["or not to be"] * 4])
    survey.save_index(all_batches(found), tmp_path / "whole")
    kept, began = kept_in(found, tmp_path / "work"), []
    monkeypatch.setattr(index, "_take_known", noted(index._take_known, began))
    for tasks in range(0, 60, 3):
        try:
            survey.exchange_index(kept, tmp_path / "made", Killed(tasks))
            break
        except RunError:
            assert not (tmp_path / "made" / "index.json").exists()
    assert tasks > 6
    assert sorted(began) == [0, 1, 2]
    assert files(tmp_path / "made") == files(tmp_path / "whole")


def noted(function, calls):
    def call(*arguments):
        calls.append(arguments[2])
        return function(*arguments)

    return call


def test_an_index_without_more_than_keys_has_no_other_arrays():
    assert ExactDocuments().arrays(pa.table({"id": ["a"]})) == Arrays()
    assert np.concatenate(list(ExactDocuments().band_keys(pa.table({"hash": pa.array([], pa.binary(16))})))).shape == (
        0,
        2,
    )
