"""C4's rules over Arrow's string buffers: each line is written without citation marks, measured, and kept or not."""

# Numba compiles plain loops, and takes arguments by position:
# ruff: noqa: FBT001, SIM110
# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.kernels.code_points import SENTENCE_END, SPACE, WORD
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.phrase_trees import OTHERS, step
from longcrawl.kernels.phrases import PhraseTree
from longcrawl.kernels.utf8 import begins_with, copy, decode, drop_space, last_start, skip_space
from longcrawl.text.lines._place_kernels import log_line, shift_lines

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]
Facts = npt.NDArray[np.int64]
Points = npt.NDArray[np.uint32]

JAVASCRIPT, POLICY, LOREM_IPSUM = 1, 2, 4
"""Kinds of phrases."""

STAYS, UNENDED, SHORT, OVERLONG, SCRIPT, POLICIES, CUT = range(7)
RULES = {
    UNENDED: "terminal_punctuation",
    SHORT: "min_words_per_line",
    OVERLONG: "max_word_length",
    SCRIPT: "javascript",
    POLICIES: "policy_phrases",
    CUT: "citations",
}
"""What is done to lines, by the name of its field: a line goes by the first of the rules, marks are cut by the last."""

FIRST, STOP, WORDS, LONGEST, SENTENCES, BRACES, BRACKETS, PHRASES, PLACEHOLDERS = range(9)
"""What is known of a line: the bytes of its content, words, characters of the longest, sentences, braces, kinds."""
FACTS = 9

BRACE, BRACKET, CLOSING_BRACKET, DOT = b"{[]."
NEWLINE, RETURN = 0x0A, 0x0D

_U = np.uint64
_SOLID, _LETTER, _BRACKET, _MARK, _CLOSER, _HALT, _FIRST = 1, 2, 4, 8, 16, 32, 1 << 8
"""What is known of a byte: no space, of ``\\w``, a bracket, terminal, closing, to be looked at; places in phrases."""


class Rules(NamedTuple):
    """What a line must be like; a rule that is switched off has a threshold out of reach."""

    datatrove: bool
    citations: bool
    """Whether citation marks go."""
    terminal: bool
    """Whether a line must end in a terminal mark."""
    marks: npt.NDArray[np.uint32]
    """The terminal marks."""
    closers: npt.NDArray[np.uint32]
    """What may stand between the end of a sentence and white space."""
    zeros: npt.NDArray[np.uint32]
    """The zero of every script that has decimal digits; the other nine follow it."""
    min_words: int
    max_word_length: int
    byte_flags: npt.NDArray[np.int64]


def make_byte_flags(
    flag_of: Flags, tree: PhraseTree, marks: Points, closers: Points, datatrove: bool
) -> npt.NDArray[np.int64]:
    """Return what is known of every byte as the first one of a character, shape (256,)."""
    flags = np.full(256, _HALT | int(tree.places[OTHERS]) * _FIRST)
    of_ascii, breaks = flag_of[:128], [NEWLINE, *([0x0B, 0x0C, RETURN, 0x1C, 0x1D, 0x1E] if datatrove else [])]
    flags[:128] = np.where(of_ascii & SPACE, 0, _SOLID) | np.where(of_ascii & WORD, _LETTER, 0)
    flags[:128] |= np.where(of_ascii & SENTENCE_END, _HALT, 0) | tree.places[:OTHERS].astype(np.int64) * _FIRST
    flags[[BRACE, *breaks]] |= _HALT
    flags[BRACKET] |= _BRACKET
    flags[marks[marks < OTHERS]] |= _MARK
    flags[closers[closers < OTHERS]] |= _CLOSER
    flags[:128] |= np.where(of_ascii & SENTENCE_END, _CLOSER, 0)
    return flags


@compiled
def _is_one_of(point: np.uint32, points: Any) -> bool:
    for at in range(len(points)):
        if points[at] == point:
            return True
    return False


