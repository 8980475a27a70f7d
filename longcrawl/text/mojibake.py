"""Stage that repairs characters which were decoded wrongly."""

import importlib.metadata
import io
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from longcrawl.core.batches import PAGE_OFFSETS
from longcrawl.core.places import changed_places, make_places, no_places
from longcrawl.core.stages import Edited, Rewrite, column, stage, with_column
from longcrawl.errors import StageError
from longcrawl.kernels.texts import check_not_masked, valid_texts

_UNMAPPED = re.compile("[\ue000-\uf8ff\ufffd\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_REPAIRABLE = re.compile(r"[^\t\n -%'-~]")
"""Matches a character without which a line is not changed: one outside printable ASCII, or the & of an entity."""


@stage
class FixText(Rewrite):
    r"""Repair mojibake (text decoded with a wrong encoding) with ftfy, and remove characters without meaning.

    ftfy also undoes HTML entities, unless a line before has a ``<``, and removes control characters and terminal
    escapes. Quotes, ligatures, the width of characters and their Unicode form are not changed. Then private-use
    characters, whose meaning only a font defines, and U+FFFD are removed.

    ftfy repairs line by line. Pages of PDFs are repaired one by one, and their ``page_offsets`` are updated.
    ``pip install 'longcrawl[pdf]'`` installs ftfy.

    Source: Speer, "ftfy", 2019, with the settings of FinePDFs (Hugging Face, 2025).

    >>> FixText()(pa.table({"text": ["The boat in the cafÃ©"]}))["text"].to_pylist()
    ['The boat in the café']
    """

    rewrites = "text"
    code_version: ClassVar[str] = "1"

    def prepare(self) -> None:
        """Load ftfy; raise StageError if it is not installed."""
        _load_ftfy()

    def libraries(self) -> dict[str, str]:
        """Return the version of ftfy, whose versions repair differently."""
        return {"ftfy": importlib.metadata.version("ftfy")}

    def rewrite(self, table: pa.Table) -> pa.Table:
        """Return the documents with repaired texts."""
        return self.trace(table).documents

    def trace(self, table: pa.Table) -> Edited:
        """Repair the texts, and list a place for every changed line.

        Raises:
            StageError: ftfy is not installed, or the documents have a column ``masked``.
        """
        check_not_masked(table, self.name)
        given = column(table, "text", self.name)
        texts = valid_texts(given, self.name).to_pylist()
        starts = table[PAGE_OFFSETS].to_pylist() if PAGE_OFFSETS in table.column_names else [None] * len(texts)
        changes: list[_Change] = []
        for row, (text, own) in enumerate(zip(texts, starts, strict=True)):
            if text is None:
                continue
            pages, lengths = list[str](), list[int]()
            for start, end in pairwise([0, *(own or ()), len(text)]):
                repaired, changed = _repair(text[start:end])
                pages.append(repaired)
                lengths.append(len(repaired))
                changes += [_Change(row, start + each.start, each.before, each.after) for each in changed]
            texts[row] = "".join(pages)
            if own is not None:
                starts[row] = list(accumulate(lengths[:-1]))
        if not changes:
            return Edited(table, (), no_places())
        table = with_column(table, "text", pa.array(texts, given.type))
        if PAGE_OFFSETS in table.column_names:
            table = with_column(table, PAGE_OFFSETS, pa.array(starts, table[PAGE_OFFSETS].type))
        return Edited(table, (), _places(changes))


class _Change(NamedTuple):
    """A line that is repaired: the row of its document, its first character there, and both texts."""

    row: int
    start: int
    before: str
    after: str


def _places(changes: Sequence[_Change]) -> pa.Table:
    rows, starts, before, after = (list(each) for each in zip(*changes, strict=True))
    found = changed_places(pa.table({"text": before}), pa.table({"text": after}))
    places = np.stack([found["start"], found["end"]], axis=1) + np.array(starts)[:, None]
    return make_places(np.array(rows), "changed", places, found["replaced_by"].to_numpy())


def _repair(page: str) -> tuple[str, list[_Change]]:
    """Return the repaired page, and its changed lines."""
    ftfy, config = _load_ftfy()
    lines, changes, at = list[str](), list[_Change](), 0
    for line in io.StringIO(page, newline="\n"):
        fixed = line
        if "<" in line:
            config = config._replace(unescape_html=False)
        if _REPAIRABLE.search(line):
            fixed = _UNMAPPED.sub("", ftfy.fix_text(line, config))
        if fixed != line:
            changes.append(_Change(0, at, line, fixed))
        lines.append(fixed)
        at += len(line)
    return "".join(lines), changes


def _load_ftfy() -> tuple[Any, Any]:
    """Return the module and its settings; raise StageError if it is not installed."""
    try:
        import ftfy
    except ImportError as missing:
        raise StageError("fix_text needs the package ftfy: pip install 'longcrawl[pdf]'") from missing
    unchanged = {"fix_latin_ligatures": False, "fix_character_width": False, "uncurl_quotes": False}
    return ftfy, ftfy.TextFixerConfig(**unchanged, normalization=None)
