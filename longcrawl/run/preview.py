"""Dry run: check a recipe and describe its run without reading a document or writing a file."""

import re
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from longcrawl.core.display import Column, Table, counted
from longcrawl.core.registry import is_ours
from longcrawl.core.sources import BadFiles, Part
from longcrawl.core.stages import Needs
from longcrawl.errors import LongCrawlError, RunError, as_lines, one_line
from longcrawl.io.files import is_there, url_of, why_no_file, writing
from longcrawl.run.inputs import check_output, check_plan, needed_source, reject_other_contents, run_folder, train_parts
from longcrawl.run.manifest import MANIFEST
from longcrawl.run.part import Tally, run_fused
from longcrawl.run.plan.estimates import Plan
from longcrawl.run.recipe import Recipe, check_order, load_recipe
from longcrawl.urls import is_url, without_secrets

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
        table = Table([Column("stage", "name"), Column("looks at", "text")], stages, self._reads(), notes)
        return f"{one_line(f'{self.recipe.name}: {self.recipe.about}')}\n\n{table}"

    __repr__ = __str__

    def _reads(self) -> str:
        first = self.parts[:FEW]
        names = [without_secrets(file) for part in first for file in part.files[:1]] or [part.name for part in first]
        more = len(self.parts) - len(names)
        bytes_of = f", {self.local_bytes:,} bytes of local files" if self.local_bytes else ""
        others = f" and {more:,} more" if more > 0 else ""
        source = self.recipe.source.name
        return f"reads {counted(len(self.parts), 'part')} of source {source!r}{bytes_of}: {', '.join(names)}{others}"


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
    check_plan(plan, chosen)
    with run_folder(out) as folder:
        reject_other_contents(folder, chosen)
        is_done = is_there(folder / MANIFEST)
        if not is_done:
            _check_folder(folder)
    if not is_done:
        check_output(chosen)
    missing = _MissingPackages()
    parts: Sequence[Part] = ()
    with missing.noted(f"source {chosen.source.name}"):
        parts = train_parts(chosen.source)
    if not is_done:
        _check_files(parts, BadFiles(chosen.source.on_bad_files))
    for label, stage in chosen.stages:
        with missing.noted(label):
            stage.prepare()
    missing.check()
    _check_columns(chosen)
    local = {file for part in parts for file in part.files if not is_url(file) and Path(file).is_file()}
    return RunPreview(chosen, str(out), parts, sum(Path(file).stat().st_size for file in local), is_done)


class _MissingPackages:
    """Errors of packages that a run needs and that are not installed."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, LongCrawlError]] = []

    @contextmanager
    def noted(self, label: str) -> Iterator[None]:
        try:
            yield
        except LongCrawlError as wrong:
            if not _PACKAGE.search(str(wrong)):
                raise
            self.errors.append((label, wrong))

    def check(self) -> None:
        """Raise the only error, or one that names the packages of all."""
        if len(self.errors) == 1:
            raise self.errors[0][1]
        if self.errors:
            reasons = as_lines([f"{label} ({wrong})" for label, wrong in self.errors], "; ")
            packages = sorted({name for _, wrong in self.errors for name in _PACKAGE.findall(str(wrong))})
            extras = [name[len("longcrawl[") : -1] for name in packages if name.startswith("longcrawl[")]
            others = [name for name in packages if not name.startswith("longcrawl[")]
            install = [*([f"'longcrawl[{','.join(extras)}]'"] if extras else []), *others]
            raise RunError(f"packages are missing for {reasons}. Install all: pip install {' '.join(install)}")


def _check_folder(folder: Path) -> None:
    """Check that a folder can be created and written, by an unnamed temporary file in its first existing parent."""
    if url_of(folder) is None:
        with writing(folder, RunError, "choose another --out folder"):
            tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())).close()


def _check_files(parts: Iterable[Part], bad_files: BadFiles) -> None:
    """Report the first file of each part if it is local and missing, as the run would; later files may be optional."""
    for file in (file for part in parts for file in part.files[:1] if not is_url(file)):
        reason = why_no_file(file)
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
    nothing = needed_source(recipe).schema().empty_table()
    deque(run_fused(by_batch, [nothing], Tally()), 0)
