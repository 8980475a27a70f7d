"""A question to a text file: what does every rule of some stages, or of a recipe, say of it?"""

import sys
from collections.abc import Sequence
from pathlib import Path

from longcrawl.core.stages import STAGES, Stage
from longcrawl.errors import SourceError, StageError
from longcrawl.recipe import load_recipe
from longcrawl.text import (
    C4Quality,
    Explanation,
    FineWebQuality,
    GopherQuality,
    GopherRepetition,
    LineCorrections,
    explain,
)

__all__ = ["inspect_text"]

USUAL = (GopherQuality, GopherRepetition, FineWebQuality, LineCorrections, C4Quality)
"""The stages that are asked where none is named; edits last, so that judges see the file as it is."""


def inspect_text(
    file: str | Path, stages: Sequence[str] = (), recipe: str | None = None, language: str = "en"
) -> Explanation:
    """Explain a UTF-8 file by the stages of these names as they are by default, or by those of a recipe.

    Args:
        file: a path, or ``-`` for standard input.
        stages: names as recipes have them. Where neither they nor a recipe are named: Gopher's, FineWeb's, RefinedWeb's
            and C4's rules, the last on what RefinedWeb's have left.
        recipe: a shipped recipe's name, or the path of a ``.yaml`` file.
        language: the text's language.

    Raises:
        SourceError: the file cannot be read, is not UTF-8 or is empty.
        StageError: unknown stage; stages and a recipe at once.
        RecipeError: no such recipe, or something in it does not exist.

    """
    if stages and recipe is not None:
        raise StageError("inspect takes stages or a recipe, not both: leave --stage or --recipe out")
    chosen = _recipe_stages(recipe) if recipe is not None else _named_stages(stages)
    return explain(_read(file), chosen, language)


def _recipe_stages(recipe: str) -> list[Stage]:
    return [stage for _, stage in load_recipe(recipe).stages]


def _named_stages(names: Sequence[str]) -> list[Stage]:
    return [STAGES.make(name, {}) for name in names] or [kind() for kind in USUAL]


def _read(file: str | Path) -> str:
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else Path(file).read_bytes()
        text = content.decode()
    except OSError as wrong:
        raise SourceError(f"{file} cannot be read ({wrong.strerror}); give the path of a text file, or -") from wrong
    except UnicodeDecodeError as wrong:
        raise SourceError(
            f"{_named(file)} is not UTF-8: byte {wrong.start:,} is 0x{content[wrong.start]:02x}; "
            "write it again with iconv -f OTHER -t UTF-8"
        ) from wrong
    if not text:
        raise SourceError(f"{_named(file)} is empty; give a file with text in it")
    return text


def _named(file: str | Path) -> str:
    return "standard input" if str(file) == "-" else str(file)
