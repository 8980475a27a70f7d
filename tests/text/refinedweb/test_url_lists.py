"""Lists of domains in memory: how they are read and how small they are."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.text.refinedweb import url_lists
from longcrawl.text.refinedweb.url_lists import (
    BlockLists,
    make_set,
    read_block_lists,
)

NONE = make_set([])


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 24])
def test_blocks_end_anywhere(tmp_path, monkeypatch, block):
    monkeypatch.setattr(url_lists, "BLOCK", block)
    names = [f"name{number}.example" for number in range(50)]
    (tmp_path / "domains.gz").write_bytes(gzip.compress("\n".join(names).encode()))
    (tmp_path / "domains").write_text("\r\n".join(names) + "\r\n")
    plain, packed = (read_block_lists(str(tmp_path / name)).domains.hashes for name in ("domains", "domains.gz"))
    assert len(plain) == 50
    assert np.array_equal(plain, packed)


def test_a_million_domains_take_less_than_ten_megabytes_and_are_all_found():
    # Hashes of names made up by numbers: what is measured is the set, not the reading.
    hashes = np.random.default_rng(0).integers(0, 2**64, 1_000_000, np.uint64)
    made = BlockLists(make_set([hashes[:600_000], hashes[500_000:]]), NONE)
    assert len(made.domains.hashes) == 1_000_000
    assert sum(each.hashes.nbytes + each.starts.nbytes for each in made) < 10e6
    assert np.array_equal(np.sort(hashes), made.domains.hashes)
    buckets = np.diff(made.domains.starts)
    assert buckets.sum() == 1_000_000
    assert buckets.max() < 40


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**63, 2**64 - 1]), max_size=40))
def test_a_set_has_what_it_was_made_of_and_nothing_else(hashes):
    from longcrawl.text.refinedweb.url_lists import contains

    made = make_set([np.array(hashes, np.uint64)])
    asked = [*hashes[:5], 0, 5, 2**63 - 1, 2**63, 2**64 - 1]
    assert [contains(made, np.uint64(each)) for each in asked] == [each in hashes for each in asked]
