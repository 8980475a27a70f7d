"""The loss mask of a rectangle: written, verified, read in batches beside the targets."""

import importlib.metadata
import json
import pickle
import random
import shutil

import datasets
import numpy as np
import pyarrow as pa
import pytest
import zarr
from datasets import load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError, LoaderError, StageError
from longcrawl.formats.rectangle import write as rectangle
from longcrawl.formats.rectangle.spec import open_loss_mask, open_split
from longcrawl.formats.rectangle.write import RectangleOutput, RectangleResult

END_OF_TEXT = 7


@pytest.fixture
def small_bands(monkeypatch):
    """Make shards of 64 rows, so that a few hundred rows fill several."""
    monkeypatch.setattr(rectangle, "BAND", 64)


def made_up(rows, length, seed=0):
    draw = np.random.default_rng(seed)
    return draw.integers(0, 60_000, (rows, length), dtype=np.uint16), draw.random((rows, length)) < 0.7


def lists(values, kind):
    rows, length = values.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int64) * length, pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel(), kind))


def build(path, tokens, flags=None, **settings):
    columns = {"id": [f"d{row}" for row in range(len(tokens))], "tokens": lists(tokens, pa.uint16())}
    if flags is not None:
        columns["loss_mask"] = lists(flags, pa.bool_())
    crawl = lc.Crawl(datasets.Dataset(pa.table(columns)))
    crawl.to_rectangle(path, context_length=tokens.shape[1], end_of_text=END_OF_TEXT, **settings)
    return path


BEFORE = {
    2: "f9c05717ebec8b2af69197b803664d0913114bfafea6d5e428aa54f949bfe761",
    3: "4676c41d30a3e030571cb82e8d5231b5b84ec34f3fc4b93cd522b53d8ee05af6",
}
"""SHA-256 of rectangles without loss masks or checksums of chunks, by Zarr format; pages of rows tables have theirs."""

WRITTEN_BY = {"zarr": "3.1.6", "numcodecs": "0.16.6", "pyarrow": "26.0.1"}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_without_a_mask_not_one_byte_is_other_than_before_there_were_masks(tmp_path, zarr_format, directory_digest):
    if {name: importlib.metadata.version(name) for name in WRITTEN_BY} != WRITTEN_BY:
        pytest.skip("other versions of what compresses write other bytes")
    numbers = np.arange(7000, dtype=np.uint64) * 2654435761 % 60_000
    tokens = numbers.astype(np.uint16).reshape(70, 100)
    build(tmp_path / "made", tokens, heldout=3, zarr_format=zarr_format, checksum="none")
    assert directory_digest(tmp_path / "made") == BEFORE[zarr_format]


@pytest.mark.variants
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("length", "codec"),
    [
        *((length, "zstd") for length in (1, 100, 3000)),
        *(pytest.param(length, "lz4", marks=pytest.mark.slow) for length in (1, 100)),
        (3000, "lz4"),
    ],
)
def test_plain_zarr_reads_the_mask_beside_the_tokens(tmp_path, small_bands, zarr_format, codec, length):
    tokens, flags = made_up(150, length)
    path = build(tmp_path / "made", tokens, flags, zarr_format=zarr_format, codec=codec, heldout=3)
    group = zarr.open_group(str(path), mode="r")
    for split, rows in (("heldout", slice(3)), ("train", slice(3, None))):
        mask = group[f"{split}_loss_mask"]
        assert np.array_equal(group[split][:], tokens[rows])
        assert np.array_equal(mask[:], flags[rows])
        assert (mask.dtype, bool(mask.fill_value)) == (np.bool_, True)
        assert (mask.chunks, mask.shards) == (group[split].chunks, group[split].shards)
    assert group.attrs["loss_mask"] is True
    assert json.loads((path / "rectangle.json").read_text())["loss_mask"] is True
    assert RectangleResult().verify(path).problems == ()
    for engine in ("direct", "zarr"):
        array = open_loss_mask(open_split(path, "train", engine))
        down, across = map(range, array.layout.chunk_grid)
        read = [np.hstack([array.read_chunk(row, column) for column in across]) for row in down]
        assert np.array_equal(np.vstack(read), flags[3:])
        assert pickle.loads(pickle.dumps(array)) == array  # our own bytes


