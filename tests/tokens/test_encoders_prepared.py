"""Texts that `tokenizers` normalises, or cuts at added tokens, before a byte-level BPE: by kernels with its ids."""

import json
import os
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shipped_tables import ship_arrays
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from longcrawl.errors import TokenizerError
from longcrawl.tokens import encoders
from longcrawl.tokens.bpe import CL100K_PATTERN, GPT2_PATTERN, LLAMA3, O200K_PATTERN, PATTERNS, QWEN2
from longcrawl.tokens.encoders import BytePairs, Encoder, Prepared, combining_classes, may_change

NFC = normalizers.NFC()
UNCERTAIN = 255
JOINED_TO_WHAT_IS_BEFORE = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
MARKS = "\u0301\u0308\u0323\u0327\u0345\u0334\u093c\u094d\u05b0\u05c1\u064b\u0651\u1161\u11a8\u3099\U0001d165"
ADDED = ("<tool_call>", "</tool_call>", "caf\u00e9!", "\u212b", "  \n  ")
PARTS = ("cafe\u0301!", "A\u030a", "e\u0301", "a", "é", " ", "\u0301", "<|endoftext|>", "")
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from("ae \n<cf!éÅ\u1100\u0915\u05d0中\U0001f600" + MARKS), max_size=30),
    st.lists(st.sampled_from([*ADDED, *PARTS])).map("".join),
)


def spelled(kind: int) -> str:
    return next(pattern for pattern, other in PATTERNS.items() if other == kind)


@pytest.fixture(scope="module")
def document() -> dict:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    texts = ["the café of a Москва street, 中文 e\u0301 and <tool_call> a  \n  b", "한국어 हिन्दी שָׁלוֹם Å 123"] * 40
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def changed(document: dict, pattern=GPT2_PATTERN, normalizer=None, added=(), flags=None) -> dict:
    """Return a `tokenizer.json` as another one that is published, with added tokens that are not special."""
    size = len(document["model"]["vocab"])
    none = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    plain = [{"id": size + number, "content": name, **none, **(flags or {})} for number, name in enumerate(added)]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return document | {
        "normalizer": normalizer and {"type": normalizer},
        "added_tokens": [*document["added_tokens"], *plain],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
    }


def load(document: dict, folder, engine="auto") -> Encoder:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(document))
    return Encoder(path, engine=engine)


def classes_of_this_python() -> np.ndarray:
    seconds = set(JOINED_TO_WHAT_IS_BEFORE)
    for parts in filter(None, map(unicodedata.decomposition, map(chr, range(0x110000)))):
        seconds |= {int(part, 16) for part in parts.split()[1:] if not parts.startswith("<")}
    classes = np.full(0x110000, UNCERTAIN, np.uint8)
    for point in sorted({*range(0x110000)} - seconds):
        character = chr(point)
        is_assigned = unicodedata.category(character) not in ("Cn", "Cs")
        if is_assigned and unicodedata.normalize("NFC", character) == character:
            classes[point] = unicodedata.combining(character)
    return classes


def test_classes_are_those_of_unicode_14_and_of_each_version_since():
    wanted, is_14 = classes_of_this_python(), unicodedata.unidata_version == "14.0.0"
    if is_14 and os.environ.get("LONGCRAWL_TABLES") == "write":
        ship_arrays(encoders.SHIPPED, {"unicode-14": {"classes": wanted}})
    classes = combining_classes.__wrapped__()
    assert (classes.size, classes.dtype) == (wanted.size, wanted.dtype)
    which = slice(None) if is_14 else classes != UNCERTAIN
    assert np.flatnonzero(classes[which] != wanted[which]).tolist() == []


@pytest.mark.slow
def test_what_is_certain_is_left_by_tokenizers_for_every_code_point():
    certain = [chr(point) for point in np.flatnonzero(combining_classes() != UNCERTAIN)]
    for start in range(0, len(certain), 1000):
        text = "\n".join(before + each for each in certain[start : start + 1000] for before in ("", "a", "e", "\u0915"))
        assert not may_change(pa.array([text], pa.large_string())).any()
        assert NFC.normalize_str(text) == text


def naive(text: str) -> bool:
    before = 0
    for character in text:
        kind = int(combining_classes()[ord(character)])
        if kind == UNCERTAIN or 0 < kind < before:
            return True
        before = kind
    return False


@settings(deadline=None)  # the first call compiles
@given(texts=st.lists(st.one_of(TEXT, st.none()), max_size=5))
def test_only_texts_that_may_change_are_normalised(texts):
    found = may_change(pa.array(texts, pa.large_string())).tolist()
    assert found == [naive(text or "") for text in texts]
    for text, changes in zip(texts, found, strict=True):
        assert changes or NFC.normalize_str(text or "") == (text or "")


