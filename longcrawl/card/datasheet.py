"""A datasheet in the form of RefinedWeb's Appendix A: what a manifest can answer, and what only a person can.

The form is that of Gebru et al., "Datasheets for Datasets", 2018: seven parts, questions and answers. They are in
cards/datasheet.md; this module fills in what a manifest knows.
"""

from collections.abc import Mapping
from string import Template
from typing import Any

from longcrawl.card.front_matter import documents_of, instances_of
from longcrawl.core.pipeline import label_stages
from longcrawl.core.stages import STAGES, Survey
from longcrawl.core.templates import read_template
from longcrawl.display.markdown import code, plain
from longcrawl.display.numbers import counted, percent
from longcrawl.ledger.funnel import Funnel

NOT_RECORDED = "Not recorded."
NOT_LOOKED_FOR = "Duplicates were not looked for: the recipe has no stage that does."
LISTED = "listed_duplicates"
PERSONAL_DATA = "personal_data"
NAMES_NO_OTHER = (LISTED, "exact_substring")
"""Stages that look for duplicates, and do not say of what a document is one."""
TAKES_OUT = {
    "extract_text": "all of a page but its main text",
    "line_corrections": "lines",
    "c4_quality": "lines",
    "exact_substring": "passages that occur elsewhere too",
    "decontaminate": "passages of evaluation sets",
    "personal_data": "personal data, for which a word stands",
    "truncate": "what follows after a number of tokens",
}
"""What stages take out of documents that stay."""


def datasheet(
    manifest: Mapping[str, Any], facts: Mapping[str, Any], funnel: Funnel, instance: str, cut: str = ""
) -> str:
    """Return the seven parts in Markdown.

    Args:
        manifest: that of a run.
        facts: what a person says of the dataset.
        funnel: that of the run.
        instance: what an instance is, a sentence.
        cut: how much of documents its output does not hold, a sentence; "" where that is not known or nothing.
    """
    recipe, stages = manifest["recipe"], ", ".join(code(row.stage) for row in funnel)
    template = read_template("datasheet.md")
    return Template(template.rstrip("\n")).substitute(
        purpose=recipe.get("about") or NOT_RECORDED,
        instance=instance,
        instances=_instances(manifest),
        read=counted(funnel.documents, "document"),
        share=percent(funnel.kept / max(funnel.documents, 1)),
        columns=_columns(manifest),
        missing=_missing(manifest, funnel, cut),
        relations=_relations(manifest, funnel),
        splits=_splits(manifest["output"]),
        redundancy=_redundancy(recipe),
        confidential=_confidential(recipe, funnel),
        damage=_damage(manifest),
        source=_source(manifest),
        stages=f"{stages}, in this order, with the settings of the recipe above." if stages else "Nothing.",
        ledger=" The reason for each removed document is in `ledger/`." if funnel.kept < funnel.documents else "",
        version=manifest["versions"]["longcrawl"],
        licence=_licence(facts),
        contact=facts["contact"] or NOT_RECORDED,
        opt_out=facts["opt_out"] or NOT_RECORDED,
    )


def looked_for(recipe: Mapping[str, Any]) -> list[str]:
    """Name the stages of a recipe that look for duplicates."""
    return [name for stage in recipe["stages"] for name in stage if _deduplicates(name)]


def _deduplicates(name: str) -> bool:
    stage = STAGES.find(name) if ":" in name else STAGES.get(name)
    if stage is not None and issubclass(stage, Survey):
        return not stage.orders
    return name == LISTED


def _instances(manifest: Mapping[str, Any]) -> str:
    what, count = instances_of(manifest)
    documents = counted(documents_of(manifest), "document")
    if what == "documents":
        return f"{documents}."
    one = {"entries": "entry", "samples": "sample"}[what]
    return f"{counted(count, one, what)}, of {documents}."


def _columns(manifest: Mapping[str, Any]) -> str:
    columns = {"its URL": "domains", "its language": "languages"}
    known = [name for name, each in columns.items() if any(manifest["analysis"][each])]
    said = ", ".join(["its id", *known])
    return f"I{said[1:]}." if instances_of(manifest)[0] == "documents" else f"Of each document {said}."


