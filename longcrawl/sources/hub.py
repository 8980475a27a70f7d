"""Datasets of the Hugging Face Hub in parquet, JSON lines, CSV or text files, read like those of the source ``text``.

`datasets` resolves the files of each configuration and split at one commit. Each file is a part. Every file name in a
manifest includes the commit, and resuming at another commit is an error.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from longcrawl.core import sources
from longcrawl.errors import SourceError, reason_of
from longcrawl.io.file_systems import ask
from longcrawl.sources.files import has_ending, named_parts
from longcrawl.sources.text import EXTENSIONS, Text
from longcrawl.urls import DATASETS, REPOSITORY

PATIENCE = 60.0
"""Seconds to keep asking the Hub for the files of a dataset; short because a user waits and no work is lost yet."""


@sources.source("hub")
class Hub(Text):
    """Documents of a dataset on the Hub: ``source: {builder: hub, path: org/name, text_field: content}``.

    The other settings, the ids and the handling of damage are those of the source ``text``. A private or gated dataset
    uses the token stored by ``hf auth login``.

    Args:
        path: the dataset, ``org/name``.
        config: its configuration, which ``load_dataset`` calls ``name``, or None for the only one or the default.
        split: the split to read, renamed to "train" because runs read that, or None for all splits under their own
            names.
        revision: a branch, tag or commit, or None for the current main branch.
        data_dir: a folder of the dataset, instead of the files of its configuration.
        data_files: files or globs of the dataset, instead of the files of its configuration; use it to read a very
            large dataset in pieces.
    """

    license: ClassVar[str] = "see the card of the dataset"

    path: str | None = None
    config: str | None = None
    split: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not REPOSITORY.fullmatch(self.path or ""):
            raise SourceError(f"source 'hub' reads a dataset of the Hub, not {self.path!r}: set path to ORG/NAME")

    def splits(self) -> dict[str, list[sources.Part]]:
        """List the files of every split at one commit."""
        found = self._files()
        if self.split is not None:
            if self.split not in found:
                raise SourceError(f"{self.path} has no split {self.split!r}; it has: {', '.join(found)}; set split")
            found = {"train": found[self.split]}
        root = next(iter(found.values()))[0].removeprefix(DATASETS).split("/")[:2]
        return named_parts(self.name, DATASETS + "/".join(root), found, EXTENSIONS, "*.parquet")

    def _files(self) -> Mapping[str, list[str]]:
        from datasets import load_dataset_builder

        chosen = {"data_dir": self.data_dir, "data_files": self.data_files} if self.data_dir or self.data_files else {}
        load = partial(load_dataset_builder, str(self.path), name=self.config, revision=self.revision, **chosen)
        builder = ask(f"{DATASETS}{self.path}", partial(_or_error, load), "listed", PATIENCE)
        files = {str(split): list(map(str, names)) for split, names in (builder.config.data_files or {}).items()}
        others = [name for names in files.values() for name in names if not has_ending(name, EXTENSIONS)]
        if any(not name.startswith(DATASETS) for names in files.values() for name in names):
            raise SourceError(f"{self.path} is a folder here, which datasets reads instead: run in another folder")
        if others or not all(files.values()) or not files:
            example = f", such as {others[0].rpartition('/')[2]}" if others else ""
            raise SourceError(
                f"{self.path} has files other than parquet, JSON lines, CSV and text{example}: read it with "
                f"lc.Crawl(datasets.load_dataset({self.path!r}, split='train'))"
            )
        return files


def _or_error(load: Any) -> Any:
    from datasets import config
    from datasets.exceptions import DatasetNotFoundError

    if config.HF_HUB_OFFLINE:
        raise SourceError("HF_HUB_OFFLINE is set, but only the Hub can list the files of a dataset: unset it")
    try:
        return load()
    except DatasetNotFoundError as missing:
        raise SourceError(
            f"{str(missing).rstrip('.')}: check path and revision; a private one needs `hf auth login`"
        ) from missing
    except ValueError as wrong:
        raise SourceError(f"{reason_of(wrong)}; set config, data_dir or data_files") from wrong
