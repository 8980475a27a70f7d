"""What lists and words find in a column of URLs, in numbers, and in names for the few that are asked about.

Words are parts of what is left of a URL without its marks, or whole words.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.addresses import plain_escapes, spell_host, without_dot_segments
from longcrawl.kernels.compiling import compiled, forced_inline
from longcrawl.kernels.lookup import find_word
from longcrawl.kernels.texts import text_buffers
from longcrawl.kernels.word_lists import Vocabulary
from longcrawl.text.refinedweb import _url_kernels as kernels
from longcrawl.text.refinedweb._url_kernels import find_authority, next_byte
from longcrawl.text.refinedweb._url_lists import Lists, make_set
from longcrawl.text.refinedweb._url_words import (
    BREAK,
    HARD,
    SOFT,
    STRICT,
    Automaton,
    StrictIn,
    UrlWords,
    WordLists,
    load_folded,
)

_PATH = re.compile(r"([^/?#]*)([^?#]*)")
_BEYOND_ASCII = re.compile("(?:%[89a-fA-F][0-9a-fA-F])+")
Bytes = npt.NDArray[np.uint8]

_NOUGHT, _LOWER_A, _PERCENT, _BEYOND = ord("0"), ord("a"), ord("%"), 128


@compiled
def _next_point(data: Bytes, at: int, stop: int) -> Any:
    """Read one character, escaped or not: its code point, 0 in bytes that are not UTF-8, and where the next begins."""
    first, at = next_byte(data, at, stop)
    if first < _BEYOND:
        return first, at
    more = 1 if first >> 5 == 6 else 2 if first >> 4 == 14 else 3 if first >> 3 == 30 else 0
    point, place = first & (0x3F >> more), at
    for _ in range(more):
        if place >= stop:
            return 0, at
        byte, place = next_byte(data, place, stop)
        if byte >> 6 != 2:
            return 0, at
        point = point << 6 | (byte & 0x3F)
    # An overlong form, such as C1 B0 for p, is not UTF-8.
    least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
    return (point, place) if more and least <= point < 0x110000 else (0, at)


@compiled
def _read_points(data: Bytes, start: int, stop: int, folded: Any, points: Any) -> int:
    """Write the characters of a URL in lower case, 0 or BREAK for those that are of no word; return how many."""
    count, at = 0, start
    while at < stop:
        byte = data[at]
        if byte < _BEYOND and byte != _PERCENT:
            points[count] = folded[byte]
            at += 1
        else:
            point, at = _next_point(data, at, stop)
            points[count] = folded[point]
        count += 1
    return count


@forced_inline
def _symbol(point: int) -> int:
    """Return the place of a digit or a letter in the automaton's alphabet, -1 for another character."""
    if point >= _BEYOND or point <= BREAK:
        return -1
    return point - _LOWER_A + 10 if point >= _LOWER_A else point - _NOUGHT


@compiled
def _find_parts(points: Any, count: int, strict: Automaton, seen: Any) -> int:
    """Mark the words that digits and letters a-z spell, whatever but BREAK stands between them, and count them."""
    state, found = 0, 0
    for at in range(count):
        if points[at] == BREAK:
            state = 0
        symbol = _symbol(np.int64(points[at]))
        if symbol < 0:
            continue
        state = strict.steps[state, symbol]
        ending = state
        while ending != 0:
            word = strict.words[ending]
            if word >= 0 and not seen[word]:
                seen[word] = True
                found += 1
            ending = strict.shorter[ending]
    return found


@compiled
def _find_words(points: Any, count: int, whole: Vocabulary, kinds: Any, seen: Any, counts: Any) -> None:
    """Mark the whole words that are listed, and count the different ones of each kind."""
    at = 0
    while at < count:
        start = at
        while at < count and points[at] > BREAK:
            at += 1
        if at > start:
            word = find_word(whole, 0, points, start, at)
            if word >= 0 and not seen[word]:
                seen[word] = True
                counts[kinds[word]] += 1
        at += 1


