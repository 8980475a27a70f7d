"""A datatrove pipeline and its recipe on the same documents: the verdict on each, by filter and by rule.

    python -m venv peer && peer/bin/pip install "datatrove[processing]==0.10.1" spacy tokenizers orjson
    python benchmarks/migration.py --peers-python peer/bin/python --documents short.jsonl.zst
        --tokenizer gpt2-tokenizer.json [--limit 1500]

Documents are JSON lines with ``id``, ``text`` and ``lang``; those in English are taken. Both sides filter by Gopher's
repetition and quality, C4's and FineWeb's rules, remove near-duplicates and tokenise (``peers/migration_datatrove.py``
and RECIPE below). datatrove runs three times: as it comes, with words parted at white space, and with sentences that
end in marks, too, which are our definitions. Printed are the documents that each rule removed, and what explains the
verdicts that are not ours; of near-duplicates, the exact similarity of the documents on which the two differ.
Tokens of the documents that both keep are compared. The last line is the share of equal verdicts under our definitions.
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.dataset as pads
import zstandard
from _needed import lacks, shared

RECIPE = """\
longcrawl: 1
name: migration
source: {builder: text, data_dir: in, id_field: id}
stages:
  - gopher_repetition: {definitions: datatrove}
  - gopher_quality: {definitions: datatrove}
  - c4_quality: {definitions: datatrove}
  - fine_web_quality
  - min_hash: {preset: fineweb, keep: first}
  - tokenize: {tokenizer: tokenizer.json}
outputs:
  datatrove: {}
"""
FILTERS = ("gopher_repetition", "gopher_quality", "c4_quality", "fine_web_quality", "min_hash")
RULES = {
    "dup_para_frac": "max_duplicate_paragraphs",
    "dup_para_char_frac": "max_duplicate_paragraph_characters",
    "dup_line_frac": "max_duplicate_lines",
    "dup_line_char_frac": "max_duplicate_line_characters",
    **{f"top_{n}_gram": f"max_top_{n}gram" for n in range(2, 5)},
    **{f"duplicated_{n}_n_grams": f"max_duplicate_{n}grams" for n in range(5, 11)},
    "gopher_short_doc": "min_words",
    "gopher_long_doc": "max_words",
    "gopher_below_avg_threshold": "min_mean_word_length",
    "gopher_above_avg_threshold": "max_mean_word_length",
    "gopher_too_many_hashes": "max_hash_ratio",
    "gopher_too_many_ellipsis": "max_ellipsis_ratio",
    "gopher_too_many_bullets": "max_bullet_lines",
    "gopher_too_many_end_ellipsis": "max_ellipsis_lines",
    "gopher_below_alpha_threshold": "min_alphabetic_words",
    "gopher_enough_stop_words": "min_stop_words",
    "too_few_sentences": "min_sentences",
    "line_punct_ratio": "min_terminal_lines",
    "short_line_ratio": "max_short_lines",
    "char_dup_ratio": "max_later_line_characters",
    "list_ratio": "max_newline_ratio",
}
"""datatrove's reasons, and our rules; near-duplicates have none there."""

WAYS = {"datatrove": ("own", "own"), "its words ours": ("ours", "own"), "its sentences too": ("ours", "ours")}
KEPT = ("kept", "")
Verdicts = dict[str, tuple[str, str]]
"""The filter and the rule that removed a document, by id."""


