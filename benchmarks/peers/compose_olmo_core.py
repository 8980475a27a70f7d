"""Compose token files with OLMo-core's datasets, for ``olmo_core_compositions.py``, in an environment that has it.

Reads ``tokens.npy`` and ``numbers.npy`` of a folder, which have the same documents, and writes the instances of each
dataset, the order of interleaved documents, and the bucket of each batch of the curricula. Prints CPU seconds as JSON.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from olmo_core.data.numpy_dataset import (
    NumpyInterleavedFSLDataset,
    NumpyPaddedFSLDataset,
    NumpyVSLDataset,
    VSLGrowLinearCurriculum,
    VSLGrowP2Curriculum,
    VSLNaturalCurriculum,
)

CURRICULA = {"mixed": VSLNaturalCurriculum, "grow-p2": VSLGrowP2Curriculum, "grow-linear": VSLGrowLinearCurriculum}


def instances(data: Any) -> np.ndarray:
    """Return the tokens of all instances of one length."""
    return np.stack([data[number]["input_ids"].numpy() for number in range(len(data))]).astype(np.uint16)


def composed(file: Path, asked: Mapping[str, Any], work: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the tokens of each composition, those of variable lengths by bucket."""
    ids = {name: asked[file.stem][name] for name in ("eos_token_id", "pad_token_id", "vocab_size")}
    length, least = asked["length"], asked["least"]
    fixed = {**ids, "sequence_length": length}
    padded = NumpyPaddedFSLDataset(file, **fixed)
    interleaved = NumpyInterleavedFSLDataset(file, **fixed, **asked["interleaved"])
    variable = NumpyVSLDataset(file, **ids, min_sequence_length=least, max_sequence_length=length)
    for data in (padded, interleaved, variable):
        data.work_dir = work / type(data).__name__
        data.prepare()
    yield "padded", instances(padded)
    yield "interleaved", instances(interleaved)
    for size, numbers in variable.get_instance_buckets():
        rows = [variable[number]["input_ids"].numpy() for number in numbers.tolist()]
        yield f"variable-{size}", np.stack(rows).astype(np.uint16) if rows else np.empty((0, size), np.uint16)
    if file.stem == "tokens":
        yield "order", np.fromfile(interleaved._get_interleaveable_indices_path(), np.uint32)  # noqa: SLF001  # no other
        yield from curricula(variable, asked)


def curricula(data: NumpyVSLDataset, asked: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the bucket of each batch of an epoch; a curriculum that fails is left out."""
    for number, (name, settings) in enumerate(asked["curricula"]):
        curriculum = CURRICULA[name](**settings)
        batches = curriculum.batches_per_bucket(data, asked["batch"])
        ends = np.cumsum([count for _, count in batches])
        try:
            order = curriculum.get_batch_indices(batches, asked["seed"])
        except AssertionError:  # rounded shares of a cycle may add up to more batches than it has
            continue
        yield f"curriculum-{number}", np.searchsorted(ends, order, "right")


def main() -> None:
    folder = Path(sys.argv[1])
    asked = json.loads((folder / "asked.json").read_text())
    for name in ("numbers", "tokens"):
        begun = os.times()
        found = list(composed(folder / f"{name}.npy", asked, folder / "work" / name))
        ended = os.times()
        for what, values in found:
            np.save(folder / f"{name}-{what}.out.npy", values)
    print(json.dumps(sum(ended[:4]) - sum(begun[:4])))


if __name__ == "__main__":
    main()
