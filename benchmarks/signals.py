"""RedPajama-V2's signals from text, against the same definitions in plain Python.

    python benchmarks/signals.py --release RELEASE [--part 2023-06/0001/en_head] [--peers-python PYTHON]

Both sides compute every document-level signal that needs no model and the sums of the line signals; all values are
asserted equal. CPU time of one process on one core, the best of --repeats, after one warm-up (the kernels compile once,
about half a minute, and are kept on disk). Documents are short (below 4 KiB), medium, or long (from 64 KiB on).
Without --release synthetic text is made. With --peers-python, the Python of an environment that has datatrove, its
Gopher, C4 and FineWeb filters run against our stages of these names, as in ``filters.py``. The
last line is plain seconds / longcrawl seconds over all documents.
"""

import argparse
import gzip
import itertools
import json
import math
import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from _measures import seconds

WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
RAW_WORD = re.compile(r"\w+|[^\w\s]+")
SENTENCE = re.compile(r"\b[^.!?]+[.!?]*")
LINE = re.compile(r"[^\n]*\n|[^\n]+$")
LETTER = re.compile(r"[a-zA-Z]")
LOREM_IPSUM = re.compile("lorem ipsum", re.IGNORECASE)
BULLETS = tuple("•‣▶◀◦■□▪▫\N{EN DASH}")


def normalize(text: str) -> str:
    bare = text.translate(WITHOUT_PUNCTUATION).lower().strip()
    return unicodedata.normalize("NFD", re.sub(r"\s+", " ", bare))


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def top_share(words: list[str], n: int) -> float:
    gram, count = max(Counter(ngrams(words, n)).items(), key=lambda item: item[1], default=((), 0))
    return round(sum(map(len, gram)) * count / sum(map(len, words)), 8) if count > 1 else 0.0


def duplicate_share(words: list[str], n: int, digits: int | None = 8) -> float:
    if len(words) < n:
        return 0.0
    grams = ngrams(words, n)
    counts = Counter(grams)
    covered = [False] * len(words)
    for at, gram in enumerate(grams):
        if counts[gram] > 1:
            covered[at : at + n] = [True] * n
    found = sum(len(word) for word, hit in zip(words, covered, strict=True) if hit) / sum(map(len, words))
    return found if digits is None else round(found, digits)


def entropy(words: list[str]) -> float:
    total = 0.0
    for count in Counter(words).values():
        total += -count / len(words) * math.log(count / len(words))
    return round(total, 8)


def listed(words: list[str], bad_words: frozenset[str]) -> float:
    lengths = {1 + entry.count(" ") for entry in bad_words}
    return float(sum(" ".join(gram) in bad_words for n in lengths for gram in ngrams(words, n)))


def line_values(line: str) -> dict[str, float]:
    normal = normalize(line)
    numerals = sum(map(str.isnumeric, normal))
    return {
        "rps_lines_ending_with_terminal_punctution_mark": float(line.rstrip().endswith((".", "!", "?", "”"))),
        "rps_lines_javascript_counts": float(normal.split().count("javascript")),
        "rps_lines_num_words": float(len(normal.split())),
        "rps_lines_numerical_chars_fraction": round(numerals / len(normal), 8) if normal else 0.0,
        "rps_lines_start_with_bulletpoint": float(line.lstrip().startswith(BULLETS)),
        "rps_lines_uppercase_letter_fraction": round(sum(map(str.isupper, line)) / len(line), 8),
    }


def plain_line_signals(text: str) -> dict[str, list[list[float | None]]]:
    """Return every line-level signal as spans."""
    lines = LINE.findall(text)
    ends = list(itertools.accumulate(map(len, lines)))
    spans: dict[str, list[list[float | None]]] = {name: [] for name in line_values("a")}
    for line, end in zip(lines, ends, strict=True):
        for name, value in line_values(line).items():
            spans[name].append([float(end - len(line)), float(end), value])
    if not lines:
        spans["rps_lines_start_with_bulletpoint"] = [[0.0, 0.0, None]]
    return spans


def plain_signals(
    text: str, stop_words: frozenset[str], bad_words: frozenset[str], raw_word: re.Pattern[str] = RAW_WORD
) -> dict[str, float | None]:
    """Return every document-level signal that needs no model, and the sums of the line signals."""
    normal, raw, lines = normalize(text), raw_word.findall(text), LINE.findall(text)
    words = normal.split()
    symbols = text.count("#") + text.count("...") + text.count("…")
    lorem = len(LOREM_IPSUM.findall(normal)) if "lorem ipsum" in normal else 0
    lettered = sum(LETTER.search(word) is not None for word in raw)
    ellipses = sum(line.rstrip().endswith(("...", "…")) for line in lines)
    found = {
        "ccnet_length": float(len(text)),
        "ccnet_nlines": float(len(lines)),
        "rps_doc_curly_bracket": round((text.count("{") + text.count("}")) / len(text), 8) if text else 0.0,
        "rps_doc_ldnoobw_words": listed(words, bad_words),
        "rps_doc_lorem_ipsum": round(lorem / len(normal), 8) if normal else 0.0,
        "rps_doc_stop_word_fraction": round(sum(w in stop_words for w in raw) / len(raw), 8) if words else 0.0,
        "rps_doc_frac_all_caps_words": round(sum(map(str.isupper, raw)) / len(raw), 8) if raw else None,
        "rps_doc_frac_lines_end_with_ellipsis": round(ellipses / len(lines), 8) if lines else None,
        "rps_doc_frac_no_alph_words": round(1.0 - lettered / len(raw), 8) if raw else None,
        "rps_doc_frac_unique_words": round(len(set(words)) / len(words), 8) if words else None,
        "rps_doc_mean_word_length": round(sum(map(len, words)) / len(words), 8) if words else None,
        "rps_doc_num_sentences": float(len(SENTENCE.findall(text))),
        "rps_doc_symbol_to_word_ratio": round(symbols / len(raw), 8) if raw else None,
        "rps_doc_unigram_entropy": entropy(words) if words else None,
        "rps_doc_word_count": float(len(words)),
    }
    found |= {f"rps_doc_frac_chars_top_{n}gram": top_share(words, n) for n in (2, 3, 4)}
    found |= {f"rps_doc_frac_chars_dupe_{n}grams": duplicate_share(words, n) for n in range(5, 11)}
    for name in line_values("a"):
        found[f"{name}.sum"] = 0.0
    for line in lines:
        for name, value in line_values(line).items():
            found[f"{name}.sum"] += value
    return found


