"""Manifest of a run, which records its inputs and the files made from them, and the run's summary with costs.

Times differ from run to run, so they are in no file that a manifest seals. During a run they are in ``work``, beside
the markers of finished work, so a resumed run has those of every session.
"""

import html
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from longcrawl.core import kinds
from longcrawl.core.clock import CoreClock
from longcrawl.core.counts import EDITS, LEDGER
from longcrawl.core.funnel import Funnel, RemovalRates
from longcrawl.errors import RunError, as_lines
from longcrawl.io.files import bring, bring_folder, folder_bytes, given_url, may_hold_run, name_of, open_place, url_of
from longcrawl.io.structured import Kinds, Marker, is_count, is_sealed, load_json, may_be_count, misfits
from longcrawl.run.engines.hold import LOCK, at_work, working_owner


@dataclass
class StageCost:
    """CPU time and temporary disk space used by a stage."""

    seconds: float = 0.0
    """Core seconds, summed over all processes."""
    disk: int = 0
    """Bytes of temporary files in the run's folder; files of the result do not count."""


class RunCosts:
    """Costs of one run, by the labels of its source, stages and output."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.stages: dict[str, StageCost] = defaultdict(StageCost)

    def add_parts(self, reader: str, keeper: str, results: Sequence[Mapping[str, Any]]) -> None:
        """Add the costs of a segment's parts: reading counts for ``reader``, writing kept documents for ``keeper``."""
        for result in results:
            took = result.get("seconds", {})
            self.stages[reader].seconds += took.get("read", 0.0)
            for label, seconds in took.get("stages", {}).items():
                self.stages[label].seconds += seconds
            self.stages[keeper].seconds += took.get("keep", 0.0)

    @contextmanager
    def measure(self, label: str, step: str) -> Iterator[StageCost]:
        """Measure a block that all parts wait for; the block may set ``disk``.

        The cost is stored in ``work``. A resumed run repeats the block quickly, so the larger of both costs counts.
        """
        note = self._work / f"took-{step}.json"
        noted = Marker.read(note)
        before = StageCost() if noted is None else StageCost(**noted.content)
        took, clock = StageCost(), CoreClock()
        with clock.measure(label):
            yield took
        took = StageCost(max(clock.seconds[label], before.seconds), max(took.disk, before.disk))
        Marker(note, asdict(took), {}).write()
        self.stages[label].seconds += took.seconds
        self.stages[label].disk += took.disk

    def add_disk(self, ended_by: Sequence[str]) -> None:
        """Add the disk use of the work folder at the end of a run, without markers, by what ended each segment."""
        for number, label in enumerate(ended_by[:-1]):
            kept = (f"segment-{number}", f"fit-{number}", f"removed-{number}")
            markers = sum(file.stat().st_size for file in (self._work / f"segment-{number}").glob("*.json"))
            self.stages[label].disk += sum(folder_bytes(self._work / name) for name in kept) - markers
        self.stages[ended_by[-1]].disk += folder_bytes(self._work / "spill")


OUTSIDE = 5
"""Largest number of figures outside of a plan's intervals that a summary lists."""


