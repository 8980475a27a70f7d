"""Options that all commands share, ``--json`` of every verb with facts, and what small verbs import."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

import longcrawl as lc
from longcrawl.cli.commands import GROUPS, app

CODE = "Crawls are read page by page, and each page that is removed has a reason. "
QUESTION = "Which river flows through the old town and under the seven bridges of the harbour?"
ELSEWHERE = {"push", "fetch", "warm"}
"""Tried in ``tests/publish/hub``, which has a Hub, and in ``test_warm.py``."""


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """Return a folder with documents, a finished run of texts, one of tokens, token shards and a recipe."""
    folder = tmp_path_factory.mktemp("answers")
    rows = [
        {"id": f"d{number}", "url": f"https://site{number % 3}.example/{number}", "text": f"{number}. {CODE * 6}"}
        for number in range(40)
    ]
    rows += [{**rows[1], "id": "copy"}, {**rows[2], "id": "blocked", "url": "https://bad.example/1"}]
    rows += [{**rows[3], "id": "exam", "text": f"{QUESTION} {CODE * 6}"}, {**rows[4], "id": "short", "text": "Hi."}]
    (folder / "texts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "good.jsonl").write_text("".join(json.dumps({"text": f"{n} {CODE}"}) + "\n" for n in range(40)))
    (folder / "bad.jsonl").write_text("".join(json.dumps({"text": f"buy cheap now {n}"}) + "\n" for n in range(40)))
    (folder / "exam.txt").write_text(QUESTION)
    (folder / "ids.txt").write_text("d5\n")
    (folder / "page.txt").write_text(CODE)
    (folder / "lists" / "porn").mkdir(parents=True)
    (folder / "lists" / "porn" / "domains").write_text("bad.example\n")
    shutil.make_archive(str(folder / "packed"), "gztar", folder, "lists")
    spec = {
        "longcrawl": 1,
        "name": "texts",
        "source": {"builder": "text", "data_files": str(folder / "texts.jsonl"), "id_field": "id"},
        "stages": [
            {"url_filter": {"lists": str(folder / "lists"), "categories": ["porn"]}},
            {"min_chars": {"n": 100}},
            "exact_documents",
            {"decontaminate": {"against": [str(folder / "exam.txt")], "ngram": 8}},
        ],
        "outputs": {"parquet": {}},
    }
    (folder / "texts.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "texts.yaml", folder / "texts")
    stages = [{"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}, {"min_tokens": {"n": 32}}]
    stages += [{"truncate": {"n": 32}}, "shuffle", "roll"]
    spec |= {"name": "rows", "stages": stages, "outputs": {"rectangle": {"heldout": 0.1}}}
    (folder / "rows.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "rows.yaml", folder / "rows")
    spec |= {"name": "shards", "stages": stages[:1], "outputs": {"gpt-simple": {"heldout": 0.1}}}
    (folder / "shards.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "shards.yaml", folder / "shards")
    return folder


VERBS = {
    "recipes": "recipes",
    "recipes quickstart": "name recipe",
    "stages": "stages",
    "stages min_chars": "name about fields presets",
    "sources": "sources",
    "outputs": "outputs",
    "funnel texts": "source documents characters stages",
    "funnel texts --rates": "funnel reference",
    "why texts short": "id stage rule value threshold kept_id edits kept copies",
    "clusters texts": "largest count removed note",
    "contamination texts": "table documents looked_for",
    "queue texts": "run ocr refetch",
    "verify texts": "path checked problems",
    "inspect texts": "inspection analysis counted",
    "inspect rows --row 1": "path split row row_id url text shape dtype chunks codec checksum stored_bytes",
    "inspect --text page.txt": "rules unexplained texts",
    "trace rows --step 0 --set batch_size=2 --set context_length=16": "source step rank world_size rows",
    "compose shards --capacities 64,128": "strategies terminated",
    "validate shards/gpt-simple --max-length 32": "ok phases stock max_length problems warnings notes",
    "lists fetch ut1 --out fetched --url packed.tar.gz": "url about licence sha256 lines links words",
    "lists hits texts": "table documents dropped",
    "plan texts.yaml": "longcrawl_plan recipe digest sample stages tokens written",
    "plan texts.yaml --cores 8": "recipe sample files cores rows longest written",
    "run texts.yaml --out again": "recipe out rates written batch bad_files seconds checked costs warnings of_source",
    "run texts.yaml --out again --dry-run": "recipe out parts local_bytes is_done",
    "init texts.jsonl --out mine.yaml": "message",
    "card texts": "path kept pictures problems",
    "report texts": "path",
    "tables rows": "run tables",
    "takedown texts --ids ids.txt --out less": "path asked listed documents changed found unmatched",
    "convert shards/gpt-simple/train converted --to datatrove": "target format shards losses not_recorded kept",
    "tokenize texts.jsonl --output-dir made --tokenizer trained": "recipe out written seconds",
    "lines texts.jsonl": "table documents",
    "train-classifier good.jsonl bad.jsonl --out model.bin": "path labels trained held_out auc thresholds",
}
"""Some keys of the answer, by verb."""
TRIED_ELSEWHERE = (
    *("card", "compose", "inspect --text", "lines", "lists fetch", "queue", "tables", "tokenize", "train"),
    *("funnel texts --rates", "inspect rows", "outputs", "plan texts.yaml --cores", "recipes quickstart", "report"),
    *("run texts.yaml --out again", "sources", "stages", "takedown"),
)
"""Verbs that other tests ask for JSON, that take longest, or whose answer has the form of a verb before them."""


@pytest.mark.parametrize(
    "verb",
    [pytest.param(verb, marks=pytest.mark.slow if verb.startswith(TRIED_ELSEWHERE) else ()) for verb in VERBS],
)
def test_the_answer_of_a_verb_as_json(longcrawl, work, monkeypatch, verb):
    monkeypatch.chdir(work)
    answer = longcrawl(*verb.split(), "--json")
    assert answer.returncode == 0, answer.stderr
    facts = json.loads(answer.stdout, parse_constant=pytest.fail)
    assert set(VERBS[verb].split()) <= set(facts), list(facts)


def commands() -> dict[str, typer.core.TyperCommand]:
    top = typer.main.get_command(app)
    lists = top.commands["lists"]
    return {**top.commands, **{f"lists {name}": each for name, each in lists.commands.items()}}


def test_every_command_is_in_one_group():
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(name for name in commands() if " " not in name)


def test_every_verb_is_tried_as_json():
    tried = {" ".join(verb.split()[: 2 if verb.startswith("lists") else 1]) for verb in VERBS}
    assert {name for name in commands() if name != "lists"} - tried == ELSEWHERE


def test_every_command_has_the_common_options():
    common = {"--json", "-q", "--quiet", "-v", "--verbose"}
    lacking = {
        name: common - {option for each in found.params for option in each.opts} for name, found in commands().items()
    }
    assert [name for name, options in lacking.items() if options] == ["lists"]


def test_help_lists_commands_by_groups(longcrawl):
    said = longcrawl("-h").stdout
    titles = [line[:-1] for line in said.splitlines() if line.endswith(":") and not line.startswith("Options")]
    assert titles == list(GROUPS)
    assert said == longcrawl("--help").stdout
    assert longcrawl("why", "-h").stdout == longcrawl("why", "--help").stdout


def test_a_quiet_run_shows_its_answer_and_no_progress(longcrawl, work):
    loud, quiet = (longcrawl("run", work / "texts.yaml", "--out", work / name, *more) for name, more in QUIET)
    assert re.search(r"^decontaminate: 1 of 1 parts, [\d:]+ elapsed", loud.stderr, re.MULTILINE)
    assert "part" not in quiet.stderr
    assert "texts is done in" in quiet.stdout


QUIET = (("loud", ()), ("quiet", ("-q",)))


def test_a_verbose_command_shows_the_traceback_of_an_error(longcrawl):
    short, long = (longcrawl("funnel", "nowhere", *more).stderr for more in ((), ("-v",)))
    assert long.startswith("Traceback (most recent call last):\n")
    assert long.endswith(short)


HEAVY = ("numba", "pandas", "datasets", "transformers", "scipy", "zarr", "tokenizers", "torch")
IMPORTED = f"""
import sys
from longcrawl.__main__ import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


SMALL = ["verify texts"]
MORE = ["stages", "funnel texts", "why texts d1", "sources", "outputs"]


@pytest.mark.parametrize("verb", [*SMALL, *(pytest.param(verb, marks=pytest.mark.slow) for verb in MORE)])
def test_a_small_verb_imports_nothing_heavy(work, verb):
    """With those imports these verbs take two seconds of CPU instead of half a second."""
    command = [sys.executable, "-c", IMPORTED, *verb.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=work)
    assert ended.stderr == "[]\n"


@pytest.mark.slow
def test_pyarrow_looks_for_pandas_again_where_a_table_becomes_a_data_frame():
    code = """
import sys
from longcrawl.cli.commands import leave_pandas_out
leave_pandas_out()
import pyarrow as pa, pyarrow.dataset
table = pa.table({"a": [1, 2]})
assert "pandas" not in sys.modules
print(table.to_pandas()["a"].sum())
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "3\n"
