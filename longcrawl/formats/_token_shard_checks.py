"""What must hold of the files of any token shard, and the sentences where it does not."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.block_checksums import BlockChecksums, read_checksums
from longcrawl.formats.token_shard import TokenShard
from longcrawl.results import Verification

__all__ = [
    "Check",
    "Opened",
    "block_problems",
    "check_ids",
    "check_size",
    "check_word",
    "checked",
    "end_problems",
    "file_bytes",
    "find_ends",
    "first_checksums",
    "id_problems",
    "local_path",
    "map_file",
    "mask_problems",
    "verification",
]

Check = Literal["everything", "ends", "sizes"]
"""What opening looks at: sizes and headers only; the ends of documents, too; or also every token's id."""

Opened = tuple[TokenShard, Iterator[str]]
"""A shard whose sizes and headers are right, and the problems of its content, which are looked for on demand."""

BLOCK = 1 << 22


def local_path(path: "str | Path") -> Path:
    """Give a path of this machine.

    Raises:
        FormatError: it is a URL.

    """
    if "://" in str(path):
        raise FormatError(f"{path} is not on this machine, where it could be mapped to memory: copy it here first")
    return Path(path)


def file_bytes(file: Path) -> int:
    """Give the size of a file.

    Raises:
        FormatError: there is none.

    """
    if not file.is_file():
        raise FormatError(f"there is no file {file}; check the path")
    return file.stat().st_size


def check_size(file: Path, expected: int, because: str) -> None:
    """Compare a file's size with what another file, or its own header, says of it.

    Raises:
        CorruptionError: it is cut, or has grown.

    """
    found = file_bytes(file)
    if found == expected:
        return
    what = f"is cut: it ends at byte {found:,}" if found < expected else f"goes on after byte {expected:,}"
    raise CorruptionError(f"{file} {what}, {because} {expected:,} bytes: fetch it again, or write it anew")


def map_file(file: Path, dtype: npt.DTypeLike, count: int, offset: int = 0) -> npt.NDArray[Any]:
    """Map a piece of a file to memory; a piece of no length is an array, too."""
    if not count:
        return np.empty(0, dtype)
    return np.memmap(file, dtype, "r", offset, (count,))


def check_word(name: str, value: Any, words: Any) -> None:
    """Refuse a word that is none of ``words``, a ``Literal`` type or a tuple.

    Raises:
        FormatError: naming the words that it has.

    """
    known = words if isinstance(words, tuple) else get_args(words)
    if value not in known:
        raise FormatError(f"{name} takes one of {', '.join(repr(word) for word in known)}, got {value!r}")


def check_ids(end_of_text: int | None, vocabulary_size: int | None) -> None:
    """Refuse ids that cannot be.

    Raises:
        FormatError: negative, or an end of text that is not in the vocabulary.

    """
    if vocabulary_size is not None and vocabulary_size < 1:
        raise FormatError(f"vocabulary_size is {vocabulary_size:,}: give the number of ids, or leave it out")
    if end_of_text is not None and not 0 <= end_of_text < (vocabulary_size or 1 << 32):
        raise FormatError(f"end_of_text {end_of_text:,} is no id of the vocabulary: give the id that ends documents")


def end_problems(
    ends: npt.NDArray[np.int64],
    tokens: int,
    file: Path | str,
    entry: Callable[[int], int],
    what: str = "document",
    unit: str = "token",
) -> Iterator[str]:
    """Look for ends of documents that fall, or do not reach the last token.

    Args:
        ends: int64 [documents].
        tokens: how many there are.
        file: the index, for the sentence.
        entry: gives the byte of the file where the end of a document is written.
        what: an entry is called.
        unit: ends are counted in.

    """
    previous = 0
    for first in range(0, len(ends), BLOCK):
        block = np.asarray(ends[first : first + BLOCK])
        # Not by a difference, which wraps around where an entry is damaged.
        before = np.concatenate([[previous], block[:-1]])
        falling = np.flatnonzero(block < before)
        if len(falling):
            number = first + int(falling[0])
            yield (
                f"{file} is damaged at byte {entry(number):,}: {what} {number:,} ends at {unit} {int(ends[number]):,}, "
                f"before its start, {int(before[falling[0]]):,}; fetch it again, or write it anew"
            )
            return
        previous = int(block[-1])
    if previous != tokens:
        place = entry(len(ends) - 1) if len(ends) else 0
        yield (
            f"{file} says at byte {place:,} that its last {what} ends at {unit} {previous:,}, but there are {tokens:,} "
            f"{unit}s: the two files do not belong together, so fetch both again, or write them anew"
        )