@compiled
def match_words(
    data: Bytes, offsets: Any, folded: Any, lists: WordLists, points: Any, parts: Any, words: Any, counts: Any
) -> None:
    """Count the different words of every URL.

    Args:
        data: bytes of the URLs.
        offsets: where each starts and the last ends.
        folded: lower case of every code point, 0 for those of no word, BREAK for those that no strict word spans.
        lists: what is looked for.
        points: as long as the longest URL.
        parts: bool, (URLs or 1, strict words): gets which were found; with one row those of the last URL.
        words: bool, (URLs or 1, hard and soft words): the same of these.
        counts: of zeros, (URLs, 3): STRICT, HARD and SOFT.
    """
    strict, whole, kinds = lists.automaton, lists.vocabulary, lists.kinds
    for row in range(len(offsets) - 1):
        _, _, _, first, stop = find_authority(data, offsets[row], offsets[row + 1])
        count = _read_points(data, first, stop, folded, points)
        line = min(row, len(parts) - 1)
        parts[line, :] = False
        words[line, :] = False
        counts[row, STRICT] = _find_parts(points, count, strict, parts[line])
        _find_words(points, count, whole, kinds, words[line], counts[row])


def match_lists(urls: pa.Array, lists: Lists) -> npt.NDArray[np.int32]:
    """Look large strings up in all lists: int32, (URLs, ``COLUMNS`` of the kernels); a null is an empty URL."""
    found = _match(urls, lists)
    rows = np.flatnonzero(found[:, kernels.SPELLED])
    if len(rows):
        found[rows] = _match(_respelled(urls.take(pa.array(rows)), spell_host), lists)
        found[rows, kernels.SPELLED] = 1
    return found


def _match(urls: pa.Array, lists: Lists) -> npt.NDArray[np.int32]:
    data, offsets = text_buffers(urls)
    found = np.zeros((len(urls), kernels.COLUMNS), np.int32)
    kernels.match_lists(data, offsets, lists, np.empty(_longest(offsets), np.uint8), found)
    return found


def match_url_words(
    urls: pa.Array, words: UrlWords, respell: npt.NDArray[np.bool_], strict_in: StrictIn = "parts"
) -> npt.NDArray[np.int64]:
    """Count the different strict, hard and soft words of large strings: int64, (URLs, 3).

    ``respell`` says which hosts have other spellings, as ``SPELLED`` of the kernels does.
    """
    return _count_words(urls, words, respell, 1, strict_in)[0]


def url_hosts(urls: pa.Array) -> pa.Array:
    """Return the host of each URL, a column of large strings: in lower case and Punycode, empty where there is none."""
    nothing = make_set([])
    respell = match_lists(urls, Lists(nothing, nothing, nothing, nothing))[:, kernels.SPELLED] > 0
    data, offsets = text_buffers(_spelled(urls, respell, spell_host))
    out, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.empty(len(offsets), np.int64)
    kernels.write_hosts(data, offsets, out, ends)
    # Escapes may have been of any bytes.
    names = [out[start:stop].tobytes().decode("utf-8", "replace") for start, stop in pairwise(ends.tolist())]
    return pa.array(names, pa.large_string())


def name_matches(
    urls: pa.Array, lists: Lists, words: UrlWords | None, strict_in: StrictIn = "parts"
) -> list[dict[str, str]]:
    """Name the ``host`` of each URL, and by rule all that is listed of it: empty for none, words joined by commas."""
    found, hosts = match_lists(urls, lists), url_hosts(urls).to_pylist()
    respell = found[:, kernels.SPELLED] > 0
    spelled = _spelled(urls, respell, spell_host).to_pylist()
    seen = None if words is None else _count_words(urls, words, respell, len(urls), strict_in)
    named = []
    for row, host in enumerate(hosts):
        names = {
            "host": host,
            "blocked_domain": _parent(host, found[row, kernels.BLOCKED]),
            "blocked_url": _address(spelled[row] or "", host, found[row, kernels.URL]),
            "curated_source": _parent(host, found[row, kernels.CURATED]),
        }
        if words is not None and seen is not None:
            whole = np.flatnonzero(seen[2][row])
            names["strict_word"] = ", ".join(words.strict[at] for at in np.flatnonzero(seen[1][row]))
            for rule, kind in (("hard_word", HARD), ("max_soft_words", SOFT)):
                names[rule] = ", ".join(words.whole[at] for at in whole if words.lists.kinds[at] == kind)
        named.append(names)
    return named


