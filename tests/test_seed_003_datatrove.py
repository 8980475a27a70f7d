"""datatrove's tokenized dataset loading, sentence by sentence.

Each test bears the sentence that it tests.
"""

import struct

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_dataset

import longcrawl as lc

END = 50_256


def documents(*lists, dtype=pa.uint16()):
    return pa.table({"tokens": pa.array(lists, pa.list_(dtype))})


# Files.


@pytest.mark.parametrize(("vocabulary", "dtype", "size"), [(50_257, "uint16", 2), (1 << 16, "uint16", 2)])
def test_tokens_of_vocabularies_under_65k_have_two_bytes(tmp_path, vocabulary, dtype, size):
    """The binary format stores tokens as fixed-size integers (2 bytes for vocabularies under 65k …) in a flat file."""
    table = documents([0, vocabulary - 1], [7], dtype=pa.int64())
    lc.formats.datatrove.write([table], tmp_path / "a.ds", vocabulary_size=vocabulary)
    assert (tmp_path / "a.ds").read_bytes() == struct.pack("<3H", 0, vocabulary - 1, 7)
    assert (tmp_path / "a.ds").stat().st_size == 3 * size
    assert lc.formats.datatrove.open(tmp_path / "a.ds").tokens.dtype == dtype


def test_tokens_of_larger_vocabularies_have_four_bytes(tmp_path):
    """… (… and 4 bytes for larger ones) in a flat file."""
    table = documents([0, 128_255], [7], dtype=pa.int64())
    lc.formats.datatrove.write([table], tmp_path / "a.ds", vocabulary_size=128_256)
    assert (tmp_path / "a.ds").read_bytes() == struct.pack("<3I", 0, 128_255, 7)


def test_files_contain_packed_token_sequences_read_without_tokenising(tmp_path):
    """Reading pre-processed binary files that contain packed token sequences, avoiding the overhead of tokenization."""
    lc.formats.datatrove.write([documents([1, 2], [3], [4, 5, 6])], tmp_path / "a.ds", end_of_text=END)
    opened = lc.formats.datatrove.open(tmp_path / "a.ds")
    assert isinstance(opened.tokens, np.memmap)
    assert opened.tokens.tolist() == [1, 2, END, 3, END, 4, 5, 6, END]


def test_a_companion_index_file_contains_document_ends(tmp_path):
    """Document boundaries can be determined from a companion .index file (containing document end … offsets).

    The text says byte offsets; datatrove's own files count tokens, uint64 each, and so do ours.
    """
    lc.formats.datatrove.write([documents([1, 2], [3], [4, 5, 6])], tmp_path / "a.ds", end_of_text=END)
    assert (tmp_path / "a.ds.index").read_bytes() == struct.pack("<3Q", 3, 5, 9)
    assert lc.formats.datatrove.open(tmp_path / "a.ds").ends.tolist() == [3, 5, 9]


def test_boundaries_can_be_found_by_end_of_sequence_tokens(tmp_path):
    """… or by detecting end-of-sequence tokens within the token stream."""
    lc.formats.datatrove.write([documents([1, 2], [3], [4, 5, 6])], tmp_path / "a.ds", end_of_text=END)
    (tmp_path / "a.ds.index").unlink()
    (tmp_path / "a.ds.crc32c").unlink()  # longcrawl's, by which it misses the index
    opened = lc.formats.datatrove.open(tmp_path / "a.ds", token_size=2, end_of_text=END)
    assert opened.ends.tolist() == [3, 5, 9]


def test_the_number_of_tokens_is_the_size_by_the_size_of_a_token(tmp_path):
    """The total number of windows is file_size / token_size / (seq_len + 1); the first two make the tokens."""
    for dtype, size in ((pa.uint16(), 2), (pa.uint32(), 4)):
        lc.formats.datatrove.write([documents(list(range(100)), dtype=dtype)], tmp_path / "a.ds")
        opened = lc.formats.datatrove.open(tmp_path / "a.ds")
        assert len(opened.tokens) == (tmp_path / "a.ds").stat().st_size // size == 100


def test_tokenised_data_are_a_dataset_of_several_files(tmp_path):
    """Tokenized Dataset Loading … with … multi-file aggregation."""
    for number in range(3):
        lc.formats.datatrove.write([documents([number], [number, 9])], tmp_path / f"{number:05d}_tokens.ds")
    data = load_dataset("longcrawl", "datatrove", data_files=str(tmp_path / "*.ds"), split="train")
    assert data["tokens"][:] == [[0], [0, 9], [1], [1, 9], [2], [2, 9]]
    assert data["id"][0] == "00000_tokens.ds:0"


# Windows and positions.


def shard(path, *lists, dtype=pa.uint16()):
    lc.formats.datatrove.write([documents(*lists, dtype=dtype)], path)
    return path


