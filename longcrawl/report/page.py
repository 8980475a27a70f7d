"""A run as one HTML page for people: what was removed and why, what was kept, and texts to judge it by.

The page needs no network and runs no script but its own. Text of crawled pages stands in it escaped. A
Content-Security-Policy allows the one script and the one style sheet by their SHA-256, forbids every request, and so
holds even if something were not escaped.
"""

import base64
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import yaml

from longcrawl.audit.finished import clusters
from longcrawl.card.sections import Limit, known_limits
from longcrawl.card.write import CARD, PICTURE_FOLDER
from longcrawl.core.addresses import url_hosts
from longcrawl.core.results import RESULTS
from longcrawl.core.templates import read_template
from longcrawl.display.numbers import percent
from longcrawl.errors import RunError, unreadable
from longcrawl.ledger.analysis import Analysis, Lengths
from longcrawl.ledger.clusters import Clusters
from longcrawl.ledger.edits import EDITS
from longcrawl.ledger.funnel import Funnel, RemovalRates, value_tables
from longcrawl.ledger.reasons import LEDGER
from longcrawl.manifest import MANIFEST, PLAN, TOKEN_TABLES, WORK, open_run, read_manifest
from longcrawl.printable import shortened
from longcrawl.report import sections, texts
from longcrawl.report.removed_documents import removed_documents
from longcrawl.storage.files import check_target, write_text, writing
from longcrawl.storage.place import bring, check_writable, url_of

LONGEST_RECIPE = 20_000
TITLE = b": longcrawl report</title>"
"""Part of the head of every page."""
LONGEST_HEAD = 1 << 20
SCRIPT_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