def test_tokens_are_the_same_bytes_with_and_without_a_mask(tmp_path):
    tokens, flags = made_up(70, 100)
    plain, masked = build(tmp_path / "plain", tokens), build(tmp_path / "masked", tokens, flags)
    for name in ("train/c/0/0", "train/zarr.json", "rows/train.parquet"):
        assert (plain / name).read_bytes() == (masked / name).read_bytes()


@given(data=st.data(), shape=st.tuples(st.integers(1, 40), st.integers(1, 50)), zarr_format=st.sampled_from([2, 3]))
@settings(deadline=None)
def test_batches_have_the_mask_of_their_targets(tmp_path_factory, data, shape, zarr_format):
    tokens, flags = made_up(*shape)
    path = build(tmp_path_factory.mktemp("masked") / "made", tokens, flags, zarr_format=zarr_format)
    batch_size, context_length = (data.draw(st.integers(1, size)) for size in shape)
    prefetch, engine = data.draw(st.sampled_from(["on", "off"])), data.draw(st.sampled_from(["direct", "zarr"]))
    batches = lc.loading.Rectangle(path, "train", batch_size, context_length, prefetch=prefetch, engine=engine)
    down = shape[0] // batch_size
    for number, batch in enumerate(batches):
        top, left = number % down * batch_size, number // down * context_length
        place = (slice(top, top + batch_size), slice(left, left + context_length))
        assert sorted(batch) == ["loss_mask", "targets", "text"]
        assert batch["loss_mask"].dtype == np.bool_
        assert np.array_equal(batch["targets"], tokens[place])
        assert np.array_equal(batch["loss_mask"], flags[place])


def test_batches_of_a_set_without_a_mask_have_none(tmp_path):
    batches = lc.loading.Rectangle(build(tmp_path / "made", made_up(10, 20)[0]), batch_size=2)
    assert batches.mask is None
    assert sorted(batches[0]) == ["targets", "text"]


def test_memory_counts_the_mask_and_a_state_goes_on(tmp_path, small_bands):
    tokens, flags = made_up(64 * 3, 100)
    path = build(tmp_path / "made", tokens, flags)
    one_chunk = 64 * 100 * 3
    with pytest.raises(LoaderError, match=f"set cache_bytes to {one_chunk} or more"):
        lc.loading.Rectangle(path, batch_size=8, cache_bytes=one_chunk - 1, prefetch="off")
    small = lc.loading.Rectangle(path, batch_size=8, cache_bytes=one_chunk, prefetch="off")
    large = lc.loading.Rectangle(path, batch_size=8)
    for _, _ in zip(range(5), small, strict=False):
        pass
    large.load_state_dict(small.state_dict())
    assert all(np.array_equal(one["loss_mask"], other["loss_mask"]) for one, other in zip(small, large, strict=True))


@pytest.mark.variants
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_tensors_have_the_mask(tmp_path, workers):
    torch = pytest.importorskip("torch")
    tokens, flags = made_up(12, 20)
    batches = lc.loading.Rectangle(build(tmp_path / "made", tokens, flags), batch_size=4)
    read = list(batches.dataloader(workers))
    assert all(batch["loss_mask"].dtype == torch.bool for batch in read)
    assert np.array_equal(np.vstack([batch["loss_mask"].numpy() for batch in read]), flags)


