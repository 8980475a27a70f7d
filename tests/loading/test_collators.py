"""Collated batches against what models do with each document alone."""

import itertools
import re
import sys
from functools import partial

import numpy as np
import pytest

from longcrawl.errors import LoaderError
from longcrawl.loading import Packed, collators
from longcrawl.loading.feed import rows_of

LENGTHS = [7, 9, 3, 5, 12, 4]
MAX_LENGTH = 20
IGNORED = -100
IMPLEMENTATIONS = ["eager", "sdpa"]


@pytest.fixture(scope="module")
def feed(tmp_path_factory, write_shards) -> Packed:
    folder = tmp_path_factory.mktemp("collators")
    write_shards(folder, LENGTHS)
    return Packed(folder, max_length=MAX_LENGTH, batch_size=3, packing="in-order", shuffle="none")


@pytest.fixture(scope="module")
def batch(feed):
    """Return rows of documents of 7, 9 and 3, of 5 and 12, and of 4 tokens; the rest is padding."""
    return feed[0]


@pytest.fixture(scope="module")
def documents(batch):
    """Return row, place and length of every document."""
    places = []
    for row, (lengths, filled) in enumerate(zip(batch["seq_lengths"], batch["n_tokens"], strict=True)):
        starts = np.cumsum(lengths) - lengths
        places += [(row, int(s), int(n)) for s, n in zip(starts, lengths, strict=True) if s < filled]
    return places


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="models and tensors are torch's")


def tiny_model(kind: str, implementation: str):
    import torch
    import transformers

    torch.manual_seed(0)
    ids = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": implementation}
    if kind == "llama":
        config = transformers.LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, **ids
        )
        return transformers.LlamaForCausalLM(config).eval()
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, **ids)).eval()


@pytest.fixture(
    scope="module", params=[(kind, each) for kind in ("llama", "gpt2") for each in IMPLEMENTATIONS], ids=str
)
def model(request, torch):
    return tiny_model(*request.param)


def logits_alone(model, batch, document):
    import torch

    row, start, length = document
    ids = torch.from_numpy(batch["input_ids"][row : row + 1, start : start + length])
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits[0]


def differences(model, batch, documents, inputs) -> list[float]:
    """Give, for each document, how far its logits in a batch are from those that it has alone."""
    import torch

    with torch.no_grad():
        logits = model(**inputs).logits
    return [
        float((logits[row, start : start + length] - logits_alone(model, batch, (row, start, length))).abs().max())
        for row, start, length in documents
    ]


def test_documents_have_the_logits_that_they_have_alone(model, batch, documents):
    found = differences(model, batch, documents, collators.for_transformers(batch))
    assert max(found) < 1e-5


def test_the_loss_is_that_of_the_documents_alone(model, batch, documents, torch):
    with torch.no_grad():
        packed = float(model(**collators.for_transformers(batch)).loss)
    losses = []
    for row, start, length in documents:
        ids = torch.from_numpy(batch["input_ids"][row, start : start + length])
        logits = logits_alone(model, batch, (row, start, length))[:-1]
        losses += torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none").tolist()
    assert packed == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.parametrize("added", ["attention_mask", "use_cache"])
def test_a_mask_of_ones_or_a_cache_lets_documents_see_each_other(model, batch, documents, torch, added):
    inputs = collators.for_transformers(batch)
    assert "attention_mask" not in inputs
    inputs[added] = torch.ones_like(inputs["input_ids"]) if added == "attention_mask" else True
    found = differences(model, batch, documents, inputs)
    alone = [difference < 1e-5 for difference in found]
    assert alone == [start == 0 for _, start, _ in documents]
    assert max(found) > 1e-2


def test_continuous_positions_do_not_reach_the_model(feed, batch):
    continuous = Packed(
        feed.path, max_length=MAX_LENGTH, batch_size=3, packing="in-order", shuffle="none", positions="continuous"
    )[0]
    assert continuous["position_ids"].tolist() != batch["position_ids"].tolist()
    collated = collators.for_transformers(continuous, tensors="numpy")
    assert collated["position_ids"].tolist() == batch["position_ids"].tolist()


