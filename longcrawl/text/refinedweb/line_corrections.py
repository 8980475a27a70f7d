"""Line-wise corrections of RefinedWeb, and proposals of new line patterns from frequent lines.

The shipped patterns are those named in the paper. Proposals must be read by a person before they are used.
"""

# ruff: noqa: PLR1714, SIM109

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.addresses import url_hosts
from longcrawl.core.batches import column
from longcrawl.core.display import Column, Table, Tabular
from longcrawl.core.places import LineChange
from longcrawl.core.stages import Check, Edited, stage, with_column
from longcrawl.errors import StageError
from longcrawl.io.files import check_target, make_folder, reread_when_changed, write_text
from longcrawl.kernels.code_points import NUMERIC, SPACE, UPPER, WORD, load_characters
from longcrawl.kernels.compiling import allocating, compiled
from longcrawl.kernels.lookup import OTHERS, PhraseTree, make_tree, step
from longcrawl.kernels.memory import (
    TESTED,
    count_bits,
    find_byte,
    find_capitals,
    find_digits,
    find_high,
    find_line_feeds,
    find_others,
    find_spaces,
    highest_bit,
    lowest_bit,
)
from longcrawl.kernels.texts import check_not_masked, copy, decode, skip_space, text_column, valid_texts
from longcrawl.text.languages import places_of_languages
from longcrawl.text.line_places import Buffers, Record, RecordedEdit, line_change, locate_lines, log_line, make_buffers
from longcrawl.text.presets import Presets
from longcrawl.text.values import tables

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]
Facts = npt.NDArray[np.int64]

KINDS = {
    name: 1 << bit
    for bit, name in enumerate(("uppercase", "numerical", "counter", "prefix", "suffix", "anywhere", "line"))
}
"""The rules that flag a line, in the order in which they are tried; several of the last ones can edit the same line."""
UPPERCASE, NUMERICAL, COUNTER, PREFIX, SUFFIX, ANYWHERE, LINE = KINDS.values()
AT_THE_END = SUFFIX | COUNTER | LINE
AFTER_NUMBER = 1  # offset of the root of phrases that follow a number from the root of those that do not
KEEP = -1  # value instead of a root for documents that are copied unchanged
FIRST, STOP, WORDS, CHARACTERS, SOLID, UPPERS, NUMERICS, CORE, CORE_STOP = range(9)
FACTS = 9
"""Facts about a line: its content in bytes, counts, and the bytes (``CORE``) from its first to its last ``\\w``."""
NEWLINE = 0x0A
_COMMA, _DOT, _PLUS, _K, _M, _B = b",.+kmb"
SPACE_BAR = np.uint32(0x20)
_UNDERSCORE = 0x5F
_U = np.uint64
_EVERY = _U(0xFFFFFFFFFFFFFFFF)


class Rules(NamedTuple):
    """Flags of code points, phrases, and thresholds; a disabled threshold is out of reach."""

    flag_of: Flags
    tree: PhraseTree
    uppercase: float  # a line with a larger share of upper-case characters is discarded
    numerical: float  # a line with at least this share of numerical characters, white space excluded, is discarded
    short: int  # a line with more words is not edited


@compiled
def _read_line(data: Bytes, at: int, end: int, flag_of: Flags, line: Facts) -> int:
    line[:] = 0
    line[FIRST] = line[CORE] = -1
    line[STOP] = line[CORE_STOP] = at
    ended, spaces, inside, first = False, 0, _U(0), np.int64(data.ctypes.data)
    while at < end and not ended:
        block = min(at + TESTED, end)
        taken = _EVERY if at + TESTED <= end else (_U(1) << _U(end - at)) - _U(1)
        if at + TESTED <= len(data) and find_high(first + at) & taken == _U(0):
            feeds = find_line_feeds(first + at) & taken
            if feeds != _U(0):
                taken &= feeds ^ (feeds - _U(1))
            ended = feeds != _U(0)
            spaces, inside = _read_ascii(first + at, at, taken, spaces, inside, line)
            at += count_bits(taken)
            continue
        while at < block and not ended:
            point, after = decode(data, at)
            flag = flag_of[point]
            if flag & SPACE:
                inside = _U(0)
                spaces += 1
                ended = point == NEWLINE
            else:
                line[WORDS] += inside == _U(0)
                line[CHARACTERS] += 1 + (spaces if line[FIRST] >= 0 else 0)
                line[FIRST] = at if line[FIRST] < 0 else line[FIRST]
                spaces, inside = 0, _U(1)
                line[SOLID] += 1
                line[UPPERS] += (flag & UPPER) != 0
                line[NUMERICS] += (flag & NUMERIC) != 0
                if flag & WORD:
                    line[CORE] = at if line[CORE] < 0 else line[CORE]
                    line[CORE_STOP] = after
                line[STOP] = after
            at = after
    return at


