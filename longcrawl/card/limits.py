"""What a reader of a dataset has to know before using it; the card and the report of a run say the same."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from longcrawl.card.source import missing_sentence
from longcrawl.core.fields import build
from longcrawl.core.results import RESULTS
from longcrawl.errors import RecipeError
from longcrawl.manifest import MissingEntry
from longcrawl.text import SignalRules
from longcrawl.text.filters import WORD_COUNT

__all__ = ["Limit", "known_limits"]

SOURCES_LIMIT = "The text is that of its sources, with their licences, errors and biases; nothing here has cleared it."


class Limit(NamedTuple):
    """A sentence of ours, in which backticks mean code, and what is cited behind it, in which nothing means anything.

    What is cited has no full stop of its own.
    """

    said: str
    cited: str = ""


def known_limits(manifest: Mapping[str, Any]) -> list[Limit]:
    """Return the limits of the output, of what stages have removed and reported, and of the source.

    Args:
        manifest: that of a run.

    """
    output = manifest["output"]
    reports = [Limit(f"`{label}`: ", each) for label, found in manifest.get("reports", {}).items() for each in found]
    try:
        limits = RESULTS[output["format"]].limits(output)
    except MissingEntry as missing:
        limits = [missing_sentence(missing)]
    found = [*limits, *_caps(manifest["recipe"])]
    return [*map(Limit, found), *reports, Limit(SOURCES_LIMIT)]


def _caps(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Describe of stages that remove documents for their length where the longest books are missing."""
    for stage in recipe["stages"]:
        ((name, settings),) = stage.items()
        caps = [settings.get("max_words")]
        if name == SignalRules.name:
            try:
                found = build(SignalRules, settings, name, RecipeError).rules()
            except RecipeError:
                yield f"`{name}` has settings of another longcrawl: whether it removes long documents is unknown."
                continue
            caps += [each.bound for each in found if (each.signal, each.comparison) == (WORD_COUNT, "at_most")]
        for cap in caps:
            if cap is not None:
                yield f"`{name}` removes documents of more than {int(cap):,} words: the longest books are missing."
