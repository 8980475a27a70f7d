"""Gopher's and FineWeb's rules on text, against the same definitions in plain Python, and against datatrove's filters.

    python benchmarks/filters.py --documents short.jsonl.zst long.jsonl.zst [--peers-python PYTHON] [--language en]

Both sides measure every rule of GopherQuality, GopherRepetition and FineWebQuality; all values are asserted equal. With
--peers-python, the Python of an environment that has datatrove, its Gopher, C4 and FineWeb filters run on the same
documents with repetition thresholds so wide that nothing ends early, against our four stages. CPU time of one process
on one core, the best of --repeats, after one warm-up. Documents are short (below 4 KiB), medium, or long (from 64 KiB
on). Without --documents synthetic text is made. Then Gopher's two stages run by each project's definitions as in a run,
ledger included, and several of them after each other: MB of all texts that come, per second. The last line is plain
seconds / longcrawl seconds over all documents.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from _measures import best, seconds
from signals import compared, duplicate_share, ngrams, sets, synthetic

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
BULLETS = tuple("•‣\N{HYPHEN BULLET}⁌⁍∙◘◦⦾⦿▪▫■□●○◆◇▶►◀")
MARKERS = ("-", "*", "+", "\N{EN DASH}")
BLANK_LINE = re.compile(r"\n(?:[^\S\n]*\n)+")


def share(count: float, of: float) -> float:
    return count / of if of else 0.0


def quality(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    bulleted = sum(line.startswith(BULLETS) or line.split()[0] in MARKERS for line in lines)
    spelled = {one for word in STOP_WORDS for one in (word, word.capitalize(), word.upper())}
    mean = share(sum(map(len, words)), len(words))
    return {
        "min_words": len(words),
        "max_words": len(words),
        "min_mean_word_length": mean,
        "max_mean_word_length": mean,
        "max_hash_ratio": share(text.count("#"), len(words)),
        "max_ellipsis_ratio": share(text.count("...") + text.count("…"), len(words)),
        "max_bullet_lines": share(bulleted, len(lines)),
        "max_ellipsis_lines": share(sum(line.endswith(("...", "…")) for line in lines), len(lines)),
        "min_alphabetic_words": share(sum(any(map(str.isalpha, word)) for word in words), len(words)),
        "min_stop_words": len({word.lower() for word in words if word in spelled}),
    }


def duplicates(segments: list[str]) -> tuple[float, float]:
    """Return the share of segments that come more than once, all occurrences, and their share of characters."""
    counts = Counter(segments)
    again = [segment for segment in segments if counts[segment] > 1]
    return share(len(again), len(segments)), share(sum(map(len, again)), sum(map(len, segments)))


def repetition(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    paragraphs = [part.strip() for part in BLANK_LINE.split(text) if part.strip()]
    found = {}
    for name, segments in (("line", lines), ("paragraph", paragraphs)):
        found[f"max_duplicate_{name}s"], found[f"max_duplicate_{name}_characters"] = duplicates(segments)
    for n in (2, 3, 4):
        gram, count = max(Counter(ngrams(words, n)).items(), key=lambda item: item[1], default=((), 0))
        characters = sum(map(len, gram)) * count if count > 1 else 0
        found[f"max_top_{n}gram"] = share(characters, sum(map(len, words)))
    return found | {f"max_duplicate_{n}grams": duplicate_share(words, n, digits=None) for n in range(5, 11)}


def line_rules(text: str, terminal: frozenset[str]) -> dict[str, float]:
    lines = [line for line in text.split("\n") if line.strip()]
    later = sum(len(line) * (count - 1) for line, count in Counter(lines).items())
    return {
        "min_terminal_lines": share(sum(line[-1] in terminal for line in lines), len(lines)),
        "max_short_lines": share(sum(len(line) <= 30 for line in lines), len(lines)),
        "max_later_line_characters": share(later, len(text.replace("\n", ""))),
        "max_newline_ratio": share(text.count("\n"), len(text.split())),
    }


def terminal_marks() -> frozenset[str]:
    """Return Unicode's Sentence_Terminal, from a table that is not ours."""
    import regex

    return frozenset(
        regex.findall(r"\p{Sentence_Terminal}", "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])))
    )


def plain(texts: list[str], terminal: frozenset[str]) -> list[dict[str, float]]:
    return [quality(text) | repetition(text) | line_rules(text, terminal) for text in texts]


def documents(paths: list[Path], language: str) -> list[str]:
    """Read the texts of JSON lines, plain, .gz or .zst, in one language."""
    from datasets import load_dataset

    import longcrawl  # noqa: F401  # its import registers the builder

    data = load_dataset("longcrawl", "text", data_files=[str(path) for path in paths], split="train")
    return [row["text"] for row in data if row["language"] in (None, language)]


def datatrove_seconds(python: str, texts: list[str], repeats: int) -> float:
    """Run datatrove's filters in their own environment and give their CPU seconds."""
    script = Path(__file__).parent / "peers" / "datatrove_filters.py"
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "texts.json")
        given.write_text(json.dumps(texts))
        ran = subprocess.run(
            [python, str(script), str(given), str(repeats)], check=True, capture_output=True, text=True
        )
    return float(ran.stdout.splitlines()[-1])


