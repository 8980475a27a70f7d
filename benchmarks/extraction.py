r"""Extraction: how right it is on annotated pages, whether structure survives, and pages per CPU second.

    python benchmarks/extraction.py [--pages wcxb-dev.jsonl.zst --folds FOLDER] [--warc FOLDER] [--repeats 3]

PAGES is WCXB's development half, and the models in FOLDER are those of ``train_extraction.py --folds``: each page is
extracted by the model that has not seen its site. Scores are word F1 by page type (multisets of ``\w+``, lower-cased),
the shares of snippets that should and should not be in the text, and how many rows of data lost a cell and lists an
item of a nested list. Differences have intervals of 95 %, for which sites are drawn with replacement. The folder of
--warc holds ``pages-*.warc.gz`` and ``groundtruth.jsonl.gz``; its annotated texts are scored by words and by 4-grams of
words. The peers are trafilatura and resiliparse as our stage calls them, and trafilatura's own call.

Times are CPU seconds of all processes, by turns, the least of --repeats, on the first N pages. Without --pages they are
made up, and only times are printed. The last line is pages per second of "blocks" over those of resiliparse.
"""

import argparse
import random
import re
import resource
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _annotated import Page

ENGINES = ("blocks", "trafilatura", "resiliparse")
DRAWS = 2000


def made_up() -> list[Page]:
    """Make pages with navigation around paragraphs: about 6 MB."""
    chance = random.Random(0)
    pool = ["".join(chance.choices("etaoinshrdlucmfwypé", k=chance.choice((2, 3, 4, 5, 6, 8)))) for _ in range(4000)]

    def sentence() -> str:
        return " ".join(chance.choices(pool, k=chance.randint(6, 30))).capitalize() + "."

    def one(number: int) -> str:
        menu = "".join(
            f'<li class="menu-item"><a href="/{word}">{word}</a></li>' for word in chance.choices(pool, k=80)
        )
        story = "".join(
            f"<p>{' '.join(sentence() for _ in range(chance.randint(1, 6)))}</p>" for _ in range(chance.randint(3, 40))
        )
        return (
            f"<html><head><title>{number}</title></head><body><nav><ul>{menu}</ul></nav><div class='content'><article>"
            f"<h1>{sentence()}</h1>{story}</article></div><footer><ul>{menu}</ul></footer></body></html>"
        )

    return [Page(str(number), one(number)) for number in range(300)]


