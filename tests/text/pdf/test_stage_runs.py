"""Runs over PDFs: the same bytes for any number of processes and after a kill."""

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

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
    process.wait()


def test_processes_and_kills_do_not_change_a_run(recipe, tmp_path, directory_digest):
    summary = lc.run(recipe, tmp_path / "whole")
    assert summary.funnel.rows[0].rules == {"not_pdf": 1, "pdf_scanned": 1, "pdf_unreadable": 1}
    kill_a_run(recipe, tmp_path / "killed")
    lc.run(recipe, tmp_path / "killed")
    assert directory_digest(tmp_path / "killed") == directory_digest(tmp_path / "whole")