@compiled
def _read_ascii(
    address: int, at: int, taken: np.uint64, spaces: int, inside: np.uint64, line: Facts
) -> tuple[int, np.uint64]:
    """Add the ASCII characters with a bit in ``taken`` to a line; return its last spaces, and 1 inside a word."""
    blank = find_spaces(address) & taken
    solid = taken & ~blank
    if solid == _U(0):
        return spaces + count_bits(blank), _U(0)
    begin, last = lowest_bit(solid), highest_bit(solid)
    behind = count_bits(blank >> _U(last))
    digits = find_digits(address)
    word = (~find_others(address) | digits | find_byte(address, _UNDERSCORE)) & taken
    line[WORDS] += count_bits(solid & ~(solid << _U(1) | inside))
    line[CHARACTERS] += count_bits(taken) - behind
    if line[FIRST] < 0:
        line[FIRST] = at + begin
        line[CHARACTERS] -= begin
    else:
        line[CHARACTERS] += spaces
    line[STOP] = at + last + 1
    line[SOLID] += count_bits(solid)
    line[UPPERS] += count_bits(find_capitals(address) & taken)
    line[NUMERICS] += count_bits(digits & taken)
    if word != _U(0):
        line[CORE] = at + lowest_bit(word) if line[CORE] < 0 else line[CORE]
        line[CORE_STOP] = at + highest_bit(word) + 1
    return behind, solid >> _U(63)


@compiled
def _walk(data: Bytes, at: int, stop: int, wanted: int, rules: Rules, root: int) -> tuple[int, int]:
    """Return the kind and the end of the longest phrase of a wanted kind that starts at a byte; kind 0 for none."""
    kind, end, node, flag_of, tree = 0, at, root, rules.flag_of, rules.tree
    while at < stop:
        point, after = decode(data, at)
        flag = flag_of[point]
        if flag & SPACE:
            point, after = SPACE_BAR, skip_space(data, after, stop, flag_of)
        node = step(tree, node, point)
        if node < 0:
            break
        at = after
        found = tree.kinds[node] & wanted
        if at < stop:
            found &= ~AT_THE_END
            if found and flag & WORD and flag_of[decode(data, at)[0]] & WORD:
                found = 0
        if found:
            kind, end = found & -found, at
    return kind, end


@compiled
def _skip_number(data: Bytes, at: int, stop: int, flag_of: Flags) -> int:
    """Return the end of a number such as 3, 1,234 or 1.2K+ that starts at a byte, and of white space after it."""
    start = at
    while at < stop:
        point, after = decode(data, at)
        if not (flag_of[point] & NUMERIC or (at > start and (point == _COMMA or point == _DOT))):
            break
        at = after
    letter = data[at] | 0x20 if at < stop else 0  # K, M or B, in either case
    is_scale = letter == _K or letter == _M or letter == _B
    if is_scale and (at + 1 == stop or not flag_of[decode(data, at + 1)[0]] & WORD):
        at += 1
    if at < stop and data[at] == _PLUS:
        at += 1
    return skip_space(data, at, stop, flag_of)


@compiled
def _match(data: Bytes, at: int, stop: int, wanted: int, rules: Rules, root: int) -> tuple[int, int]:
    kind, end, point = 0, at, decode(data, at)[0]
    if rules.tree.begins[min(point, OTHERS)]:
        kind, end = _walk(data, at, stop, wanted, rules, root)
    if kind == 0 and rules.flag_of[point] & NUMERIC:
        after = _skip_number(data, at, stop, rules.flag_of)
        kind, end = _walk(data, after, stop, wanted, rules, root + AFTER_NUMBER)
    return kind, end


