"""RedPajama-V2 (v1.0.0): documents joined to their quality signals, duplicates and MinHash signatures.

A release has these files, in a local folder or below a URL::

    documents/{snapshot}/{shard:04d}/{language}_{head|middle|tail}.json.gz
    quality_signals/{snapshot}/{shard:04d}/{language}_{head|middle}.signals.json.gz
    duplicates/{snapshot}/{shard:04d}/{language}_{head|middle}.duplicates.parquet
    minhash/{snapshot}/{shard:04d}/{language}_{head|middle}.minhash.parquet
    listings/{language}-{snapshot}-{head_middle|tail}.txt      lines "2023-06/0000/en_head"

The tail of a language has documents only. A document's id is ``{snapshot}/{shard}/{language}_{bucket}.json.gz/{line}``,
with lines counted from 0, including unreadable ones. All files are joined by this id. Messages count lines from 1, as
editors do.

A signals record is ``{"id": …, "id_int": …, "metadata": {…}, "quality_signals": {NAME: [[start, end, value], …], …}}``,
with offsets in code points of the document. A document-level signal has one span, a line-level one has a span per line.
"""

# Inside kernels ints and numpy ints are one type, which mypy cannot know, so these codes are off in the whole file.
# mypy: disable-error-code="assignment, no-any-return"
# ruff: noqa: C901, PLR0911, PLR0912

import copy
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from longcrawl.core import sources
from longcrawl.core.sources import BadFiles, LostRecords, UncheckedDataError
from longcrawl.core.stages import Stage
from longcrawl.errors import SourceError, listed, quoted
from longcrawl.io.files import unreachable, why_no_file
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    count_bits,
    eight_at,
    find_closing_brackets,
    find_commas,
    find_digits,
    find_dots,
    find_ones,
    find_opening_brackets,
    find_quotes,
    find_zeros,
    highest_bit,
    lowest_bit,
)
from longcrawl.sources.blocks import RECORD_BYTES, read_steps, stop_at, stop_at_damage
from longcrawl.sources.files import DamagedFileError, absolute, fetch_texts, list_tree, local_copy
from longcrawl.sources.json_lines import (
    BLANK,
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    INEXACT,
    NESTED,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    LineReader,
    Spelled,
    Texts,
    end_of_value,
    end_of_word,
    find_fields,
    find_name,
    pack,
    parse_object,
    read_key,
    read_number,
    skip_space,
    without_surrogates,
)
from longcrawl.sources.parquet import read_columns
from longcrawl.urls import is_url, join, without_secrets

DOCUMENT_SIGNALS = (
    "ccnet_length", "ccnet_original_length", "ccnet_nlines", "ccnet_original_nlines", "ccnet_language_score",
    "ccnet_perplexity", "ccnet_bucket", "rps_doc_curly_bracket", "rps_doc_ldnoobw_words", "rps_doc_lorem_ipsum",
    "rps_doc_stop_word_fraction", "rps_doc_ut1_blacklist", "rps_doc_frac_chars_dupe_10grams",
    "rps_doc_frac_chars_dupe_5grams", "rps_doc_frac_chars_dupe_6grams", "rps_doc_frac_chars_dupe_7grams",
    "rps_doc_frac_chars_dupe_8grams", "rps_doc_frac_chars_dupe_9grams", "rps_doc_frac_chars_top_2gram",
    "rps_doc_frac_chars_top_3gram", "rps_doc_frac_chars_top_4gram", "rps_doc_frac_all_caps_words",
    "rps_doc_frac_lines_end_with_ellipsis", "rps_doc_frac_no_alph_words", "rps_doc_frac_unique_words",
    "rps_doc_mean_word_length", "rps_doc_num_sentences", "rps_doc_symbol_to_word_ratio", "rps_doc_unigram_entropy",
    "rps_doc_word_count", "rps_doc_ml_palm_score", "rps_doc_ml_wikipedia_score", "rps_doc_ml_wikiref_score",
    "rps_doc_books_importance", "rps_doc_books_importance_length_correction", "rps_doc_openwebtext_importance",
    "rps_doc_openwebtext_importance_length_correction", "rps_doc_wikipedia_importance",
    "rps_doc_wikipedia_importance_length_correction",
)  # fmt: skip
"""Signals with one value per document, in the order of the release's files."""
LINE_SIGNALS = (
    "rps_lines_ending_with_terminal_punctution_mark",
    "rps_lines_javascript_counts",
    "rps_lines_num_words",
    "rps_lines_numerical_chars_fraction",
    "rps_lines_start_with_bulletpoint",
    "rps_lines_uppercase_letter_fraction",
)
"""Signals with one value per line; "punctution" is the release's spelling."""
SPANS = pa.list_(pa.list_(pa.float64()))
"""Arrow type of a line-level signal of a document: a list of [start, end, value], with offsets in code points."""
SIGNALS_TYPE = pa.struct(
    [pa.field(name, pa.float64()) for name in DOCUMENT_SIGNALS]
    + [pa.field(f"{name}.sum", pa.float64()) for name in LINE_SIGNALS]
)
"""Arrow type of the signals: document-level ones by name, and the sum over lines of line-level ones as ``NAME.sum``."""


def signals_type(names: Sequence[str]) -> pa.StructType:
    """Return the Arrow type of the requested signals, with names as in :data:`SIGNALS_TYPE`."""
    return pa.struct([field for field in SIGNALS_TYPE if field.name in names])


