"""Generator of a commented first recipe for documents given by path, URL or Hub name."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.sources import SOURCES, BadFiles, Part, make_source
from longcrawl.core.stages import STAGES
from longcrawl.errors import LongCrawlError, RecipeError, SourceError, one_line, quoted
from longcrawl.formats.shards.base import FORMATS
from longcrawl.io.files import write_text, writing
from longcrawl.io.structured import load_yaml
from longcrawl.run.inputs import train_parts
from longcrawl.run.recipe import parse_recipe, read_recipe
from longcrawl.sources import text
from longcrawl.sources.files import (
    PDFS,
    absolute,
    count_endings,
    has_ending,
    is_about,
    list_tree,
    opened,
    spell_endings,
)
from longcrawl.sources.text import RECORDS, without_set
from longcrawl.sources.warc import source as warc
from longcrawl.urls import DATASETS, REPOSITORY, has_pattern, is_url, join, path_of

_RECTANGLE = re.compile(r"(train|heldout)(\.zarr)?/zarr\.json")
_DATASET = re.compile(rf"(?P<path>{REPOSITORY.pattern})(?:@(?P<revision>refs/[^/]+/[^/]+|[^/]+))?")
"""Hub dataset name with an optional branch, tag or commit."""
_PAGE = re.compile(
    rf"https?://(?:huggingface\.co|hf\.co)/datasets/(?P<path>{REPOSITORY.pattern})"
    r"(?:/tree/(?P<revision>[^/]+)(?:/(?P<data_dir>[^/].*))?|/viewer.*)?/?"
)
"""Browser address of a Hub dataset, one of its folders, or its viewer."""
_RPV2 = re.compile(r"documents/[^/]+/[^/]+/[^/]+\.json\.gz")


def guess_source(name: str, *, any_ending: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the name and settings of the source that reads a path, URL, glob or Hub dataset.

    A local path takes precedence over a Hub dataset of the same name, and a name whose parent folder exists locally is
    never taken for a Hub dataset. With ``any_ending``, a folder is read by ``text`` whatever its files are called.

    >>> guess_source("crawl/*.warc.gz"), guess_source("hf://datasets/org/name@v1")
    (('warc', {'data_files': 'crawl/*.warc.gz'}), ('hub', {'path': 'org/name', 'revision': 'v1'}))
    >>> guess_source("reports/*.pdf")
    ('text', {'format': 'pdf', 'data_files': 'reports/*.pdf'})

    Raises:
        SourceError: nothing is there, or no source can be guessed for it.
    """
    named = _DATASET.fullmatch(name.removeprefix(DATASETS)) if name.startswith(DATASETS) else None
    if (named := named or _PAGE.fullmatch(path_of(name))) is not None:
        return "hub", {key: value for key, value in named.groupdict().items() if value}
    is_here = not is_url(name) and os.path.exists(absolute(name))  # noqa: PTH110  # False for names that are too long for the system
    is_pattern = has_pattern(name) and not is_here  # brackets may be part of a name
    is_there = is_url(name) or is_pattern or is_here
    if not is_there and REPOSITORY.fullmatch(name) and not Path(name).parent.is_dir():
        return "hub", {"path": name}
    if not is_there:
        raise SourceError(
            f"nothing found at {quoted(name)}: choose a file, folder, URL or glob, a dataset of the Hub as "
            "ORG/NAME, or a source that `longcrawl sources` lists"
        )
    if is_url(name) or is_pattern or Path(absolute(name)).is_file():
        if (found := _of_files([path_of(name)])) is None and not is_pattern and is_url(name):
            return _of_folder(name, any_ending=any_ending)
        source, settings = found or ("text", {})
        return source, ({} if any_ending else settings) | {"data_files": name}
    return _of_folder(name, any_ending=any_ending)


def _of_files(names: Iterable[str]) -> tuple[str, dict[str, Any]] | None:
    """Return the source of files by their endings, and its settings; PDFs only where nothing but a README has text."""
    names = list(names)
    if any(has_ending(name, warc.EXTENSIONS) for name in names):
        return "warc", {}
    texts = [name for name in names if has_ending(name, text.EXTENSIONS)]
    if any(has_ending(name, PDFS) for name in names) and all(map(is_about, texts)):
        return "text", {"format": "pdf"}
    return ("text", {}) if texts else None


