"""Questions to runs behind URLs: they are answered as those to the same run on disk."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import RunError
from longcrawl.io import files


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a finished run with a ledger, edits and clusters, in a folder where local copies of URLs would be seen."""
    monkeypatch.setenv(files.PLACES, str(tmp_path / "places"))
    monkeypatch.chdir(tmp_path)
    texts = [f"some words {row % 6} of a page that are long enough\n\n\nand a line" for row in range(12)]
    rows = [{"id": f"d{row}", "text": text, "url": f"https://example.org/{row}"} for row, text in enumerate(texts)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"builder": "text", "id_field": "id", "data_files": [str(tmp_path / "rows.jsonl")]}
    spec = {"longcrawl": 1, "name": "it", "source": source, "stages": ["exact_documents"], "outputs": {"parquet": {}}}
    Path("recipe.yaml").write_text(yaml.safe_dump(spec))
    lc.run("recipe.yaml", "run")
    return tmp_path / "run"


def ask(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def put(store, run: Path) -> str:
    for file in (file for file in run.rglob("*") if file.is_file()):
        store.put(f"run/{file.relative_to(run).as_posix()}", file.read_bytes())
    return str(store.url("run"))


def test_a_run_in_a_store_answers_as_one_on_disk(store, run):
    url = put(store, run)
    gone = pq.read_table(next((run / "ledger").iterdir()))["id"][0].as_py()
    for word, *others in (["funnel"], ["funnel", "--rates"], ["why", gone], ["why", "d0"], ["clusters"]):
        told = ask(word, url, *others)
        assert (told.exit_code, told.stdout) == (0, ask(word, run, *others).stdout)
    assert str(ask("why", url, "never").exception).startswith(f"{url} never had a document 'never'")
    assert list(run.with_name("places").iterdir()) == []


def test_reports_and_cards_are_written_to_the_store(store, run):
    url = put(store, run)
    for most in (1, 5):  # a report replaces an earlier one
        assert ask("report", url, "--most", most).stdout.strip() == f"{url}/report.html"
        lc.write_report(run, most=most)
    edited = (run / "README.md").read_text() + "\nMine.\n"
    (run / "README.md").write_text(edited)
    store.put("run/README.md", edited.encode())
    assert ask("card", url).stdout.startswith(f"{url}/README.md is written; kept your edits in")
    lc.card(run)
    assert lc.verify(url).problems == ()
    in_store = store.files("run")
    put(store, run)
    assert in_store == store.files("run")


def test_a_run_that_is_not_there_is_one_sentence(store, run):
    words = (["funnel"], ["report"], ["card"], ["why", "d0"], ["inspect"], ["compose"], ["push", "me/it", "--private"])
    for word in words:
        told = ask(word[0], store.url("none"), *word[1:])
        assert str(told.exception).startswith(f"there is no finished run at {store.url('none')}, it has no manifest")
    with pytest.raises(RunError, match=r"^a run is not read from https://example.org/run: name a folder, s3://"):
        lc.funnel("https://example.org/run")
