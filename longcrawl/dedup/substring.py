"""Exact-substring deduplication: long stretches of text that occur twice anywhere in the data.

Source: RefinedWeb, section G.3.2; K. Lee et al., "Deduplicating Training Data Makes Language Models Better", 2022.

``find`` stays beside ``exchange``: it is bounded by ``memory``, and takes half of the CPU time that an exchange of one
group takes, which reads the tokens three times to send segments that need not meet.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.fields import Conditions
from longcrawl.core.places import MASK, SPAN_SCHEMA, Spans, list_by_document, make_places, no_places
from longcrawl.core.sketched import Decided, Sketched
from longcrawl.core.stages import Check, Edited, column, document_ids, stage, with_column
from longcrawl.core.surveys import SpanSurvey
from longcrawl.dedup._token_store import store_tokens, stored_ids
from longcrawl.dedup.normalize import normalize, normalize_with_sources
from longcrawl.engines.base import Engine
from longcrawl.errors import StageError, TokenizerError
from longcrawl.kernels.texts import text_buffers, valid_texts
from longcrawl.tokens.encoders import EncodedTexts, load_encoder
from longcrawl.tokens.tokenizer_files import TokenizerStage

Longs = npt.NDArray[np.int64]

MASK_TYPE = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))
"""The column ``masked``: sorted spans [start, end) in characters (code points) of the text."""

LEAST_MEMORY = 64 << 20
"""Bytes below which a search would spend its time on giving memory back."""

UnitName = Literal["token", "character", "byte"]
UNITS = get_args(UnitName)


class Unit(Protocol):
    """What is compared: how texts become ids, equal ids for equal pieces of text, and spans of ids spans of bytes."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the ids of large strings: uint8, uint16 or uint32, always of one type, and never its greatest number.

        Null has none.
        """

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Find the bytes of UTF-8 that spans of ids stand for; they may begin and end inside a character.

        Args:
            texts: large strings without nulls.
            rows: int64 [spans], the text of each span, in increasing order.
            spans: int64 [spans, 2], start and stop in ids; those of one text are sorted and do not overlap.

        Returns:
            int64 [spans, 2], start and stop in bytes of the text, sorted as the spans are.
        """


