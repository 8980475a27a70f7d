"""Compares pictures of a report, a card and a notebook with golden ones.

After a change that is meant to be seen, accept the new pictures into ``tests/publish/report/golden``
and look at each before it is committed::

    LONGCRAWL_GOLDEN=write pytest tests/publish/report/test_page_screens.py
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt
from PIL import Image, ImageChops, ImageFilter

import longcrawl as lc
from longcrawl.io.structured import seal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a browser be told its fonts")
GOLDEN = Path(__file__).parent / "golden"
ACCEPT = "LONGCRAWL_GOLDEN=write pytest tests/publish/report/test_page_screens.py"
SCALE = 4
"""A golden picture has a pixel for so many by so many of the screen: enough to see what is wrong, and small."""
CELL = 4
"""Pixels of a golden picture that are compared as one: letters are smaller, lines and bars are not."""
FAR = 30
"""Difference of two cells, of 255, that few letters make by how they are drawn."""
MOST_FAR = 0.0025
"""Share of cells that may differ so much: letters at whole pixels, by the fonts of a machine, make 0.0014 of the report
differ; bars that are gone 0.0055."""
MOST_HEIGHT = 2
"""Pixels of a golden picture by which heights may differ."""

WORDS = (
    "The tide was out and the boats lay on the sand, with their masts to the wall of that old harbour. Nobody had been "
    "there since the storm; the children have found a rope, two baskets and the bell of a ship that was lost. "
)
ARABIC = "كان البحر هادئا والقوارب على الرمل قرب جدار الميناء القديم. "
LONG = "https://a-very-long-host-name-of-a-site.example.org/" + "path/" * 40 + "?query=" + "x" * 60
CARD_STYLE = """
:root { color-scheme: light dark; --line: #e5e7eb; --quiet: #4b5563; --code: #f3f4f6; }
@media (prefers-color-scheme: dark) { :root { --line: #1f2937; --quiet: #9ca3af; --code: #161b26; }
body { background: #0b0f19; color: #d1d5db; } }
body { max-width: 53rem; margin: 2rem auto; padding: 0 1.5rem; font: 1rem/1.6 sans-serif; }
img { max-width: 100%; } pre { padding: .75rem 1rem; background: var(--code); overflow: auto; font-size: .85rem; }
code { font-size: .85em; background: var(--code); } pre code { font-size: 1em; }
table { border-collapse: collapse; display: block; overflow: auto; font-size: .9rem; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; } h2 { border-bottom: 1px solid var(--line); }
"""
"""About that of the Hub: a column of text, with bordered tables, light or dark."""

NOTEBOOK_STYLE = """
:root { color-scheme: light dark; --odd: #f5f5f5; }
@media (prefers-color-scheme: dark) { :root { --odd: #212121; } body { background: #111; color: #dedede; } }
body { max-width: 60rem; margin: 1rem; font: .875rem/1.4 sans-serif; }
table { margin-bottom: 1rem; border-collapse: collapse; font-size: .75rem; text-align: right; }
th, td { padding: .5em; } thead { border-bottom: 1px solid #bdbdbd; }
tbody tr:nth-child(odd) { background: var(--odd); }
"""
"""About that of Jupyter: tables whose text is at the right, light or dark."""


def pages() -> list[dict[str, Any]]:
    """Return pages that leave by several rules, in two scripts, and copies that differ in case and punctuation."""
    found = []
    for number in range(60):
        host = f"{'www.' * (number % 2)}{['harbour', 'library', 'weather', 'market', 'museum'][number % 5]}.example"
        text = f"{number} {WORDS * (1 + number % 7)}"
        found.append({"url": f"https://{host}/{number}", "text": text, "language": ["en", "en", "de"][number % 3]})
    for number in range(9):
        copy = found[7 * number]["text"]
        copy = copy.upper() if number % 2 else copy.replace("boats", "BOATS,").replace("rope", "rope…")
        found.append({"url": f"https://mirror.example/{number}", "text": copy, "language": "en"})
    for number in range(6):
        found.append({"url": LONG, "text": f"{number} " + "read more... " * 30, "language": "en"})
        found.append({"url": f"https://مثال.example/{number}", "text": ARABIC * (2 + number), "language": "ar"})
        found.append({"url": None, "text": f"Page {number} was not found.", "language": ""})
    return [{"id": f"page-{number:03}", **page} for number, page in enumerate(found)]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """Return a run in whose report and card nothing depends on versions."""
    folder = tmp_path_factory.mktemp("screens")
    (folder / "pages.jsonl").write_text("\n".join(map(json.dumps, pages())))
    recipe = {
        "longcrawl": 1,
        "name": "harbour",
        "about": "Pages about a harbour, cleaned as a test needs it: short pages, lists of links and copies leave.",
        "source": {
            "builder": "text",
            "data_files": [str(folder / "pages.jsonl")],
            "id_field": "id",
            "language_field": "language",
        },
        "stages": [
            {"min_chars": {"n": 60}},
            {"gopher_quality": {"min_words": 30}},
            {"exact_documents": {"text": "normalised"}},
        ],
        "outputs": {"parquet": {}},
        "card": {"pretty_name": "The harbour crawl", "license": "cc0-1.0", "contact": "<people@example.org>"},
        "reference": {"name": "Elsewhere", "documents": {"gopher_quality": 0.7}},
    }
    (folder / "harbour.yaml").write_text(yaml.safe_dump(recipe))
    lc.run(folder / "harbour.yaml", folder / "run")
    manifest = json.loads((folder / "run/manifest.json").read_text())
    manifest |= {"digest": "0123456789abcdef", "versions": {"longcrawl": "1.2.3", "datasets": "4.5.6"}}
    manifest["reports"] = {"gopher_quality": ["2 thresholds were fitted to a sample of 1,000 documents"]}
    (folder / "run/README.md").unlink()
    (folder / "run/manifest.json").write_text(seal(manifest))
    return folder / "run"


@pytest.fixture(scope="module")
def report(run_folder) -> Path:
    return lc.write_report(run_folder)


@pytest.fixture(scope="module")
def card(run_folder) -> Path:
    """Return the card with its pictures as HTML, as the Hub makes it."""
    lc.card(run_folder, plots=True)
    text = (run_folder / "README.md").read_text("utf-8").split("\n---\n", 1)[1]
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    page = f'<!DOCTYPE html><meta charset="utf-8"><style>{CARD_STYLE}</style>{body}'
    (run_folder / "card.html").write_text(page, "utf-8")
    return run_folder / "card.html"


@pytest.fixture(scope="module")
def notebook(run_folder) -> Path:
    """Return what a notebook shows of a run."""
    removed = lc.removed_documents(run_folder, per_rule=1)
    shown = [lc.funnel(run_folder), lc.removal_rates(run_folder), lc.analysis(run_folder), removed]
    cells = "".join(f"<div>{each._repr_html_()}</div>" for each in [*shown, lc.clusters(run_folder, most=2)])
    cells = cells.replace("<details>", "<details open>")
    page = f'<!DOCTYPE html><meta charset="utf-8"><style>{NOTEBOOK_STYLE}</style>{cells}'
    (run_folder / "notebook.html").write_text(page, "utf-8")
    return run_folder / "notebook.html"


class Screen(NamedTuple):
    """A state of a page."""

    page: str
    width: int
    scheme: str
    selector: str = "html"
    """Element of the page that is drawn."""


SCREENS = {
    "report-wide-light": Screen("report", 1280, "light"),
    "report-wide-dark": Screen("report", 1280, "dark"),
    "report-narrow-light": Screen("report", 390, "light"),
    "report-narrow-dark": Screen("report", 390, "dark"),
    "report-search": Screen("report", 1280, "light", "#removed"),
    "report-cluster": Screen("report", 1280, "dark", "#clusters"),
    "card-light": Screen("card", 900, "light"),
    "card-dark": Screen("card", 900, "dark"),
    "notebook-light": Screen("notebook", 900, "light"),
    "notebook-dark": Screen("notebook", 900, "dark"),
}


def reduced(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB").reduce(SCALE)


def golden_of(picture: Image.Image) -> Image.Image:
    """Return it in 128 colours, rare ones among them: a third of the bytes."""
    return picture.quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def differences(found: Image.Image, golden: Image.Image) -> str | None:
    """Describe how two pictures differ more than machines do; None where they do not."""
    if found.width != golden.width or abs(found.height - golden.height) > MOST_HEIGHT:
        return f"it is {found.width} x {found.height} pixels, the golden one {golden.width} x {golden.height}"
    size = (found.width, min(found.height, golden.height))
    cells = [np.asarray(each.crop((0, 0, *size)).reduce(CELL), np.int16) for each in (found, golden)]
    far = np.abs(cells[0] - cells[1]).max(axis=2) > FAR
    if far.mean() <= MOST_FAR:
        return None
    rows = np.flatnonzero(far.any(axis=1)) * CELL * SCALE
    return f"{far.mean():.1%} of it differ, from {rows[0]:,} to {rows[-1] + CELL * SCALE:,} pixels from its top"


def compare(found: Image.Image, name: str, folder: Path) -> None:
    """Compare a picture with the golden one of its name, or accept it."""
    golden = GOLDEN / f"{name}.png"
    if os.environ.get("LONGCRAWL_GOLDEN") == "write":
        GOLDEN.mkdir(parents=True, exist_ok=True)
        golden_of(found).save(golden, optimize=True)
    said = differences(found, Image.open(golden).convert("RGB")) if golden.exists() else "there is no golden one"
    if said is not None:
        found.save(folder / f"{name}.png")
        pytest.fail(f"{name}: {said}. The new one is {folder / f'{name}.png'}; if it is as it should be: {ACCEPT}")


@pytest.mark.parametrize("name", SCREENS)
def test_a_page_looks_as_it_did(browser, report, card, notebook, tmp_path, name):
    screen = SCREENS[name]
    page = {"report": report, "card": card, "notebook": notebook}[screen.page]
    browser.open(page, screen.width, screen.scheme)
    if name == "report-search":
        browser.type("#search", "read more")
        browser.ask("document.querySelector('.document:not([hidden])').open = true")
        browser.ask("document.activeElement.blur()")
    if name == "report-cluster":
        assert browser.ask("document.querySelectorAll('.cluster[open] .sides pre').length") == 2
    compare(reduced(browser.picture(screen.selector)), name, tmp_path)


SPOILED: dict[str, tuple[str, str]] = {
    "a section is gone": ("#notes", "each.remove()"),
    "sections change places": ("#lengths", "each.before(each.nextElementSibling)"),
    "a section lies over another": ("#places", "each.style.margin = '-4rem 0 5.25rem'"),
    "bars are gone": (".sites", "each.querySelectorAll('rect').forEach((bar) => bar.remove())"),
    "colours have changed places": (":root", "each.style.setProperty('--kept', '#cf5b37')"),
    "half of the page has the other scheme": (":root", "each.style.setProperty('--card', '#1b2024')"),
}
SHORTER = "document.querySelectorAll('#funnel, #reasons, #removed, #clusters').forEach((each) => each.remove())"


def test_what_is_spoiled_is_seen_and_how_letters_are_drawn_is_not(browser, report):
    pictures = {}
    for what, (selector, change) in {"": (":root", ""), **SPOILED}.items():
        browser.open(report, 1280, "light")
        browser.ask(SHORTER)
        browser.ask(f"((each) => {{ {change} }})(document.querySelector({json.dumps(selector)}))")
        pictures[what] = browser.picture()
    golden = golden_of(reduced(pictures[""])).convert("RGB")
    drawn = Image.open(io.BytesIO(pictures.pop(""))).convert("RGB").filter(ImageFilter.GaussianBlur(0.8))
    for otherwise in (drawn, ImageChops.offset(drawn, 1, 1)):
        assert differences(otherwise.reduce(SCALE), golden) is None
    for what, picture in pictures.items():
        assert differences(reduced(picture), golden) is not None, what
