"""A partial copy of LongCrawl64 fetched and read: every complete row, no other, and memory by how large the copy is.

Copies of 3, 6 and 12 bands of 2,048 x 16,384 tokens in the original layout, of which each third lacks a file, lie on
the server of the tests. A process of its own fetches each, in Zarr 3, and another one reads each in place with
``Rectangle(on_missing_chunks="skip")``. Both compare all tokens with those that were written.

    python benchmarks/fetch.py

Memory is the most that a process ever had, but for pages of files, which the system takes back; of the decoded chunks
that a loader keeps, 512 MiB by default, it is 128 MiB here. The last line is what four times the copy takes beside
once, at most.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from hub import hub_server
from numcodecs import Blosc

BAND, LENGTH, WIDTH = 2048, 16_384, 2048
SIZES = (3, 6, 12)

FETCH = """
import json, sys
import numpy as np
from _measures import Peak
from fetch import make
import longcrawl as lc
watched = Peak()
rows, wrong = lc.fetch("longcrawl64", sys.argv[1], sys.argv[2]).rows, 0
"""
READ = """
import json, sys
import numpy as np
from _measures import Peak
from fetch import make
import longcrawl as lc
watched = Peak()
feed = lc.loading.Rectangle(sys.argv[2], batch_size=64, dtype="store", on_missing_chunks="skip", cache_bytes=2**27)
seen, wrong = [], 0
for batch in feed:
    seen += batch["targets"][:, 0].tolist()
    wrong += sum(not np.array_equal(row, make(row[0])) for row in batch["targets"])
rows = len(set(seen))
"""
SAY = "\nprint(json.dumps([rows, wrong, watched.most]))"


def make(number: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Return the tokens of a row, the first of which is its number."""
    row = np.random.default_rng(number).integers(0, 2000, LENGTH).astype(np.uint16)
    row[0] = number
    return row


def write_copy(folder: Path, bands: int) -> int:
    """Write bands of which every third has a hole; return how many rows are complete."""
    array = zarr.create_array(
        folder / "train.zarr",
        shape=(bands * BAND, LENGTH),
        chunks=(BAND, WIDTH),
        dtype=np.uint16,
        compressors=Blosc("lz4"),
        zarr_format=2,
    )
    for band in range(bands):
        rows = range(band * BAND, (band + 1) * BAND)
        array[rows.start : rows.stop] = np.stack([make(number) for number in rows])
        if band % 3 == 2:
            (folder / f"train.zarr/{band}.{band % 8}").unlink()
    return sum(BAND for band in range(bands) if band % 3 != 2)


def measure(program: str, *arguments: str) -> tuple[int, int, int, float]:
    """Return rows, wrong ones, the most bytes of memory, and the seconds of a process."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program + SAY, *arguments],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    return (*json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - started)


def main() -> None:
    """Fetch and read each size."""
    server = hub_server()
    from huggingface_hub import HfApi

    peaks: dict[str, list[int]] = {}
    for bands in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder, repo = Path(name), f"me/copy{bands}"
            complete = write_copy(folder / "copy", bands)
            api = HfApi()
            api.create_repo(repo, repo_type="dataset", private=True)
            api.upload_folder(repo_id=repo, folder_path=folder / "copy", repo_type="dataset")
            fetched = str(folder / "fetched")
            for what, program, path in (
                ("fetch", FETCH, fetched),
                ("read what was fetched", READ, fetched),
                ("read in place", READ, str(folder / "copy")),
            ):
                rows, wrong, peak, seconds = measure(program, repo, path)
                peaks.setdefault(what, []).append(peak)
                print(
                    f"{bands:3} bands, {complete:,} rows complete: {what:22} {rows:,} rows, {wrong} wrong, "
                    f"{peak / 1e6:,.0f} MB of memory, {seconds:.1f} s",
                    flush=True,
                )
                if (rows, wrong) != (complete, 0):
                    raise SystemExit(f"{what}: not the rows that are complete")
    server.shutdown()
    print(f"fetch ratio={max(each[-1] / each[0] for each in peaks.values()):.2f}")


if __name__ == "__main__":
    main()
