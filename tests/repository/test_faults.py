"""Every fault campaign in small: nothing is wrong in silence, and nothing ends in a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "faults"
FUZZED = [
    *("charset", "http answer", "warc fields", "json lines", "urls", "html", "jsonl", "jsonl.gz", "jsonl.zst", "txt"),
    *("warc", "warc.gz", "warc.zst", "wet.gz", "release", "release inside", "shard datatrove", "shard gpt-simple"),
    *("shard levanter", "shard litdata", "shard mds"),
    *("shard megatron", "shard nanogpt", "shard olmo-core", "shard token-parquet", "rectangle original", "composed"),
    *("plan", "unfinished push", "remote manifest", "card", "tiktoken ranks", "tokenizer.json", "recipe", "curriculum"),
    *("rectangle v3", "rectangle v2", "run described", "run tables", "checked megatron", "parquet", "saved index"),
]
FLIPPED = [
    *("input jsonl.gz", "input jsonl.zst", "input txt.gz", "input warc.gz", "input warc.zst", "input one warc.gz"),
    *("input release", "feed rectangle", "feed composed", "rectangle by zarr", "run manifest", "unfinished push"),
    *("work parquet", "work composed", "work datatrove", "run recipe and card", "run parquet", "feed datatrove"),
    *("feed levanter", "feed litdata", "feed mds"),
    *("feed gpt-simple", "feed megatron", "feed nanogpt", "feed olmo-core", "packed datatrove", "packed gpt-simple"),
    *("input parquet", "saved index", "plan", "run ledger"),
]
TRIALS = {
    "fuzz": ["--n", "900", *FUZZED],
    "flips": ["--n", "150", *FLIPPED],
    "kills": ["--n", "4", "gpt-simple", "longcrawl64-clean"],
    "storage": ["--n", "9"],
    "hub": ["--n", "6"],
}
"""A minute of two processors together; `make faults` runs longer ones."""


def campaign(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a campaign with the seed 2; a process with another seed of hashes imports everything and starts again."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--seed", "2", *words]
    seeded = os.environ | {"PYTHONHASHSEED": "2"}
    return subprocess.run(command, env=seeded, capture_output=True, text=True, timeout=600, check=False)


def test_every_campaign_is_run():
    assert {path.stem for path in FOLDER.glob("[!_]*.py")} == set(TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_is_survived(name):
    ended = campaign(name, *TRIALS[name])
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert ended.stdout.splitlines()[-1] == f"{name} ratio=1.000"
    tried = int(re.search(r"of ([\d,]+) trials survived", ended.stdout)[1].replace(",", ""))
    assert tried >= 0.98 * int(TRIALS[name][1])  # the share of each target is rounded


BROKEN = """
import sys
sys.path.insert(0, {folder!r})
from _campaign import Campaign, Outcome, Target, arguments, warm_up

class Broken(Target):
    name = "broken"

    def make(self, folder):
        (folder / "value").write_text("7")

    def open(self, folder, scratch):
        import os, time
        from longcrawl.errors import FormatError
        value = (folder / "value").read_text()

        def trial(chance):
            number = chance.randrange(10**6)
            way = sys.argv[-1]
            if way == "raise":
                raise KeyError(number)
            if way == "die":
                os._exit(3)
            if way == "flood":
                raise FormatError("a line " * 100)
            if way == "sentence":
                raise FormatError("value cannot be read: write it again")
            return Outcome("silent change" if way == "change" else "same", value)

        return trial

options = arguments("", 4).parse_args(sys.argv[1:-1])
Campaign("broken", [Broken()], options).run()
"""


@pytest.mark.variants
@pytest.mark.parametrize(
    ("way", "word"),
    [
        ("raise", "traceback"),
        ("die", "crash"),
        ("flood", "unclear sentence"),
        ("change", "silent change"),
        ("sentence", "noticed"),
        ("agree", "same"),
    ],
)
def test_what_is_not_survived_is_counted_and_can_be_repeated(way, word, python):
    program = BROKEN.format(folder=str(FOLDER))
    ended = python(program, "--seed", "5", "--n", "4", way)
    survived = word in ("noticed", "same")
    assert ended.returncode == int(not survived), ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == f"broken ratio={int(survived)}.000"
    assert re.search(rf"target +trials +per s +{word}\n", ended.stdout)
    repeats = re.findall(r"repeat: python benchmarks/faults/broken\.py (--seed 5 --only 'broken:(\d+)')", ended.stdout)
    assert bool(repeats) != survived
    if repeats:
        again = python(program, "--seed", "5", "--only", f"broken:{repeats[0][1]}", way)
        assert again.returncode == 1
        assert f"broken: {word}: " in again.stdout
