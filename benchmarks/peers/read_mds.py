"""Read longcrawl's shards with MosaicML's StreamingDataset, and write the same documents with its MDSWriter.

Run by ``cross_reading.py`` in an environment that has mosaicml-streaming; prints what was compared as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
from streaming import MDSWriter, StreamingDataset


def read(split: Path, made: dict[str, np.ndarray], what: str) -> list:
    data = StreamingDataset(local=str(split), shuffle=False, batch_size=1)
    wanted = np.split(made["tokens"], made["ends"][:-1])
    equal = sum(np.array_equal(data[number]["tokens"], each) for number, each in enumerate(wanted))
    return [f"StreamingDataset reads {what}: documents", equal * (len(data) == len(wanted)), len(wanted)]


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        made = dict(np.load(folder / f"documents{width}.npz"))
        compared.append(read(folder / f"ours{width}" / "mds", made, f"ours, uint{8 * width}"))
        kind = "uint16" if width == 2 else "int32"
        documents = np.split(made["tokens"], made["ends"][:-1])
        for name, column in (("arrays", f"ndarray:{kind}"), ("bytes", "bytes")):
            out = str(folder / f"mds{width}" / name)
            with MDSWriter(out=out, columns={"tokens": column}, size_limit=None) as writer:
                for each in documents:
                    array = each.astype(kind if name == "arrays" else np.int64)
                    writer.write({"tokens": array if name == "arrays" else array.tobytes()})
    for file in sorted((folder / "runs").glob("*.npz")):
        run = dict(np.load(file))
        if run["format"] == "mds":
            compared.append(read(Path(str(run["split"])), run, f"`{run['typed']}`"))
    print(json.dumps(compared))


if __name__ == "__main__":
    main()
