"""Contract of all feeds: position, state, ranks, workers and the identity of the data."""

import itertools
import json
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import CorruptionError, LoaderError, LongCrawlError
from longcrawl.formats.shards.spec import HELD_OUT
from longcrawl.loading import ComposedBatches, Jsonl, Packed, Rectangle, WindowMixture, Windows
from longcrawl.loading.feed import rows_of

KINDS = ("windows", "mixture", "packed", "buckets", "jsonl", "rectangle")
WORKERS = [
    pytest.param(kind, workers, marks=pytest.mark.slow if workers == 2 and kind != "jsonl" else ())
    for kind in KINDS
    for workers in (None, 0, 2)
]
LENGTHS = [3 + 7 * number % 40 for number in range(40)]
ROWS, LENGTH = 24, 60
WORDS = 2_000


def write_shards(folder: Path, seed: int) -> None:
    """Write two shards of 40 documents, ids below 2,000."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(seed)
    for number, lengths in enumerate((LENGTHS[:20], LENGTHS[20:])):
        documents = [chance.integers(1, WORDS, length).tolist() for length in lengths]
        lc.formats.datatrove.write([pa.table({"tokens": pa.array(documents, pa.list_(pa.uint16()))})],
                                   folder / f"{number}.ds")  # fmt: skip


def write_mixture(folder: Path, seed: int) -> None:
    """Write shards of two buckets."""
    for number, bucket in enumerate(("code", "web")):
        write_shards(folder / bucket, 2 * seed + number)


def write_buckets(folder: Path, seed: int) -> None:
    """Compose samples of 8 and 16 tokens in shards of datatrove."""
    chance = np.random.default_rng(seed)
    documents = [chance.integers(8, 100, size).tolist() for size in np.tile([3, 6, 10, 14], 10)]
    rows = {"id": [str(row) for row in range(40)], "tokens": pa.array(documents, pa.list_(pa.uint16()))}
    made = lc.Crawl(Dataset(pa.table(rows)))
    made.to_composed(folder / "out", capacities=[8, 16], end_of_text=7, format="datatrove")


def write_lines(folder: Path, seed: int) -> None:
    """Write a tokenizer of words and two files of JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {f"w{number}": number for number in range(WORDS)} | {"?": WORDS}
    end = {"id": WORDS + 1, "content": "<|endoftext|>", "special": True}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None}
    tokenizer |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None}
    tokenizer["model"] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    chance = np.random.default_rng(seed)
    (folder / "raw").mkdir(exist_ok=True)
    for number, lengths in enumerate((LENGTHS[:20], LENGTHS[20:])):
        texts = [" ".join(f"w{each}" for each in chance.integers(0, WORDS, length)) for length in lengths]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / "raw" / f"{number}.jsonl").write_text(lines)


def write_rectangle(folder: Path, seed: int) -> None:
    """Write rows of which the first is the same under the seeds 0 and 1."""
    tokens = np.random.default_rng(seed).integers(1, WORDS, (ROWS, LENGTH)).astype(np.uint16)
    if seed < 2:
        tokens[0] = np.arange(LENGTH)
    made = zarr.create_array(folder / "train.zarr", shape=tokens.shape, dtype=np.uint16, chunks=(8, 16), zarr_format=2)
    made[:] = tokens


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "windows": write_shards,
    "mixture": write_mixture,
    "packed": write_shards,
    "buckets": write_buckets,
    "jsonl": write_lines,
    "rectangle": write_rectangle,
}