@dataclass(frozen=True)
class ReportPage:
    """All that a report shows; :meth:`html` gives the file."""

    manifest: Mapping[str, Any]
    removed: texts.RemovedDocuments
    clusters: Clusters

    def html(self) -> str:
        """Return the whole file; the same run gives the same bytes."""
        style, script = _asset("report.css"), _asset("report.js")
        filled = [(name, title, body) for name, title, body in self._sections() if body]
        links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in filled)
        parts = "".join(f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in filled)
        return Template(_asset("report.html")).substitute(
            policy=_policy(style, script),
            title=texts.escape(self.manifest["recipe"]["name"]),
            style=style,
            header=self._header(),
            links=links,
            sections=parts,
            data=self._data(),
            script=script,
        )

    def _sections(self) -> Iterator[tuple[str, str, str]]:
        yield "funnel", "Funnel", sections.funnel_table(RemovalRates.from_manifest(self.manifest))
        yield "reasons", "Why documents were removed", self._reasons()
        yield "removed", "Removed documents", self._removed()
        yield "edits", "What was changed in documents", sections.edit_table(self._funnel)
        yield "clusters", "Duplicates", texts.cluster_list(self.clusters) if self.clusters.count else ""
        yield "lengths", "Lengths", self._lengths()
        yield "places", "Domains and languages", self._places()
        yield "notes", "What to know", self._notes()
        yield "recipe", "How it was made", self._recipe()

    @property
    def _funnel(self) -> Funnel:
        return Funnel.from_dict(self.manifest["funnel"])

    @property
    def _analysis(self) -> Analysis:
        return Analysis.from_dict(self.manifest["analysis"])

    def _header(self) -> str:
        recipe, funnel = self.manifest["recipe"], self._funnel
        output = self.manifest["output"]
        left = funnel.documents - funnel.kept
        tiles = [("documents read", funnel.documents), ("removed", left), ("kept", funnel.kept)]
        whole = max(funnel.documents, 1)
        figures = [
            (name if name == "documents read" else f"{name}, {percent(count / whole)}", f"{count:,}")
            for name, count in tiles
        ]
        facts = [
            ("recipe", recipe["name"]),
            ("digest", self.manifest["digest"]),
            (output["format"], RESULTS[output["format"]].summary(output)),
        ]
        about = f'<p class="about">{texts.escape(recipe["about"])}</p>' if recipe["about"] else ""
        name = recipe["card"]["pretty_name"] or recipe["name"]
        tiles_shown, facts_shown = texts.facts_list(figures, "tiles"), texts.facts_list(facts, "facts")
        return f"<h1><bdi>{texts.escape(name)}</bdi></h1>{about}{tiles_shown}{facts_shown}"

    def _reasons(self) -> str:
        places: dict[tuple[str, str], int] = {}
        for number, document in enumerate(self.removed):
            places.setdefault((document.reason.stage or "", document.reason.rule or ""), number)
        return sections.reason_table(self._funnel, places)

    def _removed(self) -> str:
        if not len(self.removed):
            left = self.removed.removed or self._funnel.documents - self._funnel.kept
            said = "The run has no ledger any more." if left else "No document was removed."
            return f'<p class="empty">{said}</p>'
        note = f'<p class="note">{texts.escape(self.removed.note)}</p>' if self.removed.note else ""
        said = self.removed.summary()
        items = "".join(_document(number, document) for number, document in enumerate(self.removed))
        return (
            f"<p>{texts.escape(said[:1].upper() + said[1:])}. Marked is what the rule is about.</p>{note}"
            f'{_asset("report_filter.html")}<div id="removed-list">{items}</div>'
        )

    def _lengths(self) -> str:
        found = self.manifest.get("source_lengths")
        return sections.length_tables(None if found is None else Lengths.from_dict(found), self._analysis)

    def _places(self) -> str:
        analysis = self._analysis
        hosts = [host for host in _hosts(self.removed) if host]
        domains = sections.domain_table(analysis, hosts, whole=len(self.removed) == self.removed.removed)
        others = [each for each in analysis.place_tables() if each.columns[0].title != "domain"]
        tables = "".join(
            f"<section><h3>{texts.escape(title)}</h3>{sections.drawn(each)}</section>"
            for title, each in [
                *((f"{each.columns[0].title.capitalize()} of what was kept", each) for each in others),
                *((f"{each.columns[0].title.capitalize()} on the way", each) for each in value_tables(self._funnel)),
            ]
        )
        parts = [domains, f'<div class="columns">{tables}</div>' if tables else ""]
        return "".join(parts) or '<p class="empty">The documents have neither URLs nor languages.</p>'

    def _notes(self) -> str:
        return (
            f"{sections.notes(known_limits(self.manifest))}<h3>Input</h3>{sections.notes(_input_notes(self.manifest))}"
        )

    def _recipe(self) -> str:
        recipe = yaml.safe_dump(self.manifest["recipe"], sort_keys=False, allow_unicode=True, width=100)
        versions = texts.facts_list(self.manifest["versions"].items())
        shown = texts.escape(shortened(recipe, LONGEST_RECIPE))
        return (
            "<p>The same recipe over the same input gives the same bytes:</p>"
            '<pre class="command">longcrawl run recipe.yaml --out FOLDER</pre>'
            f"<details><summary>recipe.yaml</summary><pre>{shown}</pre></details>"
            f"<details><summary>Versions</summary>{versions}</details>"
        )

    def _data(self) -> str:
        """Return what the script filters by, as JSON in which no tag and no comment can begin or end."""
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


def _document(number: int, document: texts.RemovedDocument) -> str:
    reason = document.reason
    heading = (
        f"<b>{sections.named(reason.rule)}</b> "
        f'<span class="value">{texts.escape(shortened(texts.brief(reason), 60))}</span> '
        f'<span class="opening" dir="auto">{texts.escape(document.opening or reason.id)}</span>'
    )
    note = f'<p class="note">{texts.escape(shortened(document.note, 1_000))}</p>' if document.note else ""
    text = texts.text_block(document.passages, "Text") if document.passages else ""
    return (
        f'<details class="document" id="removed-{number}"><summary>{heading}</summary>'
        f"{texts.facts_list(document.facts())}{note}{text}</details>"
    )


