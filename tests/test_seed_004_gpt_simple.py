"""GPT-Simple's data pipeline, sentence by sentence.

Each test bears the sentence that it tests.
"""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, load_dataset

import longcrawl as lc
from longcrawl.errors import FormatError, LoaderError, StageError

END = 50_256


def documents(*lists, dtype=pa.uint16(), **columns):
    return pa.table({"tokens": pa.array(lists, pa.list_(dtype)), **columns})


# Binary format.


def test_a_shard_is_a_bin_and_an_idx(tmp_path):
    """Each output shard is a .bin + .idx pair."""
    written = lc.formats.gpt_simple.write([documents([1, 2])], tmp_path / "00000")
    checksums = "00000.bin.crc32c"  # no reader of the format looks at it
    assert written.files == tuple(str(tmp_path / name) for name in ("00000.bin", "00000.idx", checksums))
    assert {file.name for file in tmp_path.iterdir()} == {"00000.bin", "00000.idx", checksums}


def test_bin_is_a_flat_array_of_uint16_ids(tmp_path):
    """.bin: a flat array of token IDs (uint16, …)."""
    table = documents([1, 2], [END], dtype=pa.int64())
    lc.formats.gpt_simple.write([table], tmp_path / "a.bin", vocabulary_size=END + 1)
    assert (tmp_path / "a.bin").read_bytes() == struct.pack("<3H", 1, 2, END)


def test_bin_is_uint32_for_large_vocabularies(tmp_path):
    """… (… or uint32 for large vocabularies)."""
    table = documents([1, 128_000], dtype=pa.int64())
    lc.formats.gpt_simple.write([table], tmp_path / "a.bin", vocabulary_size=128_256)
    assert (tmp_path / "a.bin").read_bytes() == struct.pack("<2I", 1, 128_000)


def test_documents_are_back_to_back_each_terminated_with_eod(tmp_path):
    """Documents and windows are concatenated back-to-back, each terminated with an end-of-document (EOD) token."""
    lc.formats.gpt_simple.write([documents([1, 2], [3], [4, END])], tmp_path / "a.bin", end_of_text=END)
    tokens = lc.formats.gpt_simple.open(tmp_path / "a.bin").tokens.tolist()
    assert tokens == [1, 2, END, 3, END, 4, END]


def test_the_header_has_16_bytes_magic_version_type_and_count(tmp_path):
    """.idx: an index with a 16-byte header (magic GPTS, version, dtype code, document count)."""
    lc.formats.gpt_simple.write([documents([1], [2, 3])], tmp_path / "a.bin")
    assert (tmp_path / "a.idx").read_bytes()[:16] == b"GPTS" + struct.pack("<III", 1, 2, 2)


def test_an_int64_array_has_starts_and_a_final_sentinel(tmp_path):
    """An int64 offsets array (token-level start of each entry, plus a final total-count sentinel)."""
    lc.formats.gpt_simple.write([documents([1], [2, 3], [4])], tmp_path / "a.bin")
    offsets = np.frombuffer((tmp_path / "a.idx").read_bytes(), np.int64, 4, offset=16)
    assert offsets.tolist() == [0, 1, 3, 4]


def test_a_uint16_for_each_entry_is_its_overlap_prefix(tmp_path):
    """A per-entry uint16 overlap-prefix length (how many leading tokens are windowing overlap …)."""
    lc.formats.gpt_simple.write([documents([1, 2, 3], [2, 3, 4], overlap=[0, 2])], tmp_path / "a.bin")
    assert (tmp_path / "a.idx").read_bytes()[16 + 3 * 8 :] == struct.pack("<2H", 0, 2)
    assert lc.formats.gpt_simple.open(tmp_path / "a.bin").overlaps.tolist() == [0, 2]


def test_an_overlap_that_uint16_does_not_hold_is_an_error(tmp_path):
    """A per-entry uint16 overlap-prefix length: 70,000 is not 4,464."""
    table = documents([1] * 70_000, [1] * 70_000, overlap=[0, 70_000])
    with pytest.raises(FormatError, match="an overlap of 70,000 tokens, but GPT-Simple's index holds 65,535"):
        lc.formats.gpt_simple.write([table], tmp_path / "a.bin")


