"""Runs over PDFs: the same bytes for any number of processes and after a kill."""

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml
from datasets import load_dataset

import longcrawl as lc


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe over a folder of PDFs."""
    folder = lc.samples.write_pdfs(tmp_path / "reports")
    for number in range(4, 12):
        (folder / f"report-{number:02}.pdf").unlink()
    spec = {
        "longcrawl": 1,
        "name": "reports",
        "source": {"builder": "text", "data_dir": str(folder), "format": "pdf"},
        "stages": ["extract_pdf", "exact_documents"],
        "outputs": {"parquet": {}},
    }
    path = tmp_path / "reports.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def kill_a_run(recipe, out):
    """Run a recipe by two processes and kill them, with their workers, once a first result is there."""
    command = [sys.executable, "-m", "longcrawl", "run", recipe, "--out", out, "--num-proc", "2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list((out / "work").glob("segment-0/*.json")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (out / "manifest.json").exists()


@pytest.mark.slow
def test_processes_and_kills_do_not_change_a_run(recipe, tmp_path, directory_digest):
    summary = lc.run(recipe, tmp_path / "whole")
    assert summary.funnel.rows[0].rules == {"not_pdf": 1, "pdf_scanned": 1, "pdf_unreadable": 1}
    kill_a_run(recipe, tmp_path / "killed")
    lc.run(recipe, tmp_path / "killed")
    assert directory_digest(tmp_path / "killed") == directory_digest(tmp_path / "whole")


def test_a_run_lists_the_lines_that_are_not_in_texts(recipe, tmp_path, longcrawl):
    spec = yaml.safe_load(recipe.read_text())
    spec["stages"] += ["c4_quality"]
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "run")
    rows = load_dataset("parquet", data_files=str(tmp_path / "run" / "edits" / "*.parquet"), split="train")
    assert set(rows["stage"]) >= {"extract_pdf"}
    assert set(rows.filter(lambda row: row["stage"] == "extract_pdf")["rule"]) == {"running_line", "page_number"}
    crawl = lc.open(str(tmp_path / "reports" / "*.pdf"))
    for _, stage in lc.load_recipe(recipe).stages:
        crawl |= stage
    assert str(lc.why(tmp_path / "run", "report-00.pdf")) == str(crawl.why("report-00.pdf"))
    assert "running_line on page 1 'Report 0'" in longcrawl("why", tmp_path / "run", "report-00.pdf").stdout
