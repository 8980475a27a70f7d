"""Questions to what a run has left on disk: the funnel, why a document left, is everything whole, what is in it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.errors import LedgerError
from longcrawl.formats.rectangle import DESCRIPTION
from longcrawl.formats.rectangle_verify import (
    Inspection,
    Verification,
    inspect_rectangle,
    is_sealed,
    verify_files,
    verify_rectangle,
)
from longcrawl.ledger import LEDGER_SCHEMA, Funnel, Reason, find_reason
from longcrawl.run_folder import MANIFEST, read_manifest

__all__ = ["funnel", "inspect", "verify", "why"]


def funnel(run: str | Path) -> Funnel:
    """Give how many documents were left after each stage of a run."""
    return Funnel.from_dict(read_manifest(Path(run))["funnel"])


def why(run: str | Path, document: str) -> Reason:
    """Say why a document left a run, or that it was kept.

    Raises:
        LedgerError: the run never had a document of this id.

    """
    folder = Path(run)
    read_manifest(folder)
    if any((folder / "ledger").glob("*.parquet")):
        ledger = pads.dataset(folder / "ledger", schema=LEDGER_SCHEMA, format="parquet")
        try:
            found = ledger.to_table(filter=pc.field("id") == document)
        except (pa.ArrowInvalid, OSError) as damaged:
            raise LedgerError(
                f"the ledger of {folder} cannot be read ({damaged}); longcrawl verify says what is wrong"
            ) from damaged
        reason = find_reason(found, document)
        if reason is not None:
            return reason
    tables = sorted(folder.glob("*/rows/*.parquet"))
    if not tables:
        raise LedgerError(f"{folder} has lost its rows tables; longcrawl verify says what is missing")
    rows = pads.dataset(tables, format="parquet")
    if rows.count_rows(filter=pc.field("id") == document):
        return Reason(document)
    raise LedgerError(
        f"{folder} never had a document {document!r}; ids look like those in {folder}/rectangle/rows/train.parquet"
    )


def verify(path: str | Path) -> Verification:
    """Check every file of a run, a rectangle, or a rectangle in the original LongCrawl64 layout.

    Raises:
        FormatError: there is none of these at ``path``.
        RunError: the run is not finished.

    """
    folder = Path(path)
    if not _is_run(folder):
        return verify_rectangle(folder)
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        return Verification(
            str(folder),
            "the manifest by itself",
            (f"{MANIFEST} has been changed: the SHA-256 that it gives of itself differs",),
        )
    files = manifest["files"]
    # The files of the rectangle are described there once more, all but the description itself.
    outside = {
        name: entry for name, entry in files.items() if not name.startswith("rectangle/") or name.endswith(DESCRIPTION)
    }
    problems = list(verify_files(folder, outside))
    if (folder / "rectangle").is_dir():
        problems += [f"rectangle: {problem}" for problem in verify_rectangle(folder / "rectangle").problems]
    return Verification(str(folder), f"{len(files)} files compared with their SHA-256", tuple(problems))


def inspect(path: str | Path, split: str = "train", row: int = 0) -> Inspection:
    """Give shape, codec and ratio of a rectangle (or a run's), and one row as text, rolled back."""
    folder = Path(path)
    if not _is_run(folder):
        return inspect_rectangle(folder, split, row)
    read_manifest(folder)
    return inspect_rectangle(folder / "rectangle", split, row)


def _is_run(folder: Path) -> bool:
    """Say whether a folder holds a run, finished or not, and not a rectangle by itself."""
    return (folder / MANIFEST).exists() or (folder / "recipe.yaml").exists()
