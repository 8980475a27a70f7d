"""Files of a run, local or in an object store: listing, comparing, atomic writing, uploading and downloading.

A directory that can be reached in several ways is listed once, under its own name if that is inside the listed one.
Broken links, directories without permission, named pipes and devices are listed like files, so that readers report them
(:func:`why_no_file`) instead of skipping them.

A run in a store or on the Hub has a local directory, such as ``/tmp/longcrawl-place-a1b2c3/s3/bucket/run`` for
``s3://bucket/run``, which is empty when a command starts. A file published in it is first uploaded by one PUT, and a
file that is read and is not local is downloaded. The functions for stores do nothing with other paths.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, partial, wraps
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple
from uuid import uuid4

from filelock import FileLock, Timeout

from longcrawl.errors import LongCrawlError, RunError
from longcrawl.io.file_systems import REQUESTS, ask, file_system_of, verdict_of
from longcrawl.urls import BUCKETS, without_secrets

if TYPE_CHECKING:
    import numpy.typing as npt

STORES = ("s3", "s3a", "gs", "gcs")
"""Protocols of stores that can create an object only if it does not exist, which locks need."""
HUB = "hf"
"""Protocol of the Hub: runs can be written to its buckets, and read from its datasets after ``longcrawl push``."""
PLACES = "LONGCRAWL_PLACES"
"""Environment variable with the directory of local copies; by default the directory of temporary files."""
PREFIX = "longcrawl-place-"
"""Prefix of the names of directories with local copies."""
USED = "used"
"""Name of the lock file of a directory with local copies, locked by the command that created it."""
LISTED = 8
"""Maximum number of files requested one by one; for more, their directories are listed first."""
PATIENCE = 20.0
"""Seconds for which requests about a lock are retried: its heartbeat must go on."""
Paths = TypeVarTuple("Paths")
T = TypeVar("T")


@contextmanager
def open_place(url: str) -> Iterator[Path]:
    """Create the local directory of a run in a store, and replace it by the URL in errors of the block."""
    protocol, _, below = url.partition("://")
    places = Path(os.environ.get(PLACES, tempfile.gettempdir()))
    try:
        places.mkdir(parents=True, exist_ok=True)
        top = Path(tempfile.mkdtemp(prefix=PREFIX, dir=places)).resolve()
    except OSError as failed:
        raise RunError(
            f"{places} cannot hold local copies of {url} ({failed.strerror}): set {PLACES}=FOLDER"
        ) from failed
    folder, used = top / protocol / below.strip("/"), FileLock(top / USED)
    try:
        used.acquire()
        folder.mkdir(parents=True)
        with _without_bars() if protocol == HUB else nullcontext():
            yield folder
    except LongCrawlError as failed:
        store = f"{top / protocol}/"
        failed.args = tuple(
            each.replace(store, f"{protocol}://") if isinstance(each, str) else each for each in failed.args
        )
        raise
    finally:
        used.release()
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Disable the progress bars of the Hub's client for each file; a run has its own."""
    from huggingface_hub import utils

    bars: Any = utils  # its functions are loaded on access, which mypy does not see
    shown = not bars.are_progress_bars_disabled()
    bars.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bars()


def url_of(path: Path) -> str | None:
    """Return the URL of a file or directory of a run in a store, or None for any other path.

    >>> url_of(Path("/tmp/longcrawl-place-a1b2c3/s3/bucket/run/README.md"))
    's3://bucket/run/README.md'
    """
    _, found, place = str(path).partition(f"{os.sep}{PREFIX}")
    if not found:
        return None
    protocol, _, below = place.partition(os.sep)[2].partition(os.sep)
    return f"{protocol}://{below}" if protocol in (*STORES, HUB) else None


def may_hold_run(url: str) -> bool:
    """Return whether a run can be at a URL.

    >>> may_hold_run("s3://bucket/run"), may_hold_run("https://example.com/run")
    (True, False)
    """
    protocol, _, below = url.partition("://")
    return protocol in (*STORES, HUB) and bool(below.strip("/")) and ".." not in below.split("/")