def write(kind: str, folder: Path, seed: int = 0) -> Path:
    """Write the data of a feed and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    WRITERS[kind](folder, seed)
    return folder


def open_feed(kind: str, folder: Path, rank: int = 0, world_size: int = 1, **fields: Any) -> Any:
    """Open a feed of 14 batches or more, of two samples of one rank or, of buckets, of 32 tokens of all."""
    ranks = {"rank": rank, "world_size": world_size}
    if kind == "windows":
        batching = {name: fields.pop(name) for name in ("batch_size", "leftover") if name in fields}
        return Windows(folder, **{"seq_len": 15} | fields).batches(**{"batch_size": 2} | ranks | batching)
    if kind == "mixture":
        settings = {name: fields.pop(name) for name in ("seq_len", "shuffle") if name in fields}
        windows = {name: Windows(folder / name, **{"seq_len": 15} | settings) for name in ("web", "code")}
        return WindowMixture(windows, {"web": 3, "code": 2}, **{"batch_size": 2} | ranks | fields)
    if kind == "packed":
        return Packed(folder, **{"max_length": 24, "batch_size": 2} | ranks | fields)
    if kind == "buckets":
        return ComposedBatches(folder / "out", **{"tokens_per_step": 32, "last_step": "fill"} | ranks | fields)
    if kind == "jsonl":
        given = {"tokenizer": str(folder / "tokenizer.json"), "max_length": 24, "batch_size": 2, "block_bytes": 600}
        return Jsonl(folder / "raw", **given | ranks | fields)
    return Rectangle(folder, **{"batch_size": 4, "context_length": 16} | ranks | fields)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory) -> Callable[..., Path]:
    """Return what writes the data of a feed once for each seed."""
    made: dict[tuple[str, int], Path] = {}

    def folder(kind: str, seed: int = 0) -> Path:
        if (kind, seed) not in made:
            made[kind, seed] = write(kind, tmp_path_factory.mktemp(kind), seed)
        return made[kind, seed]

    return folder


@pytest.fixture(scope="module")
def batches_of(folder_of) -> Callable[[str], list[Any]]:
    """Return the batches of a whole plan or pass of one rank, for each kind."""
    known: dict[str, list[Any]] = {}

    def batches(kind: str) -> list[Any]:
        if kind not in known:
            known[kind] = [plain(batch) for batch in open_feed(kind, folder_of(kind))]
        return known[kind]

    return batches


def plain(batch: Any) -> Any:
    """Return a batch as lists, of arrays and tensors alike."""
    return {name: [np.asarray(row).tolist() for row in values] for name, values in batch.items()}


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_other_data_of_equal_shape_is_refused(kind, folder_of, tmp_path):
    state = open_feed(kind, folder_of(kind)).state_dict()
    open_feed(kind, write(kind, tmp_path)).load_state_dict(state)
    other = open_feed(kind, folder_of(kind, seed=1))
    assert other.identity(0).keys() == open_feed(kind, folder_of(kind)).identity(0).keys()
    with pytest.raises(LoaderError, match="as opened here: .*(data of 8 was|changed (of|in))"):
        other.load_state_dict(state)


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_names_its_version_kind_and_position(kind, folder_of):
    feed = open_feed(kind, folder_of(kind))
    next(iter(feed))
    state = feed.state_dict()
    assert list(state)[:3] == ["longcrawl_feed", "kind", "position"]
    assert (state["longcrawl_feed"], state["kind"], state["position"]) == (1, kind, feed.position)
    assert 0 < feed.position == feed.step_size
    assert len(json.dumps(state)) < 3_000


@pytest.mark.variants
@pytest.mark.parametrize(("kind", "workers"), WORKERS)
def test_a_state_goes_on_under_other_ranks_and_workers(kind, workers, folder_of, batches_of):
    if workers is not None:
        pytest.importorskip("torch")
    two = [open_feed(kind, folder_of(kind), rank, 2) for rank in range(2)]
    for loops in [[iter(feed if workers is None else feed.dataloader(workers)) for feed in two]]:
        for _ in range(2):
            for loop in loops:
                next(loop)
    states = [json.loads(json.dumps(feed.state_dict())) for feed in two]
    assert states[0] == states[1]
    alone = open_feed(kind, folder_of(kind))
    alone.load_state_dict(states[0])
    rest = [plain(batch) for batch in (alone if workers is None else alone.dataloader(workers))]
    assert rest == batches_of(kind)[-len(rest) :]
    assert len(rest) == len(batches_of(kind)) - states[0]["position"] // alone.step_size


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", [{}, {"rank": 1, "world_size": 2}])
def test_batches_by_number_are_those_of_the_loop_and_move_nothing(kind, fields, folder_of):
    feed = open_feed(kind, folder_of(kind), **fields)
    found = [plain(batch) for batch in feed]
    position = feed.position
    assert [plain(feed[number]) for number in (0, 3, len(found) - 1)] == [found[0], found[3], found[-1]]
    with pytest.raises(IndexError):
        feed[len(found)]
    if kind == "jsonl":
        with pytest.raises(TypeError, match="has no length before it is tokenised"):
            len(feed)
        with pytest.raises(IndexError, match="counted from 0, since their number is not known"):
            feed[-1]
        with pytest.raises(IndexError, match="counted from 0, since their number is not known"):
            feed[1:]
        assert [plain(batch) for batch in feed[2 : len(found) + 9]] == found[2:]
    else:
        assert len(feed) == len(found)
        assert [plain(feed[number]) for number in (-1, np.int64(-len(found)))] == [found[-1], found[0]]
        assert [plain(batch) for batch in feed[::-4]] == found[::-4]
        assert [plain(batch) for batch in feed[[3, -2]]] == [found[3], found[-2]]
        for outside in (len(found), -len(found) - 1):
            said = f"batch {outside} of {len(found)}: they are counted from 0 to {len(found) - 1}"
            with pytest.raises(IndexError, match=said):
                feed[outside]
    for several in (slice(1, 3), [1, 2], np.array([1, 2], np.uint8), (np.int32(1), 2)):
        assert [plain(batch) for batch in feed[several]] == found[1:3]
    assert feed.origins(np.int64(1)) == feed.origins(1)
    for wrong in (1.0, np.float64(1), True, np.True_, "1", None, [0, 1.5], np.array([True, False])):
        with pytest.raises(LoaderError, match="is not a whole number") as raised:
            feed[wrong]
        assert isinstance(raised.value, TypeError)
    with pytest.raises(LoaderError, match=re.escape("the index 1.0 is not a whole number (float): give a number")):
        feed.origins(1.0)
    assert feed.position == position


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_share_every_step(kind, folder_of, batches_of):
    """Four ranks have what two have at half the number of steps, none of it twice, in all feeds but those of steps."""
    ranks = [[plain(batch) for batch in open_feed(kind, folder_of(kind), rank, 2)] for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1])
    name = "targets" if kind == "rectangle" else "input_ids"
    alone = [row for batch in batches_of(kind) for row in batch[name]]
    steps = zip(*ranks, strict=True)
    if kind in ("packed", "jsonl", "buckets"):
        shared = [row for step in steps for rows in zip(*(batch[name] for batch in step), strict=True) for row in rows]
    else:
        shared = [row for step in steps for batch in step for row in batch[name]]
    left_out = len(alone) - len(shared)
    assert shared == alone[: len(shared)]
    # Windows carry what does not fill a step into the next pass; the others drop less than a step.
    assert left_out < len(batches_of(kind)[0][name]) * 2 if left_out >= 0 else kind == "windows"


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_breaks_goes_on_and_one_that_ends_stays_ended_or_begins_a_pass(kind, folder_of, batches_of):
    feed = open_feed(kind, folder_of(kind), **({"leftover": "drop"} if kind == "windows" else {}))
    assert str(feed.status) == "running"
    found = [plain(batch) for batch in itertools.islice(feed, 2)]
    found += [plain(batch) for batch in feed]
    assert found == batches_of(kind)[: len(found)]
    assert len(found) >= len(batches_of(kind)) - 1
    again = [plain(batch) for batch in feed]
    if kind == "rectangle":
        assert again == found
    elif kind == "windows":
        assert len(again) == len(found)
    else:
        assert (again, str(feed.status)) == ([], "finished")


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_a_feed_goes_on_in_another_process(kind, folder_of, batches_of):
    feed = open_feed(kind, folder_of(kind))
    next(iter(feed))
    sent = pickle.loads(pickle.dumps(feed))  # made in the line itself
    assert sent.state_dict() == feed.state_dict()
    assert plain(next(iter(sent))) == batches_of(kind)[1]
    assert feed.position == feed.step_size


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_state_is_refused(kind, folder_of):
    feed = open_feed(kind, folder_of(kind))
    state = feed.state_dict()
    other = open_feed("windows" if kind == "packed" else "packed", folder_of("packed"))
    wrong = [
        (None, f"this is not a state of a {kind} feed: it is None; pass what state_dict"),
        ({}, f"this is not a state of a {kind} feed: it lacks longcrawl_feed; pass"),
        ({"longcrawl_feed": 1, "kind": kind}, "it lacks position, "),
        (
            state | {"longcrawl_feed": 2},
            "of version 2, but this longcrawl reads 1: resume with the longc",
        ),
        (other.state_dict(), f"this is not a state of a {kind} feed: its kind is '{other.kind}'"),
        (state | {"data": None}, "as opened here: "),
        *(
            (state | {"position": each}, f"position {each!r} of the state is not a number")
            for each in (-1, "0", 0.5, True)
        ),
    ]
    if feed.most is not None:
        wrong.append((state | {"position": 9_999}, rf"is at position 9,999 and there are {feed.most} {feed.unit} here"))
    for given, said in wrong:
        with pytest.raises(LoaderError, match=said):
            feed.load_state_dict(given)
    assert feed.position == 0


@pytest.mark.variants
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rank": 2, "world_size": 2}, "rank 2 must be from 0 to world_size - 1 = 1"),
        ({"rank": -1}, "rank -1 must be from 0 to world_size - 1 = 0"),
        ({"world_size": 0}, "world_size is 0: set it to 1 or more"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_cannot_be_are_refused(kind, fields, said, folder_of):
    with pytest.raises(LoaderError, match=said):
        open_feed(kind, folder_of(kind), **fields)


@pytest.mark.variants
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in ("mixture", "buckets") else ()) for kind in KINDS]
)
def test_torchs_own_loaders_read_every_feed(kind, folder_of, batches_of):
    torch = pytest.importorskip("torch")
    feed = open_feed(kind, folder_of(kind))
    before = torch.get_rng_state()
    batch = next(iter(feed.dataloader()))
    assert before.equal(torch.get_rng_state())
    assert all(isinstance(values, torch.Tensor | list) for values in batch.values())
    resumed = open_feed(kind, folder_of(kind)).dataloader(num_workers=2)
    resumed.load_state_dict(feed.dataloader().state_dict())
    assert [plain(batch) for batch in resumed] == batches_of(kind)[1:]
    ways: list[dict[str, Any]] = [{}, {"num_workers": 2}]
    data = [open_feed(kind, folder_of(kind)).iterable() for _ in ways]
    loaders = [torch.utils.data.DataLoader(each, batch_size=None, **way) for each, way in zip(data, ways, strict=True)]
    if kind != "jsonl":  # whose length is not known
        loaders.append(torch.utils.data.DataLoader(open_feed(kind, folder_of(kind)), batch_size=None, num_workers=2))
        assert len(feed.dataloader()) == len(feed)
    for loader in loaders:
        assert [plain(batch) for batch in loader] == batches_of(kind)
    with pytest.raises(LoaderError, match="shuffle, batch_size cannot be set, since "):
        feed.dataloader(shuffle=True, batch_size=4)


def through_stateful_loaders(make: Callable[[], Any], workers: int, epochs: int = 0) -> list[Any]:
    """Take batches through torchdata's loaders, each of which goes on from the state of the one before."""
    loading = pytest.importorskip("torchdata.stateful_dataloader", reason="stateful loaders are torchdata's")
    found, state = [], None
    for steps in (1, 5, 10**6):
        dataset = make()
        if epochs:
            dataset.set_epoch(epochs)
        loader = loading.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)
        if state is not None:
            loader.load_state_dict(state)
        found += [plain(batch) for _, batch in zip(range(steps), loader, strict=False)]
        state = loader.state_dict()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_spawned_workers_read_every_feed(kind, folder_of, batches_of):
    torch = pytest.importorskip("torch")
    spawned = {"num_workers": 1, "multiprocessing_context": "spawn"}  # which takes seconds
    data = open_feed(kind, folder_of(kind))
    for loader in (
        data.dataloader(**spawned),
        torch.utils.data.DataLoader(data.iterable(), batch_size=None, **spawned),
    ):
        assert [plain(batch) for batch in loader] == batches_of(kind)


