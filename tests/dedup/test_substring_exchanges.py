"""Passages whose documents are in many tasks: the spans that one process finds with all of them."""

import random
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.sketched import Sketched
from longcrawl.dedup import _segments, substring_exchanges
from longcrawl.dedup.substring import UNITS
from longcrawl.engines import Local


def tables_of(found, group):
    yield from [found[group].slice(0, 2), found[group].slice(2)]


def exchange(survey, found, folder, engine=None):
    sketched = Sketched(Path(folder), tuple(map(len, found)), partial(tables_of, found))
    decided = survey.exchange(sketched, engine or Local())
    return pa.concat_tables(decided.read(group) for group in range(len(found)))


def sketch(survey, groups):
    numbers = iter(range(1000))
    made = [[(f"d{next(numbers) * 7 % 101:03d}", text) for text in group] for group in groups]
    columns = [
        pa.table(
            {
                "id": pa.array([name for name, _ in group], pa.string()),
                "text": pa.array([text for _, text in group], pa.large_string()),
            }
        )
        for group in made
    ]
    return [survey.sketch(table) for table in columns]


class Shuffled(Local):
    """Processes of this machine; the rows of a partition come in another order."""

    def exchange(self, step, tasks):
        tables = [list() for _ in range(step.partitions)]
        for task in tasks:
            for partition, table in step.make(task):
                tables[partition].append(table)
        for partition, found in enumerate(tables):
            random.Random(partition).shuffle(found)
            step.write(partition, found)


@contextmanager
def bounds(**named):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in named.items():
            patch.setattr(_segments if name == "STRETCH" else substring_exchanges, name, value)
        yield


words = st.lists(st.sampled_from("ab "), max_size=40).map("".join)
periodic = st.tuples(st.sampled_from(["a", "ab", "aab"]), st.integers(1, 40)).map(lambda made: made[0] * made[1])


@given(
    groups=st.lists(st.lists(words | periodic, max_size=6), min_size=1, max_size=5),
    length=st.integers(1, 8),
    unit=st.sampled_from(["character", "byte"]),
    frequent=st.sampled_from([0, 1, 2, 5, 1 << 16]),
    sent=st.sampled_from([0, 300, 1 << 26]),
    block=st.sampled_from([0, 2, 16]),
    piece=st.sampled_from([10, 100, 1 << 25]),
    stretch=st.sampled_from([1, 7, 1 << 18]),
)
def test_exchanges_find_what_one_process_finds(groups, length, unit, frequent, sent, block, piece, stretch):
    survey = lc.dedup.ExactSubstring(length, unit=unit, text="raw")
    found = sketch(survey, groups)
    with (
        tempfile.TemporaryDirectory() as folder,
        bounds(FREQUENT=frequent, SENT=sent, BLOCK=block, PIECE=piece, STRETCH=stretch),
    ):
        result = exchange(survey, found, folder, Shuffled())
    assert result.to_pylist() == survey.resolve(pa.concat_tables(found)).table.to_pylist()
