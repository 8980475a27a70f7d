"""The command line, as it is typed: output, sentences and exit codes."""

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import longcrawl as lc
from longcrawl.run import tokenize_files
from longcrawl.text.refinedweb import fetch_lists


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    chance = random.Random(1)
    for part in range(2):
        lines = []
        for number in range(20):
            words = ["".join(chance.choices("abcdef", k=4)) for _ in range(10 if number % 5 == 0 else 80)]
            lines.append(json.dumps({"id": f"{part}-{number}", "text": f"№{number} «{' '.join(words)}»"}))
        (folder / "documents").mkdir(exist_ok=True)
        (folder / "documents" / f"{part}.jsonl").write_text("\n".join(lines))
    spec = {
        "longcrawl": 1,
        "name": "tiny",
        "source": {"builder": "text", "data_dir": str(folder / "documents"), "id_field": "id"},
        "stages": [
            {"min_chars": {"n": 100}},
            {"tokenize": {"tokenizer": "trained", "vocabulary_size": 400}},
            {"truncate": {"n": 64}},
            "shuffle",
            "roll",
        ],
        "outputs": {"rectangle": {"heldout": 0.1}},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(spec))
    return folder / "tiny.yaml"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, recipe) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    lc.run(recipe, out)
    return out


@pytest.fixture(scope="module")
def texts_folder(tmp_path_factory, recipe) -> Path:
    """Return a run that ends in texts, not in tokens."""
    spec = yaml.safe_load(recipe.read_text())
    spec |= {"name": "texts", "stages": [{"min_chars": {"n": 100}}], "outputs": {"parquet": {"heldout": 0.1}}}
    folder = tmp_path_factory.mktemp("texts")
    (folder / "texts.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "texts.yaml", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def told(tmp_path_factory, longcrawl, recipe, run_folder, texts_folder) -> dict[str, subprocess.CompletedProcess[str]]:
    """Return what every command answered."""
    folder = tmp_path_factory.mktemp("cli")
    damaged = Path(shutil.copytree(run_folder, folder / "damaged"))
    shard = damaged / "rectangle" / "train" / "c" / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    (damaged / "README.md").write_text("mine now")
    (folder / "page.txt").write_text("Buy now!\nBuy now!\n", "utf-8")
    (folder / "latin1.txt").write_bytes("Käse".encode("latin-1"))
    (folder / "empty.txt").touch()
    commands: dict[str, tuple[object, ...]] = {
        "run": ("run", recipe, "--out", folder / "out", "--num-proc", 2, "--set", "outputs.rectangle.heldout=3"),
        "run texts": (
            "run",
            texts_folder.parent / "texts.yaml",
            "--out",
            folder / "texts",
            "--set",
            "outputs.parquet.by=language",
        ),
        "verify texts": ("verify", texts_folder),
        "verify files": ("verify", texts_folder / "parquet"),
        "inspect texts": ("inspect", texts_folder),
        "inspect files": ("inspect", texts_folder / "parquet"),
        "inspect text row": ("inspect", texts_folder, "--split", "heldout", "--row", 2),
        "why a text": ("why", texts_folder, "1-6"),
        "recipes": ("recipes",),
        "funnel": ("funnel", run_folder),
        "why left": ("why", run_folder, "1-5"),
        "why kept": ("why", run_folder, "1-6"),
        "why not": ("why", run_folder, "7-7"),
        "verify": ("verify", run_folder),
        "verify rectangle": ("verify", run_folder / "rectangle"),
        "verify damaged": ("verify", damaged),
        "verify nothing": ("verify", folder / "nowhere"),
        "inspect nothing": ("inspect", folder / "nowhere"),
        "trace nothing": ("trace", folder / "nowhere", "--step", "0", "--set", "tokens_per_step=8"),
        "inspect": ("inspect", run_folder),
        "inspect row": ("inspect", run_folder / "rectangle", "--split", "heldout", "--row", 1),
        "inspect no row": ("inspect", run_folder, "--row", 99),
        "text": ("inspect", "--text", folder / "page.txt"),
        "text by stage": (
            "inspect",
            "--text",
            folder / "page.txt",
            "--stage",
            "min_chars",
            "--stage",
            "language",
            "--language",
            "en",
        ),
        "text by recipe": ("inspect", "--text", folder / "page.txt", "--recipe", recipe),
        "text and path": ("inspect", run_folder, "--text", folder / "page.txt"),
        "neither text nor path": ("inspect",),
        "path by stage": ("inspect", run_folder, "--stage", "min_chars"),
        "text by both": ("inspect", "--text", folder / "page.txt", "--stage", "min_chars", "--recipe", recipe),
        "text by no stage": ("inspect", "--text", folder / "page.txt", "--stage", "gopher"),
        "no text": ("inspect", "--text", folder / "nowhere.txt"),
        "latin text": ("inspect", "--text", folder / "latin1.txt"),
        "empty text": ("inspect", "--text", folder / "empty.txt"),
        "funnel of nothing": ("funnel", folder / "nowhere"),
        "no recipe": ("run", "longcrawl65", "--out", folder / "none"),
        "no out": ("run", "longcrawl64"),
        "no processes": ("run", recipe, "--out", folder / "none", "--num-proc", 0),
        "no verb": ("walk",),
        "nothing": (),
        "help": ("--help",),
    }
    return {name: longcrawl(*words) for name, words in commands.items()}


def test_no_answer_is_a_traceback(told):
    assert not [name for name, answer in told.items() if "Traceback" in answer.stderr + answer.stdout]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (
            0,
            [
                "run",
                "run texts",
                "verify texts",
                "verify files",
                "inspect texts",
                "inspect files",
                "inspect text row",
                "why a text",
                "recipes",
                "funnel",
                "why left",
                "why kept",
                "verify",
                "verify rectangle",
                "inspect",
                "inspect row",
                "text",
                "text by stage",
                "text by recipe",
                "help",
            ],
        ),
        (
            1,
            [
                "why not",
                "verify damaged",
                "verify nothing",
                "inspect nothing",
                "trace nothing",
                "inspect no row",
                "funnel of nothing",
                "no recipe",
            ],
        ),
        (1, ["text and path", "neither text nor path", "path by stage", "text by both", "text by no stage"]),
        (1, ["no text", "latin text", "empty text"]),
        (2, ["no out", "no processes", "no verb", "nothing"]),
    ],
)
def test_exit_codes(told, code, names):
    assert {name: told[name].returncode for name in names} == dict.fromkeys(names, code)


