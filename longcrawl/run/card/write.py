"""Writer of a run's dataset card, which keeps a person's edits when the card is written again.

Each generated section is between two comments, which are hidden when the card is displayed::

    <!-- longcrawl:funnel 0f3a5d7c9b12 -->
    …
    <!-- /longcrawl:funnel -->

The number is the beginning of the SHA-256 of the generated text; other text was edited or written by a person. A last
comment has such digests for the front matter, and the names of sections, as a person may have removed some.
"""

import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from longcrawl.core.display import code, counted, fenced, plain, printable
from longcrawl.core.funnel import Funnel
from longcrawl.errors import RunError, StageError, as_lines, unreadable
from longcrawl.io.files import check_writable, checksum, file_entries, name_of, write_text, writing
from longcrawl.io.structured import load_json, seal
from longcrawl.run.analysis import Analysis, Lengths, bin_name
from longcrawl.run.card import front_matter, sections
from longcrawl.run.card.sections import PICTURES, datasheet, ranked_rules, titled
from longcrawl.run.manifest import CARD, MANIFEST, input_names, lost_ledger, open_run, read_manifest, read_sealed
from longcrawl.urls import REPOSITORY


def about_run(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the description, citation and licence of a run, from its recipe."""
    recipe, facts = manifest["recipe"], front_matter.facts_of(manifest)
    made_by = front_matter.software(manifest["versions"]["longcrawl"])
    works = [*front_matter.citations(recipe, input_names(manifest)), made_by]
    name = facts["pretty_name"] or recipe["name"]
    license_of = (facts["license_name"] or facts["license"], facts["license_link"])
    return {
        "description": recipe.get("about") or f"{name}, made by a recipe of longcrawl.",
        "citation": "\n\n".join([*filter(None, [facts["citation"]]), *(each.bibtex for each in works)]),
        "license": ", ".join(filter(None, license_of)),
    }


def about_output(folder: Path) -> dict[str, str] | None:
    """Return :func:`about_run` for a run's folder or output, or None without a readable manifest."""
    for place in (folder, folder.absolute().parent):
        if (place / MANIFEST).is_file():
            try:
                return about_run(read_manifest(place))
            except RunError:  # the output can be read without a manifest, and verify reports the damage
                return None
    return None


FOLDERS, FILES = ("data_dir", "lists", "base_url"), ("data_files", "paths", "against")
"""Fields with values that are always paths: of folders, and of files."""
REPOSITORIES = "decontaminate"
"""Stage with a field ``against`` that also takes Hub ids; an ambiguous value there is taken for an id."""
PATH = re.compile(
    r"(?!.*://)(?:/|~|\.{1,2}/|file://).*"
    r"|(?!.*://).*\.(?:json|jsonl|tiktoken|txt|ya?ml|csv|bin|ftz|model|arpa|parquet|gz|zst|warc)",
    re.DOTALL,
)
"""Pattern of values that are paths in other fields, and not names of shipped files or Hub repositories."""


def local_paths(recipe: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the local paths in a recipe of a manifest, by their ``--set`` keys.

    URLs, names of shipped files and ids of repositories do not count.

    >>> stages = [{"tokenize": {"tokenizer": "tok.json"}}, {"tokenize": {"tokenizer": "gpt2"}}]
    >>> local_paths({"source": {"builder": "text", "data_dir": "texts"}, "stages": stages, "outputs": {}})
    {'source.data_dir': ('texts',), 'stages.tokenize.tokenizer': ('tok.json',)}
    """
    blocks = {"source": recipe["source"]}
    blocks |= {f"stages.{label}": fields for label, _, fields in sections.labelled(recipe)}
    blocks |= {f"outputs.{name}": each for name, each in recipe["outputs"].items()}
    found = {
        f"{block}.{field}": tuple(_paths(value, always=field in (*FOLDERS, *FILES)))
        for block, fields in blocks.items()
        for field, value in (fields or {}).items()
    }
    for name, paths in found.items():
        if name.startswith(f"stages.{REPOSITORIES}"):
            found[name] = tuple(each for each in paths if PATH.fullmatch(each) or not REPOSITORY.fullmatch(each))
    return {name: paths for name, paths in found.items() if paths}


def _paths(value: Any, *, always: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _paths(each, always=always)
    elif isinstance(value, str) and (PATH.fullmatch(value) or (always and value and "://" not in value)):
        yield value


def elsewhere(recipe: Mapping[str, Any]) -> str:
    """Return the options of ``longcrawl run`` that replace a recipe's local paths; "" if it has none."""
    said = []
    for name in local_paths(recipe):
        section, *_, field = name.split(".")
        value = recipe["source"][name.partition(".")[2]] if section == "source" else None
        word = "FOLDER" if field in FOLDERS else "PATH"
        if field == "against" or isinstance(value, list | tuple):
            said.append(f"--set '{name}=[{word}]'")
        elif isinstance(value, Mapping):
            said.append(f"--set '{name}={{{', '.join(f'{split}: {word}' for split in value)}}}'")
        else:
            said.append(f"--set {name}={word}")
    return " ".join(said)


TEXT = "#7a7a7a"
FIRST, SECOND = "#2b83c4", "#e69f00"
"""Blue and orange, which people with any form of colour blindness can tell apart."""
MOST_BARS = 15
MOST_LETTERS = 44
MOST_TICKS = 9
WIDTH, BAR_HEIGHT = 8.0, 0.3
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "longcrawl",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_pictures(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Draw the pictures of a manifest and return them as SVG, by name; empty pictures are left out.

    Raises:
        StageError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise StageError("plots need matplotlib: pip install 'longcrawl[plots]'") from missing
    funnel = Funnel.from_dict(manifest["funnel"])
    analysis = Analysis.from_dict(manifest["analysis"])
    source = manifest.get("source_lengths")
    lengths = [("kept", each) for each in analysis.lengths]
    if source is not None:
        lengths.insert(0, ("at the source", Lengths.from_dict(source)))
    ranked, domains = ranked_rules(funnel), list(analysis.domains.items())
    left = [(funnel.source, funnel.documents), *((row.stage, row.documents_out) for row in funnel)]
    rules = [(rule if rule == stage else f"{stage}: {rule}", count) for stage, rule, count in ranked]
    removed = sum(count for _, _, count in ranked)
    languages = [(name or "none", count) for name, count in analysis.languages.items()]
    panels: dict[str, tuple[bool, Callable[[Any], None]]] = {
        "funnel": (bool(funnel.rows), lambda figure: _bars(figure, left, FIRST, of=max(funnel.documents, 1))),
        "reasons": (bool(ranked), lambda figure: _bars(figure, rules[:MOST_BARS], SECOND, of=removed)),
        "lengths": (any(each.documents for _, each in lengths), lambda figure: _lengths(figure, lengths)),
        "domains": (len(domains) > 1, lambda figure: _bars(figure, domains[:MOST_BARS], FIRST)),
        "languages": (len(languages) > 1, lambda figure: _bars(figure, languages[:MOST_BARS], FIRST)),
    }
    pictures = {}
    with rc_context(STYLE):
        for name, (is_there, draw) in panels.items():
            if is_there:
                figure = Figure(figsize=(WIDTH, 3), layout="constrained")
                draw(figure)
                figure.axes[0].set_title(PICTURES[name], loc="left", fontsize=12, fontweight="bold", pad=12)
                written = io.StringIO()
                figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
                pictures[name] = "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())
    return pictures


def _bars(figure: Any, counts: Sequence[tuple[str, int]], colour: str, of: int = 0) -> None:
    """Draw a horizontal bar for each name, the first on top, labelled with its count and the share ``of`` a total."""
    names, values = [name for name, _ in counts], [count for _, count in counts]
    labels = [f"{count:,}  ({100 * count / of:.1f} %)" if of else f"{count:,}" for count in values]
    figure.set_size_inches(WIDTH, 0.75 + BAR_HEIGHT * len(names))
    axes = figure.add_subplot()
    bars = axes.barh(range(len(names)), values, color=colour, height=0.72)
    axes.bar_label(bars, labels, padding=5, color=TEXT)
    axes.set_yticks(range(len(names)), [printable(name, MOST_LETTERS) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * max(*values, 1))
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["bottom", "left"]].set_visible(False)


def _lengths(figure: Any, lengths: Sequence[tuple[str, Lengths]]) -> None:
    units = list(dict.fromkeys(each.unit for _, each in lengths))
    figure.set_size_inches(WIDTH, 2.9 * len(units))
    for place, unit in enumerate(units):
        axes = figure.add_subplot(len(units), 1, place + 1)
        _histograms(axes, [(what, each) for what, each in lengths if each.unit == unit])
        axes.set_xlabel(f"{unit} of a document")
        axes.set_ylabel("% of documents")


def _histograms(axes: Any, here: Sequence[tuple[str, Lengths]]) -> None:
    first, last = min(each.bins.start for _, each in here), max(each.bins.stop for _, each in here)
    width = 0.84 / len(here)
    for number, (what, each) in enumerate(here):
        documents = max(sum(each.documents.values()), 1)
        shares = [100 * each.documents.get(place, 0) / documents for place in range(first, last)]
        places = [place + (number - (len(here) - 1) / 2) * width for place in range(first, last)]
        colour = SECOND if what == "at the source" else FIRST
        axes.bar(places, shares, width, color=colour, label=what)
    shown = range(first, last, math.ceil((last - first) / MOST_TICKS))
    axes.set_xticks(list(shown), [_least(place) for place in shown])
    axes.legend(frameon=False, labelcolor=TEXT, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)


def _least(number: int) -> str:
    least = 1 << number - 1 if number else 0
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if least >= size:
            return f"{least // size}{unit}+"
    return bin_name(number) if number < 2 else f"{least}+"


PICTURE_FOLDER = "card"
MOST_BAD_FILES = 50

PLACE = (
    "`user/name` is this repository on the Hub, and `hf://datasets/user/name` its files. The path of a local copy "
    "replaces both; `hf download user/name --repo-type dataset --local-dir FOLDER` makes one."
)
REMOVED = 'The removed documents, with reasons: `load_dataset("user/name", "ledger", split="removed")`.'
NO_CONTACT = "No contact is recorded. Ask the publisher of this dataset: see the repository it came from."
NO_OPT_OUT = (
    "No way to opt out is recorded. A request for removal may name a URL or an id; "
    "the tables show which documents it means, and another run of the recipe can leave them out."
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
    manifest, recipe, lists = card.manifest, card.recipe, card.manifest.get("lists", {})
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    paths = elsewhere(recipe)
    moved = ["It names paths on the machine that ran it. On another one, append:", fenced(paths, "sh")] if paths else []
    return sections.paragraphs(
        f"Recipe {code(recipe['name'])}, `recipe.yaml` beside this card, digest `{manifest['digest']}`. "
        "With the same versions and input, this reproduces the dataset byte for byte:",
        fenced("longcrawl run recipe.yaml --out NEW", "sh"),
        *moved,
        *(_listed(recipe["source"], lists) if lists else ()),
        "\n".join(sections.materials(card)),
        "<details><summary>recipe.yaml, every field spelled out</summary>",
        fenced(yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=120).rstrip(), "yaml"),
        "</details>",
        f"Versions: {versions}.",
    )


def _listed(source: Mapping[str, Any], lists: Mapping[str, Any]) -> Iterator[str]:
    chosen = "all" if source.get("files") is None else code(source["files"])
    total = counted(sum(each["paths"] for each in lists.values()), "path")
    yield f"Its input is {chosen} of {total} below {code(source['base_url'])}, named by these lists:"
    paths = {name: counted(each["paths"], "path") for name, each in lists.items()}
    yield "\n".join(f"- {code(name)}: {paths[name]}, SHA-256 `{each['sha256']}`" for name, each in lists.items())


def _limits(card: sections.CardSource) -> str:
    limits = sections.known_limits(card.manifest)
    return "\n".join(f"- {said}{plain(cited)}{'.' if cited else ''}" for said, cited in limits)


def _broken(card: sections.CardSource) -> str:
    found: Sequence[Mapping[str, Any]] = card.manifest["bad_files"]
    lines = ["None: every input file was read whole."]
    if found:
        lines = [f"{len(found)} input file(s) could not be read whole; `manifest.json` lists all."]
    for bad in found[:MOST_BAD_FILES]:
        lost = "an unknown number of records" if bad["records_lost"] is None else f"{bad['records_lost']:,} record(s)"
        lines.append(f"- {code(bad['file'])}: {plain(bad['reason'])} (lost: {lost})")
    left_out = _counts("Records that the source left out, by rule", card.manifest["left_out"])
    decoded = _counts("Decoded files or pages, by encoding", card.manifest.get("encodings", {}))
    return sections.paragraphs("\n".join(lines), left_out, decoded)


def _counts(about: str, counts: Mapping[str, int]) -> str:
    return f"{about}: {', '.join(f'{plain(name)} {count:,}' for name, count in counts.items())}." if counts else ""


def _contact(card: sections.CardSource) -> str:
    contact, opt_out = card.facts["contact"], card.facts["opt_out"]
    how = f"Opt-out: {opt_out}" if opt_out else NO_OPT_OUT
    return sections.paragraphs(f"Contact: {contact}" if contact else NO_CONTACT, how)


def _citation(card: sections.CardSource) -> str:
    works = front_matter.citations(card.recipe, input_names(card.manifest))
    made_by = front_matter.software(card.manifest["versions"]["longcrawl"])
    own = str(card.facts["citation"] or "").strip()
    said = [f"{code(each.key)} ({', '.join(map(code, each.used))})" for each in works]
    builds = f"It builds on {', '.join(said)}; it was made by `{made_by.key}`:" if said else f"Made by `{made_by.key}`:"
    entries = fenced("\n\n".join(each.bibtex for each in (*works, made_by)), "bibtex")
    if own:
        return sections.paragraphs("Cite this dataset as:", fenced(own, "bibtex"), builds, entries)
    return sections.paragraphs(f"No citation of this dataset itself is recorded. {builds}", entries)


def _datasheet(card: sections.CardSource) -> str:
    instance = card.result.contents(card.output).splitlines()[-1].partition(". ")[0].rstrip(".") + "."
    cut = card.result.cut(card.folder / card.result.name, card.output)
    return datasheet(card.manifest, card.facts, card.funnel, instance, cut)


SECTIONS: dict[str, Callable[[sections.CardSource], str]] = {
    "summary": _summary,
    "load": titled("Load it", _load),
    "limits": titled("Known limits", _limits),
    "made": titled("How it was made", _made),
    "funnel": titled("Documents kept by each stage", sections.funnel_and_rates),
    "reasons": titled("Why documents were removed", sections.reasons),
    "edited": titled("Changes in documents", sections.edited),
    "queued": titled("For OCR, and to fetch again", sections.queued),
    "lengths": titled("Lengths", sections.lengths),
    "places": titled("Domains and languages", sections.places),
    "duplicates": titled("Duplicates", sections.duplicates),
    "composition": titled(
        "Composition", lambda card: card.result.composition(card.folder / card.result.name, card.output)
    ),
    "broken": titled("Broken input", _broken),
    "contact": titled("Opt-out and contact", _contact),
    "takedown": titled("Removed on request", sections.takedowns),
    "citation": titled("Citation", _citation),
    "datasheet": titled("Datasheet", _datasheet),
}
"""Sections by the name in their comments, in the order of the card; sections that return "" are left out."""


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the card of a run, ``README.md``."""
    text = card_text(front_matter.front_matter(folder, manifest), _sections(folder, manifest, ()))
    write_text(folder / CARD, text)


def _sections(folder: Path, manifest: Mapping[str, Any], pictures: Sequence[str]) -> dict[str, str]:
    source = sections.CardSource(folder, manifest, pictures)
    return {name: text for name, section in SECTIONS.items() if (text := section(source))}


@dataclass(frozen=True)
class Merged:
    """Card with kept edits, and a list of these."""

    text: str
    kept: tuple[str, ...]
    """Sections, and front matter entries such as "head license", that a person changed, added or removed."""
    head: Mapping[str, Any]


@dataclass(frozen=True)
class Card:
    """Result of writing a card again."""

    path: str
    kept: tuple[str, ...]
    """Parts with kept edits, as in ``Merged.kept``."""
    pictures: tuple[str, ...]
    problems: tuple[str, ...] = ()
    """Problems in the front matter for which the Hub would reject it; the card is written anyway."""

    def __str__(self) -> str:
        pictures = f" with {len(self.pictures)} pictures" if self.pictures else ""
        kept = f"; kept your edits in: {', '.join(self.kept)}" if self.kept else ""
        lines = [f"the Hub will reject its front matter: {each}" for each in self.problems]
        return as_lines([f"{self.path} is written{pictures}{kept}", *lines])

    __repr__ = __str__


def card(run: str | Path, *, plots: bool = False) -> Card:
    """Write the card of a finished run again, from its manifest and ledger, and keep edits.

    The manifest then records the new card, so that ``verify`` accepts it. Pictures drawn before are kept. Without edits
    and pictures, the card is the one that the run wrote. Edited front matter is kept even if the Hub would reject it;
    ``problems`` lists the reasons.

    Args:
        run: the folder of a finished run, or the URL of one in an object store.
        plots: whether to draw pictures into ``card/``, which needs matplotlib.

    Raises:
        RunError: the run is not finished, its manifest has been changed, or its ledger is missing; or the card was
            edited and has no marks that show where; or a file is in the place of the folder for pictures.
        FormatError: the front matter of the card is not YAML.
        StageError: matplotlib is not installed.
    """
    with open_run(run, "") as folder:
        check_writable(folder / CARD)
        manifest, shown = read_sealed(folder), folder / PICTURE_FOLDER
        if lost := lost_ledger(folder, manifest):
            raise RunError(
                f"{folder} is missing {lost}, which lists removed documents: restore it, then write the card"
            )
        if plots and shown.exists() and not shown.is_dir():
            raise RunError(f"{shown} is a file, but plots need a folder of this name: move it away")
        # Make the card and all pictures first, so that a failure leaves the run unchanged.
        with unreadable(folder / MANIFEST, RunError, f"run the recipe again, into another folder than {folder}"):
            drawn = draw_pictures(manifest) if plots else {}
            before = {file.stem for file in shown.glob("*.svg")}
            there = [name for name in sections.PICTURES if name in before.union(drawn)]
            written = _merged(folder, manifest, there)
        pictures = tuple(f"{PICTURE_FOLDER}/{name}.svg" for name in there)
        with writing(folder / CARD, RunError, f"make {folder} writable, or copy the run"):
            for name, picture in drawn.items():
                write_text(shown / f"{name}.svg", picture)
            write_text(folder / CARD, written.text)
            _name_in_manifest(folder, manifest, pictures)
        return Card(name_of(folder / CARD), written.kept, pictures, tuple(front_matter.head_problems(written.head)))


def _merged(folder: Path, manifest: dict[str, Any], pictures: list[str]) -> Merged:
    file = folder / CARD
    try:
        there = file.read_text("utf-8") if file.exists() else ""
    except ValueError as broken:
        raise RunError(f"{file} is not UTF-8 ({broken}): fix it, or move it away") from broken
    entries, written = front_matter.front_matter(folder, manifest), _sections(folder, manifest, pictures)
    if is_marked(there):
        return merge(there, entries, written, str(file))
    if there and checksum(file) != manifest["files"].get(CARD, {}).get("sha256"):
        raise RunError(
            f"{file} lacks the comments that separate your edits from longcrawl's text: "
            "move it away and run the same command again"
        )
    return Merged(card_text(entries, written), (), entries)


def _name_in_manifest(folder: Path, manifest: dict[str, Any], pictures: Sequence[str]) -> None:
    pictures_before = [name for name in manifest["files"] if name.startswith(f"{PICTURE_FOLDER}/")]
    files = {name: entry for name, entry in manifest["files"].items() if name not in (CARD, *pictures_before)}
    changed = {**manifest, "files": dict(sorted((files | file_entries(folder, [CARD, *pictures])).items()))}
    if json.dumps(changed) != json.dumps(manifest):
        write_text(folder / MANIFEST, seal(changed))


def card_text(head: Mapping[str, Any], written: Mapping[str, str]) -> str:
    """Return a new card from front matter and sections, which are Markdown by name."""
    return _join(head, [_marked(name, text) for name, text in written.items()], head, list(written))


def is_marked(card: str) -> bool:
    """Return whether a card has the comments that show where it was edited."""
    return _LAST.search(card) is not None or _SECTION.search(card) is not None


def merge(card: str, head: Mapping[str, Any], written: Mapping[str, str], file: str = "README.md") -> Merged:
    """Return a card with new front matter and sections (in order), keeping the edits in the existing ``card``.

    Raises:
        FormatError: the front matter of the card is not YAML.
    """
    text = card.replace("\r\n", "\n")
    found = front_matter.FRONT_MATTER.match(text)
    body = text[found.end() if found else 0 :]
    last = _LAST.search(body)
    recorded = _recorded(last["recorded"]) if last else {}
    body = _LAST.sub("", body)
    merged_head, kept = _merge_head(front_matter.read_front_matter(card, file), recorded.get("head", {}), head)
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
    return front_matter.yaml_block(head) + "\n\n".join([*body, f"<!-- longcrawl {json.dumps(recorded)} -->"]) + "\n"


def _marked(name: str, text: str) -> str:
    # Text from a recipe must not contain the comments, which would end the section.
    safe = text.replace("<!-- longcrawl", "<!-- Longcrawl").replace("<!-- /longcrawl", "<!-- /Longcrawl").strip("\n")
    return f"<!-- longcrawl:{name} {_digest(safe)} -->\n{safe}\n<!-- /longcrawl:{name} -->"


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:DIGITS]


def _digest_of(value: Any) -> str:
    return _digest(json.dumps(value, sort_keys=True, default=str))


def _recorded(text: str) -> dict[str, Any]:
    """Parse the last comment; if it is broken, all of the front matter counts as edited."""
    try:
        recorded = load_json(text)
    except ValueError:
        recorded = None
    recorded = recorded if isinstance(recorded, dict) else {}
    head, names = recorded.get("head"), recorded.get("sections")
    are_names = isinstance(names, list) and all(isinstance(each, str) for each in names)
    return {"head": head if isinstance(head, dict) else {}, "sections": names if are_names else []}
