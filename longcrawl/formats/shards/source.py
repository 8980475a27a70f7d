"""Token shards of all formats but parquet as sources with a row per document.

Rows are ``id`` (``FILE:NUMBER``, documents counted from 0), ``tokens`` (list of uint16 or uint32) and ``n_tokens``.
GPT-Simple's shards also have ``overlap``, and datatrove's have ``loss_mask`` if there are ``.loss`` files. With
``streaming=True`` and the "arrow" format, the tokens of local files are memory-mapped and never copied.
"""

import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.sources import BadFiles, OnBadFiles, Part, Source, StorageOptions, source
from longcrawl.errors import FormatError, SourceError
from longcrawl.formats.shards.base import Check
from longcrawl.formats.shards.levanter import OTHER_FILES
from longcrawl.formats.shards.shard import N_TOKENS, OVERLAP, TOKENS, TokenShard, stem_of
from longcrawl.formats.shards.spec import FORMATS, sort_into_splits
from longcrawl.io.block_checksums import SUFFIX as CHECKSUMS
from longcrawl.io.files import why_no_file
from longcrawl.sources.files import DamagedFileError, DataFiles, local_copy, named_parts
from longcrawl.tokens.loss_mask import LOSS_MASK, LOSS_MASK_TYPE
from longcrawl.urls import is_url

_OF_THE_SOURCE = ("data_dir", "data_files", "dtype", "on_bad_files", "storage_options")
"""Settings of the source that the format's ``open`` does not take."""


@dataclass(frozen=True)
class TokenShards(Source):
    """Base of the sources that read documents of token shards.

    Args:
        data_dir: a folder, read with all its subfolders, or its URL. Folders ``train/`` and ``val/`` in it, as outputs
            have them, are two splits.
        data_files: a path, URL or glob, several, or a mapping from splits to them; relative to ``data_dir`` if set.
            Files that belong to a shard, such as its index, may be listed with it.
        dtype: type of a token; None for that of the first shard.
        end_of_text: the id that separates documents.
        vocabulary_size: exclusive upper bound of ids; a shard with an id that reaches it is a bad file.
        on_bad_files: treatment of a missing, cut or contradictory shard; "skip" loses all of it.
        storage_options: fsspec options to open the stores that URLs name, such as ``{endpoint_url: …, anon: true}``.
            Not for credentials, which belong in the environment or a profile.
    """

    data_dir: str | None = None
    data_files: DataFiles = None
    dtype: Literal["uint16", "uint32"] | None = None
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    on_bad_files: OnBadFiles = "error"
    storage_options: StorageOptions = None

    beside: ClassVar[tuple[str, ...]] = (".idx",)
    """Suffixes of the other files of a shard, which replace that of its file of tokens or follow it."""
    after_stem: ClassVar[bool] = True

    def schema(self) -> pa.Schema:
        """Return ``id``, ``tokens``, ``n_tokens`` and the optional columns that the first readable shard has."""
        return self._schema  # cached, because a remote shard must be fetched for it

    @property
    def unique_ids(self) -> bool:
        """Whether ids are unique: always, as they name a shard and a number in it."""
        return True

    def splits(self) -> dict[str, list[Part]]:
        """Return a part per shard; raise SourceError if there is none, or a file is not a shard."""
        suffix = FORMATS[self.name].suffix
        data_dir, data_files = self.located((self.data_dir, self.data_files))
        found = named_parts(self.name, data_dir, data_files, (suffix,), f"*{suffix}", self._split_names)
        parts: dict[str, list[Part]] = {}
        for split, named in found.items():
            shards = [part for part in named if not part.files[0].endswith((*self.beside, CHECKSUMS))]
            for part in shards:
                if not part.files[0].endswith(suffix) and why_no_file(part.files[0]) is None:
                    raise SourceError(f"{part.files[0]} is not a shard of {self.name}; their names end in {suffix}")
            if not shards:
                raise SourceError(f"{self.data_files!r} matches no file that ends in {suffix}; check data_files")
            parts[split] = [Part(part.name, self._files(part.files[0])) for part in shards]
        return parts

    def read(self, part: Part, bad_files: BadFiles) -> Iterator[pa.Table]:
        """Read one shard, in tables of some four million tokens."""
        schema = self.schema()
        try:
            with _local_files(part.files) as path:
                shard = self._open(path)
                self._check_columns(shard, schema)
                number = 0
                for documents in shard.blocks():
                    table = documents.table()
                    numbers = pa.array(range(number, number + table.num_rows)).cast(pa.string())
                    ids = pc.binary_join_element_wise(part.name, numbers, ":")
                    yield table.add_column(0, "id", ids).select(schema.names).cast(schema)
                    number += table.num_rows
        except (FormatError, DamagedFileError) as broken:
            bad_files.report(part.files[0], str(broken).removeprefix(f"{part.files[0]} "))

    def _split_names(self, tree: list[str]) -> dict[str, list[str]]:
        suffix = FORMATS[self.name].suffix
        outputs = [posixpath.dirname(name) for name in tree if posixpath.basename(name) == f"{self.name}.json"]
        try:
            return sort_into_splits([name for name in tree if name.endswith(suffix)], outputs)
        except FormatError as unknown:
            raise SourceError(f"{self.data_dir}: {unknown}") from unknown

    def _files(self, path: str) -> tuple[str, ...]:
        """Return the files of a shard, tokens first; remote ones are listed even if they do not exist."""
        stem = stem_of(path, FORMATS[self.name].suffix) if self.after_stem else path
        beside = [*(stem + suffix for suffix in self.beside), path + CHECKSUMS]
        return path, *(file for file in beside if is_url(file) or Path(file).is_file())

    def _open(self, path: str, check: Check = "everything") -> TokenShard:
        settings = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _OF_THE_SOURCE}
        return FORMATS[self.name].open(path, check=check, **settings)

    @cached_property
    def _schema(self) -> pa.Schema:
        first: Exception | None = None
        for part in (part for parts in self.splits().values() for part in parts):
            try:
                with _local_files(part.files) as path:
                    shard = self._open(path, "sizes")
            except (FormatError, DamagedFileError) as broken:
                first = first or broken
                continue
            kind = pa.from_numpy_dtype(self.dtype or shard.tokens.dtype)
            columns = [("id", pa.string()), (TOKENS, pa.list_(kind)), (N_TOKENS, pa.int64())]
            columns += [(OVERLAP, pa.uint32())] * (shard.overlaps is not None)
            return pa.schema(columns + [(LOSS_MASK, LOSS_MASK_TYPE)] * (shard.loss_mask is not None))
        raise SourceError(f"the token type is unknown, since no shard can be opened: {first}") from first

    def _check_columns(self, shard: TokenShard, schema: pa.Schema) -> None:
        kind = schema.field(TOKENS).type.value_type
        if pa.from_numpy_dtype(shard.tokens.dtype).bit_width > kind.bit_width:
            raise FormatError(
                f"{shard.path} has tokens of {shard.tokens.dtype}, but others have {kind}: set dtype='uint32'"
            )
        for name, there in ((LOSS_MASK, shard.loss_mask), (OVERLAP, shard.overlaps)):
            if (there is not None) != (name in schema.names):
                raise FormatError(
                    f"only some shards have a {name}, {shard.path} has {'one' if there is not None else 'none'}: name "
                    "one kind in data_files"
                )


