"""Batches for a trainer, with exact resume."""

from longcrawl.loading.datatrove import DatatroveFileDataset, DatatroveFolderDataset
from longcrawl.loading.rectangle import Rectangle
from longcrawl.loading.window_batches import WindowBatches
from longcrawl.loading.windows import Windows

__all__ = ["DatatroveFileDataset", "DatatroveFolderDataset", "Rectangle", "WindowBatches", "Windows"]
