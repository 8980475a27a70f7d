"""Filters by size and language: how long a document must be to be worth reading on."""

import json
import string

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Judge, column, stage
from longcrawl.errors import StageError
from longcrawl.text.language.spoken import places_of_languages

__all__ = ["Language", "MinBytes", "MinChars", "MinWords", "count_words"]

WORD_COUNT = "rps_doc_word_count"
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def count_words(text: str) -> int:
    """Count words as RedPajama-V2's ``rps_doc_word_count`` does: ASCII punctuation is deleted, white space separates.

    >>> count_words("don't count -- dashes")
    3
    """
    return len(text.translate(WITHOUT_PUNCTUATION).split())


@stage
class MinWords(Judge):
    """Keep documents of at least ``n`` words in RedPajama-V2's sense (:func:`count_words`); LongCrawl64 keeps 16,000.

    Where the documents carry the signal ``rps_doc_word_count`` it is taken as it is, else the words are counted.
    """

    n: int = 16_000

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the words of each document with ``n``."""
        words = self._words(table)
        return [Check("min_words", words, pc.greater_equal(words, self.n), self.n, "at_least")]

    def _words(self, table: pa.Table) -> pa.Array:
        text = column(table, "text", self.name)
        known = pa.nulls(table.num_rows, pa.float64())
        if "signals" in table.column_names:
            signals = column(table, "signals", self.name)
            if pa.types.is_struct(signals.type) and signals.type.get_field_index(WORD_COUNT) >= 0:
                known = pc.cast(pc.struct_field(signals, WORD_COUNT), pa.float64())
        if not known.null_count:
            return known
        counted = [
            count_words(one.as_py() or "") if missing else None
            for one, missing in zip(text, known.is_null().to_pylist(), strict=True)
        ]
        return pc.coalesce(known, pa.array(counted, pa.float64()))


@stage
class MinChars(Judge):
    """Keep documents of at least ``n`` characters (Unicode code points)."""

    n: int = 200

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the length of ``text`` with ``n``."""
        length = pc.fill_null(pc.utf8_length(column(table, "text", self.name)), 0)
        return [Check("min_chars", length, pc.greater_equal(length, self.n), self.n, "at_least")]


@stage
class MinBytes(Judge):
    """Keep documents of at least ``n`` UTF-8 bytes, so that hopeless ones are never tokenised.

    A byte-level BPE gives at most one token per byte: with ``n`` equal to the ``min_tokens`` that follows, nothing
    leaves here that would have stayed there. ``json_escaped`` and ``ensure_ascii`` must be those of ``tokenize``.
    """

    n: int = 65_536
    json_escaped: bool = False
    ensure_ascii: bool = True

    def checks(self, table: pa.Table) -> list[Check]:
        """Compare the bytes that the tokenizer would see with ``n``."""
        text = column(table, "text", self.name)
        length = pc.fill_null(pc.cast(pc.binary_length(text), pa.int64()), 0)
        if self.json_escaped:
            # Escaping never makes a text shorter, so only those that are still too short are escaped to be measured.
            short = pc.less(length, self.n).to_pylist()
            measured = [
                self._escaped_bytes(one.as_py() or "") if small else None
                for one, small in zip(text, short, strict=True)
            ]
            length = pc.coalesce(pa.array(measured, pa.int64()), length)
        return [Check("min_bytes", length, pc.greater_equal(length, self.n), self.n, "at_least")]

    def _escaped_bytes(self, text: str) -> int:
        return len(json.dumps(text, ensure_ascii=self.ensure_ascii).encode("utf-8", "surrogatepass")) - 2


@stage
class Language(Judge):
    """Keep documents whose column ``language`` is one of ``keep``; a document without a language leaves.

    en, eng, en-GB and eng_Latn are one language, see :func:`longcrawl.text.find_language`.
    """

    keep: tuple[str, ...] = ("en",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keep:
            raise StageError("language.keep is empty and would keep nothing: name languages, such as ['en', 'de']")

    def checks(self, table: pa.Table) -> list[Check]:
        """Look ``language`` up among ``keep``."""
        places, _ = places_of_languages(table, self.keep, None, self.name)
        return [Check("language", pa.nulls(table.num_rows, pa.float64()), pa.array(places >= 0))]