def line_signals_type(names: Sequence[str]) -> pa.StructType:
    """Return the Arrow type of the requested line-level signals: lists of [start, end, value]."""
    return pa.struct([pa.field(name, SPANS) for name in names])


_EVERY, _ONE, _NO_BITS = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(1), np.uint64(0)
_ZEROS = np.uint64(0x3030303030303030)
_LAST = np.array(
    [0] + [0xFFFFFFFFFFFFFFFF << (64 - 8 * _count) & 0xFFFFFFFFFFFFFFFF for _count in range(1, 9)], np.uint64
)
"""Masks of the last 0 to 8 bytes of eight."""
_TENS = np.array([10**_count for _count in range(9)], np.uint64)
_POWERS = np.array([10.0**_count for _count in range(9)])


@compiled
def _digits(ends_at: int, count: int) -> np.uint64:
    """Return the number spelled by up to eight digits before an address."""
    number = (eight_at(ends_at - 8) ^ _ZEROS) & _LAST[count]
    number = number * np.uint64(10) + (number >> np.uint64(8))
    low = (number & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    high = ((number >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return (low + high) >> np.uint64(32)


@compiled
def _after(starts: np.uint64, digits: np.uint64) -> np.uint64:
    """Return the bits after the runs of digits at some starts: in the sum, a run of ones carries to its end."""
    return (starts + digits) & ~digits


@compiled
def _plain_triples(data: Any, at: int, end: int) -> tuple[int, float, float]:
    """Read ``[[start,end,value],…]`` as the release spells it: its end (-1: not understood), first value and sum.

    Numbers have no sign, exponent or spaces; a value has at most 7 digits before its dot and 8 after it. The bits of a
    mask represent 64 bytes.
    """
    first, total, is_first = np.nan, 0.0, True
    if at < 8 or at >= end or data[at] != OPEN_LIST:
        return -1, first, total
    at += 1
    while at + 64 <= len(data):
        begin = np.int64(data.ctypes.data) + at
        closes = find_closing_brackets(begin)
        if closes == _NO_BITS:
            return -1, first, total
        pairs = closes & (closes >> _ONE)
        last = lowest_bit(pairs) if pairs != _NO_BITS else highest_bit(closes)
        if at + last + 2 > end:
            return -1, first, total
        inside = _EVERY >> np.uint64(63 - last)
        closes &= inside
        opens, commas = find_opening_brackets(begin) & inside, find_commas(begin) & inside
        digits, dots, zeros = find_digits(begin) & inside, find_dots(begin) & inside, find_zeros(begin)
        between, other = commas & (closes << _ONE), inside & ~digits
        one = _after(opens << _ONE, digits)
        two = _after(one << _ONE, digits)
        whole_ends = _after(two << _ONE, digits)
        decimal_ends = _after((whole_ends & dots) << _ONE, digits)
        if (
            opens != (between << _ONE | _ONE)
            or (closes << _ONE) & inside != between
            or one | two | between != commas
            or whole_ends & dots != dots
            or whole_ends ^ dots | decimal_ends != closes
            or opens | commas | dots | closes != other
            or other & (other << _ONE) != between | (between << _ONE)
            or ((opens | one | two) << _ONE) & zeros & (digits >> _ONE) != _NO_BITS
        ):
            return -1, first, total
        values, tenths = two << _ONE, two << np.uint64(3)
        if (
            closes == tenths << _ONE
            and dots == values << _ONE
            and tenths & ~zeros == _NO_BITS
            and values & ~(zeros | find_ones(begin)) == _NO_BITS
        ):
            if is_first:
                first, is_first = np.float64((values & ~zeros & (_NO_BITS - values)) != _NO_BITS), False
            for _ in range(count_bits(values & ~zeros)):
                total += 1.0
            closes = _NO_BITS
        while closes != _NO_BITS:
            close, start = lowest_bit(closes), lowest_bit(two) + 1
            closes &= closes - _ONE
            two &= two - _ONE
            whole, decimals = lowest_bit(whole_ends), 0
            whole_ends &= whole_ends - _ONE
            if whole - start > 7 or close - whole > 9:
                return -1, first, total
            number = _digits(begin + whole, whole - start)
            if whole < close:
                decimals = close - whole - 1
                number = number * _TENS[decimals] + _digits(begin + close, decimals)
            value = np.float64(number) / _POWERS[decimals]
            if is_first:
                first, is_first = value, False
            total += value
        at += last + 1
        if data[at] == CLOSE_LIST:
            return at + 1, first, total
        if data[at] != COMMA:
            return -1, first, total
        at += 1
    return -1, first, total


@compiled
def _triples(data: Any, at: int, end: int) -> tuple[int, float, float]:
    """Read ``[[start, end, value], …]`` in any spelling: its end (-1: not understood), first value and sum, or NaN."""
    first, total, count = np.nan, 0.0, 0
    after = end_of_word(data, at, end)
    if after >= 0 and data[at] == 110:
        return after, first, np.nan
    if at >= end or data[at] != OPEN_LIST:
        return -1, first, total
    at = skip_space(data, at + 1, end)
    if at < end and data[at] == CLOSE_LIST:
        return at + 1, first, total
    while True:
        at = skip_space(data, at, end)
        if at >= end or data[at] != OPEN_LIST:
            return -1, first, total
        at += 1
        for place in range(3):
            at = skip_space(data, at, end)
            value, exact = np.nan, True
            if place == 2 and at < end and data[at] == 110:
                at = end_of_word(data, at, end)
            else:
                value, at, exact = read_number(data, at, end)
            if at < 0 or not exact:
                return -1, first, total
            at = skip_space(data, at, end)
            if at >= end or data[at] != (COMMA if place < 2 else CLOSE_LIST):
                return -1, first, total
            at += 1
            if place == 2:
                if count == 0:
                    first = value
                if not np.isnan(value):
                    total += value
        count += 1
        at = skip_space(data, at, end)
        if at < end and data[at] == CLOSE_LIST:
            return at + 1, first, total
        if at >= end or data[at] != COMMA:
            return -1, first, total
        at += 1


@compiled
def _end_of_lists(data: Any, at: int, end: int) -> int:
    """Return the end of a list of lists of numbers (-1: not understood), without checking the numbers.

    The list ends at the first ``]]``; a list with a quote before that is checked like any other value.
    """
    first, start = np.int64(data.ctypes.data), at
    while at + 65 <= len(data) and at < end:
        closed = find_closing_brackets(first + at) & find_closing_brackets(first + at + 1)
        quotes = find_quotes(first + at)
        if closed != _NO_BITS and (quotes == _NO_BITS or lowest_bit(closed) < lowest_bit(quotes)):
            at += lowest_bit(closed) + 2
            return at if at <= end else -1
        if quotes != _NO_BITS:
            return end_of_value(data, start, end)[0]
        at += 64
    while at + 2 <= end and data[at] != QUOTE:
        if data[at] == CLOSE_LIST and data[at + 1] == CLOSE_LIST:
            return at + 2
        at += 1
    return end_of_value(data, start, end)[0]


@compiled
def _is_at(data: Any, at: int, end: int, keys: Any, start: int, stop: int) -> bool:
    """Return whether a quoted key of eight bytes or more, followed by a colon, is at a position."""
    length = stop - start
    if at + length >= end or data[at + length] != COLON:
        return False
    here, key = np.int64(data.ctypes.data) + at, np.int64(keys.ctypes.data) + start
    different, place = eight_at(here + length - 8) ^ eight_at(key + length - 8), 8
    while place < length:
        different |= eight_at(here + place - 8) ^ eight_at(key + place - 8)
        place += 8
    return different == _NO_BITS


@compiled
def _read_object(
    data: Any,
    at: int,
    end: int,
    keys: Any,
    offsets: Any,
    columns: Any,
    followers: Any,
    checked: Any,
    line: int,
    values: Any,
    places: Any,
) -> bool:
    """Read the object ``quality_signals`` of a line, and return whether it was understood; see :func:`read_records`."""
    if data[at] != OPEN_OBJECT:
        return False
    at = skip_space(data, at + 1, end)
    more = data[at] != CLOSE_OBJECT
    at += not more
    before = 0
    while more:
        at = skip_space(data, at, end)
        index = followers[before]
        if _is_at(data, at, end, keys, offsets[index], offsets[index + 1]):
            at = skip_space(data, at + offsets[index + 1] - offsets[index] + 1, end)
        else:
            key_start, key_end, at = read_key(data, at, end)
            if at < 0:
                return False
            index = find_name(data, key_start - 1, key_end + 1, keys, offsets, index)
            if index >= 0:
                followers[before] = index
        of_first = of_total = of_place = -1
        if index >= 0:
            before = index + 1
            of_first, of_total, of_place = columns[index, 0], columns[index, 1], columns[index, 2]
        if of_first >= 0 or of_total >= 0 or of_place >= 0:
            start = at
            at, first, total = _plain_triples(data, start, end)
            if at < 0:
                at, first, total = _triples(data, start, end)
            if of_first >= 0:
                values[line, of_first] = first
            if of_total >= 0:
                values[line, of_total] = total
            if of_place >= 0:
                places[line, of_place, 0], places[line, of_place, 1] = start, at
        elif checked and index < 0:
            at = end_of_value(data, at, end)[0]
        else:
            at = _end_of_lists(data, at, end)
        if at < 0:
            return False
        at = skip_space(data, at, end)
        if at >= end or (data[at] != COMMA and data[at] != CLOSE_OBJECT):
            return False
        more = data[at] == COMMA
        at += 1
    return at == end


@compiled
def read_records(
    data: Any,
    spans: Any,
    kinds: Any,
    keys: Any,
    offsets: Any,
    columns: Any,
    checked: Any,
    followers: Any,
    status: Any,
    values: Any,
    places: Any,
) -> None:
    """Read the signals of lines.

    Args:
        data: uint8 [bytes], the text of all lines.
        spans: int64 [lines, fields, 2], positions of fields; the last field is the object to read.
        kinds: uint8 [lines, fields], kinds of the fields.
        keys: uint8, the names of the signals in their quotes, of eight bytes or more, concatenated.
        offsets: int64 [keys + 1], start of each key.
        columns: int64 [keys, 3], columns of ``values`` for a first value and a sum, and of ``places``; -1 for none.
        checked: whether to check the values of signals without a key.
        followers: int64 [keys + 1], read and written: the first key, and the key after each key.
        status: uint8 [lines], read and written: ``INEXACT`` for a line that is understood except for its signals.
        values: float64 [lines, columns], written: the values, NaN if null or absent. A sum skips nulls.
        places: int64 [lines, columns, 2], written: position of the list of spans.
    """
    for line in range(len(spans)):
        values[line, :] = np.nan
        places[line, :, :] = 0
        if status[line] != 0:
            continue
        start, end = spans[line, -1, 0], spans[line, -1, 1]
        if kinds[line, -1] != NESTED or not _read_object(
            data, start, end, keys, offsets, columns, followers, checked, line, values, places
        ):
            status[line] = INEXACT


_NAMES = DOCUMENT_SIGNALS + LINE_SIGNALS
_FIELDS = pack(["id", "quality_signals"])


def read_signals(
    path: str, names: Sequence[str], line_signals: Sequence[str], lost: LostRecords, most_bytes: int = RECORD_BYTES
) -> pa.Table:
    """Read a signals file into a table of ``id``, ``signals`` and, if requested, ``line_signals``.

    A field of ``signals`` is null if the signal is null or absent. A sum over lines skips nulls.

    Args:
        path: local file or URL.
        names: fields of ``signals`` to read; unless all are read, the values of the others are not checked.
        line_signals: line-level signals to return as lists.
        lost: reports unreadable lines and damage of the file; the lines before the damage are returned.
        most_bytes: maximum bytes of a line.
    """
    rows = _Rows(names, line_signals)
    source = partial(read_steps, most_bytes=most_bytes, lines_read=lambda: rows.lines)
    try:
        with local_copy(path) as copy:
            try:
                rows.add_all(source(copy, on_loss=stop_at, checksums="last"))
            except (DamagedFileError, UncheckedDataError):
                rows.clear()
                rows.add_all(source(copy, on_loss=lost.add_loss), lost)
        rows.report(lost)
        lost.report()
    except DamagedFileError as damage:
        lost.report(str(damage))
    return rows.table()


def is_of_shard(table: pa.Table, part: str, path: str, bad_files: BadFiles) -> bool:
    """Return whether every id of a file begins with the path of its shard; if not, report the file."""
    own = pc.fill_null(pc.starts_with(table[0].combine_chunks(), f"{part}.json.gz/"), fill_value=False)
    if misplaced := table.num_rows - own.true_count:
        first = quoted(table[0][pc.index(own, value=False).as_py()].as_py())
        bad_files.report(
            path,
            f"belongs to another shard: {misplaced} of its {table.num_rows} ids do not begin with {part}.json.gz/, the "
            f"first is {first}; documents have null instead",
        )
    return not misplaced


def count_unread(known: Mapping[str, pa.Table], stages: Sequence[Stage]) -> int:
    """Count the documents of a shard if the first stages keep none by signals and duplicates alone, else return 0.

    ``known`` has the tables joined to the documents, by "signals" and "duplicates". The stages are also asked about
    documents without signals, listed as duplicates and not. The count is 0 if an id is repeated, or is listed as a
    duplicate and unknown.
    """
    if "signals" not in known:
        return 0
    rows = known["signals"].select(["id", "signals"])
    is_listed, others = pa.nulls(rows.num_rows, pa.bool_()), list[dict[str, Any]]([{}])
    if "duplicates" in known:
        listed_ids = known["duplicates"][0]
        if not pc.all(pc.is_in(listed_ids, rows["id"]), min_count=0).as_py():
            return 0
        is_listed, others = pc.is_in(rows["id"], listed_ids), [{"duplicate": False}, {"duplicate": True}]
    if pc.count_distinct(rows["id"]).as_py() < rows.num_rows:
        return 0
    left = rows.append_column("duplicate", is_listed)
    left = pa.concat_tables([left, pa.Table.from_pylist(others, left.schema)])
    for stage in stages:
        if (kept := stage.keeps_unread(left)) is None:
            return 0
        if not (left := left.filter(kept)).num_rows:
            return int(rows.num_rows)
    return 0


class _Rows:
    def __init__(self, names: Sequence[str], line_signals: Sequence[str]) -> None:
        self._kind, self._line_signals = signals_type(names), line_signals
        values = {field.name: column for column, field in enumerate(self._kind)}
        lists = {name: column for column, name in enumerate(line_signals)}
        columns = [[values.get(name, -1), values.get(f"{name}.sum", -1), lists.get(name, -1)] for name in _NAMES]
        is_all = len(self._kind) == len(SIGNALS_TYPE)
        self._signals = (*pack(f'"{name}"' for name in _NAMES), np.array(columns), is_all)
        """Keys, offsets, columns and ``checked`` of :func:`read_records`."""
        fields = [pa.field("id", pa.string()), pa.field("signals", self._kind)]
        if line_signals:
            fields.append(pa.field("line_signals", line_signals_type(line_signals)))
        self._schema = pa.schema(fields)
        self.clear()

    def clear(self) -> None:
        self._followers = np.append(np.arange(len(_NAMES)), 0)
        self._ids = Texts()
        self._pieces: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.float64]]] = []
        """Ends of the written ids, whether the signals of each were understood, and the values of those understood."""
        self._lists, self.lines = list[pa.StructArray](), 0
        self._late: list[dict[str, Any]] = []
        """Rows that only Python's ``json`` can read, in any order."""
        self._lost: list[tuple[int, str]] = []
        """Numbers of unreadable lines that have not been reported, with the reasons."""

    def add_all(self, steps: Iterable[memoryview | None], lost: LostRecords | None = None) -> None:
        for step in steps:
            if step is not None:
                self.add(step)
            elif lost is not None:
                self.report(lost)

    def add(self, lines: memoryview) -> None:
        data = np.frombuffer(lines, np.uint8)
        for found in find_fields(data, _FIELDS, [self._ids, None], np.ones(2, np.bool_), unchecked=1):
            count = len(found.starts)
            values = np.empty((count, len(self._kind)))
            places = np.empty((count, len(self._line_signals), 2), np.int64)
            has_id = found.status == 0
            arrays = found.spans, found.kinds, *self._signals, self._followers, found.status, values, places
            read_records(data, *arrays)
            for number in np.flatnonzero((found.status != 0) & (found.status != BLANK)).tolist():
                self._add_late(found.line(number), self.lines + number + 1)
            understood = found.status == 0
            ends = found.spans[has_id, 0, 1]
            self._pieces.append((ends, understood[has_id], values[understood]))
            if self._line_signals:
                self._lists.append(_lists(data, places[understood], self._line_signals))
            self.lines += count

    def _add_late(self, line: bytes, number: int) -> None:
        try:
            self._late.append(_row(parse_object(line), self._line_signals))
        except (ValueError, TypeError, IndexError) as error:
            is_known = type(error) is ValueError
            self._lost.append(
                (number, str(error) if is_known else "holds signals that are not lists of [start, end, value]")
            )

    def report(self, lost: LostRecords) -> None:
        for number, reason in self._lost:
            lost.add(f"line {number}", reason)
        self._lost = []

    def table(self) -> pa.Table:
        if not self._pieces:
            return self._schema.empty_table()
        ends, understood, values = (np.concatenate(each) for each in zip(*self._pieces, strict=True))
        ids = self._ids.take(ends, np.zeros(len(ends), np.bool_)).cast(pa.string())
        columns = [ids.filter(pa.array(understood)), _struct(self._kind, values)]
        if self._line_signals:
            columns.append(pa.concat_arrays(self._lists))
        table = pa.table(columns, schema=self._schema)
        if self._late:
            table = pa.concat_tables([table, pa.Table.from_pylist(self._late, schema=table.schema)]).combine_chunks()
        return table


