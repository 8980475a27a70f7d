"""JSON lines that are tokenised while training, against a naive reading, under any topology and interruption."""

import gzip
import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import LoaderError, SourceError
from longcrawl.loading import Jsonl, Packed
from longcrawl.loading.jsonl import JsonFiles, find_json_files
from longcrawl.sources.blocks import RECORD_BYTES, read_blocks

END = 5000
IGNORED = -100
PACKERS = {".jsonl": bytes, ".jsonl.gz": gzip.compress, ".jsonl.zst": zstandard.compress}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    """Return a tokenizer of words w0 to w4998, so that every token of a data set can be told from all others."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{number}": number for number in range(END - 1)} | {"?": END - 1}
    made = Tokenizer(models.WordLevel(words, unk_token="?"))  # noqa: S106  # a token of a text
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<|endoftext|>"])
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


def write(folder: Path, files: list[list[int]], suffix: str = ".jsonl") -> list[list[bytes]]:
    """Write files of documents of so many words, all different, and give their lines."""
    folder.mkdir(parents=True, exist_ok=True)
    number, written = 0, []
    for name, lengths in enumerate(files):
        lines = []
        for length in lengths:
            words = " ".join(f"w{each}" for each in range(number, number + length))
            lines.append(json.dumps({"id": number, "text": words}).encode() + b"\n")
            number += length
        (folder / f"{name}{suffix}").write_bytes(PACKERS[suffix](b"".join(lines)))
        written.append(lines)
    return written


def naive_samples(files, block_bytes, max_length, overlap):
    """Return the pieces of every sample: tokens and labels, block by block."""
    samples = []
    for lines in files:
        block = []
        for line in [*lines, None]:
            if block and (line is None or len(b"".join([*block, line])) > block_bytes):
                samples += naive_block(block, max_length, overlap)
                block = []
            block.append(line)
    return samples


def naive_block(lines, max_length, overlap):
    windows = []
    for line in lines:
        document = [int(word[1:]) for word in json.loads(line)["text"].split()] + [END]
        first, masked = 0, 0
        while True:
            tokens = document[first : first + max_length]
            labels = [IGNORED if place < max(masked, 1) else token for place, token in enumerate(tokens)]
            windows.append((tokens, labels))
            if first + max_length >= len(document):
                break
            first, masked = first + max_length - overlap, overlap
    samples = [[]]
    for window in windows:
        if samples[-1] and sum(len(tokens) for tokens, _ in samples[-1]) + len(window[0]) > max_length:
            samples.append([])
        samples[-1].append(window)
    return samples


def rows_of(batches):
    """Return the samples of the batches of all ranks at one step in global order: pieces of tokens and labels."""
    rows = []
    for row in range(len(batches[0]["input_ids"])):
        for batch in batches:
            filled = int(batch["n_tokens"][row])
            stops = np.cumsum(batch["seq_lengths"][row]).tolist()
            tokens, labels = (np.asarray(batch[name][row]).tolist() for name in ("input_ids", "labels"))
            assert (
                batch["doc_ids"][row].tolist() == np.repeat(np.arange(len(stops)), batch["seq_lengths"][row]).tolist()
            )
            assert set(labels[filled:]) <= {IGNORED}
            starts = [0, *stops[:-1]]
            rows.append([(tokens[a:b], labels[a:b]) for a, b in zip(starts, stops, strict=True) if a < filled])
    return [row for row in rows if row]


def in_segments(path, segments, **fields):
    """Return all global samples of runs that follow each other: (steps, world size, batch size, workers) of each."""
    state, samples = None, []
    for steps, world_size, batch_size in [*segments, (10**6, 1, 2)]:
        feeds = [
            Jsonl(path, rank=rank, world_size=world_size, batch_size=batch_size, last_batch="fill", **fields)
            for rank in range(world_size)
        ]
        for feed in feeds if state else []:
            feed.load_state_dict(state)
        for _, batches in zip(range(steps), zip(*feeds, strict=True), strict=False):
            samples += rows_of(batches)
            states = [feed.state_dict() for feed in feeds]
            assert all(each == states[0] for each in states)
            state = json.loads(json.dumps(states[0]))
    return samples


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 25), max_size=12), min_size=1, max_size=3).filter(any),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 3)), max_size=4),
    st.sampled_from(sorted(PACKERS)),
    st.sampled_from(["none", "files", "blocks"]),
    st.sampled_from([(8, 4), (16, 0), (33, 5)]),
    st.sampled_from([60, 400, 10**6]),
    st.integers(1, 2),
)
def test_every_token_is_delivered_once_however_it_is_interrupted(
    tmp_path_factory, tokenizer, files, segments, suffix, shuffle, sizes, block_bytes, epochs
):
    folder = tmp_path_factory.mktemp("raw")
    suffix = ".jsonl" if shuffle == "blocks" else suffix
    lines = write(folder, files, suffix)
    max_length, overlap = sizes
    fields = {
        "tokenizer": tokenizer,
        "max_length": max_length,
        "overlap_size": overlap,
        "block_bytes": block_bytes,
        "packing": "in-order",
    }
    fields |= {"shuffle": shuffle, "epochs": epochs}
    samples = in_segments(folder, segments, **fields)
    wanted = naive_samples(lines, block_bytes, max_length, overlap)
    assert sorted(samples) == sorted(wanted * epochs)
    assert samples == in_segments(folder, [], **fields)
    if shuffle == "none":
        assert samples == wanted * epochs
    elif shuffle == "blocks" and block_bytes == 60 and len(wanted) > 12 and epochs == 2:  # three files can repeat
        assert samples[: len(wanted)] != samples[len(wanted) :]
    fresh = [token for sample in samples for tokens, labels in sample for token in set(tokens) & set(labels)]
    assert len(set(fresh) - {END}) * epochs == len([token for token in fresh if token != END])


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=20), st.integers(1, 60), st.booleans())
def test_a_plain_file_is_cut_as_a_stream_is(tmp_path_factory, lengths, block_bytes, ended):
    path = tmp_path_factory.mktemp("cut") / "a.jsonl"
    path.write_bytes(b"\n".join(b"x" * length for length in lengths) + b"\n" * ended)
    files = JsonFiles(find_json_files(str(path)), block_bytes, "none", 0)
    blocks = list(files.blocks(0, 0, 0))
    assert [block.read() for block in blocks] == list(read_blocks(str(path), block_bytes))
    for block in blocks:
        assert block.first_line(RECORD_BYTES) == path.read_bytes()[: block.start].count(b"\n")


def test_samples_are_those_of_the_shards_that_tokenize_writes(tmp_path, tokenizer):
    write(tmp_path / "raw", [[5, 0, 90, 3, 8, 1, 30, 64, 63]])
    lc.tokenize(tmp_path / "raw", tmp_path / "out", tokenizer, max_length=64, overlap_size=16)
    fields = {"max_length": 64, "batch_size": 2, "last_batch": "fill"}
    wanted = list(Packed(tmp_path / "out/gpt-simple", shuffle="none", end_of_text=END, **fields))
    found = list(Jsonl(tmp_path / "raw", tokenizer, overlap_size=16, **fields))
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_equal(one[name], other[name])


@pytest.mark.slow
def test_workers_give_the_same_batches_and_the_state_of_what_was_given(tmp_path, tokenizer):
    pytest.importorskip("torch")
    write(tmp_path, [[7, 3, 20] * 10, [5] * 30], ".jsonl.gz")
    fields = {"tokenizer": tokenizer, "max_length": 16, "batch_size": 3, "block_bytes": 200, "packing": _twos}
    wanted = [batch["input_ids"].tolist() for batch in Jsonl(tmp_path, **fields)]
    feed = Jsonl(tmp_path, **fields)
    loader = iter(feed.dataloader(num_workers=2))
    found = [next(loader)["input_ids"].tolist() for _ in range(4)]
    resumed = Jsonl(tmp_path, **fields)
    resumed.load_state_dict(feed.state_dict())
    assert found + [batch["input_ids"].tolist() for batch in resumed.dataloader(num_workers=0)] == wanted
    assert feed.state_dict()["position"] == 12
    with pytest.raises(LoaderError, match="pin_memory cannot be set, since workers give blocks"):
        feed.dataloader(pin_memory=True)


def test_a_feed_finds_compression_by_the_first_bytes(tmp_path, tokenizer):
    write(tmp_path / "plain", [[7, 3, 20] * 10], ".jsonl")
    content = (tmp_path / "plain" / "0.jsonl").read_bytes()
    for name, data in (("0.jsonl", gzip.compress(content)), ("0.jsonl.gz", content)):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(data)
        feeds = [Jsonl(str(folder), tokenizer, max_length=16) for folder in (tmp_path / "plain", tmp_path / name)]
        expected, found = [[batch["input_ids"].tolist() for batch in feed] for feed in feeds]
        assert found == expected


def _twos(lengths, max_length):
    from longcrawl.tokens.packing import plan_packing

    assert len(lengths)
    return plan_packing(lengths, max_length, "separate")


def test_positions_and_padding(tmp_path, tokenizer):
    write(tmp_path, [[2, 1]])
    fields = {"tokenizer": tokenizer, "max_length": 7, "batch_size": 1}
    batch = next(iter(Jsonl(tmp_path, **fields)))
    assert batch["input_ids"].tolist() == [[0, 1, END, 2, END, END, END]]
    assert batch["labels"].tolist() == [[IGNORED, 1, END, IGNORED, END, IGNORED, IGNORED]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1]]
    assert batch["n_tokens"].tolist() == [5]
    batch = next(iter(Jsonl(tmp_path, positions="continuous", pad_token=9, **fields)))
    assert batch["input_ids"].tolist() == [[0, 1, END, 2, END, 9, 9]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 0]]


BROKEN = [b'{"text": "w1"}', b"", b'{"text": "w2"', b'{"body": "w3"}', b'{"text": null}', b"[1]", b'{"text": "w4 w5"}']


@pytest.mark.variants
@pytest.mark.parametrize("suffix", sorted(PACKERS))
def test_a_broken_line_is_named(tmp_path, tokenizer, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACKERS[suffix](b"\n".join([b'{"text": "w0"}'] * 50 + BROKEN)))
    fields = {"tokenizer": tokenizer, "max_length": 8, "batch_size": 1, "block_bytes": 100, "last_batch": "fill"}
    feed = Jsonl(path, **fields)
    assert next(iter(feed))["input_ids"].tolist() == [[0, END] * 4]
    with pytest.raises(SourceError, match=rf"a{suffix}: line 53 is not JSON .*set on_bad_files to 'warn' or 'skip'"):
        list(feed)
    skipping = Jsonl(path, on_bad_files="skip", epochs=2, **fields)
    tokens = [token for batch in skipping for token in batch["input_ids"][0, : batch["n_tokens"][0]].tolist()]
    assert [token for token in tokens if token not in (0, END)] == [1, 4, 5] * 2
    assert sum(bad.records_lost for bad in skipping.bad_files) == 4
    assert {bad.file for bad in skipping.bad_files} == {str(path)}
    if find_spec("torch"):
        with pytest.warns(UserWarning, match=f"a{suffix}: line 53 is not JSON"):
            list(Jsonl(path, on_bad_files="warn", **fields).dataloader(num_workers=1))
    with pytest.raises(
        SourceError, match=r"line 1 has no field 'txt'; its fields: text .*; set text_field= to one of them"
    ):
        list(Jsonl(path, text_field="txt", **fields))


def test_a_damaged_file_gives_the_members_before_the_damage(tmp_path, tokenizer):
    write(tmp_path, [[3] * 400, [4] * 3], ".jsonl.gz")
    whole = (tmp_path / "0.jsonl.gz").read_bytes()
    (tmp_path / "0.jsonl.gz").write_bytes(whole + whole[: len(whole) // 2])
    fields = {"tokenizer": tokenizer, "max_length": 5, "batch_size": 1, "block_bytes": 300}
    feed = Jsonl(tmp_path, on_bad_files="skip", **fields)
    assert len(list(feed)) > 50
    assert [(Path(bad.file).name, bad.records_lost) for bad in feed.bad_files] == [("0.jsonl.gz", None)]
    with pytest.raises(SourceError, match=r"0\.jsonl\.gz: is cut"):
        list(Jsonl(tmp_path, **fields))


def test_a_state_is_of_its_data_order_and_tokenizer(tmp_path, tokenizer):
    write(tmp_path / "raw", [[3] * 30, [4] * 3])
    fields = {"tokenizer": tokenizer, "max_length": 10, "batch_size": 1}
    feed = Jsonl(tmp_path / "raw", **fields)
    next(iter(feed))
    state = feed.state_dict()
    with pytest.raises(LoaderError, match="max_length was 10 and is 12"):
        Jsonl(tmp_path / "raw", **fields | {"max_length": 12}).load_state_dict(state)
    with pytest.raises(LoaderError, match="not a state of a jsonl feed: it lacks sample"):
        feed.load_state_dict({name: value for name, value in state.items() if name != "sample"})
    with pytest.raises(LoaderError, match="epoch -1 of the state is not a number"):
        feed.load_state_dict(state | {"epoch": -1})
    feed.load_state_dict(state | {"sample": 99})
    with pytest.raises(LoaderError, match="where the state is at sample 99: the file has changed"):
        next(iter(feed))
    lines = (tmp_path / "raw/1.jsonl").read_text()
    (tmp_path / "raw/1.jsonl").write_text(lines.replace("w90", "w91"))
    with pytest.raises(LoaderError, match=r"first or last bytes changed of .*1\.jsonl"):
        Jsonl(tmp_path / "raw", **fields).load_state_dict(state)


def test_a_feed_that_has_ended_stays_ended(tmp_path, tokenizer):
    write(tmp_path, [[3] * 5])
    for last_batch in ("drop", "fill"):
        feed = Jsonl(tmp_path, tokenizer, max_length=8, batch_size=2, last_batch=last_batch)
        assert len(list(feed)) == (1 if last_batch == "drop" else 2)
        assert list(feed) == []
    more = Jsonl(tmp_path, tokenizer, max_length=8, batch_size=2, epochs=2)
    more.load_state_dict(feed.state_dict() | {"position": 3})
    assert len(list(more)) == 1


def test_settings_that_do_not_fit(tmp_path, tokenizer, web_server):
    write(tmp_path / "raw", [[3] * 5], ".jsonl.gz")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LoaderError, match=r"shuffle='blocks' reads files from any offset, but .*0\.jsonl\.gz"):
        Jsonl(tmp_path / "raw", tokenizer, shuffle="blocks")
    with pytest.raises(LoaderError, match="overlap_size is from 0 to half of max_length, 4, and is 5"):
        Jsonl(tmp_path / "raw", tokenizer, max_length=8, overlap_size=5)
    with pytest.raises(LoaderError, match="epochs is 0: set it to 1 or more"):
        Jsonl(tmp_path / "raw", tokenizer, epochs=0)
    with pytest.raises(LoaderError, match="a.jsonl does not exist"):
        Jsonl(tmp_path / "a.jsonl", tokenizer)
    with pytest.raises(LoaderError, match=r"tokenizer\.json\.txt is not a JSON lines file"):
        Jsonl([str(tmp_path / "tokenizer.json.txt")], tokenizer)
    with pytest.raises(LoaderError, match="holds no file that can be read; known endings: .jsonl"):
        Jsonl(empty, tokenizer)
    with pytest.raises(LoaderError, match="has 3 samples, not one for each row of 1 batches of 4"):
        list(Jsonl(tmp_path / "raw", tokenizer, max_length=8, batch_size=4))
    remote = Jsonl(f"{web_server(tmp_path)}/raw/0.jsonl.gz", tokenizer, max_length=8, batch_size=3)
    assert len(list(remote)) == 1
    local = Jsonl(tmp_path / "raw", tokenizer, max_length=8, batch_size=3)
    local.load_state_dict(remote.state_dict())
    assert list(local) == []


def test_nothing_is_read_before_it_is_needed(tmp_path, tokenizer):
    write(tmp_path, [[3] * 400])
    with (tmp_path / "0.jsonl").open("a") as file:
        file.write("no JSON\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feed = Jsonl(tmp_path, tokenizer, max_length=8, batch_size=2, block_bytes=500)
        first = next(iter(feed))
    assert first["input_ids"].shape == (2, 8)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_line_that_is_too_long_is_left_out(tmp_path, tokenizer, suffix):
    write(tmp_path, [[3] * 20, [4000], [3] * 20], suffix)
    whole = b"".join(
        gzip.decompress(path.read_bytes()) if suffix.endswith("gz") else path.read_bytes()
        for path in sorted(tmp_path.glob(f"*{suffix}"))
    )
    for path in tmp_path.glob(f"*{suffix}"):
        path.unlink()
    (tmp_path / f"a{suffix}").write_bytes(PACKERS[suffix](whole))
    fields = {"tokenizer": tokenizer, "max_length": 5, "batch_size": 1, "block_bytes": 300, "max_record_bytes": 1_000}
    feed = Jsonl(tmp_path, on_bad_files="skip", **fields)
    assert len(list(feed)) > 20
    assert [bad.records_lost for bad in feed.bad_files] == [1]
    with pytest.raises(SourceError, match="has more than 1,000 bytes"):
        list(Jsonl(tmp_path, **fields))
