"""Tables of all code points are shipped for the Unicode versions of Python 3.11 to 3.14, and equal what is built.

``LONGCRAWL_TABLES=write pytest -m slow tests/kernels/test_code_points.py`` writes those of the Python that runs it,
where ``VERSIONS`` has its version of Unicode.
"""

import os
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shipped_tables import ship_arrays

from longcrawl.dedup.normalize import load_normal_forms
from longcrawl.kernels import code_points
from longcrawl.kernels.code_points import shipped_arrays
from longcrawl.text.gopher.words import load_page_characters
from longcrawl.text.refinedweb.url_filter import load_folded

VERSIONS = ("14.0.0", "15.0.0", "15.1.0", "16.0.0")
RUNNING = unicodedata.unidata_version
LATIN = 0x250
"""The first code point after the Latin letters, for which all these versions have the same."""


def load_all():
    """Load each table as a new process does; normal forms are built of the characters."""
    code_points.load_characters.cache_clear()
    code_points.load_characters("re")
    for load in (load_page_characters, load_folded, load_normal_forms):
        load.__wrapped__()


@pytest.fixture(scope="module")
def built():
    """Return the arrays of each table as this Python builds them."""
    tables = {}

    def build(name, _stamp, make):
        tables[name.removeprefix(f"unicode-{RUNNING}-")] = arrays = make()
        return arrays

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_points, "shipped_arrays", lambda *_: {})
        patch.setattr(code_points, "kept_arrays", build)
        load_all()
    code_points.load_characters.cache_clear()
    if os.environ.get("LONGCRAWL_TABLES") == "write":
        ship_arrays(code_points.SHIPPED / f"unicode-{RUNNING}.npz", tables)
    return tables


@pytest.mark.slow
@pytest.mark.skipif(RUNNING not in VERSIONS, reason="no tables of this Python's Unicode version are shipped")
def test_what_is_shipped_is_what_this_python_builds(built):
    for name, arrays in built.items():
        shipped = shipped_arrays(code_points.SHIPPED / f"unicode-{RUNNING}.npz", name)
        assert shipped, f"{name} is not shipped: run make tables"
        assert {key: array.dtype for key, array in shipped.items()} == {key: made.dtype for key, made in arrays.items()}
        assert [key for key, made in arrays.items() if not np.array_equal(shipped[key], made)] == [], name


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_the_tables_of_today(built, version):
    """A table that is built in another way has another name, and equals that of other versions in Latin letters."""
    with np.load(code_points.SHIPPED / f"unicode-{version}.npz") as shipped:
        assert set(shipped) == {f"{name}/{key}" for name, arrays in built.items() for key in arrays}
    for name, arrays in built.items():
        shipped = shipped_arrays(code_points.SHIPPED / f"unicode-{version}.npz", name)
        whole = [key for key, made in arrays.items() if made.size == code_points.CODE_POINTS]
        assert [key for key in whole if not np.array_equal(shipped[key][:LATIN], arrays[key][:LATIN])] == [], name


@pytest.mark.skipif(RUNNING not in VERSIONS, reason="no tables of this Python's Unicode version are shipped")
def test_shipped_tables_are_not_kept_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_all()
    assert [*tmp_path.iterdir()] == []


RUNS = st.lists(st.tuples(st.integers(0, 255), st.integers(1, 20)), max_size=8)


@given(RUNS, st.sampled_from([np.uint8, np.uint16, np.uint32, np.int64]))
def test_arrays_come_back_as_they_were_shipped(tmp_path_factory, runs, dtype):
    file = tmp_path_factory.mktemp("shipped") / "arrays.npz"
    values = np.repeat(np.array([value for value, _ in runs], dtype), [count for _, count in runs])
    tables = {"a": {"values": values, "steps": np.cumsum(values, dtype=dtype)}, "a-2": {"values": values[:1]}}
    ship_arrays(file, tables)
    for name, arrays in tables.items():
        back = shipped_arrays(file, name)
        assert {key: array.dtype for key, array in back.items()} == dict.fromkeys(arrays, np.dtype(dtype))
        assert all(np.array_equal(back[key], array) for key, array in arrays.items())
    assert shipped_arrays(file, "b") == shipped_arrays(file.with_name("none.npz"), "a") == {}
