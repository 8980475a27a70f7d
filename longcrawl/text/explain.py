"""Explanations of why stages keep or drop one document."""

import html
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.display import Column, Table, counted, figure
from longcrawl.core.places import LineChange
from longcrawl.core.stages import Check, Stage, column, label_stages
from longcrawl.errors import StageError, as_lines, check_word, one_line

if TYPE_CHECKING:
    from longcrawl.text.extract.blocks import PageExplanation

Span = tuple[int, int]  # start and end of a place, in characters

SNIPPETS = 3  # number of places printed per rule

_COLUMNS = [Column("stage"), Column("rule"), Column("value", "count"), Column("threshold"), Column("verdict")]


@dataclass(frozen=True)
class MeasuredRule:
    """The result of one rule for the document; ``value`` or ``threshold`` is None if it is missing."""

    stage: str
    rule: str
    value: float | None
    comparison: Literal["at_least", "at_most"] | None
    threshold: float | None
    verdict: Literal["passes", "fails", "off"]
    """Verdict of the rule; "off" means that it has no threshold for the document's language."""

    @property
    def demand(self) -> str:
        """The rule's requirement in words, such as "at least 50", or "" if it has no threshold."""
        comparison = (self.comparison or "").replace("_", " ")
        return f"{comparison} {figure(self.threshold)}".strip() if self.threshold is not None else ""

    @property
    def measured(self) -> str:
        """The value as text, with enough digits to differ from the threshold."""
        if self.value is None:
            return "unknown" if self.comparison else ""
        spelled = figure(self.value)
        same = self.threshold is not None and self.value != self.threshold and spelled == figure(self.threshold)
        return repr(self.value) if same else spelled


@dataclass(frozen=True)
class Unexplained:
    """A stage that cannot be explained with one document, and the reason."""

    stage: str
    reason: str


@dataclass(frozen=True)
class SeenText:
    """A text that some stages saw, with the places that their rules refer to and the changes of an edit."""

    text: str
    stages: tuple[str, ...] = ()
    marks: tuple[tuple[MeasuredRule, tuple[Span, ...]], ...] = ()
    edited_by: str | None = None
    changes: tuple[LineChange, ...] = ()

    def changed_places(self) -> list[tuple[Span, LineChange]]:
        """Return the place of each change: the changed part of its line, or the whole line if the part is not found."""
        lines, at = [], 0
        for line in self.text.split("\n"):
            lines.append((at, at + len(line)))
            at += len(line) + 1
        places = []
        for change in self.changes:
            begin, end = lines[change.line - 1]
            found = self.text.find(change.before, begin, end)
            places.append(((begin, end) if found < 0 else (found, found + len(change.before)), change))
        return places


@dataclass(frozen=True)
class Explanation:
    """A report on one document: each rule with its value, threshold and verdict, and its places in the text.

    ``print`` shows a table, a few offending places and the verdict; a notebook also shows the text in colour.
    """

    rules: tuple[MeasuredRule, ...]
    unexplained: tuple[Unexplained, ...] = ()
    texts: tuple[SeenText, ...] = ()
    page: "PageExplanation | None" = None
    """The blocks of the page that a stage extracted the text from, if its column ``html`` is given."""

    @property
    def first_failure(self) -> MeasuredRule | None:
        """The failed rule that a crawl's ledger would name, or None if all rules pass."""
        return next((rule for rule in self.rules if rule.verdict == "fails"), None)

    @property
    def verdict(self) -> Literal["kept", "leaves", "unknown"]:
        """The verdict of a crawl on the document; "unknown" if no rule could be measured."""
        if not self.rules:
            return "unknown"
        return "kept" if self.first_failure is None else "leaves"

    def verdict_line(self) -> str:
        """Return the verdict as one line of text."""
        first, failed = self.first_failure, sum(rule.verdict == "fails" for rule in self.rules)
        left = f"; {counted(len(self.unexplained), 'stage')} not explained" if self.unexplained else ""
        if first is None:
            return f"KEPT: 0 of {len(self.rules)} rules fail{left}" if self.rules else f"UNKNOWN: no rule applies{left}"
        numbers = f" is {first.measured}, must be {first.demand}" if first.demand else ""
        removed = f"REMOVED at {first.stage}: {first.rule}{numbers}"
        return one_line(f"{removed} ({failed} of {len(self.rules)} rules fail){left}")

    def __str__(self) -> str:
        width = max(40, shutil.get_terminal_size((120, 24)).columns)
        page = str(self.page or "")
        parts = [page, self._table(), *(_places(text, width) for text in self.texts)]
        parts.append(as_lines(f"not explained: {stage.stage}, which {stage.reason}" for stage in self.unexplained))
        return "\n\n".join(part for part in [*parts, self.verdict_line()] if part)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self)

    def _table(self) -> str:
        if not self.rules:
            return ""
        rows = [
            [rule.stage, rule.rule, rule.measured, rule.demand, "FAILS" if rule.verdict == "fails" else rule.verdict]
            for rule in self.rules
        ]
        return str(Table(_COLUMNS, rows))