@pytest.mark.variants
@pytest.mark.parametrize(("kind", "workers"), [each for each in WORKERS if None not in each.values])
def test_a_stateful_loader_goes_on_in_the_middle_of_a_pass(kind, workers, folder_of, batches_of):
    assert len(batches_of(kind)) > 6 + 4
    found = through_stateful_loaders(lambda: open_feed(kind, folder_of(kind)).iterable(), workers)
    assert found == batches_of(kind)
    if kind != "jsonl":
        assert through_stateful_loaders(lambda: open_feed(kind, folder_of(kind)), workers) == batches_of(kind)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("kind", "workers"),
    [*((kind, 0) for kind in KINDS if kind != "jsonl"), pytest.param("packed", 2, marks=pytest.mark.slow)],
)
def test_grain_reads_a_feed_as_a_source_and_goes_on(kind, workers, folder_of, batches_of):
    grain = pytest.importorskip("grain", reason="grain reads feeds by number")

    def iterate() -> Any:
        batches = grain.MapDataset.source(open_feed(kind, folder_of(kind))).to_iter_dataset()
        options = grain.multiprocessing.MultiprocessingOptions(num_workers=workers)
        return iter(batches.mp_prefetch(options) if workers else batches)

    stopped, again = iterate(), iterate()
    found = [plain(next(stopped)) for _ in range(3)]
    again.set_state(json.loads(json.dumps(stopped.get_state())))
    assert found + [plain(batch) for batch in again] == batches_of(kind)


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_a_later_epoch_is_the_pass_that_follows(kind, folder_of, batches_of):
    shuffled = {"shuffle": "windows"} if kind == "windows" else {}
    feed = open_feed(kind, folder_of(kind), **shuffled)
    first, second = ([plain(batch) for batch in feed] for _ in range(2))
    found = through_stateful_loaders(lambda: open_feed(kind, folder_of(kind), **shuffled).iterable(), 0, epochs=1)
    assert found == second
    assert (first == second) == (kind == "rectangle")


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_batches_and_go_on_between_two_of_them(kind, folder_of, batches_of):
    loading = pytest.importorskip("torchdata.stateful_dataloader", reason="stateful loaders are torchdata's")
    wanted = [row["input_ids"].tolist() for batch in open_feed(kind, folder_of(kind)) for row in rows_of(batch)]
    found, state = [], None
    for steps in (1, 4, 10**6):
        data = open_feed(kind, folder_of(kind)).iterable("rows")
        loader = loading.StatefulDataLoader(data, batch_size=1)
        if state is not None:
            loader.load_state_dict(state)
        found += [row for _, batch in zip(range(steps), loader, strict=False) for row in batch["input_ids"].tolist()]
        state = loader.state_dict()
    assert found == wanted