def takes_runs(url: str) -> bool:
    """Return whether a run can be written to a URL.

    >>> takes_runs("hf://buckets/me/bucket/run"), takes_runs("hf://datasets/me/corpus")
    (True, False)
    """
    _, of_bucket, below = url.rstrip("/").partition(BUCKETS)
    return may_hold_run(url) and (not url.startswith(f"{HUB}:") or bool(of_bucket and "/" in below))


def given_url(path: str | Path) -> str | None:
    """Return the URL that a user gave as a path, without its secrets, or None for a local path.

    >>> given_url(Path("s3://bucket/run")), given_url("run")
    ('s3://bucket/run', None)
    """
    if not re.match(r"[A-Za-z][\w+.-]+:(/|$)", str(path)):  # a Path keeps one of the two slashes, or none
        return None
    return without_secrets(re.sub(":/(?!/)", "://", str(path), count=1))


def name_of(path: Path) -> str:
    """Return the name of a path for messages: its URL if it is in a store."""
    return url_of(path) or str(path)


def scratch(path: Path) -> Path:
    """Return a path that is not uploaded, for scratch files; for a local run, it is the same path."""
    if url_of(path) is None:
        return path
    top = _top(path)
    return top / "scratch" / path.relative_to(top)


def clear_others(folder: Path) -> None:
    """Remove local copies of the same run left by killed commands; call it while holding the run's lock."""
    if url_of(folder) is not None:
        top = _top(folder)
        for other in top.parent.glob(f"{PREFIX}*"):
            if other != top and (other / folder.relative_to(top)).exists():
                with suppress(Timeout, OSError), FileLock(other / USED, timeout=0):
                    shutil.rmtree(other, ignore_errors=True)


def check_writable(path: Path, otherwise: str = "") -> None:
    """Raise RunError if a file belongs to a run at a read-only URL; ``otherwise`` ends the message."""
    if (url := url_of(path)) is not None and not takes_runs(url):
        raise RunError(
            f"{url} cannot be written, since runs are only read from there: fetch the run, and send changes with "
            f"`longcrawl push FOLDER user/name`{otherwise}"
        )


def send(file: Path, path: Path) -> None:
    """Upload a finished file to the URL of ``path``, if it belongs to a run in a store; see :func:`check_writable`."""
    check_writable(path)
    if (url := url_of(path)) is not None:
        filesystem, inner = file_system_of(url)
        ask(url, partial(filesystem.put_file, str(file), inner), "written")


def bring(*paths: Path) -> None:
    """Download the files of a run in a store that are not local yet; files missing in the store stay missing."""
    missing = [path for path in paths if url_of(path) is not None and not path.exists()]
    if len(missing) > LISTED:
        listed = {path for folder in {path.parent for path in missing} for path in list_store(folder)}
        missing = [path for path in missing if path in listed]
    _fetch_all(missing)


def bring_folder(folder: Path, without: str = "") -> None:
    """Download the files below a directory of a run in a store that are not local yet, except those in ``without``."""
    if url_of(folder) is not None:
        wanted = (path for path in list_store(folder) if path.relative_to(folder).parts[0] != without)
        _fetch_all([path for path in wanted if not path.exists()])


def bring_again(path: Path) -> bool:
    """Download a file of a run in a store again, replacing a local copy; return False for other paths."""
    if url_of(path) is None:
        return False
    path.unlink(missing_ok=True)
    bring(path)
    return True


def is_there(path: Path) -> bool:
    """Return whether a file or directory exists, downloading a file of a run in a store."""
    bring(path)
    return path.exists()


def list_store(folder: Path) -> dict[Path, int]:
    """Return the size in bytes of each file below a directory of a run in a store, by its local path."""

    def sizes(store: Any, inner: str) -> dict[Path, int]:
        found = store.find(inner, detail=True).items()
        return {folder / name[len(inner) :].strip("/"): int(each["size"]) for name, each in found if name != inner}

    return _ask_store(folder, sizes) or {}


