"""Requirements outside the repository: real input, and environments with peers' packages."""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path


def shared(name: str) -> Path:
    """Return the path of a file or folder of the real input, which ``LONGCRAWL_DATA`` names."""
    return Path(os.environ.get("LONGCRAWL_DATA") or "../shared/data", name)


def gpt2() -> str:
    """Return GPT-2's tokenizer: the file of the real input or, where there is none, its name on the Hub."""
    file = shared("gpt2-tokenizer.json")
    return str(file) if file.exists() else "gpt2"


def runs_spark() -> bool:
    """Return whether PySpark and Java are installed."""
    return importlib.util.find_spec("pyspark") is not None and shutil.which("java") is not None


def lacks(needed: str, *paths: Path | str | None, packages: Sequence[str] = ()) -> bool:
    """Return whether a path, a command or a package is missing; print then what is needed."""
    found = all(each is not None and (Path(each).exists() or shutil.which(each)) for each in paths)
    found = found and all(map(importlib.util.find_spec, packages))
    if not found:
        print(f"nothing is measured without {needed}")
    return not found