def test_rows_are_of_one_rank_and_worker_and_not_of_batches(folder_of):
    torch = pytest.importorskip("torch")
    feed = open_feed("packed", folder_of("packed"))
    with pytest.raises(LoaderError, match="items takes one of 'batches', 'rows', got 'row'"):
        feed.iterable("row")
    with pytest.raises(LoaderError, match="this feed has world_size=2: open it without rank and world_size"):
        next(iter(open_feed("packed", folder_of("packed"), world_size=2).iterable("rows")))
    by_workers = iter(torch.utils.data.DataLoader(feed.iterable("rows"), num_workers=2))
    with pytest.raises(LoaderError, match="would depend on the 2 workers: set num_workers"):
        next(by_workers)
    by_workers._shutdown_workers()  # the error keeps them until garbage is collected, which waits 5 s for each
    with pytest.raises(LoaderError, match="items was 'batches' and is 'rows'"):
        feed.iterable("rows").load_state_dict(feed.iterable().state_dict())


@pytest.mark.slow
def test_single_windows_are_batched_by_a_stateful_loader(folder_of):
    loading = pytest.importorskip("torchdata.stateful_dataloader", reason="stateful loaders are torchdata's")
    windows = open_feed("windows", folder_of("windows")).windows
    loader = loading.StatefulDataLoader(windows, batch_size=4, num_workers=2)
    batches = iter(loader)
    found = [next(batches)["input_ids"].tolist() for _ in range(3)]
    other = loading.StatefulDataLoader(windows, batch_size=4, num_workers=2)
    other.load_state_dict(loader.state_dict())
    found += [batch["input_ids"].tolist() for batch in other]
    assert [row for batch in found for row in batch] == [window["input_ids"].tolist() for window in windows]


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_a_stateful_loader_is_of_its_data(kind, folder_of):
    loading = pytest.importorskip("torchdata.stateful_dataloader", reason="stateful loaders are torchdata's")
    loader = loading.StatefulDataLoader(open_feed(kind, folder_of(kind)).iterable(), batch_size=None)
    next(iter(loader))
    of_other = loading.StatefulDataLoader(open_feed(kind, folder_of(kind, seed=1)).iterable(), batch_size=None)
    of_other.load_state_dict(loader.state_dict())
    with pytest.raises(LoaderError, match="this state does not match .* as opened here"):
        next(iter(of_other))


