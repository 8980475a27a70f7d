"""Byte-level JSON for lines of one object each, and its strings turned into text, compiled by numba.

The kernels take the common shape exactly and leave everything else to Python's ``json``: a line whose status is
not 0 was not understood here, which does not mean that it is wrong. A line that they accept, ``json.loads`` accepts,
with the same values; the tests hold them to it.
"""

# A byte automaton is one long chain of cases, and numba takes arguments by position:
# ruff: noqa: C901, FBT001, PLR0911, PLR0912
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

import numpy as np

from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.memory import (
    copy_block,
    find_line_feeds,
    lowest_bit,
    put_byte,
)
from longcrawl.sources._scalar_kernels import MINUS, QUOTE, end_of_word, is_utf8, read_number, read_string

ABSENT, NULL, PLAIN, ESCAPED, NUMBER, LITERAL, NESTED = range(7)
"""Kinds of field values: nothing, null, text without or with escapes, a number, true or false, a list or object."""

OTHER, BLANK, INEXACT = 1, 2, 3
"""The status of a line that was not understood, of one of white space, and of one whose number is left to Python."""

COMMA, COLON = 44, 58
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125


@compiled
def skip_space(data: Any, at: int, end: int) -> int:
    """Return where the next token of a line begins: no line feed is passed over."""
    while at < end and (data[at] == 32 or data[at] == 9 or data[at] == 13):
        at += 1
    return at


@compiled
def _scalar(data: Any, at: int, end: int) -> tuple[int, int]:
    """Return where the value that starts here ends (-1: not understood) and what it is."""
    if at >= end:
        return -1, ABSENT
    if data[at] == QUOTE:
        close, _, escaped = read_string(data, at + 1, end, 0)
        return (close + 1 if close >= 0 else -1), (ESCAPED if escaped else PLAIN)
    if data[at] == MINUS or 48 <= data[at] <= 57:
        return read_number(data, at, end)[1], NUMBER
    after = end_of_word(data, at, end)
    return after, (NULL if data[at] == 110 else LITERAL)