def cpu() -> float:
    """Return CPU seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def extract_all(pages: Sequence[str], engine: str, **settings: Any) -> list[str]:
    """Extract pages by our stage, and end its workers so that their time can be told."""
    import longcrawl as lc
    from longcrawl.text.extract import pool as _pool

    stage = lc.text.ExtractText(engine=engine, **settings)
    texts: list[str] = []
    for start in range(0, len(pages), 100):
        table = pa.table({"html": pa.array(pages[start : start + 100], pa.large_string())})
        texts += stage.edit(table)[0]["text"].to_pylist()
    _pool._here.close()  # noqa: SLF001  # so that their CPU time is counted
    return [text or "" for text in texts]


def extract_by_folds(samples: Sequence[Any], models: Path, folds: dict[str, int], **settings: Any) -> list[str]:
    """Extract each page by the model that has not seen its site."""
    from longcrawl.text.extract import blocks

    texts = [""] * len(samples)
    for fold in sorted(set(folds.values())):
        chosen = [at for at, sample in enumerate(samples) if folds[sample.site] == fold]
        blocks.MODEL = models / f"{fold}.npz"
        blocks.load_model.cache_clear()
        for at, text in zip(
            chosen, extract_all([samples[at].html for at in chosen], "blocks", **settings), strict=True
        ):
            texts[at] = text
    return texts


def grams(text: str, size: int) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return Counter(zip(*(words[at:] for at in range(size)), strict=False))


def f1(wanted: str, text: str, size: int = 1) -> float:
    """Return F1 of the multisets of n-grams of words."""
    first, second = grams(wanted, size), grams(text, size)
    return 2 * (first & second).total() / max(first.total() + second.total(), 1)


def interval(values: Sequence[float], sites: Sequence[str]) -> str:
    """Return a mean and its interval of 95 %."""
    names = {site: number for number, site in enumerate(sorted(set(sites)))}
    at = np.array([names[site] for site in sites])
    sums, counts = np.bincount(at, values, len(names)), np.bincount(at, minlength=len(names))
    drawn = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
    low, high = np.quantile(drawn @ sums / (drawn @ counts), (0.025, 0.975))
    return (
        f"{np.mean(values):+.4f} ({low:+.4f} to {high:+.4f})"
        if low < 0
        else f"{np.mean(values):.4f} ({low:.4f} to {high:.4f})"
    )


def print_scores(samples: Sequence[Any], texts: dict[str, list[str]], size: int = 1) -> None:
    sites = [sample.site for sample in samples]
    scores = {
        name: [f1(sample.text, text, size) for sample, text in zip(samples, each, strict=True)]
        for name, each in texts.items()
    }
    kinds = defaultdict(list)
    for at, sample in enumerate(samples):
        kinds[sample.kind].append(at)
    for name, each in scores.items():
        by_kind = ", ".join(f"{kind} {np.mean([each[at] for at in ats]):.3f}" for kind, ats in sorted(kinds.items()))
        print(f"{name:12} F1 {interval(each, sites)}: {by_kind}")
        if name != "blocks":
            print(f"{'':12} blocks is better by {interval(np.subtract(scores['blocks'], each), sites)}")


def print_snippets(lines: Sequence[dict[str, Any]], texts: dict[str, list[str]]) -> None:
    """Print the shares of snippets that should be in the text and are, and that should not and are not."""

    def plain(text: str) -> str:
        return " ".join(text.lower().split())

    for name, each in texts.items():
        found, absent = [], []
        for line, text in zip(lines, map(plain, each), strict=True):
            found += [plain(piece) in text for piece in line["with"] or ()]
            absent += [plain(piece) not in text for piece in line["without"] or ()]
        print(f"{name:12} with: {np.mean(found):.4f} of {len(found)} found, ", end="")
        print(f"without: {np.mean(absent):.4f} of {len(absent)} absent")


def words(text: str) -> str:
    """Return the words of a text without its URLs, which extraction removes."""
    return " ".join(re.findall(r"\w+", re.sub(r"(https?://|www\.)\S+", "", text)))


def rows_of(tree: Any) -> Iterator[tuple[str, ...]]:
    """Yield the cells with words of the rows of data of a page that are displayed, as lxml reads them."""
    for row in tree.iter("tr"):
        cells = [words(cell.text_content()) for cell in row if cell.tag in ("td", "th")]
        odd = row.xpath(".//table|.//script|.//style|.//select|.//button|.//*[@hidden or contains(@style, 'none')]")
        if not odd and len(list(filter(None, cells))) > 1 and max(map(len, cells)) < 300:
            yield tuple(filter(None, cells))


def lines_of(tree: Any) -> Iterator[tuple[str, ...]]:
    """Yield the cells of all rows, and the words of short elements: lines that are whole, whatever else is similar."""
    for row in tree.iter("tr"):
        yield tuple(filter(None, (words(cell.text_content()) for cell in row if cell.tag in ("td", "th"))))
    for each in tree.iter("h1", "h2", "h3", "h4", "h5", "h6", "p", "li", "div", "a", "span"):
        if len(each) < 4:
            yield (words(each.text_content()),)


def lists_of(tree: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the own words of list items, and those of the items of lists inside them."""
    for item in tree.iter("li"):
        inner = [
            words(each.text_content()) for each in item.iter("li") if each is not item and each.find(".//li") is None
        ]
        plain = not item.xpath(".//script|.//style")
        if plain and len(list(filter(None, inner))) > 1 and sum(map(len, inner)) < 4000 and words(item.text or ""):
            yield words(item.text), list(filter(None, inner))


def is_torn(cells: Sequence[str], lines: set[tuple[str, ...]]) -> bool:
    """Return whether a line has the first cell of a row and not all others."""
    return any(line[0] == cells[0] and len(line) < len(cells) and set(line) <= set(cells) for line in lines)


