"""Text to token shards in one call, by a run of a recipe made from a few options."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longcrawl.core.sources import Source
from longcrawl.errors import RecipeError, SourceError, known_names
from longcrawl.run.first_recipe import guess_source
from longcrawl.run.job import run
from longcrawl.run.manifest import RunSummary
from longcrawl.run.recipe import Recipe, parse_recipe
from longcrawl.tokens.encoders import tokenizer_name
from longcrawl.urls import is_url

FORMATS = ("gpt-simple", "datatrove", "megatron", "nanogpt", "olmo-core", "levanter", "mds", "litdata")


def tokenize(
    source: str | Path,
    output_dir: str | Path,
    tokenizer: str = "gpt2",
    *,
    max_length: int | None = None,
    overlap_size: int = 0,
    num_proc: int = 1,
    format: str = "gpt-simple",  # noqa: A002  # the plain name of this option
    builder: str | None = None,
    min_text_length: int = 0,
    overlap_probability: float = 1.0,
    overrides: Iterable[str] = (),
) -> RunSummary:
    """Tokenise documents into shards, or resume a stopped run: :func:`longcrawl.run` with a small recipe.

    Args:
        source: a folder, file, URL or glob of JSON lines, CSV or text files (``.gz``, ``.zst``) or parquet; or a Hub
            dataset, ``org/name``.
        output_dir: the run's folder. It holds the shards in ``FORMAT/train``, the card and the recipe.
        tokenizer: a file, a folder, a Hub id, an object, or "trained", see :class:`longcrawl.tokens.Tokenize`.
        max_length: tokens per window, including the end-of-text token; None keeps documents whole.
        overlap_size: tokens that a window shares with the one before it, at most half of ``max_length``.
        num_proc: worker processes; the output bytes do not depend on it.
        format: "gpt-simple", "datatrove", "megatron", "nanogpt", "olmo-core", "levanter", "mds" or "litdata".
        builder: the source that reads the documents, such as "redpajama-v2"; None to choose "text", "warc" or "hub" by
            the names of the files.
        min_text_length: minimum length of a document in characters.
        overlap_probability: share of documents with overlapping windows, see :class:`longcrawl.tokens.Windows`.
        overrides: ``PATH=VALUE`` as for :func:`longcrawl.run`, such as ``outputs.gpt-simple.heldout=0.01``.

    Raises:
        RecipeError: the options do not make a recipe.
        SourceError: the source is a web archive with HTML, or cannot be read.
        RunError: the run cannot start, continue or finish.
    """
    given = (source, tokenizer, max_length, overlap_size, format, builder, overrides)
    recipe = tokenize_recipe(*given, min_text_length, overlap_probability)
    _check_texts(recipe.source)
    return run(recipe, output_dir, num_proc)


def _check_texts(source: Source) -> None:
    """Raise SourceError if a web archive may have HTML, whose text is not extracted here."""
    if source.name == "warc" and any("html" in mime or "xml" in mime for mime in source.settings()["mimes"]):
        files = (file for part in source.splits()["train"] for file in part.files)
        if archive := next((file for file in files if ".wet" not in Path(file).name), None):
            raise SourceError(
                f"{archive} may have HTML, but tokenize reads text: extract it in a run (longcrawl init {archive} "
                "writes its recipe), choose .wet files, or read only plain text with --set 'source.mimes=[text/plain]'"
            )


def tokenize_recipe(
    source: str | Path,
    tokenizer: str = "gpt2",
    max_length: int | None = None,
    overlap_size: int = 0,
    format: str = "gpt-simple",  # noqa: A002  # the plain name of this option
    builder: str | None = None,
    overrides: Iterable[str] = (),
    min_text_length: int = 0,
    overlap_probability: float = 1.0,
) -> Recipe:
    """Return the recipe that :func:`tokenize` runs.

    >>> recipe = tokenize_recipe("raw/*.jsonl.gz", max_length=2048, overlap_size=256)
    >>> [label for label, _ in recipe.stages], recipe.output.name
    (['tokenize', 'windows'], 'gpt-simple')

    Raises:
        RecipeError: the options do not make a recipe.
    """
    if format not in FORMATS:
        raise RecipeError(f"token shards have no format {format!r}; {known_names(FORMATS, format)}")
    if overlap_probability != 1 and not overlap_size:
        raise RecipeError("overlap_probability needs overlapping windows: also set overlap_size")
    if max_length is None and overlap_size:
        raise RecipeError("overlap_size needs windows: also set max_length, or remove both")
    overrides = list(overrides)
    if builder is None:
        is_forced = any(override.startswith("source.format=") for override in overrides)
        builder, settings = guess_source(str(source), any_ending=is_forced)
    else:
        is_folder = not is_url(str(source)) and Path(source).is_dir()
        settings = {"data_dir" if is_folder else "data_files": str(source)}
    stages: list[Any] = [{"min_chars": {"n": min_text_length}}] if min_text_length else []
    stages.append({"tokenize": {"tokenizer": tokenizer_name(tokenizer)}})
    if max_length is not None:
        shared = {"overlap_size": overlap_size, "overlap_probability": overlap_probability}
        stages.append({"windows": {"max_length": max_length, **shared}})
    spec = {
        "longcrawl": 1,
        "name": "tokenize",
        "about": f"Documents as token shards for {format}.",
        "source": {"builder": builder, **settings},
        "stages": stages,
        "outputs": {format: {}},
    }
    return parse_recipe(spec, overrides)
