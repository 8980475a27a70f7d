"""Recipes: a source, stages and an output in strict YAML.

A recipe holds everything that determines the bytes of a run. An unknown key is an error that lists the known ones. The
recipe's digest covers every field, defaults included, and the code version of every stage.
"""

import copy
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from longcrawl.core.batches import HAVE_FILES, NEED_TEXTS, has_content
from longcrawl.core.funnel import Reference
from longcrawl.core.outputs import OUTPUTS, Output
from longcrawl.core.registry import Implementation, build, plain_settings, preset_fields, presets_of
from longcrawl.core.sources import SOURCES, OnDuplicateIds, Source, make_source
from longcrawl.core.stages import STAGES, Stage, bytes_fault, label_stages, stages_fault
from longcrawl.errors import RecipeError, check_word, known_names, quoted
from longcrawl.io.structured import RepeatedKeyError, load_yaml
from longcrawl.run.card.front_matter import CardFacts
from longcrawl.run.shipped import shipped
from longcrawl.urls import plain_urls

SCHEMA_VERSION = 1
ON_DUPLICATE_IDS = "on_duplicate_ids"
KEYS = ("longcrawl", "name", "about", "source", "stages", "parts", "outputs", "card", "reference")


@dataclass(frozen=True)
class Recipe:
    """A recipe: the source, stages and output of a run, and facts for its card."""

    name: str
    about: str
    source: Source
    stages: tuple[tuple[str, Stage], ...]
    """Pairs of label and stage; a second stage of the same kind is labelled ``NAME_2``."""
    output: Output
    card: CardFacts
    parts: int = 1
    """Number of parts into which the input is divided for deduplication, see :mod:`longcrawl.run.segments`."""
    on_duplicate_ids: OnDuplicateIds = "error"
    """Policy for documents with equal ids; in YAML a field of every ``source``, see :mod:`longcrawl.run.part`."""
    reference: Reference = field(default_factory=Reference)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the recipe's YAML file, with every field spelled out and secrets removed from URLs."""
        policy = {ON_DUPLICATE_IDS: self.on_duplicate_ids} if self.on_duplicate_ids != "error" else {}
        return {
            "longcrawl": SCHEMA_VERSION,
            "name": self.name,
            "about": self.about,
            "source": {"builder": SOURCES.spelling(type(self.source)), **self.source.settings(), **policy},
            "stages": [{STAGES.spelling(type(stage)): plain_urls(stage.settings())} for _, stage in self.stages],
            "parts": self.parts,
            "outputs": {OUTPUTS.spelling(type(self.output)): plain_urls(self.output.settings())},
            "card": plain_settings(self.card),
            "reference": plain_settings(self.reference),
        }

    def __repr__(self) -> str:
        """Return the recipe in one line: its name, its source, its stages and its output."""
        steps = [self.source, *(stage for _, stage in self.stages), self.output]
        return f"<recipe {self.name}: {' > '.join(map(repr, steps))}>"

    def as_yaml(self) -> str:
        """Return the recipe as YAML that :func:`parse_recipe` reads back."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True, width=120)

    @property
    def digest(self) -> str:
        """The first 16 hex digits of the SHA-256 of all fields and code versions."""
        versions = [stage.code_version for _, stage in self.stages]
        canonical = json.dumps([self.as_dict(), versions], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def others(self) -> dict[str, Implementation]:
        """Third-party implementations: stages by label, the others as ``source NAME`` and ``output NAME``."""
        found = {label: STAGES.implementation(type(stage)) for label, stage in self.stages}
        found[f"source {self.source.name}"] = SOURCES.implementation(type(self.source))
        found[f"output {self.output.name}"] = OUTPUTS.implementation(type(self.output))
        return {name: about for name, about in found.items() if about}


def load_recipe(name: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Load a shipped recipe by name, or any recipe by the path of its YAML file, with ``--set``-style overrides.

    >>> load_recipe("longcrawl64", ["stages.min_words.n=20000"]).as_dict()["stages"][2]
    {'min_words': {'n': 20000}}

    Raises:
        RecipeError: there is no such recipe, or it names something unknown; the message lists the known names.
    """
    if isinstance(name, Mapping):
        raise RecipeError("a recipe must be a name or a path, got a mapping: write it to a .yaml file")
    return parse_recipe(read_recipe(str(name)), overrides)


def read_recipe(name: str) -> dict[str, Any]:
    """Return the content of a recipe file, without filling in defaults; a RecipeError if it is not a YAML mapping."""
    text = _recipe_text(name)
    try:
        spec = load_yaml(text)
    except RepeatedKeyError as twice:
        raise RecipeError(f"recipe {name!r}: {twice}") from twice
    except yaml.YAMLError as broken:
        said = " ".join(str(broken).replace('in "<unicode string>", ', "at ").split())
        raise RecipeError(f"recipe {name!r} is not YAML: {said}") from broken
    if not isinstance(spec, dict):
        raise RecipeError(f"recipe {name!r} must be a mapping with the keys {', '.join(KEYS)}")
    return spec


