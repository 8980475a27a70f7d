"""Languages: codes and scripts, thresholds and stop words by language, and counts of documents by language.

The language of a document is a name or code in its column ``language``.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from longcrawl.core.stages import column
from longcrawl.errors import StageError
from longcrawl.io.files import reread_when_changed
from longcrawl.io.structured import load_yaml
from longcrawl.text.presets import Presets
from longcrawl.text.values import tables

_TAG = re.compile(r"(?P<language>[a-z]{2,3})(?P<rest>(?:[-_][a-z0-9]{1,8})*)", re.IGNORECASE)
_SCRIPT = re.compile(r"[-_]([a-z]{4})(?![a-z0-9])", re.IGNORECASE)


class Tag(NamedTuple):
    """A language and, if it was named, a script."""

    language: str  # ISO 639-3 code, or the given code if it has two letters and is unknown
    script: str | None  # ISO 15924 code, or None if no script was named

    @property
    def wide(self) -> str:
        """The macrolanguage if this language is its main member (Mandarin is Chinese), else the language itself."""
        return _MACROLANGUAGES.get(self.language, self.language)


@lru_cache(maxsize=8192)
def parse_tag(name: str) -> Tag | None:
    """Parse a name such as fr, fra, fra_Latn, fr-FR or zh-Hans-CN, without its region; return None for other names.

    >>> parse_tag("zh-Hans-CN")
    Tag(language='zho', script='Hans')
    """
    match = _TAG.fullmatch(name)
    if match is None:
        return None
    language = match["language"].lower()
    script = _SCRIPT.search(match["rest"])
    return Tag(_THREE_LETTERS.get(language, language), script[1].title() if script else None)


def script_family(script: str | None) -> str | None:
    """Return the general form of a script, such as Hani for Hans (simplified) and Hant (traditional)."""
    return _SCRIPT_FAMILIES.get(script, script) if script else None


def main_script(tag: Tag) -> str | None:
    """Return the usual script of a language, or None if it is unknown."""
    return _MAIN_SCRIPTS.get(tag.language) or _MAIN_SCRIPTS.get(tag.wide)


@lru_cache(maxsize=8192)
def language_code(name: str) -> str | None:
    """Return the two-letter code of a language if it has one, else its three-letter code; None for codes like und.

    A script is appended if it is not the usual one of the language; an unknown usual script is taken to be Latin. A
    name that is not a language tag is returned unchanged.

    >>> [language_code(name) for name in ("eng_Latn", "zh-CN", "srp_Latn", "cmn_Hani", "zxx")]
    ['en', 'zh', 'sr_Latn', 'cmn', None]
    """
    if (tag := parse_tag(name)) is None:
        return name
    if tag.language in _NO_LANGUAGES:
        return None
    code = _TWO_LETTERS.get(tag.language, tag.language)
    usual = main_script(tag) or "Latn"
    return code if script_family(tag.script or usual) == script_family(usual) else f"{code}_{tag.script}"


def iso_639_code(name: str) -> str | None:
    """Return the ISO 639 code of a language without a script, of two letters if possible, or None for other names.

    >>> [iso_639_code(name) for name in ("eng_Latn", "zh-Hans", "cmn", "und", "xx", "qaa", "English")]
    ['en', 'zh', 'cmn', None, None, None, None]
    """
    tag = parse_tag(name)
    if tag is None or tag.language in _NO_LANGUAGES or len(tag.language) == 2 or "qaa" <= tag.language <= "qtz":
        return None
    return _TWO_LETTERS.get(tag.language, tag.language)


def _pairs(listed: str, size: int) -> dict[str, str]:
    return {each[:size]: each[size:] for each in listed.split()}


_ISO_639_1, _MEMBERS, _SCRIPTS = resources.files(__package__).joinpath("iso_639.txt").read_text("utf-8").split("\n\n")
"""Two-letter codes with their ISO 639-3 codes (the last five are withdrawn), macrolanguages with their main members,
and scripts with the languages that are mostly written in them."""

_THREE_LETTERS = _pairs(_ISO_639_1, 2)
_TWO_LETTERS = {three: two for two, three in reversed(_THREE_LETTERS.items())}
_NO_LANGUAGES = ("mis", "mul", "und", "zxx")
_MACROLANGUAGES = {member: language for language, member in _pairs(_MEMBERS, 3).items()}
_MAIN_SCRIPTS = dict.fromkeys(_THREE_LETTERS.values(), "Latn") | {
    language: line[:4] for line in _SCRIPTS.splitlines() for language in line[5:].split()
}
_SCRIPT_FAMILIES = {"Aran": "Arab", "Hans": "Hani", "Hant": "Hani", "Kore": "Hang"}


_NAMES = {
    "dup_line_frac": "max_duplicate_lines",
    "language_score": "min_language_score",
    "line_punct_thr": "min_terminal_lines",
    "max_avg_word_length": "max_mean_word_length",
    "max_non_alpha_words_ratio": "min_alphabetic_words",
    "min_avg_word_length": "min_mean_word_length",
    "new_line_ratio": "max_newline_ratio",
    "stopwords": "stop_words",
}
"""Field names by key of FineWeb-2, whose ``max_non_alpha_words_ratio`` is the least share of words with letters."""

_GRAMS = {
    "dup_n_grams": {n: f"max_duplicate_{n}grams" for n in range(5, 11)},
    "top_n_grams": {n: f"max_top_{n}gram" for n in range(2, 5)},
}

FINEWEB_2_KEYS = frozenset([*_NAMES, *_GRAMS])

_OFF_AT_ZERO = ("dup_line_frac", "max_avg_word_length", "max_non_alpha_words_ratio", "min_avg_word_length")
"""Keys of rules that FineWeb-2's filters skip if the bound is 0."""

