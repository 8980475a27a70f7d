"""Loss by position against a plain computation, of a tiny model that learns from what it has seen."""

import numpy as np
import pyarrow as pa
import pytest
import zarr
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import LoaderError
from longcrawl.loading import Rectangle
from longcrawl.loading.evaluate import per_position_loss

IDS = 20


@pytest.fixture
def model(torch):
    """Return a model that predicts ids by how often they were in the text so far, this one included."""

    class Seen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(1.0))
            self.dropout = torch.nn.Dropout(0.9)

        def forward(self, text):
            counts = torch.nn.functional.one_hot(text, IDS).cumsum(1).float()
            return self.dropout(self.weight * torch.log(counts + 0.1))

    return Seen()


@pytest.fixture
def rectangle(tmp_path):
    chance = np.random.default_rng(0)
    # Every row has ids of its own, four of them, so that a longer context helps.
    rows = [chance.choice(chance.choice(IDS - 1, 4, replace=False), 64) for _ in range(24)]
    array = zarr.create_array(tmp_path / "train.zarr", shape=(24, 64), dtype=np.uint16, chunks=(8, 16), zarr_format=2)
    array[:] = np.array(rows)
    return Rectangle(tmp_path, batch_size=5, context_length=32, pad_token=IDS - 1)


def test_losses_are_those_of_a_plain_computation(rectangle, model, torch):
    model.train()
    found = per_position_loss(model, rectangle)
    assert model.training
    assert rectangle.position == 0
    model.eval()
    expected = []
    for batch in rectangle:
        chances = model(torch.from_numpy(batch["text"])).softmax(-1).detach().numpy()
        expected.append(-np.log(np.take_along_axis(chances, batch["targets"][..., None], -1)[..., 0]))
    np.testing.assert_allclose(found.loss, np.concatenate(expected).mean(0), rtol=1e-5)
    assert found.targets.tolist() == [len(rectangle) * 5] * 32
    assert found.mean == pytest.approx(np.mean(expected), rel=1e-5)
    assert found.loss[0] > found.loss[4:12].mean() > found.loss[20:].mean()
    assert per_position_loss(model, rectangle, batches=2).targets.tolist() == [10] * 32
    with pytest.raises(LoaderError, match="1 to the 8 batches"):
        per_position_loss(model, rectangle, batches=9)
    with pytest.raises(LoaderError, match=r"returned \(5, 32\)"):
        per_position_loss(lambda text: text, rectangle)


def test_a_loss_that_is_no_number_is_none_of_the_mean(rectangle, model, torch):
    model.eval()
    logits = []

    def diverged(text):
        logits.append(model(text).index_fill(1, torch.arange(8, 16), float("nan")))
        return logits[-1], "and more"

    found = per_position_loss(diverged, rectangle)
    assert np.isnan(found.loss).tolist() == [8 <= place < 16 for place in range(32)]
    assert np.isnan(found.mean)
    assert str(found).startswith("loss nan of 1,280 targets")
    with pytest.raises(LoaderError, match="returned NoneType for text"):
        per_position_loss(lambda _: None, rectangle)
    with pytest.raises(LoaderError, match=r"needs an lc\.loading\.Rectangle, not a list"):
        per_position_loss(model, [])


def test_what_is_masked_does_not_count(tmp_path, model):
    tokens = pa.array([list(range(16))] * 4, pa.list_(pa.uint16()))
    flags = [[column != 3 for column in range(16)]] * 4
    crawl = lc.Crawl(Dataset(pa.table({"id": list("abcd"), "tokens": tokens, "loss_mask": flags})))
    crawl.to_rectangle(tmp_path / "out", context_length=16, end_of_text=IDS - 1)
    found = per_position_loss(model, Rectangle(tmp_path / "out", batch_size=2))
    assert found.targets.tolist() == [0 if column == 3 else 4 for column in range(16)]
    assert np.isnan(found.loss[3])
    assert not np.isnan([found.mean, *found.binned(4)[1]]).any()


def test_a_plot_has_the_means_of_groups(rectangle, model):
    pytest.importorskip("matplotlib")
    found = per_position_loss(model, rectangle, batches=2)
    axes = found.plot(bins=6, label="a model")
    borders, losses = found.binned(6)
    assert (borders[0], borders[-1]) == (0, 32)
    assert axes.lines[0].get_ydata().tolist() == losses.tolist()
    assert losses @ np.diff(borders) / 32 == pytest.approx(found.mean)
    assert str(found).startswith(f"loss {found.mean:.4f} of 320 targets")
