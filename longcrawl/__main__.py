"""Entry point of ``longcrawl`` and ``python -m longcrawl``; Ctrl-C ends it without a traceback."""

import gc
import sys


def main() -> None:
    """Run the command line and exit with status 130 if it is interrupted, even during imports."""
    gc.disable()  # importing makes no garbage; a command that works for long enables it
    try:
        from longcrawl.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # Python looks through all objects once more as it ends, which takes a tenth of a second


if __name__ == "__main__":
    main()
