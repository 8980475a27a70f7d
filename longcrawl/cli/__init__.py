"""The command line."""

from longcrawl.cli import make, questions  # noqa: F401  # importing them adds their commands
from longcrawl.cli.commands import main

__all__ = ["main"]
