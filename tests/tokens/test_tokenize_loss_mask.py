"""From masked characters to the tokens on which no loss is computed, and on through Truncate and Roll."""

import json
import random
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.substring import MASK_TYPE
from longcrawl.errors import StageError, TokenizerError
from longcrawl.tokens.bpe import _alphabet
from longcrawl.tokens.loss_mask import LOSS_MASK_TYPE

CHARACTERS = 'ab cdé\u0301漢字😀"\\\n\t'
IDS = ["a", "b", "c", "d"]
TEXTS = ["abc dé 漢字 " * 3, "", None, '😀 "said" \\ ' * 5]
MASKS = [[(0, 4), (9, 20)], [], None, [(1, 2), (3, 30)]]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Train two small byte-level BPEs, of plain and of escaped text, whose tokens share and split characters."""
    chance = random.Random(5)
    rows = pa.table({"text": ["".join(chance.choices(CHARACTERS, k=200)) for _ in range(60)]})
    folder = str(tmp_path_factory.mktemp("tokenizers"))
    return {
        escaped: lc.tokens.Tokenize("trained", json_escaped=escaped, vocabulary_size=400).fit([rows], folder).tokenizer
        for escaped in (False, True)
    }


def spans_of(masks):
    rows = [None if spans is None else [{"start": a, "end": b} for a, b in spans] for spans in masks]
    return pa.array(rows, MASK_TYPE)


def table_of(texts, masks):
    ids = [f"d{row}" for row in range(len(texts))]
    return pa.table({"id": ids, "text": pa.array(texts, pa.large_string()), "masked": spans_of(masks)})


def naive_mask(tokenizer, text, spans, spell):
    """Describe of every token whether no byte of it comes from a masked character."""
    from tokenizers import Tokenizer

    masked = [any(start <= place < end for start, end in spans) for place in range(len(text))]
    of_bytes = [flag for each, flag in zip(text, masked, strict=True) for _ in spell(each).encode()]
    spelled = {character: byte for byte, character in enumerate(_alphabet())}
    encoded = Tokenizer.from_file(tokenizer).encode(spell(text), add_special_tokens=False)
    at, scored = 0, []
    for token in encoded.tokens:
        size = len([spelled[character] for character in token])
        scored.append(not any(of_bytes[at : at + size]))
        at += size
    assert at == len(of_bytes)
    return scored


@pytest.mark.parametrize(("escaped", "ensure_ascii"), [(False, True), (True, True), (True, False)])
@given(data=st.data(), texts=st.lists(st.text(st.sampled_from(CHARACTERS), max_size=40) | st.none(), max_size=4))
def test_a_token_with_a_masked_byte_has_no_loss(tokenizers, escaped, ensure_ascii, data, texts):
    masks = []
    for text in texts:
        place = st.integers(0, len(text or ""))
        masks.append(data.draw(st.lists(st.tuples(place, place).map(lambda pair: tuple(sorted(pair))), max_size=4)))
    stage = lc.tokens.Tokenize(tokenizers[escaped], json_escaped=escaped, ensure_ascii=ensure_ascii)
    made = stage(table_of(texts, masks))

    def spell(text):
        return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1] if escaped else text

    for text, spans, flags in zip(texts, masks, made["loss_mask"].to_pylist(), strict=True):
        assert flags == naive_mask(stage.tokenizer, text or "", spans, spell)


def test_the_mask_of_the_text_gives_way_to_that_of_the_tokens(tokenizers):
    stage = lc.tokens.Tokenize(tokenizers[False])
    table = table_of(TEXTS, MASKS)
    made = stage(table)
    assert made.column_names == ["id", "tokens", "n_tokens", "loss_mask"]
    assert made["loss_mask"].type == LOSS_MASK_TYPE
    assert [len(flags) for flags in made["loss_mask"].to_pylist()] == made["n_tokens"].to_pylist()
    assert made.drop_columns("loss_mask").equals(stage(table.drop_columns("masked")))
    assert stage(table.slice(2)).equals(made.slice(2))
    stale = table.append_column("loss_mask", pa.array([[True]] * 4))
    assert stage(stale).equals(made)
    assert "loss_mask" not in stage(stale.drop_columns("masked")).column_names


def test_no_span_at_all_masks_nothing(tokenizers):
    stage = lc.tokens.Tokenize(tokenizers[False])
    for masks in ([None] * 4, [[]] * 4, [[(0, 0)], [], None, [(3, 3)]]):
        made = stage(table_of(TEXTS, masks))
        assert all(all(flags) for flags in made["loss_mask"].to_pylist())


token_lists = st.lists(st.lists(st.tuples(st.integers(0, 65_535), st.booleans()), max_size=12), max_size=6)


@given(rows=token_lists, n=st.integers(0, 12), seed=st.integers(0, 3))
def test_truncate_and_roll_move_the_mask_with_the_tokens(rows, n, seed):
    columns = {"id": [f"d{row}" for row in range(len(rows))]}
    columns["tokens"] = pa.array([[token for token, _ in row] for row in rows], pa.list_(pa.uint16()))
    columns["loss_mask"] = pa.array([[flag for _, flag in row] for row in rows], LOSS_MASK_TYPE)
    table = pa.table(columns)
    plain = table.drop_columns("loss_mask")
    for stage in (lc.tokens.Truncate(n), lc.tokens.Roll(seed)):
        done = stage.rewrite(table)
        assert done["loss_mask"].type == LOSS_MASK_TYPE
        assert done.drop_columns("loss_mask").equals(stage.rewrite(plain))
        amounts = done["roll"].to_pylist() if "roll" in done.column_names else [0] * len(rows)
        for row, amount, tokens, flags in zip(
            rows, amounts, done["tokens"].to_pylist(), done["loss_mask"].to_pylist(), strict=True
        ):
            kept = row[:n] if stage.name == "truncate" else row
            moved = kept[len(kept) - amount :] + kept[: len(kept) - amount]
            assert list(zip(tokens, flags, strict=True)) == moved


def chain(tokenizer):
    return [lc.tokens.Tokenize(tokenizer), lc.tokens.Truncate(12), lc.tokens.Roll(seed=3)]


@pytest.mark.variants
@pytest.mark.parametrize("kind", [None, "arrow", "numpy", "pandas", "torch"])
@pytest.mark.parametrize("streaming", [False, True])
def test_alone_in_a_crawl_and_on_a_stream_the_mask_is_the_same(tokenizers, kind, streaming):
    if kind == "torch":
        pytest.importorskip("torch")
    if streaming and kind == "pandas":
        pytest.skip("`datasets` streams no data frames to functions of batches")
    table = table_of(TEXTS, MASKS)
    data = datasets.Dataset(table)
    crawl = lc.Crawl(data)
    mapped = data.to_iterable_dataset() if streaming else data
    for stage in chain(tokenizers[False]):
        crawl = crawl | stage
        before, table = table.column_names, stage(table)
        removed = [name for name in before if name not in table.column_names]
        named = {"remove_columns": removed} if streaming and kind != "arrow" else {}
        mapped = mapped.with_format(kind).map(stage, batched=True, batch_size=3, **named)
    expected = table["loss_mask"].to_pylist()
    assert crawl.data["loss_mask"][:] == expected
    assert [list(row["loss_mask"]) for row in mapped.with_format(None)] == expected
    assert not all(all(flags) for flags in expected)


def test_a_span_outside_its_text_is_refused(tokenizers):
    for span in [(0, 4), (-1, 2), (2, 1)]:
        with pytest.raises(StageError, match=r"has a span \[.*\] in a text of 3 characters: put stages that change"):
            lc.tokens.Tokenize(tokenizers[False])(table_of(["abc"], [[span]]))


@pytest.mark.parametrize("masked", [pa.array([3]), pa.array([["a"]]), pa.array([[{"start": 1}]]), pa.array(["ab"])])
def test_a_column_that_holds_no_spans_is_refused(tokenizers, masked):
    with pytest.raises(StageError, match="the column 'masked' is .*, but must be a list of spans, struct<start, end>"):
        lc.tokens.Tokenize(tokenizers[False])(pa.table({"text": ["abc"], "masked": masked}))


def test_a_tokenizer_whose_tokens_are_no_bytes_is_refused_where_something_is_masked(tokenizers, tmp_path):
    document = json.loads(Path(tokenizers[False]).read_text())
    document["normalizer"] = {"type": "Lowercase"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    with pytest.raises(TokenizerError, match="it has a normalizer"):
        lc.tokens.Tokenize(str(path))(table_of(["ABC"], [[(0, 1)]]))
    assert lc.tokens.Tokenize(str(path))(table_of(["ABC"], [[]]))["loss_mask"].to_pylist()[0]


@pytest.mark.parametrize("stage", [lc.tokens.Truncate(2), lc.tokens.Roll()], ids=lambda stage: stage.name)
def test_a_mask_that_does_not_fit_its_tokens_is_refused(stage):
    table = pa.table({"id": ["a", "b"], "tokens": pa.array([[1, 2], [3]], pa.list_(pa.uint16()))})
    short = table.append_column("loss_mask", pa.array([[True, False], None], LOSS_MASK_TYPE))
    with pytest.raises(StageError, match=rf"{stage.name} found 0 values of 'loss_mask' for the 1 tokens of row 1:"):
        stage(short)
    holed = table.append_column("loss_mask", pa.array([[True, None], [True]], LOSS_MASK_TYPE))
    with pytest.raises(StageError, match=f"{stage.name} found a null among the values of 'loss_mask'"):
        stage(holed)


@pytest.mark.slow
def test_real_text_masked_by_duplicates_decodes_to_what_was_masked(real_data):
    tokenizer = str(real_data / "gpt2.tiktoken")
    copy = "Read the terms and conditions of this page — all of them — before you go on to the next. "
    texts = {
        "a": "First things first. " + copy + "Then Ünïcode 漢字.",
        "b": copy.upper() + "Nothing in common.",
        "c": "No.",
    }
    crawl = lc.Crawl(datasets.Dataset.from_dict({"id": list(texts), "text": list(texts.values())}))
    crawl = crawl | lc.dedup.ExactSubstring(15, policy="mask", unit="character", min_characters=0)
    masked = {row["id"]: [texts[row["id"]][s["start"] : s["end"]] for s in row["masked"]] for row in crawl.data}
    stage = lc.tokens.Tokenize(tokenizer)
    for row in (crawl | stage).data:
        dropped = np.array(row["tokens"])[~np.array(row["loss_mask"], bool)]
        assert len("".join(masked[row["id"]])) <= len(stage.encoder().decode(dropped))
        assert all(part.strip() in stage.encoder().decode(dropped) for part in masked[row["id"]])
        assert bool(len(dropped)) == (row["id"] != "c")
