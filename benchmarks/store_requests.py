"""Count the requests of a run whose folder is in an object store, for each input file and segment of the recipe.

    python benchmarks/store_requests.py [--files 6 18]

Runs of exact and near-duplicate removal, three segments, in one process against moto's S3 server on this machine, which
also has the input. The requests that more files add are divided by their number. Those of the lock depend on time
alone, and do not count. The last line is the requests of a file and segment.
"""

import argparse
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from _needed import lacks

import longcrawl as lc
from longcrawl.run.recipe import parse_recipe

SEGMENTS = 3
STAGES: list[Any] = ["exact_documents", {"min_hash": {"bands": 14, "rows": 8, "unit": "word"}}]


def count(files: int, folder: str) -> Counter[str]:
    """Run a recipe on so many files; return the requests by kind."""
    import s3fs

    filesystem, made = s3fs.S3FileSystem(), Counter[str]()
    for number in range(files):
        rows = ({"id": f"{number}-{row}", "text": f"Text {row % 30} of file {number % 5}. " * 20} for row in range(40))
        filesystem.pipe(f"{folder}/in/{number}.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    source = {"builder": "text", "data_files": [f"s3://{folder}/in/{n}.jsonl" for n in range(files)], "id_field": "id"}
    recipe = parse_recipe(
        {"longcrawl": 1, "name": "requests", "source": source, "stages": STAGES, "outputs": {"parquet": {}}}
    )
    call = s3fs.S3FileSystem._call_s3  # noqa: SLF001  # every request passes through it

    async def counted(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        if not str(named.get("Key", "")).endswith("lock"):
            made[method] += 1
        return await call(self, method, *arguments, **named)

    s3fs.S3FileSystem._call_s3 = counted  # noqa: SLF001  # put back below
    try:
        lc.run(recipe, f"s3://{folder}/run")
    finally:
        s3fs.S3FileSystem._call_s3 = call  # noqa: SLF001  # as before
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs=2, default=[6, 18])
    few, many = parser.parse_args().files
    try:
        import s3fs  # noqa: F401  # asked for
        from moto.server import ThreadedMotoServer
    except ImportError:
        lacks("pip install 'moto[server]' 'longcrawl[s3]'", None)
        return
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with tempfile.TemporaryDirectory() as places:
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1",
            "LONGCRAWL_PLACES": str(Path(places)),
        }
        import boto3

        boto3.client("s3").create_bucket(Bucket="bucket")
        found = {files: count(files, f"bucket/{files}") for files in (few, many)}
    server.stop()
    more = {kind: (found[many][kind] - found[few][kind]) / (many - few) for kind in sorted(found[many])}
    for kind, each in more.items():
        print(f"{kind:24}{found[few][kind]:6} with {few} files, {found[many][kind]:6} with {many}: {each:.1f} a file")
    print(f"store_requests ratio={sum(more.values()) / SEGMENTS:.1f}")


if __name__ == "__main__":
    main()
