"""The dataset card that a run writes beside its output, and the same card written again later.

A finished run's card is written again with pictures, by a newer longcrawl, or after a person has edited it. What a
person has changed in it is kept. Each generated section stands between two comments, which no page shows::

    <!-- longcrawl:funnel 0f3a5d7c9b12 -->
    …
    <!-- /longcrawl:funnel -->

The number is the beginning of the SHA-256 of the text as it was generated: a text that has another one is a person's,
and so is all that stands outside of sections. A last comment does the same for the entries of the front matter, and
names the sections, so that one that a person has removed stays away. All of that is in the card itself: it survives a
download, an upgrade of longcrawl, and whoever edits the card on the Hub.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from longcrawl.card import sections
from longcrawl.card.citations import citations, software
from longcrawl.card.datasheet import datasheet
from longcrawl.card.front_matter import FRONT_MATTER, front_matter, head_problems, read_front_matter, yaml_block
from longcrawl.card.paths import elsewhere
from longcrawl.card.plots import draw_pictures
from longcrawl.display.markdown import code, fenced, plain
from longcrawl.display.numbers import counted
from longcrawl.errors import RunError, unreadable
from longcrawl.manifest import MANIFEST, input_names, lost_ledger, open_run, read_sealed
from longcrawl.printable import as_lines
from longcrawl.storage.files import checksum, file_entries, write_text, writing
from longcrawl.storage.place import check_writable, name_of
from longcrawl.storage.sealed import seal
from longcrawl.storage.structured import load_json

CARD = "README.md"
PICTURE_FOLDER = "card"
"""Where pictures lie in a run."""
MOST_BAD_FILES = 50

PLACE = (
    "`user/name` stands for this repository on the Hub, `hf://datasets/user/name` for its files. The path of a local "
    "copy takes the place of both; `hf download user/name --repo-type dataset --local-dir FOLDER` makes one."
)
REMOVED = 'Why each other document was removed, `load_dataset("user/name", "ledger", split="removed")` says.'
NO_CONTACT = "No contact is recorded. Questions go to whoever publishes this dataset: see the repository it came from."
NO_OPT_OUT = (
    "No way to opt out is recorded. Whoever asks for a removal may name a URL or an id; "
    "the tables say which documents these are, and a recipe made again without them leaves them out."
)
DIGITS = 12
_SECTION = re.compile(
    r"^<!-- longcrawl:(?P<name>[a-z]+) (?P<digest>[0-9a-f]{12}) -->\n(?P<text>.*?)^<!-- /longcrawl:(?P=name) -->$",
    re.MULTILINE | re.DOTALL,
)
_LAST = re.compile(r"^<!-- longcrawl (?P<recorded>\{.*\}) -->$", re.MULTILINE)


def _summary(card: sections.CardSource) -> str:
    title = " ".join(str(card.facts["pretty_name"] or card.recipe["name"]).split())
    contents = card.result.contents(card.output)
    return sections.paragraphs(f"# {title}", card.recipe["about"], *sections.warnings(card), contents)


def _load(card: sections.CardSource) -> str:
    left = any((card.folder / "ledger").glob("*.parquet"))
    text = card.result.fill_card(card.output, REMOVED if left else "")
    return sections.paragraphs(PLACE, sections.token_tables(card), re.sub("\n{3,}", "\n\n", text).rstrip())


def _made(card: sections.CardSource) -> str:
    manifest, recipe = card.manifest, card.recipe
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    paths = elsewhere(recipe)
    moved = ["It names paths of the machine that ran it. On another one, append:", fenced(paths, "sh")] if paths else []
    return sections.paragraphs(
        f"Recipe {code(recipe['name'])}, `recipe.yaml` beside this card, digest `{manifest['digest']}`. "
        "With the same versions and input, this makes the dataset again, byte for byte:",
        fenced("longcrawl run recipe.yaml --out NEW", "sh"),
        *moved,
        *_listed(card),
        "\n".join(sections.materials(card)),
        "<details><summary>recipe.yaml, every field spelled out</summary>",
        fenced(yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=120).rstrip(), "yaml"),
        "</details>",
        f"Versions: {versions}.",
    )


def _listed(card: sections.CardSource) -> Iterator[str]:
    """Return which lists of paths named the input, where some did."""
    lists, source = card.manifest.get("lists", {}), card.recipe["source"]
    if lists:
        chosen = "all" if source.get("files") is None else code(source["files"])
        total = counted(sum(each["paths"] for each in lists.values()), "path")
        yield f"Its input is {chosen} of {total} below {code(source['base_url'])}, which these lists name:"
        yield "\n".join(
            f"- {code(name)}: {counted(each['paths'], 'path')}, SHA-256 `{each['sha256']}`"
            for name, each in lists.items()
        )


def _composition(card: sections.CardSource) -> str:
    return card.result.composition(card.folder / card.result.name, card.output)


def _limits(card: sections.CardSource) -> str:
    described = [
        f"- {said}{plain(cited)}{'.' if cited else ''}" for said, cited in sections.known_limits(card.manifest)
    ]
    return "\n".join(described)


def _broken(card: sections.CardSource) -> str:
    found: Sequence[Mapping[str, Any]] = card.manifest["bad_files"]
    lines = ["None: every input file was read whole."]
    if found:
        lines = [f"{len(found)} input file(s) could not be read whole; `manifest.json` lists all."]
    for bad in found[:MOST_BAD_FILES]:
        lost = "an unknown number of records" if bad["records_lost"] is None else f"{bad['records_lost']:,} record(s)"
        lines.append(f"- {code(bad['file'])}: {plain(bad['reason'])} (lost: {lost})")
    rules = card.manifest["left_out"]
    described = ", ".join(f"{plain(rule)} {count:,}" for rule, count in rules.items())
    left_out = [f"Records that the source left out, by its rules: {described}."] if rules else []
    encodings = ", ".join(f"{plain(name)} {count:,}" for name, count in card.manifest.get("encodings", {}).items())
    decoded = [f"Files or pages that were decoded, by encoding: {encodings}."] if encodings else []
    return sections.paragraphs("\n".join(lines), *left_out, *decoded)


def _contact(card: sections.CardSource) -> str:
    contact, opt_out = card.facts["contact"], card.facts["opt_out"]
    return sections.paragraphs(
        f"Contact: {contact}" if contact else NO_CONTACT, f"Opt-out: {opt_out}" if opt_out else NO_OPT_OUT
    )


def _citation(card: sections.CardSource) -> str:
    works = citations(card.recipe, input_names(card.manifest))
    made_by = software(card.manifest["versions"]["longcrawl"])
    own = str(card.facts["citation"] or "").strip()
    said = [f"{code(each.key)} ({', '.join(map(code, each.used))})" for each in works]
    builds = f"It builds on {', '.join(said)}; `{made_by.key}` made it:" if said else f"`{made_by.key}` made it:"
    entries = fenced("\n\n".join(each.bibtex for each in (*works, made_by)), "bibtex")
    if own:
        return sections.paragraphs("Cite this dataset as:", fenced(own, "bibtex"), builds, entries)
    return sections.paragraphs(f"How to cite this dataset itself is not recorded. {builds}", entries)


def _datasheet(card: sections.CardSource) -> str:
    instance = card.result.contents(card.output).splitlines()[-1].partition(". ")[0].rstrip(".") + "."
    cut = card.result.cut(card.folder / card.result.name, card.output)
    return datasheet(card.manifest, card.facts, card.funnel, instance, cut)


SECTIONS: dict[str, Callable[[sections.CardSource], str]] = {
    "summary": _summary,
    "load": sections.Section("Load it", _load),
    "limits": sections.Section("What to know", _limits),
    "made": sections.Section("How it was made", _made),
    "funnel": sections.Section("Documents kept by each stage", sections.funnel_and_rates),
    "reasons": sections.Section("Why documents were removed", sections.reasons),
    "edited": sections.Section("What was changed in documents", sections.edited),
    "lengths": sections.Section("Lengths", sections.lengths),
    "places": sections.Section("Domains and languages", sections.places),
    "duplicates": sections.Section("Duplicates", sections.duplicates),
    "composition": sections.Section("Composition", _composition),
    "broken": sections.Section("Broken input", _broken),
    "contact": sections.Section("Opt-out and contact", _contact),
    "takedown": sections.Section("Removed on request", sections.takedowns),
    "citation": sections.Section("Citation", _citation),
    "datasheet": sections.Section("Datasheet", _datasheet),
}
"""Every section by the name that its comments give it, in the order of the card; one that gives "" is left out."""


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write ``README.md`` for a run."""
    text = card_text(front_matter(folder, manifest), _sections(folder, manifest, ()))
    write_text(folder / CARD, text)


