"""MinHash sketches, against datasketch, and against rensa and datatrove where an environment has them.

    python benchmarks/minhash.py [--text DOCUMENTS.jsonl[.zst]] [--peers-python PEERS/bin/python] [--documents 200]

For 14 bands of 8 and 450 of 20, over 5-grams of words. Ours is measured twice: "from text" to band keys, that is with
normalising and cutting words; and "signature", from hashed words to the hash values of the unique n-grams. The others:

* datasketch: ``MinHash.bulk`` of the unique n-grams as bytes, made beforehand; its hash function is SHA-1. "from text"
  adds the making of those in plain Python, which is ours;
* rensa: ``RMinHash.digests_from_token_sets`` of the same bytes;
* datatrove: ``get_shingles``, from text with its own word tokenizer, and ``get_signature``, stage 1 without its files.

The last two run in the environment of --peers-python (rensa here too where it can be imported). CPU time of one process
on one core, the best of --repeats, ours after a warm-up. Objects of datasketch that are filled with our n-grams are
asserted equal to ours. Documents are the first of at least 500 bytes; without --text they are synthetic. The last line
is the smaller of the two ratios datasketch bulk / our signature.
"""

import argparse
import io
import itertools
import json
import random
import string
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from _measures import best

SETTINGS = ((14, 8), (450, 20))
NGRAM = 5
FEWER = 5
"""450 bands of 20 are measured on a fifth of the documents."""


def plain_words(text: str) -> list[str]:
    """Return the words of RefinedWeb's normal form."""
    bare = "".join(
        each for each in text if each not in string.punctuation and unicodedata.category(each)[0] != "P"
    ).lower()
    return "".join(each for each in unicodedata.normalize("NFD", bare) if unicodedata.category(each) != "Mn").split()


def plain_ngrams(text: str) -> list[bytes]:
    words = plain_words(text)
    return list({" ".join(words[at : at + NGRAM]).encode() for at in range(max(len(words) - NGRAM + 1, 1))})


def rensa_seconds(texts: list[str], bands: int, rows: int, repeats: int) -> dict[str, float]:
    from rensa import RMinHash

    sets = [plain_ngrams(text) for text in texts]
    return {"rensa": best(lambda: RMinHash.digests_from_token_sets(sets, num_perm=bands * rows, seed=1), repeats)}


def datatrove_seconds(texts: list[str], bands: int, rows: int, repeats: int) -> dict[str, float]:
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig

    with tempfile.TemporaryDirectory() as folder:
        config = MinhashConfig(n_grams=NGRAM, num_buckets=bands, hashes_per_bucket=rows)
        stage = MinhashDedupSignature(output_folder=folder, config=config)
        shingles = [stage.get_shingles(text) for text in texts]
        made = best(lambda: [stage.get_shingles(text) for text in texts], repeats)
        signed = best(lambda: [stage.get_signature(each) for each in shingles if len(each)], repeats)
    return {"datatrove, signature only": signed, "datatrove, from text": made + signed}


PEERS = {"rensa": rensa_seconds, "datatrove": datatrove_seconds}


