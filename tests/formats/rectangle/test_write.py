"""Writing, verifying and inspecting rectangles."""

import hashlib
import json
import random
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import datasets
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.outputs import RESULTS
from longcrawl.errors import CorruptionError, FormatError, LongCrawlError, StageError, TokenizerError
from longcrawl.formats.order import heldout_rows
from longcrawl.formats.rectangle import write as rectangle
from longcrawl.formats.rectangle.spec import open_split
from longcrawl.formats.rectangle.write import RectangleOutput, RectangleResult

END_OF_TEXT = 7


def made_up(rows: int, length: int, dtype: type = np.uint16, seed: int = 0) -> np.ndarray:
    most = 60_000 if dtype is np.uint16 else 200_000
    return np.random.default_rng(seed).integers(0, most, (rows, length), dtype=dtype)


def crawl_of(tokens: np.ndarray, **columns: list) -> lc.Crawl:
    rows, length = tokens.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int64) * length, pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(tokens.ravel()))
    names = [f"d{row}" for row in range(rows)]
    return lc.Crawl(datasets.Dataset(pa.table({"id": names, "tokens": lists} | columns)))


def build(path: Path, tokens: np.ndarray, **settings) -> Path:
    crawl_of(tokens).to_rectangle(path, **{"context_length": tokens.shape[1], "end_of_text": END_OF_TEXT} | settings)
    return path


@pytest.fixture
def small_bands(monkeypatch):
    """Make shards of 64 rows, so that a few hundred rows fill several."""
    monkeypatch.setattr(rectangle, "BAND", 64)


@pytest.fixture(scope="module")
def text_rectangle(tmp_path_factory) -> Callable[..., tuple[Path, dict[str, str]]]:
    """Return a function that makes a shuffled, rolled rectangle with a trained tokenizer, and gives its texts by id."""

    def make(*, json_escaped: bool, heldout: float = 2) -> tuple[Path, dict[str, str]]:
        chance = random.Random(0)
        words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 6))) for _ in range(80)]
        texts = {
            f"doc {row}": f'№{row} "said" é\n\\ 😀\t' + " ".join(chance.choices(words, k=400)) for row in range(12)
        }
        data = datasets.Dataset.from_dict(
            {"id": list(texts), "text": list(texts.values()), "url": [f"https://example.org/{name}" for name in texts]}
        )
        crawl = lc.Crawl(data) | lc.tokens.Tokenize("trained", json_escaped=json_escaped, vocabulary_size=400)
        crawl = crawl | lc.tokens.MinTokens(500) | lc.tokens.Truncate(500) | lc.tokens.Shuffle() | lc.tokens.Roll()
        path = tmp_path_factory.mktemp("texts") / "made"
        crawl.to_rectangle(path, heldout=heldout)
        return path, texts

    return make


# -------------------- what is written


SHAPES = [(1, np.uint16), (100, np.uint32), (2048, np.uint16), (3000, np.uint16)]
STORED = [
    pytest.param(*shape, codec, marks=() if codec == "zstd" or shape == SHAPES[-1] else pytest.mark.slow)
    for shape in SHAPES
    for codec in ("zstd", "lz4", "lz4hc")
]
"""Every shape with one codec, and every codec with one shape; the other pairs are slow."""


@pytest.mark.variants
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("length", "dtype", "codec"), STORED)
def test_plain_zarr_reads_what_was_written(tmp_path, zarr_format, codec, length, dtype):
    tokens = made_up(70, length, dtype)
    build(tmp_path / "made", tokens, zarr_format=zarr_format, codec=codec, heldout=3)
    group = zarr.open_group(str(tmp_path / "made"), mode="r")
    assert {path.name for path in (tmp_path / "made").iterdir() if path.is_dir()} == {"heldout", "rows", "train"}
    assert np.array_equal(group["heldout"][:], tokens[:3])
    assert np.array_equal(group["train"][:], tokens[3:])
    assert group["train"].dtype == dtype
    assert group["train"].fill_value == END_OF_TEXT
    assert group.metadata.zarr_format == zarr_format
    assert dict(group.attrs) == {
        "end_of_text": END_OF_TEXT,
        "vocabulary_size": None,
        "tokenizer": None,
        "json_escaped": False,
        "rolled": False,
    }
    assert RectangleResult().verify(tmp_path / "made").problems == ()