def _sections(folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str]) -> dict[str, str]:
    source = sections.CardSource(folder, manifest, pictures)
    return {name: text for name, section in SECTIONS.items() if (text := section(source))}


@dataclass(frozen=True)
class Merged:
    """A card, and what in it is a person's."""

    text: str
    kept: tuple[str, ...]
    """Sections, and entries of the front matter as "head license", that were changed, added or removed by a person."""
    head: Mapping[str, Any]
    """The entries of its front matter."""


@dataclass(frozen=True)
class Card:
    """A card that was written again."""

    path: str
    kept: tuple[str, ...]
    """What a person has changed in it and is still there."""
    pictures: tuple[str, ...]
    """Paths in the run."""
    problems: tuple[str, ...] = ()
    """What the Hub would reject in its front matter, a sentence each; the card is written all the same."""

    def __str__(self) -> str:
        pictures = f" with {len(self.pictures)} pictures" if self.pictures else ""
        kept = f"; kept your edits in: {', '.join(self.kept)}" if self.kept else ""
        lines = [f"the Hub will reject its front matter: {each}" for each in self.problems]
        return as_lines([f"{self.path} is written{pictures}{kept}", *lines])


def card(run: str | Path, *, plots: bool = False) -> Card:
    """Write the card of a finished run again, from its manifest and ledger, and keep what a person has changed in it.

    The manifest then names the card as it is now, and the run is whole to ``verify``. Pictures that were drawn before
    stay. Without edits and pictures, the card is the one that the run wrote. Edited front matter that the Hub would
    reject is kept like every edit, and ``problems`` says what is wrong with it.

    Args:
        run: the folder of a finished run, or the URL of one in an object store.
        plots: draw pictures into ``card/``, too; matplotlib does it.

    Raises:
        RunError: the run is not finished, its manifest has been changed, its ledger is gone, or its card has
            no marks that tell it from a person's, or a file is where pictures would go.
        FormatError: the front matter of the card is not YAML.
        StageError: matplotlib is not installed.
    """
    with open_run(run, "") as folder:
        check_writable(folder / CARD)
        return _card(folder, plots)


