"""The decompressed bytes of an archive file, a window of them at a time."""

from bisect import bisect_left, bisect_right
from collections import deque

from longcrawl.sources.framing import BrokenMemberError
from longcrawl.sources.gathered import Window
from longcrawl.sources.members import Event, Members

MAGIC = b"WARC/"
"""What a record begins with."""


class _Edges:
    """Positions of members' edges in increasing order, and their offsets in the file; found by bisection."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._offsets: list[int] = []
        self._first = 0
        """How many of them are dropped and still listed."""

    def add(self, position: int, offset: int) -> None:
        self._positions.append(position)
        self._offsets.append(offset)

    def clear(self) -> None:
        self._positions.clear()
        self._offsets.clear()
        self._first = 0

    def ends_at(self, position: int) -> bool:
        """Return whether the last edge is at a position."""
        return len(self._positions) > self._first and self._positions[-1] == position

    def replace_last(self, offset: int) -> None:
        self._offsets[-1] = offset

    def drop_before(self, position: int) -> int | None:
        """Drop the edges before a position; returns the offset of the last one dropped."""
        first = bisect_left(self._positions, position, self._first)
        dropped = self._offsets[first - 1] if first > self._first else None
        self._first = first
        if 2 * first > len(self._positions):
            del self._positions[:first], self._offsets[:first]
            self._first = 0
        return dropped

    def last_until(self, position: int) -> int | None:
        """Return the offset of the last edge that is not behind a position."""
        found = bisect_right(self._positions, position, self._first)
        return self._offsets[found - 1] if found > self._first else None

    def first_within(self, first: int, last: int) -> tuple[int, int] | None:
        """Return position and offset of the first edge from one position to another, both included."""
        found = bisect_left(self._positions, first, self._first)
        if found == len(self._positions) or self._positions[found] > last:
            return None
        return self._positions[found], self._offsets[found]


class Stream:
    """The decompressed bytes of a file from a member's beginning up to damage, and where members begin and end."""

    def __init__(self, members: Members, offset: int) -> None:
        self._members, self.compression = members, members.compression
        self._window = Window()
        self._begins, self._ends, self._records = _Edges(), _Edges(), _Edges()
        self._unread: deque[tuple[int, int]] = deque()
        """Where members begin of which it is not known whether they begin with a record."""
        self.damage: BrokenMemberError | None = None
        self.open(offset)

    def open(self, offset: int) -> None:
        """Go on at an offset of the file; positions of an uncompressed file are its offsets."""
        self._events = self._members.events(offset)
        self.position = offset if self.compression == "none" else 0
        self._window.clear()
        for edges in (self._begins, self._ends, self._records):
            edges.clear()
        self._unread.clear()
        self._member = offset
        self.ended = False

    @property
    def buffer(self) -> memoryview:
        """The bytes that follow, as far as they have been decompressed; they are there until there are more."""
        return self._window.view()

    def fill(self, size: int) -> bool:
        """Fill the buffer with so many bytes, or report that there are no more."""
        while len(self._window) < size and not self.ended:
            self._pull()
        return len(self._window) >= size

    def fill_within_member(self, size: int) -> bool:
        """Do as ``fill``, but no further than to where a member ends."""
        while len(self._window) < size and not (self.ended or self._ends.ends_at(self.position + len(self._window))):
            self._pull()
        return len(self._window) >= size

    def drop(self, size: int) -> None:
        """Go on after so many bytes of the buffer."""
        self._window.take(size)
        self.position += size
        dropped = self._begins.drop_before(self.position)
        self._member = self._member if dropped is None else dropped
        self._ends.drop_before(self.position)
        self._records.drop_before(self.position)

    def place(self, position: int) -> int:
        """Return the offset in the file of a position, or of the member that holds it."""
        if self.compression == "none":
            return position
        found = self._begins.last_until(position)
        return self._member if found is None else found

    def begin_at(self, position: int) -> int | None:
        """Return the offset of the member that begins at a position."""
        if self.compression == "none":
            return position
        found = self._begins.first_within(position, position)
        return found and found[1]

    def end_within(self, first: int, last: int) -> int | None:
        """Return the offset of the first member's end between two positions."""
        found = self._ends.first_within(first, last)
        return found and found[1]

    def record_within(self, first: int, last: int) -> int | None:
        """Return the first position between two, both left out, where a member begins with a record."""
        while self._unread and self._unread[0][0] + len(MAGIC) <= self.position + len(self._window):
            begin, offset = self._unread.popleft()
            if begin >= self.position and begins_with(self.buffer, MAGIC, begin - self.position):
                self._records.add(begin, offset)
        found = self._records.first_within(first + 1, last - 1)
        return found and found[0]

    def file_bytes(self) -> int:
        """Return the length of the file."""
        file = self._members.file
        here = file.tell()
        size = file.seek(0, 2)
        file.seek(here)
        return size

    def _pull(self) -> None:
        if (event := self._next()) is not None:
            self._add(event)

    def _next(self) -> Event | None:
        """Return what comes next; None at the end and at damage."""
        try:
            event = next(self._events, None)
        except BrokenMemberError as damage:
            self.damage, event = damage, None
        self.ended = event is None
        return event

    def _add(self, event: Event) -> None:
        for part in event.parts():
            here = self.position + len(self._window)
            if part.kind == "data":
                self._window.add(part.data)
            elif part.kind == "begin":
                # Any number of members may be empty: of those that begin at one position, the last holds what is there.
                if self._begins.ends_at(here):
                    self._begins.replace_last(part.offset)
                else:
                    self._begins.add(here, part.offset)
                    self._unread.append((here, part.offset))
            elif not self._ends.ends_at(here):
                self._ends.add(here, part.offset)


def begins_with(buffer: memoryview, what: bytes, start: int = 0) -> bool:
    """Return whether something stands at a place of some bytes."""
    return buffer[start : start + len(what)] == what
