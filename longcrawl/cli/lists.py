"""The verbs of ``longcrawl lists``: block lists for the URL filter, and what they dropped."""

from pathlib import Path
from typing import Annotated

import typer

from longcrawl.audit.url_hits import run_url_hits
from longcrawl.printable import show
from longcrawl.text.urls import fetch as fetching

__all__ = ["lists_app"]

lists_app = typer.Typer(
    help="Fetch block lists for the URL filter, and see what they dropped.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@lists_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help=f"Which lists: {', '.join(fetching.LISTS)}.")],
    out: Annotated[Path, typer.Option("--out", help="The new folder; the same command goes on with a stopped one.")],
    url: Annotated[str | None, typer.Option(help="Another address of the archive.")] = None,
) -> None:
    """Download block lists and unpack them to a folder that url_filter.lists takes; the licence is their own."""
    try:
        show(fetching.fetch_lists(name, out, url))
    except KeyboardInterrupt:
        show("stopped; the same command goes on from here", error=True)
        raise typer.Exit(130) from None


@lists_app.command()
def hits(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.", metavar="RUN")],
    min_documents: Annotated[int, typer.Option(min=1, help="Leave out what dropped fewer documents.")] = 1,
) -> None:
    """Show which domains and words of the URL filter dropped most documents of a run: look for false positives."""
    show(run_url_hits(folder, min_documents))
