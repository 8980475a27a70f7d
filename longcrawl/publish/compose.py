"""Comparison of composition strategies on existing documents: how much each one pads, cuts and mixes."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longcrawl.core.outputs import OUTPUTS, RESULTS
from longcrawl.core.sources import BadFiles, Part
from longcrawl.errors import (
    CorruptionError,
    FormatError,
    LongCrawlError,
    SourceError,
    StageError,
    check_word,
    known_names,
    unreadable,
)
from longcrawl.formats.shards import levanter, litdata, nanogpt, olmo_core
from longcrawl.formats.shards import parquet as token_parquet
from longcrawl.formats.shards.spec import open_shard
from longcrawl.formats.shards.writing import Terminate
from longcrawl.io.files import given_url, match_files, unreachable, why_no_file
from longcrawl.io.structured import fields_set
from longcrawl.publish.questions import check_recorded, find_result, open_output
from longcrawl.sources.blocks import RECORD_BYTES, read_blocks
from longcrawl.sources.csv_rows import ENDINGS, read_csv
from longcrawl.sources.files import DamagedFileError, absolute, has_ending, list_tree, readable, spell_endings
from longcrawl.sources.json_lines import read_lines
from longcrawl.sources.parquet import open_parquet
from longcrawl.sources.text import EXTENSIONS, RECORDS, WHOLE, Text, kind_of
from longcrawl.text.values import tables
from longcrawl.tokens.encoders import Encoder, load_encoder
from longcrawl.tokens.measures import ONE_LENGTH, Beginnings, Comparison, compare_strategies, default_strategies
from longcrawl.tokens.plan import Strategy, checked_lengths
from longcrawl.urls import is_url, join

Longs = npt.NDArray[np.int64]


class DocumentLengths(NamedTuple):
    """Number of tokens of each document, and whether they include an end-of-text token."""

    tokens: Longs
    """Number of tokens: int64 [documents]."""
    ended: npt.NDArray[np.bool_]
    """Whether the tokens include an end of text: bool [documents]."""


Reader = Callable[[str], Iterator[DocumentLengths]]

PLANNED_BY = (
    "strategy", "planner", "seed", "pool_size", "chunk_tokens",
    "documents_per_sample", "chunks_per_document", "long_documents",
)  # fmt: skip
"""Fields of the output ``composed`` that decide its plan, beside capacities and padding."""

SHARDS = (".bin", ".ds", ".mds", ".npy", levanter.SUFFIX)
"""File endings of token shards other than parquet."""

COLUMNS = ("n_tokens", "tokens")
"""Columns with the length of a document, used without a tokenizer; the first existing one is taken."""

_ROWS, _FEW_ROWS = 8_192, 256
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
COUNTED = (*RECORDS, ".txt", ".txt.gz", ".txt.zst")
"""Endings of a folder's files that are read without a tokenizer; a text file raises an error that asks for one."""
_COUNT = "add a tokenizer (--tokenizer gpt2) to count the tokens of its texts"


def read_lengths(
    path: str | Path,
    tokenizer: str | None = None,
    text_field: str = "text",
    end_of_text: int | None = None,
    beginnings: Beginnings | None = None,
) -> DocumentLengths:
    """Return the number of tokens of every document, in the order of the files and of the documents in each.

    Of a run or an output, these are its tables of documents, or its files; of a token shard, its entries. Of Parquet,
    JSON and CSV files, it is the field ``n_tokens`` or the length of ``tokens``. In a folder with shards, only these
    count, and flat shards only with ``end_of_text``.

    The end-of-text token is always counted in token shards, in Parquet files that record theirs (``token-parquet``) and
    in the tables of a composed dataset. In other token lists it is counted if it is the last token and ``end_of_text``
    names it. Token counts and texts do not include it.

    With a ``tokenizer``, texts are tokenised, even if there are token counts. ``beginnings`` collects the first tokens
    of documents, if tokens are read. For the other arguments see :func:`compose`.

    Raises:
        SourceError: the path does not exist, cannot be read, or has no document lengths.
        TokenizerError: the tokenizer cannot be loaded.
    """
    encoder = None if tokenizer is None else load_encoder(tokenizer)
    first = Beginnings() if beginnings is None else beginnings
    read: Reader = partial(_lengths_of_file, end_of_text=end_of_text, beginnings=first)
    if encoder is not None:
        read = partial(_tokenised, encoder=encoder, text_field=text_field, beginnings=first)
    may_be_run = given_url(path) is not None and not has_ending(str(path), (*EXTENSIONS, *SHARDS))
    with open_output(path, tables_of_lengths=encoder is None) if may_be_run else nullcontext(path) as here:
        files = _files(str(here), end_of_text, tokenised=encoder is not None)
        none = DocumentLengths(np.zeros(0, np.int64), np.zeros(0, np.bool_))
        found = [none, *(each for file in files for each in read(file))]
    return DocumentLengths(*map(np.concatenate, zip(*found, strict=True)))


