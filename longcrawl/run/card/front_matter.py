"""YAML front matter of a dataset card, and citations of the works that a run builds on."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import yaml

from longcrawl.core.batches import plain_dtypes
from longcrawl.core.counts import EDITS, LEDGER, QUEUES
from longcrawl.core.outputs import OUTPUTS, RESULTS, read_template
from longcrawl.core.registry import check_fields
from longcrawl.errors import FormatError, RecipeError
from longcrawl.io.stored_tables import read_footers
from longcrawl.io.structured import load_yaml
from longcrawl.run.manifest import TOKEN_TABLES
from longcrawl.text import find_language
from longcrawl.text.languages import iso_639_code

_ENTRY = re.compile(r"@\w+\s*\{\s*(?P<key>[^\s{},]+)\s*,")
_EXAMPLE = "@misc{smith2026, title = {Our Pages}, author = {Smith, Ann}, year = {2026}}"
_COMMON_CRAWL_FILE = re.compile(r"\bCC-(MAIN|NEWS)-")
"""Common Crawl's file names; the same source also reads other web archives."""
_COMMON_CRAWL_TERMS = "common-crawl-terms-of-use"
"""Licence name in recipes for Common Crawl's archives, for which it is cited whatever the names of the files."""
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
    "length_mix": "olmo2025olmo3",
    "roll": "buckman2024longcrawl64",
}
"""BibTeX key of the work that a stage comes from, by stage."""


@dataclass(frozen=True)
class Cited:
    """BibTeX entry, and the parts of a run for which it is cited."""

    bibtex: str
    used: tuple[str, ...]
    """Names of the source, stages and output for which the entry is cited."""

    @property
    def key(self) -> str:
        """The BibTeX key."""
        found = _ENTRY.match(self.bibtex)
        return found["key"] if found else ""


