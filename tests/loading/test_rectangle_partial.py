"""Rectangles of which a part is there, or that lie behind a server: complete rows alone, and never a fill value."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec

from longcrawl.errors import CorruptionError, FormatError, LoaderError
from longcrawl.formats.rectangle.spec import open_loss_mask, open_split
from longcrawl.loading import Rectangle
from longcrawl.loading import rectangle as loading

ROWS, LENGTH = 76, 48
BAND, WIDTH = 16, 16
MISSING = ("1.2", "3.0", "3.1")
KEPT = [*range(16), *range(32, 48), *range(64, 76)]


def tokens_of(rows: int = ROWS) -> np.ndarray:
    # 0 is what zarr fills with, and no token.
    return np.arange(1, rows * LENGTH + 1, dtype=np.uint16).reshape(rows, LENGTH)


@pytest.fixture
def original(tmp_path, write_partial_array) -> Path:
    """Return a store in the layout of the original, without some files of the second and the fourth band."""
    write_partial_array(tmp_path / "store/train.zarr", tokens_of(), (BAND, WIDTH), MISSING)
    return tmp_path / "store"


@pytest.fixture
def sharded(tmp_path) -> Path:
    """Return a store of shards with a loss mask; one shard of the tokens is not there, and another one of the mask."""
    zarr.create_group(tmp_path / "sharded", attributes={"loss_mask": True, "end_of_text": 7})
    shape: dict[str, Any] = {"shape": (ROWS, LENGTH), "chunks": (4, WIDTH), "shards": (BAND, LENGTH)}
    shape["compressors"] = [BloscCodec(cname="zstd", shuffle="noshuffle")]
    tokens = zarr.create_array(tmp_path / "sharded/train", dtype=np.uint16, **shape)
    tokens[:] = tokens_of()
    mask = zarr.create_array(tmp_path / "sharded/train_loss_mask", dtype=bool, **shape)
    mask[:] = tokens_of() % 3 > 0
    (tmp_path / "sharded/train/c/1/0").unlink()
    (tmp_path / "sharded/train_loss_mask/c/3/0").unlink()
    return tmp_path / "sharded"


def delivered(feed: Rectangle) -> np.ndarray:
    """Return all rows of a pass, in order, put together of their windows."""
    batches = [batch["targets"] for batch in feed]
    height = feed.walk.row_batches
    windows = [np.concatenate(batches[first : first + height]) for first in range(0, len(batches), height)]
    return np.concatenate(windows, axis=1)


@pytest.mark.parametrize("engine", ["direct", "zarr"])
@pytest.mark.parametrize(("batch_size", "context_length"), [(4, 48), (13, 24), (3, 7)])
def test_complete_rows_are_delivered_and_none_is_filled(original, engine, batch_size, context_length):
    feed = Rectangle(original, "train", batch_size, context_length, on_missing_chunks="skip", engine=engine)
    found = delivered(feed)
    rows, columns = len(KEPT) // batch_size * batch_size, LENGTH // context_length * context_length
    np.testing.assert_array_equal(found, tokens_of()[KEPT][:rows, :columns])
    assert (found > 0).all()
    assert [(each.number, each.rows, each.stored) for each in feed.rows()] == [
        (0, range(16), range(16)),
        (2, range(16, 32), range(32, 48)),
        (4, range(32, 44), range(64, 76)),
    ]
    entries = [each.entry for step in range(feed.walk.row_batches) for each in feed.origins(step)]
    assert entries == KEPT[:rows]


def test_a_hole_is_an_error_unless_it_is_skipped(original):
    with pytest.raises(CorruptionError, match=r"1\.2 is missing.*on_missing_chunks='skip'"):
        list(Rectangle(original, batch_size=4))
    for file in (original / "train.zarr").glob("*.2"):
        file.unlink()
    with pytest.raises(FormatError, match="no complete rows: 8 of 15 files are there, and 3 make one band of 16 rows"):
        Rectangle(original, batch_size=4, on_missing_chunks="skip")


def test_a_state_names_the_bands(original, tmp_path):
    feed = Rectangle(original, batch_size=4, context_length=16, on_missing_chunks="skip")
    whole = list(feed)
    for _ in itertools.islice(feed, 5):
        pass
    again = Rectangle(original, batch_size=4, context_length=16, on_missing_chunks="skip")
    again.load_state_dict(feed.state_dict())
    for one, other in zip(again, whole[5:], strict=True):
        np.testing.assert_array_equal(one["targets"], other["targets"])
    complete = tmp_path / "complete"
    shutil.copytree(original, complete)
    stored = zarr.open_array(complete / "train.zarr")
    stored[:32] = tokens_of()[:32]
    more = Rectangle(complete, batch_size=4, context_length=16, on_missing_chunks="skip")
    with pytest.raises(LoaderError, match="bands was '0,2,4' and is '0-2,4'"):
        more.load_state_dict(feed.state_dict())
    stored[:] = tokens_of()
    skipping, strict = (Rectangle(complete, batch_size=4, on_missing_chunks=word) for word in ("skip", "error"))
    strict.load_state_dict(skipping.state_dict())
    assert skipping.state_dict()["bands"] == "all"


def test_bands_have_their_loss_mask(sharded):
    feed = Rectangle(sharded, batch_size=4, on_missing_chunks="skip")
    np.testing.assert_array_equal(delivered(feed), tokens_of()[KEPT])
    flags = np.concatenate([batch["loss_mask"] for batch in feed])
    np.testing.assert_array_equal(flags, tokens_of()[KEPT] % 3 > 0)
    assert open_loss_mask(open_split(sharded, on_missing_chunks="skip")).shape == (44, LENGTH)


def test_the_array_of_a_split_opens(original, monkeypatch):
    feed = Rectangle(original / "train.zarr", batch_size=4, on_missing_chunks="skip")
    assert delivered(feed).shape == (44, LENGTH)
    (original / "train.zarr").rename(original / "heldout.zarr")
    monkeypatch.chdir(original)
    other = Rectangle("heldout.zarr", batch_size=4, on_missing_chunks="skip")
    assert other.split == "heldout"
    assert other.state_dict()["split"] == "heldout"
    assert Rectangle(original, "val", batch_size=4, on_missing_chunks="skip")[0]["targets"].tolist() == (
        other[0]["targets"].tolist()
    )


@pytest.mark.variants
@pytest.mark.parametrize("store", ["original", "sharded"])
@pytest.mark.parametrize("prefetch", ["on", "off"])
def test_many_requests_give_the_batches_of_one(store, prefetch, request, web_server):
    folder = request.getfixturevalue(store)
    settings = {"batch_size": 6, "context_length": 40, "on_missing_chunks": "skip", "prefetch": prefetch}
    url = web_server(folder)
    near, far = (Rectangle(path, **settings) for path in (folder, url))
    assert far.rows() == near.rows()
    for one, other in zip(near, far, strict=True):
        assert all((one[name] == other[name]).all() for name in one)
    # As little memory as can be: chunks of one batch.
    needed = near._chunk_bytes * (near.walk.most_chunks() + 1)
    small = Rectangle(url, **settings, cache_bytes=needed)
    assert all((one["targets"] == other["targets"]).all() for one, other in zip(near, small, strict=True))
    stopped = iter(far)
    next(stopped)
    stopped.close()
    assert (far[3]["targets"] == near[3]["targets"]).all()
    assert len(list(far)) == len(list(near)[1:])


def test_neighbours_are_fetched_together(sharded, web_server, monkeypatch):
    fetched = []
    from longcrawl.io import file_systems

    fetch = file_systems._fetch

    def counting(url, start, stop):
        fetched.append((url, start, stop))
        return fetch(url, start, stop)

    monkeypatch.setattr(file_systems, "_fetch", counting)
    array = open_split(web_server(sharded))
    fetched.clear()
    chunks = array.read_chunks([(0, 0), (0, 1), (0, 2)])
    assert len(fetched) == 2  # the index, and one stretch
    np.testing.assert_array_equal(np.concatenate(chunks, axis=1), tokens_of()[:4])


def test_a_server_that_loses_a_file_stops_at_its_batch(original, web_server, tmp_path):
    url = web_server(original)
    feed = Rectangle(url, batch_size=4, context_length=16, on_missing_chunks="skip", prefetch="on")
    (original / "train.zarr/4.1").unlink()
    read = []
    with pytest.raises(CorruptionError, match=r"4\.1 is missing"):
        read.extend(batch["targets"] for batch in feed)
    # The first column of chunks is whole, and two bands of the second one.
    assert len(read) == 11 + 8
    assert loading.REQUESTS == 16


def test_the_hub_lists_what_is_there(original, hub):
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo("me/partial", repo_type="dataset", private=True)
    api.upload_folder(repo_id="me/partial", folder_path=original, repo_type="dataset")
    feed = Rectangle("hf://datasets/me/partial/train.zarr", batch_size=4, on_missing_chunks="skip")
    np.testing.assert_array_equal(delivered(feed), tokens_of()[KEPT])