def _struct(kind: pa.StructType, values: npt.NDArray[np.float64]) -> pa.StructArray:
    """Return structs of values [rows, fields], with null for NaN."""
    if not len(kind):
        return pa.array([{}] * len(values), kind)
    columns = values.T.ravel()
    bits = np.packbits(~np.isnan(columns), bitorder="little")
    every = pa.Array.from_buffers(pa.float64(), len(columns), [pa.py_buffer(bits), pa.py_buffer(columns)])
    arrays = [every.slice(field * len(values), len(values)) for field in range(len(kind))]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _lists(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], names: Sequence[str]) -> pa.StructArray:
    schema = pa.schema([pa.field("v", SPANS)])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    arrays = []
    for column in range(len(names)):
        texts = (data[start:end].tobytes() or b"null" for start, end in places[:, column].tolist())
        lines = b"".join(b'{"v":' + text.replace(b"\n", b" ") + b"}\n" for text in texts)
        if not lines:
            arrays.append(pa.array([], SPANS))
            continue
        blocks = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        lists = pyarrow.json.read_json(pa.BufferReader(lines), read_options=blocks, parse_options=options)
        arrays.append(pa.concat_arrays(lists["v"].chunks))
    return pa.StructArray.from_arrays(arrays, fields=list(line_signals_type(names)))


