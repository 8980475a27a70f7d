"""Gopher's rules by the readings of datatrove, dolma and NeMo Curator, against their own filters.

    python benchmarks/gopher_peers.py --peers-python PEERS/bin/python --documents short.jsonl.zst [--nemo FOLDER]

PEERS is an environment of its own with datatrove 0.10, dolma 1.2 and what NeMo Curator's filters import (regex and
loguru); FOLDER is where nemo-curator's wheel was unpacked: its dependencies are many, and its filters need none of
them. All filters run there, unchanged but for datatrove's words, which are those of ``str.split`` instead of spaCy's.
Every value that they compute is compared with ours, to twelve digits. Known to differ is NeMo Curator's most frequent
n-gram where several are as frequent: which one it takes hangs on Python's hash seed, so such documents are counted
apart. Then follow the documents that each reading drops with Gopher's thresholds, of those in English.

The last line is datatrove's seconds / ours for both filters with their usual thresholds, in CPU time of one process.
"""

import argparse
import io
import json
import math
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from pathlib import Path

from _needed import lacks, shared

NGRAMS = (*range(2, 5), *range(5, 11))
DATATROVE_REPETITION = {
    "dup_para_frac": "max_duplicate_paragraphs",
    "dup_para_char_frac": "max_duplicate_paragraph_characters",
    "dup_line_frac": "max_duplicate_lines",
    "dup_line_char_frac": "max_duplicate_line_characters",
}
DATATROVE_QUALITY = {
    "min_doc_words": ["min_words"],
    "max_doc_words": ["max_words"],
    "min_avg_word_length": ["min_mean_word_length"],
    "max_avg_word_length": ["max_mean_word_length"],
    "max_symbol_word_ratio": ["max_hash_ratio", "max_ellipsis_ratio"],
    "max_bullet_lines_ratio": ["max_bullet_lines"],
    "max_ellipsis_lines_ratio": ["max_ellipsis_lines"],
    "max_non_alpha_words_ratio": ["min_alphabetic_words"],
    "min_stop_words": ["min_stop_words"],
}
READINGS = ("paper", "datatrove", "dclm", "dolma", "nemo-curator")


def rule_of(n: int) -> str:
    return f"max_top_{n}gram" if n <= 4 else f"max_duplicate_{n}grams"


class Recorder(float):
    """A threshold that nothing exceeds or falls short of, and that writes down what is compared with it."""

    # NumPy's scalars would compare by themselves otherwise.
    __array_ufunc__ = None

    def __init__(self, _: float) -> None:
        self.seen: list[float] = []

    def __lt__(self, value: float) -> bool:
        self.seen.append(float(value))
        return False

    __gt__ = __lt__
    __hash__ = float.__hash__


def run_datatrove(texts: list[str]) -> tuple[list[dict[str, float]], float]:
    """Return every value that datatrove's two filters compare, and the seconds that they take as they come."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import gopher_quality_filter as quality
    from datatrove.pipeline.filters import gopher_repetition_filter as repetition

    for module in (quality, repetition):
        module.split_into_words = lambda text, _: text.split()
    values = []
    for text in texts:
        document, found = Document(text=text, id=""), {}
        lines = {name: Recorder(1) for name in DATATROVE_REPETITION}
        grams = {n: Recorder(1) for n in NGRAMS}
        tuples = list(grams.items())
        marks = {name: Recorder(1) for name in DATATROVE_QUALITY}
        both = [
            repetition.GopherRepetitionFilter(top_n_grams=tuples[:3], dup_n_grams=tuples[3:], **lines),
            quality.GopherQualityFilter(**marks),
        ]
        for each in both:
            each.filter(document)
        found |= {rule: lines[name].seen[0] for name, rule in DATATROVE_REPETITION.items()}
        found |= {rule_of(n): each.seen[0] if each.seen else 0.0 for n, each in grams.items()}
        for name, rules in DATATROVE_QUALITY.items():
            found |= dict(zip(rules, marks[name].seen, strict=True))
        values.append(found)
    filters = [repetition.GopherRepetitionFilter(), quality.GopherQualityFilter()]
    documents = [Document(text=text, id="") for text in texts]
    start = time.process_time()
    for document in documents:
        for each in filters:
            each.filter(document)
    return values, time.process_time() - start


def run_dolma(texts: list[str]) -> list[dict[str, float]]:
    """Return the values of dolma's second version, which ignores empty lines."""
    from dolma.taggers.gopher import get_attributes

    values = []
    for text in texts:
        found = get_attributes(text, ignore_empty_lines=True)
        grams = [
            *found.fraction_of_characters_in_most_common_ngram,
            *found.fraction_of_characters_in_duplicate_ngrams,
        ]
        values.append(
            {
                "min_words": found.word_count,
                "min_mean_word_length": found.median_word_length,
                "max_hash_ratio": found.symbol_to_word_ratio,
                "max_bullet_lines": found.fraction_of_lines_starting_with_bullet_point,
                "max_ellipsis_lines": found.fraction_of_lines_ending_with_ellipsis,
                "min_alphabetic_words": found.fraction_of_words_with_alpha_character,
                "min_stop_words": found.required_word_count,
                "max_duplicate_lines": found.fraction_of_duplicate_lines,
                "max_duplicate_line_characters": found.fraction_of_characters_in_duplicate_lines,
                **{rule_of(n): value for n, value in grams},
            }
        )
    return values


