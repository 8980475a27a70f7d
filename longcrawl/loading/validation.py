"""Curricula before anything is trained on them: as YAML says them, and what they come to."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from longcrawl.errors import LoaderError
from longcrawl.loading._planned_feed import CurriculumReport
from longcrawl.loading._samples import ComposedDataset
from longcrawl.loading.buckets import ComposedBatches
from longcrawl.loading.composed_phases import ComposedPhase
from longcrawl.loading.curriculum import Phase, phases_of
from longcrawl.loading.packed import Packed
from longcrawl.printable import quoted
from longcrawl.storage.structured import load_yaml

_WRITE = "write '- {duration_tokens: 1_000_000, mix: {web: 0.6, code: 0.4}}'"


class _Draft(Packed):
    """A feed that may have problems."""

    def check_plan(self) -> None:
        """Leave them to whoever reads the report."""


class _ComposedDraft(ComposedBatches):
    """The same for composed samples."""

    def check_plan(self) -> None:
        """Leave them to whoever reads the report."""


def validate(
    path: str | os.PathLike[str] | ComposedDataset,
    curriculum: Sequence[Phase | ComposedPhase | Mapping[str, Any]] = (),
    **settings: Any,
) -> CurriculumReport:
    """Plan a curriculum without a feed, and say what would come of it.

    >>> print(validate("data/tokenized", [{"duration_tokens": 1000, "mix": {"web": 1}}]))  # doctest: +SKIP
    bucket   web: 100 samples, 187,012 tokens; asked for 1,000, delivers 1,894
    phase 1  samples 0 to 0, 1,894 tokens: web 100.00% (asked 100.00%)
    total    1 samples, 1,894 tokens, 7.52% padding

    Args:
        path: folder of the shards, or a composed dataset, or its folder.
        curriculum: phases, or mappings of their fields.
        settings: other fields of :class:`Packed`; with ``tokens_per_step``, of :class:`ComposedBatches`.

    Raises:
        LoaderError: a setting is none, or a bucket is missing or empty.
    """
    if "tokens_per_step" not in settings and _is_composed(path):
        raise LoaderError(
            f"{path if isinstance(path, str | os.PathLike) else 'this'} is a composed dataset: give tokens_per_step to "
            "lc.loading.validate, as validate(path, curriculum, tokens_per_step=1_048_576) does"
        )
    if "tokens_per_step" in settings or not isinstance(path, str | os.PathLike):
        return _ComposedDraft(path, curriculum=curriculum, **settings).report
    plain = [each for each in curriculum if not isinstance(each, ComposedPhase)]
    if len(plain) < len(curriculum):
        raise LoaderError("a ComposedPhase is of a composed dataset: give its tokens_per_step, too")
    return _Draft(path, plain, **settings).report


def _is_composed(path: str | os.PathLike[str] | ComposedDataset) -> bool:
    """Distinguish a composed dataset, opened or not, or the run that has one, from token shards."""
    if not isinstance(path, str | os.PathLike):
        return True
    return any((Path(path) / within / "composed.json").is_file() for within in ("", "composed"))


def read_curriculum(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read fields of :class:`longcrawl.loading.Packed` from a YAML file: ``Packed(folder, **read_curriculum(file))``.

    The file is a list of phases, each with ``duration_tokens`` and ``mix``; or a mapping with such a list as
    ``curriculum``, by itself or below ``data``, as GPT-Simple's configuration has it. Beside it there
    ``allow_bucket_exhaustion: true`` becomes ``on_exhausted="renormalize"``, and ``allow_budget_mismatch: true``
    becomes ``on_budget_mismatch="warn"``; all else is the trainer's. A configuration with ``max_length`` alone has no
    curriculum, and this nothing to return.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "curriculum.yaml"
    >>> _ = file.write_text("- {duration_tokens: 5_000_000_000, mix: {web: 0.6, code: 0.4}}")
    >>> read_curriculum(file)
    {'curriculum': (Phase(duration_tokens=5000000000, mix={'web': 0.6, 'code': 0.4}),)}

    Raises:
        LoaderError: it is missing, no YAML, or has no such list; or a phase is none.
    """
    recorded = _recorded(path)
    phases = recorded.get("curriculum")
    if "curriculum" not in recorded and "max_length" in recorded:
        return {}  # GPT-Simple then mixes all buckets as they are
    if not isinstance(phases, list) or not phases or not all(isinstance(phase, Mapping) for phase in phases):
        raise LoaderError(f"{path} has no list of phases: {_WRITE}, a line for each, at its top or below curriculum:")
    if recorded.get("format", "pretokenized") != "pretokenized":
        raise LoaderError(
            f"{path} has format {recorded['format']!r}, and a curriculum is one of token shards: tokenize first"
        )
    try:
        found: dict[str, Any] = {"curriculum": phases_of(phases, Phase)}
    except LoaderError as wrong:
        raise LoaderError(f"{path}: {wrong}") from wrong
    if recorded.get("allow_bucket_exhaustion") is True:
        found["on_exhausted"] = "renormalize"
    if recorded.get("allow_budget_mismatch") is True:
        found["on_budget_mismatch"] = "warn"
    return found


def configured_length(path: str | os.PathLike[str]) -> int | None:
    """Return ``max_length`` of GPT-Simple's configuration, beside its curriculum; None where there is none.

    Raises:
        LoaderError: the file is missing or no YAML, or it is not a whole number from 2 on.
    """
    length = _recorded(path).get("max_length")
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 2):
        raise LoaderError(f"{path} has max_length {quoted(length)}: write a whole number of tokens, such as 2048")
    return length


def _recorded(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return a configuration of data, or a mapping with the list of phases that a file is."""
    try:
        content = load_yaml(Path(path).read_text("utf-8"))
    except FileNotFoundError as missing:
        raise LoaderError(f"there is no file {path}: check the path of the curriculum") from missing
    except (OSError, ValueError, yaml.YAMLError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else " ".join(str(wrong).split())
        raise LoaderError(f"{path} cannot be read as YAML ({reason}): {_WRITE}") from wrong
    recorded = content if isinstance(content, Mapping) else {"curriculum": content}
    return recorded["data"] if isinstance(recorded.get("data"), Mapping) else recorded
