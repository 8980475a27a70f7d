"""Checksums beside token shards: a changed bit is noticed by everything that reads, or harmless."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import fsspec
import numpy as np
import pyarrow as pa
import pytest

import longcrawl as lc
from longcrawl.errors import CorruptionError, LongCrawlError
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.io import block_checksums
from longcrawl.io.block_checksums import BLOCK_BYTES, DigestedFile, checksums_of, read_checksums
from longcrawl.io.files import checksum
from longcrawl.io.structured import seal

END = 7
EVERY = list(FORMATS)


def table(documents: int = 400) -> pa.Table:
    """Make documents of some 300 tokens, so that a shard has several blocks."""
    chance = np.random.default_rng(0)
    tokens = [chance.integers(8, 60_000, chance.integers(1, 600)).astype(np.uint16) for _ in range(documents)]
    return pa.table({"tokens": pa.array(tokens, pa.list_(pa.uint16()))})


def write(folder: Path, name: str, documents: pa.Table) -> Path:
    path = folder / f"a{FORMATS[name].suffix}"
    mask = [np.arange(len(each)) % 5 > 0 for each in documents["tokens"].to_pylist()]
    if name in ("datatrove", "token-parquet"):
        documents = documents.append_column("loss_mask", pa.array(mask, pa.list_(pa.bool_())))
    FORMATS[name].write([documents], path, end_of_text=END)
    return path


def digest(batches: Any) -> list[bytes]:
    return [b"".join(np.asarray(each[name]).tobytes() for name in ("input_ids", *rest(each))) for each in batches]


def rest(batch: Any) -> list[str]:
    return [name for name in ("positions", "loss_mask", "labels", "doc_ids") if name in batch]


def windows(path: Path, name: str) -> list[bytes]:
    opening = {"end_of_text": END} if name == "nanogpt" else {}
    read = lc.loading.Windows(path, 63, "index", format=name, shuffle="windows", **opening)
    return digest(read.batches(8))


def packed(path: Path, name: str) -> list[bytes]:
    feed = lc.loading.Packed(path.parent, max_length=1024, batch_size=4, format=name, end_of_text=END)
    return digest(feed)


READERS: dict[str, Callable[[Path, str], list[bytes]]] = {"windows": windows, "packed": packed}


@pytest.mark.variants
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("reader", ["windows", pytest.param("packed", marks=pytest.mark.slow)])
def test_a_flipped_bit_is_noticed_by_the_feed_or_harmless(tmp_path, name, reader):
    path, read, chance, seen = write(tmp_path, name, table()), READERS[reader], random.Random(4), Counter()
    expected = read(path, name)
    files = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    for turn in range(40):
        file = files[turn % len(files)]
        whole = file.read_bytes()
        content = bytearray(whole)
        # Half of them where headers are.
        place = chance.randrange(8 * (min(len(content), 200) if chance.random() < 0.5 else len(content)))
        content[place // 8] ^= 1 << place % 8
        file.write_bytes(content)
        try:
            seen["same" if read(path, name) == expected else f"silent in {file.name} at {place}"] += 1
        except LongCrawlError:
            seen["noticed"] += 1
        file.write_bytes(whole)
    assert set(seen) <= {"same", "noticed"}, seen
    assert seen["noticed"] > 20


@pytest.mark.variants
@pytest.mark.parametrize("name", EVERY)
def test_all_files_are_summed_up_and_peers_files_are_as_they_were(tmp_path, name):
    path = write(tmp_path, name, table(20))
    beside = path.with_name(f"{path.name}.crc32c")
    described = json.loads(beside.read_text())
    others = sorted(file for file in tmp_path.rglob("*") if file.is_file() and file != beside)
    assert sorted(described["files"]) == sorted(str(file).removeprefix(f"{tmp_path}/a") for file in others)
    assert [described["files"][str(file).removeprefix(f"{tmp_path}/a")]["bytes"] for file in others] == [
        file.stat().st_size for file in others
    ]
    beside.unlink()
    opening = {"end_of_text": END} if name != "token-parquet" else {}
    shard = FORMATS[name].open(path, **opening)
    assert (shard.checksums, len(shard)) == (None, 20)
    assert FORMATS[name].verify(path).problems == ()


@pytest.mark.parametrize("name", ["datatrove", "gpt-simple", "levanter", "litdata", "megatron", "nanogpt", "olmo-core"])
def test_each_block_is_compared_once_and_at_its_first_use(tmp_path, name, monkeypatch):
    monkeypatch.setattr(block_checksums, "FEW", 0)
    path = write(tmp_path, name, table())
    opening = {"end_of_text": END} if name != "nanogpt" else {}
    shard = FORMATS[name].open(path, check="sizes", **opening)
    blocks = shard.checksums.files[FORMATS[name].suffix]
    assert blocks.left == len(blocks.sums) - (name in ("litdata", "nanogpt"))
    assert len(blocks.sums) == -(-path.stat().st_size // BLOCK_BYTES) > 3
    shard.compare(40_000, 40_010)
    assert blocks.left == len(blocks.sums) - 1 - (name in ("litdata", "nanogpt"))
    shard.compare(0, len(shard.tokens))
    assert blocks.left == 0
    path.write_bytes(bytes(path.stat().st_size))
    shard.compare(0, len(shard.tokens))
    with pytest.raises(CorruptionError, match=r"has been changed between byte 0 and 65,536: its crc32c differs"):
        FORMATS[name].open(path, **opening)
    (problem, *_) = FORMATS[name].verify(path).problems
    assert str(path) in problem


def test_files_that_are_replaced_removed_or_added_are_named(tmp_path):
    path = write(tmp_path, "datatrove", table(20))
    mask = Path(f"{path}.loss")
    flags = mask.read_bytes()
    mask.unlink()
    with pytest.raises(CorruptionError, match=r"a\.ds\.loss is missing, [\d,]+ were written"):
        lc.formats.open_shard(path)
    mask.write_bytes(flags[:-1])
    with pytest.raises(CorruptionError, match=r"a\.ds\.loss has [\d,]+ bytes, [\d,]+ were written"):
        lc.formats.open_shard(path)
    lc.formats.datatrove.write([table(20)], path, end_of_text=END)
    assert not mask.exists()
    lc.formats.open_shard(path)
    mask.write_bytes(flags)
    with pytest.raises(CorruptionError, match="was not written with this shard"):
        lc.formats.open_shard(path)


def test_checksums_of_another_shard_or_version_are_named(tmp_path):
    path = write(tmp_path, "gpt-simple", table(20))
    beside = path.with_name("a.bin.crc32c")
    whole = json.loads(beside.read_text())
    for text, said in (
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (json.dumps(whole), "the SHA-256 that it records differs"),
        (seal(whole | {"block_bytes": 9}), "has a version that this longcrawl does not know"),
        (seal(whole | {"files": {".bin": {"bytes": 10**15, "crc32c": ""}}}), "cannot be read"),
        (seal(whole | {"files": []}), "cannot be read"),
    ):
        beside.write_text(text)
        with pytest.raises(CorruptionError, match=said):
            lc.formats.open_shard(path)


def test_remote_windows_compare_blocks(tmp_path):
    path = write(tmp_path, "datatrove", table())
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path), "/checked", recursive=True)
    expected = windows(path, "datatrove")
    assert digest(lc.loading.Windows("memory://checked", 63, "index", shuffle="windows").batches(8)) == expected
    for name, place in (("a.ds", 90_000), ("a.ds.index", 100), ("a.ds.loss", 70_000)):
        content = bytearray(store.cat_file(f"/checked/{name}"))
        content[place] ^= 1
        store.pipe_file(f"/checked/{name}", bytes(content))
        with pytest.raises(CorruptionError, match=rf"{name} has been changed between byte"):
            digest(lc.loading.Windows("memory://checked", 63, "index", shuffle="windows").batches(8))
        content[place] ^= 1
        store.pipe_file(f"/checked/{name}", bytes(content))
    store.rm("/checked", recursive=True)


def test_the_source_and_convert_compare_all_blocks(tmp_path):
    path = write(tmp_path / "in", "gpt-simple", table())
    content = bytearray(path.read_bytes())
    content[100_000] ^= 4
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"a\.bin has been changed between byte 65,536 and 131,072"):
        lc.convert(path, tmp_path / "b.ds")
    source = lc.open("gpt-simple", data_dir=str(tmp_path / "in"), streaming=True, on_bad_files="skip")
    assert list(source.data) == []


def test_composed_samples_in_shards_are_compared(tmp_path):
    crawl = lc.Crawl(datasets.Dataset(table().append_column("id", pa.array([str(n) for n in range(400)]))))
    crawl.to_composed(tmp_path / "made", capacities=(256, 1024), format="gpt-simple", end_of_text=END)
    shard = next((tmp_path / "made").rglob("*.bin"))
    assert shard.with_name(f"{shard.name}.crc32c").is_file()
    assert lc.verify(tmp_path / "made").problems == ()
    content = bytearray(shard.read_bytes())
    content[1000] ^= 8
    shard.write_bytes(content)
    buckets = lc.formats.buckets.spec.open_composed(tmp_path / "made").buckets
    with pytest.raises(CorruptionError, match=rf"{shard.name} has been changed between byte 0"):
        [bucket.read(np.arange(len(bucket))) for bucket in buckets]


def test_a_copy_under_another_name_keeps_its_checksums(tmp_path):
    path = write(tmp_path, "datatrove", table(20))
    for file in tmp_path.iterdir():
        shutil.copy(file, tmp_path / file.name.replace("a.ds", "b.ds"))
    checksums = read_checksums(lc.formats.datatrove.shard_files(tmp_path / "b.ds"), str(tmp_path / "b"))
    assert checksums is not None
    checksums.check()
    assert block_checksums.SUFFIX == ".crc32c"
    assert len(lc.formats.open_shard(path)) == 20


@pytest.mark.parametrize("sizes", [[], [1], [BLOCK_BYTES, 3], [5, BLOCK_BYTES - 5, 2 * BLOCK_BYTES + 1, 0, 7]])
def test_digests_of_what_is_written_are_those_of_the_file(tmp_path, sizes):
    again = np.empty(max(sizes, default=0), np.uint8)
    with DigestedFile(tmp_path / "a.bin") as file:
        for number, size in enumerate(sizes):
            again[:size] = number  # a caller may fill the same array again
            file.write(again[:size].data)
    assert file.sha256 == checksum(tmp_path / "a.bin")
    known = checksums_of({".bin": tmp_path / "a.bin"}, {".bin": file.crc32c})
    assert known == checksums_of({".bin": tmp_path / "a.bin"}, {})


def test_a_file_that_was_not_written_in_order_is_digested_when_it_is_read(tmp_path):
    with DigestedFile(tmp_path / "a.bin") as file:
        file.write(b"abc")
        file.seek(0)
        file.write(b"x")
    assert (file.sha256, file.crc32c, (tmp_path / "a.bin").read_bytes()) == (None, None, b"xbc")