def test_run_prints_the_funnel_what_was_written_and_where(told):
    said = told["run"].stdout
    assert re.search(r"^min_chars +32 +8 ", said, re.MULTILINE)
    assert re.search(r"tiny is done in [\d.]+ s: .*/out \(heldout 3 x 64, train 29 x 64\)", said)
    assert "part" in told["run"].stderr


def test_recipes_lists_the_shipped_ones(told):
    assert [line.split()[0] for line in told["recipes"].stdout.splitlines()] == ["recipe", *lc.recipes()]


def test_funnel_is_that_of_the_package(told, run_folder):
    assert told["funnel"].stdout.rstrip("\n") == repr(lc.funnel(run_folder))


def test_why(told):
    assert re.fullmatch(r"1-5: removed at min_chars, rule min_chars: \d\d against 100\n", told["why left"].stdout)
    assert told["why kept"].stdout == "1-6: kept\n  truncate changed 1 place, 104 tokens cut: cut 64-168\n"
    assert told["why not"].stderr.startswith("LedgerError: ")
    assert "never had a document '7-7'" in told["why not"].stderr


def test_verify_lists_every_problem_and_fails(told, run_folder):
    assert told["verify"].stdout.startswith(f"{run_folder}: whole; ")
    assert told["verify rectangle"].stdout.startswith(f"{run_folder / 'rectangle'}: whole; ")
    lines = told["verify damaged"].stdout.splitlines()
    assert "2 problem(s)" in lines[0]
    assert lines[1].startswith("  README.md has 8 bytes, expected ")
    assert lines[2] == "  rectangle: train/c/0/0 has been changed: its SHA-256 differs"
    assert told["verify nothing"].stderr.startswith("FormatError: ")


def test_inspect_shows_a_row_as_text(told, run_folder):
    assert "split train: 29 rows x 64 tokens, uint16" in told["inspect"].stdout
    assert re.search(r"№\d+ «[a-f]{4} ", told["inspect"].stdout)
    assert told["inspect row"].stdout.rstrip("\n") == str(lc.inspect(run_folder / "rectangle", "heldout", 1))
    assert "has rows 0 to 28, not 99" in told["inspect no row"].stderr


def test_inspect_says_what_a_run_holds_and_of_one_row_nothing_else(told, run_folder):
    counted = str(lc.analysis(run_folder))
    assert told["inspect"].stdout == f"{lc.inspect(run_folder)}\n\n{counted}\n"
    assert re.search(r"^ *tokens +documents +share +of all tokens$", counted, re.MULTILINE)
    assert counted not in told["inspect row"].stdout


