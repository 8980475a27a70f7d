"""A curriculum from a YAML file: a list of phases, or GPT-Simple's configuration."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from longcrawl.errors import LoaderError
from longcrawl.loading.curriculum import phases_of
from longcrawl.storage.structured import load_yaml

__all__ = ["read_curriculum"]


def read_curriculum(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read fields of :class:`longcrawl.loading.Packed` from a YAML file: ``Packed(folder, **read_curriculum(file))``.

    The file is a list of phases, each with ``duration_tokens`` and ``mix``; or a mapping with such a list as
    ``curriculum``, by itself or below ``data``, as GPT-Simple's configuration has it. Beside it there
    ``allow_bucket_exhaustion: true`` becomes ``on_exhausted="renormalize"``, and ``allow_budget_mismatch: true``
    becomes ``on_budget_mismatch="warn"``; all else is the trainer's.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "curriculum.yaml"
    >>> _ = file.write_text("- {duration_tokens: 5_000_000_000, mix: {web: 0.6, code: 0.4}}")
    >>> read_curriculum(file)
    {'curriculum': (Phase(duration_tokens=5000000000, mix={'web': 0.6, 'code': 0.4}),)}

    Raises:
        LoaderError: it is missing, no YAML, or has no such list; or a phase is none.

    """
    try:
        content = load_yaml(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as wrong:
        raise LoaderError(f"{path} is no YAML that can be read ({' '.join(str(wrong).split())})") from wrong
    told = content if isinstance(content, Mapping) else {"curriculum": content}
    told = told["data"] if isinstance(told.get("data"), Mapping) else told
    phases = told.get("curriculum")
    if not isinstance(phases, list) or not phases or not all(isinstance(phase, Mapping) for phase in phases):
        raise LoaderError(
            f"{path} has no list of phases: write '- {{duration_tokens: 1_000_000, mix: {{web: 0.6, code: 0.4}}}}', a "
            "line for each, at its top or below curriculum:"
        )
    if told.get("format", "pretokenized") != "pretokenized":
        raise LoaderError(
            f"{path} has format {told['format']!r}, and a curriculum is one of token shards: tokenize first"
        )
    try:
        found: dict[str, Any] = {"curriculum": phases_of(phases)}
    except LoaderError as wrong:
        raise LoaderError(f"{path}: {wrong}") from wrong
    if told.get("allow_bucket_exhaustion") is True:
        found["on_exhausted"] = "renormalize"
    if told.get("allow_budget_mismatch") is True:
        found["on_budget_mismatch"] = "warn"
    return found