def test_zarr_v3_has_one_shard_per_2048_rows_with_chunks_of_64_by_2048(tmp_path):
    build(tmp_path / "made", made_up(130, 5000))
    array = zarr.open_array(str(tmp_path / "made" / "train"), mode="r")
    assert array.chunks == (64, 2048)
    assert array.shards == (2048, 6144)
    blosc, crc32c = array.compressors
    assert crc32c.to_dict() == {"name": "crc32c"}
    settings = blosc.to_dict()["configuration"]
    assert (settings["cname"], settings["clevel"], settings["shuffle"]) == ("zstd", 3, "noshuffle")
    assert [path.name for path in (tmp_path / "made" / "train" / "c" / "0").iterdir()] == ["0"]


@pytest.mark.variants
@pytest.mark.parametrize(("codec", "level"), [("zstd", 3), ("lz4", 5)])
def test_zarr_v2_has_the_chunks_of_the_original(tmp_path, codec, level):
    tokens = made_up(2050, 2100)
    build(tmp_path / "made", tokens, zarr_format=2, codec=codec)
    told = json.loads((tmp_path / "made" / "train" / ".zarray").read_text())
    assert told["zarr_format"] == 2
    assert told["chunks"] == [2048, 2048]
    assert told["dtype"] == "<u2"
    assert told["fill_value"] == END_OF_TEXT
    assert told["compressor"] == {"id": "blosc", "cname": codec, "clevel": level, "shuffle": 0, "blocksize": 0}
    assert sorted(path.name for path in (tmp_path / "made" / "train").glob("[0-9]*")) == ["0.0", "0.1", "1.0", "1.1"]
    assert np.array_equal(zarr.open(str(tmp_path / "made" / "train"), mode="r")[:], tokens)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_every_band_is_a_file_of_its_own_and_the_last_one_is_filled_up(tmp_path, small_bands, zarr_format):
    tokens = made_up(64 * 3 + 5, 96)
    build(tmp_path / "made", tokens, zarr_format=zarr_format, heldout=70)
    described = json.loads((tmp_path / "made" / "rectangle.json").read_text())
    shards = [name for name in described["files"] if name[-1].isdigit()]
    names = ("c/0/0", "c/1/0") if zarr_format == 3 else ("0.0", "1.0")
    assert shards == [f"{split}/{name}" for split in ("heldout", "train") for name in names]
    group = zarr.open_group(str(tmp_path / "made"), mode="r")
    assert np.array_equal(group["heldout"][:], tokens[:70])
    assert np.array_equal(group["train"][:], tokens[70:])
    assert np.array_equal(open_split(tmp_path / "made", "heldout").read_chunk(1, 0), tokens[64:70])


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_short_band_has_the_bytes_of_a_whole_one(tmp_path, monkeypatch, zarr_format, blank):
    monkeypatch.setattr(rectangle, "BAND", 256)
    layout = rectangle.Layout(3000, "uint16", END_OF_TEXT, zarr_format, "zstd", (64, 1024))
    whole = np.full((256, 3000), END_OF_TEXT, np.uint16)
    if not blank:
        whole[:70, :2000] = made_up(70, 2000)
    with monkeypatch.context() as context:
        context.setattr(numcodecs.blosc, "use_threads", False)
        written = layout.create(tmp_path / "whole", 256, write_empty_chunks=blank or zarr_format == 2)
        written[:] = whole
    height = layout.whole_chunks(70)
    assert height == (128 if zarr_format == 3 else 256)
    names = rectangle.write_band(tmp_path, "band", 0, whole[:height], layout)
    expected = sorted((tmp_path / "whole").glob("c/0/*" if zarr_format == 3 else "0.*"))
    assert [(tmp_path / name).read_bytes() for name in sorted(names)] == [path.read_bytes() for path in expected]
    assert len(names) == (1 if zarr_format == 3 else 2)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_documents_of_nothing_but_end_of_text_are_written_too(tmp_path, zarr_format):
    """A chunk of fill value alone is what Zarr likes to leave out; then nobody could tell that it is there."""
    tokens = np.full((130, 50), END_OF_TEXT, np.uint16)
    build(tmp_path / "made", tokens, zarr_format=zarr_format)
    assert np.array_equal(zarr.open_array(str(tmp_path / "made" / "train"), mode="r")[:], tokens)
    assert RectangleResult().verify(tmp_path / "made").problems == ()
    batch = lc.loading.Rectangle(tmp_path / "made", batch_size=130)[0]
    assert np.array_equal(batch["targets"], tokens)


