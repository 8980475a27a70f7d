"""Nothing of a crawl commands the terminal that shows it, and nothing else prints."""

import ast
import io
import json
import os
import pty
import re
import shutil
import sys
import traceback
from pathlib import Path

import pytest
import typer._adapters  # noqa: F401  # what commands import when they begin, each child for itself otherwise
import yaml

import longcrawl as lc
from longcrawl.cli import commands as cli
from longcrawl.core.funnel import Funnel
from longcrawl.core.ledger import Reason
from longcrawl.errors import as_lines, one_line, printable, show

ROOT = Path(__file__).parent.parent
HOSTILE = "\x1b]0;title\x07\x1b[31mred\x1b[2J\x9b31m\u202eevil\u2066"
"""Sets the title, colours, clears the screen, in one byte of C1 too, and turns the direction of writing."""
COMMANDS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
OURS = re.compile(rb"\x1b\[A")
"""Sequence with which tqdm moves between its bars."""
TIDES = "The tide was out and the boats lay in the mud of the harbour near the old stone river. " * 8


def on_a_terminal(*words: str) -> tuple[int, bytes]:
    """Run a command of longcrawl with a pseudo-terminal as all of its streams; give exit code and what came."""
    child, terminal = pty.fork()
    if not child:
        code = 0
        try:
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate("rww"))
            sys.argv = ["longcrawl", *words]
            cli.main()
        except SystemExit as ended:
            code = ended.code
        except BaseException:  # noqa: BLE001  # a traceback is what must not come
            traceback.print_exc()
            code = 99
        sys.stdout.flush()
        os._exit(code or 0)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """Return a folder with a finished run of hostile documents and other hostile files."""
    folder = tmp_path_factory.mktemp("hostile")
    documents = folder / "documents"
    documents.mkdir()
    rows = []
    for number in range(12):
        row = {
            "id": f"{HOSTILE}\nforged: kept\n{number}",
            "url": f"http://e{HOSTILE}.org/{number}",
            "language": HOSTILE,
        }
        text = "short" if number > 9 else TIDES + HOSTILE + ("" if number % 2 else f" {number}")
        rows.append(json.dumps(row | {"text": text}))
    name = "\x1b]0;title\x07\x1b[31m"
    (documents / f"{name}.jsonl").write_text("\n".join([*rows, '{"' + json.dumps(HOSTILE)[1:-1] + '": 1}']) + "\n")
    recipe = {
        "longcrawl": 1,
        "name": "hostile",
        "source": {"builder": "text", "data_dir": str(documents), "id_field": "id", "on_bad_files": "warn"},
        "stages": [{"min_chars": {"n": 10}}, "exact_documents"],
        "outputs": {"parquet": {}},
    }
    recipe["source"] |= {"url_field": "url", "language_field": "language"}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**recipe, HOSTILE: 1}))
    (folder / f"{name}2.yaml").write_text(yaml.safe_dump({**recipe, "stages": [HOSTILE]}))
    (folder / "curriculum.yaml").write_text(yaml.safe_dump([{"duration_tokens": 10, "mix": {HOSTILE: 1}}]))
    (folder / f"{name}.txt").write_text(f"{TIDES}{HOSTILE}\n{HOSTILE}")
    shards = folder / "shards" / "train" / name
    shards.mkdir(parents=True)
    (shards / "a.bin").write_bytes(b"nothing")
    lc.run(folder / "recipe.yaml", folder / "run")
    return folder


def verbs() -> dict[str, list[str]]:
    name = "\x1b]0;title\x07\x1b[31m"
    return {
        "run": ["run", "{}/recipe.yaml", "--out", "{}/another"],
        "run of a hostile recipe": ["run", f"{{}}/{name}.yaml", "--out", "{}/none"],
        "run of a hostile stage": ["run", f"{{}}/{name}2.yaml", "--out", "{}/none"],
        "plan": ["plan", "{}/recipe.yaml", "--documents", "10"],
        "plan of nothing": ["plan", "{}/recipe.yaml", "--set", f"source.data_dir={{}}/{name}"],
        "why": ["why", "{}/run", f"{HOSTILE}\nforged: kept\n1"],
        "why of a duplicate": ["why", "{}/run", f"{HOSTILE}\nforged: kept\n3"],
        "why of nothing": ["why", "{}/run", HOSTILE],
        "funnel": ["funnel", "{}/run"],
        "rates": ["funnel", "{}/run", "--rates"],
        "clusters": ["clusters", "{}/run"],
        "inspect": ["inspect", "{}/run"],
        "inspect a row": ["inspect", "{}/run", "--row", "1"],
        "inspect a text": ["inspect", "--text", f"{{}}/{name}.txt"],
        "verify": ["verify", "{}/run"],
        "verify a damaged run": ["verify", "{}/damaged"],
        "report": ["report", "{}/run", "--out", "{}/report.html"],
        "card": ["card", "{}/copy"],
        "compose": ["compose", "{}/documents", "--tokenizer", f"{{}}/{name}.json"],
        "compose of what is missing": ["compose", f"{{}}/{name}"],
        "validate": ["validate", "{}/shards", "--curriculum", "{}/curriculum.yaml"],
        "convert": ["convert", "{}/shards/train", f"{{}}/{name}.ds", "--from", "gpt-simple"],
        "push": ["push", "{}/run", HOSTILE, "--private", "--dry-run"],
        "a verb that is none": [HOSTILE],
        "an option that is none": ["funnel", f"--{HOSTILE}"],
        "hits of a run without a filter": ["lists", "hits", "{}/run"],
        "a manifest": ["funnel", "{}/forged"],
    }


