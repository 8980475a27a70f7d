"""Folders of token shards: their layout in outputs, the registered formats, and the split of each shard.

Specification
-------------
``NAME/`` holds shards of one format (each format's module has its specification) and tables of their documents:

* ``train/00000.bin``, ``train/00001.bin`` … and, if documents are held out, ``val/00000.bin`` …, with the files that
  belong to each. With ``buckets: COLUMN`` there is a folder for each value of that column, such as
  ``train/web/00000.bin``, named like the folders of languages in the output ``parquet``;
* ``documents/train/00000.parquet`` …: for each shard its documents in order, with ``shard`` (the path of its file of
  tokens), ``entry`` and ``entries`` (the number of its first entry in the shard, and how many it has, several if it is
  cut into windows), ``window_starts`` (the first token of each window, unless all are cut alike), ``n_tokens``
  and the origins that the documents have;
* ``tokenizer.json``, if the run made the tokens;
* ``NAME.json``, such as ``gpt-simple.json``, written last, with its own SHA-256 at its end: without it the output is
  unfinished.

Every document ends with the end-of-text token, or begins with it under the header of llm.c. A document and its windows
are in one shard.

A folder at any depth with a usual name of held-out data, :data:`HELD_OUT`, is a split: held-out shards are never
training data.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards import (  # noqa: F401  # each registers its format
    datatrove,
    gpt_simple,
    levanter,
    litdata,
    mds,
    megatron,
    nanogpt,
    olmo_core,
    parquet,
)
from longcrawl.formats.shards.base import FORMATS, ShardFormat
from longcrawl.formats.shards.shard import TokenShard, local_path
from longcrawl.io import structured
from longcrawl.io.files import list_files
from longcrawl.io.structured import Verification, load_json

__all__ = ["FORMATS", "find_format", "open_shard", "shard_suffixes", "shards_in", "verify_shard", "verify_shards"]
VERSION = 1
TRAIN = "train"
HELD_OUT = ("val", "valid", "validation", "dev", "eval", "test", "heldout")
"""Usual names of folders with held-out data; all but "test" are synonyms."""
SPLITS = (TRAIN, *HELD_OUT)
TABLES = ("documents", "pieces", "rows")
"""Folders of an output, beside its splits, with tables of the origins of documents, pieces or rows."""
RUN_TABLES = ("edits", "ledger", "tokens")
"""Folders of a run, beside its output, with tables that are not shards to train on."""
STARTS = "window_starts"
"""Column of the tables of documents with the first token of each window, if documents are not all cut alike."""
KIND = "longcrawl_token_shards"
ARRAYS = {
    "composed.json": (
        "; it is a composed dataset whose arrays lc.loading.ComposedBatches reads: for token shards, write it again "
        "with --set outputs.composed.format=gpt-simple"
    ),
    "rectangle.json": (
        "; it is a rectangle whose arrays lc.loading.Rectangle reads: for token shards, write it again with an "
        "output such as gpt-simple"
    ),
    "zarr.json": "; lc.loading.Rectangle and lc.loading.ComposedBatches read the arrays there",
}
"""Ends of the message about a folder without token shards, by a file that shows what it holds."""


def find_format(path: "str | Path", name: str | None = None) -> type[ShardFormat]:
    """Return the format of this name or, without one, the format of the files at ``path``."""
    if name is not None:
        return FORMATS.find(name, "format")
    file = local_path(path)
    # Formats that other packages announce are found only by name.
    for each in map(FORMATS.__getitem__, FORMATS.loaded()):
        if each.is_at(file):
            return each
    if file.suffix in gpt_simple.OTHER_SUFFIXES:
        raise FormatError(
            f"{path} is not a token shard, whose name ends in .ds, .bin, .npy or .parquet: check the path"
        )
    data, index = gpt_simple.BinAndIdx.shard_files(file)
    if index.is_file():
        raise CorruptionError(f"{index} does not begin like an index of GPT-Simple or Megatron: fetch it again")
    if not data.is_file():
        raise FormatError(f"no token shard at {path}: its name must end in .ds, .bin, .npy or .parquet")
    raise FormatError(
        f"{data} has no {index.name} beside it and no header: if it is a flat file of tokens, give its format, "
        "nanogpt, or add --from nanogpt"
    )


def read_description(path: Path, name: str) -> dict[str, Any]:
    """Read ``NAME.json``; errors are those of :func:`longcrawl.io.structured.read_description`."""
    needed = ("splits", "dtype", "end_of_text", "json_escaped", "files")
    return structured.read_description(path / f"{name}.json", "token_shards", VERSION, needed, ("documents", "tokens"))


def shard_suffixes(name: str | None = None) -> set[str]:
    """Return the suffixes of shards of the format called ``name``, or of all formats if there is no such format."""
    names = [name] if name is not None and name in FORMATS else FORMATS.loaded()
    return {FORMATS[each].suffix for each in names}


def open_shard(path: "str | Path", format: str | None = None, **settings: Any) -> TokenShard:  # noqa: A002  # the usual word for it
    """Open a token shard of any format, with the settings of its module's ``open``.

    >>> open_shard("00000_tokens.ds", vocabulary_size=50_257)  # doctest: +SKIP
    TokenShard(path='00000_tokens.ds', format='datatrove', end_of_text=None, vocabulary_size=50257, ...)

    Raises:
        FormatError: there is no shard, or its format does not have such a setting.
        CorruptionError: its files contradict each other or the settings; the message names file and byte.
    """
    found = find_format(path, format)
    return found.open(path, **settings)


def verify_shard(path: "str | Path", format: str | None = None, **settings: Any) -> Verification:  # noqa: A002  # the usual word for it
    """Check a token shard completely, and list its problems; FormatErrors are those of :func:`open_shard`."""
    try:
        found = find_format(path, format)
    except CorruptionError as broken:
        return Verification(str(path), "the first bytes looked at", (str(broken),))
    return found.verify(path, **settings)


def verify_shards(folder: "str | Path", format: str | None = None, **settings: Any) -> Verification:  # noqa: A002  # the usual word for it
    """Check all token shards below a folder and list their problems, with the errors of :func:`verify_shard`."""
    found = [verify_shard(file, format, **settings) for file in shards_in(Path(folder), format, None)]
    checked = found[0].checked if len(found) == 1 else f"{len(found):,} shards, the first: {found[0].checked}"
    return Verification(str(folder), checked, tuple(problem for each in found for problem in each.problems))


def shards_in(folder: Path, name: str | None = None, split: str | None = "train") -> list[Path]:
    """List the shards of a format, or all, below a folder, sorted; in an output, those that its description lists.

    Tables of documents or pieces beside the splits of an output are not shards. The split is such as "train" or "val",
    see :func:`sort_into_splits`, or None for all.
    """
    suffixes = shard_suffixes(name)
    there = list_files(folder)
    folders = {step.as_posix() for file in there for step in Path(file).parents}
    outputs = _outputs(folder, there)
    manifests = (file for file in there if file.rpartition("/")[2] == "manifest.json")
    found_runs = (file for file in manifests if "longcrawl_run" in (_read_object(folder / file) or {}))
    runs = {name.rpartition("/")[0] for name in (*filter(None, outputs), *found_runs)}
    run_tables = {_below(run, table) for run in runs for table in RUN_TABLES}
    found = []
    for file in (file for file in there if f"/{file}".endswith(tuple(suffixes))):
        if name is None and file.endswith(olmo_core.SUFFIX) and olmo_core.has_header(folder / file):
            continue  # .npy is the suffix of any array
        output = next((each for each in reversed(_folders(file)) if each in outputs), None)
        if output is not None:
            format_name, listed = outputs[output]
            if file in listed and name in (None, format_name):
                found.append(file)
        elif not (beside_shards(file, folders) or run_tables.intersection(_folders(file))):
            found.append(file)
    splits = {} if split is None else sort_into_splits(found, outputs)
    chosen = found if split is None else splits.get(named_split(split, splits.__contains__), [])
    if not chosen:
        what = "no token shard" if split is None else f"no token shard of the split {split!r}"
        others = f"; splits: {', '.join(map(repr, splits))}" if splits else ""
        others += next((say for file, say in ARRAYS.items() if any(Path(each).name == file for each in there)), "")
        raise FormatError(f"{folder} holds {what}: no file that ends in {' or '.join(sorted(suffixes))}{others}")
    return [folder / file for file in chosen]


def _outputs(folder: Path, files: list[str]) -> dict[str, tuple[str, set[str]]]:
    """Return the format and the shards of each output below a folder; all paths are relative to that folder."""
    outputs = {}
    for path in map(Path, files):
        is_named = path.suffix == ".json" and path.stem in FORMATS.loaded()
        if is_named and (listed := described_shards(folder / path)) is not None:
            output = "" if path.parent == Path() else path.parent.as_posix()
            outputs[output] = path.stem, {_below(output, name) for name in listed}
    return outputs


def sort_into_splits(names: Iterable[str], outputs: Collection[str] = ()) -> dict[str, list[str]]:
    """Sort shards into splits: those below a folder of :data:`HELD_OUT` are of that split, all others are "train".

    >>> sort_into_splits(["out/train/web/0.bin", "out/val/web/0.bin", "other/0.bin"])
    {'train': ['out/train/web/0.bin', 'other/0.bin'], 'val': ['out/val/web/0.bin']}

    Folders in ``outputs`` have an output's description: their own splits take precedence over those around them. A
    shard beside a held-out split that is not in ``train/`` is a FormatError, as its split is unknown.
    """
    listed = list(names)
    folders = {folder for name in listed for folder in _folders(name)}
    splits: dict[str, list[str]] = {}
    for name in listed:
        splits.setdefault(_split_of(name, folders, outputs), []).append(name)
    return splits


def beside_shards(name: str, folders: Collection[str]) -> bool:
    """Return whether a file is in a folder of tables beside splits, such as ``documents/train/00000.parquet``.

    ``folders`` are all existing folders, relative, "" for the one that names are relative to.
    """
    return any(
        PurePosixPath(folder).name in TABLES and _below(folder.rpartition("/")[0], split) in folders
        for folder in _folders(name)
        for split in SPLITS
    )


def described_shards(description: Path) -> list[str] | None:
    """Return the files in splits that an output's description lists, by relative path, or None for other files."""
    described = _read_object(description)
    if described is None or KIND not in described or not isinstance(described.get("files"), dict):
        return None
    return [name for name in described["files"] if name.partition("/")[0] in SPLITS]


