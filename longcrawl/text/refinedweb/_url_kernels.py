"""The host of a URL, and whether lists of domains and of addresses have it."""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.text.refinedweb._url_lists import HashSet, Lists

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

HOST, BLOCKED, ALLOWED, CURATED, URL, SPELLED = range(6)
COLUMNS = 6
"""What ``match_lists`` finds of a URL, in bytes and 0 for none: its host, the longest parent domain of it that is
blocked, allowed and curated, and the longest beginning of host and path that is listed as an address; and 1 if it is to
be spelled: letters beyond ASCII, escaped or not, a label in Punycode, numbers or IPv6 in the host, dots in the path."""

_MOST_PARENTS = 128

_U = np.uint64
_SEED = _U(0x9E3779B97F4A7C15)
_STEP = _U(0xD6E8FEB86659FD93)
_FINISH = _U(0xFF51AFD7ED558CCD)

_DOT, _SLASH, _COLON, _AT, _PERCENT = ord("."), ord("/"), ord(":"), ord("@"), ord("%")
_PLUS, _MINUS, _UNDERSCORE, _TILDE, _TWO = ord("+"), ord("-"), ord("_"), ord("~"), ord("2")
_BACKSLASH, _QUESTION, _NUMBER_SIGN, _AMPERSAND, _SEMICOLON = ord("\\"), ord("?"), ord("#"), ord("&"), ord(";")
_OPEN, _CLOSE, _LESS, _GREATER, _STAR = ord("["), ord("]"), ord("<"), ord(">"), ord("*")
_NOUGHT, _NINE, _UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = ord("0"), ord("9"), ord("A"), ord("Z"), ord("a"), ord("z")


@forced_inline
def _stepped(state: np.uint64, byte: int) -> np.uint64:
    # One-to-one for every byte, so that equally long names differ until the very end.
    state = (state ^ _U(byte)) * _STEP
    return state ^ (state >> _U(29))


@forced_inline
def _finished(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _U(32))) * _FINISH
    return state ^ (state >> _U(31))


@forced_inline
def _lowered(byte: int) -> int:
    return byte + 32 if _UPPER_A <= byte <= _UPPER_Z else byte


@forced_inline
def _hex_digit(byte: int) -> int:
    """Return what a hexadecimal digit stands for, -1 for another byte."""
    if _NOUGHT <= byte <= _NINE:
        return byte - _NOUGHT
    byte |= 32
    return byte - _LOWER_A + 10 if _LOWER_A <= byte <= _LOWER_A + 5 else -1


@forced_inline
def next_byte(data: Bytes, at: int, stop: int) -> Any:
    """Read one byte, or one escape such as %41: the byte, and where the next one begins."""
    byte = np.int64(data[at])
    if byte == _PERCENT and at + 2 < stop:
        high, low = _hex_digit(np.int64(data[at + 1])), _hex_digit(np.int64(data[at + 2]))
        if high >= 0 and low >= 0:
            return high * 16 + low, at + 3
    return byte, at + 1


@compiled
def contains(listed: HashSet, name: np.uint64) -> bool:
    """Return whether a hash is one of a set."""
    bucket = np.int64(name >> _U(listed.shift))
    for place in range(listed.starts[bucket], listed.starts[bucket + 1]):
        if listed.hashes[place] >= name:
            return listed.hashes[place] == name
    return False


@compiled
def _after_scheme(data: Bytes, start: int, stop: int) -> int:
    """Return where what follows ``scheme://`` or ``//`` begins, -1 where a URL has neither."""
    at = start
    while at < stop and _is_of_scheme(np.int64(data[at])):
        at += 1
    if at > start:
        if at == stop or data[at] != _COLON or not _LOWER_A <= data[start] | 32 <= _LOWER_Z:
            return -1
        at += 1
    if at + 1 < stop and _is_slash(data[at]) and _is_slash(data[at + 1]):
        return at + 2
    return -1


@forced_inline
def _is_of_scheme(byte: int) -> bool:
    return _LOWER_A <= byte | 32 <= _LOWER_Z or _NOUGHT <= byte <= _NINE or byte in (_PLUS, _MINUS, _DOT)


@forced_inline
def _is_slash(byte: int) -> bool:
    # Browsers take a backslash for a slash.
    return byte in (_SLASH, _BACKSLASH)


@compiled
def _looks_like_host(data: Bytes, start: int, stop: int) -> bool:
    """Return whether something without a scheme begins as ``example.org/`` or ``example.org:8080`` do."""
    dotted = False
    for at in range(start, stop):
        byte = data[at]
        if byte in (_SLASH, _QUESTION, _NUMBER_SIGN):
            break
        if byte == _COLON:
            return dotted and at + 1 < stop and _NOUGHT <= data[at + 1] <= _NINE
        if byte == _AT:
            return False
        dotted = dotted or (byte == _DOT and at > start)
    return dotted