def _card(folder: Path, plots: bool) -> Card:  # noqa: FBT001  # as the caller was asked
    manifest = read_sealed(folder)
    if lost := lost_ledger(folder, manifest):
        raise RunError(f"{folder} has lost {lost}, which lists removed documents: copy it back, then write the card")
    if plots and (folder / PICTURE_FOLDER).exists() and not (folder / PICTURE_FOLDER).is_dir():
        raise RunError(f"{folder / PICTURE_FOLDER} is a file, and pictures go to a folder of this name: move it away")
    # Nothing is written before it is known that the card can be.
    with unreadable(folder / MANIFEST, RunError, f"run the recipe again, into another folder than {folder}"):
        drawn = draw_pictures(manifest) if plots else {}
        there = [
            name for name in sections.PICTURES if name in drawn or (folder / PICTURE_FOLDER / f"{name}.svg").is_file()
        ]
        written = _merged(folder, manifest, there)
    pictures = tuple(f"{PICTURE_FOLDER}/{name}.svg" for name in there)
    with writing(folder / CARD, RunError, f"make {folder} writable, or copy the run"):
        for name, picture in drawn.items():
            write_text(folder / PICTURE_FOLDER / f"{name}.svg", picture)
        write_text(folder / CARD, written.text)
        _name_in_manifest(folder, manifest, pictures)
    return Card(name_of(folder / CARD), written.kept, pictures, tuple(head_problems(written.head)))


def _merged(folder: Path, manifest: dict[str, Any], pictures: list[str]) -> Merged:
    """Return the card with the edits of the one that is there; only an unedited one may have no marks."""
    file = folder / CARD
    there = _read(file) if file.exists() else ""
    entries, written = front_matter(folder, manifest), _sections(folder, manifest, pictures)
    if is_marked(there):
        return merge(there, entries, written, str(file))
    if there and checksum(file) != manifest["files"].get(CARD, {}).get("sha256"):
        raise RunError(
            f"{file} has none of the comments that tell your edits from what longcrawl wrote: "
            "move it away and type the same command again"
        )
    return Merged(card_text(entries, written), (), entries)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except ValueError as broken:
        raise RunError(f"{file} is not UTF-8 ({broken}): fix it, or move it away") from broken


