"""The whole job against datatrove: filters, near-duplicates, tokens and shards, in CPU time, by turns.

    python -m venv dt && dt/bin/pip install 'datatrove[io,processing]==0.10.1' spacy
    python benchmarks/whole_job.py --documents short.jsonl.zst long.jsonl.zst --tokenizer gpt2-tokenizer.json
        --peers-python dt/bin/python [--turns 2] [--share 1.0] [--words spacy]

Documents are JSON lines with ``id``, ``text`` and ``lang``; those in English are written to one file. Gopher's, C4's
and FineWeb's filters by datatrove's definitions, MinHash with 14 bands of 8 over words, GPT-2 tokens, shuffled, in
``.ds`` files. Each turn is a new process for either, one core each: ours is ``longcrawl run``, from its start to its
end, with its card, its ledger and its checksums; datatrove's is what ``peers/whole_job_datatrove.py`` counts, without
imports. Our kernels are compiled before. How many documents each filter kept is printed side by side. datatrove's
words are spaCy's, which has punctuation marks among them: more than a fifth of the words of most documents have no
letter then, and Gopher's rule removes these. Ours are what white space parts. ``--words white-space`` has datatrove
part them so, too: the filters then see the same words.

--share takes every so many documents, which shows what is fixed. The last line is datatrove's seconds over ours.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard
from _needed import lacks, shared

FILTERS = ("gopher_repetition", "gopher_quality", "c4_quality", "fine_web_quality", "min_hash")


def write_documents(paths: list[Path], out: Path, share: float) -> tuple[int, int]:
    """Write the documents in English; return how many, and their bytes of text."""
    documents, size, seen = 0, 0, 0
    with out.open("w", encoding="utf-8") as file:
        for path in paths:
            with zstandard.open(path, "rt", encoding="utf-8") as lines:
                for row in map(json.loads, lines):
                    if row["lang"] != "en":
                        continue
                    seen += 1
                    if int(seen * share) > documents:
                        documents, size = documents + 1, size + len(row["text"].encode())
                        file.write(json.dumps({"id": row["id"], "text": row["text"]}) + "\n")
    return documents, size


def recipe(documents: Path, tokenizer: str) -> dict[str, object]:
    return {
        "longcrawl": 1,
        "name": "whole-job",
        "source": {"builder": "text", "id_field": "id", "data_files": str(documents)},
        "stages": [
            {"gopher_repetition": {"definitions": "datatrove"}},
            {"gopher_quality": {"definitions": "datatrove"}},
            {"c4_quality": {"definitions": "datatrove"}},
            "fine_web_quality",
            {"min_hash": {"bands": 14, "rows": 8, "unit": "word"}},
            {"tokenize": {"tokenizer": tokenizer}},
            {"shuffle": {"seed": 0}},
        ],
        "outputs": {"datatrove": {}},
    }


def run_ours(recipe_file: Path, out: Path) -> tuple[float, float, list[int]]:
    """Return CPU seconds, wall seconds, and how many documents each filter kept."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "longcrawl", "run", str(recipe_file), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stages = json.loads((out / "manifest.json").read_text())["funnel"]["stages"]
    funnel = {row["stage"]: row["out"] for row in stages}
    return seconds, wall, [funnel[name] for name in FILTERS]


def run_theirs(python: str, folder: Path, out: Path, *settings: str) -> tuple[dict[str, float], list[int]]:
    script = Path(__file__).parent / "peers" / "whole_job_datatrove.py"
    command = [python, str(script), str(folder), str(out), *settings]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return told["seconds"], told["kept"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [shared("short.jsonl.zst"), shared("long.jsonl.zst")]
    parser.add_argument("--documents", type=Path, nargs="+", default=usual)
    parser.add_argument("--tokenizer", type=Path, default=shared("gpt2-tokenizer.json"))
    parser.add_argument("--peers-python", help="the Python of an environment with datatrove and spaCy")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--words", choices=("spacy", "white-space"), default="spacy", help="datatrove's")
    options = parser.parse_args()
    needed = "--peers-python of an environment with datatrove and spaCy, --documents and --tokenizer"
    if lacks(needed, options.peers_python, *options.documents, options.tokenizer):
        return
    tokenizer = str(options.tokenizer.absolute())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "in").mkdir()
        documents, size = write_documents(options.documents, folder / "in" / "documents.jsonl", options.share)
        print(f"{documents:,} documents, {size / 1e6:.1f} MB of text")
        (folder / "recipe.yaml").write_text(json.dumps(recipe(folder / "in" / "documents.jsonl", tokenizer)))
        run_ours(folder / "recipe.yaml", folder / "warm")
        ours, theirs = [], []
        for turn in range(options.turns):
            seconds, wall, kept = run_ours(folder / "recipe.yaml", folder / f"ours-{turn}")
            ours.append(seconds)
            print(f"longcrawl: {seconds:.2f} s of CPU, {wall:.1f} s", flush=True)
            theirs_out, settings = folder / f"theirs-{turn}", (tokenizer, options.words)
            parts, their_kept = run_theirs(options.peers_python, folder / "in", theirs_out, *settings)
            theirs.append(sum(parts.values()))
            print("datatrove:", ", ".join(f"{name} {each:.1f} s" for name, each in parts.items()), flush=True)
    for name, mine, other in zip(FILTERS, kept, their_kept, strict=True):
        print(f"{name:20} kept {mine:6,}  datatrove {other:6,}")
    print(f"whole_job ratio={min(theirs) / min(ours):.1f}")


if __name__ == "__main__":
    main()
