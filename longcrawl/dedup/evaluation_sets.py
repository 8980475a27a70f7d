"""Evaluation sets as texts: datasets, files, folders of ``save_to_disk`` and names of the Hub."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.errors import StageError, reason_of
from longcrawl.kernels.kept_arrays import cache_folder
from longcrawl.storage.files import whole_file, writing
from longcrawl.urls import REPOSITORY

if TYPE_CHECKING:
    from datasets import Dataset

FOLDER = "evaluation"
"""Of the cache folder: texts of datasets, and indexes."""
SPLITS = ("test", "validation", "dev", "valid", "val", "eval", "train")
"""Names of splits, by which a file is not called; of a dataset the first of those that it has is read."""

_BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "text"}
_MEDIUM = {"bytes", "path"}
"""Fields of an image or a sound in `datasets`: no text."""
_EMPTY = "has no rows: leave it out, or name another split"
_PACKED = (".gz", ".zst", ".xz", ".bz2")
_FORMS = "a dataset, a .jsonl, .json, .parquet, .csv or .txt file, a folder of save_to_disk or ORG/NAME of the Hub"


class EvaluationSet(NamedTuple):
    """The items of one evaluation set."""

    name: str
    items: pa.Array
    """Large strings, one per row; what belongs to an item stands in lines."""


def keep_dataset(data: Any) -> str:
    """Return what names an evaluation set: a name or path as it is, of a dataset the path of its texts.

    They are written to ``$XDG_CACHE_HOME/longcrawl/evaluation``, to a file that is named after their content.

    Raises:
        StageError: it is neither, it has no text, or the folder cannot be written.
    """
    if isinstance(data, str | Path):
        return str(data)
    from datasets import Dataset, DatasetDict

    if isinstance(data, DatasetDict):
        data = _split(data, "the evaluation set")
    if not isinstance(data, Dataset):
        raise StageError(f"decontaminate.against takes {_FORMS}, not a {type(data).__name__}")
    table = _text_columns(data.with_format("arrow")[:])
    _check_items(table, data.column_names, "the dataset")
    digest = hashlib.sha256(json.dumps(table.to_pydict()).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    name = data.info.dataset_name or data.info.builder_name or "dataset"
    path = cache_folder() / FOLDER / f"{name}-{digest}.parquet"
    if not path.exists():
        with writing(path, StageError, "set XDG_CACHE_HOME, or give the path of a file"), whole_file(path) as beside:
            pq.write_table(table, beside)
    return str(path)


def read_evaluation_set(given: str, columns: Sequence[str]) -> EvaluationSet:
    """Read an evaluation set by its path or its name on the Hub, ``ORG/NAME[@REVISION][:CONFIGURATION[:SPLIT]]``.

    Args:
        given: see above.
        columns: those that make an item, of which it has some; all columns with text if empty.

    Raises:
        StageError: it cannot be read, or has no such column.
    """
    data, name = _opened(given)
    shown = given if kept_name(given) is None else f"the evaluation set {name}"
    held = [column for column in columns if column in data.column_names]
    if columns and not held:
        raise StageError(
            f"{shown} has none of the columns {', '.join(columns)}; it has: {', '.join(data.column_names)}; set columns"
        )
    table = _text_columns((data.select_columns(held) if held else data).with_format("arrow")[:])
    _check_items(table, data.column_names, shown)
    return EvaluationSet(name, _joined(table))


def kept_name(given: str) -> str | None:
    """Return the name, with its digest, of a dataset that :func:`keep_dataset` has written; None of anything else."""
    return Path(given).stem if Path(given).parent == cache_folder() / FOLDER else None


def _check_items(table: pa.Table, columns: Sequence[str], shown: str) -> None:
    if not table.num_columns:
        raise StageError(f"{shown} has no column of text; it has: {', '.join(columns) or 'none'}")
    if not table.num_rows:
        raise StageError(f"{shown} {_EMPTY}")


def _opened(given: str) -> tuple["Dataset", str]:
    import datasets

    path = Path(given)
    suffixes = [suffix for suffix in path.suffixes if suffix not in _PACKED]
    builder = _BUILDERS.get(suffixes[-1]) if suffixes else None
    if path.is_file() and not path.stat().st_size:
        raise StageError(f"{given} {_EMPTY}")
    try:
        if path.is_dir():
            return _split(datasets.load_from_disk(given), given), _name(path)
        if path.is_file() and builder is not None:
            options = {"sep": "\t"} if suffixes[-1] == ".tsv" else {}
            return datasets.load_dataset(builder, data_files=given, split="train", **options), _name(path)
        repository, _, chosen = given.partition(":")
        repository, _, revision = repository.partition("@")
        if not path.exists() and REPOSITORY.fullmatch(repository):
            config, _, split = chosen.partition(":")
            data = datasets.load_dataset(repository, config or None, split=split or None, revision=revision or None)
            return _split(data, given), repository.partition("/")[2]
    except StageError:
        raise
    except Exception as failed:  # what `datasets` raises depends on the format
        raise StageError(
            f"{given} cannot be read as an evaluation set ({reason_of(failed)}); give {_FORMS}"
        ) from failed
    raise StageError(f"there is no evaluation set at {given}; give {_FORMS}")


def _split(data: Any, given: str) -> "Dataset":
    from datasets import Dataset

    if isinstance(data, Dataset):
        return data
    name = next((name for name in SPLITS if name in data), None)
    if name is None:
        raise StageError(f"{given} has the splits {', '.join(map(str, data))}, none of which is for tests: name one")
    return data[name]


def _name(path: Path) -> str:
    """Name a file by its stem, with its folder where that is a split's name; without the digest of what we keep."""
    if kept := kept_name(str(path)):
        return kept.rpartition("-")[0]
    stem = path.name.partition(".")[0] or path.name
    return f"{path.absolute().parent.name}/{stem}" if stem.startswith(SPLITS) else stem


def _text_columns(table: pa.Table) -> pa.Table:
    """Return the columns with text but for ids, as large strings: of lists and structs a line for each text."""
    made = {field.name: table[field.name] for field in table.schema if field.name != "id" and _has_text(field.type)}
    return pa.table({name: _strings(values) for name, values in made.items()})


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        inside = [field.type for field in fields if field.name != "id"]
        return {field.name for field in fields} != _MEDIUM and any(map(_has_text, inside))
    if pa.types.is_dictionary(kind) or (pa.types.is_nested(kind) and hasattr(kind, "value_type")):
        return _has_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _strings(values: pa.ChunkedArray) -> pa.Array:
    """Return the texts of each row in lines, "" for none."""
    if not pa.types.is_nested(values.type):
        return pc.fill_null(pc.cast(values.combine_chunks(), pa.large_string()), "")
    return pa.array(["\n".join(_texts(value)) for value in values.to_pylist()], pa.large_string())


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of lists and structs in their order, but for ids, images and sounds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and value.keys() != _MEDIUM:
        for name, inside in value.items():
            yield from _texts(inside) if name != "id" else ()
    elif isinstance(value, list):
        for inside in value:
            yield from _texts(inside)


def _joined(table: pa.Table) -> pa.Array:
    """Return the values of each row in lines, in the order of the columns."""
    parts = [column.combine_chunks() for column in table.columns]
    return pc.binary_join_element_wise(*parts, pa.scalar("\n", pa.large_string()))
