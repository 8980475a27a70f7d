"""Requests to the Hugging Face Hub: permissions, contents and errors.

Descriptions on the Hub are untrusted and are checked before use. Only `huggingface_hub` uses its token, in requests: no
message, file or argument of this package ever contains it.
"""

import hashlib
import re
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml

from longcrawl.core.outputs import RESULTS, read_template
from longcrawl.errors import FormatError, HubError, LongCrawlError, RunError
from longcrawl.io.structured import is_count, load_json, load_yaml, seal
from longcrawl.run.manifest import CARD, MANIFEST
from longcrawl.urls import REPOSITORY

if TYPE_CHECKING:
    from huggingface_hub import HfApi


Visibility = Literal["private", "public"]
"""Visibility of a pushed dataset; it has no default, because making data public cannot be undone."""

FOLDER_ENTRIES, REPOSITORY_FILES = 10_000, 100_000
"""Most entries that the Hub accepts per folder, and most files that it advises (its page on storage limits)."""

FILE_BYTES = 50_000_000_000
"""Most bytes per file: `huggingface_hub` downloads no larger ones over plain HTTP; the Hub accepts ten times that."""

TOKEN = re.compile(r"[!-~]+")
AGAIN = "run the same command again"
NOTHING_SENT = f"nothing has been sent, {AGAIN}"
NEWER = "check the name, and upgrade huggingface_hub"
SOME_SENT = f"{AGAIN}; what was sent is not sent again"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the Hub: its size in bytes, and a digest of its content."""

    size: int
    oid: str
    """SHA-256 of a large file, or the git object id of a small one."""
    is_large: bool

    def is_content(self, content: bytes) -> bool:
        """Return whether the file has this content."""
        digest = hashlib.sha256(content).hexdigest() if self.is_large else _git_oid(content)
        return len(content) == self.size and digest == self.oid

    def is_like(self, file: Path, sha256: str) -> bool:
        """Return whether a local file with this SHA-256 has the same content."""
        if self.size != file.stat().st_size:
            return False
        if self.is_large:
            return self.oid == sha256
        content = file.read_bytes()
        return self.oid == _git_oid(content) and hashlib.sha256(content).hexdigest() == sha256


@dataclass(frozen=True)
class Repository:
    """Current state of a dataset repository on the Hub."""

    visibility: Visibility
    head: str
    """Commit of the branch ``main``."""
    files: Mapping[str, RemoteFile]
    tags: Mapping[str, str]


def visibility_of(repo: str, visibility: Visibility | None, private: bool | None) -> Visibility:  # noqa: FBT001  # the name in the Hub's own clients
    """Check the name of a repository, and return its visibility from ``visibility`` or ``private``."""
    if not REPOSITORY.fullmatch(repo):
        raise HubError(f"{repo!r} is not the name of a dataset on the Hub: write it as user/name")
    if (visibility is None) == (private is None):
        raise HubError(f"choose who may see {repo}: give private or public, or one of private=True and private=False")
    named = ("private" if private else "public") if visibility is None else visibility
    if named not in get_args(Visibility):
        raise HubError(f"choose who may see {repo}: give private or public, got {visibility!r}")
    return named


def is_signed_in() -> bool:
    """Return whether `huggingface_hub` has a token."""
    from huggingface_hub import get_token

    return get_token() is not None


def connect(*, signed_in: bool = True) -> "HfApi":
    """Return a client of the Hub, which is signed in if there is a token; raise HubError if ``signed_in`` needs one."""
    from huggingface_hub import HfApi, get_token

    if signed_in and get_token() is None:
        raise HubError("you are not signed in to the Hub: run `hf auth login`, or set HF_TOKEN")
    return HfApi(library_name="longcrawl")


@contextmanager
def hub_errors(repo: str, again: str = AGAIN) -> Iterator[None]:
    """Convert exceptions of the Hub client and the network into HubError; ``again`` advises on temporary ones."""
    from huggingface_hub import errors, get_token

    if not TOKEN.fullmatch(get_token() or "-"):  # a client would repeat it in its error message
        raise HubError("the token of the Hub has invalid characters: run `hf auth login`, or set HF_TOKEN")
    # The class of connection errors is httpx's or httpx2's, by the release of huggingface_hub.
    network: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]  # imported there, not exported
    try:
        yield
    except (network, OSError, RuntimeError, ValueError) as wrong:
        if isinstance(wrong, LongCrawlError):
            raise
        # Uploads in threads raise a RuntimeError that names the file.
        cause = wrong.__cause__ if isinstance(wrong, RuntimeError) and wrong.__cause__ else wrong
        raise HubError(_sentence(repo, cause, again)) from wrong
    except (LookupError, TypeError, AttributeError) as wrong:
        # `huggingface_hub` itself raises these for unexpected answers of other servers.
        *_, (innermost, _) = traceback.walk_tb(wrong.__traceback__)
        if not str(innermost.f_globals.get("__name__")).startswith("huggingface_hub."):
            raise
        raise HubError(
            f"the server for {repo} did not answer like the Hugging Face Hub ({type(wrong).__name__} in "
            "huggingface_hub): check HF_ENDPOINT and your proxy"
        ) from wrong


def _sentence(repo: str, wrong: BaseException, again: str) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled

    response = getattr(wrong, "response", None)
    said = str(getattr(wrong, "server_message", None) or next(iter(str(wrong).splitlines()), type(wrong).__name__))
    said = shorten(said, 300)
    if response is not None:
        return _refusal(repo, response.status_code, said, again, response.headers.get("Retry-After", ""))
    # hf_xet has the status only in its message.
    if status := re.search(r"HTTP status \w+ error \((\d{3})", said):
        return _refusal(repo, int(status[1]), said, again)
    if isinstance(wrong, OfflineModeIsEnabled):
        return f"huggingface_hub is offline, so {repo} cannot be reached: unset HF_HUB_OFFLINE"
    if isinstance(wrong, OSError) and wrong.filename is not None:
        return f"{wrong.filename} cannot be read ({wrong.strerror}): {again}"
    if isinstance(wrong, ValueError):
        return f"{repo} cannot be requested ({said}): check the name, and HF_ENDPOINT if you have set it"
    return f"the Hub cannot be reached for {repo} ({said}): check the connection; {again}"


def _refusal(repo: str, status: int, said: str, again: str, pause: str = "") -> str:
    pause = f"{int(pause):,} seconds" if pause.isdecimal() else "as long as its message asks, or an hour"
    what, todo = {
        401: ("does not accept your token for {}", "run `hf auth login`, or set HF_TOKEN again"),
        403: (
            "does not allow this request to {}",
            "unless its message names another reason, set HF_TOKEN to a token that may",
        ),
        404: ("has no {}, or does not show it to you", "check the name and `hf auth whoami`"),
        409: ("has received another change to {} meanwhile", again),
        412: ("has received another commit to {} meanwhile", again),
        413: ("rejects the size of a request to {}", "have the run write fewer files"),
        429: ("limits the rate of requests to {}", f"wait {pause}; {again}"),
    }.get(status, ("has failed at {}", again) if status >= 500 else ("rejects a request to {}", NEWER))
    return f"the Hub {what.format(repo)} ({status}: {said}): {todo}"


def read_repository(api: "HfApi", repo: str) -> Repository | None:
    """Read the state of a dataset repository on ``main``, or return None if it does not exist."""
    from huggingface_hub import RepoFile
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.dataset_info(repo)
    except RepositoryNotFoundError as missing:
        # Without a token, the Hub answers 401 for both missing and private repositories.
        if missing.response.status_code == 404 or (missing.response.status_code == 401 and not is_signed_in()):
            return None
        raise
    listed = api.list_repo_tree(repo, repo_type="dataset", revision=info.sha, recursive=True)
    files = {each.path: _remote_file(each) for each in listed if isinstance(each, RepoFile)}
    tags = {each.name: each.target_commit for each in api.list_repo_refs(repo, repo_type="dataset").tags}
    return Repository("private" if info.private else "public", str(info.sha), files, tags)


def remote_files(files: Any, path: str) -> dict[str, RemoteFile]:
    """List the current files below a folder of the Hub's file system, by path relative to it."""
    from huggingface_hub import HfApi, RepoFile

    place = files.resolve_path(path)
    inside = f"{place.path_in_repo}/" if place.path_in_repo else ""
    listed = HfApi().list_repo_tree(
        place.repo_id, place.path_in_repo or None, repo_type=place.repo_type, revision=place.revision, recursive=True
    )
    return {each.path.removeprefix(inside): _remote_file(each) for each in listed if isinstance(each, RepoFile)}


