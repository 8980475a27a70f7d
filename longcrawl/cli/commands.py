"""The command line: its app, the arguments that commands share, and how it ends.

Commands that write are in ``make``, those that show or check in ``questions``; each calls one function of the package.
"""

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from longcrawl._version import __version__
from longcrawl.errors import LongCrawlError, one_line, printable, show


def new_app(about: str, *, add_completion: bool = False) -> typer.Typer:
    """Return an app without commands."""
    return typer.Typer(
        help=about,
        no_args_is_help=True,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


app = new_app(
    "From a web crawl to long-context training data, with a reason for every removed document.", add_completion=True
)


def _show_version(asked: bool) -> None:  # noqa: FBT001  # as typer calls it
    if asked:
        show(f"longcrawl {__version__}")
        raise typer.Exit


@app.callback()
def _all_commands(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


RunFolder = Annotated[Path, typer.Argument(help="The folder of a finished run, or a URL of one.", metavar="RUN")]
NumProc = Annotated[int, typer.Option(min=1, help="Number of processes. The output does not depend on it.")]
ShardsFrom = Annotated[
    str | None, typer.Option("--from", help="Format of token shards that do not record it, such as nanogpt.")
]
EndOfText = Annotated[int | None, typer.Option(help="Token id that ends each document in token shards.")]
VocabularySize = Annotated[int | None, typer.Option(help="Token ids of shards must be below this number.")]


def set_option(about: str) -> Any:
    """Return the option ``--set``, which may come several times."""
    return typer.Option("--set", help=f"{about} Repeatable.", metavar="FIELD=VALUE")


@contextmanager
def importing() -> Iterator[None]:
    """Keep what is imported within the block out of the garbage collector, which walks through it again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def stoppable() -> Iterator[None]:
    """Report that the same command resumes what was stopped by hand."""
    try:
        yield
    except KeyboardInterrupt:
        show("stopped; the same command resumes from here", error=True)
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
        # Without a command the message is the help, which has lines, and nothing that anybody typed.
        if not misspelled.message.startswith("Usage: "):
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