@stage
class ExactSubstring(TokenizerStage, SpanSurvey):
    """Find every stretch of ``min_tokens`` tokens or more that occurs at least twice, in one document or in several.

    All copies count, and none is kept. Found are windows of ``min_tokens`` equal tokens, compared token by token;
    windows that overlap or touch become one span, and a span covers the whole characters inside its tokens. Documents
    in which nothing repeats stay as they are.

    The normal forms of the texts are compared, as in the paper: copies that differ in case, accents, punctuation, white
    space or characters that show nothing (soft hyphens, zero-width spaces) are found too, and each is cut or masked as
    it stands in its own document. A span never begins or ends with white space or punctuation. Of a character that
    becomes several in the normal form, as the syllables of Hangul do, and of which only a part is repeated, nothing is
    taken.

    ``policy`` says what happens to documents with spans:

    * "cut": the spans go; a document leaves if fewer than ``min_characters`` characters are left;
    * "mask": the text stays, and a column ``masked`` (list<struct<start, end>>, in characters; empty where nothing
      repeats) says what no loss should be computed on; a document leaves if fewer than ``min_characters`` characters
      are not masked;
    * "drop-partial": a document leaves if more than ``max_share`` of its characters lie in spans;
    * "drop-any": a document leaves if it has a span.

    Args:
        min_tokens: 1 or more; RefinedWeb takes 50.
        policy: see above; RefinedWeb cuts.
        unit: what is compared: "token" of ``tokenizer``, "character" or "byte".
        text: "normalised", see :mod:`longcrawl.dedup.normalize`, or "raw": texts as they stand, to the byte.
        tokenizer: a byte-level BPE by name, file or object, see :func:`longcrawl.tokens.encoders.load_encoder`.
        max_share: for "drop-partial".
        min_characters: for "cut" and "mask".
        memory: bytes that the search of one process may take, 64 MiB or more. It makes as many passes as that needs,
            each kept on disk until all are done, and finds the same in any number of them. Beside this are up to 40
            bytes per document while ids are compared, 8 in files that are mapped afterwards, the spans themselves, and
            the batch at hand.

    >>> from datasets import Dataset
    >>> import longcrawl as lc
    >>> texts = ["Of Paris and of London. See also: all articles", "It was the best of times. SEE ALSO all articles"]
    >>> crawl = lc.Crawl(Dataset.from_dict({"id": ["a", "b"], "text": texts}))
    >>> (crawl | lc.dedup.ExactSubstring(20, unit="character")).data["text"][:]
    ['Of Paris and of London. ', 'It was the best of times. ']

    Raises:
        StageError: two documents have one id; an id or the column ``text`` is missing; the documents are masked
            already, and to cut them or mask them again would lose that.
        TokenizerError: the tokenizer cannot be loaded.
    """

    min_tokens: int = 50
    policy: Literal["cut", "mask", "drop-partial", "drop-any"] = "cut"
    unit: UnitName = "token"
    text: Literal["normalised", "raw"] = "normalised"
    tokenizer: str = "gpt2"
    max_share: float = 0.2
    min_characters: int = 20
    memory: int = 1 << 30
    code_version: ClassVar[str] = "4"
    only_with: ClassVar[Conditions] = MappingProxyType(
        {
            "max_share": {"policy": ("drop-partial",)},
            "min_characters": {"policy": ("cut", "mask")},
        }
    )
    copies_share = "passages"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_tokens < 1:
            raise StageError(f"exact_substring.min_tokens must be 1 or more, got {self.min_tokens}")
        if self.memory < LEAST_MEMORY:
            raise StageError(f"exact_substring.memory must be {LEAST_MEMORY:,} bytes or more, got {self.memory:,}")
        if not 0 <= self.max_share <= 1:
            raise StageError(f"exact_substring.max_share takes a share from 0 to 1, got {self.max_share:g}")
        if self.min_characters < 0:
            raise StageError(f"exact_substring.min_characters must be 0 or more, got {self.min_characters}")

    def prepare(self) -> None:
        """Load the tokenizer.

        Raises:
            StageError: its tokens do not say which bytes of a text they stand for.
            TokenizerError: it cannot be loaded.
        """
        self._unit()

    def sketch(self, table: pa.Table) -> pa.Table:
        """Return ``id`` and ``tokens``, a large list of uint8, uint16 or uint32; a null text has none."""
        ids = document_ids(table, self.name)
        encoded = self._unit().encode(valid_texts(column(table, "text", self.name), self.name))
        lists = pa.LargeListArray.from_arrays(pa.array(encoded.offsets), pa.array(encoded.ids))
        return pa.table({"id": ids, "tokens": lists})

    def find(self, sketches: Iterable[pa.Table], directory: str) -> Spans:
        """Find the spans of all documents, in tokens.

        Raises:
            StageError: two documents have the same id; ``directory`` holds another search.
        """
        from longcrawl.dedup._repeats import find_repeats

        folder = Path(directory)
        store = store_tokens(sketches, folder, self.name)
        found, links = [], []
        for ranges in find_repeats(store, self.min_tokens, self.memory, folder):
            found.append(store.documents_of(ranges))
            links.append(ranges[:, [0, 2]])
        if not found:
            return Spans(SPAN_SCHEMA.empty_table())
        documents, (starts, others) = np.concatenate([here for here, _ in found]), np.concatenate(links).T
        tables, at = [], 0
        for here, inside in found:
            # The span that holds the other place, each copy lies in one, and its number among those of its document.
            also = np.searchsorted(starts, others[at : at + len(here)], "right") - 1
            numbers = also - np.searchsorted(documents, documents[also], "left")
            columns = [here, _ids(folder, here), inside[:, 0], inside[:, 1], _ids(folder, documents[also]), numbers]
            tables.append(pa.table(columns, schema=SPAN_SCHEMA))
            at += len(here)
        return Spans(pa.concat_tables(tables))

    def exchange(self, sketched: Sketched, engine: Engine) -> Decided:
        """Find the same spans, with the tokens of each group in a task of their own."""
        from longcrawl.dedup.substring_exchanges import exchange_spans

        return exchange_spans(self.min_tokens, sketched, engine)

    def edit_spans(self, table: pa.Table, spans: Spans) -> tuple[pa.Table, Sequence[Check]]:
        """Do what ``policy`` says to a batch of documents."""
        edited = self._edited(table, spans, record="nothing")
        return edited.documents, edited.checks

    def trace_spans(self, table: pa.Table, spans: Spans) -> Edited:
        """Do what ``edit_spans`` does, and list the spans cut or masked, each with one in which it also stands."""
        return self._edited(table, spans, record="places")

    def _edited(self, table: pa.Table, spans: Spans, record: Literal["places", "nothing"]) -> Edited:
        texts = valid_texts(column(table, "text", self.name), self.name)
        if "masked" in table.column_names and self.policy in ("cut", "mask"):
            raise StageError("exact_substring would lose the column 'masked' of an earlier stage: drop it first")
        rows, places, chosen = self._characters(document_ids(table, self.name), texts, spans)
        lengths = places[:, 1] - places[:, 0]
        covered = np.zeros(table.num_rows, np.int64)
        np.add.at(covered, rows, lengths)
        checks = [self._check(pc.fill_null(pc.utf8_length(texts), 0).to_numpy(), covered)]
        if self.policy == "cut":
            table = with_column(table, "text", cut_spans(texts, rows, places))
        elif self.policy == "mask":
            table = with_column(table, "masked", masked_column(rows, places, table.num_rows))
        if record == "nothing" or self.policy not in ("cut", "mask"):
            return Edited(table, checks, no_places())
        rule, replaced_by = ("cut", 0) if self.policy == "cut" else (MASK, lengths)
        return Edited(table, checks, make_places(rows, rule, places, replaced_by, **spans.origins(chosen)))

    def _check(self, lengths: Longs, covered: Longs) -> Check:
        untouched = covered == 0
        if self.policy in ("cut", "mask"):
            kept = lengths - covered
            passes = pa.array(untouched | (kept >= self.min_characters))
            return Check("characters_left", pa.array(kept), passes, self.min_characters, "at_least")
        share = covered / np.maximum(lengths, 1)
        most = self.max_share if self.policy == "drop-partial" else 0.0
        return Check("repeated_share", pa.array(share), pa.array(untouched | (share <= most)), most, "at_most")

    def _characters(self, ids: pa.Array, texts: pa.Array, spans: Spans) -> tuple[Longs, Longs, Longs]:
        """Return the row of each span of a batch, the spans in characters, and their rows in the table of spans."""
        rows, chosen = spans.rows_of(ids)
        in_units = spans.units(chosen)
        with_spans, places = np.unique(rows, return_inverse=True)
        found = locate(self._unit(), texts.take(pa.array(with_spans)), places, in_units)
        whole = found[:, 1] > found[:, 0]
        return rows[whole], found[whole], chosen[whole]

    def _unit(self) -> Unit:
        unit = make_unit(self.unit, self.tokenizer)
        return NormalText(unit) if self.text == "normalised" else unit