@source("datatrove")
class Datatrove(TokenShards):
    """Documents of datatrove's ``.ds`` files.

    Args:
        token_size: bytes of a token; needed only if neither index nor metadata give it.
    """

    homepage: ClassVar[str] = "https://github.com/huggingface/datatrove"

    token_size: Literal[2, 4] | None = None

    beside: ClassVar[tuple[str, ...]] = (".index", ".loss", ".metadata")
    after_stem: ClassVar[bool] = False


@source("gpt-simple")
class GptSimple(TokenShards):
    """Entries of GPT-Simple's ``.bin`` and ``.idx`` files: documents, and windows of long ones."""


@source("levanter")
class Levanter(TokenShards):
    """Documents of the caches of Levanter and Marin."""

    homepage: ClassVar[str] = "https://github.com/marin-community/marin"

    beside: ClassVar[tuple[str, ...]] = OTHER_FILES


@source("litdata")
class Litdata(TokenShards):
    """Documents of the ``.bin`` files of litdata that hold tokens."""

    homepage: ClassVar[str] = "https://github.com/Lightning-AI/litData"

    beside: ClassVar[tuple[str, ...]] = (".index.json",)


@source("mds")
class Mds(TokenShards):
    """Documents of MosaicML's ``.mds`` files.

    Args:
        column: the column of tokens.
        encoding_type: type of a token in a column of ``bytes``.
    """

    homepage: ClassVar[str] = "https://github.com/mosaicml/streaming"

    column: str = TOKENS
    encoding_type: Literal["uint16", "int32", "uint32", "int64"] | None = None

    beside: ClassVar[tuple[str, ...]] = ()


@source("megatron")
class Megatron(TokenShards):
    """Documents of Megatron-LM's ``.bin`` and ``.idx`` files."""

    homepage: ClassVar[str] = "https://github.com/NVIDIA/Megatron-LM"


@source("nanogpt")
class NanoGpt(TokenShards):
    """Documents of flat ``.bin`` files, nanoGPT's or with the header of llm.c; ``end_of_text`` is required.

    Args:
        token_size: bytes of a token in a file without a header; None for 2.
        header: whether there is one; "auto" looks for it.
        place: position of the end-of-text token in a document; None for the start with a header, else the end.
    """

    homepage: ClassVar[str] = "https://github.com/karpathy/nanoGPT"

    token_size: Literal[2, 4] | None = None
    header: Literal["auto", "none", "llm.c"] = "auto"
    place: Literal["end", "start"] | None = None

    beside: ClassVar[tuple[str, ...]] = ()

    def splits(self) -> dict[str, list[Part]]:
        """Return a part per file; raise SourceError if ``end_of_text`` was not named, or there is no file."""
        if self.end_of_text is None:
            raise SourceError("source 'nanogpt' finds documents by their end-of-text token: set end_of_text=ID")
        return super().splits()


@source("olmo-core")
class OlmoCore(TokenShards):
    """Documents of ``.npy`` files of the Dolma toolkit and OLMo-core.

    Args:
        token_size: bytes of a token; needed only if ``.csv.gz`` is missing.
    """

    homepage: ClassVar[str] = "https://github.com/allenai/OLMo-core"

    token_size: Literal[2, 4] | None = None

    beside: ClassVar[tuple[str, ...]] = (".csv.gz", ".npy.loss")


@contextmanager
def _local_files(files: tuple[str, ...]) -> Iterator[str]:
    """Provide the path of a shard in one local folder with its other files, of which remote ones may be missing."""
    if not is_url(files[0]):
        with local_copy(files[0]) as path:
            yield path
        return
    above = posixpath.dirname(posixpath.commonprefix(files))
    with tempfile.TemporaryDirectory(prefix="longcrawl-") as folder:
        places = [Path(folder, file.removeprefix(f"{above}/")) for file in files]
        for file, place in zip(files, places, strict=True):
            try:
                with local_copy(file) as copy:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(copy, place)
            except DamagedFileError as broken:
                if file == files[0] or not isinstance(broken.__cause__, FileNotFoundError):
                    raise
        yield str(places[0])
