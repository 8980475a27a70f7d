"""Extraction: how much of it is right, and pages per second, against warcio and trafilatura called naively.

    python benchmarks/extraction.py --data FOLDER [--repeats 2] [--favor]

FOLDER holds ``pages-*.warc.gz`` and ``groundtruth.jsonl.gz``, a JSON object per line with ``url`` and either ``text``,
the annotated main text, or ``must_contain`` and ``must_not_contain``, pieces of text. Without --data, pages are made up
and only times are told.

``_annotated.py`` says what the scores mean. Naively is ``pip install warcio trafilatura``: ``ArchiveIterator`` over
the file, and ``trafilatura.extract`` on the bytes of each response. Ours reads with the source ``warc`` and runs the
stage with one worker. Both are CPU seconds of all processes involved, the least of --repeats; then wall time with two
workers.

The model of the engine "blocks" was trained on the pages of two thirds of the sites; those of the other sites are
scored by themselves, too. They have few annotated texts: ``train_extraction.py --folds`` judges all pages by models
that have seen no page of the same site. --favor adds trafilatura's other modes, and what its ``deduplicate`` does,
remembering the pages before and not. The last line is naive seconds / ours for the default engine.
"""

import argparse
import random
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from _annotated import Page, Truth, describe, parts_of, read_pages, read_truth, site_of


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


def naively(folder: Path | None, pages: Sequence[Page]) -> list[tuple[str, str | None]]:
    """Return address and text of each page; of records whose address is not one of http warcio gives no status."""
    import trafilatura

    if folder is None:
        return [(page.url, trafilatura.extract(page.html.encode())) for page in pages]
    from warcio.archiveiterator import ArchiveIterator

    texts = []
    for path in sorted(folder.glob("pages-*.warc.gz")):
        with path.open("rb") as file:
            texts += [
                (record.rec_headers["WARC-Target-URI"], trafilatura.extract(record.content_stream().read()))
                for record in ArchiveIterator(file)
                if record.rec_type == "response"
                and (record.http_headers is None or record.http_headers.get_statuscode() == "200")
            ]
    return texts


def ours(folder: Path | None, pages: Sequence[Page], **settings) -> list[str | None]:
    """Read and extract, and end the workers so that their time can be told."""
    import longcrawl as lc
    from longcrawl.text.extract import _pool as _extraction_pool

    read = pages if folder is None else read_pages(folder)
    stage = lc.text.ExtractText(**settings)
    texts: list[str | None] = []
    for start in range(0, len(read), 100):
        batch = [page.html for page in read[start : start + 100]]
        texts += stage.edit(pa.table({"html": pa.array(batch, pa.large_string())}))[0]["text"].to_pylist()
    _extraction_pool._here.close()  # noqa: SLF001  # so that their CPU time is counted
    return texts


def timed(compute: Callable[[], list], repeats: int) -> tuple[list, float, float]:
    """Return what was computed, the least CPU seconds and the least wall seconds."""
    cpus, walls = [], []
    for _ in range(repeats):
        began, wall = cpu(), time.perf_counter()
        made = compute()
        cpus.append(cpu() - began)
        walls.append(time.perf_counter() - wall)
    return made, min(cpus), min(walls)


def compare_modes(pages: Sequence[Page], truth: Truth) -> None:
    """Print how right trafilatura's other modes are, and on how many pages ``deduplicate`` makes a difference."""
    import trafilatura
    from trafilatura.deduplication import LRUCache

    def mode(**settings) -> list[str | None]:
        return [trafilatura.extract(page.html, include_comments=False, **settings) for page in pages]

    plain = mode(favor_precision=True)
    shared = mode(favor_precision=True, deduplicate=True)
    # What trafilatura keeps by itself has as many entries.
    own = [
        trafilatura.extract(page.html, include_comments=False, favor_precision=True, deduplicate=LRUCache(4096))
        for page in pages
    ]
    modes = {
        "its defaults": [trafilatura.extract(page.html) for page in pages],
        "precision": plain,
        "balanced": mode(),
        "recall": mode(favor_recall=True),
        "precision, fast": mode(favor_precision=True, fast=True),
        "balanced, fast": mode(fast=True),
        "precision, no tables": mode(favor_precision=True, include_tables=False),
        "precision, deduplicate over pages": shared,
        "precision, deduplicate by page": own,
    }
    for name, texts in modes.items():
        print(f"trafilatura, {name}: {describe([page.url for page in pages], texts, truth)}")
    differ = [sum(a != b for a, b in zip(plain, each, strict=True)) for each in (shared, own)]
    print(f"deduplicate changes {differ[0]} of {len(pages)} pages over pages, {differ[1]} by page")


def describe_parts(engine: str, pages: Sequence[Page], texts: Sequence[str | None], truth: Truth) -> None:
    """Print how right texts are on pages of the sites that "blocks" was trained on, and on those of others."""
    parts = parts_of(pages, truth)
    for name, held in (("that blocks was trained on", False), ("that it was not trained on", True)):
        chosen = [(page.url, text) for page, text in zip(pages, texts, strict=True) if held == (parts[page.html] == 0)]
        sites = len({site_of(url) for url, _ in chosen})
        print(f"{engine}, {len(chosen)} pages of {sites} sites {name}: {describe(*zip(*chosen, strict=True), truth)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--favor", action="store_true")
    options = parser.parse_args()
    pages = read_pages(options.data) if options.data else made_up()
    size = sum(len(page.html.encode()) for page in pages) / 1e6
    truth = read_truth(options.data) if options.data else {}
    print(f"{len(pages)} pages, {size:.1f} MB of HTML")

    urls = [page.url for page in pages]
    made, seconds, wall = timed(lambda: naively(options.data, pages), options.repeats)
    naive, naive_wall = seconds / len(made), wall / len(made)
    rightness = f": {describe(*zip(*made, strict=True), truth)}" if truth else ""
    print(f"naively: {1 / naive:.1f} pages/s of CPU, {len(made)} pages{rightness}")
    ratios = {}
    for engine in ("resiliparse", "blocks", "trafilatura"):
        texts, seconds, wall = timed(lambda engine=engine: ours(options.data, pages, engine=engine), options.repeats)
        ratios[engine] = naive * len(pages) / seconds
        rightness = f": {describe(urls, texts, truth)}" if truth else ""
        print(f"{engine}: {len(pages) / seconds:.1f} pages/s of CPU, {ratios[engine]:.2f} times naively{rightness}")
        if truth:
            describe_parts(engine, pages, texts, truth)
        if engine == "blocks":
            continue  # it works in the process that reads
        again, _, two = timed(lambda engine=engine: ours(options.data, pages, engine=engine, workers=2), 1)
        assert again == texts, "two workers give other texts"
        gain = naive_wall * len(pages) / two
        print(f"{engine}, two workers: {wall / two:.2f} times one in wall time, {gain:.2f} times naively")
    if options.favor and truth:
        compare_modes(pages, truth)
    print(f"blocks against trafilatura: {ratios['blocks'] / ratios['trafilatura']:.1f} times the pages per second")
    print(f"extraction ratio={ratios['trafilatura']:.2f}")


if __name__ == "__main__":
    main()
