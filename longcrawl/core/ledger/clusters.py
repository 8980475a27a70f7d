"""Clusters of duplicates, out of a ledger: groups of similar documents, and how two of them differ."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.core.display import counted
from longcrawl.core.ledger.reasons import EARLIER, LEDGER_SCHEMA, Reason, follow
from longcrawl.core.word_diff import WordDiff, diff_words
from longcrawl.errors import LedgerError, one_line

NAMED = 5
"""Removed documents that are named when a cluster is printed."""

_PAGE = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:20em;overflow:auto;border:1px solid #999;padding:.6em"


@dataclass(frozen=True)
class Cluster:
    """Removed documents for the same one, through one deduplication stage or through several."""

    kept: Reason
    """The document that stayed when they were removed, and what became of it afterwards."""
    removed: pa.Table
    """Their ledger rows; ``kept_id`` is the document that each duplicates, which may itself have been removed later."""
    earlier: bool = False
    """Whether the kept document is one of an earlier dataset."""
    diff: WordDiff | None = None
    """How the two documents of ``pair`` differ; None where their texts are not to be had."""

    @property
    def size(self) -> int:
        """How many documents are in it, with the kept one."""
        return len(self.removed) + 1

    @property
    def rules(self) -> dict[str, int]:
        """How many documents were removed by which stage and rule."""
        counts = self.removed.group_by(["stage", "rule"], use_threads=False).aggregate([([], "count_all")])
        return {f"{row['stage']} {row['rule']}": row["count_all"] for row in counts.to_pylist()}

    @property
    def direct(self) -> pa.Table:
        """The rows of ``removed`` that duplicate the kept document itself, not one that was removed for it later."""
        elsewhere = pc.match_substring_regex(self.removed["rule"], EARLIER)
        return self.removed.filter(
            pc.and_(pc.equal(self.removed["kept_id"], self.kept.id), pc.equal(elsewhere, self.earlier))
        )

    @property
    def similarity(self) -> tuple[float, float] | None:
        """The least and the greatest similarity measured to the kept document; None where none was."""
        bounds = pc.min_max(self.direct["value"]).as_py()
        return None if bounds["min"] is None else (bounds["min"], bounds["max"])

    @property
    def pair(self) -> tuple[str, str] | None:
        """The kept document and the least similar one removed for it; for an earlier dataset's, two removed ones."""
        direct = self.direct
        order = pc.sort_indices(direct, [("value", "ascending"), ("id", "ascending")])
        ids = direct["id"].take(order[:2]).to_pylist()
        if not self.earlier:
            return self.kept.id, ids[0]
        return (ids[0], ids[1]) if len(ids) > 1 else None

    def facts(self) -> list[str]:
        """Describe what is known of it, line by line."""
        place = " of an earlier dataset" if self.earlier else ""
        fate = "" if self.kept.stage is None else f", which was later {self.kept.fate}"
        rules = ", ".join(f"{rule} {count:,}" for rule, count in self.rules.items())
        if self.similarity is not None:
            least, greatest = (f"{bound:.2f}" for bound in self.similarity)
            rules += f"; similarity {least}" + (f" to {greatest}" if greatest != least else "")
            by_way = self.removed.num_rows - self.direct.num_rows
            rules += f" ({by_way:,} others were duplicates of documents removed later)" if by_way else ""
        names = ", ".join(self._named(row) for row in self.removed[:NAMED].to_pylist())
        more = f" and {self.removed.num_rows - NAMED:,} more" if self.removed.num_rows > NAMED else ""
        facts = [f"{self.size:,} documents, kept {self.kept.id}{place}{fate}", f"by {rules}", f"removed: {names}{more}"]
        return [one_line(fact) for fact in facts]

    def _named(self, row: Mapping[str, Any]) -> str:
        """Name a removed document; where it duplicates another one than the kept, that one with its similarity."""
        if row["kept_id"] == self.kept.id and Reason(**row).leads_on != self.earlier:
            return str(row["id"])
        similarity = "" if row["value"] is None else f", similarity {row['value']:.2f}"
        return f"{row['id']} (a duplicate of {row['kept_id']}{similarity})"

    def diff_heading(self) -> str:
        """Describe which texts are compared, and how much of them differs."""
        if self.diff is None or self.pair is None:
            return ""
        return one_line(f"{self.pair[0]} and {self.pair[1]}: {self.diff.summary()}")

    def _repr_html_(self) -> str:
        facts = "<br>".join(html.escape(fact) for fact in self.facts())
        if self.diff is None:
            return f"<p>{facts}</p>"
        difference = f"<div style='{_PAGE}'>{self.diff._repr_html_()}</div>" if self.diff.pieces else ""
        return f"<p>{facts}<br>{html.escape(self.diff_heading())}</p>{difference}"

    def __str__(self) -> str:
        lines = self.facts()
        if self.diff is not None:
            lines += [self.diff_heading(), f"  {self.diff}"] if self.diff.pieces else [self.diff_heading()]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class Clusters:
    """The largest clusters of duplicates, the largest first: text in a terminal, coloured diffs in a notebook."""

    largest: tuple[Cluster, ...]
    count: int
    """How many clusters there are."""
    removed: int
    """How many documents were removed as duplicates."""
    note: str | None = None
    """Why a diff is missing."""

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self.largest)

    def __len__(self) -> int:
        return len(self.largest)

    def __getitem__(self, number: int) -> Cluster:
        return self.largest[number]

    def compared(self) -> list[str]:
        """Return the documents whose texts :meth:`with_texts` compares."""
        return sorted({document for cluster in self.largest for document in cluster.pair or ()})

    def with_texts(self, texts: Mapping[str, str], note: str | None = None) -> "Clusters":
        """Return these clusters with diffs where both texts are there; ``note`` says why others are not."""
        compared = []
        for cluster in self.largest:
            found = [texts[each] for each in cluster.pair or () if each in texts]
            compared.append(replace(cluster, diff=diff_words(found[0], found[1]) if len(found) > 1 else None))
        return replace(self, largest=tuple(compared), note=note)

    def summary(self) -> str:
        """Describe how many there are."""
        if not self.count:
            return "no clusters: no document was removed as the duplicate of another one"
        clusters = counted(self.count, "cluster")
        shown = "" if len(self) == self.count else f"; the largest {len(self):,} of them"
        removed = f"{counted(self.removed, 'document')} {'was' if self.removed == 1 else 'were'} removed"
        return f"{clusters} of duplicates; {removed}{shown}"

    def __str__(self) -> str:
        parts = [self.summary(), *(f"{number}. {cluster}" for number, cluster in enumerate(self.largest, 1))]
        return "\n\n".join([*parts, *([one_line(self.note)] if self.note else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{cluster._repr_html_()}</li>" for cluster in self.largest)
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{html.escape(self.summary())}</b></p><ol>{items}</ol>{note}"


class _Ends(NamedTuple):
    """Removed documents as duplicates, and the document that each ends at."""

    rows: pa.Table
    ends: pa.Array
    earlier: pa.Array


def find_clusters(ledger: pads.Dataset, stages: Sequence[str], stage: str | None = None, most: int = 10) -> Clusters:
    """Find the largest clusters; a document that was kept by one stage and removed at a later one leads on to the next.

    ``stages`` are the labels of all stages, in order. With ``stage`` only what it removed counts, by the documents that
    it kept.

    Raises:
        LedgerError: there is no such stage, or ``most`` is less than 1.
    """
    if stage is not None and stage not in stages:
        raise LedgerError(f"there is no stage {stage!r}; there are: {', '.join(stages) or 'none'}")
    if most < 1:
        raise LedgerError(f"the {most} largest clusters are none; ask for 1 or more")
    condition = pc.field("kept_id").is_valid()
    duplicates = ledger.to_table(filter=condition if stage is None else condition & (pc.field("stage") == stage))
    found = _follow(duplicates, stages)
    table = pa.table([found.ends, found.earlier], ["end", "earlier"])
    counts = table.group_by(["end", "earlier"], use_threads=False).aggregate([([], "count_all")])
    largest = counts.sort_by([("count_all", "descending"), ("end", "ascending"), ("earlier", "ascending")])[:most]
    later = ledger.to_table(filter=pc.field("id").isin(_whole(largest["end"])))
    kept, members = [], []
    for one in largest.to_pylist():
        chosen = pc.and_(pc.equal(found.ends, one["end"]), pc.equal(found.earlier, one["earlier"]))
        removed = found.rows.filter(chosen)
        kept.append(Reason(one["end"]) if one["earlier"] else _fate(one["end"], later, removed, stages))
        members.append((removed, one["earlier"]))
    ends = follow(ledger, stages, kept)
    clusters = tuple(Cluster(end, *rows) for end, rows in zip(ends, members, strict=True))
    return Clusters(clusters, counts.num_rows, duplicates.num_rows)


def _follow(duplicates: pa.Table, stages: Sequence[str]) -> _Ends:
    """Find where each document ends, the last stage first: what it kept was removed at a later one, or not at all."""
    known = _Ends(LEDGER_SCHEMA.empty_table(), pa.array([], pa.string()), pa.array([], pa.bool_()))
    for stage in reversed(stages):
        rows = duplicates.filter(pc.equal(duplicates["stage"], stage)).sort_by("id").combine_chunks()
        if not rows.num_rows:
            continue
        kept, elsewhere = _whole(rows["kept_id"]), _whole(pc.match_substring_regex(rows["rule"], EARLIER))
        place = pc.index_in(kept, value_set=_whole(known.rows["id"]))
        place = pc.if_else(elsewhere, pa.scalar(None, place.type), place)
        ends = pc.coalesce(known.ends.take(place), kept)
        earlier = pc.coalesce(known.earlier.take(place), elsewhere)
        known = _Ends(
            pa.concat_tables([rows, known.rows]),
            pa.concat_arrays([ends, known.ends]),
            pa.concat_arrays([earlier, known.earlier]),
        )
    return known


def _whole(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _fate(document: str, ledger: pa.Table, removed: pa.Table, stages: Sequence[str]) -> Reason:
    """Describe what became of a kept document after the last of its duplicates had been removed."""
    last = max(stages.index(stage) for stage in pc.unique(removed["stage"]).to_pylist())
    rows = ledger.filter(pc.equal(ledger["id"], document)).to_pylist()
    left = [row for row in rows if stages.index(row["stage"]) > last]
    return Reason(**left[0]) if left else Reason(document)
