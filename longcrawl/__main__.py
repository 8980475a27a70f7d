"""Entry point of ``longcrawl`` and ``python -m longcrawl``; Ctrl-C ends it without a traceback."""

import sys


def main() -> None:
    """Run the command line and exit with status 130 if it is interrupted, even during imports."""
    try:
        from longcrawl.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
