"""RefinedWeb's line-wise corrections: lines that match patterns, shipped or a user's, are discarded or edited."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import LineChange
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.code_points import load_characters
from longcrawl.kernels.phrases import PhraseTree, make_tree
from longcrawl.kernels.texts import check_not_masked, text_buffers, text_column, valid_texts
from longcrawl.storage.files import reread_when_changed
from longcrawl.text.languages import places_of_languages
from longcrawl.text.lines.places import LOGGED, locate_lines, most_lines
from longcrawl.text.presets import Presets

Phrases = dict[str, tuple[str, ...]]

_LISTS = ("counters", "prefixes", "suffixes", "anywhere", "lines")
_FORM = "it should be YAML like {default: en, languages: {en: {counters: [likes], suffixes: [Read more...]}}}"


LINE_PATTERNS = Presets("longcrawl.text.presets.lines", "line patterns", _FORM)


class LinePatterns(NamedTuple):
    """The patterns of one file: a tree with two roots for each language, and one pair that has no phrases."""

    languages: tuple[str, ...]
    default: str | None
    tree: PhraseTree

    @property
    def none(self) -> int:
        """The root of no phrases at all."""
        return 2 * len(self.languages)

    @property
    def default_root(self) -> int:
        """The root of the default language's phrases, or of none where the file names no default."""
        return self.none if self.default is None else 2 * self.languages.index(self.default)


@reread_when_changed(8)
def read_line_patterns(name: str | None) -> LinePatterns:
    """Read patterns by the name of shipped ones or by the path of a YAML file; None gives patterns without phrases.

    Raises:
        StageError: there is no such file, or it is not of the form of the shipped one.
    """
    if name is None:
        return LinePatterns((), None, make_tree(2, []))
    languages, default = _read(name)
    return LinePatterns(tuple(languages), default, _make_tree(languages))


def _read(name: str) -> tuple[dict[str, Phrases], str | None]:
    found = LINE_PATTERNS.read(name)
    if not isinstance(found, dict) or not isinstance(found.get("languages"), dict):
        raise StageError(f"{name} holds no patterns by language; {_FORM}")
    named = {_language(language, name): lists for language, lists in found["languages"].items()}
    languages = {language: _phrases(lists, language, name) for language, lists in named.items()}
    default = found.get("default")
    if default is not None and default not in languages:
        raise StageError(f"{name} has the default {default!r}, not one of its languages: {', '.join(languages)}")
    return languages, default


def _language(language: Any, name: str) -> str:
    if not isinstance(language, str):
        # YAML reads a bare no as false.
        raise StageError(f"{name} has the language {language!r}, which is not text; put it in quotes, as in 'no'")
    return language


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
                raise StageError(f"{name} has the phrase {phrase!r} among the {kind} of {language!r}; give it words")
    return cleaned


def _make_tree(languages: dict[str, Phrases]) -> PhraseTree:
    from longcrawl.text.refinedweb._line_kernels import AFTER_NUMBER, ANYWHERE, COUNTER, LINE, PREFIX, SUFFIX

    bits = dict(zip(_LISTS, (COUNTER, PREFIX, SUFFIX, ANYWHERE, LINE), strict=True))
    entered = []
    for number, lists in enumerate(languages.values()):
        for kind, phrases in lists.items():
            for phrase in phrases:
                counted = kind == "counters" or phrase.startswith("#")
                words = phrase.removeprefix("#").strip() if counted else phrase
                entered.append((2 * number + AFTER_NUMBER * counted, words, bits[kind]))
    return make_tree(2 * len(languages) + 2, entered)


_OUT_OF_REACH = 2.0
"""More than any share."""