@compiled
def _write_piece(
    data: Bytes, start: int, stop: int, flag_of: Flags, out: Bytes, begin: int, place: int
) -> tuple[int, int]:
    words, inside, last = 0, False, start
    start = skip_space(data, start, stop, flag_of)
    at = start
    while at < stop:
        point, after = decode(data, at)
        solid = not flag_of[point] & SPACE
        words += solid and not inside
        inside = solid
        at = after
        if solid:
            last = at
    if words:
        if place > begin:
            out[place] = SPACE_BAR
            place += 1
        place = copy(data, start, last, out, place)
    return place, words


@compiled
def _edit(data: Bytes, start: int, stop: int, rules: Rules, root: int, out: Bytes, begin: int) -> tuple[int, int, int]:
    """Write a line's content without its phrases; return the kinds of phrases, the end, and the words left."""
    at, kept, place, kinds, words, in_word = start, start, begin, 0, 0, False
    flag_of, tree = rules.flag_of, rules.tree
    while at < stop:
        point, after = decode(data, at)
        word = flag_of[point] & WORD != 0
        if not (in_word and word) and (tree.begins[min(point, OTHERS)] or flag_of[point] & NUMERIC):
            wanted = PREFIX | SUFFIX | ANYWHERE if at == start else SUFFIX | ANYWHERE
            kind, end = _match(data, at, stop, wanted, rules, root)
            if kind:
                place, more = _write_piece(data, kept, at, flag_of, out, begin, place)
                words += more
                kinds |= kind
                kept = at = end
                in_word = False
                continue
        in_word = word
        at = after
    if kinds:
        place, more = _write_piece(data, kept, stop, flag_of, out, begin, place)
        words += more
    return kinds, place, words


@compiled
def _flag(data: Bytes, line: Facts, rules: Rules, root: int) -> int:
    if line[UPPERS] / line[CHARACTERS] > rules.uppercase:
        return UPPERCASE
    if line[NUMERICS] / line[SOLID] >= rules.numerical:
        return NUMERICAL
    if line[CORE] >= 0 and rules.flag_of[decode(data, line[CORE])[0]] & NUMERIC:
        after = _skip_number(data, line[CORE], line[CORE_STOP], rules.flag_of)
        counter = _walk(data, after, line[CORE_STOP], np.int64(COUNTER), rules, root + AFTER_NUMBER)[0]
        if counter:
            return counter
    return _match(data, line[FIRST], line[STOP], np.int64(LINE), rules, root)[0]


@allocating
def correct_lines(
    data: Bytes, offsets: Any, roots: Any, rules: Rules, out: Bytes, ends: Any, counts: Any, log: Any
) -> int:
    """Write the corrected documents to ``out``; return the number of flagged lines.

    Writes ``ends``, shape (documents + 1,); ``counts``, shape (documents, 3): words, removed words, words of flagged
    lines; and to ``log`` as many flagged lines as it has rows, see ``longcrawl.text.line_places``.
    """
    line = np.empty(FACTS, np.int64)
    place, flagged = np.int64(0), 0
    ends[0] = 0
    for document in range(len(offsets) - 1):
        at, end, root = offsets[document], offsets[document + 1], np.int64(roots[document])
        number, end_of_edit = 0, place
        if root == KEEP:
            place = copy(data, at, end, out, place)
            at = end
        while at < end:
            start, begin = at, place
            at = _read_line(data, at, end, rules.flag_of, line)
            number += 1
            words, left, kinds = line[WORDS], 0, 0
            counts[document, 0] += words
            if words:
                kinds = _flag(data, line, rules, root)
                if kinds == 0 and words <= rules.short:
                    begin = copy(data, start, line[FIRST], out, place)
                    kinds, end_of_edit, left = _edit(data, line[FIRST], line[STOP], rules, root, out, begin)
            if kinds == 0:
                place = copy(data, start, at, out, place)
                continue
            counts[document, 1] += words - left
            counts[document, 2] += words
            log_line(log, flagged, number, line[FIRST], line[STOP], begin, end_of_edit if left else begin, kinds)
            flagged += 1
            if left:
                place = copy(data, line[STOP], at, out, end_of_edit)
        ends[document + 1] = place
    return flagged