def _spelled(urls: pa.Array, chosen: npt.NDArray[np.bool_], spell: Callable[[str], str]) -> pa.Array:
    """Return URLs of which the chosen ones have their hosts in another spelling."""
    mask = pa.array(chosen)
    return pc.replace_with_mask(urls, mask, _respelled(urls.filter(mask), spell)) if chosen.any() else urls


def _respelled(urls: pa.Array, spell: Callable[[str], str]) -> pa.Array:
    data, offsets = text_buffers(urls)
    spans = np.empty((len(urls), 2), np.int64)
    kernels.find_spans(data, offsets, spans)
    made = []
    for row, (start, stop) in enumerate(spans.tolist()):
        before, host, after = (
            data[first:last].tobytes().decode()
            for first, last in ((offsets[row], start), (start, stop), (stop, offsets[row + 1]))
        )
        made.append(before + spell(host) + (_without_dots(after) if spell is spell_host else after))
    return pa.array(made, pa.large_string())


def _without_dots(after: str) -> str:
    """Return what follows a host without the dot segments of its path; a port comes before."""
    path = _PATH.match(after)
    assert path is not None  # it matches anything
    return path[1] + without_dot_segments(path[2]) + after[path.end() :]


def _unicode_host(host: str) -> str:
    unescaped = _BEYOND_ASCII.sub(lambda escapes: unquote(escapes[0]), host)
    return ".".join(_unicode_label(label) for label in unescaped.split("."))


def _unicode_label(label: str) -> str:
    if not label.lower().startswith("xn--"):
        return label
    try:
        decoded = label[4:].encode("ascii").decode("punycode")
        decoded.encode()
    except UnicodeError:
        return label
    return decoded


def _count_words(
    urls: pa.Array, words: UrlWords, respell: npt.NDArray[np.bool_], rows: int, strict_in: StrictIn
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Count words, and mark which they were in the last ``rows`` URLs."""
    data, offsets = text_buffers(_spelled(urls, respell, _unicode_host))
    counts = np.zeros((len(urls), 3), np.int64)
    parts, whole = np.zeros((rows, len(words.strict)), np.bool_), np.zeros((rows, len(words.whole)), np.bool_)
    points = np.empty(_longest(offsets), np.uint32)
    match_words(data, offsets, load_folded(strict_in), words.lists, points, parts, whole, counts)
    return counts, parts, whole


def _longest(offsets: npt.NDArray[np.int64]) -> int:
    return int(np.diff(offsets).max(initial=0)) + 1


def _parent(host: str, length: int) -> str:
    """Return the listed end of a host; one label that is not all of it was listed with a dot before."""
    if not length:
        return ""
    name = host[-length:]
    return name if "." in name or name == host else f".{name}"


def _address(url: str, host: str, length: int) -> str:
    """Return the listed beginning of a URL: host without www. and path."""
    if not length:
        return ""
    data = np.frombuffer(url.encode(), np.uint8)
    _, _, after, _, stop = kernels.find_authority(data, 0, len(data))
    # Bytes have a lower case in ASCII alone, as the kernels do.
    listed = (host.removeprefix("www.").encode() + data[after:stop].tobytes().lower())[:length]
    return plain_escapes(listed.decode("utf-8", "surrogateescape"))
