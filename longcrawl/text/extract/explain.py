"""Explanations of which blocks of a page the engine "blocks" keeps."""

import html
from dataclasses import dataclass
from itertools import groupby

from longcrawl.errors import one_line, shortened
from longcrawl.text.extract.blocks import Block, Favor, read_blocks

_WIDTH = 100
"""Characters of a block that are printed."""


@dataclass(frozen=True)
class PageExplanation:
    """The blocks of a page in reading order; in a notebook the kept ones are green, the removed ones grey."""

    blocks: tuple[Block, ...]
    note: str | None = None
    """Texts that do not come from blocks, or the reason why there are no blocks."""

    def summary(self) -> str:
        """Return the number of kept blocks, and the note."""
        kept = f"{sum(block.kept for block in self.blocks)} of {len(self.blocks)} blocks are kept"
        if self.note is None:
            return kept
        return one_line(f"{kept}; {self.note}" if self.blocks else self.note)

    def lines(self, most: int) -> list[str]:
        """Return a line per block with at most ``most`` characters of its text."""
        texts = [one_line(shortened(" ".join(block.text.split()), most)) for block in self.blocks]
        marks = ["+" if block.kept else "-" for block in self.blocks]
        return [
            f"{mark} {block.chance:.2f} {text}" for mark, block, text in zip(marks, self.blocks, texts, strict=True)
        ]

    def __str__(self) -> str:
        """Return a line per block: "+" if it is kept, else "-"; its probability; and the beginning of its text."""
        return "\n".join([self.summary(), *self.lines(_WIDTH)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self.summary())}</p>"]
        for kept, blocks in groupby(self.blocks, lambda block: block.kept):
            texts = "".join(
                f"<p title='{block.chance:.2f}'>{_score(block)} {html.escape(block.text)}</p>" for block in blocks
            )
            look = "background:#dff3df;color:#111" if kept else "color:#999"
            parts.append(f"<div style='{look};padding:0 .5em;white-space:pre-wrap'>{texts}</div>")
        return "".join(parts)


def _score(block: Block) -> str:
    green = round(120 * block.chance)
    return f"<small style='background:hsl({green},70%,80%);color:#111'>{block.chance:.2f}</small>"


def explain_page(page: str, favor: Favor = "precision") -> PageExplanation:
    """Explain which blocks of a page the engine "blocks" keeps, with the probability that each is content.

    Args:
        page: HTML.
        favor: preference in doubtful cases, as for :class:`~longcrawl.text.ExtractText`.

    >>> story = "<p>The tide came in at noon, and the boats went out to sea with it, as on every day.</p>" * 3
    >>> print(explain_page(f"<nav><a href=/>Home</a></nav><article>{story}</article>").blocks[0].kept)
    False
    """
    return PageExplanation(tuple(read_blocks(page, favor)))