def _ids(folder: Path, documents: Longs) -> pa.Array:
    return pc.cast(stored_ids(folder, documents), pa.string())


def cut_spans(texts: pa.Array, rows: Longs, places: Longs) -> pa.Array:
    """Return the texts without the spans."""
    if not len(rows):
        return texts
    affected, firsts = np.unique(rows, return_index=True)
    made = []
    for row, spans in zip(affected.tolist(), np.split(places, firsts[1:]), strict=True):
        text = texts[row].as_py()
        kept = [0, *spans.ravel().tolist(), len(text)]
        made.append("".join(text[start:stop] for start, stop in zip(kept[::2], kept[1::2], strict=True)))
    replaced = np.zeros(len(texts), bool)
    replaced[affected] = True
    return pc.replace_with_mask(texts, pa.array(replaced), pa.array(made, pa.large_string()))


def masked_column(rows: Longs, places: Longs, documents: int) -> pa.Array:
    """Return the column ``masked``."""
    spans = {"start": pa.array(places[:, 0]), "end": pa.array(places[:, 1])}
    return list_by_document(rows, spans, documents).cast(MASK_TYPE)


@lru_cache(maxsize=4)
def make_unit(name: str, tokenizer: str) -> Unit:
    """Return the unit of this name, one of ``UNITS``; ``tokenizer`` is the one that "token" takes.

    Raises:
        StageError: a tokenizer that cannot say which bytes a token stands for.
        TokenizerError: the tokenizer cannot be loaded.
    """
    if name == "token":
        return Tokens(tokenizer)
    return Characters() if name == "character" else Bytes()


