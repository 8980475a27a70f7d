"""Feed pages that nobody would write to the extraction, and see that each costs no more than itself.

    python benchmarks/fuzz_html.py [--seconds 60] [--seed 0] [--pages 40] [--max-seconds 2] [--from FOLDER_OF_HTML]

Every batch is made of pages cut, spliced and bit-flipped, of deep and of wide trees, of huge attributes, comments and
texts, and of one sound page in the middle. It goes through both engines. Asserted for each batch: every page becomes a
text or leaves by a rule of the stage, texts are in the promised form, the sound page becomes what it becomes alone, and
the batch in the other order gives the same but for pages at a limit of time or memory. With --from, the files
``*.html`` of a folder are mutated as well. The last line is the share of pages that left by a limit or a crash.
"""

import argparse
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

PROSE = "<p>Some ordinary sentence of a page that has text. It goes on for a while, as they do.</p>"
SOUND = f"<html><head><title>t</title></head><body><nav>Home</nav><article>{PROSE}<p>End.</p></article></body></html>"
TAGS = [
    "a", "article", "aside", "b", "blockquote", "body", "br", "button", "code", "dd", "div", "dl", "dt", "em", "font",
    "footer", "form", "h1", "h2", "head", "header", "html", "i", "iframe", "img", "input", "li", "link", "main", "math",
    "meta", "nav", "noscript", "ol", "option", "p", "plaintext", "pre", "q", "script", "section", "select", "span",
    "strong", "style", "sub", "svg", "table", "tbody", "td", "template", "textarea", "th", "title", "tr", "u",
    "ul", "xmp",
]  # fmt: skip
ATTRIBUTES = (
    "class",
    "id",
    "style",
    "href",
    "src",
    "hidden",
    "onclick",
    "aria-hidden",
    "a:b",
    "xmlns",
    "\x00",
    "é",
    '"',
)
VALUES = ("", "=x", '="a b"', "='")
BITS = (
    "&", "&amp", "&#0;", "&#xD800;", "&#x110000;", "&nbsp;", "&lt;p&gt;", "\x00", "\ufeff", "\u2028", "\U0001f600",
    "\ufffe", "<", "</", "<!", "<!--", "-->", "<![CDATA[", "]]>", "<?xml version='1.0' encoding='utf-16'?>", "</p",
    "<!DOCTYPE html>", "http://example.org/", "text ", "word word word. ", "\n\n\n\n", "\r", "\t", "العربية ",
    "中文", "<p", "='", '"',
)  # fmt: skip
LIMITS = ("extraction_time", "extraction_memory", "extraction_crash")


def soup(chance: random.Random, length: int) -> str:
    """Make tags, attributes and bits in any order."""
    made = []
    for _ in range(length):
        kind = chance.random()
        if kind < 0.4:
            names = chance.choices(ATTRIBUTES, k=chance.choice((0, 0, 1, 3)))
            attributes = "".join(f" {name}{chance.choice(VALUES)}" for name in names)
            made.append(f"<{chance.choice(TAGS)}{attributes}{chance.choice(('>', '>', '/>', ''))}")
        elif kind < 0.6:
            made.append(f"</{chance.choice(TAGS)}>")
        else:
            made.append(chance.choice(BITS) if chance.random() < 0.5 else PROSE)
    return "".join(made)


