"""RedPajama-V2's quality signals, computed from any text, decoded in blocks of lines that fit the processor's cache."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Rewrite, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.kernels import code_points as kind
from longcrawl.kernels import lookup
from longcrawl.kernels.code_points import Characters, load_characters
from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import Phrases, Vocabulary, find_word, order_by, round_to_8_digits
from longcrawl.kernels.ngrams import HASHED, Repeats, make_repeats, number_words, repetitions
from longcrawl.kernels.texts import decode, text_buffers, valid_texts
from longcrawl.sources.redpajama_v2 import DOCUMENT_SIGNALS, LINE_SIGNALS, SIGNALS_TYPE, SPANS, line_signals_type
from longcrawl.text.classifiers import join_lines, score_texts
from longcrawl.text.fasttext import read_model
from longcrawl.text.gopher.words import NGRAMS
from longcrawl.text.languages import find_language, places_of_languages

Points = npt.NDArray[np.uint32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.uint16]
CHARACTERS, LINES, RAW_WORDS, LETTER_WORDS, CAPITAL_WORDS, STOP_WORDS = range(6)
SENTENCES, SYMBOLS, BRACES, ELLIPSIS_LINES, WORDS, WORD_CHARACTERS, IN_SENTENCE = range(6, 13)
"""Columns of counts per document; ``IN_SENTENCE`` is a state: whether the sentence has had a word character."""
UNIQUE_WORDS, ENTROPY, LOREM_IPSUM, LISTED_PHRASES, TOP_2_GRAM = range(13, 18)
DUPLICATE_5_GRAMS = TOP_2_GRAM + 3
MEASURES = TOP_2_GRAM + NGRAMS
"""Number of columns per document; each named n-gram column is followed by those of the next n."""
TERMINAL_LINE, JAVASCRIPT, LINE_WORDS, NUMERIC_FRACTION, BULLET_LINE, UPPER_FRACTION = range(6)
"""Columns of the line values, in the order of ``LINE_SIGNALS``."""
_U = np.uint64
BLOCK = 4096  # code points decoded at a time, few enough for the processor's L1 cache
NEWLINE, ELLIPSIS = 0x0A, 0x2026
_DOT, _NUMBER_SIGN, _OPEN, _CLOSE, _I, _S, _M = b".#{}ism"
_LOREM, _IPSUM = (np.frombuffer(word, np.uint8) for word in (b"lorem", b"ipsum"))
_PLAIN_OR_SPACE = kind.PLAIN | kind.SPACE
_SEED = _U(0xCBF29CE484222325)
_PRIME = _U(0x100000001B3)
MOST_PER_BYTE = 2  # largest number of code points in a character's normal form, per byte of its UTF-8
_FEW = 24  # marks sorted by insertion; longer runs, found only in attacks, take a counting sort


class Scratch(NamedTuple):
    """Buffers for one document at a time, large enough for the longest of a batch; untouched memory costs nothing."""

    points: Points  # code points of the block
    flags: Flags  # flags of these code points
    normal: Points  # the normalised words of the document, one after the other without spaces
    starts: npt.NDArray[np.int64]  # start of each word in ``normal``, and the end of the last
    word_keys: npt.NDArray[np.uint64]
    """The bytes of an ASCII word of up to eight characters, or a hash of any other word."""
    repeats: Repeats


def make_scratch(longest: int) -> Scratch:
    """Allocate buffers for documents of up to ``longest`` bytes."""
    words = longest // 2 + 4
    return Scratch(
        np.empty(longest + 1, np.uint32),
        np.empty(longest + 1, np.uint16),
        np.empty(MOST_PER_BYTE * longest + 1, np.uint32),
        np.empty(words, np.int64),
        np.empty(words, np.uint64),
        make_repeats(words),
    )


@compiled
def _key(normal: Points, start: int, stop: int) -> np.uint64:
    found = _SEED
    for at in range(start, stop):
        found = (found ^ _U(normal[at])) * _PRIME
    return found | HASHED


JAVASCRIPT_KEY = 13026705096557300458  # key of the word "javascript", as ``_key`` computes it


@compiled
def _decode(
    data: Any, at: int, end: int, base: int, flag_of: Flags, scratch: Scratch, measured: Any, line: int
) -> tuple[int, int, int]:
    """Decode whole lines of at least ``BLOCK`` code points; return the next byte, their number, and the next line."""
    points, flags, ends, values = scratch.points, scratch.flags, measured.ends, measured.values
    count, upper = 0, 0
    while at < end:
        point = np.uint32(data[at])
        if point < 0x80:
            at += 1
        else:
            point, at = decode(data, at)
        flag = flag_of[point]
        points[count] = point
        flags[count] = flag
        count += 1
        upper += (flag & kind.UPPER) != 0
        if point == NEWLINE or at == end:
            ends[line] = base + count
            values[line, UPPER_FRACTION] = upper
            line += 1
            upper = 0
            if count >= BLOCK:
                break
    return at, count, line


@compiled
def _count_symbols(points: Points, flags: Flags, start: int, stop: int, row: Doubles) -> None:
    dots = 0
    for at in range(start, stop):
        point = points[at]
        dots = dots + 1 if point == _DOT else 0
        if dots == 3 or point == _NUMBER_SIGN or point == ELLIPSIS:  # noqa: PLR1714, SIM109  # quicker to compile
            row[SYMBOLS] += 1
            dots = 0
        row[BRACES] += point == _OPEN or point == _CLOSE  # noqa: PLR1714  # quicker to compile
        if flags[at] & kind.SENTENCE_END:
            row[IN_SENTENCE] = 0
        elif flags[at] & kind.WORD:
            _start_sentence(row)


@forced_inline
def _start_sentence(row: Doubles) -> None:
    row[SENTENCES] += 1 - row[IN_SENTENCE]
    row[IN_SENTENCE] = 1


@compiled
def _raw_words(points: Points, flags: Flags, count: int, stop_words: Vocabulary, language: int, row: Doubles) -> None:
    r"""Count raw words (matches of ``\w+|[^\w\s]+``) and sentences (parts between .!? that have a word character)."""
    at, raw, letters, capitals, stops = np.int64(0), 0, 0, 0, 0
    while at < count:
        seen = flags[at]
        start = at
        at += 1
        if seen & kind.RAW_SPACE:
            continue
        spelled = seen & kind.RAW_WORD
        while at < count and flags[at] & (kind.RAW_WORD | kind.RAW_SPACE) == spelled:
            seen |= flags[at]
            at += 1
        raw += 1
        letters += (seen & kind.ASCII_LETTER) != 0
        capitals += (seen & (kind.UPPER | kind.LOWER)) == kind.UPPER
        stops += find_word(stop_words, language, points, start, at) >= 0
        if seen & kind.SYMBOL:
            _count_symbols(points, flags, start, at, row)
        elif seen & kind.WORD:
            _start_sentence(row)
    row[RAW_WORDS] += raw
    row[LETTER_WORDS] += letters
    row[CAPITAL_WORDS] += capitals
    row[STOP_WORDS] += stops


@compiled
def _is_final_sigma(flags: Flags, at: int, count: int) -> bool:
    before = at - 1
    while before >= 0 and flags[before] & kind.IGNORABLE:
        before -= 1
    if before < 0 or not flags[before] & kind.CASED:
        return False
    after = at + 1
    while after < count and flags[after] & kind.IGNORABLE:
        after += 1
    return after == count or not flags[after] & kind.CASED


@allocating
def _order_marks(normal: Points, start: int, stop: int, combining: npt.NDArray[np.uint8]) -> None:
    """Sort every run of combining marks into canonical order: by class, stable."""
    at = start
    while at < stop:
        first = at
        while at < stop and combining[normal[at]] != 0:
            at += 1
        if at - first > _FEW:
            marks = normal[first:at].astype(np.int64)
            order = order_by(combining, marks)
            for place in range(at - first):
                normal[first + place] = marks[order[place]]
        else:
            for place in range(first + 1, at):
                mark = normal[place]
                while place > first and combining[normal[place - 1]] > combining[mark]:
                    normal[place] = normal[place - 1]
                    place -= 1  # noqa: PLW2901  # the mark moves back to its place
                normal[place] = mark
        at += 1


@compiled
def _normalise(
    points: Points, flags: Flags, at: int, count: int, characters: kind.Characters, normal: Points, end: int
) -> tuple[int, int]:
    place = np.int64(characters.mapped[points[at]])
    length = np.int64(characters.sequences[place])
    for step in range(length):
        normal[end + step] = characters.sequences[place + 2 + step]
    if points[at] == kind.CAPITAL_SIGMA and _is_final_sigma(flags, at, count):
        normal[end] = kind.FINAL_SIGMA
    return end + length, np.int64(characters.sequences[place + 1])


@compiled
def _words(
    scratch: Scratch, base: int, lines: tuple[int, int], measured: Any, characters: kind.Characters, word: int
) -> int:
    """Append the normalised words of a block of lines to the ``word`` words in ``scratch``, and return their number."""
    points, flags, normal, starts = scratch.points, scratch.flags, scratch.normal, scratch.starts
    keys, ends, values, end, at = scratch.word_keys, measured.ends, measured.values, starts[word], np.int64(0)
    mapped, combining = characters.mapped, characters.combining
    for line in range(lines[0], lines[1]):
        stop, first, line_start, numerics, scripts = ends[line] - base, word, end, 0, 0
        while at < stop:
            start, key, seen, marked = end, _U(0), np.uint32(0), False
            while at < stop:
                flag = flags[at]
                if flag & _PLAIN_OR_SPACE == kind.PLAIN:
                    point = mapped[points[at]]
                    normal[end] = point
                    seen |= point
                    key = key << _U(8) | _U(point)
                    numerics += (flag & kind.NUMERIC) != 0
                    end += 1
                elif flag & kind.SPACE:
                    break
                elif not flag & kind.PUNCTUATION:
                    end, more = _normalise(points, flags, at, stop, characters, normal, end)
                    numerics += more
                    marked = True
                at += 1
            at += 1
            if end > start:
                if marked:
                    _order_marks(normal, start, end, combining)
                if marked or seen > 0x7F or end - start > 8:
                    key = _key(normal, start, end)
                    scripts += end - start == 10 and key == JAVASCRIPT_KEY
                keys[word] = key
                word += 1
                starts[word] = end
        at = stop
        values[line, LINE_WORDS] = word - first
        values[line, JAVASCRIPT] = scripts
        length = end - line_start + max(word - first - 1, 0)
        values[line, NUMERIC_FRACTION] = round_to_8_digits(numerics / length) if length > 0 else 0.0
    return word


@compiled
def _line_ends(scratch: Scratch, base: int, lines: tuple[int, int], measured: Any, row: Doubles) -> None:
    points, flags, ends, values = scratch.points, scratch.flags, measured.ends, measured.values
    start = 0
    for line in range(lines[0], lines[1]):
        stop = ends[line] - base
        first, last = start, stop - 1
        while first < stop and flags[first] & kind.SPACE:
            first += 1
        while last > first and flags[last] & kind.SPACE:
            last -= 1
        some = first < stop
        values[line, TERMINAL_LINE] = some and flags[last] & kind.TERMINAL != 0
        values[line, BULLET_LINE] = some and flags[first] & kind.BULLET != 0
        values[line, UPPER_FRACTION] = round_to_8_digits(values[line, UPPER_FRACTION] / (stop - start))
        dots = last >= first + 2 and points[last] == points[last - 1] == points[last - 2] == _DOT
        row[ELLIPSIS_LINES] += dots or (some and points[last] == ELLIPSIS)
        start = stop


@compiled
def read_lines(
    data: Any, at: int, end: int, tables: Any, language: int, scratch: Scratch, measured: Any, row: Doubles, line: int
) -> int:
    """Write the counts, line signals and normalised words of a document; return the number of the next line."""
    characters, word = tables.characters, np.int64(0)
    row[LINES] = -line
    while at < end:
        base, first = np.int64(row[CHARACTERS]), line
        at, count, line = _decode(data, at, end, base, characters.flags, scratch, measured, line)
        _raw_words(scratch.points, scratch.flags, count, tables.stop_words, language, row)
        word = _words(scratch, base, (first, line), measured, characters, word)
        _line_ends(scratch, base, (first, line), measured, row)
        row[CHARACTERS] += count
    row[LINES] += line
    row[WORDS] = word
    row[WORD_CHARACTERS] = scratch.starts[word]
    return line


@compiled
def _entropy(counts: npt.NDArray[np.int32], unique: int, words: int) -> float:
    """Return the sum of -p ln p over words, in order of first occurrence; the common term of count 1 is precomputed."""
    once = -1.0 / words * np.log(1.0 / words)
    total = 0.0
    for word in range(unique):
        count = np.float64(counts[word])
        total += once if count == 1.0 else -count / words * np.log(count / words)
    return total


@compiled
def _spelled(normal: Any, start: int, word: Any) -> int:
    """Return how many of five code points match ``word`` only if case is ignored, or -1 if they do not spell it."""
    # A case-insensitive regex matches the dotless i and the long s with i and s.
    folded = 0
    for at in range(5):
        point, letter = normal[start + at], word[at]
        if point != letter:
            folded += 1
            if not ((point == 0x131 and letter == _I) or (point == 0x17F and letter == _S)):
                return -1
    return folded


@compiled
def _lorem_ipsum(scratch: Scratch, words: int) -> int:
    """Count "lorem ipsum": by a case-insensitive regex, as in the release, if the exact text occurs."""
    normal, starts = scratch.normal, scratch.starts
    exact, folded = 0, 0
    for word in range(1, words):
        start = starts[word]
        if normal[start - 1] != _M or start - starts[word - 1] < 5 or starts[word + 1] - start < 5:
            continue
        if _spelled(normal, start - 5, _LOREM) == 0:
            letters = _spelled(normal, start, _IPSUM)
            folded += letters >= 0
            exact += letters == 0
    return folded if exact > 0 else 0


@compiled
def _listed_phrases(scratch: Scratch, words: int, unique: int, phrases: Phrases, language: int) -> int:
    listed, ids, firsts = scratch.repeats.gram_counts, scratch.repeats.ids, scratch.repeats.firsts
    starts, normal, vocabulary = scratch.starts, scratch.normal, phrases.vocabulary
    total, met = 0, False
    for number in range(unique):
        first = firsts[number]
        listed[number] = find_word(vocabulary, language, normal, starts[first], starts[first + 1])
        met |= listed[number] >= 0
    for word in range(words if met else 0):
        number = listed[ids[word]]
        if number < 0:
            continue
        for phrase in range(phrases.by_first_word[number], phrases.by_first_word[number + 1]):
            begin = phrases.bounds[phrase]
            length = phrases.bounds[phrase + 1] - begin
            same = 1
            while same < length and word + same < words and listed[ids[word + same]] == phrases.words[begin + same]:
                same += 1
            total += same == length
    return total


@compiled
def measure(data: Any, offsets: Any, languages: Any, tables: Any, scratch: Scratch, measured: Any) -> None:
    """Write counts and line signals to ``measured``, a ``Counted``; its ``rows`` and ``sums`` must be zeros.

    ``languages``, int32 [2, documents], are the numbers of each document's list of stop words and of phrases, or -1.
    """
    line, values, sums = np.int64(0), measured.values, measured.sums
    scratch.starts[0] = 0
    for document in range(len(offsets) - 1):
        row = measured.rows[document]
        at, end = offsets[document], offsets[document + 1]
        measured.first_lines[document] = line
        stops, listed = languages[0, document], languages[1, document]
        line = read_lines(data, at, end, tables, stops, scratch, measured, row, line)
        for each in range(measured.first_lines[document], line):
            for signal in range(values.shape[1]):
                sums[document, signal] += values[each, signal]
        words, starts, repeats = np.int64(row[WORDS]), scratch.starts, scratch.repeats
        if words > 0:
            unique = number_words(scratch.normal, starts, starts[1:], scratch.word_keys, words, repeats)
            row[UNIQUE_WORDS] = unique
            row[ENTROPY] = _entropy(repeats.counts, unique, words)
            row[LOREM_IPSUM] = _lorem_ipsum(scratch, words)
            row[LISTED_PHRASES] = _listed_phrases(scratch, words, unique, tables.phrases, listed)
            repetitions(repeats, starts, words, row[TOP_2_GRAM:])
            for share in range(TOP_2_GRAM, len(row)):
                row[share] /= row[WORD_CHARACTERS]
    measured.first_lines[len(offsets) - 1] = line


def model_scores(path: str, texts: pa.Array) -> Doubles:
    """Return the probability that each document is of the wanted kind (not ``cc``), 8 digits; NaN for an empty one."""
    model = read_model(path)
    scores = score_texts(model, join_lines(texts), range(len(model.labels))).astype(np.float64)
    # Of equally probable labels, fastText takes the last.
    best = len(model.labels) - 1 - scores[:, ::-1].argmax(axis=1)
    found = scores[np.arange(len(texts)), best]
    found = np.where(np.array(model.labels)[best] == "cc", 1 - found, found)
    found[pc.fill_null(pc.binary_length(texts), 0).to_numpy() == 0] = np.nan
    return np.array([round(score, 8) for score in found.tolist()])


_CCNET_COLUMNS = {
    "ccnet_original_length": "original_length",
    "ccnet_original_nlines": "original_nlines",
    "ccnet_language_score": "language_score",
    "ccnet_perplexity": "perplexity",
    "ccnet_bucket": "bucket",
}  # CCNet's facts about a document: signals, and the columns of the release that hold them

_BUCKETS = pa.array(["head", "middle", "tail"])
_Languages = tuple[tuple[str, ...], tuple[str, ...]]  # those with stop words, and those with phrases
_HOST = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?P<host>[^/?#]*)"


@stage
class Signals(Rewrite):
    r"""Add the column ``signals``: RedPajama-V2's quality signals, equal to the release's in every digit.

    ``SignalRules`` and ``MinWords`` then work on documents of any source. Existing columns are replaced. These signals
    are null:

    * for an empty document, the signals that the release leaves null; for a document with null text, all signals;
    * ``rps_doc_stop_word_fraction`` without ``stop_words`` for the document's language. The release used the lists of
      github.com/6/stopwords-json (Apache-2.0); its ``stopwords-all.json`` can be used without changes;
    * ``rps_doc_ldnoobw_words`` without ``bad_words`` for the language. The release used the lists of
      github.com/LDNOOBW/List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words (CC BY 4.0);
    * ``rps_doc_ut1_blacklist`` without ``domain_categories``, and for a domain that is not listed. The domain is the
      column ``source_domain``, or else the host of ``url``. It must match exactly: parent domains are not looked up;
    * ``rps_doc_ml_*_score`` without the fastText model of that name;
    * ``ccnet_*`` except length and lines, unless the documents have CCNet's columns (``perplexity``, ``bucket`` …);
    * the six importance weights, always: they need the release's own n-gram counts.

    Args:
        line_signals: names of line-level signals, or "all", to add as lists of [start, end, value] in a column
            ``line_signals``. Their sums are always in ``signals``.
        raw_words: the package that defines ``\w`` and ``\s`` for raw words: ``re``, as nltk used for the release, or
            ``regex``, as since nltk 3.10, in which combining marks are part of a word and ² is not.
        language: the language of all documents; None takes the column ``language``, if there is one. en-GB and
            eng_Latn are English.
        stop_words: a JSON file of {language: [word, …]}, or a folder of LANGUAGE.json or LANGUAGE.txt.
        bad_words: a folder of LANGUAGE or LANGUAGE.txt, or a JSON file of {language: [word, …]}.
        domain_categories: a JSON file, plain or .gz, of {domain: number}.
        wikiref_model: a fastText model that separates Wikipedia's references from ``__label__cc``.
        palm_model: a fastText model that separates books, OpenWebText and Wikipedia from ``__label__cc``.
        wikipedia_model: a fastText model that separates Wikipedia's articles from ``__label__cc``.

    Source: RedPajama-Data, ``app/src/core/quality_signals``. Words and case follow this Python's Unicode version; the
    release used Unicode 14.0. Numbers have 8 digits; offsets and lengths are in code points.

    >>> import pyarrow as pa
    >>> made = Signals(line_signals=["rps_lines_num_words"])(pa.table({"text": ["One line. And a second one!"]}))
    >>> made["signals"][0]["rps_doc_word_count"].as_py(), made["line_signals"][0].as_py()
    (6.0, {'rps_lines_num_words': [[0.0, 27.0, 6.0]]})
    """

    line_signals: tuple[str, ...] = ()
    raw_words: Literal["re", "regex"] = "re"
    language: str | None = None
    stop_words: str | None = None
    bad_words: str | None = None
    domain_categories: str | None = None
    wikiref_model: str | None = None
    palm_model: str | None = None
    wikipedia_model: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.line_signals:
            if name not in (*LINE_SIGNALS, "all"):
                raise StageError(f"signals has no line signal {name!r}; known: {', '.join(LINE_SIGNALS)}, all")

    def files(self) -> tuple[str, ...]:
        """Return the paths of lists and models."""
        named = (self.stop_words, self.bad_words, self.domain_categories, *self._models.values())
        return tuple(path for path in named if path is not None)

    def prepare(self) -> None:
        """Load lists and models, and compile the kernels; raise StageError if a list or a model cannot be read."""
        for path in self._models.values():
            read_model(path)
        if self.domain_categories is not None:
            lookup.read_domain_categories(self.domain_categories)
        self.rewrite(pa.table({"text": pa.array([], pa.large_string()), "url": pa.array([], pa.string())}))

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Add the columns of signals, measured from the column ``text``."""
        texts = valid_texts(column(table, "text", self.name), self.name)
        known_languages, tables = _load_tables(self.stop_words, self.bad_words, self.raw_words)
        languages = self._languages(table, known_languages)
        measured = _measure(texts, languages, tables)
        known = self._brought(table, texts) | _document_signals(measured)
        known["rps_doc_stop_word_fraction"][languages[0] < 0] = np.nan
        known["rps_doc_ldnoobw_words"][languages[1] < 0] = np.nan
        known |= {f"{name}.sum": measured.sums[:, at] for at, name in enumerate(LINE_SIGNALS)}
        arrays = [_nullable(known[field.name], len(texts)) for field in SIGNALS_TYPE]
        missing = pc.is_null(texts)
        struct = pa.StructArray.from_arrays(arrays, fields=list(SIGNALS_TYPE), mask=missing)
        made = with_column(table, "signals", struct)
        if not self.line_signals:
            return made
        names = LINE_SIGNALS if "all" in self.line_signals else tuple(dict.fromkeys(self.line_signals))
        spans = [_spans(measured, name) for name in names]
        fields = list(line_signals_type(names))
        return with_column(made, "line_signals", pa.StructArray.from_arrays(spans, fields=fields, mask=missing))

    @property
    def _models(self) -> dict[str, str]:
        paths = {"wikiref": self.wikiref_model, "palm": self.palm_model, "wikipedia": self.wikipedia_model}
        return {f"rps_doc_ml_{name}_score": path for name, path in paths.items() if path is not None}

    def _languages(self, table: pa.Table, known: _Languages) -> npt.NDArray[np.int32]:
        if self.language is None and "language" not in table.column_names:
            return np.full((2, table.num_rows), -1, np.int32)
        either = sorted({name for languages in known for name in languages})
        if self.language is not None and either and find_language({name: {} for name in either}, self.language) is None:
            given = " and ".join(path for path in (self.stop_words, self.bad_words) if path is not None)
            raise StageError(
                f"signals.language is {self.language!r}, for which {given} has no list; known: {', '.join(either)}"
            )
        return np.stack([places_of_languages(table, names, self.language, self.name)[0] for names in known])

    def _brought(self, table: pa.Table, texts: pa.Array) -> dict[str, Any]:
        """Return the signals that do not come from the text alone: float64 arrays, or None for all null."""
        known: dict[str, Any] = dict.fromkeys(DOCUMENT_SIGNALS)
        for signal, name in _CCNET_COLUMNS.items():
            if name in table.column_names:
                known[signal] = _number(column(table, name, self.name), name)
        for signal, path in self._models.items():
            known[signal] = model_scores(path, texts)
        if self.domain_categories is not None:
            categories = lookup.read_domain_categories(self.domain_categories)
            known["rps_doc_ut1_blacklist"] = _looked_up(self._domains(table), categories)
        return known

    def _domains(self, table: pa.Table) -> pa.Array:
        if "source_domain" in table.column_names:
            return column(table, "source_domain", self.name)
        url = pc.cast(column(table, "url", self.name), pa.string())
        return pc.struct_field(pc.extract_regex(url, _HOST), "host")