def test_bin_is_memory_mapped(tmp_path):
    """The .bin is memory-mapped, so shards far larger than RAM stream with constant memory."""
    lc.formats.gpt_simple.write([documents(list(range(1000)))], tmp_path / "a.bin")
    opened = lc.formats.gpt_simple.open(tmp_path / "a.bin")
    assert isinstance(opened.tokens, np.memmap)
    assert isinstance(opened.document(0), np.memmap)
    data = load_dataset("longcrawl", "gpt-simple", data_files=str(tmp_path / "a.bin"), split="train", streaming=True)
    assert next(iter(data))["tokens"] == list(range(1000))


# Pretokenizing, document windowing and sequence packing.


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    texts = [" ".join(["word"] * (3 + 7 * number)) for number in range(40)]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    (folder / "a.jsonl").write_text("".join(lines[:20]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[20:]).encode()))
    return folder


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory, raw):
    out = tmp_path_factory.mktemp("data") / "tokenized"
    lc.tokenize(raw, out, "trained", max_length=64, overlap_size=16, num_proc=2)
    return lc.formats.open_shard(out / "gpt-simple/train/00000.bin", end_of_text=0)


def test_raw_text_becomes_shards_once_up_front(raw, tokenized):
    """Inputs are .jsonl or .jsonl.gz files with a text field. Each output shard is a .bin + .idx pair."""
    assert np.count_nonzero(tokenized.tokens == 0) == 40
    assert {file.suffix for file in Path(tokenized.path).parent.iterdir()} == {".bin", ".idx", ".crc32c"}


@pytest.mark.slow
def test_the_tokenizer_path_may_be_gpt2(raw, tmp_path, real_data):
    """--tokenizer_path gpt2."""
    lc.tokenize(raw / "a.jsonl", tmp_path / "out", str(real_data / "gpt2.tiktoken"), max_length=2048, overlap_size=256)
    shard = lc.formats.open_shard(tmp_path / "out/gpt-simple/train/00000.bin")
    assert shard.document(0).tolist() == [4775, 1573, 1573, 50256]


def test_documents_longer_than_max_length_are_split(tokenized):
    """Documents longer than max_length are split into windows."""
    lengths = np.diff(tokenized.ends, prepend=0)
    assert lengths.max() == 64
    assert len(tokenized) > 40


def test_consecutive_windows_share_an_overlap(tokenized):
    """Consecutive windows can share an overlap_size-token overlap so the model still sees local context …"""
    later = np.flatnonzero(tokenized.overlaps)
    assert len(later)
    for number in later:
        assert tokenized.overlaps[number] == 16
        assert tokenized.document(number - 1)[-16:].tolist() == tokenized.document(number)[:16].tolist()


def test_the_overlapping_prefix_is_masked(tokenized):
    """The overlapping prefix of each later window is masked out of the loss (label -100) …"""
    packing = lc.tokens.Packing(64, "first-fit", mask_first="none", end_of_text=0)
    made = packing.fill(tokenized, packing.plan(np.diff(tokenized.ends, prepend=0)))
    assert np.count_nonzero(made["labels"] != -100) == len(tokenized.tokens) - int(tokenized.overlaps.sum())


def test_no_token_is_trained_on_twice(tokenized):
    """… to avoid training on the same tokens twice: what is not overlap is each document once."""
    flags = np.ones(len(tokenized.tokens), bool)
    for number in np.flatnonzero(tokenized.overlaps):
        flags[tokenized.start(number) : tokenized.start(number) + 16] = False
    documents = np.split(tokenized.tokens[flags], np.flatnonzero(tokenized.tokens[flags] == 0) + 1)[:-1]
    assert len(documents) == 40
    assert all(document[-1] == 0 and np.count_nonzero(document == 0) == 1 for document in documents)


@pytest.mark.parametrize("overlap", [33, 64])
def test_overlap_must_be_at_most_half(overlap):
    """overlap_size must be at most half of max_length."""
    with pytest.raises(StageError, match="overlap_size must be from 0 to half of max_length, 32 here"):
        lc.tokens.Windows(64, overlap)


@pytest.mark.parametrize("length", [64, 112, 65, 160])
def test_each_document_is_terminated_once(length):
    """Each terminated with an end-of-document (EOD) token: GPT-Simple gives some documents two, or cuts it off."""
    windows = lc.tokens.document_windows([length], 64, 16)
    assert np.count_nonzero(windows.stops == length) == 1
    assert ((windows.stops - windows.starts > windows.overlaps) & (windows.stops - windows.starts <= 64)).all()


