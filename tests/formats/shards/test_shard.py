"""A token shard in memory: its documents by number and in blocks, and where they end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longcrawl.errors import CorruptionError, FormatError
from longcrawl.formats.shards import shard
from longcrawl.formats.shards.shard import TokenShard, check_size, end_problems, find_ends, map_file

END = 7
TOKENS = st.lists(st.sampled_from([1, 2, END]), max_size=30)


@given(TOKENS, st.booleans())
def test_documents_end_where_a_loop_finds_the_end_of_text(tokens, at_start):
    documents = [[]]
    for token in tokens:
        if at_start and token == END and documents[-1]:
            documents.append([])
        documents[-1].append(token)
        if not at_start and token == END:
            documents.append([])
    lengths = [len(each) for each in documents if each]
    assert find_ends(np.array(tokens, np.uint16), END, at_start=at_start).tolist() == np.cumsum(lengths).tolist()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(1, 6))
def test_blocks_are_all_documents_in_order(lengths, block_tokens):
    tokens = np.arange(sum(lengths), dtype=np.uint16)
    made = TokenShard("a shard", "test", tokens, np.cumsum(lengths))
    assert len(made) == len(lengths)
    whole = [made.document(number).tolist() for number in range(len(made))]
    assert list(map(len, whole)) == lengths
    blocks = list(made.blocks(block_tokens))
    assert [token for block in blocks for token in block.tokens.tolist()] == tokens.tolist()
    assert [length for block in blocks for length in block.lengths.tolist()] == lengths
    with pytest.raises(IndexError, match=f"a shard has documents 0 to {len(lengths) - 1}, not {len(lengths)}"):
        made.document(len(lengths))


def test_a_shard_that_does_not_say_where_documents_end_names_the_setting():
    with pytest.raises(FormatError, match="set end_of_text=ID"):
        len(TokenShard("a shard", "test", np.arange(3), None))


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([2, 4, 6], []),
        ([2, 1, 6], ["document 1 ends at token 1, before its start, 2;"]),
        ([2, 4, 5], ["its last document ends at token 5, but there are 6 tokens"]),
        ([], ["its last document ends at token 0, but there are 6 tokens"]),
    ],
)
@pytest.mark.parametrize("block", [1, 2, shard.BLOCK])
def test_ends_that_cannot_be_are_found_whatever_is_looked_at_together(monkeypatch, ends, said, block):
    monkeypatch.setattr(shard, "BLOCK", block)
    problems = list(end_problems(np.array(ends, np.int64), 6, "an index", lambda number: 8 * number))
    assert len(problems) == len(said)
    assert all(words in problem for words, problem in zip(said, problems, strict=True))


def test_a_file_is_as_long_as_is_said_and_mapped_in_pieces(tmp_path):
    file = tmp_path / "tokens.bin"
    file.write_bytes(np.arange(5, dtype=np.uint16).tobytes())
    assert map_file(file, np.uint16, 3, 4).tolist() == [2, 3, 4]
    assert map_file(file, np.uint16, 0).tolist() == []
    check_size(file, 10, "its header says")
    for expected, said in ((11, "is cut: it ends at byte 10"), (9, "continues after byte 9")):
        with pytest.raises(CorruptionError, match=said):
            check_size(file, expected, "its header says")