def _places(seen: SeenText, width: int) -> str:
    blocks: list[str] = []
    for rule, spans in seen.marks:
        if rule.verdict == "fails":
            blocks += [
                f"{rule.stage} {rule.rule}, {counted(len(spans), 'place')}:",
                *_snippets(seen.text, spans, width),
            ]
    by_rule: defaultdict[str, list[LineChange]] = defaultdict(list)
    for change in seen.changes:
        by_rule[change.rule].append(change)
    for name, changes in by_rule.items():
        blocks.append(f"{seen.edited_by} {name}, {counted(len(changes), 'line')} changed:")
        blocks += [_cut(f"  line {each.line:,}: {_change(each)}", width) for each in changes[:SNIPPETS]]
    return "\n".join(blocks)


def _snippets(text: str, spans: Iterable[Span], width: int) -> Iterator[str]:
    places = [(text[begin:end], begin) for begin, end in spans]
    first = dict(reversed(places))
    for place, times in Counter(place for place, _ in places).most_common(SNIPPETS):
        line = text.count("\n", 0, first[place]) + 1
        tail = f"  ({times:,} times)" if times > 1 else ""
        yield _cut(f"  line {line:,}: {place}", width - len(tail)) + tail


def _change(change: LineChange) -> str:
    return f"removed: {change.before}" if change.after is None else f"{change.before} -> {change.after}"


def _cut(line: str, width: int) -> str:
    """Cut a line to the width of a terminal, and replace control characters, which could move the cursor."""
    head = line[: 4 * width]
    plain = "".join(character if character.isprintable() else " " for character in head)
    return plain if len(line) <= width else f"{plain[: width - 1].rstrip()}…"


WHOLE = 100_000  # characters of a text shown in HTML; a longer text is shown only around its marks
AROUND = 200  # characters shown on either side of a mark in a longer text

_GOLDEN_ANGLE = 137.508
_BAD = "background:#ffd7d7;color:#8b0000"
_GOOD = "background:#d8f3dc;color:#1b4332"
_LEFT = "text-align:left"
_REMOVED = "background:#ffe9e9;color:#b00020;text-decoration:line-through"
_PUT_IN = "background:#e6f7ea;color:#00602b;text-decoration:none;border-bottom:2px solid #00602b"
_PAGE = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:40em;overflow:auto;border:1px solid #999;padding:.6em"

Colours = Mapping[MeasuredRule, str]


class _Place(NamedTuple):
    """A place in a text that a rule refers to, or a line that an edit changed."""

    span: Span
    title: str
    colour: str | None  # colour of the rule, or None if the line was edited or removed


def as_html(explanation: Explanation) -> str:
    """Return HTML with the verdict, the table of rules, and every text that the stages saw, with its marks."""
    marked = dict.fromkeys(rule for text in explanation.texts for rule, _ in text.marks)
    colours = {rule: f"hsl({number * _GOLDEN_ANGLE % 360:.0f},85%,78%)" for number, rule in enumerate(marked)}
    look = _GOOD if explanation.verdict == "kept" else _BAD
    parts = [f"<p style='{look};padding:.4em;font-weight:bold'>{html.escape(explanation.verdict_line())}</p>"]
    parts += [explanation.page._repr_html_()] if explanation.page is not None else []
    parts += [_table(explanation.rules, colours)] if explanation.rules else []
    for left in explanation.unexplained:
        parts.append(f"<p>not explained: <b>{html.escape(left.stage)}</b>, which {html.escape(left.reason)}</p>")
    parts += [_seen(text, colours) for text in explanation.texts]
    return f"<div>{''.join(parts)}</div>"


