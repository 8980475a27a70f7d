"""A run: a recipe carried out over all parts of its source, resumable at any point.

The folder of a finished run holds:

* ``README.md``, the dataset card; ``recipe.yaml``, with every field spelled out;
* ``ledger/*.parquet``, a row per removed document; ``edits/*.parquet``, a row per changed place in a document;
* ``index/STAGE/``, for each survey with ``index="save"``: an index of the kept documents for later datasets;
* one folder named after the output, such as ``rectangle/``;
* ``manifest.json``, written last, with the SHA-256 of every file and, at the end, its own;
* ``plan.json``, if a plan was given: its figures beside the actual ones, times included. The manifest does not list it.

Until then ``work/`` holds the finished work. Times, worker counts and process ids are written only to ``work/`` and
``plan.json``, so the same recipe over the same input gives the same bytes.
"""

import re
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise, takewhile
from operator import add
from pathlib import Path
from typing import Any, Literal, cast

from longcrawl.core.counts import FROM_OCR
from longcrawl.core.display import Column, Table, counted
from longcrawl.core.exchange import Engine
from longcrawl.core.funnel import Funnel, FunnelRow, RemovalRates, total
from longcrawl.core.ledger import edit_schema
from longcrawl.core.outputs import RESULTS, Writer, mark_related
from longcrawl.core.registry import installed_versions, is_ours
from longcrawl.core.sources import BadFiles, Part
from longcrawl.core.stages import Needs, Segment, SpanSurvey, Stage, Survey, next_segments
from longcrawl.dedup.index import IndexedSurvey
from longcrawl.errors import DISK_FULL, LongCrawlError, RunError, as_lines, one_line, warn_user
from longcrawl.io import files
from longcrawl.io.structured import DamagedWorkError, Marker, seal
from longcrawl.kernels.compiling import without_gc
from longcrawl.run import divide, inputs, part, segments
from longcrawl.run.analysis import analyse
from longcrawl.run.card.write import write_card
from longcrawl.run.compile_ahead import compiling_ahead
from longcrawl.run.engines.local import Local
from longcrawl.run.manifest import CARD, MANIFEST, PLAN, VERSION, WORK, RunCosts, RunSummary, StageCost, read_manifest
from longcrawl.run.part import Tally, run_fused, run_part
from longcrawl.run.plan.estimates import Plan
from longcrawl.run.recipe import Recipe, check_order, load_recipe
from longcrawl.urls import is_url, without_secrets

IDLE = 3600.0
"""Seconds without a change after which an unfinished file is treated as abandoned by a killed process."""


def run(
    recipe: str | Path | Recipe,
    out: str | Path,
    num_proc: int = 1,
    overrides: Iterable[str] = (),
    plan: Plan | None = None,
    engine: Engine | None = None,
) -> RunSummary:
    """Run a recipe, or resume a run that was stopped.

    Args:
        recipe: a shipped recipe's name, the path of a YAML file, or a :class:`Recipe`.
        out: the run's folder, on a file system that all workers see, or ``s3://BUCKET/FOLDER``, ``gs://BUCKET/FOLDER``;
            a folder with another recipe's run is rejected.
        num_proc: worker processes on this machine; the output bytes do not depend on it.
        overrides: ``PATH=VALUE`` with YAML values, such as ``source.data_dir=release``.
        plan: a plan of this recipe to compare the run with; ``plan.json`` lists all figures of both, the manifest all
            but times and disk.
        engine: engine to use in place of local processes, such as ``lc.engines.Spark(session)``. The output bytes do
            not depend on it, and another engine may resume the run.

    Raises:
        RunError: the run cannot start, continue or finish.
    """
    started = time.monotonic()
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    _check_arguments(num_proc, engine, list(overrides) if chosen is recipe else ())
    inputs.check_plan(plan, chosen)
    with inputs.run_folder(out) as folder:
        inputs.reject_other_contents(folder, chosen)
        costs: dict[str, StageCost] = {}
        if files.is_there(folder / MANIFEST):
            manifest = read_manifest(folder)
        else:
            check_order(chosen)
            inputs.check_output(chosen)
            manifest, costs = _work_on(chosen, folder, engine or Local(num_proc), plan)
        files.drop(folder / WORK)
        shutil.rmtree(folder / WORK, ignore_errors=True)
        files.bring_folder(folder / chosen.output.name)
        batch = RESULTS[chosen.output.name].read_back(folder / chosen.output.name)
        written = files.url_of(folder) or str(Path(out))
    rates = RemovalRates.from_manifest(manifest)
    found = rates, manifest["output"], batch, len(manifest["bad_files"]), time.monotonic() - started
    checked = plan.against(manifest, costs) if plan is not None else ()
    told = manifest.get("warnings", {}), manifest.get("reports", {}).get(chosen.source.name, [])
    return RunSummary(chosen.name, written, *found, checked, costs, *told)