def column_lengths(
    table: pa.Table, where: str, end_of_text: int | None = None, beginnings: Beginnings | None = None
) -> DocumentLengths:
    """Return the number of tokens of every document of a table, from ``n_tokens`` or else ``tokens``."""
    name = _known(table.column_names, where)
    column = table[name]
    if name == "tokens" and not _has_lists(table.schema):
        raise SourceError(f"{where} has no lists in its column 'tokens', but {column.type}: {_COUNT}")
    if name != "tokens" and (not pa.types.is_integer(column.type) or column.null_count):
        raise SourceError(f"{where}: n_tokens is not a whole number in every row; name a --tokenizer to count texts")
    if not _has_lists(table.schema):
        return _unended(np.asarray(column.to_numpy(), np.int64))
    lists = table["tokens"]
    lengths: Longs = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    if beginnings is not None and pa.types.is_integer(lists.type.value_type):
        beginnings.add_lists(lists)
    ended = np.zeros(len(lengths), np.bool_)
    if end_of_text is not None:
        last = np.cumsum(lengths)[lengths > 0] - 1
        ended[lengths > 0] = pc.equal(pc.list_flatten(lists).take(pa.array(last)), end_of_text).to_numpy()
    return DocumentLengths(lengths if name == "tokens" else np.asarray(column.to_numpy(), np.int64), ended)


def _has_lists(schema: pa.Schema) -> bool:
    return "tokens" in schema.names and any(check(schema.field("tokens").type) for check in _LISTS)


def _unended(lengths: Longs) -> DocumentLengths:
    return DocumentLengths(lengths, np.zeros(len(lengths), np.bool_))


def _known(names: list[str], where: str) -> str:
    for name in COLUMNS:
        if name in names:
            return name
    raise SourceError(f"{where} has neither n_tokens nor tokens, but {', '.join(names) or 'no fields'}: {_COUNT}")


def _files(path: str, end_of_text: int | None, *, tokenised: bool) -> list[str]:
    base = absolute(path)
    if not is_url(base) and Path(base).is_dir():
        base = str(_output(Path(base)))
        described = RESULTS.described()
        for description, name in described.items():
            if RESULTS[name].lengths and not tokenised and Path(base, description).exists():
                return [str(file) for file in sorted(Path(base).glob(RESULTS[name].lengths))]
        # The description of an output is not a document.
        listed = [name for name in list_tree(base) if name not in described]
        names = [
            name
            for name in ([] if tokenised else listed)
            if name.endswith(SHARDS) and (end_of_text is not None or _flat_format(join(base, name)) is None)
        ]
        names = names or readable(listed, EXTENSIONS if tokenised else COUNTED, WHOLE)
        _check_reachable(base, [name for name in listed if name not in names])
        if not names:
            raise SourceError(f"{base} holds no documents; known endings: {spell_endings((*EXTENSIONS, *SHARDS))}")
        return [join(base, name) for name in names]
    files = [base]
    if not is_url(base) and any(sign in base for sign in "*?[") and not Path(base).exists():
        with unreadable(base, SourceError, "change the pattern"):
            files = match_files(base)
    for file in files or [base]:
        if tokenised and file.endswith(SHARDS):
            raise SourceError(f"{file} already holds tokens: remove --tokenizer")
        if not has_ending(file, (*EXTENSIONS, *SHARDS)):
            known = spell_endings((*EXTENSIONS, *SHARDS))
            raise SourceError(f"{file} is neither a run nor a file that can be read; known endings: {known}")
    if not files:
        raise SourceError(f"no file matches {path!r}; check the pattern")
    return files


