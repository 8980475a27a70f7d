"""Citations of a dataset, of the works it is made from, and of longcrawl, from ``cards/citations.bib``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from longcrawl.core.outputs import OUTPUTS, RESULTS, read_template

_ENTRY = re.compile(r"@\w+\s*\{\s*(?P<key>[^\s{},]+)\s*,")


_EXAMPLE = "@misc{smith2026, title = {Our Pages}, author = {Smith, Ann}, year = {2026}}"


_COMMON_CRAWL_FILE = re.compile(r"\bCC-(MAIN|NEWS)-")
"""How Common Crawl names its files: web archives of others are read by the same source."""


_COMMON_CRAWL_TERMS = "common-crawl-terms-of-use"
"""The licence in recipes for its archives, whatever their files are called so far."""


_REDPAJAMA = "weber2024redpajama"


_OF_STAGES = {
    "signals": _REDPAJAMA,
    "signal_rules": _REDPAJAMA,
    "url_filter": "penedo2023refinedweb",
    "line_corrections": "penedo2023refinedweb",
    "gopher_repetition": "rae2021gopher",
    "gopher_quality": "rae2021gopher",
    "c4_quality": "raffel2020exploring",
    "fine_web_quality": "penedo2024fineweb",
    "exact_substring": "lee2022deduplicating",
    "roll": "buckman2024longcrawl64",
}
"""The keys of the works that stages come from."""


@dataclass(frozen=True)
class Cited:
    """An entry of BibTeX."""

    bibtex: str
    used: tuple[str, ...]
    """Source, stages and output of a run for which it is cited."""

    @property
    def key(self) -> str:
        """The name by which texts cite it."""
        found = _ENTRY.match(self.bibtex)
        return found["key"] if found else ""


def citations(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> list[Cited]:
    """Return the works that a run builds on, each once: those of its source, its stages and its output.

    Args:
        recipe: of a run, as its manifest holds it.
        inputs: the files that it read, by part.

    >>> source, stages = {"builder": "redpajama-v2"}, [{"signal_rules": {}}, {"roll": {}}]
    >>> for each in citations({"source": source, "stages": stages, "outputs": {"rectangle": {}}}, {}):
    ...     print(each.key, each.used)
    weber2024redpajama ('redpajama-v2', 'signal_rules')
    buckman2024longcrawl64 ('roll',)

    """
    used: dict[str, list[str]] = {}
    for name, entry in _works(recipe, inputs):
        names = used.setdefault(entry, [])
        names += [] if name in names else [name]
    return [Cited(entry, tuple(names)) for entry, names in used.items()]


def _works(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Return a name of the recipe and the entry of its work, in the order of the recipe."""
    entries = _entries()
    source = recipe["source"]["builder"]
    if source == "redpajama-v2":
        yield source, entries[_REDPAJAMA]
    named = any(map(names_common_crawl, inputs.values()))
    if source == "warc" and (named or recipe.get("card", {}).get("license_name") == _COMMON_CRAWL_TERMS):
        yield source, entries["commoncrawl"]
    stages = [name for stage in recipe["stages"] for name in stage]
    yield from ((name, entries[_OF_STAGES[name]]) for name in stages if name in _OF_STAGES)
    if not recipe["outputs"]:
        return

    outputs = [OUTPUTS.find(name).name for name in recipe["outputs"]]
    yield from ((name, RESULTS[name].citation) for name in outputs if RESULTS[name].citation)


def names_common_crawl(files: Sequence[str]) -> bool:
    """Return whether one of these files has a name as Common Crawl gives it."""
    return any(_COMMON_CRAWL_FILE.search(file) for file in files)


@cache
def _entries() -> dict[str, str]:
    text = read_template("citations.bib")
    return {Cited(entry, ()).key: entry for entry in text.rstrip().split("\n\n")}


def software(version: str) -> Cited:
    """Return the entry of longcrawl itself."""
    title = "longcrawl: from a web crawl to long-context training data"
    return Cited(f"@software{{longcrawl,\n  title = {{{title}}},\n  version = {{{version}}}\n}}", ("longcrawl",))


def bibtex_problem(text: str) -> str | None:
    """Describe what keeps a text from being entries of BibTeX; None where nothing does.

    >>> bibtex_problem("Smith, 2026")
    'is not BibTeX: write entries such as @misc{smith2026, title = {Our Pages}, author = {Smith, Ann}, year = {2026}}'
    """
    rest = text.strip()
    while rest:
        entry = _ENTRY.match(rest)
        if entry is None:
            return f"is not BibTeX: write entries such as {_EXAMPLE}"
        end = _end_of(rest)
        if end is None:
            return f"has an entry {entry['key']!r} whose braces do not close: write as many }} as {{"
        rest = rest[end:].strip()
    return None if text.strip() else f"is empty: leave it out, or write entries such as {_EXAMPLE}"


def _end_of(text: str) -> int | None:
    """Return where the braces that open first are closed; escaped braces do not count."""
    depth = 0
    for brace in re.finditer(r"(?<!\\)[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return None
