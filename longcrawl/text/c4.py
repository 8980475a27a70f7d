"""C4's rules: keep lines that look like sentences, and documents with enough of them."""

# ruff: noqa: FBT001, SIM110

from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import UNLISTED_SPACE, LineChange
from longcrawl.core.stages import Check, Edited, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.kernels.code_points import NUMERIC, SENTENCE_END, SPACE, WORD, load_characters
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import OTHERS, PhraseTree, make_tree, read_word_lists, step
from longcrawl.kernels.texts import (
    begins_with,
    check_not_masked,
    copy,
    decode,
    drop_space,
    last_start,
    skip_space,
    text_column,
    valid_texts,
)
from longcrawl.text.languages import Languages, find_language, places_of_languages
from longcrawl.text.line_places import (
    Record,
    RecordedEdit,
    line_change,
    locate_lines,
    log_line,
    make_buffers,
    shift_lines,
)

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint16]
Facts = npt.NDArray[np.int64]
Points = npt.NDArray[np.uint32]
JAVASCRIPT, POLICY, LOREM_IPSUM = 1, 2, 4  # kinds of phrases, as bit flags
STAYS, UNENDED, SHORT, OVERLONG, SCRIPT, POLICIES, CUT = range(7)
RULES = dict(enumerate(UNLISTED_SPACE, UNENDED))
"""Field names of the rules for lines: the first one that applies removes the line, but the last only cuts citation
marks."""
FIRST, STOP, WORDS, LONGEST, SENTENCES, BRACES, BRACKETS, PHRASES, PLACEHOLDERS = range(9)
FACTS = 9
"""Facts about a line; its content is the bytes from ``FIRST`` to ``STOP``, ``LONGEST`` a word's characters."""
BRACE, BRACKET, CLOSING_BRACKET, DOT = b"{[]."
NEWLINE, RETURN = 0x0A, 0x0D
_U = np.uint64
_SOLID, _LETTER, _BRACKET, _MARK, _CLOSER, _HALT, _FIRST = 1, 2, 4, 8, 16, 32, 1 << 8
"""Flags of a byte, such as ``_HALT`` for a closer look; from ``_FIRST`` on, its possible positions in phrases."""


class Rules(NamedTuple):
    """Thresholds of the rules for lines; the threshold of a disabled rule is out of reach."""

    flag_of: Flags  # flags of code points
    tree: PhraseTree  # the phrases of the rules
    datatrove: bool  # whether the definitions are datatrove's, not the paper's
    citations: bool  # whether citation marks are cut
    terminal: bool  # whether a line must end in a terminal mark
    marks: npt.NDArray[np.uint32]  # code points of the terminal marks
    closers: npt.NDArray[np.uint32]  # code points allowed between the end of a sentence and white space
    zeros: npt.NDArray[np.uint32]
    """Code point of the zero of every script with decimal digits; the other nine digits follow it."""
    min_words: int
    max_word_length: int
    byte_flags: npt.NDArray[np.int64]  # flags of bytes, shape (256,), see ``make_byte_flags``


def make_byte_flags(
    flag_of: Flags, tree: PhraseTree, marks: Points, closers: Points, datatrove: bool
) -> npt.NDArray[np.int64]:
    """Return the flags of each byte as the first byte of a character, int64 [256]."""
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
    """Return the end of the citation mark that starts with the bracket at ``at``, or ``at`` if there is none."""
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
    """Record the kinds of phrases that match a place; their first ``tree.sure`` characters end at byte ``at``."""
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
def _ends_sentence(data: Bytes, at: int, end: int, rules: Rules) -> tuple[bool, int]:
    """Return whether white space or nothing follows the marks that start at a byte, and the end of the marks."""
    while at < end:
        flag = rules.byte_flags[data[at]]
        if flag & _CLOSER:
            at += 1
            continue
        if data[at] < OTHERS:
            return flag & _SOLID == 0, at
        point, after = decode(data, at)
        if not _is_one_of(point, rules.closers):
            return rules.flag_of[point] & SPACE != 0, at
        at = after
    return True, at


@compiled
def _trim(data: Bytes, start: int, stop: int, rules: Rules, line: Facts) -> None:
    if stop > start and rules.byte_flags[data[start]] & rules.byte_flags[data[stop - 1]] & _SOLID:
        line[FIRST], line[STOP] = start, stop
        return
    first = skip_space(data, start, stop, rules.flag_of)
    line[FIRST], line[STOP] = first, drop_space(data, first, stop, rules.flag_of)


