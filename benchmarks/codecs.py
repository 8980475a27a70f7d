"""Compare codecs on chunks of 64 x 2,048 tokens: size against raw, speed of encoding and decoding, one thread.

    python benchmarks/codecs.py --text long.jsonl.zst --ranks gpt2.tiktoken

Rows are distinct documents (at least 16,384 tokens each), rolled: repeating documents to fill rows would show a codec
with a large window what a real rectangle does not hold. Without --text a synthetic stream is used, whose ratios mean
little. The last line is the decoding speed of lz4hc against zstd, the default.
"""

import argparse
import base64
import io
import json
import time
from pathlib import Path

import numpy as np

LENGTH = 16_384
CANDIDATES = [("zstd", 3, 0), ("zstd", 3, 1), ("zstd", 3, 2), ("zstd", 1, 0), ("zstd", 7, 0)]
CANDIDATES += [("lz4hc", 3, 0), ("lz4hc", 5, 0), ("lz4hc", 9, 0), ("lz4hc", 5, 1), ("lz4", 5, 0), ("lz4", 5, 1)]
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def document_rows(text: Path, ranks: Path) -> np.ndarray:
    """Return one rolled row per long document, GPT-2 tokens."""
    import tiktoken
    import zstandard

    table = dict(line.split() for line in ranks.read_bytes().splitlines() if line.strip())
    mergeable = {base64.b64decode(token): int(rank) for token, rank in table.items()}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    encoding = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=mergeable, special_tokens={})
    rows, families = [], set()
    with text.open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            document = json.loads(line)
            if document.get("family") in families:
                continue
            families |= {document.get("family")} - {None}
            tokens = np.array(encoding.encode_ordinary(document["text"]), np.uint16)
            if len(tokens) >= LENGTH:
                rows.append(np.roll(tokens[:LENGTH], 97 * len(rows)))
    return np.stack(rows)


def synthetic_rows() -> np.ndarray:
    return (np.random.default_rng(0).zipf(1.3, (256, LENGTH)) % 50_256).astype(np.uint16)


def measure(chunks: list[np.ndarray], cname: str, level: int, shuffle: int, repeats: int) -> tuple[float, float, float]:
    """Return ratio, encoded MB/s and decoded tokens per nanosecond (the best of so many repeats)."""
    from numcodecs import Blosc

    codec = Blosc(cname, clevel=level, shuffle=shuffle)
    started = time.perf_counter()
    encoded = [codec.encode(chunk) for chunk in chunks]
    encoding = time.perf_counter() - started
    out, taken = np.empty_like(chunks[0]), []
    for _ in range(repeats):
        started = time.perf_counter()
        for chunk in encoded:
            codec.decode(chunk, out=out)
        taken.append(time.perf_counter() - started)
    tokens = sum(chunk.size for chunk in chunks)
    return tokens * 2 / sum(map(len, encoded)), tokens * 2 / encoding / 1e6, tokens / min(taken) / 1e9


def main() -> None:
    import numcodecs.blosc

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--ranks", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    numcodecs.blosc.use_threads = False
    rows = document_rows(options.text, options.ranks) if options.text else synthetic_rows()
    print(f"{len(rows)} rows of {LENGTH:,} tokens" + ("" if options.text else ", synthetic"))
    starts = [(row, column) for row in range(0, len(rows) - 63, 64) for column in range(0, LENGTH, 2048)]
    chunks = [np.ascontiguousarray(rows[row : row + 64, column : column + 2048]) for row, column in starts]
    decoded = {}
    print(f"{'codec':24}  {'ratio':>6}  {'encode MB/s':>11}  {'decode tokens/ns':>16}")
    for cname, level, shuffle in CANDIDATES:
        ratio, encode, decode = measure(chunks, cname, level, shuffle, options.repeats)
        name = f"{cname} {level} {SHUFFLES[shuffle]}"
        decoded[name] = decode
        print(f"{name:24}  {ratio:>6.3f}  {encode:>11.1f}  {decode:>16.2f}")
    print(f"codecs ratio={decoded['lz4hc 5 noshuffle'] / decoded['zstd 3 noshuffle']:.3f}")


if __name__ == "__main__":
    main()
