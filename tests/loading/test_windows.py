"""Windows against seed 003's own formulas, under any topology, from any file, and their limits."""

import itertools
import json
import pickle
import re
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from window_shards import END, copy_to, table, write

import longcrawl as lc
from longcrawl.errors import CorruptionError, FormatError, LoaderError, NotYetError
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.io import file_systems
from longcrawl.loading import Windows
from longcrawl.loading.window_files import _open_remote


def by_cumulative_sum(length: int, ends) -> np.ndarray:
    """Positions in a window by the text of seed 003: ones, at ends prev_end - current_end + 1, then the running sum."""
    positions, previous = np.ones(length, np.int64), -1
    for end in [0, *sorted({end for end in ends if 0 < end < length})]:
        positions[end], previous = previous - end + 1, end
    return np.cumsum(positions)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 60), max_size=40), seq_len=st.integers(1, 70), data=st.data())
def test_windows_and_positions_are_those_of_the_seed(tmp_path_factory, lengths, seq_len, data):
    path = tmp_path_factory.mktemp("shards") / "a.ds"
    tokens, ends = write(path, lengths), np.cumsum(lengths)
    count = len(tokens) // (seq_len + 1)
    if not count:
        with pytest.raises(LoaderError, match="no window"):
            Windows(path, seq_len)
        return
    by_index = Windows(path, seq_len, "index")
    by_token = Windows(path, seq_len, "eos", END)
    assert len(by_index) == len(by_token) == count
    assert by_index.tokens_left_out == len(tokens) - count * (seq_len + 1)
    for number in data.draw(st.permutations(range(count)), "random order"):
        start = number * (seq_len + 1)
        for windows in (by_index, by_token):
            window = windows[number]
            assert window["input_ids"].dtype == window["positions"].dtype == np.int64
            np.testing.assert_array_equal(window["input_ids"], tokens[start : start + seq_len + 1])
            np.testing.assert_array_equal(window["positions"], by_cumulative_sum(seq_len + 1, ends - start))


