"""Personal data in text: what is found of a labelled sample, and the speed, against datatrove's formatter.

    python benchmarks/personal_data.py [--documents short.jsonl.zst long.jsonl.zst] [--megabytes 8]
        [--peers-python PYTHON]

Sentences with addresses and numbers of every kind, and sentences with what looks like them, are made at random, with
the place of each. Precision and recall by kind count a place as found that is covered, and one that we name as right
that overlaps a true one of its kind. A second time with no-break and thin spaces and other hyphens beside digits.

With --peers-python, the Python of an environment that has datatrove (0.10), its PIIFormatter runs on the same documents
and on the sample: recall and precision of its two kinds, and MB/s. Ours is the preset `fineweb`, with ledger; CPU time
of one process, the best of --repeats after one warm-up. Without --documents synthetic text is made. The last line is
the CPU time of the formatter, or without it that of two patterns of `re` for the same kinds, over ours.
"""

import argparse
import json
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from _measures import best
from decontamination import read, tables_of
from signals import synthetic

import longcrawl as lc
from longcrawl.text.personal import KINDS

PLAIN_EMAIL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+'-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}")
PLAIN_IP = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
PEER = """
import json, sys, time
from datatrove.pipeline.formatters.pii import PIIFormatter
texts = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
repeats, formatter, taken = int(sys.argv[2]), PIIFormatter(), []
for _ in range(repeats + 1):
    began = time.process_time()
    made = [formatter.format(text) for text in texts]
    taken.append(time.process_time() - began)
emails, ips = formatter.emails_replacer, formatter.ip_replacer
found = [
    [["email", *match.span()] for match in emails.regex.finditer(text)]
    + [["ip", *match.span()] for match in ips.regex.finditer(text) if ips.validator(match[0])]
    for text in texts
]
print(json.dumps({"seconds": min(taken[1:]), "found": found}))
"""
NAMES = ["anna", "ben", "chloe", "dario", "elif", "farid", "greta", "hugo", "iris", "jonas"]
HOSTS = ["mail.example.org", "post.example.net", "uni-example.edu", "example.co.uk", "web.example.museum"]


