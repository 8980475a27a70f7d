"""Time datatrove's dataset and print its windows; feeds.py runs this where datatrove is installed."""

import json
import random
import sys
import time
from hashlib import sha256

import torch
from datatrove.utils.dataset import DatatroveFolderDataset
from loguru import logger


def rate(dataset: DatatroveFolderDataset, order: list[int], seconds: float) -> float:
    """Return tokens per second of CPU time, cut after ``seconds``."""
    tokens, start = 0, time.process_time()
    for at in order:
        tokens += len(dataset[at]["input_ids"])
        if time.process_time() - start > seconds:
            break
    return tokens / (time.process_time() - start)


def digest(dataset: DatatroveFolderDataset) -> str:
    """Describe what the first thousand windows are."""
    found = sha256()
    for item in (dataset[at] for at in range(min(len(dataset), 1000))):
        for name in sorted(item):
            found.update(item[name].numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    folder, seq_len, end_of_text, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    logger.remove()
    torch.set_num_threads(1)
    rates, digests = {}, {}
    for positions, by_token in (("none", None), ("index", None), ("eos", end_of_text)):
        opened = {"return_positions": positions != "none", "positions_from_eos_token_id": by_token}
        dataset = DatatroveFolderDataset(folder, seq_len, **opened)
        order = list(range(len(dataset)))
        rates[f"{positions}, in order"] = rate(dataset, order, seconds)
        digests[positions] = digest(dataset)
        random.Random(0).shuffle(order)
        rates[f"{positions}, any order"] = rate(dataset, order, seconds)
    files = DatatroveFolderDataset(folder, seq_len, shuffle=True, seed=1, paths_file=f"{folder}/paths.json")
    digests["files shuffled, by our paths file"] = digest(files)
    print(json.dumps({"rates": rates, "digests": digests}))


if __name__ == "__main__":
    main()
