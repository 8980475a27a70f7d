"""Read longcrawl's caches with Levanter's own datasets, and write the same documents with its writer.

Run by ``cross_reading.py`` in an environment that has marin-levanter; prints what was compared as JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import haliax as hax
import numpy as np
from levanter.data.text.datasets import CausalLmDataset, TokenSeqDataset
from levanter.store.cache import SerialCacheWriter, TreeCache

LENGTH = 256
EXEMPLAR = {"input_ids": np.zeros(0, np.int32)}


def read(cache_folder: Path, made: dict[str, np.ndarray], what: str) -> list[list]:
    """Compare documents, sequences of tokens, and the segments that Levanter separates documents by."""
    tokens, ends, end_of_text = made["tokens"], made["ends"], int(made["end_of_text"])
    cache = TreeCache.load(str(cache_folder), EXEMPLAR)
    wanted = np.split(tokens, ends[:-1])
    found = cache.get_batch_sync(range(len(cache)))
    equal = sum(np.array_equal(one["input_ids"], other) for one, other in zip(found, wanted, strict=True))
    compared = [[f"TreeCache reads {what}: documents", equal, len(wanted)]]
    sequences = TokenSeqDataset(cache, LENGTH)
    count = len(tokens) // LENGTH
    whole = tokens[: count * LENGTH].reshape(count, LENGTH)
    read_back = asyncio.run(sequences.get_batch(range(asyncio.run(sequences.async_len()))))
    equal = sum(np.array_equal(one["input_ids"], other) for one, other in zip(read_back, whole, strict=True))
    compared.append([f"TokenSeqDataset reads {what}: sequences", equal, count])
    examples = CausalLmDataset(sequences, hax.Axis("position", LENGTH), eos_id=end_of_text)
    equal = 0
    for number, example in enumerate(asyncio.run(examples.get_batch(range(count)))):
        inside = np.searchsorted(ends, np.arange(number * LENGTH, (number + 1) * LENGTH), "right")
        segments = np.asarray(example.attn_mask.segment_ids[0])
        same = np.array_equal(np.asarray(example.tokens), whole[number])
        equal += same and np.array_equal(segments, inside - inside[0])
    return [*compared, [f"CausalLmDataset reads {what}: tokens and segments", int(equal), count]]


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        made = dict(np.load(folder / f"documents{width}.npz"))
        ours = folder / f"ours{width}" / "levanter"
        compared += read(ours, made, f"ours, uint{8 * width}")
        alone = TreeCache.load(str(ours / "shard"), EXEMPLAR)
        compared.append(
            [f"TreeCache reads one shard of ours, uint{8 * width}: documents", len(alone), len(made["ends"])]
        )
        exemplar = {"input_ids": np.zeros(0, np.uint16 if width == 2 else np.int32)}
        with SerialCacheWriter(str(folder / f"levanter{width}" / "cache"), exemplar) as writer:
            documents = np.split(made["tokens"].astype(exemplar["input_ids"].dtype), made["ends"][:-1])
            for first in range(0, len(documents), 1000):
                writer.write_batch([{"input_ids": each} for each in documents[first : first + 1000]])
    for file in sorted((folder / "runs").glob("*.npz")):
        run = dict(np.load(file))
        if run["format"] == "levanter":
            compared += read(Path(str(run["split"])), run, f"`{run['typed']}`")
    print(json.dumps(compared))


if __name__ == "__main__":
    main()
