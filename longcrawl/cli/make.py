"""Commands that write: runs, plans, shards, cards, reports, patterns and classifiers."""

from pathlib import Path
from typing import Annotated, Any, Literal

import longcrawl as lc
from longcrawl.cli.commands import (
    NUM_PROC,
    EndOfText,
    NumProc,
    RunFolder,
    ShardsFrom,
    VocabularySize,
    answer,
    app,
    argument,
    file_option,
    option,
    set_option,
    stoppable,
)
from longcrawl.core.kinds import EngineName
from longcrawl.errors import LongCrawlError, RunError, StageError

TextField = Annotated[str, option("Field that holds the text, if the documents are not a crawl.", metavar="NAME")]


@app.command(epilog="Example: longcrawl lines texts.jsonl --out lines.yaml")
def lines(
    crawl: Annotated[str, argument("Documents: a file, a folder, a glob, a URL or a dataset of the Hub.", "CRAWL")],
    out: Annotated[
        Path | None, file_option("Also write them to a new YAML file, for line_corrections.patterns.")
    ] = None,
    min_documents: Annotated[
        int | None, option("Omit lines found in fewer documents; default: 3 or a thousandth.", min=1)
    ] = None,
    documents: Annotated[int, option("Number of documents to read, from the first.", min=1)] = 100_000,
    language: Annotated[str, option("With --out: language of the documents.")] = "en",
    text_field: TextField = "text",
) -> None:
    """Propose patterns of lines to remove.

    These are short lines that many documents share. Pages and PDFs are extracted first. Read the patterns before a
    run uses them.
    """
    from longcrawl.sources.text import without_set
    from longcrawl.text.refinedweb.line_corrections import check_new_patterns

    if out is not None:
        check_new_patterns(out)
    with without_set():
        found = lc.text.propose_lines(_open_texts(crawl, text_field).data.take(documents), min_documents=min_documents)
    if not found.documents:
        raise StageError(f"{crawl} has no documents to propose lines from: choose others")
    answer(found)
    if out is not None:
        found.save(out, language)


@app.command("train-classifier", epilog="Example: longcrawl train-classifier good/ bad/ --out quality.bin")
def train_classifier(
    good: Annotated[str, argument("Documents labelled `good`, given as for `longcrawl lines`.", "GOOD")],
    bad: Annotated[str, argument("Documents labelled `bad`.", "BAD")],
    out: Annotated[Path, file_option("File to write, such as quality.bin.")],
    word_ngrams: Annotated[int, option("Number of words in the longest n-grams.")] = 2,
    dimensions: Annotated[int, option("Dimensions of word vectors.")] = 16,
    epochs: Annotated[int | None, option("Passes over the texts; default: 5 or more.")] = None,
    held_out: Annotated[float, option("Share of each label held out to measure the model.")] = 0.1,
    seed: Annotated[int, option("Seed of order, first rows and held-out share.")] = 0,
    text_field: TextField = "text",
) -> None:
    """Train a fastText classifier of documents.

    It learns to tell two sets of documents apart, for the stage fast_text_classifier. Precision and recall are
    measured on documents held out from training.
    """
    from longcrawl.sources.text import without_set

    settings: dict[str, Any] = {"word_ngrams": word_ngrams, "dimensions": dimensions, "epochs": epochs, "seed": seed}
    with without_set():
        sides = _open_texts(good, text_field), _open_texts(bad, text_field)
        answer(lc.text.train_classifier(*sides, out, held_out=held_out, **settings))


def _open_texts(name: str, text_field: str) -> "lc.Crawl":
    opened = lc.open(name, streaming=True, **({} if text_field == "text" else {"text_field": text_field}))
    features = opened.data.features or {}
    opened = opened | lc.text.ExtractPdf() if "binary" in getattr(features.get("content"), "dtype", "") else opened
    return opened | lc.text.ExtractText() if "html" in features else opened


RecipeName = Annotated[str, argument("A shipped recipe, as `longcrawl recipes` lists them, or a .yaml file.", "RECIPE")]
Overrides = Annotated[list[str] | None, set_option("Set a field of the recipe, such as source.data_dir=release.")]


