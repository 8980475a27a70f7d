"""Batches of windows for the ranks of a trainer, one global sequence under any topology, with exact resume.

The global sequence is that of windows: pass after pass, each in its own order. A step takes the next
``batch_size * world_size`` windows of it, and rank ``r`` those from ``r * batch_size`` on. So a state is the number of
windows that all ranks together were given.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from longcrawl.core.fields import check_fields
from longcrawl.errors import LoaderError
from longcrawl.loading._data_identity import changed_values, data_changes, data_identity
from longcrawl.loading._window_files import content_names
from longcrawl.loading.feed import Batch, Feed
from longcrawl.loading.origins import Origin
from longcrawl.loading.windows import Windows

Leftover = Literal["carry", "short", "drop"]


@dataclass(frozen=True, eq=False)
class WindowBatches(Feed):
    """Batches for one rank of a trainer; :meth:`Windows.batches` makes them.

    Iterating resumes from the batch after the last one handed out, also after a ``break`` or ``load_state_dict``, and
    ends with the pass; the next ``for`` loop takes the next pass. One loop at a time. ``batches[i]`` is batch
    ``i`` of this rank from the very start.

    Attributes:
        windows: what batches are made of.
        batch_size: windows in a batch.
        rank: which of the trainer's ``world_size`` processes this is.
        world_size: processes that share a step's windows.
        leftover: the windows at the end of a pass that do not fill a step: "carry" fills the step up with the first
            ones of the next pass, so that each window comes once in every pass, and all batches are full; "short" gives
            batches of fewer windows, or none, so that a loop has each window once, for evaluation; "drop" leaves them
            out.

    Raises:
        LoaderError: a field does not fit.
    """

    kind: ClassVar[str] = "windows"
    unit: ClassVar[str] = "windows"

    windows: Windows
    batch_size: int = 1
    rank: int = 0
    world_size: int = 1
    leftover: Leftover = "carry"

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        self.check_ranks(batch_size=1)
        if self.leftover == "drop" and len(self.windows) < self.step_size:
            raise LoaderError(
                f"{len(self.windows):,} windows do not fill a step of {self.step_size:,}: lower batch_size, or set "
                "leftover='carry'"
            )

    @property
    def step_size(self) -> int:
        """Windows of one step, of all ranks."""
        return self.batch_size * self.world_size

    def stop(self, position: int) -> int:
        """Return where a pass ends, without the windows that are dropped."""
        end = self._pass_end(position)
        return end - (end - position) % self.step_size if self.leftover == "drop" else end

    def remaining_steps(self) -> range:
        """Return the first window of every step up to the end of the pass, counted over all passes."""
        if self.leftover == "drop" and self.stop(self.position) == self.position:
            self.move_to(self._pass_end(self.position))
        return super().remaining_steps()

    def read(self, step: int) -> Batch:
        """Return this rank's windows of the step that begins with window ``step``, counted over all passes."""
        parts = [self.windows.read(places, number) for places, number in self._parts(step)]
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )

    @property
    def endless(self) -> bool:
        """Whether passes follow each other within a batch."""
        return self.leftover == "carry"

    def origins_at(self, position: int) -> list[Origin]:
        """Return which documents are in this rank's windows of the step there; columns are those of ``input_ids``."""
        found, rows = list[Origin](), 0
        for places, number in self._parts(position):
            found += [replace(each, row=rows + each.row) for each in self.windows.origins(places, number)]
            rows += len(places)
        return found

    def _parts(self, step: int) -> "list[tuple[npt.NDArray[np.int64], int]]":
        """Return the places of this rank's windows in each pass that a step has windows of, and the pass."""
        start, stop = step + self.rank * self.batch_size, step + (self.rank + 1) * self.batch_size
        if self.leftover == "short":
            end = self._pass_end(step)
            start, stop = min(start, end), min(stop, end)
        count = len(self.windows)
        borders = [start, *range((start // count + 1) * count, stop, count), stop]
        return [
            (np.arange(left, right) - left // count * count, left // count)
            for left, right in itertools.pairwise(borders)
        ]

    def hand_out(self, step: int) -> None:
        """Note that the trainer is given a step; what is dropped or missing at the end of a pass is passed over."""
        following, end = step + self.step_size, self._pass_end(step)
        over = self.leftover != "carry" and end - following < (self.step_size if self.leftover == "drop" else 1)
        self.move_to(end if over else following)

    def _pass_end(self, window: int) -> int:
        count = len(self.windows)
        return (window // count + 1) * count

    def identity(self, position: int) -> dict[str, Any]:  # noqa: ARG002  # the same at every position
        """Return settings and a description of the data.

        The data are described by their number, sizes, and digests of samples, the first and the last bytes among them;
        names of files count where files are shuffled, as they make the order.
        """
        return {**self._order, **self._data}

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed; empty where they match."""
        return changed_values(state, self._order) + data_changes(state, self._data, self.windows.files)

    @cached_property
    def _order(self) -> dict[str, Any]:
        return order_identity(self.windows)

    @cached_property
    def _data(self) -> dict[str, Any]:
        return data_identity(self.windows.files)


def order_identity(windows: Windows) -> dict[str, Any]:
    """Return what decides which tokens a window of a pass has, beside the data."""
    names = content_names([file.path for file in windows.files]) if windows.shuffle == "files" else []
    return {
        "seq_len": windows.seq_len,
        "windows": len(windows),
        "shuffle": windows.shuffle,
        "seed": windows.seed if windows.shuffle != "none" else None,
        "positions": windows.positions,
        "end_of_text": windows.end_of_text if windows.positions != "none" else None,
        "tail": windows.tail,
        "pad_token": windows.pad_token if windows.tail == "pad" else None,
        "loss_mask": windows.masked,
        "names": blake2b("\0".join(names).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(),
    }