def _table(rules: Sequence[MeasuredRule], colours: Colours) -> str:
    head = "".join(f"<th style='{_LEFT}'>{name}</th>" for name in ("stage", "rule", "value", "threshold", "verdict"))
    rows = []
    for rule in rules:
        named = html.escape(rule.rule)
        name = f"<span style='background:{colours[rule]};color:#111'>{named}</span>" if rule in colours else named
        look = f"{_LEFT};{_BAD};font-weight:bold" if rule.verdict == "fails" else _LEFT
        cells = [html.escape(rule.stage), name, rule.measured, rule.demand]
        row = "".join(f"<td style='{_LEFT}'>{cell}</td>" for cell in cells)
        rows.append(f"<tr>{row}<td style='{look}'>{rule.verdict}</td></tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _seen(seen: SeenText, colours: Colours) -> str:
    marks = [_Place(span, f"{rule.stage} {rule.rule}", colours[rule]) for rule, spans in seen.marks for span in spans]
    changed = seen.changed_places()
    places = marks + [_Place(span, f"{seen.edited_by} {each.rule}", None) for span, each in changed]
    put_in = {span[1]: each.after for span, each in changed if each.after is not None}
    windows = _windows(len(seen.text), [place.span for place in places])
    shown = "".join(_shown(seen.text, places, put_in, windows))
    heading = f"The text as {html.escape(', '.join(seen.stages))} saw it"
    legend = _legend(seen, colours)
    return f"<p><b>{heading}</b>{_cut_note(seen.text, windows)}</p>{legend}<div style='{_PAGE}'>{shown}</div>"


def _legend(seen: SeenText, colours: Colours) -> str:
    entries = [
        f"<span style='background:{colours[rule]};color:#111'>{html.escape(rule.rule)}</span> "
        f"{html.escape(rule.stage)}, {counted(len(spans), 'place')}"
        for rule, spans in seen.marks
    ]
    for (rule, removed), count in Counter((change.rule, change.after is None) for change in seen.changes).items():
        done = f"<del style='{_REMOVED}'>removed</del>"
        if not removed:
            done = f"<del style='{_REMOVED}'>before</del> <ins style='{_PUT_IN}'>after</ins>"
        entries.append(f"{done} {html.escape(f'{seen.edited_by} {rule}')}, {counted(count, 'line')}")
    return f"<p>{'<br>'.join(entries)}</p>" if entries else ""


def _windows(length: int, spans: Sequence[Span]) -> list[Span]:
    """Return the parts to show: all of a short text, or the surroundings of the marks in a long one, up to a limit."""
    if length <= WHOLE:
        return [(0, length)]
    windows: list[Span] = []
    for begin, end in sorted(spans):
        first, last = max(0, begin - AROUND), min(length, end + AROUND)
        if windows and first <= windows[-1][1]:
            first, before = windows.pop()
            last = max(last, before)
        windows.append((first, last))
    left, shown = WHOLE, []
    for begin, end in windows:
        if left > 0:
            shown.append((begin, min(end, begin + left)))
            left -= end - begin
    return shown


def _cut_note(text: str, windows: Sequence[Span]) -> str:
    shown = sum(end - begin for begin, end in windows)
    if shown == len(text):
        return ""
    below = f"the {shown:,} around its first marks are below" if shown else "and no place is marked"
    return f" ({len(text):,} characters, too many to show; {below})"


def _shown(text: str, places: Sequence[_Place], put_in: Mapping[int, str], windows: Sequence[Span]) -> Iterator[str]:
    reached = 0
    for begin, end, here in _pieces(len(text), places, windows):
        if begin > reached:
            yield _gap(begin - reached)
        yield _piece(text[begin:end], [places[number] for number in here])
        if end in put_in:
            yield f" <ins style='{_PUT_IN}'>{html.escape(put_in[end])}</ins>"
        reached = end
    if reached < len(text):
        yield _gap(len(text) - reached)


def _pieces(length: int, places: Sequence[_Place], windows: Sequence[Span]) -> Iterator[tuple[int, int, list[int]]]:
    """Split the windows where a place begins or ends; yield begin, end and the numbers of the places of each piece."""
    begins, ends = defaultdict(list), defaultdict(list)
    for number, place in enumerate(places):
        if place.span[0] == place.span[1]:
            continue
        begins[place.span[0]].append(number)
        ends[place.span[1]].append(number)
    edges = sorted({0, length, *begins, *ends, *(edge for window in windows for edge in window)})
    inside: dict[int, None] = {}
    left = iter(windows)
    window = next(left, (length, length))
    for begin, end in pairwise(edges):
        for number in ends[begin]:
            inside.pop(number, None)
        inside |= dict.fromkeys(begins[begin])
        while window[1] <= begin < length:
            window = next(left, (length, length))
        if window[0] <= begin:
            yield begin, end, sorted(inside)


def _piece(text: str, places: Sequence[_Place]) -> str:
    written = html.escape(text)
    if not places:
        return written
    title = html.escape("; ".join(dict.fromkeys(place.title for place in places)))
    colours = list(dict.fromkeys(place.colour for place in places if place.colour is not None))
    if colours:
        written = f"<span style='background:{_bands(colours)};color:#111' title='{title}'>{written}</span>"
    touched = any(place.colour is None for place in places)
    return f"<del style='{_REMOVED}' title='{title}'>{written}</del>" if touched else written


def _bands(colours: Sequence[str]) -> str:
    if len(colours) == 1:
        return colours[0]
    height = 100 / len(colours)
    stops = (f"{each} {number * height:.0f}% {(number + 1) * height:.0f}%" for number, each in enumerate(colours))
    return f"linear-gradient({','.join(stops)})"


def _gap(characters: int) -> str:
    return f"<em style='color:#888'> [… {characters:,} characters …] </em>"


Show = Literal["failed", "all"]


def explain(
    text: str,
    stage: Stage | Sequence[Stage | tuple[str, Stage]],
    language: str | None = None,
    *,
    show: Show = "failed",
    **columns: Any,
) -> Explanation:
    r"""Explain what every rule of one or several stages measures in a text, and which places of it a rule refers to.

    In a list, each stage sees the text as edited by the stages before it. All stages are measured, including those
    after the one at which a crawl would drop the document. Stages that need all documents, stages that look at tokens,
    and (in a list) stages that lack a column are not explained, but listed with the reason.

    With the column ``html``, the text is extracted from the page by a stage such as ``ExtractText(engine="blocks")``,
    which comes first; the blocks of the page are also shown.

    Args:
        text: the document; not used if ``html`` is given.
        stage: a judge or an edit, or a list of stages: ``crawl.steps``, ``lc.load_recipe(NAME).stages``.
        language: the document's column ``language``.
        show: the rules whose places are marked in the text: "failed" or "all".
        **columns: other columns of the document, such as ``signals={"rps_doc_word_count": 120.0}``.

    Raises:
        StageError: an argument is not a stage or not a text, or a single stage lacks a column.

    >>> from longcrawl.text import MinChars
    >>> print(explain("too short", MinChars(12)))
    stage      rule       value  threshold    verdict
    min_chars  min_chars      9  at least 12  FAILS
    <BLANKLINE>
    REMOVED at min_chars: min_chars is 9, must be at least 12 (1 of 1 rules fail)
    """
    check_word("show", show, ("failed", "all"), StageError)
    reading = _Reading(_document(text, language, columns), language, show)
    stages = _stages(stage)
    if "html" in columns and not any(each.looks_at == "html" for each in stages):
        raise StageError("no stage extracts a text from html: add lc.text.ExtractText(engine='blocks') as the first")
    for label, each in zip(label_stages([each.name for each in stages]), stages, strict=True):
        try:
            reading.take(label, each)
        except StageError as wrong:
            if isinstance(stage, Stage):
                raise
            reading.unexplained.append(Unexplained(label, f"says: {wrong}"))
    return Explanation(tuple(reading.rules), tuple(reading.unexplained), tuple(reading.texts), reading.page)


@dataclass
class _Reading:
    """One document that passes through stages, with the results so far."""

    table: pa.Table
    language: str | None
    show: Show
    rules: list[MeasuredRule] = field(default_factory=list)
    unexplained: list[Unexplained] = field(default_factory=list)
    texts: list[SeenText] = field(default_factory=list)
    page: "PageExplanation | None" = None

    def take(self, label: str, stage: Stage) -> None:
        """Measure the rules of a stage, and keep the document as the stage edits it for the next one."""
        extracts = stage.looks_at == "html" and "html" in self.table.column_names
        if not extracts and (reason := _why_not(stage)) is not None:
            self.unexplained.append(Unexplained(label, reason))
            return
        documents, checks, _ = stage.trace(self.table)
        if extracts:
            self.rules += [_measured(label, check) for check in checks]
            self._note_page(label, stage)
        elif stage.judges:
            self._note(label, stage, checks)
            self._note_changes(label, stage)
        self.table = documents

    @property
    def text(self) -> str:
        """The document's current text."""
        return column(self.table, "text", "explain")[0].as_py() or ""

    def _note(self, label: str, stage: Stage, checks: Sequence[Check]) -> None:
        seen = self._seen()
        marks: list[tuple[MeasuredRule, tuple[Span, ...]]] = []
        for check in checks:
            rule = _measured(label, check)
            self.rules.append(rule)
            if rule.verdict == "fails" or self.show == "all":
                marks.append((rule, tuple(stage.marks(seen.text, rule.rule))))
        found = tuple(each for each in marks if each[1])
        self.texts[-1] = replace(seen, stages=(*seen.stages, label), marks=(*seen.marks, *found))

    def _note_page(self, label: str, stage: Stage) -> None:
        page = self.table["html"][0].as_py()
        try:
            self.page = None if page is None else stage.explain_page(page)
        except StageError as wrong:  # another engine
            self.unexplained.append(Unexplained(label, f"says: {wrong}"))

    def _note_changes(self, label: str, stage: Stage) -> None:
        # A stage that is set to one language uses it, whatever the document's column holds.
        named = self.language if getattr(stage, "language", None) is None else None
        changes = tuple(LineChange(*each) for each in stage.changes(self.text, named))
        if changes:
            self.texts[-1] = replace(self.texts[-1], edited_by=label, changes=changes)

    def _seen(self) -> SeenText:
        """Return the entry of the current text; stages that leave the text unchanged share an entry."""
        if not self.texts or self.texts[-1].text != self.text or self.texts[-1].changes:
            self.texts.append(SeenText(self.text))
        return self.texts[-1]


def _why_not(stage: Stage) -> str | None:
    if stage.looks_at != "text":
        return f"works on {stage.looks_at}, not on text"
    if stage.needs == "fit":
        return "learns from all documents before it rewrites one"
    return None if stage.needs == "batch" else "needs all documents to decide about one"


def _measured(label: str, check: Check) -> MeasuredRule:
    bound = check.threshold[0].as_py() if isinstance(check.threshold, pa.Array) else check.threshold
    value = pc.cast(check.value, pa.float64())[0].as_py()
    # A rule with an unknown result fails, as in the ledger.
    passes = check.passes[0].as_py() is True
    off = passes and check.comparison is not None and bound is None
    verdict: Literal["passes", "fails", "off"] = "off" if off else "passes" if passes else "fails"
    threshold = None if bound is None else float(bound)
    return MeasuredRule(label, check.rule, value, check.comparison, threshold, verdict)


def _stages(given: Stage | Sequence[Stage | tuple[str, Stage]]) -> list[Stage]:
    if isinstance(given, Stage):
        return [given]
    stages = [each[1] if isinstance(each, tuple) and len(each) == 2 else each for each in given]
    for each in stages:
        if not isinstance(each, Stage):
            raise StageError(f"explain takes a stage such as lc.text.GopherQuality(), or a list of them, got {each!r}")
    return stages


def _document(text: str, language: str | None, columns: dict[str, Any]) -> pa.Table:
    if not isinstance(text, str):
        raise StageError(f"explain takes one document's text, got {type(text).__name__}: give document['text']")
    made = {"id": _column("id", "document"), "text": _text_column(text), "language": _column("language", language)}
    return pa.table(made | {name: _column(name, value) for name, value in columns.items()})


def _text_column(text: str) -> pa.Array:
    try:
        return pa.array([text], pa.large_string())
    except UnicodeEncodeError as half:
        raise StageError(
            f"the text has half of a surrogate pair at character {half.start:,}, which UTF-8 cannot encode: "
            "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace') fixes it"
        ) from half


def _column(name: str, value: Any) -> pa.Array:
    try:
        return pa.nulls(1, pa.string()) if value is None else pa.array([value])
    except (pa.ArrowException, OverflowError) as wrong:
        raise StageError(f"the column {name!r} cannot be {value!r}: {wrong}") from wrong
