"""Inputs of a run: its folder, the files it reads, their versions, and the removals decided by surveys.

One process decides if all sketches fit in ``HELD`` bytes. If they do not, inputs are grouped into batches, and a survey
that supports it decides by exchanges between the batches, with the same result.

For each survey with ``index="save"``, ``RUN/index/STAGE/`` is an index of the documents in the run's result, see
:mod:`longcrawl.dedup.index`. Documents removed by later stages are not in it, so their duplicates in a later dataset
may be kept, as in RefinedWeb.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial, reduce
from itertools import groupby, islice
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.batches import with_column
from longcrawl.core.counts import LEDGER
from longcrawl.core.display import counted
from longcrawl.core.exchange import DOCUMENT, Engine, Sketched, pack_table, report_of, unpack_table
from longcrawl.core.funnel import Funnel
from longcrawl.core.ledger import entries
from longcrawl.core.outputs import RESULTS
from longcrawl.core.registry import is_ours
from longcrawl.core.sources import BadFile, Part, Source, joined, lacks_field
from longcrawl.core.stages import PART, SpanSurvey, Stage, Survey
from longcrawl.dedup.index import DESCRIPTION, INDEX, IndexedSurvey
from longcrawl.errors import RunError, SourceError, warn_user
from longcrawl.io import files as stored
from longcrawl.io.files import PARTIAL, is_there, names_in
from longcrawl.io.stored_tables import read_table, write_table
from longcrawl.io.structured import Marker
from longcrawl.run.analysis import Lengths
from longcrawl.run.checkpoints import CHECKPOINTS
from longcrawl.run.divide import DIVIDED
from longcrawl.run.manifest import EMPTIED, INPUTS, MANIFEST, WORK
from longcrawl.run.part import (
    GATHERED,
    IDS,
    input_marker,
    keep_spans,
    part_marker,
    removed_file,
    removed_marker,
    sketch_bytes,
    sketches,
    spans_kept,
    stored_rows,
)
from longcrawl.run.plan.estimates import Plan
from longcrawl.run.recipe import Recipe
from longcrawl.sources.files import InputFile, changed_files
from longcrawl.urls import without_secrets

R = TypeVar("R")

HELD = 64 << 20
"""Largest size of all sketches, in bytes on disk, to decide in one process: 8 s for 450 bands, while others wait."""
TASK = 128 << 20
"""Largest size of the inputs of one exchange task, in bytes of sketches on disk; inputs are never split."""
TASKS = 64
"""Number of exchange tasks that smaller inputs are divided into, of a ``TASKS``-th of ``HELD`` or more."""
WRITTEN = 32
"""Inputs per writing task after one process has decided; a task writes three files for each: ledger, rows, marker."""


class Batch(NamedTuple):
    """Inputs that are decided together, or that form one group of an exchange."""

    inputs: tuple[int, ...]
    rows: tuple[int, ...]


class Share(NamedTuple):
    """Inputs for which one task writes the decisions."""

    batch: Batch
    first: int
    read: Callable[[], pa.Table]
    """Function that returns the removals or spans of exactly these inputs, sorted by ``document``."""


class Asked(NamedTuple):
    """Documents that a survey decides about at once: those of one part of the run, or of all if ``part`` is None."""

    parts: Sequence[Sequence[int]]
    part: int | None
    last: int = 0
    """Segment after which earlier parts are finished, for a survey that reads the documents they kept."""

    @property
    def inputs(self) -> list[int]:
        """The numbers of the inputs with these documents."""
        groups = self.parts if self.part is None else [self.parts[self.part]]
        return sorted(number for group in groups for number in group)


def resolve(folder: Path, segment: int, label: str, survey: Survey, asked: Asked, engine: Engine) -> Mapping[str, Any]:
    """Run a survey's decision; write the ledger of removed documents and the removed rows of each input.

    Return the number of removed documents by rule ("rules") and the survey's messages ("report").
    """
    work, inputs = folder / WORK, asked.inputs
    decisions = work / f"decide-{segment}"
    marker = removed_marker(work, segment, asked.part or 0)
    each = [input_marker(work, segment, number) for number in inputs]
    if (done := Marker.read(marker)) is None or None in Marker.read_all(each):
        read, earlier = partial(sketches, work, segment), list[int]()
        if not survey.within_parts:
            if survey.after_parts:
                earlier = [number for group in asked.parts[: asked.part or 0] for number in group]
            read = partial(_read, folder, segment, survey, len(asked.parts), frozenset(earlier), asked.last)
        batches = group_inputs_by_size(work, segment, [*earlier, *inputs])
        shares, report = _decide(survey, batches, read, decisions, engine)
        wanted = frozenset(inputs)
        shares = [share for share in shares if wanted.intersection(share.batch.inputs)]
        writes = _each_share(partial(_write, folder, segment, label, wanted), shares, engine)
        rules = sum(map(Counter, writes), Counter[str]())
        engine.check()
        done = Marker(marker, {"rules": dict(sorted(rules.items())), "report": [*report]}, {})
        done.write()
        stored.remove(decisions)
    return done.content


def find_spans(folder: Path, segment: int, survey: SpanSurvey, asked: Asked, engine: Engine) -> int:
    """Run a survey's search for spans, which the next segment applies first.

    Returns:
        Bytes on disk of the search's files; 0 if the search was done before and they are removed.
    """
    work, most = folder / WORK, 0
    search = work / f"search-{segment}-{asked.part or 0}"
    if not spans_kept(work, segment, asked.inputs):
        read, batches = partial(sketches, work, segment), group_inputs_by_size(work, segment, asked.inputs)
        if (decided := _exchanged(survey, batches, read, search, engine)) is not None:
            shares, _ = decided
        else:
            shares = _cut_shares(batches, survey.find(read(asked.inputs), str(stored.scratch(search))).table)
        _each_share(partial(keep_spans, work, segment), shares, engine)
    engine.check()
    for place in {search, stored.scratch(search)}:
        most = max(most, stored.folder_bytes(place))
        stored.remove(place)
    return most


def _exchanged(
    survey: Survey, batches: Sequence[Batch], read: Callable[..., Iterator[pa.Table]], folder: Path, engine: Engine
) -> tuple[list[Share], Sequence[str]] | None:
    """Return the shares and report of a decision by an exchange, or None if one process can or must decide."""
    decided = survey.exchange(grouped_sketches(folder, batches, read), engine) if len(batches) > 1 else None
    if decided is None:
        return None
    firsts = np.cumsum([0, *(sum(batch.rows) for batch in batches)]).tolist()
    places = enumerate(zip(batches, firsts, strict=False))
    return [Share(batch, first, partial(decided.read, group)) for group, (batch, first) in places], decided.report


def _cut_shares(batches: Sequence[Batch], decided: pa.Table) -> list[Share]:
    """Cut one process's decisions into shares of ``WRITTEN`` inputs, packed to be sent to a task."""
    inputs, rows = ([each for batch in batches for each in batch[column]] for column in (0, 1))
    bounds, shares = np.cumsum([0, *rows]), list[Share]()
    places = np.searchsorted(decided[DOCUMENT].to_numpy(), bounds)
    for start in range(0, len(inputs), WRITTEN):
        stop = min(start + WRITTEN, len(inputs))
        packed = pack_table(decided.slice(places[start], places[stop] - places[start]))
        batch = Batch(tuple(inputs[start:stop]), tuple(rows[start:stop]))
        shares.append(Share(batch, int(bounds[start]), partial(unpack_table, packed, "this task")))
    return shares