def _check_reachable(base: str, names: list[str]) -> None:
    for lost in unreachable(base, names):
        where = join(base, lost)
        raise SourceError(f"{where} {why_no_file(where)}. Remove it, or select the files with a pattern")


def _output(folder: Path) -> Path:
    """Return the folder of a finished run's documents, or any other folder unchanged."""
    if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
        raise SourceError(
            f"{folder} was written by Dataset.save_to_disk: in Python, lc.compose(datasets.load_from_disk('{folder}'))"
        )
    return find_result(folder)[1]


def _lengths_of_file(path: str, end_of_text: int | None, beginnings: Beginnings) -> Iterator[DocumentLengths]:
    if path.endswith(SHARDS):
        entries = _entries_of_shard(path, end_of_text, beginnings)
        yield DocumentLengths(entries, np.ones(len(entries), np.bool_))
        return
    kind = kind_of(path)
    if kind == ".txt":
        raise SourceError(f"{path} holds text: add a tokenizer (--tokenizer gpt2) to count its tokens")
    try:
        if kind in ENDINGS:
            yield from _csv(path, ENDINGS[kind])
            return
        read = _parquet if kind == ".parquet" else _json
        yield from read(path, end_of_text, beginnings)
    except DamagedFileError as damage:
        raise SourceError(f"{path} {damage}; exclude it, or fix it") from damage


def _entries_of_shard(path: str, end_of_text: int | None, beginnings: Beginnings) -> Longs:
    given = {} if end_of_text is None else {"end_of_text": end_of_text}
    try:
        shard = open_shard(path, _flat_format(path), check="ends", **given)
        if shard.document_ends is None:
            raise SourceError(
                f"{path} does not record where its documents end: set their end-of-text token (--end-of-text 50256)"
            )
        beginnings.add(shard.tokens, shard.ends)
        return np.diff(shard.ends, prepend=0)
    except (FormatError, CorruptionError) as wrong:
        raise SourceError(str(wrong)) from wrong


def _flat_format(path: str) -> str | None:
    """Return the format of a shard without an index, which only its name marks as a shard; None if it has one."""
    for name, suffix, index in ((nanogpt.NAME, nanogpt.SUFFIX, ".idx"), (olmo_core.NAME, olmo_core.SUFFIX, ".csv.gz")):
        if path.endswith(suffix) and not Path(path).with_suffix(index).exists():
            return None if litdata.Litdata.is_at(Path(path)) else name
    return None


def _parquet(path: str, end_of_text: int | None, beginnings: Beginnings) -> Iterator[DocumentLengths]:
    with open_parquet(path) as (file, _):
        wanted, ended = [_known(file.schema_arrow.names, path)], _says_ended(path, file.schema_arrow)
        if wanted == ["n_tokens"] and _has_lists(file.schema_arrow):
            if end_of_text is not None:
                wanted.append("tokens")
            else:
                _begin(file, path, beginnings)
        for batch in file.iter_batches(_ROWS, columns=wanted, use_threads=False):
            found = column_lengths(pa.Table.from_batches([batch]), path, end_of_text, beginnings)
            yield DocumentLengths(found.tokens, np.ones_like(found.ended)) if ended else found


def _begin(file: pq.ParquetFile, path: str, beginnings: Beginnings) -> None:
    """Read only the first tokens of the first documents, because lengths are in another column."""
    for batch in file.iter_batches(_FEW_ROWS, columns=["tokens"], use_threads=False) if beginnings.wanted else ():
        column_lengths(pa.Table.from_batches([batch]), path, None, beginnings)
        if not beginnings.wanted:
            return


def _says_ended(path: str, schema: pa.Schema) -> bool:
    """Return whether a file counts the end of text: a shard that has one, or a table of a composed dataset."""
    recorded = (schema.metadata or {}).get(token_parquet.KEY)
    if recorded is not None and "tokens" in schema.names:
        return b'"end_of_text"' in recorded
    ended = [file for file, name in RESULTS.described().items() if RESULTS[name].lengths_are_ended]
    return not is_url(path) and any((above / file).exists() for above in Path(path).parents[:4] for file in ended)