def parse_recipe(spec: Mapping[str, Any], overrides: Iterable[str] = ()) -> Recipe:
    """Build a :class:`Recipe` from the content of a recipe file with ``--set``-style overrides; reject unknown keys."""
    changed = copy.deepcopy(dict(spec))
    for override in overrides:
        _override(changed, override)
    name = changed.get("name", "without a name")
    where = f"recipe {quoted(name)}"
    for key in changed:
        if key not in KEYS:
            raise RecipeError(f"{where} has an unknown key {quoted(key)}; {known_names(KEYS, key)}")
    for key in ("longcrawl", "name", "source", "stages", "outputs"):
        if key not in changed:
            raise RecipeError(f"{where} lacks the key {key!r}")
    if changed["longcrawl"] != SCHEMA_VERSION:
        version = quoted(changed["longcrawl"])
        raise RecipeError(f"{where} has schema version {version}, but this longcrawl reads {SCHEMA_VERSION}")
    stages, source = _stages(changed["stages"], where), _source(changed["source"], where)
    parts, policy = changed.get("parts", 1), changed["source"].get(ON_DUPLICATE_IDS, "error")
    if type(parts) is not int or parts < 1:
        raise RecipeError(f"{where}: parts takes a whole number of 1 or more, got {quoted(parts)}")
    check_word(f"{where}: source.{ON_DUPLICATE_IDS}", policy, OnDuplicateIds, RecipeError)
    return Recipe(
        name=str(name),
        about=str(changed.get("about", "")),
        source=source,
        stages=stages,
        output=_output(changed["outputs"], where),
        card=build(CardFacts, _fields(changed.get("card"), f"{where}: card"), f"{where}: card", RecipeError),
        parts=parts,
        on_duplicate_ids=policy,
        reference=_reference(changed.get("reference"), [label for label, _ in stages], where),
    )


def _recipe_text(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        try:
            return Path(name).read_text("utf-8")
        except FileNotFoundError as missing:
            raise RecipeError(f"no recipe {name}: check its path, or choose one from `longcrawl recipes`") from missing
        except (OSError, UnicodeDecodeError) as wrong:
            raise RecipeError(f"recipe file {name} cannot be read: {wrong}") from wrong
    if name not in (found := shipped()):
        if Path(name).is_file():
            raise RecipeError(
                f"{name} is not a recipe, since its name does not end in .yaml: run `longcrawl init "
                f"{shlex.quote(name)}` to write a recipe for these documents"
            )
        raise RecipeError(f"unknown recipe {name!r}; {known_names([*found, 'or the path of a .yaml file'], name)}")
    return found[name].read_text("utf-8")


def _source(spec: Any, where: str) -> Source:
    if not isinstance(spec, dict) or not isinstance(spec.get("builder"), str):
        raise RecipeError(
            f"{where}: source takes a mapping with the key 'builder', such as {{builder: text, data_dir: docs}}"
        )
    settings = {key: value for key, value in spec.items() if key not in ("builder", ON_DUPLICATE_IDS)}
    return SOURCES.make(spec["builder"], settings, f"{where}: source", RecipeError)


def recorded_source(recipe: Mapping[str, Any]) -> Source:
    """Return the source of a recipe recorded in a manifest; a SourceError if this longcrawl does not know it."""
    settings = {key: value for key, value in recipe["source"].items() if key != ON_DUPLICATE_IDS}
    return make_source(settings.pop("builder"), settings)


def _stages(specs: Any, where: str) -> tuple[tuple[str, Stage], ...]:
    if not isinstance(specs, list):
        raise RecipeError(f"{where}: stages takes a list, such as [min_chars: {{n: 200}}]")
    made = [_stage(spec, f"{where}: stage {number}") for number, spec in enumerate(specs, start=1)]
    labelled = tuple(zip(label_stages([stage.name for stage in made]), made, strict=True))
    if (fault := bytes_fault(labelled)) is not None:
        raise RecipeError(f"{where}: {fault}")
    return labelled


def _stage(spec: Any, where: str) -> Stage:
    """Return a stage; the fields of ``preset`` are set first, and the fields given beside it override them."""
    name, settings = _named(spec, where)
    kind = STAGES.find(name, where, RecipeError)
    if presets_of(kind) and "preset" in settings:
        given = {key: value for key, value in settings.items() if key != "preset"}
        settings = preset_fields(kind, settings["preset"], given, f"{where} {name!r}: ", RecipeError)
    return STAGES.make(name, settings, where, RecipeError)


def check_order(recipe: Recipe) -> None:
    """Raise a RecipeError if a stage of a recipe undoes the work of another, or none reads the files in ``content``.

    This is checked for new runs only, so that older finished runs with such recipes can still be read.
    """
    if (fault := stages_fault(recipe.stages)) is not None:
        raise RecipeError(f"recipe {quoted(recipe.name)}: {fault}")
    if has_content(recipe.source.schema()) and not any(stage.looks_at == "content" for _, stage in recipe.stages):
        raise RecipeError(
            f"recipe {quoted(recipe.name)}: documents of its source {HAVE_FILES}, which no output writes: {NEED_TEXTS}"
        )


def _output(spec: Any, where: str) -> Output:
    if not isinstance(spec, dict) or len(spec) != 1:
        raise RecipeError(f"{where}: outputs takes a mapping with one format; known: {', '.join(sorted(OUTPUTS))}")
    ((name, settings),) = spec.items()
    return OUTPUTS.make(str(name), _fields(settings, f"{where}: output {name!r}"), f"{where}: output", RecipeError)


def _reference(spec: Any, labels: list[str], where: str) -> Reference:
    named = f"{where}: reference"
    reference = build(Reference, _fields(spec, named), named, RecipeError)
    for label in reference.documents:
        if label not in labels:
            raise RecipeError(
                f"{named}.documents names {label!r}, which is not a stage of the recipe; it has: {', '.join(labels)}"
            )
    return reference


def _fields(settings: Any, where: str) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, dict):
        raise RecipeError(f"{where} takes a mapping of its fields, got {quoted(settings)}")
    return settings or {}