@compiled
def find_authority(data: Bytes, start: int, stop: int) -> Any:
    """Find the host in a URL: where it starts and stops, where the path starts, where the URL itself does.

    The host is empty where there is none. Space, control characters and angle brackets around the URL are passed over.
    """
    while start < stop and (data[start] <= 32 or data[start] == _LESS):
        start += 1
    while stop > start and (data[stop - 1] <= 32 or data[stop - 1] == _GREATER):
        stop -= 1
    first = _after_scheme(data, start, stop)
    if first < 0:
        if not _looks_like_host(data, start, stop):
            return start, start, start, start, stop
        first = start
    after = first
    while after < stop and data[after] not in (_SLASH, _QUESTION, _NUMBER_SIGN, _BACKSLASH):
        after += 1
    host, last = _without_user_and_port(data, first, after)
    return host, last, after, first, stop


@compiled
def _without_user_and_port(data: Bytes, first: int, after: int) -> Any:
    """Return where the host starts and stops in what stands between the slashes."""
    host = first
    for at in range(first, after):
        if data[at] == _AT:
            host = at + 1
    if host < after and data[host] == _OPEN:
        host, end = host + 1, _CLOSE
    else:
        end = _COLON
    last = host
    while last < after and data[last] != end:
        last += 1
    return host, last


@compiled
def _read_host(data: Bytes, start: int, stop: int, host: Bytes) -> int:
    """Write a host in lower case, without escapes and dots at its end; return its length."""
    length, at = 0, start
    while at < stop:
        byte, at = next_byte(data, at, stop)
        host[length] = _lowered(byte)
        length += 1
    while length > 0 and host[length - 1] == _DOT:
        length -= 1
    return length


@compiled
def find_spans(data: Bytes, offsets: Any, spans: Any) -> None:
    """Write where the host of every URL starts and stops: (URLs, 2)."""
    for row in range(len(offsets) - 1):
        spans[row, 0], spans[row, 1], _, _, _ = find_authority(data, offsets[row], offsets[row + 1])


@compiled
def _is_spelled(host: Bytes, length: int) -> bool:
    for at in range(length):
        if host[at] >= 128 or host[at] == _COLON or _is_punycode(host, at, length):
            return True
    return _is_numeric(host, 0, length)


@compiled
def _is_numeric(host: Bytes, start: int, stop: int) -> bool:
    """Return whether the last label of a host begins with a digit, unless it is an address in its one spelling."""
    label = stop
    while label > start and host[label - 1] != _DOT:
        label -= 1
    if label == stop or not _NOUGHT <= host[label] <= _NINE:
        return False
    parts, at = 0, start
    while at < stop:
        first, value = at, 0
        while at < stop and at - first < 4 and _NOUGHT <= host[at] <= _NINE:
            value = value * 10 + host[at] - _NOUGHT
            at += 1
        if at == first or value > 255 or (at - first > 1 and host[first] == _NOUGHT):
            return True
        parts += 1
        if at < stop:
            if host[at] != _DOT or at + 1 == stop:
                return True
            at += 1
    return parts != 4


@forced_inline
def _is_punycode(host: Bytes, at: int, length: int) -> bool:
    """Return whether a label begins here that begins with xn--."""
    if host[at] != 120 or at + 4 >= length or (at > 0 and host[at - 1] != _DOT):
        return False
    return host[at + 1] == 110 and host[at + 2] == 45 and host[at + 3] == 45


@compiled
def write_hosts(data: Bytes, offsets: Any, out: Bytes, ends: Any) -> None:
    """Write the host of every URL to ``out``, one after the other; ``ends`` are the offsets, 0 first."""
    ends[0] = 0
    for row in range(len(offsets) - 1):
        first, last, _, _, _ = find_authority(data, offsets[row], offsets[row + 1])
        ends[row + 1] = ends[row] + _read_host(data, first, last, out[ends[row] :])


@compiled
def _is_number(host: Bytes, length: int) -> bool:
    """Return whether a host is an address of numbers, of which no part is a parent domain."""
    at = length - 1
    while at >= 0 and _NOUGHT <= host[at] <= _NINE:
        at -= 1
    if at < length - 1 and (at < 0 or host[at] == _DOT):
        return True
    at = 0
    while at < length and host[at] != _COLON:
        at += 1
    return at < length


