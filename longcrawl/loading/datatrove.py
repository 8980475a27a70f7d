"""datatrove's tokenized datasets, with its names and arguments, based on :class:`Windows`.

Import ``DatatroveFolderDataset`` from ``longcrawl.loading`` instead of ``datatrove.utils.dataset``; nothing else in a
trainer changes. Item ``i`` has the same tokens and positions, as torch tensors of int64, also with ``shuffle=True``.
Deliberate differences:

* Positions also start from 0 after an empty document, and all items take equally long to read.
* A ``token_size`` that contradicts the file is an error if the file has an index. A paths file with outdated sizes and
  an index of another file are also errors.
* ``dataset[-1]`` is the last item, and ``current_file_path`` works.
* ``recursive`` includes sub-folders with any ``filename_pattern``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from longcrawl.errors import LoaderError
from longcrawl.loading.feed import Index, items
from longcrawl.loading.window_files import OnStalePaths, folder_of
from longcrawl.loading.windows import Windows
from longcrawl.urls import has_pattern, is_url, with_options

if TYPE_CHECKING:
    import torch


class _Items:
    """Windows as torch tensors, with the arguments that both of datatrove's classes share."""

    def __init__(
        self,
        paths: str | tuple[str, ...],
        seq_len: int,
        token_size: Literal[2, 4],
        return_positions: bool,  # noqa: FBT001  # datatrove's signature
        positions_from_eos_token_id: int | None,
        max_tokens: int | None,
        **listing: Any,
    ) -> None:
        self.seq_len, self.token_size, self.max_tokens = seq_len, token_size, max_tokens
        self.return_positions, self.positions_from_eos_token_id = return_positions, positions_from_eos_token_id
        positions: Literal["index", "eos"] = "index" if positions_from_eos_token_id is None else "eos"
        self.windows = Windows(
            paths,
            seq_len,
            positions if return_positions else "none",
            positions_from_eos_token_id,
            loss_mask="off",
            max_tokens=max_tokens,
            format="datatrove",
            token_size=token_size,
            **listing,
        )

    def __len__(self) -> int:
        """Count the windows."""
        return len(self.windows)

    def __getitem__(self, item: Index) -> Any:
        """Return ``input_ids`` and, if requested, ``positions``, each an int64 tensor (seq_len + 1,).

        A negative number counts from the end; a slice or a sequence of numbers returns a list.
        """
        return items(item, len(self), self._window, "window")

    def _window(self, number: int) -> "dict[str, torch.Tensor]":
        import torch

        return {name: torch.from_numpy(values) for name, values in self.windows[number].items()}