def id_problems(shard: TokenShard, file: Path, first_byte: int | None = 0) -> Iterator[str]:
    """Look at every token, where the size of the vocabulary is known.

    Args:
        shard: what is looked at.
        file: the tokens, for the sentence.
        first_byte: where they begin in it; None where they are not stored as they are.

    """
    tokens, most = shard.tokens, shard.vocabulary_size
    if most is None:
        return
    for first in range(0, len(tokens), BLOCK):
        block = tokens[first : first + BLOCK]
        if int(block.max()) >= most:
            token = first + int(np.argmax(block >= most))
            byte = f"at byte {(first_byte or 0) + token * tokens.itemsize:,}"
            place = byte if first_byte is not None else f"in row {int(np.searchsorted(shard.ends, token, 'right')):,}"
            yield (
                f"{file} has id {int(tokens[token]):,} {place}, the vocabulary has {most:,}: check vocabulary_size, "
                f"and that a token has {tokens.itemsize} bytes"
            )
            return


def mask_problems(shard: TokenShard, file: Path) -> Iterator[str]:
    """Look at every byte of a loss mask that ``file`` holds."""
    flags = np.empty(0, np.uint8) if shard.loss_mask is None else shard.loss_mask.view(np.uint8)
    for first in range(0, len(flags), BLOCK):
        wrong = np.flatnonzero(flags[first : first + BLOCK] > 1)
        if len(wrong):
            byte = first + int(wrong[0])
            yield f"{file} has {int(flags[byte])} at byte {byte:,}, where 0 or 1 must be: write the shard anew"
            return


def checked(opened: Opened) -> TokenShard:
    """Give the shard.

    Raises:
        CorruptionError: its content has a problem.

    """
    shard, problems = opened
    for problem in problems:
        raise CorruptionError(problem)
    return shard


def verification(path: "str | Path", load: Callable[[], Opened]) -> Verification:
    """Say all that is wrong with a shard.

    Raises:
        FormatError: there is none at ``path``, or too little is known to read it.

    """
    try:
        shard, found = load()
        problems: Iterable[str] = tuple(found)
    except CorruptionError as broken:
        return Verification(str(path), "sizes and headers looked at", (str(broken),))
    ends = shard.document_ends
    documents = "an unknown number of" if ends is None else f"{len(ends):,}"
    ids = "ids not bounded, as no vocabulary_size was given"
    if shard.vocabulary_size is not None:
        ids = f"every id compared with a vocabulary of {shard.vocabulary_size:,}"
    told = f"{shard.format}, {documents} documents, {len(shard.tokens):,} tokens, {shard.tokens.dtype}; {ids}"
    return Verification(str(path), told, tuple(problems))


def first_checksums(*files: Path) -> BlockChecksums | None:
    """Read the checksums of a shard's files, tokens first; compare the first and last block of those beside the tokens.

    These hold what opening a shard trusts: headers, and where the last document ends.

    Raises:
        CorruptionError: a file was changed, is missing or was added.

    """
    checksums = read_checksums(files[0], *files)
    if checksums is not None:
        for suffix, blocks in checksums.files.items():
            if blocks.size and suffix != files[0].suffix:
                blocks.check(0, 1)
                blocks.check(blocks.size - 1, blocks.size)
    return checksums


def block_problems(shard: TokenShard, check: Check) -> Iterator[str]:
    """Compare the blocks of a shard's files, of the index alone under "ends"; yields one sentence at most."""
    if shard.checksums is None or check == "sizes":
        return
    try:
        if check == "ends":
            shard.compare_index()
        else:
            shard.checksums.check()
    except CorruptionError as changed:
        yield str(changed)


def find_ends(tokens: npt.NDArray[Any], end_of_text: int, *, at_start: bool = False) -> npt.NDArray[np.int64]:
    """Find where documents end by their end-of-text tokens: int64 [documents]; the last end is the last token's.

    With ``at_start`` the token begins documents instead. What comes before the first is then a document, too.
    """
    blocks = range(0, len(tokens), BLOCK)
    found = [np.flatnonzero(tokens[first : first + BLOCK] == end_of_text) + first for first in blocks]
    marks = np.concatenate([np.empty(0, np.int64), *found])
    ends = marks[marks > 0] if at_start else marks + 1
    if len(tokens) and (not len(ends) or ends[-1] != len(tokens)):
        ends = np.append(ends, len(tokens))
    return ends