@stage
class LineCorrections(Edit):
    r"""Discard and edit lines that are not text, and drop documents that consist too much of them: RefinedWeb's G.2.

    A line ends at ``\n``; it is judged without the white space around it, by the first of these rules:

    * ``uppercase``: more than ``max_uppercase_characters`` of its characters are upper case (``str.isupper``); the
      paper says "mainly";
    * ``numerical``: at least ``min_numerical_characters`` of its characters other than white space are numerical
      (``str.isnumeric``). At 1.0 that is all, as the paper has it: "1 2 3" goes and "1.2" stays;
    * ``counter``: it is a number and a word such as "3 likes", "1.2K views" or "(12 comments)";
    * ``line``: it is one of the ``lines`` of the patterns, from its first to its last character; none is shipped, and
      :func:`longcrawl.text.propose_lines` finds those of a crawl;
    * of a line of at most ``short_line_words`` words, phrases are cut: a ``prefix`` such as "sign-in", a ``suffix``
      such as "Read more...", and what is ``anywhere``, such as "items in cart". What is left of the line is joined by
      single spaces and keeps the white space around the line. Of a line that has nothing left, nothing stays.

    A discarded line goes with its line end. Everything else stays byte for byte: blank lines, which are never judged,
    and every other line with its line end, ``\r\n`` as well. No line is judged twice.

    A document leaves, by the rule ``max_removed_words``, when more than this share of its words were touched. Words are
    what white space parts. G.2 speaks of the words in the flagged lines, all of them: ``counted="flagged"``. Section
    3.2 speaks of what the corrections remove: ``counted="removed"`` leaves out the words that an edited line keeps. A
    document without words stays, as does one without text.

    None for a threshold switches its rule off, and None for ``patterns`` those that need phrases.

    Args:
        max_uppercase_characters: share of a line's characters, white space inside it included.
        min_numerical_characters: share of a line's characters other than white space.
        short_line_words: a line of more words is not edited; the rule ``counter`` looks at every line.
        max_removed_words: share of the document's words.
        counted: which words these are, see above.
        patterns: phrases by language, as data: shipped ones by name (``refinedweb``), or the path of a YAML file of
            that form. Of the shipped phrases only the four named above are the paper's, which lists no others.
        language: the language of all documents; None takes the column ``language``. en-GB and eng_Latn are English.
        on_unknown_language: what a document of another language than those of ``patterns`` gets: "error"; "default",
            the phrases of the file's ``default`` language (English in the shipped one); or "keep", which leaves the
            document as it is. The paper notes that its rules "require adaptation across languages".

    Columns that were measured on the text before, such as ``signals``, are not measured again.

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
        """Name what ``patterns`` reads."""
        return LINE_PATTERNS.own_files(self.patterns)

    def prepare(self) -> None:
        """Read the patterns, compile the kernel, and look the language up where it is given.

        Raises:
            StageError: the patterns cannot be read, or have nothing for ``language`` while that is an error.
        """
        one = pa.table({"text": pa.array([""], pa.large_string()), "language": pa.array([self.language], pa.string())})
        self.edit(one.slice(0, 0 if self.language is None else 1))

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Correct the column ``text`` of every document, and measure the share of words that were touched."""
        edited = self._edited(table, record="nothing")
        return edited.documents, edited.checks

    def trace(self, table: pa.Table) -> Edited:
        """Do what ``edit`` does, and list each flagged line: all of a discarded one, of an edited one what changed."""
        return self._edited(table, record="places")

    def _edited(self, table: pa.Table, record: Literal["places", "nothing"]) -> Edited:
        check_not_masked(table, self.name)
        texts = valid_texts(column(table, "text", self.name), self.name)
        corrected = self._correct(table, texts, record)
        places = locate_lines(corrected.data, corrected.offsets, corrected.out, corrected.log, _name, "line")
        if corrected.flagged:
            made = text_column(corrected.out, corrected.ends, texts, table.schema.field("text").type)
            table = with_column(table, "text", made)
        if self.max_removed_words is None:
            return Edited(table, [], places)
        touched = corrected.counts[:, 2 if self.counted == "flagged" else 1]
        share = pa.array(touched / np.maximum(corrected.counts[:, 0], 1))
        passes = pc.less_equal(share, self.max_removed_words)
        check = Check("max_removed_words", share, passes, self.max_removed_words, "at_most")
        return Edited(table, [check], places)

    def changes(self, text: str, language: str | None = None) -> list[LineChange]:
        """Return what the stage does to one text of a language (None takes the field), line by line.

        Raises:
            StageError: the patterns have no phrases for that language, and ``on_unknown_language`` is "error".
        """
        if language is not None:
            return replace(self, language=language).changes(text)
        unnamed = pa.table({"language": pa.array([None], pa.string())})
        corrected = self._correct(unnamed, pa.array([text], pa.large_string()), "places")
        return [_change(corrected.data, corrected.out, row) for row in corrected.log.tolist()]

    def _roots(self, table: pa.Table, patterns: LinePatterns) -> npt.NDArray[np.int32]:
        """Return the root of each document's phrases, ``KEEP`` for documents to be left alone."""
        from longcrawl.text.refinedweb._line_kernels import KEEP

        if self.patterns is None:
            return np.full(table.num_rows, patterns.none, np.int32)
        places, spoken = places_of_languages(table, patterns.languages, self.language, self.name)
        unknown = places < 0
        if self.on_unknown_language == "error" and unknown.any():
            raise StageError(
                f"{self.name} has no line patterns for the language {spoken[int(unknown.argmax())].as_py()!r}, only "
                f"for: {', '.join(patterns.languages)}; set on_unknown_language to 'default' or 'keep', or language"
            )
        other = KEEP if self.on_unknown_language == "keep" else patterns.default_root
        return np.where(unknown, other, 2 * places).astype(np.int32)

    def _correct(self, table: pa.Table, texts: pa.Array, record: Literal["places", "nothing"]) -> "_Corrected":
        from longcrawl.text.refinedweb._line_kernels import Limits, correct_lines

        patterns = read_line_patterns(self.patterns)
        limits = Limits(
            _OUT_OF_REACH if self.max_uppercase_characters is None else float(self.max_uppercase_characters),
            _OUT_OF_REACH if self.min_numerical_characters is None else float(self.min_numerical_characters),
            -1 if self.short_line_words is None else self.short_line_words,
        )
        data, offsets = text_buffers(texts)
        out = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
        ends = np.empty(len(offsets), np.int64)
        counts = np.zeros((len(texts), 3), np.int64)
        log = np.empty((most_lines(data, offsets) if record == "places" else 0, LOGGED), np.int64)
        roots, flags = self._roots(table, patterns), load_characters("re").flags
        flagged = correct_lines(data, offsets, roots, flags, patterns.tree, limits, out, ends, counts, log)
        return _Corrected(data, offsets, out, ends, counts, log[:flagged], flagged)


class _Corrected(NamedTuple):
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    out: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    log: npt.NDArray[np.int64]
    flagged: int


def _change(data: Any, out: Any, row: list[int]) -> LineChange:
    number, start, stop, begin, end, kinds = row
    after = out[begin:end].tobytes().decode() if end > begin else None
    return LineChange(number, data[start:stop].tobytes().decode(), after, _name(kinds))


def _name(kinds: int) -> str:
    from longcrawl.text.refinedweb._line_kernels import KINDS

    return "+".join(name for name, kind in KINDS.items() if kinds & kind)
