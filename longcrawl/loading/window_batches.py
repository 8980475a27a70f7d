"""Batches of windows for the ranks of a trainer, one global sequence under any topology, with exact resume.

The global sequence is that of windows: pass after pass, each in its own order. A step takes the next
``batch_size * world_size`` windows of it, and rank ``r`` those from ``r * batch_size`` on. So a state is the number of
windows that all ranks together were given.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from longcrawl.errors import LoaderError
from longcrawl.fields import check_fields
from longcrawl.loading._data_identity import STATE_VERSION, changed_values, check_state, data_changes, data_identity
from longcrawl.loading._step_feed import StepFeed
from longcrawl.loading._window_files import content_names
from longcrawl.loading.windows import Window, Windows

__all__ = ["Leftover", "WindowBatches"]

Leftover = Literal["carry", "short", "drop"]


@dataclass
class _Progress:
    next_window: int = 0


@dataclass(frozen=True, eq=False)
class WindowBatches(StepFeed):
    """Batches for one rank of a trainer; :meth:`Windows.batches` makes them.

    Iterating goes on from the batch after the last one handed out, also after a ``break`` or ``load_state_dict``, and
    ends with the pass; the next ``for`` loop goes on with the next pass. One loop at a time. ``batches[i]`` is batch
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

    windows: Windows
    batch_size: int = 8
    rank: int = 0
    world_size: int = 1
    leftover: Leftover = "carry"
    _progress: _Progress = field(init=False, repr=False, default_factory=_Progress)

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        if self.batch_size < 1:
            raise LoaderError(f"batch_size {self.batch_size} must be 1 or more")
        if not 0 <= self.rank < self.world_size:
            raise LoaderError(f"rank {self.rank} must be from 0 to world_size - 1 = {self.world_size - 1}")
        if self.leftover == "drop" and len(self.windows) < self.step_windows:
            raise LoaderError(
                f"{len(self.windows):,} windows do not fill a step of {self.step_windows:,}: lower batch_size, or set "
                "leftover='carry'"
            )

    @property
    def step_windows(self) -> int:
        """Windows of one step, of all ranks."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Give the steps of a pass from its start; a pass that goes on with a carried step may have one less."""
        steps = len(self.windows) / self.step_windows
        return int(steps) if self.leftover == "drop" else -int(-steps // 1)

    def __getitem__(self, index: int) -> Window:
        """Give this rank's batch of a step of the first pass; negative from the end. It does not move the iteration."""
        step = index + len(self) if index < 0 else index
        if not 0 <= step < len(self):
            raise IndexError(f"batch {index} of {len(self)}: this rank has batches 0 to {len(self) - 1}")
        return self.global_batch(step * self.step_windows)

    def remaining_steps(self) -> range:
        """Give the first window of every step up to the end of the pass, counted over all passes."""
        first, end = self._progress.next_window, self._pass_end(self._progress.next_window)
        if self.leftover == "drop":
            if end - first < self.step_windows:
                self._progress.next_window = first = end
                end = self._pass_end(first)
            end -= (end - first) % self.step_windows
        return range(first, end, self.step_windows)

    def global_batch(self, first: int) -> Window:
        """Assemble this rank's part of the step that begins with window ``first``, counted over all passes."""
        start, stop = first + self.rank * self.batch_size, first + (self.rank + 1) * self.batch_size
        if self.leftover == "short":
            end = self._pass_end(first)
            start, stop = min(start, end), min(stop, end)
        count = len(self.windows)
        borders = [start, *range((start // count + 1) * count, stop, count), stop]
        parts = [
            self.windows.read(np.arange(left, right) - left // count * count, left // count)
            for left, right in itertools.pairwise(borders)
        ]
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )

    def hand_out(self, first: int) -> None:
        """Note that the trainer is given the step that begins with window ``first``; all ranks are at the same step."""
        following, end = first + self.step_windows, self._pass_end(first)
        over = self.leftover != "carry" and end - following < (self.step_windows if self.leftover == "drop" else 1)
        self._progress.next_window = end if over else following

    def _pass_end(self, window: int) -> int:
        count = len(self.windows)
        return (window // count + 1) * count

    def state_dict(self) -> dict[str, Any]:
        """Give what a resume needs, the same on every rank: ``next_window``, counted over all passes, and which data.

        The data are described by their number, sizes, and digests of samples, the first and the last bytes among them;
        names of files count where files are shuffled, as they make the order.
        """
        return {"next_window": self._progress.next_window, **self._order, **self._data}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state taken under any batch size, world size or workers.

        Raises:
            LoaderError: the state is of other data or another order; the message names what changed.

        """
        check_state(state, ("next_window", *self._order, "files", "bytes", "data"), "window batches")
        changed = changed_values(state, self._order) + data_changes(state, self._data, self.windows.files)
        if changed:
            raise LoaderError(f"this state is not of the data as opened here: {', '.join(changed)}; open them as then")
        next_window = state["next_window"]
        if not isinstance(next_window, int) or isinstance(next_window, bool) or next_window < 0:
            raise LoaderError(f"next_window {next_window!r} of the state is no number of windows")
        self._progress.next_window = next_window

    @cached_property
    def _order(self) -> dict[str, Any]:
        windows = self.windows
        names = content_names([file.path for file in windows.files]) if windows.shuffle == "files" else []
        return {
            "version": STATE_VERSION,
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

    @cached_property
    def _data(self) -> dict[str, Any]:
        return data_identity(self.windows.files)

    def topology(self) -> dict[str, int]:
        """Give what this feed's part of a step depends on, beside its number."""
        return {"rank": self.rank, "world_size": self.world_size, "batch_size": self.batch_size}