def _check_arguments(num_proc: int, engine: Engine | None, unused: Sequence[str]) -> None:
    if isinstance(engine, str):
        raise RunError(
            f"engine must be an object such as lc.engines.Spark(session), got {engine!r}: words are for `--engine`"
        )
    if num_proc < 1:
        raise RunError(f"num_proc is {num_proc}: set it to 1 or more")
    if engine is not None and num_proc != 1:
        raise RunError(f"num_proc={num_proc} works only with the engine local: remove num_proc or engine")
    if unused:
        raise RunError(f"overrides change a recipe's name or file, not a Recipe: pass {unused} to load_recipe")


def _work_on(
    recipe: Recipe, folder: Path, engine: Engine, plan: Plan | None
) -> tuple[dict[str, Any], dict[str, StageCost]]:
    """Lock the folder, finish the run and return its manifest and costs; turn OSError into RunError."""
    try:
        (folder / WORK).mkdir(parents=True, exist_ok=True)
        # List the folder: on a shared file system, a machine may cache for a while that a file does not exist.
        is_led = True
        while is_led:  # again after the lead was lost
            with engine.hold(folder / WORK, lambda: MANIFEST in files.names_in(folder)) as leading:
                is_led = leading is not None
                if leading is not None:
                    with compiling_ahead(recipe, folder / WORK):
                        return _finish(recipe, folder, leading, plan)
        inputs.reject_other_contents(folder, recipe)
        return read_manifest(folder), {}
    except OSError as failed:
        place, kept = failed.filename or folder, "finished work is kept"
        problem = f"{place}: {failed.strerror or failed}; fix that and run the same command again, {kept}"
        if failed.errno in DISK_FULL:
            problem = f"no space left for {place}: make room and run the same command again; {kept}"
        raise RunError(problem) from failed


def _finish(
    recipe: Recipe, folder: Path, engine: Engine, plan: Plan | None
) -> tuple[dict[str, Any], dict[str, StageCost]]:
    """Finish the run; make damaged work again, but fail if the same damage occurs twice."""
    again = set[str]()
    while True:
        job = _Job(recipe, folder, engine, plan)
        try:
            return job.finish(), job.costs.stages
        except DamagedWorkError as damaged:
            engine.check()
            if damaged.problem in again:
                raise
            again.add(damaged.problem)
            warn_user(f"{damaged.problem}; its work is done again")
            for path in damaged.stale:
                files.remove(path)


