"""Questions to what a run has left on disk: the funnel, why a document left and what it duplicated, is all whole."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.duplicates import Clusters, find_clusters
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
from longcrawl.removal_rates import RemovalRates
from longcrawl.run_folder import MANIFEST, read_manifest
from longcrawl.source_texts import source_texts

__all__ = ["clusters", "funnel", "inspect", "removal_rates", "verify", "why"]


def funnel(run: str | Path) -> Funnel:
    """Give how many documents were left after each stage of a run."""
    return Funnel.from_dict(read_manifest(Path(run))["funnel"])


def removal_rates(run: str | Path) -> RemovalRates:
    """Give what each stage of a run left in percent, beside the figures that its recipe refers to."""
    return RemovalRates.from_manifest(read_manifest(Path(run)))


def why(run: str | Path, document: str) -> Reason:
    """Say why a document left a run, or that it was kept.

    Raises:
        LedgerError: the run never had a document of this id.

    """
    folder = Path(run)
    read_manifest(folder)
    if any((folder / "ledger").glob("*.parquet")):
        try:
            found = _ledger(folder).to_table(filter=pc.field("id") == document)
        except (pa.ArrowInvalid, OSError) as damaged:
            raise _unreadable(folder, damaged) from damaged
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


def clusters(run: str | Path, stage: str | None = None, most: int = 10) -> Clusters:
    """Give the largest clusters of duplicates of a run, each with a diff of two of its documents.

    A document that one stage kept and a later one removed as a duplicate leads on to what that one kept. Texts are read
    once more from the run's source, as they were before its first stage; where that is gone, ``note`` says so.

    Args:
        run: the folder of a finished run.
        stage: look at what this stage removed only.
        most: how many clusters to give.

    Raises:
        LedgerError: the run has no such stage, ``most`` is less than 1, or the ledger is damaged.

    """
    folder = Path(run)
    manifest = read_manifest(folder)
    stages = [row.stage for row in Funnel.from_dict(manifest["funnel"])]
    try:
        found = find_clusters(_ledger(folder), stages, stage, most)
    except (pa.ArrowInvalid, OSError) as damaged:
        raise _unreadable(folder, damaged) from damaged
    return found.with_texts(*source_texts(manifest, found.compared()))


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


def _ledger(folder: Path) -> pads.Dataset:
    """Open the ledger of a run; one from which nothing left has no files."""
    files = [str(file) for file in sorted((folder / "ledger").glob("*.parquet"))]
    return pads.dataset(files, schema=LEDGER_SCHEMA, format="parquet")


def _unreadable(folder: Path, damage: Exception) -> LedgerError:
    return LedgerError(f"the ledger of {folder} cannot be read ({damage}); longcrawl verify says what is wrong")


def _is_run(folder: Path) -> bool:
    """Say whether a folder holds a run, finished or not, and not a rectangle by itself."""
    return (folder / MANIFEST).exists() or (folder / "recipe.yaml").exists()