@pytest.mark.parametrize("kind", KINDS)
def test_without_torch_it_says_what_to_install(kind, folder_of, monkeypatch):
    for name in ("torch", "torch.utils", "torch.utils.data"):
        monkeypatch.setitem(sys.modules, name, None)
    feed = open_feed(kind, folder_of(kind))
    for call in (feed.iterable, feed.dataloader):
        with pytest.raises(LoaderError, match=re.escape('pip install "longcrawl[torch]"')):
            call()


@pytest.mark.variants
@pytest.mark.parametrize("name", HELD_OUT)
@pytest.mark.parametrize("kind", ["windows", "packed"])
def test_folders_with_usual_names_of_held_out_data_are_splits(kind, name, tmp_path):
    write_shards(tmp_path / name, 1)

    def files(path: Path, **fields: Any) -> set[str]:
        feed = open_feed(kind, path, **fields)
        listed = feed.windows.files if kind == "windows" else feed.buckets[""].files
        return {Path(file.path).parent.name for file in listed}

    with pytest.raises(LoaderError, match=f"train.*; splits.*: '{name}'"):
        files(tmp_path)
    assert files(tmp_path / name) == {name}
    write_shards(tmp_path / "web", 0)
    if kind == "windows":
        with pytest.raises(LoaderError, match=f"web/0.ds is beside the folder {name}, so its split is unknown"):
            files(tmp_path)
    (tmp_path / "web").rename(tmp_path / "train")
    assert files(tmp_path) == {"train"}
    assert files(tmp_path, split=name) == {name}
    if name == "test":
        with pytest.raises(LoaderError, match="val.*splits.*: .*'test'"):
            files(tmp_path, split="val")
        return
    assert files(tmp_path, split="val") == files(tmp_path, split="dev") == {name}
    for other in {"eval", "valid", "heldout"} - {name}:
        write_shards(tmp_path / other, 2)
    if name not in ("eval", "valid", "heldout", "val"):
        with pytest.raises(LoaderError, match="no split 'val': choose one of 'valid', "):
            files(tmp_path, split="val")


