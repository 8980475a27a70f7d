"""The command line: its app, the arguments that commands share, and how it ends.

Commands that write are in ``make``, those that show or check in ``questions``; each calls one function of the package.
"""

import functools
import gc
import inspect
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from longcrawl._version import __version__
from longcrawl.errors import LongCrawlError, one_line, printable, show

GROUPS = {
    "Start": ("init", "run", "plan", "recipes"),
    "Look": ("funnel", "why", "report", "inspect", "clusters", "contamination", "queue", "verify"),
    "Publish": ("card", "tables", "push", "fetch", "takedown"),
    "Train": ("tokenize", "convert", "compose", "validate", "trace"),
    "Tools": ("stages", "sources", "outputs", "lines", "train-classifier", "lists", "warm"),
}
"""Commands by what a user does with them, in the order of ``longcrawl --help``."""
BRIEF = {"recipes", "stages", "sources", "outputs", "funnel", "why", "inspect"}
"""Commands that end before garbage matters: without collecting it they take a tenth less time."""
WITHOUT_ARROW = {"recipes", "funnel", "verify"}
"""Commands that may end without an Arrow table, so that nothing imports pyarrow for them in advance."""


def option(about: str, *spellings: str, **settings: Any) -> Any:
    """Return an option with a help text, spelled as its parameter unless spellings are given."""
    return typer.Option(*spellings, help=about, **settings)


def file_option(about: str, *spellings: str) -> Any:
    """Return an option that takes the name of a file."""
    return option(about, *spellings, metavar="FILE")


def set_option(about: str) -> Any:
    """Return the option ``--set``, which may come several times."""
    return option(f"{about} Repeatable.", "--set", metavar="FIELD=VALUE")


def argument(about: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an argument with a help text, and a name if its parameter's is not meant."""
    return typer.Argument(help=about, metavar=metavar, **settings)


class Groups(TyperGroup):
    """The top command, whose help lists commands by :data:`GROUPS`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # typer's own context
        """Return the names of the commands in the order of :data:`GROUPS`."""
        ordered = [name for names in GROUPS.values() for name in names]
        return sorted(super().list_commands(ctx), key=ordered.index)

    def format_commands(self, _: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write a section for each group."""
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                most = formatter.width - 6 - width
                formatter.write_dl(
                    [(f"{name:{width}}", self.commands[name].get_short_help_str(most)) for name in names]
                )


class App(typer.Typer):
    """A typer app whose commands all take the options of :func:`_with_common_options`."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:  # type: ignore[override]  # returns the function itself
        """Return a decorator that adds a function as a command."""
        add = super().command(name, **options)

        def register(function: Callable[..., None]) -> Callable[..., None]:
            add(_with_common_options(function))
            return function

        return register


def new_app(about: str, *, top: bool = False) -> App:
    """Return an app without commands."""
    return App(
        help=about,
        cls=Groups if top else None,
        no_args_is_help=True,
        add_completion=top,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


_asked = {"json": False, "verbose": False}
"""Common options of the running command."""
_COMMON: Mapping[str, Any] = {
    "as_json": Annotated[bool, option("Print the answer as JSON.", "--json")],
    "quiet": Annotated[bool, option("Show no progress.", "--quiet", "-q")],
    "verbose": Annotated[bool, option("Show the log, and the traceback of an error.", "--verbose", "-v")],
}


def _with_common_options(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def command(*, as_json: bool, quiet: bool, verbose: bool, **settings: Any) -> None:
        _asked.update(json=as_json, verbose=verbose)
        if quiet:  # for the processes that it starts too
            os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
        if verbose:
            logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        if function.__name__ not in WITHOUT_ARROW:
            leave_pandas_out()
        if function.__name__ not in BRIEF:
            gc.freeze()
            gc.enable()
        function(**settings)

    own = inspect.signature(function)
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in _COMMON.items()
    ]
    command.__signature__ = own.replace(parameters=[*own.parameters.values(), *common])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, **_COMMON}
    return command


_BLOCK = re.compile(r"^[+-] [01]\.\d\d .*", re.MULTILINE)


def answer(found: object, facts: Any = None, *, blocks: bool = False) -> None:
    """Print the answer of a command: ``found``, or with ``--json`` the JSON-ready ``facts`` (or ``found``).

    With ``blocks``, a terminal shows lines of kept blocks of a page in green, and of removed ones faint.
    """
    if not _asked["json"]:
        show(found, colour=_coloured if blocks else str)
        return
    values = _display().facts_of(found if facts is None else facts)
    show(json.dumps(values if isinstance(values, dict) else {"message": values}, indent=2, allow_nan=False))


def _coloured(text: str) -> str:
    return _BLOCK.sub(lambda line: f"\x1b[{32 if line[0][0] == '+' else 2}m{line[0]}\x1b[0m", text)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """Return a table of texts under titles."""
    shown = _display()
    return shown.Table([shown.Column(title) for title in titles], rows)


def _display() -> Any:
    """Return ``longcrawl.core.display``, which imports numpy: help needs neither."""
    from longcrawl.core import display

    return display


def leave_pandas_out() -> None:
    """Let pyarrow look for pandas now and not find it: importing it takes half a second of CPU."""
    if "pyarrow" in sys.modules or "pandas" in sys.modules:
        return
    import pyarrow as pa

    path, sys.path = sys.path, []
    try:
        pa.array([])
    finally:
        sys.path = path


app = new_app("From a web crawl to long-context training data, with a reason for every removed document.", top=True)


def _show_version(asked: bool) -> None:  # noqa: FBT001  # as typer calls it
    if asked:
        show(f"longcrawl {__version__}")
        raise typer.Exit


@app.callback()
def _all_commands(
    *,
    version: Annotated[bool, option("Show the version.", "--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    pass


RunFolder = Annotated[Path, argument("The folder of a finished run, or a URL of one.", "RUN")]
NUM_PROC = "Number of processes. The output does not depend on it."
NumProc = Annotated[int, option(NUM_PROC, min=1)]
ShardsFrom = Annotated[str | None, option("Format of token shards that do not record it, such as nanogpt.", "--from")]
EndOfText = Annotated[int | None, option("Token id that ends each document in token shards.")]
VocabularySize = Annotated[int | None, option("Token ids of shards must be below this number.")]


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
        if _asked["verbose"]:
            show("".join(traceback.format_exception(wrong)), error=True, end="")
        show(f"{type(wrong).__name__}: {wrong}", error=True)
        for note in getattr(wrong, "__notes__", ()):
            show(note, error=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
