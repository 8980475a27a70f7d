"""What a curriculum comes to, before anything is trained on it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longcrawl.errors import LoaderError
from longcrawl.loading._composed_rows import ComposedDataset
from longcrawl.loading._curriculum_report import CurriculumReport
from longcrawl.loading.buckets import ComposedBatches
from longcrawl.loading.composed_phases import ComposedPhase
from longcrawl.loading.curriculum import Phase
from longcrawl.loading.packed import Packed

__all__ = ["validate"]


class _Draft(Packed):
    """A feed that may have problems."""

    def check_plan(self) -> None:
        """Leave them to whoever reads the report."""


class _ComposedDraft(ComposedBatches):
    """Likewise of composed samples."""

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
