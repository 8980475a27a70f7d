"""What kernels keep on disk."""

import pickle
import shutil
from pathlib import Path

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.kernels import lookup
from longcrawl.kernels.lookup import _CachedKernels
from longcrawl.text.rpv2 import _kernels as kernels


def test_a_kernel_whose_types_have_moved_is_compiled_again(tmp_path):
    # An upgrade leaves what the last version compiled beside the new sources.
    moved = b"clongcrawl.of_an_earlier_version\nLists\n."
    (tmp_path / "kernel.nbi").write_bytes(pickle.dumps(numba.__version__) + moved)
    kept = _CachedKernels(str(tmp_path), "kernel", (1.0, 2))
    assert kept.load(("signature",)) is None
    kept.save(("signature",), "machine code")
    assert kept.load(("signature",)) == "machine code"


def test_a_kernel_is_compiled_again_when_what_it_calls_has_changed(tmp_path, monkeypatch):
    # Machine code holds what it calls of other modules; numba compares its own file alone.
    own = Path(kernels.__file__)
    assert kernels.measure._cache._cache_file._source_stamp[1] == lookup.digest_sources(own)
    package = Path(lookup.__file__).parents[1]
    shutil.copytree(package, tmp_path / "longcrawl", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(lookup, "_ROOT", tmp_path)
    copied = tmp_path / "longcrawl" / own.relative_to(package)
    before = lookup.digest_sources.__wrapped__(copied)
    for name, same in (("cli/commands.py", True), ("kernels/lookup.py", False), ("kernels/code_points.py", False)):
        with (tmp_path / "longcrawl" / name).open("a") as file:
            file.write("# changed\n")
        lookup._read_source.cache_clear()  # a new process would read the file again
        after = lookup.digest_sources.__wrapped__(copied)
        assert (after == before) is same, name
        before = after


@given(st.lists(st.integers(-4, 4) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=100))
def test_an_order_is_that_of_numpy_with_equal_keys_as_they_stand(keys):
    array = np.array(keys, np.int64)
    assert lookup.stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()
