"""Read longcrawl's files with Megatron's own dataset, and write the same documents with its builder.

Run by ``cross_reading.py`` in an environment that has megatron-core; prints what was compared as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def read_runs(folder: Path) -> list[list]:
    """Compare every document of the shards that runs have written."""
    compared = []
    for file in sorted((folder / "runs").glob("*.npz")):
        run = np.load(file)
        if run["format"] == "megatron":
            theirs = IndexedDataset(str(run["path"]).removesuffix(".bin"))
            wanted = np.split(run["tokens"], run["ends"][:-1])
            equal = sum(np.array_equal(one, other) for one, other in zip(theirs, wanted, strict=True))
            compared.append([f"IndexedDataset reads `{run['typed']}`: documents", equal, len(wanted)])
    return compared


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        reference = np.load(folder / f"documents{width}.npz")
        tokens, ends = reference["tokens"], reference["ends"]
        starts = [0, *ends[:-1].tolist()]
        for mapped in (True, False):
            theirs = IndexedDataset(str(folder / f"ours{width}" / "megatron" / "shard"), mmap=mapped)
            equal = sum(
                np.array_equal(theirs[number], tokens[start:end])
                for number, (start, end) in enumerate(zip(starts, ends, strict=True))
            )
            way = "mapped" if mapped else "by pread"
            compared.append([f"IndexedDataset reads ours, {way}, uint{8 * width}: documents", equal, len(theirs)])
        indices = np.array_equal(theirs.document_indices, np.arange(len(ends) + 1))
        compared.append([f"its document indices, uint{8 * width}: sets", int(indices), 1])

        target = folder / f"megatron{width}"
        target.mkdir()
        kind = np.uint16 if width == 2 else np.int32
        one_each = IndexedDatasetBuilder(str(target / "shard.bin"), dtype=kind)
        halves = IndexedDatasetBuilder(str(target / "halves.bin"), dtype=kind)
        for start, end in zip(starts, ends.tolist(), strict=True):
            document = torch.from_numpy(tokens[start:end].astype(np.int64))
            one_each.add_document(document, [end - start])
            halves.add_document(document, [(end - start) // 2, end - start - (end - start) // 2])
        one_each.finalize(str(target / "shard.idx"))
        halves.finalize(str(target / "halves.idx"))
    print(json.dumps(compared + read_runs(folder)))


if __name__ == "__main__":
    main()
