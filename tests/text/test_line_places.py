"""Lines of texts in bytes: their ends, counted over more than fit into one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st


@given(
    block=st.binary(min_size=1, max_size=40) | st.sampled_from([b"\n", b"\x85"]),
    repeats=st.integers(0, 300),
    cut=st.tuples(st.integers(0, 300), st.integers(0, 300)),
)
def test_counts_beyond_a_byte_equal_plain_python(block, repeats, cut):
    from longcrawl.kernels.texts import count_characters
    from longcrawl.text.line_places import count_line_ends

    data = np.frombuffer(block * repeats, np.uint8)
    start, stop = min(cut[0], len(data)), max(len(data) - cut[1], 0)
    part = data[start:stop].tolist()
    assert count_line_ends(data, start, stop) == sum(byte < 32 or byte in {0x85, 0xA8, 0xA9} for byte in part)
    assert count_characters(data, start, stop) == sum(byte & 0xC0 != 0x80 for byte in part)
