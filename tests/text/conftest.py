"""Fixture for tests of text stages: a run of a recipe."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import longcrawl as lc


@pytest.fixture
def run_stages(tmp_path) -> Callable[..., Path]:
    """Return what runs stages over texts by id, up to rows of 32 tokens, and gives the run's folder."""

    def run(texts: Mapping[str, str], *stages: dict[str, Any]) -> Path:
        (tmp_path / "documents").mkdir()
        lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
        (tmp_path / "documents" / "00.jsonl").write_text("\n".join(lines))
        to_rows = [{"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}]
        to_rows += [{"min_tokens": {"n": 32}}, {"truncate": {"n": 32}}]
        spec = {
            "longcrawl": 1,
            "name": "texts",
            "about": "Made in a test.",
            "source": {"builder": "text", "id_field": "id", "data_dir": str(tmp_path / "documents")},
            "stages": [*stages, *to_rows],
            "outputs": {"rectangle": {"heldout": 0.0}},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(spec))
        lc.run(str(tmp_path / "recipe.yaml"), tmp_path / "out")
        return tmp_path / "out"

    return run