class _Job:
    """State of one recipe's run in one folder. Every step can be repeated; finished steps are skipped."""

    def __init__(self, recipe: Recipe, folder: Path, engine: Engine, plan: Plan | None) -> None:
        self.recipe, self.plan, self.engine = recipe, plan, engine
        self.folder, self.work = folder, folder / WORK
        self.whole = part.gather_small(inputs.train_parts(recipe.source), recipe, folder)
        """Parts before large files are divided."""
        self.parts: Sequence[Part] = self.whole
        self.divided: Sequence[Path | None] = [None] * len(self.parts)
        """Marker of the division that made each part."""
        self.source = inputs.needed_source(recipe)
        self.compared: Sequence[part.IdTask] = ()
        """Tasks of all parts with ids to compare; some wait for the first segment."""
        self.groups = segments.group_inputs(len(self.parts), recipe.parts)
        self.funnel = Funnel(recipe.source.name, 0)
        self.read: Sequence[dict[str, Any]] = ()
        """Counts of the first segment, which reads the source, by part."""
        self.reports: dict[str, list[str]] = {}
        self.warnings: dict[str, list[str]] = {}
        """Warnings about stages that only a run finds."""
        self.costs = RunCosts(self.work)
        self.sizes = [each.local_bytes() for each in self.parts]
        """Amount of work in each part: bytes of its local files or None, then ``amount_left`` by the last segment."""
        self.ended_by: list[str] = []
        self.indexed: list[tuple[int, str, IndexedSurvey]] = []
        """Segment, label and survey of each index to save."""
        self.markers: list[Path] = []

    def finish(self) -> dict[str, Any]:
        if files.is_there(self.folder / MANIFEST):
            return read_manifest(self.folder)
        files.remove_partial(self.folder, IDLE)
        fingerprints, used = inputs.stage_fingerprints(self.recipe), inputs.indexes_used(self.recipe.stages)
        sizes = [each.local_bytes() for each in self.whole]
        to_divide = divide.divide_tasks(self.work, self.source, self.whole, sizes)
        divided = {task.part.name: task.size for task in to_divide}
        inputs.pin_inputs(self.folder, self.recipe, self.whole, divided, fingerprints, used)
        self._divide(to_divide)
        inputs.check_begun(self.folder, self.parts)
        with without_gc():
            for label, stage in self.recipe.stages:
                stage.prepare()
                if sentences := stage.limits():
                    self.reports[label] = list(sentences)
        written_recipe = self.folder / "recipe.yaml"
        if files.is_there(written_recipe) and written_recipe.read_bytes() != self.recipe.as_yaml().encode():
            files.remove(self.folder / self.recipe.output.name)
            files.remove(self.work / segments.WRITTEN)
        files.write_text(written_recipe, self.recipe.as_yaml())
        writer = self._run_stages()
        inputs.check_stages(self.folder, inputs.stage_fingerprints(self.recipe))
        written = self._write_output(writer)
        inputs.check_files(self.folder, self.parts, self.read)
        self._save_indexes()
        with self.costs.measure(self.recipe.output.name, "describe"):
            manifest = self._describe(written)
            self.engine.check()
        self.costs.add_disk(self.ended_by)
        if self.plan is not None:
            manifest["plan"] = [each.as_dict() for each in self.plan.against(manifest)]
            files.remove(self.folder / PLAN)
            self.plan.save(self.folder / PLAN, self.plan.against(manifest, self.costs.stages))
        files.remove_partial(self.folder)
        files.write_text(self.folder / MANIFEST, seal(manifest))
        return manifest

    def _divide(self, tasks: Sequence[divide.DivideTask]) -> None:
        if not tasks:
            return
        with self.costs.measure(self.recipe.source.name, "divide") as cost:
            markers, sizes = [task.marker for task in tasks], [task.part.local_bytes() for task in tasks]
            given = self.folder, divide.divide, tasks, markers, self.engine
            found = segments.do_once(*given, "divide", "files", sizes=sizes, progress="bytes")
            cost.disk = files.folder_bytes(self.work / divide.DIVIDED)
        self.parts, self.divided, self.groups = divide.divided_parts(self.whole, tasks, found, self.groups)
        self.sizes = [each.local_bytes() for each in self.parts]

    def _run_stages(self) -> Writer:
        """Run all segments; the last one does the first pass of the output."""
        stages = list(self.recipe.stages)
        done: list[Stage] = []
        number = 0
        found: tuple[str, SpanSurvey] | None = None
        self.compared = self._compare_ids()
        while True:
            segment, *following = next_segments(number, stages, found, len(self.groups))
            last = following[-1] if following else segment
            for each in (segment, *following):
                done += [stage for _, stage in each.stages]
                stages = stages[len(each.stages) :]
                if each is not last and each.ends_with is not None:
                    done.append(each.ends_with[1])
                    stages = stages[1:]
            writer = None if last.ends_with else mark_related(self.recipe.output.writer(done), done)
            results = self._run_segment(segment, range(len(self.parts)), writer if segment is last else None)
            self._add_results(segment, results)
            if not number:
                self._finish_reading()
            if following:
                self._run_parts([segment, *following], writer)
                removes = [
                    each.judges or (each.needs in ("removals", "spans") and not each.orders) for _, each in stages
                ]
                if any(removes) and segment.ends_with is not None:  # it needs all parts together
                    self.reports.setdefault(segment.ends_with[0], []).append(
                        f"documents of earlier parts count as kept if they reach {stages[0][0]}, which needs all parts "
                        "together"
                    )
            if last.ends_with is None:
                assert writer is not None  # a segment either ends with a stage or has the writer
                return writer
            label, stage = last.ends_with
            if stage.needs == "fit":
                stages[0] = (label, self._fit(last.number, label, stage))
                found = None
            else:
                together = range(len(self.groups)) if self._is_by_part(stage) else [None]
                self._add_removed(last, [self._decide(last, group) for group in together])
                found = (label, cast("SpanSurvey", stage)) if stage.needs == "spans" else None
                done.append(stage)
                stages = stages[1:]
            number = last.number + 1

    def _run_parts(self, segments: Sequence[Segment], writer: Writer | None) -> None:
        """Take each part in turn through all segments, from the survey that ends the first one, which has been run."""
        removed = [list[Mapping[str, Any]]() for _ in segments]
        results: list[dict[int, dict[str, Any]]] = [{} for _ in segments]
        last = segments[-1]
        for group, numbers in enumerate(self.groups):
            for place, (before, segment) in enumerate(pairwise(segments)):
                removed[place].append(self._decide(before, group, last.number))
                made = self._run_segment(segment, numbers, writer if segment is last else None)
                results[place + 1] |= dict(zip(numbers, made, strict=True))
        for place, (before, segment) in enumerate(pairwise(segments)):
            self._add_removed(before, removed[place])
            self._add_results(segment, [results[place + 1][number] for number in range(len(self.parts))])

    def _is_by_part(self, stage: Stage) -> bool:
        return isinstance(stage, Survey) and (stage.within_parts or (stage.after_parts and len(self.groups) > 1))

    def _compare_ids(self) -> list[part.IdTask]:
        """Find duplicate ids before the first stage and apply ``on_duplicate_ids``.

        Return the tasks of all parts; the ids of some are only compared after the first segment.
        """
        source, keeps_first = self.recipe.source, self.recipe.on_duplicate_ids == "keep_first"
        if keeps_first and Marker.read(part.kept_marker(self.work)):
            return []
        tasks = part.id_tasks(self.work, source, self.parts, self.recipe.on_duplicate_ids, self.divided)
        listed = [task for task in tasks if not task.waits]
        with self.costs.measure(source.name, "ids"):
            for chosen in [listed] if keeps_first else [part.same_size(listed), listed]:
                markers = [task.marker for task in chosen]
                segments.do_once(self.folder, part.list_ids, chosen, markers, self.engine, "ids", "documents")
                if not keeps_first:
                    self._reject_duplicates(chosen, begun=False)
            if keeps_first:
                part.keep_first(self.work, part.find_duplicates(listed, self.engine))
        return tasks

    def _finish_reading(self) -> None:
        """Compare the ids that the first segment hashed, and remove what only that segment reads."""
        if any(task.waits for task in self.compared):
            with self.costs.measure(self.recipe.source.name, "ids"):
                self._reject_duplicates(self.compared, begun=True)
        for marker in {each for each in self.divided if each is not None}:
            files.remove(divide.unpacked_folder(marker))

    def _reject_duplicates(self, tasks: Sequence[part.IdTask], *, begun: bool) -> None:
        found = part.find_duplicates(tasks, self.engine)
        if found.num_rows:
            raise part.duplicates_error(self.recipe.source, self.parts, found, begun=begun)

    def _fit(self, number: int, label: str, stage: Stage) -> Stage:
        with self.costs.measure(label, f"{number}"):
            fitted, report = segments.learn(self.work, number, len(self.parts), stage, self.funnel.kept, self.engine)
        if report := [*report, *(limit for limit in fitted.limits() if limit not in stage.limits())]:
            self.reports.setdefault(label, []).extend(report)
        part.mark_fitted(self.work, number)
        return fitted

    def _decide(self, segment: Segment, group: int | None, last: int = 0) -> Mapping[str, Any]:
        """Run the survey that ends a segment on one part, or on all; ``last`` is the segment that finishes a part."""
        assert segment.ends_with is not None  # others have nothing to decide
        label, stage = segment.ends_with
        asked = inputs.Asked(self.groups, group, last)
        with self.costs.measure(label, f"{segment.number}-{group}" if group else f"{segment.number}") as cost:
            if isinstance(stage, SpanSurvey):
                cost.disk = inputs.find_spans(self.folder, segment.number, stage, asked, self.engine)
                return {"rules": {}, "report": []}
            survey = cast("Survey", stage)
            return inputs.resolve(self.folder, segment.number, label, survey, asked, self.engine)

    def _add_removed(self, segment: Segment, removed: Sequence[Mapping[str, Any]]) -> None:
        assert segment.ends_with is not None  # others have nothing to remove
        label, stage = segment.ends_with
        if stage.needs == "spans":  # the next segment begins with them
            return
        if report := [message for each in removed for message in each["report"]]:
            self.reports.setdefault(label, []).extend(report)
        rules = sum((Counter(each["rules"]) for each in removed), Counter[str]())
        came = self.funnel.kept
        self.funnel = self.funnel.then(FunnelRow(label, came, came - rules.total(), dict(sorted(rules.items()))))
        self.markers += [part.input_marker(self.work, segment.number, place) for place in range(len(self.parts))]
        if stage.saves_index:
            self.indexed.append((segment.number, label, cast("IndexedSurvey", stage)))

    def _run_segment(self, segment: Segment, numbers: Sequence[int], writer: Writer | None) -> list[dict[str, Any]]:
        first = self.recipe.on_duplicate_ids == "keep_first" and not segment.number
        hashed = {task.number for task in self.compared if task.waits and not segment.number}
        edits = edit_schema(stage for _, stage in self.recipe.stages)
        tasks = [
            part.PartTask(
                self.folder,
                segment,
                each,
                self.parts[each],
                self.source,
                writer,
                first,
                each in hashed,
                self.divided[each],
                edits,
            )
            for each in numbers
        ]
        names = " > ".join(label for label, _ in segment.stages) or (segment.ends_with or ("write", None))[0]
        markers = [task.marker for task in tasks]
        sizes = [self.sizes[number] for number in numbers]
        given = self.folder, run_part, tasks, markers, self.engine
        progress: Literal["parts", "remote files, not divided", "bytes"] = "parts"
        if not segment.number:
            is_remote = any(is_url(file) for number in numbers for file in self.parts[number].files)
            progress = "remote files, not divided" if is_remote else "bytes"
        results = segments.do_once(*given, names, "documents", sizes=sizes, progress=progress)
        for number, result in zip(numbers, results, strict=True):
            self.sizes[number] = part.amount_left(result)
        return results

    def _add_results(self, segment: Segment, results: Sequence[dict[str, Any]]) -> None:
        self.markers += [part.part_marker(self.work, segment.number, number) for number in range(len(self.parts))]
        before = self.ended_by[-1] if self.ended_by else self.recipe.source.name
        self.ended_by.append(segment.ends_with[0] if segment.ends_with else self.recipe.output.name)
        self.costs.add_parts(before, self.ended_by[-1], results)
        characters = total(each["characters"] for each in results)
        if segment.number:
            self.funnel = self.funnel.counted(characters)
        else:
            source, documents = self.recipe.source.name, sum(each["documents"] for each in results)
            self.funnel, self.read = Funnel(source, documents, characters=characters), results
            if rare := inputs.rare_fields(self.source, self.parts, results):
                self.reports[source] = rare
            if not documents:
                raise inputs.no_documents(source, self.folder / "recipe.yaml", results)
        for rows in zip(*(map(FunnelRow.from_dict, each["stages"]) for each in results), strict=True):
            self.funnel = self.funnel.then(reduce(add, rows))
            if (stage := dict(self.recipe.stages).get(self.funnel.rows[-1].stage)) is not None:
                ids = (name for each in results for name in each[FROM_OCR])
                if found := stage.check_joined(ids):
                    self.warnings[self.funnel.rows[-1].stage] = list(found)
        inputs.check_not_empty(self.funnel, self.work)

    def _write_output(self, writer: Writer) -> dict[str, Any]:
        spill, target = self.work / part.SPILL, self.folder / self.recipe.output.name
        target.mkdir(exist_ok=True)
        with self.costs.measure(self.recipe.output.name, "layout"):
            segments.check_spill(self.work, len(self.ended_by) - 1, writer, len(self.parts), self.engine)
            writer.order(spill, len(self.parts), self.engine)
            tasks = writer.plan(spill, len(self.parts))
            self.engine.check()
            markers = [self.work / segments.WRITTEN / f"{task.name}.json" for task in tasks]
            known = [*self.markers[-len(self.parts) :], *markers]
            planned = segments.planned_files(self.work, target, known)
        pairs = list(zip(tasks, markers, strict=True))
        write = partial(segments.write_file, writer, spill, target)
        written = segments.do_once(self.folder, write, pairs, markers, self.engine, "write", "files")
        self.markers += markers
        self.costs.stages[self.recipe.output.name].seconds += sum(each["seconds"] for each in written)
        with self.costs.measure(self.recipe.output.name, "finish"):
            self.markers.append(segments.check_plan(self.work, planned, known))
            for marker, each in zip(markers, written, strict=True):
                Marker.open(marker, *(spill / name for name in each.get("spilled", ())))
            self.engine.check()
            return writer.finish(spill, target, written)

    def _save_indexes(self) -> None:
        if self.indexed:
            segments.check_results(self.folder, self.markers, self.engine, "ledger")
        for segment, label, survey in self.indexed:
            with self.costs.measure(label, f"{segment}-index"):
                given = self.folder, segment, len(self.ended_by) - 1, len(self.parts), label, survey, self.engine
                self.markers.append(inputs.save_index(*given))

    def _describe(self, written: dict[str, Any]) -> dict[str, Any]:
        files.bring_folder(self.folder, without=WORK)
        about = {key: value for key, value in written.items() if key != "files"}
        packages = {each["package"]: each["version"] for each in self.recipe.others.values() if "package" in each}
        manifest = {
            "longcrawl_run": VERSION,
            "recipe": self.recipe.as_dict(),
            "digest": self.recipe.digest,
            "versions": {**installed_versions()} | packages | inputs.libraries_used(self.recipe),
            "inputs": inputs.described(self.parts, self.read),
            "bad_files": inputs.bad_files(self.parts, self.read),
            "left_out": inputs.summed(self.read, "left_out"),
            "funnel": self.funnel.as_dict(),
            "output": {"format": self.recipe.output.name, **about},
        }
        described = {
            "encodings": inputs.summed(self.read, "encodings"),
            "lists": self.recipe.source.lists(),
            "implementations": self.recipe.others,
            "indexes": inputs.indexes_used(self.recipe.stages),
        }
        manifest |= {name: found for name, found in described.items() if found}
        results = segments.check_results(self.folder, self.markers, self.engine)
        documents = RESULTS[self.recipe.output.name].ids(self.folder / self.recipe.output.name)
        manifest["analysis"] = analyse(documents, self.engine).as_dict()
        if (lengths := inputs.source_lengths(self.read)) is not None:
            manifest["source_lengths"] = lengths.as_dict()
        warnings = {
            label: said
            for label, stage in self.recipe.stages
            if (said := [*stage.warnings(), *self.warnings.get(label, ())])
        }
        materials = {label: used for label, stage in self.recipe.stages if (used := stage.materials())}
        described = {"reports": self.reports, "warnings": warnings, "materials": materials}
        manifest |= {name: found for name, found in described.items() if found}
        self.engine.check()
        write_card(self.folder, manifest)
        manifest["files"] = dict(sorted((results | files.file_entries(self.folder, [CARD])).items()))
        return manifest