def test_the_rows_tables_say_where_rows_come_from(tmp_path, small_bands):
    tokens = made_up(140, 32)
    urls = [None if row % 3 else f"https://example.org/{row}" for row in range(140)]
    crawl = crawl_of(
        tokens, url=urls, n_tokens=[100 + row for row in range(140)], roll=[row % 32 for row in range(140)]
    )
    crawl.to_rectangle(tmp_path / "made", context_length=32, end_of_text=END_OF_TEXT, heldout=0.1)
    heldout, train = (pq.read_table(tmp_path / "made" / "rows" / f"{split}.parquet") for split in ("heldout", "train"))
    assert heldout.schema.names == ["row", "id", "url", "roll", "n_tokens"]
    assert heldout["row"].to_pylist() == list(range(14))
    assert train["row"].to_pylist() == list(range(126))
    both = pa.concat_tables([heldout, train])
    assert both["id"].to_pylist() == [f"d{row}" for row in range(140)]
    assert both["url"].to_pylist() == urls
    assert both["n_tokens"].to_pylist() == [100 + row for row in range(140)]
    assert both["roll"].to_pylist() == [row % 32 for row in range(140)]


def test_the_description_names_every_file_and_what_decodes_the_rows(text_rectangle):
    path, _ = text_rectangle(json_escaped=True)
    described = json.loads((path / "rectangle.json").read_text())
    found = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    assert set(described["files"]) == found - {"rectangle.json"}
    assert described["shapes"] == {"heldout": [2, 500], "train": [10, 500]}
    assert (described["dtype"], described["zarr_format"]) == ("uint16", 3)
    assert (described["json_escaped"], described["rolled"]) == (True, True)
    assert described["vocabulary_size"] == 400
    assert RESULTS["rectangle"].read_back(path) == "tokens uint16 (10, 500), the first chunk of 10 x 500"
    for name, entry in described["files"].items():
        content = (path / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.slow
def test_the_same_documents_make_the_same_bytes(tmp_path, text_rectangle, directory_digest):
    one, _ = text_rectangle(json_escaped=False)
    other, _ = text_rectangle(json_escaped=False)
    assert directory_digest(one) == directory_digest(other)


@given(rows=st.integers(2, 5000), heldout=st.floats(0, 1, exclude_max=True))
def test_a_fraction_held_out_is_rounded_but_never_to_nothing(rows, heldout):
    wanted = round(rows * heldout) or int(heldout > 0)
    if wanted >= rows:
        with pytest.raises(FormatError, match="leaves none to train on: lower it"):
            heldout_rows(heldout, rows)
    else:
        assert heldout_rows(heldout, rows) == wanted


@pytest.mark.variants
@pytest.mark.parametrize(("heldout", "rows"), [(0, 0), (3, 3), (0.5, 5), (0.0001, 1), (9, 9)])
def test_the_heldout_rows_are_the_first_of_the_order(tmp_path, heldout, rows):
    tokens = made_up(10, 20)
    build(tmp_path / "made", tokens, heldout=heldout)
    assert (tmp_path / "made" / "heldout").exists() is bool(rows)
    assert np.array_equal(zarr.open_array(str(tmp_path / "made" / "train"), mode="r")[:], tokens[rows:])


# -------------------- what is refused


@pytest.mark.parametrize("heldout", [-0.1, -1, 1.5])
def test_heldout_is_a_fraction_or_a_whole_number(heldout):
    with pytest.raises(
        StageError,
        match=r"rectangle\.heldout must be a fraction below 1 or a whole number of "
        r"rows, got",
    ):
        RectangleOutput(heldout=heldout)


@pytest.mark.parametrize("heldout", [float("nan"), float("inf")])
def test_heldout_is_a_number(heldout):
    with pytest.raises(StageError, match=r"RectangleOutput\.heldout takes a number, got"):
        RectangleOutput(heldout=heldout)


@pytest.mark.parametrize("heldout", [10, 11, 0.99])
def test_holding_out_all_rows_is_refused(tmp_path, heldout):
    with pytest.raises(FormatError, match=r"heldout [\d.]+ takes 1[01] of 10 rows and leaves none to train on"):
        build(tmp_path / "made", made_up(10, 20), heldout=heldout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"context_length": 0}, "rectangle.context_length"),
        ({"context_length": -5}, "rectangle.context_length"),
        ({"end_of_text": -1}, "rectangle.end_of_text"),
        ({"end_of_text": 70_000}, "70,000"),
        ({"zarr_format": 4}, "RectangleOutput.zarr_format takes one of 2, 3, got 4"),
        ({"codec": "gzip"}, "RectangleOutput.codec takes one of 'zstd', "),
        ({"colour": "red"}, "has no field 'colour'; known: checksum, codec, context_length, "),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(tmp_path, settings, said):
    with pytest.raises(LongCrawlError) as raised:
        build(tmp_path / "made", made_up(4, 20), **settings)
    assert said in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [19, 21])