Phrases = dict[str, tuple[str, ...]]
_LISTS = ("counters", "prefixes", "suffixes", "anywhere", "lines")
_FORM = "it should be YAML like {default: en, languages: {en: {counters: [likes], suffixes: [Read more...]}}}"


LINE_PATTERNS = Presets("longcrawl.text.presets.lines", "line patterns", _FORM)


class LinePatterns(NamedTuple):
    """The patterns of a file: a phrase tree with two roots for each language, and two without phrases."""

    languages: tuple[str, ...]
    default: str | None
    tree: PhraseTree

    @property
    def none(self) -> int:
        """Root without any phrases."""
        return 2 * len(self.languages)


@reread_when_changed(8)
def read_line_patterns(name: str | None) -> LinePatterns:
    """Read shipped patterns by name or a YAML file (or StageError) by path; None gives patterns without phrases."""
    if name is None:
        return LinePatterns((), None, make_tree(2, []))
    languages, default = _read(name)
    return LinePatterns(tuple(languages), default, _make_tree(languages))


def _read(name: str) -> tuple[dict[str, Phrases], str | None]:
    found = LINE_PATTERNS.read(name)
    if not isinstance(found, dict) or not isinstance(found.get("languages"), dict):
        raise StageError(f"{name} holds no patterns by language; {_FORM}")
    for language in found["languages"]:
        if not isinstance(language, str):  # YAML reads a bare no as false
            raise StageError(f"{name} has the language {language!r}, which is not text; put it in quotes, as in 'no'")
    languages = {language: _phrases(lists, language, name) for language, lists in found["languages"].items()}
    default = found.get("default")
    if default is not None and default not in languages:
        raise StageError(f"{name} has the default {default!r}, not one of its languages: {', '.join(languages)}")
    return languages, default


def _phrases(lists: Any, language: str, name: str) -> Phrases:
    if not isinstance(lists, dict) or not all(
        isinstance(phrases, list) and all(isinstance(phrase, str) for phrase in phrases) for phrases in lists.values()
    ):
        raise StageError(f"{name} has for {language!r} something other than lists of phrases; {_FORM}")
    for kind in lists:
        if kind not in _LISTS:
            raise StageError(f"{name} has the list {kind!r} for {language!r}; known: {', '.join(_LISTS)}")
    cleaned = {kind: tuple(" ".join(phrase.split()) for phrase in phrases) for kind, phrases in lists.items()}
    for kind, phrases in cleaned.items():
        for phrase in phrases:
            if phrase.removeprefix("#").strip() == "" or (kind == "counters" and phrase.startswith("#")):
                raise StageError(
                    f"{name} has the phrase {phrase!r} among the {kind} of {language!r}; write words, "
                    "for counters without a # at the start"
                )
    return cleaned


def _make_tree(languages: dict[str, Phrases]) -> PhraseTree:
    bits = dict(zip(_LISTS, (COUNTER, PREFIX, SUFFIX, ANYWHERE, LINE), strict=True))
    entered = []
    for number, lists in enumerate(languages.values()):
        for kind, phrases in lists.items():
            for phrase in phrases:
                counted = kind == "counters" or phrase.startswith("#")
                words = phrase.removeprefix("#").strip() if counted else phrase
                entered.append((2 * number + AFTER_NUMBER * counted, words, bits[kind]))
    return make_tree(2 * len(languages) + 2, entered)


_OUT_OF_REACH = 2.0  # larger than any share


