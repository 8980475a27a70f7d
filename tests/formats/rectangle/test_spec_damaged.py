"""Damaged and hostile Zarr arrays: a changed bit is noticed or harmless, and metadata costs no memory and no time."""

import contextlib
import json
import pickle
import random
import resource
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import google_crc32c
import numcodecs
import numpy as np
import pyarrow as pa
import pytest
import zarr
from zarr.codecs import BloscCodec

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError, LongCrawlError
from longcrawl.formats.rectangle import write as rectangle
from longcrawl.formats.rectangle.spec import open_loss_mask, open_split
from longcrawl.formats.rectangle.write import RectangleResult
from longcrawl.io.stored_tables import read_table

ROWS, LENGTH = 150, 96

verify_rectangle = RectangleResult().verify
inspect_rectangle = partial(RectangleResult().inspect, split="train", row=0)


@pytest.fixture
def small_bands(monkeypatch):
    monkeypatch.setattr(rectangle, "BAND", 64)


def build(path: Path, **settings: Any) -> Path:
    """Make a rectangle of tokens that compress as text does, with a loss mask."""
    chance = np.random.default_rng(0)
    tokens = np.minimum(chance.zipf(1.3, (ROWS, LENGTH)), 50_000).astype(np.uint16)
    columns = {
        "id": [f"d{row}" for row in range(ROWS)],
        "tokens": pa.array(list(tokens), pa.list_(pa.uint16())),
        "loss_mask": pa.array(list(chance.random((ROWS, LENGTH)) < 0.9), pa.list_(pa.bool_())),
    }
    crawl = lc.Crawl(datasets.Dataset(pa.table(columns)))
    crawl.to_rectangle(path, context_length=LENGTH, end_of_text=0, **settings)
    return path


def batches(path: Path, engine: str) -> list[bytes]:
    feed = lc.loading.Rectangle(path, batch_size=10, engine=engine, prefetch="off")
    return [b"".join(batch[name].tobytes() for name in sorted(batch)) for batch in feed]


def flipped(folder: Path, chance: random.Random, *names: str) -> tuple[Path, bytes]:
    """Flip one bit of one file below ``folder``; return the file and what it held."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.relative_to(folder).parts[0] in names)
    file = chance.choice(files)
    content = bytearray(file.read_bytes())
    whole = bytes(content)
    place = chance.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    file.write_bytes(content)
    return file, whole


@pytest.mark.variants
@pytest.mark.parametrize("engine", ["direct", "zarr"])
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="v3"),
        pytest.param({"zarr_format": 2}, id="v2"),
        pytest.param({"codec": "lz4"}, id="lz4", marks=pytest.mark.slow),
    ],
)
def test_a_flipped_bit_is_noticed_by_the_feed_or_harmless(tmp_path, small_bands, engine, settings):
    path, chance, seen = build(tmp_path / "made", **settings), random.Random(5), Counter()
    expected = batches(path, engine)
    names = ("train", "train_loss_mask", "zarr.json", ".zattrs", "rectangle.json")
    for _ in range(80):
        file, whole = flipped(path, chance, *names)
        try:
            seen["same" if batches(path, engine) == expected else f"silent in {file.name}"] += 1
        except CorruptionError as noticed:
            seen["noticed" if str(path) in str(noticed) else str(noticed)] += 1
        file.write_bytes(whole)
    assert set(seen) <= {"same", "noticed"}, seen
    assert seen["noticed"] > 50


@pytest.mark.slow
def test_a_flipped_bit_is_noticed_by_the_source_and_by_inspect(tmp_path, small_bands):
    path, chance = build(tmp_path / "made"), random.Random(6)

    def read() -> list[Any]:
        return lc.open("rectangle", data_dir=str(path)).data["tokens"][:]

    expected = read()
    for _ in range(20):
        file, whole = flipped(path, chance, "train")
        datasets.disable_caching()
        with contextlib.suppress(LongCrawlError, datasets.exceptions.DatasetGenerationError):
            assert read() == expected
        file.write_bytes(whole)
    shard = path / "train/c/0/0"
    content = bytearray(shard.read_bytes())
    content[20] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"train/c/0/0: chunk \(0, 0\), rows 0 to 63, .*crc32c.*longcrawl verify"):
        inspect_rectangle(path)


def test_the_checksum_can_be_left_out_and_what_is_read_says_which_there_is(tmp_path):
    kinds = {"crc32c": {}, "none": {"checksum": "none"}, "sha256": {"zarr_format": 2}}
    for kind, settings in kinds.items():
        path = build(tmp_path / kind, **settings)
        array = open_split(path)
        assert (array.checksum, array.engine) == (kind, "direct")
        assert pickle.loads(pickle.dumps(array)).checksum == kind  # our own bytes
        assert inspect_rectangle(path).checksum == kind
        assert batches(path, "direct") == batches(path, "zarr") == batches(tmp_path / "crc32c", "direct")
    codecs = json.loads((tmp_path / "crc32c/train/zarr.json").read_text())["codecs"][0]["configuration"]["codecs"]
    assert [codec["name"] for codec in codecs] == ["bytes", "blosc", "crc32c"]
    assert "a crc32c behind each chunk" in str(inspect_rectangle(tmp_path / "crc32c"))


def test_metadata_that_is_missing_or_of_another_rectangle_is_noticed(tmp_path):
    path = build(tmp_path / "made")
    group = path / "zarr.json"
    told = json.loads(group.read_text())
    group.write_text(json.dumps(told | {"attributes": told["attributes"] | {"end_of_text": 5}}))
    with pytest.raises(CorruptionError, match=r"made/zarr\.json has been changed: its SHA-256 differs"):
        open_split(path)
    group.unlink()
    with pytest.raises(CorruptionError, match=r"made/zarr\.json is missing"):
        open_split(path)


# -------------------- blosc


CUT = """
import sys
from longcrawl.errors import LongCrawlError
from longcrawl.formats.rectangle.spec import open_split
for folder in sys.argv[1:]:
    try:
        array = open_split(folder, "train", "zarr", "fill")
        for row in range(array.layout.chunk_grid[0]):
            array.read_chunk(row, 0)
        print("read")
    except LongCrawlError as noticed:
        print(noticed)
