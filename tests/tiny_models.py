"""Random models of a few thousand weights with a tokenizer of bytes, made in the test."""

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def byte_tokenizer() -> Any:
    """Return a tokenizer of bytes, with one special token."""
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE({"<|end|>": 0, **{each: number for number, each in enumerate(alphabet, 1)}}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<|end|>")  # noqa: S106  # no secret


def tiny(task: str = "causal", seed: int = 0, positions: int = 64, **settings: Any) -> tuple[Any, Any]:
    """Return a random GPT-2 of two layers for a task, and a tokenizer of bytes."""
    import torch
    from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

    torch.manual_seed(seed)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 257, "n_positions": positions}
    config = GPT2Config(bos_token_id=0, eos_token_id=0, **shape | settings)
    return enlarged((GPT2LMHeadModel if task == "causal" else GPT2ForSequenceClassification)(config)), byte_tokenizer()


def tiny_llama(seed: int = 0, positions: int = 64) -> tuple[Any, Any]:
    """Return a random Llama of two layers with half as many keys as queries, and a tokenizer of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32}
    config = LlamaConfig(
        bos_token_id=0, eos_token_id=0, vocab_size=257, hidden_size=16, max_position_embeddings=positions, **shape
    )
    return enlarged(LlamaForCausalLM(config)), byte_tokenizer()


def tiny_mistral(sliding_window: int) -> tuple[Any, Any]:
    """Return a random Mistral of two layers whose tokens see so many tokens, and a tokenizer of bytes."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    shape = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
    shape |= {"vocab_size": 257, "hidden_size": 16, "max_position_embeddings": 64, "sliding_window": sliding_window}
    return enlarged(MistralForCausalLM(MistralConfig(bos_token_id=0, eos_token_id=0, **shape))), byte_tokenizer()


def tiny_gemma() -> tuple[Any, Any]:
    """Return a random Gemma 2 of two layers, whose attention has a soft cap, and a tokenizer of bytes."""
    import torch
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    shape = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16}
    shape |= {"vocab_size": 257, "hidden_size": 16, "head_dim": 8, "max_position_embeddings": 64}
    return enlarged(Gemma2ForCausalLM(Gemma2Config(**shape))), byte_tokenizer()


def enlarged(model: Any) -> Any:
    """Return a model whose predictions depend on its input: weights as they begin are so small that none does."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model.eval()