def _named(spec: Any, where: str) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, dict) and len(spec) == 1:
        ((name, settings),) = spec.items()
        if settings is None or isinstance(settings, dict):
            return str(name), settings or {}
    wants = "a name, or one name with its fields, such as min_chars: {n: 200}"
    raise RecipeError(f"{where} takes {wants}; got {quoted(spec)}")


def _override(spec: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or (len(keys) < 2 and path != "parts"):  # a section and a field
        raise RecipeError(f"--set takes PATH=VALUE, such as stages.min_words.n=20000, got {override!r}")
    try:
        value = load_yaml(text)
    except RepeatedKeyError as twice:
        raise RecipeError(f"--set {path}: {twice}") from twice
    except yaml.YAMLError as broken:
        raise RecipeError(f"--set {path}: {text!r} is not YAML") from broken
    section, rest = keys[0], keys[1:]
    if path == "parts":
        spec["parts"] = value
    elif section in ("source", "card") and len(rest) == 1:
        spec[section] = {**_fields(spec.get(section), f"the recipe's {section}"), rest[0]: value}
    elif section == "outputs" and len(rest) == 2:  # a format and a field
        outputs = _fields(spec.get("outputs"), "the recipe's outputs")
        spelled = [name for name in outputs if OUTPUTS.find(str(name), "output", RecipeError).name == rest[0]]
        _override_named(outputs, [*(spelled or rest[:1]), rest[1]], value, f"--set {path}")
    elif section == "stages" and len(rest) >= 2:  # a stage and a field
        stages = spec.get("stages")
        _override_stage(stages if isinstance(stages, list) else [], rest, value, f"--set {path}")
    else:
        raise RecipeError(
            f"--set {path}: write source.FIELD, stages.STAGE.FIELD, outputs.FORMAT.FIELD, card.FIELD or parts"
        )


def _override_stage(stages: list[Any], keys: list[str], value: Any, where: str) -> None:
    named = [_named(stage, where) for stage in stages]
    labels = label_stages([name for name, _ in named])
    if keys[0] not in labels:
        raise RecipeError(f"{where}: the recipe has no stage {keys[0]!r}; it has: {', '.join(labels)}")
    place = labels.index(keys[0])
    name, settings = named[place]
    # Setting a preset replaces the fields that any preset sets, and keeps the other fields of the recipe.
    presets = presets_of(STAGES.get(name)) if keys[1:] == ["preset"] else {}
    settled = {field for preset in presets.values() for field in preset}
    changed = {name: {key: given for key, given in settings.items() if key not in settled}}
    _override_named(changed, [name, *keys[1:]], value, where)
    stages[place] = changed


def _override_named(section: dict[str, Any], keys: list[str], value: Any, where: str) -> None:
    if keys[0] not in section:
        raise RecipeError(f"{where}: the recipe has no {keys[0]!r}; it has: {', '.join(section)}")
    fields = section[keys[0]] = dict(_fields(section[keys[0]], f"{where}: {keys[0]}"))
    for key in keys[1:-1]:
        below = fields.get(key)
        if below is not None and not isinstance(below, dict):
            raise RecipeError(f"{where}: {key!r} is {below!r} and has no fields of its own")
        fields[key] = dict(below or {})
        fields = fields[key]
    fields[keys[-1]] = value
