"""The folder of a run and its manifest: files by name, what ``manifest.json`` must hold, and what it lacks in words.

Entries that every run writes are checked when a manifest is read; reading any other entry that is missing is an error
that names it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from longcrawl.core.funnel import Funnel
from longcrawl.core.ledger import EDITS, LEDGER
from longcrawl.core.outputs import OUTPUTS, RESULTS
from longcrawl.errors import RunError
from longcrawl.io.files import bring, bring_folder, given_url, may_hold_run, name_of, open_place, url_of
from longcrawl.io.structured import Kinds, Marker, is_count, is_sealed, load_json, may_be_count, misfits
from longcrawl.run.engines.hold import LOCK, at_work, working_owner

WORK = "work"
"""The folder of a run that holds what is finished while the run is not."""
INPUTS = "inputs.json"
"""The marker in ``work`` of what a run is made of."""
EMPTIED = "emptied.json"
"""The marker in ``work`` of a run whose stages removed every document, with its funnel: it has no manifest."""
MANIFEST = "manifest.json"
TOKEN_TABLES = "tokens"  # noqa: S105  # of a model, not of a server
"""The folder of a pushed run that has the rows of its output as plain `datasets` loads them."""
PLAN = "plan.json"
"""What was planned, beside what became of it; times differ from run to run, so the manifest does not list it."""
VERSION = 1
"""Of manifests, not of longcrawl."""
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
"""Blocks that every run writes, and entries of each."""


ROW = ("stage", "in", "out", "rules", "characters", "edits")
"""Entries of each stage of a funnel."""


def _is_settings(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(settings, dict) for settings in value.values())


def _is_source(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("builder"), str)


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and set(ROW) <= set(value)


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
    (
        list,
        "a list",
        "recipe.stages",
        "funnel.stages",
        "analysis.lengths",
        "bad_files",
        "inputs.*",
        "reports.*",
        "warnings.*",
    ),
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
    (int, "a whole number", f"{_EDITS}.rules.*.removed"),
    (dict | None, "an object or null", _EDITS, "source_lengths"),
    (_is_histogram, "an object of bins", "analysis.lengths.*.documents", "analysis.lengths.*.total"),
    (_is_histogram, "an object of bins", "source_lengths.documents", "source_lengths.total"),
    (_is_settings, "an object of settings by name", "recipe.stages.*", "recipe.outputs"),
    (_is_source, "an object with a builder", "recipe.source"),
    (_is_row, f"an object with {', '.join(ROW)}", _ROW),
    (_is_input, "an object with a file", "inputs.*.*"),
)
"""What is read of a manifest, where it is there."""


class Recorded(dict[str, Any]):
    """An object of a manifest; looking up what it does not hold raises RunError and no KeyError.

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
    """Return the content of a manifest that holds what each has to; ``file`` is where it was read.

    The recipe in it is as it was read, so that it can be written as YAML; all else is :class:`Recorded`. Whether it
    was changed is not checked here.

    Raises:
        RunError: it is not the manifest of a run, or of a version or a format that this longcrawl does not know.
    """
    again = _again(file)
    if not isinstance(manifest, dict) or "longcrawl_run" not in manifest:
        raise RunError(f"{file} is not the manifest of a run: {again}")
    if manifest["longcrawl_run"] != VERSION:
        raise RunError(f"{file} is of version {manifest['longcrawl_run']!r}, this longcrawl reads {VERSION}: upgrade")
    if lacking := _lacking(manifest):
        raise RunError(f"{file} lacks {', '.join(lacking)}: {again}")
    outputs = manifest["recipe"]["outputs"]
    for spelling in outputs if isinstance(outputs, dict) else ():
        if ":" in spelling:
            OUTPUTS.find(spelling, f"{file} is of a run whose output", RunError)
    form = manifest["output"]["format"]
    if not isinstance(form, str) or form not in RESULTS:
        known = ", ".join(sorted(RESULTS))
        raise RunError(
            f"{file} is of an output {form!r}, this longcrawl knows {known}: upgrade, or install the output's package"
        )
    for path, value, kind in misfits(manifest, KINDS):
        shown = shorten(repr(value), 60, placeholder="…")
        raise RunError(f"{file} is not as runs write it: {path} is {shown} and should be {kind}: {again}")
    return Recorded(manifest, file, plain=("recipe",))


def _lacking(manifest: Mapping[str, Any]) -> list[str]:
    lacking = []
    for block, entries in NEEDED.items():
        found = manifest.get(block)
        if entries and isinstance(found, dict):
            lacking += [f"{block}.{entry}" for entry in entries if entry not in found]
        elif entries or block not in manifest:
            lacking.append(block)
    return lacking