def _hosts(removed: texts.RemovedDocuments) -> list[str | None]:
    urls = pa.chunked_array([pa.array([document.url for document in removed], pa.string())])
    hosts: list[str | None] = url_hosts(urls).to_pylist()
    return hosts


def _input_notes(manifest: Mapping[str, Any]) -> list[Limit]:
    """Describe what of the input is in no document."""
    rules = ", ".join(f"{rule} {count:,}" for rule, count in manifest["left_out"].items())
    left_out = [Limit("Records that the source left out, by its rules: ", rules)] * bool(rules)
    encodings = ", ".join(f"{name} {count:,}" for name, count in manifest.get("encodings", {}).items())
    left_out += [Limit("Files or pages that were decoded, by encoding: ", encodings)] * bool(encodings)
    broken = [Limit("Not read whole: ", f"{bad['file']}: {bad['reason']}") for bad in manifest["bad_files"]]
    return [*left_out, *(broken or [Limit("Every input file was read whole.")])]


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return read_template(name)


REPORT = "report.html"
ELSEWHERE = "name another file with --out"
CLUSTERS = 20
OWN_FILES = frozenset({MANIFEST, PLAN, CARD, "recipe.yaml"})
OWN_FOLDERS = frozenset({WORK, LEDGER, EDITS, TOKEN_TABLES, "index", PICTURE_FOLDER})
"""Of a run, besides those that its manifest names."""


def write_report(
    run: str | Path, out: str | Path | None = None, per_rule: int = 5, most: int = 200, most_clusters: int = CLUSTERS
) -> Path | str:
    """Write what a run did as one HTML file, which opens without a network and runs no script but its own.

    It holds the funnel, reasons, lengths, domains, languages, some of the removed documents with the offending
    passages marked, and the largest clusters of duplicates with differences. Texts are read again from the run's
    source; where that is gone, the page says so. The same run and source give the same bytes.

    An earlier report is replaced, and an empty file. Any other file is somebody's and stays as it is, and nothing is
    written in the place of a file of the run, there or not, nor into the folders that the run has made. Whether the
    file can be written is asked before anything is read.

    Args:
        run: the folder of a finished run, or its URL.
        out: the file; ``report.html`` in the run's folder, or store, if left out. Folders above it are made.
        per_rule: how many removed documents to show for each rule.
        most: how many removed documents to show altogether.
        most_clusters: how many clusters to show.

    Returns:
        The file, or its URL.

    Raises:
        RunError: the run is not finished, its manifest lacks what every run writes, or ``out`` is not to be written.
        LedgerError: a number is less than 1, or the ledger is damaged.
    """
    with open_run(run, LEDGER) as folder:
        bring(folder / REPORT)
        target = folder / REPORT if out is None else Path(out)
        _write_report(folder, target, per_rule, most, most_clusters)
        return url_of(target) or target


def _write_report(folder: Path, target: Path, per_rule: int, most: int, most_clusters: int) -> None:
    manifest = read_manifest(folder)
    place = _place(target, folder, manifest)
    # A manifest in which something is not as runs write it fails here already, by the page that it alone makes.
    with unreadable(folder / MANIFEST, RunError, "run the recipe again in another folder"):
        ReportPage(manifest, texts.RemovedDocuments((), 0), Clusters((), 0, 0)).html()
    page = ReportPage(manifest, removed_documents(folder, per_rule, most), clusters(folder, most=most_clusters)).html()
    with writing(target, RunError, ELSEWHERE):
        write_text(place, page)


def _place(target: Path, run: Path, manifest: Mapping[str, Any]) -> Path:
    """Return where a file lies, behind links, that may be written and can be."""
    check_writable(target)
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
    """Return whether a file is empty, or a report."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        begin = opened.read(LONGEST_HEAD)
    head = begin.lstrip().partition(b"<style>")[0]
    return not begin or (head.startswith(b"<!DOCTYPE html>") and TITLE in head)