def deep(chance: random.Random, depth: int) -> str:
    tags = chance.choices(TAGS, k=chance.choice((1, 1, 2, 4)))
    opened = "".join(f"<{tag}>" for tag in tags) * (depth // len(tags))
    closed = chance.choice(("", "".join(f"</{tag}>" for tag in reversed(tags)) * (depth // len(tags))))
    return f"<html><body>{PROSE}{opened}{PROSE}{closed}</body></html>"


def huge(chance: random.Random, size: int) -> str:
    inside = chance.choice(("a", "a ", "&amp;", "\x00", "é", "<", "'", "\n", "-", " b='c'")) * (size // 2)
    form = chance.choice(
        (
            '<div class="{}">',
            "<!--{}-->",
            "<p>{}</p>",
            "<script>{}</script>",
            "<{}>",
            "<div {}>",
            "<title>{}",
            "<pre>{}",
        )
    )
    return f"<html><body><article>{PROSE}{form.replace('{}', inside)}{PROSE}</article></body></html>"


def wide(chance: random.Random, count: int) -> str:
    one = "".join(f"<{tag}>x" for tag in chance.choices(TAGS, k=2))
    return f"<html><body><article>{PROSE}{one * count}{PROSE}</article></body></html>"


def damaged(chance: random.Random, pages: list[str]) -> str:
    """Cut, splice and flip a page's bytes; what is no UTF-8 any more is replaced, as a reader would."""
    page = bytearray(chance.choice(pages).encode())
    other = chance.choice(pages).encode()
    for _ in range(chance.choice((1, 3, 10))):
        at = chance.randrange(len(page) + 1)
        match chance.randrange(4):
            case 0:
                del page[at:]
            case 1:
                start = chance.randrange(len(other) + 1)
                page[at:at] = other[start : start + chance.choice((10, 1000, 100_000))]
            case 2 if at < len(page):
                page[at] ^= 1 << chance.randrange(8)
            case _:
                del page[at : at + chance.choice((1, 10, 1000))]
    return page.decode("utf-8", "replace")


def hostile_page(chance: random.Random, pages: list[str], scale: int) -> str:
    """Make one page; ``scale`` is about its largest depth, and a fifth of its largest size in bytes."""
    match chance.randrange(5):
        case 0:
            return soup(chance, chance.choice((3, 30, 300)))
        case 1:
            return deep(chance, chance.choice((10, 300, scale)))
        case 2:
            return huge(chance, chance.choice((100, 5 * scale)))
        case 3:
            return wide(chance, chance.choice((10, 1000, scale // 4)))
        case _:
            return damaged(chance, pages)


def check_batch(pages: list[str], limits: dict) -> Counter[str]:
    """Extract a batch by each engine and assert what holds of any; gives how many pages left by which rule."""
    import longcrawl as lc
    from longcrawl.core.stages import first_failure

    rules: Counter[str] = Counter()
    sound = len(pages) // 2
    batch = [*pages[:sound], SOUND, *pages[sound:]]
    for engine in ("trafilatura", "resiliparse", "blocks"):
        stage = lc.text.ExtractText(engine=engine, **limits)
        alone = stage.edit(pa.table({"html": [SOUND]}))[0]["text"][0].as_py()
        assert alone.endswith("End."), alone
        seen = []
        for order in (1, -1):
            made, checks = stage.edit(pa.table({"html": batch[::order]}))
            verdicts = first_failure(made.num_rows, checks)["rule"].to_pylist()
            seen.append(list(zip(made["text"].to_pylist(), verdicts, strict=True))[::order])
        assert seen[0][sound] == (alone, None)
        for one, other in zip(*seen, strict=True):
            assert one == other or {one[1], other[1]} & set(LIMITS), (one, other)
            text, rule = one
            assert rule is not None or (text == text.strip() != "" and "\n\n\n" not in text)
            rules[rule or "kept"] += 1
    return rules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--max-seconds", type=float, default=2.0)
    parser.add_argument("--from", dest="folder", type=Path)
    options = parser.parse_args()
    sound = [SOUND]
    if options.folder:
        sound += [path.read_text("utf-8", "replace") for path in sorted(options.folder.rglob("*.html"))]
    rules: Counter[str] = Counter()
    end, seed, longest = time.monotonic() + options.seconds, options.seed, 0.0
    while time.monotonic() < end:
        chance = random.Random(seed)
        pages = [hostile_page(chance, sound, 100_000) for _ in range(options.pages)]
        began = time.monotonic()
        try:
            rules += check_batch(pages, {"max_seconds": options.max_seconds})
        except BaseException:
            print(f"at --seed {seed}")
            raise
        longest = max(longest, time.monotonic() - began)
        seed += 1
    for rule, count in rules.most_common():
        print(f"{rule}: {count:,}")
    print(f"{seed - options.seed} batches of {options.pages} pages, the longest took {longest:.1f} s of wall time")
    print(f"fuzz_html ratio={sum(rules[rule] for rule in LIMITS) / rules.total():.4f}")


if __name__ == "__main__":
    main()