class DatatroveFileDataset(_Items):
    """The windows of one ``.ds`` file.

    Attributes:
        file_path: path of the file, local or a URL that fsspec reads.
        seq_len: context length; an item has one token more.
        token_size: bytes of a token, 2 or 4.
        return_positions: whether items have ``positions``.
        positions_from_eos_token_id: id that ends each document, or None to read document ends from the ``.index`` file.
        fsize: required size of the file in bytes, or None for any size.
        max_tokens: limit to windows within the first ``max_tokens`` tokens, or None for all windows.

    Raises:
        LoaderError: the arguments contradict each other or the file.
        FormatError: the file does not exist.
        CorruptionError: the file and its index, or ``token_size``, contradict each other.
    """

    def __init__(
        self,
        file_path: str | os.PathLike[str],
        seq_len: int,
        token_size: Literal[2, 4] = 2,
        return_positions: bool = False,  # noqa: FBT001, FBT002  # datatrove's signature
        positions_from_eos_token_id: int | None = None,
        fsize: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.file_path = os.fspath(file_path)
        eos = positions_from_eos_token_id
        super().__init__((self.file_path,), seq_len, token_size, return_positions, eos, max_tokens)
        self.fsize = self.windows.files[0].size
        if fsize not in (None, self.fsize):
            raise LoaderError(
                f"{self.file_path} has {self.fsize} bytes, not fsize {fsize}: set its size, or remove fsize"
            )

    @property
    def read_path(self) -> str:
        """Path of the file that is read."""
        return self.file_path


Folder = str | os.PathLike[str] | tuple[str, Mapping[str, Any]]


class DatatroveFolderDataset(_Items):
    """The windows of the ``.ds`` files below a folder, files sorted by path.

    Attributes:
        data_folder: local path or a URL that fsspec reads, or a pair of one of these and the fsspec options of its
            store.
        seq_len, token_size, return_positions, positions_from_eos_token_id, max_tokens: as in a file's dataset.
        filename_pattern: ending of file names, or a pattern with ``*`` below the folder; it may begin with the folder.
        recursive: whether sub-folders are read, if ``filename_pattern`` has no ``*``.
        shuffle: whether to shuffle the files with NumPy's generator for ``seed``, as datatrove does.
        seed: seed of that order.
        paths_file: JSON file that caches the list of files and their sizes; datatrove's own format is also read.
        on_stale_paths: action if sizes differ from those in ``paths_file``: "refresh", "error" or "trust".
        folder_path: name of ``data_folder`` in datatrove's other releases.

    Raises:
        LoaderError: no file matches, or the arguments contradict each other.
        CorruptionError: a file and its index, or ``token_size``, contradict each other.
    """

    def __init__(
        self,
        data_folder: Folder | None = None,
        seq_len: int | None = None,
        filename_pattern: str = ".ds",
        recursive: bool = True,  # noqa: FBT001, FBT002  # datatrove's signature
        token_size: Literal[2, 4] = 2,
        shuffle: bool = False,  # noqa: FBT001, FBT002  # datatrove's signature
        seed: int = 42,
        return_positions: bool = False,  # noqa: FBT001, FBT002  # datatrove's signature
        positions_from_eos_token_id: int | None = None,
        paths_file: str | os.PathLike[str] | None = None,
        max_tokens: int | None = None,
        on_stale_paths: OnStalePaths = "refresh",
        *,
        folder_path: Folder | None = None,
    ) -> None:
        folder = folder_path if data_folder is None else data_folder
        if folder is None or seq_len is None or (data_folder is not None and folder_path is not None):
            raise LoaderError("a dataset needs one folder and a seq_len: DatatroveFolderDataset(FOLDER, 2048)")
        path, options = folder if isinstance(folder, tuple) else (os.fspath(folder), {})
        if options and not is_url(path):
            raise LoaderError(f"data_folder {path} is local and has no options: pass only the folder")
        self.data_folder = with_options(path, options) if options else path
        self.filename_pattern, self.recursive = filename_pattern, recursive
        self.shuffle, self.seed, self.paths_file, self._item = shuffle, seed, paths_file, 0
        listing = {"paths_file": paths_file, "on_stale_paths": on_stale_paths}
        eos = positions_from_eos_token_id
        super().__init__(self._pattern(), seq_len, token_size, return_positions, eos, max_tokens, **listing)
        if shuffle:
            order = np.random.default_rng(seed).permutation(len(self.windows.files))
            self.windows = self.windows.of_files([self.windows.files[at] for at in order])

    def _pattern(self) -> str:
        pattern, folder = self.filename_pattern, self.data_folder.rstrip("/")
        # In earlier releases of datatrove, and in nanotron's Nanoset, a pattern begins with the folder.
        relative = not (is_url(folder) or Path(folder).is_absolute())
        if not (relative and Path(folder, folder).is_dir()):
            pattern = pattern.removeprefix(f"{folder}/")
        if not has_pattern(pattern):
            pattern = f"{'**/' if self.recursive else ''}*{pattern}"
        return f"{folder}/{pattern}"

    def _window(self, number: int) -> "dict[str, torch.Tensor]":
        self._item = number
        return super()._window(number)

    @property
    def folder_path(self) -> str:
        """Folder that is read."""
        return folder_of(self.data_folder)

    @property
    def lens(self) -> list[int]:
        """First window of each file, followed by the total number of windows."""
        return [int(first) for first in np.cumsum([0, *self.windows.counts])]

    @property
    def current_file(self) -> int:
        """Index of the file of the last item."""
        return int(np.searchsorted(self.lens, self._item, "right")) - 1

    @property
    def current_file_path(self) -> str:
        """Path of the file of the last item."""
        return self.windows.files[self.current_file].path
