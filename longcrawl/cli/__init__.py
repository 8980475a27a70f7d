"""The command line."""

from longcrawl.cli.commands import main

__all__ = ["main"]