def citations(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> list[Cited]:
    """Return the distinct works that a run builds on: those of its source, stages and output.

    >>> source, stages = {"builder": "redpajama-v2"}, [{"signal_rules": {}}, {"roll": {}}]
    >>> for each in citations({"source": source, "stages": stages, "outputs": {"rectangle": {}}}, {}):
    ...     print(each.key, each.used)
    weber2024redpajama ('redpajama-v2', 'signal_rules')
    buckman2024longcrawl64 ('roll',)
    """
    used: dict[str, dict[str, None]] = {}
    for name, entry in _works(recipe, inputs):
        used.setdefault(entry, {})[name] = None
    return [Cited(entry, tuple(names)) for entry, names in used.items()]


def _works(recipe: Mapping[str, Any], inputs: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    entries = _entries()
    source = recipe["source"]["builder"]
    if source == "redpajama-v2":
        yield source, entries[_REDPAJAMA]
    named = any(map(names_common_crawl, inputs.values()))
    if source == "warc" and (named or recipe.get("card", {}).get("license_name") == _COMMON_CRAWL_TERMS):
        yield source, entries["commoncrawl"]
    stages = [name for stage in recipe["stages"] for name in stage]
    yield from ((name, entries[_OF_STAGES[name]]) for name in stages if name in _OF_STAGES)
    outputs = [OUTPUTS.find(name).name for name in recipe["outputs"]]
    yield from ((name, RESULTS[name].citation) for name in outputs if RESULTS[name].citation)


def names_common_crawl(files: Sequence[str]) -> bool:
    """Return whether one of these files is named as Common Crawl names files."""
    return any(_COMMON_CRAWL_FILE.search(file) for file in files)


@cache
def _entries() -> dict[str, str]:
    text = read_template("citations.bib")
    return {Cited(entry, ()).key: entry for entry in text.rstrip().split("\n\n")}


def software(version: str) -> Cited:
    """Return the entry for longcrawl itself."""
    title = "longcrawl: from a web crawl to long-context training data"
    return Cited(f"@software{{longcrawl,\n  title = {{{title}}},\n  version = {{{version}}}\n}}", ("longcrawl",))


def bibtex_problem(text: str) -> str | None:
    """Describe why a text is not a list of BibTeX entries, or return None if it is.

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
    return None if text.strip() else f"is empty: remove it, or write entries such as {_EXAMPLE}"


def _end_of(text: str) -> int | None:
    """Return the offset after the brace that closes the first one, or None; escaped braces do not count."""
    depth = 0
    for brace in re.finditer(r"(?<!\\)[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return None


FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(?P<block>.*?)^---[ \t]*$\n?", re.MULTILINE | re.DOTALL)
"""Front matter as the Hub finds it: blank lines before it and blanks after the dashes are allowed."""
LIMITS = [10**power for power in range(3, 13)]
_NAMES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
SIZES = ("n<1K", *(f"{least}<n<{most}" for least, most in pairwise(_NAMES)), "n>1T")
"""The Hub's size categories by number of rows; there is one more than there are ``LIMITS``."""
LICENSES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m bigscience-bloom-rail-1.0
    bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0
    etalab-2.0 eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community
    h-research intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4
    lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openmdw-1.1 openrail openrail++ osl-3.0 other
    pddl postgresql unknown unlicense wtfpl zlib
    """.split()  # noqa: SIM905  # ninety lines otherwise
)
"""Licence identifiers in the Hub's documentation; docs/adr/0025-cards-and-reports.md names the sources."""

NO_CODES = ("code", "multilingual")
"""Languages that the Hub accepts beside ISO 639 codes."""
LANGUAGE = re.compile("[a-z]{2,3}|" + "|".join(NO_CODES))
NAME = re.compile(r"[\w.+-]+(?:/[\w.+-]+)?")
SPLIT = re.compile(r"\w+(?:\.\w+)*")


def head_problems(head: Mapping[str, Any]) -> list[str]:
    """Describe everything in generated or edited front matter that the Hub would reject, without asking it.

    >>> head_problems({"license": "mine", "language": ["English"]})[0]
    "license 'mine' is not one that the Hub knows: write license: other, and license_name: mine"
    """
    return [*_value_problems(head), *_config_problems(head)]


def _value_problems(head: Mapping[str, Any]) -> Iterator[str]:
    def wrong(entry: str, is_right: Callable[[Any], Any]) -> list[Any]:
        return [value for value in _listed(head.get(entry)) if not is_right(value)]

    for name in wrong("license", lambda name: str(name) in LICENSES):
        yield f"license {name!r} is not one that the Hub knows: write license: other, and license_name: {name}"
    for name in wrong("language", lambda name: LANGUAGE.fullmatch(str(name)) and language_codes([str(name)])):
        quoted = "; YAML reads no as false, so quote it: 'no'" if isinstance(name, bool) else ""
        write = f"write two or three small letters, such as en{quoted}"
        yield f"language {name!r} is not a language code of ISO 639: {write}"
    for name in wrong("size_categories", lambda name: str(name) in SIZES):
        yield f"size_categories {name!r} is not one of the Hub's, such as 1K<n<10K"
    for name in wrong("source_datasets", lambda name: NAME.fullmatch(str(name).removeprefix("extended|"))):
        yield f"source_datasets {name!r} is neither original nor a dataset: write user/name"
    for name in wrong("tags", lambda name: isinstance(name, str)):
        yield f"tags holds {name!r}, which is not text: put it in quotes"


def _config_problems(head: Mapping[str, Any]) -> Iterator[str]:
    configs = _listed(head.get("configs"))
    objects = [config for config in configs if isinstance(config, dict)]
    named = {str(config["config_name"]): config for config in objects if "config_name" in config}
    if sum("config_name" in config for config in objects) < len(configs):
        yield "one of configs has no config_name: write one, and its data_files"
    elif len(named) < len(configs):
        yield "two of configs have one config_name: give each its own"
    for name, config in named.items():
        if "data_dir" not in config:
            yield from _split_problems(name, config.get("data_files"))
    if sum(bool(config.get("default")) for config in objects) > 1:
        yield "several configs are the default: keep one"
    for info in _listed(head.get("dataset_info")):
        name = str(info.get("config_name", "default") if isinstance(info, dict) else info)
        if configs and name not in named:
            yield f"dataset_info names {name!r}, which is not one of configs"


def _split_problems(name: str, files: Any) -> Iterator[str]:
    if not isinstance(files, list | str):
        yield f"the configuration {name!r} has no data_files: write a pattern, such as data/*.parquet"
    for each in _listed(files):
        if isinstance(each, dict) and not SPLIT.fullmatch(str(each.get("split", ""))):
            yield f"the split {each.get('split')!r} of {name!r} is not a valid name: use letters, digits and _"
        elif isinstance(each, dict) and "path" not in each:
            yield f"the split {each['split']!r} of {name!r} has no path: write a pattern, such as data/*.parquet"


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def language_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the Hub's code for each name of a language; names without one are left out.

    >>> language_codes(["eng_Latn", "zh-Hans", "und", "code"])
    {'eng_Latn': 'en', 'zh-Hans': 'zh', 'code': 'code'}
    """
    codes = {name: name if name in NO_CODES else iso_639_code(name) for name in names}
    return {name: code for name, code in codes.items() if code is not None}


@dataclass(frozen=True)
class CardFacts:
    """Facts about a dataset that only a person knows: the fields of a recipe under ``card``."""

    pretty_name: str | None = None
    license: str = "other"
    """Licence by its identifier on the Hub; ``other`` for one given by ``license_name`` and ``license_link``."""
    license_name: str | None = None
    license_link: str | None = None
    languages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source_datasets: tuple[str, ...] = ()
    """Hub datasets that this one was made from, or "original"."""
    contact: str | None = None
    """Contact for questions, in Markdown."""
    opt_out: str | None = None
    """Instructions to have a document removed, in Markdown."""
    citation: str | None = None
    """Citation of the dataset: one or more BibTeX entries."""

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)
        codes = language_codes(self.languages)
        languages = [codes.get(name, name) for name in self.languages]
        recorded = {"license": self.license, "source_datasets": self.source_datasets, "language": languages}
        if problems := head_problems(recorded):
            raise RecipeError(problems[0])
        if self.citation is not None and (problem := bibtex_problem(self.citation)):
            raise RecipeError(f"citation {problem}")


def facts_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run's recipe under ``card``."""
    facts: dict[str, Any] = manifest["recipe"]["card"]
    return facts


def documents_of(manifest: Mapping[str, Any]) -> int:
    """Return the number of documents in a run's output."""
    output = manifest["output"]
    return RESULTS[output["format"]].documents(output)


def instances_of(manifest: Mapping[str, Any]) -> tuple[str, int]:
    """Return the kind of a run's output rows ("documents", "entries" or "samples") and their number."""
    splits = manifest["output"].get("splits")
    for what in ("entries", "samples"):
        if isinstance(splits, Mapping) and splits and all(what in recorded for recorded in splits.values()):
            return what, sum(recorded[what] for recorded in splits.values())
    return "documents", documents_of(manifest)


SOURCE_DATASETS = {"redpajama-v2": ("togethercomputer/RedPajama-Data-V2",), "warc": ("original",)}
"""Value of ``source_datasets`` by source; for other sources it can only be given in the recipe."""


def front_matter(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the front matter of a run's card; its ``configs`` name only files that plain `datasets` loads."""
    recipe, facts = manifest["recipe"], facts_of(manifest)
    result = RESULTS[manifest["output"]["format"]]
    configs = result.configs(manifest["output"])
    if splits := _token_splits(manifest):
        files = [{"split": split, "path": f"{TOKEN_TABLES}/{split}-*.parquet"} for split in splits]
        others = [{name: value for name, value in config.items() if name != "default"} for config in configs]
        configs = [{"config_name": TOKEN_TABLES, "data_files": files, "default": True}, *others]
    for name, split in ((LEDGER, "removed"), (EDITS, "changed"), *((queue, "queued") for queue in QUEUES)):
        if any((folder / name).glob("*.parquet")):
            configs.append({"config_name": name, "data_files": [{"split": split, "path": f"{name}/*.parquet"}]})
    codes = language_codes(spoken(manifest))
    source = recipe["source"]
    of_hub = {"hub": (source.get("path"),)}
    sources = facts["source_datasets"] or (SOURCE_DATASETS | of_hub).get(source["builder"], ())
    entries = {
        "language": list(dict.fromkeys(codes.values())),
        "language_bcp47": [
            "-".join([code, *re.split("[-_]", name)[1:]]) for name, code in codes.items() if re.search("[-_]", name)
        ],
        "license": facts["license"],
        "license_name": facts["license_name"],
        "license_link": facts["license_link"],
        "size_categories": [SIZES[bisect_right(LIMITS, documents_of(manifest))]],
        "source_datasets": list(sources),
        "task_categories": ["text-generation"],
        "pretty_name": facts["pretty_name"] or recipe["name"],
        "tags": list(dict.fromkeys(["longcrawl", *result.tags, *facts["tags"]])),
        "configs": configs,
        "dataset_info": [info for config in configs if (info := config_info(folder, config))],
    }
    return {name: value for name, value in entries.items() if value}


def _token_splits(manifest: Mapping[str, Any]) -> list[str]:
    if manifest["output"]["format"] == TOKEN_TABLES:
        return []
    files = [PurePosixPath(name) for name in manifest.get("files", {})]
    tables = {file.name.partition("-")[0] for file in files if file.parent.as_posix() == TOKEN_TABLES}
    return sorted(tables, key=lambda split: (split != "train", split))


def yaml_block(entries: Mapping[str, Any]) -> str:
    """Return front matter as text between two lines of dashes."""
    from huggingface_hub import DatasetCardData

    return f"---\n{DatasetCardData(**entries).to_yaml()}\n---\n"


def read_front_matter(card: str, name: str = "README.md") -> dict[str, Any]:
    """Return the front matter of a card, empty if it has none; ``name`` is its file's name, for messages.

    Raises:
        FormatError: the front matter is not YAML.
    """
    text = card.replace("\r\n", "\n")
    found = FRONT_MATTER.match(text)
    if found is None:
        return {}
    try:
        entries = load_yaml(found["block"]) or {}
    except yaml.YAMLError as broken:
        mark, said = getattr(broken, "problem_mark", None), getattr(broken, "problem", None)
        above = text.count("\n", 0, found.start("block")) + 1
        place = "" if mark is None else f", line {mark.line + above}, column {mark.column + 1}"
        said = said or " ".join(str(broken).split())
        raise FormatError(f"{name}{place}: the front matter is not YAML ({said}). Fix it there.") from broken
    if not isinstance(entries, dict):
        raise FormatError(f"the front matter of {name} has no entries. Fix the block between the --- lines.")
    return {str(entry): value for entry, value in entries.items()}


def card_problems(card: str) -> list[str]:
    """Describe everything in a card's front matter that the Hub would reject, without asking it."""
    try:
        return head_problems(read_front_matter(card))
    except FormatError as broken:
        return [str(broken)]


def config_info(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return features and splits of a configuration from its parquet footers; None without files.

    ``num_bytes`` is the size of the columns before compression.
    """
    splits, schema, stored = [], None, 0
    for files in config["data_files"]:
        found = [file for file in sorted(folder.glob(files["path"])) if file.suffix == ".parquet"]
        if footers := read_footers(found):
            schema = footers[0].schema.to_arrow_schema()
            groups = [footer.row_group(number) for footer in footers for number in range(footer.num_row_groups)]
            size, rows = sum(group.total_byte_size for group in groups), sum(footer.num_rows for footer in footers)
            splits.append({"name": files["split"], "num_bytes": size, "num_examples": rows})
            stored += sum(file.stat().st_size for file in found)
    if schema is None:
        return None
    return {
        "config_name": config["config_name"],
        "features": _features(schema),
        "splits": splits,
        "download_size": stored,
        "dataset_size": sum(split["num_bytes"] for split in splits),
    }


def _features(schema: pa.Schema) -> list[dict[str, Any]]:
    if (plain := plain_dtypes(schema)) is not None:
        return [{"name": name, "dtype": dtype} for name, dtype in plain.items()]
    from datasets import Features

    found: list[dict[str, Any]] = Features.from_arrow_schema(schema)._to_yaml_list()  # noqa: SLF001  # there is no public method
    return found


def spoken(manifest: Mapping[str, Any]) -> list[str]:
    """Return a dataset's languages: of the card, else those kept by the language filter, else asked for, else found.

    If documents name languages, those kept or asked for are only returned if some document has them.
    """
    recipe = manifest["recipe"]
    if languages := facts_of(manifest)["languages"]:
        return list(languages)
    kept = [stage["language"]["keep"] for stage in recipe["stages"] if "language" in stage]
    source = recipe["source"]
    asked = source.get("languages") or [one for one in [source.get("language")] if one]
    known = [name for name in manifest["analysis"]["languages"] if name]
    wanted = list(kept[-1] if kept else asked)
    if not wanted:
        return sorted(known)
    there = {find_language({one: {} for one in wanted}, name) for name in known}
    return [name for name in wanted if name in there] if known else wanted