"""


def cut_chunks(folder: Path, layout: str) -> Path:
    """Make an array whose chunks have lost all but 40 bytes; those in a shard by its index, under a right checksum."""
    tokens = np.random.default_rng(0).integers(0, 9, (512, 4096)).astype(np.uint16)
    blosc = BloscCodec(cname="zstd", clevel=3, shuffle="noshuffle")
    settings = {
        "v2": {"zarr_format": 2, "compressors": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.NOSHUFFLE)},
        "v3": {"compressors": blosc},
        "sharded": {"compressors": blosc, "shards": (512, 4096)},
    }
    zarr.create_array(folder / "train", data=tokens, chunks=(64, 4096), **settings[layout])
    if layout != "sharded":
        for file in (file for file in folder.rglob("[0-9]*") if file.is_file()):
            file.write_bytes(file.read_bytes()[:40])
        return folder
    shard = folder / "train/c/0/0"
    content = shard.read_bytes()
    index = np.frombuffer(content[-132:-4], "<u8").reshape(8, 2).copy()
    index[:, 1] = 40
    checksum = google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    shard.write_bytes(content[:-132] + index.tobytes() + checksum)
    return folder


@pytest.mark.slow
def test_a_cut_blosc_chunk_is_one_sentence_from_zarr_and_not_the_end_of_the_process(tmp_path):
    folders = [str(cut_chunks(tmp_path / layout, layout)) for layout in ("v2", "v3", "sharded")]
    ran = subprocess.run([sys.executable, "-c", CUT, *folders], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran
    assert len(ran.stdout.splitlines()) == 3
    assert all("40 bytes; its header records" in line for line in ran.stdout.splitlines())


def test_a_codec_that_runs_what_the_store_holds_is_not_given_to_zarr(tmp_path):
    folder = tmp_path / "train"
    zarr.create_array(folder, data=np.ones((4, 4), np.uint16), chunks=(4, 4), zarr_format=2, compressors=None)
    told = json.loads((folder / ".zarray").read_text())
    (folder / ".zarray").write_text(json.dumps(told | {"compressor": {"id": "pickle", "protocol": 5}}))
    (folder / "0.0").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    with pytest.raises(FormatError, match="stored by the codec 'pickle', which is not read"):
        open_split(tmp_path).read_chunk(0, 0)
    assert not (tmp_path / "ran").exists()


# -------------------- hostile metadata


def written_by_others(folder: Path) -> list[Path]:
    """Make a sharded array and one in the original layout."""
    tokens = np.arange(40 * 64, dtype=np.uint16).reshape(40, 64)
    blosc = BloscCodec(cname="zstd", clevel=3, shuffle="noshuffle")
    zarr.create_array(folder / "v3/train", data=tokens, chunks=(8, 32), shards=(16, 64), compressors=[blosc])
    lz4 = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
    zarr.create_array(folder / "v2/train.zarr", data=tokens, chunks=(16, 32), zarr_format=2, compressors=lz4)
    return [folder / "v3/train/zarr.json", folder / "v2/train.zarr/.zarray"]


NUMBERS = [0, -1, 1, 7, 2**16, 2**31, 2**48, 2**63, 10**15, 10**40, 1.5, float("inf"), [0, 0], [10**15] * 2]
OTHERS = [None, True, "", "x", "..", "blosc", "sharding_indexed", [], [[]], {}, {"name": "bytes"}]


def mutated(value: Any, chance: random.Random) -> Any:
    """Change one value somewhere in JSON, drop it, repeat it or nest it."""
    if isinstance(value, dict | list) and value and chance.random() < 0.85:
        places = sorted(value) if isinstance(value, dict) else range(len(value))
        place = chance.choice(list(places))
        copy = value.copy()
        if chance.random() < 0.1:
            del copy[place]
        else:
            copy[place] = mutated(value[place], chance)
        return copy
    if chance.random() < 0.1:
        for _ in range(chance.choice([1, 5, 200])):
            shard = {"name": "sharding_indexed", "configuration": {"codecs": [value]}}
            value = [value] if chance.random() < 0.5 else shard
        return value
    return chance.choice(NUMBERS + OTHERS)


def use(folder: Path, engine: str) -> None:
    """Read an array in every way that a user can, as far as it goes."""
    feed = lc.loading.Rectangle(folder, batch_size=4, context_length=16, engine=engine, prefetch="off")
    feed[0], feed[-1]
    source = lc.open("rectangle", data_dir=str(folder), on_bad_files="skip", streaming=True)
    next(iter(source.data), None)


@pytest.mark.variants
@pytest.mark.parametrize("engine", ["direct", "zarr"])
@pytest.mark.parametrize("number", [0, 1], ids=["v3", "v2"])
def test_hostile_metadata_is_one_sentence_in_bounded_memory(tmp_path, engine, number):
    chance, seen = random.Random(3), Counter()
    file = written_by_others(tmp_path)[number]
    folder, text = file.parent.parent, file.read_text()
    grown = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, grown[1]))
    try:
        for _ in range(80):
            file.write_text(json.dumps(mutated(json.loads(text), chance)))
            for act in (use, verify_rectangle, inspect_rectangle):
                try:
                    act(folder, engine) if act is use else act(folder)
                    seen["read"] += 1
                except LongCrawlError:
                    seen["sentence"] += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, grown)
    assert seen["sentence"] > 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shape": [10**15, 64]}, "claims 1,000,000,000,000,000 x 64 tokens"),
        ({"chunks": [0, 32]}, "not positive"),
        ({"chunks": [2**20, 2**20]}, "chunks of 2,199,023,255,552 bytes"),
        ({"shape": [2**31, 2**17], "chunks": [16, 32]}, "files of chunks"),
        ({"fill_value": 70000}, "fill value 70000"),
        ({"dimension_separator": "/../"}, "separates the names"),
    ],
)
def test_a_limit_is_named(tmp_path, change, said):
    file = written_by_others(tmp_path)[1]
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(FormatError, match=said):
        open_split(tmp_path / "v2")


def test_a_shard_of_too_many_chunks_is_named(tmp_path):
    file = written_by_others(tmp_path)[0]
    told = json.loads(file.read_text())
    told["chunk_grid"]["configuration"]["chunk_shape"] = [2**13, 2**13]
    file.write_text(json.dumps(told).replace("[8, 32]", "[1, 1]"))
    with pytest.raises(FormatError, match="the most are 262,144"):
        open_split(tmp_path / "v3")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\xff", '"\\ud800"'])
def test_text_that_is_not_metadata_is_one_sentence(tmp_path, text):
    folder = build(tmp_path / "made")
    for name, opened in (
        ("rectangle.json", open_split),
        ("rectangle.json", verify_rectangle),
        ("zarr.json", open_split),
    ):
        (folder / name).write_bytes(text.encode("latin-1"))
        with pytest.raises(FormatError, match=name):
            opened(folder)
        if name == "rectangle.json":
            (folder / name).unlink()


def test_missing_files_of_a_wrong_shape_are_counted(tmp_path):
    file = written_by_others(tmp_path)[1]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"shape": [16 * 10**6, 64]}))
    problems = verify_rectangle(tmp_path / "v2").problems
    assert problems[-1] == f"train.zarr lacks {2 * 10**6 - 6 - 1000:,} more files"
    assert len(problems) == 1001


def test_copies_of_arrays_are_still_read(tmp_path):
    path = build(tmp_path / "made")
    (path / "rectangle.json").unlink()
    shutil.copytree(path, tmp_path / "copy")
    assert batches(tmp_path / "copy", "direct") == batches(path, "zarr")
    assert open_loss_mask(open_split(path)).checksum == "crc32c"


def test_a_flipped_bit_in_a_page_of_a_rows_table_is_noticed(tmp_path):
    path, chance = build(tmp_path / "made"), random.Random(7)
    table = path / "rows" / "train.parquet"
    whole = table.read_bytes()
    expected = read_table(table)
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    seen = Counter()
    for _ in range(200):
        content = bytearray(whole)
        place = chance.randrange(8 * (len(content) - footer))
        content[place // 8] ^= 1 << place % 8
        table.write_bytes(content)
        try:
            seen["same" if read_table(table).equals(expected) else "silent"] += 1
        except CorruptionError:
            seen["noticed"] += 1
    assert set(seen) <= {"same", "noticed"}, seen
    assert seen["noticed"] > 150
