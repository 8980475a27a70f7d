"""Every notebook runs from its first cell to its last: the first in every test run, all in `make notebooks`."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
TRAINING = {"05_feeds"}
PUBLISHING = "07_publish"
"""It needs a Hub: `huggingface_hub` is told which before it is imported."""
SHORTEST = "06_buckets"
"""What every run of the suite runs; `make notebooks` runs all."""
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
        shell.run_cell("".join(cell["source"]), store_history=True).raise_error()
        ran += 1
assert shell.execution_count == ran + 1
"""
)


@pytest.fixture
def release(tmp_path, make_release):
    """Return a release and a tokenizer: the real ones where they are, else small ones of one long document in three."""
    data = os.environ.get("LONGCRAWL_DATA")
    if data:
        return Path(data) / "rpv2", Path(data) / "gpt2.tiktoken"
    ranks = (f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256))
    (tmp_path / "bytes.tiktoken").write_text("\n".join(ranks) + "\n")
    words = " ".join(f"word{(7 * i) % 1009}" for i in range(20_000))
    texts = [f"{number} {words if number % 3 else words[:100]}" for number in range(12)]
    root = make_release(tmp_path / "release", {"2023-06/0000/en_head": texts, "2023-06/0000/en_middle": ["short"]})
    return root, tmp_path / "bytes.tiktoken"


@pytest.fixture
def environment(tmp_path, release):
    root, tokenizer = release
    (tmp_path / "work").mkdir()
    return {
        "LONGCRAWL_RELEASE": str(root),
        "LONGCRAWL_TOKENIZER": str(tokenizer),
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "MPLBACKEND": "agg",
    }


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
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem != PUBLISHING], ids=lambda path: path.stem)
def test_a_notebook_runs_in_a_kernel(path, tmp_path, environment, monkeypatch):
    needs(path)
    for name, value in environment.items():
        if name != "MPLBACKEND":
            monkeypatch.setenv(name, value)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path / "work")}})
    client.execute()
    assert all(cell.get("execution_count") for cell in notebook.cells if cell.cell_type == "code")
