"""Surveys whose documents are in many tasks: they remove what ``resolve`` removes with all of them in one group."""

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longcrawl.core.exchange import DOCUMENT, Sketched, report_of
from longcrawl.core.stages import PART, REMOVAL_SCHEMA, Survey
from longcrawl.dedup import ExactDocuments, MinHash, MinHashSignatures, Urls, clusters
from longcrawl.errors import CorruptionError, StageError
from longcrawl.io import files
from longcrawl.kernels.texts import fixed_binary
from longcrawl.run.engines import Local

WORDS = ["to", "be", "or", "not"]
# Few texts and few hash values in a band, so that documents meet, within groups and across them.
grouped = st.lists(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), max_size=9), min_size=1, max_size=5
)
MINHASH = {"bands": 3, "rows": 1, "ngram": 2, "unit": "word"}
WARN, KEEP = ({"max_cluster": 2, "on_large_cluster": policy} for policy in ("warn", "keep"))
KEEPS = ("first", "random", "longest")
EQUAL = [partial(kind, keep=keep, seed=3) for kind in (ExactDocuments, Urls) for keep in KEEPS[:2]]
PAIRS = ({}, {"verify": 0.4}, {"verify": 0.4, "linkage": "star"}, {"min_size_ratio": 0.6})
NEAR = [partial(MinHash, **MINHASH, keep=keep, seed=3, **pairs) for keep in KEEPS for pairs in PAIRS]
RELEASED = [partial(MinHashSignatures, column="signature_sim0.9", keep=keep) for keep in KEEPS[:2]]
LARGE = [
    partial(MinHash, **MINHASH, **KEEP),
    partial(MinHash, **MINHASH, verify=0.3, min_size_ratio=0.6, **KEEP),
    partial(MinHash, **MINHASH, **WARN),
]
SURVEYS = [*EQUAL, *NEAR, *RELEASED, *LARGE]
"""Every survey that keeps one of several documents, by what it keeps, and by what pairs of near-duplicates are."""


def cases(*quick):
    """Return all surveys as cases; `make slow` has those whose places are not among the quick ones."""
    return [make if n in quick else pytest.param(make, marks=pytest.mark.slow) for n, make in enumerate(SURVEYS)]


def documents(texts, first=0, prefix="d"):
    """Return documents with ids whose order is not that of the rows."""
    numbers = range(first, first + len(texts))
    urls = [f"http://example.org/{text.replace(' ', '-')}" if text else None for text in texts]
    columns = [[f"{prefix}{number * 7 % 101:03d}" for number in numbers], texts, urls]
    table = pa.table([pa.array(column, pa.string()) for column in columns], names=["id", "text", "url"])
    bands = [
        [bytes([len(text.split()) * (band + 2) % 5]) * 100 for band in range(5)] if text else None for text in texts
    ]
    return table.append_column("signature_sim0.9", pa.array(bands, pa.list_(pa.binary())))


def sketch(survey, groups, parts="none"):
    """Return the sketches of groups, and what :meth:`Survey.exchange` is given but for its folder."""
    starts = np.cumsum([0, *map(len, groups)])
    found = [survey.sketch(documents(texts, first)) for texts, first in zip(groups, starts.tolist(), strict=False)]
    if parts == "two":
        numbers = [np.full(len(each), (len(found) - place) % 2, np.int32) for place, each in enumerate(found)]
        found = [each.append_column(PART, pa.array(part)) for each, part in zip(found, numbers, strict=True)]
    return found


def tables_of(found, group, columns=None):
    for table in (found[group].slice(0, 2), found[group].slice(2)):
        yield table if columns is None else table.select(columns)


def exchange(survey, found, folder, engine=None):
    """Return removals by id, and what is reported, after checking that each group has its own, in order."""
    sketched = Sketched(Path(folder), tuple(map(len, found)), partial(tables_of, found))
    decided = survey.exchange(sketched, engine or Local())
    removals = []
    for group, table in enumerate(found):
        here = decided.read(group)
        rows = here[DOCUMENT].to_numpy() - sketched.starts[group]
        assert (np.diff(rows) > 0).all()
        assert here["id"].to_pylist() == table["id"].take(rows).to_pylist()
        removals += here.select(REMOVAL_SCHEMA.names).to_pylist()
    return sorted(removals, key=lambda row: row["id"]), list(decided.report)


