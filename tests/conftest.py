"""Fixtures shared by all tests."""

import os
from pathlib import Path

import datasets
import pytest

datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Give the folder of real input named by LONGCRAWL_DATA, or skip."""
    folder = os.environ.get("LONGCRAWL_DATA")
    if not folder:
        pytest.skip("LONGCRAWL_DATA names no folder of real data")
    return Path(folder)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what `datasets` caches out of the user's cache, and apart between tests."""
    cache = tmp_path_factory.mktemp("datasets_cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