def names_in(folder: Path) -> set[str]:
    """Return the names of the entries of a directory, which are listed in the store if the run is in one."""
    if url_of(folder) is None:
        return set(os.listdir(folder)) if folder.exists() else set()  # noqa: PTH208  # names are enough

    def names(store: Any, inner: str) -> set[str]:
        return {name[len(inner) :].strip("/").partition("/")[0] for name in store.ls(inner, detail=False)} - {""}

    return _ask_store(folder, names) or set()


def drop(path: Path) -> None:
    """Remove a file or a directory tree of a run from its store, but not the local copies."""
    if url_of(path) is None:
        return
    filesystem, _, _ = _opened(path)
    if filesystem.protocol == HUB:
        _ask_store(path, lambda store, inner: store.rm(inner, recursive=True), "removed")
        return

    def remove_file(each: Path) -> None:
        with suppress(FileNotFoundError):
            ask(name_of(each), partial(filesystem.rm_file, _inner(filesystem, each)), "removed")

    with ThreadPoolExecutor(REQUESTS) as pool:
        list(pool.map(remove_file, [path, *list_store(path)]))


def create(path: Path, text: str) -> bool:
    """Write a small file to the store if none exists; return whether it was written."""

    def write(store: Any, inner: str) -> bool:
        try:
            store.pipe_file(inner, text.encode(), mode="create")
        except Exception as failed:
            if isinstance(failed, FileExistsError) or verdict_of(failed).kind == "replaced":
                return False
            raise
        return True

    written = _ask_store(path, write, "written", PATIENCE)
    if written is None:
        raise FileNotFoundError(name_of(path))
    return written


def overwrite(path: Path, text: str) -> None:
    """Write a small file to the store, replacing an existing one."""
    filesystem, url, inner = _opened(path)
    ask(url, partial(filesystem.pipe_file, inner, text.encode()), "written", PATIENCE)


def read_store(path: Path) -> str | None:
    """Return the text of a small file in the store, ignoring local copies, or None if it does not exist."""
    content = _ask_store(path, lambda store, inner: store.cat_file(inner), patience=PATIENCE)
    return None if content is None else str(content, "utf-8")


def changed_at(path: Path) -> Any:
    """Return when a file in the store was last written, by the store's clock, or None if it does not exist."""
    return _ask_store(path, lambda store, inner: store.modified(inner), patience=PATIENCE)


def _ask_store(
    path: Path, request: Callable[[Any, str], T], doing: str = "fetched", patience: float | None = None
) -> T | None:
    """Send a request about a path of a store, without cached listings; return None if nothing is there."""
    filesystem, url, inner = _opened(path)

    def fresh() -> T:
        filesystem.invalidate_cache()
        return request(filesystem, inner)

    try:
        return ask(url, fresh, doing, patience)
    except FileNotFoundError:
        return None


def _top(path: Path) -> Path:
    return next(each for each in path.parents if each.name.startswith(PREFIX))


def _opened(path: Path) -> tuple[Any, str, str]:
    url = url_of(path)
    assert url is not None  # callers pass paths of a store only
    filesystem, inner = file_system_of(url)
    return filesystem, url, inner


def _fetch_all(paths: list[Path]) -> None:
    if not paths:
        return
    filesystem, _, _ = _opened(paths[0])
    filesystem.invalidate_cache()  # for a single path, the Hub's file system would send a request
    with ThreadPoolExecutor(min(REQUESTS, len(paths))) as pool:
        list(pool.map(partial(_fetch, filesystem), paths))


def _fetch(filesystem: Any, path: Path) -> None:
    """Download a file once for all processes of this machine."""
    beside = _top(path) / "fetched" / uuid4().hex
    beside.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(beside.with_name(hashlib.sha256(str(path).encode()).hexdigest())):
        if path.exists():
            return
        try:
            ask(name_of(path), partial(filesystem.get_file, _inner(filesystem, path), str(beside)))
        except FileNotFoundError:
            if not beside.parent.is_dir():  # the local directory is gone, not the file in the store
                raise
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _inner(filesystem: Any, path: Path) -> str:
    return str(filesystem._strip_protocol(name_of(path)))  # noqa: SLF001  # fsspec has no public name


