"""A recipe over four small files, for tests of plans."""

import json

import numpy as np
import pytest

RECIPE = """
longcrawl: 1
name: planned
source: {builder: text, data_dir: texts}
stages:
  - min_chars: {n: 60}
  - exact_documents
  - tokenize: {tokenizer: trained, vocabulary_size: 300}
  - shuffle
outputs:
  gpt-simple: {}
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch) -> str:
    (tmp_path / "texts").mkdir()
    chance = np.random.default_rng(0)
    for part in range(4):
        texts = ["tide " * chance.integers(1, 60) for _ in range(40)]
        lines = [json.dumps({"id": f"{part}-{number}", "text": text}) for number, text in enumerate(texts)]
        (tmp_path / "texts" / f"{part}.jsonl").write_text("\n".join(lines))
    (tmp_path / "planned.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return "planned.yaml"