@pytest.mark.slow
def test_windows_of_every_length_up_to_two_thousand(tmp_path):
    lengths = np.random.default_rng(0).geometric(1 / 60, 90).tolist()
    tokens, places = write(tmp_path / "a.ds", lengths)[:4001], np.arange(4001)
    starts_of_documents = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)[:4001]
    for seq_len in range(1, 2001):
        batch = Windows(tmp_path / "a.ds", seq_len, "index", max_tokens=4001).read(np.arange(4001 // (seq_len + 1)))
        read = batch["input_ids"].size
        np.testing.assert_array_equal(batch["input_ids"].ravel(), tokens[:read])
        starts_of_windows = places - places % (seq_len + 1)
        counted = places - np.maximum(starts_of_documents, starts_of_windows)
        np.testing.assert_array_equal(batch["positions"].ravel(), counted[:read])
    wanted = [by_cumulative_sum(2001, np.cumsum(lengths) - number * 2001) for number in range(len(batch["positions"]))]
    np.testing.assert_array_equal(batch["positions"], wanted)


@pytest.mark.parametrize("positions", ["index", "eos"])
def test_an_empty_document_does_not_lose_the_reset(tmp_path, positions):
    lc.formats.datatrove.write([table([[1, 2, 3, END], [], [], [1, 2, 3, 4, 5, END]])], tmp_path / "a.ds")
    windows = Windows(tmp_path / "a.ds", 9, positions, END)
    assert windows[0]["positions"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]


files_of_lengths = st.lists(st.lists(st.integers(0, 25), max_size=8), min_size=1, max_size=6)


@settings(deadline=None)
@given(
    files=files_of_lengths,
    seq_len=st.integers(1, 12),
    tail=st.sampled_from(["drop", "pad"]),
    max_tokens=st.none() | st.integers(0, 200),
)
def test_many_files_are_windows_of_each_after_the_other(tmp_path_factory, files, seq_len, tail, max_tokens):
    folder, wanted, numbers = tmp_path_factory.mktemp("shards"), [], []
    left = max_tokens
    for number, lengths in enumerate(files):
        tokens = write(folder / f"{number}.ds", lengths, seed=number)
        taken = tokens if left is None else tokens[:left]
        left = None if left is None else left - len(taken)
        length = seq_len + 1
        whole = len(taken) // length
        last = len(taken) == len(tokens) and len(tokens) % length and tail == "pad"
        for start in range(0, (whole + bool(last)) * length, length):
            wanted.append(np.append(taken, np.full(length, 9))[start : start + length])
            ends = np.append(np.cumsum(lengths), len(tokens))
            numbers.append(by_cumulative_sum(length, ends - start))
    options = {"positions": "index", "tail": tail, "pad_token": 9, "max_tokens": max_tokens}
    if not wanted:
        with pytest.raises(LoaderError, match="no window"):
            Windows(folder, seq_len, **options)
        return
    windows = Windows(folder, seq_len, **options)
    batch = windows.read(np.arange(len(windows)))
    np.testing.assert_array_equal(batch["input_ids"], wanted)
    np.testing.assert_array_equal(batch["positions"], numbers)
    np.testing.assert_array_equal([window["input_ids"] for window in windows], wanted)
    by_token = Windows(folder, seq_len, **(options | {"positions": "eos", "end_of_text": END}))
    np.testing.assert_array_equal(by_token.read(np.arange(len(windows)))["positions"], numbers)
    if tail == "pad" and max_tokens is None:
        assert int(batch["loss_mask"].sum()) == sum(file.tokens for file in windows.files)


def test_padding_is_a_document_of_its_own_that_does_not_count(tmp_path):
    lc.formats.datatrove.write([table([[1, 2, 3], [4, 5, END]])], tmp_path / "a.ds")
    window = Windows(tmp_path / "a.ds", 3, "index", tail="pad", pad_token=0)[1]
    assert window["input_ids"].tolist() == [5, END, 0, 0]
    assert window["positions"].tolist() == [0, 1, 0, 1]
    assert window["loss_mask"].tolist() == [True, True, False, False]


def drain(folder, seq_len, shuffle, plan, leftover, seed):
    """Read as trainers that stop and go on under other topologies; give all windows in the order of their steps."""
    state, seen = None, []
    for world_size, batch_size, steps, workers in plan:
        ranks = [
            Windows(folder, seq_len, shuffle=shuffle, seed=seed).batches(batch_size, rank, world_size, leftover)
            for rank in range(world_size)
        ]
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(json.loads(json.dumps(state)))
        loops = [iter(rank if workers is None else rank.dataloader(workers)) for rank in ranks]
        for _ in range(steps):
            for at, loop in enumerate(loops):
                batch = next(loop, None)
                if batch is None:
                    loops[at] = iter(ranks[at])
                    batch = next(loops[at])
                seen += np.asarray(batch["input_ids"]).tolist()
        states = [rank.state_dict() for rank in ranks]
        assert all(each == states[0] for each in states)
        state = states[0]
    return seen, state


topologies = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.sampled_from([None, 0])),
    min_size=1,
    max_size=5,
)
with_workers = st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0, 2]))


@settings(deadline=None)
@given(
    files=st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=5), min_size=1, max_size=4),
    shuffle=st.sampled_from(["none", "files", "windows"]),
    plan=topologies,
    seed=st.integers(0, 5),
)
def test_every_window_comes_once_in_each_pass_through_stops_and_topologies(
    tmp_path_factory, files, shuffle, plan, seed
):
    check_passes(tmp_path_factory.mktemp("shards"), files, shuffle, plan, seed)


@pytest.mark.slow
@settings(deadline=None, max_examples=4)
@given(shuffle=st.sampled_from(["files", "windows"]), plan=st.lists(with_workers, min_size=1, max_size=2))
def test_numbers_of_worker_processes_that_change_at_stops_change_nothing(tmp_path_factory, shuffle, plan):
    check_passes(tmp_path_factory.mktemp("shards"), [[9, 7], [25]], shuffle, plan, 1)


