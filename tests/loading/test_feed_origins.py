"""Batches are traced back: of each row, the documents of the source, read again and tokenised, have these tokens."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import CorruptionError, LoaderError
from longcrawl.loading import ComposedBatches, Jsonl, Packed, Rectangle, WindowMixture, Windows

WORDS, END = 500, 501
LENGTH = 48
FILES, LINES = 3, 30


@pytest.fixture(scope="module")
def source(tmp_path_factory, write_word_tokenizer) -> Path:
    """Return a folder of JSON lines, some of them blank or without an id, and a tokenizer of words."""
    folder = tmp_path_factory.mktemp("source")
    chance = np.random.default_rng(3)
    for number in range(FILES):
        lines = []
        for line in range(LINES):
            text = " ".join(f"w{each}" for each in chance.integers(0, WORDS, int(chance.integers(1, 130))))
            record = {"text": text, "url": f"https://a/{number}/{line}", "date": f"2024-01-{line + 1:02}"}
            lines.append(json.dumps(record, ensure_ascii=False) if line != 7 else "")
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    write_word_tokenizer(folder / "tokenizer.json", WORDS, END)
    return folder


def crawl(source: Path, *stages: Any) -> Any:
    """Return the documents in tokens, in another order."""
    made = lc.open(str(source / "*.jsonl")) | lc.tokens.Tokenize(str(source / "tokenizer.json"))
    for stage in (*stages, lc.tokens.Shuffle(seed=1)):
        made = made | stage
    return made


def open_rectangle(source: Path, folder: Path) -> Rectangle:
    rows = crawl(source, lc.tokens.MinTokens(LENGTH), lc.tokens.Truncate(LENGTH)) | lc.tokens.Roll(seed=5)
    rows.to_rectangle(folder / "out", heldout=5)
    return Rectangle(folder / "out", batch_size=3, context_length=16, seam="mask")


def open_windows(source: Path, folder: Path) -> Any:
    crawl(source).to_megatron(folder / "out", shard_bytes=2_000)
    return Windows(folder / "out", 31, shuffle="windows", tail="pad").batches(4, leftover="short")


def open_overlapping(source: Path, folder: Path, share: float = 1.0) -> Any:
    windows = lc.tokens.Windows(24, 8, overlap_probability=share)
    crawl(source, lc.tokens.Truncate(100), windows).to_datatrove(folder / "out", shard_bytes=2_000)
    return Windows(folder / "out", 31, "index", shuffle="files").batches(4)


def open_flat(source: Path, folder: Path) -> Any:
    crawl(source).to_nanogpt(folder / "out", header="llm.c")
    return Windows(folder / "out", 31, format="nanogpt").batches(4)


def open_mixture(source: Path, folder: Path) -> WindowMixture:
    for number, name in enumerate(("web", "code")):
        crawl(source).to_gpt_simple(folder / name / "out", heldout=20 + number)
    windows = {name: Windows(folder / name / "out", 31, shuffle="windows") for name in ("web", "code")}
    return WindowMixture(windows, {"web": 2, "code": 1}, batch_size=4, epochs=2)


def open_packed(source: Path, folder: Path, *stages: Any) -> Packed:
    crawl(source, *stages).to_gpt_simple(folder / "out", shard_bytes=2_000)
    return Packed(folder / "out", max_length=64, batch_size=4, epochs=2)


def open_buckets(source: Path, folder: Path, form: str) -> ComposedBatches:
    crawl(source).to_composed(folder / "out", capacities=[16, 32], format=form, domains="source", heldout=3)
    return ComposedBatches(folder / "out", tokens_per_step=128, last_step="fill")


def open_jsonl(source: Path, path: Path, **settings: Any) -> Jsonl:
    given = {"max_length": 40, "batch_size": 4, "block_bytes": 900}
    return Jsonl(path, tokenizer=str(source / "tokenizer.json"), **given | settings)


def open_compressed(source: Path, folder: Path) -> Jsonl:
    for file in source.glob("*.jsonl"):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    return open_jsonl(source, folder, overlap_size=10)


FEEDS: dict[str, Callable[[Path, Path], Any]] = {
    "rectangle": open_rectangle,
    "windows": open_windows,
    "overlapping": open_overlapping,
    "some-overlapping": partial(open_overlapping, share=0.5),
    "llm.c": open_flat,
    "mixture": open_mixture,
    "packed": open_packed,
    "packed-windows": lambda source, folder: open_packed(source, folder, lc.tokens.Windows(40, 10)),
    "buckets-zarr": partial(open_buckets, form="zarr"),
    "buckets-datatrove": partial(open_buckets, form="datatrove"),
    "jsonl": lambda source, _: open_jsonl(source, source / "*.jsonl", shuffle="blocks"),
    "jsonl-compressed": open_compressed,
}


@pytest.fixture(scope="module")
def open_feed(source, tmp_path_factory) -> Callable[[str], Any]:
    """Return what writes the documents for a feed once, and opens it."""
    return cache(lambda kind: FEEDS[kind](source, tmp_path_factory.mktemp(kind)))


def read_again(source: Path, document: str) -> tuple[dict[str, Any], list[int]]:
    """Return a document of the source by its id, which is its file and line, and its tokens."""
    name, _, line = document.partition(":")
    record = json.loads((source / name.removesuffix(".gz")).read_text().split("\n")[int(line)])
    return record, [int(word[1:]) for word in record["text"].split()]


def as_stored(kind: str, words: list[int]) -> list[int]:
    """Return the tokens of a document as a feed's files have them."""
    if kind == "rectangle":
        return words[:LENGTH]
    if kind == "llm.c":
        return [END, *words]
    return [*words[:100], END] if kind in ("overlapping", "some-overlapping") else [*words, END]