@pytest.mark.variants
@pytest.mark.parametrize("context_length", [None, 7])
def test_the_source_rectangle_gives_the_mask_and_it_can_be_written_again(tmp_path, context_length):
    tokens, flags = made_up(70, 21)
    path = build(tmp_path / "made", tokens, flags)
    asked = {} if context_length is None else {"context_length": context_length}
    data = load_dataset("longcrawl", "rectangle", data_dir=str(path), split="train", **asked)
    assert np.array_equal(np.array(data["loss_mask"][:]).reshape(70, 21), flags)
    if context_length is None:
        lc.Crawl(data).to_rectangle(tmp_path / "again", context_length=21, end_of_text=END_OF_TEXT)
        assert np.array_equal(zarr.open_array(str(tmp_path / "again" / "train_loss_mask"), mode="r")[:], flags)
        assert RectangleResult().verify(tmp_path / "again").problems == ()


# -------------------- what is wrong is said


def test_verify_finds_what_happened_to_a_mask(tmp_path):
    tokens, flags = made_up(70, 100)
    path = build(tmp_path / "made", tokens, flags)
    chunk = path / "train_loss_mask" / "c" / "0" / "0"
    kept = chunk.read_bytes()
    chunk.write_bytes(kept[:50] + bytes([kept[50] ^ 1]) + kept[51:])
    assert RectangleResult().verify(path).problems == ("train_loss_mask/c/0/0 has been changed: its SHA-256 differs",)
    chunk.unlink()
    assert RectangleResult().verify(path).problems == ("train_loss_mask/c/0/0 is missing",)
    with pytest.raises(CorruptionError, match="train_loss_mask/c/0/0 is missing"):
        lc.loading.Rectangle(path, batch_size=2)[0]
    chunk.write_bytes(kept)
    (chunk.parent / "1").write_bytes(b"")
    assert RectangleResult().verify(path).problems == ("train_loss_mask/c/0/1 is not part of this rectangle",)
    (path / "rectangle.json").unlink()
    (chunk.parent / "1").unlink()
    assert [each for each in RectangleResult().verify(path).problems if "loss_mask" in each] == []
    chunk.unlink()
    assert "train_loss_mask/c/0/0 is missing and would be read as 1" in RectangleResult().verify(path).problems


def test_a_mask_that_is_gone_or_lies_otherwise_is_not_passed_over(tmp_path):
    tokens, flags = made_up(70, 100)
    path = build(tmp_path / "made", tokens, flags)
    shutil.rmtree(path / "train_loss_mask")
    with pytest.raises(FormatError, match=r"train_loss_mask/zarr\.json is missing"):
        lc.loading.Rectangle(path, batch_size=2)
    assert any("train_loss_mask cannot be opened" in each for each in RectangleResult().verify(path).problems)
    zarr.create_array(str(path / "train_loss_mask"), shape=(70, 100), dtype="bool", chunks=(10, 10))
    (path / "rectangle.json").unlink()
    with pytest.raises(FormatError, match=r"of its tokens, \(70, 100\) in chunks of \(64, 100"):
        lc.loading.Rectangle(path, batch_size=2)


def test_a_mask_is_no_split_of_tokens(tmp_path):
    path = build(tmp_path / "made", *made_up(10, 20))
    with pytest.raises(FormatError, match="token ids must be uint16 or uint32, but this array has bool"):
        open_split(path, "train_loss_mask")
    assert RectangleResult().inspect(path, "train", 0).split == "train"


def test_masked_texts_without_a_mask_of_their_tokens_are_refused(tmp_path):
    tokens = lists(made_up(2, 4)[0], pa.uint16())
    masked = pa.array([[{"start": 0, "end": 1}], []])
    crawl = lc.Crawl(datasets.Dataset(pa.table({"id": ["a", "b"], "tokens": tokens, "masked": masked})))
    with pytest.raises(StageError, match="a rectangle would lose column 'masked', .* drop the column"):
        crawl.to_rectangle(tmp_path / "made", context_length=4, end_of_text=0)