def resolve(survey, found):
    removals = survey.resolve(pa.concat_tables(found))
    return sorted(removals.to_pylist(), key=lambda row: row["id"]), report_of(removals)


@pytest.mark.filterwarnings("ignore:.*max_cluster")
@pytest.mark.parametrize("make", cases(1))
@given(groups=grouped, parts=st.sampled_from(["none", "two"]), most=st.sampled_from([1, 6, 100]))
@example(groups=[["to be"] * 3, [], ["to be or", "to be"], ["not"]], parts="two", most=100)
@example(groups=[[], ["to be or", "to be"], ["to be"] * 3, ["not", "to be"], []], parts="two", most=3)
def test_exchanges_remove_what_resolve_removes(make, groups, parts, most):
    survey = make()
    found = sketch(survey, groups, "none" if survey.within_parts else parts)
    with tempfile.TemporaryDirectory() as folder, in_pieces(most):
        assert exchange(survey, found, folder) == resolve(survey, found)


# Keys that differ in their last bits alone are sorted with the numbers of documents in place of these.
alike = st.sampled_from([0, 1, 2, 3, 1 << 40, (1 << 40) + 1, (1 << 64) - 2, (1 << 64) - 1])


@given(groups=st.lists(st.lists(st.tuples(alike, alike), max_size=9), min_size=1, max_size=4), most=st.integers(1, 9))
@example(groups=[[(0, 3), (1, 3), (0, 2)], [(1, 1), (0, 0), (1, 0)]], most=6)
def test_keys_that_are_nearly_equal_do_not_meet(groups, most):
    survey = MinHash(bands=2, rows=1, unit="word")
    found = []
    for number, keys in enumerate(groups):
        rows = np.array(keys, np.uint64).reshape(-1, 2).view(np.uint8)
        ids = pa.array([f"{number}-{place}" for place in range(len(keys))], pa.string())
        found.append(pa.table({"id": ids, "bands": fixed_binary(rows), "sample": fixed_binary(rows[:, :2])}))
    with tempfile.TemporaryDirectory() as folder, in_pieces(most):
        assert exchange(survey, found, folder) == resolve(survey, found)


