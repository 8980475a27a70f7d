"""A stock Trainer on every feed: what it reads, what it predicts, and that it goes on exactly and on two ranks."""

import itertools
import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import LoaderError
from longcrawl.loading import collators
from longcrawl.loading.feed import AskedOrder
from longcrawl.loading.integrations.transformers import (
    check_context,
    check_documents,
    check_resume,
    samples_per_step,
)

SCRIPT = Path(__file__).parents[1] / "stock_trainer.py"
KINDS = ("rectangle", "packed", "windows", "buckets", "mixture")
FEEDS = ("rectangle", "packed", "buckets")
PACKED_FIRST = [pytest.param(kind, marks=() if kind == "packed" else pytest.mark.slow) for kind in KINDS]
"""All kinds assert the same of one mechanism, so the suite runs one of them."""


@pytest.fixture(scope="module")
def stock(load_trainer):
    return load_trainer(SCRIPT)


@pytest.fixture(scope="module")
def folder(stock, tmp_path_factory):
    made = tmp_path_factory.mktemp("trainer") / "data"
    stock.write(made)
    return made


@pytest.fixture(scope="module")
def rows_of(stock, folder):
    """Return the ids of all rows of a feed, in its own order."""

    def rows(kind):
        feed = stock.open_feed(kind, folder)
        if kind == "windows":
            return [window["input_ids"].tolist() for window in feed]
        name = "text" if kind == "rectangle" else "input_ids"
        return [row for batch in feed for row in batch[name].tolist()]

    return rows


def made_tokenizer():
    from transformers import PreTrainedTokenizerFast

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"w": 0}, unk_token="w"))  # noqa: S106
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w")  # noqa: S106


def flat(steps):
    return [row for step in steps for row in step]


@pytest.mark.parametrize("kind", PACKED_FIRST)
def test_a_stopped_training_goes_on_with_the_losses_of_one_that_was_not(kind, stock, folder, rows_of, tmp_path):
    whole = stock.train(stock.open_feed(kind, folder), tmp_path)
    assert flat(whole.seen) == rows_of(kind)[: len(flat(whole.seen))]
    again = stock.train(stock.open_feed(kind, folder), tmp_path, tmp_path / "checkpoint-5", dataloader_num_workers=1)
    assert again.seen == whole.seen[5:]
    assert stock.losses(again) == stock.losses(whole)
    assert len(set(stock.losses(whole))) == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", [each for each in PACKED_FIRST if each.values[0] in FEEDS])
def test_the_trainers_own_order_is_warned_of_and_goes_on_too(kind, stock, folder, rows_of, tmp_path):
    with pytest.warns(UserWarning, match="in another order than the feed's: set shuffle=False, or train_sampling"):
        whole = stock.train(stock.open_feed(kind, folder), tmp_path, train_sampling_strategy="random", seed=2)
    assert flat(whole.seen) != rows_of(kind)[: len(flat(whole.seen))]
    assert sorted(flat(whole.seen)) == sorted(row for row in rows_of(kind) if row in flat(whole.seen))
    again = stock.train(
        stock.open_feed(kind, folder), tmp_path, tmp_path / "checkpoint-5", train_sampling_strategy="random", seed=2
    )
    assert stock.losses(again) == stock.losses(whole)


@pytest.mark.slow
def test_with_a_tokenizer_the_collator_keeps_documents_apart(stock, folder, tmp_path):
    """Trainer's own collator for a tokenizer adds a mask of ones, with which documents see each other."""
    tokenizer = made_tokenizer()
    named = {"processing_class": tokenizer, "data_collator": collators.for_transformers}
    plain, given, masked = (
        stock.losses(stock.train(stock.open_feed("packed", folder), tmp_path, objects=objects))
        for objects in ({}, named, {"processing_class": tokenizer})
    )
    assert plain == given != masked


@pytest.mark.slow
def test_rows_end_to_end_train_as_rows(stock, folder, tmp_path):
    """As FlashAttention takes them; here without its kernels, by positions."""
    rows, flat = (
        stock.losses(stock.train(stock.open_feed("packed", folder), tmp_path, dropout=0.0, objects=objects))
        for objects in ({}, {"data_collator": collators.for_flash_attention})
    )
    assert flat == pytest.approx(rows, rel=1e-5)


@pytest.mark.slow
def test_lines_are_trained_on_as_an_iterable(stock, tmp_path):
    known = {f"w{number}": number for number in range(90)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="w0"))  # noqa: S106
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<|endoftext|>"])
    words.save(str(tmp_path / "tokenizer.json"))
    lines = (json.dumps({"text": " ".join(f"w{number % 90}" for number in range(length))}) for length in range(80))
    (tmp_path / "raw.jsonl").write_text("\n".join(lines))
    feed = lc.loading.Jsonl(tmp_path / "raw.jsonl", str(tmp_path / "tokenizer.json"), max_length=24)
    with pytest.raises(TypeError, match=r"give a Trainer feed.iterable\('rows'\)"):
        stock.train(feed, tmp_path)
    whole, again = (
        stock.train(feed.iterable("rows"), tmp_path, checkpoint, dataloader_num_workers=workers)
        for checkpoint, workers in ((None, 0), (tmp_path / "checkpoint-5", 1))
    )
    assert flat(whole.seen) == [row for number in range(16) for row in feed[number]["input_ids"].tolist()]
    assert stock.losses(again) == stock.losses(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACKED_FIRST)
