"""JSON strings turned into text, compiled by numba; beside :mod:`longcrawl.sources._kernels`, which finds them."""

# mypy: disable-error-code="assignment, no-any-return"

from typing import Any

from longcrawl.kernels.lookup import compiled
from longcrawl.sources._kernels import ABSENT, BACKSLASH, ESCAPED, ESCAPES, hex4


@compiled
def _put(out: Any, to: int, code: int) -> int:
    """Write one code point as UTF-8, a lone surrogate as U+FFFD, and give where the next one goes."""
    if 0xD800 <= code <= 0xDFFF:
        code = 0xFFFD
    if code < 0x80:
        out[to] = code
        return to + 1
    if code < 0x800:
        out[to], out[to + 1] = 0xC0 | code >> 6, 0x80 | code & 63
        return to + 2
    if code < 0x10000:
        out[to], out[to + 1], out[to + 2] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63, 0x80 | code & 63
        return to + 3
    out[to], out[to + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
    out[to + 2], out[to + 3] = 0x80 | code >> 6 & 63, 0x80 | code & 63
    return to + 4


@compiled
def unescape(data: Any, spans: Any, kinds: Any, out: Any, offsets: Any) -> None:
    r"""Write the texts of one field one after the other, ``\n`` and its like resolved.

    Args:
        data: uint8 [bytes], the text of all lines.
        spans: int64 [lines, 2] of the field, quotes left out.
        kinds: uint8 [lines]; a number, true or false is written as it is spelled, what is absent has no bytes.
        out: uint8, written; the summed length of the spans is enough.
        offsets: int64 [lines + 1], written: where each text starts in ``out``.

    """
    to = 0
    for line in range(len(spans)):
        offsets[line] = to
        if kinds[line] == ABSENT:
            continue
        at, end = spans[line, 0], spans[line, 1]
        if kinds[line] != ESCAPED:
            out[to : to + end - at] = data[at:end]
            to += end - at
            continue
        while at < end:
            byte = data[at]
            if byte != BACKSLASH:
                out[to] = byte
                to += 1
                at += 1
            elif data[at + 1] != 117:
                out[to] = ESCAPES[data[at + 1]]
                to += 1
                at += 2
            else:
                code = hex4(data, at + 2, end)
                at += 6
                if 0xD800 <= code < 0xDC00 and at + 6 <= end and data[at] == BACKSLASH and data[at + 1] == 117:
                    low = hex4(data, at + 2, end)
                    if 0xDC00 <= low < 0xE000:
                        code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00))
                        at += 6
                to = _put(out, to, code)
    offsets[len(spans)] = to
