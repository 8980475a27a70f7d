"""Read longcrawl's chunks with litdata's StreamingDataset, and write the same documents with its BinaryWriter.

Run by ``cross_reading.py`` in an environment that has litdata; prints what was compared as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from litdata import StreamingDataset, TokensLoader
from litdata.streaming.writer import BinaryWriter

LENGTH = 256


def read(split: Path, made: dict[str, np.ndarray], what: str) -> list:
    data = StreamingDataset(str(split), item_loader=TokensLoader(block_size=LENGTH), shuffle=False)
    count = len(made["tokens"]) // LENGTH
    whole = made["tokens"][: count * LENGTH].reshape(count, LENGTH)
    equal = sum(np.array_equal(data[number].numpy(), whole[number]) for number in range(len(data)))
    return [f"StreamingDataset reads {what}: blocks", equal * (len(data) == count), count]


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        made = dict(np.load(folder / f"documents{width}.npz"))
        compared.append(read(folder / f"ours{width}" / "litdata", made, f"ours, uint{8 * width}"))
        theirs = folder / f"litdata{width}"
        theirs.mkdir()
        writer = BinaryWriter(str(theirs), chunk_bytes=1 << 30, item_loader=TokensLoader())
        for number, each in enumerate(np.split(made["tokens"], made["ends"][:-1])):
            writer[number] = torch.from_numpy(each.astype(np.uint16 if width == 2 else np.int32))
        writer.done()
        writer.merge()
    for file in sorted((folder / "runs").glob("*.npz")):
        run = dict(np.load(file))
        if run["format"] == "litdata":
            compared.append(read(Path(str(run["split"])), run, f"`{run['typed']}`"))
    print(json.dumps(compared))


if __name__ == "__main__":
    main()