@dataclass(frozen=True)
class RunSummary:
    """Summary of a finished run."""

    recipe: str
    out: str
    rates: RemovalRates
    """Funnel in percent, beside the recipe's reference figures."""
    written: dict[str, Any]
    batch: str
    """Description of the beginning of the output, read back."""
    bad_files: int
    seconds: float
    checked: Sequence[Any] = ()
    """Figures of the given plan beside the actual ones, each a :class:`longcrawl.run.plan.Checked`."""
    costs: Mapping[str, StageCost] = field(default_factory=dict)
    """Cost of each stage, with the source first and the output last; empty if the run had already finished."""
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Warnings for users of the documents, by stage."""
    of_source: Sequence[str] = ()
    """Reports on reading, such as how many documents have a field."""

    @property
    def funnel(self) -> Funnel:
        """The documents kept by each stage."""
        return self.rates.funnel

    def __str__(self) -> str:
        rates = [repr(self.rates), ""] if self.rates.reference.documents else []
        return "\n".join([repr(self.funnel), "", *rates, as_lines(self._done())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.rates if self.rates.reference.documents else self.funnel
        return f"{table._repr_html_()}<p>{'<br>'.join(map(html.escape, self._done()))}</p>"

    def _done(self) -> list[str]:
        from longcrawl.core.outputs import RESULTS

        written = RESULTS[self.written["format"]].summary(self.written)
        lines = [f"{self.recipe} is done in {self.seconds:.1f} s: {self.out} ({written})", f"read back: {self.batch}"]
        if self.checked:
            outside = [f"  outside: {each}" for each in self.checked if not each.inside]
            inside, more = len(self.checked) - len(outside), len(outside) - OUTSIDE
            lines.append(f"the plan's intervals hold {inside} of {len(self.checked)} figures; plan.json has all")
            lines += [*outside[:OUTSIDE], *([f"  and {more} more"] if more > 0 else [])]
        if self.bad_files:
            unread = f"{self.bad_files} input file(s) could not be read whole"
            lines.append(f"{unread}; manifest.json and README.md list them")
        lines += self.of_source
        return lines + [f"WARNING: {label}: {each}" for label, found in self.warnings.items() for each in found]


WORK = "work"
"""Folder of an unfinished run with its finished work."""
INPUTS = "inputs.json"
"""Marker in ``work`` that records the inputs of a run."""
EMPTIED = "emptied.json"
"""Marker in ``work`` with the funnel of a run that removed every document, and so has no manifest."""
MANIFEST = "manifest.json"
CARD = "README.md"
TOKEN_TABLES = "tokens"  # noqa: S105  # of a model, not of a server
"""Folder of a pushed run with the rows of its output in a form that plain `datasets` loads."""
PLAN = "plan.json"
"""File with planned and actual figures; times differ from run to run, so the manifest does not list it."""
VERSION = 1
NEEDED: Mapping[str, tuple[str, ...]] = {
    "recipe": ("name", "about", "source", "stages", "outputs", "card", "reference"),
    "digest": (),
    "versions": ("longcrawl",),
    "inputs": (),
    "bad_files": (),
    "left_out": (),
    "funnel": ("source", "documents", "characters", "stages"),
    "output": ("format",),
    "analysis": (),
    "files": (),
}
"""Blocks that every manifest has, and the required entries of each."""


ROW = ("stage", "in", "out", "rules", "characters", "edits")
"""Required entries of each stage of a funnel."""


def _is_settings(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(settings, dict) for settings in value.values())


def _is_source(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("builder"), str)


def _is_histogram(value: Any) -> bool:
    return isinstance(value, dict) and all(name.isdecimal() and is_count(count) for name, count in value.items())


def _is_input(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("file"), str)
        and may_be_count(value.get("bytes"))
        and isinstance(value.get("sha256"), str | None)
    )


_ROW, _EDITS = "funnel.stages.*", "funnel.stages.*.edits"
KINDS: Kinds = (
    (str, "a text", "recipe.name", "files.*.sha256", "funnel.source", f"{_ROW}.stage", f"{_EDITS}.unit"),
    (str, "a text", "digest", "lists.*.sha256", "versions.longcrawl"),
    (list, "a list", "recipe.stages", "funnel.stages", "analysis.lengths", "bad_files"),
    (list, "a list", "inputs.*", "reports.*", "warnings.*"),
    (dict, "an object", "recipe.card", "recipe.reference", "files.*", f"{_ROW}.rules", f"{_ROW}.values"),
    (dict, "an object", f"{_ROW}.values.*", f"{_EDITS}.rules", f"{_EDITS}.rules.*", "analysis", "bad_files.*"),
    (dict, "an object", "analysis.lengths.*", "analysis.domains", "analysis.languages"),
    (dict, "an object", "inputs", "lists", "lists.*", "left_out", "reports", "warnings", "materials", "materials.*"),
    (dict, "an object", "encodings", "files", "output", "versions"),
    (is_count, "a whole number", "files.*.bytes", "funnel.documents", f"{_ROW}.in", f"{_ROW}.out", f"{_ROW}.rules.*"),
    (is_count, "a whole number", "lists.*.bytes", "lists.*.paths"),
    (is_count, "a whole number", f"{_ROW}.values.*.*", f"{_EDITS}.documents", "left_out.*", "encodings.*"),
    (is_count, "a whole number", f"{_EDITS}.rules.*.places", f"{_EDITS}.rules.*.touched"),
    (is_count, "a whole number", "analysis.documents", "analysis.distinct_domains", "analysis.domains_error"),
    (is_count, "a whole number", "analysis.without_url", "analysis.domains.*", "analysis.languages.*"),
    (may_be_count, "a whole number or null", "funnel.characters", f"{_ROW}.characters", "bad_files.*.records_lost"),
    (dict, "an object", f"{_ROW}.queued", f"{_ROW}.queued.*", f"{_ROW}.queued.*.*"),
    (is_count, "a whole number", f"{_ROW}.queued.*.*.documents", f"{_ROW}.queued.*.*.pages"),
    (int, "a whole number", f"{_EDITS}.rules.*.removed"),
    (dict | None, "an object or null", _EDITS, "source_lengths"),
    (_is_histogram, "an object of bins", "analysis.lengths.*.documents", "analysis.lengths.*.total"),
    (_is_histogram, "an object of bins", "source_lengths.documents", "source_lengths.total"),
    (_is_settings, "an object of settings by name", "recipe.stages.*", "recipe.outputs"),
    (_is_source, "an object with a builder", "recipe.source"),
    (lambda value: isinstance(value, dict) and set(ROW) <= set(value), f"an object with {', '.join(ROW)}", _ROW),
    (_is_input, "an object with a file", "inputs.*.*"),
)
"""Expected kinds of a manifest's values, by path; a missing path is not checked."""


