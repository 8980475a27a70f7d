"""Every feed in torchdata's StatefulDataLoader: stopped in the middle of a pass, it goes on with the same sequence."""

import numpy as np
import pytest
import zarr

import longcrawl as lc
from longcrawl.errors import LoaderError

loading = pytest.importorskip("torchdata.stateful_dataloader", reason="stateful loaders are torchdata's")

STOPS = (1, 5)
FEEDS = ["windows", "packed", "rectangle"]


@pytest.fixture(scope="module")
def feed_of(tmp_path_factory, write_shards):
    """Return what opens a feed of 20 to 40 batches; none shares its position with another one."""
    folder = tmp_path_factory.mktemp("stateful")
    write_shards(folder / "shards", [3 + 7 * n % 40 for n in range(60)])
    array = zarr.create_array(
        folder / "train.zarr", shape=(20, 64), dtype=np.uint16, chunks=(8, 32), zarr_format=2, fill_value=0
    )
    array[:] = np.arange(1, 20 * 64 + 1).reshape(20, 64)
    opened = {
        "windows": lambda: lc.loading.Windows(folder / "shards", seq_len=15, shuffle="windows").batches(3),
        "packed": lambda: lc.loading.Packed(folder / "shards", max_length=32, batch_size=2),
        "rectangle": lambda: lc.loading.Rectangle(folder, batch_size=4, context_length=16),
    }
    return lambda name: opened[name]()


def tokens(batch) -> list[list[int]]:
    return np.asarray(batch["targets"] if "targets" in batch else batch["input_ids"]).tolist()


def stopped_and_gone_on(make, num_workers, epochs=0) -> list[list[list[int]]]:
    """Take batches through loaders of which each goes on from the state of the one before."""
    found, state = [], None
    for steps in (*STOPS, 10**6):
        dataset = make()
        if epochs:
            dataset.set_epoch(epochs)
        loader = loading.StatefulDataLoader(dataset, batch_size=None, num_workers=num_workers)
        if state is not None:
            loader.load_state_dict(state)
        for _, batch in zip(range(steps), loader, strict=False):
            found.append(tokens(batch))
            state = loader.state_dict()
    return found


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", FEEDS)
@pytest.mark.parametrize("kind", ["map-style", "iterable"])
def test_it_goes_on_in_the_middle_of_a_pass(feed_of, name, kind, num_workers):
    feed = feed_of(name)
    wanted = [tokens(feed[step]) for step in range(len(feed))]
    assert len(wanted) > sum(STOPS) + 4
    make = {"map-style": lambda: feed_of(name), "iterable": lambda: feed_of(name).iterable()}[kind]
    assert stopped_and_gone_on(make, num_workers) == wanted


@pytest.mark.parametrize("name", FEEDS)
def test_a_later_epoch_is_the_pass_that_follows(feed_of, name):
    feed = feed_of(name)
    first, second = ([tokens(batch) for batch in feed] for _ in range(2))
    found = stopped_and_gone_on(lambda: feed_of(name).iterable(), 0, epochs=1)
    assert found == second
    assert (first == second) == (name == "rectangle")


def test_single_windows_are_batched_by_the_loader(feed_of):
    windows = feed_of("windows").windows
    loader = loading.StatefulDataLoader(windows, batch_size=4, num_workers=2)
    batches = iter(loader)
    found = [next(batches)["input_ids"].tolist() for _ in range(3)]
    other = loading.StatefulDataLoader(windows, batch_size=4, num_workers=2)
    other.load_state_dict(loader.state_dict())
    found += [batch["input_ids"].tolist() for batch in other]
    assert [row for batch in found for row in batch] == [window["input_ids"].tolist() for window in windows]


def test_a_state_of_other_data_is_refused(feed_of):
    feed = feed_of("packed")
    loader = loading.StatefulDataLoader(feed.iterable(), batch_size=None)
    next(iter(loader))
    other = lc.loading.Packed(feed.path, max_length=32, batch_size=2, seed=1)
    of_other = loading.StatefulDataLoader(other.iterable(), batch_size=None)
    of_other.load_state_dict(loader.state_dict())
    with pytest.raises(LoaderError, match="seed was 0 and is 1"):
        next(iter(of_other))
