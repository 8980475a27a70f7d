"""Read longcrawl's files with OLMo-core's own datasets, and write the same documents with the Dolma toolkit.

Run by ``cross_reading.py`` in an environment that has ai2-olmo-core and dolma; prints what was compared as JSON.
"""

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from dolma.tokenizer.data_types import TokenizerOutput
from dolma.tokenizer.memmap_writer import MemmapWriter
from olmo_core.data.numpy_dataset import (
    NumpyFSLDataset,
    NumpyInterleavedFSLDataset,
    NumpyPackedFSLDataset,
    NumpyPaddedFSLDataset,
    NumpyVSLDataset,
)
from olmo_core.data.types import LongDocStrategy
from olmo_core.data.utils import get_rng, iter_document_indices, write_document_indices

LENGTH = 256
LEAST, MOST = 8, 128
"""Lengths of ``NumpyVSLDataset``, which stores 256 in a byte, as 0, and then finds no piece of this length."""
SEED = 3

Piece = tuple[bytes, bytes]
"""Tokens and loss mask of a document, or of a part of one."""


class Reference:
    """The documents that the files have to hold."""

    def __init__(self, file: Path) -> None:
        made = np.load(file)
        self.tokens, self.ends = made["tokens"].astype(np.int64), made["ends"]
        self.mask = made["mask"] if "mask" in made else np.ones(len(self.tokens), bool)
        self.end_of_text = int(made["end_of_text"])
        self.starts = np.concatenate([[0], self.ends[:-1]])

    def piece(self, start: int, stop: int) -> Piece:
        """Return the tokens and the mask between two places."""
        return self.tokens[start:stop].tobytes(), self.mask[start:stop].tobytes()

    def parts(self, most: int) -> Iterator[tuple[int, int]]:
        """Yield the bounds of documents, cut where they are longer."""
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            for first in range(start, end, most):
                yield first, min(first + most, end)

    def powers(self) -> Iterator[bytes]:
        """Yield the tokens of documents, cut into powers of 2 from ``MOST`` down to ``LEAST``."""
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            first = start
            while end - first >= LEAST:
                size = min(MOST, 1 << ((end - first).bit_length() - 1))
                yield self.tokens[first : first + size].tobytes()
                first += size


def opened(kind: type, path: Path, width: int, made: Reference, work: Path, **settings: Any) -> Any:
    """Open and prepare one of OLMo-core's datasets; only NumpyVSLDataset has no loss masks."""
    if kind is not NumpyVSLDataset:
        settings |= {"sequence_length": LENGTH, "label_mask_paths": [Path(f"{path}.loss")]}
        if not settings["label_mask_paths"][0].exists():
            del settings["label_mask_paths"]
    most = int(made.tokens.max()) + 1
    ids = {"eos_token_id": made.end_of_text, "pad_token_id": most, "vocab_size": most + 1}
    data = kind(path, dtype=np.uint16 if width == 2 else np.uint32, **ids, **settings)
    data.work_dir = work
    data.prepare()
    return data


def unpadded(item: dict[str, Any], lengths: list[int]) -> list[Piece]:
    """Divide an instance into pieces of these lengths."""
    tokens, mask = item["input_ids"].numpy(), item["label_mask"].numpy()
    stops = np.cumsum(lengths).tolist()
    return [
        (tokens[stop - length : stop].tobytes(), mask[stop - length : stop].tobytes())
        for stop, length in zip(stops, lengths, strict=True)
    ]


def read_fixed(path: Path, width: int, made: Reference, work: Path) -> list[list]:
    data = opened(NumpyFSLDataset, path, width, made, work, generate_doc_lengths=True)
    equal = bounded = 0
    for number in range(len(data)):
        first, item = number * LENGTH, data[number]
        mask = item["label_mask"].numpy() if "label_mask" in item else np.ones(LENGTH, bool)
        equal += (item["input_ids"].numpy().tobytes(), mask.tobytes()) == made.piece(first, first + LENGTH)
        inside = made.ends[(made.ends > first) & (made.ends < first + LENGTH)] - first
        bounded += item["doc_lens"].tolist() == np.diff([0, *inside, LENGTH]).tolist()
    whole = len(data) == len(made.tokens) // LENGTH
    return [["NumpyFSLDataset: instances", equal * whole, len(data)], ["its doc_lens: instances", bounded, len(data)]]


def read_padded(path: Path, width: int, made: Reference, work: Path) -> list[list]:
    data = opened(NumpyPaddedFSLDataset, path, width, made, work)
    bounds = list(zip(made.starts.tolist(), np.minimum(made.ends, made.starts + LENGTH).tolist(), strict=True))
    pairs = zip(range(len(data)), bounds, strict=True)
    equal = sum(unpadded(data[number], [stop - start]) == [made.piece(start, stop)] for number, (start, stop) in pairs)
    return [["NumpyPaddedFSLDataset: documents", equal, len(bounds)]]