@pytest.mark.parametrize("kind", ["buckets", "rectangle"])
def test_stored_splits_are_found_by_their_usual_names(kind, tmp_path):
    if kind == "buckets":
        table = pa.table(
            {"id": [str(row) for row in range(40)], "tokens": pa.array([[8, 9]] * 40, pa.list_(pa.uint16()))}
        )
        made = lc.Crawl(Dataset(table))
        made.to_composed(tmp_path / "out", capacities=[8], end_of_text=7, format="datatrove", heldout=0.5)
    else:
        write_rectangle(tmp_path, 0)
        (tmp_path / "train.zarr").rename(tmp_path / "heldout.zarr")
    for split in ("val", "validation", "heldout"):
        assert len(open_feed(kind, tmp_path, split=split))
    with pytest.raises(LongCrawlError, match="split 'test'"):
        open_feed(kind, tmp_path, split="test")


END = 7


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> Path:
    """Write outputs of longcrawl of ids below 100 that end documents with 7: shards with overlaps, and a rectangle."""
    folder, chance = tmp_path_factory.mktemp("outputs"), np.random.default_rng(0)
    documents = [[*chance.integers(8, 100, length).tolist(), END] for length in range(20, 60)]
    rows = {"id": [str(row) for row in range(40)], "tokens": pa.array(documents, pa.list_(pa.uint16()))}
    made = lc.Crawl(Dataset(pa.table(rows)))
    made.to_gpt_simple(folder / "packed", end_of_text=END, vocabulary_size=100)
    cut = made | lc.tokens.Windows(32, 4, end_of_text=END)
    cut.to_datatrove(folder / "windows", end_of_text=END, vocabulary_size=100)
    made.to_composed(folder / "out", capacities=[8, 16], end_of_text=END, vocabulary_size=100)
    write_rectangle(folder, 0)
    return folder