def luhn(digits: str) -> str:
    """Return digits with the one that makes their sum right."""
    total = sum(sum(divmod(int(digit) * (2 - at % 2), 10)) for at, digit in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def account(chance: random.Random) -> str:
    """Return a German, British or Norwegian account number."""
    country, inside = chance.choice(
        [("DE", f"{chance.randrange(10**18):018}"), ("GB", f"WEST{chance.randrange(10**14):014}"),
         ("NO", f"{chance.randrange(10**11):011}")]
    )  # fmt: skip
    number = int("".join(str(int(letter, 36)) for letter in f"{inside}{country}00"))
    return f"{country}{98 - number % 97:02}{inside}"


def grouped(text: str, size: int, mark: str) -> str:
    return mark.join(text[at : at + size] for at in range(0, len(text), size))


def public_ip(chance: random.Random) -> str:
    return f"{chance.choice([5, 31, 62, 80, 93, 151, 203])}.{chance.randrange(1, 255)}.{chance.randrange(255)}." + str(
        chance.randrange(1, 255)
    )


def card(chance: random.Random) -> str:
    begin, size = chance.choice([("4", 16), ("52", 16), ("2223", 16), ("6011", 16), ("37", 15)])
    return luhn(begin + "".join(chance.choices("0123456789", k=size - 1 - len(begin))))


def digits(chance: random.Random, count: int) -> str:
    return "".join(chance.choices("23456789", k=1) + chance.choices("0123456789", k=count - 1))


def area(chance: random.Random) -> str:
    return chance.choice(["212", "415", "604", "305", "713"])


POSITIVE: dict[str, list[Callable[[random.Random], str]]] = {
    "email": [
        lambda c: f"{c.choice(NAMES)}@{c.choice(HOSTS)}",
        lambda c: f"{c.choice(NAMES)}.{c.choice(NAMES)}{c.randrange(99)}@{c.choice(HOSTS)}",
        lambda c: f"{c.choice(['jörg', 'zoë', *NAMES])}@{c.choice(HOSTS)}",
        lambda c: f"{c.choice(NAMES).title()}_{c.choice(NAMES)}+news@{c.choice(HOSTS).title()}",
    ],
    "phone": [
        lambda c: f"+49 30 {digits(c, 7)}",
        lambda c: f"+{c.choice(['44', '33', '91'])}{digits(c, 9)}",
        lambda c: f"({area(c)}) {digits(c, 3)}-{digits(c, 4)}",
        lambda c: f"{area(c)}-{digits(c, 3)}-{digits(c, 4)}",
        lambda c: f"1-{area(c)}-{digits(c, 3)}-{digits(c, 4)}",
        lambda c: f"{area(c)}.{digits(c, 3)}.{digits(c, 4)}",
        lambda c: f"0{c.randrange(1, 10)} {grouped(digits(c, 8), 2, ' ')}",  # found behind a word for it alone
    ],
    "ip": [public_ip, lambda c: f"2a00:{c.randrange(1, 65535):x}:{c.randrange(1, 65535):x}::{c.randrange(1, 99)}"],
    "card": [card, lambda c: grouped(luhn("4" + digits(c, 14)), 4, c.choice(" -"))],
    "iban": [account, lambda c: grouped(account(c), 4, " ")],
}
BEFORE = {
    "email": ["Write to ", "Contact: ", "<", "mail "],
    "phone": ["Call ", "Tel. ", "Reach us at ", "fax: "],
    "ip": ["from ", "the host ", "http://", "IP: "],
    "card": ["card ", "paid with ", "No. "],
    "iban": ["account ", "IBAN ", "transfer to "],
}
NEGATIVE: list[Callable[[random.Random], str]] = [
    lambda c: f"ISBN 978-3-16-{digits(c, 6)}-{c.randrange(10)}",
    lambda c: f"on 20{c.randrange(10, 26)}-{c.randrange(1, 13):02}-{c.randrange(1, 29):02}",
    lambda c: f"at {c.randrange(24):02}:{c.randrange(60):02}:{c.randrange(60):02}",
    lambda c: f"version {c.randrange(9)}.{c.randrange(20)}.{c.randrange(9)}.{c.randrange(9)}",
    lambda c: f"v{c.randrange(9)}.{c.randrange(20)}.{c.randrange(9)}.{c.randrange(9)}",
    lambda c: (
        f"section {c.randrange(1, 9)}.{c.randrange(1, 9)}.{c.randrange(1, 9)}.{c.randrange(1, 9)}.{c.randrange(9)}"
    ),
    lambda c: f"icon@{c.randrange(2, 4)}x.png",
    lambda c: f"@{c.choice(NAMES)} said",
    lambda c: f"the host 192.168.{c.randrange(255)}.{c.randrange(1, 255)}",
    lambda c: f"10.{c.randrange(255)}.{c.randrange(255)}.{c.randrange(1, 255)}",
    lambda c: f"${digits(c, 3)},{digits(c, 3)}.00",
    lambda c: f"order 4{digits(c, 15)[:-1]}{c.choice('abc')}",
    lambda c: f"{digits(c, 3)} {digits(c, 3)} {digits(c, 4)} people",
    lambda c: f"std::{c.choice(NAMES)}::{c.choice(NAMES)}",
    lambda c: f"52.{digits(c, 6)}, 13.{digits(c, 6)}",
    lambda c: f"part DE{c.randrange(10, 99)} {digits(c, 4)} {digits(c, 4)}",
    lambda c: f"doi:10.{digits(c, 4)}/{c.choice(NAMES)}.{digits(c, 4)}",
    lambda c: f"a number of 16 digits, {luhn(digits(c, 15))[:-1]}x",
    lambda c: f"mov eax, 0x{c.randrange(1 << 32):08x}",
    lambda c: f"Browser {c.randrange(2, 20)}.{c.randrange(9)}.{c.randrange(20)}.{c.randrange(10, 99)}",  # as an address
    lambda c: f"npm@{c.randrange(9)}.{c.randrange(9)}.{c.randrange(9)}",
    lambda c: f"order {luhn('4' + digits(c, 14)) if c.random() < 0.1 else digits(c, 16)}",
    lambda c: f"MAC 00:1b:{c.randrange(255):02x}:3c:4d:{c.randrange(255):02x}",
]


def labelled(chance: random.Random, count: int) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Return texts of some sentences, each with the kinds and places of personal data in it."""
    made = []
    for _ in range(count):
        text, places = "Für alle: ", []
        for _ in range(chance.randint(1, 6)):
            text += chance.choice(["Then it was late. ", "Und so weiter, ", "We waited; ", "\n"])
            if chance.random() < 0.5:
                kind = chance.choice(list(POSITIVE))
                text += chance.choice(BEFORE[kind])
                value = chance.choice(POSITIVE[kind])(chance)
                places.append((kind, len(text), len(text) + len(value)))
                text += value + chance.choice([". ", ", ", "\n", " ", "; ", ") "])
            else:
                text += chance.choice(NEGATIVE)(chance) + chance.choice([". ", ", ", "\n", " "])
        made.append((text, places))
    return made


def typeset(chance: random.Random, text: str) -> str:
    """Return a text of the same length with typographic spaces and hyphens beside digits."""
    marks = {" ": "\u00a0\u2009\u202f", "-": "\u2010\u2011\u2013"}
    return "".join(
        chance.choice(marks[letter])
        if letter in marks and (text[max(at - 1, 0)].isdigit() or text[at + 1 : at + 2].isdigit())
        else letter
        for at, letter in enumerate(text)
    )


def found_by_us(texts: list[str], **settings: object) -> list[list[tuple[str, int, int]]]:
    tagged = lc.text.PersonalData("tag", **settings)(pa.table({"text": texts}))["personal_data"].to_pylist()
    return [[(each["kind"], each["start"], each["end"]) for each in places] for places in tagged]


def scores(
    truth: list[list[tuple[str, int, int]]], found: list[list[tuple[str, int, int]]]
) -> dict[str, tuple[float, float]]:
    """Return precision and recall by kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for true, ours in zip(truth, found, strict=True):
        for kind, start, stop in true:
            counts[kind, "true"] += 1
            counts[kind, "covered"] += any(k == kind and a <= start and stop <= b for k, a, b in ours)
        for kind, start, stop in ours:
            counts[kind, "named"] += 1
            counts[kind, "right"] += any(k == kind and a < stop and start < b for k, a, b in true)
    return {
        kind: (counts[kind, "right"] / max(counts[kind, "named"], 1), counts[kind, "covered"] / counts[kind, "true"])
        for kind in KINDS
        if counts[kind, "true"]
    }


def peer(python: str, texts: list[str], repeats: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts), "utf-8")
        command = [python, "-c", PEER, str(Path(folder, "texts.jsonl")), str(repeats)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def show_scores(name: str, measured: dict[str, tuple[float, float]]) -> None:
    for kind, (precision, recall) in measured.items():
        print(f"{name} {kind}: precision {precision:.3f}, recall {recall:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", nargs="+", default=[], help="JSON lines with `text`, compressed with zstandard")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--peers-python", help="Python of an environment with datatrove")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    sample = labelled(random.Random(0), 2000)
    texts, truth = [text for text, _ in sample], [places for _, places in sample]
    show_scores("longcrawl", scores(truth, found_by_us(texts)))
    show_scores("typeset", scores(truth, found_by_us([typeset(random.Random(1), text) for text in texts])))
    documents = read(given.documents, given.megabytes * 1e6) if given.documents else synthetic()
    size = sum(len(text.encode()) for text in documents) / 1e6
    tables = tables_of(documents)
    every, stage = lc.text.PersonalData(), lc.text.PersonalData.preset("fineweb")
    ours = best(lambda: [stage.apply(table) for table in tables], given.repeats)
    all_kinds = best(lambda: [every.apply(table) for table in tables], given.repeats)
    changed = sum(stage.apply(table).places.num_rows for table in tables)
    print(
        f"{size:.1f} MB, {changed:,} places: {size / ours:.0f} MB/s for mail and IP, all kinds {size / all_kinds:.0f}"
    )
    if given.peers_python:
        theirs = peer(given.peers_python, texts, 1)
        measured = scores(truth, [[tuple(each) for each in places] for places in theirs["found"]])
        show_scores("datatrove", {kind: measured[kind] for kind in ("email", "ip")})
        taken, name = peer(given.peers_python, documents, given.repeats)["seconds"], "datatrove's formatter"
    else:
        plain = lambda: [PLAIN_IP.sub("192.0.2.1", PLAIN_EMAIL.sub("email@example.com", each)) for each in documents]  # noqa: E731
        taken, name = best(plain, 1), "two patterns of re"
    print(f"{name}: {size / taken:.1f} MB/s")
    print(f"personal data: {taken / ours:.1f} times {name}")


if __name__ == "__main__":
    main()