def _remote_file(entry: Any) -> RemoteFile:
    return RemoteFile(entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id, entry.lfs is not None)


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324  # git's object id


def over_limits(files: Mapping[str, int]) -> list[str]:
    """Describe the limits of the Hub that files exceed, given their bytes by path; the list is empty if they fit.

    >>> over_limits({"a/b.parquet": 1})
    []
    >>> over_limits({"a/b.parquet": 51 * 10**9})
    ['a/b.parquet has 51,000,000,000 bytes, and more than 50,000,000,000 cannot be fetched without hf_xet']
    """
    found = [
        f"{path} has {size:,} bytes, and more than {FILE_BYTES:,} cannot be fetched without hf_xet"
        for path, size in files.items()
        if size > FILE_BYTES
    ]
    folders = {path.rsplit("/", depth)[0] for path in files for depth in range(1, path.count("/") + 1)}
    entries = Counter(path.rpartition("/")[0] for path in {*files, *folders})
    found += [
        f"{folder or 'the top folder'} has {count:,} entries, the Hub takes {FOLDER_ENTRIES:,} in a folder"
        for folder, count in sorted(entries.items())
        if count > FOLDER_ENTRIES
    ]
    if len(files) > REPOSITORY_FILES:
        found.append(f"there are {len(files):,} files, and the Hub advises against more than {REPOSITORY_FILES:,}")
    return found


