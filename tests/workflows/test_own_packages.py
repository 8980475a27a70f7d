"""A stage, a source and an output of somebody else's package, in recipes that are run from the command line."""

import hashlib
import json
import multiprocessing
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from longcrawl.cli.commands import main

LINES = [
    {"id": "a", "text": "the sea\nthe sea\nand the moon"},
    {"id": "b", "text": "minutes of the meeting of the third of May"},
    {"id": "c", "text": "a wind\nand no sail"},
]

GONE = "ModuleNotFoundError: No module named 'my_poems.gone'"
TOKENIZE = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from longcrawl.cli.commands import main; main()"

STAGE = '''
import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core.stages import Check, Judge, column, stage


@stage
class OnlyPoems(Judge):
    """Keep what is written in lines."""

    min_lines: int = 2

    def checks(self, table):
        lines = pc.add(pc.count_substring(column(table, "text", self.name), "\\n"), 1)
        return [Check("min_lines", lines, pc.greater_equal(lines, self.min_lines), self.min_lines, "at_least")]
'''

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text("utf-8")


def block_with(word: str, language: str = "python") -> str:
    """Return the one block of the page that has a word."""
    (block,) = (
        each for each in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if word in each
    )
    return block


SOURCE, OUTPUT, CARD = block_with("@source"), block_with("@output"), block_with("$ledger", "markdown")

ROWS = """
import pyarrow as pa

from longcrawl.core.outputs import TokenRows


class Lists(TokenRows):
    def __init__(self, lists):
        self.lists, self.rows, self.tokens = lists, len(lists), sum(map(len, lists))

    def read(self, start, stop):
        ids = pa.array(self.lists[start:stop], pa.list_(pa.int32()))
        yield pa.table({"n_tokens": list(map(len, self.lists[start:stop])), "input_ids": ids})


def token_rows(self, folder):
    return {"train": Lists(self.ids(folder).to_table()["tokens"].to_pylist())}


JsonLinesResult.token_rows = token_rows
"""


def test_each_of_them_is_short():
    """A user's stage, source and output have fewer than 60 lines each."""
    for code in (STAGE, SOURCE, OUTPUT):
        assert len([line for line in code.splitlines() if line.strip()]) < 60


@pytest.fixture
def type_command(python, tmp_path):
    """Return a function that types a command of ``longcrawl`` where the folder ``site`` holds installed packages."""
    return lambda *words: python(PROGRAM, tmp_path / "site", *words)


def write_package(site: Path, *announced: tuple[str, str], version: str = "1.0", **modules: str) -> None:
    """Write the package ``my_poems``, and what an installer records of it where it announces something."""
    package, record = site / "my_poems", site / f"my_poems-{version}.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    for name, code in modules.items():
        (package / f"{name}.py").write_text(code)
    if announced:
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my-poems\nVersion: {version}\n")
        (record / "top_level.txt").write_text("my_poems\n")
        (record / "entry_points.txt").write_text(
            "\n".join(f"[longcrawl.{group}]\n{entry}" for group, entry in announced)
        )


def write_recipe(folder: Path, *stages: str | dict, source: dict | None = None, output: str = "parquet") -> Path:
    """Write documents, and a recipe of them."""
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    spec = {
        "longcrawl": 1,
        "name": "poems",
        "source": source or {"builder": "text", "data_files": str(folder / "lines.jsonl"), "id_field": "id"},
        "stages": list(stages),
        "outputs": {output: {}},
    }
    (folder / "poems.yaml").write_text(yaml.safe_dump(spec))
    return folder / "poems.yaml"


def push_with(site: Path, run: Path, repo: str) -> None:
    """Push a run in a process that finds installed packages; the one that it is forked from knows the Hub."""
    sys.path.insert(0, str(site))
    sys.argv = ["longcrawl", "push", str(run), repo, "--private"]
    main()