def locate(unit: Unit, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
    """Find the characters (code points) that lie whole in spans of ids, from what ``Unit.to_bytes`` takes.

    Returns:
        int64 [spans, 2], start and stop in characters; a span without a whole one is empty.
    """
    from longcrawl.dedup._normalize_kernels import convert_spans

    places = unit.to_bytes(texts, rows, spans)
    convert_spans(*text_buffers(texts), rows, places, False)
    places[:, 1] = places.max(axis=1)
    return places


class Tokens:
    """Tokens of a byte-level BPE, such as GPT-2's."""

    def __init__(self, tokenizer: str) -> None:
        try:
            self._encoder = load_encoder(tokenizer)
        except TokenizerError as missing:
            raise TokenizerError(
                f"exact_substring.tokenizer: {missing}; or set unit='character', which takes none"
            ) from missing
        try:
            self._bytes = self._encoder.token_bytes
        except TokenizerError as wrong:
            raise StageError(
                f"tokens of {tokenizer!r} do not say which bytes they stand for ({wrong}): take a byte-level BPE such "
                "as gpt2, or the unit 'character'"
            ) from wrong
        self._dtype = np.uint16 if self._encoder.vocabulary_size < 1 << 16 else np.uint32

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return token ids."""
        ids, offsets = self._encoder.encode(texts)
        return EncodedTexts(ids.astype(self._dtype, copy=False), offsets)

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Tokenise again and add up what the tokens before each place stand for."""
        ids, offsets = self._encoder.encode(texts)
        ends = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._bytes[ids], out=ends[1:])
        starts = ends[offsets]
        if not np.array_equal(np.diff(starts), pc.binary_length(texts).to_numpy()):
            raise StageError("tokens do not add up to their text: take a byte-level BPE that changes nothing in it")
        return np.asarray(ends[offsets[rows, None] + spans] - starts[rows, None])


class Characters:
    """Code points."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the code point of every character, uint32."""
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(pc.fill_null(pc.utf8_length(texts), 0).to_numpy(), out=offsets[1:])
        ids = np.empty(offsets[-1], np.uint32)
        for text, start, stop in zip(texts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            ids[start:stop] = np.frombuffer((text.as_py() or "").encode("utf-32-le"), "<u4")
        return EncodedTexts(ids, offsets)

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Count bytes instead of characters."""
        from longcrawl.dedup._normalize_kernels import convert_spans

        places = spans.copy()
        convert_spans(*text_buffers(texts), rows, places, True)
        return places


class Bytes:
    """Bytes of UTF-8."""

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the bytes, uint8: 255 occurs in no UTF-8."""
        data, offsets = text_buffers(texts)
        return EncodedTexts(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:  # noqa: ARG002  # ids are bytes
        """Return the spans as they are."""
        return spans.copy()


class NormalText:
    """Units of the normal form of texts, see :mod:`longcrawl.dedup.normalize`."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def encode(self, texts: pa.Array) -> EncodedTexts:
        """Return the ids of the normal forms."""
        return self._unit.encode(normalize(texts))

    def to_bytes(self, texts: pa.Array, rows: Longs, spans: Longs) -> Longs:
        """Find the bytes that the spans of the normal form come from; of a character that is cut, none."""
        normal = normalize_with_sources(texts)
        found = normal.source_spans(rows, self._unit.to_bytes(normal.texts, rows, spans))
        # Marks that change places in the normal form may come from before the end of the span before.
        text_starts = text_buffers(texts)[1][rows]
        places = found + text_starts[:, None]
        ends = np.maximum.accumulate(places[:, 1])
        places[1:, 0] = np.maximum(places[1:, 0], ends[:-1])
        places[:, 1] = places.max(axis=1)
        return places - text_starts[:, None]
