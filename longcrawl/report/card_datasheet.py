"""A datasheet in the form of RefinedWeb's Appendix A: what a manifest can answer, and what only a person can.

The form is that of Gebru et al., "Datasheets for Datasets", 2018: seven parts, questions and answers. What nobody has
written down is said to be so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from longcrawl.ledger import Funnel
from longcrawl.markdown import code, plain
from longcrawl.report.card_facts import documents_of
from longcrawl.run_manifest import writer_of
from longcrawl.stages import STAGES, Survey

__all__ = ["datasheet"]

NOT_RECORDED = "Not recorded."
Answers = Sequence[tuple[str, str]]


def datasheet(manifest: Mapping[str, Any], facts: Mapping[str, Any], funnel: Funnel) -> str:
    """Give the seven parts in Markdown.

    Args:
        manifest: that of a run.
        facts: what a person says of the dataset.
        funnel: that of the run.

    """
    parts = {
        "Motivation": _motivation(manifest),
        "Composition": _composition(manifest),
        "Collection": _collection(manifest, funnel),
        "Preprocessing": _preprocessing(manifest, funnel),
        "Uses": _uses(),
        "Distribution": _distribution(facts),
        "Maintenance": _maintenance(facts),
    }
    lines = []
    for title, answers in parts.items():
        lines.append(f"### {title}")
        lines += [f"**{question}** {answer}" for question, answer in answers]
    return "\n\n".join(lines)


def _motivation(manifest: Mapping[str, Any]) -> Answers:
    about = manifest["recipe"].get("about")
    return [
        ("For what purpose was it made?", about or NOT_RECORDED),
        ("Who made it, and on whose behalf?", NOT_RECORDED),
        ("Who funded it?", NOT_RECORDED),
    ]


def _composition(manifest: Mapping[str, Any]) -> Answers:
    output, analysis = manifest["output"], manifest.get("analysis")
    told = {"URLs": "domains", "languages": "languages"}
    columns = [name for name, counted in told.items() if analysis is not None and analysis.get(counted)]
    held_out = [name for name in _splits(output) if name != "train"]
    return [
        ("What is an instance?", "A document or a part of one, as the first table says."),
        ("How many are there?", f"{documents_of(manifest):,} documents."),
        ("Is it a sample of a larger set?", "It is what its stages left of its source; see the funnel above."),
        ("Is there a label?", "No: the text is its own target."),
        (
            "What else is told of documents?",
            f"Ids{''.join(f', {name}' for name in columns)}." if analysis is not None else NOT_RECORDED,
        ),
        (
            "Are there splits?",
            f"`train`{''.join(f', `{name}`' for name in held_out)}; held-out documents are of one draw.",
        ),
        ("Are there errors or redundancies?", _redundancy(manifest)),
        ("Does it rely on other resources?", "No: texts or tokens are in it. URLs lead to what pages have become."),
        (
            "Is there confidential, offensive or personal data?",
            f"{NOT_RECORDED} Text of the web has all of it, as a rule.",
        ),
    ]


def _splits(output: Mapping[str, Any]) -> list[str]:
    found = output.get("splits") or output.get("shapes") or {}
    return sorted(found, reverse=True)


def _redundancy(manifest: Mapping[str, Any]) -> str:
    found = [name for stage in manifest["recipe"]["stages"] for name in stage if _deduplicates(name)]
    if not found:
        return "Duplicates were not looked for."
    by = ", ".join(code(name) for name in found)
    return f"Duplicates were looked for by {by}; documents that it takes for different may be much alike."


def _deduplicates(name: str) -> bool:
    stage = STAGES.get(name)
    if stage is not None and issubclass(stage, Survey):
        return not stage.orders
    return name == "listed_duplicates"


def _collection(manifest: Mapping[str, Any], funnel: Funnel) -> Answers:
    source, inputs = manifest["recipe"]["source"], manifest.get("inputs", {})
    files = sum(map(len, inputs.values()))
    counts = [_count(files, "file")] * bool(files) + [_count(len(inputs), "part")] * bool(inputs)
    read = f", out of {' in '.join(counts)}, which `manifest.json` names" if inputs else ""
    return [
        (
            "How was it collected?",
            f"{funnel.documents:,} documents were read by the source {code(source['builder'])}{read}.",
        ),
        ("Who collected it, and were they paid?", NOT_RECORDED),
        ("Over what time?", f"{NOT_RECORDED} A run writes no dates."),
        ("Did an ethical review take place?", NOT_RECORDED),
        ("Were authors told, and did they agree?", NOT_RECORDED),
    ]


def _preprocessing(manifest: Mapping[str, Any], funnel: Funnel) -> Answers:
    stages = ", ".join(code(row.stage) for row in funnel) or "no stage"
    return [
        ("What was done to it?", f"{stages}, in this order, with the settings of the recipe above."),
        (
            "Was the raw data kept?",
            "Not here: the source has it. The reason for each document that left is in `ledger/`.",
        ),
        ("Can the software be had?", f"longcrawl {writer_of(manifest)}, with the versions above."),
    ]


def _uses() -> Answers:
    return [
        ("What is it for?", "Training language models, on long contexts in particular."),
        ("What has it been used for?", NOT_RECORDED),
        (
            "What should it not be used for?",
            f"{NOT_RECORDED} Nothing in it has been checked for truth, harm or rights.",
        ),
    ]


def _distribution(facts: Mapping[str, Any]) -> Answers:
    name = facts["license_name"] or facts["license"]
    link = f" (<{facts['license_link']}>)" if facts["license_link"] else ""
    licence = f"{plain(name)}{link}." if name != "other" else NOT_RECORDED
    return [
        ("Under which licence?", f"{licence} Rights in the texts are their authors'."),
        ("When and how will it be distributed?", NOT_RECORDED),
    ]


def _maintenance(facts: Mapping[str, Any]) -> Answers:
    return [
        ("Who maintains it, and how can they be reached?", facts["contact"] or NOT_RECORDED),
        ("How can a document be taken out?", facts["opt_out"] or NOT_RECORDED),
        (
            "Will it be updated?",
            f"{NOT_RECORDED} The same recipe over new input makes a new version, with another digest.",
        ),
        ("Can others extend it?", "Yes: change the recipe and run it."),
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