def against_datatrove(python: str, texts: list[str], repeats: int) -> tuple[float, float]:
    """Return CPU seconds of datatrove's four filters, and of our four stages, on the same documents."""
    import longcrawl as lc

    stages = [lc.text.GopherQuality(), lc.text.GopherRepetition(), lc.text.C4Quality(), lc.text.FineWebQuality()]
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    for stage in stages:
        stage.prepare()
    theirs = datatrove_seconds(python, texts, repeats)
    return theirs, seconds(lambda: [stage(table) for stage in stages], 5 * repeats)[0]


def pipelines() -> dict[str, list]:
    """Return Gopher's stages by each project's definitions, and such pipelines as documents go through."""
    import longcrawl as lc

    names = ("paper", "datatrove", "dclm", "dolma", "nemo-curator")
    gopher = {
        name: [lc.text.GopherRepetition(definitions=name), lc.text.GopherQuality(definitions=name)] for name in names
    }
    c4, fineweb = lc.text.C4Quality(), lc.text.FineWebQuality()
    return gopher | {
        "paper, FineWeb": [*gopher["paper"], fineweb],
        "paper, FineWeb, C4": [*gopher["paper"], fineweb, c4],
        "datatrove, C4, FineWeb": [*gopher["datatrove"], c4, fineweb],
        "all five": [stage for stages in gopher.values() for stage in stages],
    }


def run_pipelines(texts: list[str], repeats: int) -> None:
    """Print the speed of all stages in one part of a run, and of each in a part of its own, which reads texts again."""
    from longcrawl.run.part import Tally, run_fused

    documents = pa.table(
        {"id": [str(number) for number in range(len(texts))], "text": pa.array(texts, pa.large_string())}
    )
    size = sum(len(text.encode()) for text in texts) / 1e6

    def one_by_one(labelled: list) -> None:
        tables = [documents]
        for each in labelled:
            tables = list(run_fused([each], tables, Tally()))

    for name, stages in pipelines().items():
        labelled = [(f"{number}-{stage.name}", stage) for number, stage in enumerate(stages)]
        together = lambda labelled=labelled: list(run_fused(labelled, [documents], Tally()))  # noqa: E731
        together()
        fused, apart = best(together, repeats), best(lambda labelled=labelled: one_by_one(labelled), repeats)
        print(f"{name:22} {size / fused:6.1f} MB/s in one run, {size / apart:6.1f} stage by stage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, nargs="+")
    parser.add_argument("--language", default="en")
    parser.add_argument("--peers-python")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    import longcrawl as lc

    rules = [lc.text.GopherQuality(), lc.text.GopherRepetition(), lc.text.FineWebQuality()]
    for stage in rules:
        stage.prepare()
    terminal, totals = terminal_marks(), Counter()
    by_length = sets(documents(options.documents, options.language) if options.documents else synthetic())
    for name, texts in by_length.items():
        table = pa.table({"text": pa.array(texts, pa.large_string())})
        found = {check.rule: check.value.to_pylist() for stage in rules for check in stage.checks(table)}
        del found["max_unspaced_letters"]
        for at, values in enumerate(plain(texts, terminal)):
            assert {rule: found[rule][at] for rule in values} == values, f"document {at} of {name} differs"
        size = sum(len(text.encode()) for text in texts) / 1e6
        sides = (
            lambda texts=texts: plain(texts, terminal),
            lambda table=table: [stage.checks(table) for stage in rules],
        )
        totals.update(compared(f"{name:6} {len(texts):4} documents", size, *sides, options.repeats))
        if options.peers_python:
            theirs, ours = against_datatrove(options.peers_python, texts, options.repeats)
            totals.update({"datatrove": theirs, "all four": ours})
            print(f"       with C4: {size / ours:6.1f} MB/s, datatrove {size / theirs:.3f}, ratio {theirs / ours:.0f}")
    run_pipelines([text for texts in by_length.values() for text in texts], options.repeats)
    if options.peers_python:
        print(f"datatrove ratio {totals['datatrove'] / totals['all four']:.0f}")
    print(f"filters ratio={totals['plain'] / totals['ours']:.3f}")


if __name__ == "__main__":
    main()