@stage
class LineCorrections(RecordedEdit):
    r"""Discard and edit lines that are not text, and drop documents with too many of them (RefinedWeb, G.2).

    A line ends at ``\n``. It is judged without surrounding white space, by the first of these rules that applies:

    * ``uppercase``: more than ``max_uppercase_characters`` of its characters are upper case (``str.isupper``); the
      paper's word is "mainly";
    * ``numerical``: at least ``min_numerical_characters`` of its characters other than white space are numerical
      (``str.isnumeric``). At 1.0, as in the paper, all must be: "1 2 3" is discarded, "1.2" is kept;
    * ``counter``: it is a number and a word such as "3 likes", "1.2K views" or "(12 comments)";
    * ``line``: it equals one of the ``lines`` of the patterns, from its first to its last character; none is shipped,
      and :func:`longcrawl.text.propose_lines` finds those of a crawl;
    * phrases are cut from a line of at most ``short_line_words`` words: a ``prefix`` such as "sign-in", a ``suffix``
      such as "Read more...", and a phrase found ``anywhere``, such as "items in cart". The rest of the line is joined
      by single spaces and keeps the white space around the line. A line of which nothing is left is removed.

    A discarded line is removed with its line end. Everything else is kept byte for byte, including blank lines, which
    are never judged. No line is judged twice.

    A document is removed, by the rule ``max_removed_words``, if more than this share of its words are affected. G.2
    counts all words in the flagged lines: ``counted="flagged"``. Section 3.2 counts only the words that the corrections
    remove: ``counted="removed"``. A threshold of None disables its rule; ``patterns`` of None disables all rules that
    need phrases.

    Args:
        max_uppercase_characters: share of a line's characters, including white space inside it.
        min_numerical_characters: share of a line's characters other than white space.
        short_line_words: a line with more words is not edited; the rule ``counter`` applies to every line.
        max_removed_words: maximum share of affected words in a kept document.
        counted: affected words: all of the "flagged" lines, or only those "removed".
        patterns: phrases by language, as data: shipped ones by name (``refinedweb``), or the path of a YAML file of the
            same form. Only four of the shipped phrases, named above, are the paper's, which lists no others.
        language: the language of all documents; None uses the column ``language``. en-GB and eng_Latn are English.
        on_unknown_language: treatment of a document in a language that ``patterns`` lacks: "error" raises an error;
            "default" uses the phrases of the file's ``default`` language (English in the shipped one); "keep" leaves
            the document unchanged. The paper notes that its rules "require adaptation across languages".

    Source: Penedo et al., "The RefinedWeb Dataset for Falcon LLM", 2023, sections 3.2 and G.2.

    >>> LineCorrections().changes("Some text.\n3 likes\nThe story goes on. Read more...\n", language="en")[1]
    LineChange(line=3, before='The story goes on. Read more...', after='The story goes on.', rule='suffix')
    """

    max_uppercase_characters: float | None = 0.5
    min_numerical_characters: float | None = 1.0
    short_line_words: int | None = 10
    max_removed_words: float | None = 0.05
    counted: Literal["flagged", "removed"] = "flagged"
    patterns: str | None = "refinedweb"
    language: str | None = None
    on_unknown_language: Literal["error", "default", "keep"] = "error"
    rewrites = "text"
    code_version: ClassVar[str] = "2"

    def files(self) -> tuple[str, ...]:
        """Return the user's own file of patterns, if there is one."""
        return LINE_PATTERNS.own_files(self.patterns)

    def prepare(self) -> None:
        """Read the patterns, compile the kernel, and check ``language``, if given; StageError for an unknown one."""
        one = pa.table({"text": pa.array([""], pa.large_string()), "language": pa.array([self.language], pa.string())})
        self.edit(one.slice(0, 0 if self.language is None else 1))

    def edit_and_record(self, table: pa.Table, record: Record) -> Edited:
        """Correct the column ``text``, measure the share of affected words, and list the flagged lines.

        The place of a discarded line is the whole line; the places of an edited line are its changes.
        """
        check_not_masked(table, self.name)
        texts = valid_texts(column(table, "text", self.name), self.name)
        made, flagged = self._correct(table, texts, record)
        places = locate_lines(made, flagged, _name, "line")
        if flagged:
            corrected = text_column(made.out, made.ends, texts, table.schema.field("text").type)
            table = with_column(table, "text", corrected)
        if self.max_removed_words is None:
            return Edited(table, [], places)
        touched = made.counts[:, 2 if self.counted == "flagged" else 1]
        share = pa.array(touched / np.maximum(made.counts[:, 0], 1))
        passes = pc.less_equal(share, self.max_removed_words)
        check = Check("max_removed_words", share, passes, self.max_removed_words, "at_most")
        return Edited(table, [check], places)

    def changes(self, text: str, language: str | None = None) -> list[LineChange]:
        """Return the changes to one text, line by line; ``language`` overrides the field of that name."""
        if language is not None:
            return replace(self, language=language).changes(text)
        unnamed = pa.table({"language": pa.array([None], pa.string())})
        made, flagged = self._correct(unnamed, pa.array([text], pa.large_string()), "places")
        return [line_change(made, row, _name(row[5]), edited=row[4] > row[3]) for row in made.log[:flagged].tolist()]

    def _roots(self, table: pa.Table, patterns: LinePatterns) -> npt.NDArray[np.int32]:
        if self.patterns is None:
            return np.full(table.num_rows, patterns.none, np.int32)
        places, spoken = places_of_languages(table, patterns.languages, self.language, self.name)
        unknown = places < 0
        if self.on_unknown_language == "error" and unknown.any():
            raise StageError(
                f"{self.name} has no line patterns for the language {spoken[int(unknown.argmax())].as_py()!r}, only "
                f"for: {', '.join(patterns.languages)}; set on_unknown_language to 'default' or 'keep', or language"
            )
        other = patterns.none if patterns.default is None else 2 * patterns.languages.index(patterns.default)
        other = KEEP if self.on_unknown_language == "keep" else other
        return np.where(unknown, other, 2 * places).astype(np.int32)

    def _correct(self, table: pa.Table, texts: pa.Array, record: Record) -> tuple[Buffers, int]:
        patterns = read_line_patterns(self.patterns)
        rules = Rules(
            load_characters("re").flags,
            patterns.tree,
            _OUT_OF_REACH if self.max_uppercase_characters is None else float(self.max_uppercase_characters),
            _OUT_OF_REACH if self.min_numerical_characters is None else float(self.min_numerical_characters),
            -1 if self.short_line_words is None else self.short_line_words,
        )
        made = make_buffers(texts, record)
        return made, correct_lines(*made[:2], self._roots(table, patterns), rules, *made[2:])


