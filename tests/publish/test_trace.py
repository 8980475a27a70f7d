"""The documents of a training step on the command line, of every output of tokens."""

import json

import numpy as np
import pytest

import longcrawl as lc
from longcrawl.errors import FormatError, LoaderError

STAGES = {"rectangle": [lc.tokens.MinTokens(40), lc.tokens.Truncate(40), lc.tokens.Roll(seed=1)]}
FEEDS = {
    "rectangle": {"batch_size": 2, "context_length": 20},
    "gpt-simple": {"batch_size": 2, "max_length": 64},
    "datatrove": {"batch_size": 2, "seq_len": 31},
    "composed": {"tokens_per_step": 64},
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    chance = np.random.default_rng(0)
    rows = [" ".join(f"word{each}" for each in chance.integers(0, 40, 30)) + "\x1b[31m\n" for _ in range(12)]
    records = [{"text": row, "url": f"https://a/\x1b{place}"} for place, row in enumerate(rows)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.fixture(scope="module")
def outputs(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    tokens = lc.open(str(texts)) | lc.tokens.Tokenize("trained", vocabulary_size=300)
    for name in FEEDS:
        made = tokens
        for stage in STAGES.get(name, []):
            made = made | stage
        settings = {"capacities": [32]} if name == "composed" else {}
        getattr(made, f"to_{name.replace('-', '_')}")(folder / name, **settings)
    return folder


@pytest.mark.variants
@pytest.mark.parametrize("name", FEEDS)
def test_a_step_is_shown_with_its_text(outputs, longcrawl, texts, name):
    words = [word for field, value in FEEDS[name].items() for word in ("--set", f"{field}={value}")]
    done = longcrawl("trace", outputs / name, "--step", 1, "--row", 1, *words)
    assert done.returncode == 0, done.stderr
    assert "texts.jsonl:" in done.stdout
    assert "https://a/\\x1b" in done.stdout
    assert "\x1b" not in done.stdout
    (found,) = lc.trace(outputs / name, 1, 1, **FEEDS[name]).rows.values()
    written = [json.loads(line)["text"] for line in texts.read_text().splitlines()]
    for piece in found:
        text = written[int(piece.origin.document.rpartition(":")[2])]
        assert piece.text.removesuffix("<|endoftext|>") in text + text
        assert len(piece.tokens) == piece.origin.stop - piece.origin.start


def test_json_lines_and_feeds_are_traced(texts, outputs):
    tokenizer = str(outputs / "rectangle" / "tokenizer.json")
    feed = lc.loading.Jsonl(texts, tokenizer=tokenizer, max_length=64, batch_size=2)
    found = lc.trace(feed, 2)
    assert set(found.rows) == {0, 1}
    assert all(piece.text for pieces in found.rows.values() for piece in pieces)
    named = lc.trace(texts, 2, feed="jsonl", tokenizer=tokenizer, max_length=64, batch_size=2)
    assert [piece.text for piece in named.rows[1]] == [piece.text for piece in found.rows[1]]
    with pytest.raises(LoaderError, match=r"the feed tokenizes with .*tokenizer\.json, not gpt2: remove tokenizer"):
        lc.trace(feed, 2, tokenizer="gpt2")
    rectangle = lc.loading.Rectangle(outputs / "rectangle", batch_size=2)
    in_split = lc.trace(outputs / "rectangle/train", 1, batch_size=2)
    assert in_split.rows[0][0].origin.document == lc.trace(rectangle, 1).rows[0][0].origin.document
    for ask in (lc.inspect, lc.verify):
        with pytest.raises(FormatError, match=r"rectangle/train is a part of .*/rectangle: give that"):
            ask(outputs / "rectangle/train")
    assert str(lc.trace(rectangle, 1)) != str(lc.trace(rectangle, 0))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("rectangle", {"step": 0, "row": 7}, "rows 0 to 0, not 7"),
        ("rectangle", {"step": 0, "nothing": 7}, "no setting 'nothing'; known: batch_size"),
        ("gpt-simple", {"step": 99}, "step 99 does not exist, only 0 to"),
        ("rectangle", {"step": 99}, "a pass has steps 0 to .*, not 99: check the feed's settings, or use step"),
        ("datatrove", {"step": 0}, "seq_len=2048"),
        ("composed", {"step": 0}, "tokens_per_step=65536"),
        ("composed", {"step": 0, "feed": "none"}, "feed takes one of 'auto', "),
        ("gpt-simple", {"step": 0, "feed": "rectangle"}, "does not read .*, which is 'gpt-simple': remove --feed"),
    ],
)
def test_what_cannot_be_traced_is_named(outputs, name, given, message):
    with pytest.raises(LoaderError, match=message):
        lc.trace(outputs / name, **given)


def test_texts_are_not_traced(texts, tmp_path, longcrawl):
    lc.open(str(texts)).to_parquet(tmp_path / "out")
    with pytest.raises(
        FormatError, match="no feed reads .*, which is .parquet.: choose the data that the trainer read"
    ):
        lc.trace(tmp_path / "out", 0)
    done = longcrawl("trace", tmp_path / "out", "--step", 0, "--set", "step=7")
    assert done.returncode == 1
    assert "--set takes FIELD=VALUE" in done.stderr