@compiled
def _is_break(data: Bytes, at: int, end: int) -> int:
    """Return how many bytes a line break at a byte has, of those that ``str.splitlines`` knows; 0 for none."""
    byte = data[at]
    if byte == RETURN:
        return 2 if at + 1 < end and data[at + 1] == NEWLINE else 1
    if 0x0A <= byte <= 0x0C or 0x1C <= byte <= 0x1E:
        return 1
    if byte == 0xC2 and data[at + 1] == 0x85:
        return 2
    if byte == 0xE2 and data[at + 1] == 0x80 and 0xA8 <= data[at + 2] <= 0xA9:
        return 3
    return 0


@compiled
def _is_decimal(point: np.uint32, zeros: Any) -> bool:
    found = False
    for zero in zeros:
        found |= zero <= point < zero + 10
    return found


_EDIT = np.frombuffer(b"[edit]", np.uint8)
_CITATION_NEEDED = np.frombuffer(b"[citation needed]", np.uint8)


@compiled
def _skip_citation(data: Bytes, at: int, end: int, zeros: Any) -> int:
    """Return where the citation mark that starts with a bracket at a byte ends; that byte where it is none."""
    if begins_with(data, at, end, _EDIT):
        return at + len(_EDIT)
    if begins_with(data, at, end, _CITATION_NEEDED):
        return at + len(_CITATION_NEEDED)
    place = at + 1
    while place < end and data[place] != CLOSING_BRACKET:
        point, after = decode(data, place)
        if not _is_decimal(point, zeros):
            return at
        place = after
    return place + 1 if place < end else at


@compiled
def _write_line(data: Bytes, at: int, end: int, rules: Rules, out: Bytes, place: int) -> int:
    """Write a line without citation marks; gives where it ends."""
    while at < end:
        if data[at] == BRACKET and rules.citations:
            after = _skip_citation(data, at, end, rules.zeros)
            if after > at:
                at = after
                continue
        out[place] = data[at]
        place += 1
        at += 1
    return place


@compiled
def _find_phrases(data: Bytes, at: int, end: int, tree: PhraseTree, line: Facts) -> None:
    """Note the phrases whose first characters, as many as all phrases have, end at a byte."""
    for _ in range(tree.sure):
        at = last_start(data, at)
    node = np.int64(0)
    while at < end:
        point, at = decode(data, at)
        node = step(tree, node, point)
        if node < 0:
            return
        line[PHRASES] |= tree.kinds[node]
        line[PLACEHOLDERS] += (tree.kinds[node] & LOREM_IPSUM) != 0


@compiled
def _ends_sentence(data: Bytes, at: int, end: int, flag_of: Flags, rules: Rules) -> tuple[bool, int]:
    """Return whether white space or nothing follows the marks that start at a byte; gives where they end."""
    while at < end:
        flag = rules.byte_flags[data[at]]
        if flag & _CLOSER:
            at += 1
            continue
        if data[at] < OTHERS:
            return flag & _SOLID == 0, at
        point, after = decode(data, at)
        if not _is_one_of(point, rules.closers):
            return flag_of[point] & SPACE != 0, at
        at = after
    return True, at


@compiled
def _trim(data: Bytes, start: int, stop: int, flag_of: Flags, byte_flags: Any, line: Facts) -> None:
    """Write where a line's content starts and stops."""
    if stop > start and byte_flags[data[start]] & byte_flags[data[stop - 1]] & _SOLID:
        line[FIRST], line[STOP] = start, stop
        return
    first = skip_space(data, start, stop, flag_of)
    line[FIRST], line[STOP] = first, drop_space(data, first, stop, flag_of)