def manifest_of(run: Path) -> dict:
    return json.loads((run / "manifest.json").read_text("utf-8"))


@pytest.mark.variants
@pytest.mark.parametrize("named", [pytest.param("only_poems", marks=pytest.mark.slow), "my_poems.stages:OnlyPoems"])
def test_an_own_stage_runs_from_the_command_line(tmp_path, type_command, named):
    announced = [("stages", "only_poems = my_poems.stages:OnlyPoems")] if named == "only_poems" else []
    write_package(tmp_path / "site", *announced, stages=STAGE)
    recipe = write_recipe(tmp_path, {named: {"min_lines": 1}}, {"min_chars": {"n": 1}})
    done = type_command(
        "run", recipe, "--out", tmp_path / "run", "--num-proc", 2, "--set", "stages.only_poems.min_lines=3"
    )
    assert done.returncode == 0, done.stderr
    manifest = manifest_of(tmp_path / "run")
    assert manifest["recipe"]["stages"][0] == {named: {"min_lines": 3}}
    module = hashlib.sha256(STAGE.encode()).hexdigest()
    about = {"package": "my-poems", "version": "1.0"} if announced else {}
    assert manifest["implementations"] == {
        "only_poems": {"path": "my_poems.stages:OnlyPoems", "sha256": module, **about}
    }
    assert manifest["versions"].get("my-poems") == about.get("version")
    assert [(row["stage"], row["out"]) for row in manifest["funnel"]["stages"]] == [("only_poems", 1), ("min_chars", 1)]
    assert (
        type_command("why", tmp_path / "run", "c").stdout == "c: removed at only_poems, rule min_lines: 2 against 3\n"
    )
    for verb in ("card", "report", "verify"):
        asked = type_command(verb, tmp_path / "run")
        assert (asked.returncode, asked.stderr) == (0, ""), verb
    again = type_command("run", tmp_path / "run" / "recipe.yaml", "--out", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert manifest_of(tmp_path / "again")["digest"] == manifest["digest"]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["poems", pytest.param("my_poems.sources:Poems", marks=pytest.mark.slow)])
