"""What lies on the Hub beside the files of a run, or is put there with them: descriptions, the card, a marker.

Descriptions there are data of others: none is believed before it is checked. A push of several commits is marked, so
that nobody takes a part for the whole. Its first commit removes whatever says how to read the files and adds two: a
card that loads nothing, and ``unfinished-push.json``, which names the push and the files of longcrawl. The last commit
does the opposite.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import yaml

from longcrawl.card.write import CARD
from longcrawl.core.results import RESULTS
from longcrawl.core.templates import read_template
from longcrawl.errors import FormatError, HubError, RunError, warn_user
from longcrawl.manifest import MANIFEST
from longcrawl.storage.sealed import seal
from longcrawl.storage.structured import is_count, load_json, load_yaml

if TYPE_CHECKING:
    from huggingface_hub import HfApi

DESCRIPTION_BYTES = 256_000_000
"""What a description may have: far more than one of as many files as the Hub advises at most."""

SHA256 = re.compile(r"[0-9a-f]{64}")


def read_remote(text: bytes, where: str) -> dict[str, Any]:
    """Read a description of files; one that leads out of its folder is rejected.

    Its entry ``files`` gives ``bytes`` and ``sha256`` by path: relative, of plain names, inside the folder it lies in.

    Args:
        text: the file.
        where: its place, for messages.

    Raises:
        FormatError: it is not such a description; the message says what is wrong.
    """
    described = _read_object(text, where)
    if not isinstance(described.get("files"), dict):
        raise _wrong(where, "describes no files")
    for name, entry in described["files"].items():
        if not _is_inside(name):
            raise _wrong(where, f"names {name!r}, which is not a path inside its folder")
        if not _is_entry(entry):
            raise _wrong(where, f"does not record bytes and SHA-256 of {name}")
    return described


def _read_object(text: bytes, where: str) -> dict[str, Any]:
    """Read JSON that is a reasonably large object.

    Raises:
        FormatError: it is not.
    """
    if len(text) > DESCRIPTION_BYTES:
        raise _wrong(where, f"has {len(text):,} bytes, and a description has up to {DESCRIPTION_BYTES:,}")
    try:
        read = load_json(text)
    except (ValueError, RecursionError) as broken:
        raise _wrong(where, f"is not JSON ({next(iter(str(broken).splitlines()), type(broken).__name__)})") from broken
    if not isinstance(read, dict):
        raise _wrong(where, "holds no JSON object")
    return read


def is_intact(described: Mapping[str, Any], text: bytes) -> bool:
    """Return whether a description is, to the byte, as longcrawl wrote and sealed it."""
    try:
        return seal(described).encode() == text
    except (UnicodeEncodeError, RecursionError):
        # JSON can hold half a surrogate pair, and lists a thousand deep; longcrawl writes neither.
        return False


def _wrong(where: str, problem: str) -> FormatError:
    return FormatError(f"{where} {problem}: push it again, or look for another copy")


def _is_inside(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(name.split("/"))


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("sha256"), str):
        return False
    return is_count(entry.get("bytes")) and SHA256.fullmatch(entry["sha256"]) is not None


UNFINISHED = "unfinished-push.json"
VERSION = 1
TAG_BEGINS = "run-"
TAG = re.compile(rf"{TAG_BEGINS}[0-9a-f]{{12}}")
ZARR = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
"""Without its metadata an array cannot be opened; with them, chunks that are missing would be read as zeros."""


def says_how_to_read(name: str) -> bool:
    """Return whether a file tells others what to read, so that it must not lie beside a part of that."""
    last = name.rpartition("/")[2]
    return name in (CARD, MANIFEST) or last in ZARR or last in RESULTS.described()


@dataclass(frozen=True)
class UnfinishedPush:
    """A push of several commits, the last of which has not been made."""

    tag: str
    files: frozenset[str]
    """What a run of longcrawl has put on the Hub, or may have so far: this one, and the one before it."""

    @classmethod
    def read(cls, text: bytes) -> "UnfinishedPush":
        """Read what lies on the Hub.

        Raises:
            FormatError: longcrawl has not written it.
        """
        content = _read_object(text, UNFINISHED)
        files, tag = content.get("files"), content.get("tag")
        names = isinstance(files, list) and all(isinstance(each, str) for each in files)
        known = content.get("longcrawl_push") == VERSION and isinstance(tag, str) and TAG.fullmatch(tag)
        if not (names and known and is_intact(content, text)):
            raise FormatError(f"{UNFINISHED} is not as this longcrawl writes it")
        return cls(str(tag), frozenset(files or ()))

    def as_json(self) -> bytes:
        """Return what is to lie on the Hub, the same for the same push."""
        content = {"longcrawl_push": VERSION, "tag": self.tag, "files": sorted(self.files)}
        return seal(content).encode()

    def as_card(self) -> bytes:
        """Return a card of which `datasets` loads nothing, and says why."""
        card = read_template("unfinished.md")
        return Template(card).substitute(tag=self.tag).encode()


def read_card(file: Path) -> str:
    """Read the card of a run; it needs front matter, by which the data is loaded. The Hub is not asked.

    Raises:
        RunError: what is wrong with it, and how to fix it.
    """
    from huggingface_hub import DatasetCard
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    try:
        card = file.read_text("utf-8")
        # Of a card without front matter, the client prints a line of its own.
        found = REGEX_YAML_BLOCK.search(card)
        if found:
            load_yaml(found[2])  # within limits, before the client reads it without
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
            f"Put it back, or move the card away and type longcrawl card {file.parent}"
        )
    return card


def warn_of_edits(file: Path, files: Mapping[str, Mapping[str, Any]], sha256: str) -> None:
    """Warn of a card that is not the one that the manifest names: verifying the pushed dataset reports the same.

    Args:
        file: the card.
        files: what the manifest names.
        sha256: that of the card as it is.
    """
    if files.get(CARD, {}).get("sha256", sha256) != sha256:
        warn_user(
            f"{file} was edited and is pushed as it is, so longcrawl verify will say that it has been changed: type "
            f"longcrawl card {file.parent} and push again, which keeps your edits and has the manifest name them"
        )


def check_front_matter(file: Path, card: str) -> None:
    """Ask the Hub whether it accepts the front matter of a card, before anything is made or sent.

    Raises:
        RunError: it does not; the message is the Hub's.
    """
    from huggingface_hub import DatasetCard, constants, get_session, hf_raise_for_status
    from huggingface_hub.errors import BadRequestError

    try:
        body = {"repoType": "dataset", "content": str(DatasetCard(card))}
        # DatasetCard.validate, before version 2.2, sends the card to huggingface.co, whatever HF_ENDPOINT names.
        answer = get_session().post(
            f"{constants.ENDPOINT}/api/validate-yaml", json=body, headers={"Accept": "text/plain"}
        )
        hf_raise_for_status(answer)
    except ValueError as wrong:  # as a BadRequestError is
        said = shorten(answer.text if isinstance(wrong, BadRequestError) else str(wrong), 300)
        raise RunError(
            f"the Hub rejects the YAML front matter of {file} ({said}). Fix the block between the --- lines."
        ) from wrong


def check_card_is_ours(api: "HfApi", repo: str, head: str) -> None:
    """Check that nobody has edited the card on the Hub, as its page there invites to: a push would replace it.

    Raises:
        HubError: somebody has; the message says what to do with the edits.
    """
    (card,) = api.get_paths_info(repo, [CARD], expand=True, revision=head, repo_type="dataset")
    commit = getattr(card, "last_commit", None)
    if commit is not None and not commit.title.startswith(TAG_BEGINS):
        raise HubError(
            f"{CARD} of {repo} was edited on the Hub ({shorten(commit.title, 80)!r}), and this push would replace it: "
            f"take from it what you want (`hf download {repo} {CARD} --repo-type dataset`), then type --instead-of "
            f"{CARD} behind the command"
        )
