"""Curricula in YAML files, and a check of a curriculum before training."""

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import yaml

from longcrawl.errors import LoaderError, known_names, quoted, warn_user
from longcrawl.io.structured import load_yaml
from longcrawl.loading.buckets import ComposedBatches
from longcrawl.loading.curriculum import ComposedPhase, ConfiguredPhases, Phase, phases_of
from longcrawl.loading.packed import Packed
from longcrawl.loading.planned_feed import CurriculumReport
from longcrawl.loading.samples import ComposedDataset

_WRITE = "write '- {duration_tokens: 1_000_000, mix: {web: 0.6, code: 0.4}}'"


class _Draft(Packed):
    def check_plan(self) -> None:
        """Ignore problems, which the caller reads from the report."""


class _ComposedDraft(ComposedBatches):
    def check_plan(self) -> None:
        """Ignore problems, which the caller reads from the report."""


def validate(
    path: str | os.PathLike[str] | ComposedDataset,
    curriculum: Sequence[Phase | ComposedPhase | Mapping[str, Any]] = (),
    **settings: Any,
) -> CurriculumReport:
    """Plan a curriculum without opening a feed, and report the result.

    >>> print(validate("data/tokenized", [{"duration_tokens": 1000, "mix": {"web": 1}}]))  # doctest: +SKIP
    bucket   web: 100 samples, 187,012 tokens; asked for 1,000, delivers 1,894
    phase 1  samples 0 to 0, 1,894 tokens: web 100.00% (asked 100.00%)
    total    1 samples, 1,894 tokens, 7.52% padding

    Args:
        path: folder of the shards, or a composed dataset or its folder.
        curriculum: phases, or mappings of their fields.
        settings: other fields of :class:`Packed` or, with ``tokens_per_step``, of :class:`ComposedBatches`.

    Raises:
        LoaderError: a setting is wrong, or a bucket is missing or empty.
    """
    if "tokens_per_step" not in settings and _is_composed(path):
        raise LoaderError(
            f"{path if isinstance(path, str | os.PathLike) else 'this'} is a composed dataset: give tokens_per_step to "
            "lc.loading.validate, as validate(path, curriculum, tokens_per_step=1_048_576) does"
        )
    if "tokens_per_step" in settings or not isinstance(path, str | os.PathLike):
        return _ComposedDraft(path, curriculum=curriculum, **settings).report
    if any(isinstance(each, ComposedPhase) for each in curriculum):
        raise LoaderError("a ComposedPhase needs a composed dataset: also give its tokens_per_step")
    return _Draft(path, curriculum, **settings).report  # type: ignore[arg-type]  # ComposedPhase is rejected


def _is_composed(path: str | os.PathLike[str] | ComposedDataset) -> bool:
    if not isinstance(path, str | os.PathLike):
        return True
    return any((Path(path) / within / "composed.json").is_file() for within in ("", "composed"))