def run_nemo(texts: list[str], folder: str) -> list[dict[str, float]]:
    """Return the scores of NeMo Curator's filters; of several most frequent n-grams the score is left out."""
    packages = ("", ".stages", ".stages.text", ".stages.text.filters", ".stages.text.filters.heuristic")
    for name in (*packages, ".stages.text.utils"):
        package = types.ModuleType(f"nemo_curator{name}")
        package.__path__ = [str(Path(folder, "nemo_curator", *name.split(".")[1:]))]
        sys.modules[package.__name__] = package
    from nemo_curator.stages.text.filters.heuristic import string
    from nemo_curator.stages.text.filters.heuristic.repetition import repetition
    from nemo_curator.stages.text.utils.text_utils import get_ngrams

    shares = {
        "min_words": string.WordCountFilter(),
        "min_mean_word_length": string.MeanWordLengthFilter(),
        "max_hash_ratio": string.SymbolsToWordsFilter(),
        "max_bullet_lines": string.BulletsFilter(),
        "max_ellipsis_lines": string.EllipsisFilter(),
        "min_alphabetic_words": string.WordsWithoutAlphabetsFilter(),
        "min_stop_words": string.CommonEnglishWordsFilter(stop_at_false=False),
    }
    unique = {
        "max_duplicate_lines": repetition.RepeatedLinesFilter(),
        "max_duplicate_paragraphs": repetition.RepeatedParagraphsFilter(),
        "max_duplicate_line_characters": repetition.RepeatedLinesByCharFilter(),
        "max_duplicate_paragraph_characters": repetition.RepeatedParagraphsByCharFilter(),
    }
    tops = {n: repetition.RepeatingTopNGramsFilter(n) for n in range(2, 5)}
    shares |= {rule_of(n): repetition.RepeatingDuplicateNGramsFilter(n) for n in range(5, 11)}
    values = []
    for text in texts:
        found = {rule: each.score_document(text) for rule, each in shares.items()}
        found |= {rule: 1 - each.score_document(text) for rule, each in unique.items()}
        for n, each in tops.items():
            counts = Counter(get_ngrams(text.split(), n)).most_common(2)
            tied = len(counts) == 2 and counts[0][1] == counts[1][1]
            found["tied " * tied + rule_of(n)] = each.score_document(text)
        values.append(found)
    return values


def run_peers(source: Path, target: Path, nemo: str) -> None:
    """Write what the peers compute; runs in their environment."""
    from datatrove.utils.text import PUNCTUATION_SET

    texts = json.loads(source.read_text("utf-8"))
    values, seconds = run_datatrove(texts)
    found = {"datatrove": values, "dolma": run_dolma(texts)}
    if nemo:
        found["nemo-curator"] = run_nemo(texts, nemo)
    answer = {"values": found, "seconds": seconds, "punctuation": sorted(map(ord, PUNCTUATION_SET))}
    target.write_text(json.dumps(answer), "utf-8")