def check_passes(folder, files, shuffle, plan, seed):
    """Compare what a plan of stops gives with the orders of its passes, and these with what is stored."""
    pytest.importorskip("torch")
    for number, lengths in enumerate(files):
        write(folder / f"{number}.ds", [4, *lengths], seed=number)
    windows = Windows(folder, 3, shuffle=shuffle, seed=seed)
    seen, state = drain(folder, 3, shuffle, plan, "carry", seed)
    passes = -(-len(seen) // len(windows))
    orders = [windows.read(np.arange(len(windows)), number)["input_ids"].tolist() for number in range(passes)]
    assert seen == [window for order in orders for window in order][: len(seen)]
    assert state["position"] == len(seen)
    stored = sorted(Windows(folder, 3).read(np.arange(len(windows)))["input_ids"].tolist())
    assert all(sorted(order) == stored for order in orders)


@settings(deadline=None)
@given(
    count=st.integers(1, 40),
    world_size=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    stop=st.integers(0, 10),
    other=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_a_short_end_gives_each_window_once_in_one_loop(tmp_path_factory, count, world_size, batch_size, stop, other):
    path = tmp_path_factory.mktemp("shards") / "a.ds"
    write(path, [count * 3 + 1])
    state, seen = None, []
    for (ranks, size), steps in (((world_size, batch_size), stop), (other, None)):
        feeds = [Windows(path, 2).batches(size, rank, ranks, "short") for rank in range(ranks)]
        for feed in feeds if state else []:
            feed.load_state_dict(state)
        if state and state["position"] == count:
            break
        for parts in zip(*(itertools.islice(feed, steps) for feed in feeds), strict=True):
            seen += [start for part in parts for start in part["input_ids"][:, 0].tolist()]
        states = [feed.state_dict() for feed in feeds]
        assert all(each == states[0] for each in states)
        state = states[0]
        assert state["position"] == len(seen)
    assert seen == Windows(path, 2).read(np.arange(count))["input_ids"][:, 0].tolist()


def test_a_pass_that_drops_its_end_has_full_steps_only(tmp_path):
    tokens = write(tmp_path / "a.ds", [35])
    feeds = [Windows(tmp_path / "a.ds", 2).batches(2, rank, 2, "drop") for rank in range(2)]
    for _ in range(2):
        read = [list(feed) for feed in feeds]
        assert [len(each) for each in read] == [2, 2] == [len(feed) for feed in feeds]
        both = np.concatenate(
            [np.concatenate([one["input_ids"], two["input_ids"]]) for one, two in zip(*read, strict=True)]
        )
        np.testing.assert_array_equal(both.ravel(), tokens[:24])
    assert feeds[0].state_dict()["position"] == 22
    np.testing.assert_array_equal(feeds[1][-1]["input_ids"], read[1][1]["input_ids"])


@pytest.mark.slow
def test_a_loader_of_torch_reads_single_windows_in_order(tmp_path):
    torch = pytest.importorskip("torch")
    for number in range(3):
        write(tmp_path / f"{number}.ds", [40, 13, 9], seed=number)
    plain = Windows(tmp_path, 4, "index", shuffle="windows", seed=3)
    by_torch = torch.utils.data.DataLoader(plain, batch_size=5, num_workers=1, multiprocessing_context="spawn")
    read = torch.cat([batch["input_ids"] for batch in by_torch]).numpy()
    np.testing.assert_array_equal(read, plain.read(np.arange(len(plain)))["input_ids"])


def test_shuffled_files_keep_their_windows_together(tmp_path):
    for number in range(6):
        write(tmp_path / f"{number}.ds", [30], seed=number)
    plain = Windows(tmp_path, 4).read(np.arange(36))["input_ids"].reshape(6, 6, 5).tolist()
    passes = [
        Windows(tmp_path, 4, shuffle="files", seed=1).read(np.arange(36), number)["input_ids"].reshape(6, 6, 5).tolist()
        for number in range(3)
    ]
    assert all(sorted(each) == sorted(plain) for each in passes)
    assert len({json.dumps(each) for each in [plain, *passes]}) == 4


def shard_of(name: str, folder: Path, documents) -> Path:
    path = folder / f"a{FORMATS[name].suffix}"
    getattr(lc.formats, name.replace("-", "_")).write([table(documents)], path, end_of_text=END)
    return path


@pytest.mark.variants
@pytest.mark.parametrize("name", sorted({*FORMATS.loaded()} - {"datatrove"}))
def test_windows_of_every_format_are_those_of_datatroves(tmp_path, name):
    documents = [[1, 2, 3, END], [4, END], [5, 6, 8, 9, END]]
    lc.formats.datatrove.write([table(documents)], tmp_path / "a.ds")
    path = shard_of(name, tmp_path, documents)
    options = {"token_size": 2, "format": name} if name == "nanogpt" else {}
    ours = Windows(path, 4, "index", END, **options)
    wanted = Windows(tmp_path / "a.ds", 4, "index").read(np.arange(2))
    for column, values in ours.read(np.arange(len(ours))).items():
        np.testing.assert_array_equal(values, wanted[column])


def test_a_loss_mask_of_the_file_reaches_the_window(tmp_path):
    flags = pa.array([[True, False, True], [True, True, False]], pa.list_(pa.bool_()))
    lc.formats.datatrove.write([table([[1, 2, 3], [4, 5, 6]], loss_mask=flags)], tmp_path / "a.ds")
    assert Windows(tmp_path / "a.ds", 2).read(np.arange(2))["loss_mask"].tolist() == flags.to_pylist()
    assert "loss_mask" not in Windows(tmp_path / "a.ds", 2, loss_mask="off")[0]
    lc.formats.datatrove.write([table([[1, 2, 3]])], tmp_path / "0.ds")
    with pytest.raises(LoaderError, match="loss_mask='on'"):
        list(Windows(tmp_path, 2))
    assert [window["loss_mask"].sum() for window in Windows(tmp_path, 2, loss_mask="on")] == [3, 2, 2]


def test_overlaps_have_no_loss(tmp_path):
    overlap = pa.array([0, 2, 1], pa.uint32())
    documents = [[1, 2, 3, 4], [3, 4, 5], [5, 6, 8, END, 9]]
    lc.formats.gpt_simple.write([table(documents, overlap=overlap)], tmp_path / "a.bin")
    windows = Windows(tmp_path / "a.bin", 5)
    flat = windows.read(np.arange(2))["loss_mask"].ravel().tolist()
    assert flat == [True, True, True, True, False, False, True, False, True, True, True, True]


def test_stored_and_narrow_types(tmp_path):
    write(tmp_path / "a.ds", [20])
    assert Windows(tmp_path / "a.ds", 4, dtype="store")[0]["input_ids"].dtype == np.uint16
    narrow = Windows(tmp_path / "a.ds", 4, "index", dtype="int32")[0]
    assert [values.dtype for values in narrow.values()] == [np.int32, np.int32]
    write(tmp_path / "b.ds", [20], np.uint32)
    with pytest.raises(LoaderError, match=re.escape("b.ds has uint32, other files uint16")):
        list(Windows(tmp_path, 4, dtype="store"))
    assert len(list(Windows(tmp_path, 4))) == 8


@pytest.mark.parametrize("shuffle", ["none", "windows"])
def test_remote_files_are_read_by_range(tmp_path, shuffle):
    for number in range(3):
        write(tmp_path / "deep" / f"{number}.ds", [40, 0, 13, 9], np.uint32 if number else np.uint16, seed=number)
    copy_to(f"memory://windows-{shuffle}", tmp_path)
    local, far = (Windows(where, 6, "index", shuffle=shuffle) for where in (tmp_path, f"memory://windows-{shuffle}"))
    assert [file.tokens for file in far.files] == [62, 62, 62]
    for name, values in local.read(np.arange(len(local))).items():
        np.testing.assert_array_equal(far.read(np.arange(len(far)))[name], values)
    padded = Windows(f"memory://windows-{shuffle}/deep/*.ds", 6, "eos", END, tail="pad", pad_token=0)
    wanted = Windows(tmp_path / "deep", 6, "eos", END, tail="pad", pad_token=0)
    for one, other in zip(padded, wanted, strict=True):
        assert {name: values.tolist() for name, values in one.items()} == {n: v.tolist() for n, v in other.items()}
    state = local.batches().state_dict()
    far.batches().load_state_dict(state)
    assert pickle.loads(pickle.dumps(far))[3]["input_ids"].tolist() == local[3]["input_ids"].tolist()


def test_windows_come_from_a_web_server(tmp_path, web_server):
    tokens = write(tmp_path / "a.ds", [40, 13, 9])
    url = f"{web_server(tmp_path)}/a.ds"
    windows = Windows(url, 6, "index")
    np.testing.assert_array_equal(windows.read(np.arange(8))["input_ids"].ravel(), tokens[:56])
    np.testing.assert_array_equal(windows[6]["positions"], Windows(tmp_path / "a.ds", 6, "index")[6]["positions"])


@pytest.mark.slow
@pytest.mark.parametrize("before", [[503], [429], [500], [0]], ids=str)
def test_windows_ask_a_server_again_that_does_not_answer_now(tmp_path, web_server, monkeypatch, before):
    """Listing, sizes, ends, checksums, samples and windows: each is refused once before it is answered."""
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "_silent", set())
    for name in ("a", "b"):
        write(tmp_path / f"{name}.ds", [40, 13, 9], seed=ord(name))
    url = web_server(tmp_path, before=before)
    far, near = Windows(f"{url}/*.ds", 6, "index"), Windows(tmp_path, 6, "index")
    assert [file.path for file in far.files] == [f"{url}/a.ds", f"{url}/b.ds"]
    for name, values in near.read(np.arange(len(near))).items():
        np.testing.assert_array_equal(far.read(np.arange(len(far)))[name], values)
    far.batches(2).load_state_dict(near.batches(2).state_dict())


def test_windows_of_a_server_that_stays_silent_or_lacks_a_file_are_one_sentence(tmp_path, web_server, monkeypatch):
    monkeypatch.setattr(file_systems, "PAUSE", 0.001)
    monkeypatch.setattr(file_systems, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(file_systems, "_silent", set())
    write(tmp_path / "a.ds", [40, 13, 9])
    silent = web_server(tmp_path, before=[503] * 999)
    for paths in (f"{silent}/a.ds", f"{silent}/*.ds", [f"{silent}/a.ds"]):
        with pytest.raises(NotYetError, match=r"cannot be fetched now \(ClientResponseError: 503.*same command"):
            Windows(paths, 6)
    for status in (404, 410):
        with pytest.raises(FormatError, match=r"no file .*/a\.ds"):
            Windows([f"{web_server(tmp_path, before=[status] * 999)}/a.ds"], 6)


def test_remote_files_that_do_not_belong_together_are_refused(tmp_path):
    write(tmp_path / "a.ds", [40])
    copy_to("memory://broken", tmp_path)
    files, root = fsspec.core.url_to_fs("memory://broken/a.ds")
    files.pipe_file(root, (tmp_path / "a.ds").read_bytes()[:-2])
    with pytest.raises(CorruptionError, match="index ends at token 40"):
        Windows("memory://broken", 4)
    files.rm(f"{root}.index")
    with pytest.raises(FormatError, match="token_size"):
        Windows("memory://broken", 4)
    with pytest.raises(CorruptionError, match="not a whole number of tokens"):
        Windows("memory://broken", 4, token_size=4)
    assert len(Windows("memory://broken", 4, token_size=2)) == 7
    with pytest.raises(FormatError, match="no .index"):
        Windows("memory://broken", 4, "index", token_size=2)[0]
    with pytest.raises(FormatError, match="only .ds"):
        Windows("memory://broken/a.ds", 4, format="megatron")
    with pytest.raises(FormatError, match="no file memory://broken/b.ds"):
        Windows(["memory://broken/b.ds"], 4)


def test_reading_on_fetches_ahead_and_jumping_does_not(tmp_path, monkeypatch):
    write(tmp_path / "a.ds", [4_000])
    (tmp_path / "a.ds.crc32c").unlink()
    copy_to("memory://ahead", tmp_path)
    shard, fetched = _open_remote("memory://ahead/a.ds", 2), []
    assert shard.count == 4_000
    files = fsspec.filesystem("memory")
    read = files.cat_file

    def noted(path, start=None, end=None):
        fetched.extend([end - start] if end else [])
        return read(path, start, end)

    monkeypatch.setattr(files, "cat_file", noted, raising=False)
    out = np.empty((1, 10), np.int64)
    for start in (0, 10, 20, 3_000, 100):
        shard.copy(np.array([start]), 0, out)
    assert fetched == [8_000]
    shard = _open_remote("memory://ahead/a.ds", 2)
    fetched.clear()
    for start in (3_000, 100, 110):
        shard.copy(np.array([start]), 0, out)
    assert fetched == [20, 20, 7_780]


def test_a_state_is_refused_with_the_name_of_what_changed(tmp_path):
    for number in range(3):
        write(tmp_path / "data" / f"{number}.ds", [30], seed=number)
    state = Windows(tmp_path / "data", 4).batches(2).state_dict()
    assert len(json.dumps(state)) < 500

    def refused(pattern, **options):
        with pytest.raises(LoaderError, match=pattern):
            Windows(tmp_path / "data", options.pop("seq_len", 4), **options).batches(3).load_state_dict(state)

    refused("seq_len was 4 and is 5", seq_len=5)
    refused("shuffle was 'none' and is 'windows'", shuffle="windows")
    write(tmp_path / "data" / "1.ds", [30], seed=9)
    refused(r"first or last bytes changed of .*1\.ds")
    write(tmp_path / "data" / "1.ds", [31], seed=1)
    refused("bytes was 180 and is 182")
    write(tmp_path / "data" / "1.ds", [30], seed=1)
    (tmp_path / "data" / "2.ds").rename(tmp_path / "data" / "4.ds")
    (tmp_path / "data" / "2.ds.index").rename(tmp_path / "data" / "4.ds.index")
    Windows(tmp_path / "data", 4).batches().load_state_dict(state)
    write(tmp_path / "data" / "2.ds", [30], seed=2)
    refused("files was 3 and is 4")


@pytest.mark.variants
@pytest.mark.parametrize("where", ["here", "memory://changes"])
def test_a_state_is_of_what_windows_hold(tmp_path, where):
    """Tokens in the middle, ends that move, a loss mask that comes later: no size, first or last byte tells of them."""
    shard = tmp_path / "a.ds"
    tokens = write(shard, [4000] * 500)
    Path(f"{shard}.crc32c").unlink()
    folder = tmp_path if where == "here" else where

    def accepted(state=None, **options):
        if where != "here":
            copy_to(where, tmp_path)
        feed = Windows(folder, 63, "index", **options).batches(4)
        if state is not None:
            feed.load_state_dict(state)
        return feed.state_dict()

    state = accepted()
    accepted(state)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:1_000_000] + bytes(40_000) + whole[1_040_000:])
    refusal = r"size, sampled, first or last bytes changed of .*a\.ds or its index or loss mask"
    with pytest.raises(LoaderError, match=refusal):
        accepted(state)
    shard.write_bytes(whole)
    accepted(state)
    index = Path(f"{shard}.index")
    ends = np.frombuffer(index.read_bytes(), "<u8")
    np.append(ends[:-1] + np.uint64(1), ends[-1:]).tofile(index)
    with pytest.raises(LoaderError, match=refusal):
        accepted(state)
    ends.tofile(index)
    np.zeros(len(tokens), np.bool_).tofile(f"{shard}.loss")
    with pytest.raises(LoaderError, match=f"loss_mask was False and is True, {refusal}"):
        accepted(state)
    with pytest.raises(LoaderError, match=refusal):
        accepted(state, loss_mask="off")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"positions": "none"}, "positions was 'index' and is 'none'"),
        ({"positions": "eos", "end_of_text": END}, "positions was 'index' and is 'eos', end_of_text was None and is 7"),
        ({"loss_mask": "on"}, "loss_mask was False and is True"),
        ({"tail": "pad", "pad_token": 3}, "tail was 'drop' and is 'pad', pad_token was None and is 3, loss_mask was"),
    ],
)
def test_a_state_is_of_the_settings_that_change_windows(tmp_path, options, said):
    write(tmp_path / "a.ds", [30])
    state = Windows(tmp_path, 4, "index").batches(2).state_dict()
    Windows(tmp_path, 4, "index", dtype="int32", loss_mask="off").batches(3).load_state_dict(state)
    with pytest.raises(LoaderError, match=re.escape(said)):
        Windows(tmp_path, 4, **({"positions": "index"} | options)).batches(3).load_state_dict(state)


