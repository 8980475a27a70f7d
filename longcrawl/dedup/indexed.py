"""Surveys that know what earlier datasets have kept, and save what their own has."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from longcrawl.core.stages import Survey
from longcrawl.dedup.index import Index, describe_index, open_index

__all__ = ["IndexedSurvey", "SaveIndex"]

SaveIndex = Literal["none", "save"]


class IndexedSurvey(Survey):
    """Removes documents that earlier datasets have kept already, and saves an index of those that it keeps itself."""

    against: tuple[str, ...]
    """Indexes of earlier datasets, or the runs that saved them, see :func:`longcrawl.dedup.index.open_index`."""
    index: SaveIndex
    """With "save", a run writes the index of the documents that it has kept in the end, to ``index/STAGE``."""

    @abstractmethod
    def hashed(self) -> dict[str, Any]:
        """Return the settings on which the keys depend, ready for JSON."""

    @abstractmethod
    def save_index(self, kept: pa.Table, folder: Path) -> None:
        """Write the index of documents whose sketches are given."""

    @property
    def saves_index(self) -> bool:
        """Whether a run saves an index."""
        return self.index == "save"

    def used_indexes(self) -> dict[str, str]:
        """Return the SHA-256 of ``index.json``, which has those of all files, by path.

        Raises:
            FormatError: there is no index at one of the paths, or it was made with other settings.

        """
        return {path: describe_index(index) for path, index in zip(self.against, self.open_indexes(), strict=True)}

    def prepare(self) -> None:
        """Open the indexes, so that a wrong one is refused before any document is read."""
        self.open_indexes()

    def open_indexes(self) -> list[Index]:
        """Open the indexes in the order in which ``against`` names them.

        Raises:
            FormatError: there is none at one of the places, or it was made with other settings.

        """
        return [open_index(path, self.name, self.hashed()) for path in self.against]
