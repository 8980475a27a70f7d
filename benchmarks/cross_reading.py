"""Do peers read our token shards, token for token, and do we read theirs?

    python -m venv dm && dm/bin/pip install -r benchmarks/peers/datatrove_megatron.txt
    python -m venv gs && gs/bin/pip install -r benchmarks/peers/gpt_simple.txt
    python -m venv oc && oc/bin/pip install -r benchmarks/peers/olmo_core.txt
    …
    python benchmarks/cross_reading.py --datatrove-megatron dm/bin/python --gpt-simple gs/bin/python \
        --olmo-core oc/bin/python --levanter lv/bin/python --mds md/bin/python --litdata ld/bin/python

The same documents are written in every format by longcrawl and by the peers' own writers. The peers' own dataset
classes read ours, ours read theirs, and files of the same documents are compared byte by byte. They also read what
`longcrawl run` and `longcrawl tokenize` make of texts; the same is made of the texts once more by a loop over
documents, and compared token for token. nanoGPT and llm.c have
no package: their files are read by the few lines of NumPy that their training scripts read them with. Without an
interpreter a peer is passed over. The last line is the share of all comparisons that are equal.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

import longcrawl as lc
from longcrawl.formats.shards.spec import FORMATS, shards_in

END = 50_256
DOCUMENTS = 4_000
OVERLAP = 16
TEXTS = 600
RUNS = {
    "run gpt-simple": ("gpt-simple", (128, 32)),
    "run datatrove": ("datatrove", None),
    "tokenize": ("gpt-simple", None),
    "tokenize --format datatrove": ("datatrove", (128, 0)),
    "tokenize --format megatron": ("megatron", None),
    "tokenize --format nanogpt": ("nanogpt", None),
    "tokenize --format olmo-core": ("olmo-core", None),
    "tokenize --format levanter": ("levanter", None),
    "tokenize --format mds": ("mds", None),
    "tokenize --format litdata": ("litdata", None),
}
"""Command, the format that it writes, and the length and overlap of its windows."""

UNIT = ("windows", "documents")
Compared = list[tuple[str, int, int]]
"""Name of a comparison, equal items, all items."""


def make_documents(width: int) -> dict[str, np.ndarray]:
    """Return documents of 1 to 900 tokens, each with its end of text, a mask, and an overlap for every tenth."""
    chance = np.random.default_rng(width)
    lengths = np.minimum(chance.geometric(1 / 200, DOCUMENTS), 900)
    ends = np.cumsum(lengths)
    most = END if width == 2 else 1 << 31
    tokens = chance.integers(0, most, ends[-1]).astype(f"<u{width}")
    tokens[tokens == END] = 0
    tokens[ends - 1] = END
    overlaps = np.where((np.arange(DOCUMENTS) % 10 == 9) & (lengths > OVERLAP), OVERLAP, 0)
    mask = chance.random(ends[-1]) < 0.9
    return {"tokens": tokens, "ends": ends, "mask": mask, "overlaps": overlaps, "end_of_text": np.array(END)}


def write_ours(folder: Path, made: dict[str, np.ndarray]) -> None:
    """Write the documents in every format, with what each can hold."""
    offsets = pa.array(np.concatenate([[0], made["ends"]]), pa.int32())
    tokens = pa.ListArray.from_arrays(offsets, pa.array(made["tokens"]))
    mask = pa.ListArray.from_arrays(offsets, pa.array(made["mask"]))
    origins = {"id": [f"d{number}" for number in range(DOCUMENTS)], "src": ["texts.jsonl"] * DOCUMENTS}
    extras = {
        "datatrove": {"loss_mask": mask},
        "gpt-simple": {"overlap": pa.array(made["overlaps"])},
        "olmo-core": {"loss_mask": mask, "loc": range(DOCUMENTS), **origins},
    }
    for name, written in FORMATS.items():
        table = pa.table({"tokens": tokens, **extras.get(name, {})})
        settings = {"tokenizer": "gpt2"} if name == "datatrove" else {}
        # A flat file does not say that its tokens are uint32, which is therefore to be asked for.
        settings |= {"dtype": str(made["tokens"].dtype)} if name == "nanogpt" else {}
        batches = [table.slice(first, 1000) for first in range(0, DOCUMENTS, 1000)]
        written.write(batches, folder / name / f"shard{written.suffix}", end_of_text=END, **settings)
        written.write_index(folder / name)
    table = pa.table({"tokens": tokens})
    lc.formats.nanogpt.write(
        [table], folder / "llm.c" / "shard.bin", end_of_text=END, terminate="never", header="llm.c", place="end"
    )


def same_documents(shard: lc.formats.TokenShard, made: dict[str, np.ndarray]) -> int:
    """Count the documents of a shard that are those that were made."""
    starts = np.concatenate([[0], made["ends"][:-1]])
    pairs = zip(range(len(shard)), starts, made["ends"], strict=True)
    return sum(np.array_equal(shard.document(number), made["tokens"][start:end]) for number, start, end in pairs)


def same_bytes(what: str, one: Path, other: Path, names: list[str]) -> tuple[str, int, int]:
    equal = [(one / name).read_bytes() == (other / name).read_bytes() for name in names]
    return f"{what}, byte by byte: files", sum(equal), len(names)


def read_datatrove(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    theirs, kind = folder / f"datatrove{width}", f"uint{8 * width}"
    shard = lc.formats.datatrove.open(theirs / "shard.ds", vocabulary_size=int(made["tokens"].max()) + 1)
    mask = shard.loss_mask if shard.loss_mask is not None else np.empty(0)
    said = (np.array_equal(shard.ends, made["ends"]), np.array_equal(mask, made["mask"]), shard.tokenizer == "gpt2")
    names = [f"shard.ds{suffix}" for suffix in ("", ".index", ".loss", ".metadata")]
    ours = folder / f"ours{width}"
    return [
        (f"ours reads TokenizedFile's, {kind}: documents", same_documents(shard, made), DOCUMENTS),
        (f"its ends, loss mask and tokenizer, {kind}: fields", sum(said), 3),
        same_bytes(f"ours and TokenizedFile's, {kind}", ours / "datatrove", theirs, names),
        same_bytes(f"ours and MegatronTokenizedFile's, {kind}", ours / "megatron", theirs, ["shard.bin", "shard.idx"]),
    ]


def read_megatron(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    theirs, kind = folder / f"megatron{width}", f"uint{8 * width}"
    compared = []
    for name in ("shard", "halves"):
        shard = lc.formats.megatron.open(theirs / name)
        what = "documents" if name == "shard" else "documents of two sequences"
        compared.append((f"ours reads IndexedDatasetBuilder's, {kind}: {what}", same_documents(shard, made), DOCUMENTS))
    names = ["shard.bin", "shard.idx"]
    what = f"ours and IndexedDatasetBuilder's, {kind}"
    return [*compared, same_bytes(what, folder / f"ours{width}" / "megatron", theirs, names)]


def read_olmo_core(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    theirs, kind = folder / f"olmo-core{width}", f"uint{8 * width}"
    ours = folder / f"ours{width}" / "olmo-core"
    compared = []
    for name, written in (("shard", "MemmapWriter"), ("bare", "write_document_indices")):
        shard = lc.formats.olmo_core.open(theirs / f"{name}.npy")
        compared.append((f"ours reads {written}'s, {kind}: documents", same_documents(shard, made), DOCUMENTS))
    rows = [gzip.decompress((folder / "shard.csv.gz").read_bytes()).splitlines() for folder in (ours, theirs)]
    equal = sum(one == other for one, other in zip(*rows, strict=True))
    compared.append((f"ours and MemmapWriter's, {kind}, line by line: rows", equal, DOCUMENTS))
    return [*compared, same_bytes(f"ours and MemmapWriter's, {kind}", ours, theirs, ["shard.npy"])]


def read_levanter(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    shard = lc.formats.levanter.open(folder / f"levanter{width}" / "cache")
    return [(f"ours reads SerialCacheWriter's, uint{8 * width}: documents", same_documents(shard, made), DOCUMENTS)]


def read_mds(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    theirs, kind, ours = folder / f"mds{width}", f"uint{8 * width}", folder / f"ours{width}" / "mds"
    arrays = lc.formats.mds.open(theirs / "arrays/shard.00000.mds")
    encoded = lc.formats.mds.open(theirs / "bytes/shard.00000.mds", encoding_type="int64")
    same = (theirs / "arrays/shard.00000.mds").read_bytes() == (ours / "shard.mds").read_bytes()
    return [
        (f"ours reads MDSWriter's arrays, {kind}: documents", same_documents(arrays, made), DOCUMENTS),
        (f"ours reads MDSWriter's bytes, {kind}: documents", same_documents(encoded, made), DOCUMENTS),
        (f"ours and MDSWriter's, {kind}, byte by byte: files", int(same), 1),
    ]


def read_litdata(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    (theirs,), kind = (folder / f"litdata{width}").glob("*.bin"), f"uint{8 * width}"
    shard = lc.formats.litdata.open(theirs)
    same = theirs.read_bytes() == (folder / f"ours{width}" / "litdata" / "shard.bin").read_bytes()
    return [
        (f"ours reads BinaryWriter's, {kind}: documents", same_documents(shard, made), DOCUMENTS),
        (f"ours and BinaryWriter's, {kind}, byte by byte: files", int(same), 1),
    ]


def read_gpt_simple(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    theirs, kind = folder / f"gpt-simple{width}", f"uint{8 * width}"
    shard = lc.formats.gpt_simple.open(theirs / "shard.bin")
    overlaps = shard.overlaps if shard.overlaps is not None else np.empty(0)
    compared = [
        (f"ours reads write_idx's, {kind}: documents", same_documents(shard, made), DOCUMENTS),
        (f"its overlaps, {kind}: documents", int(np.sum(overlaps == made["overlaps"])), DOCUMENTS),
        same_bytes(
            f"ours and write_idx's, {kind}", folder / f"ours{width}" / "gpt-simple", theirs, ["shard.bin", "shard.idx"]
        ),
    ]
    if width == 2:
        windows = lc.formats.gpt_simple.open(folder / "texts.bin", end_of_text=256, vocabulary_size=257)
        ended = sum(int(windows.document(number)[-1] == 256) for number in range(len(windows)))
        problems = lc.formats.gpt_simple.verify(folder / "texts.bin").problems
        print(f"  tokenize_shard made {len(windows)} windows, {ended} of them end with its end of text")
        compared.append(("ours verifies tokenize_shard's: shards", int(not problems), 1))
    return compared


def read_flat(folder: Path, width: int, made: dict[str, np.ndarray]) -> Compared:
    """Read flat files as nanoGPT's train.py and modded-nanogpt's loader do."""
    kind = f"uint{8 * width}"
    flat = np.memmap(folder / f"ours{width}" / "nanogpt" / "shard.bin", dtype=f"u{width}", mode="r")
    path = folder / f"ours{width}" / "llm.c" / "shard.bin"
    header = np.fromfile(path, np.int32, 256)
    body = np.fromfile(path, f"u{width}", header[2], offset=256 * 4)
    right = header[0] == {2: 20240520, 4: 20240801}[width] and header[1] == {2: 1, 4: 7}[width]
    total = len(made["tokens"])
    return [
        (f"nanoGPT's memmap of ours, {kind}: tokens", int(np.sum(flat == made["tokens"])), total),
        (f"llm.c's header and tokens of ours, {kind}: tokens", int(right and np.sum(body == made["tokens"])), total),
    ]


def make_runs(folder: Path) -> Compared:
    """Carry out RUNS over texts; beside each run an .npz says what its shard has to hold, for the peers' scripts."""
    chance = random.Random(0)
    words = ["tide", "boats", "sand", "ähre", "bread", "\n\n", "rain;", "42"]
    texts = [" ".join(chance.choices(words, k=chance.randint(1, 400))) for _ in range(TEXTS)]
    folder.mkdir()
    source = folder / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    compared = []
    for number, (typed, (name, windows)) in enumerate(RUNS.items()):
        out = folder / str(number)
        carry_out(typed, source, out, windows)
        (shard,) = shards_in(out / name)
        made = what_it_has_to_hold(out / name, texts, windows)
        split = str(out / name / "train")
        np.savez(folder / f"{number}.npz", typed=typed, format=name, path=str(shard), split=split, **made)
        opened = lc.formats.open_shard(shard, name, end_of_text=0)
        if name == "nanogpt":
            equal = int(np.sum(np.memmap(shard, dtype=np.uint16, mode="r") == made["tokens"]))
            compared.append((f"nanoGPT's memmap of `{typed}`: tokens", equal, len(made["tokens"])))
        compared.append(
            (f"ours reads `{typed}`: {UNIT[windows is None]}", same_documents(opened, made), len(made["ends"]))
        )
    return compared