def _read_object(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = load_json(file.read_text("utf-8"))
        return found if isinstance(found, dict) else None
    return None


def named_split(wanted: str, is_there: Callable[[str], bool]) -> str:
    """Resolve the name of a split: the wanted one, or its only existing synonym; FormatError if there are several.

    >>> named_split("val", {"train", "validation", "test"}.__contains__)
    'validation'
    """
    alike = [name for name in HELD_OUT if name != "test"]
    if wanted not in alike or is_there(wanted):
        return wanted
    found = [name for name in alike if is_there(name)]
    if len(found) > 1:
        raise FormatError(f"no split {wanted!r}: choose one of {', '.join(map(repr, found))}")
    return found[0] if found else wanted


def _split_of(name: str, folders: Collection[str], outputs: Collection[str]) -> str:
    # The Hub's own names of parquet files, such as heldout-00000-of-00001.parquet, contain the split.
    first, _, rest = PurePosixPath(name).name.partition("-")
    if first in SPLITS and "-of-" in rest and name.endswith(parquet.SUFFIX):
        return first
    # An output's own splits take precedence over folders around it.
    for folder in sorted(_folders(name), key=lambda each: each not in outputs):
        there = [split for split in SPLITS if _below(folder, split) in folders]
        inside = next((split for split in there if name.startswith(f"{_below(folder, split)}/")), None)
        held_out = [split for split in there if split != TRAIN]
        if inside in held_out or (inside == TRAIN and (held_out or folder in outputs)):
            return inside or TRAIN
        if held_out:
            raise FormatError(
                f"{name} is beside the folder{'s' * (len(there) > 1)} {' and '.join(there)}, so its split is "
                "unknown: move it into one of them, or into train, or list the files"
            )
    return TRAIN


def _folders(name: str) -> list[str]:
    steps = name.split("/")
    return ["/".join(steps[:count]) for count in range(len(steps))]


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
