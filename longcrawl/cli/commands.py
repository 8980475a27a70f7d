"""The command line: each verb is one function of the package."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from longcrawl.audit import finished, inspect_text
from longcrawl.audit.compose import compose as compare
from longcrawl.card.write import card as write_card
from longcrawl.cli.catalog import add_catalog
from longcrawl.cli.lists import lists_app
from longcrawl.errors import LongCrawlError, RunError
from longcrawl.formats.shards.convert import convert as convert_shards
from longcrawl.formats.shards.convert import shard_settings
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.hub.client import Visibility
from longcrawl.hub.push import push as push_run
from longcrawl.loading.validation import read_curriculum
from longcrawl.loading.validation import validate as validate_curriculum
from longcrawl.plan import Plan
from longcrawl.plan import plan as make_plan
from longcrawl.printable import one_line, printable, show
from longcrawl.recipe import recipes as shipped_recipes
from longcrawl.report.write import write_report
from longcrawl.run.job import run as carry_out
from longcrawl.run.tokenize_files import FORMATS as OUTPUT_SHARDS
from longcrawl.run.tokenize_files import tokenize as tokenize_files

__all__ = ["app", "main"]

app = typer.Typer(
    help="From a web crawl to long-context training data, with a reason for every removed document.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(lists_app, name="lists")
add_catalog(app)

RunFolder = Annotated[Path, typer.Argument(help="The folder of a finished run.", metavar="RUN")]
AnyPath = Annotated[
    str,
    typer.Argument(
        help="The folder or URL of a run, or of an output alone; or a token shard, or a folder of them.", metavar="PATH"
    ),
]
SHARDS = ", ".join(FORMATS.loaded())
FROM = typer.Option("--from", help="The format of token shards that do not say it.")
END_OF_TEXT = typer.Option(help="The id that separates documents of token shards.")
VOCABULARY_SIZE = typer.Option(help="Every id of token shards must be below it.")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or the path of a .yaml file.")],
    out: Annotated[
        Path, typer.Option("--out", help="Where the run is written; the same command goes on with a stopped run.")
    ],
    num_proc: Annotated[int, typer.Option("--num-proc", min=1, help="Processes; the bytes do not depend on it.")] = 1,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="PATH=VALUE, such as source.data_dir=release; repeat as needed.")
    ] = None,
    planned: Annotated[
        Path | None, typer.Option("--plan", help="What longcrawl plan --save wrote; the run compares.")
    ] = None,
) -> None:
    """Carry out a recipe: read, filter, tokenise, write, with a card and a ledger."""
    with _stoppable():
        show(carry_out(recipe, out, num_proc, overrides or (), Plan.load(planned) if planned else None))


@app.command()
def plan(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or the path of a .yaml file.")],
    parts: Annotated[int, typer.Option(help="How many parts of the source to read; more where they are small.")] = 8,
    documents: Annotated[int, typer.Option(help="How many documents to draw from them.")] = 4000,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Write it as JSON, too, for longcrawl run --plan.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="PATH=VALUE, such as source.data_dir=release; repeat as needed.")
    ] = None,
) -> None:
    """Describe what a run would come to: documents, tokens, bytes, hours and disk of every stage, from a sample."""
    if save is not None and save.is_dir():
        raise RunError(f"{save} is a folder: name a file, such as {save / 'plan.json'}")
    with _stoppable():
        made = make_plan(recipe, parts=parts, documents=documents, seed=seed, overrides=overrides or ())
    show(made)
    if save is not None:
        made.save(save)


@app.command()
def tokenize(
    source: Annotated[
        str | None,
        typer.Argument(help="A folder, file, URL or glob of documents.", metavar="INPUT", show_default=False),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "--output_dir", help="Where the run is written.", show_default=False)
    ] = None,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", "--tokenizer_path", help="A file, a Hub id, or trained.")
    ] = "gpt2",
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", "--max_length", help="Tokens of a window; whole documents if left out."),
    ] = None,
    overlap_size: Annotated[
        int, typer.Option("--overlap-size", "--overlap_size", help="Tokens that windows share, at most half of it.")
    ] = 0,
    num_proc: Annotated[
        int, typer.Option("--num-proc", "--num_workers", min=1, help="Processes; the bytes do not depend on it.")
    ] = 1,
    to: Annotated[str, typer.Option("--format", help=f"{', '.join(OUTPUT_SHARDS)}.")] = "gpt-simple",
    builder: Annotated[str, typer.Option("--source", help="What reads INPUT, such as text or warc.")] = "text",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="PATH=VALUE, such as outputs.gpt-simple.heldout=0.01; repeat.")
    ] = None,
    input_dir: Annotated[str | None, typer.Option("--input-dir", "--input_dir", help="The same as INPUT.")] = None,
) -> None:
    """Turn text into token shards; the same command goes on with one that was stopped."""
    if (source is None) == (input_dir is None) or output_dir is None:
        raise LongCrawlError("tokenize takes one INPUT and --output-dir: longcrawl tokenize raw --output-dir shards")
    with _stoppable():
        show(
            tokenize_files(
                source or input_dir or "",
                output_dir,
                tokenizer,
                max_length=max_length,
                overlap_size=overlap_size,
                num_proc=num_proc,
                format=to,
                builder=builder,
                overrides=overrides or (),
            )
        )


@app.command()
def recipes() -> None:
    """List the shipped recipes."""
    known = shipped_recipes()
    width = max(map(len, known))
    for name, about in known.items():
        show(f"{name:<{width}}  {about}")


@app.command()
def funnel(
    folder: RunFolder,
    *,
    rates: Annotated[
        bool, typer.Option("--rates", help="Percent of the start and of the stage before, of documents and characters.")
    ] = False,
) -> None:
    """Show how many documents each stage kept, for a run."""
    show(finished.removal_rates(folder) if rates else finished.funnel(folder))


@app.command()
def why(folder: RunFolder, document: Annotated[str, typer.Argument(help="A document's id.", metavar="ID")]) -> None:
    """Describe why a document was removed from a run, or that it was kept."""
    show(finished.why(folder, document))


@app.command()
def clusters(
    folder: RunFolder,
    stage: Annotated[str | None, typer.Option(help="Only documents removed at this stage.")] = None,
    most: Annotated[int, typer.Option(min=1, help="How many clusters to show.")] = 10,
) -> None:
    """Show the largest clusters of duplicates of a run, and how two documents of each differ."""
    show(finished.clusters(folder, stage, most))


@app.command()
def report(
    folder: RunFolder,
    out: Annotated[Path | None, typer.Option("--out", help="The file; report.html in RUN if left out.")] = None,
    per_rule: Annotated[int, typer.Option(min=1, help="How many removed documents to show for each rule.")] = 5,
    most: Annotated[int, typer.Option(min=1, help="How many removed documents to show altogether.")] = 200,
    clusters: Annotated[int, typer.Option(min=1, help="How many clusters of duplicates to show.")] = 20,
) -> None:
    """Write a run as one HTML page: funnel, reasons, removed texts with marks, clusters with differences."""
    show(write_report(folder, out, per_rule, most, clusters))


@app.command()
def verify(
    path: AnyPath,
    shard_format: Annotated[str | None, FROM] = None,
    end_of_text: Annotated[int | None, END_OF_TEXT] = None,
    vocabulary_size: Annotated[int | None, VOCABULARY_SIZE] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="reading.NAME=VALUE, such as reading.token_size=4; repeat.")
    ] = None,
) -> None:
    """Check every file by its checksum; of the original LongCrawl64 layout and of token shards all that is in them."""
    given = shard_settings(overrides or ())
    if given["writing"]:
        raise LongCrawlError("verify writes nothing: give --set reading.NAME=VALUE, such as reading.token_size=4")
    named = {"end_of_text": end_of_text, "vocabulary_size": vocabulary_size}
    settings = {name: value for name, value in named.items() if value is not None} | given["reading"]
    verification = finished.verify(path, shard_format, **settings)
    show(verification)
    if verification.problems:
        raise typer.Exit(1)


@app.command()
def card(
    folder: RunFolder,
    *,
    plots: Annotated[bool, typer.Option("--plots", help="Draw pictures beside it, too; matplotlib does it.")] = False,
) -> None:
    """Write the card of a run again, and keep what you have changed in it."""
    show(write_card(folder, plots=plots))


@app.command()
def push(
    folder: RunFolder,
    repo: Annotated[str, typer.Argument(help="A dataset on the Hub: user/name.", metavar="REPO")],
    *,
    private: Annotated[bool | None, typer.Option("--private/--public", help="Who may see it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent, and send nothing.")] = False,
    instead_of: Annotated[
        str | None,
        typer.Option(help="Replace a stopped push of this tag, or a README.md edited there.", metavar="NAME"),
    ] = None,
) -> None:
    """Send a run to the Hugging Face Hub; the same command goes on with a push that was stopped."""
    if private is None:
        raise LongCrawlError(f"who may see {repo}? type --private or --public behind it")
    with _stoppable():
        visibility: Visibility = "private" if private else "public"
        show(push_run(folder, repo, visibility, dry_run=dry_run, instead_of=instead_of))


@app.command()
def validate(
    path: Annotated[Path, typer.Argument(help="The folder of the shards, with its splits.", metavar="PATH")],
    curriculum: Annotated[
        Path | None, typer.Option(help="YAML: a list of phases, or GPT-Simple's configuration.", metavar="FILE")
    ] = None,
    max_length: Annotated[int, typer.Option("--max-length", "--max_length", help="Tokens of a sample.")] = 2048,
    on_exhausted: Annotated[
        str | None, typer.Option(help="Of a bucket that runs dry: error, halt or renormalize.")
    ] = None,
    training_tokens: Annotated[
        int | None, typer.Option(help="What the training takes, to compare with the budgets of the phases.")
    ] = None,
    mix_by: Annotated[str, typer.Option(help="Weights are shares of tokens, or of samples.")] = "tokens",
    epochs: Annotated[int, typer.Option(min=1, help="How often each sample may be delivered.")] = 1,
    split: Annotated[str, typer.Option(help="The folder of the buckets in PATH.")] = "train",
) -> None:
    """Plan a curriculum and say what it comes to; exit code 1 where a bucket runs dry, or a budget does not fit."""
    settings: dict[str, Any] = {} if curriculum is None else read_curriculum(curriculum)
    settings |= {"max_length": max_length, "training_tokens": training_tokens, "mix_by": mix_by, "epochs": epochs}
    settings |= {"split": split, **({} if on_exhausted is None else {"on_exhausted": on_exhausted})}
    report = validate_curriculum(path, **settings)
    show(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def inspect(
    path: Annotated[
        str | None,
        typer.Argument(help="The folder of a run, or of an output alone.", metavar="PATH", show_default=False),
    ] = None,
    split: Annotated[str | None, typer.Option(help="train or heldout; train if left out.")] = None,
    row: Annotated[int | None, typer.Option(help="The row to decode; the first if left out.")] = None,
    text: Annotated[str | None, typer.Option(help="A text file, - for standard input.", metavar="FILE")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="With --text: a stage's name; repeat as needed.")] = None,
    recipe: Annotated[str | None, typer.Option(help="With --text: the stages of this recipe.")] = None,
    language: Annotated[str | None, typer.Option(help="With --text: its language; English if left out.")] = None,
) -> None:
    """Show what a run wrote: lengths, sites, languages, a row as text; or, with --text, what every rule says of one."""
    if text is not None and path is None and split is None and row is None:
        show(inspect_text.inspect_text(text, stage or (), recipe, language or "en"))
    elif path is not None and text is None and not (stage or recipe or language):
        show(finished.inspect(path, split or "train", row or 0))
        if split is None and row is None:
            tables = [str(finished.analysis(path)), *map(str, finished.counted(path))]
            show("".join(f"\n{table}\n" for table in tables if table), end="")
    else:
        raise LongCrawlError(
            "inspect takes the PATH of a run or rectangle, with --split and --row for one row, or a text: "
            "longcrawl inspect --text FILE, with --stage, --recipe or --language"
        )


@app.command()
def compose(
    path: Annotated[
        str, typer.Argument(help="A run or its output, token shards, a file, a folder or a glob.", metavar="PATH")
    ],
    capacities: Annotated[str, typer.Option(help="Lengths of samples in tokens, ascending.")] = "2048,4096,8192,16384",
    padding_threshold: Annotated[
        float, typer.Option(help="The share of a sample that buckets may pad, 0 to 1.")
    ] = 0.05,
    tokenizer: Annotated[
        str | None, typer.Option(help="Counts the tokens of texts: a file or a Hub id. Not needed with n_tokens.")
    ] = None,
    text_field: Annotated[str, typer.Option(help="With --tokenizer: the field of the text.")] = "text",
    end_of_text: Annotated[
        int | None, typer.Option(help="The id that ends documents: separates them in flat files, found in lists.")
    ] = None,
    terminate: Annotated[
        str, typer.Option(help="Count an end-of-text token where it is missing, always or never.")
    ] = "missing",
    plot: Annotated[Path | None, typer.Option(help="Draw it, too: a .png, .svg or .pdf.", metavar="FILE")] = None,
) -> None:
    """Show what each way of composing training samples would pad, cut and mix of your documents."""
    try:
        sizes = [int(each) for each in capacities.split(",")]
    except ValueError:
        raise LongCrawlError(
            f"--capacities takes whole numbers, got {capacities!r}: write --capacities 2048,4096,8192,16384"
        ) from None
    # The word is checked by the function: what is typed is plain text here.
    settings: dict[str, Any] = {"tokenizer": tokenizer, "text_field": text_field, "terminate": terminate}
    comparison = compare(path, sizes, padding_threshold=padding_threshold, end_of_text=end_of_text, **settings)
    show(repr(comparison))
    if plot is not None:
        try:
            comparison.plot().savefig(plot)
        except (ValueError, OSError) as wrong:
            raise LongCrawlError(f"{plot} cannot be drawn ({wrong}): name a .png, .svg or .pdf") from wrong


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A token shard, or a folder of them.", metavar="FROM")],
    target: Annotated[Path, typer.Argument(help="The shard, or folder, to write.", metavar="TO")],
    to: Annotated[str | None, typer.Option(help=f"The format of TO, if its ending does not say it: {SHARDS}.")] = None,
    source_format: Annotated[str | None, FROM] = None,
    on_loss: Annotated[str, typer.Option(help="error or warn: what to do about what TO cannot hold.")] = "error",
    end_of_text: Annotated[int | None, END_OF_TEXT] = None,
    terminate: Annotated[str, typer.Option(help="Add it to documents: never, missing or always.")] = "never",
    vocabulary_size: Annotated[int | None, VOCABULARY_SIZE] = None,
    dtype: Annotated[str, typer.Option(help="What a token is stored as: auto, uint16 or uint32.")] = "auto",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="reading.NAME=VALUE or writing.NAME=VALUE, such as writing.header=llm.c; repeat."),
    ] = None,
) -> None:
    """Convert token shards from any format to any other, and name what is lost."""
    # Words are checked by the function: what is typed is plain text here.
    settings: dict[str, Any] = {"on_loss": on_loss, "terminate": terminate, "dtype": dtype, "end_of_text": end_of_text}
    settings |= {"source_format": source_format, "vocabulary_size": vocabulary_size, **shard_settings(overrides or ())}
    show(convert_shards(source, target, to, **settings))


@contextmanager
def _stoppable() -> Iterator[None]:
    """Report that what was stopped by hand goes on from there."""
    try:
        yield
    except KeyboardInterrupt:
        show("stopped; the same command goes on from here", error=True)
        raise typer.Exit(130) from None


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as a sentence; whoever types commands has no line of code that it could point at."""
    if category is UserWarning:
        return f"warning: {one_line(message)}\n"
    return printable(_WARNING_OF_PYTHON(message, category, filename, lineno, line))


_WARNING_OF_PYTHON = warnings.formatwarning


def main() -> None:
    """Run the command line; an error of longcrawl's own is one sentence and exit code 1."""
    warnings.formatwarning = _warning
    try:
        sys.exit(app(standalone_mode=False))
    except TyperException as misspelled:
        misspelled.message = one_line(misspelled.message)
        misspelled.show()  # type: ignore[attr-defined]  # a command line raises only those of click, which have it
        sys.exit(misspelled.exit_code)
    except LongCrawlError as wrong:
        show(f"{type(wrong).__name__}: {wrong}", error=True)
        for note in getattr(wrong, "__notes__", ()):
            show(note, error=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
