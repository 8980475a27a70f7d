"""Is what lies behind a URL whole? Of the Hub's large files its own digests are compared, so nothing is downloaded."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from longcrawl.errors import FormatError, HubError
from longcrawl.files import BLOCK
from longcrawl.formats.manifest import seal
from longcrawl.hub import RemoteFile, hub_errors, remote_files
from longcrawl.results import RESULTS, Verification
from longcrawl.run_folder import MANIFEST

__all__ = ["verify_url"]


def verify_url(url: str) -> Verification:
    """Compare every file of a run, or of an output by itself, with the SHA-256 that its description gives.

    On the Hub (``hf://datasets/user/name[@TAG]``) the bytes and the SHA-256 of large files are those that the Hub
    itself lists, and only small files are fetched; anywhere else, everything is fetched.

    Raises:
        FormatError: there is no description of a run or an output at ``url``.
        HubError: the Hub cannot be reached, or does not show it.

    """
    root = url.rstrip("/")
    with hub_errors(root) if root.startswith("hf://") else nullcontext():
        place = _Place.at(root)
        name, text = _description(place)
        described = _read(text, f"{root}/{name}")
        if seal(described).encode() != text:
            problems = [f"{name} has been changed: the SHA-256 that it gives of itself differs"]
            return Verification(root, "the description by itself", tuple(problems))
        counts: dict[str, int] = {"listed": 0, "fetched": 0}
        problems = [
            *(each for path, entry in described["files"].items() for each in _compare(place, path, entry, counts)),
            *_strangers(place, name, described),
        ]
    told = f"{counts['fetched']} fetched and compared with their SHA-256"
    if counts["listed"]:
        told = f"{counts['listed']} files compared with the SHA-256 that the Hub gives, {told}"
    return Verification(root, told, tuple(problems))


@dataclass(frozen=True)
class _Place:
    """A folder behind a URL."""

    files: Any
    path: str
    listed: Mapping[str, RemoteFile]
    """On the Hub, its files by path."""

    @classmethod
    def at(cls, root: str) -> "_Place":
        import fsspec

        files, path = fsspec.core.url_to_fs(root)
        if files.protocol != "hf":
            return cls(files, path, {})
        files.invalidate_cache()
        try:
            return cls(files, path, remote_files(files, path))
        except FileNotFoundError as missing:
            raise HubError(
                f"there is no {root}, or the Hub does not show it to you: check the name and `hf auth whoami`"
            ) from missing

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self.files.cat_file(f"{self.path}/{name}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return content

    def names(self) -> list[str]:
        """Name all files; none where the server does not list them."""
        if self.listed:
            return sorted(self.listed)
        try:
            found = self.files.find(self.path)
        except (FileNotFoundError, NotImplementedError):
            return []
        return sorted(str(each)[len(self.path) :].strip("/") for each in found)

    def digest(self, name: str) -> tuple[int, str] | None:
        """Fetch a file, a piece at a time, and give its bytes and SHA-256; None where there is none."""
        digest, size = hashlib.sha256(), 0
        try:
            with self.files.open(f"{self.path}/{name}", "rb", block_size=8 * BLOCK) as file:
                while block := file.read(8 * BLOCK):
                    digest.update(block)
                    size += len(block)
        except FileNotFoundError:
            return None
        return size, digest.hexdigest()


def _description(place: _Place) -> tuple[str, bytes]:
    for name in (MANIFEST, *(told.description for told in RESULTS.values())):
        if (not place.listed or name in place.listed) and (text := place.read(name)) is not None:
            return name, text
    raise FormatError(
        f"{place.path} holds neither a run nor an output of longcrawl: it has no {MANIFEST}, rectangle.json or the like"
    )


def _read(text: bytes, where: str) -> dict[str, Any]:
    try:
        described = json.loads(text)
    except ValueError as broken:
        raise FormatError(f"{where} is not JSON: {broken}; push it again") from broken
    if not isinstance(described, dict) or not isinstance(described.get("files"), dict):
        raise FormatError(f"{where} describes no files; push it again")
    return described


def _compare(place: _Place, name: str, entry: Mapping[str, Any], counts: dict[str, int]) -> Iterator[str]:
    known = place.listed.get(name)
    if known is not None and known.is_large:
        counts["listed"] += 1
        found: tuple[int, str] | None = known.size, known.oid
    else:
        counts["fetched"] += 1
        found = place.digest(name) if known is not None or not place.listed else None
    if found is None:
        yield f"{name} is missing"
    elif found[0] != entry["bytes"]:
        yield f"{name} has {found[0]:,} bytes, expected {entry['bytes']:,}"
    elif found[1] != entry["sha256"]:
        yield f"{name} has been changed: its SHA-256 differs"


def _strangers(place: _Place, name: str, described: Mapping[str, Any]) -> Iterator[str]:
    """Find files among those of an output that nothing describes; they would be read with it."""
    inside = f"{described['output']['format']}/" if name == MANIFEST else ""
    for each in place.names():
        if each.startswith(inside) and each not in described["files"] and each != name:
            yield f"{each} is not part of this output"