def test_an_own_source_is_read_from_the_command_line(tmp_path, type_command, python, named):
    announced = [("sources", "poems = my_poems.sources:Poems")] if named == "poems" else []
    write_package(tmp_path / "site", *announced, sources=SOURCE)
    (tmp_path / "poems").mkdir()
    for line in LINES:
        (tmp_path / "poems" / f"{line['id']}.poem").write_text(line["text"])
    recipe = write_recipe(
        tmp_path, {"min_chars": {"n": 20}}, source={"builder": named, "data_dir": str(tmp_path / "poems")}
    )
    done = type_command("run", recipe, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    manifest = manifest_of(tmp_path / "run")
    assert manifest["recipe"]["source"] == {
        "builder": named, "data_dir": str(tmp_path / "poems"), "on_bad_files": "error"
    }  # fmt: skip
    assert (manifest["funnel"]["source"], manifest["output"]["splits"]["train"]["documents"]) == ("poems", 2)
    loaded = python(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import longcrawl as lc\nfrom datasets import load_dataset\n"
        "print(load_dataset('longcrawl', sys.argv[2], data_dir=sys.argv[3], split='train')['id'][:])\n"
        "print([row['id'] for row in lc.open(sys.argv[2], data_dir=sys.argv[3], streaming=True).data])",
        tmp_path / "site", named, tmp_path / "poems",
    )  # fmt: skip
    assert loaded.stdout == "['a', 'b', 'c']\n['a', 'b', 'c']\n", loaded.stderr


@pytest.mark.slow
@pytest.mark.parametrize("named", [pytest.param("json-lines", marks=pytest.mark.slow), "my_poems.lines:JsonLines"])
def test_an_own_output_is_one_folder_and_answers_every_verb(tmp_path, type_command, python, hub, named):
    announced = [("outputs", "json-lines = my_poems.lines:JsonLines")] if named == "json-lines" else []
    write_package(tmp_path / "site", *announced, lines=OUTPUT + ROWS)
    (tmp_path / "site" / "my_poems" / "card.md").write_text(CARD)
    recipe = write_recipe(tmp_path, {"min_chars": {"n": 20}}, TOKENIZE, output=named)
    run, answers = tmp_path / "run", {}
    verbs = {
        "run": (recipe, "--out", run, "--num-proc", 2), "funnel": (run,), "why": (run, "a"), "card": (run,),
        "verify": (run,), "inspect": (run,), "report": (run,), "compose": (run,), "outputs": (named,),
    }  # fmt: skip
    for verb, words in verbs.items():
        asked = type_command(verb, *words)
        assert asked.returncode == 0, (verb, asked.stderr)
        answers[verb] = asked.stdout
    assert "2 lines" in answers["run"]
    assert "the first is a" in answers["run"]
    assert answers["why"] == "a: kept\n"
    assert "never had a document 'x'; ids look like 'a', as in " in type_command("why", run, "x").stderr
    card = (run / "README.md").read_text("utf-8")
    assert 'load_dataset("user/name", "lines", split="train")' in card
    assert "path: json-lines/*.jsonl" in card
    assert manifest_of(run)["analysis"]["lengths"][0]["documents"]
    assert (run / "json-lines" / "00000.jsonl").read_text().count("\n") == 2
    pushed = multiprocessing.get_context("fork").Process(target=push_with, args=(tmp_path / "site", run, "me/lines"))
    pushed.start()
    pushed.join()
    assert pushed.exitcode == 0
    assert {"json-lines/00000.jsonl", "json-lines/json-lines.json"} < set(hub.repositories["me/lines"].files())
    table = pq.read_table(run / "tokens/train-00000-of-00001.parquet")
    assert "tokens/train-00000-of-00001.parquet" in hub.repositories["me/lines"].files()
    lines = (run / "json-lines" / "00000.jsonl").read_text().splitlines()
    assert table["input_ids"].to_pylist() == [json.loads(line)["tokens"] for line in lines]
    elsewhere = python("from longcrawl.cli import main; main()", "inspect", run / "json-lines")
    assert re.search("install (the output's|its) package", elsewhere.stderr)
    (run / "json-lines" / "00000.jsonl").write_text("{}")
    damaged = type_command("verify", run)
    assert (damaged.returncode, "json-lines: 00000.jsonl" in damaged.stdout) == (1, True)
    assert damaged.stdout.count("\n") == 2


@pytest.mark.slow
def test_an_output_without_card_does_not_begin_and_one_without_ids_says_so(tmp_path, type_command):
    write_package(
        tmp_path / "site", lines=OUTPUT.replace("ids(self, ", "lines(self, ").replace("self.ids(", "self.lines(")
    )
    recipe = write_recipe(tmp_path, {"min_chars": {"n": 20}}, output="my_poems.lines:JsonLines")
    run, card = tmp_path / "run", tmp_path / "site" / "my_poems" / "card.md"
    asked = type_command("run", recipe, "--out", run, "--dry-run")
    assert asked.stderr.startswith(
        f"StageError: output 'json-lines' has no {card}: explain there how to load the dataset"
    )
    assert (asked.returncode, asked.stderr.count("\n"), run.exists()) == (1, 1, False)
    card.write_text(CARD)
    assert type_command("run", recipe, "--out", run).returncode == 0
    assert type_command("why", run, "a").stderr == (
        f"LedgerError: {run / 'json-lines'} records no ids of kept documents: implement ids() of JsonLinesResult, "
        "or ask "
        "for a removed document\n"
    )
    texts_alone = 'format="json").replace_schema(__import__("pyarrow").schema([("text", "string")]))'
    write_package(tmp_path / "site", lines=OUTPUT.replace('format="json")', texts_alone))
    assert type_command("why", run, "a").stderr == (
        "LedgerError: ids() of JsonLinesResult has no column 'id' but text: let it return the ids of documents, or "
        "ask for a removed document\n"
    )


@pytest.mark.slow
def test_a_resumed_run_notices_another_implementation(tmp_path, type_command):
    write_package(tmp_path / "site", stages=STAGE)
    recipe = write_recipe(tmp_path, "my_poems.stages:OnlyPoems", {"min_chars": {"n": 1000}})
    assert "no document remains" in type_command("run", recipe, "--out", tmp_path / "run").stderr
    write_package(tmp_path / "site", stages=STAGE.replace("), 1)", "), 2)"))
    again = type_command("run", recipe, "--out", tmp_path / "run")
    assert "has changed since the run began" in again.stderr


@pytest.mark.slow
def test_commands_list_what_packages_announce_with_fields_types_and_defaults(tmp_path, type_command):
    announced = ["only_poems = my_poems.stages:OnlyPoems", "gone = my_poems.gone:Gone", "min_words = my_poems.stages:X"]
    write_package(tmp_path / "site", ("stages", "\n".join(announced)), ("sources", "poems = my_poems.sources:Poems"),
                  stages=STAGE, sources=SOURCE)  # fmt: skip
    listed = type_command("stages")
    assert re.search(r"\nonly_poems +Keep what is written in lines\.\n", listed.stdout)
    assert "\nmin_words            " in listed.stdout
    assert listed.stderr.splitlines() == [
        f"stage 'gone' cannot be loaded ({GONE}): repair or uninstall my-poems 1.0",
        (
            "stage 'min_words' of my-poems 1.0 is not used, since longcrawl.text.filters:MinWords has the same name: "
            "rename it"
        ),
    ]
    for name in ("only_poems", "my_poems.stages:OnlyPoems"):
        assert type_command("stages", name).stdout.splitlines() == [
            "only_poems of my-poems 1.0",
            "Keep what is written in lines.",
            "",
            "field      takes           default",
            "min_lines  a whole number  2",
        ]
    assert "data_dir      text                            must be given" in type_command("sources", "poems").stdout
    assert "\nparquet " in type_command("outputs").stdout


@pytest.mark.variants
@pytest.mark.parametrize(
    ("stage", "sentence"),
    [
        ("only_poem", "stage 1 'only_poem' is unknown; `longcrawl stages` lists all "),
        ("gone", f"stage 1 'gone' cannot be loaded ({GONE}): repair or uninstall my-poems 1.0"),
        ("wrong", "stage 1 'wrong' is called 'only_poems': repair or uninstall my-poems 1.0"),
        ("my_poems.stages:Gone", "has no attribute 'Gone'): check its name, "),
        (
            "nowhere.stages:Gone",
            "(ModuleNotFoundError: No module named 'nowhere'): check its name, install its ",
        ),
        ("my_poems.stages:pa", "is not a stage: decorate a Stage class with @stage"),
        ("my_poems.stages:Judge", "is not a stage: decorate a Stage class with @stage"),
        (
            {"my_poems.stages:OnlyPoems": {"lines": 2}},
            "stage 1 'my_poems.stages:OnlyPoems' has no field 'lines'; known",
        ),
    ],
    ids=str,
)
def test_a_stage_that_cannot_be_had_is_one_sentence(tmp_path, type_command, stage, sentence):
    announced = ["gone = my_poems.gone:Gone", "wrong = my_poems.stages:OnlyPoems"]
    write_package(tmp_path / "site", ("stages", "\n".join(announced)), stages=STAGE)
    told = type_command("run", write_recipe(tmp_path, stage), "--out", tmp_path / "run")
    assert told.returncode == 1
    assert told.stderr.startswith("RecipeError: recipe 'poems': stage 1 ")
    assert sentence in told.stderr
    assert told.stderr.count("\n") == 1
