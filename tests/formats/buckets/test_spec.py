"""Reading a bucketed dataset: samples in any order, from unchanged files."""

import pickle

import numpy as np
import pytest
import zarr
from composed_crawls import compose, documents

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats import open_composed

pytestmark = pytest.mark.usefixtures("small_files")


def test_samples_are_read_in_any_order_anywhere(tmp_path):
    composed = compose(documents(np.full(900, 20)), tmp_path / "out", [64])
    (bucket,) = composed.buckets
    order = np.random.default_rng(0).permutation(len(bucket))[:100]
    everything, some = bucket.read(range(len(bucket))), pickle.loads(pickle.dumps(bucket)).read(order)
    assert len(bucket) > 3 * 64
    assert (some.tokens == everything.tokens[order]).all()
    assert (some.loss_mask == everything.loss_mask[order]).all()
    assert [each.tolist() for each in some.piece_sizes] == [everything.piece_sizes[row].tolist() for row in order]
    assert bucket.read([]).tokens.shape == (0, 64)
    with pytest.raises(IndexError, match=f"train/64 has samples 0 to {len(bucket) - 1}, not {len(bucket)}"):
        bucket.read([0, len(bucket)])
    with pytest.raises(FormatError, match="has no bucket heldout/64; known: train/64"):
        composed.bucket(64, "heldout")
    assert zarr.open_group(str(tmp_path / "out"), mode="r")["train/64"].shape == (len(bucket), 64)
    batches = lc.loading.Rectangle(tmp_path / "out", split="train/64", batch_size=8)
    assert (batches[0]["targets"] == everything.tokens[:8]).all()
    (tmp_path / "out/pieces/train/64/00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(CorruptionError, match="pieces/train/64/00001.parquet has 4 bytes, expected"):
        open_composed(tmp_path / "out").buckets[0].read([64])
    (tmp_path / "out/train/64/c/2/0").unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        open_composed(tmp_path / "out").buckets[0].read([128])
    assert len(lc.verify(tmp_path / "out").problems) == 2


def test_an_identity_is_one_of_content(tmp_path):
    first = compose(documents([20] * 30), tmp_path / "a").buckets
    again = compose(documents([20] * 30), tmp_path / "b").buckets
    other = compose(documents([20] * 31), tmp_path / "c").buckets
    assert [each.identity for each in first] == [each.identity for each in again]
    assert {each.identity for each in first}.isdisjoint(each.identity for each in other)


def test_a_description_that_was_edited_is_refused(tmp_path):
    compose(documents([20] * 30), tmp_path / "out", [32])
    file = tmp_path / "out/composed.json"
    file.write_text(file.read_text().replace('"capacity": 32', '"capacity": 31'))
    with pytest.raises(CorruptionError, match=r"composed.json has been changed: the SHA-256 .* differs; copy it again"):
        open_composed(tmp_path / "out")
    assert lc.verify(tmp_path / "out").problems