FEW = 3

_PACKAGE = re.compile(r"pip install ['\"]?([\w\[\]-]+)")
_SEES: dict[Needs, str] = {
    "batch": "each document by itself",
    "order": "all documents, to order them",
    "fit": "all documents, to learn from them",
    "removals": "all documents, to compare them",
    "spans": "all documents, to find what they share",
}


@dataclass(frozen=True)
class RunPreview:
    """Description of what a run of a recipe would read, do and write."""

    recipe: Recipe
    out: str
    parts: Sequence[Part]
    local_bytes: int
    is_done: bool
    """Whether the folder holds the finished run."""

    def __str__(self) -> str:
        stages = [[label, _SEES[stage.needs]] for label, stage in self.recipe.stages]
        done = "; the run is done, and would only be read back" if self.is_done else ""
        notes = (f"writes {self.recipe.output.name} to {self.out}{done}", "nothing has been read or written")
        first = self.parts[:FEW]
        names = [without_secrets(file) for each in first for file in each.files[:1]] or [each.name for each in first]
        more = len(self.parts) - len(names)
        bytes_of = f", {self.local_bytes:,} bytes of local files" if self.local_bytes else ""
        source = f"source {self.recipe.source.name!r}{bytes_of}"
        others = f" and {more:,} more" if more > 0 else ""
        reads = f"reads {counted(len(self.parts), 'part')} of {source}: {', '.join(names)}{others}"
        table = Table([Column("stage", "name"), Column("looks at", "text")], stages, reads, notes)
        return f"{one_line(f'{self.recipe.name}: {self.recipe.about}')}\n\n{table}"

    __repr__ = __str__


