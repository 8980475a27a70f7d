"""Rules of the test server for a card's front matter, written apart from longcrawl's so that they can disagree.

They are what the Hub's documentation of dataset cards says, and stricter: of some of it the Hub itself only warns.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

LICENSES = {"apache-2.0", "cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0", "mit", "odc-by", "other", "pddl", "unknown"}
SIZE = re.compile(
    r"n<1K|1K<n<10K|10K<n<100K|100K<n<1M|1M<n<10M|10M<n<100M|100M<n<1B|1B<n<10B|10B<n<100B|100B<n<1T|n>1T"
)
TASKS = {"fill-mask", "feature-extraction", "text-classification", "text-generation"}
HEAD = re.compile(r"\A\s*---\r?\n(.*?\n)??---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
FILES = "must be a pattern, patterns, or splits with a path each"


def card_errors(card: str) -> tuple[list[str], list[str]]:
    """Return what is refused in a card, and what is only warned of."""
    found = HEAD.match(card)
    try:
        head = yaml.safe_load(found[1] or "") if found else None
    except yaml.YAMLError as broken:
        return [f"YAML Metadata Error: {broken}"], []
    if head is None:
        return [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(head, dict):
        return ["YAML Metadata Error: must be an object"], []
    return [*_values(head), *_configs(head.get("configs", [])), *_infos(head.get("dataset_info", []))], []


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _values(head: dict[str, Any]) -> Iterator[str]:
    rules = {
        "license": (LICENSES.__contains__, "must be one of [apache-2.0, mit, …]"),
        "language": (re.compile("[a-z]{2,3}|code|multilingual").fullmatch, "must be an ISO 639-1, 639-2 or 639-3 code"),
        "size_categories": (SIZE.fullmatch, "must be one of [n<1K, 1K<n<10K, …]"),
        "task_categories": (TASKS.__contains__, "is not in the official list"),
        "tags": (str, "must be a string"),
    }
    for name, (takes, said) in rules.items():
        for number, value in enumerate(_listed(head.get(name, []))):
            if not isinstance(value, str) or not takes(value):
                yield f'"{name}[{number}]" {said}'


def _configs(configs: Any) -> Iterator[str]:
    for number, config in enumerate(_listed(configs)):
        place = f'"configs[{number}]'
        if not isinstance(config, dict) or not isinstance(config.get("config_name"), str):
            yield f'{place}.config_name" is required'
        elif "data_files" not in config:
            if "data_dir" not in config:
                yield f'{place}.data_files" is required'
        elif not all(_are_files(each) for each in _listed(config["data_files"])):
            yield f'{place}.data_files" {FILES}'


def _are_files(files: Any) -> bool:
    if not isinstance(files, dict):
        return isinstance(files, str)
    paths = _listed(files.get("path"))
    return isinstance(files.get("split"), str) and all(isinstance(path, str) for path in paths)


def _infos(infos: Any) -> Iterator[str]:
    for number, info in enumerate(_listed(infos)):
        place = f'"dataset_info[{number}]'
        if not isinstance(info, dict):
            yield f'{place}" must be of type object'
            continue
        if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in info.get("features", [])):
            yield f'{place}.features" must be objects with a name'
        counts = ("num_bytes", "num_examples")
        for split in info.get("splits", []):
            if not isinstance(split, dict) or not all(isinstance(split.get(name), int) for name in counts):
                yield f'{place}.splits" must be objects with num_bytes and num_examples'
