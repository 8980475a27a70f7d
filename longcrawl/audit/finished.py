"""Questions to a run on disk: its funnel, why a document was removed, whether all files are intact."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from longcrawl.audit.source_texts import source_texts
from longcrawl.core.places import EDIT_SCHEMA
from longcrawl.core.results import RESULTS, Inspection, Result, Verification
from longcrawl.display.table import Table
from longcrawl.errors import CorruptionError, FormatError, LedgerError, unreadable
from longcrawl.formats.shards.spec import verify_shard, verify_shards
from longcrawl.hub.verify import verify_url
from longcrawl.ledger.analysis import Analysis, analyse
from longcrawl.ledger.clusters import Clusters, find_clusters
from longcrawl.ledger.edits import EDITS, find_edits
from longcrawl.ledger.funnel import Funnel, RemovalRates, value_tables
from longcrawl.ledger.reasons import LEDGER, Reason, find_reason, open_ledger
from longcrawl.manifest import MANIFEST, holds_run, read_manifest
from longcrawl.storage.sealed import check_unchanged, is_sealed, verify_files
from longcrawl.storage.stored_tables import DAMAGED
from longcrawl.urls import is_url

__all__ = ["analysis", "clusters", "counted", "funnel", "inspect", "removal_rates", "verify", "why"]


def funnel(run: str | Path) -> Funnel:
    """Return how many documents each stage kept, for a run."""
    return Funnel.from_dict(read_manifest(Path(run))["funnel"])


def removal_rates(run: str | Path) -> RemovalRates:
    """Return the percentage that each stage of a run kept, beside the figures that its recipe refers to."""
    return RemovalRates.from_manifest(read_manifest(Path(run)))


def why(run: str | Path, document: str) -> Reason:
    """Describe why a document was removed from a run, or that it was kept, and what was changed in it.

    Raises:
        LedgerError: the run never had a document of this id, or has lost a file that may say so.
        CorruptionError: a file that may say so is not as it was written.

    """
    folder = Path(run)
    _refuse_lost(folder)
    stages = [row.stage for row in funnel(folder)]
    with open_ledger(folder / LEDGER) as ledger:
        reason = find_reason(ledger, stages, document)
    with open_ledger(folder / EDITS, EDIT_SCHEMA) as ledger:
        edits = find_edits(ledger, document)
    if reason is not None:
        return replace(reason, edits=edits)
    result, output = _result(folder)
    ids = result.ids(output)
    if not ids.files:
        raise LedgerError(f"{output} has lost the tables of its documents; longcrawl verify says what is missing")
    if _is_among(ids, document):
        return Reason(document, edits=edits)
    raise LedgerError(f"{folder} never had a document {document!r}; ids look like those in {ids.files[-1]}")


def clusters(run: str | Path, stage: str | None = None, most: int = 10) -> Clusters:
    """Return the largest clusters of duplicates of a run, each with a diff of two of its documents.

    A document that one stage kept and a later one removed as a duplicate leads on to what that one kept. Texts are read
    once more from the run's source, as they were before its first stage; where that is gone, ``note`` says so.

    Args:
        run: the folder of a finished run.
        stage: look at what this stage removed only.
        most: how many clusters to give.

    Raises:
        LedgerError: the run has no such stage, or ``most`` is less than 1.
        CorruptionError: the ledger is not as it was written.

    """
    folder = Path(run)
    manifest = read_manifest(folder)
    stages = [row.stage for row in Funnel.from_dict(manifest["funnel"])]
    with open_ledger(folder / LEDGER) as ledger:
        found = find_clusters(ledger, stages, stage, most)
    return found.with_texts(*source_texts(manifest, found.compared()))


def verify(path: str | Path, format: str | None = None, **settings: Any) -> Verification:  # noqa: A002  # the word that says what is meant
    """Check every file of a run, an output by itself or a rectangle in the original layout; or token shards.

    Args:
        path: one of these; or a token shard, or a folder of them.
        format: of shards that do not tell their own, such as "nanogpt".
        settings: of the ``verify`` of the shards' format, such as ``vocabulary_size=50_257``.

    Of a URL, such as ``hf://datasets/user/name``, a run or an output by itself; see :func:`verify_url`.

    Raises:
        FormatError: there is none of these at ``path``, or a shard does not tell its format.
        RunError: the run is not finished.

    """
    if is_url(str(path)):
        if format is not None or settings:
            raise FormatError(
                "token shards are verified where they lie: give their local path, or leave the format out"
            )
        return verify_url(str(path))
    folder = Path(str(path).removeprefix("file://"))
    if not folder.exists():
        raise FormatError(f"there is no file or folder {folder}: check the path")
    if folder.is_file():
        return verify_shard(folder, format, **settings)
    result, output = _result(folder)
    described = output != folder or (folder / result.description).exists()
    if not described and not _holds_arrays(folder):
        return verify_shards(folder, format, **settings)
    if format is not None or settings:
        given = ", ".join(["the format"] * (format is not None) + list(settings))
        raise FormatError(f"{folder} says itself what is in it: leave {given} out, which token shards alone may need")
    if output == folder:
        return result.verify(folder)
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        return Verification(
            str(folder),
            "the manifest by itself",
            (f"{MANIFEST} has been changed: the SHA-256 that it gives of itself differs",),
        )
    files = manifest["files"]
    # The files of the output are described there once more, all but the description itself.
    outside = {
        name: entry
        for name, entry in files.items()
        if not name.startswith(f"{result.name}/") or name == f"{result.name}/{result.description}"
    }
    problems = list(verify_files(folder, outside))
    if output.is_dir():
        problems += [f"{result.name}: {problem}" for problem in result.verify(output).problems]
    return Verification(str(folder), f"{len(files)} files compared with their SHA-256", tuple(problems))


def inspect(path: str | Path, split: str = "train", row: int = 0) -> Inspection:
    """Return what a split of a run's output, or of an output by itself, holds, and one of its rows as text.

    Raises:
        FormatError: no such output, split or row at ``path``.
        RunError: the run is not finished.

    """
    if is_url(str(path)):
        raise FormatError(f"inspect reads what is on this machine: fetch {path} first, with `hf download` from the Hub")
    result, output = _whole_result(Path(path))
    return result.inspect(output, split, row)


def analysis(path: str | Path) -> Analysis:
    """Return how long documents are, which sites they come from and which languages they are in.

    A run has counted that already, of an output alone it is counted now; an original LongCrawl64 does not say.

    Raises:
        RunError: the run is not finished.
        CorruptionError: a file cannot be read.

    """
    folder = Path(path)
    result, output = _whole_result(folder)
    counted = None if output == folder else read_manifest(folder).get("analysis")
    return analyse(result.ids(output)) if counted is None else Analysis.from_dict(counted)


def counted(path: str | Path) -> list[Table]:
    """Return what the stages of a run count by a column, such as the languages of its whole source; [] of an output.

    Raises:
        RunError: the run is not finished.

    """
    folder = Path(path)
    return [] if _result(folder)[1] == folder else value_tables(funnel(folder))


def _result(folder: Path) -> tuple[Result, Path]:
    """Return the result class of a finished run's output, or of an output by itself, and its folder."""
    if holds_run(folder):
        name = read_manifest(folder)["output"]["format"]
        return RESULTS[name], folder / name
    # A rectangle in the original layout has no description.
    known = [name for file, name in RESULTS.described().items() if (folder / file).exists()]
    return RESULTS[(known or ["rectangle"])[0]], folder


