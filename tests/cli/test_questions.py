"""Commands that ask: what is read from standard input, and what is listed."""

import json
import re
import sys

import pytest
from typer.testing import CliRunner

from longcrawl.cli import commands
from longcrawl.cli.commands import answer, app
from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.sources import SOURCES
from longcrawl.core.stages import STAGES


def test_inspect_takes_a_text_from_standard_input(longcrawl):
    words = ("inspect", "--text", "-", "--stage", "min_chars")
    answers = [longcrawl(*words, given=text) for text in ("Käse\r\n".encode(), b"K\xe4se", b"")]
    assert re.search(r"min_chars +6  at least 200  FAILS", answers[0].stdout)
    assert answers[1].stderr.startswith("SourceError: standard input is not UTF-8: byte 1 is 0xe4; ")
    assert answers[2].stderr == "SourceError: standard input is empty: choose a file with text in it\n"


def test_inspect_shows_the_blocks_of_a_page(longcrawl, tmp_path):
    story = "".join(f"<p>On day {n} the boats came back to the harbour before noon, as always.</p>" for n in range(9))
    (tmp_path / "page.html").write_text(f"<nav><a href=/>Home</a></nav><article>{story}</article>")
    words = ("inspect", "--html", tmp_path / "page.html", "--stage", "min_chars")
    first, *lines = longcrawl(*words).stdout.split("\n")
    assert first == "9 of 10 blocks are kept"
    assert [line[:2] for line in lines[:10]] == ["- ", *["+ "] * 9]
    assert re.search(r"\nmin_chars +min_chars +611  at least 200 +passes\n\nKEPT", "\n".join(lines))
    blocks = json.loads(longcrawl(*words, "--json").stdout)["page"]["blocks"]
    assert [block["kept"] for block in blocks] == [False, *[True] * 9]
    assert longcrawl("inspect", "--html", "x", "--text", "y").stderr.startswith("LongCrawlError: inspect takes")


@pytest.mark.parametrize(
    ("no_colour", "shown"),
    [(False, "\x1b[32m+ 0.93 in\x1b[0m\n\x1b[2m- 0.04 \\x1b out\x1b[0m\n"), (True, "+ 0.93 in\n- 0.04 \\x1b out\n")],
)
def test_blocks_are_coloured_on_a_terminal(capsys, monkeypatch, no_colour, shown):
    monkeypatch.setitem(commands._asked, "json", False)  # an earlier command may have set it
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    answer("+ 0.93 in\n- 0.04 \x1b out", blocks=True)
    answer("+ 0.93 in")
    assert capsys.readouterr().out == f"{shown}+ 0.93 in\n"


@pytest.mark.parametrize(("command", "registry"), [("stages", STAGES), ("sources", SOURCES), ("outputs", OUTPUTS)])
def test_kinds_are_listed_and_told_of_by_name(command, registry):
    listed = CliRunner().invoke(app, [command]).output
    assert [name for name in registry if not re.search(rf"^\W*{re.escape(name)}\b", listed, re.MULTILINE)] == []
    name = next(iter(registry))
    told = CliRunner().invoke(app, [command, name])
    assert (told.exit_code, told.output.split()[0].rstrip(":")) == (0, name)