@compiled
def _read_line(data: Bytes, at: int, end: int, rules: Rules, line: Facts) -> int:
    start, stop, words, longest, length, sentences, checked = at, end, 0, 0, 0, 0, at
    seen, noted, state, before = 0, 0, 0, 0
    flag_of, tree, byte_flags = rules.flag_of, rules.tree, rules.byte_flags
    found = _FIRST << (tree.sure - 1)
    line[BRACES] = line[PHRASES] = line[PLACEHOLDERS] = 0
    while at < end:
        # Most text is ASCII within a sentence, which this loop handles without branches.
        while at < end:
            # An unsigned index saves the check for a negative one.
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
            ends, checked = _ends_sentence(data, at, end, rules)
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
    _trim(data, start, stop, rules, line)
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
    if rules.terminal and not _ends_in_mark(out, first, last, rules):
        return UNENDED
    if words < rules.min_words:
        return SHORT
    return OVERLONG if longest > rules.max_word_length else STAYS


@forced_inline
def _judge(line: Facts, rule: int, rules: Rules, page: Any) -> int:
    """Return the first rule that removes a line, or ``STAYS``, and add its counts to those of the page."""
    # The paper looks for placeholders and braces in the whole page, datatrove in lines that the earlier rules keep.
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
    data: Bytes, at: int, end: int, rules: Rules, out: Bytes, place: int, page: Any, log: Any, runs: bool
) -> tuple[int, int]:
    """Write the kept lines of a document to ``out``, stripped and joined by newlines, and its counts to ``page``.

    Removed lines and those that lose marks go to ``log``, up to its rows; if ``runs``, consecutive lines removed by one
    rule share a row. Returns the end of the lines in ``out``, and the number of rows for the log.
    """
    line = np.empty(FACTS, np.int64)
    kept, changed, number, run = 0, 0, 1, STAYS
    while at < end:
        at = _read_line(data, at, end, rules, line)
        begin, stop, words, longest = line[FIRST], line[STOP], line[WORDS], line[LONGEST]
        base, before, cut = place + (kept > 0), place, False
        if line[BRACKETS] and rules.citations:
            first, last = base, _write_line(data, begin, stop, rules, out, base)
            cut = last - first < stop - begin
        if cut:
            _read_line(out, first, last, rules, line)
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
    data: Bytes, offsets: Any, rules: Rules, out: Bytes, ends: Any, counts: Any, log: Any, runs: bool
) -> int:
    """Write the kept lines of every document to ``out``, without white space around it; return the rows of the log.

    ``counts`` are placeholders, braces, sentences. ``log`` has room for all lines or for none; ``runs`` needs it.
    """
    place, logged = np.int64(0), 0
    ends[0] = 0
    for document in range(len(offsets) - 1):
        at, end, begin, here = offsets[document], offsets[document + 1], place, log[logged:]
        place, changed = _clean_page(data, at, end, rules, out, place, counts[document], here, runs)
        logged += min(changed, len(here))
        first = skip_space(out, begin, place, rules.flag_of)
        last = drop_space(out, first, place, rules.flag_of)
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
    """Count the listed words in every document whose root is not negative, by the rule ``bad_words``."""
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


POLICY_PHRASES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_MARKS = {"paper": '.!?"”', "datatrove": ".!?\"'"}
_CLOSERS = "\"'”\N{RIGHT SINGLE QUOTATION MARK}»\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK})]}"
_UNSPACED: Languages = {"ja": {}, "th": {}, "zh": {}}
"""Languages written without spaces, in which a listed word counts anywhere in a text."""
_OUT_OF_REACH = np.iinfo(np.int64).max