def _of_folder(folder: str, *, any_ending: bool) -> tuple[str, dict[str, Any]]:
    if any_ending:
        return "text", {"data_dir": folder}
    names = list_tree(absolute(folder))
    if {"manifest.json", "recipe.yaml"} <= set(names):
        written = next((output for output in OUTPUTS if any(name.startswith(f"{output}/") for name in names)), "OUTPUT")
        raise SourceError(f"{quoted(folder)} is a run: name its output, {quoted(join(folder, written))}")
    endings = {Path(name).suffix for name in names}
    if "parquet.json" in names and ".parquet" in endings:  # parquet.json describes the output and is not a document
        return "text", {"data_dir": folder, "data_files": "**/*.parquet"}
    if "composed.json" in names:
        return "composed", {"data_dir": folder}
    for shards in FORMATS.loaded():
        if f"{shards}.json" in names and FORMATS[shards].suffix in endings:
            return shards, {"data_dir": folder}
    for source, pattern in (("rectangle", _RECTANGLE), ("redpajama-v2", _RPV2)):
        if any(map(pattern.fullmatch, names)):
            return source, {"data_dir": folder}
    if (found := _of_files(names)) is None:
        raise SourceError(
            f"{quoted(folder)} has no documents, judging by its file names: {count_endings(names)}. Known endings: "
            f"{spell_endings((*text.EXTENSIONS, *PDFS, *warc.EXTENSIONS))}{text.FORCE}. Or name a source of "
            "`longcrawl sources`, as lc.open('datatrove', data_dir=…)"
        )
    source, settings = found
    return source, settings | {"data_dir": folder}


TEXT_FIELDS = ("text", "content", "raw_content", "body", "document", "markdown")
"""Names of fields that may hold the text, in the order in which they are tried."""

_RECIPES = {"warc": "refinedweb", "redpajama-v2": "longcrawl64-clean"}
"""Shipped recipe that the first recipe is based on, by source."""

_OF_TEXTS: Mapping[str, Any] = {
    "stages": [
        {"gopher_quality": {}},
        {"gopher_repetition": {}},
        {"exact_documents": {}},
        {"min_hash": {"bands": 14, "rows": 8, "unit": "word"}},
        {"tokenize": {"tokenizer": "gpt2"}},
        {"min_tokens": {"n": 4096}},
    ],
    "outputs": {"gpt-simple": {"heldout": 0.01}},
}


def first_recipe(
    name: str, text_field: str | None = None, file_format: str | None = None, encoding: str | None = None
) -> str:
    """Return a commented recipe in YAML that reads the named documents.

    Args:
        name: a file, folder, URL or glob, or a dataset of the Hub, as ``lc.open`` takes it.
        text_field: the field with the text; None for the first of ``TEXT_FIELDS`` that the documents have.
        file_format: format of the files, as the source ``text`` names it; None to go by their endings.
        encoding: encoding of the files, or "detect"; None for UTF-8.

    Raises:
        LongCrawlError: no source can be guessed for the name, or no field has text.
    """
    with without_set():
        source, settings = guess_source(name, any_ending=file_format is not None)
    settings |= {key: value for key, value in (("format", file_format), ("encoding", encoding)) if value is not None}
    if source in ("composed", "rectangle") or source in FORMATS:
        raise RecipeError(
            f"{name} holds tokens, not texts: trainers read it directly; longcrawl verify {shlex.quote(name)} checks it"
        )
    spec: Mapping[str, Any] = _OF_TEXTS
    if settings.get("format") == "pdf":
        spec = {**_OF_TEXTS, "stages": [{"extract_pdf": {}}, *_OF_TEXTS["stages"]]}
    elif source in ("text", "hub"):
        with without_set():
            settings |= _text_field(source, settings, TEXT_FIELDS if text_field is None else (text_field,))
    elif text_field is not None:
        settings |= {"text_field": text_field}
    if (known := _RECIPES.get(source)) is not None:
        spec = read_recipe(known)
        settings = {key: value for key, value in spec["source"].items() if key != "builder"} | settings
    text = "\n".join(_lines(name, source, settings, spec)) + "\n"
    parse_recipe(load_yaml(text))
    return text


