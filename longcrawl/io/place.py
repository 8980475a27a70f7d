"""The folder of a run in an object store: its files are sent there whole, and fetched where they are read.

A run works with local files. One in a store, or on the Hub, has a folder on this machine, whose path says the URL::

    /tmp/longcrawl-place-a1b2c3/s3/bucket/run    for    s3://bucket/run

A file that is published in it is first sent to the store, by one PUT: what is here is there too. A file that is read
and is not here is fetched. A command begins with an empty folder and removes it in the end, so what is here is never
older than the command; files that one command writes twice have the same bytes. A worker of another machine makes the
folder there. All other paths have no URL, and nothing is done about them.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from longcrawl.errors import LongCrawlError, RunError
from longcrawl.io.file_systems import REQUESTS, ask, file_system_of, verdict_of
from longcrawl.urls import BUCKETS, without_secrets

STORES = ("s3", "s3a", "gs", "gcs")
"""Protocols of stores that create an object only where there is none, as a lock needs it."""
HUB = "hf"
"""The Hub's: its buckets take runs; a finished run gets into a dataset by ``longcrawl push``, and is read there."""
PLACES = "LONGCRAWL_PLACES"
"""The environment variable that names the folder of local copies; the temporary folder where it is not set."""
PREFIX = "longcrawl-place-"
USED = "used"
"""The file in a folder of local copies that the command which made it holds locked."""
LISTED = 8
"""Files that are asked for one by one; of more, their folders are listed first."""
PATIENCE = 20.0
"""Seconds for which a store is asked again about a lock, whose heartbeat must go on."""


@contextmanager
def open_place(url: str) -> Iterator[Path]:
    """Make the local folder of a run in a store; errors name the URL in its place.

    Raises:
        RunError: there is no room for local copies.
    """
    protocol, _, below = url.partition("://")
    places = Path(os.environ.get(PLACES, tempfile.gettempdir()))
    try:
        places.mkdir(parents=True, exist_ok=True)
        top = Path(tempfile.mkdtemp(prefix=PREFIX, dir=places)).resolve()
    except OSError as failed:
        raise RunError(f"{places} takes no local copies of {url} ({failed.strerror}): set {PLACES}=FOLDER") from failed
    folder, used = top / protocol / below.strip("/"), FileLock(top / USED)
    try:
        used.acquire()
        folder.mkdir(parents=True)
        with _without_bars() if protocol == HUB else nullcontext():
            yield folder
    except LongCrawlError as failed:
        failed.args = tuple(_with_url(each, top / protocol) for each in failed.args)
        raise
    finally:
        used.release()
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Let the Hub's client show no bar for each file that it sends and fetches; a run has its own."""
    from huggingface_hub import utils

    bars: Any = utils  # whose functions are loaded when they are asked for, which mypy does not see
    if bars.are_progress_bars_disabled():
        yield
        return
    bars.disable_progress_bars()
    try:
        yield
    finally:
        bars.enable_progress_bars()


def url_of(path: Path) -> str | None:
    """Return the URL of a file or folder of a run in a store; None of any other path.

    >>> url_of(Path("/tmp/longcrawl-place-a1b2c3/s3/bucket/run/README.md"))
    's3://bucket/run/README.md'
    """
    _, found, place = str(path).partition(f"{os.sep}{PREFIX}")
    if not found:
        return None
    protocol, _, below = place.partition(os.sep)[2].partition(os.sep)
    return f"{protocol}://{below}" if protocol in (*STORES, HUB) else None


def may_hold_run(url: str) -> bool:
    """Return whether a URL may be that of a run.

    >>> may_hold_run("s3://bucket/run"), may_hold_run("https://example.com/run")
    (True, False)
    """
    protocol, _, below = url.partition("://")
    return protocol in (*STORES, HUB) and bool(below.strip("/")) and ".." not in below.split("/")


def takes_runs(url: str) -> bool:
    """Return whether a run may be written to a URL.

    >>> takes_runs("hf://buckets/me/bucket/run"), takes_runs("hf://datasets/me/corpus")
    (True, False)
    """
    _, of_bucket, below = url.rstrip("/").partition(BUCKETS)
    return may_hold_run(url) and (not url.startswith(f"{HUB}:") or bool(of_bucket and "/" in below))


