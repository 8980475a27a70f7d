"""A run as one page for people: what was removed and why, what was kept, and texts to judge it by."""

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from longcrawl.audit.finished import clusters
from longcrawl.card.text import CARD
from longcrawl.errors import RunError, unreadable
from longcrawl.ledger.clusters import Clusters
from longcrawl.ledger.edits import EDITS
from longcrawl.manifest import MANIFEST, PLAN, WORK, read_manifest
from longcrawl.report.page import ReportPage, is_page
from longcrawl.report.removed import RemovedDocuments
from longcrawl.report.removed_documents import removed_documents
from longcrawl.storage.files import check_target, write_text, writing

__all__ = ["REPORT", "write_report"]

REPORT = "report.html"
CLUSTERS = 20
ELSEWHERE = "name another file with --out"
OWN_FILES = frozenset({MANIFEST, PLAN, CARD, "recipe.yaml"})
OWN_FOLDERS = frozenset({WORK, "ledger", EDITS, "index", "card"})
"""Of a run, besides those that its manifest names."""


def write_report(
    run: str | Path, out: str | Path | None = None, per_rule: int = 5, most: int = 200, most_clusters: int = CLUSTERS
) -> Path:
    """Write what a run did as one HTML file, which opens without a network and runs no script but its own.

    It holds the funnel, reasons, lengths, domains, languages, some of the removed documents with the offending
    passages marked, and the largest clusters of duplicates with differences. Texts are read once more from the run's
    source; where that is gone, the page says so, and also what an earlier longcrawl has not written down. The same run
    and source give the same bytes.

    An earlier report is replaced, and an empty file. Any other file is somebody's and stays as it is, and nothing is
    written in the place of a file of the run, there or not, nor into the folders that the run has made. Whether the
    file can be written is asked before anything is read.

    Args:
        run: the folder of a finished run.
        out: the file; ``report.html`` in the run's folder if left out. Folders above it are made.
        per_rule: how many removed documents to show for each rule.
        most: how many removed documents to show altogether.
        most_clusters: how many clusters to show.

    Returns:
        The file.

    Raises:
        RunError: the run is not finished, its manifest lacks what every run writes, or ``out`` is not to be written.
        LedgerError: a number is less than 1, or the ledger is damaged.

    """
    folder = Path(run)
    target = folder / REPORT if out is None else Path(out)
    manifest = read_manifest(folder)
    place = _place(target, folder, manifest)
    # A manifest in which something is not as runs write it fails here already, by the page that it alone makes.
    with unreadable(folder / MANIFEST, RunError, "run the recipe again in another folder"):
        ReportPage(manifest, RemovedDocuments((), 0), Clusters((), 0, 0)).html()
    page = ReportPage(manifest, removed_documents(folder, per_rule, most), clusters(folder, most=most_clusters)).html()
    with writing(target, RunError, ELSEWHERE):
        write_text(place, page)
    return target


def _place(target: Path, run: Path, manifest: Mapping[str, Any]) -> Path:
    """Return where a file lies, behind links, that may be written and can be."""
    with writing(target, RunError, ELSEWHERE):
        with suppress(FileNotFoundError):
            target.stat()  # fails where links lead in a circle
        place = target.resolve()
        _check_not_of_run(target, place, run.resolve(), manifest)
        fix = f"it is not a report, {ELSEWHERE}, or remove it"
        check_target(target, RunError, fix, example=REPORT, replaces=_is_report_or_empty)
        above = next(each for each in place.parents if each.exists())
        with tempfile.TemporaryFile(dir=above):
            return place


def _check_not_of_run(target: Path, place: Path, run: Path, manifest: Mapping[str, Any]) -> None:
    """Reject what is a file of the run, or would lie among its files."""
    if not place.is_relative_to(run):
        return
    inside = place.relative_to(run)
    folders = {name.partition("/")[0] for name in manifest["files"] if "/" in name} | OWN_FOLDERS
    if inside.as_posix() in {*manifest["files"], *OWN_FILES} or (inside.parts[:1] and inside.parts[0] in folders):
        raise RunError(f"{target} belongs to the run: name another file, such as {run / REPORT}")


def _is_report_or_empty(file: Path) -> bool:
    return file.is_file() and (not file.stat().st_size or is_page(file))
