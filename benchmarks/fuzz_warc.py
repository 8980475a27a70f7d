"""Reading web archives that are cut, flipped, spliced and blown up: how many of them are survived.

    python benchmarks/fuzz_warc.py --inputs 20000 [--archives crawl/*.warc.gz] [--seed 1]

An input is a small archive (plain, gzip and zstd, a member per record or one around all, every content coding, bombs),
or a piece of one of --archives, damaged in one to four ways: in its bytes as they lie, or in what they decompress to.
It is survived if, under on_bad_files="skip", reading ends within --seconds, gives valid tables, and raises nothing;
and if, under "error", it raises nothing but SourceError, and nothing at all where nothing was reported. Memory must
stay within --megabytes of where it began. What is not survived is printed and kept in --keep. The last line is inputs
survived / inputs tried.
"""

import argparse
import gzip
import random
import resource
import signal
import sys
import tempfile
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path

import brotli
import zstandard

PAGE = "<html><head><meta charset='{}'><title>Größe</title></head><body><p>naïve 你好 {}</p></body></html>"
NUMBERS = ("0", "1", "7", "65536", "99999999", "9999999999999999999", "-1", "", "0x10", "1e3", "٣")


class HangError(Exception):
    """Reading took too long."""


def record(kind: str, block: bytes, number: int, content_type: str = "application/http; msgtype=response") -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nWARC-Date: 2024-01-02T03:04:05Z\r\n"
        f"WARC-Target-URI: https://example.org/{number}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def records(chosen: random.Random, bombs: dict[str, bytes]) -> list[bytes]:
    """Make the records of a small archive."""
    made = [record("warcinfo", b"software: fuzz\r\n", 0, "application/warc-fields")]
    for number in range(1, chosen.randrange(3, 9)):
        charset = chosen.choice(("utf-8", "iso-8859-1", "gb2312", "utf-16", "x-unknown", "shift_jis"))
        body = PAGE.format(charset, "x" * chosen.randrange(2_000)).encode(chosen.choice(("utf-8", "utf-16", "gb18030")))
        coding = chosen.choice(("", "gzip", "deflate", "br", "zstd", "gzip, br", "unknown"))
        if chosen.random() < 0.05:
            coding = chosen.choice(sorted(bombs))
            body = bombs[coding]
        elif coding == "gzip":
            body = gzip.compress(body)
        elif coding == "deflate":
            body = zlib.compress(body)[chosen.choice((0, 2)) :]
        elif coding == "br":
            body = brotli.compress(body)
        elif coding == "zstd":
            body = zstandard.compress(body)
        transfer = ""
        if chosen.random() < 0.3:
            transfer, body = "Transfer-Encoding: chunked\r\n", chunked(body, chosen.randrange(1, 500))
        kind = chosen.choice(("text/html", f"text/html; charset={charset}", "text/plain", "image/png", ""))
        head = f"HTTP/1.1 {chosen.choice((200, 200, 200, 301, 404))} X\r\nContent-Type: {kind}\r\n{transfer}"
        block = f"{head}Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        if chosen.random() < 0.15:
            made.append(record(chosen.choice(("conversion", "resource", "revisit")), body, number, "text/plain"))
        else:
            made.append(record("response", block, number))
    return made


def damage(content: bytes, chosen: random.Random, others: list[bytes]) -> bytes:
    """Damage bytes in one way."""
    place = chosen.randrange(len(content) + 1)
    end = min(len(content), place + chosen.choice((1, 4, 30, 500, 5_000)))
    other = chosen.choice(others)
    start = chosen.randrange(len(other) + 1)
    ways = (
        lambda: content[:place],
        lambda: content[place:],
        lambda: content[:place] + content[end:],
        lambda: content[:end] + content[place:],
        lambda: content[:place] + other[start:],
        lambda: content[:place] + other[start : start + 2_000] + content[place:],
        lambda: content[:place] + chosen.randbytes(end - place) + content[end:],
        lambda: content[:place] + bytes(end - place) + content[end:],
        lambda: content[:place] + bytes([content[place] ^ 1 << chosen.randrange(8)]) + content[place + 1 :],
        lambda: another_number(content, chosen),
    )
    return chosen.choice(ways)() if place < len(content) else content[: chosen.randrange(len(content) + 1)]


