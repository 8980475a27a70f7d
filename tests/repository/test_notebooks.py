"""Every notebook runs from its first cell to its last, and has what its cells returned: `make notebooks` runs all."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
TRAINING = {"05_feeds", "09_long_context"}
PUBLISHING = "07_publish"
"""It needs a Hub: `huggingface_hub` is told which before it is imported."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SHORTEST = "06_buckets"
"""The notebook of the suite; `make notebooks` runs all."""
OFFLINE = "datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True\n"
CELLS = (
    """
import json, os, sys
import datasets, huggingface_hub
os.chdir(sys.argv[2])
os.environ |= json.loads(sys.argv[3])
"""
    + OFFLINE
    + """from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.display_formatter.active_types = shell.display_formatter.format_types
ran = 0
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        shell.run_cell("".join(cell["source"]).removeprefix("%matplotlib inline\\n"), store_history=True).raise_error()
        ran += 1
assert shell.execution_count == ran + 1
"""
)


@pytest.fixture
def environment(tmp_path):
    """Return the environment of somebody who has the package alone: no data, no network, an empty folder."""
    (tmp_path / "work").mkdir()
    return {
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "1",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "MPLBACKEND": "agg",
    }


def code_digest(notebook):
    """Return the SHA-256 of the code cells, which a notebook's metadata has of what was run."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def store(notebook, path):
    """Write a notebook that was run, with its text and pictures; warnings and bars on stderr are left out."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata = {**METADATA, "longcrawl": {"ran": code_digest(notebook)}}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def needs(path):
    if path.stem in TRAINING:
        pytest.importorskip("torch", reason="this notebook trains a model")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem == SHORTEST else pytest.mark.slow) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_cells_of_a_notebook_run(path, tmp_path, environment, python, request):
    """In IPython, which shows what cells return."""
    needs(path)
    nbformat.validate(nbformat.read(path, as_version=4))
    if path.stem == PUBLISHING:
        command = [sys.executable, "-c", CELLS.replace(OFFLINE, ""), path, tmp_path / "work", "{}"]
        told = environment | {"HF_HUB_OFFLINE": "0"} | request.getfixturevalue("hub").environment
        ran = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, timeout=300, check=False)
    else:
        ran = python(CELLS, path, tmp_path / "work", json.dumps(environment))
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_kernel(path, tmp_path, environment, monkeypatch):
    """With ``LONGCRAWL_NOTEBOOKS=write`` the outputs of the cells are stored in the notebook."""
    from nbclient import NotebookClient

    needs(path)
    for name in ("LONGCRAWL_RELEASE", "LONGCRAWL_TOKENIZER", "LONGCRAWL_DATA", "HF_TOKEN", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        if name != "MPLBACKEND":
            monkeypatch.setenv(name, value)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path / "work")}})
    client.execute()
    assert all(cell.get("execution_count") for cell in notebook.cells if cell.cell_type == "code")
    if os.environ.get("LONGCRAWL_NOTEBOOKS") == "write":
        store(notebook, path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_what_its_cells_returned(path):
    """After a change of a cell, ``LONGCRAWL_NOTEBOOKS=write make notebooks`` runs it and stores what it returned."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert "error" not in {output.output_type for output in outputs}
    assert {"image/png", "image/svg+xml"} & {kind for output in outputs for kind in output.get("data", {})}
    assert notebook.metadata.get("longcrawl", {}).get("ran") == code_digest(notebook)
    assert path.stat().st_size < 700_000
    assert tempfile.gettempdir() + "/" not in path.read_text("utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_it_needs(path):
    extras = "language,plots,warc" if path.stem == "04_refinedweb" else "plots"
    extras = "plots,torch" if path.stem in TRAINING else extras
    assert f"Needs: `pip install 'longcrawl[{extras}]'`." in nbformat.read(path, as_version=4).cells[0].source


@pytest.mark.parametrize("name", sorted(TRAINING))
def test_a_notebook_stops_with_one_line_without_torch(name, monkeypatch):
    """Nothing before the cell imports torch."""
    path = next(path for path in NOTEBOOKS if path.stem == name)
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    first = next(number for number, source in enumerate(cells) if "torch" in source)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match=r"^This notebook needs torch.*: pip install 'longcrawl\[torch\]'$"):
        exec(cells[first], {})  # noqa: S102  # a cell of our own
    assert cells[first].startswith("try:\n    import torch\n")
