"""The YAML head of a dataset card, which the Hub reads."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Features

from longcrawl.card.facts import documents_of, facts_of
from longcrawl.card.rules import language_codes, size_category
from longcrawl.core.results import RESULTS, Result
from longcrawl.ledger.edits import EDITS
from longcrawl.manifest import MissingEntry
from longcrawl.storage.stored_tables import read_footers
from longcrawl.text import find_language

__all__ = ["head_of", "spoken", "yaml_head"]

SOURCE_DATASETS = {"redpajama-v2": ("togethercomputer/RedPajama-Data-V2",), "warc": ("original",)}
"""By source, what its documents come from; of other sources only a recipe can know."""


def head_of(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the head of a run's card; its ``configs`` name only files that plain `datasets` loads."""
    recipe, facts = manifest["recipe"], facts_of(manifest)
    result = RESULTS[manifest["output"]["format"]]
    configs = _configs(result, manifest["output"])
    if any((folder / "ledger").glob("*.parquet")):
        configs.append({"config_name": "ledger", "data_files": [{"split": "removed", "path": "ledger/*.parquet"}]})
    if any((folder / EDITS).glob("*.parquet")):
        configs.append({"config_name": EDITS, "data_files": [{"split": "changed", "path": f"{EDITS}/*.parquet"}]})
    codes = language_codes(spoken(manifest))
    sources = facts["source_datasets"] or SOURCE_DATASETS.get(recipe["source"]["builder"], ())
    head = {
        "language": list(dict.fromkeys(codes.values())),
        "language_bcp47": [_tag(name, code) for name, code in codes.items() if re.search("[-_]", name)],
        "license": facts["license"],
        "license_name": facts["license_name"],
        "license_link": facts["license_link"],
        "size_categories": [size_category(documents_of(manifest))],
        "source_datasets": list(sources),
        "task_categories": ["text-generation"],
        "pretty_name": facts["pretty_name"] or recipe["name"],
        "tags": list(dict.fromkeys(["longcrawl", *result.tags, *facts["tags"]])),
        "configs": configs,
        "dataset_info": [info for config in configs if (info := _info(folder, config))],
    }
    return {name: value for name, value in head.items() if value}


def _configs(result: Result, output: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configurations of an output; none where a manifest of an earlier version does not name its tables."""
    try:
        return result.configs(output)
    except MissingEntry:
        return []


def yaml_head(head: Mapping[str, Any]) -> str:
    """Return the head as it stands in a card, between its lines of dashes."""
    from huggingface_hub import DatasetCardData

    return f"---\n{DatasetCardData(**head).to_yaml()}\n---\n"


def _info(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return features and splits of a configuration, out of the footers of its files; None where there are none.

    ``num_bytes`` is that of the columns in the files before compression.
    """
    splits, schema, stored = [], None, 0
    for files in config["data_files"]:
        found = [file for file in sorted(folder.glob(files["path"])) if file.suffix == ".parquet"]
        footers = read_footers(found)
        if footers:
            schema = footers[0].schema.to_arrow_schema()
            groups = [footer.row_group(number) for footer in footers for number in range(footer.num_row_groups)]
            rows = sum(footer.num_rows for footer in footers)
            size = sum(group.total_byte_size for group in groups)
            splits.append({"name": files["split"], "num_bytes": size, "num_examples": rows})
            stored += sum(file.stat().st_size for file in found)
    if schema is None:
        return None
    return {
        "config_name": config["config_name"],
        "features": Features.from_arrow_schema(schema)._to_yaml_list(),  # noqa: SLF001  # `datasets` has no public one
        "splits": splits,
        "download_size": stored,
        "dataset_size": sum(split["num_bytes"] for split in splits),
    }


def _tag(name: str, code: str) -> str:
    """Name a language with script and region as BCP 47 does: the shortest code comes first."""
    return "-".join([code, *re.split("[-_]", name)[1:]])


def spoken(manifest: Mapping[str, Any]) -> list[str]:
    """Name the languages of a dataset as its documents, its recipe or its card name them.

    They are what the card says, else what the language filter keeps, else what was asked for, else what was found.
    What was kept or asked for counts only as far as it was found, where languages are known.
    """
    recipe = manifest["recipe"]
    if languages := facts_of(manifest)["languages"]:
        return list(languages)
    kept = [stage["language"]["keep"] for stage in recipe["stages"] if "language" in stage]
    source = recipe["source"]
    asked = source.get("languages") or [one for one in [source.get("language")] if one]
    known = [name for name in manifest.get("analysis", {}).get("languages", {}) if name]
    wanted = list(kept[-1] if kept else asked)
    if not wanted:
        return sorted(known)
    there = {find_language({one: {} for one in wanted}, name) for name in known}
    return [name for name in wanted if name in there] if known else wanted
