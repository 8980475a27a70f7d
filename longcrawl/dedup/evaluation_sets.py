"""Evaluation sets as texts: datasets, files, folders of ``save_to_disk`` and names of the Hub."""

import hashlib
import json
from collections.abc import Sequence
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
        StageError: it is neither, or the folder cannot be written.
    """
    if isinstance(data, str | Path):
        return str(data)
    from datasets import Dataset, DatasetDict

    if isinstance(data, DatasetDict):
        data = _split(data, "the evaluation set")
    if not isinstance(data, Dataset):
        raise StageError(f"decontaminate.against takes {_FORMS}, not a {type(data).__name__}")
    table = _text_columns(data.with_format("arrow")[:])
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
        columns: those that make an item, of which it has some; all columns of text or of lists of text if empty.

    Raises:
        StageError: it cannot be read, or has no such column.
    """
    data, name = _opened(given)
    held = [column for column in columns if column in data.column_names]
    if columns and not held:
        raise StageError(
            f"{given} has none of the columns {', '.join(columns)}; it has: {', '.join(data.column_names)}; set columns"
        )
    table = _text_columns((data.select_columns(held) if held else data).with_format("arrow")[:])
    if not table.num_columns:
        raise StageError(f"{given} has no column of text; it has: {', '.join(data.column_names)}")
    return EvaluationSet(name, _joined(table))


def _opened(given: str) -> tuple["Dataset", str]:
    import datasets

    path = Path(given)
    suffixes = [suffix for suffix in path.suffixes if suffix not in _PACKED]
    builder = _BUILDERS.get(suffixes[-1]) if suffixes else None
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
    stem = path.name.partition(".")[0] or path.name
    if path.parent == cache_folder() / FOLDER:
        return stem.rpartition("-")[0]
    return f"{path.absolute().parent.name}/{stem}" if stem.startswith(SPLITS) else stem


def _text_columns(table: pa.Table) -> pa.Table:
    """Return the columns of text and of lists of text, but for ids."""

    def is_text(kind: pa.DataType) -> bool:
        inside = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
        return bool(pa.types.is_string(inside) or pa.types.is_large_string(inside))

    return table.select([field.name for field in table.schema if field.name != "id" and is_text(field.type)])


def _joined(table: pa.Table) -> pa.Array:
    """Return the values of each row in lines, in the order of the columns."""
    parts = []
    for column in table.columns:
        held = column.combine_chunks()
        if not (pa.types.is_string(held.type) or pa.types.is_large_string(held.type)):
            inside = pa.list_(pa.string())
            held = pc.binary_join(pc.cast(held, inside), "\n")
        parts.append(pc.fill_null(pc.cast(held, pa.large_string()), ""))
    return pc.binary_join_element_wise(*parts, pa.scalar("\n", pa.large_string()))
