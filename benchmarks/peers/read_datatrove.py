"""Read longcrawl's files with datatrove's own classes, and write the same documents with its writers.

Run by ``cross_reading.py`` in an environment that has datatrove; prints what was compared as JSON.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from datatrove.pipeline.tokens.megatron_tokenizer import MegatronTokenizedFile
from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from datatrove.utils.dataset import DatatroveFolderDataset

CONTEXT = 511


def positions(ends: np.ndarray, first: int) -> np.ndarray:
    """Return the place in its document of each token of a window; a document cut by the window starts at 0 there."""
    places = np.arange(first, first + CONTEXT + 1)
    starts = np.concatenate([[first], ends[(ends > first) & (ends <= first + CONTEXT)]])
    return places - starts[np.searchsorted(starts, places, "right") - 1]


def read_folder(folder: Path, width: int, tokens: np.ndarray, ends: np.ndarray, end_of_text: int) -> list[list]:
    """Compare every window of every file, and its positions in both of datatrove's ways."""
    compared = []
    for name, by in (("index", None), ("end of text", end_of_text)):
        windows = DatatroveFolderDataset(
            str(folder),
            CONTEXT,
            filename_pattern="*.ds",
            token_size=width,
            return_positions=True,
            positions_from_eos_token_id=by,
        )
        equal = placed = 0
        for number in range(len(windows)):
            first = number * (CONTEXT + 1)
            window = windows[number]
            equal += bool((window["input_ids"].numpy() == tokens[first : first + CONTEXT + 1]).all())
            placed += bool((window["positions"].numpy() == positions(ends, first)).all())
        compared += [
            [f"DatatroveFolderDataset reads ours, uint{8 * width}: windows", equal, len(windows)],
            [f"its positions by {name}, uint{8 * width}: windows", placed, len(windows)],
        ]
    return compared


def merge(folder: Path, ours: Path, width: int) -> list[list]:
    """Have datatrove merge our shard into one of its own, in the same order."""
    shutil.copytree(ours, folder / "to_merge")
    merged = folder / "merged"
    DocumentTokenizerMerger(
        str(folder / "to_merge"), str(merged), "all", shuffle=False, save_loss_metadata=True, progress=False
    ).run()
    pairs = [(ours / f"shard.ds{suffix}", merged / f"000_all.ds{suffix}") for suffix in ("", ".index", ".loss")]
    equal = sum(one.read_bytes() == other.read_bytes() for one, other in pairs)
    return [[f"DocumentTokenizerMerger copies ours, uint{8 * width}: files", equal, len(pairs)]]


def read_runs(folder: Path) -> list[list]:
    """Compare every window of the shards that runs have written."""
    compared = []
    for file in sorted((folder / "runs").glob("*.npz")):
        run = np.load(file)
        if run["format"] == "datatrove":
            shards = Path(str(run["path"])).parent
            found = read_folder(shards, 2, run["tokens"], run["ends"], int(run["end_of_text"]))
            whole = len(run["ends"]) == int((run["tokens"] == run["end_of_text"]).sum())
            # An entry that does not end its document has no end of text to tell positions by.
            kept = found if whole else found[:2]
            compared += [
                [what.replace("ours, uint16", f"`{run['typed']}`").replace("uint16", f"`{run['typed']}`"), equal, of]
                for what, equal, of in kept
            ]
    return compared


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        reference = np.load(folder / f"documents{width}.npz")
        tokens, ends, mask = reference["tokens"], reference["ends"], reference["mask"]
        ours, theirs = folder / f"ours{width}", folder / f"datatrove{width}"
        compared += read_folder(ours / "datatrove", width, tokens, ends, int(reference["end_of_text"]))
        compared += merge(folder / f"merge{width}", ours / "datatrove", width)
        written = TokenizedFile(
            str(theirs),
            "shard.ds",
            save_loss_metadata=True,
            tokenizer_name_or_path="gpt2",
            save_final_metadata=True,
            token_size=width,
        )
        indexed = MegatronTokenizedFile(str(theirs), "shard", token_size=width)
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            written.write(tokens[start:end].tolist(), mask[start:end])
            indexed.write(tokens[start:end].tolist())
        written.close()
        indexed.close()
    print(json.dumps(compared + read_runs(folder)))


if __name__ == "__main__":
    main()
