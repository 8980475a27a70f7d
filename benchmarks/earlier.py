"""A later dataset against the index of an earlier one: what writing and searching it take, and what it reads.

    python benchmarks/earlier.py [--kept 1000000] [--new 100000] [--bands 14]

--kept synthetic sketches are saved as an index of MinHash, then a hundred and --new others are compared with it, of
which a tenth have the keys of an earlier document. CPU time of one process, and the pages of the keys that are in
memory after the search, of all they have, counted by ``mincore``; the system, which reads ahead, was asked to drop them
before. The last line is their share after the second search.
"""

import argparse
import ctypes
import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

FEW = 100


def sketches_of(count: int, bands: int, seed: int) -> pa.Table:
    """Return random sketches of documents with ids of 40 characters."""
    from longcrawl.kernels.texts import fixed_binary

    rng, chunks = np.random.default_rng(seed), []
    for first in range(0, count, 10_000):
        size = min(10_000, count - first)
        numbers = range(first, first + size)
        chunks.append(
            pa.table(
                {
                    "id": [f"20{seed:02d}-06/0001/en_head.json.gz/{number:011d}" for number in numbers],
                    "bands": fixed_binary(rng.integers(0, 1 << 64, (size, bands), dtype=np.uint64).view(np.uint8)),
                    "sample": fixed_binary(rng.integers(0, 256, (size, 112), dtype=np.uint8)),
                    "n_ngrams": pa.array(np.full(size, 700, np.int32)),
                }
            )
        )
    return pa.concat_tables(chunks)


def with_copies(new: pa.Table, kept: pa.Table) -> pa.Table:
    """Let every tenth document have the band keys of an earlier one."""
    copied = kept["bands"].take(np.random.default_rng(9).integers(0, len(kept), len(new)))
    every_tenth = pa.array(np.arange(len(new)) % 10 == 0)
    bands = [
        new_one if not copy else old
        for new_one, old, copy in zip(
            new["bands"].to_pylist(), copied.to_pylist(), every_tenth.to_pylist(), strict=True
        )
    ]
    return new.set_column(1, "bands", pa.chunked_array([pa.array(bands, kept["bands"].type)]))


def drop(path: Path) -> None:
    """Ask the system to forget what it keeps of a file."""
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pages_in_memory(path: Path) -> tuple[int, int]:
    """Return how many pages of a file are in memory, and how many it has."""
    size = path.stat().st_size
    if not size:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    library = ctypes.CDLL(None, use_errno=True)
    with (
        path.open("rb") as opened,
        mmap.mmap(opened.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped,
    ):
        view = (ctypes.c_char * size).from_buffer(mapped)
        failed = library.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), found)
        del view
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed")
    return sum(each & 1 for each in found), pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=100_000)
    parser.add_argument("--bands", type=int, default=14)
    options = parser.parse_args()
    from longcrawl.dedup import MinHash

    stage = MinHash(bands=options.bands, rows=8, unit="word")
    kept, new = sketches_of(options.kept, options.bands, 22), sketches_of(options.new, options.bands, 23)
    new = with_copies(new, kept)
    stage.resolve(new[:10])
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        stage.save_index(kept, Path(folder))
        written = time.process_time() - started
        files = sorted(Path(folder).iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"index of {options.kept:,} documents: {written:.1f} s, {size / options.kept:.0f} bytes per document")
        keys = [file for file in files if file.name.startswith("keys-")]
        later = MinHash(bands=options.bands, rows=8, unit="word", against=(folder,))
        for asked in (new[:FEW], new):
            for file in files:
                drop(file)
            before = sum(pages_in_memory(file)[0] for file in keys)
            alone, alone_taken = timed(stage, asked)
            found, taken = timed(later, asked)
            touched, there = (sum(column) for column in zip(*map(pages_in_memory, keys), strict=True))
            print(f"{len(asked):,} documents against it: {taken:.2f} s, without it {alone_taken:.2f} s; ", end="")
            print(f"{found - alone:,} leave for an earlier one; ", end="")
            print(f"pages of the keys in memory: {before:,} before, {touched:,} after, of {there:,}")
    print(f"earlier ratio={touched / there:.3f}")


def timed(stage, sketches: pa.Table) -> tuple[int, float]:
    """Return how many documents leave, and the CPU seconds that it took to know."""
    started = time.process_time()
    return stage.resolve(sketches).num_rows, time.process_time() - started


if __name__ == "__main__":
    main()