def _csv(path: str, separator: str) -> Iterator[DocumentLengths]:
    try:
        for rows in read_csv(path, ["n_tokens"], (), separator, RECORD_BYTES):
            for number, reason in rows.lost[:1]:
                raise SourceError(f"{path}: row {number} {reason}; fix it, or exclude the file")
            column = rows.table["n_tokens"]
            with suppress(pa.ArrowInvalid):  # column_lengths rejects other values
                column = column.cast(pa.int64())
            yield column_lengths(pa.table({"n_tokens": column}), path)
    except DamagedFileError as damage:
        raise SourceError(f"{path} {damage}; fix it, or {_COUNT}") from damage


def _json(path: str, end_of_text: int | None, beginnings: Beginnings) -> Iterator[DocumentLengths]:
    wanted, first, has_lists = None, 0, False
    for block in read_blocks(path):
        text = bytes(block).removeprefix(b"\xef\xbb\xbf") if first == 0 else bytes(block)
        if wanted is None:
            number, line = next((each for each in enumerate(text.split(b"\n")) if each[1].strip()), (0, b"{}"))
            fields = _object(line, path, number)
            wanted, has_lists = _known(list(fields), path), isinstance(fields.get("tokens"), list)
        if wanted == "tokens":
            yield _list_lengths(text, path, first, end_of_text, beginnings)
            first += text.count(b"\n")
            continue
        lines = read_lines(text, pa.schema([pa.field(wanted, pa.int64(), nullable=False)]))
        if lines.lost:
            number, reason = lines.lost[0]
            raise SourceError(f"{path}: line {first + number + 1} {reason}; fix it, or exclude the file")
        found = _unended(lines.table[wanted].to_numpy())
        if has_lists and (end_of_text is not None or beginnings.wanted):
            found = found._replace(ended=_list_lengths(text, path, first, end_of_text, beginnings).ended)
        yield found
        first += lines.count


def _list_lengths(
    block: bytes, path: str, first: int, end_of_text: int | None, beginnings: Beginnings
) -> DocumentLengths:
    lengths, ended = list[int](), list[bool]()
    for number, line in enumerate(block.split(b"\n"), first):
        if line.strip():
            tokens = _object(line, path, number).get("tokens", 0)
            if not isinstance(tokens, list | None):
                raise SourceError(
                    f"{path}: line {number + 1} has no list in its field 'tokens'; fix it, or exclude the file"
                )
            lengths.append(len(tokens or ()))
            beginnings.add_one(tokens or ())
            ended.append(end_of_text is not None and bool(tokens and tokens[-1] == end_of_text))
    return DocumentLengths(np.array(lengths, np.int64), np.array(ended, np.bool_))


