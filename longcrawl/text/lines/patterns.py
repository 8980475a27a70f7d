"""Patterns of lines that are no text, by language: shipped ones, and those of a user's own file."""

from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from longcrawl.errors import StageError
from longcrawl.kernels.phrases import PhraseTree, make_tree
from longcrawl.storage.data_files import reread_when_changed
from longcrawl.storage.structured import load_yaml

__all__ = ["LinePatterns", "line_patterns", "pattern_files", "read_line_patterns"]

Phrases = dict[str, tuple[str, ...]]

_ENDING = (".yaml", ".yml")
_LISTS = ("counters", "prefixes", "suffixes", "anywhere")
_FORM = "it should be YAML like {default: en, languages: {en: {counters: [likes], suffixes: [Read more...]}}}"


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


def line_patterns() -> list[str]:
    """Name the shipped patterns."""
    files = resources.files("longcrawl.text.presets.lines").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def pattern_files(name: str | None) -> tuple[str, ...]:
    """Name the file that :func:`read_line_patterns` reads by this name; shipped patterns have none to change."""
    return (name,) if name is not None and name.endswith(_ENDING) else ()


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
    try:
        found = load_yaml(_text(name))
    except yaml.YAMLError as error:
        raise StageError(f"{name} is no YAML ({' '.join(str(error).split())}); {_FORM}") from error
    if not isinstance(found, dict) or not isinstance(found.get("languages"), dict):
        raise StageError(f"{name} holds no patterns by language; {_FORM}")
    named = {_language(language, name): lists for language, lists in found["languages"].items()}
    languages = {language: _phrases(lists, language, name) for language, lists in named.items()}
    default = found.get("default")
    if default is not None and default not in languages:
        raise StageError(f"{name} has the default {default!r}, which is none of its languages: {', '.join(languages)}")
    return languages, default


def _text(name: str) -> str:
    if not name.endswith(_ENDING):
        if name not in line_patterns():
            known = ", ".join(line_patterns())
            raise StageError(f"unknown line patterns {name!r}; known: {known}, or give the path of a .yaml file")
        return resources.files("longcrawl.text.presets.lines").joinpath(f"{name}.yaml").read_text("utf-8")
    try:
        return Path(name).read_text("utf-8")
    except FileNotFoundError as error:
        raise StageError(f"{name} does not exist; give the path of a YAML file of line patterns") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{name} cannot be read as UTF-8 text: {error}; write it again") from error


def _language(language: Any, name: str) -> str:
    if not isinstance(language, str):
        # YAML reads a bare no as false.
        raise StageError(f"{name} has the language {language!r}, which is no text; put it in quotes, as in 'no'")
    return language


def _phrases(lists: Any, language: str, name: str) -> Phrases:
    if not isinstance(lists, dict) or not all(
        isinstance(phrases, list) and all(isinstance(phrase, str) for phrase in phrases) for phrases in lists.values()
    ):
        raise StageError(f"{name} has something else than lists of phrases for {language!r}; {_FORM}")
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
    from longcrawl.text.lines._line_kernels import AFTER_NUMBER, ANYWHERE, COUNTER, PREFIX, SUFFIX

    bits = dict(zip(_LISTS, (COUNTER, PREFIX, SUFFIX, ANYWHERE), strict=True))
    entered = []
    for number, lists in enumerate(languages.values()):
        for kind, phrases in lists.items():
            for phrase in phrases:
                counted = kind == "counters" or phrase.startswith("#")
                words = phrase.removeprefix("#").strip() if counted else phrase
                entered.append((2 * number + AFTER_NUMBER * counted, words, bits[kind]))
    return make_tree(2 * len(languages) + 2, entered)
