"""C4's rules: keep lines that look like sentences, and pages that have enough of them."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.places import LineChange
from longcrawl.core.stages import Check, Edit, Edited, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.code_points import NUMERIC, load_characters
from longcrawl.kernels.phrases import PhraseTree, make_tree
from longcrawl.kernels.texts import check_not_masked, text_buffers, text_column, valid_texts
from longcrawl.kernels.word_lists import read_word_lists
from longcrawl.storage.files import reread_when_changed
from longcrawl.text.languages import Languages, find_language, places_of_languages
from longcrawl.text.lines.places import LOGGED, locate_lines, most_lines

POLICY_PHRASES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)

_MARKS = {"paper": '.!?"”', "datatrove": ".!?\"'"}
_CLOSERS = "\"'”\N{RIGHT SINGLE QUOTATION MARK}»\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK})]}"
_UNSPACED: Languages = {"ja": {}, "th": {}, "zh": {}}
"""Languages that are written without spaces: a listed word is found anywhere in a text of theirs."""

_OUT_OF_REACH = np.iinfo(np.int64).max


@stage
class C4Quality(Edit):
    r"""Keep the lines that C4 keeps, and the documents that have enough of them.

    A line stays when it

    * ends in a terminal punctuation mark: . ! ? or an end quotation mark (" or ”), white space after it aside;
    * has at least ``min_words_per_line`` words, and none of more than ``max_word_length`` characters; words are what
      white space parts;
    * has no "javascript" and none of the ``policy_phrases``, in any case and inside of words too.

    Citation marks ([1], [], [edit], [citation needed]) are cut from lines first. The lines that stay are stripped and
    joined by ``\n``, blank lines are gone. A document leaves by the first of these rules:

    * ``lorem_ipsum``: the phrase is on a line of it;
    * ``curly_bracket``: it has a {;
    * ``min_sentences``: the lines that stay have fewer sentences than that;
    * ``bad_words``: what stays has a word of the list for the document's language, between characters that are of no
      word (in Japanese, Thai and Chinese: anywhere).

    A document without text is like an empty one: it has no sentences.

    C4 counted sentences with nltk's trained punkt. Here a sentence ends at a run of . ! ? and of quotation marks and
    brackets closed after it, before white space or the end of its line; the end of a line ends one as well, and each
    has a letter or a digit. No model is needed, and an abbreviation such as "Dr. No" counts as an end, so documents
    near ``min_sentences`` stay that punkt would drop.

    The numbers 3 and 5 are those of the paper's first versions; the code that made C4 has 5 words and 3 sentences.

    Args:
        definitions: "paper" is as above. "datatrove" gives what datatrove 0.10 gives but for the sentences, and so what
            the code of T5 gives but for the apostrophe: lines end where ``str.splitlines`` ends them; ' ends a line and
            " too, but neither ” nor "..." does; words are counted, and white space is stripped, before citation marks
            are cut, so that a line that ends in a mark goes; braces and placeholders count on lines that have come so
            far, and a brace beside "javascript" does not.
        terminal_punctuation: "ignored" keeps lines however they end, as FineWeb does.
        min_words_per_line: None for any.
        max_word_length: in characters; None for any.
        min_sentences: None for any.
        javascript: what happens to a line with that word.
        policy_phrases: an empty list keeps lines with any phrase.
        citations: what happens to citation marks.
        lorem_ipsum: what happens to a document with this phrase.
        curly_bracket: what happens to a document with one.
        bad_words: a folder of LANGUAGE or LANGUAGE.txt, or a JSON file of {language: [word, …]}. C4 took
            github.com/LDNOOBW/List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words (CC BY 4.0). A document of a
            language that has no list passes.
        language: the language of all documents; None takes the column ``language``. Only ``bad_words`` asks for it.

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
                raise StageError(f"c4_quality.policy_phrases has {phrase!r}; give words without space around them")

    def files(self) -> tuple[str, ...]:
        """Name the lists of ``bad_words``."""
        return () if self.bad_words is None else (self.bad_words,)

    def prepare(self) -> None:
        """Read the word list and compile the kernels.

        Raises:
            StageError: the list cannot be read.
        """
        self.edit(pa.table({"text": pa.array([], pa.large_string()), "language": pa.array([], pa.string())}))

    def edit(self, table: pa.Table) -> tuple[pa.Table, Sequence[Check]]:
        """Keep the lines of the column ``text`` that pass, and measure every document."""
        edited = self._clean(table, record="nothing")
        return edited.documents, edited.checks

    def trace(self, table: pa.Table) -> Edited:
        """Do what ``edit`` does, and list the lines that went, and those that lost citation marks.

        Lines that went by one rule, with no line that stays between them, are one place. Not listed is other white
        space: that around lines, blank lines, and line ends.
        """
        return self._clean(table, record="places")

    def _clean(self, table: pa.Table, record: Literal["places", "nothing"]) -> Edited:
        from longcrawl.text.lines._c4_kernels import RULES, clean_pages

        check_not_masked(table, self.name)
        texts = valid_texts(column(table, "text", self.name), self.name)
        data, offsets = text_buffers(texts)
        out = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
        ends = np.empty(len(offsets), np.int64)
        counts = np.zeros((len(texts), 3), np.int64)
        log = np.empty((most_lines(data, offsets) if record == "places" else 0, LOGGED), np.int64)
        logged = clean_pages(data, offsets, *self._rules(), out, ends, counts, log, record == "places")
        places = locate_lines(data, offsets, out, log[:logged], RULES.__getitem__, "content")
        checks = self._counted(counts)
        if self.bad_words is not None:
            listed = self._listed(table, out, ends)
            checks.append(_at_most_none("bad_words", listed))
        made = text_column(out, ends, texts, table.schema.field("text").type)
        return Edited(with_column(table, "text", made), checks, places)

    def changes(self, text: str, language: str | None = None) -> list[LineChange]:  # noqa: ARG002  # lines have none
        r"""Return the lines of one text that go, and those that lose citation marks.

        The rule of a line is the field by which it goes, ``citations`` where it stays; of several the first in the
        order of the class. Lines are counted by ``\n`` whatever else ends one, blank lines are not listed, and the
        language is of no account.
        """
        from longcrawl.text.lines._c4_kernels import clean_pages

        data, offsets = text_buffers(pa.array([text], pa.large_string()))
        out, log = np.empty(len(data), np.uint8), np.empty((len(text.splitlines()), LOGGED), np.int64)
        ends, counts = np.empty(2, np.int64), np.zeros((1, 3), np.int64)
        changed = clean_pages(data, offsets, *self._rules(), out, ends, counts, log, False)
        return [_change(data, out, row) for row in log[:changed].tolist()]

    def _counted(self, counts: npt.NDArray[np.int64]) -> list[Check]:
        checks = []
        if self.lorem_ipsum == "drop":
            checks.append(_at_most_none("lorem_ipsum", counts[:, 0]))
        if self.curly_bracket == "drop":
            checks.append(_at_most_none("curly_bracket", counts[:, 1]))
        if self.min_sentences is not None:
            sentences = pa.array(counts[:, 2])
            passes = pc.greater_equal(sentences, self.min_sentences)
            checks.append(Check("min_sentences", sentences, passes, self.min_sentences, "at_least"))
        return checks

    def _listed(
        self, table: pa.Table, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Count the listed words of every document."""
        from longcrawl.text.lines._c4_kernels import count_listed

        lists = _read_bad_words(self.bad_words or "")
        roots, _ = places_of_languages(table, lists.languages, self.language, self.name)
        counts = np.zeros(table.num_rows, np.int64)
        count_listed(data, offsets, roots, lists.unspaced, load_characters("re").flags, lists.tree, counts)
        return counts

    def _rules(self) -> tuple[npt.NDArray[np.uint16], Any, PhraseTree]:
        """Return the flags of code points, the rules of lines and their phrases."""
        from longcrawl.text.lines._c4_kernels import Rules, make_byte_flags

        datatrove = self.definitions == "datatrove"
        # A phrase that has the end of a line in it is on no line.
        ends = str.splitlines if datatrove else partial(str.split, sep="\n")
        policy_phrases = tuple(phrase for phrase in self.policy_phrases if len(ends(phrase)) == 1)
        phrases = _make_phrases(self.javascript == "drop", policy_phrases)
        marks, closers, flags = _points(_MARKS[self.definitions]), _points(_CLOSERS), load_characters("re").flags
        rules = Rules(
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
        return flags, rules, phrases


class _BadWords(NamedTuple):
    languages: tuple[str, ...]
    tree: PhraseTree
    unspaced: npt.NDArray[np.bool_]


def _change(data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8], row: list[int]) -> LineChange:
    from longcrawl.text.lines._c4_kernels import CUT, RULES

    number, start, stop, begin, end, rule = row
    after = out[begin:end].tobytes().decode() if rule == CUT else None
    return LineChange(number, data[start:stop].tobytes().decode(), after, RULES[rule])


def _at_most_none(rule: str, counts: npt.NDArray[np.int64]) -> Check:
    return Check(rule, pa.array(counts), pa.array(counts == 0), 0.0, "at_most")


def _points(characters: str) -> npt.NDArray[np.uint32]:
    return np.array([ord(character) for character in characters], np.uint32)


@lru_cache(maxsize=1)
def _zeros() -> npt.NDArray[np.uint32]:
    """Return the zero of every script that has decimal digits; Unicode has the ten of each in a row."""
    numerals = np.flatnonzero(load_characters("re").flags & NUMERIC)
    return np.array([point for point in numerals if chr(point).isdecimal() and int(chr(point)) == 0], np.uint32)


@lru_cache(maxsize=8)
def _make_phrases(javascript: bool, policy_phrases: tuple[str, ...]) -> PhraseTree:  # noqa: FBT001  # a key of the cache
    from longcrawl.text.lines._c4_kernels import JAVASCRIPT, LOREM_IPSUM, POLICY

    phrases = [(0, phrase, POLICY) for phrase in policy_phrases] + [(0, "lorem ipsum", LOREM_IPSUM)]
    return make_tree(1, [*phrases, *([(0, "javascript", JAVASCRIPT)] if javascript else [])])


@reread_when_changed(4)
def _read_bad_words(path: str) -> _BadWords:
    lists = read_word_lists(path)
    phrases = [(number, word, 1) for number, words in enumerate(lists.values()) for word in sorted(words)]
    unspaced = np.array([find_language(_UNSPACED, language) is not None for language in lists], np.bool_)
    return _BadWords(tuple(lists), make_tree(len(lists), phrases), unspaced)