def another_number(content: bytes, chosen: random.Random) -> bytes:
    """Change a Content-Length or the length of a chunk."""
    for name in chosen.sample((b"Content-Length: ", b"\r\n\r\n", b"\r\n"), 3):
        if name in content:
            pieces = content.split(name)
            piece = chosen.randrange(1, len(pieces))
            rest = pieces[piece].partition(b"\r\n")[2]
            pieces[piece] = chosen.choice(NUMBERS).encode() + b"\r\n" + rest
            return name.join(pieces)
    return content


def inputs(seed: int, count: int, archives: list[Path]) -> Iterator[bytes]:
    """Make damaged archives; of a seed, always the same."""
    chosen = random.Random(seed)
    zeros = bytes(64 << 20)
    bombs = {
        "gzip": gzip.compress(zeros, 1),
        "deflate": zlib.compress(zeros, 1),
        "br": brotli.compress(zeros, quality=1),
        "zstd": zstandard.compress(zeros),
    }
    real = [path.read_bytes()[:300_000] for path in archives]
    before = [b"WARC/1.0\r\n", b"\x1f\x8b\x08\x00", zstandard.compress(b"WARC/1.0\r\n"), *real]
    for _ in range(count):
        made = records(chosen, bombs)
        pack = chosen.choice((bytes, gzip.compress, zstandard.compress))
        if chosen.random() < 0.5:
            made = [damage(one, chosen, before) if chosen.random() < 0.5 else one for one in made]
        content = b"".join(map(pack, made)) if chosen.random() < 0.7 else pack(b"".join(made))
        if real and chosen.random() < 0.3:
            content = chosen.choice(real)
        for _ in range(chosen.randrange(4)):
            content = damage(content, chosen, before) if content else content
        before = [*before[-40:], content]
        yield content


def survived(path: Path, seconds: int, megabytes: int) -> str | None:
    """Read one archive under both policies; say what went wrong, None if nothing did."""
    from longcrawl.core.sources import BadFiles
    from longcrawl.errors import SourceError
    from longcrawl.sources.warc.source import Warc

    source = Warc(data_files=str(path), max_record_bytes=1 << 20)
    (part,) = source.splits()["train"]
    signal.alarm(seconds)
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        bad_files = BadFiles("skip")
        for table in source.read(part, bad_files):
            table.validate(full=True)
        try:
            for _ in source.read(part, BadFiles("error")):
                pass
            complaint = "reported damage that does not stop" if bad_files.found else None
        except SourceError as error:
            complaint = None if bad_files.found else f"stops without a report: {error}"
    except HangError:
        return f"took more than {seconds} s"
    except BaseException:  # noqa: BLE001  # whatever it is, it should not have come out
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin) // 1024
    return complaint or (f"took {grown} MB" if grown > megabytes else None)


def too_slow(*_: object) -> None:
    raise HangError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2_000)
    parser.add_argument("--archives", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--keep", type=Path, help="a folder for inputs that are not survived")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    tried = good = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.warc"
        path.write_bytes(record("response", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>", 0))
        survived(path, options.seconds, options.megabytes)  # imports and kernels take memory once
        for content in inputs(options.seed, options.inputs, options.archives):
            path.write_bytes(content)
            complaint = survived(path, options.seconds, options.megabytes)
            tried, good = tried + 1, good + (complaint is None)
            if complaint is not None:
                print(f"input {tried}: {complaint}", file=sys.stderr)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{tried}.warc").write_bytes(content)
    print(f"{good:,} of {tried:,} inputs survived")
    print(f"fuzz_warc ratio={good / tried:.3f}")


if __name__ == "__main__":
    main()