def read_curriculum(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read fields of :class:`longcrawl.loading.Packed` from a YAML file: ``Packed(folder, **read_curriculum(file))``.

    The file is a list of phases, each with ``duration_tokens`` and ``mix``, or a mapping with such a list under
    ``curriculum``, at its top or below ``data``, as in GPT-Simple's configuration. Other settings beside the list:

    * ``max_length`` sets that of the feed, and ``packing: false`` sets ``packing="separate"``. Arguments of the feed
      take precedence: ``Packed(folder, max_length=512, **read_curriculum(file))``.
    * ``allow_bucket_exhaustion: true`` becomes ``on_exhausted="renormalize"``, and ``allow_budget_mismatch: true``
      becomes ``on_budget_mismatch="warn"``.
    * ``overlap_size`` is only compared with ``max_length``; ``path``, ``tokenizer`` and ``num_workers`` are ignored.

    A configuration without a curriculum draws each sample from all buckets with equal probability. It ends with the
    samples that its ``training`` takes, ``max_steps * per_device_batch_size * gradient_accumulation_steps`` on each
    rank. Without ``max_steps``, it ends when the first bucket runs dry.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "curriculum.yaml"
    >>> _ = file.write_text("- {duration_tokens: 5_000_000_000, mix: {web: 0.6, code: 0.4}}")
    >>> read_curriculum(file)
    {'curriculum': (Phase(duration_tokens=5000000000, mix={'web': 0.6, 'code': 0.4}),)}

    Raises:
        LoaderError: the file is missing or not valid YAML, has neither phases nor other data settings, or has a wrong
            value.
    """
    recorded, training = _recorded(path)
    _check_settings(recorded, path)
    phases = recorded.get("curriculum")
    uniform = phases is None and any(name in recorded for name in _SETTINGS)
    listed_phases = isinstance(phases, list) and bool(phases) and all(isinstance(each, Mapping) for each in phases)
    if not (uniform or listed_phases):
        raise LoaderError(f"{path} has no list of phases: {_WRITE}, a line for each, at its top or below curriculum:")
    try:
        made = () if uniform else phases_of(phases, Phase)
    except LoaderError as wrong:
        raise LoaderError(f"{path}: {wrong}") from wrong
    configured = ConfiguredPhases(
        made,
        max_length=recorded.get("max_length"),
        packed=recorded.get("packing", True),
        uniform=uniform,
        samples=_training_samples(training, path) if uniform else None,
    )
    if "overlap_size" not in recorded and (configured.max_length or 2048) // 2 < _OVERLAP:
        warn_user(
            f"{path} has no overlap_size, and GPT-Simple itself rejects its default of {_OVERLAP} as more than half of "
            f"max_length {configured.max_length}: write overlap_size: 0"
        )
    found: dict[str, Any] = {"curriculum": configured}
    if recorded.get("allow_bucket_exhaustion"):
        found["on_exhausted"] = "renormalize"
    if recorded.get("allow_budget_mismatch"):
        found["on_budget_mismatch"] = "warn"
    return found


def configured_length(path: str | os.PathLike[str]) -> int | None:
    """Return ``max_length`` from a GPT-Simple configuration, or None if it is not set.

    Raises:
        LoaderError: the file is missing or not valid YAML, or the value is not an integer of at least 2.
    """
    recorded, _ = _recorded(path)
    _check_settings(recorded, path)
    length: int | None = recorded.get("max_length")
    return length


def _check_settings(recorded: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    for name, (kind, wanted) in _SETTINGS.items():
        value = recorded.get(name)
        if name in recorded and not (isinstance(value, kind) if isinstance(kind, type) else _is_number(value, kind)):
            raise LoaderError(f"{path} has {name} {quoted(value)}: write {wanted}")
    if recorded.get("format", "pretokenized") != "pretokenized":
        raise LoaderError(
            f"{path} has format {recorded['format']!r}, but its feeds read token shards: tokenize first, or read the "
            "texts with lc.loading.Jsonl"
        )
    length, overlap = recorded.get("max_length", 2048), recorded.get("overlap_size")
    if overlap is not None and overlap > length // 2:
        raise LoaderError(
            f"{path} has overlap_size {overlap:,}, more than half of max_length {length:,}: write {length // 2:,} or "
            "less"
        )


def _training_samples(training: Mapping[str, Any], path: str | os.PathLike[str]) -> int | None:
    """Return the number of samples that training takes on each rank, or None if the configuration does not set it."""
    if "max_steps" not in training:
        return None
    given = {"per_device_batch_size": 4, "gradient_accumulation_steps": 4, **training}
    factors = {name: given[name] for name in ("max_steps", "per_device_batch_size", "gradient_accumulation_steps")}
    for name, number in factors.items():
        if not _is_number(number, 1):
            raise LoaderError(f"{path} has {name} {quoted(number)}: write a whole number of 1 or more")
    samples: int = prod(factors.values())
    return samples


def _recorded(path: str | os.PathLike[str]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the data settings and the training settings of a configuration.

    A file that is only a list of phases has that list as ``curriculum`` in its data settings.
    """
    try:
        content = load_yaml(Path(path).read_text("utf-8"))
    except FileNotFoundError as missing:
        raise LoaderError(f"no file {path}: check the path of the curriculum") from missing
    except (OSError, ValueError, yaml.YAMLError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else " ".join(str(wrong).split())
        raise LoaderError(f"{path} cannot be read as YAML ({reason}): {_WRITE}") from wrong
    recorded = content if isinstance(content, Mapping) else {"curriculum": content}
    training = recorded.get("training")
    training = training if isinstance(training, Mapping) else {}
    if not isinstance(recorded.get("data"), Mapping):
        return recorded, training
    known = [*_SETTINGS, "curriculum"]
    for name in recorded["data"]:
        if name not in known:
            raise LoaderError(f"{path} has no setting {quoted(name)} of data in GPT-Simple; {known_names(known, name)}")
    return recorded["data"], training


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_OVERLAP = 256
"""GPT-Simple's default of ``overlap_size``, in tokens."""
_SETTINGS: Mapping[str, tuple[type | int, str]] = {
    "path": (str, "a folder"),
    "tokenizer": (str, "a name or a path"),
    "format": (str, "pretokenized"),
    "max_length": (2, "a whole number of tokens, such as 2048"),
    "overlap_size": (0, "a whole number of tokens, 0 or more"),
    "packing": (bool, "true or false"),
    "num_workers": (0, "a whole number of 0 or more"),
    "allow_bucket_exhaustion": (bool, "true or false"),
    "allow_budget_mismatch": (bool, "true or false"),
}
"""Settings below ``data`` of GPT-Simple 0.1.2, except ``curriculum``: type, or least number, and hint in messages."""
