r"""Scores of models on a GPU: tokens a second of long documents, and documents a second of a classifier.

    python benchmarks/gpu_scores.py

Models have random weights: a Llama of 85 million parameters with contexts of 65,536 tokens, and a classifier of BERT's
base. Texts are README.md, again and again, and a token is a byte. The last line is how many times as fast the gain of
bfloat16 is with the GPU's chunks of logits as with those of a CPU.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from _needed import lacks

import longcrawl as lc

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))
CHARACTERS = 65_000
KINDS = (lc.long.InformationGain, lc.long.DependencyScore, lc.long.AttentionDependency)


def seconds(compute: Callable[[], object]) -> float:
    """Return the seconds of a call; what it returns has come from the GPU."""
    started = time.perf_counter()
    compute()
    return time.perf_counter() - started


def save_models(folder: Path) -> None:
    """Save both models with a tokenizer of bytes."""
    import torch
    from tiny_models import byte_tokenizer
    from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12}
    config = LlamaConfig(vocab_size=257, intermediate_size=2_048, max_position_embeddings=1 << 16, **shape)
    models = {"llama": LlamaForCausalLM(config), "bert": BertForSequenceClassification(BertConfig(num_labels=1))}
    for name, model in models.items():
        for each in (model, byte_tokenizer()):
            each.save_pretrained(folder / name)


def main() -> None:
    """Measure, and print."""
    if lacks("torch", packages=["torch"]):
        return
    import torch

    from longcrawl.text import models as scores

    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return
    text = (ROOT / "README.md").read_text("utf-8") * 40
    documents = [text[start : start + CHARACTERS] for start in (0, 1_000)]
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        save_models(folder)

        def rate(kind: type, dtype: str, chunk: int) -> float:
            scores.CUDA_CHUNK = chunk
            stage = kind(str(folder / "llama"), device="cuda", dtype=dtype)
            stage.measures([documents[0][:9_000]])
            return CHARACTERS * len(documents) / seconds(lambda: stage.measures(documents))

        chunk, rates = scores.CUDA_CHUNK, dict[tuple[str, str], float]()
        for kind in KINDS:
            for dtype in ("float32", "bfloat16"):
                rates[kind.__name__, dtype] = rate(kind, dtype, chunk)
                print(f"{kind.__name__:24}{dtype:10}{rates[kind.__name__, dtype]:12,.0f} tokens/s", flush=True)
        texts = pa.array([text[50 * start :][:3_000] for start in range(1_000)], pa.large_string())
        for dtype in ("float32", "bfloat16"):
            stage = lc.text.SequenceClassifier(str(folder / "bert"), device="cuda", dtype=dtype)
            stage.measure(texts[:50])
            found = len(texts) / seconds(lambda stage=stage: stage.measure(texts))
            print(f"{'SequenceClassifier':24}{dtype:10}{found:12,.0f} documents/s of 512 tokens", flush=True)
        before = rate(lc.long.InformationGain, "bfloat16", scores.CHUNK)
    print(f"gpu_scores ratio={rates['InformationGain', 'bfloat16'] / before:.2f}")


if __name__ == "__main__":
    main()
