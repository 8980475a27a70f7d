"""An explanation as HTML: the table of rules, and the text with the places that rules are about in colours."""

import html
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from longcrawl.display.numbers import counted
from longcrawl.text.explanation import Explanation, MeasuredRule, SeenText, Span

WHOLE = 100_000
"""A text of more characters is shown only around its marks, and of that so many characters."""
AROUND = 200
"""Characters shown on either side of a mark in such a text."""

_GOLDEN_ANGLE = 137.508
_BAD = "background:#ffd7d7;color:#8b0000"
_GOOD = "background:#d8f3dc;color:#1b4332"
_LEFT = "text-align:left"
_REMOVED = "background:#ffe9e9;color:#b00020;text-decoration:line-through"
_PUT_IN = "background:#e6f7ea;color:#00602b;text-decoration:none;border-bottom:2px solid #00602b"
_PAGE = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:40em;overflow:auto;border:1px solid #999;padding:.6em"

Colours = Mapping[MeasuredRule, str]


class _Place(NamedTuple):
    """A place of a text: what a rule is about, or a line that an edit has touched."""

    span: Span
    title: str
    colour: str | None
    """None where the line was edited or removed."""


def as_html(explanation: Explanation) -> str:
    """Return the verdict, the table of rules, and every text that stages saw, with its marks."""
    marked = dict.fromkeys(rule for text in explanation.texts for rule, _ in text.marks)
    colours = {rule: f"hsl({number * _GOLDEN_ANGLE % 360:.0f},85%,78%)" for number, rule in enumerate(marked)}
    look = _GOOD if explanation.verdict == "kept" else _BAD
    parts = [f"<p style='{look};padding:.4em;font-weight:bold'>{html.escape(explanation.verdict_line())}</p>"]
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
    said = [
        f"<span style='background:{colours[rule]};color:#111'>{html.escape(rule.rule)}</span> "
        f"{html.escape(rule.stage)}, {counted(len(spans), 'place')}"
        for rule, spans in seen.marks
    ]
    counts: defaultdict[tuple[str, bool], int] = defaultdict(int)
    for change in seen.changes:
        counts[change.rule, change.after is None] += 1
    for (rule, removed), count in counts.items():
        done = f"<del style='{_REMOVED}'>removed</del>"
        if not removed:
            done = f"<del style='{_REMOVED}'>before</del> <ins style='{_PUT_IN}'>after</ins>"
        said.append(f"{done} {html.escape(f'{seen.edited_by} {rule}')}, {counted(count, 'line')}")
    return f"<p>{'<br>'.join(said)}</p>" if said else ""


def _windows(length: int, spans: Sequence[Span]) -> list[Span]:
    """Return what is shown: a short text as a whole, of a long one what stands around the marks, up to a limit."""
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
    said = f"the {shown:,} around its first marks are below" if shown else "and no place is marked"
    return f" ({len(text):,} characters, too many to show; {said})"


def _shown(text: str, places: Sequence[_Place], put_in: Mapping[int, str], windows: Sequence[Span]) -> Iterator[str]:
    """Return the text piece by piece: within a piece the same rules apply."""
    pieces = _pieces(len(text), places, windows)
    reached = 0
    for begin, end, here in pieces:
        if begin > reached:
            yield _gap(begin - reached)
        yield _piece(text[begin:end], [places[number] for number in here])
        if end in put_in:
            yield f" <ins style='{_PUT_IN}'>{html.escape(put_in[end])}</ins>"
        reached = end
    if reached < len(text):
        yield _gap(len(text) - reached)


def _pieces(length: int, places: Sequence[_Place], windows: Sequence[Span]) -> Iterator[tuple[int, int, list[int]]]:
    """Cut the windows where a place begins or ends: begin, end, and which places a piece is in."""
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
    said = html.escape(text)
    if not places:
        return said
    title = html.escape("; ".join(dict.fromkeys(place.title for place in places)))
    colours = list(dict.fromkeys(place.colour for place in places if place.colour is not None))
    if colours:
        said = f"<span style='background:{_bands(colours)};color:#111' title='{title}'>{said}</span>"
    touched = any(place.colour is None for place in places)
    return f"<del style='{_REMOVED}' title='{title}'>{said}</del>" if touched else said


def _bands(colours: Sequence[str]) -> str:
    """Return the colours of all rules that mark a piece, one above the other."""
    if len(colours) == 1:
        return colours[0]
    height = 100 / len(colours)
    stops = (f"{each} {number * height:.0f}% {(number + 1) * height:.0f}%" for number, each in enumerate(colours))
    return f"linear-gradient({','.join(stops)})"


def _gap(characters: int) -> str:
    return f"<em style='color:#888'> [… {characters:,} characters …] </em>"