@compiled
def _match_parents(host: Bytes, length: int, lists: Lists, found: Any) -> None:
    """Look a host and its parent domains up, the shortest first, so that the longest that is listed stays."""
    count, state = 0, _SEED
    parents = not _is_number(host, length)
    for at in range(length - 1, -1, -1):
        # A host that DNS allows has no more labels than this.
        if host[at] == _DOT and parents and count < _MOST_PARENTS:
            # A lone label is looked up as .xxx is listed: everything below xxx.
            _look_up(_finished(state if count else _stepped(state, _DOT)), length - at - 1, lists, found)
            count += 1
        state = _stepped(state, np.int64(host[at]))
    _look_up(_finished(state), length, lists, found)


@compiled
def _look_up(name: np.uint64, length: int, lists: Lists, found: Any) -> None:
    if contains(lists.blocked, name):
        found[BLOCKED] = length
    if contains(lists.allowed, name):
        found[ALLOWED] = length
    if contains(lists.curated, name):
        found[CURATED] = length


@forced_inline
def _is_unreserved(byte: int) -> bool:
    if _LOWER_A <= byte | 32 <= _LOWER_Z or _NOUGHT <= byte <= _NINE:
        return True
    return byte in (_MINUS, _DOT, _UNDERSCORE, _TILDE)


@forced_inline
def _next_of_path(data: Bytes, at: int, stop: int) -> Any:
    """Read one byte in lower case, or one escape such as %7E that means the same without (RFC 3986, section 2.3)."""
    byte, after = next_byte(data, at, stop)
    if after > at + 1 and not _is_unreserved(byte):
        byte, after = np.int64(data[at]), at + 1
    return _lowered(byte), after


@compiled
def _has_dots(data: Bytes, start: int, stop: int) -> bool:
    """Return whether a path may have segments that are dots, escaped or not."""
    for at in range(start, stop - 1):
        if data[at] in (_QUESTION, _NUMBER_SIGN):
            return False
        is_escape = at + 2 < stop and data[at + 1] == _PERCENT and data[at + 2] == _TWO
        if data[at] == _SLASH and (data[at + 1] == _DOT or is_escape):
            return True
    return False


@forced_inline
def _ends_step(byte: int) -> bool:
    """Return whether what is before this byte may be listed as an address, with everything below it."""
    return byte in (_SLASH, _QUESTION, _NUMBER_SIGN, _AMPERSAND, _SEMICOLON)


@forced_inline
def _starts_with_www(data: Bytes, start: int, stop: int) -> bool:
    if start + 4 >= stop or data[start + 3] != _DOT:
        return False
    return data[start] | 32 == 119 and data[start + 1] | 32 == 119 and data[start + 2] | 32 == 119


@compiled
def _match_address(data: Bytes, after: int, stop: int, host: Bytes, length: int, listed: HashSet) -> int:
    """Return the bytes of host (without www.) and path up to the last step that is listed, 0 where none is."""
    longest, state = 0, _SEED
    first = 4 if _starts_with_www(host, 0, length) else 0
    for at in range(first, length):
        state = _stepped(state, np.int64(host[at]))
    at = after
    while at < stop:
        if _ends_step(np.int64(data[at])) and contains(listed, _finished(state)):
            longest = length - first + at - after
        byte, at = _next_of_path(data, at, stop)
        state = _stepped(state, byte)
    return length - first + stop - after if contains(listed, _finished(state)) else longest


@allocating
def match_lists(data: Bytes, offsets: Any, lists: Lists, host: Bytes, found: Any) -> None:
    """Look every URL up in all lists; ``found``, of zeros, has shape (URLs, COLUMNS), ``host`` room for the longest."""
    addresses = lists.addresses
    for row in range(len(offsets) - 1):
        first, last, after, _, stop = find_authority(data, offsets[row], offsets[row + 1])
        length = _read_host(data, first, last, host)
        found[row, HOST] = length
        if length:
            found[row, SPELLED] = _is_spelled(host, length) or (
                len(addresses.hashes) > 0 and _has_dots(data, after, stop)
            )
            _match_parents(host, length, lists, found[row])
            if len(addresses.hashes):
                found[row, URL] = _match_address(data, after, stop, host, length, addresses)


HASHED, SPELL, OTHER, LABEL = range(4)
"""Lines of a list: hashed as they stand, to be spelled first, in another form than one name, and of one label."""