def _row(record: dict[str, Any], line_signals: Sequence[str]) -> dict[str, Any]:
    for name, kind in (("id", str), ("quality_signals", dict)):
        if not isinstance(record.get(name), kind):
            raise ValueError(f"has no field {name!r} of the right type; its fields: {listed(record)}")  # noqa: TRY004  # the line is wrong, not a caller
    spans = {
        name: None if (found := record["quality_signals"].get(name)) is None else [_span(item) for item in found]
        for name in _NAMES
    }
    signals = {name: found[0][2] if (found := spans[name]) else None for name in DOCUMENT_SIGNALS}
    for name in LINE_SIGNALS:
        total = 0.0
        for _, _, value in spans[name] or []:
            total += value or 0.0
        signals[f"{name}.sum"] = None if spans[name] is None else total
    lists = {name: spans[name] for name in line_signals}
    return {"id": without_surrogates(record["id"]), "signals": signals, "line_signals": lists}


def _span(item: Any) -> tuple[float, float, float | None]:
    start, end, value = item
    if not all(isinstance(number, Spelled) for number in ((start, end) if value is None else item)):
        raise TypeError("a span is [start, end, value]")
    measured = None if value is None else float(value)
    return float(start), float(end), None if measured is None or math.isnan(measured) else measured


PUBLIC_RELEASE = "https://data.together.xyz/redpajama-data-v2/v1.0.0"
ENDING = ".json.gz"
PARTITIONS = ("head", "middle", "tail")
SIMILARITIES = ("0.7", "0.8", "0.9", "1.0")

