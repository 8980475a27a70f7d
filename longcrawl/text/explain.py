"""Why stages keep or drop one document: every rule with value, threshold and verdict, and the places it is about."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.pipeline import label_stages
from longcrawl.core.places import LineChange
from longcrawl.core.stages import Check, Stage, column
from longcrawl.errors import StageError
from longcrawl.text.explanation import Explanation, MeasuredRule, SeenText, Span, Unexplained

Show = Literal["failed", "all"]


def explain(
    text: str,
    stage: Stage | Sequence[Stage | tuple[str, Stage]],
    language: str | None = None,
    *,
    show: Show = "failed",
    **columns: Any,
) -> Explanation:
    r"""Describe what every rule of one or several stages measures in a text, and which places of it a rule is about.

    In a list each stage sees the text as those before have edited it, and all stages are measured, also behind the one
    at which a crawl would drop the document. Not explained, but named with the reason, are stages that need all
    documents, those that look at tokens, and in a list those that lack a column.

    Args:
        text: the document.
        stage: a judge or an edit, or a list of stages: ``crawl.steps``, ``lc.load_recipe(NAME).stages``.
        language: the document's column ``language``.
        show: whether only rules that fail are marked in the text, or all.
        **columns: other columns of the document, such as ``signals={"rps_doc_word_count": 120.0}``.

    Raises:
        StageError: what is given is not a stage, or not a text; a single stage lacks a column.

    >>> from longcrawl.text import MinChars
    >>> print(explain("too short", MinChars(12)))
    stage      rule       value  threshold    verdict
    min_chars  min_chars      9  at least 12  FAILS
    <BLANKLINE>
    LEAVES at min_chars: min_chars is 9, must be at least 12 (1 of 1 rules fail)
    """
    if show not in ("failed", "all"):
        raise StageError(f"show takes 'failed' or 'all', got {show!r}")
    reading = _Reading(_document(text, language, columns), language, show)
    stages = _stages(stage)
    for label, each in zip(label_stages([each.name for each in stages]), stages, strict=True):
        try:
            reading.take(label, each)
        except StageError as wrong:
            if isinstance(stage, Stage):
                raise
            reading.unexplained.append(Unexplained(label, f"says: {wrong}"))
    return Explanation(tuple(reading.rules), tuple(reading.unexplained), tuple(reading.texts))


class _Reading:
    """One document on its way through stages."""

    def __init__(self, table: pa.Table, language: str | None, show: Show) -> None:
        self.table = table
        self.language = language
        self.show = show
        self.rules: list[MeasuredRule] = []
        self.unexplained: list[Unexplained] = []
        self.texts: list[SeenText] = []

    def take(self, label: str, stage: Stage) -> None:
        """Measure a stage's rules and, where it changes the document, hand on what it makes of it."""
        if (reason := _why_not(stage)) is not None:
            self.unexplained.append(Unexplained(label, reason))
            return
        documents, checks, _ = stage.trace(self.table)
        if stage.judges:
            self._note(label, stage, checks)
            self._note_changes(label, stage)
        self.table = documents

    @property
    def text(self) -> str:
        """The document's text as it is now."""
        return column(self.table, "text", "explain")[0].as_py() or ""

    def _note(self, label: str, stage: Stage, checks: Sequence[Check]) -> None:
        seen = self._seen()
        marks: list[tuple[MeasuredRule, tuple[Span, ...]]] = []
        for check in checks:
            rule = _measured(label, check)
            self.rules.append(rule)
            if rule.verdict == "fails" or self.show == "all":
                marks.append((rule, tuple(stage.marks(seen.text, rule.rule))))
        found = tuple(each for each in marks if each[1])
        self.texts[-1] = replace(seen, stages=(*seen.stages, label), marks=(*seen.marks, *found))

    def _note_changes(self, label: str, stage: Stage) -> None:
        # A stage that is set to one language edits by it, whatever the document says.
        named = self.language if getattr(stage, "language", None) is None else None
        changes = tuple(LineChange(*each) for each in stage.changes(self.text, named))
        if changes:
            self.texts[-1] = replace(self.texts[-1], edited_by=label, changes=changes)

    def _seen(self) -> SeenText:
        """Return what is known of the text as it is now; a text that is the same again is described once."""
        if not self.texts or self.texts[-1].text != self.text or self.texts[-1].changes:
            self.texts.append(SeenText(self.text))
        return self.texts[-1]


def _why_not(stage: Stage) -> str | None:
    if stage.looks_at != "text":
        return f"works on {stage.looks_at}, not on text"
    if stage.needs == "fit":
        return "learns from all documents before it rewrites one"
    return None if stage.needs == "batch" else "needs all documents to decide about one"


def _measured(label: str, check: Check) -> MeasuredRule:
    bound = check.threshold[0].as_py() if isinstance(check.threshold, pa.Array) else check.threshold
    value = pc.cast(check.value, pa.float64())[0].as_py()
    # As in the ledger, a rule of which nothing is known does not pass.
    passes = check.passes[0].as_py() is True
    off = passes and check.comparison is not None and bound is None
    verdict: Literal["passes", "fails", "off"] = "off" if off else "passes" if passes else "fails"
    threshold = None if bound is None else float(bound)
    return MeasuredRule(label, check.rule, value, check.comparison, threshold, verdict)


def _stages(given: Stage | Sequence[Stage | tuple[str, Stage]]) -> list[Stage]:
    if isinstance(given, Stage):
        return [given]
    stages = [each[1] if isinstance(each, tuple) and len(each) == 2 else each for each in given]
    for each in stages:
        if not isinstance(each, Stage):
            raise StageError(f"explain takes a stage such as lc.text.GopherQuality(), or a list of them, got {each!r}")
    return stages


def _document(text: str, language: str | None, columns: dict[str, Any]) -> pa.Table:
    if not isinstance(text, str):
        raise StageError(f"explain takes one document's text, got {type(text).__name__}: give document['text']")
    made = {"id": _column("id", "document"), "text": _text_column(text), "language": _column("language", language)}
    return pa.table(made | {name: _column(name, value) for name, value in columns.items()})


def _text_column(text: str) -> pa.Array:
    try:
        return pa.array([text], pa.large_string())
    except UnicodeEncodeError as half:
        raise StageError(
            f"the text has half of a surrogate pair at character {half.start:,}, which no UTF-8 can hold: "
            "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace') fixes it"
        ) from half


def _column(name: str, value: Any) -> pa.Array:
    try:
        return pa.nulls(1, pa.string()) if value is None else pa.array([value])
    except (pa.ArrowException, OverflowError) as wrong:
        raise StageError(f"the column {name!r} cannot be {value!r}: {wrong}") from wrong
