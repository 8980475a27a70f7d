"""Batches for a trainer, with exact resume."""

from typing import TYPE_CHECKING

from longcrawl._lazy import lazy

if TYPE_CHECKING:
    from longcrawl.loading import collators
    from longcrawl.loading.buckets import ComposedBatches
    from longcrawl.loading.curriculum import ComposedPhase, CurriculumPlan, Phase, plan_curriculum
    from longcrawl.loading.datatrove import DatatroveFileDataset, DatatroveFolderDataset
    from longcrawl.loading.feed import Origin
    from longcrawl.loading.jsonl import Jsonl
    from longcrawl.loading.packed import Packed
    from longcrawl.loading.rectangle import Rectangle
    from longcrawl.loading.validation import read_curriculum, validate
    from longcrawl.loading.window_mixture import WindowMixture
    from longcrawl.loading.windows import WindowBatches, Windows

__all__ = [
    "ComposedBatches",
    "ComposedPhase",
    "CurriculumPlan",
    "DatatroveFileDataset",
    "DatatroveFolderDataset",
    "Jsonl",
    "Origin",
    "Packed",
    "Phase",
    "Rectangle",
    "WindowBatches",
    "WindowMixture",
    "Windows",
    "collators",
    "plan_curriculum",
    "read_curriculum",
    "validate",
]

lazy(__name__)