def given_url(path: str | Path) -> str | None:
    """Return the URL that somebody gave as a path, without its secrets; None of a local path.

    >>> given_url(Path("s3://bucket/run")), given_url("run")
    ('s3://bucket/run', None)
    """
    if not re.match(r"[A-Za-z][\w+.-]+:(/|$)", str(path)):  # a Path has one of the slashes, or none
        return None
    return without_secrets(re.sub(":/(?!/)", "://", str(path), count=1))


def name_of(path: Path) -> str:
    """Return what people know a path by: the URL of a run in a store."""
    return url_of(path) or str(path)


def scratch(path: Path) -> Path:
    """Return where a folder of a run is that stays on this machine; of a run in a folder, the same path."""
    if url_of(path) is None:
        return path
    top = _top(path)
    return top / "scratch" / path.relative_to(top)


def clear_others(folder: Path) -> None:
    """Remove the local copies that killed commands have left of the same run, once its lock is held."""
    if url_of(folder) is not None:
        top = _top(folder)
        for other in top.parent.glob(f"{PREFIX}*"):
            if other != top and (other / folder.relative_to(top)).exists():
                with suppress(Timeout, OSError), FileLock(other / USED, timeout=0):
                    shutil.rmtree(other, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Check that a file of a run may be written.

    Raises:
        RunError: the run is on a server that runs are only read from.
    """
    if (url := url_of(path)) is not None and not takes_runs(url):
        raise RunError(
            f"{url} is not written, as runs are only read from there: fetch the run, and send what is changed with "
            "`longcrawl push FOLDER user/name`, or name another file with --out"
        )


def send(file: Path, path: Path) -> None:
    """Send a finished file to the store where ``path`` is of a run in one, under the URL of ``path``.

    Raises:
        NotYetError: the server does not take it in time.
        RunError: runs are only read from there.
    """
    check_writable(path)
    if (url := url_of(path)) is not None:
        filesystem, inner = file_system_of(url)
        ask(url, partial(filesystem.put_file, str(file), inner), "written")


def bring(*paths: Path) -> None:
    """Fetch files of a run in a store that are not here; those that are not there stay missing.

    Raises:
        NotYetError: the server does not answer in time.
    """
    missing = [path for path in paths if url_of(path) is not None and not path.exists()]
    if len(missing) > LISTED:
        listed = {path for folder in {path.parent for path in missing} for path in list_store(folder)}
        missing = [path for path in missing if path in listed]
    _fetch_all(missing)


def bring_folder(folder: Path, without: str = "") -> None:
    """Fetch what a folder of a run in a store has and is not here, but for the folder ``without`` in it."""
    if url_of(folder) is not None:
        wanted = (path for path in list_store(folder) if path.relative_to(folder).parts[0] != without)
        _fetch_all([path for path in wanted if not path.exists()])


def bring_again(path: Path) -> bool:
    """Fetch a file of a run in a store, whatever is here; False where ``path`` is none."""
    if url_of(path) is None:
        return False
    path.unlink(missing_ok=True)
    bring(path)
    return True


def is_there(path: Path) -> bool:
    """Return whether there is a file or folder; one of a run in a store is fetched."""
    bring(path)
    return path.exists()


def list_store(folder: Path) -> dict[Path, int]:
    """Return the bytes of each file below a folder of a run in a store, by the path that it has or would have here."""
    filesystem, url, inner = _opened(folder)
    try:
        found = ask(url, partial(_find, filesystem, inner))
    except FileNotFoundError:
        return {}
    return {folder / name[len(inner) :].strip("/"): int(size) for name, size in found.items() if name != inner}


def names_in(folder: Path) -> set[str]:
    """Return the names of what a folder has in it, on this machine or, of a run in one, in the store."""
    if url_of(folder) is None:
        return set(os.listdir(folder)) if folder.exists() else set()  # noqa: PTH208  # names are enough
    filesystem, url, inner = _opened(folder)
    try:
        found = ask(url, partial(_entries, filesystem, inner))
    except FileNotFoundError:
        return set()
    return {name[len(inner) :].strip("/").partition("/")[0] for name in found} - {""}


def drop(path: Path) -> None:
    """Remove a file of a run in a store, or a folder with all that is in it, from the store alone."""
    if (url := url_of(path)) is None:
        return
    filesystem, inner = file_system_of(url)
    if filesystem.protocol == HUB:
        with suppress(FileNotFoundError):
            ask(url, partial(_drop_at_once, filesystem, inner), "removed")
        return
    gone = [path, *list_store(path)]
    with ThreadPoolExecutor(REQUESTS) as pool:
        for _ in pool.map(partial(_drop, filesystem), gone):
            pass


def create(path: Path, text: str) -> bool:
    """Write a small file to the store, unless there is one; return whether it was written."""
    filesystem, url, inner = _opened(path)
    return bool(ask(url, partial(_create, filesystem, inner, text.encode()), "written", PATIENCE))


def overwrite(path: Path, text: str) -> None:
    """Write a small file to the store, whatever is there."""
    filesystem, url, inner = _opened(path)
    ask(url, partial(filesystem.pipe_file, inner, text.encode()), "written", PATIENCE)


def read_store(path: Path) -> str | None:
    """Return the text of a small file in the store, whatever is here; None where there is none."""
    filesystem, url, inner = _opened(path)
    try:
        return str(ask(url, partial(_read, filesystem, inner), patience=PATIENCE), "utf-8")
    except FileNotFoundError:
        return None


def changed_at(path: Path) -> Any:
    """Return when a file of the store was written last, by the clock of the store; None where there is none."""
    filesystem, url, inner = _opened(path)
    try:
        return ask(url, partial(_changed_at, filesystem, inner), patience=PATIENCE)
    except FileNotFoundError:
        return None


def _with_url(text: Any, store: Path) -> Any:
    return text.replace(f"{store}/", f"{store.name}://") if isinstance(text, str) else text


def _top(path: Path) -> Path:
    return next(each for each in path.parents if each.name.startswith(PREFIX))


def _opened(path: Path) -> tuple[Any, str, str]:
    url = url_of(path)
    assert url is not None  # asked for by the callers
    filesystem, inner = file_system_of(url)
    return filesystem, url, inner


def _fetch_all(paths: list[Path]) -> None:
    if not paths:
        return
    filesystem, _, _ = _opened(paths[0])
    filesystem.invalidate_cache()  # of one path, the Hub's would ask its server here
    with ThreadPoolExecutor(min(REQUESTS, len(paths))) as pool:
        for _ in pool.map(partial(_fetch, filesystem), paths):
            pass


def _fetch(filesystem: Any, path: Path) -> None:
    """Fetch a file once, however many processes of this machine want it."""
    url, top = name_of(path), _top(path)
    inner, beside = _inner(filesystem, url), top / "fetched" / uuid4().hex
    beside.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(beside.with_name(hashlib.sha256(str(path).encode()).hexdigest())):
        if path.exists():
            return
        try:
            ask(url, partial(filesystem.get_file, inner, str(beside)))
        except FileNotFoundError:
            if not beside.parent.is_dir():  # this machine has lost it, not the store
                raise
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _find(filesystem: Any, inner: str) -> dict[str, int]:
    filesystem.invalidate_cache()
    return {name: found["size"] for name, found in filesystem.find(inner, detail=True).items()}


def _entries(filesystem: Any, inner: str) -> list[str]:
    filesystem.invalidate_cache()
    found: list[str] = filesystem.ls(inner, detail=False)
    return found


def _drop(filesystem: Any, path: Path) -> None:
    try:
        url = name_of(path)
        ask(url, partial(filesystem.rm_file, _inner(filesystem, url)), "removed")
    except FileNotFoundError:
        return


def _drop_at_once(filesystem: Any, inner: str) -> None:
    filesystem.invalidate_cache()
    filesystem.rm(inner, recursive=True)


def _create(filesystem: Any, inner: str, content: bytes) -> bool:
    _forget_listing(filesystem, inner)
    try:
        filesystem.pipe_file(inner, content, mode="create")
    except Exception as failed:
        if isinstance(failed, FileExistsError) or verdict_of(failed).kind == "replaced":
            return False
        raise
    return True


def _changed_at(filesystem: Any, inner: str) -> Any:
    _forget_listing(filesystem, inner)
    return filesystem.modified(inner)


def _read(filesystem: Any, inner: str) -> bytes:
    _forget_listing(filesystem, inner)
    content: bytes = filesystem.cat_file(inner)
    return content


def _forget_listing(filesystem: Any, inner: str) -> None:
    """Have a folder asked for again: what a listing of before says of its files may be of older ones."""
    filesystem.invalidate_cache(filesystem._parent(inner))  # noqa: SLF001  # fsspec has no public one


def _inner(filesystem: Any, url: str) -> str:
    return str(filesystem._strip_protocol(url))  # noqa: SLF001  # fsspec has no public one