@pytest.mark.parametrize(("dtype", "size"), [(pa.uint16(), 2), (pa.uint32(), 4)])
def test_a_file_is_divided_into_windows_that_do_not_overlap(tmp_path, dtype, size):
    """The dataset divides the binary file into non-overlapping windows of (seq_len + 1) * token_size bytes.

    The total number of windows is file_size / token_size / (seq_len + 1).
    """
    path = shard(tmp_path / "a.ds", list(range(37)), dtype=dtype)
    windows = lc.loading.Windows(path, seq_len=4)
    assert len(windows) == path.stat().st_size // size // 5 == 7
    content = path.read_bytes()
    for number, window in enumerate(windows):
        cut = content[number * 5 * size : (number + 1) * 5 * size]
        assert window["input_ids"].tolist() == np.frombuffer(cut, f"<u{size}").tolist()


def test_the_extra_token_provides_the_target(tmp_path):
    """Each training sample being a contiguous window of seq_len + 1 tokens; the extra token provides the target."""
    window = lc.loading.Windows(shard(tmp_path / "a.ds", list(range(37))), seq_len=4)[2]["input_ids"]
    assert window.shape == (4 + 1,)
    assert (window[:-1] + 1).tolist() == window[1:].tolist()


@pytest.mark.parametrize("positions", ["index", "eos"])
def test_positions_reset_to_0_at_document_boundaries(tmp_path, positions):
    """Positions reset to 0 at document boundaries, which can be determined either from a companion .index file or by
    detecting end-of-sequence tokens within the token stream; training sequences span multiple documents.
    """
    path = shard(tmp_path / "a.ds", [1, 2, END], [1, END], [1, 2, END], [1, 2, 3, 4])
    windows = lc.loading.Windows(path, 9, positions, END)
    assert windows[0]["positions"].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 0, 1]


def test_positions_are_the_cumulative_sum_of_increments(tmp_path):
    """Initialize a vector of ones; at each document boundary, set the increment to prev_end - current_end + 1; take the
    cumulative sum to produce the final position sequence.
    """
    lengths = [3, 9, 1, 1, 14, 2]
    windows = lc.loading.Windows(shard(tmp_path / "a.ds", *[[5] * length for length in lengths]), 14, "index")
    ends = np.cumsum(lengths)
    for number, window in enumerate(windows):
        increments, previous = np.ones(15, np.int64), 0
        increments[0] = 0
        for end in [end - 15 * number for end in ends if 15 * number < end < 15 * (number + 1)]:
            increments[end], previous = previous - end + 1, end
        assert window["positions"].tolist() == np.cumsum(increments).tolist()


def test_random_access_works_and_files_are_kept_open(tmp_path):
    """File handles are kept open between accesses; random access works but incurs seek overhead. Here it has none."""
    windows = lc.loading.Windows(shard(tmp_path / "a.ds", list(range(50))), 4)
    opened = windows._shard(0)
    assert [windows[number]["input_ids"][0] for number in (9, 0, 4, 3, 9)] == [45, 0, 20, 15, 45]
    assert windows._shard(0) is opened


def test_many_files_are_one_dataset(tmp_path):
    """Cumulative length arrays enable O(log n) index-to-file mapping via binary search."""
    for number, length in enumerate((11, 4, 25)):
        shard(tmp_path / f"{number}.ds", list(range(100 * number, 100 * number + length)))
    windows = lc.loading.Windows(tmp_path, 4)
    assert [int(window["input_ids"][0]) for window in windows] == [0, 5, 200, 205, 210, 215, 220]
    assert windows.read(np.array([6, 1, 2]))["input_ids"][:, 0].tolist() == [220, 5, 200]


def test_a_paths_file_caches_files_and_their_sizes(tmp_path):
    """A JSON paths file can cache the list of discovered files and their sizes, with file-level locking to prevent race
    conditions when multiple training workers simultaneously discover and cache file lists.

    Workers that start at once are in tests/loading/test_windows.py.
    """
    shard(tmp_path / "a.ds", list(range(50)))
    first = lc.loading.Windows(tmp_path, 4, paths_file=tmp_path / "list.json")
    assert '"size": 100' in (tmp_path / "list.json").read_text()
    assert (tmp_path / "list.json.lock").exists()
    assert lc.loading.Windows(tmp_path, 4, paths_file=tmp_path / "list.json").files == first.files


def test_moving_over_is_one_import(tmp_path):
    """The tokenized dataset loading, by the names that datatrove gives it."""
    torch = pytest.importorskip("torch")
    shard(tmp_path / "a.ds", [1, 2, END], [1, END], [1, 2, END], [1, 2, 3, 4])
    folder = lc.loading.DatatroveFolderDataset(tmp_path, 9, filename_pattern=".ds", return_positions=True)
    batch = next(iter(torch.utils.data.DataLoader(folder)))
    assert batch["positions"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 0, 1]]
    assert torch.equal(lc.loading.DatatroveFileDataset(tmp_path / "a.ds", 9)[0]["input_ids"], batch["input_ids"][0])