def test_flattened_rows_have_borders_for_flash_attention(batch):
    flat = collators.for_flash_attention(batch, tensors="numpy")
    assert flat["cu_seq_lens_q"].tolist() == [0, *np.cumsum(LENGTHS)]
    assert flat["cu_seq_lens_q"].dtype == np.int32
    assert flat["cu_seq_lens_k"].tolist() == flat["cu_seq_lens_q"].tolist()
    assert type(flat["max_length_q"]) is int
    assert flat["max_length_q"] == flat["max_length_k"] == 12
    assert flat["input_ids"].tolist() == [list(range(1, 41))]
    assert flat["position_ids"].tolist() == [[place for length in LENGTHS for place in range(length)]]
    assert [flat["labels"][0, border] for border in flat["cu_seq_lens_q"][:-1]] == [IGNORED] * 6


def test_flattened_padding_is_a_piece_where_it_is_kept(batch):
    flat = collators.for_flash_attention(batch, padding="keep", tensors="numpy")
    assert flat["cu_seq_lens_q"].tolist() == np.cumsum([0, 7, 9, 3, 1, 5, 12, 3, 4, 16]).tolist()
    assert flat["input_ids"].shape == (1, 60)
    assert flat["max_length_q"] == 16


def test_attention_within_those_borders_is_that_of_documents_alone(batch, documents, torch):
    """The varlen kernels' result, as one dense attention per piece, and through a model with its own mask."""
    model = tiny_model("llama", "sdpa")
    flat = collators.for_flash_attention(batch)
    pieces = torch.bucketize(torch.arange(flat["input_ids"].shape[1]), flat["cu_seq_lens_q"][1:], right=True)
    causal = torch.ones(len(pieces), len(pieces)).tril().bool()
    mask = (causal & (pieces[:, None] == pieces[None]))[None, None]
    with torch.no_grad():
        logits = model(
            flat["input_ids"], attention_mask=mask, position_ids=flat["position_ids"], use_cache=False
        ).logits
    for border, document in zip(flat["cu_seq_lens_q"].tolist(), documents, strict=False):
        alone = logits_alone(model, batch, document)
        assert torch.allclose(logits[0, border : border + document[2]], alone, atol=1e-5)


@pytest.mark.parametrize("padding", ["drop", "keep"])
def test_varlen_attention_is_that_under_a_block_diagonal_mask(batch, torch, padding):
    """One attention for each pair of borders, as the varlen kernels do it, against a dense mask of all pieces."""
    flat = collators.for_flash_attention(batch, padding)
    borders, length = flat["cu_seq_lens_q"].tolist(), flat["input_ids"].shape[1]
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, length, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    pairs = list(itertools.pairwise(borders))
    assert max(stop - start for start, stop in pairs) == flat["max_length_q"]
    varlen = [
        attend(*(each[:, :, start:stop] for each in (query, key, value)), is_causal=True) for start, stop in pairs
    ]
    blocks = torch.block_diag(*(torch.ones(stop - start, stop - start).tril() for start, stop in pairs)).bool()
    assert torch.allclose(torch.cat(varlen, 2), attend(query, key, value, attn_mask=blocks), atol=1e-6)


def test_transformers_finds_the_same_borders_in_positions(feed, batch, torch):
    """From positions alone it takes only one row; several become one through the collator, also as a loader's rows."""
    from transformers.modeling_flash_attention_utils import _is_packed_sequence, prepare_fa_kwargs_from_position_ids

    flat = collators.for_flash_attention(batch, padding="keep")
    (borders, _), (longest, _) = prepare_fa_kwargs_from_position_ids(flat["position_ids"])
    assert borders.tolist() == flat["cu_seq_lens_q"].tolist()
    assert longest == flat["max_length_q"]
    assert _is_packed_sequence(flat["position_ids"], 1)
    assert not _is_packed_sequence(collators.for_transformers(batch)["position_ids"], 3)
    single = Packed(feed.path, max_length=MAX_LENGTH, packing="in-order", shuffle="none")
    keep = partial(collators.for_flash_attention, padding="keep")
    loader = torch.utils.data.DataLoader(single, batch_size=3, collate_fn=keep)
    assert next(iter(loader))["cu_seq_lens_q"].tolist() == flat["cu_seq_lens_q"].tolist()