def read_packed(path: Path, width: int, made: Reference, work: Path) -> list[list]:
    compared = []
    wanted = Counter(made.piece(*each) for each in made.parts(LENGTH))
    for way, local in (("by the end of text", True), ("by .csv.gz", False)):
        settings = {"long_doc_strategy": LongDocStrategy.fragment, "use_array_if_local": local}
        data = opened(NumpyPackedFSLDataset, path, width, made, work / way, **settings, generate_doc_lengths=True)
        found = Counter()
        for number in range(len(data)):
            item = data[number]
            inside = int((item["input_ids"].numpy() != data.pad_token_id).sum())
            lengths = item["doc_lens"].tolist()
            stops = np.cumsum(lengths)
            lengths = [length for length, stop in zip(lengths, stops, strict=True) if stop <= inside]
            lengths += [inside - sum(lengths)] if inside > sum(lengths) else []
            found.update(unpadded(item, lengths))
        compared.append([f"NumpyPackedFSLDataset, {way}: pieces", (found & wanted).total(), wanted.total()])
        compared.append([f"and no other, {way}: pieces", wanted.total(), found.total()])
    return compared


def read_variable(path: Path, width: int, made: Reference, work: Path) -> list[list]:
    data = opened(NumpyVSLDataset, path, width, made, work, min_sequence_length=LEAST, max_sequence_length=MOST)
    wanted = list(made.powers())
    pairs = zip(range(len(data)), wanted, strict=True)
    equal = sum(data[number]["input_ids"].numpy().tobytes() == each for number, each in pairs)
    return [["NumpyVSLDataset: pieces", equal, len(wanted)]]


def read_interleaved(path: Path, width: int, made: Reference, work: Path) -> list[list]:
    settings = {"seed": SEED, "docs_per_instance": 2, "chunks_per_doc": 4}
    data = opened(NumpyInterleavedFSLDataset, path, width, made, work, **settings)
    order, equal = get_rng(SEED).permutation(list(range(len(made.ends)))), 0
    for number in range(len(data)):
        pairs = []
        for document in order[2 * number : 2 * number + 2].tolist():
            start = int(made.starts[document])
            stop = min(int(made.ends[document]), start + LENGTH // 2)
            kept = made.tokens[start:stop] != made.end_of_text
            chunks = (np.array_split(values[start:stop][kept], 4) for values in (made.tokens, made.mask))
            pairs.append(list(zip(*chunks, strict=True)))
        mixed = [pairs[document][chunk] for chunk in range(4) for document in range(2)]
        tokens, mask = (np.concatenate(values) for values in zip(*mixed, strict=True))
        item = data[number]
        equal += unpadded(item, [len(tokens)]) == [(tokens.tobytes(), mask.tobytes())]
        equal -= len(tokens) < LENGTH and int(item["input_ids"][len(tokens)]) != made.end_of_text
    return [["NumpyInterleavedFSLDataset: instances", equal, len(order) // 2]]


def read_bounds(path: Path, width: int, made: Reference, _: Path) -> list[list]:
    """Compare the bounds of documents as OLMo-core finds them, in both ways."""
    compared = []
    kind = np.uint16 if width == 2 else np.uint32
    for way, local in (("by the end of text", True), ("by .csv.gz", False)):
        found = list(iter_document_indices(path, use_array_if_local=local, eos_token_id=made.end_of_text, dtype=kind))
        equal = np.array_equal(np.array(found), np.stack([made.starts, made.ends], 1))
        compared.append([f"iter_document_indices, {way}: documents", equal * len(found), len(made.ends)])
    return compared


READERS = (read_fixed, read_padded, read_packed, read_variable, read_interleaved, read_bounds)


def read_all(path: Path, width: int, made: Reference, what: str, work: Path) -> list[list]:
    return [
        [f"{name.partition(':')[0]}, {what}:{name.partition(':')[2]}", int(equal), of]
        for number, read in enumerate(READERS)
        for name, equal, of in read(path, width, made, work / str(number))
    ]


def write_theirs(folder: Path, width: int, made: Reference) -> None:
    """Write with the Dolma toolkit's writer, and the rows once more with OLMo-core's."""
    kind = np.dtype(np.uint16 if width == 2 else np.uint32)
    folder.mkdir()
    with MemmapWriter(str(folder / "shard"), kind, max_tokens=len(made.tokens) + 1) as writer:
        for number, (start, end) in enumerate(zip(made.starts.tolist(), made.ends.tolist(), strict=True)):
            tokens = made.tokens[start:end].tolist()
            writer.write(TokenizerOutput.from_tokens(f"d{number}", "texts.jsonl", number, tokens))
    shutil.copy(folder / "shard.npy", folder / "bare.npy")
    write_document_indices(folder / "bare.npy", dtype=kind, eos_token_id=made.end_of_text)


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        made = Reference(folder / f"documents{width}.npz")
        ours = folder / f"ours{width}" / "olmo-core" / "shard.npy"
        compared += read_all(ours, width, made, f"uint{8 * width}", folder / f"work{width}")
        write_theirs(folder / f"olmo-core{width}", width, made)
    for file in sorted((folder / "runs").glob("*.npz")):
        run = np.load(file)
        if run["format"] == "olmo-core":
            work = folder / f"work-{file.stem}"
            compared += read_all(Path(str(run["path"])), 2, Reference(file), f"`{run['typed']}`", work)
    print(json.dumps(compared))


if __name__ == "__main__":
    main()
