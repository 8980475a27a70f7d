"""Commands that learn from documents what stages need: patterns of lines and classifiers."""

from pathlib import Path
from typing import Annotated, Any

import typer

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import StageError
from longcrawl.printable import show

TextField = Annotated[
    str, typer.Option(help="The field that has the texts of documents that are not a crawl.", metavar="NAME")
]


@app.command(epilog="Example: longcrawl lines texts.jsonl --out lines.yaml")
def lines(
    crawl: Annotated[
        str, typer.Argument(help="Documents: a file, a folder, a glob, a URL or a dataset of the Hub.", metavar="CRAWL")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Also write them to a new YAML file, for line_corrections.patterns.", metavar="FILE"),
    ] = None,
    min_documents: Annotated[
        int | None, typer.Option(min=1, help="Leave out lines of fewer documents; 3 or a thousandth if left out.")
    ] = None,
    documents: Annotated[int, typer.Option(min=1, help="Documents to read, the first ones.")] = 100_000,
    language: Annotated[str, typer.Option(help="With --out: language of the documents.")] = "en",
    text_field: TextField = "text",
) -> None:
    """Propose patterns of lines to remove.

    They are the short lines that most documents have. Pages of HTML are extracted first. Read the patterns before a
    run uses them.
    """
    from longcrawl.sources.text import without_set
    from longcrawl.text.refinedweb.frequent_lines import check_new_patterns

    if out is not None:
        check_new_patterns(out)
    with without_set():
        found = lc.text.propose_lines(_open_texts(crawl, text_field).data.take(documents), min_documents=min_documents)
    if not found.documents:
        raise StageError(f"{crawl} has no documents to propose lines of: name others")
    show(found)
    if out is not None:
        found.save(out, language)


@app.command("train-classifier", epilog="Example: longcrawl train-classifier good/ bad/ --out quality.bin")
def train_classifier(
    good: Annotated[
        str, typer.Argument(help="Documents of the label `good`, as for `longcrawl lines`.", metavar="GOOD")
    ],
    bad: Annotated[str, typer.Argument(help="Documents of the label `bad`.", metavar="BAD")],
    out: Annotated[Path, typer.Option(help="File to write, such as quality.bin.", metavar="FILE")],
    word_ngrams: Annotated[int, typer.Option(help="Words of the longest n-grams of words.")] = 2,
    dimensions: Annotated[int, typer.Option(help="Dimensions of the vectors of words.")] = 16,
    epochs: Annotated[int | None, typer.Option(help="How often each text is seen; 5 or more if left out.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of each side that measures the model.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of order, first rows and held-out share.")] = 0,
    text_field: TextField = "text",
) -> None:
    """Train a fastText classifier of documents.

    It learns to tell two sets of documents apart, for the stage fast_text_classifier. Precision and recall are of
    documents that were held out.
    """
    from longcrawl.sources.text import without_set

    settings: dict[str, Any] = {"word_ngrams": word_ngrams, "dimensions": dimensions, "epochs": epochs}
    with without_set():
        sides = _open_texts(good, text_field), _open_texts(bad, text_field)
        show(lc.text.train_classifier(*sides, out, held_out=held_out, seed=seed, **settings))


def _open_texts(name: str, text_field: str) -> "lc.Crawl":
    """Open documents; pages of HTML are extracted."""
    opened = lc.open(name, streaming=True, **({} if text_field == "text" else {"text_field": text_field}))
    return opened | lc.text.ExtractText() if "html" in (opened.data.column_names or ()) else opened
