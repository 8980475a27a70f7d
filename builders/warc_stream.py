"""The decompressed bytes of an archive file, a window of them at a time."""

from collections import deque
from collections.abc import Iterator

from longcrawl.builders.members import BrokenMemberError, Event, Members

__all__ = ["MAGIC", "Stream"]

MAGIC = b"WARC/"
"""What a record begins with."""


class Stream:
    """The decompressed bytes of a file from a member's beginning up to damage, and where members begin and end."""

    def __init__(self, members: Members, offset: int) -> None:
        self._members, self.compression = members, members.compression
        self.buffer = bytearray()
        self.damage: BrokenMemberError | None = None
        self.open(offset)

    def open(self, offset: int) -> None:
        """Go on at an offset of the file; positions of an uncompressed file are its offsets."""
        self._events: Iterator[Event] = self._members.events(offset)
        self.position = offset if self.compression == "none" else 0
        self.buffer.clear()
        self.begins: deque[tuple[int, int]] = deque()
        self.ends: deque[tuple[int, int]] = deque()
        self._member = offset
        self.ended = False

    def fill(self, size: int) -> bool:
        """Have so many bytes in the buffer, or say that there are no more."""
        while len(self.buffer) < size and not self.ended:
            self._pull()
        return len(self.buffer) >= size

    def drop(self, size: int) -> None:
        """Go on after so many bytes of the buffer."""
        del self.buffer[:size]
        self.position += size
        while self.begins and self.begins[0][0] < self.position:
            self._member = self.begins.popleft()[1]
        while self.ends and self.ends[0][0] < self.position:
            self.ends.popleft()

    def place(self, position: int) -> int:
        """Give the offset in the file of a position, or of the member that holds it."""
        if self.compression == "none":
            return position
        return max((offset for begin, offset in self.begins if begin <= position), default=self._member)

    def begin_at(self, position: int) -> int | None:
        """Give the offset of the member that begins at a position."""
        if self.compression == "none":
            return position
        return next((offset for begin, offset in self.begins if begin == position), None)

    def end_within(self, first: int, last: int) -> int | None:
        """Give the offset of the first member's end between two positions."""
        return next((offset for end, offset in self.ends if first <= end <= last), None)

    def record_within(self, first: int, last: int) -> int | None:
        """Give the first position between two, both left out, where a member begins with a record."""
        for begin, _ in self.begins:
            if first < begin < last and self.buffer.startswith(MAGIC, begin - self.position):
                return begin
        return None

    def file_bytes(self) -> int:
        """Give the length of the file."""
        file = self._members.file
        here = file.tell()
        size = file.seek(0, 2)
        file.seek(here)
        return size

    def _pull(self) -> None:
        try:
            event = next(self._events, None)
        except BrokenMemberError as damage:
            self.damage, self.ended = damage, True
            return
        if event is None:
            self.ended = True
        elif event.kind == "data":
            self.buffer += event.data
        elif event.kind == "begin":
            # Any number of members may be empty: of those that begin at one position, the last holds what is there.
            if self.begins and self.begins[-1][0] == self.position + len(self.buffer):
                self.begins.pop()
            self.begins.append((self.position + len(self.buffer), event.offset))
        elif not self.ends or self.ends[-1][0] != self.position + len(self.buffer):
            self.ends.append((self.position + len(self.buffer), event.offset))
