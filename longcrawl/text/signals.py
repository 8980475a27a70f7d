"""Filter by quality signals that came with the documents: named, versioned rule sets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from longcrawl.core.stages import Check, Judge, column, stage
from longcrawl.errors import StageError

__all__ = ["SignalRule", "SignalRules", "load_preset", "presets"]


@dataclass(frozen=True)
class SignalRule:
    """One rule: a signal, or one divided by another, must be at least or at most ``bound``."""

    name: str
    signal: str
    divided_by: str | None
    comparison: Literal["at_least", "at_most"]
    bound: float

    def check(self, signals: pa.Array) -> Check:
        """Measure the rule on a struct array of signals; a document without the signal does not pass."""
        value = _signal(signals, self.signal)
        if self.divided_by is not None:
            below = _signal(signals, self.divided_by)
            value = pc.divide(value, pc.if_else(pc.equal(below, 0.0), pa.scalar(None, pa.float64()), below))
        compare = pc.greater_equal if self.comparison == "at_least" else pc.less_equal
        return Check(self.name, value, compare(value, self.bound), self.bound, self.comparison)


@stage
class SignalRules(Judge):
    """Keep documents whose quality signals pass a preset's rules; the ledger names the first rule that failed.

    Preset ``rpv2-card`` (version 1): word count 50 to 100,000, mean word length 3 to 10, symbol-to-word ratio at most
    0.1, bullet-point lines at most 0.9 of all lines, characters in the most frequent 2-gram at most 0.2. It is Gopher's
    quality filter as RedPajama-V2's card words it. The word cap also removes the longest books: ``thresholds`` sets a
    bound, or switches its rule off with None.

    ``on_missing`` says what a document without a signal gets: "drop" (the ledger shows the rule with an unknown value,
    or ``no_signals`` where there are none at all), "keep" (the rule does not apply), or "error".

    >>> SignalRules("rpv2-card", thresholds={"max_word_count": None}).rules()[1].name
    'min_mean_word_length'
    """

    preset: str = "rpv2-card"
    thresholds: Mapping[str, float | None] = field(default_factory=dict)
    on_missing: Literal["drop", "keep", "error"] = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rules()

    def __hash__(self) -> int:
        """Hash by the settings; a mapping of thresholds has no hash of its own."""
        return hash((self.preset, tuple(sorted(self.thresholds)), self.on_missing))

    def rules(self) -> tuple[SignalRule, ...]:
        """Return the rules that apply, in order.

        Raises:
            StageError: unknown preset or threshold; the message lists the known ones.

        """
        rules = load_preset(self.preset)
        known = [rule.name for rule in rules]
        for name, bound in self.thresholds.items():
            if name not in known:
                raise StageError(f"preset {self.preset!r} has no threshold {name!r}; known: {', '.join(known)}")
            number = isinstance(bound, int | float) and not isinstance(bound, bool) and math.isfinite(bound)
            if bound is not None and not number:
                raise StageError(f"threshold {name!r} takes a number, or null to switch it off, got {bound!r}")
        bounds = {rule.name: self.thresholds.get(rule.name, rule.bound) for rule in rules}
        return tuple(replace(rule, bound=bound) for rule in rules if (bound := bounds[rule.name]) is not None)

    def checks(self, table: pa.Table) -> list[Check]:
        """Check every rule against the column ``signals``, a struct of float64."""
        signals = column(table, "signals", self.name)
        checks = [self._with_missing(rule.check(signals), table) for rule in self.rules()]
        if self.on_missing == "drop":
            checks.insert(0, Check("no_signals", pa.nulls(table.num_rows, pa.float64()), signals.is_valid()))
        return checks

    def _with_missing(self, check: Check, table: pa.Table) -> Check:
        if self.on_missing == "drop" or not check.value.null_count:
            return check
        if self.on_missing == "error":
            first = (
                table["id"].filter(pc.is_null(check.value))[0].as_py() if "id" in table.column_names else "a document"
            )
            raise StageError(
                f"{first} has no signal for {check.rule!r}; set signal_rules.on_missing to 'drop' or 'keep'"
            )
        return replace(check, passes=pc.fill_null(check.passes, True))


def presets() -> list[str]:
    """Name the shipped presets."""
    files = resources.files("longcrawl.text.presets").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


@cache
def load_preset(name: str) -> tuple[SignalRule, ...]:
    """Read a preset's rules in order.

    Raises:
        StageError: there is no such preset; the message lists those there are.

    """
    if name not in presets():
        raise StageError(f"unknown preset {name!r}; known: {', '.join(presets())}")
    text = resources.files("longcrawl.text.presets").joinpath(f"{name}.yaml").read_text("utf-8")
    return tuple(_rule(key, spec) for key, spec in yaml.safe_load(text)["rules"].items())


def _rule(name: str, spec: dict[str, Any]) -> SignalRule:
    comparison: Literal["at_least", "at_most"] = "at_least" if "at_least" in spec else "at_most"
    return SignalRule(name, spec["signal"], spec.get("divided_by"), comparison, float(spec[comparison]))


def _signal(signals: pa.Array, name: str) -> pa.Array:
    if pa.types.is_null(signals.type):
        return pa.nulls(len(signals), pa.float64())
    if not pa.types.is_struct(signals.type) or signals.type.get_field_index(name) < 0:
        known = (
            [signals.type.field(i).name for i in range(signals.type.num_fields)]
            if pa.types.is_struct(signals.type)
            else []
        )
        raise StageError(f"the documents carry no signal {name!r}; they have: {', '.join(known) or 'none'}")
    # A struct that is null as a whole gives a null for each of its fields.
    return pc.cast(pc.struct_field(signals, name), pa.float64())
