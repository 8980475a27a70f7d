"""Rows of LongCrawl64, fetched from the Hub into a local rectangle.

Public copies have only part of its files. Bands of 2,048 rows with all their files are taken first, then bands with
enough files for the requested context. Files are compared with the Hub's own digests and decoded. A stopped fetch
resumes with the missing chunks, from the same commit.
"""

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from datasets.utils import tqdm

from longcrawl.errors import CorruptionError, HubError, check_word, one_line, warn_user
from longcrawl.formats.rectangle import spec
from longcrawl.formats.rectangle.write import BAND, ORIGINS, Layout, lay_out, write_band
from longcrawl.io.file_systems import fetch as fetch_bytes
from longcrawl.io.files import file_entries, remove_partial, whole_file, whole_files, write_text, writing
from longcrawl.io.stored_tables import write_table
from longcrawl.io.structured import Marker, seal
from longcrawl.publish.hub import client
from longcrawl.urls import REPOSITORY

KNOWN = ("longcrawl64",)
SPLITS = ("train", "heldout")
Files = Mapping[str, client.RemoteFile]
"""Files of an array, by name in its folder."""

REQUESTS = 16
BEGUN = ".fetch"
VOCABULARY = 50_257
"""Number of GPT-2 ids; the article's 50,304 includes padding."""


@dataclass(frozen=True)
class Request:
    """Parameters of a fetch, which must be the same for it to resume."""

    name: str
    repo: str
    revision: str
    array: str
    split: str
    rows: int
    context: int
    zarr_format: Literal[2, 3]
    bands: tuple[int, ...]
    """Numbers of the source array's bands, in the order of the rectangle."""


@dataclass(frozen=True)
class Fetched:
    """Summary of a fetched rectangle."""

    path: str
    repo: str
    revision: str
    split: str
    rows: int
    context: int
    complete: int
    """Number of rows with enough tokens in the repository."""
    of: int

    def __str__(self) -> str:
        return one_line(
            f"{self.path}: {self.split} {self.rows:,} x {self.context:,} of {self.repo} at {self.revision[:12]}, which "
            f"has {self.complete:,} of {self.of:,} rows"
        )

    __repr__ = __str__


def fetch(
    name: str,
    repo: str,
    out: str | Path,
    rows: int | None = None,
    context: int | None = None,
    split: str = "train",
    zarr_format: Literal[2, 3] = 2,
    revision: str | None = None,
) -> Fetched:
    """Fetch rows of a dataset on the Hub in the layout of LongCrawl64, or resume a stopped fetch.

    Args:
        name: name of the dataset: "longcrawl64".
        repo: ``org/name`` on the Hub.
        out: folder of the rectangle, which is new or has the same fetch.
        rows: number of rows, or None for all complete rows.
        context: tokens per row, from the first on, or None for all.
        split: "train" or "heldout".
        zarr_format: 2 copies chunks unchanged; 3 writes shards of 2,048 rows, with a crc32c after each chunk.
        revision: a branch, tag or commit, or None for ``main``; a resumed fetch uses its first commit.

    Raises:
        HubError: the dataset does not exist, no row is complete, or the folder holds something else.
        CorruptionError: a file differs from the Hub's description or does not decode, or a file of a finished fetch is
            missing.
        NotYetError: the Hub does not answer; run the same again.
    """
    target = Path(out)
    _check(name, repo, split, zarr_format, rows=rows, context=context)
    begun = _begun(target)
    with client.hub_errors(repo):
        from huggingface_hub import HfApi, HfFileSystem

        wanted = revision or (begun.revision if begun and begun.repo == repo else None)
        commit = str(HfApi(library_name="longcrawl").dataset_info(repo, revision=wanted).sha)
        listed = client.remote_files(HfFileSystem(), f"datasets/{repo}@{commit}")
    place = _find_array(repo, listed, split)
    array = spec.open_split(f"hf://datasets/{repo}@{commit}/{place}".removesuffix("/"), split)
    inside = f"{place}/{array.name}/".removeprefix("/")
    there = {path.removeprefix(inside): file for path, file in listed.items() if path.startswith(inside)}
    length = context or array.shape[1]
    bands, count, complete = _choose_bands(repo, array, there, rows, length)
    if zarr_format == 2 and (array.engine != "direct" or array.layout.index_at != "none"):
        raise HubError(f"{repo} does not have one blosc chunk per file, which could be copied: add --zarr-format 3")
    request = Request(name, repo, commit, inside.rstrip("/"), split, count, length, zarr_format, bands)
    if begun is not None and begun != request:
        raise HubError(f"{target} holds another fetch, {begun}: choose another folder, or run that command again")
    done = Fetched(str(target), repo, commit, split, request.rows, request.context, complete, array.shape[0])
    if (target / spec.DESCRIPTION).exists():
        for name_of, entry in spec.read_description(target).get("files", {}).items():
            file = target / name_of
            if not file.is_file() or file.stat().st_size != entry["bytes"]:
                raise CorruptionError(f"{file} is missing or cut: remove {target} and run the same command again")
        return done
    with writing(target, HubError, "make room and run the same command again; what was fetched is kept"):
        (target / BEGUN).mkdir(parents=True, exist_ok=True)
        remove_partial(target)
        Marker(target / BEGUN / "request.json", asdict(request), {}).write()
        taken = spec.take_bands(array, request.bands)
        _fetch_bands(target, taken, request, there)
        _finish(target, taken, request)
    return done