@pytest.fixture(scope="module")
def runs(hostile) -> Path:
    """Make copies of the run that verbs change, or find changed."""
    shutil.copytree(hostile / "run", hostile / "copy")
    shutil.copytree(hostile / "run", hostile / "damaged")
    (hostile / "damaged" / "ledger" / HOSTILE.replace("/", "")).write_text("unknown")
    next((hostile / "damaged" / "parquet").rglob("*.parquet")).write_bytes(b"cut")
    shutil.copytree(hostile / "run", hostile / "forged")
    manifest = json.loads((hostile / "forged" / "manifest.json").read_text())
    manifest["funnel"]["stages"][0] |= {"stage": HOSTILE, "rules": {f"{HOSTILE}\nforged": 3}}
    (hostile / "forged" / "manifest.json").write_text(json.dumps(manifest))
    return hostile


@pytest.mark.variants
@pytest.mark.parametrize("verb", verbs())
def test_no_verb_passes_a_command_on_to_the_terminal(runs, verb):
    code, shown = on_a_terminal(*(word.replace("{}", str(runs)) for word in verbs()[verb]))
    assert shown.strip()
    assert b"Traceback" not in shown, shown.decode()[-3000:]
    assert code in (0, 1, 2)
    found = COMMANDS.search(OURS.sub(b"", shown))
    assert found is None, shown[max(found.start() - 200, 0) : found.end() + 50]


def test_names_cannot_forge_lines(runs):
    _, shown = on_a_terminal("why", str(runs / "run"), f"{HOSTILE}\nforged: kept\n3")
    assert len(shown.splitlines()) == 1
    assert b"\\x1b[31mred" in shown
    _, shown = on_a_terminal("clusters", str(runs / "run"))
    assert not [line for line in shown.splitlines() if line.startswith(b"forged")]
    _, shown = on_a_terminal("funnel", str(runs / "forged"))
    assert len(shown.splitlines()) == 4


def test_texts_keep_their_lines_and_letters():
    text = "Zoë\tread «Ἰλιάς»\r\nमहा\u200cदेव 👩\u200d🔬\u00a0x\n"
    assert printable(text) == text
    assert printable("a\rb\x1b[1m\x9b\u202e\ud800\x7f\x00") == r"a\rb\x1b[1m\x9b\u202e\ud800\x7f\x00"


def test_names_are_one_line():
    assert one_line("Ἰλιάς/a b.html") == "Ἰλιάς/a b.html"
    assert one_line("a\r\nb\tc\u2028d\u202ee\ud800") == r"a\r\nb\tc\u2028d\u202ee\ud800"
    assert as_lines(["a\nb", 3]) == "a\\nb\n3"


def test_objects_at_a_prompt_and_errors_are_safe_too():
    reason = Reason(HOSTILE, "exact_documents", "same_text", kept_id=f"{HOSTILE}\n")
    errors = [lc.LongCrawlError(f"{HOSTILE} is not there\nforged")]
    for shown in (str(reason), repr(reason), repr(Funnel(HOSTILE, 3)), *map(str, errors), *map(repr, errors)):
        assert not COMMANDS.search(shown.encode())
    assert "\n" not in str(reason) + str(errors[0])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_encoding_that_lacks_characters_escapes_them(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    show("███ naïve \ud800")
    whole = {"ascii": rb"\u2588\u2588\u2588 na\xefve \ud800", "latin-1": b"\\u2588\\u2588\\u2588 na\xefve \\ud800"}
    assert stream.buffer.getvalue() == whole.get(encoding, "███ naïve \\ud800".encode()) + b"\n"


def test_nothing_else_prints():
    """Everything that is shown goes through ``show``, warnings through ``warn_user`` or escaped by hand."""
    for file in (ROOT / "longcrawl").rglob("*.py"):
        text = file.read_text("utf-8")
        if not re.search(r"\bprint\b|echo|warnings|stdout|stderr", text):
            continue
        for node in ast.walk(ast.parse(text)):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert name not in ("print", "typer.echo", "typer.secho", "click.echo"), f"{file}:{node.lineno}"
            if name == "warnings.warn":
                assert ast.unparse(node.args[0]).startswith("one_line("), f"{file}:{node.lineno}"
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"):
                assert file.name == "errors.py", f"{file}:{node.lineno}"