@compiled
def _read_line(data: Bytes, at: int, end: int, flag_of: Flags, rules: Rules, tree: PhraseTree, line: Facts) -> int:
    """Write what is known of the line that starts at a byte; gives where the next one starts."""
    start, stop, words, longest, length, sentences, checked = at, end, 0, 0, 0, 0, at
    seen, noted, state, before = 0, 0, 0, 0
    byte_flags, found = rules.byte_flags, _FIRST << (tree.sure - 1)
    line[BRACES] = line[PHRASES] = line[PLACEHOLDERS] = 0
    while at < end:
        # Most text is ASCII inside of a sentence, and what is asked of it needs no branch.
        while at < end:
            # An index without a sign is not asked whether it counts from the end.
            flag = byte_flags[data[_U(at)]]
            if flag & _HALT:
                break
            at += 1
            seen |= flag
            state = (state << 1 | _FIRST) & flag
            if state & found:
                _find_phrases(data, at, end, tree, line)
            solid = flag & _SOLID
            words += solid & ~before
            before = solid
            length = (length + 1) & -solid
            longest = max(longest, length)
        if at == end:
            break
        width = _is_break(data, at, end) if rules.datatrove else int(data[at] == NEWLINE)
        if width:
            stop, at = at, at + width
            break
        point, after = decode(data, at)
        if flag_of[point] & SENTENCE_END and at >= checked:
            ends, checked = _ends_sentence(data, at, end, flag_of, rules)
            if ends:
                sentences += seen & _LETTER != 0
                noted |= seen
                seen = 0
        line[BRACES] += point == BRACE
        seen |= _LETTER if flag_of[point] & WORD else 0
        state = (state << 1 | _FIRST) & byte_flags[min(point, OTHERS)]
        solid = 0 if flag_of[point] & SPACE else _SOLID
        words += solid & ~before
        before = solid
        length = (length + 1) & -solid
        longest = max(longest, length)
        at = after
        if state & found:
            _find_phrases(data, at, end, tree, line)
    _trim(data, start, stop, flag_of, byte_flags, line)
    line[WORDS], line[LONGEST], line[BRACKETS] = words, longest, (noted | seen) & _BRACKET
    line[SENTENCES] = sentences + (seen & _LETTER != 0)
    return at


@forced_inline
def _ends_in_mark(data: Bytes, start: int, stop: int, rules: Rules) -> bool:
    if stop == start:
        return False
    if data[stop - 1] < OTHERS:
        if not rules.byte_flags[data[stop - 1]] & _MARK:
            return False
    elif not _is_one_of(decode(data, last_start(data, stop))[0], rules.marks):
        return False
    dots = stop - start >= 3 and data[stop - 1] == data[stop - 2] == data[stop - 3] == DOT
    return not (rules.datatrove and dots)


@forced_inline
def _check_form(out: Bytes, first: int, last: int, words: int, longest: int, rules: Rules) -> int:
    """Return the first rule by which a line goes for its end or for its words; ``STAYS`` for none."""
    if rules.terminal and not _ends_in_mark(out, first, last, rules):
        return UNENDED
    if words < rules.min_words:
        return SHORT
    return OVERLONG if longest > rules.max_word_length else STAYS


@forced_inline
def _judge(line: Facts, rule: int, rules: Rules, page: Any) -> int:
    """Return the first rule by which a line goes; adds what it has that speaks against the page, and its sentences.

    The paper looks for placeholders and braces in the whole page, datatrove in lines that have stayed so far.
    """
    if rule == STAYS or not rules.datatrove:
        page[0] += line[PLACEHOLDERS]
        if not (rules.datatrove and line[PHRASES] & JAVASCRIPT):
            page[1] += line[BRACES]
    if rule != STAYS:
        return rule
    if line[PHRASES] & (JAVASCRIPT | POLICY):
        return SCRIPT if line[PHRASES] & JAVASCRIPT else POLICIES
    page[2] += line[SENTENCES]
    return STAYS


