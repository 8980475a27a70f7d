"""What the URL filter of a finished run dropped, for finding false positives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sources import BadFiles, make_source
from longcrawl.errors import LedgerError
from longcrawl.ledger.funnel import Funnel
from longcrawl.ledger.reasons import LEDGER, open_ledger
from longcrawl.manifest import read_manifest
from longcrawl.recipe import parse_recipe
from longcrawl.text import UrlFilter, UrlHits
from longcrawl.text.urls.hits import count_hits

__all__ = ["run_url_hits"]


def run_url_hits(run: str | Path, min_documents: int = 1) -> UrlHits:
    """Count what the URL filter of a run dropped by domain and words, see :func:`longcrawl.text.url_hits`.

    The ledger says which documents left, the run's source is read once more for their URLs, and the filter as the run
    had it says why: with its lists as they are now.

    Args:
        run: the folder of a finished run.
        min_documents: leave out what dropped fewer.

    Raises:
        LedgerError: the run has no URL filter, or its source does not have all documents any more.

    """
    folder = Path(run)
    manifest = read_manifest(folder)
    stages = parse_recipe(manifest["recipe"]).stages
    filters = [(label, stage) for label, stage in stages if isinstance(stage, UrlFilter)]
    if not filters:
        raise LedgerError(f"{folder} has no stage url_filter; it has: {', '.join(label for label, _ in stages)}")
    label, stage = filters[0]
    with open_ledger(folder / LEDGER) as ledger:
        gone = ledger.to_table(columns=["id"], filter=pc.field("stage") == label)["id"].combine_chunks()
    found = count_hits(_of(manifest, gone), stage, min_documents)
    if found.documents != len(gone):
        raise LedgerError(
            f"{folder} dropped {len(gone):,} documents by their URL, its source has {found.documents:,} of them now: "
            "run the recipe again"
        )
    came = next(row.documents_in for row in Funnel.from_dict(manifest["funnel"]) if row.stage == label)
    return UrlHits(found.table, came, found.dropped)


def _of(manifest: dict[str, Any], ids: pa.Array) -> Iterator[pa.Table]:
    """Read the URLs of some documents from the source of a run."""
    settings = dict(manifest["recipe"]["source"])
    source, bad_files = make_source(settings.pop("builder"), settings), BadFiles("skip")
    for part in source.splits()["train"] if len(ids) else ():
        if part.name in manifest["inputs"]:
            for table in source.read(part, bad_files):
                chosen = table.select(["id", "url"])
                yield chosen.filter(pc.is_in(pc.cast(chosen["id"], pa.string()), value_set=ids))
