"""Decision records are short, complete and listed.

``LONGCRAWL_GOLDEN=write pytest tests/repository/test_decision_records.py`` writes ``docs/adr/index.md`` again.
"""

import os
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\nStatus: (?P<status>accepted|rejected|superseded)\. "
    r"Date: (?P<date>\d{4}-\d{2}-\d{2})\.\n"
)
SECTIONS = (["Context", "Decision", "Consequences"], ["Context", "Decision", "Consequences", "Rejected"])
INDEX = """\
# Decisions

Here you find why longcrawl works as it does, and what was tried and rejected. Each record has the context, the decision
and its consequences, with the figures that decided. A name such as `benchmarks/urls.py` is the script that prints a
figure; a figure without a script was measured once. If a record does not name another machine, figures are CPU time on
two shared cores.

[CONTRIBUTING.md](../../CONTRIBUTING.md) has the rule when to add a record. Measurements in full are in the history of
git.

| record | status | date |
| --- | --- | --- |
"""


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_short_and_complete(record):
    text = record.read_text("utf-8")
    head = HEAD.match(text)
    assert head, f"{record.name} does not begin with a title, a status and a date"
    assert record.name.startswith(f"{int(head['number']):04d}-")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) in SECTIONS
    assert len(text.split()) <= 300, f"{record.name} has more than 300 words"
    root = FOLDER.parents[1]
    named = [path.partition(" ")[0] for path in re.findall(r"`((?:benchmarks|tests|docs)/[^`]+)`", text)]
    assert [path for path in named if not (root / path).exists()] == []


def test_numbers_have_no_gap():
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_the_index_lists_every_record():
    heads = {record.name: HEAD.match(record.read_text("utf-8")) for record in RECORDS}
    rows = [f"| [{head['title']}]({name}) | {head['status']} | {head['date']} |\n" for name, head in heads.items()]
    index = INDEX + "".join(rows)
    if os.environ.get("LONGCRAWL_GOLDEN") == "write":
        (FOLDER / "index.md").write_text(index, "utf-8")
    assert (FOLDER / "index.md").read_text("utf-8") == index