def test_a_run_that_ends_in_texts(told, texts_folder):
    said = told["run texts"].stdout
    written = "(train 29 documents in 1 file, heldout 3 documents in 1 file, 1 folder)"
    assert re.search(rf"texts is done in [\d.]+ s: .*/texts {re.escape(written)}", said)
    assert "\nread back: documents of id string, text large_string, " in said
    assert told["verify texts"].stdout.startswith(f"{texts_folder}: whole; ")
    assert told["verify files"].stdout.startswith(f"{texts_folder / 'parquet'}: whole; ")
    assert told["why a text"].stdout == "1-6: kept\n"


def test_inspect_shows_a_text_and_what_all_texts_are(told, texts_folder):
    assert "split train: 29 documents in 1 file\n" in told["inspect texts"].stdout
    assert re.search(r"^ *characters +documents +share +of all characters$", told["inspect texts"].stdout, re.MULTILINE)
    assert str(lc.analysis(texts_folder)) in told["inspect files"].stdout
    assert told["inspect text row"].stdout.rstrip("\n") == str(lc.inspect(texts_folder, "heldout", 2))
    assert "№3 «" in told["inspect text row"].stdout


def test_inspect_explains_a_text_by_the_rules_for_raw_text(told):
    said = told["text"].stdout
    assert re.search(r"^gopher_quality +min_words +4  at least 50 +FAILS$", said, re.MULTILINE)
    assert re.search(r"^gopher_repetition +max_duplicate_lines +1  at most 0.3 +FAILS$", said, re.MULTILINE)
    assert re.search(r"^fine_web_quality +max_short_lines +1  at most 0.67 +FAILS$", said, re.MULTILINE)
    assert "\n  line 1: Buy now!  (2 times)\n" in said
    assert re.search(
        r"\n\nREMOVED at gopher_quality: min_words is 4, must be at least 50 \(\d+ of \d+ rules fail\)", said
    )


def test_inspect_explains_a_text_by_chosen_stages_or_by_those_of_a_recipe(told):
    rules = [line.split() for line in told["text by stage"].stdout.split("\n\n")[0].splitlines()[1:]]
    assert [rule[0] for rule in rules] == ["min_chars", "language"]
    assert rules[1][-1] == "passes"
    said = told["text by recipe"].stdout
    assert re.search(r"^min_chars +min_chars +18  at least 100  FAILS$", said, re.MULTILINE)
    assert "not explained: tokenize, which works on tokens, not on text\n" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("funnel of nothing", r"RunError: no folder .*/nowhere: name that of a run, which .*\n"),
        ("no recipe", r"RecipeError: unknown recipe 'longcrawl65'; known: .*longcrawl64, .*\n"),
        ("inspect no row", r"FormatError: .*\n"),
        ("verify nothing", r"FormatError: no file or folder .*/nowhere: check the path\n"),
        ("inspect nothing", r"FormatError: no file or folder .*/nowhere: check the path\n"),
        ("trace nothing", r"FormatError: no file or folder .*/nowhere: check the path\n"),
        (
            "text and path",
            r"LongCrawlError: inspect takes the PATH of a run or rectangle, .* or a text: .* --text FILE.*\n",
        ),
        ("neither text nor path", r"LongCrawlError: inspect takes the PATH .*\n"),
        ("path by stage", r"LongCrawlError: inspect takes the PATH .*\n"),
        ("text by both", r"StageError: inspect takes stages or a recipe, not both: .*\n"),
        (
            "text by no stage",
            r"StageError: stage .gopher. is unknown; did you mean .*gopher_quality.* `longcrawl stages` lists .*\n",
        ),
        ("no text", r"SourceError: .*nowhere.txt cannot be read \(No such file or directory\); .*\n"),
        ("latin text", r"SourceError: .*latin1.txt is not UTF-8: byte 1 is 0xe4; .*\n"),
        ("empty text", r"SourceError: .*empty.txt is empty: .*\n"),
    ],
)
def test_an_error_is_one_line_with_the_name_of_its_kind(told, name, said):
    assert re.fullmatch(said, told[name].stderr)
    assert told[name].stdout == ""


def test_help_names_every_verb(told):
    for verb in ("run", "recipes", "funnel", "why", "clusters", "verify", "inspect"):
        assert re.search(rf"^ *{verb} ", told["help"].stdout, re.MULTILINE)


def test_help_names_the_formats_and_lists_that_there_are(longcrawl):
    for command, names in ((["tokenize"], tokenize_files.FORMATS), (["lists", "fetch"], fetch_lists.LISTS)):
        text = " ".join(longcrawl(*command, "--help").stdout.split())
        *first, last = names
        assert (f"{', '.join(first)} or {last}." if first else f"{last}.") in text


def test_the_installed_command_is_the_same():
    command = shutil.which("longcrawl", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("longcrawl runs from its folder here and is not installed")
    result = subprocess.run([command, "why", "/nowhere", "x"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert re.fullmatch(r"RunError: .*/nowhere.*\n", result.stderr)