@stage
class C4Quality(RecordedEdit):
    r"""Keep the lines that C4 keeps, and the documents that have enough of them.

    A line is kept if it

    * ends in a terminal punctuation mark: . ! ? or an end quotation mark (" or ”), ignoring white space after it;
    * has at least ``min_words_per_line`` words, and none of more than ``max_word_length`` characters; white space
      separates words;
    * contains neither "javascript" nor any of the ``policy_phrases``, in any case and also inside words.

    Citation marks ([1], [], [edit], [citation needed]) are cut from lines first. The kept lines are stripped and joined
    by ``\n``; blank lines are dropped. The first of these rules that applies removes a document:

    * ``lorem_ipsum``: one of its lines contains the phrase;
    * ``curly_bracket``: the document contains a {;
    * ``min_sentences``: its kept lines have fewer sentences than this threshold;
    * ``bad_words``: its kept lines contain a word of the list for its language as a whole word (in Japanese, Thai and
      Chinese: anywhere).

    A document without text counts as empty, so it has no sentences.

    A sentence has a letter or a digit and ends at a run of . ! ?, with any quotation marks and brackets closed after
    it, before white space, or at the end of the line. C4 counted with nltk's punkt, which knows that "Dr." does not end
    a sentence.

    The defaults, 3 words and 5 sentences, are those of the paper's first versions; the code that made C4 uses 5 words
    and 3 sentences.

    Args:
        definitions: "paper" uses the rules of this description. "datatrove" gives the results of datatrove 0.10 except
            for sentences. They equal those of T5's code except for the apostrophe. Lines end where ``str.splitlines``
            ends them. ' and " are terminal marks, but ” and "..." are not. Words are counted and white space is
            stripped before citation marks are cut, so a line that ends in a citation mark is removed. Braces and
            placeholders count only on lines that the earlier rules keep, and a brace beside "javascript" does not
            count.
        terminal_punctuation: "ignored" keeps lines with any ending, as FineWeb does.
        min_words_per_line: the smallest number of words of a kept line; None for no limit.
        max_word_length: the length of the longest word of a kept line, in characters; None for no limit.
        min_sentences: the smallest number of sentences of a kept document; None for no limit.
        javascript: whether to drop or keep lines that contain "javascript".
        policy_phrases: phrases that remove a line; an empty list removes none.
        citations: whether to cut or keep citation marks.
        lorem_ipsum: whether to drop or keep documents with this phrase.
        curly_bracket: whether to drop or keep documents with a {.
        bad_words: a folder of LANGUAGE or LANGUAGE.txt, or a JSON file of {language: [word, …]}. C4 used
            github.com/LDNOOBW/List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words (CC BY 4.0). A document in a
            language without a list passes.
        language: the language of all documents; None takes the column ``language``. Only ``bad_words`` needs it.

    Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020,
    section 2.2.

    >>> import pyarrow as pa
    >>> text = "Home | About\nIt has one sentence[1]. It has two.\nWe use cookies on this page."
    >>> C4Quality(min_sentences=2)(pa.table({"text": [text]}))["text"][0].as_py()
    'It has one sentence. It has two.'
    """

    definitions: Literal["paper", "datatrove"] = "paper"
    terminal_punctuation: Literal["required", "ignored"] = "required"
    min_words_per_line: int | None = 3
    max_word_length: int | None = 1000
    min_sentences: int | None = 5
    javascript: Literal["drop", "keep"] = "drop"
    policy_phrases: tuple[str, ...] = POLICY_PHRASES
    citations: Literal["cut", "keep"] = "cut"
    lorem_ipsum: Literal["drop", "keep"] = "drop"
    curly_bracket: Literal["drop", "keep"] = "drop"
    bad_words: str | None = None
    language: str | None = None
    rewrites = "text"
    code_version: ClassVar[str] = "2"

    def __post_init__(self) -> None:
        super().__post_init__()
        for phrase in self.policy_phrases:
            if not phrase or phrase != phrase.strip():
                raise StageError(f"c4_quality.policy_phrases has {phrase!r}: write words, without spaces around them")

    def files(self) -> tuple[str, ...]:
        """Return the path of ``bad_words``."""
        return () if self.bad_words is None else (self.bad_words,)

    def prepare(self) -> None:
        """Read the word list and compile the kernels; raise StageError if the list cannot be read."""
        self.edit(pa.table({"text": pa.array([], pa.large_string()), "language": pa.array([], pa.string())}))

    def edit_and_record(self, table: pa.Table, record: Record) -> Edited:
        """Remove lines from the column ``text``, check every document, and list removed lines and lost citation marks.

        Consecutive lines removed by the same rule are one place. Changes to white space are not listed.
        """
        check_not_masked(table, self.name)
        texts = valid_texts(column(table, "text", self.name), self.name)
        made = make_buffers(texts, record)
        logged = clean_pages(*made[:2], self._rules(), *made[2:], record == "places")
        checks = self._counted(made.counts)
        if self.bad_words is not None:
            checks.append(_at_most_none("bad_words", self._listed(table, made.out, made.ends)))
        cleaned = text_column(made.out, made.ends, texts, table.schema.field("text").type)
        places = locate_lines(made, logged, RULES.__getitem__, "content")
        return Edited(with_column(table, "text", cleaned), checks, places)

    def changes(self, text: str, language: str | None = None) -> list[LineChange]:  # noqa: ARG002  # lines have no language
        r"""Return the removed lines of one text, and those that lose citation marks; line numbers count ``\n`` only."""
        made = make_buffers(pa.array([text], pa.large_string()), "places")
        changed = clean_pages(*made[:2], self._rules(), *made[2:], False)
        return [line_change(made, row, RULES[row[5]], edited=row[5] == CUT) for row in made.log[:changed].tolist()]

    def _counted(self, counts: npt.NDArray[np.int64]) -> list[Check]:
        checks = [_at_most_none("lorem_ipsum", counts[:, 0])] if self.lorem_ipsum == "drop" else []
        checks += [_at_most_none("curly_bracket", counts[:, 1])] if self.curly_bracket == "drop" else []
        if self.min_sentences is not None:
            sentences = pa.array(counts[:, 2])
            passes = pc.greater_equal(sentences, self.min_sentences)
            checks.append(Check("min_sentences", sentences, passes, self.min_sentences, "at_least"))
        return checks

    def _listed(self, table: pa.Table, data: Bytes, offsets: Facts) -> Facts:
        lists = _read_bad_words(self.bad_words or "")
        roots, _ = places_of_languages(table, lists.languages, self.language, self.name)
        counts = np.zeros(table.num_rows, np.int64)
        count_listed(data, offsets, roots, lists.unspaced, load_characters("re").flags, lists.tree, counts)
        return counts

    def _rules(self) -> Rules:
        datatrove = self.definitions == "datatrove"
        # A phrase that contains a line end cannot occur within a line.
        ends = str.splitlines if datatrove else partial(str.split, sep="\n")
        policy_phrases = tuple(phrase for phrase in self.policy_phrases if len(ends(phrase)) == 1)
        phrases = _make_phrases(self.javascript == "drop", policy_phrases)
        marks, closers, flags = _points(_MARKS[self.definitions]), _points(_CLOSERS), load_characters("re").flags
        return Rules(
            flags,
            phrases,
            datatrove,
            self.citations == "cut",
            self.terminal_punctuation == "required",
            marks,
            closers,
            _zeros(),
            -1 if self.min_words_per_line is None else self.min_words_per_line,
            _OUT_OF_REACH if self.max_word_length is None else self.max_word_length,
            make_byte_flags(flags, phrases, marks, closers, datatrove),
        )


