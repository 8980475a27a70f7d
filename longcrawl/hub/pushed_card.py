"""The card of a run on its way to the Hub: whether it can be sent, and may replace the one that is there."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import yaml

from longcrawl.card.text import CARD
from longcrawl.errors import HubError, RunError, warn_user
from longcrawl.hub.unfinished import TAG_BEGINS
from longcrawl.storage.structured import load_yaml

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["read_card", "refuse_edited_card", "refuse_head", "warn_of_edits"]


def read_card(file: Path) -> str:
    """Read the card, and refuse one by whose head nothing could be loaded, before anything is asked.

    Raises:
        RunError: what is wrong with it, and how to fix it.

    """
    from huggingface_hub import DatasetCard
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    try:
        card = file.read_text("utf-8")
        # Of a card without a head, the client prints a line of its own.
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


def refuse_head(file: Path, card: str) -> None:
    """Ask the Hub whether it takes the head of a card, before anything is made or sent.

    Raises:
        RunError: it does not, and what it says of it.

    """
    from huggingface_hub import DatasetCard

    try:
        DatasetCard(card).validate(repo_type="dataset")
    except ValueError as wrong:
        said = shorten(str(wrong), 300)
        raise RunError(
            f"the Hub rejects the YAML front matter of {file} ({said}). Fix the block between the --- lines."
        ) from wrong


def refuse_edited_card(api: "HfApi", repo: str, head: str) -> None:
    """Refuse to replace a card that somebody has edited on the Hub, as its page there invites to.

    Raises:
        HubError: somebody has; what to do with the edits.

    """
    (card,) = api.get_paths_info(repo, [CARD], expand=True, revision=head, repo_type="dataset")
    commit = getattr(card, "last_commit", None)
    if commit is not None and not commit.title.startswith(TAG_BEGINS):
        raise HubError(
            f"{CARD} of {repo} was edited on the Hub ({shorten(commit.title, 80)!r}), and this push would replace it: "
            f"take from it what you want (`hf download {repo} {CARD} --repo-type dataset`), then type --instead-of "
            f"{CARD} behind the command"
        )
