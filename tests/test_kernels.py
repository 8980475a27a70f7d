"""What kernels keep on disk."""

import pickle

import numba

from longcrawl.kernels.lookup import _CachedKernels


def test_a_kernel_whose_types_have_moved_is_compiled_again(tmp_path):
    # An upgrade leaves what the last version compiled beside the new sources.
    moved = b"clongcrawl.of_an_earlier_version\nLists\n."
    (tmp_path / "kernel.nbi").write_bytes(pickle.dumps(numba.__version__) + moved)
    kept = _CachedKernels(str(tmp_path), "kernel", (1.0, 2))
    assert kept.load(("signature",)) is None
    kept.save(("signature",), "machine code")
    assert kept.load(("signature",)) == "machine code"