def _check(name: str, repo: str, split: str, zarr_format: int, **counts: int | None) -> None:
    if name not in KNOWN:
        raise HubError(f"{name!r} cannot be fetched, only {', '.join(KNOWN)} can: use `hf download` for other datasets")
    if not REPOSITORY.fullmatch(repo):
        raise HubError(f"{repo!r} is not the name of a dataset on the Hub: write it as org/name")
    if split not in SPLITS:
        raise HubError(f"no split {split!r}: choose {' or '.join(SPLITS)}")
    check_word("zarr_format", zarr_format, (2, 3), HubError)
    for word, count in counts.items():
        if count is not None and count < 1:
            raise HubError(f"{word} is {count}: ask for 1 or more")


def _begun(target: Path) -> Request | None:
    if (target / spec.DESCRIPTION).is_file():
        found = spec.read_description(target).get("fetched")
    else:
        marker = Marker.read(target / BEGUN / "request.json")
        found = None if marker is None else marker.content
    if found is not None:
        return Request(**{**found, "bands": tuple(found["bands"])})
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise HubError(f"{target} is not empty, and holds no fetch to resume: choose another folder")
    return None


def _find_array(repo: str, listed: Mapping[str, client.RemoteFile], split: str) -> str:
    """Return the repository folder that contains a split, the outermost one if there are several."""
    names = [f"{name}/{file}" for name in (f"{split}.zarr", split) for file in (".zarray", "zarr.json")]
    found = [path for path in listed if any(path == name or path.endswith(f"/{name}") for name in names)]
    if not found:
        raise HubError(f"{repo} has no {split}.zarr in its {len(listed):,} files: check the name, or --revision")
    first = min(found, key=lambda path: (path.count("/"), path))
    return first.rpartition("/")[0].rpartition("/")[0]


