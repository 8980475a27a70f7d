"""A quick verification compares sizes, and the SHA-256 of the manifest itself."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import FormatError

LOADED = """
import sys
from longcrawl.cli import main
sys.argv = ["longcrawl", *sys.argv[1:]]
try:
    main()
finally:
    heavy = {"pyarrow", "numpy", "pandas", "numba", "scipy"} & set(sys.modules)
    assert not heavy, heavy
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    recipe = {
        "longcrawl: 1": "",
        "name: sized": "",
        "source: {builder: text, data_files: texts.jsonl}": "",
        "stages: [{min_chars: {n: 5}}]": "",
        "outputs: {parquet: {}}": "",
    }
    (folder / "recipe.yaml").write_text("\n".join(recipe).replace("texts.jsonl", str(folder / "texts.jsonl")))
    (folder / "texts.jsonl").write_text('{"text": "The tide was out."}\n{"text": "Ebb"}\n')
    lc.run(folder / "recipe.yaml", folder / "run")
    return folder / "run"


def test_a_file_that_is_missing_or_of_another_size_is_found(run):
    table = next(run.glob("parquet/*.parquet"))
    whole = table.read_bytes()
    assert lc.verify(run, check="sizes").problems == ()
    assert lc.verify(run / "parquet", check="sizes").problems == ()
    table.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert lc.verify(run, check="sizes").problems == ()
    assert lc.verify(run).problems
    table.write_bytes(whole[:-1])
    (problem,) = lc.verify(run.as_uri(), check="sizes").problems
    assert problem == f"parquet/{table.name} has {len(whole) - 1:,} bytes, expected {len(whole):,}"
    table.unlink()
    shown = CliRunner().invoke(app, ["verify", str(run), "--quick"])
    assert (shown.exit_code, "is missing" in shown.output) == (1, True)
    table.write_bytes(whole)
    manifest = run / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content.replace(b'"sized"', b'"other"'))
    assert "has been changed" in lc.verify(run, check="sizes").problems[0]
    manifest.write_bytes(content)


def test_shards_alone_have_no_sizes(run, tmp_path):
    with pytest.raises(FormatError, match="holds neither a run nor an output"):
        lc.verify(tmp_path, check="sizes")
    with pytest.raises(FormatError, match="remove the format"):
        lc.verify(run, "nanogpt", check="sizes")
    with pytest.raises(FormatError, match="check takes one of 'contents', 'sizes'"):
        lc.verify(run, check="names")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["recipes"], ["funnel", "RUN"], ["verify", "RUN", "--quick"]])
def test_a_question_to_a_manifest_imports_no_arrays(run, command):
    arguments = [str(run) if each == "RUN" else each for each in command]
    subprocess.run([sys.executable, "-c", LOADED, *arguments], check=True, capture_output=True, text=True)


@pytest.mark.parametrize("settings", [{"check": "sizes"}, {}])
def test_a_path_with_nothing_there_is_one_sentence(tmp_path, settings):
    with pytest.raises(FormatError, match="no file or folder .*nope: check the path"):
        lc.verify(tmp_path / "nope", **settings)
