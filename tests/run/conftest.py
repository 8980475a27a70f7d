"""Fixture for tests of first recipes and previews: a file of texts."""

from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def texts(tmp_path, monkeypatch) -> str:
    """Return the name of a file of texts in the current folder."""
    monkeypatch.chdir(tmp_path)
    words = [
        "the",
        "and",
        "that",
        "with",
        "have",
        "to",
        "of",
        *(f"word{chr(97 + each % 26)}{chr(97 + each // 26)}" for each in range(300)),
    ]
    random = Random(0)
    rows = [". ".join(" ".join(random.choices(words, k=12)) for _ in range(20)) for _ in range(40)]
    pq.write_table(pa.table({"content": rows, "title": ["t"] * 40}), tmp_path / "texts.parquet")
    return "texts.parquet"