def _choose_bands(
    repo: str, array: spec.SplitArray, there: Files, rows: int | None, length: int
) -> tuple[tuple[int, ...], int, int]:
    """Return the bands to fetch, the number of rows to take from them, and the number of complete rows."""
    layout = array.layout
    if length > array.shape[1]:
        raise HubError(
            f"context is {length:,}, but rows of {repo} have {array.shape[1]:,} tokens: ask for at most that many"
        )
    whole, enough = spec.whole_bands(layout, there), spec.whole_bands(layout, there, length)
    height = layout.file_shape[0]
    # A short band can only be the last one.
    short = -(-layout.shape[0] // height) - 1 if layout.shape[0] % height else -1
    order = sorted(enough, key=lambda band: (band == short, band not in whole, band))
    heights = np.array([min(layout.shape[0] - band * height, height) for band in order], np.int64)
    complete = int(heights.sum())
    if not complete:
        raise HubError(
            f"{repo} has no complete rows of {length:,} tokens: {len(there):,} files of {layout.files:,} are there; "
            "ask for a shorter --context"
        )
    if rows is not None and rows > complete:
        warn_user(f"{repo} has {complete:,} complete rows of {length:,} tokens, but {rows:,} were requested")
    count = min(rows or complete, complete)
    taken = int(np.searchsorted(np.cumsum(heights), count)) + 1
    return tuple(order[:taken]), count, complete


def _fetch_bands(target: Path, array: spec.SplitArray, request: Request, there: Files) -> None:
    write = _copy_band if request.zarr_format == 2 else _write_band
    height = array.layout.chunks[0] if request.zarr_format == 2 else BAND
    with ThreadPoolExecutor(REQUESTS) as threads:
        for number in tqdm(range(-(-request.rows // height)), desc="fetch", unit="band"):
            marker = target / BEGUN / f"{number:05d}.json"
            if Marker.whole(marker) is None:
                names = write(target, array, request, there, threads, number)
                Marker(marker, {}, Marker.entries(marker, [target / name for name in names])).write()


def _copy_band(
    target: Path, array: spec.SplitArray, request: Request, there: Files, threads: ThreadPoolExecutor, number: int
) -> list[str]:

    def copy(column: int) -> str:
        name = f"{request.split}/{number}.{column}"
        file = target / name
        remote = there[array.file_of(number, column)]
        # Files of a stopped fetch are not fetched again.
        if not (file.is_file() and remote.is_content(file.read_bytes())):
            content = _checked(array, there, number, column)
            array.decode(content, number, column)
            with whole_file(file) as beside:
                beside.write_bytes(content)
        return name

    return list(threads.map(copy, range(-(-request.context // array.layout.chunks[1]))))


def _write_band(
    target: Path, array: spec.SplitArray, request: Request, there: Files, threads: ThreadPoolExecutor, number: int
) -> list[str]:
    ours, (height, width) = _layout(array, request), array.layout.chunks
    first, stop = number * BAND, min((number + 1) * BAND, request.rows)
    tokens = np.full((ours.whole_chunks(stop - first), request.context), array.end_of_text, array.dtype)
    whole = array.layout.index_at == "none" and array.engine == "direct"

    def place(chunk: tuple[int, int]) -> None:
        found = array.decode(_checked(array, there, *chunk), *chunk) if whole else array.read_chunk(*chunk)
        row, left = chunk[0] * height, chunk[1] * width
        kept = found[max(first - row, 0) : stop - row, : request.context - left]
        top = max(row - first, 0)
        tokens[top : top + len(kept), left : left + kept.shape[1]] = kept

    rows, columns = range(first // height, -(-stop // height)), range(-(-request.context // width))
    list(threads.map(place, ((row, column) for row in rows for column in columns)))
    return write_band(target, request.split, number, tokens, ours)


def _checked(array: spec.SplitArray, there: Files, row: int, column: int) -> bytes:
    name = array.file_of(row, column)
    url = f"{array.root}/{array.name}/{name}"
    content = fetch_bytes(url)
    if not there[name].is_content(content):
        raise CorruptionError(f"{url} differs from the Hub's digest: run the same command again, or tell its owner")
    return content


def _layout(array: spec.SplitArray, request: Request) -> Layout:
    return Layout(request.context, str(array.dtype), array.end_of_text, 3, "zstd")


def _finish(target: Path, array: spec.SplitArray, request: Request) -> None:
    attributes = {
        "end_of_text": array.end_of_text,
        "vocabulary_size": array.vocabulary_size or VOCABULARY,
        "tokenizer": None,
        "json_escaped": True,
        "rolled": True,
    }
    if request.zarr_format == 3:
        lay_out(target, {request.split: (_layout(array, request), request.rows)}, attributes)
    else:
        metadata = json.loads(fetch_bytes(f"{array.root}/{array.name}/.zarray"))
        metadata |= {"shape": [request.rows, request.context]}
        write_text(target / ".zgroup", json.dumps({"zarr_format": 2}))
        write_text(target / ".zattrs", json.dumps(attributes))
        write_text(target / request.split / ".zarray", json.dumps(metadata))
    numbers = chain.from_iterable(array.stored_rows(0, request.rows))
    ids = pa.array([f"{request.split}/{number}" for number in numbers])
    others = {field.name: pa.nulls(len(ids), field.type) for field in ORIGINS if field.name != "id"}
    table = pa.table({"row": pa.array(np.arange(len(ids))), "id": ids, **others})
    write_table(table, target / "rows" / f"{request.split}.parquet", compression="zstd")
    names = [path.relative_to(target) for path in whole_files(target)]
    files = [name.as_posix() for name in names if name.parts[0] != BEGUN]
    described = {
        "longcrawl_rectangle": spec.VERSION,
        "zarr_format": request.zarr_format,
        "dtype": str(array.dtype),
        "shapes": {request.split: [request.rows, request.context]},
        **attributes,
        "fetched": asdict(request),
        "files": file_entries(target, sorted(files)),
    }
    write_text(target / spec.DESCRIPTION, seal(described))
    shutil.rmtree(target / BEGUN)
