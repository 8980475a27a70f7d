"""The output at a path: that of a finished run, or a single one."""

from pathlib import Path

from longcrawl.core.outputs import RESULTS, Result
from longcrawl.errors import FormatError, SourceError
from longcrawl.io.structured import check_unchanged
from longcrawl.run.manifest import MANIFEST, holds_run, read_manifest
from longcrawl.urls import is_url


def find_result(folder: Path) -> tuple[Result, Path]:
    """Return the result type and folder of a finished run's output, or of a single output."""
    if holds_run(folder):
        name = read_manifest(folder)["output"]["format"]
        return RESULTS[name], folder / name
    known = [name for file, name in RESULTS.described().items() if (folder / file).exists()]
    run, name = folder.absolute().parent, folder.absolute().name
    if not known and (folder / f"{name}.json").exists() and holds_run(run) and (run / MANIFEST).exists():
        # Reading the manifest loads the package of the output.
        known = [name] if read_manifest(run)["output"]["format"] == name else []
    # A rectangle in the original layout has no description.
    return RESULTS[(known or ["rectangle"])[0]], folder


def holds_arrays(folder: Path) -> bool:
    """Return whether a folder may be a rectangle in the original layout, which consists of Zarr arrays."""
    metadata = ("zarr.json", ".zgroup", ".zarray")
    return any(any(folder.glob(pattern)) for name in metadata for pattern in (name, f"*/{name}", f"*/*/{name}"))


def check_exists(path: Path) -> None:
    """Raise FormatError if a path does not exist."""
    if not path.exists():
        raise FormatError(f"there is no file or folder {path}: check the path")


def check_whole(output: Path, result: Result) -> None:
    """Raise FormatError if a folder is only part of an output, such as a split of a rectangle."""
    if not (output / result.description).exists() and holds_arrays(output) and (whole := RESULTS.around(output)):
        raise FormatError(f"{output} is a part of {whole[0]}: name that")


def check_recorded(path: str | Path, end_of_text: int | None) -> None:
    """Raise SourceError if an end of text differs from that of the output at or around a path."""
    asked = end_of_text is not None and not is_url(str(path))
    whole = RESULTS.around(find_result(Path(path))[1]) if asked else None
    if whole is not None and whole[1].get("end_of_text", end_of_text) != end_of_text:
        raise SourceError(f"{whole[0]} records its end of text: leave end_of_text out (--end-of-text)")


def whole_result(folder: Path) -> tuple[Result, Path]:
    """Find the output of a run or folder, and compare its description with the recorded SHA-256."""
    check_exists(folder)
    result, output = find_result(folder)
    if (output / result.description).exists():
        check_unchanged(output / result.description)
    check_whole(output, result)
    if not (output / result.description).exists() and not holds_arrays(output):
        raise FormatError(
            f"{folder} holds neither a run nor a known output: check the path, install the package of the "
            f"output, or look at token shards with longcrawl verify {folder}"
        )
    return result, output