def fetch_file(repo: str, there: Repository, name: str) -> bytes:
    """Fetch a file of a repository from the commit in ``there``."""
    from huggingface_hub import HfFileSystem

    content: bytes = HfFileSystem().cat_file(f"datasets/{repo}@{there.head}/{name}")
    return content


def check_ignores_nothing(repo: str, there: Repository) -> None:
    """Raise HubError if a repository has a ``.gitignore``, which the Hub applies to uploads."""
    if ".gitignore" in there.files:
        raise HubError(
            f"{repo} holds a .gitignore, for which the Hub may silently omit files: choose "
            "another repository, or delete it on the Hub"
        )


def check_same_visibility(repo: str, visibility: Visibility, there: Repository | None) -> None:
    """Raise HubError if a repository has the other visibility, which only its owner should change."""
    if there is not None and there.visibility != visibility:
        raise HubError(
            f"{repo} is {there.visibility}: push it as {there.visibility}, or change that in its settings on the Hub"
        )


DESCRIPTION_BYTES = 256_000_000
"""Most bytes of a description: far more than needed for as many files as the Hub advises at most."""

SHA256 = re.compile(r"[0-9a-f]{64}")


def read_remote(text: bytes, where: str) -> dict[str, Any]:
    """Read a description, with ``bytes`` and ``sha256`` of ``files`` by relative paths that stay inside its folder.

    Raises:
        FormatError: ``text`` is not such a description; the message names the problem, and ``where`` it is.
    """
    described = _read_object(text, where)
    if not isinstance(described.get("files"), dict):
        raise _wrong(where, "describes no files")
    for name, entry in described["files"].items():
        if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(name.split("/")):
            raise _wrong(where, f"names {name!r}, which is not a path inside its folder")
        sized = isinstance(entry, dict) and is_count(entry.get("bytes"))
        if not sized or not SHA256.fullmatch(str(entry.get("sha256"))):
            raise _wrong(where, f"does not record bytes and SHA-256 of {name}")
    return described


def _read_object(text: bytes, where: str) -> dict[str, Any]:
    if len(text) > DESCRIPTION_BYTES:
        raise _wrong(where, f"has {len(text):,} bytes, but a description may have up to {DESCRIPTION_BYTES:,}")
    try:
        read = load_json(text)
    except (ValueError, RecursionError) as broken:
        raise _wrong(where, f"is not JSON ({next(iter(str(broken).splitlines()), type(broken).__name__)})") from broken
    if not isinstance(read, dict):
        raise _wrong(where, "is not a JSON object")
    return read


def is_intact(described: Mapping[str, Any], text: bytes) -> bool:
    """Return whether a description has exactly the bytes that longcrawl wrote and sealed."""
    try:
        return seal(described).encode() == text
    except (UnicodeEncodeError, RecursionError):
        # JSON can have lone surrogates and lists a thousand levels deep; longcrawl writes neither.
        return False


def _wrong(where: str, problem: str) -> FormatError:
    return FormatError(f"{where} {problem}: push it again, or look for another copy")


UNFINISHED = "unfinished-push.json"
VERSION = 1
TAG_BEGINS = "run-"
TAG = re.compile(rf"{TAG_BEGINS}[0-9a-f]{{12}}")
ZARR = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
"""Metadata files of arrays: without them an array cannot be opened; with them, missing chunks read as zeros."""