def _missing(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> str:
    analysis = manifest["analysis"]
    languages = analysis["languages"]
    counts = {
        "a URL": analysis["without_url"],
        # Where no document names one, languages are not recorded at all.
        "a language": languages.get("", 0) if any(languages) else 0,
    }
    known = [f"{counted(count, 'document')} without {what}" for what, count in counts.items() if count]
    said = [cut, *([f"{', '.join(known)}."] if known else []), *_taken_out(manifest, funnel, cut)]
    return " ".join(each for each in said if each) or "Nothing that is known of."


def _confidential(recipe: Mapping[str, Any], funnel: Funnel) -> str:
    """Describe which personal data were looked for, and what became of them."""
    names = [name for stage in recipe["stages"] for name in stage]
    settings = [each for stage in recipe["stages"] for each in stage.values()]
    edits = {row.stage: row.edits for row in funnel}
    said = []
    for label, name, each in zip(label_stages(names), names, settings, strict=True):
        if name == PERSONAL_DATA:
            changed = edits.get(label)
            places = sum(rule.places for rule in changed.rules.values()) if changed else 0
            done = {"mask": "were replaced", "tag": "are tagged", "drop": "made documents leave"}[each["policy"]]
            said.append(f"{code(label)} looked for {', '.join(each['kinds'])}: {counted(places, 'place')} {done}.")
    if not said:
        return "Not recorded. Nobody has looked for it, nor for names and addresses."
    return " ".join([*said, "Names and postal addresses were not looked for."])


def _taken_out(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> list[str]:
    """List what stages took out of documents, and how much."""
    names = [name for stage in manifest["recipe"]["stages"] for name in stage]
    settings = [each for stage in manifest["recipe"]["stages"] for each in stage.values()]
    edits = {row.stage: row.edits for row in funnel}
    said: dict[str, list[str]] = {"": [], "; how much is not counted": []}
    for label, name, each in zip(label_stages(names), names, settings, strict=True):
        takes = "mask" if name == PERSONAL_DATA else "cut"
        if name not in TAKES_OUT or each.get("policy", takes) != takes or (cut and name == "truncate"):
            continue
        taken = f"by {code(label)} {TAKES_OUT[name]}"
        if name == "extract_text":
            said["; how much is not counted"].append(taken)
        elif (found := edits.get(label)) is not None:
            said[""].append(f"{taken} ({found.removed:,} {found.unit} of {counted(found.documents, 'document')})")
    return [f"Stages took out of documents: {', '.join(each)}{how}." for how, each in said.items() if each]


def _relations(manifest: Mapping[str, Any], funnel: Funnel) -> str:
    """Return whether the ledger names for removed documents those that they duplicate."""
    recipe = manifest["recipe"]
    names = [name for stage in recipe["stages"] for name in stage]
    removed = {row.stage: row.removed for row in funnel}
    left = {name for label, name in zip(label_stages(names), names, strict=True) if removed.get(label)}
    found = left.intersection(looked_for(recipe))
    if found.difference(NAMES_NO_OTHER):
        return "Only which documents were removed as duplicates of which, in `ledger/`."
    if LISTED in found:
        return f"No: {code(LISTED)} does not say of which document one is a duplicate."
    return "No."


def _splits(output: Mapping[str, Any]) -> str:
    found = sorted(output.get("splits") or output.get("shapes") or {}, reverse=True)
    held_out = [f"`{name}`" for name in found if name != "train"]
    if not held_out:
        return "No: all is `train`."
    return f"`train` to train on, {', '.join(held_out)} held out by one draw of documents."


def _redundancy(recipe: Mapping[str, Any]) -> str:
    found = looked_for(recipe)
    if not found:
        return NOT_LOOKED_FOR
    return f"Duplicates were looked for by {', '.join(map(code, found))}; the kept documents may still be similar."


def _damage(manifest: Mapping[str, Any]) -> str:
    found = manifest["bad_files"]
    return f"{counted(len(found), 'input file')} could not be read whole." if found else "All input was read whole."


def _source(manifest: Mapping[str, Any]) -> str:
    inputs = manifest["inputs"]
    files = sum(map(len, inputs.values()))
    counts = [counted(files, "file")] * bool(files) + [counted(len(inputs), "part")] * bool(inputs)
    read = f", out of {' in '.join(counts)}, which `manifest.json` names" if inputs else ""
    return f"{code(manifest['recipe']['source']['builder'])}{read}"


def _licence(facts: Mapping[str, Any]) -> str:
    name = facts["license_name"] or facts["license"]
    link = f" (<{facts['license_link']}>)" if facts["license_link"] else ""
    return NOT_RECORDED if name == "other" else f"{plain(name)}{link}."
