"""Annotated pages of web archives, and the sites of pages."""

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

Truth = Mapping[str, Sequence[dict[str, Any]]]
"""Ground truth of pages by address: objects with ``text``, or with ``must_contain`` and ``must_not_contain``."""

_BEFORE_HOST = re.compile(r"(?:https?://web\.archive\.org/web/\w+/)?(?:https?://|\w+::)?")


class Page(NamedTuple):
    """A page and the address by which the ground truth knows it."""

    url: str
    html: str


def read_pages(folder: Path) -> list[Page]:
    import pyarrow as pa

    from longcrawl.core.sources import BadFiles, make_source

    source = make_source("warc", {"data_files": str(folder / "pages-*.warc.gz")})
    tables = [table for part in source.splits()["train"] for table in source.read(part, BadFiles())]
    rows = pa.concat_tables(tables).select(["url", "html"]).to_pylist()
    return [Page(row["url"], row["html"]) for row in rows if row["html"] is not None]


def read_truth(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Read what is known of pages; a page that is annotated twice in the same way counts once."""
    truth: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(folder / "groundtruth.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            known = {name: line[name] for name in ("text", "must_contain", "must_not_contain") if name in line}
            if known not in truth.setdefault(line["url"], []):
                truth[line["url"]].append(known)
    return truth


@cache
def site_of(address: str) -> str:
    """Return the registered domain of a page, of an archived page that of the original.

    Some names of pages are no URLs and begin with a domain: ``hard::example.org-story.html``.
    """
    from courlan import extract_domain

    host = re.split("[/?#]", _BEFORE_HOST.sub("", address, count=1))[0]
    labels = host.replace("-", ".").split(".")
    hosts = [host, *(".".join(labels[:count]) for count in range(2, len(labels)))]
    return next(filter(None, (extract_domain(f"https://{each}") for each in hosts)), host)
