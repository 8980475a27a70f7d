"""Filters by size, language and precomputed quality signals."""

# Inside kernels, ints and numpy ints are one type, which mypy does not know; the codes are off for the whole file.
# mypy: disable-error-code="assignment, operator, arg-type"

import json
import math
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Judge, column, stage
from longcrawl.errors import StageError, known_names
from longcrawl.kernels.code_points import SPACE, load_characters
from longcrawl.kernels.compiling import compiled
from longcrawl.kernels.texts import decode, text_buffers, valid_texts
from longcrawl.text.languages import places_of_languages
from longcrawl.text.presets import Presets

_BEGINS, _STAYS = 1, 2
"""Flags of a character: can begin a word, can continue one. Punctuation only continues; white space has neither."""
_KINDS = np.full(128, _BEGINS | _STAYS, np.uint8)
_KINDS[[code for code in range(128) if chr(code) in string.punctuation]] = _STAYS
_KINDS[[code for code in range(128) if chr(code).isspace()]] = 0

_U = np.uint64


@compiled
def count_words(data: npt.NDArray[np.uint8], offsets: Any, flag_of: Any, counts: Any) -> None:
    """Write the word count of each text to ``counts``, float64 [documents]; white space separates words."""
    for document in range(len(offsets) - 1):
        at, end = offsets[document], offsets[document + 1]
        words, inside = 0, 0
        while at < end:
            byte = data[_U(at)]
            if byte < len(_KINDS):
                kind = _KINDS[byte]
                at += 1
            else:
                point, at = decode(data, at)
                kind = 0 if flag_of[point] & SPACE else _BEGINS | _STAYS
            begins = kind & _BEGINS
            words += begins & ~inside
            inside = (inside | begins) & (kind >> 1)
        counts[document] = words


RULE_SETS = Presets("longcrawl.text.presets", "presets")
WORD_COUNT = "rps_doc_word_count"


@stage
class MinWords(Judge):
    """Keep documents of at least ``n`` words, counted as RedPajama-V2 does; LongCrawl64 uses 16,000.

    If a document has the signal ``rps_doc_word_count``, that value is used. Otherwise words are counted in the same
    way: ASCII punctuation is deleted and white space separates words.

    >>> MinWords(3)(pa.table({"text": ["don't count -- dashes", "-- two words"]}))
    [True, False]
    """

    n: int = 16_000

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the word count of each document with ``n``."""
        words = self._words(table)
        return [Check("min_words", words, pc.greater_equal(words, self.n), self.n, "at_least")]

    def used_signals(self) -> tuple[str, ...]:
        """Return the name of the word count signal."""
        return (WORD_COUNT,)

    def keeps_unread(self, table: pa.Table) -> pa.Array | None:
        """Return a mask of documents to keep by their signal, or None if a document lacks it."""
        signals = column(table, "signals", self.name)
        known = _signal(signals, WORD_COUNT) if WORD_COUNT in _names(signals) else pa.nulls(1)
        return None if known.null_count else pc.greater_equal(known, self.n)

    def _words(self, table: pa.Table) -> pa.Array:
        text = column(table, "text", self.name)
        signals = column(table, "signals", self.name) if "signals" in table.column_names else pa.nulls(table.num_rows)
        has_count = WORD_COUNT in _names(signals)
        known = _signal(signals, WORD_COUNT) if has_count else pa.nulls(table.num_rows, pa.float64())
        if not known.null_count:
            return known
        data, offsets = text_buffers(valid_texts(text, self.name))
        counts = np.empty(table.num_rows, np.float64)
        count_words(data, offsets, load_characters("re").flags, counts)
        return pc.coalesce(known, pa.array(counts))


@stage
class MinChars(Judge):
    """Keep documents of at least ``n`` characters (Unicode code points)."""

    n: int = 200

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the length of ``text`` with ``n``."""
        length = pc.fill_null(pc.utf8_length(valid_texts(column(table, "text", self.name), self.name)), 0)
        return [Check("min_chars", length, pc.greater_equal(length, self.n), self.n, "at_least")]


