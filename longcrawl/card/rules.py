"""What the Hub takes in the head of a dataset card, said without asking it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from longcrawl.text.language.codes import iso_639_code

__all__ = ["head_problems", "language_codes", "size_category"]

SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
    (10_000_000_000, "1B<n<10B"),
    (100_000_000_000, "10B<n<100B"),
    (1_000_000_000_000, "100B<n<1T"),
)
LARGEST = "n>1T"
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
"""Identifiers of licences, as the Hub's documentation lists them; docs/decisions.md says where each was found."""

NO_CODES = ("code", "multilingual")
"""What the Hub takes as languages beside codes of ISO 639."""
LANGUAGE = re.compile("[a-z]{2,3}|" + "|".join(NO_CODES))
NAME = re.compile(r"[\w.+-]+(?:/[\w.+-]+)?")
SPLIT = re.compile(r"\w+(?:\.\w+)*")


def head_problems(head: Mapping[str, Any]) -> list[str]:
    """Describe what the Hub would refuse, a sentence each, without asking it.

    Args:
        head: the entries of a head, whoever has written them.

    >>> head_problems({"license": "mine", "language": ["English"]})[0]
    "license 'mine' is not one that the Hub knows: write license: other, and license_name: mine"
    """
    return [*_value_problems(head), *_config_problems(head)]


def _value_problems(head: Mapping[str, Any]) -> Iterator[str]:
    for entry, problem in PROBLEMS.items():
        yield from (said for value in _listed(head.get(entry)) if (said := problem(value)))


def _license(name: Any) -> str | None:
    if str(name) in LICENSES:
        return None
    return f"license {name!r} is not one that the Hub knows: write license: other, and license_name: {name}"


def _language(name: Any) -> str | None:
    if LANGUAGE.fullmatch(str(name)) and language_codes([str(name)]):
        return None
    quoted = "; YAML reads no as false, so quote it: 'no'" if isinstance(name, bool) else ""
    return f"language {name!r} is no language's code of ISO 639: write two or three small letters, such as en{quoted}"


def _size(name: Any) -> str | None:
    known = str(name) in {LARGEST, *(size for _, size in SIZES)}
    return None if known else f"size_categories {name!r} is none of the Hub's, such as 1K<n<10K"


def _source(name: Any) -> str | None:
    if NAME.fullmatch(str(name).removeprefix("extended|")):
        return None
    return f"source_datasets {name!r} is neither original nor a dataset: write user/name"


def _tag(name: Any) -> str | None:
    return None if isinstance(name, str) else f"tags holds {name!r}, which is no text: put it in quotes"


PROBLEMS: Mapping[str, Callable[[Any], str | None]] = {
    "license": _license,
    "language": _language,
    "size_categories": _size,
    "source_datasets": _source,
    "tags": _tag,
}
"""What is wrong with a value of an entry."""


def _config_problems(head: Mapping[str, Any]) -> Iterator[str]:
    configs = _listed(head.get("configs"))
    named = {
        str(config["config_name"]): config for config in configs if isinstance(config, dict) and "config_name" in config
    }
    if any(not isinstance(config, dict) or "config_name" not in config for config in configs):
        yield "one of configs has no config_name: write one, and its data_files"
    elif len(named) < len(configs):
        yield "two of configs have one config_name: give each its own"
    for name, config in named.items():
        if "data_dir" not in config:
            yield from _split_problems(name, config.get("data_files"))
    if sum(bool(config.get("default")) for config in configs if isinstance(config, dict)) > 1:
        yield "several of configs are the default: leave one"
    for info in _listed(head.get("dataset_info")):
        name = str(info.get("config_name", "default") if isinstance(info, dict) else info)
        if configs and name not in named:
            yield f"dataset_info names {name!r}, which is none of configs"


def _split_problems(name: str, files: Any) -> Iterator[str]:
    """Describe what is wrong with ``data_files``: a pattern, patterns, or splits with their patterns."""
    if not isinstance(files, list | str):
        yield f"the configuration {name!r} has no data_files: write a pattern, such as data/*.parquet"
    for each in _listed(files):
        if isinstance(each, dict) and not SPLIT.fullmatch(str(each.get("split", ""))):
            yield f"the split {each.get('split')!r} of {name!r} is no name: use letters, digits and _"
        elif isinstance(each, dict) and "path" not in each:
            yield f"the split {each['split']!r} of {name!r} has no path: write a pattern, such as data/*.parquet"


def _listed(value: Any) -> list[Any]:
    """Return the values of an entry that may be one or a list of them."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def language_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the code that the Hub takes for each name of a language; names that have none are left out.

    >>> language_codes(["eng_Latn", "zh-Hans", "zh-Hant", "und", "xx", "code"])
    {'eng_Latn': 'en', 'zh-Hans': 'zh', 'zh-Hant': 'zh', 'code': 'code'}
    """
    codes = {name: name if name in NO_CODES else iso_639_code(name) for name in names}
    return {name: code for name, code in codes.items() if code is not None}


def size_category(rows: int) -> str:
    """Return the category that a number of rows is in.

    >>> size_category(1_000)
    '1K<n<10K'
    """
    return next((name for limit, name in SIZES if rows < limit), LARGEST)