def test_names_count_where_they_make_the_order(tmp_path):
    for number in range(3):
        write(tmp_path / f"{number}.ds", [30], seed=number)
    state = Windows(tmp_path, 4, shuffle="files").batches(2).state_dict()
    (tmp_path / "2.ds").rename(tmp_path / "4.ds")
    (tmp_path / "2.ds.index").rename(tmp_path / "4.ds.index")
    with pytest.raises(LoaderError, match="opened here: names was"):
        Windows(tmp_path, 4, shuffle="files").batches(2).load_state_dict(state)


@pytest.mark.slow
def test_of_many_files_a_state_stays_small_and_says_among_which_the_change_is(tmp_path):
    for number in range(300):
        write(tmp_path / f"{number:03d}.ds", [5], seed=number)
    state = Windows(tmp_path, 4).batches(2).state_dict()
    assert len(state["data"]) == 150
    write(tmp_path / "007.ds", [5], seed=999)
    with pytest.raises(LoaderError, match=r"a file from .*006\.ds to .*007\.ds"):
        Windows(tmp_path, 4).batches(2).load_state_dict(state)


def test_a_state_is_good_for_a_copy_elsewhere(tmp_path):
    for number in range(2):
        write(tmp_path / "here" / "in" / f"{number}.ds", [30], seed=number)
        write(tmp_path / "there" / f"{number}.ds", [30], seed=number)
    feed = Windows(tmp_path / "here", 4, shuffle="windows").batches(2)
    next(iter(feed))
    moved = Windows(str(tmp_path / "there" / "*.ds"), 4, shuffle="windows").batches(5)
    moved.load_state_dict(feed.state_dict())
    assert moved.state_dict()["position"] == 2