def print_torn(pages: Sequence[str], texts: Sequence[str]) -> None:
    """Print how many rows of data in a text lost a cell, and how many lists an item of a nested list."""
    from lxml import html

    rows, torn, lists, torn_lists = 0, 0, 0, 0
    for page, text in zip(pages, texts, strict=True):
        lines = {tuple(filter(None, map(words, line.split(" | ")))) for line in text.split("\n")} - {()}
        whole = f" {words(text)} "
        tree = html.fromstring(page.encode() or b"<p>", parser=html.HTMLParser(encoding="utf-8"))
        parts = lines - set(lines_of(tree))
        for cells in rows_of(tree):
            torn += cells not in lines and is_torn(cells, parts)
            rows += cells in lines or is_torn(cells, parts)
        for own, inner in lists_of(tree):
            kept = [f" {each} " in whole for each in inner]
            lists += f" {own} " in whole
            torn_lists += f" {own} " in whole and any(kept) and not all(kept)
    print(f"rows of data: {torn} of {rows} lost a cell; nested lists: {torn_lists} of {lists} lost an item")


def print_times(pages: Sequence[str], repeats: int) -> float:
    """Print pages per CPU second by turns; return those of blocks over those of resiliparse."""
    import trafilatura

    def naive(pages: Sequence[str]) -> list[str]:
        return [trafilatura.extract(page.encode()) or "" for page in pages]

    runs: dict[str, Callable[[Sequence[str]], list[str]]] = {
        engine: lambda pages, engine=engine: extract_all(pages, engine) for engine in ENGINES
    } | {"trafilatura's own call": naive}
    least = dict.fromkeys(runs, np.inf)
    extract_all(pages[:3], "blocks")
    for _ in range(repeats):
        for name, run in runs.items():
            began = cpu()
            run(pages)
            least[name] = min(least[name], cpu() - began)
    for name, seconds in least.items():
        print(f"{name:24} {len(pages) / seconds:8.1f} pages/s of CPU, blocks {seconds / least['blocks']:.2f} times")
    return least["resiliparse"] / least["blocks"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--folds", type=Path)
    parser.add_argument("--warc", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--first", type=int, default=200)
    options = parser.parse_args()
    pages = [page.html for page in made_up()]
    if options.pages:
        from train_extraction import folds_of, read_lines, read_samples

        samples = read_samples(options.pages, options.warc)
        folds = folds_of(samples)
        lines = {line["html"]: line for line in read_lines(options.pages)}
        texts = {"blocks": extract_by_folds(samples, options.folds, folds)}
        wcxb = [at for at, sample in enumerate(samples) if sample.kind != "warc"]
        for favor in ("balanced", "recall"):
            texts[f"blocks, {favor}"] = extract_by_folds(samples, options.folds, folds, favor=favor)
        for engine in ENGINES[1:]:
            texts[engine] = extract_all([sample.html for sample in samples], engine)

        def of(ats: Sequence[int]) -> dict[str, list[str]]:
            return {name: [each[at] for at in ats] for name, each in texts.items()}

        print(f"WCXB, development, out of fold: {len(wcxb)} pages")
        print_scores([samples[at] for at in wcxb], of(wcxb))
        print_snippets([lines[samples[at].html] for at in wcxb], of(wcxb))
        print_torn([samples[at].html for at in wcxb], of(wcxb)["blocks"])
        others = [at for at, sample in enumerate(samples) if sample.kind == "warc"]
        for size in (1, 4) if others else ():
            print(f"annotated pages of archives, out of fold, {size}-grams of words: {len(others)} pages")
            print_scores([samples[at] for at in others], of(others), size)
        from longcrawl.text.extract import blocks

        blocks.MODEL = Path(blocks.__file__).parent / "blocks.npz"
        blocks.load_model.cache_clear()
        pages = [samples[at].html for at in wcxb]
    ratio = print_times(pages[: options.first], options.repeats)
    print(f"extraction ratio={ratio:.2f}")


if __name__ == "__main__":
    main()
