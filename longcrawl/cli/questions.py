"""Commands that show or check: what a recipe can name, finished runs, texts, shards and curricula."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import longcrawl as lc
from longcrawl.cli.commands import (
    EndOfText,
    RunFolder,
    ShardsFrom,
    VocabularySize,
    answer,
    app,
    argument,
    file_option,
    leave_pandas_out,
    new_app,
    option,
    set_option,
    stoppable,
    table,
)
from longcrawl.errors import (
    LongCrawlError,
    RecipeError,
    SourceError,
    StageError,
    as_lines,
    known_names,
    printable,
    quoted,
    show,
)
from longcrawl.run.shipped import shipped
from longcrawl.urls import is_url

if TYPE_CHECKING:
    from longcrawl.core.registry import Registry

USUAL = ("gopher_quality", "gopher_repetition", "fine_web_quality", "line_corrections", "c4_quality")
"""The stages that explain a text where none is named; edits last, so that the others see it as it is."""


def _kind(what: str) -> Any:
    about = f"Name of one to describe, or the path of your own, such as my_package.{what}s:MyClass."
    return argument(about, "NAME")


@app.command(epilog="Example: longcrawl recipes quickstart > recipe.yaml")
def recipes(name: Annotated[str | None, argument("Name of one to print, as a file to edit.", "NAME")] = None) -> None:
    """List the shipped recipes, or print one."""
    if name is None:
        found = lc.recipes()
        answer(table(["recipe", "about"], [*found.items()]), {"recipes": found})
        return
    files = shipped()
    if name not in files:
        raise RecipeError(f"no shipped recipe is called {quoted(name)}; {known_names(files, name)}")
    text = files[name].read_text("utf-8")
    answer(text.removesuffix("\n"), {"name": name, "recipe": text})


@app.command(epilog="Example: longcrawl stages gopher_quality")
def stages(name: Annotated[str | None, _kind("stage")] = None) -> None:
    """List stages, or describe one with its fields. Stages filter, edit and deduplicate documents."""
    from longcrawl.core.stages import STAGES

    _show_kinds(STAGES, "stage", name)


@app.command(epilog="Example: longcrawl sources warc")
def sources(name: Annotated[str | None, _kind("source")] = None) -> None:
    """List sources, or describe one with its fields. A source is what a recipe reads documents from."""
    from longcrawl.core.sources import SOURCES

    _show_kinds(SOURCES, "source", name)


@app.command(epilog="Example: longcrawl outputs rectangle")
def outputs(name: Annotated[str | None, _kind("output")] = None) -> None:
    """List outputs, or describe one with its fields. An output is a format in which a recipe writes its documents."""
    from longcrawl.core.outputs import OUTPUTS

    _show_kinds(OUTPUTS, "output", name)


def _show_kinds(registry: "Registry[Any]", what: str, name: str | None) -> None:
    """Show a line for each kind, or what one takes; kinds that cannot be loaded are errors."""
    if name is not None:
        _describe(registry, name)
        return
    found, broken = {}, []
    for each in registry:
        try:
            found[each] = registry.about(each)
        except LongCrawlError as wrong:
            broken.append(str(wrong))
    answer(table([what, "about"], [*found.items()]), {f"{what}s": found})
    for sentence in (*broken, *registry.unused()):
        show(sentence, error=True)


def _describe(registry: "Registry[Any]", name: str) -> None:
    from longcrawl.core.registry import describe_fields, describe_kind, presets_of

    kind = registry.find(name)
    rows, presets, about = describe_fields(kind), sorted(presets_of(kind)), registry.implementation(kind)
    package = f" of {about['package']} {about['version']}" if "package" in about else ""
    titles = ("field", "takes", "default")
    text = [as_lines([f"{kind.name}{package}"]), printable(describe_kind(kind)), ""]
    text.append(str(table(titles, rows)) if rows else "It has no fields.")
    if presets:
        text.append(as_lines([f"presets  {', '.join(presets)}"]))
    named = [dict(zip(titles, row, strict=True)) for row in rows]
    facts = {"name": kind.name, "about": describe_kind(kind), "fields": named, "presets": presets, **about}
    answer("\n".join(text), facts)


@app.command(epilog="Example: longcrawl funnel quickstart --rates")
def funnel(
    folder: RunFolder,
    *,
    rates: Annotated[
        bool, option("Also show documents and characters as % of the input and of the previous stage.", "--rates")
    ] = False,
) -> None:
    """Show how many documents each stage of a run kept."""
    answer(lc.removal_rates(folder) if rates else lc.funnel(folder))


@app.command(epilog="Example: longcrawl why quickstart numpy/METADATA")
def why(
    folder: RunFolder,
    document: Annotated[str, argument("Id of a document of the source, or the URL of a kept one.", "ID")],
    *,
    page: Annotated[
        bool,
        option(
            "Also read its page again, and show the kept (+) and removed (-) blocks with their probabilities; "
            "for extract_text with engine `blocks`.",
            "--page",
        ),
    ] = False,
) -> None:
    """Show why a document was removed or kept.

    It also shows how stages changed the text.
    """
    reason = lc.why(folder, document)
    if not page:
        answer(reason)
        return
    blocks = lc.page_blocks(folder, reason.id)
    answer(f"{reason}\n\n{blocks}", {"reason": reason, "page": blocks}, blocks=True)


@app.command(epilog="Example: longcrawl clusters quickstart --stage exact_documents")
def clusters(
    folder: RunFolder,
    stage: Annotated[str | None, option("Only documents that this stage removed.")] = None,
    most: Annotated[int, option("Number of clusters to show.", min=1)] = 10,
) -> None:
    """Show the largest clusters of duplicates. Two documents of each are compared word by word."""
    answer(lc.clusters(folder, stage, most))


@app.command(epilog="Example: longcrawl contamination clean")
def contamination(folder: RunFolder) -> None:
    """Show which evaluation sets were found in a run. The stage decontaminate looks for them."""
    answer(lc.contamination(folder))


@app.command(epilog="Example: longcrawl queue run")
def queue(folder: RunFolder) -> None:
    """List documents that need OCR, and those that were cut and should be fetched again."""
    answer(lc.queue(folder))


@app.command(epilog="Example: longcrawl verify hf://datasets/me/quickstart")
def verify(
    path: Annotated[
        str, argument("A run or one output of it, a folder or a URL; or a token shard, or a folder of them.", "PATH")
    ],
    shard_format: ShardsFrom = None,
    end_of_text: EndOfText = None,
    vocabulary_size: VocabularySize = None,
    overrides: Annotated[list[str] | None, set_option("Setting of their format, such as reading.token_size=4.")] = None,
    *,
    quick: Annotated[bool, option("Only check that every file is there and has its size.", "--quick")] = False,
) -> None:
    """Check every file against its checksum.

    Original LongCrawl64 data and token shards have no checksums: their contents are checked. The exit code is 1 if
    there are problems.
    """
    if not quick:
        leave_pandas_out()
    named = {"end_of_text": end_of_text, "vocabulary_size": vocabulary_size}
    settings = {name: value for name, value in named.items() if value is not None}
    if overrides:
        from longcrawl.formats.shards.convert import shard_settings

        given = shard_settings(overrides)
        if given["writing"]:
            raise LongCrawlError("verify only reads: give --set reading.NAME=VALUE, such as reading.token_size=4")
        settings |= given["reading"]
    if quick and not (settings or shard_format or is_url(path)):
        from longcrawl.publish.sizes import verify_sizes

        verification = verify_sizes(Path(path))
    else:
        verification = lc.verify(path, shard_format, check="sizes" if quick else "contents", **settings)
    answer(verification)
    if verification.problems:
        raise typer.Exit(1)


@app.command(epilog="Example: longcrawl inspect quickstart --row 3, or longcrawl inspect --text page.txt")
def inspect(
    path: Annotated[
        str | None, argument("Folder of a run, or of one output of it.", "PATH", show_default=False)
    ] = None,
    split: Annotated[str | None, option("Split to show, such as heldout; default: train.")] = None,
    row: Annotated[int | None, option("Row to show as text, counted from 0; default: 0.")] = None,
    text: Annotated[str | None, file_option("Explain this UTF-8 text file; - for standard input.")] = None,
    stage: Annotated[
        list[str] | None, option("With --text: explain with this stage. Repeatable.", metavar="NAME")
    ] = None,
    recipe: Annotated[
        str | None, option("With --text: explain with the stages of this recipe.", metavar="RECIPE")
    ] = None,
    language: Annotated[str | None, option("With --text: language of the text, such as de; default: en.")] = None,
    html: Annotated[
        str | None,
        file_option("Explain this HTML page as --text does, and show its kept (+) and removed (-) blocks."),
    ] = None,
) -> None:
    """Show what a run wrote, or explain a text.

    PATH shows lengths, sites, languages and one row as text. --text shows the value that each quality rule measures;
    without --stage and --recipe, the rules are those of Gopher, FineWeb, RefinedWeb and C4. --html also shows the
    probability that each block is content; without --recipe, the engine of extract_text is blocks.
    """
    explained = text if html is None else html
    if explained is not None and path is None and split is None and row is None and (text is None or html is None):
        stages, given = _stages_of(stage or (), recipe, extract=html is not None), _read_text(explained)
        page: dict[str, Any] = {} if html is None else {"html": given}
        answer(lc.text.explain("" if page else given, stages, language or "en", **page), blocks=bool(page))
    elif path is not None and explained is None and not (stage or recipe or language):
        if split is not None or row is not None:
            answer(lc.inspect(path, split or "train", row or 0))
            return
        from longcrawl.publish import questions

        found, analysis, counted = questions.overview(path)
        tables = filter(None, map(str, (analysis, *counted)))
        answer("\n\n".join([str(found), *tables]), {"inspection": found, "analysis": analysis, "counted": counted})
    else:
        raise LongCrawlError(
            "inspect takes the PATH of a run or rectangle, with --split and --row for one row, or a text: "
            "longcrawl inspect --text FILE or --html FILE, with --stage, --recipe or --language"
        )


def _stages_of(names: Sequence[str], recipe: str | None, *, extract: bool) -> list[Any]:
    if names and recipe is not None:
        raise StageError("inspect takes stages or a recipe, not both: remove --stage or --recipe")
    if recipe is not None:
        return [stage for _, stage in lc.load_recipe(recipe).stages]
    from longcrawl.core.stages import STAGES

    chosen = [name for name in names or USUAL if name != "extract_text" or not extract]
    first = [STAGES.make("extract_text", {"engine": "blocks"})] if extract else []
    return [*first, *(STAGES.make(name, {}) for name in chosen)]


def _read_text(file: str) -> str:
    name = "standard input" if file == "-" else file
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = content.decode()
    except OSError as wrong:
        raise SourceError(f"{name} cannot be read ({wrong.strerror}); give the path of a text file, or -") from wrong
    except UnicodeDecodeError as wrong:
        raise SourceError(
            f"{name} is not UTF-8: byte {wrong.start:,} is 0x{content[wrong.start]:02x}; "
            "write it again with iconv -f OTHER -t UTF-8"
        ) from wrong
    if not text:
        raise SourceError(f"{name} is empty: choose a file with text in it")
    return text


@app.command(epilog="Example: longcrawl trace quickstart --step 7 --row 0 --set batch_size=2 --set context_length=512")
def trace(
    path: Annotated[
        str, argument("What a trainer reads: a run, one output of it, token shards or JSON lines.", "DATA")
    ],
    step: Annotated[int, option("Step of the training, counted from 0.", min=0)],
    row: Annotated[int | None, option("Row of the batch; default: all rows.", min=0)] = None,
    feed: Annotated[
        str, option("The trainer's feed: rectangle, windows, packed, buckets, jsonl; auto chooses by the format.")
    ] = "auto",
    tokenizer: Annotated[
        str | None, option("Tokenizer that decodes tokens, if none is stored beside them: a file or a Hub id.")
    ] = None,
    overrides: Annotated[
        list[str] | None, set_option("Field of the feed as the trainer set it, such as batch_size=8 or rank=3.")
    ] = None,
) -> None:
    """Show the documents of a training step.

    Each row is shown with ids, URLs, dates, source files, places in the documents, and the text.
    """
    from longcrawl.publish.trace import feed_settings
    from longcrawl.sources.text import without_set

    settings = feed_settings(overrides or ())
    with without_set():
        answer(lc.trace(path, step, row, feed=feed, tokenizer=tokenizer, **settings))  # type: ignore[arg-type]  # checked there


@app.command(epilog="Example: longcrawl compose texts.jsonl --tokenizer gpt2 --capacities 2048,8192")
def compose(
    path: Annotated[
        str, argument("A run or one output of it, token shards, or documents: a file, a folder or a glob.", "PATH")
    ],
    capacities: Annotated[str, option("Lengths of training samples in tokens, ascending.")] = "2048,4096,8192,16384",
    padding_threshold: Annotated[float, option("Share of a bucketed sample that may be padding, 0 to 1.")] = 0.05,
    tokenizer: Annotated[
        str | None, option("Tokenizer that counts the tokens of texts: a file or a Hub id. Not needed with n_tokens.")
    ] = None,
    text_field: Annotated[str, option("With --tokenizer: field that holds the text.")] = "text",
    end_of_text: Annotated[
        int | None, option("Token id that ends each document, in files that do not record it.")
    ] = None,
    terminate: Annotated[
        str, option("Count an end-of-text token for documents: missing (only where absent), always, never.")
    ] = "missing",
    plot: Annotated[Path | None, file_option("Also draw it, to a .png, .svg or .pdf file.")] = None,
    overrides: Annotated[
        list[str] | None,
        set_option("Also compare a strategy with this field of the output composed, such as strategy=interleaved."),
    ] = None,
) -> None:
    """Compare packing strategies on your documents.

    A strategy packs documents into training samples. The table shows how much each pads, truncates and concatenates.
    """
    try:
        sizes = [int(each) for each in capacities.split(",")]
    except ValueError:
        raise LongCrawlError(
            f"--capacities takes whole numbers, got {capacities!r}: write --capacities 2048,4096,8192,16384"
        ) from None
    # The word is checked by the function: what is typed is plain text here.
    settings: dict[str, Any] = {"tokenizer": tokenizer, "text_field": text_field, "terminate": terminate}
    from longcrawl.publish.compose import chosen_strategies
    from longcrawl.sources.text import without_set

    strategies = chosen_strategies(overrides or (), sizes, padding_threshold)
    with without_set():
        comparison = lc.compose(path, strategies=strategies, end_of_text=end_of_text, **settings)
    answer(repr(comparison), {"strategies": comparison.rows, "terminated": comparison.terminated})
    if plot is not None:
        try:
            comparison.plot().savefig(plot)
        except (ValueError, OSError) as wrong:
            reason = getattr(wrong, "strerror", None) or wrong
            raise LongCrawlError(f"{plot} cannot be drawn ({reason}): name a .png, .svg or .pdf") from wrong


@app.command(epilog="Example: longcrawl validate tokenized/gpt-simple --curriculum phases.yaml --max-length 2048")
def validate(
    path: Annotated[Path, argument("Folder of token shards, with a folder per split.", "PATH")],
    curriculum: Annotated[
        Path | None, file_option("YAML file: a list of phases, or GPT-Simple's configuration.")
    ] = None,
    max_length: Annotated[
        int | None,
        option("Tokens per training sample; default: the configuration's, or 2048.", "--max-length", "--max_length"),
    ] = None,
    on_exhausted: Annotated[
        Literal["error", "halt", "renormalize"] | None,
        option(
            "When a bucket has no samples left: `error`; `halt` ends training there; `renormalize` continues with "
            "the others. Default: error."
        ),
    ] = None,
    training_tokens: Annotated[
        int | None, option("Tokens of the training, to compare with the sum of the phases.", min=1)
    ] = None,
    mix_by: Annotated[
        Literal["tokens", "samples"] | None,
        option("What weights are shares of; default: tokens, or samples for a configuration without a curriculum."),
    ] = None,
    epochs: Annotated[int, option("How often a sample may be used.", min=1)] = 1,
    split: Annotated[str, option("Split to plan: a folder in PATH.")] = "train",
) -> None:
    """Check a curriculum before training.

    A curriculum is a list of phases. Each mixes buckets, which are folders of shards, by weights. Without --curriculum,
    training samples are counted. The exit code is 1 if a bucket has too few samples, or if the phases do not add up to
    --training-tokens.
    """
    from longcrawl.loading import validation

    settings: dict[str, Any] = {} if curriculum is None else validation.read_curriculum(curriculum)
    settings |= {"max_length": max_length, "training_tokens": training_tokens, "mix_by": mix_by, "epochs": epochs}
    settings |= {"split": split, **({} if on_exhausted is None else {"on_exhausted": on_exhausted})}
    report = validation.validate(path, **settings)
    facts = {name: getattr(report, name) for name in ("ok", "phases", "stock", "max_length", *_REMARKS)}
    answer(report, facts)
    if not report.ok:
        raise typer.Exit(1)


_REMARKS = ("problems", "warnings", "notes")
lists = new_app("Block lists for the URL filter.")
app.add_typer(lists, name="lists")


@lists.command(epilog="Example: longcrawl lists fetch ut1 --out blocklists")
def fetch(
    name: Annotated[str, argument("Lists to fetch: ut1 or datatrove.", "NAME")],
    out: Annotated[Path, option("New folder to write. The same command resumes a stopped download.")],
    url: Annotated[str | None, option("Another URL of the archive, or a file.")] = None,
) -> None:
    """Download block lists for the URL filter.

    Set the field `lists` of the stage url_filter to the folder. The lists have their own licences.
    """
    from longcrawl.text.refinedweb.fetch_lists import fetch_lists

    with stoppable():
        fetched = fetch_lists(name, out, url)
        answer(f"{fetched}\na run uses them with {fetched.settings(out)}", fetched)


@lists.command(epilog="Example: longcrawl lists hits refinedweb --min-documents 100")
def hits(
    folder: RunFolder,
    min_documents: Annotated[int, option("Omit domains and words that removed fewer documents.", min=1)] = 1,
) -> None:
    """Show what the URL filter of a run removed. Domains and words are listed by documents, to find false positives."""
    from longcrawl.publish.reread import run_url_hits

    answer(run_url_hits(folder, min_documents))
