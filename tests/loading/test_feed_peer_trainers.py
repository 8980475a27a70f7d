"""Trainers of TRL, Lightning and GPT-Simple on packed samples, stopped and resumed; skipped without them."""

from pathlib import Path

import datasets
import pytest

import longcrawl as lc

END, WORDS = 7, 97


@pytest.fixture(scope="module")
def feed(load_trainer, tmp_path_factory):
    stock = load_trainer(Path(__file__).parent / "stock_trainer.py")
    folder = tmp_path_factory.mktemp("peers") / "data"
    stock.write(folder)
    return stock.open_feed("packed", folder)


def tiny_model():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ids = {"vocab_size": WORDS, "bos_token_id": END, "eos_token_id": END}
    drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)  # Lightning keeps no state of chance
    return GPT2LMHeadModel(GPT2Config(n_positions=64, n_embd=16, n_layer=1, n_head=2, **ids, **drops))


def word_tokenizer(end, count):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(count)}, unk_token="w0"))  # noqa: S106
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"w{end}", pad_token=f"w{end}")


def examples(feed):
    for number in range(len(feed)):
        yield from lc.loading.collators.for_trl(feed[number])


def test_trl_trains_on_packed_samples_and_goes_on(feed, tmp_path):
    trl = pytest.importorskip("trl", reason="TRL is not installed here: pip install trl")
    tokenizer = word_tokenizer(END, WORDS)
    settings = {"padding_free": True, "max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}}
    settings |= {"max_steps": 6, "save_steps": 3, "per_device_train_batch_size": 2, "logging_steps": 1}
    settings |= {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True}

    def losses(checkpoint=None):
        dataset = datasets.IterableDataset.from_generator(examples, gen_kwargs={"feed": feed})
        trainer = trl.SFTTrainer(
            tiny_model(),
            args=trl.SFTConfig(str(tmp_path), **settings),
            train_dataset=dataset,
            processing_class=tokenizer,
        )
        step, seen = trainer.training_step, []
        trainer.training_step = lambda model, inputs, *rest: (
            seen.append(inputs["input_ids"][0].tolist()),
            step(model, inputs, *rest),
        )[1]
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        return [row["loss"] for row in trainer.state.log_history if "loss" in row], seen

    whole, seen = losses()
    wanted = [example["input_ids"] for example in examples(feed)]
    assert seen == [[*wanted[2 * step], *wanted[2 * step + 1]] for step in range(6)]
    assert losses(tmp_path / "checkpoint-3") == (whole, seen[3:])


def test_lightning_keeps_the_state_of_a_stateful_loader(feed, tmp_path):
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed here: pip install lightning")
    loading = pytest.importorskip("torchdata.stateful_dataloader", reason="stateful loaders are torchdata's")
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses, self.seen = tiny_model(), [], []

        def training_step(self, batch, number):  # noqa: ARG002  # Lightning's
            loss = self.model(**batch, use_cache=False).loss
            self.losses.append(float(loss.detach()))
            self.seen.append(batch["input_ids"].tolist())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    def fit(checkpoint=None):
        saved = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, every_n_train_steps=3)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_steps=6, accelerator="cpu", callbacks=[saved], **quiet)
        module = Module()
        trainer.fit(module, loading.StatefulDataLoader(feed, batch_size=2), ckpt_path=checkpoint)
        return module

    module = fit()
    assert [row for step in module.seen for row in step] == [
        feed[number]["input_ids"][0].tolist() for number in range(12)
    ]
    again = fit(next(tmp_path.glob("*step=3.ckpt")))
    assert (again.seen, again.losses) == (module.seen[3:], module.losses[3:])


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["causal", "sdpa_mask"])
def test_gpt_simple_trains_on_a_feed_and_goes_on(attention, tmp_path, monkeypatch, load_trainer, write_shards):
    train = pytest.importorskip("gpt_simple.train", reason="pip install --no-deps gpt-simple-lm")
    from gpt_simple import _train_loop, _train_setup
    from gpt_simple.config import Config, CurriculumPhase

    monkeypatch.setattr(_train_setup, "StreamingDataModule", _train_setup.StreamingDataModule)
    load_trainer(Path(__file__).parents[2] / "examples" / "train_gpt_simple.py").use_feeds()
    for name in ("train/web", "train/code", "val/web", "val/code"):
        write_shards(tmp_path / "data" / name, [3 + 5 * number % 20 for number in range(80)], 1 + len(name))
    word_tokenizer(0, 2000).save_pretrained(tmp_path / "tokenizer")
    seen, losses, computed = [], [], _train_loop._compute_loss

    def noted(model, batch):
        loss = computed(model, batch)
        if model.training:
            seen.append(batch["input_ids"].tolist())
            losses.append(float(loss.detach()))
        return loss

    monkeypatch.setattr(_train_loop, "_compute_loss", noted)

    def go(out, steps=8):
        seen.clear(), losses.clear()
        made = Config()
        made.model.n_embd, made.model.n_layer, made.model.n_head, made.model.n_positions = 16, 1, 2, 48
        made.model.attention_mode = attention
        made.data.path, made.data.tokenizer, made.data.max_length = (
            str(tmp_path / "data"),
            str(tmp_path / "tokenizer"),
            48,
        )
        made.data.curriculum = [CurriculumPhase(200, {"web": 1.0}), CurriculumPhase(800, {"web": 0.5, "code": 0.5})]
        made.data.allow_budget_mismatch = made.data.allow_bucket_exhaustion = True
        settings = {"per_device_batch_size": 2, "gradient_accumulation_steps": 1, "max_steps": steps, "save_steps": 4}
        settings |= {"logging_steps": 1, "eval_steps": 4, "compile": False, "gradient_checkpointing": False}
        vars(made.training).update(settings, output_dir=str(out), mixed_precision="no")
        vars(made.optimizer).update(warmup_steps=1, decay_steps=8)
        train.train(config=made, skip_runtime_probe=True)
        return list(seen), list(losses)

    whole = go(tmp_path / "whole")
    go(tmp_path / "stopped", steps=4)
    again = go(tmp_path / "stopped")
    assert len(whole[0]) == 8
    assert again == (whole[0][4:], whole[1][4:])
