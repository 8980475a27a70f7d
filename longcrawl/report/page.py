"""The report of a run as one HTML file that needs no network and runs no script but its own.

Text of crawled pages stands in it escaped. A Content-Security-Policy allows the one script and the one style sheet
by their SHA-256, forbids every request, and so holds even if something were not escaped.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any

import pyarrow as pa
import yaml

from longcrawl.duplicates import Clusters
from longcrawl.ledger import Funnel
from longcrawl.removal_rates import RemovalRates
from longcrawl.report.analysis import Analysis
from longcrawl.report.bars import BarRow, BarTable
from longcrawl.report.differences import cluster_list
from longcrawl.report.domains import url_hosts
from longcrawl.report.limits import Limit, known_limits
from longcrawl.report.passages import as_html, escape, shortened
from longcrawl.report.removed import RemovedDocument, RemovedDocuments, measured
from longcrawl.report.sections import bar_table, facts_list, funnel_table, notes, reason_tables
from longcrawl.report.values import value_tables
from longcrawl.results import RESULTS

__all__ = ["ReportPage"]

TOLD_DOMAINS = 20
LONGEST_RECIPE = 20_000
SCRIPT_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


@dataclass(frozen=True)
class ReportPage:
    """All that a report shows; :meth:`html` gives the file."""

    manifest: Mapping[str, Any]
    removed: RemovedDocuments
    clusters: Clusters

    def html(self) -> str:
        """Give the whole file; the same run gives the same bytes."""
        style, script = _asset("report.css"), _asset("report.js")
        sections = [(name, title, body) for name, title, body in self._sections() if body]
        links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
        parts = "".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in sections)
        return Template(_asset("report.html")).substitute(
            policy=_policy(style, script),
            title=escape(self.manifest["recipe"]["name"]),
            style=style,
            header=self._header(),
            links=links,
            sections=parts,
            data=self._data(),
            script=script,
        )

    def _sections(self) -> Iterator[tuple[str, str, str]]:
        manifest = self.manifest
        funnel = Funnel.from_dict(manifest["funnel"])
        analysis = Analysis.from_dict(manifest["analysis"])
        places: dict[tuple[str, str], int] = {}
        for number, document in enumerate(self.removed):
            places.setdefault((document.reason.stage or "", document.reason.rule or ""), number)
        yield "funnel", "Funnel", funnel_table(RemovalRates.from_manifest(manifest))
        yield "reasons", "Why documents left", reason_tables(funnel, places)
        yield "removed", "Documents that left", self._removed()
        yield "clusters", "Duplicates", cluster_list(self.clusters) if self.clusters.count else ""
        yield "kept", "Lengths, domains, languages", self._tables(funnel, analysis)
        yield "notes", "What to know", f"{notes(known_limits(manifest))}<h3>Input</h3>{notes(_input_notes(manifest))}"
        yield "recipe", "How it was made", self._recipe()

    def _header(self) -> str:
        recipe, funnel = self.manifest["recipe"], Funnel.from_dict(self.manifest["funnel"])
        output = self.manifest["output"]
        kept = 100 * funnel.kept / max(funnel.documents, 1)
        figures = [
            ("documents read", f"{funnel.documents:,}"),
            ("left on the way", f"{funnel.documents - funnel.kept:,}"),
            ("kept", f"{funnel.kept:,} ({kept:.1f} %)"),
        ]
        written = f"<p>Written as {escape(output['format'])}: {escape(RESULTS[output['format']].summary(output))}</p>"
        about = f"<p>{escape(recipe['about'])}</p>" if recipe["about"] else ""
        name = recipe["card"]["pretty_name"] or recipe["name"]
        digest = f"<p>Recipe <b>{escape(recipe['name'])}</b>, digest <code>{escape(self.manifest['digest'])}</code></p>"
        return f"<h1>{escape(name)}</h1>{about}{digest}{facts_list(figures)}{written}"

    def _removed(self) -> str:
        if not len(self.removed):
            left = self.removed.removed or _left(self.manifest)
            return "<p>The run has no ledger any more.</p>" if left else "<p>No document left.</p>"
        note = f'<p class="note">{escape(self.removed.note)}</p>' if self.removed.note else ""
        items = "".join(_document(number, document) for number, document in enumerate(self.removed))
        return (
            f"<p>{escape(self.removed.summary())}. Marked is what the rule is about.</p>{note}"
            f'{_asset("report_filter.html")}<div id="removed-list">{items}</div>'
        )

    def _tables(self, funnel: Funnel, analysis: Analysis) -> str:
        tables = [(table, "kept") for table in [*analysis.tables(), *value_tables(funnel)]]
        hosts = Counter(host for host in _hosts(self.removed) if host)
        known = sum(hosts.values())
        if known:
            ranked = sorted(hosts.items(), key=lambda host: (-host[1], host[0]))[:TOLD_DOMAINS]
            rest = f"of the {known:,} documents of the sample above whose URL is known; rules weigh alike in it"
            rows = [BarRow(name, count, count / known) for name, count in ranked]
            tables.append((BarTable("domain of documents that left", rows, rest), "gone"))
        parts = "".join(f"<section>{bar_table(table, kind)}</section>" for table, kind in tables)
        return f'<div class="columns">{parts}</div>' if parts else ""

    def _recipe(self) -> str:
        recipe = yaml.safe_dump(self.manifest["recipe"], sort_keys=False, allow_unicode=True, width=100)
        versions = facts_list(self.manifest["versions"].items())
        shown = escape(shortened(recipe, LONGEST_RECIPE))
        return (
            "<p>The same recipe over the same input gives the same bytes: "
            "<code>longcrawl run recipe.yaml --out FOLDER</code></p>"
            f"<details><summary>recipe.yaml</summary><pre>{shown}</pre></details>"
            f"<details><summary>Versions</summary>{versions}</details>"
        )

    def _data(self) -> str:
        """Give what the script filters by, as JSON in which no tag and no comment can begin or end."""
        hosts = _hosts(self.removed)
        removed = [
            {
                "stage": each.reason.stage,
                "rule": each.reason.rule,
                "domain": host or "",
                "language": each.language or "",
            }
            for each, host in zip(self.removed, hosts, strict=True)
        ]
        return json.dumps({"removed": removed}, separators=(",", ":")).translate(SCRIPT_ESCAPES)


def _document(number: int, document: RemovedDocument) -> str:
    reason = document.reason
    said = measured(reason)
    heading = (
        f'<b>{escape(reason.rule)}</b> <span class="value">{escape(shortened(said, 120))}</span> '
        f'<span class="opening"><bdi>{escape(document.opening or reason.id)}</bdi></span>'
    )
    note = f'<p class="note">{escape(shortened(document.note, 1_000))}</p>' if document.note else ""
    text = f'<pre dir="auto" tabindex="0">{as_html(document.passages)}</pre>' if document.passages else ""
    return (
        f'<details class="document" id="removed-{number}"><summary>{heading}</summary>'
        f"{facts_list(document.facts())}{note}{text}</details>"
    )


def _hosts(removed: RemovedDocuments) -> list[str | None]:
    urls = pa.chunked_array([pa.array([document.url for document in removed], pa.string())])
    hosts: list[str | None] = url_hosts(urls).to_pylist()
    return hosts


def _left(manifest: Mapping[str, Any]) -> int:
    funnel = Funnel.from_dict(manifest["funnel"])
    return funnel.documents - funnel.kept


def _input_notes(manifest: Mapping[str, Any]) -> list[Limit]:
    """Say what of the input is in no document."""
    left_out = [
        Limit(f"{count:,} records of the source are no documents, by its rule ", rule)
        for rule, count in manifest.get("left_out", {}).items()
    ]
    broken = [Limit("Not read whole: ", f"{bad['file']}: {bad['reason']}") for bad in manifest["bad_files"]]
    return [*left_out, *broken] or [Limit("Every input file was read whole.")]


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return resources.files("longcrawl.cards").joinpath(name).read_text("utf-8")