class Recorded(dict[str, Any]):
    """Dictionary in a manifest that raises RunError instead of KeyError for a missing key.

    >>> Recorded({"funnel": {}}, Path("run/manifest.json"))["funnel"]["stages"]
    Traceback (most recent call last):
    longcrawl.errors.RunError: run/manifest.json has no 'funnel.stages': run the recipe again, into another folder \
than run
    """

    def __init__(self, values: Mapping[str, Any], file: Path, path: str = "", plain: Sequence[str] = ()) -> None:
        self._file, self._path = file, path
        super().__init__((name, value if name in plain else self._wrap(name, value)) for name, value in values.items())

    def _wrap(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return Recorded(value, self._file, f"{self._path}{name}.")
        if isinstance(value, list):
            return [self._wrap(name, each) for each in value]
        return value

    def __missing__(self, name: str) -> Any:
        raise RunError(f"{self._file} has no {self._path + name!r}: {_again(self._file)}")


def _again(file: Path) -> str:
    return f"run the recipe again, into another folder than {file.parent}"


def check_manifest(manifest: Any, file: Path) -> Recorded:
    """Check a manifest's structure and return its content; ``file`` is its path, for messages.

    The recipe stays a plain dictionary, so that it can be written as YAML; all other objects are :class:`Recorded`.

    Raises:
        RunError: it is not the manifest of a run, or its version or output format is unknown to this longcrawl.
    """
    again = _again(file)
    if not isinstance(manifest, dict) or "longcrawl_run" not in manifest:
        raise RunError(f"{file} is not the manifest of a run: {again}")
    if manifest["longcrawl_run"] != VERSION:
        raise RunError(f"{file} has version {manifest['longcrawl_run']!r}, but this longcrawl reads {VERSION}: upgrade")
    if lacking := _lacking(manifest):
        raise RunError(f"{file} lacks {', '.join(lacking)}: {again}")
    if not isinstance(form := manifest["output"]["format"], str) or form not in kinds.RESULTS:
        _check_output(manifest["recipe"]["outputs"], form, file)
    for path, value, kind in misfits(manifest, KINDS):
        shown = shorten(repr(value), 60, placeholder="…")
        raise RunError(f"{file} is not a valid manifest: {path} is {shown} and should be {kind}: {again}")
    return Recorded(manifest, file, plain=("recipe",))


def _check_output(outputs: Any, form: Any, file: Path) -> None:
    """Import the output of another package, and raise a RunError if it is unknown."""
    from longcrawl.core.outputs import OUTPUTS, RESULTS

    for spelling in outputs if isinstance(outputs, dict) else ():
        if ":" in spelling:
            OUTPUTS.find(spelling, f"{file} is of a run whose output", RunError)
    if not isinstance(form, str) or form not in RESULTS:
        known = ", ".join(sorted(RESULTS))
        raise RunError(
            f"{file} has the output {form!r}, but this longcrawl knows {known}: upgrade, or "
            "install the output's package"
        )


def _lacking(manifest: Mapping[str, Any]) -> list[str]:
    lacking = []
    for block, entries in NEEDED.items():
        if entries and isinstance(found := manifest.get(block), dict):
            lacking += [f"{block}.{entry}" for entry in entries if entry not in found]
        elif entries or block not in manifest:
            lacking.append(block)
    return lacking


def input_names(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the files that a run read for each part."""
    return {part: [file["file"] for file in files] for part, files in manifest["inputs"].items()}


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, even one that has only recorded its inputs."""
    return any((folder / name).exists() for name in (MANIFEST, "recipe.yaml", f"{WORK}/{INPUTS}"))


@contextmanager
def open_run(run: str | Path, *folders: str) -> Iterator[Path]:
    """Provide the folder of a run; for a URL, a local folder with the files at the top of the run and these folders.

    Raises:
        RunError: runs cannot be read from this URL.
    """
    if (url := given_url(run)) is None:
        yield Path(run)
        return
    if not may_hold_run(url):
        raise RunError(f"a run cannot be read from {url}: choose a folder, s3://…, gs://… or hf://datasets/USER/NAME")
    with open_place(url) as folder:
        bring(*(folder / name for name in (MANIFEST, PLAN, CARD, "recipe.yaml")))
        for name in folders:
            bring_folder(folder / name, without=WORK)
        yield folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished run; a missing or unreadable manifest, and later a missing key, is a RunError."""
    try:
        manifest = load_json((folder / MANIFEST).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise RunError(_why_emptied(folder) or _why_no_manifest(folder)) from None
    except PermissionError as error:
        raise RunError(
            f"{folder / MANIFEST} cannot be read ({error.strerror}): ask the owner of {folder} for access"
        ) from error
    except (OSError, ValueError) as broken:
        restore = f"restore it from a good copy, or run the recipe again into another folder than {folder}"
        raise RunError(f"{folder / MANIFEST} is not JSON: {broken}; {restore}") from broken
    return check_manifest(manifest, folder / MANIFEST)


def read_sealed(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished run; as :func:`read_manifest`, and a RunError if it has been changed."""
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        raise RunError(f"{folder / MANIFEST} has been changed. `longcrawl verify {folder}` lists what differs.")
    return manifest


def emptied_funnel(folder: Path) -> Funnel | None:
    """Return the funnel of a run that removed every document, or None for other runs."""
    try:
        marker = None if (folder / MANIFEST).exists() else Marker.read(folder / WORK / EMPTIED)
    except OSError:  # read_manifest reports the problem with the folder
        return None
    return None if marker is None else Funnel.from_dict(marker.content)


def funnel(run: str | Path) -> Funnel:
    """Return the number of documents that each stage of a run kept, also for a run that kept none."""
    with open_run(run) as folder:
        emptied = emptied_funnel(folder)
        return Funnel.from_dict(read_manifest(folder)["funnel"]) if emptied is None else emptied


def removal_rates(run: str | Path) -> RemovalRates:
    """Return the percentage that each stage of a run kept, beside the published figures that its recipe refers to."""
    with open_run(run) as folder:
        return RemovalRates.from_manifest(read_manifest(folder))


def lost_ledger(folder: Path, manifest: Mapping[str, Any], kinds: Collection[str] = (LEDGER, EDITS)) -> str:
    """Return the first file of these ledgers that the manifest lists but that is missing; "" if all are there."""
    tables = (name for name in manifest["files"] if name.partition("/")[0] in kinds)
    return next((name for name in tables if not (folder / name).is_file()), "")


def _why_emptied(folder: Path) -> str:
    if (funnel := emptied_funnel(folder)) is None:
        return ""
    return (
        f"{name_of(folder)} has no result: stage {funnel.emptied_by()!r} removed its last documents, as `longcrawl "
        "funnel` and `why` show. Change its fields, and run into another folder"
    )


def _why_no_manifest(folder: Path) -> str:
    if (url := url_of(folder)) is not None:
        return f"no finished run at {url}, which has no {MANIFEST}: check the URL, or run `longcrawl run` again"
    if (url := given_url(folder)) is not None:
        return f"{url} cannot be read from here: copy it first, with `aws s3 cp --recursive`, `hf download` or similar"
    if folder.is_file():
        at = next((above for above in folder.parents if (above / MANIFEST).is_file()), None)
        return f"{folder} is a file: name the folder of a run" + ("" if at is None else f", such as {at}")
    if not folder.exists():
        make = f"`longcrawl run RECIPE --out {folder}`"
        return f"no folder {folder}: name that of a run, which {make} would make"
    if (folder / WORK).exists():
        owner = working_owner(folder / WORK / LOCK)
        unfinished = f"{folder} is not finished: run the same `longcrawl run` again"
        return unfinished if owner is None else at_work("run", name_of(folder), owner)
    below = next((each.parent for each in sorted(folder.glob(f"*/{MANIFEST}"))), None)
    above = next((each for each in folder.absolute().parents if (each / MANIFEST).is_file()), None)
    such = f", such as {below or above}" if below or above else ""
    return f"{folder} holds no run, it has no {MANIFEST}: name the folder of one{such}"
