"""Time TRL's packing of documents of these lengths, for ``buckets.py``, where TRL lives.

Takes a .npy file of lengths, the length of samples and how often to repeat. Prints CPU seconds of the best repeat and
how many samples there are. Documents are zeros; TRL moves the tokens, too, so the other side does as well.
"""

import json
import sys
import time

import numpy as np
import pyarrow as pa
from datasets import Dataset
from trl.data_utils import pack_dataset


def best(lengths: np.ndarray, context_length: int, repeats: int) -> tuple[float, int]:
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    tokens = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(lengths.sum(), np.int32)))
    documents = Dataset(pa.table({"input_ids": tokens}))
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        packed = pack_dataset(
            documents,
            context_length,
            strategy="bfd_split",
            map_kwargs={"batch_size": len(documents), "keep_in_memory": True, "load_from_cache_file": False},
        )
        taken.append(time.process_time() - started)
    return min(taken), len(packed)


def main() -> None:
    lengths = np.load(sys.argv[1])
    seconds, samples = best(lengths, int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps({"seconds": seconds, "samples": samples}))


if __name__ == "__main__":
    main()