@contextmanager
def in_pieces(most):
    """Let near-duplicates be decided about in sections and pieces of so many documents, and few in several passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "SECTION", most)
        patch.setattr(clusters, "PIECE", most)
        patch.setattr(clusters, "BANDS", 2)
        patch.setattr(clusters, "TABLES", 5 * most)
        yield


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*max_cluster")
@pytest.mark.parametrize("make", cases(10))
@given(groups=grouped, earlier=st.lists(st.sampled_from(["to be", "or not to", "be", "to be or not"]), max_size=4))
def test_exchanges_leave_out_what_earlier_datasets_have(make, groups, earlier):
    with tempfile.TemporaryDirectory() as folder:
        known = make().sketch(documents(earlier, prefix="e"))
        gone = make().resolve(known)["id"].to_pylist()
        kept = pa.array([name not in gone for name in known["id"].to_pylist()], pa.bool_())
        make().save_index(known.filter(kept), Path(folder))
        survey = make(against=(folder,))
        found = sketch(survey, groups, "none" if survey.within_parts else "two")
        with in_pieces(3):
            assert exchange(survey, found, Path(folder, "work")) == resolve(survey, found)


@pytest.mark.slow
def test_the_files_of_an_index_are_read_whole_by_one_task(tmp_path, monkeypatch):
    """Each worker compared all of them with their SHA-256 before it looked for anything."""
    (folder := tmp_path / "index").mkdir()
    make = partial(MinHash, **MINHASH)
    make().save_index(make().sketch(documents(["to be", "or not to"], prefix="e")), folder)
    read = files.checksum

    def note_and_read(path):
        with (tmp_path / "read").open("a") as notes:
            notes.write(f"{path.name}\n")
        return read(path)

    files._digest.cache_clear()
    monkeypatch.setattr(files, "checksum", note_and_read)
    survey = make(against=(str(folder),))
    found = sketch(survey, [["to be", "not"], ["or not to"], ["be"], ["to be or"], ["to be"]])
    removed, _ = exchange(survey, found, tmp_path / "work", Local(2))
    names = (tmp_path / "read").read_text().split()
    assert sorted(name for name in names if name.endswith(".npy")) == sorted(path.name for path in folder.glob("*.npy"))
    assert len(removed) >= 3
    changed = folder / "keys-000.npy"
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptionError, match=r"keys-000.npy has been changed"):
        exchange(survey, found, tmp_path / "work-2", Local(2))


@pytest.mark.variants
@pytest.mark.parametrize("engine", [Local(), Local(2)])
def test_signatures_of_a_release_are_exchanged_too(engine, tmp_path):
    bands = [[bytes([number % 3] * 52)] + [bytes([band, number % 5] * 26) for band in range(8)] for number in range(30)]
    survey = MinHashSignatures()
    ids = pa.array([f"{number:02d}" for number in range(30)])
    table = survey.sketch(pa.table({"id": ids, "signature_sim0.8": pa.array(bands, pa.list_(pa.binary()))}))
    found = [table.slice(start, 10) for start in (0, 10, 20)]
    removed, _ = exchange(survey, found, tmp_path, engine)
    assert (removed, []) == resolve(survey, found)
    assert len(removed) > 20


def test_a_large_cluster_stops_the_run_under_error(tmp_path):
    survey = MinHash(**MINHASH, max_cluster=2, on_large_cluster="error")
    found = sketch(survey, [["to be"] * 2, ["to be"] * 2])
    with pytest.raises(StageError) as whole:
        survey.resolve(pa.concat_tables(found))
    with pytest.raises(StageError) as exchanged:
        exchange(survey, found, tmp_path)
    assert str(exchanged.value) == str(whole.value)


@pytest.mark.parametrize("make", [ExactDocuments, partial(MinHash, **MINHASH)])
def test_equal_documents_are_a_row_of_each_group(make, tmp_path):
    survey = make()
    groups = [["to be or not"] * 400] * 3
    found = sketch(survey, groups)
    ids = np.array([f"{number:04d}" for number in range(1200)])
    found = [table.set_column(0, "id", pa.array(ids[400 * place :][:400])) for place, table in enumerate(found)]
    sent = []
    rows = Counted(sent)
    removed, _ = exchange(survey, found, tmp_path, rows)
    assert (removed, []) == resolve(survey, found)
    assert sent[0] <= 3 * (getattr(survey, "bands", 1) + 400 * isinstance(survey, MinHash))
    assert max(sent[1:]) <= 3  # of a cluster, too


@pytest.mark.slow
@pytest.mark.parametrize("make", [ExactDocuments, partial(MinHash, bands=14, rows=8, unit="word", keep="first")])
def test_a_million_equal_documents_are_no_heavier_than_others(make, tmp_path):
    survey, count, groups = make(), 1_000_000, 8
    one = survey.sketch(documents(["to be or not to be that is the question"]))
    ids = pa.array([f"{number * 7919 % count:06d}" for number in range(count)])
    every = one.take(np.zeros(count, np.int64)).set_column(0, "id", ids)
    found = [every.slice(count // groups * group, count // groups) for group in range(groups)]
    sent = []
    decided = survey.exchange(Sketched(tmp_path, (count // groups,) * groups, partial(tables_of, found)), Counted(sent))
    removals = pa.concat_tables(map(decided.read, range(groups)))
    assert (removals.num_rows, removals["kept_id"].unique().to_pylist()) == (count - 1, ["000000"])
    # Of MinHash an edge of 16 bytes for each document that leaves, and 14 keys of each group.
    assert sent[0] <= groups if survey.name == "exact_documents" else sent[0] <= count + 14 * groups
    assert max(sent[1:]) <= groups


class Counted(Local):
    """Processes of this machine, and how many rows each exchange has sent."""

    def __init__(self, sent):
        super().__init__()
        object.__setattr__(self, "sent", sent)

    def exchange(self, step, tasks):
        self.sent.append(sum(table.num_rows for task in tasks for _, table in step.make(task)))
        super().exchange(step, tasks)


def test_a_survey_that_defines_no_way_to_decide_is_rejected():
    class Undecided(Survey):
        name = "undecided"

        def sketch(self, table):
            return table.select(["id"])

    with pytest.raises(StageError, match="Undecided makes no decision: define resolve or exchange"):
        Undecided().resolve(pa.table({"id": ["a", "b"]}))
