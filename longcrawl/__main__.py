"""``longcrawl`` and ``python -m longcrawl``: the command line, which ends without a traceback when it is stopped."""

import sys


def main() -> None:
    """Run the command line; what is stopped while it imports or reads what was typed has nothing to say."""
    try:
        from longcrawl.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
