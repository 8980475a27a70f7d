"""Bytes per second of files of the shapes that Qwen 2 and GPT-NeoX publish, against tokenizers, with equal ids.

    python benchmarks/tokenizer_files.py --tokenizer gpt2-tokenizer.json --text short.jsonl.zst

Both files normalise texts to NFC and have added tokens that are not special: Qwen's are of chats and code, GPT-NeoX's
are 2 to 24 spaces, which half of the documents of a crawl have. The vocabulary is that of ``--tokenizer``. One core,
processor time, medians of the repeats by turns; "plain" is Qwen's pattern without the rest. Without ``--text`` the
documents are README.md and docs/, without ``--tokenizer`` one is trained on them. The last line has the lower ratio.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from longcrawl.tokens import Tokenize
from longcrawl.tokens.bpe import GPT2_PATTERN, PATTERNS, QWEN2
from longcrawl.tokens.encoders import Encoder

ROOT = Path(__file__).parent.parent
QWEN = next(pattern for pattern, kind in PATTERNS.items() if kind == QWEN2)
MARKS = ("fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep")
SHAPES = {
    "plain": (QWEN, None, ()),
    "Qwen 2": (QWEN, {"type": "NFC"}, ("<tool_call>", "</tool_call>", *(f"<|{mark}|>" for mark in MARKS))),
    "GPT-NeoX": (GPT2_PATTERN, {"type": "NFC"}, tuple(" " * size for size in range(24, 1, -1))),
}


def read(path: Path | None, characters: int) -> list[str]:
    """Return documents of so many characters."""
    if path is None:
        return [each.read_text() for each in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
    import zstandard

    texts = []
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            texts.append(json.loads(line)["text"])
            characters -= len(texts[-1])
            if characters < 0:
                break
    return texts


def write(document: dict, shape: str, folder: Path) -> Path:
    """Write a tokenizer.json of a shape with the vocabulary of another one."""
    pattern, normalizer, added = SHAPES[shape]
    first = 1 + max(document["model"]["vocab"].values())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False) | {"normalized": shape == "GPT-NeoX"}
    tokens = [{"id": first + number, "content": content, **flags} for number, content in enumerate(added)]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    changes = {
        "normalizer": normalizer,
        "added_tokens": [*document["added_tokens"], *tokens],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
    }
    path = folder / f"{shape}.json"
    path.write_text(json.dumps(document | changes))
    return path


def seconds(encoder: Encoder, texts: pa.Array) -> tuple[float, np.ndarray]:
    """Return the processor time of encoding all texts, and the ids."""
    started = time.process_time()
    ids = encoder.encode(texts).ids
    return time.process_time() - started, ids


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json whose vocabulary is taken")
    parser.add_argument("--text", type=Path, help="a .jsonl.zst file with a field 'text'")
    parser.add_argument("--megabytes", type=float, default=5.0, help="millions of characters to encode")
    parser.add_argument("--repeats", type=int, default=3)
    settings = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = pa.array(read(settings.text, int(settings.megabytes * 1e6)), pa.large_string())
    size, ratios = sum(map(len, map(str.encode, texts.to_pylist()))) / 1e6, []
    with tempfile.TemporaryDirectory() as folder:
        path = settings.tokenizer or Path(Tokenize("trained").fit([pa.table({"text": texts})], folder).tokenizer)
        document = json.loads(path.read_text())
        for shape in SHAPES:
            file = write(document, shape, Path(folder))
            ours, theirs = Encoder(file), Encoder(file, engine="tokenizers")
            ours.encode(texts[:2])
            spent: dict[str, list[float]] = {"ours": [], "tokenizers": []}
            for _ in range(settings.repeats):
                for name, encoder in (("ours", ours), ("tokenizers", theirs)):
                    taken, ids = seconds(encoder, texts)
                    spent[name].append(taken)
                    if name == "ours":
                        mine = ids
                if not np.array_equal(mine, ids):
                    raise SystemExit(f"{shape}: other ids than tokenizers")
            fast, slow = (statistics.median(spent[name]) for name in ("ours", "tokenizers"))
            print(
                f"{shape:10}{size / fast:8.1f} MB/s, tokenizers {size / slow:5.2f}, {slow / fast:6.1f} times, equal ids"
            )
            ratios.append(slow / fast)
    print(f"tokenizer_files ratio={min(ratios[1:]):.2f}")


if __name__ == "__main__":
    main()
