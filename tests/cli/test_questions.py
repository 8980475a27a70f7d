"""Commands that ask: what is read from standard input, and what is listed."""

import re

import pytest
from typer.testing import CliRunner

from longcrawl.cli.commands import app
from longcrawl.core.outputs import OUTPUTS
from longcrawl.core.sources import SOURCES
from longcrawl.core.stages import STAGES


def test_inspect_takes_a_text_from_standard_input(longcrawl):
    words = ("inspect", "--text", "-", "--stage", "min_chars")
    answers = [longcrawl(*words, given=text) for text in ("Käse\r\n".encode(), b"K\xe4se", b"")]
    assert re.search(r"min_chars +6  at least 200  FAILS", answers[0].stdout)
    assert answers[1].stderr.startswith("SourceError: standard input is not UTF-8: byte 1 is 0xe4; ")
    assert answers[2].stderr == "SourceError: standard input is empty; give a file with text in it\n"


@pytest.mark.parametrize(("command", "registry"), [("stages", STAGES), ("sources", SOURCES), ("outputs", OUTPUTS)])
def test_kinds_are_listed_and_told_of_by_name(command, registry):
    listed = CliRunner().invoke(app, [command]).output
    assert [name for name in registry if not re.search(rf"^\W*{re.escape(name)}\b", listed, re.MULTILINE)] == []
    name = next(iter(registry))
    told = CliRunner().invoke(app, [command, name])
    assert (told.exit_code, told.output.split()[0].rstrip(":")) == (0, name)
