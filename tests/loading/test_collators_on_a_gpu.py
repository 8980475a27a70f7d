"""Feeds on a GPU: documents in kernels of FlashAttention and FlexAttention, and a stock Trainer that resumes."""

from pathlib import Path

import numpy as np
import pytest

from longcrawl.loading import Packed, collators

pytestmark = pytest.mark.usefixtures("gpu")

LENGTHS = [700, 90, 33, 5, 1_200, 400, 256, 17]
HEADS, WIDTH = 4, 64


@pytest.fixture(scope="module")
def packed(tmp_path_factory, write_shards):
    path = tmp_path_factory.mktemp("packed")
    write_shards(path, LENGTHS)
    return Packed(path, max_length=1_536, batch_size=3, packing="in-order", shuffle="none")


def llama(implementation):
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=8_192,
        hidden_size=HEADS * WIDTH,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=2_048,
        attn_implementation=implementation,
    )
    return transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()


def varlen(module, query, key, value, attention_mask, **found):  # as transformers calls it
    """Attend as FlashAttention does between the borders that the collator wrote, with torch's kernels of it."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (each[0].transpose(0, 1).contiguous() for each in (query, key, value))
    borders = found["cu_seq_lens_q"], found["cu_seq_lens_k"]
    made = varlen_attn(query, key, value, *borders, found["max_length_q"], found["max_length_k"], window_size=(-1, 0))
    return made[None], None


def pieces_alone(batch):
    """Return the ids of each document of a batch, in order."""
    import torch

    for row, (lengths, filled) in enumerate(zip(batch["seq_lengths"], batch["n_tokens"], strict=True)):
        starts = np.cumsum(lengths) - lengths
        for start, length in zip(starts, lengths, strict=True):
            if start < filled:
                yield torch.from_numpy(batch["input_ids"][row : row + 1, start : start + length]).to("cuda")


def on_gpu(made):
    import torch

    return {name: each.to("cuda") if isinstance(each, torch.Tensor) else each for name, each in made.items()}


def test_documents_of_a_packed_batch_are_alone_in_kernels_of_flash_attention(packed, torch):
    from transformers import AttentionInterface

    pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no kernels of FlashAttention of its own")
    AttentionInterface.register("varlen", varlen)
    batch = packed[0]
    inputs = on_gpu(collators.for_flash_attention(batch))
    alone = llama("sdpa")
    with torch.inference_mode():
        logits = llama("varlen")(**inputs).logits[0]
        expected = torch.cat([alone(ids, use_cache=False).logits[0] for ids in pieces_alone(batch)])
    assert logits.shape == expected.shape
    assert len(inputs["cu_seq_lens_q"]) == len(LENGTHS) + 1
    # bfloat16 has eight bits; where documents saw each other, the difference is that of unlike logits.
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()


def test_documents_of_a_packed_batch_are_alone_in_compiled_flex_attention(packed, torch):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    ids = collators.for_flex_attention(packed[0])["document_ids"].to("cuda")
    rows, length = ids.shape
    torch.manual_seed(0)
    query, key, value = torch.randn(3, rows, HEADS, length, WIDTH, device="cuda", dtype=torch.bfloat16)
    mask = create_block_mask(collators.document_mask(ids), rows, None, length, length, device="cuda")
    found = torch.compile(flex_attention)(query, key, value, block_mask=mask)
    dense = (ids[:, None, :, None] == ids[:, None, None, :]) & torch.ones(length, length, device="cuda").tril().bool()
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=dense)
    assert (found - expected).abs().max() < 0.02


@pytest.mark.parametrize("kind", ["rectangle", "packed", "windows", "buckets", "mixture"])
def test_a_stopped_training_goes_on_with_the_losses_of_one_that_was_not(kind, load_trainer, tmp_path):
    stock = load_trainer(Path(__file__).parent / "stock_trainer.py")
    stock.write(tmp_path / "data")
    whole = stock.train(stock.open_feed(kind, tmp_path / "data"), tmp_path, use_cpu=False)
    assert whole.model.device.type == "cuda"
    again = stock.train(
        stock.open_feed(kind, tmp_path / "data"),
        tmp_path,
        tmp_path / "checkpoint-5",
        use_cpu=False,
        dataloader_num_workers=2,
    )
    assert again.seen == whole.seen[5:]
    assert stock.losses(again) == stock.losses(whole)