@compiled
def hash_lines(data: Bytes, addresses: bool, hashes: Hashes, spans: Any) -> int:  # noqa: C901, FBT001  # a state machine; by position: numba
    """Hash every line of a list of domains, or of addresses; return how many there were.

    A line ends at a number sign after white space; blank lines and those that begin with one are none.
    ``spans``, shape (lines, 3), gets where the name of a line starts and stops, and in the third column HASHED, SPELL,
    OTHER or LABEL. The hash of SPELL and OTHER is of no use; the span of OTHER is the whole line.
    """
    count, at, size = 0, 0, len(data)
    while at < size:
        while at < size and data[at] <= 32:
            at += 1
        start = at
        while at < size and data[at] > 32:
            at += 1
        stop = at
        while at < size and data[at] <= 32 and data[at] != 10:
            at += 1
        is_alone = at == size or data[at] in (10, _NUMBER_SIGN)
        while at < size and data[at] != 10:
            at += 1
        if start == stop or data[start] == _NUMBER_SIGN:
            continue
        kind = _kind_of_name(data, start, stop, addresses) if is_alone else OTHER
        if kind == OTHER:
            stop = at
            while data[stop - 1] <= 32:
                stop -= 1
        else:
            start, stop = _trimmed(data, start, stop, addresses)
            if start == stop:
                continue
            hashes[count] = _hash_line(data, start, stop, addresses)
            if kind == HASHED and not addresses and _is_label(data, start, stop):
                kind = LABEL
        spans[count, 0], spans[count, 1], spans[count, 2] = start, stop, kind
        count += 1
    return count


@compiled
def hash_names(data: Bytes, offsets: Any, addresses: bool, hashes: Hashes) -> None:  # noqa: FBT001  # by position: numba
    """Hash domains or addresses that are spelled already, end to end."""
    for row in range(len(offsets) - 1):
        hashes[row] = _hash_line(data, offsets[row], offsets[row + 1], addresses)


@forced_inline
def _is_of_host(byte: int) -> bool:
    if _LOWER_A <= byte | 32 <= _LOWER_Z or _NOUGHT <= byte <= _NINE:
        return True
    return byte >= 128 or byte in (_MINUS, _UNDERSCORE, _DOT)


@compiled
def _kind_of_name(data: Bytes, start: int, stop: int, addresses: bool) -> int:  # noqa: C901, FBT001  # as hash_lines
    """Return HASHED or SPELL for a domain, or for an address, OTHER for what is neither."""
    kind, last = HASHED, stop
    if addresses:
        first = _after_scheme(data, start, stop)
        start = start if first < 0 else first
        last = start
        while last < stop and data[last] not in (_SLASH, _QUESTION, _NUMBER_SIGN):
            if not _is_of_host(np.int64(data[last])):
                return OTHER
            last += 1
        if _has_dots(data, last, stop):
            kind = SPELL
    elif stop - start > 2 and data[start] == _STAR and data[start + 1] == _DOT:
        start += 1
    for at in range(start, last):
        if not _is_of_host(np.int64(data[at])):
            return OTHER
    while last > start and data[last - 1] == _DOT:
        last -= 1
    if _is_numeric(data, start, last):
        return SPELL if addresses else OTHER
    for at in range(start, last):
        if data[at] >= 128:
            kind = SPELL
    return kind


@compiled
def _is_label(data: Bytes, start: int, stop: int) -> bool:
    for at in range(start, stop):  # noqa: SIM110  # numba has no generators
        if data[at] == _DOT or data[at] >= 128:
            return False
    return True


@compiled
def _trimmed(data: Bytes, start: int, stop: int, addresses: bool) -> Any:  # noqa: FBT001  # as above
    """Leave out of a line what makes no difference: *. and dots around a domain, scheme, www. and slashes of a URL."""
    if addresses:
        first = _after_scheme(data, start, stop)
        start = start if first < 0 else first
        if _starts_with_www(data, start, stop):
            start += 4
        while stop > start and data[stop - 1] == _SLASH:
            stop -= 1
        return (start, stop) if start < stop and data[start] != _SLASH else (start, start)
    if stop - start > 2 and data[start] == _STAR and data[start + 1] == _DOT:
        start += 1
    while stop > start and data[stop - 1] == _DOT:
        stop -= 1
    if stop > start and data[start] == _DOT:
        for at in range(start + 1, stop):
            if data[at] == _DOT:
                return start + 1, stop
    return start, stop


@compiled
def _hash_line(data: Bytes, start: int, stop: int, addresses: bool) -> np.uint64:  # noqa: FBT001  # as above
    """Hash a name as the look-up does: a domain from its end, an address from its beginning."""
    state = _SEED
    if not addresses:
        for place in range(stop - 1, start - 1, -1):
            state = _stepped(state, _lowered(np.int64(data[place])))
        return _finished(state)
    at = start
    while at < stop:
        byte, at = _next_of_path(data, at, stop)
        state = _stepped(state, byte)
    return _finished(state)
