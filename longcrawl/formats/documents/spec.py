"""Documents as parquet files that plain ``datasets.load_dataset`` reads.

Specification
-------------
``NAME/`` holds parquet files with a row per document and all its columns, but ``sort_key``, by which a shuffle has
ordered it: ``train-00000-of-00003.parquet`` and, where documents are held out, ``heldout-00000-of-00001.parquet``;
with ``by: language`` in a folder for each language, such as ``en/train-00000-of-00001.parquet``. Files are compressed
by zstd (level 3), and their row groups hold about 32 MiB of documents each.

Documents come part after part as they were read, or in the order of the shuffle where there was one.

Beside the files lie

* ``README.md``, from which `datasets` learns the configurations: ``documents``, or one for each language and ``all``,
  the default;
* ``parquet.json``: columns, languages, documents per split, and bytes and SHA-256 of every file and, last, its own.
  It is written last: without it the output is not finished.

A language gives its folder and configuration their name. Documents without one are in ``unknown``. Bytes other than
ASCII letters, digits, ``-`` and ``_`` become ``~`` and two hexadecimal digits, and so does the first letter of a
language called ``all``, ``ledger`` or ``unknown``, or that begins with ``_``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longcrawl.errors import FormatError
from longcrawl.storage import sealed

DESCRIPTION = "parquet.json"
VERSION = 1
UNKNOWN = "unknown"
RESERVED = ("all", "ledger", "edits", UNKNOWN)
LONGEST = 100


def folder_name(language: str | None, what: str = "language", setting: str = "parquet.by to none") -> str:
    """Name the folder and configuration of a language, or of another column's value; no two of them share one.

    >>> [folder_name(each) for each in ("en", "zh-Hant", "eng_Latn", None, "unknown", "en/US", "..", "_x")]
    ['en', 'zh-Hant', 'eng_Latn', 'unknown', '~75nknown', 'en~2FUS', '~2E~2E', '~5Fx']

    Raises:
        FormatError: it would be too long for a folder.
    """
    if language is None:
        return UNKNOWN
    escaped = re.sub(rb"[^A-Za-z0-9_-]", lambda byte: b"~%02X" % byte[0][0], language.encode()).decode()
    if language in RESERVED or language.startswith("_"):
        escaped = f"~{ord(language[0]):02X}{escaped[1:]}"
    if not language:
        escaped = "~"
    if len(escaped) > LONGEST:
        raise FormatError(
            f"the {what} {language[:40]!r}… is too long for the name of a folder: set {setting}, "
            f"or correct the column {what!r}"
        )
    return escaped


def dataset_configs(described: Mapping[str, Any], folder: str = "") -> list[dict[str, Any]]:
    """Return the dataset configurations; paths begin with ``folder``."""
    if described["by"] == "none":
        found = {"documents": ("", described["splits"])}
    else:
        found = {"all": ("*/", described["splits"])}
        found |= {each["folder"]: (f"{each['folder']}/", each["splits"]) for each in described["languages"]}
    configs: list[dict[str, Any]] = []
    for name, (place, splits) in found.items():
        files = [{"split": split, "path": f"{folder}{place}{split}-*.parquet"} for split in splits]
        configs.append({"config_name": name, "data_files": files} | ({} if configs else {"default": True}))
    return configs


def read_description(path: Path) -> dict[str, Any]:
    """Read ``parquet.json``, with the errors of :func:`longcrawl.storage.sealed.read_description`."""
    return sealed.read_description(
        path / DESCRIPTION, "parquet", VERSION, ("splits", "by", "columns", "files"), ("documents", "bytes", "files")
    )
