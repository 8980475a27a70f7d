"""The tables of tokens that a push makes first: their bytes beside those of the output, and how fast they are written.

Documents of a JSON-lines file are tokenised to a rectangle, gpt-simple and composed; then the tables are written.

    python benchmarks/pushed_tables.py [DOCUMENTS.jsonl TOKENIZER] [--length 16384]

The last line is how many times the bytes of a rectangle its tables take.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import yaml
from _measures import Peak
from _needed import lacks, shared

import longcrawl as lc
from longcrawl.core.outputs import RESULTS
from longcrawl.publish.hub.push import prepare
from longcrawl.run.manifest import read_manifest


def write_run(documents: Path, tokenizer: str, output: str, length: int, folder: Path) -> Path:
    """Run a recipe of this output."""
    rows = [{"min_tokens": {"n": length}}, {"truncate": {"n": length}}, "shuffle"] if output == "rectangle" else []
    spec = {"longcrawl": 1, "name": output, "source": {"builder": "text", "data_files": str(documents)}}
    spec |= {"stages": [{"tokenize": {"tokenizer": tokenizer}}, *rows], "outputs": {output: {}}}
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / f"{output}.yaml", folder / output)
    return folder / output


def measure(run: Path, output: str) -> float:
    """Write the tables of a run, and return how many times the bytes of its output they take."""
    before = sum(entry["bytes"] for name, entry in read_manifest(run)["files"].items() if name.startswith(f"{output}/"))
    tokens = sum(rows.tokens for rows in RESULTS[output].token_rows(run / output).values())
    started = time.perf_counter()
    prepare(run)
    seconds = time.perf_counter() - started
    written = [file.stat().st_size for file in (run / "tokens").iterdir()]
    print(
        f"{output:12s} {tokens:>12,} tokens, output {before:>12,} bytes, tables {sum(written):>12,} in {len(written)} "
        f"files, {sum(written) / before:.2f} times, {tokens / seconds / 1e6:.1f} million tokens a second"
    )
    return sum(written) / before


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", type=Path, nargs="?", default=shared("long.jsonl.zst"))
    parser.add_argument("tokenizer", nargs="?", default=str(shared("gpt2.tiktoken")))
    parser.add_argument("--length", type=int, default=16384)
    asked = parser.parse_args()
    if lacks("DOCUMENTS.jsonl and a tokenizer", asked.documents):
        return
    ratios = {}
    with tempfile.TemporaryDirectory() as name:
        for output in ("rectangle", "gpt-simple", "composed"):
            run = write_run(asked.documents, asked.tokenizer, output, asked.length, Path(name))
            peak = Peak()
            ratios[output] = measure(run, output)
            print(f"{'':12s} peak memory {(peak.most - peak.before) / 1e6:,.0f} MB above {peak.before / 1e6:,.0f}")
    print(json.dumps(ratios))
    print(f"pushed_tables ratio={ratios['rectangle']:.2f}")


if __name__ == "__main__":
    main()