def opened(kind: str, outputs: Path, **fields: Any) -> Any:
    return open_feed(kind, outputs if kind in ("buckets", "rectangle") else outputs / kind, **fields)


def test_feeds_take_what_an_output_has_recorded(outputs):
    windows = opened("windows", outputs, positions="eos", tail="pad").windows
    assert (windows.end_of_text, windows.pad_token, windows.masked) == (END, END, True)
    assert windows.recorded.vocabulary_size == 100
    by_index = opened("windows", outputs, positions="eos", end_of_text=END).windows
    np.testing.assert_array_equal(windows.read(np.arange(9))["positions"], by_index.read(np.arange(9))["positions"])
    batch = opened("packed", outputs, max_length=70, packing="separate", shuffle="none")[0]
    assert batch["input_ids"][0, int(batch["n_tokens"][0]) :].tolist() == [END] * 49
    in_train = Packed(outputs / "packed" / "train", max_length=70)
    assert in_train.recorded.file.endswith("packed/gpt-simple.json")


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (
            "packed",
            {"end_of_text": 99_999_999},
            "end_of_text is 99,999,999 and .*gpt-simple.json records 7: remove",
        ),
        ("packed", {"pad_token": 70_000}, "pad_token 70000 is not an id of the vocabulary of 100 that .*gpt-simple"),
        (
            "packed",
            {"vocabulary_size": 50},
            "vocabulary_size is 50 and .*gpt-simple.json records 100: remove",
        ),
        ("windows", {"positions": "eos", "end_of_text": 0}, "end_of_text is 0 and .*datatrove.json records 7"),
        (
            "windows",
            {"tail": "pad", "pad_token": 100},
            "pad_token 100 is not an id of the vocabulary of 100 that",
        ),
        ("windows", {"vocabulary_size": 99}, "vocabulary_size is 99 and .*datatrove.json records 100"),
        ("buckets", {"pad_token": 100}, "pad_token 100 is not an id of the vocabulary of 100 that .*composed.json rec"),
        ("rectangle", {"pad_token": 65_536}, "pad_token 65536 is not an id of uint16 tokens: set it from 0 to 65,535"),
        ("rectangle", {"pad_token": -1}, "pad_token -1 is not an id of uint16 tokens"),
    ],
)
def test_what_contradicts_an_output_is_refused(kind, fields, said, outputs):
    opened(kind, outputs, **{name: 300 for name in fields if name == "vocabulary_size"})
    with pytest.raises(LoaderError, match=said):
        opened(kind, outputs, **fields)