def read_documents(path: Path) -> list[dict[str, str]]:
    import zstandard

    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        return [json.loads(line) for line in lines]


def make_stages(definitions: str) -> list:
    from longcrawl.text.gopher.stages import GopherQuality, GopherRepetition

    return [stage(definitions=definitions, max_unspaced_letters=None) for stage in (GopherRepetition, GopherQuality)]


def compare(definitions: str, table, peers: list[dict[str, float]]) -> None:
    """Print by rule how many values the peers have, how many are not ours, and how many verdicts that changes."""
    checks = {check.rule: check for each in make_stages(definitions) for check in each.checks(table)}
    ours = {rule: check.value.to_pylist() for rule, check in checks.items()}
    compared, differ, verdicts = Counter(), Counter(), Counter()
    for at, values in enumerate(peers):
        for rule, value in values.items():
            check, own = checks[rule.removeprefix("tied ")], ours[rule.removeprefix("tied ")][at]
            compared[rule] += 1
            if not math.isclose(value, own, rel_tol=1e-12, abs_tol=1e-12):
                differ[rule] += 1
                verdicts[rule] += (value > check.threshold) != (own > check.threshold)
    for rule in sorted(compared):
        counts = f"compared {compared[rule]:6,}  differ {differ[rule]:6,}  verdicts {verdicts[rule]:6,}"
        print(f"{definitions:13} {rule:36} {counts}")
    print(f"{definitions}: {compared.total():,} values compared")


def count_drops(table) -> None:
    """Print how many documents each reading drops, and on how many the readings are not of one mind."""
    import numpy as np

    kept = {}
    for definitions in READINGS:
        masks = [np.array(each(table)) for each in make_stages(definitions)]
        kept[definitions] = masks[0] & masks[1]
        counts = [*(~np.array([*masks, kept[definitions]])).sum(1), (kept[definitions] != kept["paper"]).sum()]
        print("{:13} repetition {:5,}  quality {:5,}  either {:5,}  not as paper {:5,}".format(definitions, *counts))
    votes = np.array(list(kept.values())).sum(0)
    print(f"of {table.num_rows:,} documents the readings differ on {int(((votes > 0) & (votes < len(kept))).sum()):,}")


def time_ours(table, repeats: int) -> float:
    stages = make_stages("datatrove")
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        for each in stages:
            each(table)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", help="the Python of an environment with datatrove and dolma")
    parser.add_argument("--nemo", default="", help="the folder into which nemo-curator's wheel was unpacked")
    about = "JSON lines with `text` and `lang`, compressed with zstandard"
    parser.add_argument("--documents", type=Path, default=shared("short.jsonl.zst"), help=about)
    parser.add_argument("--limit", type=int, help="only so many documents")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--as-peers", nargs=2, type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.as_peers:
        run_peers(*chosen.as_peers, chosen.nemo)
        return
    needed = "--peers-python of an environment with datatrove and dolma, and --documents"
    if lacks(needed, chosen.peers_python, chosen.documents):
        return
    import pyarrow as pa

    from longcrawl.text.gopher.words import TEXTUAL, load_reading_characters

    documents = read_documents(chosen.documents)[: chosen.limit]
    texts = [document["text"] for document in documents]
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "texts.json"), Path(folder, "values.json")
        source.write_text(json.dumps(texts), "utf-8")
        command = [chosen.peers_python, __file__, "--as-peers", source, target, "--nemo", chosen.nemo]
        subprocess.run(command, check=True)
        peers = json.loads(target.read_text("utf-8"))
    marks = {int(point) for point in (load_reading_characters() & TEXTUAL == 0).nonzero()[0]}
    print(f"datatrove's punctuation: {len(marks):,} marks, {len(marks ^ set(peers['punctuation'])):,} differ")
    for definitions, values in peers["values"].items():
        compare(definitions, table, values)
    count_drops(table.filter(pa.array([document["lang"] == "en" for document in documents])))
    ours = time_ours(table, chosen.repeats)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{megabytes:.1f} MB: datatrove {peers['seconds']:.2f} s, ours {ours:.2f} s ({megabytes / ours:.0f} MB/s)")
    print(f"gopher_peers ratio={peers['seconds'] / ours:.1f}")


if __name__ == "__main__":
    main()