def _name_in_manifest(folder: Path, manifest: dict[str, Any], pictures: Sequence[str]) -> None:
    """Record the card and its pictures as they are now."""
    others = {
        name: entry
        for name, entry in manifest["files"].items()
        if name != CARD and not name.startswith(f"{PICTURE_FOLDER}/")
    }
    changed = {**manifest, "files": dict(sorted((others | file_entries(folder, [CARD, *pictures])).items()))}
    if json.dumps(changed) != json.dumps(manifest):
        write_text(folder / MANIFEST, seal(changed))


def card_text(head: Mapping[str, Any], written: Mapping[str, str]) -> str:
    """Return a card that nobody has edited; its sections are Markdown by name."""
    return _join(head, [_marked(name, text) for name, text in written.items()], head, list(written))


def is_marked(card: str) -> bool:
    """Return whether a card has the comments by which edits are known."""
    return _LAST.search(card) is not None or _SECTION.search(card) is not None


def merge(card: str, head: Mapping[str, Any], written: Mapping[str, str], file: str = "README.md") -> Merged:
    """Return a card with new front matter and new sections, but for what a person has edited.

    Args:
        card: as it is now.
        head: the generated front matter.
        written: the generated sections, in order.
        file: the name of the card, for messages.

    Raises:
        FormatError: the front matter of the card is not YAML.
    """
    text = card.replace("\r\n", "\n")
    found = FRONT_MATTER.match(text)
    body = text[found.end() if found else 0 :]
    last = _LAST.search(body)
    recorded = _recorded(last["recorded"]) if last else {}
    body = _LAST.sub("", body)
    merged_head, kept = _merge_head(read_front_matter(card, file), recorded.get("head", {}), head)
    pieces: list[tuple[str | None, str]] = []
    place = 0
    for section in _SECTION.finditer(body):
        pieces.append((None, body[place : section.start()]))
        name, text, place = section["name"], section["text"], section.end()
        if _digest(text) != section["digest"]:
            pieces.append((name, section[0]))
            kept.append(name)
        elif name in written:
            pieces.append((name, _marked(name, written[name])))
    pieces.append((None, body[place:]))
    there = {name for name, _ in pieces if name}
    removed = [name for name in recorded.get("sections", []) if name in written and name not in there]
    names = list(written)
    for number, name in enumerate(names):
        if name not in there and name not in removed:
            before = [place for place, (other, _) in enumerate(pieces) if other in names[:number]]
            pieces.insert(before[-1] + 1 if before else 0, (name, _marked(name, written[name])))
    if any(name is None and text.strip() for name, text in pieces):
        kept.append("text between sections")
    kept += [f"{name} (removed)" for name in removed]
    return Merged(_join(merged_head, [text for _, text in pieces], head, names), tuple(kept), merged_head)


def _merge_head(
    now: Mapping[str, Any], digests: Mapping[str, str], head: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the entries of both, and name those that are a person's."""
    merged, kept = dict(head), []
    for name, value in now.items():
        if digests.get(name) != _digest_of(value) and head.get(name) != value:
            merged[name] = value
            kept.append(f"head {name}")
    for name in digests.keys() & head.keys() - now.keys():
        del merged[name]
        kept.append(f"head {name} (removed)")
    return merged, sorted(kept)


def _join(head: Mapping[str, Any], pieces: list[str], generated: Mapping[str, Any], names: list[str]) -> str:
    recorded = {"head": {name: _digest_of(value) for name, value in generated.items()}, "sections": names}
    body = [text for piece in pieces if (text := piece.strip("\n"))]
    return yaml_block(head) + "\n\n".join([*body, f"<!-- longcrawl {json.dumps(recorded)} -->"]) + "\n"


def _marked(name: str, text: str) -> str:
    # A recipe that talks about these comments must not end a section.
    safe = text.replace("<!-- longcrawl", "<!-- Longcrawl").replace("<!-- /longcrawl", "<!-- /Longcrawl").strip("\n")
    return f"<!-- longcrawl:{name} {_digest(safe)} -->\n{safe}\n<!-- /longcrawl:{name} -->"


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:DIGITS]


def _digest_of(value: Any) -> str:
    return _digest(json.dumps(value, sort_keys=True, default=str))


def _recorded(text: str) -> dict[str, Any]:
    """Read the last comment; where somebody has broken it, all of the front matter is a person's."""
    try:
        recorded = load_json(text)
    except ValueError:
        return {}
    if not isinstance(recorded, dict):
        return {}
    head, names = recorded.get("head"), recorded.get("sections")
    known: dict[str, Any] = {"head": head if isinstance(head, dict) else {}, "sections": []}
    if isinstance(names, list) and all(isinstance(each, str) for each in names):
        known["sections"] = names
    return known
