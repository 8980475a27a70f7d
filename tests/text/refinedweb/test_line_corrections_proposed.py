"""Patterns that are proposed from the most frequent short lines of a crawl, and used by LineCorrections."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.text.refinedweb import line_corrections

STORY = "Nine ordinary words that no rule has anything against in story number"


def pages(count=40):
    """Return pages of several sites, whose buttons and notices are on many of them, and one site's own."""
    texts, urls = [], []
    for number in range(count):
        lines = [f"{STORY} {number} of all of them.", "Share This", f"{number * 97} people like it", "3 likes", "123"]
        lines += ["Only here"] * (number % 4 == 0) + ["ABOUT US", "share  this"] + ["Impressum:"] * (number % 2)
        texts.append("\n".join(lines))
        urls.append(f"https://www.site{number % 4}.example/{number}")
    return pa.table({"id": [str(number) for number in range(count)], "text": texts, "url": urls})


def test_frequent_lines_of_several_sites_are_proposed():
    found = lc.text.propose_lines(pages())
    assert found.documents == 40
    assert found.table.to_pylist() == [
        {"pattern": "# people like it", "list": "counters", "documents": 40, "sites": 3},
        {"pattern": "share this", "list": "lines", "documents": 40, "sites": 3},
        {"pattern": "impressum:", "list": "lines", "documents": 20, "sites": 2},
    ]
    assert "share this" in str(found)
    assert "3 or more" in str(found)
    without = lc.text.propose_lines(pages().drop_columns("url"), min_documents=10)
    assert without.table["pattern"].to_pylist() == ["# people like it", "share this", "impressum:", "only here"]
    assert without.table["sites"].null_count == 4


def test_what_is_proposed_is_what_the_stage_removes(tmp_path):
    lc.text.propose_lines(pages()).save(tmp_path / "lines.yaml")
    assert (tmp_path / "lines.yaml").read_text().splitlines()[1:] == [
        'default: "en"',
        "languages:",
        '  "en":',
        "    counters:",
        '      - "people like it"  # 40 documents',
        "    lines:",
        '      - "share this"  # 40 documents',
        '      - "impressum:"  # 20 documents',
    ]
    stage = lc.text.LineCorrections(patterns=str(tmp_path / "lines.yaml"), language="en", max_removed_words=None)
    left = stage(pages())["text"].to_pylist()
    assert left[1].splitlines() == [f"{STORY} 1 of all of them.", "3 likes"]  # of shipped patterns nothing is used
    again = lc.text.propose_lines(pages(), patterns=str(tmp_path / "lines.yaml"))
    assert again.table["pattern"].to_pylist() == ["# likes"]
    with pytest.raises(StageError, match=r"lines\.yaml exists already: remove it, or choose another --out"):
        again.save(tmp_path / "lines.yaml")


def naive(texts, least):
    """Count the short lines of texts that have a letter, each once in a text."""
    counts = Counter()
    for text in texts:
        seen = set()
        for line in text.split("\n"):
            words = line.lower().split()
            if words and words[0] in ("3", "1,2", "5k+"):
                words[0] = "#"
            if 0 < len(words) <= 10 and any(letter.isalpha() for word in words for letter in word):
                seen.add(" ".join(words))
        counts.update(seen)
    frequent = [(line, count) for line, count in counts.items() if count >= least]
    return sorted(frequent, key=lambda pair: (-pair[1], pair[0]))


words = st.sampled_from(["a", "to", "é", "3", "1,2", "5k+", "!", "x1"])
bodies = st.lists(st.lists(words, max_size=12).map(" ".join), max_size=6).map("\n".join)


@given(st.lists(bodies, max_size=8), st.integers(1, 3))
def test_counts_are_those_of_plain_python(texts, least):
    switched_off = {"patterns": None}
    used = lc.text.LineCorrections(patterns=None, language="en", max_removed_words=None)
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    found = lc.text.propose_lines(table, min_documents=least, **switched_off).table
    rows = list(zip(found["pattern"].to_pylist(), found["documents"].to_pylist(), strict=True))
    assert rows == naive(used(table)["text"].to_pylist(), least)


def test_lines_beyond_what_is_held_go_that_one_document_had(monkeypatch):
    monkeypatch.setattr(line_corrections, "HELD", 50)
    table = pages(60).drop_columns("url").append_column("more", pa.array(["x"] * 60))
    rows = [table.slice(at, 1) for at in range(60)]
    streamed = lc.text.propose_lines(lc.Crawl(pa.concat_tables(rows)).data, min_documents=30)
    assert streamed.table["pattern"].to_pylist()[:2] == ["# people like it", "share this"]


@pytest.mark.slow
def test_the_command_writes_patterns(tmp_path, longcrawl, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pages.jsonl").write_text("".join(f'{{"text": "Story {n}.\\nShare this"}}\n' for n in range(5)))
    done = longcrawl("lines", "pages.jsonl", "--out", "lines.yaml", "--language", "de")
    assert done.returncode == 0, done.stderr
    Path("empty.jsonl").touch()
    assert (
        "empty.jsonl has no documents to propose lines from: choose others" in longcrawl("lines", "empty.jsonl").stderr
    )
    assert "share this" in done.stdout
    written = Path("lines.yaml").read_text().splitlines()
    assert written[1:4] == ['default: "de"', "languages:", '  "de":']
    assert written[4:] == ["    counters: []", "    lines:", '      - "share this"  # 5 documents']
