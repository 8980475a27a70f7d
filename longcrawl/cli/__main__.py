"""``python -m longcrawl.cli``, as before there was ``python -m longcrawl``."""

from longcrawl.__main__ import main

main()