def _object(line: bytes, path: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise SourceError(f"{path}: line {number + 1} is not JSON ({wrong}); fix it, or exclude the file") from wrong
    if not isinstance(found, dict):
        raise SourceError(f"{path}: line {number + 1} is not a JSON object; fix it, or exclude the file")
    return found


def _tokenised(path: str, encoder: Encoder, text_field: str, beginnings: Beginnings) -> Iterator[DocumentLengths]:
    source = Text(data_files=path, text_field=text_field)
    try:
        for table in source.read(Part(path, (path,)), BadFiles()):
            encoded = encoder.encode(table["text"])
            beginnings.add(encoded.ids, encoded.offsets[1:])
            yield _unended(np.diff(encoded.offsets))
    except SourceError as wrong:
        raise SourceError(str(wrong).partition("; to continue without")[0]) from wrong
    except LongCrawlError as wrong:
        raise SourceError(f"{path}: {wrong}") from wrong


def compose(
    documents: Any,
    capacities: Sequence[int] = (2048, 4096, 8192, 16384),
    *,
    padding_threshold: float = 0.05,
    tokenizer: str | None = None,
    text_field: str = "text",
    end_of_text: int | None = None,
    terminate: Terminate = "missing",
    strategies: Sequence[Strategy] | None = None,
) -> Comparison:
    """Compare strategies for composing documents into training samples: padding, truncation, concatenation.

    Documents are planned as in the output ``composed``: every document with tokens ends with an end-of-text token,
    which counts as one of its tokens. If tokens are read, not only their numbers, the table also shows how related
    consecutive documents of a sample are.

    Args:
        documents: the path of a run or of files, see :func:`longcrawl.publish.compose.read_lengths`; a crawl, a dataset
            or an Arrow table with the column ``n_tokens`` or ``tokens``; or the lengths themselves.
        capacities: capacities of samples in tokens, ascending.
        padding_threshold: the share of a sample that buckets may pad, P.
        tokenizer: tokenizer that counts the tokens of texts; only with a path.
        text_field: field of the texts to count.
        end_of_text: id that separates documents in token shards without an index, and ends token lists.
        terminate: whether to count an end-of-text token for each document with tokens: ``"missing"`` if it is not
            counted yet (see :func:`longcrawl.publish.compose.read_lengths`), ``"always"`` or ``"never"``. Lengths given
            as numbers are assumed to include it.
        strategies: strategies to compare instead of :func:`longcrawl.tokens.default_strategies`.

    Raises:
        SourceError: the path cannot be read, or has no document lengths.
        StageError: the capacities do not ascend, or the input has no documents.
        FormatError: ``terminate`` has another value.

    >>> compose([5000, 900, 300, 40], capacities=[2048, 4096])["Buckets"].cut_documents
    2
    """
    chosen = default_strategies(capacities, padding_threshold) if strategies is None else tuple(strategies)
    first = Beginnings()
    check_word("terminate", terminate, Terminate, FormatError)
    if isinstance(documents, str | Path):
        check_recorded(documents, end_of_text)
        found = read_lengths(documents, tokenizer, text_field, end_of_text, first)
        if not len(found.tokens):
            raise SourceError(f"{documents} has no documents: choose others")
    elif tokenizer is None:
        found = _lengths(documents, end_of_text, first)
    else:
        raise StageError(
            "tokenizer counts texts in files: pass a path, or apply lc.tokens.Tokenize to the documents first"
        )
    added = (found.tokens > 0) & (~found.ended if terminate == "missing" else terminate == "always")
    compared = compare_strategies(found.tokens + added, chosen, first.found)
    return replace(compared, terminated=int(np.count_nonzero(added)))


def chosen_strategies(
    overrides: Iterable[str], capacities: Sequence[int], padding_threshold: float
) -> tuple[Strategy, ...]:
    """Return the default strategies and, if there are overrides from the command line, the one that they describe.

    Overrides are fields of the output ``composed``. Their strategy replaces a default one with its label.
    """
    usual = default_strategies(capacities, padding_threshold)
    settings = fields_set(overrides, "the output composed, such as strategy=interleaved", StageError)
    if not settings:
        return usual
    for name in settings.keys() - PLANNED_BY:
        if name in ("schedule", "cycles", "cycle_steps"):
            raise StageError(
                f"--set {name}: it orders steps when you train, and changes no sample: set it in "
                "lc.loading.ComposedBatches"
            )
        raise StageError(f"--set {name}: compose does not plan with this setting; {known_names(PLANNED_BY, name)}")
    sizes = capacities[-1:] if settings.get("strategy") in ONE_LENGTH else capacities
    output: Any = OUTPUTS.make("composed", {**settings, "capacities": sizes, "padding_threshold": padding_threshold})
    own: Strategy = output.chosen()
    return (*(each for each in usual if each.label != own.label), own)


def _lengths(documents: Any, end_of_text: int | None, beginnings: Beginnings) -> DocumentLengths:
    if isinstance(documents, Sequence) or (hasattr(documents, "__array__") and not isinstance(documents, pa.Table)):
        given = checked_lengths(documents)
        return DocumentLengths(given, np.ones(len(given), np.bool_))
    name = type(documents).__name__
    found = [column_lengths(table, name, end_of_text, beginnings) for table in tables(documents)]
    return DocumentLengths(*map(np.concatenate, zip(*found, strict=True)))
