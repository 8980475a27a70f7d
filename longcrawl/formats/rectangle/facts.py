"""Summary, card text, verification and inspection of rectangles."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.core.results import Inspection, Result, Verification, result
from longcrawl.display.markdown import table
from longcrawl.display.table import Column, Table
from longcrawl.formats.rectangle.chunks import open_loss_mask, open_split
from longcrawl.formats.rectangle.spec import inspect_rectangle, verify_rectangle
from longcrawl.formats.rectangle.write import DESCRIPTION
from longcrawl.storage.stored_tables import open_documents, read_table

__all__ = ["RectangleResult"]


@result
class RectangleResult(Result):
    """A rectangle: rows of tokens for a loader, and tables that say where they came from for everybody."""

    name: ClassVar[str] = "rectangle"
    description: ClassVar[str] = DESCRIPTION
    tags: ClassVar[tuple[str, ...]] = ("pretokenized", "long-context")
    fewer_files: ClassVar[str] = "rectangle.zarr_format=3, which makes one file of 2,048 rows"
    smaller_files: ClassVar[str] = "a smaller truncate.n, or its first parts alone"
    lengths: ClassVar[str] = "rows/*.parquet"

    def documents(self, described: Mapping[str, Any]) -> int:
        """Count the rows."""
        return sum(rows for rows, _ in described["shapes"].values())

    def summary(self, described: Mapping[str, Any]) -> str:
        """Return the shape of every split."""
        return ", ".join(f"{split} {rows:,} x {length:,}" for split, (rows, length) in described["shapes"].items())

    def read_back(self, folder: Path) -> str:
        """Read the first chunk of tokens, and of their loss mask where there is one, and describe it."""
        split = open_split(folder)
        arrays = {"tokens": split, **({"loss_mask": open_loss_mask(split)} if split.masked else {})}
        chunks = {name: array.read_chunk(0, 0) for name, array in arrays.items()}
        read = ", ".join(f"{name} {chunk.dtype} {chunk.shape}" for name, chunk in chunks.items())
        rows, length = split.shape
        return f"{read}, the first chunk of {rows:,} x {length:,}"

    def configs(self, described: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tables of where rows came from: plain `datasets` reads no Zarr."""
        splits = sorted(described["shapes"], reverse=True)
        files = [{"split": split, "path": f"rectangle/rows/{split}.parquet"} for split in splits]
        return [{"config_name": "rows", "data_files": files, "default": True}]

    def contents(self, described: Mapping[str, Any]) -> str:
        """Return a table of the shapes."""
        shapes = sorted(described["shapes"].items(), reverse=True)
        rows = [[split, count, length, count * length] for split, (count, length) in shapes]
        columns = [Column("split"), *(Column(name, "count") for name in ("rows", "tokens a row", "tokens"))]
        length = next(iter(described["shapes"].values()))[1]
        rolled = ", rolled by an amount of its own" if described["rolled"] else ""
        said = f"Every row is one document: its first {length:,} tokens{rolled}."
        return f"{Table(columns, rows).markdown()}\n\n{said}"

    def composition(self, folder: Path, described: Mapping[str, Any]) -> str:
        """Describe how many documents were cut to a row, and how much of the rows is filled up."""
        rows = []
        for split, (count, length) in sorted(described["shapes"].items(), reverse=True):
            tokens = _tokens_of(folder / "rows" / f"{split}.parquet")
            if tokens is None:
                return ""
            cut, whole = int((tokens > length).sum()), int(np.minimum(tokens, length).sum())
            shares = [1 - whole / max(count * length, 1), cut / max(count, 1), 1 - whole / max(int(tokens.sum()), 1)]
            rows.append([split, f"{count:,}", f"{cut:,}", *(f"{100 * share:.2f}" for share in shares), "1.00"])
        head = ["split", "documents", "cut", "r_pad %", "r_tru %", "tokens cut off %", "r_cat"]
        said = (
            "r_pad: filling, of all tokens of rows. r_tru: documents that are longer than a row, of all. r_cat: "
            "documents per row."
        )
        return f"{table(head, rows, 6)}\n\n{said} `longcrawl compose RUN` compares with other ways of making samples."

    def cut(self, folder: Path, described: Mapping[str, Any]) -> str:
        """Describe how many documents are longer than a row, and how many of all tokens that costs."""
        cut = documents = kept = tokens = 0
        for split, (_, length) in described["shapes"].items():
            found = _tokens_of(folder / "rows" / f"{split}.parquet")
            if found is None:
                return ""
            cut, documents = cut + int((found > length).sum()), documents + len(found)
            kept, tokens = kept + int(np.minimum(found, length).sum()), tokens + int(found.sum())
        if not cut:
            return ""
        share = 100 * (1 - kept / tokens)
        return f"{cut:,} of {documents:,} documents are longer than a row: {share:.1f} % of all tokens are cut off."

    def card_words(self, described: Mapping[str, Any]) -> dict[str, str]:
        """Return the shape of the rows to train on, and a context length that fits them."""
        rows, length = described["shapes"]["train"]
        return {"rows": str(rows), "row_length": str(length), "context_length": str(min(length, 4096))}

    def limits(self, described: Mapping[str, Any]) -> list[str]:
        """Describe what tokens are, and how far they are from the text."""
        said = [
            f"Tokens are {described['dtype']}; token {described['end_of_text']} ends a text and fills what is absent."
        ]
        if described["json_escaped"]:
            said.append(
                "Tokens are those of JSON-escaped text, as in the original LongCrawl64: "
                "a newline is a backslash and an n."
            )
        if described["rolled"]:
            said.append(
                "Rows are rolled: a row may start in the middle of its document; `rows/*.parquet` says by how much."
            )
        return said

    def verify(self, folder: Path) -> Verification:
        """Check a rectangle of ours, or one in the original layout."""
        return verify_rectangle(folder)

    def inspect(self, folder: Path, split: str, row: int) -> Inspection:
        """Return shape, codec and ratio, and one row as text, rolled back."""
        return inspect_rectangle(folder, split, row)

    def ids(self, folder: Path) -> pads.FileSystemDataset:
        """Return the rows tables; those of the original LongCrawl64 are not there."""
        return open_documents(sorted(folder.glob(self.lengths)))


def _tokens_of(rows: Path) -> npt.NDArray[np.int64] | None:
    """Return the tokens of each document before it was cut; None where the table is not there."""
    if not rows.exists():
        return None
    return np.asarray(pc.fill_null(read_table(rows, ["n_tokens"])["n_tokens"], 0), np.int64)
