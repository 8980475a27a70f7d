"""What lists and words find in a column of URLs, in numbers, and in names for the few that are asked about."""

import re
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.kernels.texts import text_buffers
from longcrawl.text.refinedweb import _url_kernels as kernels
from longcrawl.text.refinedweb._url_lists import Lists, ascii_host, make_set
from longcrawl.text.refinedweb._url_word_kernels import match_words
from longcrawl.text.refinedweb._url_words import HARD, SOFT, StrictIn, UrlWords, load_folded

_BEYOND_ASCII = re.compile("(?:%[89a-fA-F][0-9a-fA-F])+")


def match_lists(urls: pa.Array, lists: Lists) -> npt.NDArray[np.int32]:
    """Look large strings up in all lists: int32, (URLs, ``COLUMNS`` of the kernels); a null is an empty URL."""
    found = _match(urls, lists)
    rows = np.flatnonzero(found[:, kernels.SPELLED])
    if len(rows):
        found[rows] = _match(_respelled(urls.take(pa.array(rows)), ascii_host), lists)
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
    data, offsets = text_buffers(_spelled(urls, respell, ascii_host))
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
    spelled = _spelled(urls, respell, ascii_host).to_pylist()
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
        made.append(before + spell(_BEYOND_ASCII.sub(lambda escapes: unquote(escapes[0]), host)) + after)
    return pa.array(made, pa.large_string())


def _unicode_host(host: str) -> str:
    return ".".join(_unicode_label(label) for label in host.split("."))


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
    path = data[after:stop].tobytes().decode("utf-8", "surrogateescape")
    return (host.removeprefix("www.") + path.lower())[:length]