def _name(kinds: int) -> str:
    return "+".join(name for name, kind in KINDS.items() if kinds & kind)


LONGEST = 100  # greatest number of characters in a counted line
HELD = 1_000_000  # distinct lines in memory; beyond it, lines found in only one document so far are dropped
SITES = 3  # greatest number of distinct sites that is counted for a line
_SHOWN = 30
_SCALES = ("", "k", "m", "b")

PROPOSED_SCHEMA = pa.schema(
    [("pattern", pa.string()), ("list", pa.string()), ("documents", pa.int64()), ("sites", pa.int64())]
)
"""Schema with one row per pattern; ``sites`` is at most ``SITES``, and null if documents have no URL."""


@dataclass(frozen=True, repr=False)
class ProposedLines(Tabular):
    """Lines found in many documents; prints as a table, most frequent first."""

    table: pa.Table  # schema ``PROPOSED_SCHEMA``, sorted by documents
    documents: int  # number of documents counted

    def tables(self) -> tuple[Table]:
        """Return the ``_SHOWN`` most frequent lines as a table."""
        shown, whole = self.table.slice(0, _SHOWN).to_pylist(), max(self.documents, 1)
        rows = [
            [row["pattern"], row["list"], row["documents"], row["documents"] / whole, _sites(row["sites"])]
            for row in shown
        ]
        columns = [Column("line"), Column("list"), Column("documents", "count"), Column("of all", "share")]
        columns.append(Column("sites"))
        more = self.table.num_rows - _SHOWN
        about = f"{self.table.num_rows:,} lines found in several of {self.documents:,} documents"
        return (Table(columns, rows, about, [f"and {more:,} more, in .table"] if more > 0 else []),)

    def save(self, path: str | Path, language: str = "en") -> None:
        """Write a new file for ``LineCorrections.patterns``, to be edited; raise StageError if it cannot be written."""
        target = Path(path)
        check_new_patterns(target)
        lines = [
            f"# Lines of {self.documents:,} documents, and the number of documents with each. Review them before use.",
            f"default: {json.dumps(language)}",
            "languages:",
            f"  {json.dumps(language)}:",
        ]
        for kind in ("counters", "lines"):
            chosen = [row for row in self.table.to_pylist() if row["list"] == kind]
            lines.append(f"    {kind}:{'' if chosen else ' []'}")
            lines += [f"      - {_phrase(row)}  # {row['documents']:,} documents" for row in chosen]
        write_text(target, "\n".join(lines) + "\n")


