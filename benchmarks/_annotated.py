r"""Annotated pages: the sites that they are of, parts that share no site, and how right their extracted texts are.

Segments: P is the share of wanted pieces among all pieces of either kind that were found, R the share of wanted pieces
that were found, F their harmonic mean. Tokens: P, R and F1 over multisets of words (re's \w+) in lower case, each
a mean over the annotated texts.
"""

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Truth = Mapping[str, Sequence[dict[str, Any]]]
"""What is known of a page by its address: objects with ``text``, or with ``must_contain`` and ``must_not_contain``."""

_BEFORE_HOST = re.compile(r"(?:https?://web\.archive\.org/web/\w+/)?(?:https?://|\w+::)?")


class Page(NamedTuple):
    """A page and the address by which the ground truth knows it."""

    url: str
    html: str


class Score(NamedTuple):
    """Sums over pages, which add up."""

    tokens: npt.NDArray[np.float64]
    """Of the annotated texts precision, recall, F1, and how many there are."""
    pieces: npt.NDArray[np.float64]
    """Pieces that were found and wanted, all that were wanted, those found that were not, and pages with pieces."""


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


def parts_of(pages: Sequence[Page], truth: Truth, parts: int = 3) -> dict[str, int]:
    """Return which part each page is in, by its HTML: all pages of a site are in one part.

    Sites with annotated texts are dealt out first, then those with pieces, each in the order of a hash. The model of
    "blocks" was not trained on part 0 of 3.
    """

    def key(site: str) -> tuple[bool, bool, str]:
        known = [each for page in pages if site_of(page.url) == site for each in truth.get(page.url, ())]
        return not any("text" in each for each in known), not known, hashlib.sha256(site.encode()).hexdigest()

    part = {site: number % parts for number, site in enumerate(sorted({site_of(page.url) for page in pages}, key=key))}
    return {page.html: part[site_of(page.url)] for page in reversed(pages)}


def overlap(annotated: str, text: str) -> tuple[float, float, float]:
    """Return precision, recall and F1 of a text's tokens."""
    wanted, given = (Counter(re.findall(r"\w+", each.lower())) for each in (annotated, text))
    common = (wanted & given).total()
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / given.total(), common / wanted.total()
    return precision, recall, 2 * precision * recall / (precision + recall)


def score_page(url: str, text: str | None, truth: Truth) -> Score:
    """Return how right the text of one page is."""
    text, tokens, pieces = text or "", np.zeros(4), np.zeros(4)
    for known in truth.get(url, ()):
        if "text" in known:
            tokens += (*overlap(known["text"], text), 1)
        else:
            wanted, unwanted = known["must_contain"], known["must_not_contain"]
            found = [sum(piece in text for piece in each) for each in (wanted, unwanted)]
            pieces += (found[0], len(wanted), found[1], 1)
    return Score(tokens, pieces)


def describe(urls: Sequence[str], texts: Iterable[str | None], truth: Truth) -> str:
    """Describe how right the texts of pages are."""
    texts = list(texts)
    scores = [score_page(url, text, truth) for url, text in zip(urls, texts, strict=True)]
    tokens, pieces = np.sum([each.tokens for each in scores], 0), np.sum([each.pieces for each in scores], 0)
    precision, recall, f1 = tokens[:3] / tokens[3]
    return (
        f"segments P {pieces[0] / (pieces[0] + pieces[2]):.3f} R {pieces[0] / pieces[1]:.3f} F {f_of(pieces):.4f} "
        f"({pieces[3]:.0f} pages), tokens P {precision:.3f} R {recall:.3f} F1 {f1:.4f} ({tokens[3]:.0f} pages of "
        f"{len({site_of(url) for url, each in zip(urls, scores, strict=True) if each.tokens[3]})} sites), "
        f"empty {sum(not (text or '').strip() for text in texts)}"
    )


def f1_of(tokens: npt.NDArray[np.float64]) -> Any:
    """Return the mean F1 of annotated texts, shape (..., 4)."""
    return tokens[..., 2] / tokens[..., 3]


def f_of(pieces: npt.NDArray[np.float64]) -> Any:
    """Return F of pieces, shape (..., 4), which is twice the found over all that were wanted or found."""
    return 2 * pieces[..., 0] / (pieces[..., 0] + pieces[..., 2] + pieces[..., 1])


def compare(
    urls: Sequence[str], ours: Sequence[str | None], others: Sequence[str | None], truth: Truth, draws: int = 10_000
) -> str:
    """Describe by how much our texts are more right, with intervals of 95 %: sites are drawn with replacement."""
    sites = sorted({site_of(url) for url in urls})
    tokens, pieces = np.zeros((2, len(sites), 4)), np.zeros((2, len(sites), 4))
    for engine, texts in enumerate((ours, others)):
        for url, text in zip(urls, texts, strict=True):
            scored = score_page(url, text, truth)
            tokens[engine, sites.index(site_of(url))] += scored.tokens
            pieces[engine, sites.index(site_of(url))] += scored.pieces
    described = []
    for name, sums, measure in (
        ("F1 of tokens", tokens, f1_of),
        ("F of pieces", pieces, f_of),
    ):
        known = sums[:, sums[0, :, 3] > 0]
        drawn = np.random.default_rng(0).multinomial(known.shape[1], np.full(known.shape[1], 1 / known.shape[1]), draws)
        here, there = measure(known.sum(1))
        low, high = np.quantile(np.subtract(*measure(drawn @ known)), (0.025, 0.975))
        described.append(f"{name} {here - there:+.4f} ({low:+.4f} to {high:+.4f}, {known.shape[1]} sites)")
    return ", ".join(described)
