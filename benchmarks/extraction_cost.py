"""Profile trafilatura and our changes around it, by turns in one process, with the texts compared.

    python benchmarks/extraction_cost.py --data FOLDER [--turns 2] [--fuzzed 1000] [--seed 0]

FOLDER is that of ``extraction.py``. First the parts of a page's CPU time, each without the parts that it calls. Then
every change is timed beside trafilatura as it comes, page by page in turn, the least of --turns: first what the engine
does, then what it does not. How many texts differ is printed for each. What the engine does must not change the text,
or the error, of any page and of any of --fuzzed pages of ``fuzz_html.py``, in three modes. The last line is
trafilatura's time over the engine's.
"""

import argparse
import gc
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import trafilatura
from _annotated import Page, read_pages
from extraction import made_up
from fuzz_html import SOUND, hostile_page
from lxml import etree, html
from trafilatura import core, external, main_extractor, utils, xpaths
from trafilatura.settings import Extractor

from longcrawl.text.extract import _trafilatura_engine as engine

PARTS = {
    "parsing": [(utils, "fromstring")],
    "repairs of the text before": [(core, "load_html")],
    "copies of the tree": [(core, "copy"), (main_extractor, "deepcopy")],
    "cleaning and conversion of tags": [(core, "tree_cleaning"), (core, "convert_tags")],
    "density of links": [
        (main_extractor, "delete_by_link_density"),
        (main_extractor, "link_density_test_tables"),
    ],
    "its own walk": [(core, "extract_content")],
    "readability": [(external, "try_readability")],
    "comparing with readability": [(core, "compare_extraction")],
    "justext": [(external, "justext_rescue")],
    "writing the text": [(core, "xmltotxt"), (core, "normalize_unicode")],
}
"""Functions by what they do, where trafilatura calls them. With our settings it looks for no metadata."""

COMES_WITH = {name: list(listed) for name, listed in vars(xpaths).items() if isinstance(listed, list)}
PROSE = etree.XPath(".//text()[not(parent::script or parent::style)]", smart_strings=False)


class Change(NamedTuple):
    """A way to extract a page."""

    extract: Callable[[Any], str | None]
    expressions: dict[str, list[Any]]
    one_class: bool = True
    prepare: Callable[[str], Any] = str
    """Preparation that is not timed."""

    def enter(self) -> None:
        """Make trafilatura work like this."""
        for name, listed in self.expressions.items():
            getattr(xpaths, name)[:] = listed
        utils.HTML_PARSER.set_element_class_lookup(html.HtmlElementClassLookup())
        if self.one_class:
            engine.simplify_classes()


def expressions(change: Callable[[Any], Any]) -> dict[str, list[Any]]:
    return {name: [change(each) for each in listed] for name, listed in COMES_WITH.items()}


def rewritten(path: Callable[[str], str], *, smart_strings: bool) -> Callable[[Any], Any]:
    """Return what compiles an expression again."""
    names = {"re": "http://exslt.org/regular-expressions"}
    return lambda each: (
        etree.XPath(path(each.path), namespaces=names, smart_strings=smart_strings)
        if isinstance(each, etree.XPath)
        else each
    )


def as_it_comes(favor: str) -> Change:
    options = Extractor(precision=favor == "precision", recall=favor == "recall", comments=False)
    return Change(lambda page: trafilatura.extract(page, options=options), COMES_WITH, one_class=False)


def as_the_engine(favor: str) -> Change:
    as_it_comes(favor).enter()
    extract = engine.make_extractor(favor)
    return Change(extract, {name: list(getattr(xpaths, name)) for name in COMES_WITH})


def steps() -> dict[str, Change]:
    """Return what the engine does, one thing at a time."""
    comes = as_it_comes("precision")
    return {
        "patterns tried where there is an attribute": comes._replace(
            expressions=expressions(rewritten(engine.guarded, smart_strings=True))
        ),
        "strings that know no parent": comes._replace(expressions=expressions(rewritten(str, smart_strings=False))),
        "one class for all elements": comes._replace(one_class=True),
    }


def ideas(ours: Change) -> dict[str, Change]:
    """Return what the engine does not do, on top of what it does."""

    def without_scripts(page: str) -> str | None:
        tree = utils.load_html(page)
        if tree is None:
            return None
        for element in list(tree.iter("script", "style")):
            if element.get("type") != "application/ld+json":
                element.drop_tree()
        return ours.extract(tree)

    def without_garbage_collection(page: str) -> str | None:
        gc.disable()
        try:
            return ours.extract(page)
        finally:
            gc.enable()

    def logging_left_on(page: str) -> str | None:
        logging.disable(logging.NOTSET)
        try:
            return ours.extract(page)
        finally:
            logging.disable()

    return {
        "a tree that was parsed before": ours._replace(prepare=utils.load_html),
        "scripts and styles removed first": ours._replace(extract=without_scripts),
        "comments removed before parsing": ours._replace(
            extract=lambda page: ours.extract(re.sub("<!--.*?-->", "", page, flags=re.DOTALL))
        ),
        "readability where it may count": ours._replace(extract=lambda page: with_less_readability(ours.extract, page)),
        "no garbage collection": ours._replace(extract=without_garbage_collection),
        "logging left on": ours._replace(extract=logging_left_on),
    }