def test_a_checkpoint_of_other_data_is_refused_where_that_is_asked(kind, stock, folder, tmp_path):
    def train(out, data, checkpoint=None, **settings):
        feed = stock.open_feed(kind, data)
        check = {"callbacks": [lc.integrations.transformers.check_feed(feed)]}
        stock.train(feed, out, checkpoint, objects=check, **settings)

    train(tmp_path / "out", folder)
    train(tmp_path / "out", folder, tmp_path / "out/checkpoint-5")
    with pytest.raises(
        LoaderError, match=r"the checkpoint had . samples a step, \d+ in all, and .* goes on at \d+: keep"
    ):
        train(tmp_path / "out", folder, tmp_path / "out/checkpoint-5", gradient_accumulation_steps=3)
    with pytest.raises(LoaderError, match="with ignore_data_skip the epoch starts over after 5 steps: remove it"):
        train(tmp_path / "out", folder, tmp_path / "out/checkpoint-5", ignore_data_skip=True)
    other = tmp_path / "other"
    stock.write(other, seed=1)
    with pytest.raises(LoaderError, match="this state does not match .* as opened here: "):
        train(tmp_path / "out", other, tmp_path / "out/checkpoint-5")
    stock.train(stock.open_feed(kind, folder), tmp_path / "without")
    with pytest.warns(UserWarning, match="the checkpoint has no feed state: its data cannot be compared"):
        train(tmp_path / "without", other, tmp_path / "without/checkpoint-5")


def test_a_check_refuses_what_lets_documents_see_each_other(stock, folder, tmp_path):
    import transformers

    feed = stock.open_feed("packed", folder)
    check = lc.integrations.transformers.check_feed(feed)
    tokenizer = made_tokenizer()
    with pytest.raises(LoaderError, match="attend to each other: pass data_collator=.*for_transformers"):
        stock.train(feed, tmp_path, objects={"processing_class": tokenizer, "callbacks": [check]})
    with pytest.raises(LoaderError, match="flash_attention_2 separates documents only in one row: pass data_collator="):
        check_documents(
            SimpleNamespace(train_batch_size=2),
            SimpleNamespace(config=SimpleNamespace(_attn_implementation="flash_attention_2")),
            SimpleNamespace(collate_fn=transformers.default_data_collator),
        )