@compiled
def read_key(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """Read ``"key" :`` and return where the key starts and ends and where its value starts (-1: not understood)."""
    at = skip_space(data, at, end)
    if at >= end or data[at] != QUOTE:
        return 0, 0, -1
    close, _, escaped = read_string(data, at + 1, end, 0)
    if close < 0 or escaped:
        return 0, 0, -1
    after = skip_space(data, close + 1, end)
    if after >= end or data[after] != COLON:
        return 0, 0, -1
    return at + 1, close, skip_space(data, after + 1, end)


@compiled
def end_of_value(data: Any, at: int, end: int) -> tuple[int, int]:
    """Return where the value that starts here ends (-1: not understood) and what it is; checks lists and objects."""
    if at < end and data[at] != OPEN_LIST and data[at] != OPEN_OBJECT:
        return _scalar(data, at, end)
    depth, kinds = 0, np.uint64(0)
    while True:
        at = skip_space(data, at, end)
        if at >= end or depth > 60:
            return -1, NESTED
        opened = data[at] == OPEN_LIST or data[at] == OPEN_OBJECT
        if opened:
            is_object = data[at] == OPEN_OBJECT
            depth += 1
            kinds = kinds * np.uint64(2) + np.uint64(is_object)
            at = skip_space(data, at + 1, end)
            if at >= end:
                return -1, NESTED
            empty = data[at] == (CLOSE_OBJECT if is_object else CLOSE_LIST)
            if not empty:
                if is_object:
                    at = read_key(data, at, end)[2]
                    if at < 0:
                        return -1, NESTED
                continue
        else:
            at = _scalar(data, at, end)[0]
            if at < 0:
                return -1, NESTED
        while True:
            at = skip_space(data, at, end)
            if at >= end:
                return -1, NESTED
            in_object = kinds % np.uint64(2) == np.uint64(1)
            if data[at] == COMMA:
                at += 1
                if in_object:
                    at = read_key(data, at, end)[2]
                    if at < 0:
                        return -1, NESTED
                break
            if data[at] != (CLOSE_OBJECT if in_object else CLOSE_LIST):
                return -1, NESTED
            at += 1
            depth -= 1
            kinds //= np.uint64(2)
            if depth == 0:
                return at, NESTED


@compiled
def _matching(data: Any, at: int, end: int) -> int:
    """Return where the list or object that starts here ends, looking at brackets and quotes only, or -1."""
    depth = 0
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            at = read_string(data, at + 1, end, 0)[0]
            if at < 0:
                return -1
        elif byte in (OPEN_LIST, OPEN_OBJECT):
            depth += 1
        elif byte in (CLOSE_LIST, CLOSE_OBJECT):
            depth -= 1
        at += 1
        if depth == 0:
            return at
    return -1


@compiled
def _likely_end(data: Any, at: int, end: int) -> int:
    """Return where the list or object that starts here ends, or -1; of a line that ends in ``}}``, before the last one.

    That is a guess, for a caller who checks what is there.
    """
    while end > at and (data[end - 1] == 32 or data[end - 1] == 9 or data[end - 1] == 13):
        end -= 1
    if end - at >= 3 and data[end - 1] == CLOSE_OBJECT and data[end - 2] == CLOSE_OBJECT:
        return end - 1
    return _matching(data, at, end)


@compiled
def find_name(data: Any, start: int, end: int, names: Any, offsets: Any, guess: int) -> int:
    """Return the index of the name that equals ``data[start:end]``, trying ``guess`` first, or -1."""
    count = len(offsets) - 1
    for turn in range(count):
        index = (guess + turn) % count
        length = offsets[index + 1] - offsets[index]
        if length != end - start:
            continue
        same = True
        for offset in range(length):
            if data[start + offset] != names[offsets[index] + offset]:
                same = False
                break
        if same:
            return index
    return -1


@compiled
def find_line_feed(data: Any, at: int) -> int:
    """Return where the next line feed is, or the end of the data."""
    first = np.int64(data.ctypes.data)
    while at + 64 <= len(data):
        found = find_line_feeds(first + at)
        if found != np.uint64(0):
            return at + lowest_bit(found)
        at += 64
    while at < len(data) and data[at] != 10:
        at += 1
    return at


@compiled
def _copy(data: Any, at: int, end: int, out: int) -> None:
    """Write bytes to an address, and up to 63 more behind them."""
    first = np.int64(data.ctypes.data)
    while at + 64 <= len(data) and at < end:
        copy_block(out, first + at)
        at, out = at + 64, out + 64
    for place in range(at, end):
        put_byte(out + place - at, np.int64(data[place]))


@compiled
def _read_value(data: Any, at: int, out: int) -> tuple[int, int, int]:
    """Read a value that is wanted as text: where it ends (-1: not understood), what it is, and its bytes."""
    if at < len(data) and data[at] == QUOTE:
        close, written, _ = read_string(data, at + 1, len(data), out)
        return (close + 1 if close >= 0 else -1), PLAIN, written - out
    after, kind = end_of_value(data, at, len(data))
    if after < 0 or kind == NESTED:
        return -1, kind, 0
    if kind == NULL:
        return after, kind, 0
    _copy(data, at, after, out)
    return after, kind, after - at


@compiled
def read_line(
    data: Any,
    at: int,
    names: Any,
    offsets: Any,
    unchecked: int,
    addresses: Any,
    filled: Any,
    spans: Any,
    kinds: Any,
) -> int:
    """Find the wanted fields of one line, and return where it ends; -1 where it was not understood, -2 of a blank one.

    See :func:`find_fields`; ``spans`` and ``kinds`` are those of the line.
    """
    end = len(data)
    at = skip_space(data, at, end)
    if at >= end or data[at] != OPEN_OBJECT:
        return -2 if at >= end or data[at] == 10 else -1
    at = skip_space(data, at + 1, end)
    more = not (at < end and data[at] == CLOSE_OBJECT)
    guess = 0
    while more:
        key_start, key_end, at = read_key(data, at, end)
        if at < 0:
            return -1
        value_start, kind = at, NESTED
        index = find_name(data, key_start, key_end, names, offsets, guess)
        if index >= 0 and addresses[index] != 0:
            at, kinds[index], size = _read_value(data, at, addresses[index] + filled[index])
            spans[index, 1] = filled[index] + size
        elif index >= 0:
            if index == unchecked and at < end and (data[at] == OPEN_LIST or data[at] == OPEN_OBJECT):
                at = _likely_end(data, at, find_line_feed(data, at)) if kinds[index] == ABSENT else -1
            else:
                at, kind = end_of_value(data, at, end)
            quote = kind in (PLAIN, ESCAPED)
            spans[index, 0], spans[index, 1] = value_start + quote, at - quote
            kinds[index] = kind
        else:
            at, _ = end_of_value(data, at, end)
        if at < 0:
            return -1
        guess = index + 1 if index >= 0 else guess
        at = skip_space(data, at, end)
        if at >= end or (data[at] != COMMA and data[at] != CLOSE_OBJECT):
            return -1
        more = data[at] == COMMA
        at += more
    at = skip_space(data, at + 1, end)
    return at if at >= end or data[at] == 10 else -1


@compiled
def find_fields(
    data: Any,
    at: int,
    names: Any,
    offsets: Any,
    unchecked: int,
    addresses: Any,
    required: Any,
    filled: Any,
    starts: Any,
    ends: Any,
    spans: Any,
    kinds: Any,
    status: Any,
) -> int:
    """Find the wanted top-level fields of some lines, write those that are texts, and return how many lines there were.

    Args:
        data: uint8 [bytes], the text of all lines.
        at: where the first of these lines begins.
        names: uint8, the wanted names one after the other.
        offsets: int64 [names + 1], where each name starts.
        unchecked: index of the name whose list or object the caller checks itself, with its end; -1 for none.
        addresses: int64 [names], where the texts of each field are written one after the other; 0 for fields that are
            not. There is room for as many bytes as the data has from ``at`` on, and 64 more.
        required: bool [names], fields without which a line is not understood.
        filled: int64 [names], how many bytes are there already, and then are.
        starts: int64 [lines], written: the first byte of each line.
        ends: int64 [lines], written: one past its last byte.
        spans: int64 [lines, names, 2], written: first byte of the value and one past its last, quotes left out; of
            texts that are written, where they are among these.
        kinds: uint8 [lines, names], written: ``ABSENT`` to ``NESTED``; a text that is written is ``PLAIN``.
        status: uint8 [lines], written: 0 where the line was understood, else ``OTHER`` or ``BLANK``; then no text of
            it is kept.
    """
    line = 0
    while line < len(starts) and at < len(data):
        for index in range(len(required)):
            kinds[line, index] = ABSENT
            spans[line, index, 0] = spans[line, index, 1] = filled[index]
        after = read_line(data, at, names, offsets, unchecked, addresses, filled, spans[line], kinds[line])
        status[line] = BLANK if after == -2 else OTHER if after < 0 else 0
        starts[line], ends[line] = at, (after if after >= 0 else find_line_feed(data, at))
        for index in range(len(required)):
            if required[index] and kinds[line, index] <= NULL and status[line] == 0:
                status[line] = OTHER
        if status[line] == 0 and not is_utf8(data, at, ends[line]):
            status[line] = OTHER
        if status[line] == 0:
            for index in range(len(required)):
                filled[index] = spans[line, index, 1] if addresses[index] != 0 else 0
        at = ends[line] + 1
        line += 1
    return line


@compiled
def parse_numbers(data: Any, spans: Any, kinds: Any, values: Any, exact: Any) -> None:
    """Read the numbers of one field: float64 [lines], NaN where absent, and whether each is correctly rounded."""
    for line in range(len(spans)):
        values[line], exact[line] = np.nan, True
        if kinds[line] == NUMBER:
            values[line], _, exact[line] = read_number(data, spans[line, 0], spans[line, 1])
        elif kinds[line] > NULL:
            exact[line] = False


@compiled
def _find_in_object(data: Any, at: int, step: Any) -> tuple[int, int, int]:
    """Return start, end and kind of the value of a field of an object that has been checked; the last one counts."""
    end, start, stop, found = len(data), 0, 0, ABSENT
    at = skip_space(data, at + 1, end)
    while data[at] != CLOSE_OBJECT:
        key_start, key_end, at = read_key(data, at, end)
        same = key_end - key_start == len(step)
        place = 0
        while same and place < len(step):
            same = data[key_start + place] == step[place]
            place += 1
        after, kind = end_of_value(data, at, end)
        if same:
            start, stop, found = at, after, kind
        at = skip_space(data, after, end)
        if data[at] == COMMA:
            at = skip_space(data, at + 1, end)
    return start, stop, found


@compiled
def find_nested(
    data: Any, steps: Any, offsets: Any, status: Any, root_spans: Any, root_kinds: Any, spans: Any, kinds: Any
) -> None:
    """Find a field inside objects, in lines that have no field of its whole name.

    Args:
        data: uint8 [bytes], the text of all lines.
        steps: uint8, the names behind the first step one after the other.
        offsets: int64 [steps + 1], where each starts.
        status: uint8 [lines], 0 for lines that were understood.
        root_spans: int64 [lines, 2], where the value of the first step is.
        root_kinds: uint8 [lines], what it is.
        spans: int64 [lines, 2], where the value is; written for the lines in which it is found inside of an object.
        kinds: uint8 [lines], what it is; written like ``spans``.
    """
    for line in range(len(status)):
        if status[line] != 0 or kinds[line] != ABSENT:
            continue
        start, stop, kind = root_spans[line, 0], root_spans[line, 1], np.int64(root_kinds[line])
        for step in range(len(offsets) - 1):
            if kind != NESTED or data[start] != OPEN_OBJECT:
                kind = ABSENT
                break
            start, stop, kind = _find_in_object(data, start, steps[offsets[step] : offsets[step + 1]])
        if kind != ABSENT:
            quote = kind in (PLAIN, ESCAPED)
            spans[line, 0], spans[line, 1], kinds[line] = start + quote, stop - quote, kind


@compiled
def write_values(data: Any, required: bool, address: int, filled: int, status: Any, spans: Any, kinds: Any) -> int:
    """Write the values of one field that are text, and return how many bytes there are then.

    Args:
        data: uint8 [bytes], the text of all lines.
        required: whether a line without a value is left to Python.
        address: where to write; there is room for the values and 64 bytes more.
        filled: how many bytes are there already.
        status: uint8 [lines]; ``INEXACT`` is written for lines that are left to Python.
        spans: int64 [lines, 2], where the values are; the end of the text among those written is written as the second.
        kinds: uint8 [lines], what they are; texts that are written become ``PLAIN``.
    """
    for line in range(len(status)):
        kind, size = kinds[line], 0
        if status[line] == 0:
            start, stop = spans[line, 0], spans[line, 1]
            if kind == NESTED or (required and kind <= NULL):
                status[line] = INEXACT
            elif kind in (PLAIN, ESCAPED):
                size = read_string(data, start, len(data), address + filled)[1] - (address + filled)
                kinds[line] = PLAIN
            elif kind > NULL:
                _copy(data, start, stop, address + filled)
                size = stop - start
                kinds[line] = PLAIN
        filled += size
        spans[line, 1] = filled
    return filled
