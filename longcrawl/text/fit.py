"""Fitting of thresholds by language: bounds that a given share of a sample's documents passes, rule by rule."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from longcrawl.core.display import Cell, Column, Table
from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.io.files import write_text
from longcrawl.kernels.keyed_hash import reached_by
from longcrawl.kernels.texts import valid_texts
from longcrawl.text.gopher.pages import distinct_words
from longcrawl.text.gopher.stages import TextRules
from longcrawl.text.languages import VERSION, parse_tag
from longcrawl.text.values import tables

DIGITS = Decimal("0.001")  # precision of fitted bounds; rounding is outwards, so that it removes no document


@dataclass(frozen=True)
class FittedThresholds:
    """Thresholds by language, with facts about the sample that they were fitted to; prints as a table."""

    stage: str
    keep: float
    min_documents: int
    languages: Mapping[str, Mapping[str, Any]]  # fitted fields of the stage, by language
    documents: Mapping[str, int]  # number of documents of each fitted language
    kept: Mapping[str, float]
    """Share of each language's documents that passes all fitted bounds; each single bound passes at least ``keep``."""
    too_few: Mapping[str, int]  # number of documents of each language that was not fitted
    without_language: int  # number of documents without a language

    def save(self, path: str | Path) -> None:
        """Write the YAML file that ``languages=`` of a rule set reads; raise StageError if no language was fitted."""
        if not self.languages:
            why = self._left_out() or "there are no documents"
            raise StageError(f"no language was fitted, {why}: add documents, or lower min_documents")
        fitted = ", ".join(f"{name} {count:,}" for name, count in self.documents.items())
        head = f"# Fitted for {self.stage} by longcrawl.text.fit_thresholds, keep {self.keep:g}; documents: {fitted}.\n"
        plain = {
            name: {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
            for name, fields in self.languages.items()
        }
        content = {"version": VERSION, "languages": plain}
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
        write_text(Path(path), head + text)

    def __repr__(self) -> str:
        lines = [f"{self.stage}, keep {self.keep:g}", *([str(self._table())] if self.languages else [])]
        lines += [
            f"stop words of {name}: {', '.join(fields['stop_words'])}"
            for name, fields in self.languages.items()
            if "stop_words" in fields
        ]
        left_out = self._left_out()
        return "\n".join([*lines, f"not fitted: {left_out}"] if left_out else lines)

    def _table(self) -> Table:
        rules = dict.fromkeys(name for fields in self.languages.values() for name in fields if name != "stop_words")
        rows: list[list[Cell]] = [["documents", *self.documents.values()]]
        rows.append(["pass all", *(f"{share:.3f}" for share in self.kept.values())])
        rows += [[rule, *(fields[rule] for fields in self.languages.values())] for rule in rules]
        return Table([Column(""), *(Column(name, "count") for name in self.languages)], rows)

    def _left_out(self) -> str:
        few = [f"{name} {count:,}" for name, count in self.too_few.items()]
        reasons = [f"fewer than {self.min_documents:,} documents ({', '.join(few)})"] if few else []
        reasons += [f"{self.without_language:,} without a language"] if self.without_language else []
        return " and ".join(reasons)


@dataclass(frozen=True)
class _Sample:
    names: list[str]  # language names, as the documents spell them
    spoken: npt.NDArray[np.int32]  # index into ``names`` for each document, -1 for none
    values: npt.NDArray[np.float64]  # shape (documents, rules)
    documents_with: Mapping[str, Counter[str]]  # number of documents that contain each word, by language name
    occurrences: Mapping[str, Counter[str]]  # number of occurrences of each word, by language name


def fit_thresholds(
    documents: Any,
    stage: TextRules,
    keep: float = 0.99,
    languages: Sequence[str] | None = None,
    *,
    rules: Sequence[str] | None = None,
    stop_words: int = 0,
    min_documents: int = 100,
    batch_size: int = 200,
) -> FittedThresholds:
    """Fit the thresholds of a rule set to each language of a sample.

    For a rule ``max_x``, the threshold is the lowest bound that the share ``keep`` of a language's documents passes;
    for ``min_x``, the highest. It is rounded outwards to three decimals. The order of documents does not matter.

    >>> import pyarrow as pa
    >>> import longcrawl as lc
    >>> sample = pa.table({"text": ["eins zwei drei", "vier"] * 50, "language": ["de"] * 100})
    >>> lc.text.fit_thresholds(sample, lc.text.GopherQuality(), rules=["min_words", "max_mean_word_length"])
    gopher_quality, keep 0.99
                             de
    documents               100
    pass all              1.000
    min_words                 1
    max_mean_word_length      4

    Args:
        documents: a ``datasets.Dataset``, a crawl or an Arrow table, with columns ``text`` and ``language``.
        stage: the rule set to measure; rules that it switches off are not measured.
        keep: the share of documents that each rule should keep by itself.
        languages: the languages to fit; None for all. Names that mean the same language are taken together.
        rules: the rules of the stage to fit. None for all except ``max_unspaced_letters``, which tests whether
            ``words`` suits a text at all, and, if ``stop_words`` is set, ``min_stop_words``.
        stop_words: number of stop words to find: the words with a letter that occur in most documents; 0 for none.
        min_documents: languages with fewer documents are not fitted but reported.
        batch_size: documents in memory at a time.

    Raises:
        StageError: a setting is out of range, or the documents lack a column.
    """
    _check_settings(stage, keep, stop_words, min(min_documents, batch_size))
    bare = replace(stage, languages=None)
    chosen = _chosen_rules(bare, [rules] if isinstance(rules, str) else rules, stop_words)
    sample = _measure(documents, bare, chosen, batch_size, count_words=stop_words > 0)
    groups = _groups(sample, [languages] if isinstance(languages, str) else languages)
    fitted, counts, kept, too_few = {}, {}, {}, {}
    for language in sorted(groups):
        values = sample.values[np.isin(sample.spoken, [sample.names.index(name) for name in groups[language]])]
        if len(values) < min_documents:
            too_few[language] = len(values)
            continue
        counts[language] = len(values)
        fitted[language], kept[language] = _fit(chosen, values, keep)
        if stop_words:
            fitted[language]["stop_words"] = _top(sample, groups[language], stop_words)
    nameless = int((sample.spoken < 0).sum())
    return FittedThresholds(stage.name, keep, min_documents, fitted, counts, kept, too_few, nameless)


def _check_settings(stage: Any, keep: float, stop_words: int, smallest: int) -> None:
    if not isinstance(stage, TextRules):
        raise StageError(f"fit_thresholds takes a rule set such as lc.text.GopherQuality(), got {stage!r}")
    if not isinstance(keep, float | int) or not 0 < keep <= 1:
        raise StageError(f"keep must be a share above 0 and up to 1, such as 0.99, got {keep!r}")
    if smallest < 1:
        raise StageError(f"min_documents and batch_size must be at least 1, got {smallest}")
    if stop_words and not hasattr(stage, "stop_words"):
        raise StageError(f"{stage.name} has no stop words; fit them for lc.text.GopherQuality()")


def _chosen_rules(stage: TextRules, rules: Sequence[str] | None, stop_words: int) -> list[str]:
    measured = [check.rule for check in stage.checks(pa.table({"text": pa.array([], pa.string())}))]
    if rules is None:
        left_out = {"max_unspaced_letters", *(["min_stop_words"] if stop_words else [])}
        return [rule for rule in measured if rule not in left_out]
    for rule in rules:
        if rule not in measured:
            raise StageError(f"the stage measures no rule {rule!r}; it measures: {', '.join(measured)}")
        if rule == "min_stop_words" and stop_words:
            raise StageError("min_stop_words cannot be fitted together with the words that it counts; fit them first")
    return [rule for rule in measured if rule in rules]


def _measure(documents: Any, stage: TextRules, rules: Sequence[str], batch_size: int, *, count_words: bool) -> _Sample:
    spoken: list[str | None] = []
    blocks = [np.zeros((0, len(rules)))]
    documents_with: dict[str, Counter[str]] = {}
    occurrences: dict[str, Counter[str]] = {}
    slices = (
        table.slice(start, batch_size)
        for table in tables(documents, batch_size)
        for start in range(0, table.num_rows, batch_size)
    )
    for table in slices:
        names = [stage.language] * table.num_rows
        if stage.language is None:
            names = pc.cast(column(table, "language", stage.name), pa.string()).to_pylist()
        spoken += names
        checks = {check.rule: check.value.to_numpy(zero_copy_only=False) for check in stage.checks(table)}
        blocks.append(np.stack([checks[rule] for rule in rules], 1) if rules else np.zeros((table.num_rows, 0)))
        if count_words:
            texts = valid_texts(column(table, "text", stage.name), stage.name)
            for name, words in zip(names, distinct_words(texts, stage.words), strict=True):
                if name is not None:
                    documents_with.setdefault(name, Counter()).update(words.keys())
                    occurrences.setdefault(name, Counter()).update(words)
    encoded = pc.dictionary_encode(pa.array(spoken, pa.string()))
    places = pc.fill_null(encoded.indices, -1).to_numpy()
    return _Sample(encoded.dictionary.to_pylist(), places, np.concatenate(blocks), documents_with, occurrences)


def _groups(sample: _Sample, languages: Sequence[str] | None) -> dict[str, list[str]]:
    called: dict[Any, list[str]] = {}
    for name in sorted(sample.names, key=lambda each: (len(each), each)):
        called.setdefault(parse_tag(name) or name, []).append(name)
    if languages is None:
        return {names[0]: names for names in called.values()}
    wanted = {parse_tag(name) or name: name for name in reversed(languages)}
    return {name: called.get(language, []) for language, name in wanted.items()}


def _fit(rules: Sequence[str], values: npt.NDArray[np.float64], keep: float) -> tuple[dict[str, Any], float]:
    bounds: dict[str, Any] = {}
    passes = np.full(len(values), True)
    for rule, measured in zip(rules, values.T, strict=True):
        bounds[rule] = bound = _bound(rule, measured, keep)
        passes &= measured <= bound if rule.startswith("max_") else measured >= bound
    return bounds, float(passes.mean())


def _bound(rule: str, values: npt.NDArray[np.float64], keep: float) -> float:
    is_max = rule.startswith("max_")
    exact = abs(reached_by(-values if is_max else values, keep))
    rounding = ROUND_CEILING if is_max else ROUND_FLOOR
    rounded = Decimal(repr(exact)).quantize(DIGITS, rounding)
    return int(rounded) if rounded == rounded.to_integral_value() else float(rounded)


def _top(sample: _Sample, names: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the words that occur in most documents; ties are ordered by number of occurrences, then by the word."""
    documents = sum((sample.documents_with[name] for name in names), Counter[str]())
    times = sum((sample.occurrences[name] for name in names), Counter[str]())
    return tuple(sorted(documents, key=lambda word: (-documents[word], -times[word], word))[:most])