@stage
class MinBytes(Judge):
    """Keep documents of at least ``n`` UTF-8 bytes, to avoid tokenising documents that are certainly too short.

    A byte-level BPE gives at most one token per byte. With the same ``n`` as a later ``min_tokens``, this stage removes
    no document that ``min_tokens`` would keep. Set ``json_escaped`` and ``ensure_ascii`` as in ``tokenize``.
    """

    n: int = 65_536
    json_escaped: bool = False
    ensure_ascii: bool = True

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the number of bytes that the tokenizer would see with ``n``."""
        text = valid_texts(column(table, "text", self.name), self.name)
        length = pc.fill_null(pc.cast(pc.binary_length(text), pa.int64()), 0)
        if self.json_escaped:
            # Escaping never shortens a text, so only texts that are too short unescaped need to be measured escaped.
            short = pc.less(length, self.n)
            written = (json.dumps(one.as_py() or "", ensure_ascii=self.ensure_ascii) for one in text.filter(short))
            escaped = [len(one.encode("utf-8", "surrogatepass")) - 2 for one in written]
            length = pc.replace_with_mask(length, short, pa.array(escaped, pa.int64()))
        return [Check("min_bytes", length, pc.greater_equal(length, self.n), self.n, "at_least")]


@stage
class Language(Judge):
    """Keep documents whose column ``language`` is one of ``keep``; remove documents without a language.

    en, eng, en-GB and eng_Latn are the same language, see :func:`longcrawl.text.find_language`.
    """

    keep: tuple[str, ...] = ("en",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keep:
            raise StageError("language.keep is empty and would keep nothing: list languages, such as ['en', 'de']")

    def checks(self, table: pa.Table) -> list[Check]:
        """Check that each document's ``language`` is one of ``keep``."""
        places, _ = places_of_languages(table, self.keep, None, self.name)
        return [Check("language", pa.nulls(table.num_rows, pa.float64()), pa.array(places >= 0))]


@dataclass(frozen=True)
class SignalRule:
    """A rule that a signal, or a quotient of two signals, must be at least or at most ``bound``."""

    name: str
    signal: str
    divided_by: str | None
    comparison: Literal["at_least", "at_most"]
    bound: float

    def check(self, signals: pa.Array) -> Check:
        """Check the rule against a struct array of signals; a document without the signal fails it."""
        value = _signal(signals, self.signal)
        if self.divided_by is not None:
            below = _signal(signals, self.divided_by)
            value = pc.divide(value, pc.if_else(pc.equal(below, 0.0), pa.scalar(None, pa.float64()), below))
        compare = pc.greater_equal if self.comparison == "at_least" else pc.less_equal
        return Check(self.name, value, compare(value, self.bound), self.bound, self.comparison)


