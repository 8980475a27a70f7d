"""Every notebook runs from its first cell to its last."""

import base64
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
TRAINING = {"05_feeds"}


@pytest.fixture
def release(tmp_path, make_release):
    """Give a release and a tokenizer: the real ones where they are, else small ones of one long document in three."""
    data = os.environ.get("LONGCRAWL_DATA")
    if data:
        return Path(data) / "rpv2", Path(data) / "gpt2.tiktoken"
    ranks = (f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256))
    (tmp_path / "bytes.tiktoken").write_text("\n".join(ranks) + "\n")
    words = " ".join(f"word{(7 * i) % 1009}" for i in range(20_000))
    texts = [f"{number} {words if number % 3 else words[:100]}" for number in range(12)]
    root = make_release(tmp_path / "release", {"2023-06/0000/en_head": texts, "2023-06/0000/en_middle": ["short"]})
    return root, tmp_path / "bytes.tiktoken"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, release, monkeypatch):
    if path.stem in TRAINING:
        pytest.importorskip("torch", reason="this notebook trains a model")
    root, tokenizer = release
    monkeypatch.setenv("LONGCRAWL_RELEASE", str(root))
    monkeypatch.setenv("LONGCRAWL_TOKENIZER", str(tokenizer))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "work").mkdir()
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path / "work")}})
    client.execute()
    assert all(cell.get("execution_count") for cell in notebook.cells if cell.cell_type == "code")
