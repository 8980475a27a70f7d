"""Read longcrawl's files with GPT-Simple's own loader, and write files with its own functions.

Run by ``cross_reading.py`` in an environment that has gpt-simple-lm; prints what was compared as JSON. The tokenizer of
its ``tokenize_shard`` is made here, of bytes, so nothing is downloaded.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
from gpt_simple.data import PreTokenizedDataset
from gpt_simple.pretokenize import read_idx, tokenize_shard, write_idx

LONGEST = 1 << 16


def delivered(path: Path, pad: int, end_of_text: int, longest: int, *, packed: bool) -> list[np.ndarray]:
    """Return the tokens of every sequence that the loader makes, without padding."""
    loader = PreTokenizedDataset([path], longest, 0, pad, end_of_text, pack_sequences=packed)
    return [item["input_ids"].numpy()[: int(item["attention_mask"].sum())] for item in loader]


def byte_tokenizer(folder: Path) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({sign: number for number, sign in enumerate([*alphabet, "<|endoftext|>"])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    end_of_text = {"eos_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **end_of_text).save_pretrained(folder)
    return str(folder)


def read_runs(folder: Path) -> list[list]:
    """Compare every entry and overlap of the shards that runs have written."""
    compared = []
    for file in sorted((folder / "runs").glob("*.npz")):
        run = np.load(file)
        if run["format"] != "gpt-simple":
            continue
        path, end_of_text = Path(str(run["path"])), int(run["end_of_text"])
        _, offsets, overlaps = read_idx(path.with_suffix(".idx"))
        right = (np.array_equal(offsets[1:], run["ends"]), np.array_equal(overlaps, run["overlaps"]))
        wanted = sorted(entry.tobytes() for entry in np.split(run["tokens"], run["ends"][:-1]))
        alone = delivered(path, end_of_text, end_of_text, LONGEST, packed=False)
        found = sorted(entry.astype(np.uint16).tobytes() for entry in alone)
        equal = sum(one == other for one, other in zip(wanted, found, strict=True))
        compared += [
            [f"read_idx of `{run['typed']}`: fields", sum(right), len(right)],
            [f"PreTokenizedDataset reads `{run['typed']}`: entries", equal, len(wanted)],
        ]
    return compared


def main() -> None:
    folder = Path(sys.argv[1])
    compared = []
    for width in (2, 4):
        reference = np.load(folder / f"documents{width}.npz")
        tokens, ends, overlaps = reference["tokens"], reference["ends"], reference["overlaps"]
        end_of_text = int(reference["end_of_text"])
        ours = folder / f"ours{width}" / "gpt-simple" / "shard"
        code, offsets, prefixes = read_idx(ours.with_suffix(".idx"))
        right = (code == width, np.array_equal(offsets[1:], ends), np.array_equal(prefixes, overlaps))
        compared.append([f"read_idx of ours, uint{8 * width}: fields", sum(right), len(right)])
        documents = [tokens[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        alone = delivered(ours.with_suffix(".bin"), 0, end_of_text, LONGEST, packed=False)
        wanted = sorted(document.tobytes() for document in documents)
        found = sorted(document.astype(tokens.dtype).tobytes() for document in alone)
        equal = sum(one == other for one, other in zip(wanted, found, strict=True))
        compared.append([f"PreTokenizedDataset reads ours, uint{8 * width}: documents", equal, len(wanted)])
        packed = sum(map(len, delivered(ours.with_suffix(".bin"), 0, end_of_text, 4096, packed=True)))
        compared.append([f"it packs ours, uint{8 * width}: tokens", packed, len(tokens)])
        target = folder / f"gpt-simple{width}"
        target.mkdir()
        tokens.tofile(target / "shard.bin")
        write_idx(target / "shard.idx", np.concatenate([[0], ends]), overlaps, width)
    chance = random.Random(0)
    texts = ["".join(chance.choices("abc def\n", k=chance.randint(200, 900))) for _ in range(100)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenize_shard(str(folder / "texts.jsonl"), str(folder), byte_tokenizer(folder / "bytes"), 256, 32, False, 1.0, 200)
    print(json.dumps(compared + read_runs(folder)))


if __name__ == "__main__":
    main()