@pytest.mark.slow
def test_flex_attention_keeps_documents_and_padding_apart(batch, torch):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    made = collators.for_flex_attention(batch)
    ids = made["document_ids"]
    assert ids[0].tolist() == [0] * 7 + [1] * 9 + [2] * 3 + [3]
    assert ids[2].tolist() == [0] * 4 + [1] * 16
    assert made["position_ids"][0].tolist() == [*range(7), *range(9), *range(3), 0]
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 2, MAX_LENGTH, 8) for _ in range(3))
    block_mask = create_block_mask(collators.document_mask(ids), 3, None, MAX_LENGTH, MAX_LENGTH, device="cpu")
    found = flex_attention(query, key, value, block_mask=block_mask)
    for row, start, stop in ((0, 0, 7), (0, 7, 16), (0, 16, 19), (1, 5, 17), (2, 0, 4), (2, 4, 20)):
        part = (slice(row, row + 1), slice(None), slice(start, stop))
        alone = torch.nn.functional.scaled_dot_product_attention(query[part], key[part], value[part], is_causal=True)
        assert torch.allclose(found[part], alone, atol=1e-5)


def test_trl_is_given_pieces_without_padding(batch):
    examples = collators.for_trl(batch)
    assert [each["seq_lengths"] for each in examples] == [[7, 9, 3], [5, 12], [4]]
    assert [len(each["input_ids"]) for each in examples] == [19, 17, 4]
    assert examples[1]["labels"][:6] == [IGNORED, 21, 22, 23, 24, IGNORED]
    assert examples[1]["input_ids"] == list(range(20, 37))


def test_the_collator_of_trl_makes_the_same_of_them(batch):
    trl = pytest.importorskip("trl.trainer.sft_trainer", reason="TRL is not installed here")
    made = trl.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)(collators.for_trl(batch))
    flat = collators.for_flash_attention(batch)
    for name in ("input_ids", "labels", "position_ids", "cu_seq_lens_q"):
        assert made[name].tolist() == flat[name].tolist()
    assert "attention_mask" not in made


def test_torchtitan_is_given_shifted_labels(batch):
    inputs, labels = collators.for_torchtitan(batch, tensors="numpy")
    assert sorted(inputs) == ["input", "positions"]
    assert inputs["input"].tolist() == batch["input_ids"].tolist()
    assert inputs["positions"].tolist() == batch["position_ids"].tolist()
    wanted = [*range(2, 8), IGNORED, *range(9, 17), IGNORED, 18, 19, IGNORED, IGNORED]
    assert labels[0].tolist() == wanted


def test_a_list_of_batches_is_one(feed, batch):
    single = list(Packed(feed.path, max_length=MAX_LENGTH, batch_size=1, packing="in-order", shuffle="none"))
    for collate in (collators.for_transformers, collators.for_flash_attention, collators.for_flex_attention):
        one, other = collate(batch, tensors="numpy"), collate(single, tensors="numpy")
        assert {name: np.asarray(value).tolist() for name, value in one.items()} == {
            name: np.asarray(value).tolist() for name, value in other.items()
        }