_RECORD = pa.schema(
    [
        pa.field("raw_content", pa.large_string(), nullable=False),
        *(pa.field(name, pa.string()) for name in ("url", "date_download", "language", "digest")),
        *(pa.field(name, pa.int64()) for name in ("length", "nlines")),
        *(pa.field(name, pa.string()) for name in ("source_domain", "title", "cc_segment")),
        *(pa.field(name, pa.int64()) for name in ("original_nlines", "original_length")),
        *(pa.field(name, pa.float64()) for name in ("language_score", "perplexity")),
        pa.field("bucket", pa.string()),
    ]
)
_OWN_FIELDS = list(_RECORD)[4:]

_PART = re.compile(r"(?P<snapshot>\d{4}-\d{2})/(?P<shard>\d+)/(?P<language>[^/_]+)_(?P<partition>head|middle|tail)")
_LISTING = re.compile(r"(?P<language>[^/-]+)-(?P<snapshot>\d{4}-\d{2})-(?P<kind>head_middle|tail)\.txt")


@sources.source("redpajama-v2")
class RedPajamaV2(sources.Source):
    """Documents of RedPajama-V2.

    Every row has ``id``, ``text`` (the release's ``raw_content``), ``url``, ``date``, ``source``, ``language``, and the
    release's other fields under their own names, except ``line_ids``. It also has ``duplicate`` (bool; null without a
    list, as for the tail) and ``signals`` (struct of float64, see :data:`SIGNALS_TYPE`; null if the release has none).
    On request it has ``line_signals`` (struct of lists of [start, end, value]) and ``signature_sim0.7`` to
    ``signature_sim1.0`` (lists of binary).

    Args:
        data_dir: a local release, or the URL of one.
        snapshots: names such as "2023-06"; empty for all in a release. Required for a release over http.
        languages: any of de, en, es, fr, it in the public release.
        partitions: any of head, middle and tail, from low to high perplexity; tail includes documents that no
            model could judge.
        shards: numbers of shards, or None for all.
        signals: whether to read the quality signals, or the names of those to read, as in the column ``signals``; the
            values of the others are not checked.
        line_signals: names of line-level signals to return as lists, or "all".
        minhash: whether to read the MinHash signatures.
        duplicates: whether to read the lists of duplicates.
        max_record_bytes: maximum bytes of a line of documents or signals; a longer one is a bad record.
        fetch_documents: "always", or "if_any_passes" to skip the documents of a shard if the first stages, by signals
            and duplicates alone, would keep none of them, nor one without signals. Outputs are the same. The manifest
            and the card count skipped documents as ``not_fetched``, the ledger omits them, and damage in their files is
            not noticed.
        on_bad_files: what to do about a missing, cut or corrupt file, and one with ids of another shard. Documents in
            gzip members before the damage are kept, and none after it, since ids are line numbers. If only signals,
            duplicates or signatures are damaged, the documents have null instead.
        storage_options: fsspec options for the stores that URLs name, such as ``{endpoint_url: …, anon: true}``. Keep
            credentials in the environment or a profile instead.
    """

    homepage: ClassVar[str] = "https://huggingface.co/datasets/togethercomputer/RedPajama-Data-V2"
    license: ClassVar[str] = "common-crawl-terms-of-use, https://commoncrawl.org/terms-of-use"
    omitted_defaults: ClassVar[tuple[str, ...]] = ("fetch_documents",)

    data_dir: str = PUBLIC_RELEASE
    snapshots: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en",)
    partitions: tuple[str, ...] = ("head", "middle")
    shards: tuple[int, ...] | None = None
    signals: bool | tuple[str, ...] = True
    line_signals: tuple[str, ...] = ()
    minhash: bool = False
    duplicates: bool = True
    max_record_bytes: int = RECORD_BYTES
    fetch_documents: Literal["always", "if_any_passes"] = "always"
    on_bad_files: sources.OnBadFiles = "error"
    storage_options: sources.StorageOptions = None

    _stages: ClassVar[Sequence[Stage]] = ()
    """The first stages of a run, which may need signals and duplicates alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sources.check_record_bytes(self.max_record_bytes)
        _check_known("partition", self.partitions, PARTITIONS)
        _check_known("line signal", self.line_signals, (*LINE_SIGNALS, "all"))
        _check_known("signal", self._signals, [field.name for field in SIGNALS_TYPE])
        if not self.languages or not self.partitions:
            raise SourceError(
                f"source {self.name!r} needs at least one language and one partition; e.g. languages=['en']"
            )

    @property
    def _line_signals(self) -> tuple[str, ...]:
        return LINE_SIGNALS if "all" in self.line_signals else tuple(dict.fromkeys(self.line_signals))

    @property
    def _signals(self) -> tuple[str, ...]:
        if isinstance(self.signals, tuple):
            return self.signals
        return tuple(field.name for field in SIGNALS_TYPE) if self.signals else ()

    def for_tokens(self, signals: Sequence[str]) -> Self:
        """Return the source with only these signals, if it reads all of them by default."""
        known = [field.name for field in SIGNALS_TYPE]
        if self.signals is not True or not signals or not {*signals} <= {*known}:
            return self
        return replace(self, signals=tuple(name for name in known if name in signals))

    def for_stages(self, stages: Sequence[Stage]) -> Self:
        """Return the source that skips shards of which these stages keep no documents, if the settings allow it."""
        first = itertools.takewhile(lambda stage: "keeps_unread" in vars(type(stage)), stages)
        source = copy.copy(self)  # it is sent to each task, so it holds only the stages to ask
        vars(source)["_stages"] = tuple(first) if self.signals and self.fetch_documents == "if_any_passes" else ()
        return source

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""
        fields = [*sources.DOCUMENTS, *_OWN_FIELDS]
        if self.duplicates:
            fields.append(pa.field("duplicate", pa.bool_()))
        if self.signals:
            fields.append(pa.field("signals", signals_type(self._signals)))
        if self._line_signals:
            fields.append(pa.field("line_signals", line_signals_type(self._line_signals)))
        if self.minhash:
            fields += [pa.field(f"signature_sim{similarity}", pa.list_(pa.binary())) for similarity in SIMILARITIES]
        return pa.schema(fields)

    @property
    def unique_ids(self) -> bool:
        """True, since ids are shards and line numbers."""
        return True

    def splits(self) -> dict[str, list[sources.Part]]:
        """List the requested shards: those in listings, and those in ``documents``, which listings may lack.

        Web servers do not list folders, so for them only the listings of the requested snapshots count.
        """
        base = absolute(self.located(self.data_dir))
        is_web = base.startswith(("http://", "https://"))
        found = self._listed(base, self._listings_by_name(base)) if is_web else self._found(base)
        found = sorted({match[0]: match for match in found}.values(), key=lambda match: match[0])
        wanted = [match for match in found if self._wants(match) and match["partition"] in self.partitions]
        if self.shards is not None:
            _check_known("shard", self.shards, sorted({int(match["shard"]) for match in wanted}))
            wanted = [match for match in wanted if int(match["shard"]) in self.shards]
        if not wanted:
            raise SourceError(
                f"{without_secrets(base)} holds no documents of partitions {', '.join(self.partitions)} in "
                f"{', '.join(self.languages)}; set data_dir, snapshots, languages, partitions or shards to what it "
                "holds"
            )
        parts = [sources.Part(match[0], tuple(self._files(base, match[0]).values())) for match in wanted]
        return {"train": sorted([*parts, *_unreachable_parts(base)], key=lambda part: part.name)}

    def read(self, part: sources.Part, bad_files: sources.BadFiles) -> Iterator[pa.Table]:
        """Read the documents of one shard, joined to its signals, duplicates and signatures."""
        if _PART.fullmatch(part.name) is None:
            reason = why_no_file(part.files[0]) or "is not a valid part name; its documents are skipped"
            bad_files.report(part.files[0], reason)
            return
        files = self._files(absolute(self.located(self.data_dir)), part.name)
        broken, known = len(bad_files.found), self._columns(part.name, files, bad_files)
        if self._stages and len(bad_files.found) == broken and (skipped := count_unread(known, self._stages)):
            bad_files.left_out["not_fetched"] += skipped
            return
        joined = {name: _Joined(table) for name, table in known.items()}
        reader, documents = LineReader(_RECORD), files["documents"]
        lost = sources.LostRecords(bad_files, documents)
        first = unread = 0
        try:
            for step in read_steps(
                documents,
                most_bytes=self.max_record_bytes,
                on_loss=stop_at_damage(lost.add_loss),
                checksums=bad_files.when_to_check(documents),
                lines_read=lambda: reader.lines,
            ):
                if step is not None:
                    reader.add(step)
                    continue
                lines = reader.take()
                numbers = pa.array(lines.numbers + first).cast(pa.string())
                ids = pc.binary_join_element_wise(f"{part.name}.json.gz", numbers, "/")
                for number, reason in lines.lost:
                    lost.add(f"line {number + first + 1}", reason)
                first += lines.count
                unread += lines.count - len(ids)
                if len(ids):
                    yield self._table(ids, lines.table, joined)
            lost.report()
            for name, table in joined.items():
                if unmatched := table.unmatched(unread):
                    bad_files.report(
                        files[name],
                        f"{unmatched} of its {table.table.num_rows} ids match none of the {first} lines of documents; "
                        "one of the two files is the wrong one",
                    )
        except DamagedFileError as damage:
            lost.report(f"{damage}; {first} lines were read before that", damage.records_lost)
        bad_files.has_unchecked = False

    def _found(self, base: str) -> list[re.Match[str]]:
        listings = [match for name in list_tree(join(base, "listings")) if (match := _LISTING.fullmatch(name))]
        # A remote release may have millions of files, so only the wanted snapshots are listed.
        folders = [f"{snapshot}/" for snapshot in self.snapshots if is_url(base)] or [""]
        names = [folder + name for folder in folders for name in list_tree(join(base, f"documents/{folder}"))]
        parts = [name.removesuffix(ENDING) for name in names if name.endswith(ENDING)]
        walked = [match for name in parts if (match := _PART.fullmatch(name))]
        if not listings and not walked:
            raise SourceError(
                f"{without_secrets(base)} is not a RedPajama-V2 release: it has neither listings/ nor "
                "documents/SNAPSHOT/SHARD/*.json.gz; set data_dir to the folder that holds documents/"
            )
        for what, asked in (("snapshot", self.snapshots), ("language", self.languages)):
            _check_known(what, asked, sorted({match[what] for match in [*listings, *walked]}), base)
        kinds = self._kinds()
        return walked + self._listed(
            base, [each[0] for each in listings if self._wants(each) and each["kind"] in kinds]
        )

    def _wants(self, found: re.Match[str]) -> bool:
        return found["language"] in self.languages and (not self.snapshots or found["snapshot"] in self.snapshots)

    def _kinds(self) -> list[str]:
        return sorted({"tail" if partition == "tail" else "head_middle" for partition in self.partitions})

    def _listings_by_name(self, base: str) -> list[str]:
        """Return the names of the listings of the wanted snapshots, for a server that cannot list them."""
        if not self.snapshots:
            raise SourceError(
                f"{without_secrets(base)} cannot list its snapshots: set them, e.g. snapshots=['2023-06']"
            )
        pairs = itertools.product(self.languages, self.snapshots, self._kinds())
        return [f"{language}-{snapshot}-{kind}.txt" for language, snapshot, kind in pairs]

    def _listed(self, base: str, listings: Sequence[str]) -> list[re.Match[str]]:
        found: list[re.Match[str]] = []
        for path, text in fetch_texts([join(base, f"listings/{name}") for name in listings]).items():
            if text is None:
                raise SourceError(
                    f"{without_secrets(path)} does not exist; snapshots are written like '2023-06', and the public "
                    "release has the languages de, en, es, fr, it"
                )
            for number, line in enumerate(text.splitlines(), 1):
                part = _PART.fullmatch(line.strip())
                if part is not None:
                    found.append(part)
                elif line.strip():
                    raise SourceError(
                        f"{without_secrets(path)}, line {number}: {quoted(line)} does not name a part such as "
                        "2023-06/0000/en_head: correct the line"
                    )
        return found

    def _files(self, base: str, part: str) -> dict[str, str]:
        files = {"documents": join(base, f"documents/{part}.json.gz")}
        if part.endswith("_tail"):
            return files
        if self.signals or self.line_signals:
            files["signals"] = join(base, f"quality_signals/{part}.signals.json.gz")
        if self.duplicates:
            files["duplicates"] = join(base, f"duplicates/{part}.duplicates.parquet")
        if self.minhash:
            files["minhash"] = join(base, f"minhash/{part}.minhash.parquet")
        return files

    def _columns(self, part: str, files: dict[str, str], bad_files: sources.BadFiles) -> dict[str, pa.Table]:
        """Read the tables to join to the documents, with the document id as first column, for each good file."""
        tables = {}
        if "signals" in files:
            lost = sources.LostRecords(bad_files, files["signals"], "documents without signals have null instead")
            wanted = self._signals, self._line_signals
            tables["signals"] = read_signals(files["signals"], *wanted, lost, self.max_record_bytes)
        if "duplicates" in files:
            tables["duplicates"] = _read_parquet(files["duplicates"], {"doc_id": pa.string()}, bad_files)
        if "minhash" in files:
            columns = {f"signature_sim{similarity}": pa.list_(pa.binary()) for similarity in SIMILARITIES}
            tables["minhash"] = _read_parquet(files["minhash"], {"id": pa.string(), **columns}, bad_files)
        return {
            name: table
            for name, table in tables.items()
            if table is not None and is_of_shard(table, part, files[name], bad_files)
        }

    def _table(self, ids: pa.StringArray, records: pa.Table, joined: dict[str, "_Joined"]) -> pa.Table:
        """Join documents to the rows of each file with their ids; null if there is none."""
        schema = self.schema()
        found: dict[str, Any] = {
            "id": ids,
            "text": records["raw_content"],
            "date": records["date_download"],
            "source": pa.repeat(self.name, len(ids)),
            **{name: records[name] for name in ("url", "language", *(field.name for field in _OWN_FIELDS))},
        }
        if "duplicates" in joined:
            found["duplicate"] = joined["duplicates"].find(ids).is_valid()
        for name in ("signals", "minhash"):
            if name in joined:
                values = joined[name].take(ids)
                found |= dict(zip(values.column_names, values.columns, strict=True))
        columns = [found[field.name] if field.name in found else pa.nulls(len(ids), field.type) for field in schema]
        return pa.table(columns, schema=schema)


class _Joined:
    """Rows of a file to join to documents by their first column, the document id; no id may be passed twice."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self._ids = table, table[0].combine_chunks()
        self._matched, self._is_in_order = 0, True
        """Number of rows matched so far, and whether all were in the order of the documents."""

    def find(self, ids: pa.StringArray) -> pa.Int32Array:
        rows = pc.index_in(ids, value_set=self._ids)
        self._matched += len(ids) - rows.null_count
        self._is_in_order = False
        return rows

    def take(self, ids: pa.StringArray) -> pa.Table:
        values = self.table.remove_column(0)
        if self._is_in_order and ids.equals(self._ids.slice(self._matched, len(ids))):
            self._matched += len(ids)
            return values.slice(self._matched - len(ids), len(ids))
        return values.take(self.find(ids))

    def unmatched(self, most: int) -> int:
        """Return the number of ids that match no document so far, or 0 if it is at most ``most``."""
        if self.table.num_rows - self._matched <= most:
            return 0
        rest = pc.count_distinct(self._ids).as_py() - self._matched
        return rest if rest > most else 0


def _read_parquet(path: str, columns: dict[str, pa.DataType], bad_files: sources.BadFiles) -> pa.Table | None:
    try:
        return read_columns(path, pa.schema(list(columns.items())))
    except DamagedFileError as damage:
        bad_files.report(path, f"{damage}; documents have null instead")
        return None


def _unreachable_parts(base: str) -> list[sources.Part]:
    """Return dangling links and unreadable folders among the documents as parts, for the policy on bad files."""
    folder = join(base, "documents")
    if is_url(base):
        return []
    names = [name for name in list_tree(folder) if not name.endswith(ENDING)]
    return [sources.Part(name, (join(folder, name),)) for name in unreachable(folder, names)]


def _check_known(what: str, asked: tuple[Any, ...], known: Any, where: str = "the source") -> None:
    for value in asked:
        if value not in known:
            spelled = ", ".join(str(name) for name in known) or "none"
            raise SourceError(f"{without_secrets(where)} has no {what} {value!r}; known: {spelled}")
