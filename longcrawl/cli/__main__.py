"""``python -m longcrawl.cli``: the command line where no script is installed."""

from longcrawl.cli.commands import main

main()
