"""Large input files as several parts of a run, so that several processes share them.

The division depends on the files and the recipe alone. It is made once, before the first segment, which also records
the SHA-256 of each divided file: a part then only checks that the file is still the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from longcrawl.core.progress import following, progress_file
from longcrawl.core.sources import Part, Section, Source
from longcrawl.errors import NotYetError, RunError
from longcrawl.io.structured import DamagedWorkError, Marker, verify_files
from longcrawl.sources.files import InputFile, reading

LARGE = 64 << 20
"""Smallest file that is divided, in bytes."""
SECTION = 32 << 20
"""Bytes of decompressed data after which a section ends; the slowest stages take about 30 s for them."""
FEW = 256
"""Largest number of parts of which compressed files are divided: more keep 64 processes busy without the cost."""
MOST = 4_096
"""Number of sections up to which they have that size; of more data, each has a larger share."""
COMPRESSED = (".gz", ".zst")
DIVIDED = "divided"
"""Folder in ``work`` for the divisions, and key in the recorded inputs of a run for the bytes of a section by part."""


@dataclass(frozen=True)
class DivideTask:
    """Task of a worker process that divides the file of one part."""

    marker: Path
    """Path of the marker that lists the sections."""
    part: Part
    source: Source
    size: int


def is_large(source: Source, part: Part, size: int | None) -> bool:
    """Return whether a part of so many bytes, None if not local, is one large file that the source can divide."""
    return size is not None and size >= LARGE and not part.pieces and len(part.files) == 1 and source.divides(part)


def _is_divided(source: Source, part: Part, size: int | None, among: float) -> bool:
    return is_large(source, part, size) and (among <= FEW or not part.name.endswith(COMPRESSED))


def divide_tasks(work: Path, source: Source, parts: Sequence[Part], sizes: Sequence[int | None]) -> list[DivideTask]:
    """Return a task for each part that may be divided; ``sizes`` are the bytes of local files."""
    given = zip(parts, sizes, strict=True)
    large = [
        (number, part, size or 0)
        for number, (part, size) in enumerate(given)
        if _is_divided(source, part, size, len(parts))
    ]
    most = max(SECTION, sum(size for _, _, size in large) // MOST)
    return [DivideTask(work / DIVIDED / f"{number:05d}.json", part, source, most) for number, part, _ in large]


def expected_sections(
    source: Source, parts: Sequence[Part], sizes: Sequence[int], unpacked: float, times: float = 1.0
) -> list[int]:
    """Return the number of sections that a run is expected to make of each part; 1 if it is not divided.

    A stored byte is expected to be ``unpacked`` bytes of decompressed data. The run has ``times`` as many parts.
    """
    among = times * len(parts)
    large = [_is_divided(source, part, size, among) for part, size in zip(parts, sizes, strict=True)]
    most = max(SECTION, times * sum(size for size, each in zip(sizes, large, strict=True) if each) / MOST)
    return [ceil(size * unpacked / most) if each else 1 for size, each in zip(sizes, large, strict=True)]


def divide(task: DivideTask) -> dict[str, Any]:
    """Write the sections of a file and what is known about it, or return the reason why not now, under "not_yet"."""
    try:
        with following(progress_file(task.marker.parent.parent, task.marker)), reading(task.part.files) as inputs:
            sections = task.source.divide(task.part, task.size, unpacked_folder(task.marker))
    except NotYetError as reason:
        return {"not_yet": str(reason)}
    listed = [asdict(each) | {"unpacked": Path(each.unpacked).name if each.unpacked else ""} for each in sections]
    counts = {"sections": listed, "inputs": [each.marked() for each in inputs], "bytes": inputs[0].bytes}
    unpacked = [Path(each.unpacked) for each in sections if each.unpacked]
    Marker(task.marker, counts, Marker.entries(task.marker, unpacked)).write()
    return counts


def divided_parts(
    parts: Sequence[Part],
    tasks: Sequence[DivideTask],
    found: Sequence[Mapping[str, Any]],
    groups: Sequence[Sequence[int]] = (),
) -> tuple[list[Part], list[Path | None], list[list[int]]]:
    """Return the parts of a run, with each divided one as its sections, and the marker of the division of each.

    ``groups`` are numbers of parts, and returned with the numbers of their sections.
    """
    divided = {
        task.part.name: (task.marker, [_restored(task.marker, each) for each in counts["sections"]])
        for task, counts in zip(tasks, found, strict=True)
        if len(counts["sections"]) > 1
    }
    every, markers, numbers = list[Part](), list[Path | None](), list[range]()
    for part in parts:
        first = len(every)
        if part.name in divided:
            marker, sections = divided[part.name]
            every += [replace(part, section=each) for each in sections]
            markers += [marker] * len(sections)
        else:
            every.append(part)
            markers.append(None)
        numbers.append(range(first, len(every)))
    return every, markers, [[number for part in group for number in numbers[part]] for group in groups]


def _restored(marker: Path, values: Mapping[str, Any]) -> Section:
    section = Section(**values)
    return replace(section, unpacked=str(unpacked_folder(marker) / section.unpacked)) if section.unpacked else section


def unpacked_folder(marker: Path) -> Path:
    """Return the folder of the lines of a compressed file, by section, which the first segment reads."""
    return marker.with_suffix("")


def known_inputs(marker: Path | None, part: Part) -> list[InputFile]:
    """Return the files of a section as its division found them, none of other parts; check the file of its lines."""
    if marker is None:
        return []
    found = Marker.open(marker)
    if part.section is not None and part.section.unpacked:
        name = f"{marker.stem}/{Path(part.section.unpacked).name}"
        for problem in verify_files(marker.parent, {name: found.files[name]}):
            raise DamagedWorkError(problem, marker)
    return [InputFile.from_mark(mark) for mark in found.content["inputs"]]


def check_same(known: Sequence[InputFile], read: Sequence[InputFile], done: str) -> None:
    """Raise a RunError if a file has changed since something was ``done``, such as "RUN divided it"."""
    for before, now in zip(known, read, strict=False):
        if before.as_dict() != now.as_dict():
            raise RunError(
                f"{now.file} has changed since {done}. Restore it and run the same command again, or choose "
                "another --out folder"
            )