def carry_out(typed: str, source: Path, out: Path, windows: tuple[int, int] | None) -> None:
    """Type one of RUNS."""
    if typed.startswith("run"):
        options = ["--set", f"source.data_files={source}", "--set", "stages.tokenize.tokenizer=trained", "--out", out]
        if windows:
            options += ["--set", f"stages.windows.max_length={windows[0]}"]
            options += ["--set", f"stages.windows.overlap_size={windows[1]}"]
    else:
        options = [source, "--tokenizer", "trained", "--output-dir", out]
        options += ["--max-length", windows[0], "--overlap-size", windows[1]] if windows else []
    command = [sys.executable, "-m", "longcrawl", *typed.split(), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"longcrawl {typed} failed:\n{done.stderr[-3000:]}")


def what_it_has_to_hold(output: Path, texts: list[str], windows: tuple[int, int] | None) -> dict[str, np.ndarray]:
    """Make the entries of a run's shard from texts, with its tokenizer, in the order of its table of documents."""
    tokenizer = Tokenizer.from_file(str(output / "tokenizer.json"))
    order = pq.read_table(output / "documents/train/00000.parquet")["id"].to_pylist()
    entries, overlaps = [], []
    for name in order:
        tokens = [*tokenizer.encode(texts[int(name.rpartition(":")[2])], add_special_tokens=False).ids, 0]
        length, overlap = windows or (len(tokens), 0)
        first = 0
        while not first or first + overlap < len(tokens):
            entries.append(tokens[first : first + length])
            overlaps.append(overlap if first else 0)
            first += length - overlap
    flat = np.concatenate([np.array(entry, np.uint16) for entry in entries])
    ends = np.cumsum([len(entry) for entry in entries])
    return {"tokens": flat, "ends": ends, "overlaps": np.array(overlaps), "end_of_text": np.array(0)}