def test_ranks_of_one_context_share_their_samples_and_drop_masks(stock, folder):
    accelerate = pytest.importorskip("accelerate", reason="context parallelism of a Trainer is accelerate's")
    args = SimpleNamespace(train_batch_size=3, gradient_accumulation_steps=2, world_size=8)
    feed = stock.open_feed("packed", folder)
    for sizes, samples in (({}, 48), ({"cp_size": 2, "dp_shard_size": 4}, 24)):
        args.parallelism_config = accelerate.ParallelismConfig(**sizes)
        assert samples_per_step(args) == samples
    with pytest.raises(
        LoaderError, match="with cp_size=2 accelerate lets documents in a row attend to each other: set"
    ):
        check_context(args, feed)
    check_context(args, replace(feed, packing="separate"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACKED_FIRST)
def test_several_epochs_in_the_feeds_order_are_no_other_order(kind, stock, folder, tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*another order")
        made = stock.train(stock.open_feed(kind, folder), tmp_path, max_steps=-1, num_train_epochs=3)
    epoch = len(made.seen) // 3
    assert made.seen[:epoch] == made.seen[epoch : 2 * epoch]


def test_the_targets_of_a_rectangle_are_predicted_but_the_last_of_each_row(stock, folder):
    feed = stock.open_feed("rectangle", folder, batch_size=3)
    batch = feed[1] | {"loss_mask": np.arange(3 * stock.LENGTH).reshape(3, -1) % 5 != 0}
    made = collators.for_transformers(batch, tensors="numpy")
    predicted = made["labels"][:, 1:]  # as the loss of transformers reads labels
    assert np.array_equal(predicted, np.where(batch["loss_mask"], batch["targets"], -100)[:, :-1])
    assert np.array_equal(made["input_ids"], batch["text"])


def test_the_targets_of_windows_are_all_predicted(stock, folder):
    windows = stock.open_feed("windows", folder)
    rows = windows.__getitems__([3, 0])
    for number, row in zip((3, 0), rows, strict=True):
        window = windows[number]
        assert not window["loss_mask"].all()
        wanted = np.where(window["loss_mask"], window["input_ids"], -100)
        assert row["labels"].tolist() == [-100, *wanted[1:].tolist()]
        assert row["position_ids"].tolist() == window["positions"].tolist()
        assert {name: row[name].tolist() for name in window} == {name: each.tolist() for name, each in window.items()}


@pytest.mark.parametrize("kind", FEEDS)
def test_rows_are_those_of_the_collator_and_collators_take_rows(kind, stock, folder):
    feed = stock.open_feed(kind, folder, **({} if kind == "buckets" else {"batch_size": 3}))
    rows, whole = feed.__getitems__([1]), collators.for_transformers(feed[1], tensors="numpy")
    assert {name: [row[name].tolist() for row in rows] for name in rows[0]} == {
        name: values.tolist() for name, values in whole.items() if name != "use_cache"
    }
    again = collators.for_transformers(rows, tensors="numpy")
    assert all(np.array_equal(again[name], whole[name]) for name in whole)
    if kind != "rectangle":
        from_rows = collators.for_flash_attention(rows, padding="keep", tensors="numpy")
        from_batch = collators.for_flash_attention(feed[1], padding="keep", tensors="numpy")
        assert all(np.array_equal(from_rows[name], from_batch[name]) for name in from_batch)


def test_what_both_would_do_is_refused(stock, folder):
    with pytest.raises(LoaderError, match="divides batches among ranks, and this feed has world_size=2: open it"):
        stock.open_feed("packed", folder, world_size=2).__getitems__([0])
    with pytest.raises(LoaderError, match=r"2 batches of up to 3 rows.* of the DataLoader or of the feed to 1"):
        stock.open_feed("packed", folder, batch_size=3).__getitems__([0, 1])
    with pytest.raises(
        LoaderError, match="2 batches of up to 6 rows at once: set batch_size .* of the DataLoader to 1"
    ):
        stock.open_feed("buckets", folder).__getitems__([0, 1])
    sorted_steps = stock.open_feed("buckets", folder, schedule="short-first")
    with pytest.raises(LoaderError, match="train_sampling_strategy='sequential' .*, as a curriculum or schedule is"):
        list(map(sorted_steps.__getitems__, ([3], [9], [1], [5], [4])))


def test_every_process_of_a_loader_asks_in_order():
    """Each rank and worker has every n-th group; the last group is filled with the first rows."""
    for group, readers in itertools.product((1, 2, 3), (1, 2, 5)):
        groups = [[place % 30 for place in range(first, first + group)] for first in range(0, 30 + group, group)]
        for reader in range(readers):
            mine = groups[reader::readers]
            resumed, stopped = AskedOrder(), AskedOrder()
            assert all(resumed.follows(asked) for asked in (*mine[len(mine) // 2 :], *mine, *mine))
            assert all(stopped.follows(asked) for asked in (*mine[:3], *mine, *mine))


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3, 5]))
def test_a_shuffled_order_is_found_out(seed, group):
    numbers = np.random.default_rng(seed).permutation(30).tolist()
    order = AskedOrder()
    assert not all(order.follows(numbers[first : first + group]) for first in range(0, 30, group))


@pytest.mark.slow
def test_batches_that_one_rank_reads_for_all_are_the_same(stock, folder, tmp_path):
    dispatch = {"accelerator_config": {"dispatch_batches": True}}
    plain = stock.train(stock.open_feed("packed", folder), tmp_path / "plain")
    feed = stock.open_feed("packed", folder)
    check = {"callbacks": [lc.integrations.transformers.check_feed(feed)]}
    stock.train(feed, tmp_path, objects=check, **dispatch)
    again = stock.train(feed, tmp_path, tmp_path / "checkpoint-5", objects=check, **dispatch)
    assert again.seen == plain.seen[5:]
    assert stock.losses(again) == stock.losses(plain)
    with pytest.raises(LoaderError, match="skips too few batches for 2 ranks: resume with accelerator_config="):
        check_resume(SimpleNamespace(world_size=2), again.callback_handler.train_dataloader)


@pytest.mark.slow
def test_two_ranks_train_as_one_with_twice_the_batch(stock, folder, tmp_path):
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    (tmp_path / "two").mkdir()
    subprocess.run([sys.executable, *ranks, SCRIPT, folder, tmp_path / "two"], check=True, capture_output=True)
    two = [json.loads((tmp_path / "two" / f"{rank}.json").read_text()) for rank in range(2)]
    for kind in KINDS:
        doubled = {"gradient_accumulation_steps": 2} if kind == "buckets" else {"per_device_train_batch_size": 4}
        alone = stock.train(stock.open_feed(kind, folder), tmp_path / kind, dropout=0.0, **doubled)
        assert two[0][kind]["losses"] == pytest.approx(stock.losses(alone), rel=1e-5)
        steps = zip(two[0][kind]["seen"], two[1][kind]["seen"], strict=True)
        assert [row for step in steps for row in flat(step)] == flat(alone.seen)
    for rank in two:
        dispatched = rank["dispatched"]
        assert {name: dispatched[name] for name in ("losses", "seen")} == rank["packed"]
        assert "skips too few batches for 2 ranks: resume with accelerator_config=" in dispatched["refused"]
        assert dispatched["again"] == dispatched["losses"]
