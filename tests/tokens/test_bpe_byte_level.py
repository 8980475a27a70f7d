"""Files of ranks, which do not say how they split text: those that are published, and those of another pattern."""

import base64
import hashlib
import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from longcrawl.errors import TokenizerError
from longcrawl.tokens import bpe
from longcrawl.tokens.bpe import CL100K_PATTERN, GPT2_PATTERN, O200K_PATTERN, byte_level_bpe
from longcrawl.tokens.encoders import BytePairs, Encoder, load_encoder

NAMES = ("cl100k_base", "o200k_base")
TEXTS = ["def f(self):\n    return x.value2024;\r\n\r\n  ", "Don't WE'RE camelCase 12345 café 中文/\n/ end  \n  "]
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from([*"aB1 \n\r/.'é中", "'s", "2024", "  ", "<|endoftext|>"]), max_size=30).map("".join),
)


def published(name: str, monkeypatch) -> dict:
    """Return what tiktoken says of an encoding, without the ranks, which it would download."""
    module = import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(module, "load_tiktoken_bpe", lambda *_, **__: {})
    return dict(getattr(module, name)())


def write_ranks(folder: Path, pattern: str) -> Path:
    """Train a small vocabulary whose pieces are those of a pattern; return its file of ranks."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 50, trainer)
    ranks = byte_level_bpe(json.loads(tokenizer.to_str())).ranks
    path = folder / "own.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_digests_patterns_and_special_tokens_are_those_of_tiktoken(name, monkeypatch):
    source = inspect.getsource(getattr(import_module("tiktoken_ext.openai_public"), name))
    (known,) = [known for digest, known in bpe._PUBLISHED.items() if digest in source]
    wanted = published(name, monkeypatch)
    assert bpe.PATTERNS[known[0]] == bpe.PATTERNS[wanted["pat_str"]]
    assert known[1] == wanted["special_tokens"]


@pytest.fixture(scope="module", params=NAMES)
def known(request, tmp_path_factory):
    """Return a file that is taken for a published one, its encoder, and tiktoken's of the same ranks and pattern."""
    with pytest.MonkeyPatch.context() as patch:
        pattern = {"cl100k_base": CL100K_PATTERN, "o200k_base": O200K_PATTERN}[request.param]
        special = published(request.param, patch)["special_tokens"]
        path = write_ranks(tmp_path_factory.mktemp("ranks"), pattern)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        patch.setattr(bpe, "_PUBLISHED", {digest: (pattern, special)})
        encoder = Encoder(path)
        peer = tiktoken.Encoding(
            "peer",
            pat_str=published(request.param, patch)["pat_str"],
            mergeable_ranks=dict(encoder._ranks.ranks),
            special_tokens={},
        )
        yield encoder, peer


def test_a_published_file_has_its_own_special_tokens(known):
    encoder, peer = known
    assert isinstance(encoder._engine, BytePairs)
    assert encoder.end_of_text in (100_257, 199_999)
    assert encoder.vocabulary_size in (100_277, 200_019)
    assert encoder.decode([encoder.end_of_text]) == "<|endoftext|>"
    assert encoder.encode(["<|endoftext|>"]).ids.tolist() == peer.encode_ordinary("<|endoftext|>")


@settings(deadline=None)  # the first call compiles
@given(text=ANY_TEXT)
def test_a_published_file_has_the_ids_of_tiktoken(known, text):
    encoder, peer = known
    assert encoder.encode([text]).ids.tolist() == peer.encode_ordinary(text)


def test_a_published_file_is_saved_with_its_pattern(known, tmp_path):
    encoder, _ = known
    saved = tmp_path / encoder.save(tmp_path)
    for engine in ("tiktoken", "tokenizers"):
        again = load_encoder(str(saved), engine=engine)
        assert again.encode(TEXTS).ids.tolist() == encoder.encode(TEXTS).ids.tolist()
        assert (again.end_of_text, again.fingerprint) == (encoder.end_of_text, encoder.fingerprint)


@pytest.mark.parametrize("pattern", [CL100K_PATTERN, O200K_PATTERN], ids=NAMES)
@pytest.mark.parametrize("engine", ["auto", "tokenizers"])
def test_ranks_of_another_pattern_are_refused(tmp_path, monkeypatch, pattern, engine):
    monkeypatch.setattr(bpe, "_PUBLISHED", {})
    with pytest.raises(TokenizerError, match=r"own.tiktoken: its ranks are not of GPT-2's pattern, which cuts \d+ of"):
        load_encoder(str(write_ranks(tmp_path, pattern)), engine=engine)


def test_ranks_of_gpt2s_pattern_are_taken_with_parts_of_contractions(tmp_path):
    encoder = load_encoder(str(write_ranks(tmp_path, GPT2_PATTERN)))
    assert encoder.encode(["WE'RE don't"]).offsets.tolist()[0] == 0
    path = tmp_path / "contraction.tiktoken"
    tokens = [bytes([byte]) for byte in range(256)] + [b"'l", b"'ll"]
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    assert load_encoder(str(path)).encode(["'ll"]).ids.tolist() == [257]