def test_rows_of_another_length_are_refused(tmp_path, length):
    tokens = pa.array([[1] * 20, [2] * length], pa.list_(pa.uint16()))
    crawl = lc.Crawl(datasets.Dataset(pa.table({"id": ["short", "the other"], "tokens": tokens})))
    with pytest.raises(FormatError) as raised:
        crawl.to_rectangle(tmp_path / "made", context_length=20, end_of_text=END_OF_TEXT)
    assert str(raised.value) == (
        f"the other has {length} tokens, but a row holds 20: "
        "put min_tokens: {n: 20} and truncate: {n: 20} before the rectangle"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_document_without_tokens_is_refused(tmp_path):
    tokens = pa.array([[1] * 20, None], pa.list_(pa.uint16()))
    crawl = lc.Crawl(datasets.Dataset(pa.table({"id": ["a", "b"], "tokens": tokens})))
    with pytest.raises(FormatError, match="b has 0 tokens, but a row holds 20"):
        crawl.to_rectangle(tmp_path / "made", context_length=20, end_of_text=END_OF_TEXT)


def test_tokens_of_another_type_are_refused(tmp_path):
    crawl = lc.Crawl(datasets.Dataset.from_dict({"id": ["a"], "tokens": [[1, 2, 3]]}))
    with pytest.raises(StageError, match="a rectangle needs uint16 or uint32 tokens, got .*int64"):
        crawl.to_rectangle(tmp_path / "made", context_length=3, end_of_text=0)


def test_texts_without_tokens_are_refused(tmp_path):
    crawl = lc.Crawl(datasets.Dataset.from_dict({"id": ["a"], "text": ["b"]}))
    with pytest.raises(StageError, match="a rectangle needs a column 'tokens'; the documents have: id, text"):
        crawl.to_rectangle(tmp_path / "made", context_length=3, end_of_text=0)


def test_a_crawl_without_documents_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no documents to write: all were removed before the output"):
        build(tmp_path / "made", made_up(0, 20))


def test_without_truncate_the_length_must_be_said(tmp_path):
    with pytest.raises(StageError, match="a rectangle needs rows of equal length: add truncate: "):
        crawl_of(made_up(3, 20)).to_rectangle(tmp_path / "made", end_of_text=0)


def test_without_tokenize_the_end_of_text_must_be_said(tmp_path):
    with pytest.raises(StageError, match="rectangle needs an end-of-text token: add the stage tokenize"):
        crawl_of(made_up(3, 20)).to_rectangle(tmp_path / "made", context_length=20)


def test_what_is_there_is_not_written_over(tmp_path, directory_digest):
    path = build(tmp_path / "made", made_up(3, 20))
    before = directory_digest(path)
    with pytest.raises(LongCrawlError, match="made exists already: remove it, or choose another path"):
        build(path, made_up(3, 20, seed=1))
    assert directory_digest(path) == before


def test_a_build_that_fails_in_its_second_pass_leaves_nothing(tmp_path, small_bands):
    """That nothing would be left to train on is known only when all rows are there."""
    with pytest.raises(FormatError, match="heldout 200 takes 200 of 200 rows"):
        build(tmp_path / "made", made_up(200, 20), heldout=200)
    assert list(tmp_path.iterdir()) == []


# -------------------- memory


def peak_of_the_second_pass(folder: Path, rows: int) -> int:
    tokens = made_up(rows, 4096)
    writer = RectangleOutput(context_length=4096, end_of_text=END_OF_TEXT).writer([])
    tables = (crawl_of(tokens[first : first + 50]).data.data.table for first in range(0, rows, 50))
    named = (
        table.set_column(0, "id", pa.array([f"d{first + row}" for row in range(table.num_rows)]))
        for first, table in zip(range(0, rows, 50), tables, strict=True)
    )
    writer.spill(named, folder / "spill", 0)
    del tokens
    tracemalloc.start()
    try:
        for task in writer.plan(folder / "spill", 1):
            writer.write(folder / "spill", folder / "made", task)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_is_that_of_one_band_whatever_the_number_of_rows(tmp_path, small_bands):
    band_bytes = 64 * 4096 * 2
    few, many = peak_of_the_second_pass(tmp_path / "few", 128), peak_of_the_second_pass(tmp_path / "many", 1600)
    assert many < 1600 * 4096 * 2 / 3
    assert many < few + band_bytes
    assert many < 8 * band_bytes


# -------------------- verify


@pytest.fixture(scope="module")
def whole(text_rectangle) -> Path:
    path, _ = text_rectangle(json_escaped=True)
    return path


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def found_wrong(path: Path) -> bool:
    """Return whether verify finds something; what makes the folder no rectangle at all is an error of ours."""
    try:
        return bool(RectangleResult().verify(path).problems)
    except FormatError:
        return True


def test_a_whole_rectangle_has_no_problems(whole):
    verification = RectangleResult().verify(whole)
    assert verification.problems == ()
    assert str(verification).endswith("files compared with their SHA-256")
    assert "whole" in str(verification)


def test_one_flipped_bit_in_any_file_is_found(copy):
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        content = file.read_bytes()
        step = max(1, len(content) // (200 if file.name == "rectangle.json" else 12))
        for place in {*range(0, len(content), step), len(content) - 1}:
            for bit in (1, 32):
                file.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
                assert found_wrong(copy), f"byte {place} of {file.name}: {content[place]} ^ {bit}"
        file.write_bytes(content)
    assert not found_wrong(copy)


def test_every_missing_file_is_named(copy):
    for file in sorted(path for path in copy.rglob("*") if path.is_file() and path.name != "rectangle.json"):
        content = file.read_bytes()
        file.unlink()
        assert f"{file.relative_to(copy).as_posix()} is missing" in RectangleResult().verify(copy).problems
        file.write_bytes(content)


def test_a_cut_file_is_named(copy):
    shard = copy / "train" / "c" / "0" / "0"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-10])
    assert RectangleResult().verify(copy).problems == (f"train/c/0/0 has {size - 10:,} bytes, expected {size:,}",)