def test_ids_of_shards_without_an_output_are_those_of_their_type(folder_of):
    for kind, named in (("windows", {"positions": "eos"}), ("packed", {})):
        with pytest.raises(LoaderError, match="end_of_text 65536 is not an id of uint16 tokens: set it from"):
            open_feed(kind, folder_of(kind), end_of_text=65_536, **named)
        padded = {"tail": "pad"} if kind == "windows" else {}
        with pytest.raises(LoaderError, match="pad_token 70000 is not an id of uint16 tokens"):
            open_feed(kind, folder_of(kind), pad_token=70_000, **padded)
        with pytest.warns(
            UserWarning,
            match=r"end_of_text 3,000 is not found in the first 900 tokens of .*: "
            r"check that",
        ):
            open_feed(kind, folder_of(kind), end_of_text=3_000, **named)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            there = int(open_feed("windows", folder_of(kind))[20]["input_ids"][0, 0])
            open_feed(kind, folder_of(kind), end_of_text=there, **named)
    with pytest.raises(LoaderError, match="pad_token 2002 is not an id of a vocabulary of 2,002"):
        open_feed("jsonl", folder_of("jsonl"), pad_token=WORDS + 2)


def test_ids_that_int32_cannot_hold_are_refused(tmp_path):
    table = pa.table({"tokens": pa.array([[1, 2, 3_000_000_000, 4]], pa.list_(pa.uint32()))})
    lc.formats.datatrove.write([table], tmp_path / "a.ds")
    windows = Windows(tmp_path, 1, dtype="int32")
    assert windows[0]["input_ids"].tolist() == [1, 2]
    with pytest.raises(LoaderError, match=r"a\.ds has a token id that int32 cannot hold: set dtype='int64'"):
        windows[1]
    array = zarr.create_array(tmp_path / "train.zarr", shape=(1, 4), dtype=np.uint32, chunks=(1, 4), zarr_format=2)
    array[:] = [[1, 2, 3_000_000_000, 4]]
    rectangle = Rectangle(tmp_path, batch_size=1, context_length=2, dtype="int32")
    assert rectangle[0]["targets"].tolist() == [[1, 2]]
    with pytest.raises(LoaderError, match="has a token id that int32 cannot hold: set dtype='int64'"):
        rectangle[1]


def test_outputs_that_contradict_each_other_and_lost_masks_are_refused(outputs, tmp_path):
    shutil.copytree(outputs / "windows", tmp_path / "one")
    rows = {"id": ["a"], "tokens": pa.array([[1, 2, 3]], pa.list_(pa.uint16()))}
    lc.Crawl(Dataset(pa.table(rows))).to_datatrove(tmp_path / "two", end_of_text=3)
    with pytest.raises(LoaderError, match="datatrove.json and .*datatrove.json record different values of end_of"):
        Windows(tmp_path, 15)
    next((tmp_path / "one" / "train").glob("*.loss")).unlink()
    for open_shards in (lambda: Windows(tmp_path / "one", 15), lambda: Packed(tmp_path / "one", max_length=32)):
        with pytest.raises(CorruptionError, match=r"\.ds\.loss is missing, 1,732 were written"):
            open_shards()
    edited = tmp_path / "two" / "datatrove.json"
    edited.write_text(edited.read_text().replace('"end_of_text": 3', '"end_of_text": 7'))
    with pytest.raises(CorruptionError, match="has been changed: the SHA-256 that it records differs"):
        Windows(tmp_path / "two", 1)