_OF_JOBS = re.compile(
    r"_(SUCCESS|FAILURE|temporary\w*|metadata|common_metadata|spark_metadata|delta_log|logs|(committed|started)_\w+)"
)
"""Names that Spark, Hadoop and Delta write beside data; a parquet ``_metadata`` repeats facts of the data files."""
_UNFINISHED = (".crc", "._COPYING_")
"""Suffixes of Hadoop's local checksum files, and of files that it is still copying."""
_Identity = tuple[int, int]
"""Device and inode of a directory."""


def is_listed(name: str) -> bool:
    """Return whether a name may be data: it is not hidden, and not a file that jobs write beside data."""
    return not (name.startswith(".") or _OF_JOBS.fullmatch(name) or name.endswith(_UNFINISHED))


def list_files(folder: str | Path) -> list[str]:
    """List the files below a directory, as sorted relative paths, without names rejected by :func:`is_listed`."""
    root = Path(folder)
    found: list[str] = []
    seen: set[_Identity] = set()
    folders = [""] if root.is_dir() else []
    while folders:
        linked: list[str] = []
        while folders:
            name = folders.pop()
            if (identity := _identity(root / name)) in seen:
                continue
            seen.add(identity)
            for kind, below in _entries(root, name):
                {"file": found, "folder": folders, "link": linked}[kind].append(below)
        # Links come after all directories, so that a target below the root is listed under its own name.
        folders = sorted(linked, reverse=True)
    return sorted(found)


def match_files(pattern: str) -> list[str]:
    """List the paths that match a glob, sorted; ``**`` matches any number of directories.

    A file with several matching paths is listed under each. Links that would put a directory inside itself are cut. An
    invalid pattern is a ValueError.
    """
    from fsspec.utils import glob_translate  # importing fsspec takes a tenth of a second

    steps = ["*" if step != "**" and set(step) == {"*"} else step for step in pattern.split("/")]
    fixed = list(takewhile(lambda step: not any(sign in step for sign in "*?["), steps))
    folder, below = "/".join(fixed) or ("/" if pattern.startswith("/") else "."), steps[len(fixed) :]
    matches = re.compile(glob_translate("/".join(below))).match
    names = _every_name(Path(folder), None if "**" in below else len(below))
    return sorted(os.path.join(folder, name) if fixed else name for name in names if matches(name))  # noqa: PTH118  # keeps the spelling of the pattern


def _every_name(root: Path, most_steps: int | None) -> Iterator[str]:
    """Yield all relative paths of files below a directory, through links, with at most ``most_steps`` components."""
    waiting: list[tuple[str, frozenset[_Identity]]] = [("", frozenset())] if root.is_dir() else []
    while waiting:
        folder, above = waiting.pop()
        if (identity := _identity(root / folder)) in above:
            continue
        for kind, name in _entries(root, folder):
            if kind == "file":
                yield name
            elif most_steps is None or name.count("/") + 1 < most_steps:
                waiting.append((name, above | {identity}))