@allocating
def _clean_page(
    data: Bytes,
    at: int,
    end: int,
    flag_of: Flags,
    rules: Rules,
    tree: PhraseTree,
    out: Bytes,
    place: int,
    page: Any,
    log: Any,
    runs: bool,
) -> tuple[int, int]:
    """Write the lines that stay of a document to ``out``, stripped and joined by newlines.

    Adds to ``page``, shape (3,): placeholders, braces, sentences. Writes to ``log`` as many lines as it has rows, of
    those that are not blank and that go or lose marks: number, start and stop in ``data``, then in ``out``, rule. With
    ``runs``, lines that go by one rule, with no line that stays between them, share a row.

    Returns:
        Where the lines end, and how many rows there are for the log.
    """
    line = np.empty(FACTS, np.int64)
    kept, changed, number, run = 0, 0, 1, STAYS
    while at < end:
        at = _read_line(data, at, end, flag_of, rules, tree, line)
        begin, stop, words, longest = line[FIRST], line[STOP], line[WORDS], line[LONGEST]
        base, before, cut = place + (kept > 0), place, False
        if line[BRACKETS] and rules.citations:
            first, last = base, _write_line(data, begin, stop, rules, out, base)
            cut = last - first < stop - begin
        if cut:
            _read_line(out, first, last, flag_of, rules, tree, line)
            if not rules.datatrove:
                words, longest, first, last = line[WORDS], line[LONGEST], line[FIRST], line[STOP]
            rule = _check_form(out, first, last, words, longest, rules)
        else:
            rule = _check_form(data, begin, stop, words, longest, rules)
        rule = _judge(line, rule, rules, page)
        if rule == STAYS:
            if kept:
                out[place] = NEWLINE
            place = copy(out, first, last, out, base) if cut else copy(data, begin, stop, out, base)
            kept += 1
            run = STAYS
        if runs and rule != STAYS and rule == run:
            if stop > begin:
                log[_U(changed - 1), 2] = stop
        elif cut or (rule != STAYS and stop > begin):
            run = rule
            first, last = (base, place) if rule == STAYS else (before, before)
            log_line(log, changed, number, begin, stop, first, last, CUT if rule == STAYS else rule)
            changed += 1
        number += data[at - 1] == NEWLINE
    return place, changed


@compiled
def clean_pages(
    data: Bytes,
    offsets: Any,
    flag_of: Flags,
    rules: Rules,
    tree: PhraseTree,
    out: Bytes,
    ends: Any,
    counts: Any,
    log: Any,
    runs: bool,
) -> int:
    """Write the lines that stay of every document to ``out``, without the white space around all of them.

    Writes ``ends``, shape (documents + 1,), and ``counts``, shape (documents, 3): placeholders, braces, sentences; and
    to ``log``, which has room for all lines or for none, what :func:`_clean_page` writes, of all documents. ``runs``
    needs a log.

    Returns:
        How many rows are in the log.
    """
    place, logged = np.int64(0), 0
    ends[0] = 0
    for document in range(len(offsets) - 1):
        at, end, begin, here = offsets[document], offsets[document + 1], place, log[logged:]
        place, changed = _clean_page(data, at, end, flag_of, rules, tree, out, place, counts[document], here, runs)
        logged += min(changed, len(here))
        first = skip_space(out, begin, place, flag_of)
        last = drop_space(out, first, place, flag_of)
        if first > begin or last < place:
            shift_lines(here[:changed], first, last, begin)
            copy(out, first, last, out, begin)
        place = begin + last - first
        ends[document + 1] = place
    return logged


@compiled
def count_listed(
    data: Bytes, offsets: Any, roots: Any, unspaced: Any, flag_of: Flags, tree: PhraseTree, counts: Any
) -> None:
    """Count the listed words in every document whose root is not negative.

    A word is flanked by characters that are of no word, but in languages that ``unspaced`` says write without spaces.
    """
    for document in range(len(offsets) - 1):
        at, end, root = offsets[document], offsets[document + 1], roots[document]
        inside = False
        while at < end and root >= 0:
            point, after = decode(data, at)
            if (unspaced[root] or not inside) and tree.begins[min(point, OTHERS)]:
                node, place = root, at
                while place < end:
                    other, place = decode(data, place)
                    node = step(tree, node, other)
                    if node < 0:
                        break
                    if tree.kinds[node]:
                        flanked = place == end or not flag_of[decode(data, place)[0]] & WORD
                        counts[document] += flanked or unspaced[root]
            inside = flag_of[point] & WORD != 0
            at = after
