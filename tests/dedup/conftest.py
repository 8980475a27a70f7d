"""What tests of evaluation sets share: where indexes are kept."""

import pytest

from longcrawl.dedup import evaluation_sets


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """Keep indexes of evaluation sets in a folder of the test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(evaluation_sets, "cache_folder", lambda: folder)
    return folder / "evaluation"