def test_parts_of_which_only_some_are_masked_are_refused(tmp_path):
    tokens, flags = made_up(2, 9)
    plain = pa.table({"id": ["a", "b"], "tokens": lists(tokens, pa.uint16())})
    masked = plain.set_column(0, "id", pa.array(["c", "d"])).append_column("loss_mask", lists(flags, pa.bool_()))
    writer = RectangleOutput(context_length=9, end_of_text=0).writer([])
    writer.spill([plain], tmp_path, 0)
    writer.spill([masked], tmp_path, 1)
    with pytest.raises(FormatError, match="parts hold documents with different columns: here .*, there loss_mask"):
        writer.plan(tmp_path, 2)
    with pytest.raises(StageError, match="documents have different columns: here .*, there loss_mask"):
        writer.spill([plain, masked], tmp_path, 2)
    writer.spill([masked.set_column(0, "id", pa.array(["c", "c"]))], tmp_path, 0)
    with pytest.raises(FormatError, match="two rows have the id 'c'"):
        writer.plan(tmp_path, 1)


# -------------------- from duplicates to batches


@pytest.fixture(scope="module")
def masked_texts():
    chance = random.Random(6)
    said = [" ".join(chance.choices(["One", "two", "é", "漢字", "four"], k=30)) for _ in range(10)]
    texts = {}
    for number in range(60):
        repeated = " . ".join(chance.choices(said, k=2))
        alone = " ".join(chance.choices("abcdefgh", k=chance.randint(30, 300)))
        texts[f"{number:03d}"] = alone + (repeated.upper() if number % 2 else repeated)
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("escaped", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_writes_what_a_crawl_writes_and_batches_mask_the_duplicates(
    tmp_path, masked_texts, escaped, directory_digest
):
    (tmp_path / "docs").mkdir()
    for part in range(3):
        rows = [{"id": name, "text": text} for name, text in list(masked_texts.items())[part::3]]
        (tmp_path / "docs" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.table({"text": list(masked_texts.values())})
    fitted = lc.tokens.Tokenize("trained", json_escaped=escaped, vocabulary_size=300)
    tokenizer = fitted.fit([table], str(tmp_path / "fit")).tokenizer
    stages = [
        {"exact_substring": {"min_tokens": 40, "policy": "mask", "unit": "character"}},
        {"tokenize": {"tokenizer": tokenizer, "json_escaped": escaped}},
        {"min_tokens": {"n": 90}},
        {"truncate": {"n": 90}},
        "shuffle",
        "roll",
    ]
    spec = {
        "longcrawl": 1,
        "name": "masks",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(tmp_path / "docs")},
        "stages": stages,
        "outputs": {"rectangle": {"heldout": 0.0}},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(spec))
    lc.run(tmp_path / "recipe.yaml", tmp_path / "one")
    lc.run(tmp_path / "recipe.yaml", tmp_path / "two", num_proc=2)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "two")
    data = lc.open("text", id_field="id", data_dir=str(tmp_path / "docs"))
    crawl = data | lc.dedup.ExactSubstring(40, policy="mask", unit="character")
    crawl = crawl | lc.tokens.Tokenize(tokenizer, json_escaped=escaped) | lc.tokens.MinTokens(90)
    crawl = crawl | lc.tokens.Truncate(90) | lc.tokens.Shuffle() | lc.tokens.Roll()
    crawl.to_rectangle(tmp_path / "crawled")
    assert directory_digest(tmp_path / "one" / "rectangle") == directory_digest(tmp_path / "crawled")
    batches = lc.loading.Rectangle(tmp_path / "crawled", batch_size=1)
    rolls = crawl.data["roll"][:]
    decode = fitted.__class__(tokenizer).encoder().decode
    shares = []
    for batch, roll in zip(batches, rolls, strict=True):
        targets, flags = np.roll(batch["targets"][0], -roll), np.roll(batch["loss_mask"][0], -roll)
        shares.append(flags.mean())
        # Lower-case letters stand between the repeated sentences of every document, at its beginning.
        assert set(decode(targets[:10])) <= set("abcdefgh ")
        assert flags[:10].all()
        assert "four two" not in decode(targets[flags]).lower()
    assert 0.1 < np.mean(shares) < 0.98