SPACES = tuple(" " * size for size in range(6, 1, -1))
KINDS = {
    "added": {"added": ADDED},
    "both": {"normalizer": "NFC", "added": ADDED},
    "normalized": {"normalizer": "NFC", "added": ADDED, "flags": {"normalized": True}},
    "stripped": {"added": ADDED, "flags": {"lstrip": True}},
    "words": {"added": ADDED, "flags": {"single_word": True}},
    "spaces": {"normalizer": "NFC", "added": (*SPACES, "<", "a\n"), "flags": {"normalized": True}},
    "a part of a special token": {"added": ("text|><", "<|end", "text|>")},
    "in the vocabulary": {"normalizer": "NFC", "added": ("the", "é")},
    "NFC": {"normalizer": "NFC"},
}


@pytest.fixture(scope="module", params=KINDS)
def both(request, document, tmp_path_factory) -> tuple[Encoder, Encoder]:
    made = changed(document, spelled(QWEN2), **KINDS[request.param])
    folder = tmp_path_factory.mktemp("prepared")
    return load(made, folder), load(made, folder, "tokenizers")


@pytest.mark.variants
@settings(deadline=None)  # as above
@given(texts=st.lists(st.one_of(TEXT, st.none()), max_size=6))
def test_ids_are_those_of_tokenizers(both, texts):
    fast, exact = both
    assert isinstance(fast._engine.by_ranks, BytePairs)
    ours, theirs = fast.encode(texts), exact.encode(texts)
    assert ours.offsets.tolist() == theirs.offsets.tolist()
    assert ours.ids.tolist() == theirs.ids.tolist()


@pytest.mark.variants
def test_each_added_token_alone_and_beside_others(both):
    fast, exact = both
    parts = (*ADDED, *PARTS)
    texts = [left + middle + right for left in parts for middle in parts for right in parts]
    assert fast.encode(texts).ids.tolist() == exact.encode(texts).ids.tolist()


@pytest.mark.parametrize(
    ("pattern", "rest"),
    [
        (spelled(QWEN2), {"normalizer": "NFC", "added": ("<tool_call>", "<|fim_prefix|>")}),
        (spelled(LLAMA3), {}),
        (O200K_PATTERN, {}),
        (CL100K_PATTERN, {}),
        (GPT2_PATTERN, {"normalizer": "NFC", "added": tuple(" " * size for size in range(24, 1, -1))}),
    ],
    ids=["Qwen2", "Llama 3", "o200k", "cl100k", "GPT-NeoX"],
)
def test_published_shapes_are_encoded_by_kernels(document, tmp_path, pattern, rest):
    engine = load(changed(document, pattern, **rest), tmp_path)._engine
    assert isinstance(engine.by_ranks if isinstance(engine, Prepared) else engine, BytePairs)


def test_an_added_token_that_texts_hold_cannot_end_them(document, tmp_path):
    made = changed(document | {"added_tokens": []}, added=("<|im_end|>",))
    del made["model"]["vocab"]["<|endoftext|>"]
    encoder = load(made, tmp_path)
    assert encoder.engine == "tiktoken"
    token = Tokenizer.from_str(json.dumps(made)).token_to_id("<|im_end|>")
    assert encoder.encode(["a<|im_end|>"]).ids.tolist()[1:] == [token]
    with pytest.raises(TokenizerError, match="no special token that usually ends a text"):
        _ = encoder.end_of_text


@pytest.mark.parametrize(
    ("rest", "reason"), [({"normalizer": "NFC"}, r"normalizer \(NFC\)"), ({"added": ("<a>",)}, "1 added tokens")]
)
def test_tokens_that_are_not_the_bytes_of_a_text_have_no_bytes(document, tmp_path, rest, reason):
    with pytest.raises(TokenizerError, match=reason):
        _ = load(changed(document, **rest), tmp_path).token_bytes


@pytest.mark.variants
def test_slices_and_chunks_are_encoded_as_they_lie(both):
    fast, exact = both
    texts = pa.array(["cut", "e\u0301 <tool_call>", None, "Å café! x", "", "a  \n  b\u0301"])
    for column in (
        texts.slice(1),
        texts.cast(pa.large_string()).slice(2, 3),
        pa.chunked_array([texts, texts.slice(3)]),
    ):
        ours, theirs = fast.encode(column), exact.encode(column)
        assert (ours.ids.tolist(), ours.offsets.tolist()) == (theirs.ids.tolist(), theirs.offsets.tolist())