class _BadWords(NamedTuple):
    languages: tuple[str, ...]
    tree: PhraseTree
    unspaced: npt.NDArray[np.bool_]


def _at_most_none(rule: str, counts: npt.NDArray[np.int64]) -> Check:
    return Check(rule, pa.array(counts), pa.array(counts == 0), 0.0, "at_most")


def _points(characters: str) -> npt.NDArray[np.uint32]:
    return np.array([ord(character) for character in characters], np.uint32)


@lru_cache(maxsize=1)
def _zeros() -> npt.NDArray[np.uint32]:
    numerals = np.flatnonzero(load_characters("re").flags & NUMERIC)
    return np.array([point for point in numerals if chr(point).isdecimal() and int(chr(point)) == 0], np.uint32)


@lru_cache(maxsize=8)
def _make_phrases(javascript: bool, policy_phrases: tuple[str, ...]) -> PhraseTree:  # arguments are the cache's key
    phrases = [(0, phrase, POLICY) for phrase in policy_phrases] + [(0, "lorem ipsum", LOREM_IPSUM)]
    return make_tree(1, [*phrases, *([(0, "javascript", JAVASCRIPT)] if javascript else [])])


@reread_when_changed(4)
def _read_bad_words(path: str) -> _BadWords:
    lists = read_word_lists(path)
    phrases = [(number, word, 1) for number, words in enumerate(lists.values()) for word in sorted(words)]
    unspaced = np.array([find_language(_UNSPACED, language) is not None for language in lists], np.bool_)
    return _BadWords(tuple(lists), make_tree(len(lists), phrases), unspaced)