def with_less_readability(extract: Callable[[str], str | None], page: str) -> str | None:
    """Run readability only where its text may be long enough to be taken."""
    compare, run = core.compare_extraction, external.try_readability

    def compare_less(cleaned: Any, raw: Any, body: Any, text: str, options: Any) -> Any:
        is_sound = body.xpath(".//p//text()") and len(body.findall(".//table")) <= len(body.findall(".//p"))
        if text and is_sound and len(utils.trim("".join(PROSE(raw)))) <= 2 * len(text):
            with patch.object(external, "try_readability", lambda _: html.HtmlElement()):
                return compare(cleaned, raw, body, text, options)
        return compare(cleaned, raw, body, text, options)

    assert run is external.try_readability
    with patch.object(core, "compare_extraction", compare_less):
        return extract(page)


def print_parts(change: Change, pages: Sequence[Page]) -> None:
    """Print how a page's CPU time divides."""
    taken, at_work, since = Counter[str](), ["all else"], time.process_time()

    def switch(part: str | None) -> None:
        nonlocal since
        now = time.process_time()
        taken[at_work[-1]] += now - since
        since = now
        if part is None:
            at_work.pop()
        else:
            at_work.append(part)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            switch(part)
            try:
                return function(*values, **named)
            finally:
                switch(None)

        return call

    listed = {
        name: [timed("XPath expressions", each) if callable(each) else each for each in every]
        for name, every in change.expressions.items()
    }
    change._replace(expressions=listed).enter()
    with ExitStack() as stack:
        for part, functions in PARTS.items():
            for module, name in functions:
                stack.enter_context(patch.object(module, name, timed(part, getattr(module, name))))
        for page in pages:
            change.extract(page.html)
        switch("all else")
    for part, seconds in taken.most_common():
        print(f"  {part}: {1000 * seconds / len(pages):.2f} ms, {100 * seconds / taken.total():.1f} %")


def compare_changes(changes: dict[str, Change], pages: Sequence[Page], turns: int) -> dict[str, float]:
    """Return the seconds that each way takes, and print how many texts are others than the first way's."""
    least = {name: [float("inf")] * len(pages) for name in changes}
    differ, names = Counter[str](), list(changes)
    for turn in range(turns):
        for number, page in enumerate(pages):
            texts = {}
            first = (turn + number) % len(names)
            for name in [*names[first:], *names[:first]]:
                changes[name].enter()
                prepared = changes[name].prepare(page.html)
                began = time.process_time()
                texts[name] = changes[name].extract(prepared)
                least[name][number] = min(least[name][number], time.process_time() - began)
            differ.update(name for name in names if texts[name] != texts[names[0]])
    for name in names:
        print(f"{name}: {1000 * sum(least[name]) / len(pages):.1f} ms a page, {differ[name]} texts differ")
    return {name: sum(least[name]) for name in names}


def check_texts(pages: Sequence[str]) -> None:
    """Assert that pages have the same texts, or the same errors, in each mode."""

    def texts(change: Change) -> list[str]:
        change.enter()
        return [outcome(change.extract, page) for page in pages]

    for favor in ("precision", "balanced", "recall"):
        for page, expected, made in zip(pages, texts(as_it_comes(favor)), texts(as_the_engine(favor)), strict=True):
            assert made == expected, (favor, page)


def outcome(extract: Callable[[str], str | None], page: str) -> str:
    try:
        return f"text {extract(page)}"
    except Exception as error:  # noqa: BLE001  # whatever a library stumbles over must be the same
        return f"{type(error).__name__} {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--fuzzed", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    read = read_pages(options.data) if options.data else made_up()
    pages = list({page.html: page for page in read}.values())
    logging.disable()

    comes, ours = as_it_comes("precision"), as_the_engine("precision")
    for name, change in (("trafilatura as it comes", comes), ("the engine", ours)):
        print(f"{name}, {len(pages)} pages:")
        print_parts(change, pages)
    timed = pages[::2]
    changes = {"trafilatura as it comes": comes, "the engine": ours, **steps(), **ideas(ours)}
    seconds = compare_changes(changes, timed, options.turns)
    for name in steps():
        print(f"{name}: {seconds['trafilatura as it comes'] / seconds[name]:.3f} times the pages per second")
    print("---")
    for name in ideas(ours):
        print(f"{name}: {seconds['the engine'] / seconds[name]:.3f} times the engine's pages per second")

    chance = random.Random(options.seed)
    real = [page.html for page in pages]
    fuzzed = [hostile_page(chance, [SOUND, *real], 2000) for _ in range(options.fuzzed)]
    check_texts([*real, *fuzzed])
    print(f"the same texts on {len(real)} pages and {len(fuzzed)} fuzzed ones, in three modes")
    print(f"extraction_cost ratio={seconds['trafilatura as it comes'] / seconds['the engine']:.2f}")


if __name__ == "__main__":
    main()