def says_how_to_read(name: str) -> bool:
    """Return whether readers load data by this file, so that it must not be beside an incomplete dataset."""
    last = name.rpartition("/")[2]
    return name in (CARD, MANIFEST) or last in ZARR or last in RESULTS.described()


@dataclass(frozen=True)
class UnfinishedPush:
    """A push of several commits without its last one."""

    tag: str
    files: frozenset[str]
    """Files that longcrawl may have put on the Hub so far, in this push and the one before it."""

    @classmethod
    def read(cls, text: bytes) -> "UnfinishedPush":
        """Parse the file from the Hub, or raise FormatError if it was not written by this version of longcrawl."""
        content = _read_object(text, UNFINISHED)
        files, tag = content.get("files"), content.get("tag")
        names = isinstance(files, list) and all(isinstance(each, str) for each in files)
        known = content.get("longcrawl_push") == VERSION and isinstance(tag, str) and TAG.fullmatch(tag)
        if not (names and known and is_intact(content, text)):
            raise FormatError(f"{UNFINISHED} is not in the form that this longcrawl writes")
        return cls(str(tag), frozenset(files or ()))

    def as_json(self) -> bytes:
        """Return the content of the file, which is the same for the same push."""
        content = {"longcrawl_push": VERSION, "tag": self.tag, "files": sorted(self.files)}
        return seal(content).encode()

    def as_card(self) -> bytes:
        """Return a card with which `datasets` loads nothing, and which explains why."""
        return Template(read_template("unfinished.md")).substitute(tag=self.tag).encode()


def read_card(file: Path) -> str:
    """Read the card of a run, and raise RunError if its front matter is not valid, without asking the Hub."""
    from huggingface_hub import DatasetCard
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    try:
        card = file.read_text("utf-8")
        # For a card without front matter, the client would print a warning of its own.
        found = REGEX_YAML_BLOCK.search(card)
        if found:
            load_yaml(found[2])  # applies limits before the client reads it without any
        head = DatasetCard(card).data.to_dict() if found else {}  # type: ignore[no-untyped-call]  # untyped there
    except UnicodeDecodeError as broken:
        raise RunError(f"{file} was not pushed: it is not UTF-8 ({broken}). Save it as UTF-8.") from broken
    except (AttributeError, ValueError, TypeError, yaml.YAMLError) as broken:
        said = shorten(" ".join(str(broken).split()), 300, placeholder="…")
        raise RunError(
            f"{file} was not pushed: its YAML front matter is invalid ({said}). Fix the block between the --- lines."
        ) from broken
    if not head:
        raise RunError(
            f"{file} was not pushed: it does not begin with YAML front matter between two lines of ---. "
            f"Put it back, or move the card away and run longcrawl card {file.parent}"
        )
    return card


def check_front_matter(file: Path, card: str) -> None:
    """Raise RunError with the Hub's message if it rejects the front matter of a card."""
    from huggingface_hub import DatasetCard, constants, get_session, hf_raise_for_status
    from huggingface_hub.errors import BadRequestError

    try:
        body = {"repoType": "dataset", "content": str(DatasetCard(card))}
        # Before version 2.2, DatasetCard.validate ignores HF_ENDPOINT and sends the card to huggingface.co.
        answer = get_session().post(
            f"{constants.ENDPOINT}/api/validate-yaml", json=body, headers={"Accept": "text/plain"}
        )
        hf_raise_for_status(answer)
    except ValueError as wrong:  # BadRequestError is a ValueError
        said = shorten(answer.text if isinstance(wrong, BadRequestError) else str(wrong), 300)
        raise RunError(
            f"the Hub rejects the YAML front matter of {file} ({said}). Fix the block between the --- lines."
        ) from wrong


def check_card_is_ours(api: "HfApi", repo: str, head: str) -> None:
    """Raise HubError if the card was edited on the Hub, because a push would replace it."""
    (card,) = api.get_paths_info(repo, [CARD], expand=True, revision=head, repo_type="dataset")
    commit = getattr(card, "last_commit", None)
    if commit is not None and not commit.title.startswith(TAG_BEGINS):
        raise HubError(
            f"{CARD} of {repo} was edited on the Hub ({shorten(commit.title, 80)!r}), and this push would replace it: "
            f"take from it what you want (`hf download {repo} {CARD} --repo-type dataset`), then add --instead-of "
            f"{CARD} to the command"
        )