def why_no_file(path: str) -> str | None:
    """Return why a listed path cannot be read, or None if it can be read or does not exist."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116  # called for every file of a run, twice as fast as Path.stat
    except OSError:
        if not os.path.islink(path):  # noqa: PTH114  # `path` is a string
            return None
        return f"is a link to {os.readlink(path)}, which cannot be reached"  # noqa: PTH115  # `path` is a string
    if stat.S_ISDIR(mode):
        return None if os.access(path, os.R_OK | os.X_OK) else "is a folder that cannot be listed"
    return None if stat.S_ISREG(mode) else "is a named pipe or a device, not a file"


def unreachable(folder: str | Path, names: Iterable[str]) -> list[str]:
    """Return the names of broken links and unlistable directories, which may hide files."""
    paths = {name: Path(folder, name) for name in names}
    suspects = [name for name, path in paths.items() if path.is_symlink() or path.is_dir()]
    return [name for name in suspects if why_no_file(str(paths[name])) is not None]


def _identity(folder: Path) -> _Identity:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _entries(root: Path, folder: str) -> Iterator[tuple[Literal["file", "folder", "link"], str]]:
    """Yield kind and path of each entry of a directory, or the directory itself as a file if it cannot be listed."""
    try:
        with os.scandir(root / folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        yield "file", folder
        return
    for entry in entries:
        if is_listed(entry.name):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir():
                yield "file", name
            else:
                yield ("link" if entry.is_symlink() else "folder"), name


PARTIAL = ".partial"
"""Marker in the names of unfinished files and directories."""
BLOCK = 1 << 20
"""Bytes read at a time for checksums."""
_given = dict[tuple[str, int, int], str]()
"""SHA-256 computed by other processes, by path, modification time in ns, and size in bytes."""
_State = tuple[tuple[str, int, int], ...]
"""Path, modification time in ns, and size in bytes of every file; a missing file has no entry."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path; if the block succeeds, sync it and rename it to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = partial_path(path)
    try:
        yield beside
        publish(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Return a new temporary path beside ``path``; it is random, because process ids repeat across hosts."""
    return path.with_name(f"{path.name}{PARTIAL}-{uuid4().hex}")


def publish(beside: Path, path: Path) -> None:
    """Sync a finished file, upload it if the run is in a store, and rename it to ``path``, replacing another file."""
    with beside.open("rb+") as written:
        os.fsync(written.fileno())
    send(beside, path)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_values(path: Path, values: "npt.NDArray[Any]") -> None:
    """Write the raw values of an array atomically."""
    with whole_file(path) as beside, beside.open("wb") as file:
        # ndarray.tofile ignores errors when it flushes, so on a full disk it silently truncates the file.
        file.write(values.data)


def write_text(path: Path, text: str) -> None:
    """Write a small UTF-8 file atomically."""
    with whole_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def check_target(
    target: Path,
    error: type[LongCrawlError],
    fix: str,
    *,
    example: str = "",
    replaces: Callable[[Path], bool] = lambda target: False,  # noqa: ARG005  # nothing is replaced
) -> None:
    """Raise ``error`` if ``target`` exists and ``replaces`` does not allow replacing it.

    The message ends with ``fix``. If ``example``, a file name, is given, ``target`` must not be a directory.
    """
    if example and target.is_dir():
        raise error(f"{target} is a folder: choose a file, such as {target / example}")
    if target.exists() and not replaces(target):
        raise error(f"{target} exists already: {fix}")


@contextmanager
def writing(target: Path, error: type[LongCrawlError], fix: str) -> Iterator[None]:
    """Raise ``error`` for an OSError in the block, which writes ``target``, with the reason and ``fix``."""
    try:
        yield
    except OSError as failed:
        raise error(f"{target} cannot be written ({failed.strerror or failed}): {fix}") from failed


def make_folder(folder: Path, error: type[LongCrawlError], fix: str) -> None:
    """Create a directory, and raise ``error`` if no file can be written to it."""
    with writing(folder, error, fix):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def whole_files(folder: Path) -> list[Path]:
    """List the files below a local directory or in its store, sorted, without unfinished ones."""
    if url_of(folder) is not None:
        return list(file_sizes(folder))
    found = list[str]()
    for within, folders, names in os.walk(folder):
        # Unfinished directories may disappear while they are listed.
        folders[:] = [name for name in folders if f"{PARTIAL}-" not in name]
        found += [f"{within}{os.sep}{name}" for name in names if f"{PARTIAL}-" not in name]
    # In the order of paths, whose own comparison takes as long as listing them.
    return [Path(name) for name in sorted(found, key=lambda name: name.split(os.sep))]  # noqa: PTH206


def file_sizes(folder: Path) -> dict[Path, int]:
    """Return the size in bytes of each file that :func:`whole_files` lists, in its order."""
    if url_of(folder) is not None:
        return dict(sorted(list_store(folder).items()))
    return {file: file.stat().st_size for file in whole_files(folder)}


def remove_partial(folder: Path, idle: float = 0.0) -> None:
    """Remove unfinished files of killed runs below ``folder`` that have not changed for ``idle`` seconds."""
    latest = time.time() - idle
    for within, folders, names in os.walk(folder):
        for path in [Path(within, name) for name in (*names, *folders) if f"{PARTIAL}-" in name]:
            with suppress(FileNotFoundError):  # another process may remove it meanwhile
                if path.stat().st_mtime <= latest:
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()
        folders[:] = [name for name in folders if f"{PARTIAL}-" not in name]


def remove(path: Path) -> None:
    """Remove a file or a directory tree, also in its store; do nothing if it is missing."""
    drop(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, as ``sha256sum`` prints it."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def folder_bytes(path: Path) -> int:
    """Return the size in bytes of a file or of all files below a directory; 0 if it is missing."""
    if url_of(path) is None and path.is_file():
        return path.stat().st_size
    return sum(file_sizes(path).values())


def file_entries(
    folder: Path, names: Iterator[str] | list[str], known: Mapping[str, str] | None = None
) -> dict[str, dict[str, int | str]]:
    """Return bytes and SHA-256 of files for a manifest, by path relative to ``folder``.

    ``known`` has the SHA-256 of files that were digested while they were written, by full path.
    """
    files = {name: folder / name for name in sorted(names)}
    bring(*files.values())
    digests = {str(file): (known or {}).get(str(file)) or checksum(file) for file in files.values()}
    return {name: {"bytes": file.stat().st_size, "sha256": digests[str(file)]} for name, file in files.items()}


def content_digest(path: str) -> str | None:
    """Return a SHA-256 of a file's content, or of a directory's files and their names, or None if it is unreadable.

    Subdirectories are not included. A process reads a file only once until its modification time or size changes.
    """
    try:
        state = _state(path)
        if not Path(path).is_dir():
            return _given.get(state[0]) or _digest(*state[0]) if state else None
        digest = hashlib.sha256()
        for file, changed, size in state:
            name = Path(file).name.encode("utf-8", "surrogateescape")
            digest.update(name + f"\0{_digest(file, changed, size)}\n".encode())
        return digest.hexdigest()
    except OSError:
        # Code that reads the file for its work raises a proper error.
        return None


def described_content(path: str) -> tuple[str, int, int, str | None]:
    """Return path, modification time in ns, bytes and SHA-256 of a file, for :func:`remember_content`."""
    ((_, changed, size),) = _state(path) or ((path, 0, 0),)
    return path, changed, size, content_digest(path)


def remember_content(described: Iterable[tuple[str, int, int, str | None]]) -> None:
    """Store SHA-256 values from another process, so that this one reads only files that have changed since."""
    _given.update({(path, changed, size): digest for path, changed, size, digest in described if digest is not None})


def reread_when_changed(size: int) -> Callable[[Callable[[*Paths], T]], Callable[[*Paths], T]]:
    """Cache the last ``size`` results of a function of paths until the files at the paths change.

    Arguments may be None, and paths may be missing; these never change the state.
    """

    def decorate(read: Callable[[*Paths], T]) -> Callable[[*Paths], T]:
        @lru_cache(maxsize=size)
        def remembered(_states: tuple[_State, ...], *paths: *Paths) -> T:
            return read(*paths)

        @wraps(read)
        def reading(*paths: *Paths) -> T:
            return remembered(tuple(_state(path) for path in paths if isinstance(path, str)), *paths)

        return reading

    return decorate


def _state(path: str) -> _State:
    # Called before every batch. A directory may have thousands of files, for which `scandir` is fastest.
    try:
        status = os.stat(path)  # noqa: PTH116  # of all markers of a run
        if not stat.S_ISDIR(status.st_mode):
            return ((path, status.st_mtime_ns, status.st_size),)
        with os.scandir(path) as entries:
            found = [(entry.path, entry.stat()) for entry in entries if entry.is_file()]
    except OSError:
        return ()
    return tuple(sorted((file, status.st_mtime_ns, status.st_size) for file, status in found))


@lru_cache(maxsize=8192)
def _digest(path: str, _changed: int, _size: int) -> str:
    return checksum(Path(path))
