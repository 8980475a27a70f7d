"""Fixture that ends extraction workers after each test."""

import pytest

from longcrawl.text.extract import pool as _pool


@pytest.fixture
def own_workers(request):
    """Begin and end without workers; the tests of each engine share its worker, which takes a second to start."""
    shared = "name" in request.fixturenames
    if not shared:
        _pool._here.close()
    yield
    if not shared:
        _pool._here.close()


@pytest.fixture(scope="module")
def no_workers_left():
    """End without workers."""
    yield
    _pool._here.close()