@app.command(epilog="Example: longcrawl run quickstart --out quickstart")
def run(
    recipe: RecipeName,
    out: Annotated[
        Path, option("Folder to write, which may be on s3://, gs:// or hf://buckets/. The same command resumes a run.")
    ],
    num_proc: NumProc = 1,
    engine: Annotated[
        EngineName, option("How to run: on this machine, on several that share the folder, or on Apache Spark.")
    ] = "local",
    master: Annotated[
        str | None, option("Spark master, such as spark://host:7077; the default is Spark's own.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    planned: Annotated[
        Path | None, file_option("File from `longcrawl plan --save` to compare the run with.", "--plan")
    ] = None,
    *,
    dry_run: Annotated[
        bool, option("Check the recipe, inputs and folder; read no documents, write nothing.", "--dry-run")
    ] = False,
) -> None:
    """Run a recipe, from documents to a dataset.

    It reads, filters, deduplicates and tokenises documents, and writes them with a dataset card and a ledger: the list
    of removed documents, each with the rule that removed it.
    """
    if master is not None and engine != "spark":
        raise RunError(f"--master {master} needs the Spark engine: add --engine spark")
    if dry_run:
        answer(lc.preview_run(recipe, out, overrides or (), lc.Plan.load(planned) if planned else None))
        return
    engines: dict[str, Any] = {"local": None, "shared": lc.engines.Shared(), "spark": lc.engines.Spark(master=master)}
    with stoppable():
        estimate = lc.Plan.load(planned) if planned else None
        answer(lc.run(recipe, out, num_proc, overrides or (), estimate, engines[engine]))


@app.command(epilog="Example: longcrawl init texts/ --out mine.yaml")
def init(
    name: Annotated[str, argument("Documents: a folder, file, URL or glob, or a dataset of the Hub.", "INPUT")],
    out: Annotated[Path, file_option("Recipe to write.")] = Path("recipe.yaml"),
    text_field: Annotated[str | None, option("Field that holds the text; default: found by its usual names.")] = None,
    file_format: Annotated[
        str | None, option("Format of the files, such as text, regardless of their names.", "--format")
    ] = None,
    encoding: Annotated[
        str | None, option("Encoding of the files, such as latin-1, or detect; default: UTF-8.")
    ] = None,
) -> None:
    """Write a first recipe for your documents, with comments."""
    from longcrawl.run.first_recipe import write_first_recipe

    answer(write_first_recipe(name, out, text_field, file_format, encoding))


@app.command(epilog="Example: longcrawl plan longcrawl64 --set source.data_dir=release --save plan.json")
def plan(
    recipe: RecipeName,
    parts: Annotated[
        int | None,
        option("Number of parts of the source to sample, files or sections of large ones; more if they are small."),
    ] = None,
    documents: Annotated[
        int | None,
        option("Number of documents to sample. Without both, samples grow until a tenth of the run's cost is spent."),
    ] = None,
    seed: Annotated[int, option("Seed of the sample.")] = 0,
    save: Annotated[Path | None, file_option("Also write the estimate as JSON, for `longcrawl run --plan`.")] = None,
    files: Annotated[int | None, option("With --cores: number of input files in the whole run, such as 90000.")] = None,
    cores: Annotated[
        int | None, option("Estimate core-hours, wall hours, shuffled bytes and memory on this many cores.")
    ] = None,
    engine: Annotated[EngineName | None, option("With --cores: engine of the run; shared by default.")] = None,
    overrides: Overrides = None,
) -> None:
    """Estimate a run from a sample.

    The estimate gives documents, tokens, bytes, hours and disk space of every stage; with --cores, for a cluster.
    """
    if save is not None:
        from longcrawl.run.plan.estimates import check_place

        check_place(save)
    if files is not None and cores is None:
        raise RunError("--files is for cluster estimates: add --cores, such as --cores 4096")
    if engine is not None and cores is None:
        raise RunError(f"--engine {engine} is for cluster estimates: add --cores, such as --cores 64")
    if save is not None and cores is not None:
        raise RunError("--save cannot be combined with a cluster estimate: remove it")
    sampled = {"parts": parts, "documents": documents}
    settings: dict[str, Any] = {"seed": seed, "overrides": overrides or ()}
    settings |= {name: number for name, number in sampled.items() if number is not None}
    with stoppable():
        if cores is not None:
            answer(lc.plan_cluster(recipe, files=files, cores=cores, engine=engine or "shared", **settings))
            return
        made = lc.plan(recipe, **settings)
    answer(made)
    if save is not None:
        made.save(save)


def _also_snake(name: str, about: str, snake: str = "", **settings: Any) -> Any:
    """Return an option that is also spelled as in GPT-Simple, with underscores."""
    return option(about, name, snake or f"--{name[2:].replace('-', '_')}", **settings)


@app.command(epilog="Example: longcrawl tokenize texts.jsonl --tokenizer gpt2 --max-length 2048 --output-dir tokenized")
def tokenize(
    source: Annotated[
        str | None,
        argument("Documents: a folder, file, URL or glob, or a dataset of the Hub.", "INPUT", show_default=False),
    ] = None,
    output_dir: Annotated[Path | None, _also_snake("--output-dir", "Folder to write.", show_default=False)] = None,
    tokenizer: Annotated[
        str,
        _also_snake(
            "--tokenizer",
            "A tokenizer file or folder, a Hub id, or `trained` to train a byte-level BPE on the input.",
            "--tokenizer_path",
        ),
    ] = "gpt2",
    max_length: Annotated[
        int | None, _also_snake("--max-length", "Cut documents into windows of this many tokens; default: do not cut.")
    ] = None,
    overlap_size: Annotated[int, _also_snake("--overlap-size", "Tokens that two windows share; at most half.")] = 0,
    overlap_probability: Annotated[
        float | None, _also_snake("--overlap-probability", "Share of documents that overlap; default: 1.")
    ] = None,
    min_text_length: Annotated[int, _also_snake("--min-text-length", "Drop documents with fewer characters.")] = 0,
    num_proc: Annotated[int, _also_snake("--num-proc", NUM_PROC, "--num_workers", min=1)] = 1,
    to: Annotated[
        str,
        option(
            "Format to write: gpt-simple, datatrove, megatron, nanogpt, olmo-core, levanter, mds or litdata.",
            "--format",
        ),
    ] = "gpt-simple",
    builder: Annotated[
        str | None, option("Source that reads INPUT; default: guessed from file names.", "--source")
    ] = None,
    overrides: Annotated[list[str] | None, set_option("Set a field, such as outputs.gpt-simple.heldout=0.01.")] = None,
    input_dir: Annotated[str | None, _also_snake("--input-dir", "The same as INPUT.")] = None,
    *,
    probabilistic_overlap: Annotated[
        bool, _also_snake("--probabilistic-overlap", "Same as --overlap-probability 0.7.")
    ] = False,
) -> None:
    """Tokenise documents into token shards.

    Shards are binary files of token ids that trainers read. The same command resumes a stopped one.
    """
    if (source is None) == (input_dir is None) or output_dir is None:
        raise LongCrawlError(
            "tokenize needs one INPUT and --output-dir, such as longcrawl tokenize raw --output-dir shards"
        )
    share = 0.7 if probabilistic_overlap else 1.0  # as GPT-Simple has it
    settings: dict[str, Any] = {"max_length": max_length, "min_text_length": min_text_length, "num_proc": num_proc}
    settings |= {"overlap_size": overlap_size, "format": to, "builder": builder, "overrides": overrides or ()}
    settings["overlap_probability"] = share if overlap_probability is None else overlap_probability
    with stoppable():
        answer(lc.tokenize(source or input_dir or "", output_dir, tokenizer, **settings))


@app.command(epilog="Example: longcrawl convert shards/a.ds shards/a.bin --to megatron")
def convert(
    source: Annotated[Path, argument("A token shard, or a folder of them.", "FROM")],
    target: Annotated[Path, argument("The shard or folder to write.", "TO")],
    to: Annotated[str | None, option("Format of TO, if its suffix is ambiguous, such as megatron.")] = None,
    source_format: ShardsFrom = None,
    on_loss: Annotated[
        str, option("If the format of TO cannot hold all that FROM has: `error` stops, `warn` continues.")
    ] = "error",
    end_of_text: EndOfText = None,
    terminate: Annotated[
        str, option("Append the end-of-text token to documents: never, missing (only where absent) or always.")
    ] = "never",
    vocabulary_size: VocabularySize = None,
    dtype: Annotated[str, option("Type of stored token ids: auto, uint16 or uint32.")] = "auto",
    overrides: Annotated[
        list[str] | None, set_option("Setting of the format, such as reading.token_size=4 or writing.header=llm.c.")
    ] = None,
) -> None:
    """Convert token shards, and list what is lost."""
    from longcrawl.formats.shards.convert import shard_settings

    # Words are checked by the function: what is typed is plain text here.
    settings: dict[str, Any] = {"on_loss": on_loss, "terminate": terminate, "dtype": dtype, "end_of_text": end_of_text}
    settings |= {"source_format": source_format, "vocabulary_size": vocabulary_size, **shard_settings(overrides or ())}
    answer(lc.convert(source, target, to, **settings))


@app.command(epilog="Example: longcrawl warm")
def warm(
    num_proc: Annotated[int | None, option("Number of processes; default: one per core.", min=1)] = None,
) -> None:
    """Compile kernels ahead of time, once per machine. Otherwise each is compiled when it is first needed."""
    from longcrawl.cli.warm import compile_kernels

    made = compile_kernels(num_proc)
    answer("{kernels:,} kernels compiled in {seconds} s, by {processes} processes".format(**made), made)


@app.command(epilog="Example: longcrawl card quickstart --plots")
def card(
    folder: RunFolder,
    *,
    plots: Annotated[bool, option("Also draw plots. Needs matplotlib.", "--plots")] = False,
) -> None:
    """Rewrite the dataset card (README.md) of a run. Your edits are kept."""
    answer(lc.card(folder, plots=plots))


@app.command(epilog="Example: longcrawl report quickstart --out report.html")
def report(
    folder: RunFolder,
    out: Annotated[Path | None, file_option("File to write; default: RUN/report.html.")] = None,
    per_rule: Annotated[int, option("Number of removed documents to show for each rule.", min=1)] = 5,
    most: Annotated[int, option("Number of removed documents to show in all.", min=1)] = 200,
    clusters: Annotated[int, option("Number of clusters of duplicates to show.", min=1)] = 20,
) -> None:
    """Write a report of a run as one HTML page, with the funnel, removed texts, and how duplicates differ."""
    path = lc.write_report(folder, out, per_rule, most, clusters)
    answer(path, {"path": path})


@app.command(epilog="Example: longcrawl tables quickstart")
def tables(
    folder: RunFolder,
    kind: Annotated[
        str, argument("`tokens`; `text`, with the text of each row; `none`, which removes them.")
    ] = "tokens",
    *,
    num_proc: Annotated[int, option("Number of processes.", min=1)] = 1,
) -> None:
    """Write the tokens of a run as parquet tables."""
    words: dict[str, Any] = {"tables": kind, "num_proc": num_proc}
    with stoppable():
        lc.write_tables(folder, **words)
    answer(f"{folder} has tables of: {kind}", {"run": folder, "tables": kind})


@app.command(epilog="Example: longcrawl push quickstart me/quickstart --private")
def push(
    folder: Annotated[Path, argument("The folder of a finished run.", "RUN")],
    repo: Annotated[str, argument("Dataset on the Hub, as user/name.", "REPO")],
    *,
    private: Annotated[bool | None, option("Who can see the dataset. Required.", "--private/--public")] = None,
    dry_run: Annotated[bool, option("List what would be sent; send nothing.", "--dry-run")] = False,
    instead_of: Annotated[
        str | None,
        option(
            "What may be replaced on the Hub: the tag of a stopped push, or README.md if edited there.", metavar="NAME"
        ),
    ] = None,
    tables: Annotated[
        str,
        option(
            "`tokens` first writes tables of tokens, which plain datasets can load, into RUN; `text` with the text "
            "of each row; `none` writes none, and removes those that are there."
        ),
    ] = "tokens",
    num_proc: Annotated[int, option("Number of processes that write tables.", min=1)] = 1,
) -> None:
    """Push a run to the Hugging Face Hub. The same command resumes a stopped push."""
    if private is None:
        raise LongCrawlError(f"choose who may see {repo}: add --private or --public")
    with stoppable():
        visibility: Literal["private", "public"] = "private" if private else "public"
        words: dict[str, Any] = {"tables": tables}  # checked by the function
        answer(lc.push(folder, repo, visibility, dry_run=dry_run, instead_of=instead_of, num_proc=num_proc, **words))


@app.command(epilog="Example: longcrawl fetch longcrawl64 --repo ORG/NAME --rows 2048 --context 16384 --out rows")
def fetch(
    name: Annotated[str, argument("Dataset to fetch: longcrawl64.", "NAME")],
    repo: Annotated[str, option("Dataset on the Hub that holds a copy, as org/name.", metavar="REPO")],
    out: Annotated[Path, option("Folder to write. The same command resumes a fetch.")],
    rows: Annotated[int | None, option("Number of rows; default: all complete rows.", min=1)] = None,
    context: Annotated[int | None, option("Number of tokens of each row, from the first; default: all.", min=1)] = None,
    split: Annotated[str, option("Split to fetch: train or heldout.")] = "train",
    zarr_format: Annotated[int, option("2 copies chunks as they are; 3 writes shards with checksums of chunks.")] = 2,
    revision: Annotated[str | None, option("Branch, tag or commit of the dataset.")] = None,
) -> None:
    """Fetch rows of LongCrawl64 from a copy on the Hub.

    A copy may be partial: complete rows are fetched, checked against the Hub's digests, and decoded.
    """
    with stoppable():
        answer(lc.fetch(name, repo, out, rows, context, split, zarr_format, revision))  # type: ignore[arg-type]  # checked there


@app.command(epilog="Example: longcrawl takedown crawl --domains domains.txt --asked 2026-11-02 --out crawl-2")
def takedown(
    folder: Annotated[Path, argument("The folder of a finished run.", "RUN")],
    out: Annotated[Path, option("New folder, for the run without the documents.")],
    ids: Annotated[Path | None, file_option("Text file with one document id per line.")] = None,
    urls: Annotated[Path | None, file_option("Text file with one URL per line.")] = None,
    domains: Annotated[Path | None, file_option("Text file with one domain per line; subdomains are included.")] = None,
    asked: Annotated[str | None, option("Date of the request; default: today.", metavar="DATE")] = None,
) -> None:
    """Remove documents from a run.

    Only files that hold them are rewritten; all others are linked. takedown.json records the request and the proof.
    """
    with stoppable():
        answer(lc.takedown(folder, out, ids=ids, urls=urls, domains=domains, asked=asked))
