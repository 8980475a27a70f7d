"""A datasheet in the form of RefinedWeb's Appendix A: what a manifest can answer, and what only a person can.

The form is that of Gebru et al., "Datasheets for Datasets", 2018: seven parts, questions and answers. What nobody has
written down is said to be so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from longcrawl.card.facts import documents_of, instances_of
from longcrawl.core.pipeline import label_stages
from longcrawl.core.stages import STAGES, Survey
from longcrawl.display.markdown import code, plain
from longcrawl.display.numbers import counted
from longcrawl.ledger.funnel import Funnel
from longcrawl.manifest import writer_of

__all__ = ["NOT_LOOKED_FOR", "datasheet", "looked_for"]

NOT_RECORDED = "Not recorded."
NOT_LOOKED_FOR = "Duplicates were not looked for: the recipe has no stage that does."
ABOUT = (
    "In the form of RefinedWeb's Appendix A. What a run cannot know is not recorded: a person may write it here, and "
    "`longcrawl card` will keep it."
)
LISTED = "listed_duplicates"
NAMES_NO_OTHER = (LISTED, "exact_substring")
"""Stages that look for duplicates, and do not say of what a document is one."""
TAKES_OUT = {
    "extract_text": "all of a page but its main text",
    "line_corrections": "lines",
    "c4_quality": "lines",
    "exact_substring": "passages that occur elsewhere too",
    "truncate": "what follows after a number of tokens",
}
"""What stages take out of documents that stay."""
Answers = Sequence[tuple[str, str]]


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
    parts = {
        "Motivation": _motivation(manifest),
        "Composition": _composition(manifest, funnel, instance, cut),
        "Collection": _collection(manifest, funnel),
        "Preprocessing": _preprocessing(manifest, funnel),
        "Uses": _uses(),
        "Distribution": _distribution(facts),
        "Maintenance": _maintenance(facts),
    }
    lines = [ABOUT]
    for title, answers in parts.items():
        lines.append(f"### {title}")
        lines += [f"**{question}** {answer}" for question, answer in answers]
    return "\n\n".join(lines)


def looked_for(recipe: Mapping[str, Any]) -> list[str]:
    """Name the stages of a recipe that look for duplicates."""
    return [name for stage in recipe["stages"] for name in stage if _deduplicates(name)]


def _deduplicates(name: str) -> bool:
    stage = STAGES.find(name) if ":" in name else STAGES.get(name)
    if stage is not None and issubclass(stage, Survey):
        return not stage.orders
    return name == LISTED


def _motivation(manifest: Mapping[str, Any]) -> Answers:
    about = manifest["recipe"].get("about")
    return [
        ("For what purpose was it made?", about or NOT_RECORDED),
        ("Who made it, and on whose behalf?", NOT_RECORDED),
        ("Who funded it?", NOT_RECORDED),
    ]


def _composition(manifest: Mapping[str, Any], funnel: Funnel, instance: str, cut: str) -> Answers:
    share = f"{100 * funnel.kept / max(funnel.documents, 1):.1f} %"
    return [
        ("What is an instance?", instance),
        ("How many are there?", _instances(manifest)),
        (
            "Does it hold all instances, or a sample of a larger set?",
            f"It holds what the stages above kept of {counted(funnel.documents, 'document')} of its source: {share}.",
        ),
        ("Is there a label or target?", "No: the text is its own target."),
        ("What else is recorded about each instance?", _columns(manifest)),
        ("Is anything missing from instances?", _missing(manifest, funnel, cut)),
        ("Are relations between instances recorded?", _relations(manifest, funnel)),
        ("Are there splits?", _splits(manifest["output"])),
        ("Are there errors, noise or redundancies?", f"{_redundancy(manifest)} {_damage(manifest)}"),
        ("Does it rely on other resources?", "No: texts or tokens are in it. URLs lead to what pages have become."),
        ("Is there confidential data?", f"{NOT_RECORDED} Nobody has looked for it, nor for names and addresses."),
        ("Is there data that may offend or frighten?", f"{NOT_RECORDED} Text of the web has it, as a rule."),
    ]


def _instances(manifest: Mapping[str, Any]) -> str:
    what, count = instances_of(manifest)
    documents = counted(documents_of(manifest), "document")
    if what == "documents":
        return f"{documents}."
    one = {"entries": "entry", "samples": "sample"}[what]
    return f"{counted(count, one, what)}, of {documents}."


def _columns(manifest: Mapping[str, Any]) -> str:
    if "analysis" not in manifest:
        return NOT_RECORDED
    columns = {"its URL": "domains", "its language": "languages"}
    known = [name for name, each in columns.items() if any(manifest["analysis"].get(each, {}))]
    said = ", ".join(["its id", *known])
    return f"I{said[1:]}." if instances_of(manifest)[0] == "documents" else f"Of each document {said}."


def _missing(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> str:
    analysis = manifest.get("analysis", {})
    languages = analysis.get("languages", {})
    counts = {
        "a URL": analysis.get("without_url", 0),
        # Where no document names one, languages are not recorded at all.
        "a language": languages.get("", 0) if any(languages) else 0,
    }
    known = [f"{counted(count, 'document')} without {what}" for what, count in counts.items() if count]
    said = [cut, *([f"{', '.join(known)}."] if known else []), *_taken_out(manifest, funnel, cut)]
    return " ".join(each for each in said if each) or "Nothing that is known of."


def _taken_out(manifest: Mapping[str, Any], funnel: Funnel, cut: str) -> list[str]:
    """List what stages took out of documents, and how much; earlier versions did not count it."""
    names = [name for stage in manifest["recipe"]["stages"] for name in stage]
    settings = [each for stage in manifest["recipe"]["stages"] for each in stage.values()]
    known = {row["stage"] for row in manifest["funnel"]["stages"] if "edits" in row}
    edits = {row.stage: row.edits for row in funnel}
    said: dict[str, list[str]] = {"": [], "; how much is not counted": []}
    for label, name, each in zip(label_stages(names), names, settings, strict=True):
        if name not in TAKES_OUT or each.get("policy", "cut") != "cut" or (cut and name == "truncate"):
            continue
        taken = f"by {code(label)} {TAKES_OUT[name]}"
        if name == "extract_text" or label not in known:
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


def _redundancy(manifest: Mapping[str, Any]) -> str:
    found = looked_for(manifest["recipe"])
    if not found:
        return NOT_LOOKED_FOR
    return f"Duplicates were looked for by {', '.join(map(code, found))}; the kept documents may still be similar."


def _damage(manifest: Mapping[str, Any]) -> str:
    found = manifest.get("bad_files", [])
    return f"{counted(len(found), 'input file')} could not be read whole." if found else "All input was read whole."


def _collection(manifest: Mapping[str, Any], funnel: Funnel) -> Answers:
    source, inputs = manifest["recipe"]["source"], manifest.get("inputs", {})
    files = sum(map(len, inputs.values()))
    counts = [counted(files, "file")] * bool(files) + [counted(len(inputs), "part")] * bool(inputs)
    read = f", out of {' in '.join(counts)}, which `manifest.json` names" if inputs else ""
    return [
        (
            "How was the data acquired?",
            f"{counted(funnel.documents, 'document')} were read by the source {code(source['builder'])}{read}.",
        ),
        ("How was it sampled?", "It was not: every document that was read came to the first stage."),
        ("Who collected it, and were they paid?", NOT_RECORDED),
        ("Over what time?", f"{NOT_RECORDED} A run writes no dates."),
        ("Did an ethical review take place?", NOT_RECORDED),
        ("Were authors informed, and did they agree?", NOT_RECORDED),
    ]


def _preprocessing(manifest: Mapping[str, Any], funnel: Funnel) -> Answers:
    stages = ", ".join(code(row.stage) for row in funnel)
    done = f"{stages}, in this order, with the settings of the recipe above." if stages else "Nothing."
    left = " The reason for each removed document is in `ledger/`." if funnel.kept < funnel.documents else ""
    return [
        ("What was done to it?", done),
        ("Was the raw data kept?", f"Not here: the source has it.{left}"),
        ("Can the software be had?", f"It is longcrawl {writer_of(manifest)}, with the versions above."),
    ]


def _uses() -> Answers:
    return [
        ("What has it been used for?", NOT_RECORDED),
        ("What could it be used for?", "To train language models, and to study what they are trained on."),
        ("Does how it was made bear on its use?", 'See "What to know" above.'),
        (
            "What should it not be used for?",
            f"{NOT_RECORDED} Nothing in it has been checked for truth, harm or rights.",
        ),
    ]


def _distribution(facts: Mapping[str, Any]) -> Answers:
    name = facts["license_name"] or facts["license"]
    link = f" (<{facts['license_link']}>)" if facts["license_link"] else ""
    return [
        ("How and when is it distributed?", NOT_RECORDED),
        ("Under which licence?", NOT_RECORDED if name == "other" else f"{plain(name)}{link}."),
        ("Do others have rights in it?", "Texts are their authors'; the terms of the sources hold too."),
    ]


def _maintenance(facts: Mapping[str, Any]) -> Answers:
    return [
        ("Who maintains it, and how can they be reached?", facts["contact"] or NOT_RECORDED),
        ("How can a document be taken out?", facts["opt_out"] or NOT_RECORDED),
        ("Is there an erratum?", NOT_RECORDED),
        (
            "Will it be updated?",
            f"{NOT_RECORDED} The same recipe over new input makes a new version, whose manifest has another digest.",
        ),
        ("Can others extend it?", "Yes: change the recipe and run it."),
    ]
