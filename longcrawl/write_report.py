"""A run as one page for people: what left and why, what was kept, and texts to judge it by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longcrawl.errors import RunError
from longcrawl.files import write_text
from longcrawl.finished import clusters
from longcrawl.ledger import Funnel
from longcrawl.removed_documents import removed_documents
from longcrawl.report.analysis import Analysis, Lengths
from longcrawl.report.limits import known_limits
from longcrawl.report.page import ReportPage
from longcrawl.results import RESULTS
from longcrawl.run_folder import MANIFEST, read_manifest

__all__ = ["REPORT", "write_report"]

REPORT = "report.html"
CLUSTERS = 20


def write_report(
    run: str | Path, out: str | Path | None = None, per_rule: int = 5, most: int = 200, most_clusters: int = CLUSTERS
) -> Path:
    """Write what a run did as one HTML file, which opens without a network and runs no script but its own.

    It holds the funnel, reasons, lengths, domains, languages, some of the documents that left with the offending
    passages marked, and the largest clusters of duplicates with differences. Texts are read once more from the run's
    source; where that is gone, the page says so, and also what an earlier longcrawl has not written down. The same run
    and source give the same bytes.

    Args:
        run: the folder of a finished run.
        out: the file; ``report.html`` in the run's folder if left out.
        per_rule: how many documents that left by each rule to show.
        most: how many documents that left to show altogether.
        most_clusters: how many clusters to show.

    Returns:
        The file.

    Raises:
        RunError: the run is not finished, or its manifest lacks what every run writes.
        LedgerError: a number is less than 1, or the ledger is damaged.

    """
    folder = Path(run)
    target = folder / REPORT if out is None else Path(out)
    if target.is_dir():
        raise RunError(f"{target} is a folder: name a file, such as {target / REPORT}")
    manifest = read_manifest(folder)
    _refuse_odd(folder / MANIFEST, manifest)
    page = ReportPage(manifest, removed_documents(folder, per_rule, most), clusters(folder, most=most_clusters))
    write_text(target, page.html())
    return target


def _refuse_odd(file: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest in which something is not as a run writes it."""
    try:
        Funnel.from_dict(manifest["funnel"])
        RESULTS[manifest["output"]["format"]].summary(manifest["output"])
        known_limits(manifest)
        Analysis.from_dict(manifest.get("analysis", {"documents": 0, "lengths": []}))
        Lengths.from_dict(manifest.get("source_lengths", {"unit": "", "documents": {}, "total": {}}))
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise RunError(
            f"{file} is not as runs write it ({type(wrong).__name__}: {wrong}): run the recipe again in another folder"
        ) from wrong
