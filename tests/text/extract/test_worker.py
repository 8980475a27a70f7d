"""The process that extracts, by the bytes that go in and come out."""

import json
import os
import subprocess
import sys

from longcrawl.text.extract import worker as _worker
from longcrawl.text.extract.worker import HEADER, LENGTH, MISSING, RAISED, READY, TEXT

ENGINE = """
def make_extractor(favor):
    print("loading is no answer")
    return lambda html: {"<p>fail</p>": 1 / 0} if "fail" in html else html.upper() + favor
"""


def answers_of(folder, engine: str, *pages: str) -> list[tuple[bytes, str]]:
    """Return the answers of a worker of its own, in order."""
    (folder / "engine.py").write_text(engine)
    options = {"engine": str(folder / "engine.py"), "favor": "!"}
    settings = {"options": options, "max_seconds": 60.0, "max_memory": 1 << 30}
    sent = b"".join(LENGTH.pack(len(page.encode())) + page.encode() for page in pages)
    command = [sys.executable, _worker.__file__, json.dumps(settings | {"parent": os.getpid()})]
    told = subprocess.run(command, input=sent, capture_output=True, check=True).stdout
    found = []
    while told:
        kind, seconds, length = HEADER.unpack(told[: HEADER.size])
        assert seconds > 0
        found.append((kind, told[HEADER.size : HEADER.size + length].decode()))
        told = told[HEADER.size + length :]
    return found


def test_each_page_has_an_answer_and_a_page_that_fails_costs_itself(tmp_path):
    found = answers_of(tmp_path, ENGINE, "é", "<p>fail</p>", "", "b")
    assert found == [(READY, ""), (TEXT, "É!"), (RAISED, ""), (TEXT, "!"), (TEXT, "B!")]


def test_a_library_that_is_missing_is_the_first_and_only_answer(tmp_path):
    ((kind, said),) = answers_of(tmp_path, "import no_such_library_at_all", "a page")
    assert (kind, "no_such_library_at_all" in said) == (MISSING, True)
