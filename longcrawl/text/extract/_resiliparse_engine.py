"""Extraction engine "resiliparse". Workers load this file by path, so it imports nothing of longcrawl."""

from collections.abc import Callable


def make_extractor(favor: str) -> Callable[[str], str]:  # noqa: ARG001  # resiliparse has no such option
    """Return a function from a page to its main text, without reader comments and alternative texts of images."""
    from resiliparse.extract.html2text import extract_plain_text

    return lambda html: extract_plain_text(html, main_content=True, comments=False, alt_texts=False)
