"""The round trip through the Hub's protocol: what a push sends, what a pull fetches, in bytes and requests.

A recipe is run, pushed by the real `huggingface_hub` to the server of the tests (tests/hub_server.py, on this machine,
without Xet), pushed again, and read back three ways:

* in a second virtual environment without longcrawl (or by ``--plain``): tables by `datasets`, the rectangle by zarr;
* as windows by ``load_dataset("longcrawl", "rectangle", data_dir="hf://…", streaming=True)``;
* chunk by chunk by both engines, which shows what plain Zarr reads ahead.

    python benchmarks/hub.py                  # the quickstart
    python benchmarks/hub.py --rpv2 FOLDER    # RedPajama-V2 and a tokenizer lie in FOLDER

The last line is how many times fewer bytes the direct engine fetches for the first chunk than plain Zarr does.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PLAIN = """
import importlib.util, json, sys
from datasets import load_dataset
import zarr
repo, tag, ahead = sys.argv[1:]
rows = load_dataset(repo, "rows", split="train", revision=tag)
ledger = load_dataset(repo, "ledger", split="removed", revision=tag)
options = {"block_size": int(ahead)}
train = zarr.open_group(f"hf://datasets/{repo}@{tag}/rectangle", mode="r", storage_options=options)["train"]
import hashlib
digest = hashlib.sha256(train[:].tobytes()).hexdigest()
here = importlib.util.find_spec("longcrawl") is not None
print(json.dumps([here, rows.num_rows, ledger.num_rows, list(train.shape), digest]))
"""


def of_the_tests(name: str) -> Any:
    """Load a file of the tests, which are no package."""
    place = Path(__file__).parent.parent / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hub_server() -> Any:
    """Start the server of the tests and sign this process in to it, before anything reads where the Hub is."""
    module = of_the_tests("hub_server")
    server = module.HubServer()
    os.environ |= {"HF_ENDPOINT": server.url, "HF_TOKEN": module.TOKEN, "HF_HUB_DISABLE_XET": "1"}
    os.environ |= {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # Who has no network says so to `huggingface_hub`; this server is on this machine.
        "HF_HUB_OFFLINE": "0",
    }
    return server


def timed(server: Any, what: str, function: Any) -> Any:
    """Do something and print seconds, requests, and bytes of files both ways."""
    server.reset()
    started = time.perf_counter()
    made = function()
    seconds = time.perf_counter() - started
    sent, served = sum(server.sent().values()), sum(server.served.values())
    print(f"{what:50} {seconds:6.2f} s {len(server.requests):5} requests {sent:12,} up {served:12,} down", flush=True)
    return made


def round_trip(server: Any, run: Path, repo: str, plain: str, context_length: int) -> float:
    """Print what every step moves, and give how many times more plain Zarr fetches for one chunk."""
    import datasets
    import zarr

    import longcrawl as lc
    from longcrawl.formats.rectangle.spec import open_split

    pushed = timed(server, "push", lambda: lc.push(run, repo, "private"))
    timed(server, "push again", lambda: lc.push(run, repo, "private"))
    assert timed(server, "verify", lambda: lc.verify(f"hf://datasets/{repo}")).problems == ()
    local = zarr.open_group(run / "rectangle", mode="r")["train"][:]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for ahead in ("5242880", "65536"):
        command = [plain, "-I", "-c", PLAIN, repo, pushed.tag, ahead]
        done = timed(
            server,
            f"load by datasets and zarr, {int(ahead):,} ahead",
            lambda command=command: subprocess.run(command, capture_output=True, check=False, env=environment, cwd=run),
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        here, rows, ledger, shape, digest = json.loads(done.stdout)
        assert digest == hashlib.sha256(local.tobytes()).hexdigest()
        where = "has" if here else "has no"
        print(f"  {rows} rows, {ledger} in the ledger, train {shape}; that environment {where} longcrawl")

    url, settings = f"hf://datasets/{repo}/rectangle", {"split": "train", "streaming": True}
    data = datasets.load_dataset("longcrawl", "rectangle", data_dir=url, context_length=context_length, **settings)
    server.delay = 0.05
    first = timed(server, f"first window of {context_length:,}, 50 ms a request", lambda: next(iter(data)))
    server.delay = 0
    assert first["tokens"] == local[0, :context_length].tolist()
    stored = sum(file.stat().st_size for file in (run / "rectangle/train/c").rglob("*") if file.is_file())
    chunks = sum(size for name, size in server.served.items() if "/c/" in name)
    print(f"  {chunks:,} bytes of {stored:,} of train's chunks")
    fetched = {}
    for engine in ("direct", "zarr"):
        array = open_split(url, engine=engine)
        timed(server, f"first chunk, engine {engine}", lambda array=array: array.read_chunk(0, 0))
        fetched[engine] = sum(server.served.values())
    return fetched["zarr"] / fetched["direct"]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--plain", help="an interpreter with datasets and zarr, without longcrawl; one is made if left out"
    )
    parser.add_argument("--rpv2", type=Path, help="a folder with rpv2/ and gpt2.tiktoken")
    asked = parser.parse_args()
    server = hub_server()
    import longcrawl as lc

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HF_HOME"] = str(folder / "home")
        second = of_the_tests("second_environment")
        plain = asked.plain or str(second.environment_without("longcrawl", folder / "environment"))
        runs = [("quickstart", [], 1024)]
        if asked.rpv2 is not None:
            tokenizer = f"stages.tokenize.tokenizer={asked.rpv2 / 'gpt2.tiktoken'}"
            runs.append(("longcrawl64-clean", [f"source.data_dir={asked.rpv2 / 'rpv2'}", tokenizer], 4096))
        for recipe, overrides, context_length in runs:
            summary = lc.run(recipe, folder / recipe, overrides=overrides)
            print(f"{recipe}: {summary.written['shapes']}")
            ratio = round_trip(server, folder / recipe, f"me/{recipe}", plain, context_length)
    print(f"hub ratio={ratio:.1f}")


if __name__ == "__main__":
    main()
