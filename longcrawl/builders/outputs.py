"""Builder for the tokens of an output folder without token tables, used by plain ``load_dataset(FOLDER)``.

It yields the rows and columns that ``longcrawl tables`` or a push would write, read from the arrays or shards.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets.builder import Key

from longcrawl._version import code_hash
from longcrawl.core.outputs import RESULTS, Result, TokenRows
from longcrawl.errors import FormatError, RunError
from longcrawl.formats.token_output import BEGINNING, texts_of
from longcrawl.io.structured import load_json
from longcrawl.run.card.front_matter import read_front_matter
from longcrawl.run.card.write import about_run
from longcrawl.run.manifest import CARD, MANIFEST, TOKEN_TABLES, read_manifest

PART_TOKENS = 1 << 24
"""Approximate number of tokens per part; processes and workers share the parts."""


@dataclass(frozen=True)
class TokenFolder:
    """An output of tokens on disk."""

    folder: Path
    result: Result
    described: Mapping[str, Any]
    """The description file of the output, or the output's entry in the manifest of its run."""
    about: Mapping[str, str]
    """Description, citation and licence, if its run is known."""


def find_tokens(path: str | Path) -> TokenFolder | None:
    """Return the token output in a folder, which is an output or the run that wrote it.

    None is returned if `datasets` should load the folder its own way: any other folder, a run with token tables, and a
    run with another default configuration in its card.
    """
    folder = Path(path)
    if not (folder.is_dir() and any(folder.glob("*.json"))):
        return None
    if (folder / MANIFEST).is_file():
        return _of_run(folder)
    for name, output in RESULTS.described().items():
        if (folder / name).is_file() and _has_tokens(RESULTS[output]):
            described = load_json((folder / name).read_bytes())
            run = _manifest(folder.absolute().parent)
            about = about_run(run) if run is not None else {}
            return TokenFolder(folder, RESULTS[output], described, about) if isinstance(described, dict) else None
    return None


def _of_run(folder: Path) -> TokenFolder | None:
    if (manifest := _manifest(folder)) is None:
        return None
    output = manifest["output"]
    result = RESULTS[output["format"]]
    tables = any(name.startswith(f"{TOKEN_TABLES}/") for name in manifest["files"])
    if tables or not _has_tokens(result) or not (folder / result.name).is_dir():
        return None
    if _names_another(folder, result, output):
        return None
    return TokenFolder(folder / result.name, result, output, about_run(manifest))


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        return read_manifest(folder)
    except RunError:  # `datasets` loads the folder as it loads others
        return None


def _has_tokens(result: Result) -> bool:
    return type(result).token_rows is not Result.token_rows


def _names_another(folder: Path, result: Result, output: Mapping[str, Any]) -> bool:
    """Return whether someone gave the card of a run another default configuration."""
    try:
        head = read_front_matter((folder / CARD).read_text("utf-8")) if (folder / CARD).is_file() else {}
    except (FormatError, UnicodeDecodeError):
        return True
    return _default(head.get("configs")) not in (None, _default(result.configs(output)))


def _default(configs: Any) -> Any:
    named = [each for each in configs or [] if isinstance(each, dict) and each.get("default")]
    return named[0].get("config_name") if named else None


class OutputTokens(datasets.ArrowBasedBuilder):  # type: ignore[misc]  # `datasets` is not typed
    """Builder that reads the token rows of an output, each split in parts of about ``PART_TOKENS`` tokens."""

    BUILDER_CONFIGS = [datasets.BuilderConfig(name=TOKEN_TABLES)]  # noqa: RUF012  # `datasets` reads it from the class

    def __init__(self, found: TokenFolder, **settings: Any) -> None:
        self.found = found
        content = (found.folder / found.result.description).read_bytes()
        digest = hashlib.sha256(code_hash().encode() + str(found.folder.absolute()).encode() + content).hexdigest()
        super().__init__(config_name=TOKEN_TABLES, hash=digest, **settings)

    def _info(self) -> datasets.DatasetInfo:
        rows = next(iter(self.found.result.token_rows(self.found.folder).values()))
        features = datasets.Features.from_arrow_schema(next(self._tables(rows, 0, 1)).schema)
        return datasets.DatasetInfo(features=features, **self.found.about)

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:  # noqa: ARG002  # nothing is fetched
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"rows": rows, "parts": _parts(rows)})
            for split, rows in self.found.result.token_rows(self.found.folder).items()
        ]

    def _generate_shards(self, rows: TokenRows, parts: list[tuple[int, int]]) -> Iterator[str]:  # noqa: ARG002  # called with all gen_kwargs
        yield from (f"{start}-{stop}" for start, stop in parts)

    def _generate_tables(self, rows: TokenRows, parts: list[tuple[int, int]]) -> Iterator[tuple[Any, pa.Table]]:
        for shard, (start, stop) in enumerate(parts):
            for number, table in enumerate(self._tables(rows, start, stop)):
                yield Key(shard, number), table

    def _tables(self, rows: TokenRows, start: int, stop: int) -> Iterator[pa.Table]:
        add, tables = texts_of(self.found.folder, self.found.described, BEGINNING), rows.read(start, stop)
        return tables if add is None else map(add, tables)


def _parts(rows: TokenRows) -> list[tuple[int, int]]:
    count = min(max(-(-rows.tokens // PART_TOKENS), 1), max(rows.rows, 1))
    bounds = [rows.rows * number // count for number in range(count + 1)]
    return list(pairwise(bounds))