def peer(python: str, script: str, folder: Path) -> Compared:
    """Run a script in a peer's environment."""
    command = [python, str(Path(__file__).parent / "peers" / script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script} failed:\n{done.stderr[-3000:]}")
    return [(what, equal, of) for what, equal, of in json.loads(done.stdout.splitlines()[-1])]


def show(compared: Compared) -> Compared:
    """Print comparisons, and return them."""
    for what, equal, of in compared:
        print(f"{what:<78} {equal:>9,} of {of:>9,}{'' if equal == of else '  DIFFERENT'}", flush=True)
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datatrove-megatron", metavar="PYTHON")
    parser.add_argument("--gpt-simple", metavar="PYTHON")
    parser.add_argument("--olmo-core", metavar="PYTHON")
    parser.add_argument("--levanter", metavar="PYTHON")
    parser.add_argument("--mds", metavar="PYTHON")
    parser.add_argument("--litdata", metavar="PYTHON")
    options = parser.parse_args()
    compared: Compared = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = {width: make_documents(width) for width in (2, 4)}
        for width, documents in made.items():
            write_ours(folder / f"ours{width}", documents)
            np.savez(folder / f"documents{width}.npz", **documents)
            compared += show(read_flat(folder, width, documents))
        compared += show(make_runs(folder / "runs"))
        both = options.datatrove_megatron
        for python, script, read in (
            (both, "read_datatrove.py", read_datatrove),
            (both, "read_megatron.py", read_megatron),
            (options.gpt_simple, "read_gpt_simple.py", read_gpt_simple),
            (options.olmo_core, "read_olmo_core.py", read_olmo_core),
            (options.levanter, "read_levanter.py", read_levanter),
            (options.mds, "read_mds.py", read_mds),
            (options.litdata, "read_litdata.py", read_litdata),
        ):
            if python is None:
                print(f"  passed over, as no interpreter was named: {script}")
                continue
            compared += show(peer(python, script, folder))
            for width, documents in made.items():
                compared += show(read(folder, width, documents))
    share = sum(equal == of for _, equal, of in compared) / len(compared)
    print(f"cross_reading ratio={share:.3f}")
    sys.exit(share < 1)


if __name__ == "__main__":
    main()