class Tables(NamedTuple):
    """The tables of characters and words that the kernels use."""

    characters: Characters
    stop_words: lookup.Vocabulary  # stop words of all languages
    phrases: lookup.Phrases  # listed phrases of all languages


class Counted(NamedTuple):
    """The counts and line signals that the kernels write."""

    rows: Doubles  # counts and unrounded shares: shape (documents, MEASURES)
    ends: npt.NDArray[np.int64]  # shape (lines,): the end of each line, in code points from the start of its document
    values: Doubles  # shape (lines, 6): the line signals
    sums: Doubles  # shape (documents, 6): the line signals added up in order
    first_lines: npt.NDArray[np.int64]  # shape (documents + 1,): the first line of each document


@reread_when_changed(4)
def _load_tables(
    stop_words: str | None, bad_words: str | None, raw_words: Literal["re", "regex"]
) -> tuple[_Languages, Tables]:
    stops = lookup.read_word_lists(stop_words) if stop_words is not None else {}
    bad = lookup.read_word_lists(bad_words) if bad_words is not None else {}
    tables = Tables(
        load_characters(raw_words),
        lookup.make_vocabulary((number, word) for number, words in enumerate(stops.values()) for word in words),
        lookup.make_phrases((number, word) for number, words in enumerate(bad.values()) for word in words),
    )
    return (tuple(stops), tuple(bad)), tables