def test_rows_are_collated_like_the_batch_that_they_are_of(batch):
    rows = rows_of(batch)
    assert collators.for_trl(rows) == collators.for_trl(batch)
    for name in ("for_transformers", "for_flash_attention", "for_flex_attention"):
        collate = getattr(collators, name)
        one, other = collate(rows, tensors="numpy"), collate(batch, tensors="numpy")
        assert set(one) == set(other)
        assert all(np.array_equal(one[field], other[field]) for field in one), name
    (one, labels), (other, wanted) = (collators.for_torchtitan(each, tensors="numpy") for each in (rows, batch))
    assert set(one) == set(other)
    assert all(np.array_equal(one[field], other[field]) for field in other)
    assert np.array_equal(labels, wanted)


def test_of_a_row_without_padding_or_without_labels_all_is_kept(batch):
    row = {name: values[:19] for name, values in rows_of(batch)[0].items()}
    assert [each["seq_lengths"] for each in collators.for_trl([row])] == [[7, 9, 3]]
    assert collators.for_flash_attention([row], tensors="numpy")["input_ids"].shape == (1, 19)
    masked = {"input_ids": np.arange(4), "labels": np.full(4, IGNORED), "position_ids": np.arange(4)}
    assert collators.for_flash_attention([masked], tensors="numpy")["input_ids"].tolist() == [[0, 1, 2, 3]]


def test_tensors_are_collated_like_arrays(feed, batch, torch):
    tensors = next(
        iter(Packed(feed.path, max_length=MAX_LENGTH, batch_size=3, packing="in-order", shuffle="none").dataloader())
    )
    assert isinstance(tensors["input_ids"], torch.Tensor)
    one, other = collators.for_transformers(tensors), collators.for_transformers(batch)
    for name in ("input_ids", "labels", "position_ids"):
        assert one[name].equal(other[name])
        assert one[name].dtype == torch.int64


def test_torch_collates_with_it(feed, torch):
    single = Packed(feed.path, max_length=MAX_LENGTH, batch_size=1, packing="in-order", shuffle="none")
    loader = torch.utils.data.DataLoader(single.iterable(), batch_size=2, collate_fn=collators.for_transformers)
    assert [tuple(batch["input_ids"].shape) for batch in loader] == [(2, MAX_LENGTH), (1, MAX_LENGTH)]


def test_a_row_of_padding_alone_is_no_example(feed):
    filled = Packed(
        feed.path, max_length=MAX_LENGTH, batch_size=4, packing="in-order", shuffle="none", last_batch="fill"
    )[0]
    assert len(collators.for_trl(filled)) == 3
    assert collators.for_flash_attention(filled, tensors="numpy")["cu_seq_lens_q"].tolist()[-1] == 40
    assert set(collators.for_flex_attention(filled, tensors="numpy")["document_ids"][3].tolist()) == {0}


def test_what_is_no_batch_is_refused():
    said = (
        "this is not a batch of Packed: it lacks input_ids, labels, n_tokens, seq_lengths; pass a batch from "
        "iterating a feed"
    )
    with pytest.raises(LoaderError, match=re.escape(said)):
        collators.for_transformers({"doc_ids": np.zeros((1, 2))})
    with pytest.raises(LoaderError, match="it lacks rows"):
        collators.for_transformers([])


@pytest.mark.parametrize(
    "collate",
    [
        collators.for_transformers,
        collators.for_flash_attention,
        collators.for_flex_attention,
        collators.for_torchtitan,
        partial(collators.for_context_parallel, rank=0, size=1),
    ],
)
def test_an_unknown_word_is_refused(batch, collate):
    with pytest.raises(LoaderError, match="tensors takes one of 'torch', 'numpy', got 'jax'"):
        collate(batch, tensors="jax")


@pytest.mark.parametrize("tensors", ["numpy", "torch"])
def test_an_unknown_treatment_of_padding_is_refused(batch, tensors):
    with pytest.raises(LoaderError, match="padding takes one of 'drop', 'keep', got 'mask'"):
        collators.for_flash_attention(batch, padding="mask", tensors=tensors)


def test_without_torch_it_says_what_to_do(batch, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LoaderError, match=re.escape('pip install "longcrawl[torch]", or tensors="numpy"')):
        collators.for_transformers(batch)