def check_new_patterns(path: Path) -> None:
    """Raise StageError if a file of patterns cannot be written."""
    check_target(path, StageError, "remove it, or choose another --out", example="lines.yaml")
    make_folder(path.parent, StageError, "choose another --out")


def propose_lines(
    documents: Any,
    *,
    min_documents: int | None = None,
    max_words: int = 10,
    most: int = 500,
    patterns: str | None = "refinedweb",
) -> ProposedLines:
    r"""Return the short lines found in most documents, as proposals for line patterns.

    Lines are compared in lower case, with single spaces, and with # for a number at the beginning. A line counts once
    per document. Lines that ``LineCorrections`` already discards or edits, lines without a letter and, if documents
    have URLs, lines from a single site are left out.

    Args:
        documents: a ``datasets.Dataset`` or ``IterableDataset``, a crawl, or an Arrow table with a column ``text``.
        min_documents: leave out lines found in fewer documents. None: 3, or a thousandth of all if that is more.
        max_words: maximum number of words in a line.
        most: maximum number of lines to return.
        patterns: patterns already in use, as ``LineCorrections.patterns``; None for none.

    >>> texts = [f"Story {n} is told.\nShare this\n{n} people like it" for n in range(5)]
    >>> propose_lines(pa.table({"text": texts})).table["pattern"].to_pylist()
    ['# people like it', 'share this']
    """
    used = LineCorrections(patterns=patterns, language="en", on_unknown_language="default", max_removed_words=None)
    counts: defaultdict[str, int] = defaultdict(int)
    sites: defaultdict[str, set[str]] = defaultdict(set)
    total, has_urls = 0, False
    for table in tables(documents):
        column(table, "text", "lines")
        corrected = used.edit(table)[0]
        hosts = url_hosts(table["url"]).to_pylist() if "url" in table.column_names else [None] * table.num_rows
        has_urls |= any(host is not None for host in hosts)
        for text, host in zip(valid_texts(column(corrected, "text", "lines"), "lines"), hosts, strict=True):
            for line in set(_short_lines(text.as_py() or "", max_words)):
                counts[line] += 1
                if host is not None and len(sites[line]) < SITES:
                    sites[line].add(host)
        total += table.num_rows
        if len(counts) > HELD:
            counts = defaultdict(int, {line: count for line, count in counts.items() if count > 1})
            sites = defaultdict(set, {line: sites[line] for line in counts if line in sites})
    least = max(3, math.ceil(total / 1000)) if min_documents is None else min_documents
    frequent = [line for line, count in counts.items() if count >= least and (not has_urls or len(sites[line]) > 1)]
    chosen = sorted(frequent, key=lambda line: (-counts[line], line))[:most]
    columns = [chosen, list(map(_list, chosen)), [counts[line] for line in chosen]]
    named = [len(sites[line]) if has_urls else None for line in chosen]
    return ProposedLines(pa.table([*columns, named], schema=PROPOSED_SCHEMA), total)


def _short_lines(text: str, max_words: int) -> Iterator[str]:
    for line in text.split("\n"):
        words = line.split(None, max_words) if len(line) <= 2 * LONGEST else []
        if not 0 < len(words) <= max_words:
            continue
        if _is_number(words[0]):
            words[0] = "#"
        compared = " ".join(words).lower()
        if len(compared) <= LONGEST and any(map(str.isalpha, compared)):
            yield compared


def _is_number(word: str) -> bool:
    return word[:1].isdigit() and word.lower().strip("0123456789.,+") in _SCALES


def _list(line: str) -> Literal["counters", "lines"]:
    words = line.split(" ")
    return "counters" if words[0] == "#" and all(map(str.isalpha, words[1:])) else "lines"


def _phrase(row: dict[str, Any]) -> str:
    pattern: str = row["pattern"]
    return json.dumps(pattern.removeprefix("# ") if row["list"] == "counters" else pattern, ensure_ascii=False)


def _sites(count: int | None) -> str:
    return "" if count is None else f"{count} or more" if count == SITES else f"{count}"
