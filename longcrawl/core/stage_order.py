"""In which order stages may remove copies, so that one of each content stays.

A stage that keeps one of several equal texts relies on it. If a later stage removes that one for what it shares with
another document, but not its text, the content is gone and no copy is kept.
"""

from collections.abc import Iterable

from longcrawl.core.stages import Stage

__all__ = ["order_fault"]

_ORDER = ("list", "url", "text", "passages")
"""What copies share, see :attr:`Stage.copies_share`, in the order in which stages may come."""


def order_fault(stages: Iterable[tuple[str, Stage]]) -> str | None:
    """Return what is wrong with the order of labelled stages that remove copies, and what to do; None if nothing is.

    * Copies by a list go before those by URL, and these before those by text. Else the document that stands for several
      equal texts may leave for one of another text.
    * Whole documents go before passages: of passages no copy is kept, so that two equal documents lose all they have.
      After one look at whole documents there may be others: cutting makes texts equal that were not.
    """
    before: dict[str, str] = {}
    for label, stage in stages:
        kind = stage.copies_share
        if kind is None:
            continue
        later = [each for each in before if _ORDER.index(each) > _ORDER.index(kind)]
        if later == ["passages"] and not (kind == "text" and "text" in before):
            cutter = before["passages"]
            return f"{label} comes after {cutter}, which keeps no copy of a repeated text: put {label} before {cutter}"
        if kind != "text" and later:
            first = before[later[0]]
            return (
                f"{label} after {first} would remove documents for which {first} has removed all copies: "
                f"put {label} before {first}"
            )
        before.setdefault(kind, label)
    return None
