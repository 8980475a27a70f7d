"""LongCrawl64 from a partial copy on the Hub: complete rows, checked, resumed, in either format."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.errors import CorruptionError, HubError
from longcrawl.loading import Rectangle

ROWS, LENGTH, BAND, WIDTH = 76, 48, 16, 16
MISSING = ("1.2", "3.0")
REPO = "me/partial64"


def tokens_of() -> np.ndarray:
    return np.arange(1, ROWS * LENGTH + 1, dtype=np.uint16).reshape(ROWS, LENGTH)


@pytest.fixture(scope="module")
def copy(hub, tmp_path_factory, write_partial_array) -> Path:
    """Put a partial copy in the original layout on the Hub, in a folder of its repository."""
    from huggingface_hub import HfApi

    store = tmp_path_factory.mktemp("copy")
    write_partial_array(store / "data/train.zarr", tokens_of(), (BAND, WIDTH), MISSING)
    api = HfApi()
    api.create_repo(REPO, repo_type="dataset", private=True)
    api.upload_folder(repo_id=REPO, folder_path=store, repo_type="dataset")
    return store


def read(folder: Path) -> np.ndarray:
    return np.concatenate([batch["targets"] for batch in Rectangle(folder, batch_size=1)])


@pytest.mark.variants
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("rows", "context", "expected"),
    [
        (None, None, [*range(16), *range(32, 48), *range(64, 76)]),
        (20, None, [*range(16), *range(32, 36)]),
        # Of the second band the first two columns are there: it comes after those that are whole.
        (None, 20, [*range(16), *range(32, 48), *range(16, 32), *range(64, 76)]),
    ],
)
def test_complete_rows_are_fetched(copy, tmp_path, zarr_format, rows, context, expected):
    fetched = lc.fetch("longcrawl64", REPO, tmp_path / "out", rows, context, zarr_format=zarr_format)
    assert (fetched.rows, fetched.context, fetched.of) == (len(expected), context or LENGTH, ROWS)
    np.testing.assert_array_equal(read(tmp_path / "out"), tokens_of()[expected, : context or LENGTH])
    assert lc.verify(tmp_path / "out").problems == ()
    feed = Rectangle(tmp_path / "out", batch_size=1)
    assert [feed.origins(step)[0].document for step in range(len(feed))] == [f"train/{row}" for row in expected]
    assert feed.array.checksum == {2: "sha256", 3: "crc32c"}[zarr_format]
    assert lc.fetch("longcrawl64", REPO, tmp_path / "out", rows, context, zarr_format=zarr_format) == fetched
    assert not (tmp_path / "out/.fetch").exists()
    next(file for file in (tmp_path / "out/train").rglob("*0") if file.is_file()).unlink()
    with pytest.raises(CorruptionError, match="is missing or cut: remove .*out and run the same command again"):
        lc.fetch("longcrawl64", REPO, tmp_path / "out", rows, context, zarr_format=zarr_format)


def test_a_stopped_fetch_resumes(copy, tmp_path, monkeypatch):
    from longcrawl.publish.hub import fetch as module

    fetched: list[str] = []
    fetch_bytes = module.fetch_bytes

    def stop_at_the_second_band(url):
        if "/2." in url and len(fetched) < 9:
            raise KeyboardInterrupt
        fetched.append(url)
        return fetch_bytes(url)

    monkeypatch.setattr(module, "fetch_bytes", stop_at_the_second_band)
    with pytest.raises(KeyboardInterrupt):
        lc.fetch("longcrawl64", REPO, tmp_path / "out")
    assert len(fetched) == 3
    with pytest.raises(HubError, match="holds another fetch.*choose another folder"):
        lc.fetch("longcrawl64", REPO, tmp_path / "out", rows=5)
    fetched += [""] * 9
    lc.fetch("longcrawl64", REPO, tmp_path / "out")
    assert len(fetched) == 3 + 9 + 6 + 1  # the chunks of two bands, and metadata
    whole = lc.fetch("longcrawl64", REPO, tmp_path / "whole")
    assert whole.rows == 44
    assert {file.name: file.read_bytes() for file in (tmp_path / "out/train").iterdir()} == {
        file.name: file.read_bytes() for file in (tmp_path / "whole/train").iterdir()
    }


def test_the_answer_of_the_command_as_json(copy, tmp_path):
    words = ["fetch", "longcrawl64", "--repo", REPO, "--out", str(tmp_path / "out"), "--rows", "4", "--json"]
    facts = json.loads(CliRunner().invoke(app, words).stdout)
    assert facts | {"path": str(tmp_path / "out"), "repo": REPO, "split": "train", "rows": 4, "of": ROWS} == facts


def test_what_is_damaged_on_the_way_is_not_kept(copy, tmp_path, monkeypatch):
    from longcrawl.publish.hub import fetch as module

    fetch_bytes = module.fetch_bytes
    monkeypatch.setattr(module, "fetch_bytes", lambda url: fetch_bytes(url)[:-1] + b"?")
    with pytest.raises(CorruptionError, match=r"train\.zarr/0\.0 differs from the Hub's digest"):
        lc.fetch("longcrawl64", REPO, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("0.*"))


def test_what_cannot_be_fetched_is_named(copy, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a.txt").write_text("mine")
    for given, message in (
        ({"name": "c4"}, "'c4' cannot be fetched, only longcrawl64"),
        ({"repo": "me"}, "write it as org/name"),
        ({"split": "test"}, "no split 'test': choose "),
        ({"split": "heldout"}, r"has no heldout\.zarr"),
        ({"rows": 0}, "rows is 0: ask for 1 or more"),
        ({"context": 99}, "rows of me/partial64 have 48 tokens"),
        ({"out": tmp_path / "full"}, "is not empty"),
        ({"repo": "me/nothing"}, "me/nothing"),
    ):
        asked = {"name": "longcrawl64", "repo": REPO, "out": tmp_path / "out"} | given
        with pytest.raises(HubError, match=message):
            lc.fetch(**asked)
    with pytest.warns(UserWarning, match="has 44 complete rows of 48 tokens, but 99 were requested"):
        assert lc.fetch("longcrawl64", REPO, tmp_path / "out", rows=99).rows == 44


def test_the_command_fetches(copy, tmp_path):
    from typer.testing import CliRunner

    from longcrawl.cli.commands import app

    words = ["fetch", "longcrawl64", "--repo", REPO, "--rows", "20", "--context", "32", "--zarr-format", "3"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.exception
    assert "train 20 x 32 of me/partial64" in done.stdout
    assert json.loads((tmp_path / "out/rectangle.json").read_text())["shapes"] == {"train": [20, 32]}
