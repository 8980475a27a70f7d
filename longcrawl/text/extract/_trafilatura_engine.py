"""The extraction engine trafilatura. A worker loads this file by its path, so nothing of longcrawl is imported here."""

import logging
from collections.abc import Callable


def make_extractor(favor: str) -> Callable[[str], str | None]:
    """Return the function from a page to its main text.

    Comments of readers are left out. Metadata, dates and languages, which trafilatura could find as well, are not
    looked for. Its ``deduplicate`` stays off, since it remembers the paragraphs of earlier pages.
    """
    from trafilatura import extract
    from trafilatura.settings import Extractor

    logging.disable()
    options = Extractor(precision=favor == "precision", recall=favor == "recall", comments=False)
    return lambda html: extract(html, options=options)
