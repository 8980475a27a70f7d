"""Verification of runs, outputs and token shards, by the contents of files or only by their sizes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from longcrawl.core.verification import Verification
from longcrawl.errors import FormatError
from longcrawl.io.structured import is_sealed, load_json, verify_files
from longcrawl.run.manifest import MANIFEST, holds_run, read_manifest
from longcrawl.urls import is_url

if TYPE_CHECKING:
    from longcrawl.core.outputs import Result

CHANGED = "has been changed: the SHA-256 that it gives of itself differs"
Check = Literal["contents", "sizes"]


def verify(
    path: str | Path,
    format: str | None = None,  # noqa: A002  # the public argument's name
    *,
    check: Check = "contents",
    **settings: Any,
) -> Verification:
    """Check every file of a run, of a single output, of a rectangle in the original layout, or of token shards.

    A URL must be that of a run or of a single output. On the Hub (``hf://datasets/user/name[@TAG]``), large files are
    compared by the sizes and SHA-256 that the Hub lists; from other stores, everything is fetched.

    Args:
        path: path of one of these, including a single token shard or a folder of shards.
        format: format of shards that do not record their own, such as "nanogpt".
        check: "contents" to compare the SHA-256 of every file, or "sizes" for a quick check that every file of a run
            or output is there with its size. Both check the SHA-256 of the manifest or description itself.
        settings: settings of the format's ``verify``, such as ``vocabulary_size=50_257``.

    Raises:
        FormatError: ``path`` is none of these, or a shard does not record its format.
        RunError: the run is not finished.
        HubError: the Hub cannot be reached, or does not show the URL's content.
        NotYetError: another server does not answer in time.
    """
    if check not in get_args(Check):
        raise FormatError(f"check takes 'contents' or 'sizes', got {check!r}")
    if is_url(str(path)):
        if format is not None or settings:
            raise FormatError("token shards are only verified locally: give their local path, or leave the format out")
        from longcrawl.publish.verify_url import verify_url

        return verify_url(str(path), check)
    folder = Path(str(path).removeprefix("file://"))
    given = ", ".join(["the format"] * (format is not None) + list(settings))
    return _verify_sizes(folder, given) if check == "sizes" else _verify_contents(folder, given, format, settings)


def _verify_contents(folder: Path, given: str, shard_format: str | None, settings: Mapping[str, Any]) -> Verification:
    from longcrawl.core.outputs import RESULTS
    from longcrawl.run.results import check_exists, check_whole, find_result, holds_arrays

    check_exists(folder)
    if given and (whole := RESULTS.around(folder)) is not None:
        raise FormatError(f"{whole[0]} records what is in it: leave {given} out")
    if folder.is_file():
        return _verify_shards(folder, shard_format, **settings)
    result, output = find_result(folder)
    described = output != folder or (folder / result.description).exists()
    if not described and not holds_arrays(folder):
        return _verify_shards(folder, shard_format, **settings)
    if given:
        raise FormatError(f"{folder} records what is in it: leave {given} out, which is for token shards alone")
    if output != folder:
        return _verify_run(folder, result, output)
    check_whole(folder, result)
    return result.verify(folder)


def _verify_shards(path: Path, shard_format: str | None, **settings: Any) -> Verification:
    from longcrawl.formats.shards.spec import verify_shard, verify_shards  # loads all their formats

    return (verify_shard if path.is_file() else verify_shards)(path, shard_format, **settings)


def _verify_run(folder: Path, result: "Result", output: Path) -> Verification:
    manifest = read_manifest(folder)
    if not is_sealed(folder / MANIFEST, manifest):
        return Verification(str(folder), "the manifest by itself", (f"{MANIFEST} {CHANGED}",))
    files = manifest["files"]
    # The output's description also lists its files, except the description itself.
    outside = {
        name: entry
        for name, entry in files.items()
        if not name.startswith(f"{result.name}/") or name == f"{result.name}/{result.description}"
    }
    problems = list(verify_files(folder, outside))
    if output.is_dir():
        problems += [f"{result.name}: {problem}" for problem in result.verify(output).problems]
    return Verification(str(folder), f"{len(files)} files compared with their SHA-256", tuple(problems))


def _verify_sizes(folder: Path, given: str) -> Verification:
    """Compare the sizes of files with those that the manifest of a run, or the description of an output, records."""
    if given:
        raise FormatError(f"a quick check reads the sizes that a run or output records: leave {given} out")
    name, described = (MANIFEST, read_manifest(folder)) if holds_run(folder) else _description(folder)
    if not is_sealed(folder / name, described):
        return Verification(str(folder), "the description by itself", (f"{name} {CHANGED}",))
    files = described["files"]
    there = ((folder / name) for name in files)
    return by_sizes(str(folder), files, [each.stat().st_size if each.is_file() else None for each in there])


def _description(folder: Path) -> tuple[str, Mapping[str, Any]]:
    from longcrawl.core.outputs import RESULTS
    from longcrawl.run.results import check_exists

    check_exists(folder)
    for name in RESULTS.described():
        if (folder / name).is_file():
            found: dict[str, Any] = load_json((folder / name).read_bytes())
            return name, found
    raise FormatError(
        f"{folder} holds neither a run nor an output that records the sizes of its files: verify it without --quick"
    )


def by_sizes(path: str, files: Mapping[str, Mapping[str, Any]], sizes: Sequence[int | None]) -> Verification:
    """Compare the sizes of files, None for a missing one, with those that were recorded."""
    problems = [
        f"{name} is missing" if size is None else f"{name} has {size:,} bytes, expected {recorded['bytes']:,}"
        for (name, recorded), size in zip(files.items(), sizes, strict=True)
        if size != recorded["bytes"]
    ]
    return Verification(path, f"{len(files)} files compared by size alone", tuple(problems))