def input_names(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the files that a run read for each part.

    >>> input_names({"inputs": {"a.jsonl": [{"file": "raw/a.jsonl", "bytes": 7}]}})
    {'a.jsonl': ['raw/a.jsonl']}
    """
    return {part: [file["file"] for file in files] for part, files in manifest["inputs"].items()}


def holds_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, finished or not, if only its input is known yet."""
    return any((folder / name).exists() for name in (MANIFEST, "recipe.yaml", f"{WORK}/{INPUTS}"))


@contextmanager
def open_run(run: str | Path, *folders: str) -> Iterator[Path]:
    """Return the folder of a run; of one behind a URL, a local place for as long as the block is running.

    Args:
        run: a folder, or a URL of an object store or of the Hub.
        folders: what is needed of it, beside files at its top; "" for all.

    Raises:
        RunError: there is none at this URL.
    """
    if (url := given_url(run)) is None:
        yield Path(run)
        return
    if not may_hold_run(url):
        raise RunError(f"a run is not read from {url}: name a folder, s3://…, gs://… or hf://datasets/USER/NAME")
    with open_place(url) as folder:
        bring(*(folder / name for name in (MANIFEST, PLAN, "README.md", "recipe.yaml")))
        for name in folders:
            bring_folder(folder / name, without=WORK)
        yield folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished run; looking up what it does not hold raises RunError.

    Raises:
        RunError: there is none, the run is not finished, or it is not one that this longcrawl reads.
    """
    try:
        manifest = load_json((folder / MANIFEST).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise RunError(_why_emptied(folder) or _why_no_manifest(folder)) from None
    except PermissionError as error:
        raise RunError(
            f"{folder / MANIFEST} cannot be read ({error.strerror}): ask the owner of {folder} for access"
        ) from error
    except (OSError, ValueError) as broken:
        raise RunError(
            f"{folder / MANIFEST} is not JSON: {broken}; copy it back from where it is whole, or run the recipe again "
            f"into another folder than {folder}"
        ) from broken
    return check_manifest(manifest, folder / MANIFEST)


def read_sealed(folder: Path) -> dict[str, Any]:
    """Read the manifest of a finished run, which must be as longcrawl wrote it.

    Raises:
        RunError: as :func:`read_manifest`, and where the manifest has been changed.
    """
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        raise RunError(f"{folder / MANIFEST} has been changed. `longcrawl verify {folder}` lists what differs.")
    return manifest


def emptied_funnel(folder: Path) -> Funnel | None:
    """Return the funnel of a run that ended as no document remained; None of any other."""
    try:
        marker = None if (folder / MANIFEST).exists() else Marker.read(folder / WORK / EMPTIED)
    except OSError:  # reading the manifest says what is wrong with the folder
        return None
    return None if marker is None else Funnel.from_dict(marker.content)


def lost_ledger(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Return the first table of removed or edited documents that a run names and does not have; "" if it has all."""
    tables = (name for name in manifest["files"] if name.startswith((f"{LEDGER}/", f"{EDITS}/")))
    return next((name for name in tables if not (folder / name).is_file()), "")


def _why_emptied(folder: Path) -> str:
    """Describe that no document remained of a run; "" of others."""
    if (funnel := emptied_funnel(folder)) is None:
        return ""
    return (
        f"{name_of(folder)} has no result: stage {funnel.emptied_by()!r} removed its last documents, as `longcrawl "
        "funnel` and `why` show. Change its fields, and run into another folder"
    )


def _why_no_manifest(folder: Path) -> str:
    """Describe what there is instead of a finished run, and what to type."""
    if (url := url_of(folder)) is not None:
        return f"there is no finished run at {url}, it has no {MANIFEST}: check the URL, or type `longcrawl run` again"
    if (url := given_url(folder)) is not None:
        return (
            f"{url} is read where it is copied to: fetch it first, with `aws s3 cp --recursive`, `hf download` or such"
        )
    if folder.is_file():
        at = next((above for above in folder.parents if (above / MANIFEST).is_file()), None)
        return f"{folder} is a file: name the folder of a run" + ("" if at is None else f", such as {at}")
    if not folder.exists():
        return (
            f"there is no folder {folder}: name that of a run, which `longcrawl run RECIPE --out {folder}` would make"
        )
    if (folder / WORK).exists():
        return _why_unfinished(folder)
    below = next((each.parent for each in sorted(folder.glob(f"*/{MANIFEST}"))), None)
    above = next((each for each in folder.absolute().parents if (each / MANIFEST).is_file()), None)
    run = below or above
    return f"{folder} holds no run, it has no {MANIFEST}: name the folder of one" + (
        "" if run is None else f", such as {run}"
    )


def _why_unfinished(folder: Path) -> str:
    if (owner := working_owner(folder / WORK / LOCK)) is not None:
        return at_work("run", name_of(folder), owner)
    return f"{folder} is not finished: type the same `longcrawl run` again"