_EVERY_LANGUAGE = {
    "max_duplicate_line_characters": None,
    "max_duplicate_paragraph_characters": None,
    "max_duplicate_paragraphs": None,
    "max_later_line_characters": 0.1,
    "max_short_lines": None,
    "min_stop_words": 2,
}
"""Fields that FineWeb-2's pipeline sets or switches off for all languages, in addition to its files."""

FIELDS = tuple(
    sorted(
        {*_NAMES.values(), *_EVERY_LANGUAGE, *(name for names in _GRAMS.values() for name in names.values())}
        | {"max_bullet_lines", "max_ellipsis_lines", "max_ellipsis_ratio", "max_hash_ratio"}
        | {"max_unspaced_letters", "max_words", "min_words"}
    )
)
"""Fields of a language: bounds of Gopher's and FineWeb's rules, stop words, and the lowest identification score."""


def from_fineweb_2(content: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Convert the content of a FineWeb-2 file to thresholds by field name; StageError for another form."""
    found: dict[str, Any] = dict(_EVERY_LANGUAGE)
    for key, value in content.items():
        if key not in FINEWEB_2_KEYS:
            raise StageError(f"{where} has an unknown key {key!r}; FineWeb-2 has: {', '.join(sorted(FINEWEB_2_KEYS))}")
        if key in _GRAMS:
            found |= _grams(key, value, where)
        else:
            found[_NAMES[key]] = None if key in _OFF_AT_ZERO and value == 0 and value is not False else value
    return found


def _grams(key: str, pairs: Any, where: str) -> dict[str, Any]:
    names = _GRAMS[key]
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise StageError(f"{where}: {key} takes pairs of n and a share, such as [[{min(names)}, 0.15]], got {pairs!r}")
    for n, _ in pairs:
        if not isinstance(n, int) or n not in names:
            raise StageError(f"{where}: {key} has n = {n!r}; known: {', '.join(map(str, names))}")
    return {names[n]: share for n, share in pairs}


Languages = Mapping[str, Mapping[str, Any]]

VERSION = 1
_TABLES = Presets("longcrawl.text.presets.languages", "tables")
_SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_QUOTE = "quote it, such as 'no', since YAML reads yes, no, on and off as true and false"


@reread_when_changed(8)
def read_languages(name: str) -> Languages:
    """Read thresholds by language: an immutable {language: {field: bound}}, sorted by language.

    The fields are ``min_…``, ``max_…`` and ``stop_words`` of ``GopherQuality``, ``GopherRepetition`` and
    ``FineWebQuality``, and ``min_language_score`` for ``IdentifyLanguage``; a bound of None switches its rule off.

    Args:
        name: one of these; the first that exists is used:

            * the name of a shipped table, ``gopher``;
            * a YAML file with ``version: 1`` and ``languages: {de: {max_mean_word_length: 14}}``;
            * one file of FineWeb-2's configuration, named after its language: ``fra_Latn.yml``;
            * a folder of such files. Both forms also get the settings of FineWeb-2's pipeline for all languages:
              duplicate paragraphs, characters of duplicate lines or paragraphs, and short lines are not judged,
              ``max_later_line_characters`` is 0.1 and ``min_stop_words`` is 2.

    Raises:
        StageError: no table, file or folder has that name, or its content is invalid.
    """
    if name in language_tables():
        found = _read_file(_TABLES.shipped(name), f"table {name!r}")
    elif (place := Path(name)).is_dir():
        found = _read_folder(place)
    elif place.is_file():
        found = _read_file(place, name)
    else:
        raise StageError(
            f"unknown thresholds {name!r}; known: {', '.join(language_tables())}, "
            "or the path of a YAML file or of a folder of FineWeb-2's files"
        )
    _reject_duplicates(found, name)
    return MappingProxyType({language: MappingProxyType(found[language]) for language in sorted(found)})


def language_tables() -> list[str]:
    """Return the names of the shipped tables."""
    return _TABLES.names()


def language_files(name: str | None) -> tuple[str, ...]:
    """Return the user's file or folder that :func:`read_languages` would read; a shipped table has none."""
    return () if name is None or name in language_tables() else (name,)


def find_language(known: Languages, name: str) -> str | None:
    """Return the entry that matches a language name of any form (fr, fra, fra_Latn, fr-FR), or None.

    An entry of exactly that name comes first. Otherwise two-letter and three-letter codes are equivalent, and case,
    ``-`` or ``_``, regions and variants are ignored. Entries are tried in this order, ties by name:

    1. entries for the same language. If the name has a script: an entry with that script, then one with a form of the
       same script (Hans, Hant and Hani; Kore and Hang; Aran and Arab), then one without a script. If it has none: an
       entry without a script, then one with the usual script of the language, then the only entry;
    2. the same between a macrolanguage and its main member: zh and cmn_Hani, no and nob_Latn, fa and pes_Arab.

    >>> find_language({"fra_Latn": {}, "hin_Deva": {}, "hin_Latn": {}}, "hi-IN")
    'hin_Deva'
    """
    if name in known:
        return name
    tag = parse_tag(name)
    if tag is None:
        return None
    related = _by_language(tuple(known)).get(tag.wide, {})
    same = {entry: each for entry, each in related.items() if each.language == tag.language}
    return _by_script(same, tag) or _by_script(related, tag)


@lru_cache(maxsize=8)
def _by_language(names: tuple[str, ...]) -> dict[str, dict[str, Tag]]:
    found: dict[str, dict[str, Tag]] = {}
    for name in sorted(names):
        if (tag := parse_tag(name)) is not None:
            found.setdefault(tag.wide, {})[name] = tag
    return found


def _by_script(entries: Mapping[str, Tag], tag: Tag) -> str | None:
    wanted = tag.script or main_script(tag)
    bare = [name for name, each in entries.items() if each.script is None]
    scripts = {name: each.script for name, each in entries.items() if each.script is not None}
    equal = [name for name, script in scripts.items() if script == wanted]
    alike = [name for name, script in scripts.items() if script_family(script) == script_family(wanted)]
    only = list(scripts) if len(scripts) == 1 else []
    tried = [equal, alike, bare] if tag.script else [bare, equal, alike, only]
    return next((names[0] for names in tried if names), None)


def _read_folder(place: Path) -> dict[str, dict[str, Any]]:
    files = sorted(file for file in place.iterdir() if file.suffix in (".yml", ".yaml"))
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        if file.stem in found:
            raise StageError(f"{place} has two files for {file.stem!r}; keep one of {file.stem}.yml and .yaml")
        found[file.stem] = _read_fineweb_2(_load(file, str(file)), file.stem, str(file))
    if not found:
        raise StageError(f"{place} holds no file such as fra_Latn.yml; give a folder of FineWeb-2's configs")
    return found


def _read_file(file: Traversable, where: str) -> dict[str, dict[str, Any]]:
    content = _load(file, where)
    if "languages" not in content and FINEWEB_2_KEYS & content.keys():
        language = Path(file.name).stem
        return {language: _read_fineweb_2(content, language, where)}
    for key in content:
        if key not in ("version", "languages"):
            raise StageError(f"{where} has an unknown key {key!r}; known: version, languages")
    if content.get("version") != VERSION:
        raise StageError(
            f"{where} has version {content.get('version')!r}, but this longcrawl reads {VERSION}: set version to "
            f"{VERSION}"
        )
    languages = content.get("languages")
    if not isinstance(languages, dict) or not languages:
        raise StageError(f"{where}: languages takes a mapping such as {{de: {{max_mean_word_length: 14}}}}")
    for name in languages:
        if not isinstance(name, str):
            raise StageError(f"{where}: the language {name!r} is not text; {_QUOTE}")
    return {language: _entry(fields, where, language) for language, fields in languages.items()}


def _read_fineweb_2(content: dict[Any, Any], language: str, where: str) -> dict[str, Any]:
    if parse_tag(language) is None:
        raise StageError(f"{where} is not named after a language; rename it, such as to fra_Latn.yml")
    return _entry(from_fineweb_2(content, where), where, language)


def _load(file: Traversable, where: str) -> dict[Any, Any]:
    try:
        content = load_yaml(file.read_text("utf-8"), _SAFE_LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as wrong:
        raise StageError(f"{where} cannot be read as YAML: {' '.join(str(wrong).split())}") from wrong
    if not isinstance(content, dict):
        raise StageError(f"{where} takes version: 1 and languages: {{de: {{max_mean_word_length: 14}}}}")
    return content


def _entry(fields: Any, where: str, language: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise StageError(f"{where}: {language} takes a mapping such as {{max_mean_word_length: 14}}, got {fields!r}")
    for name, value in fields.items():
        if name not in FIELDS:
            raise StageError(f"{where}: {language} has an unknown field {name!r}; known: {', '.join(FIELDS)}")
        if name != "stop_words" and not _is_bound(value):
            raise StageError(f"{where}: {language}.{name} takes a number, or null to switch it off, got {value!r}")
    found = {name: fields[name] for name in FIELDS if name in fields}
    if "stop_words" in found:
        found["stop_words"] = _stop_words(found["stop_words"], f"{where}: {language}.stop_words")
    return found


def _is_bound(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (is_number and math.isfinite(value))


def _stop_words(words: Any, where: str) -> tuple[str, ...]:
    if not isinstance(words, list) or not words:
        raise StageError(f"{where} takes a list such as [der, die], got {words!r}; min_stop_words: null needs none")
    for word in words:
        if not isinstance(word, str):
            raise StageError(f"{where} holds {word!r}, which is not text; {_QUOTE}")
        if len(word.split()) != 1:
            raise StageError(f"{where} holds {word!r}; a stop word is one word, since white space separates words")
    return tuple(words)


def _reject_duplicates(found: Mapping[str, Any], where: str) -> None:
    seen: dict[Tag, str] = {}
    for name in sorted(found):
        tag = parse_tag(name)
        if tag is not None and seen.setdefault(tag, name) != name:
            raise StageError(f"{where} has one language twice, as {seen[tag]!r} and {name!r}; keep one of them")


def places_of_languages(
    table: pa.Table, known: Sequence[str], language: str | None, needed_by: str
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return each document's index among the known languages (-1 for another or none) and the name of its language.

    If ``language`` is given, it applies to all documents; otherwise names come from the column ``language``, or
    StageError is raised. Names are matched as by ``find_language``.
    """
    spoken = _names(table, needed_by) if language is None else pa.repeat(language, table.num_rows)
    encoded = pc.dictionary_encode(spoken)
    entries: Languages = {name: {} for name in known}
    found = [find_language(entries, name) for name in encoded.dictionary.to_pylist()]
    places = np.array([*(-1 if name is None else known.index(name) for name in found), -1], np.int32)
    indices = pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)
    return places[indices], spoken


def _names(table: pa.Table, needed_by: str) -> pa.Array:
    names = column(table, "language", needed_by)
    try:
        return pc.cast(names, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise StageError(f"{needed_by} needs a column 'language' of strings, but it is {names.type}") from wrong


def language_shares(documents: Any) -> pa.Table:
    """Count the documents of each language, as in appendix D of RefinedWeb.

    ``documents`` are a ``datasets.Dataset``, a crawl, or an Arrow table, with a column ``language`` of strings, or
    StageError is raised. The table has ``language`` (string, null for none), ``documents`` (int64) and ``share`` of all
    documents (float64), in descending order of count, then by name.

    >>> language_shares(pa.table({"language": ["en", "de", "eng_Latn", None]})).to_pylist()[0]
    {'language': 'en', 'documents': 2, 'share': 0.5}
    """
    counts: Counter[str | None] = Counter()
    for table in tables(documents):
        for each in pc.value_counts(_names(table, "language_shares")).to_pylist():
            counts[each["values"] and language_code(each["values"])] += each["counts"]
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0] is None, pair[0]))
    total = max(counts.total(), 1)
    rows = [{"language": name, "documents": count, "share": count / total} for name, count in found]
    kinds = [("language", pa.string()), ("documents", pa.int64()), ("share", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema(kinds))
