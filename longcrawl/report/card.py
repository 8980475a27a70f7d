"""The dataset card that a run writes beside its output, from its manifest alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import yaml

from longcrawl.errors import RecipeError
from longcrawl.fields import check_fields
from longcrawl.files import write_text
from longcrawl.ledger import Funnel
from longcrawl.removal_rates import RemovalRates
from longcrawl.report.analysis import Analysis
from longcrawl.report.values import value_tables
from longcrawl.results import RESULTS
from longcrawl.text import find_language

__all__ = ["CardFacts", "front_matter", "write_card"]

SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
LARGER = "1B<n<10B"
MOST_BAD_FILES = 50
LANGUAGE_CODE = re.compile("[a-z]{2,3}")
SOURCES_LIMIT = "The text is that of its sources, with their licences, errors and biases; nothing here has cleared it."


@dataclass(frozen=True)
class CardFacts:
    """What only a person can say of a dataset: the part of a recipe under ``card``."""

    pretty_name: str | None = None
    license: str = "other"
    license_name: str | None = None
    license_link: str | None = None
    languages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, RecipeError)


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write ``README.md`` for a run."""
    recipe, output = manifest["recipe"], manifest["output"]
    told = RESULTS[output["format"]]
    text = _template("run").substitute(
        front_matter=front_matter(folder, manifest),
        pretty_name=recipe["card"]["pretty_name"] or recipe["name"],
        about=recipe["about"],
        contents=told.contents(output),
        loading=_template(told.name).substitute(told.card_words(output)).rstrip(),
        funnel=Funnel.from_dict(manifest["funnel"]).markdown(),
        rates=RemovalRates.from_manifest(manifest).markdown(),
        values="\n\n".join(table.markdown() for table in value_tables(Funnel.from_dict(manifest["funnel"]))),
        analysis=Analysis.from_dict(manifest["analysis"]).markdown(),
        recipe_name=recipe["name"],
        digest=manifest["digest"],
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=120).rstrip(),
        versions=", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        known="\n".join(f"- {each}" for each in _known(manifest)),
        bad_files=_bad_files(manifest["bad_files"]) + _left_out(manifest.get("left_out", {})),
    )
    write_text(folder / "README.md", text)


def _template(name: str) -> Template:
    return Template(resources.files("longcrawl.cards").joinpath(f"{name}.md").read_text("utf-8"))


def front_matter(folder: Path, manifest: Mapping[str, Any]) -> str:
    """Give the YAML head that the Hub reads; its ``configs`` name only files that plain `datasets` loads."""
    from huggingface_hub import DatasetCardData

    facts, output = manifest["recipe"]["card"], manifest["output"]
    told = RESULTS[output["format"]]
    configs = told.configs(output)
    if any((folder / "ledger").glob("*.parquet")):
        configs.append({"config_name": "ledger", "data_files": [{"split": "removed", "path": "ledger/*.parquet"}]})
    data = DatasetCardData(
        license=facts["license"],
        license_name=facts["license_name"],
        license_link=facts["license_link"],
        language=_languages(manifest) or None,
        pretty_name=facts["pretty_name"] or manifest["recipe"]["name"],
        size_categories=[_size(told.documents(output))],
        task_categories=["text-generation"],
        tags=["longcrawl", *told.tags, *facts["tags"]],
        configs=configs,
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _languages(manifest: Mapping[str, Any]) -> list[str]:
    """Give what the card says, else what the language filter keeps, else what was asked for, else what was found.

    What was kept or asked for counts only as far as it was found, where languages are known.
    """
    recipe = manifest["recipe"]
    if recipe["card"]["languages"]:
        return list(recipe["card"]["languages"])
    kept = [stage["language"]["keep"] for stage in recipe["stages"] if "language" in stage]
    source = recipe["source"]
    asked = source.get("languages") or [one for one in [source.get("language")] if one]
    known = [name for name in manifest["analysis"]["languages"] if name]
    wanted = list(kept[-1] if kept else asked)
    if not wanted:
        return sorted(name for name in known if LANGUAGE_CODE.fullmatch(name))
    there = {find_language({one: {} for one in wanted}, name) for name in known}
    return [name for name in wanted if name in there] if known else wanted


def _size(rows: int) -> str:
    return next((name for limit, name in SIZES if rows < limit), LARGER)


def _known(manifest: Mapping[str, Any]) -> list[str]:
    """Give what a user should know: of the output, of what stages had to report, and of the sources."""
    output = manifest["output"]
    reports = [f"`{label}`: {each}." for label, found in manifest.get("reports", {}).items() for each in found]
    return [*RESULTS[output["format"]].limits(output), *reports, SOURCES_LIMIT]


def _bad_files(found: list[dict[str, Any]]) -> str:
    if not found:
        return "None: every input file was read whole."
    lines = [f"{len(found)} input file(s) could not be read whole; `manifest.json` lists all."]
    for bad in found[:MOST_BAD_FILES]:
        lost = "the rest of the file" if bad["records_lost"] is None else f"{bad['records_lost']:,} record(s)"
        lines.append(f"- `{bad['file']}`: {bad['reason']} (lost: {lost})")
    return "\n".join(lines)


def _left_out(counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    told = ", ".join(f"{rule} {count:,}" for rule, count in counts.items())
    return f"\n\nRecords of the source that are no documents, by its rules: {told}."
