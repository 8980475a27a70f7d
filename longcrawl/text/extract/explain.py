"""Explanations of which blocks of a page the engine "blocks" keeps."""

import html
from dataclasses import dataclass
from itertools import groupby

from longcrawl.text.extract.blocks import Block, Favor, read_blocks

_WIDTH = 100
"""Characters of a block that are printed."""


@dataclass(frozen=True)
class PageExplanation:
    """The blocks of a page in reading order; in a notebook the kept ones are green, the removed ones grey."""

    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        """Return a line per block: its probability, whether it is kept, and the beginning of its text."""
        kept = sum(block.kept for block in self.blocks)
        lines = [f"{kept} of {len(self.blocks)} blocks are kept"]
        for block in self.blocks:
            text = " ".join(block.text.split())
            shown = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
            lines.append(f"{block.chance:4.2f} {'kept   ' if block.kept else 'removed'} {shown}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = []
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