@pytest.mark.variants
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 0}, "seq_len 0"),
        ({"positions": "eos"}, "needs end_of_text"),
        ({"positions": "ends"}, "one of 'none', 'index', 'eos'"),
        ({"tail": "pad"}, "needs pad_token"),
        (
            {"tail": "pad", "pad_token": 70_000, "dtype": "store"},
            "not an id of uint16 tokens: set it from 0 to 65,535",
        ),
        ({"max_tokens": -1}, "max_tokens -1"),
        ({"seq_len": 30}, "no window of 31 tokens: the longest file has 30"),
        ({"paths_file": "memory://list.json"}, "cannot be locked"),
        ({"paths": "no-such-folder"}, "has no token files"),
        ({"paths": []}, "paths is empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, options, message):
    write(tmp_path / "a.ds", [30])
    with pytest.raises(LoaderError, match=re.escape(message)):
        Windows(**({"paths": tmp_path, "seq_len": 4} | options))


@pytest.mark.parametrize("where", ["here", "memory://vocabulary"])
def test_ids_are_compared_with_a_vocabulary_as_they_are_read(tmp_path, where):
    lc.formats.datatrove.write([table([[1, 2, 3, 4], [5, 300, 7, 8]])], tmp_path / "a.ds")
    copy_to("memory://vocabulary", tmp_path)
    folder = tmp_path if where == "here" else where
    windows = Windows(folder, 3, vocabulary_size=300)
    assert windows[0]["input_ids"].tolist() == [1, 2, 3, 4]
    said = r"a\.ds, token 5, has id 300, the vocabulary has 300: check vocabulary_size"
    for read in (lambda: windows[1], lambda: list(windows.batches(2))):
        with pytest.raises(CorruptionError, match=said):
            read()
    assert len(list(Windows(folder, 3, vocabulary_size=301, dtype="store"))) == 2
    with pytest.raises(
        lc.LongCrawlError, match="has id 300 at byte 10" if where == "here" else "downloaded completely"
    ):
        Windows(folder, 3, vocabulary_size=300, check="everything")[0]
    for options, message in (
        ({"pad_token": 300}, "pad_token 300 is not an id of"),
        ({"vocabulary_size": 0}, "must be 1"),
    ):
        with pytest.raises(LoaderError, match=message):
            Windows(folder, 3, **({"vocabulary_size": 300} | options))


@pytest.mark.parametrize("where", ["here", "memory://ends"])
def test_positions_are_not_numbered_by_an_index_that_is_damaged(tmp_path, where):
    write(tmp_path / "a.ds", [5] * 40)
    (tmp_path / "a.ds.crc32c").unlink()
    ends = np.fromfile(tmp_path / "a.ds.index", "<u8")
    ends[20] = 5
    ends.tofile(tmp_path / "a.ds.index")
    copy_to("memory://ends", tmp_path)
    folder = tmp_path if where == "here" else where
    with pytest.raises(CorruptionError, match=r"a\.ds\.index is damaged at byte 160: document 20 ends at token 5"):
        Windows(folder, 4, "index")[0]
    assert len(list(Windows(folder, 4))) == 40
    with pytest.raises(CorruptionError, match="damaged at byte 160"):
        Windows(folder, 4, check="ends")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0: set it to 1 or more"),
        ({"batch_size": 4, "world_size": 2, "leftover": "drop"}, "6 windows do not fill a step of 8"),
        ({"leftover": "wrap"}, "one of 'carry'"),
    ],
)
def test_batches_that_cannot_be_are_refused(tmp_path, options, message):
    write(tmp_path / "a.ds", [30])
    with pytest.raises(LoaderError, match=re.escape(message)):
        Windows(tmp_path, 4).batches(**options)


def test_indexes_outside_are_index_errors_and_negative_ones_count_from_the_end(tmp_path):
    write(tmp_path / "a.ds", [30])
    windows = Windows(tmp_path, 4)
    assert windows[-1]["input_ids"].tolist() == windows[5]["input_ids"].tolist()
    for wrong in (6, -7):
        with pytest.raises(IndexError):
            windows[wrong]
        with pytest.raises(IndexError):
            windows.read(np.array([0, wrong]))


def test_files_without_ends_and_of_the_wrong_width_are_errors(tmp_path):
    write(tmp_path / "a.ds", [30])
    (tmp_path / "a.ds.crc32c").unlink()
    with pytest.raises(CorruptionError):
        Windows(tmp_path / "a.ds", 4, token_size=4)
    (tmp_path / "a.ds.index").unlink()
    with pytest.raises(FormatError, match="token_size"):
        Windows(tmp_path / "a.ds", 4)
    windows = Windows(tmp_path / "a.ds", 4, "index", token_size=2)
    with pytest.raises(FormatError, match="does not record where its documents end"):
        windows[0]