def shard_of(*entries, **more):
    tokens = np.array([token for each in entries for token in each], np.uint16)
    return lc.formats.TokenShard("made", "-", tokens, np.cumsum([len(each) for each in entries]), **more)


def packed(shard, max_length, **settings):
    packing = lc.tokens.Packing(max_length, end_of_text=END, padding=0, **settings)
    return packing.fill(shard, packing.plan(np.diff(shard.ends, prepend=0)))


def test_shorter_documents_are_packed_into_one_sequence():
    """Multiple shorter documents are packed into a single max_length sequence to minimize padding …"""
    made = packed(shard_of([1, 2, END], [3, 4, 5, END], [6, END]), 8)
    assert made["input_ids"].shape == (2, 8)
    assert sorted(np.count_nonzero(made["input_ids"], axis=1).tolist()) == [2, 7]


def test_packing_is_length_binned_greedy():
    """… (length-binned greedy packing)."""
    lengths = np.random.default_rng(1).integers(1, 500, 400)
    assert lc.tokens.Packing(512).strategy == "length-binned"
    plan = lc.tokens.Packing(512).plan(lengths)
    assert lengths.sum() / (512 * len(plan)) > 0.95


def test_positions_are_continuous():
    """Positions are continuous (RoPE is not reset at document boundaries)."""
    made = packed(shard_of([1, END], [2, END]), 6)
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 0, 0]]
    assert packed(shard_of([1, END], [2, END]), 6, positions="reset")["position_ids"].tolist() == [[0, 1, 0, 1, 0, 1]]


def test_the_token_after_each_eod_is_masked():
    """The token after each EOD is masked in the loss."""
    made = packed(shard_of([1, END], [2, END]), 6, mask_first="after-end-of-text")
    assert made["labels"].tolist() == [[1, END, -100, END, -100, -100]]


def test_doc_ids_tell_documents_apart():
    """Per-token doc_ids prevent attention across document boundaries; padding has an id of its own."""
    made = packed(shard_of([1, END], [2, END]), 6)
    assert made["doc_ids"].tolist() == [[0, 0, 1, 1, 2, 2]]


