"""Paths of one machine in a recipe: what somebody else has to set, and what a push shows to everybody."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from longcrawl.core.pipeline import label_stages
from longcrawl.urls import REPOSITORY

FOLDERS, FILES = ("data_dir", "lists", "base_url"), ("data_files", "paths", "against")
"""Fields whose values are paths, whatever they look like."""
REPOSITORIES = "decontaminate"
"""The stage whose ``against`` takes ids of repositories, too: of what looks like both, folders are rare there."""
PATH = re.compile(
    r"(?!.*://)(?:/|~|\.{1,2}/|file://).*"
    r"|(?!.*://).*\.(?:json|jsonl|tiktoken|txt|ya?ml|csv|bin|ftz|model|arpa|parquet|gz|zst|warc)",
    re.DOTALL,
)
"""What other values are paths, and neither names of what is shipped nor of repositories on the Hub."""


def local_paths(recipe: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the paths of a machine that a recipe names, by what ``--set`` calls them.

    URLs, names of what is shipped and ids of repositories are no paths.

    Args:
        recipe: with every field spelled out, as a manifest holds it.

    >>> stages = [{"tokenize": {"tokenizer": "tok.json"}}, {"tokenize": {"tokenizer": "gpt2"}}]
    >>> local_paths({"source": {"builder": "text", "data_dir": "texts"}, "stages": stages, "outputs": {}})
    {'source.data_dir': ('texts',), 'stages.tokenize.tokenizer': ('tok.json',)}
    """
    names = [name for stage in recipe["stages"] for name in stage]
    settings = [fields for stage in recipe["stages"] for fields in stage.values()]
    blocks = {"source": recipe["source"]}
    blocks |= {f"stages.{label}": each for label, each in zip(label_stages(names), settings, strict=True)}
    blocks |= {f"outputs.{name}": each for name, each in recipe["outputs"].items()}
    found = {
        f"{block}.{field}": tuple(_paths(value, always=field in (*FOLDERS, *FILES)))
        for block, fields in blocks.items()
        for field, value in (fields or {}).items()
    }
    for name, paths in found.items():
        if name.startswith(f"stages.{REPOSITORIES}"):
            found[name] = tuple(each for each in paths if PATH.fullmatch(each) or not REPOSITORY.fullmatch(each))
    return {name: paths for name, paths in found.items() if paths}


def _paths(value: Any, *, always: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _paths(each, always=always)
    elif isinstance(value, str) and (PATH.fullmatch(value) or (always and value and "://" not in value)):
        yield value


def elsewhere(recipe: Mapping[str, Any]) -> str:
    """Return what is appended to ``longcrawl run`` where local paths of a recipe differ; "" where it has none."""
    said = []
    for name in local_paths(recipe):
        section, *_, field = name.split(".")
        value = recipe["source"][name.partition(".")[2]] if section == "source" else None
        word = "FOLDER" if field in FOLDERS else "PATH"
        if field == "against" or isinstance(value, list | tuple):
            said.append(f"--set '{name}=[{word}]'")
        elif isinstance(value, Mapping):
            said.append(f"--set '{name}={{{', '.join(f'{split}: {word}' for split in value)}}}'")
        else:
            said.append(f"--set {name}={word}")
    return " ".join(said)