def of_peers(python: str, texts: list[str], bands: int, rows: int, repeats: int) -> dict[str, float]:
    """Run this file in another environment."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(texts, file)
        file.flush()
        found = {}
        for peer in PEERS:
            order = [python, __file__, "--peer", peer, file.name, str(bands), str(rows), str(repeats)]
            done = subprocess.run(order, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{peer} did not run: {done.stderr.strip().splitlines()[-1]}")
            else:
                found |= json.loads(done.stdout.splitlines()[-1])
    return found


def documents(path: Path | None, count: int) -> list[str]:
    """Read the first documents, or make some of 1 to 20 KB."""
    if path is None:
        chosen = random.Random(0)
        pool = [
            "".join(chosen.choices("etaoinshrdlucmfwypé", k=chosen.choice((2, 3, 3, 4, 5, 6, 8)))) for _ in range(4000)
        ]
        sizes = [chosen.choice((200, 800, 3000)) for _ in range(count)]
        return [" ".join(chosen.choices(pool, k=size)).capitalize() + "." for size in sizes]
    with path.open("rb") as opened:
        texts = (json.loads(line)["text"] for line in io.TextIOWrapper(unpacked(opened, path), encoding="utf-8"))
        return list(itertools.islice((text for text in texts if len(text.encode()) >= 500), count))


def unpacked(opened: io.BufferedReader, path: Path):
    if path.suffix != ".zst":
        return opened
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(opened)


def of_datasketch(stage, texts: list[str], repeats: int) -> dict[str, float]:
    from datasketch import MinHash

    for text, made in zip(texts[:20], stage.to_datasketch(texts[:20]), strict=True):
        theirs = MinHash(num_perm=stage.permutations, seed=stage.seed, hashfunc=made.hashfunc)
        theirs.update_batch(stage.ngrams(text))
        assert theirs == made, "the values differ from datasketch's"
    sets = [plain_ngrams(text) for text in texts]
    making = best(lambda: [plain_ngrams(text) for text in texts], repeats)
    signed = best(lambda: MinHash.bulk(sets, num_perm=stage.permutations, seed=stage.seed), repeats)
    return {"datasketch bulk": signed, "datasketch bulk, from text": making + signed}


def our_seconds(stage, table, repeats: int) -> tuple[float, float]:
    """Return the seconds from text to band keys, and from hashed words to signatures."""
    import numpy as np

    from longcrawl.dedup.minhash import make_permutations
    from longcrawl.dedup.ngrams import hash_words, make_scratch, sign_all
    from longcrawl.dedup.normalize import normal_bytes

    data, offsets = normal_bytes(table["text"].chunk(0))
    units, bounds = np.empty(len(data), np.uint64), np.empty(len(offsets), np.int64)
    hash_words(data, offsets, units, bounds)
    scratch = make_scratch(int(np.diff(bounds).max()), stage.permutations)
    found = np.empty((table.num_rows, stage.permutations), np.uint32)
    permutations = make_permutations(stage.permutations, stage.seed)

    def sign() -> None:
        sign_all(units, bounds, NGRAM, permutations, scratch, found)

    sign()
    stage.sketch(table)
    return best(lambda: stage.sketch(table), 5 * repeats), best(sign, 5 * repeats)


def compare(texts: list[str], bands: int, rows: int, options: argparse.Namespace) -> float:
    """Print what each side takes per document and give datasketch bulk / our signature."""
    import pyarrow as pa

    import longcrawl as lc

    stage = lc.dedup.MinHash(bands=bands, rows=rows, ngram=NGRAM, unit="word")
    table = pa.table({"id": [str(at) for at in range(len(texts))], "text": pa.array(texts, pa.large_string())})
    whole, signed = our_seconds(stage, table, options.repeats)
    sketches = stage.sketch(table)
    size = sum(len(text.encode()) for text in texts)
    stored = sum(sketches[name].nbytes for name in ("bands", "sample", "n_ngrams")) / len(texts)
    print(
        f"{bands} bands of {rows}, {len(texts)} documents of {size / len(texts):,.0f} bytes and "
        f"{sum(sketches['n_ngrams'].to_pylist()) / len(texts):,.0f} n-grams, us per document: from text "
        f"{1e6 * whole / len(texts):.0f} ({size / whole / 1e6:.0f} MB/s), signature {1e6 * signed / len(texts):.0f}; "
        f"a sketch has {stored:.0f} bytes"
    )
    taken = of_datasketch(stage, texts, options.repeats)
    if options.peers_python:
        taken |= of_peers(options.peers_python, texts, bands, rows, options.repeats)
    else:
        try:
            taken |= rensa_seconds(texts, bands, rows, options.repeats)
        except ImportError:
            print("rensa is not installed: name an environment with --peers-python")
    for name, seconds in taken.items():
        ratios = f"ours from text {seconds / whole:7.1f}" + (
            "" if name.endswith("from text") else f", our signature {seconds / signed:7.1f}"
        )
        print(f"  {name:26} {1e6 * seconds / len(texts):9.0f}, ratio to {ratios}")
    return taken["datasketch bulk"] / signed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers-python")
    options = parser.parse_args()
    texts = documents(options.text, options.documents)
    ratios = [
        compare(texts if bands * rows < 1000 else texts[: max(len(texts) // FEWER, 1)], bands, rows, options)
        for bands, rows in SETTINGS
    ]
    print(f"minhash ratio={min(ratios):.3f}")


def run_peer(peer: str, path: str, bands: str, rows: str, repeats: str) -> None:
    texts = json.loads(Path(path).read_text("utf-8"))
    print(json.dumps(PEERS[peer](texts, int(bands), int(rows), int(repeats))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        run_peer(*sys.argv[2:])
    else:
        main()