def test_buckets_are_subdirectories_of_train_and_val(tmp_path):
    """Buckets are subdirectories of data.path: train/web/*.bin *.idx, …, val/."""
    data = Dataset.from_dict({"id": list("abcd"), "tokens": [[1], [2], [3], [4]], "kind": ["web", "code"] * 2})
    lc.Crawl(data).to_gpt_simple(tmp_path / "out", end_of_text=END, buckets="kind", heldout=1)
    files = sorted(file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.idx"))
    assert files == ["train/code/00000.idx", "train/web/00000.idx", "val/code/00000.idx", "val/web/00000.idx"]


# Two formats: jsonl.


def test_jsonl_is_one_text_per_line_tokenized_on_the_fly(raw, tokenized):
    """Raw .jsonl files (one {"text": ...} per line), tokenized on the fly: the samples are those of the shards."""
    fields = {"max_length": 64, "batch_size": 1, "packing": "in-order"}
    tokenizer = str(Path(tokenized.path).parents[1] / "tokenizer.json")
    found = list(lc.loading.Jsonl(raw / "a.jsonl", tokenizer, overlap_size=16, **fields))
    folder = Path(tokenized.path).parent
    wanted = list(lc.loading.Packed(folder, shuffle="none", end_of_text=0, **fields))
    for one, other in zip(found, wanted[: len(found) - 1], strict=False):
        assert {name: one[name].tolist() for name in ("input_ids", "labels", "position_ids", "doc_ids")} == {
            name: other[name].tolist() for name in ("input_ids", "labels", "position_ids", "doc_ids")
        }
    assert sum(np.count_nonzero(batch["input_ids"][0, : batch["n_tokens"][0]] == 0) for batch in found) == 20


def test_both_formats_have_windows_and_packing(raw, tokenized):
    """It supports two input formats and handles tokenization, long-document windowing, sequence packing …"""
    tokenizer = str(Path(tokenized.path).parents[1] / "tokenizer.json")
    packing = lc.tokens.Packing(64, "length-binned")
    feed = lc.loading.Jsonl(raw, tokenizer, max_length=64, overlap_size=16, batch_size=1, packing=packing)
    batches = list(feed)
    assert max(len(batch["seq_lengths"][0]) for batch in batches) > 2
    counted = sum(np.count_nonzero(batch["labels"] != -100) for batch in batches)
    assert counted == len(tokenized.tokens) - int(tokenized.overlaps.sum()) - np.count_nonzero(tokenized.overlaps == 0)


def test_quick_experiments_need_no_pretokenizing(raw, tokenized, tmp_path):
    """Quick experiments and small datasets: nothing is written, and the first batch needs the first lines alone."""
    lines = (raw / "a.jsonl").read_text() * 50
    (tmp_path / "a.jsonl").write_text(lines + "no JSON\n")
    tokenizer = str(Path(tokenized.path).parents[1] / "tokenizer.json")
    batch = next(iter(lc.loading.Jsonl(tmp_path, tokenizer, max_length=64, batch_size=2, block_bytes=10_000)))
    assert batch["input_ids"].shape == (2, 64)
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_jsonl_has_no_curriculum(raw):
    """No curriculum support."""
    with pytest.raises(TypeError, match="curriculum"):
        lc.loading.Jsonl(raw, curriculum=TWO_PHASES)


def test_jsonl_resumes_exactly_too(raw, tokenized):
    """The pretokenized path resumes the data stream exactly: GPT-Simple says it of that path alone."""
    fields = {"tokenizer": str(Path(tokenized.path).parents[1] / "tokenizer.json"), "max_length": 64}
    whole = [batch["input_ids"][0].tolist() for batch in lc.loading.Jsonl(raw, batch_size=1, **fields)]
    feeds = [lc.loading.Jsonl(raw, batch_size=2, rank=rank, world_size=2, **fields) for rank in range(2)]
    first = [next(iter(feed))["input_ids"].tolist() for feed in feeds]
    seen = [row for rows in zip(*first, strict=True) for row in rows]
    alone = lc.loading.Jsonl(raw, batch_size=1, **fields)
    alone.load_state_dict(feeds[1].state_dict())
    assert seen + [batch["input_ids"][0].tolist() for batch in alone] == whole


# Curriculum, exhaustion and deterministic resume.


@pytest.fixture
def bucketed(tmp_path):
    """Return a folder of buckets web, code, math and wiki with 40 documents of 10 tokens each; all tokens differ."""
    tokens = iter(range(1, 10_000))
    for name in ("train/web", "train/code", "train/math", "train/wiki", "val"):
        (tmp_path / name).mkdir(parents=True)
        lists = [[next(tokens) for _ in range(10)] for _ in range(40)]
        lc.formats.gpt_simple.write([documents(*lists)], tmp_path / name / "00000.bin")
    return tmp_path


def delivered(feeds):
    """Return the tokens of all batches of feeds that run side by side, step by step."""
    return [
        token
        for batches in zip(*feeds, strict=True)
        for batch in batches
        for token in batch["input_ids"].ravel().tolist()
    ]


TWO_PHASES = [
    {"duration_tokens": 200, "mix": {"web": 0.6, "code": 0.2, "math": 0.1, "wiki": 0.1}},
    {"duration_tokens": 200, "mix": {"web": 0.3, "code": 0.3, "math": 0.2, "wiki": 0.2}},
]
DRAINED = [{"duration_tokens": 600, "mix": {"web": 0.8, "code": 0.2}}]


def feed_of(folder, curriculum=TWO_PHASES, **fields):
    return lc.loading.Packed(folder, curriculum, max_length=10, **{"batch_size": 1} | fields)


def test_ordered_phases_mix_buckets_for_a_token_budget(bucketed):
    """A curriculum trains through ordered phases, each mixing data buckets at chosen ratios for a token budget."""
    plan = feed_of(bucketed).plan
    assert [sum(phase.tokens.values()) for phase in plan.phases] == [200, 200]
    large = lc.loading.plan_curriculum(
        [{**phase, "duration_tokens": 100_000} for phase in TWO_PHASES],
        {name: [10] * 20_000 for name in ("web", "code", "math", "wiki")},
    )
    for phase, wanted in zip(large.phases, TWO_PHASES, strict=True):
        for name, share in wanted["mix"].items():
            assert abs(phase.tokens[name] / 100_000 - share) < 0.02


def test_buckets_are_subdirectories(bucketed):
    """Buckets are subdirectories of data.path."""
    assert sorted(feed_of(bucketed).buckets) == ["code", "math", "web", "wiki"]
    with pytest.raises(LoaderError, match="known: 'code', 'math', 'web', 'wiki'"):
        feed_of(bucketed, [{"duration_tokens": 10, "mix": {"books": 1}}])


def test_the_mix_is_drawn_by_a_counter(bucketed):
    """Bucket selection uses a counter-based PRNG so the exact mix is reproducible and resumable."""
    one, other = feed_of(bucketed), feed_of(bucketed, rank=1, world_size=2)
    assert one.plan.picks.tolist() == other.plan.picks.tolist()
    assert feed_of(bucketed, seed=1).plan.picks.tolist() != one.plan.picks.tolist()


def test_a_predicted_shortfall_is_a_blocking_error(bucketed):
    """Validation, false (default): a predicted shortfall (curriculum demand > inventory) is a blocking error."""
    report = lc.loading.validate(bucketed, DRAINED, max_length=10)
    assert not report.ok
    assert "it has 400 tokens, and the curriculum asks for 480" in report.problems[0]
    with pytest.raises(LoaderError, match="bucket 'web' runs dry at sample"):
        feed_of(bucketed, DRAINED)


def test_demand_is_counted_over_all_phases(bucketed):
    """Curriculum demand > inventory: phases that each have enough may not have it together."""
    assert lc.loading.validate(bucketed, [{"duration_tokens": 300, "mix": {"web": 1}}], max_length=10).ok
    assert not lc.loading.validate(bucketed, [{"duration_tokens": 300, "mix": {"web": 1}}] * 2, max_length=10).ok


def test_an_allowed_shortfall_is_a_warning(bucketed):
    """Validation, true: the shortfall is a warning; the run proceeds."""
    with pytest.warns(UserWarning, match="bucket 'web' runs dry"):
        assert len(feed_of(bucketed, DRAINED, on_exhausted="renormalize")) == 60


def test_the_trainer_halts_and_reports_it(bucketed):
    """Runtime, false: saves a checkpoint and reports status halted, rather than silently changing the mix."""
    with pytest.warns(UserWarning, match="the feed halts there"):
        feeds = [feed_of(bucketed, DRAINED, on_exhausted="halt", rank=rank, world_size=2) for rank in range(2)]
    seen = delivered(feeds)
    assert [feed.status.state for feed in feeds] == ["halted"] * 2
    assert "bucket 'web' is exhausted at sample" in feeds[0].status.reason
    assert len(set(seen)) == len(seen) == feeds[0].state_dict()["position"] * 10


def test_the_halt_is_coordinated_across_ranks(bucketed):
    """The halt is coordinated across ranks and fires at the first sign of drift."""
    with pytest.warns(UserWarning, match="the feed halts there"):
        feeds = [
            feed_of(bucketed, DRAINED, on_exhausted="halt", rank=rank, world_size=3, batch_size=2) for rank in range(3)
        ]
    drift, taken = feeds[0].plan.drained[0].sample, 0
    loops = [iter(feed) for feed in feeds]
    while taken + 6 <= drift:
        assert {str(feed.status) for feed in feeds} == {"running"}
        batches, taken = [next(loop) for loop in loops], taken + 6
        assert [len(batch["input_ids"]) for batch in batches] == [2, 2, 2]
        assert [feed.state_dict()["position"] for feed in feeds] == [taken] * 3
    assert {feed.status.state for feed in feeds} == {"halted"}
    assert len({str(feed.status) for feed in feeds}) == 1
    assert [next(loop, None) for loop in loops] == [None] * 3


def test_an_exhausted_bucket_is_dropped_and_weights_renormalised(bucketed):
    """Runtime, true: the loader drops the exhausted bucket and renormalizes the remaining weights."""
    with pytest.warns(UserWarning, match="renormalised"):
        feed = feed_of(bucketed, DRAINED, on_exhausted="renormalize")
    at = feed.plan.drained[0].sample
    names = [feed.plan.names[pick] for pick in feed.plan.picks]
    assert names[:at].count("web") == 40
    assert set(names[at:]) == {"code"}


def test_a_halted_run_goes_on_with_the_flag_set(bucketed):
    """To continue past a halt with a renormalized mix, resume with the flag set."""
    with pytest.warns(UserWarning, match="the feed halts there"):
        halted = feed_of(bucketed, DRAINED, on_exhausted="halt")
    with pytest.warns(UserWarning, match="renormalised"):
        resumed, whole = (feed_of(bucketed, DRAINED, on_exhausted="renormalize") for _ in range(2))
    before = delivered([halted])
    resumed.load_state_dict(halted.state_dict())
    assert before + delivered([resumed]) == delivered([whole])


def test_a_halted_feed_stays_halted(bucketed):
    """The halted status is terminal, so the run doesn't loop on the same exhaustion."""
    with pytest.warns(UserWarning, match="the feed halts there"):
        feed = feed_of(bucketed, DRAINED, on_exhausted="halt")
    list(feed)
    assert list(feed) == []


def test_a_budget_mismatch_is_governed_separately(bucketed):
    """A budget mismatch (curriculum total != tokens the loop consumes) is governed separately."""
    with pytest.raises(LoaderError, match="budgets of 400 tokens and the training takes 800"):
        feed_of(bucketed, training_tokens=800)
    with pytest.warns(UserWarning, match="budgets of 400 tokens and the training takes 800"):
        feed_of(bucketed, training_tokens=800, on_budget_mismatch="warn")


def test_phases_do_not_start_buckets_anew(bucketed):
    """The validator adds up demand over phases; GPT-Simple's second phase gives the first one's documents again."""
    seen = delivered([feed_of(bucketed, [{"duration_tokens": 200, "mix": {"web": 1}}] * 2)])
    assert len(set(seen)) == len(seen) == 400


@pytest.mark.variants
@pytest.mark.parametrize(("before", "after"), [((1, 1), (3, 2)), ((2, 4), (4, 2)), ((4, 1), (1, 4)), ((3, 2), (2, 1))])
def test_a_run_resumes_with_a_different_world_size(bucketed, before, after):
    """A run can resume with a different world_size or num_workers and still consume every document exactly once."""
    whole = delivered([feed_of(bucketed, ())])
    assert sorted(whole) == list(range(1, 1601))
    feeds = [feed_of(bucketed, (), rank=rank, world_size=before[0], batch_size=before[1]) for rank in range(before[0])]
    seen = delivered([[next(iter(feed))] for feed in feeds]) + delivered([[next(iter(feed))] for feed in feeds])
    state = feeds[-1].state_dict()
    feeds = [feed_of(bucketed, (), rank=rank, world_size=after[0], batch_size=after[1], last_batch="fill")
             for rank in range(after[0])]  # fmt: skip
    for feed in feeds:
        feed.load_state_dict(state)
    seen += delivered(feeds)
    assert sorted(token for token in seen if token) == sorted(whole)


@pytest.mark.parametrize(("before", "after"), [pytest.param(0, 2, marks=pytest.mark.slow), (2, 1)])
def test_a_run_resumes_with_a_different_num_workers(bucketed, before, after):
    """A run can resume with a different … num_workers and still consume every document exactly once."""
    pytest.importorskip("torch", reason="worker processes are torch's")
    feed, resumed = feed_of(bucketed, ()), feed_of(bucketed, ())
    loop = iter(feed.dataloader(before))
    seen = delivered([[next(loop), next(loop), next(loop)]])
    resumed.load_state_dict(feed.state_dict())
    seen += delivered([list(resumed.dataloader(after))])
    assert seen == delivered([feed_of(bucketed, ())])
    assert sorted(seen) == list(range(1, 1601))


def test_a_checkpoint_soon_after_a_resume_loses_nothing(bucketed):
    """The pretokenized path resumes the data stream exactly: also when it is stopped again after one batch."""
    whole = delivered([feed_of(bucketed)])
    seen, state = [], feed_of(bucketed).state_dict()
    while len(seen) < len(whole):
        feed = feed_of(bucketed)
        feed.load_state_dict(state)
        seen += next(iter(feed))["input_ids"].ravel().tolist()
        state = feed.state_dict()
    assert seen == whole