def read_documents(path: Path, limit: int) -> dict[str, str]:
    """Return texts in English by id, evenly taken, in the order of ids."""
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        texts = {row["id"]: row["text"] for row in map(json.loads, lines) if row["lang"] == "en"}
    chosen = sorted(texts)[:: max(len(texts) // limit, 1)][:limit]
    return {name: texts[name] for name in chosen}


def read_lines(folder: Path) -> list[dict]:
    return [
        json.loads(line)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text("utf-8").rstrip("\n").split("\n")
        if line
    ]


def run_theirs(python: str, folder: Path, out: Path, way: tuple[str, str]) -> Verdicts:
    script = Path(__file__).parent / "peers" / "migration_datatrove.py"
    command = [python, script, folder / "in", out, folder / "tokenizer.json", *way]
    subprocess.run(command, check=True, capture_output=True)
    verdicts = {row["id"]: KEPT for row in read_lines(out / "kept")}
    for name in FILTERS:
        for row in read_lines(out / "removed" / name):
            reason = row["metadata"].get("filter_reason", "near_duplicate")
            verdicts[row["id"]] = (name, RULES.get(reason, reason))
    return verdicts


def run_ours(folder: Path, names: list[str]) -> Verdicts:
    (folder / "recipe.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "longcrawl", "run", "recipe.yaml", "--out", "ours"]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    removed = pads.dataset(folder / "ours" / "ledger").to_table(["id", "stage", "rule"]).to_pylist()
    return dict.fromkeys(names, KEPT) | {row["id"]: (row["stage"], row["rule"]) for row in removed}


def print_rules(found: dict[str, Verdicts]) -> None:
    """Print by rule how many documents each way removed."""
    counts = {way: Counter(verdicts.values()) for way, verdicts in found.items()}
    rules = {rule for each in counts.values() for rule in each}
    print(f"{'filter':18} {'rule':34}", *(f"{way:>18}" for way in found))
    for name, rule in sorted(rules, key=lambda each: ([*FILTERS, "kept"].index(each[0]), each[1])):
        print(f"{name:18} {rule:34}", *(f"{each[name, rule]:18,}" for each in counts.values()))


def shingles(text: str) -> set[tuple[str, ...]]:
    from longcrawl.dedup.normalize import normalize

    words = normalize([text])[0].as_py().split()
    return set(zip(*(words[first:] for first in range(5)), strict=False))


def similarity(name: str, texts: dict[str, str]) -> float:
    """Return the Jaccard similarity of a document's 5-grams to those of the document most like it."""
    own = shingles(texts[name])
    others = (shingles(text) for other, text in texts.items() if other != name)
    return max((len(own & each) / len(own | each) for each in others if own or each), default=0.0)


def explain(found: dict[str, Verdicts], texts: dict[str, str]) -> None:
    """Print how many verdicts of datatrove's are not ours, and which definition makes them so."""
    ours, theirs = found["longcrawl"], found["datatrove"]
    with_words, with_both = found["its words ours"], found["its sentences too"]
    causes: Counter[str] = Counter()
    for name, verdict in theirs.items():
        if verdict == ours[name]:
            causes["equal"] += 1
        elif with_words[name] == ours[name]:
            causes["spaCy's words"] += 1
        elif with_both[name] == ours[name]:
            causes["spaCy's sentences"] += 1
        else:
            near = "min_hash" in (with_both[name][0], ours[name][0])
            causes["hash functions of MinHash" if near else "unexplained"] += 1
    print("datatrove as it comes:", ", ".join(f"{cause} {count:,}" for cause, count in causes.most_common()))
    near = [name for name, verdict in with_both.items() if verdict != ours[name] and verdict[0] in ("kept", "min_hash")]
    values = sorted(similarity(name, texts) for name in near)
    print("near-duplicates of one side only, similarity:", ", ".join(f"{value:.2f}" for value in values))


def read_tokens(file: Path, end_of_text: int) -> list[list[int]]:
    """Return the documents of a .ds file, without the end of text."""
    ends = np.fromfile(file.with_name(f"{file.name}.index"), "<u8").tolist()
    tokens = np.fromfile(file, "<u2").tolist()
    return [tokens[start : stop - (tokens[stop - 1] == end_of_text)] for start, stop in pairwise([0, *ends])]


def compare_tokens(folder: Path, out: Path) -> tuple[int, int]:
    """Return of how many documents that both keep the tokens are equal, and how many those are."""
    end = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["<|endoftext|>"]
    theirs = dict(
        zip(
            (row["id"] for row in read_lines(out / "kept")),
            read_tokens(next((out / "tokens").glob("*.ds")), end),
            strict=True,
        )
    )
    made = folder / "ours" / "datatrove"
    names = pads.dataset(made / "documents").to_table(["id"])["id"].to_pylist()
    ours = dict(zip(names, read_tokens(next(made.glob("train/*.ds")), end), strict=True))
    both = ours.keys() & theirs.keys()
    return sum(ours[name] == theirs[name] for name in both), len(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", help="the Python of an environment with datatrove")
    parser.add_argument("--documents", type=Path, default=shared("short.jsonl.zst"))
    usual = shared("gpt2-tokenizer.json")
    parser.add_argument("--tokenizer", type=Path, default=usual, help="tokenizer.json of GPT-2")
    parser.add_argument("--limit", type=int, default=1500)
    chosen = parser.parse_args()
    needed = "--peers-python of an environment with datatrove, --documents and --tokenizer"
    if lacks(needed, chosen.peers_python, chosen.documents, chosen.tokenizer):
        return
    texts = read_documents(chosen.documents, chosen.limit)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "in").mkdir()
        lines = (json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items())
        (folder / "in" / "documents.jsonl").write_text("".join(lines))
        (folder / "tokenizer.json").write_bytes(chosen.tokenizer.read_bytes())
        found = {
            way: run_theirs(chosen.peers_python, folder, folder / way, choices) for way, choices in WAYS.items()
        } | {"longcrawl": run_ours(folder, list(texts))}
        print_rules(found)
        filtered = {row["id"]: row["text"] for row in read_lines(folder / "its sentences too" / "filtered")}
        explain(found, filtered)
        same, both = compare_tokens(folder, folder / "its sentences too")
        print(f"tokens of {same:,} of {both:,} documents that both keep are equal")
    ours, theirs = found["longcrawl"], found["its sentences too"]
    print(f"migration ratio={sum(ours[name] == theirs[name] for name in texts) / len(texts):.4f}")


if __name__ == "__main__":
    main()
