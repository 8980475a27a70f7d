"""The process that reads PDF files: its limits, and what it sends before one ends it."""

import json
import os
import subprocess
import sys
import zlib

import pytest

from longcrawl.text.extract.worker import HEADER, LAST, LENGTH, MISSING, PART, READY, TEXT
from longcrawl.text.pdf import _worker

OPTIONS = {
    "max_pages": 100,
    "max_seconds": 60.0,
    "max_characters": 10**6,
    "cut_files": "rescue",
    "hidden_text": "queue",
}
OPTIONS |= {"hidden_text": "queue", "running": "remove", "hyphens": "join", "page_break": "\n\n"}


def answers_of(*files: bytes, python: tuple[str, ...] = (), **limits) -> list[tuple[bytes, str]]:
    """Return the answers of a worker of its own, in order."""
    settings = {"options": OPTIONS, "max_seconds": 60.0, "max_memory": 1 << 30, "parent": os.getpid()}
    sent = b"".join(LENGTH.pack(len(each)) + each for each in files)
    command = [sys.executable, *python, _worker.__file__, json.dumps(settings | limits)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run(command, input=sent, capture_output=True, env=environment, check=False).stdout
    found = []
    while told:
        kind, seconds, length = HEADER.unpack(told[: HEADER.size])
        assert seconds > 0
        found.append((kind, told[HEADER.size : HEADER.size + length].decode()))
        told = told[HEADER.size + length :]
    return found


@pytest.fixture
def endless(make_pdf, paragraph) -> bytes:
    """Return a file of two pages with text and a third one of forms in forms, 20 to the 6th."""
    depth, fan = 7, 20
    resources = b"/Resources << /Font << /F 3 0 R >> /XObject << /I %d 0 R >> >>"
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 999 999] " + resources
    objects = {}
    for level in range(depth):
        body = b"BT /F 9 Tf (laugh) Tj ET" if level == depth - 1 else b" ".join([b"1 0 0 1 1 1 cm /I Do"] * fan)
        packed = zlib.compress(body)
        entries = form % (91 + level)
        objects[90 + level] = b"<< /Length %d /Filter /FlateDecode %s >>\nstream\n" % (len(packed), entries)
        objects[90 + level] += packed + b"\nendstream"
    return make_pdf(paragraph(2), paragraph(2, name="more"), b"/J Do", objects=objects).replace(
        b"/XObject << /I 4 0 R >>", b"/XObject << /J 90 0 R >>"
    )


def test_each_file_has_its_pages_and_a_summary(make_pdf, paragraph):
    files = make_pdf(paragraph(2), paragraph(1)), b"%PDF-nothing", make_pdf(paragraph(1))
    kinds = [kind for kind, _ in answers_of(*files)]
    assert kinds == [READY, PART, TEXT, TEXT, PART, TEXT]


@pytest.mark.slow
def test_pages_before_one_that_takes_too_long_are_sent(endless):
    ready, (_, pages), (kind, summary) = answers_of(endless, max_seconds=0.5)
    assert ready[0] == READY
    assert [json.loads(line)[1].split()[0] for line in pages.splitlines()] == ["word00", "more00"]
    assert (kind, json.loads(summary)["stopped"]) == (LAST, "time")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space")
def test_pages_before_one_that_takes_too_much_memory_are_sent(make_pdf, paragraph):
    bomb = b"BT /F 1 Tf 20 20 Td " + b"(aaaaaaaa bbbbbbbb cccccccc dddddddd) Tj 0 -1 Td " * 50_000 + b"ET"
    # PDFium takes 320 MB for it: more than the bound, but less than twice the bound, at which the system ends it.
    _, *pages, (kind, summary) = answers_of(make_pdf(paragraph(2), bomb), max_memory=200_000_000)
    assert [json.loads(text)[0] for _, text in pages] == ["text"]
    assert (kind, json.loads(summary)["stopped"]) == (LAST, "memory")


def test_a_library_that_is_missing_is_the_first_and_only_answer(tmp_path, monkeypatch):
    (tmp_path / "pypdfium2.py").write_text("raise ModuleNotFoundError(\"No module named 'pypdfium2'\")")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert answers_of(b"%PDF-") == [(MISSING, "No module named 'pypdfium2'")]