def preview_run(
    recipe: str | Path | Recipe, out: str | Path, overrides: Iterable[str] = (), plan: Plan | None = None
) -> RunPreview:
    """Make all checks that :func:`longcrawl.run` makes before it reads a document, and describe the run.

    Inputs are listed, local files must exist, and the folder must be writable. Stages load their data files and
    tokenizers and compile their kernels. Stages before the first that is fitted on documents run on an empty table, to
    find missing columns. Problems in documents, such as damage, are not found; ``longcrawl plan`` reads a sample.

    Raises:
        LongCrawlError: the run could not begin; of packages that are not installed all are named.
    """
    chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    check_order(chosen)
    inputs.check_plan(plan, chosen)
    with inputs.run_folder(out) as folder:
        inputs.reject_other_contents(folder, chosen)
        is_done = files.is_there(folder / MANIFEST)
        if not is_done:
            _check_folder(folder)
    if not is_done:
        inputs.check_output(chosen)
    missing: list[tuple[str, LongCrawlError]] = []

    @contextmanager
    def noting(label: str) -> Iterator[None]:
        try:
            yield
        except LongCrawlError as wrong:
            if not _PACKAGE.search(str(wrong)):
                raise
            missing.append((label, wrong))

    parts: Sequence[Part] = ()
    with noting(f"source {chosen.source.name}"):
        parts = inputs.train_parts(chosen.source)
    if not is_done:
        _check_files(parts, BadFiles(chosen.source.on_bad_files))
    for label, stage in chosen.stages:
        with noting(label):
            stage.prepare()
    if missing:
        raise _missing_packages(missing)
    _check_columns(chosen)
    local = {file for part in parts for file in part.files if not is_url(file) and Path(file).is_file()}
    return RunPreview(chosen, str(out), parts, sum(Path(file).stat().st_size for file in local), is_done)


