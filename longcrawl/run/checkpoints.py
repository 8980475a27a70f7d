"""Checkpoints of long parts: the results of stages for some tables, reused by the next attempt at a part.

Stages work table by table, so the SHA-256 of a table identifies their results for it. No other check is needed: a
changed input has other tables, and several attempts may write at the same time. An attempt reads its input from the
beginning, and runs the stages on the tables that no checkpoint has.
"""

import hashlib
import io
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from longcrawl.io.files import names_in, remove, whole_file
from longcrawl.io.structured import DamagedWorkError, Marker

CHECKPOINTS = "checkpoints"
"""Folder in ``work`` for the checkpoints of each part."""
SECONDS = 10.0
"""Seconds before the first checkpoint of an attempt and between two: shorter parts write none."""
HELD = 64 << 20
"""Bytes of tables after which a checkpoint is written earlier."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Results(NamedTuple):
    """Results of the stages of a part for one table."""

    counts: dict[str, Any]
    """JSON-ready values."""
    tables: Sequence[pa.Table]


class Checkpoints:
    """The checkpoints of one part in a folder of its own, read and written by one attempt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saved = time.monotonic()
        self._is_due = False
        self._waiting: list[tuple[str, Results]] = []
        self._held = 0
        """Bytes of the tables that wait."""
        names = (name for name in names_in(folder) if name.endswith(".json"))
        self._markers = [marker for marker in Marker.read_all(folder / name for name in sorted(names)) if marker]
        self._places = {key: marker for marker in self._markers for key in marker.content["tables"]}
        self._open: dict[str, Results] = {}
        """Results in the checkpoint that was read last, by the SHA-256 of the table."""

    def find(self, table: pa.Table) -> Results | None:
        """Return the results of an earlier attempt for a table, or None."""
        if not self._places:
            return None
        key = _key(table)
        if key in self._places and key not in self._open:
            self._open = {}
            with suppress(DamagedWorkError):  # it is made again
                self._open = _read(self._places[key])
        return self._open.get(key)

    def add(self, table: pa.Table, results: Results) -> None:
        """Keep the results for a table for the next checkpoint, unless the attempt has only just begun."""
        waits = time.monotonic() - self._saved
        if self._is_due:
            self._waiting.append((_key(table), results))
            self._held += sum(each.nbytes for each in results.tables)
            if waits >= SECONDS or self._held >= HELD:
                self._write()
        elif waits >= SECONDS:
            self._is_due, self._saved = True, time.monotonic()

    def remove(self) -> None:
        """Remove the checkpoints of a part that is done."""
        if self._markers:
            with suppress(OSError):  # another attempt may write one
                remove(self._folder)

    def _write(self) -> None:
        with suppress(FileNotFoundError):  # another attempt may be done, and have removed the folder
            self._write_waiting()
        self._waiting, self._held, self._saved = [], 0, time.monotonic()

    def _write_waiting(self) -> None:
        file = self._folder / f"{uuid4().hex}.arrows"
        with whole_file(file) as beside, pa.OSFile(str(beside), "wb") as opened:
            for each in (table for _, results in self._waiting for table in results.tables):
                with pa.ipc.new_stream(opened, each.schema, options=_OPTIONS) as stream:
                    stream.write_table(each)
        counts = [{"tables": len(results.tables), **results.counts} for _, results in self._waiting]
        content = {"tables": [key for key, _ in self._waiting], "counts": counts}
        marker = Marker(file.with_suffix(".json"), content, Marker.entries(file, [file]))
        marker.write()
        self._markers.append(marker)


def _read(marker: Marker) -> dict[str, Results]:
    file = marker.path.with_suffix(".arrows")
    marker.check(file)
    with pa.memory_map(str(file)) as opened:
        return {
            key: Results(counts, [pa.ipc.open_stream(opened).read_all() for _ in range(counts["tables"])])
            for key, counts in zip(marker.content["tables"], marker.content["counts"], strict=True)
        }


class _Digest(io.RawIOBase):
    """A file that only computes the SHA-256 of what is written."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return len(data)


def _key(table: pa.Table) -> str:
    digest = _Digest()
    with pa.ipc.new_stream(digest, table.schema) as stream:
        stream.write_table(table)
    return digest.sha256.hexdigest()
