"""Passages whose documents are in many tasks: the spans that one process finds with all of them, and their links."""

import random
import tempfile
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.exchange import Sketched
from longcrawl.core.places import SPAN_SCHEMA
from longcrawl.dedup import index, repeats, substring
from longcrawl.dedup.substring import UNITS
from longcrawl.run.engines import Local

STEPS = ["anchors", "repeated", "windows", "spans", "places", "linked"]
STOPS = [(name, when) for name in STEPS for when in ("_make_rows", "_take_rows")]


class Shuffled(Local):
    """One process; the rows of a partition come in another order. It counts what is sent, by step."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "sent", {})

    def exchange(self, step, tasks):
        tables = [[] for _ in range(step.partitions)]
        for task in tasks:
            for partition, table in step.make(task):
                tables[partition].append(table)
        for partition, found in enumerate(tables):
            random.Random(partition).shuffle(found)
            step.write(partition, found)
        self.sent[step.folder.name] = [sum(table.num_rows for table in found) for found in tables]


class Stopped(Local):
    """One process, which stops among the tasks of a step, or among its partitions. It notes which are to be made."""

    def __init__(self, name, when):
        super().__init__()
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "when", when)
        object.__setattr__(self, "done", [])

    def exchange(self, step, tasks):
        self.done.append((step.folder.name, len(step.waiting())))
        super().exchange(step, tasks)

    def tasks(self, function, tasks):
        at = self.done[-1][0] if self.done else ""
        for place, result in enumerate(super().tasks(function, tasks)):
            yield result
            if at == self.name and function.func.__name__ == self.when and place == 1:
                raise KeyboardInterrupt


def documents(groups, dtype=np.uint16):
    """Return the sketches of documents that are lists of numbers, group by group."""
    found, count = [], 0
    for group in groups:
        ids = pa.array([f"d{(count + place) * 7 % 101:03d}" for place in range(len(group))], pa.string())
        offsets = np.cumsum([0, *map(len, group)])
        tokens = np.array([token for document in group for token in document], dtype)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens))
        found.append(pa.table({"id": ids, "tokens": lists}))
        count += len(group)
    return found


def tables_of(found, group, columns=None):
    chosen = found[group].select(columns or found[group].column_names)
    yield from [chosen.slice(0, 2), chosen.slice(2)]


def exchange(length, found, folder, engine):
    sketched = Sketched(Path(folder), tuple(map(len, found)), partial(tables_of, found))
    decided = lc.dedup.ExactSubstring(length, unit="byte").exchange(sketched, engine)
    return pa.concat_tables(decided.read(group) for group in range(len(found)))


def find(length, found):
    with tempfile.TemporaryDirectory() as folder:
        return lc.dedup.ExactSubstring(length, unit="byte").find(found, folder).table


def naive(length, groups):
    """Return the rows of ``SPAN_SCHEMA`` by a dictionary of all windows."""
    texts = [document for group in groups for document in group]
    places = {}
    for number, text in enumerate(texts):
        for start in range(len(text) - length + 1):
            places.setdefault(tuple(text[start : start + length]), []).append((number, start))
    repeated = {place: found for found in places.values() if len(found) > 1 for place in found}
    covered = [
        (number, token)
        for number, text in enumerate(texts)
        for token in range(len(text))
        if any((number, start) in repeated for start in range(token - length + 1, token + 1))
    ]
    spans = []
    for _, run in groupby(enumerate(covered), lambda each: (each[1][0], each[1][1] - each[0])):
        tokens = [place for _, place in run]
        spans.append((tokens[0], tokens[-1][1] + 1))
    rows = []
    for (number, start), end in spans:
        other = next(place for place in repeated[number, start] if place != (number, start))
        inside = [span for span, _ in spans if span[0] == other[0]]
        also = sum(span <= other for span in inside) - 1
        rows.append((number, f"d{number * 7 % 101:03d}", start, end, f"d{other[0] * 7 % 101:03d}", also))
    return [dict(zip(SPAN_SCHEMA.names, row, strict=True)) for row in rows]


@contextmanager
def bounds(**named):
    """Replace constants, and functions, of the modules that exchange."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in named.items():
            patch.setattr(next(each for each in (repeats, substring, index) if hasattr(each, name)), name, value)
        yield


plain = st.lists(st.sampled_from([0, 1, 2]), max_size=30)
periodic = st.tuples(st.sampled_from([[0], [0, 1], [0, 0, 1]]), st.integers(1, 20)).map(lambda made: made[0] * made[1])


@st.composite
def grouped(draw):
    """Documents of few different tokens, some periodic, some with a part of another one, in one to five groups."""
    groups = draw(st.lists(st.lists(plain | periodic, max_size=5), min_size=1, max_size=5))
    texts = [text for group in groups for text in group]
    for _ in range(draw(st.integers(0, 3)) if texts else 0):
        source, target = draw(st.sampled_from(texts)), draw(st.sampled_from(texts))
        target += source[draw(st.integers(0, 9)) :][:20]
    return groups


small_bounds = st.fixed_dictionaries(
    {
        "FREQUENT": st.sampled_from([0, 2, 5, 1 << 16]),
        "SENT": st.sampled_from([0, 300, 1 << 26]),
        "BLOCK": st.sampled_from([0, 2, 16]),
        "PIECE": st.sampled_from([10, 100, 1 << 25]),
        "STRETCH": st.sampled_from([1, 7, 1 << 18]),
    }
)