@stage
class SignalRules(Judge):
    """Keep documents whose quality signals pass the rules of a preset; the ledger names the first failed rule.

    Preset ``rpv2-card`` (version 1): word count 50 to 100,000, mean word length 3 to 10, symbol-to-word ratio at most
    0.1, bullet-point lines at most 0.9 of all lines, characters in the most frequent 2-gram at most 0.2. It is Gopher's
    quality filter as RedPajama-V2's card describes it. The upper limit on words also removes the longest books;
    ``thresholds`` changes a bound, or switches its rule off with None.

    ``on_missing`` decides about a document that lacks a signal: "drop" removes it (the ledger shows the rule with an
    unknown value, or ``no_signals`` if it has no signals at all), "keep" skips the rule, and "error" raises.

    >>> SignalRules("rpv2-card", thresholds={"max_word_count": None}).rules()[1].name
    'min_mean_word_length'
    """

    preset: str = "rpv2-card"
    thresholds: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    on_missing: Literal["drop", "keep", "error"] = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rules()

    def rules(self) -> tuple[SignalRule, ...]:
        """Return the active rules, in order; StageError for an unknown preset or threshold, or an invalid bound."""
        rules = load_preset(self.preset)
        known = [rule.name for rule in rules]
        for name, bound in self.thresholds.items():
            if name not in known:
                raise StageError(f"preset {self.preset!r} has no threshold {name!r}; known: {', '.join(known)}")
            number = isinstance(bound, int | float) and not isinstance(bound, bool) and math.isfinite(bound)
            if bound is not None and not number:
                raise StageError(f"threshold {name!r} takes a number, or null to switch it off, got {bound!r}")
        bounds = {rule.name: self.thresholds.get(rule.name, rule.bound) for rule in rules}
        active = tuple(replace(rule, bound=bound) for rule in rules if (bound := bounds[rule.name]) is not None)
        highest = {(rule.signal, rule.divided_by): rule for rule in active if rule.comparison == "at_most"}
        for rule in active:
            most = highest.get((rule.signal, rule.divided_by), rule)
            if rule.comparison == "at_least" and rule.bound > most.bound:
                raise StageError(
                    f"{self.name} keeps nothing: {rule.name} {rule.bound:g} is above {most.name} {most.bound:g}"
                )
        return active

    def used_signals(self) -> tuple[str, ...]:
        """Return the names of the signals that the active rules need."""
        named = (name for rule in self.rules() for name in (rule.signal, rule.divided_by) if name is not None)
        return tuple(dict.fromkeys(named))

    def checks(self, table: pa.Table) -> list[Check]:
        """Check every rule against the column ``signals``, a struct of float64."""
        signals = column(table, "signals", self.name)
        checks = [self._with_missing(rule.check(signals), table) for rule in self.rules()]
        if self.on_missing == "drop":
            checks.insert(0, Check("no_signals", pa.nulls(table.num_rows, pa.float64()), signals.is_valid()))
        return checks

    def keeps_unread(self, table: pa.Table) -> pa.Array | None:
        """Return a mask of documents to keep, or None if a missing signal is an error."""
        return None if self.on_missing == "error" else pc.is_null(self.judge(table)["rule"])

    def _with_missing(self, check: Check, table: pa.Table) -> Check:
        if self.on_missing == "drop" or not check.value.null_count:
            return check
        if self.on_missing == "error":
            without = table.filter(pc.is_null(check.value))
            first = without["id"][0].as_py() if "id" in table.column_names else "a document"
            raise StageError(
                f"{first} has no signal for {check.rule!r}; set signal_rules.on_missing to 'drop' or 'keep'"
            )
        return replace(check, passes=pc.fill_null(check.passes, True))


@cache
def load_preset(name: str) -> tuple[SignalRule, ...]:
    """Read the rules of a preset, in order; StageError for an unknown preset."""
    if name not in RULE_SETS.names():
        raise StageError(f"unknown preset {name!r}; {known_names(RULE_SETS.names(), name)}")
    comparisons: tuple[Literal["at_least", "at_most"], ...] = ("at_least", "at_most")
    return tuple(
        SignalRule(rule, spec["signal"], spec.get("divided_by"), comparison, float(spec[comparison]))
        for rule, spec in RULE_SETS.read(name)["rules"].items()
        for comparison in comparisons
        if comparison in spec
    )


def _signal(signals: pa.Array, name: str) -> pa.Array:
    if pa.types.is_null(signals.type):
        return pa.nulls(len(signals), pa.float64())
    if name not in _names(signals):
        known = ", ".join(_names(signals)) or "none"
        raise StageError(f"the documents have no signal {name!r}; they have: {known}")
    # A null struct gives null for each of its fields.
    return pc.cast(pc.struct_field(signals, name), pa.float64())


def _names(signals: pa.Array) -> list[str]:
    return [each.name for each in signals.type] if pa.types.is_struct(signals.type) else []