def write_first_recipe(name: str, out: Path, *fields: str | None) -> str:
    """Write the recipe of :func:`first_recipe` and return a message with the commands to type next.

    Raises:
        RecipeError: the file exists, or its name does not end in .yaml or .yml.
    """
    if out.suffix not in (".yaml", ".yml"):
        raise RecipeError(f"{out} is not a recipe name: it must end in .yaml")
    if out.exists():
        raise RecipeError(f"{out} already exists: choose another name with --out, or remove it")
    made = first_recipe(name, *fields)
    with writing(out, RecipeError, "choose another name with --out"):
        write_text(out, made)
    folder = f"{out.stem}-run" if Path(out.stem).exists() else out.stem  # such as the folder of the documents
    run = f"longcrawl run {shlex.quote(str(out))} --out {shlex.quote(folder)}"
    return f"{out} is written. Edit it, then:\n{run} --dry-run   # check it\n{run}"


def _text_field(source: str, settings: Mapping[str, Any], fields: Sequence[str]) -> dict[str, str]:
    failed: SourceError | None = None
    parts = train_parts(make_source(source, settings))
    # Files that are a single document have no fields.
    first = next((part for part in parts if has_ending(part.name, RECORDS)), parts[0])
    known = _parquet_texts(first)
    if (found := next((field for field in fields if field in known), None)) is not None:
        return {} if found == "text" else {"text_field": found}
    # If the footer lists text fields and none of ours is among them, one read raises the error that lists them.
    for field in fields[:1] if known else fields:
        made = make_source(source, {**settings, "text_field": field})
        try:
            documents = next(iter(made.read(first, BadFiles())), None)
        except SourceError as wrong:
            if "has no field" not in str(wrong):
                raise
            failed = failed or wrong
        else:
            if documents is None:
                raise RecipeError(f"{first.name} has no documents: choose another file, or check this one")
            return {} if field == "text" else {"text_field": field}
    raise failed or RecipeError("no field has texts")


def _parquet_texts(part: Part) -> list[str]:
    if not part.name.endswith(".parquet"):
        return []
    try:
        with opened(part.files[0]) as file:
            schema = pq.read_schema(file)
    except (LongCrawlError, OSError, pa.ArrowException):
        return []
    return [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]


def _lines(name: str, source: str, settings: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    last = name.rstrip("/").rpartition("/")[2].partition(".")[0]
    identifier = re.sub(r"[^a-z0-9]+", "_", last.lower()).strip("_") or "mine"
    yield f"# Long-context training data from {one_line(name)}. Stages run from top to bottom."
    yield "# Fields that are left out have their defaults: longcrawl stages NAME lists them."
    yield from ("longcrawl: 1", f"name: {identifier}", *_yaml({"about": f"Documents of {name}."}), "source:")
    yield f"  # {SOURCES.about(source)}"
    yield from (f"  {line}" for line in _yaml({"builder": source, **settings}))
    yield "stages:"
    for stage in spec["stages"]:
        ((label, fields),) = ({stage: {}} if isinstance(stage, str) else stage).items()
        yield f"  # {STAGES.about(label)}"
        if (tokenizer := fields.get("tokenizer")) not in (None, "trained"):
            yield f"  # {tokenizer} is fetched from the Hub. Without a network, set the path of a tokenizer.json file,"
            yield "  # or `trained`, which learns a tokenizer from these documents."
        yield from (f"  - {line}" for line in _yaml({label: fields}))
    yield "outputs:"
    for output, fields in spec["outputs"].items():
        yield f"  # {OUTPUTS.about(output)}"
        yield from (f"  {line}" for line in _yaml({output: fields}))
    yield "card:"
    yield "  # The licence of the documents, by its identifier on the Hub. A push asks for it."
    yield "  license: other"
    yield "  license_name: unknown"


def _yaml(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        line: str = yaml.safe_dump({name: value}, allow_unicode=True, width=10_000, default_flow_style=True)
        yield line.strip()[1:-1]
