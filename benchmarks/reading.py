"""Reading documents, against decompressing the same bytes and doing nothing with them.

    python benchmarks/reading.py [--text short.jsonl.zst] [--archives pages-*.warc.gz] [--release RELEASE]

JSON lines (plain, gzip, zstd), parquet, text by the line and CSV are written from ``--text``, or from made-up
documents; "1000.parquet" has row groups of 1,000 rows, in snappy, as files on the Hub often have them; archives and a
RedPajama-V2 release are those of ``warc_reading.py`` and ``redpajama_v2.py`` where none are named. "warc, for tokens"
and "long" archives have no digests of pages. The signals "of rules" are those that the recipe longcrawl64-clean looks
at. Files are read as runs do, with their checksums behind the data; "checked first" is as ``load_dataset`` reads.
"long" files hold documents or archives four times in one member, more than is held in memory until its checksum has
been compared. "alone" is what the reader decompresses with: zstandard, isal for gzip, pyarrow's columns of parquet, a
plain read, each on one thread. CPU time of one process, the best of --repeats by turns, after one warm-up. The last
line has the greatest ratio of a reader's seconds to those of decompressing, of files that are compressed and read as
runs do.
"""

import argparse
import csv
import gzip
import io
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import redpajama_v2
import warc_reading
import zstandard
from _measures import best
from isal import igzip
from tokenization import made_up

from longcrawl.builders.longcrawl import SOURCES
from longcrawl.core.sources import BadFiles, Checksums, Source
from longcrawl.run.inputs import needed_source
from longcrawl.run.recipe import load_recipe
from longcrawl.sources.warc.source import Warc

PIECE = 1 << 20
PLAIN = ("jsonl", "txt", "csv", "long.warc")


def read_all(source: Source, checksums: Checksums = "last") -> int:
    """Return the bytes of all texts."""
    bad_files = BadFiles(checksums=checksums)
    tables = (table for part in source.splits()["train"] for table in source.read(part, bad_files))
    return sum(table[name].nbytes for table in tables for name in ("text", "html") if name in table.column_names)


def pieces(file: io.BufferedIOBase) -> int:
    return sum(map(len, iter(lambda: file.read(PIECE), b"")))


def decompress(files: list[Path]) -> int:
    size = 0
    for path in files:
        if path.suffix == ".parquet":
            size += sum(batch.nbytes for batch in pq.ParquetFile(path).iter_batches(1024, use_threads=False))
            continue
        with path.open("rb") as packed:
            if path.suffix == ".zst":
                size += pieces(zstandard.ZstdDecompressor().stream_reader(packed, read_size=PIECE))
            elif path.suffix == ".gz":
                size += pieces(igzip.IGzipFile(fileobj=packed))
            else:
                size += pieces(packed)
    return size


def written(folder: Path, documents: list[str]) -> Iterator[Path]:
    """Write the documents in every form that the source ``text`` reads."""
    rows = [{"id": f"d{n}", "text": text, "url": f"https://example.org/{n}"} for n, text in enumerate(documents)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    for ending, content in {
        ".jsonl": lines,
        ".jsonl.gz": gzip.compress(lines, 6),
        ".jsonl.zst": zstandard.ZstdCompressor(3).compress(lines),
        ".long.jsonl.gz": gzip.compress(4 * lines, 6),
        ".long.jsonl.zst": zstandard.ZstdCompressor(3).compress(4 * lines),
        ".txt": "\n".join(documents).encode(),
    }.items():
        path = folder / f"documents{ending}"
        path.write_bytes(content)
        yield path
    path = folder / "documents.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ("id", "text", "url"))
        writer.writeheader()
        writer.writerows(rows)
    yield path
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, path := folder / "documents.parquet", compression="zstd")
    yield path
    pq.write_table(table, path := folder / "documents.1000.parquet", compression="snappy", row_group_size=1_000)
    yield path


def long_archives(folder: Path, archives: Sequence[Path]) -> Iterator[Path]:
    """Write all archives four times as one file: plain, and in one member or frame."""
    content = b"".join(igzip.decompress(path.read_bytes()) for path in archives)
    for ending, pack in {
        ".warc": bytes,
        ".warc.gz": lambda content: gzip.compress(content, 6),
        ".warc.zst": zstandard.ZstdCompressor(3, write_checksum=True).compress,
    }.items():
        path = folder / f"long{ending}"
        path.write_bytes(pack(4 * content))
        yield path


def release_source(release: Path, **settings) -> tuple[Source, list[Path]]:
    parts = sorted(path for path in release.glob("documents/*/*/*.json.gz") if "_tail" not in path.name)
    names = [str(path.relative_to(release / "documents")).removesuffix(".json.gz") for path in parts]
    snapshots, languages = sorted({name[:7] for name in names}), sorted({Path(name).name[:2] for name in names})
    source = SOURCES["redpajama-v2"](
        data_dir=str(release), snapshots=tuple(snapshots), languages=tuple(languages), **settings
    )
    found = [Path(file) for part in source.splits()["train"] for file in part.files]
    return source, [path for path in found if path.suffix == ".gz"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a .jsonl.zst file with a field 'text'")
    parser.add_argument("--archives", type=Path, nargs="*")
    parser.add_argument("--release", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if settings.text:
            with zstandard.open(settings.text, "rt", encoding="utf-8") as lines:
                documents = [json.loads(line)["text"] for line in itertools.islice(lines, 4000)]
        else:
            documents = made_up(30_000_000)
        sides: dict[str, tuple[Callable[[], int], list[Path]]] = {}
        for path in written(place, documents):
            source = SOURCES["text"](data_files=str(path), unit="line", max_record_bytes=1 << 30)
            name = path.name.partition(".")[2]
            sides[name] = (lambda source=source: read_all(source)), [path]
            if path.suffix in (".gz", ".zst"):
                sides[f"{name}, checked first"] = (lambda source=source: read_all(source, "first")), [path]
        archives = settings.archives or warc_reading.synthetic(place)
        warc = Warc(data_files=tuple(map(str, archives)), mimes=warc_reading.HTML, record_types=("response",))
        without_digests = warc.for_tokens([])
        sides["warc"] = (lambda: read_all(warc)), archives
        sides["warc, for tokens"] = (lambda: read_all(without_digests)), archives
        for path in long_archives(place, archives):
            source = replace(without_digests, data_files=str(path))
            sides[path.name] = (lambda source=source: read_all(source)), [path]
        release = settings.release or redpajama_v2.synthetic(place / "release")
        of_rules = needed_source(load_recipe("longcrawl64-clean")).signals
        for name, wanted in {
            "rpv2": {},
            "rpv2, signals of rules": {"signals": of_rules},
            "rpv2, documents alone": {"signals": False, "duplicates": False},
        }.items():
            source, files = release_source(release, **wanted)
            sides[name] = (lambda source=source: read_all(source)), files
        ratios = []
        print(f"{'':30}{'MB':>8}{'alone':>10}{'reader':>10}{'ratio':>8}   MB/s of what is decompressed")
        for name, (read, files) in sides.items():
            size = decompress(files) / 1e6
            read()
            turns = [(best(lambda files=files: decompress(files), 1), best(read, 1)) for _ in range(settings.repeats)]
            alone, reader = map(min, zip(*turns, strict=True))
            ratio = reader / alone
            if name not in PLAIN and "checked first" not in name:
                ratios.append(ratio)
            print(f"{name:30}{size:8.1f}{size / alone:10.0f}{size / reader:10.0f}{ratio:8.2f}")
    print(f"reading ratio={max(ratios):.2f}")


if __name__ == "__main__":
    main()