STOP_WORDS = frozenset(
    [
        "the",
        "be",
        "to",
        "of",
        "and",
        "that",
        "have",
        "with",
        "a",
        "in",
        "is",
        "it",
        "for",
        "on",
        "as",
        "are",
        "was",
        "this",
    ]
)
BAD_WORDS = frozenset(["darn", "heck of a", "the devil"])


def plain(texts: list[str]) -> list[dict[str, float | None]]:
    return [plain_signals(text, STOP_WORDS, BAD_WORDS) for text in texts]


def documents(release: Path, part: str) -> list[str]:
    with gzip.open(release / f"documents/{part}.json.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["raw_content"] for line in lines]


def synthetic() -> list[str]:
    """Make documents of 1 to 150 KB: English-like word lengths, sentences, lines, a few letters beyond ASCII."""
    chosen = random.Random(0)
    pool = ["".join(chosen.choices("etaoinshrdlucmfwypé", k=chosen.choice((2, 3, 3, 4, 5, 6, 8)))) for _ in range(4000)]
    pool += [*STOP_WORDS] * 60
    ends = (". ", ".\n", "! ", ", ")
    sentences = (" ".join(chosen.choices(pool, k=12)).capitalize() + chosen.choice(ends) for _ in itertools.count())
    return ["".join(itertools.islice(sentences, count)) for count in [15] * 400 + [200] * 60 + [2000] * 6]


def sets(texts: list[str]) -> dict[str, list[str]]:
    """Sort documents by length in bytes, and keep about 2 MB of each length."""
    sorted_out: dict[str, list[str]] = {"short": [], "medium": [], "long": []}
    held: Counter[str] = Counter()
    for text in texts:
        size = len(text.encode())
        name = "short" if size < 4096 else "medium" if size < 65536 else "long"
        if held[name] < 2e6:
            sorted_out[name].append(text)
            held[name] += size
    return {name: found for name, found in sorted_out.items() if found}


def compared(name: str, size: float, plain: Callable, ours: Callable, repeats: int) -> dict[str, float]:
    """Print the MB/s of both sides, for input of ``size`` MB; give the best seconds of each."""
    theirs, own = seconds(plain, repeats), seconds(ours, 5 * repeats)
    print(
        f"{name}, {size:.2f} MB: {size / own[0]:6.1f} MB/s against {size / theirs[0]:.2f}, "
        f"ratio {theirs[0] / own[0]:.1f}, spread {own[-1] / own[0]:.2f}x and {theirs[-1] / theirs[0]:.2f}x"
    )
    return {"plain": theirs[0], "ours": own[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=Path)
    parser.add_argument("--part", default="2023-06/0001/en_head")
    parser.add_argument("--peers-python")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    import tempfile

    import longcrawl as lc

    kept = tempfile.TemporaryDirectory()
    lists = {"stop_words": STOP_WORDS, "bad_words": BAD_WORDS}
    paths = {name: str(Path(kept.name, name)) for name in lists}
    for name, words in lists.items():
        Path(paths[name]).write_text(json.dumps({"en": sorted(words)}))
    stage = lc.text.Signals(language="en", **paths)
    stage.prepare()
    totals: Counter[str] = Counter()
    for name, texts in sets(documents(options.release, options.part) if options.release else synthetic()).items():
        table = pa.table({"text": pa.array(texts, pa.large_string())})
        expected = plain(texts)
        found = stage(table)["signals"].to_pylist()
        assert all({key: row[key] for key in want} == want for want, row in zip(expected, found, strict=True)), (
            "the signals differ"
        )
        size = sum(len(text.encode()) for text in texts) / 1e6
        sides = (lambda texts=texts: plain(texts), lambda table=table: stage(table))
        totals.update(compared(f"{name:6} {len(texts):4} documents", size, *sides, options.repeats))
        if options.peers_python:
            from filters import against_datatrove

            theirs, ours = against_datatrove(options.peers_python, texts, options.repeats)
            print(f"       filters: {size / ours:6.1f} MB/s, datatrove {size / theirs:.3f}, ratio {theirs / ours:.0f}")
    print(f"signals ratio={totals['plain'] / totals['ours']:.3f}")


if __name__ == "__main__":
    main()