def _measure(texts: pa.Array, languages: npt.NDArray[np.int32], tables: Tables) -> Counted:
    data, offsets = text_buffers(texts)
    documents = len(texts)
    lines = documents + np.count_nonzero(data[offsets[0] : offsets[-1]] == ord("\n"))
    measured = Counted(
        np.zeros((documents, MEASURES)),
        np.empty(lines, np.int64),
        np.empty((lines, len(LINE_SIGNALS))),
        np.zeros((documents, len(LINE_SIGNALS))),
        np.empty(documents + 1, np.int64),
    )
    scratch = make_scratch(int(np.diff(offsets).max(initial=0)))
    measure(data, offsets, languages, tables, scratch, measured)
    return measured


def _document_signals(measured: Counted) -> dict[str, Doubles]:
    rows = measured.rows
    length, lines, raw, words = (rows[:, at] for at in (CHARACTERS, LINES, RAW_WORDS, WORDS))
    characters = rows[:, WORD_CHARACTERS]
    normal_length = characters + np.maximum(words - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {
            "rps_doc_curly_bracket": np.where(length > 0, rows[:, BRACES] / length, 0.0),
            "rps_doc_lorem_ipsum": np.where(words > 0, rows[:, LOREM_IPSUM] / normal_length, 0.0),
            "rps_doc_stop_word_fraction": np.where(words > 0, rows[:, STOP_WORDS] / raw, 0.0),
            "rps_doc_frac_all_caps_words": rows[:, CAPITAL_WORDS] / raw,
            "rps_doc_frac_lines_end_with_ellipsis": rows[:, ELLIPSIS_LINES] / lines,
            "rps_doc_frac_no_alph_words": 1.0 - rows[:, LETTER_WORDS] / raw,
            "rps_doc_frac_unique_words": rows[:, UNIQUE_WORDS] / words,
            "rps_doc_mean_word_length": characters / words,
            "rps_doc_symbol_to_word_ratio": rows[:, SYMBOLS] / raw,
            "rps_doc_unigram_entropy": np.where(words > 0, rows[:, ENTROPY], np.nan),
        }
    for n in (2, 3, 4):
        shares[f"rps_doc_frac_chars_top_{n}gram"] = rows[:, TOP_2_GRAM + n - 2].copy()
    for n in range(5, 11):
        shares[f"rps_doc_frac_chars_dupe_{n}grams"] = rows[:, DUPLICATE_5_GRAMS + n - 5].copy()
    for share in shares.values():
        lookup.round_all(share)
    return shares | {
        "ccnet_length": length,
        "ccnet_nlines": lines,
        "rps_doc_num_sentences": rows[:, SENTENCES],
        "rps_doc_word_count": words,
        "rps_doc_ldnoobw_words": rows[:, LISTED_PHRASES].copy(),
    }


def _spans(measured: Counted, name: str) -> pa.Array:
    firsts = measured.first_lines
    counts, lines = np.diff(firsts), int(firsts[-1])
    spans = np.empty((lines, 3))
    spans[1:, 0] = measured.ends[: max(lines - 1, 0)]
    spans[firsts[:-1][counts > 0], 0] = 0.0
    spans[:, 1] = measured.ends[:lines]
    spans[:, 2] = measured.values[:lines, LINE_SIGNALS.index(name)]
    if name == "rps_lines_start_with_bulletpoint":
        # For this signal only, the release gives a document without lines one span without a value.
        spans = np.insert(spans, firsts[:-1][counts == 0], [0.0, 0.0, np.nan], axis=0)
        counts = np.maximum(counts, 1)
    triples = pa.ListArray.from_arrays(np.arange(len(spans) + 1, dtype=np.int32) * 3, _nullable(spans.ravel(), 0))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, triples).cast(SPANS)


def _nullable(values: Any, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, pa.float64())
    if isinstance(values, pa.Array):
        return values
    values = np.ascontiguousarray(values)
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def _number(values: pa.Array, name: str) -> pa.Array:
    if name == "bucket":
        return pc.cast(pc.index_in(pc.cast(values, pa.string()), value_set=_BUCKETS), pa.float64())
    try:
        return pc.cast(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StageError(f"the column {name!r} must have numbers, as CCNet's has ({error}); rename it") from error


def _looked_up(domains: pa.Array, categories: Mapping[str, int]) -> pa.Array:
    encoded = pc.dictionary_encode(pc.cast(domains, pa.string()))
    numbers = [categories.get(domain) for domain in encoded.dictionary.to_pylist()]
    return pa.array(numbers, pa.float64()).take(encoded.indices)