def test_a_changed_shape_is_named(copy):
    metadata = copy / "train" / "zarr.json"
    told = json.loads(metadata.read_text())
    told["shape"][0] = 9
    metadata.write_text(json.dumps(told))
    changed, opened = RectangleResult().verify(copy).problems
    assert re.fullmatch(r"train/zarr\.json has [\d,]+ bytes, expected [\d,]+", changed)
    assert opened.startswith("train cannot be opened")


def test_metadata_that_is_no_json_is_a_problem_and_no_traceback(copy):
    (copy / "train" / "zarr.json").write_text("{")
    (copy / "heldout" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array", "shape": []}')
    problems = RectangleResult().verify(copy).problems
    assert any(problem.startswith("train cannot be opened") for problem in problems)
    assert any(problem.startswith("heldout cannot be opened") for problem in problems)


def test_a_chunk_too_many_is_named(copy):
    (copy / "train" / "c" / "1").mkdir()
    shutil.copy(copy / "train" / "c" / "0" / "0", copy / "train" / "c" / "1" / "0")
    assert RectangleResult().verify(copy).problems == ("train/c/1/0 is not part of this rectangle",)


def test_a_missing_split_is_named(copy):
    shutil.rmtree(copy / "heldout")
    problems = RectangleResult().verify(copy).problems
    assert "split heldout is missing" in problems
    assert "heldout/c/0/0 is missing" in problems


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"longcrawl_rectangle": 1}', '{"longcrawl_rectangle": 99}', "\xff"]
)
def test_a_description_that_is_none_is_one_sentence(copy, text):
    (copy / "rectangle.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=r"rectangle\.json|rectangle of version"):
        RectangleResult().verify(copy)


def test_a_folder_without_a_rectangle_is_one_sentence(tmp_path):
    with pytest.raises(FormatError, match="holds no rectangle: expected rectangle.json, or arrays such as train.zarr"):
        RectangleResult().verify(tmp_path)
    with pytest.raises(FormatError, match="holds no rectangle"):
        RectangleResult().verify(tmp_path / "nowhere")


# -------------------- the original layout


def original(folder: Path, separator: str = ".", rows: int = 90, length: int = 70) -> tuple[Path, np.ndarray]:
    """Make a store as the original LongCrawl64 is one: Zarr v2, lz4 with shuffle, fill value 0; of small chunks."""
    tokens = made_up(rows, length)
    for split, part in (("train", tokens[10:]), ("heldout", tokens[:10])):
        array = zarr.create_array(
            str(folder / f"{split}.zarr"),
            shape=part.shape,
            chunks=(32, 32),
            dtype="uint16",
            zarr_format=2,
            compressors=numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
            fill_value=0,
            chunk_key_encoding={"name": "v2", "separator": separator},
        )
        array[:] = part
    return folder, tokens


@pytest.mark.parametrize("separator", [".", "/"])
def test_a_whole_original_store_has_no_problems(tmp_path, separator):
    path, _ = original(tmp_path / "store", separator)
    verification = RectangleResult().verify(path)
    assert verification.problems == ()
    assert "every chunk of heldout.zarr, train.zarr looked for and decoded" in verification.checked


@pytest.mark.parametrize("separator", [".", "/"])
def test_a_missing_chunk_of_an_original_store_is_named(tmp_path, separator):
    path, _ = original(tmp_path / "store", separator)
    (path / "train.zarr" / f"1{separator}2").unlink()
    assert RectangleResult().verify(path).problems == (f"train.zarr/1{separator}2 is missing and would be read as 0",)


@pytest.mark.parametrize("damage", ["empty", "cut", "cut by one", "header", "longer"])
def test_a_broken_chunk_of_an_original_store_is_named(tmp_path, damage):
    path, _ = original(tmp_path / "store")
    chunk = path / "train.zarr" / "0.1"
    content = chunk.read_bytes()
    chunk.write_bytes(
        {
            "empty": b"",
            "cut": content[: len(content) // 2],
            "cut by one": content[:-1],
            "header": b"\xff" * 16 + content[16:],
            "longer": content + b"more",
        }[damage]
    )
    (problem,) = RectangleResult().verify(path).problems
    assert problem.startswith("train.zarr/0.1 does not decode: ")


def test_a_wrong_shape_of_an_original_store_is_found_both_ways(tmp_path):
    path, _ = original(tmp_path / "store")
    metadata = path / "train.zarr" / ".zarray"
    told = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(told | {"shape": [told["shape"][0], 32]}))
    problems = RectangleResult().verify(path).problems
    assert "train.zarr/0.1 is outside the shape (80, 32): the shape is wrong" in problems
    metadata.write_text(json.dumps(told | {"shape": [told["shape"][0] + 32, 70]}))
    assert "train.zarr/3.0 is missing and would be read as 0" in RectangleResult().verify(path).problems


def test_metadata_of_an_original_store_that_is_no_json_is_a_problem(tmp_path):
    path, _ = original(tmp_path / "store")
    (path / "train.zarr" / ".zarray").write_text("{")
    (problem,) = RectangleResult().verify(path).problems
    assert problem.startswith("train.zarr cannot be opened")


def test_an_unfinished_rectangle_of_ours_is_checked_chunk_by_chunk(copy):
    (copy / "rectangle.json").unlink()
    missing = "rectangle.json is missing: without it no checksum can be compared"
    assert RectangleResult().verify(copy).problems == (missing,)
    (copy / "train" / "c" / "0" / "0").unlink()
    assert RectangleResult().verify(copy).problems == (missing, "train/c/0/0 is missing and would be read as 0")


def test_chunks_that_have_lost_their_metadata_are_a_problem(tmp_path):
    path, _ = original(tmp_path / "store")
    (path / "train.zarr" / ".zarray").unlink()
    (problem,) = RectangleResult().verify(path).problems
    assert problem == "train.zarr has chunks and no .zarray or zarr.json: it cannot be opened"


def test_the_original_layout_inspects_without_text(tmp_path):
    path, tokens = original(tmp_path / "store")
    inspection = RectangleResult().inspect(path, "heldout", 3)
    assert inspection.shape == (10, 70)
    assert inspection.text is None
    assert "no tokenizer.json beside the arrays: the row stays undecoded" in str(inspection)
    assert np.array_equal(zarr.open_array(str(path / "heldout.zarr"), mode="r")[:], tokens[:10])


# -------------------- inspect


@pytest.mark.variants
@pytest.mark.parametrize("json_escaped", [False, True])
def test_inspect_decodes_a_row_from_the_start_of_its_document(text_rectangle, json_escaped):
    path, texts = text_rectangle(json_escaped=json_escaped)
    seen = set()
    for split, rows in (("train", 10), ("heldout", 2)):
        for row in range(rows):
            inspection = RectangleResult().inspect(path, split, row)
            assert texts[inspection.row_id].startswith(inspection.text)
            assert inspection.text.startswith(f"№{inspection.row_id.split()[1]} ")
            assert len(inspection.text) > 300
            assert inspection.url == f"https://example.org/{inspection.row_id}"
            assert inspection.n_tokens >= 500
            seen.add(inspection.row_id)
    assert seen == set(texts)


def test_inspect_says_shape_codec_and_ratio(whole):
    inspection = RectangleResult().inspect(whole, "train", 0)
    assert (inspection.shape, inspection.dtype) == ((10, 500), "uint16")
    stored = (whole / "train" / "c" / "0" / "0").stat().st_size
    assert inspection.stored_bytes == stored
    assert inspection.ratio == pytest.approx(10 * 500 * 2 / stored)
    said = str(inspection)
    assert "10 rows x 500 tokens, uint16" in said
    assert "zstd" in said
    assert "noshuffle" in said
    assert f"rolled by {inspection.roll:,}; shown rolled back" in said


@pytest.mark.parametrize(
    ("split", "row", "said"),
    [
        ("train", 10, "has rows 0 to 9, not 10"),
        ("train", -1, "has rows 0 to 9, not -1"),
        ("test", 0, "has no split 'test'; known: heldout, train"),
        ("rows", 0, "has no split 'rows'; known: heldout, train"),
    ],
)
def test_inspect_names_what_is_not_there(whole, split, row, said):
    with pytest.raises(FormatError, match=said):
        RectangleResult().inspect(whole, split, row)


def test_inspect_of_a_damaged_rectangle_is_one_sentence(copy):
    rows = copy / "rows" / "train.parquet"
    content = rows.read_bytes()
    rows.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptionError, match=r"rows/train\.parquet has 967 bytes, expected 1,934"):
        RectangleResult().inspect(copy, "train", 0)
    rows.write_bytes(content)
    (copy / "train" / "c" / "0" / "0").unlink()
    with pytest.raises(CorruptionError, match="is missing, which holds chunk"):
        RectangleResult().inspect(copy, "train", 0)
    (copy / "train" / "zarr.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"train/zarr\.json has been changed"):
        RectangleResult().inspect(copy, "train", 0)


def test_inspect_of_nothing_is_one_sentence(tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "gpt-simple.json").write_text("{}")
    with pytest.raises(FormatError, match="has format 'gpt-simple', not rectangle: open it with lc.loading.Packed"):
        lc.loading.Rectangle(tmp_path / "shards", batch_size=1)
    with pytest.raises(FormatError, match="has no split 'train'; known: nothing"):
        RectangleResult().inspect(tmp_path / "nowhere", "train", 0)


def test_a_tokenizer_that_cannot_be_read_is_named_and_not_a_row(tmp_path):
    rows = [{"id": str(n), "text": f"the tide of number {n} was out " * 9} for n in range(3)]
    crawl = lc.Crawl(rows) | lc.tokens.Tokenize("trained", vocabulary_size=300)
    (crawl | lc.tokens.MinTokens(16) | lc.tokens.Truncate(16)).to_rectangle(tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: is not a tokenizer"):
        lc.inspect(tmp_path / "out", row=1)
