"""The URL filter with 5 million listed domains, against a Python set of them that is asked for every parent domain.

    python benchmarks/urls.py [--domains 5000000] [--urls 200000] [--repeats 3]

Domains are made up, with the lengths and the labels of real ones; they are written as UT1 has them and read back. Of
the URLs one in twenty is of a listed domain or below one. Both sides find the host themselves, ours in an Arrow column,
the other with a regular expression in strings that Python has already; which URLs they drop is asserted equal. CPU time
of one process on one core, the best of --repeats, after a warm-up. "domains" is the check of the domains alone, "all
rules" adds the words and the curated sources that are shipped. Memory is what the hashes and their index take, and for
the set what tracemalloc counts while it is made.

The last line is how many times faster the domain check is.
"""

import argparse
import random
import re
import string
import tempfile
import time
import tracemalloc
from pathlib import Path

import pyarrow as pa
from _measures import best

HOST = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#:]+)", re.IGNORECASE)
ENDINGS = ["com", "com", "com", "net", "org", "de", "fr", "ru", "co.uk", "com.br", "blogs.example", "info"]


def make_domains(count: int, chance: random.Random) -> list[str]:
    letters = string.ascii_lowercase + string.digits + "-"
    pool = ["".join(chance.choices(letters, k=chance.choice((3, 4, 5, 6)))).strip("-") for _ in range(20_000)]
    made: set[str] = set()
    while len(made) < count:
        made.add("".join(chance.choices(pool, k=2)) + str(chance.randrange(100)) + "." + chance.choice(ENDINGS))
    return sorted(made)


def make_urls(domains: list[str], count: int, chance: random.Random) -> list[str]:
    urls = []
    for number in range(count):
        listed = chance.choice(domains)
        host = listed if number % 20 == 0 else f"{listed.partition('.')[0]}x.{chance.choice(ENDINGS)}"
        path = "/".join("".join(chance.choices(string.ascii_lowercase, k=7)) for _ in range(chance.choice((1, 3, 5))))
        urls.append(f"https://{chance.choice(('', 'www.', 'www.', 'a.b.'))}{host}/{path}-{number}.html?id={number}")
    return urls


def write(file: Path, domains: list[str]) -> str:
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(domains) + "\n")
    return str(file)


def plain(urls: list[str], listed: set[str]) -> list[bool]:
    dropped = []
    for url in urls:
        found = HOST.match(url)
        parent = found[1].lower() if found else ""
        while parent and parent not in listed:
            parent = parent.partition(".")[2]
        dropped.append(bool(parent))
    return dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=5_000_000)
    parser.add_argument("--urls", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    import longcrawl as lc
    from longcrawl.text.refinedweb.url_lists import read_block_lists

    chance = random.Random(0)
    domains = make_domains(options.domains, chance)
    urls = make_urls(domains, options.urls, chance)
    table = pa.table({"url": pa.array(urls, pa.large_string())})
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "adult", "domains"), domains)
        categories = ("adult",)
        alone = lc.text.UrlFilter(lists=folder, categories=categories, words=None, curated_sources=None)
        lc.text.UrlFilter(allow_list=write(Path(folder, "allowed"), ["a.example"])).prepare()
        whole = lc.text.UrlFilter(lists=folder, categories=categories)
        started = time.process_time()
        lists = read_block_lists(*alone.files())
        took = time.process_time() - started
        size = sum(each.hashes.nbytes + each.starts.nbytes for each in lists)
        print(f"{len(lists.domains.hashes):,} domains, read in {took:.2f} s, {size / 1e6:.1f} MB")
        dropped = [not kept for kept in alone(table)]
        whole(table)
        seconds = {"domains": best(lambda: alone.judge(table), options.repeats)}
        seconds["all rules"] = best(lambda: whole.judge(table), options.repeats)
        small = [table.slice(start, 200) for start in range(0, table.num_rows, 200)]
        seconds["all rules, batches of 200"] = best(lambda: [whole.judge(batch) for batch in small], 1)
    tracemalloc.start()
    listed = {f"{name}.{ending}" for name, _, ending in (domain.partition(".") for domain in domains)}
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert plain(urls, listed) == dropped, "the two disagree"
    seconds["Python set"] = best(lambda: plain(urls, listed), options.repeats)
    for name, taken in seconds.items():
        print(f"{name:26} {1e6 * taken / len(urls):6.3f} microseconds a URL")
    print(f"the set takes {memory / 1e6:.0f} MB, {memory / size:.1f} times as much")
    print(f"urls ratio={seconds['Python set'] / seconds['domains']:.3f}")


if __name__ == "__main__":
    main()