def _each_share(write: Callable[[Share], R], shares: Sequence[Share], engine: Engine) -> list[R]:
    """Write the decisions of each share by tasks; a single share is written in this process."""
    engine.check()
    return list(engine.tasks(write, shares)) if len(shares) > 1 else [write(share) for share in shares]


def _decide(
    survey: Survey, batches: Sequence[Batch], read: Callable[..., Iterator[pa.Table]], folder: Path, engine: Engine
) -> tuple[list[Share], Sequence[str]]:
    if (decided := _exchanged(survey, batches, read, folder, engine)) is not None:
        return decided
    table = pa.concat_tables(read([each for batch in batches for each in batch.inputs]))
    removals = survey.removals(table)
    ids = pc.cast(table["id"], pa.large_string())
    found = pc.index_in(pc.cast(removals["id"], pa.large_string()), value_set=ids)
    numbered = removals.replace_schema_metadata(None).add_column(0, DOCUMENT, pc.cast(found, pa.int64()))
    return _cut_shares(batches, numbered.sort_by(DOCUMENT)), report_of(removals)


def group_inputs_by_size(work: Path, segment: int, inputs: Sequence[int]) -> list[Batch]:
    """Return all inputs as one batch if their sketches fit in one process, else as batches for tasks."""
    sizes = [sketch_bytes(work, segment, number) for number in inputs]
    total = sum(sizes)
    most = min(total // TASKS, TASK) if total > HELD else total
    groups, size = [list[int]()], 0
    for number, more in zip(inputs, sizes, strict=True):
        if groups[-1] and size + more > most:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += more
    return [Batch(tuple(some), tuple(stored_rows(work, segment, each) for each in some)) for some in groups]


def grouped_sketches(folder: Path, batches: Sequence[Batch], read: Callable[..., Iterator[pa.Table]]) -> Sketched:
    """Return the sketches of batches for an exchange with files in ``folder``; ``read`` returns those of inputs."""
    bounds = hashlib.sha256(json.dumps([batch.inputs for batch in batches]).encode()).hexdigest()
    groups = partial(_read_batch, read, [batch.inputs for batch in batches])
    # The folder is named after the groups, so that files of another grouping are never read.
    return Sketched(folder / bounds[:16], tuple(sum(batch.rows) for batch in batches), groups)


def _read(
    folder: Path,
    segment: int,
    survey: Survey,
    parts: int,
    earlier: frozenset[int],
    last: int,
    inputs: Sequence[int],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    """Yield the sketches of inputs, or some columns of them, with their part number.

    In ``earlier`` inputs, the key is null for documents that a segment up to ``last`` removed.
    """
    for number in inputs:
        gone = removed_ids(folder, segment, last, number) if number in earlier else None
        for table in sketches(folder / WORK, segment, [number]):
            found = table.append_column(PART, pa.array(np.full(table.num_rows, number % parts, np.int32)))
            if gone is not None:
                is_gone, keys = pc.is_in(pc.cast(table["id"], pa.string()), value_set=gone), found[survey.key]
                found = with_column(found, survey.key, pc.if_else(is_gone, pa.scalar(None, keys.type), keys))
            yield found if columns is None else found.select(columns)


def removed_ids(folder: Path, segment: int, last: int, number: int) -> pa.ChunkedArray:
    """Return the ids of an input's documents removed by the survey of ``segment`` or later, up to segment ``last``."""
    work = folder / WORK
    markers = [part_marker(work, each, number) for each in range(segment + 1, last + 1)]
    # A segment that ends with spans removes no document, and has no marker of removals.
    markers += filter(is_there, (input_marker(work, each, number) for each in range(segment, last)))
    chunks = [pa.array([], pa.string())]
    for marker in markers:
        found = Marker.open(marker)
        ledgers = [folder / LEDGER / Path(name).name for name in found.files if Path(name).parent.name == LEDGER]
        found.check(*ledgers)
        chunks += [chunk for file in ledgers for chunk in read_table(file, ["id"])["id"].chunks]
    return pa.chunked_array(chunks)


def _read_batch(
    read: Callable[..., Iterator[pa.Table]],
    batches: Sequence[Sequence[int]],
    group: int,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.Table]:
    return read(batches[group], columns)


def _write(folder: Path, segment: int, label: str, wanted: frozenset[int], share: Share) -> dict[str, int]:
    batch, first, read = share
    removals, work = read(), folder / WORK
    rules = Counter[str]()
    for number, rows in zip(batch.inputs, batch.rows, strict=True):
        if number not in wanted:
            first += rows
            continue
        files = list[Path]()
        start, stop = np.searchsorted(removals[DOCUMENT].to_numpy(), [first, first + rows]).tolist()
        if start < stop:  # `datasets` cannot load a parquet file without rows
            here = removals.slice(start, stop - start)
            files.append(removed_file(work, segment, number))
            write_table(pa.table({"row": here[DOCUMENT].to_numpy() - first}), files[-1])
            files.append(folder / LEDGER / f"{segment:02d}-{label}-{number:05d}.parquet")
            write_table(entries(here["id"], here, label), files[-1])
            counts = pc.value_counts(here["rule"].combine_chunks()).to_pylist()
            rules.update({each["values"]: each["counts"] for each in counts})
        marker = input_marker(work, segment, number)
        Marker(marker, {}, Marker.entries(marker, files)).write()
        first += rows
    return dict(rules)


def indexes_used(stages: Sequence[tuple[str, Stage]]) -> dict[str, dict[str, str]]:
    """Return the indexes of earlier datasets each stage uses, see :meth:`longcrawl.core.stages.Stage.used_indexes`."""
    return {label: used for label, stage in stages if (used := stage.used_indexes())}


def save_index(
    folder: Path, segment: int, last: int, inputs: int, label: str, survey: IndexedSurvey, engine: Engine
) -> Path:
    """Write ``index/LABEL``, the index of a survey's documents that the run kept; return the marker of its files.

    ``segment`` is the segment that ends with the survey, and ``last`` that of the output.
    """
    work, index = folder / WORK, folder / INDEX / label
    marker, decisions = work / f"index-{label}.json", work / f"index-{label}"
    if Marker.read(marker) is None:
        batches = group_inputs_by_size(work, segment, range(inputs))
        kept = partial(_kept, folder, segment, last)
        if len(batches) > 1:
            survey.exchange_index(grouped_sketches(decisions, batches, kept), index, engine)
        else:
            survey.save_index(pa.concat_tables(kept(batches[0].inputs)), index)
        files = json.loads((index / DESCRIPTION).read_text("utf-8"))["files"]
        entries = {os.path.relpath(index / name, marker.parent): entry for name, entry in files.items()}
        Marker(marker, {}, entries | Marker.entries(marker, [index / DESCRIPTION])).write()
    engine.check()
    stored.remove(decisions)
    return marker


def _kept(
    folder: Path, segment: int, last: int, inputs: Sequence[int], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the sketches of documents that neither the survey nor a later stage removed, or some columns of them."""
    for number in inputs:
        gone = removed_ids(folder, segment, last, number)
        for table in sketches(folder / WORK, segment, [number], None if columns is None else ["id", *columns]):
            kept = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
            yield kept if columns is None else kept.select(columns)


MOST_RULES = 5
AGAIN = "Restore it and run the same command again, or choose another --out folder"


@contextmanager
def run_folder(out: str | Path) -> Iterator[Path]:
    """Provide the absolute path of a run's folder, or a local folder for a URL; workers may start elsewhere."""
    if (url := stored.given_url(out)) is None:
        yield Path(out).absolute()
        return
    if not stored.takes_runs(url):
        sent = ", or send a finished run to a dataset with `longcrawl push FOLDER user/name`"
        raise RunError(
            f"a run cannot be written to {url}: choose a folder, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or "
            f"hf://buckets/USER/BUCKET/FOLDER{sent if url.startswith('hf:') else ''}"
        )
    with stored.open_place(url) as folder:
        yield folder


def reject_other_contents(folder: Path, recipe: Recipe) -> None:
    """Raise a RunError unless a folder is free, or holds a run of this recipe or one in which no work is done yet."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is a file: choose another folder")
    if not is_there(folder / MANIFEST):
        _check_no_links(folder)
    written = folder / "recipe.yaml"
    if is_there(written):
        if _any_done(folder) and not _can_resume(folder, written.read_bytes(), recipe):
            raise RunError(
                f"{folder} holds the run of another recipe ({_difference(written, recipe)}): "
                "choose another folder, or remove it"
            )
    elif any(name not in (WORK, written.name) and PARTIAL not in name for name in names_in(folder)):
        raise RunError(f"{folder} is not empty and holds no run: choose another folder")


def check_plan(plan: Plan | None, recipe: Recipe) -> None:
    """Raise a RunError if a plan was made for another recipe."""
    if plan is not None and plan.digest != recipe.digest:
        of = f"{plan.recipe!r}, digest {plan.digest}, not of {recipe.digest}"
        raise RunError(f"this plan is for recipe {of}: plan again")


def check_output(recipe: Recipe) -> None:
    """Raise a StageError if a stage or package is missing that a recipe's output or its card needs."""
    recipe.output.writer([stage for _, stage in recipe.stages])
    RESULTS[recipe.output.name].check_card()


def _check_no_links(folder: Path) -> None:
    """Check that a run's folder has no symbolic links: clearing temporary files could delete data outside of it."""
    paths = (Path(within, name) for within, folders, names in os.walk(folder) for name in sorted([*folders, *names]))
    link = next((path for path in paths if path.is_symlink()), None)
    if link is not None:
        raise RunError(
            f"{link} is a link to {link.readlink()}, but a run clears only its own folder. Remove the "
            "link, or choose an --out folder on that disk"
        )


def _can_resume(folder: Path, written: bytes, recipe: Recipe) -> bool:
    if written == recipe.as_yaml().encode():
        return True
    begun = None if is_there(folder / MANIFEST) else Marker.read(folder / WORK / INPUTS)
    return begun is not None and begun.content["recipe"] == _first_pass(recipe)


def _first_pass(chosen: Recipe) -> dict[str, Any]:
    """Return the part of a recipe that determines the files of the first pass."""
    recipe = chosen.as_dict()
    ((name, settings),) = recipe["outputs"].items()
    free = chosen.output.second_pass
    kept = {field: value for field, value in settings.items() if field not in free}
    return {"source": recipe["source"], "stages": recipe["stages"], "parts": recipe["parts"], "outputs": {name: kept}}


def _any_done(folder: Path) -> bool:
    return bool(names_in(folder) - {"recipe.yaml", WORK}) or _any_part_done(folder)


def _any_part_done(folder: Path) -> bool:
    return any(file.match("segment-*/*.json") for file in stored.whole_files(folder / WORK))


def _difference(written: Path, recipe: Recipe) -> str:
    before, now = written.read_text("utf-8", "replace").splitlines(), recipe.as_yaml().splitlines()
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"there {old.strip()[:60]!r}, here {new.strip()[:60]!r}"
    return "one has more lines than the other"


def needed_source(recipe: Recipe) -> Source:
    """Return a recipe's source, limited to the columns that its stages and output use."""
    source, stages = recipe.source, [stage for _, stage in recipe.stages]
    used = [stage.used_signals() for stage in stages]
    if not recipe.output.keeps_columns and None not in used:
        source = source.for_tokens(list(dict.fromkeys(name for names in used for name in names or ())))
    return source.for_stages(stages)


def pin_inputs(
    folder: Path,
    recipe: Recipe,
    parts: Sequence[Part],
    divided: Mapping[str, int],
    stages: Mapping[str, str],
    indexes: Mapping[str, Any],
) -> None:
    """Record the inputs of a run; on resume, raise a RunError if inputs, indexes, data files or code changed.

    ``divided`` has the bytes of a section of each part to divide. :func:`check_files` compares the contents of files.
    """
    content = hashlib.sha256(recipe.source.content().encode()).hexdigest()
    listing = {piece.name: [without_secrets(file) for file in piece.files] for part in parts for piece in part.each()}
    lists = recipe.source.lists()
    found: dict[str, Any] = {"content": content, "parts": listing, "lists": lists, "indexes": indexes, "stages": stages}
    if any(part.pieces for part in parts):
        found[GATHERED] = [len(part.each()) for part in parts]
    if divided:
        found[DIVIDED] = dict(divided)
    pinned, versions = folder / WORK / INPUTS, libraries_used(recipe)
    if _any_done(folder) and (is_there(pinned) or _any_part_done(folder)):
        before = _pinned(folder)
        _check_lists(folder, before.get("lists", {}), lists)
        _check_listing(folder, before.get("parts", {}), listing)
        if any(before.get(name) != value for name, value in found.items()):
            raise _changed(folder)
        versions = _begun_with(folder, before.get("libraries", versions), versions)
    now, listed = found | {"recipe": _first_pass(recipe)}, Marker.read(pinned)
    if versions:
        now["libraries"] = versions
    if listed is None or listed.content != now:
        for made in (IDS, DIVIDED, CHECKPOINTS):
            stored.remove(folder / WORK / made)
    Marker(pinned, now, {}).write()


def libraries_used(recipe: Recipe) -> dict[str, str]:
    """Return the versions of the system libraries of all stages, by name."""
    return {name: version for _, stage in recipe.stages for name, version in stage.libraries().items()}


def _begun_with(folder: Path, begun: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of libraries that a run was begun with, after a warning if others are here."""
    if begun != now:
        before, here = (" and ".join(map(" ".join, sorted(each.items()))) for each in (begun, now))
        warn_user(
            f"{folder} was started with {before} and continues with {here}, which may measure documents differently"
        )
    return dict(begun)


def stage_fingerprints(recipe: Recipe) -> dict[str, str]:
    """Return a fingerprint of each stage by label, with the version of third-party stages, source and output."""
    found = {label: _fingerprint(stage) for label, stage in recipe.stages}
    others = {name: json.dumps(about, sort_keys=True) for name, about in recipe.others.items()}
    return found | {name: f"{found.get(name, '')} {about}".strip() for name, about in others.items()}


def _fingerprint(stage: Stage) -> str:
    kind = type(stage)
    if not is_ours(kind):
        from datasets.fingerprint import Hasher

        return str(Hasher.hash(stage))
    named = [f"{kind.__module__}:{kind.__qualname__}", kind.code_version, stage.settings()]
    content = json.dumps([*named, *map(stored.content_digest, stage.files())], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def check_stages(folder: Path, stages: Mapping[str, str]) -> None:
    """Raise a RunError if a data file of a stage has changed during the run."""
    if _pinned(folder)["stages"] != stages:
        raise _changed(folder)


def _pinned(folder: Path) -> Mapping[str, Any]:
    """Return the recorded inputs of a run; without them, changes since the run began would go unnoticed."""
    marker = Marker.read(folder / WORK / INPUTS)
    if marker is None:
        raise RunError(
            f"{folder / WORK / INPUTS} is missing or damaged, and nothing else records the inputs of {folder}. "
            f"Remove {folder}, and run the same command again"
        )
    return marker.content


def _changed(folder: Path) -> RunError:
    return RunError(
        f"the input of {folder} has changed since the run began: choose another folder, or remove that folder"
    )


def _check_lists(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in before.keys() & now.keys():
        old, new = before[name]["sha256"], now[name]["sha256"]
        if old != new:
            difference = f"its SHA-256 was {old[:12]} and is {new[:12]}"
            raise RunError(f"the list {name} has changed since {folder} read it: {difference}. {AGAIN}")


def _check_listing(folder: Path, before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> None:
    old, new = ({file for files in listing.values() for file in files} for listing in (before, now))
    changes = [f"{file} is new" for file in sorted(new - old)] + [f"{file} is gone" for file in sorted(old - new)]
    if changes:
        raise RunError(
            f"the input of {folder} has changed since the run began ({changes[0]}). Undo that and run the same "
            "command again, or choose another --out folder"
        )


def check_begun(folder: Path, parts: Sequence[Part]) -> None:
    """Raise a RunError if a file of a finished part of the first segment has changed."""
    markers = Marker.read_all(part_marker(folder / WORK, 0, number) for number in range(len(parts)))
    check_files(folder, parts, [None if marker is None else marker.content for marker in markers])


def check_files(folder: Path, parts: Sequence[Part], results: Sequence[Mapping[str, Any] | None]) -> None:
    """Raise a RunError if a file has changed since it was read: the manifest would describe lost bytes.

    ``results`` are the counts of the first segment for each part, None for parts that are not done.
    """
    done = ((part, result["inputs"]) for part, result in zip(parts, results, strict=True) if result is not None)
    known = [(file, InputFile.from_mark(mark)) for part, marks in done for file, mark in zip(part.files, marks)]  # noqa: B905
    for file, difference in changed_files(list(dict.fromkeys(known))):  # sections of a file have equal records
        raise RunError(f"{file} has changed since {folder} read it: {difference}. {AGAIN}")


def bad_files(parts: Sequence[Part], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the manifest entries of the files that could not be read whole, one for all sections of a file."""
    found = list[dict[str, Any]]()
    for (name, is_section), pairs in groupby(
        zip(parts, results, strict=True), lambda pair: (pair[0].name, pair[0].section is not None)
    ):
        entries = [bad for _, result in pairs for bad in result["bad_files"]]
        if is_section and entries:
            bad = joined([BadFile(each["file"], each["reason"], each["records_lost"]) for each in entries])
            entries = [{"part": name, **asdict(bad)}]
        found += entries
    return found


def described(parts: Sequence[Part], results: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the manifest entries of the files that were read, by part."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part, result in zip(parts, results, strict=True):
        left = (InputFile.from_mark(mark).as_dict() for mark in result["inputs"])
        found |= {each.name: list(islice(left, len(each.files))) for each in part.each()}
    return found


def still_open(reasons: Sequence[str], parts: int, folder: Path) -> RunError:
    """Return the error for a run with unread parts, for which servers did not deliver the files."""
    return RunError(
        f"{len(reasons):,} of {parts:,} parts of {folder} are still open, the first: {reasons[0].rstrip('.')}. "
        "Finished work is kept: the same command asks for these parts again"
    )


def train_parts(source: Source) -> list[Part]:
    """Return the parts of a source's "train" split, the only split that a run reads."""
    splits = source.splits()
    if "train" not in splits:
        raise RunError(f"source {source.name!r} has no split 'train'; it has: {', '.join(splits)}")
    return splits["train"]


def source_lengths(results: Sequence[dict[str, Any]]) -> Lengths | None:
    """Return the text lengths of all parts, or None if a part did not record them."""
    known = all("lengths" in each for each in results)
    return reduce(add, (Lengths.from_dict(each["lengths"]) for each in results)) if known else None


def rare_fields(source: Source, parts: Sequence[Part], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the fields in the settings that only some documents have; SourceError if none has one of them."""
    documents, counts = sum(each["documents"] for each in results), Counter[str]()
    if not documents:
        return []
    for each in results:
        counts.update(each["fields"])  # a field without a value has the count 0
    if missing := source.named_fields().keys() - counts.keys():
        lacks = lacks_field(source, missing, (piece for part in parts for piece in part.each()))
        raise SourceError(f"{lacks}, and choose another folder")
    return [
        f"{count:,} of {counted(documents, 'document')} have a value in the field {name!r}"
        for name, count in sorted(counts.items())
        if count < documents
    ]


def summed(results: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """Return the sums of all parts of counts such as ``left_out``, sorted by key."""
    return dict(sorted(sum((Counter(each[name]) for each in results), Counter[str]()).items()))


def no_documents(source: str, recipe: Path, results: Sequence[Mapping[str, Any]]) -> RunError:
    """Return the error for a source without documents, with its first broken file and largest exclusion rules."""
    bad_files, left_out = [bad for each in results for bad in each["bad_files"]], summed(results, "left_out")
    message = f"source {source!r} produced no documents: check its settings in {recipe}"
    if bad_files:
        message += f"; {len({bad['file'] for bad in bad_files}):,} input file(s) could not be read whole, the first: "
        message += f"{bad_files[0]['file']}: {bad_files[0]['reason']}"
    if left_out:
        largest = sorted(left_out.items(), key=lambda rule: (-rule[1], rule[0]))[:MOST_RULES]
        counted = ", ".join(f"{rule} {count:,}" for rule, count in largest)
        message += f"; {sum(left_out.values()):,} record(s) were left out by the source's rules: {counted}"
    if "not_fetched" in left_out:
        message += ". Those not fetched do not pass the first stages: change their fields with --set"
    return RunError(message)


def check_not_empty(funnel: Funnel, work: Path) -> None:
    """Raise a RunError if no document remains; its note is the funnel, also saved for ``longcrawl why``."""
    if (emptied := funnel.emptied_by()) is not None:
        last = next(row.documents_in for row in funnel if row.stage == emptied)
        Marker(work / EMPTIED, funnel.as_dict(), {}).write()
        error = RunError(
            f"no document remains: stage {emptied!r} removed the last {last:,}. "
            f"Change its fields with --set stages.{emptied}.FIELD=VALUE, and choose another folder"
        )
        error.add_note(repr(funnel))
        raise error
