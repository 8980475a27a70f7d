"""Tokens per second of a rectangle behind a server that takes its time, with one request in flight and with sixteen.

    python benchmarks/remote_rectangle.py --delay 0.05

A server in a process of its own waits before every answer. Two stores hold the same random tokens: the layout of the
original LongCrawl64 (Zarr 2, a file for each chunk of 2,048 x 2,048) and ours (Zarr 3, shards of 2,048 rows, inner
chunks of 64 x 2,048). Both are read by the same loader, over HTTP, from nothing decoded, until the pass or
``--seconds`` end: sixteen requests in flight, neighbours joined, and one at a time. Files of 8 MiB are limited by the
server and by decoding, not by its delay. The last line is the smallest ratio of our layout.
"""

import argparse
import http.server
import os
import re
import tempfile
import time
from functools import partial
from multiprocessing import Process, Queue
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import Blosc
from zarr.codecs import BloscCodec

from longcrawl.loading import Rectangle
from longcrawl.loading import rectangle as loading

ROWS, LENGTH = 4096, 16_384
CASES = ((2048, 8), (2048, 64), (16_384, 8), (16_384, 64))
"""Context lengths and batch sizes."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves ranges of files after a delay."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, delay: float, **settings: Any) -> None:
        self._delay = delay
        super().__init__(*args, **settings)

    def do_GET(self) -> None:
        """Answer after the delay."""
        time.sleep(self._delay)
        path = Path(self.translate_path(self.path))
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        first, last = map(int, wanted.groups())
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), min(last + 1, size) - first, first)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(content) - 1}/{size}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_HEAD(self) -> None:
        """Answer after the delay."""
        time.sleep(self._delay)
        super().do_HEAD()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(folder: Path, delay: float, ports: "Queue[int]") -> None:
    """Serve a folder until the process is ended."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder), delay=delay))
    ports.put(server.server_address[1])
    server.serve_forever()


def write_stores(folder: Path) -> None:
    """Write tokens of text-like entropy in both layouts."""
    chance = np.random.default_rng(0)
    tokens = chance.zipf(1.3, (ROWS, LENGTH)).clip(max=50_255).astype(np.uint16)
    shape = {"shape": tokens.shape, "dtype": np.uint16, "fill_value": 50_256}
    blosc = Blosc("lz4", 5, Blosc.SHUFFLE)
    original = zarr.create_array(
        folder / "original/train.zarr", chunks=(2048, 2048), compressors=blosc, zarr_format=2, **shape
    )
    original[:] = tokens
    codec = BloscCodec(cname="zstd", clevel=3, shuffle="noshuffle")
    zarr.create_group(folder / "ours")
    ours = zarr.create_array(
        folder / "ours/train", chunks=(64, 2048), shards=(2048, LENGTH), compressors=[codec], **shape
    )
    ours[:] = tokens


def rate(url: str, context_length: int, batch_size: int, requests: int, seconds: float) -> float:
    """Return tokens per second, with so many requests in flight."""
    loading.REQUESTS = requests
    # What one request at a time does ahead is as it was: in a thread, where there is a second processor.
    feed = Rectangle(
        url, batch_size=batch_size, context_length=context_length, prefetch="on" if requests > 1 else "auto"
    )
    started, tokens = time.perf_counter(), 0
    for batch in feed:
        tokens += batch["targets"].size
        if time.perf_counter() - started > seconds:
            break
    return tokens / (time.perf_counter() - started)


def main() -> None:
    """Print a table, then the smallest ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay", type=float, default=0.05, help="seconds before every answer")
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        write_stores(Path(folder))
        ports: Queue[int] = Queue()
        server = Process(target=serve, args=(Path(folder), given.delay, ports), daemon=True)
        server.start()
        address = f"http://127.0.0.1:{ports.get()}"
        print(f"{'store':>9} {'context':>8} {'batch':>6} {'one, Mtok/s':>12} {'sixteen':>9} {'ratio':>6}")
        for store in ("original", "ours"):
            for context_length, batch_size in CASES:
                one, sixteen = (
                    rate(f"{address}/{store}", context_length, batch_size, requests, given.seconds) / 1e6
                    for requests in (1, 16)
                )
                ratio = sixteen / one
                ratios += [ratio] if store == "ours" else []
                print(f"{store:>9} {context_length:>8,} {batch_size:>6} {one:>12.1f} {sixteen:>9.1f} {ratio:>6.1f}")
        server.terminate()
    print(f"remote shards: {min(ratios):.1f} times at the least")


if __name__ == "__main__":
    main()