def _whole_result(folder: Path) -> tuple[Result, Path]:
    """Return the same, after comparing the description of the output with its own SHA-256."""
    result, output = _result(folder)
    if (output / result.description).exists():
        check_unchanged(output / result.description)
    return result, output


def _refuse_lost(folder: Path) -> None:
    """Compare the ledgers that are there with those that the manifest names: what is missing may name any document."""
    named = [name for name in read_manifest(folder)["files"] if name.startswith(("ledger/", f"{EDITS}/"))]
    if lost := [name for name in named if not (folder / name).is_file()]:
        raise LedgerError(
            f"{folder} has lost {lost[0]}, which may say what became of the document: copy it back, or type "
            f"longcrawl verify {folder}"
        )


def _holds_arrays(folder: Path) -> bool:
    """Return whether a folder may be a rectangle in the original layout, which is Zarr arrays."""
    metadata = ("zarr.json", ".zgroup", ".zarray")
    return any(any(folder.glob(pattern)) for name in metadata for pattern in (name, f"*/{name}", f"*/*/{name}"))


def _is_among(ids: pads.FileSystemDataset, document: str) -> bool:
    """Return whether a document of this id is in tables; some may have no ids."""
    with unreadable(Path(ids.files[0]).parent, CorruptionError, DAMAGED):
        if "id" not in ids.schema.names:
            return False
        return bool(ids.count_rows(filter=pc.field("id").cast(pa.large_string()) == document))
