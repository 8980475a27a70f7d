"""What came beside what was kept: lengths of texts, and the sites that documents come from."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

from longcrawl.display.numbers import percent
from longcrawl.display.table import Table
from longcrawl.ledger.analysis import Analysis, Lengths, bin_name, length_table
from longcrawl.report.passages import escape
from longcrawl.report.tables import Column, bar, key, named, table

__all__ = ["domain_table", "drawn", "length_tables"]

TOLD_DOMAINS = 15
"""Of kept documents, and of removed ones."""
NOT_COUNTED = "How long texts were at the source was not counted: it gave none, or pages to be extracted."


def length_tables(before: Lengths | None, analysis: Analysis) -> str:
    """Return lengths at the source beside those that were kept; apart where they are not in the same unit."""
    after = list(analysis.lengths)
    same = next((each for each in after if before is not None and each.unit == before.unit), None)
    parts = [] if before is not None else [f'<p class="note">{NOT_COUNTED}</p>'] * bool(after)
    if before is not None and same is not None:
        after.remove(same)
        parts.append(_before_and_after(before, same))
    elif before is not None:
        parts.append(_lengths(before, f"At the source, in {before.unit}", "came"))
    parts += [_lengths(each, f"Kept, in {each.unit}", "kept") for each in after]
    return "".join(parts)


def _before_and_after(before: Lengths, after: Lengths) -> str:
    bins = range(min(before.bins.start, after.bins.start), max(before.bins.stop, after.bins.stop))
    came, kept = (max(sum(each.documents.values()), 1) for each in (before, after))
    shares = [(before.documents.get(number, 0) / came, after.documents.get(number, 0) / kept) for number in bins]
    most = max([share for pair in shares for share in pair], default=0) or 1
    rows = []
    for number, (one, other) in zip(bins, shares, strict=True):
        counts = [f"{each.documents.get(number, 0):,}" for each in (before, after)]
        drawn = bar((one / most, "came")) + bar((other / most, "kept"))
        rows.append([named(bin_name(number)), drawn, counts[0], percent(one), counts[1], percent(other)])
    columns = [Column("", kind="bar")]
    for group, line in (("at the source", ""), ("kept", "second")):
        columns += [Column("documents", group, group, line), Column("share", group=group, kind=line)]
    shown = key(("came", "share of the documents at the source"), ("kept", "share of those that were kept"))
    said = "; ".join(f"{name} {_total(each)}" for name, each in (("at the source", before), ("kept", after)))
    return f"<h3>In {before.unit}</h3>{shown}{table('pairs', before.unit, columns, rows, _sentence(said))}"


def _lengths(lengths: Lengths, title: str, kind: str) -> str:
    shown = key((kind, "share of documents"), ("other", f"share of {lengths.unit}"))
    return f"<section><h3>{escape(title)}</h3>{shown}{drawn(length_table(lengths), kind)}</section>"


def _total(lengths: Lengths) -> str:
    return f"{sum(lengths.total.values()):,} {lengths.unit} in all and {lengths.mean:,.0f} on average"


def domain_table(analysis: Analysis, hosts: Sequence[str], *, whole: bool) -> str:
    """Return the domains of what was kept beside those of what was removed.

    Args:
        analysis: what was kept.
        hosts: those of the removed documents, as far as they are known.
        whole: whether these are all removed, or some.

    Returns:
        "" where no domain is known.

    """
    left = Counter(hosts)
    if not analysis.domains and not left:
        return ""
    ranked = sorted(left, key=lambda host: (-left[host], host))
    names = dict.fromkeys([*list(analysis.domains)[:TOLD_DOMAINS], *ranked[:TOLD_DOMAINS]])
    kept_most, left_most = (max(counts.values(), default=1) for counts in (analysis.domains, left))
    head = "removed" if whole else "removed, of the sample"
    columns = [*_site_columns("kept", "kept"), *(_site_columns(head, "removed", " second") if left else [])]
    rows = []
    for name in names:
        count, gone = analysis.domains.get(name), left[name]
        kept = _beyond(analysis) if count is None else [f"{count:,}", percent(count / analysis.documents)]
        cells = [named(name), bar((count / kept_most, "kept")) if count else "", *kept]
        if left:
            shares = [f"{gone:,}", percent(gone / len(hosts))] if gone or whole else ["", ""]
            cells += [bar((gone / left_most, "gone")) if gone else "", *shares]
        rows.append(cells)
    return table("sites", "domain", columns, rows, _domain_caption(analysis, len(hosts), whole=whole))


def _site_columns(group: str, label: str, line: str = "") -> list[Column]:
    bars, figures = f"bar{line}", line.strip()
    return [
        Column("", group=group, kind=bars),
        Column("documents", label, group, figures),
        Column("share", group=group, kind=figures),
    ]


def _beyond(analysis: Analysis) -> list[str]:
    """Describe how many documents a domain may have that is not among the largest."""
    if len(analysis.domains) == analysis.distinct_domains and not analysis.domains_error:
        return ["0", percent(0)]
    return [f"≤ {min(analysis.domains.values(), default=0) + analysis.domains_error:,}", ""]


def _domain_caption(analysis: Analysis, known: int, *, whole: bool) -> str:
    kept = f"{analysis.distinct_domains:,} domains were kept"
    if analysis.without_url:
        kept += f", and {analysis.without_url:,} documents without a URL"
    if analysis.domains_error:
        kept += f"; rare ones were forgotten: a count may be {analysis.domains_error:,} too low"
    if not known:
        return f"{kept}."
    if whole:
        return f"{kept}. Of the removed documents, all {known:,} documents whose URL is known are counted."
    return (
        f"{kept}, every document counted. Of the removed documents, the {known:,} of the sample above are counted "
        "whose URL is known. Rules weigh the same in the sample, so these are not shares of all removed documents."
    )


def drawn(shares: Table, kind: str = "kept") -> str:
    """Draw a table of shares with a bar to each row, and a second bar for shares of something else, as of tokens."""
    title, *_, last = shares.columns
    columns = [Column("", kind="bar"), Column("documents", kind="main"), Column("share", "of documents")]
    columns += [Column(last.title, last.title)] if last.kind == "share" else []
    rows = [(cast("tuple[str, int, float, float]", row[:4]), cast("Sequence[float]", row[4:])) for row in shares.rows]
    most = max([other for _, others in rows for other in others], default=0) or 1
    lines = []
    for (name, documents, share, length), others in rows:
        bars = bar((length, kind)) + "".join(bar((other / most, "other")) for other in others)
        lines.append([named(name), bars, f"{documents:,}", percent(share), *map(percent, others)])
    return table("bars", title.title, columns, lines, _sentence(" ".join(shares.notes)))


def _sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:]}."