def _missing_packages(errors: Sequence[tuple[str, LongCrawlError]]) -> LongCrawlError:
    """Return the only error of a package that is not installed, or one that names the packages of all."""
    if len(errors) == 1:
        return errors[0][1]
    reasons = as_lines([f"{label} ({wrong})" for label, wrong in errors], "; ")
    packages = sorted({name for _, wrong in errors for name in _PACKAGE.findall(str(wrong))})
    extras = [name[len("longcrawl[") : -1] for name in packages if name.startswith("longcrawl[")]
    others = [name for name in packages if not name.startswith("longcrawl[")]
    install = [*([f"'longcrawl[{','.join(extras)}]'"] if extras else []), *others]
    return RunError(f"packages are missing for {reasons}. Install all: pip install {' '.join(install)}")


def _check_folder(folder: Path) -> None:
    """Check that a folder can be created and written, by an unnamed temporary file in its first existing parent."""
    if files.url_of(folder) is None:
        with files.writing(folder, RunError, "choose another --out folder"):
            tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())).close()


def _check_files(parts: Iterable[Part], bad_files: BadFiles) -> None:
    """Report the first file of each part if it is local and missing, as the run would; later files may be optional."""
    for file in (file for each in parts for file in each.files[:1] if not is_url(file)):
        reason = files.why_no_file(file)
        if reason is None and not Path(file).exists():
            reason = "is missing"
        if reason is not None:
            bad_files.report(file, reason)


def _check_columns(recipe: Recipe) -> None:
    """Run stages on a table without documents, to find missing columns.

    It ends before the first stage that is fitted on documents or is not longcrawl's own, whose columns are unknown.
    """
    known = takewhile(lambda each: each[1].needs != "fit" and is_ours(type(each[1])), recipe.stages)
    by_batch = [(label, stage) for label, stage in known if stage.needs in ("batch", "order")]
    nothing = inputs.needed_source(recipe).schema().empty_table()
    deque(run_fused(by_batch, [nothing], Tally()), 0)
