"""Verification of runs and outputs behind a URL, by what the store lists or by fetching every file."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from longcrawl.core.outputs import RESULTS
from longcrawl.core.verification import Verification
from longcrawl.errors import FormatError, HubError
from longcrawl.io.file_systems import ask, fetch, file_system_of, sizes_of
from longcrawl.io.files import BLOCK
from longcrawl.publish.hub import client
from longcrawl.publish.verify import CHANGED, Check, by_sizes
from longcrawl.run.manifest import MANIFEST
from longcrawl.urls import BUCKETS, DATASETS


def verify_url(url: str, check: Check) -> Verification:
    """Verify a run or a single output behind a URL, see :func:`longcrawl.verify`."""
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
        return f"there is no {root}, or the Hub does not show it to you: check the name and `hf auth whoami`"
    return f"{root} is not the name of a dataset: write datasets/ before it, {DATASETS}{root[len('hf://') :]}"


def _description(place: _Place) -> tuple[str, bytes]:
    if client.UNFINISHED in place.listed:
        raise FormatError(
            f"{place.path} is not whole, as a push to it was stopped or is still running: push it again, or verify "
            "a tag, which is written behind its name as @run-…"
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
        raise FormatError(f"{where} names no output that this longcrawl knows: upgrade longcrawl, or push it again")
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
