"""TRL's and Lightning's trainers on packed samples, stopped and resumed; skipped where they are not installed."""

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


def examples(feed):
    for number in range(len(feed)):
        yield from lc.loading.collators.for_trl(feed[number])


def test_trl_trains_on_packed_samples_and_goes_on(feed, tmp_path):
    trl = pytest.importorskip("trl", reason="TRL is not installed here: pip install trl")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(WORDS)}, unk_token="w0"))  # noqa: S106
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"w{END}", pad_token=f"w{END}")
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
