"""Verification of runs, outputs and token shards, by the contents of files or only by their sizes."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from longcrawl.core.outputs import RESULTS, Result
from longcrawl.errors import FormatError, HubError, check_word
from longcrawl.io.file_systems import ask, fetch, file_system_of, sizes_of
from longcrawl.io.files import BLOCK
from longcrawl.io.structured import Verification, is_sealed, verify_files
from longcrawl.publish.hub import client
from longcrawl.publish.questions import check_whole, find_result, holds_arrays
from longcrawl.publish.sizes import CHANGED, by_sizes, check_exists, verify_sizes
from longcrawl.run.manifest import MANIFEST, read_manifest
from longcrawl.urls import BUCKETS, DATASETS, is_url

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
    check_word("check", check, Check, FormatError)
    if is_url(str(path)):
        if format is not None or settings:
            raise FormatError("token shards are only verified locally: give their local path, or remove the format")
        return _verify_url(str(path), check)
    folder = Path(str(path).removeprefix("file://"))
    given = ", ".join(["the format"] * (format is not None) + list(settings))
    if check == "contents":
        return _verify_contents(folder, given, format, settings)
    if given:
        raise FormatError(f"sizes are read from what a run or output records: remove {given}")
    return verify_sizes(folder)


def _verify_contents(folder: Path, given: str, shard_format: str | None, settings: Mapping[str, Any]) -> Verification:
    check_exists(folder)
    if given and (whole := RESULTS.around(folder)) is not None:
        raise FormatError(f"{whole[0]} records its contents: remove {given}")
    if folder.is_file():
        return _verify_shards(folder, shard_format, **settings)
    result, output = find_result(folder)
    described = output != folder or (folder / result.description).exists()
    if not described and not holds_arrays(folder):
        return _verify_shards(folder, shard_format, **settings)
    if given:
        raise FormatError(f"{folder} records its contents: remove {given}, which is only for token shards")
    if output != folder:
        return _verify_run(folder, result, output)
    check_whole(folder, result)
    return result.verify(folder)


def _verify_shards(path: Path, shard_format: str | None, **settings: Any) -> Verification:
    from longcrawl.formats.shards.spec import verify_shard, verify_shards  # loads all their formats

    return (verify_shard if path.is_file() else verify_shards)(path, shard_format, **settings)


def _verify_run(folder: Path, result: Result, output: Path) -> Verification:
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


def _verify_url(url: str, check: Check) -> Verification:
    root = url.rstrip("/")
    if "://" not in root and "::" not in root:
        raise FormatError(f"{url} is not a URL: write it as hf://datasets/user/name")
    with client.hub_errors(root) if root.startswith("hf://") else nullcontext():
        place = _Place.at(root)
        name, text = _description(place)
        described = client.read_remote(text, f"{root}/{name}")
        if not client.is_intact(described, text):
            return Verification(root, "the description by itself", (f"{name} {CHANGED}",))
        inside = _output_folder(described, f"{root}/{name}") if name == MANIFEST else ""
        files = described["files"]
        if check == "sizes":
            return by_sizes(root, files, place.sizes(list(files)))
        counts: dict[str, int] = {"listed": 0, "fetched": 0}
        problems = [
            *(each for path, entry in files.items() for each in _compare(place, path, entry, counts)),
            *_unknown_files(place, inside, {*files, name}),
        ]
    compared = f"{counts['fetched']} fetched and compared with their SHA-256"
    if counts["listed"]:
        compared = f"{counts['listed']} files compared with the SHA-256 that the Hub lists, {compared}"
    return Verification(root, compared, tuple(problems))


@dataclass(frozen=True)
class _Place:
    root: str
    files: Any
    path: str
    listed: Mapping[str, client.RemoteFile]

    @classmethod
    def at(cls, root: str) -> "_Place":
        from huggingface_hub.errors import RepositoryNotFoundError

        files, path = file_system_of(root)
        files.invalidate_cache()
        if files.protocol != "hf" or root.startswith(BUCKETS):
            return cls(root, files, path, {})
        try:
            return cls(root, files, path, client.remote_files(files, path))
        except (FileNotFoundError, RepositoryNotFoundError) as missing:
            if isinstance(missing, RepositoryNotFoundError) and root.startswith(DATASETS):
                raise
            raise HubError(_missing(root)) from missing

    def digest(self, name: str, most: int) -> tuple[int, str] | None:
        """Return size and SHA-256 of a file, or of its beginning if it has more than ``most`` bytes."""
        try:
            return ask(f"{self.root}/{name}", partial(self._digest, name, most))
        except FileNotFoundError:
            return None

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        """Return the sizes of files, None for a missing one."""
        if self.listed:
            return [self.listed[name].size if name in self.listed else None for name in names]
        return sizes_of([f"{self.root}/{name}" for name in names])

    def names(self) -> list[str]:
        """List all files; the list is empty if the server does not list them."""
        if self.listed:
            return sorted(self.listed)
        try:
            found = ask(self.root, partial(self.files.find, self.path))
        except FileNotFoundError:
            return []
        return sorted(str(each)[len(self.path) :].strip("/") for each in found)

    def _digest(self, name: str, most: int) -> tuple[int, str]:
        digest, size = hashlib.sha256(), 0
        with self.files.open(f"{self.path}/{name}", "rb", block_size=8 * BLOCK) as file:
            while size <= most and (block := file.read(8 * BLOCK)):
                digest.update(block)
                size += len(block)
        return size, digest.hexdigest()


def _missing(root: str) -> str:
    if root.startswith(DATASETS):
        return f"{root} does not exist, or the Hub does not show it to you: check the name and `hf auth whoami`"
    return f"{root} is not the name of a dataset: write datasets/ before it, {DATASETS}{root[len('hf://') :]}"


def _description(place: _Place) -> tuple[str, bytes]:
    if client.UNFINISHED in place.listed:
        raise FormatError(
            f"{place.path} is incomplete, since a push to it was stopped or is still running: push it again, or "
            "verify a tag, written after its name as @run-…"
        )
    for name in (MANIFEST, *RESULTS.described()):
        if not place.listed or name in place.listed:
            with suppress(FileNotFoundError):
                return name, fetch(f"{place.root}/{name}", 0, client.DESCRIPTION_BYTES + 1)
    raise FormatError(
        f"{place.path} holds neither a run nor an output of longcrawl: it has no {MANIFEST}, rectangle.json or the like"
    )


def _output_folder(manifest: Mapping[str, Any], where: str) -> str:
    output = manifest.get("output")
    name = output.get("format") if isinstance(output, dict) else None
    if not isinstance(name, str) or name not in RESULTS:
        raise FormatError(f"{where} contains no output that this longcrawl knows: upgrade longcrawl, or push it again")
    return f"{name}/"


def _compare(place: _Place, name: str, entry: Mapping[str, Any], counts: dict[str, int]) -> Iterator[str]:
    known, expected = place.listed.get(name), entry["bytes"]
    if known is None and place.listed:
        found = None
    elif known is not None and (known.is_large or known.size != expected):
        counts["listed"] += 1
        found = known.size, known.oid
    else:
        counts["fetched"] += 1
        found = place.digest(name, expected)
    if found is None:
        yield f"{name} is missing"
    elif found[0] > expected and known is None:
        yield f"{name} has more bytes than the {expected:,} expected"
    elif found[0] != expected:
        yield f"{name} has {found[0]:,} bytes, expected {expected:,}"
    elif found[1] != entry["sha256"]:
        yield f"{name} has been changed: its SHA-256 differs"


def _unknown_files(place: _Place, inside: str, described: set[str]) -> Iterator[str]:
    """Find files in an output's folder that no description lists, as they would be read with it."""
    for name in place.names():
        if name.startswith(inside) and name not in described:
            yield f"{name if name.isprintable() else repr(name)} is not part of this output"