@pytest.mark.variants  # for each type the kernels are compiled again
@pytest.mark.parametrize("dtype", [np.uint16, np.uint8, np.uint32])
@given(
    groups=grouped(),
    length=st.integers(1, 8),
    bits=st.sampled_from([64, 2, 0]),
    small=small_bounds,
)
@example(groups=[[], [[0] * 9], []], length=3, bits=0, small={"FREQUENT": 0, "SENT": 0})
@example(
    groups=[[[0, 1, 0, 2, 0]], [[0, 1, 0, 1]], [[0, 1], [2, 0, 1, 0]]],
    length=2,
    bits=64,
    small={"FREQUENT": 1, "SENT": 0},
)
def test_exchanges_find_what_one_process_finds(groups, length, dtype, bits, small):
    """Whatever collides: of hashes of anchors and of windows the upper bits alone may be left."""
    found = documents(groups, dtype)
    mask = np.uint64(((1 << bits) - 1) << (64 - bits))
    mix, hash_windows = repeats.mix, repeats._hash_windows
    coarse = {"mix": lambda each: mix(each) & mask, "_hash_windows": lambda *words: hash_windows(*words) & mask}
    with tempfile.TemporaryDirectory() as folder, bounds(**small, **coarse):
        result = exchange(length, found, folder, Shuffled())
    assert result.schema == SPAN_SCHEMA
    assert result.equals(find(length, found))
    assert result.to_pylist() == naive(length, groups)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    stage = lc.tokens.Tokenize("trained", vocabulary_size=300)
    return stage.fit(
        [pa.table({"text": ["It was the age of wisdom."] * 9})], str(tmp_path_factory.mktemp("t"))
    ).tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("unit", [UNITS[0], *(pytest.param(unit, marks=pytest.mark.slow) for unit in UNITS[1:])])
def test_texts_of_every_unit(tmp_path, unit, tokenizer):
    survey = lc.dedup.ExactSubstring(12, unit=unit, tokenizer=tokenizer)
    said = "It was the best of times, it was the worst of times, it was the age of wisdom. "
    texts = [[f"{number} {said} {number}", None, f"Né à {number}. {said[number:]}"] for number in range(3)]
    ids = [[f"{number}-{place}" for place in range(3)] for number in range(3)]
    found = [
        survey.sketch(pa.table({"id": names, "text": pa.array(each, pa.large_string())}))
        for names, each in zip(ids, texts, strict=True)
    ]
    sketched = Sketched(tmp_path, (3, 3, 3), partial(tables_of, found))
    decided = survey.exchange(sketched, Local(2 if unit == UNITS[0] else 1))
    result = pa.concat_tables(map(decided.read, range(3)))
    assert result.equals(survey.resolve(pa.concat_tables(found)).table)
    assert result.num_rows >= 6


def equal_texts(groups, count):
    """Return groups of documents that have 30 tokens in common, between others that none has."""
    rare = iter(range(100, 60_000))
    common = list(range(30))
    return [[[next(rare), next(rare), *common, next(rare)] for _ in range(count)] for _ in range(groups)]


@pytest.mark.slow
def test_what_stands_in_every_document_is_a_row_of_each_group(tmp_path):
    groups, engine = equal_texts(3, 400), Shuffled()
    with bounds(FREQUENT=100, PIECE=20_000):
        result = exchange(20, documents(groups), tmp_path, engine)
    assert (result["start"].to_pylist(), result["end"].to_pylist()) == ([2] * 1200, [32] * 1200)
    assert result["also_id"].to_pylist() == [f"d{number * 7 % 101:03d}" for number in [1] + [0] * 1199]
    # Of 11 windows each group sends one, and each document three that hold what is common but for a token or two.
    assert sum(engine.sent["windows"]) <= 3 * 11 + 3 * 1200
    assert max(engine.sent["windows"]) < sum(engine.sent["windows"]) / 4
    assert sum(engine.sent["places"]) == 1200 + 3 + 1


@pytest.mark.variants
@pytest.mark.parametrize("token", [0, 255])
def test_documents_of_one_repeated_token(tmp_path, token):
    engine = Shuffled()
    groups = [[[token] * 50_000], [[token] * 30_000, [1] * 5], [[token] * 2]]
    with bounds(FREQUENT=100):
        result = exchange(10, documents(groups), tmp_path, engine)
    assert result.equals(find(10, documents(groups)))
    assert sum(engine.sent["windows"]) <= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "when"),
    [*STOPS[::3], *(pytest.param(*each, marks=pytest.mark.slow) for each in STOPS if each not in STOPS[::3])],
)
def test_a_search_goes_on_at_the_step_at_which_it_was_stopped(tmp_path, name, when):
    chance = random.Random(7)
    said = [chance.choices(range(50), k=40) for _ in range(20)]
    groups = [[[*said[place], *chance.choices(range(50), k=9), *said[-place]] for place in range(10)] for _ in range(4)]
    found = documents(groups)
    with bounds(PIECE=500):
        engine = Stopped(name, when)
        with pytest.raises(KeyboardInterrupt):
            exchange(15, found, tmp_path, engine)
        assert engine.done[-1][0] == name
        again = Stopped("", "")
        result = exchange(15, found, tmp_path, again)
    assert result.equals(find(15, found))
    waiting = dict(again.done)
    assert [waiting[step] for step in STEPS[: STEPS.index(name)]] == [0] * STEPS.index(name)
    assert waiting[name] == len(list((tmp_path / name).glob("*.arrow"))) - 2 * (when == "_take_rows")
    assert not list(tmp_path.glob("*-rows"))