def steps_of(feed: Any) -> list[int]:
    """Return where the steps of a feed begin; the first ones where nobody knows how many there are."""
    if isinstance(feed, Jsonl):
        return [step * feed.step_size for step in range(8)]
    return list(range(0, feed.stop(0), feed.step_size))


def traced(feed: Any, source: Path, kind: str, pairs: int) -> Iterator[lc.loading.Origin]:
    """Compare random rows with the documents that they are said to be of; yield the origins."""
    chance = np.random.default_rng(pairs)
    steps, done = steps_of(feed), 0
    while done < pairs:
        step = int(chance.choice(steps))
        batch, origins = feed.read(step), feed.origins(step // feed.step_size)
        tokens = batch["targets"] if "targets" in batch else batch["input_ids"]
        assert origins == sorted(origins, key=lambda each: (each.row, each.start))
        for row in range(len(tokens)):
            column = 0
            for each in (each for each in origins if each.row == row):
                record, words = read_again(source, each.document)
                expected = as_stored(kind, words)
                found = tokens[row, each.start : each.stop].tolist()
                assert each.start == column
                assert found == expected[each.token : each.token + len(found)]
                assert (each.url, each.date) == (record["url"], record["date"])
                column = each.stop
                yield each
            rest = tokens[row, column:].tolist()
            assert rest == [END] * len(rest)
            done += 1


@pytest.mark.variants
@pytest.mark.parametrize("kind", FEEDS)
def test_rows_are_those_of_their_documents(open_feed, source, kind):
    feed = open_feed(kind)
    if not feed.endless:
        for step in (-1, len(feed)):
            with pytest.raises(LoaderError, match=r"(only|steps) 0 to "):
                feed.origins(step)
    origins = list(traced(feed, source, kind, 12))
    assert len({each.document for each in origins}) > 4
    if kind == "jsonl":
        each = origins[0]
        with Path(each.file).open("rb") as file:
            file.seek(each.offset)
            assert json.loads(file.readline())["url"] == each.url


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEEDS)
def test_a_thousand_rows_are_those_of_their_documents(open_feed, source, kind):
    assert len(list(traced(open_feed(kind), source, kind, 1000))) >= 1000


def test_a_seam_is_masked_and_positions_begin_again(open_feed):
    feed = open_feed("rectangle")
    seams = 0
    for step in range(len(feed)):
        batch, origins = feed.read(step), feed.origins(step)
        for row in range(feed.batch_size):
            mine = [each for each in origins if each.row == row]
            begins = [each.start for each in mine[1:]]
            assert np.flatnonzero(~batch["loss_mask"][row]).tolist() == begins
            assert [each.seam for each in mine] == [begins[0] if begins else None] * len(mine)
            seam = begins[0] + 1 if begins else 16
            assert batch["position_ids"][row].tolist() == [*range(seam), *range(16 - seam)]
            assert not begins or mine[1].token == 0
            seams += len(begins)
    # A row's seam is in one of its windows, unless a window begins with it.
    assert len(feed) // 2 < seams
    kept = Rectangle(feed.path, batch_size=3, context_length=16)
    assert set(kept[0]) == {"text", "targets"}
    with pytest.raises(LoaderError, match="seam was 'mask' and is 'keep'"):
        kept.load_state_dict(feed.state_dict())


def test_rows_for_transformers_begin_again_too(open_feed):
    row = open_feed("rectangle").__getitems__([0])[0]
    assert {"input_ids", "labels", "position_ids"} <= set(row)


def test_what_nobody_recorded_is_none(tmp_path, open_feed):
    feed = open_feed("packed")
    shards = [Path(shard.path) for shard in feed.buckets[""].shards]
    for file in (file for shard in shards for file in shard.parent.glob(f"{shard.stem}.*")):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    alone = Packed(tmp_path, max_length=64, batch_size=4, packing="separate", shuffle="none")
    first = alone.origins(0)[0]
    assert (first.document, first.url, first.token, first.entry) == (None, None, 0, 0)
    shutil.copytree(feed.path, tmp_path / "copy")
    next((tmp_path / "copy").glob("documents/train/00000.parquet")).unlink()
    with pytest.raises(CorruptionError, match="missing"):
        Packed(tmp_path / "copy", max_length=64, batch_size=4, packing="separate", shuffle="none").origins(0)


def test_a_rectangle_without_rolls_keeps_its_seams(tmp_path):
    import zarr

    made = zarr.create_array(tmp_path / "train.zarr", shape=(8, 16), dtype=np.uint16, chunks=(8, 16), zarr_format=2)
    made[:] = 1
    feed = Rectangle(tmp_path, batch_size=4)
    assert [(each.row, each.entry, each.document, each.roll) for each in feed.origins(1)] == [
        (row, 4 + row, None, None) for row in range(4)
    ]
    with pytest.raises(LoaderError, match="seam='keep'"):
        Rectangle(tmp_path, seam="mask")[0]
