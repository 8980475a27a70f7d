"""Tokenizers that few have: long tokens, patterns that two libraries read in two ways, merges dropped by chance."""

import base64
import itertools
import json
import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from longcrawl.errors import TokenizerError
from longcrawl.tokens.bpe import PATTERNS, ByteLevelBPE, tokenizer_document
from longcrawl.tokens.encoders import BytePairs, Encoder, Tiktoken, one_thread, require_equal_cuts

BYTES = {bytes([byte]): byte for byte in range(256)}


def doubled(times: int) -> dict[bytes, int]:
    """Return ranks of the bytes and of ``a`` repeated 2, 4, 8 and so on times."""
    return BYTES | {b"a" * 2**power: 255 + power for power in range(1, times + 1)}


def written(folder, ranks, pattern=None, **model) -> Encoder:
    return saved(folder, tokenizer_document(ranks), pattern, **model)


def saved(folder, document, pattern=None, **model) -> Encoder:
    document["model"].update(model)
    if pattern is not None:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        byte_level = {**document["pre_tokenizer"], "use_regex": False}
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return Encoder(folder / "tokenizer.json")


def doubled_document(times: int):
    document = tokenizer_document(doubled(1))
    model = document["model"]
    model["merges"] = [["a" * 2**power] * 2 for power in range(times)]
    model["vocab"].update({"a" * 2**power: 255 + power for power in range(1, times + 1)})
    model["vocab"]["<|endoftext|>"] = document["added_tokens"][0]["id"] = 256 + times
    return document


def ids_of_tokenizers(encoder: Encoder, text: str) -> list[int]:
    return Tokenizer.from_file(str(encoder._path)).encode(text, add_special_tokens=False).ids


def test_tokens_of_many_thousand_bytes_load_at_once_and_are_left_to_tokenizers(tmp_path, monkeypatch):
    document = doubled_document(16)
    monkeypatch.setattr("longcrawl.tokens.bpe.find_halves", pytest.fail)
    encoder = saved(tmp_path, document)
    assert encoder.engine == "tokenizers"
    text = "b" + "a" * 200_000
    assert encoder.encode([text]).ids.tolist() == ids_of_tokenizers(encoder, text)
    assert len(encoder.fingerprint) == 64


@pytest.mark.slow
def test_tokens_of_a_thousand_bytes_are_still_ours(tmp_path):
    encoder = written(tmp_path, doubled(10))
    assert isinstance(encoder._engine, BytePairs)
    text = "b" + "a" * 5000
    assert encoder.encode([text]).ids.tolist() == ids_of_tokenizers(encoder, text)


def test_ranks_of_many_thousand_bytes_are_left_to_tiktoken(tmp_path):
    path = tmp_path / "own.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in doubled(16).items()))
    encoder = Encoder(path)
    assert isinstance(encoder._engine, Tiktoken)
    assert encoder.encode(["a" * 65_537]).ids.tolist() == [271, 97]
    with pytest.raises(TokenizerError, match=r"up to 65,536 bytes, are too long"):
        _ = encoder.fingerprint


HALVES = """
import ctypes
from longcrawl.tokens.bpe import find_halves
tokens = [bytes([byte]) for byte in range(256)] + [b"a" * 2**power for power in range(1, 15)]
LEAST_THAT_IS_MAPPED = -3
assert ctypes.CDLL(None).mallopt(LEAST_THAT_IS_MAPPED, 4096)
print(find_halves(tokens)[-3:].tolist())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="has another allocator")
def test_halves_are_found_in_memory_that_is_still_theirs():
    """The kernel had written into arrays that numba had freed; here the system takes freed memory back at once."""
    run = subprocess.run([sys.executable, "-c", HALVES], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "[[266, 266], [267, 267], [268, 268]]"), run.stderr


GAPS = r"\p{L}+|\p{N}+|\s+|[\p{P}\p{S}\p{M}]+|[\p{Cc}\p{Cf}\p{Co}]+"


@pytest.mark.variants
@pytest.mark.parametrize(
    ("pattern", "token", "text"),
    [
        (GAPS, b"xx", "x\u0378y"),
        (r"\w+|\s+|[^\w\s]+", b"m\xc2", "5 m\u00b2"),
        (r"[^\n]+$|[^\n]|\n", b"qz", "qz\ncd\n"),
        (r"x*|\s", b"xx", "xx y"),
    ],
)
def test_a_pattern_that_libraries_read_in_two_ways_goes_to_tokenizers(tmp_path, pattern, token, text):
    encoder = written(tmp_path, BYTES | {token: 256}, pattern)
    assert encoder.engine == "tokenizers"
    assert encoder.encode([text]).ids.tolist() == ids_of_tokenizers(encoder, text)


CL100K = next(pattern for pattern in PATTERNS if "{1,3}+" in pattern)
REST = r"| ?[^\s\p{L}\p{N}]+| ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s"


@pytest.mark.parametrize(
    ("pattern", "token", "text"),
    [
        (CL100K, b"20", "in 2020"),
        (r"^#+ " + REST, b" h", "x\n# head"),
        (r"\p{N}{4}+|\p{N}{1,3}|[^\p{N}]+", b"02", "00002023"),
        (r"[A-Z]{4}+|[^A-Z]+|[A-Z]", b"DE", "ABCDEFGH"),
        (r"[^\n]+\Z|[^\n]|\n", b"ks", "racks.\n\n"),
        (r"a{2}?|[^a]+|a", b"aa", "baab"),
        (r"[A-Z]{2}{2}|[^A-Z]+|[A-Z]", b"BC", "ABCD"),
        (r"[A-Z]{4}(?#c)+|[^A-Z]+|[A-Z]", b"DE", "ABCDEFGH"),
        (r"(?x)[A-Z]{4} + | [^A-Z]+ | [A-Z]", b"DE", "ABCDEFGH"),
    ],
)
def test_operators_that_libraries_read_in_two_ways_are_left_to_tokenizers(tmp_path, pattern, token, text):
    """tiktoken's own spelling of cl100k is among them: its digits stay together in a `tokenizer.json`."""
    encoder = written(tmp_path, BYTES | {token: 256}, pattern)
    assert encoder.encode([text]).ids.tolist() == ids_of_tokenizers(encoder, text)
    with pytest.raises(TokenizerError, match="which tokenizers and tiktoken read differently"):
        Encoder(encoder._path, engine="tiktoken")


@pytest.mark.slow
def test_operators_that_both_libraries_read_alike_are_left_to_tiktoken(tmp_path):
    assert written(tmp_path, BYTES, r"[\^$]+|\$|\x{20}+|\p{N}{1,3}?x|\p{N}{3}\s+|[^\s]+|\s++$|\s").engine == "tiktoken"


def test_a_merge_that_is_never_reached_is_left_to_tokenizers(tmp_path):
    ranks = BYTES | {bytes(pair): 256 + number for number, pair in enumerate(itertools.product(range(100), range(100)))}
    document = tokenizer_document(ranks)
    document["model"]["vocab"]["abc"] = len(ranks) + 1
    document["model"]["merges"].append(["a", "bc"])
    encoder = saved(tmp_path, document)
    assert encoder.engine == "tokenizers"
    assert encoder.encode(["abc"]).ids.tolist() == ids_of_tokenizers(encoder, "abc")


def test_a_text_that_a_pattern_matches_in_part_is_not_cut_short(tmp_path):
    """The guard behind the comparison of patterns, which cannot see all texts."""
    ranks = BYTES | {b"xx": 256}
    exact = written(tmp_path, ranks, GAPS)._tokenizers
    fast = Tiktoken(ByteLevelBPE(GAPS, ranks, None), lambda: exact)
    assert fast.encode("x\u0378y").tolist() == [120, *"\u0378".encode(), 121]
    assert fast.encode("xx\u00e9y").tolist() == exact.encode("xx\u00e9y").tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [r" ?\p{L}+|\s+(?!\S)|\s+|\P{L}", *(pytest.param(each, marks=pytest.mark.slow) for each in list(PATTERNS)[::7])],
)
def test_patterns_that_both_libraries_read_alike(pattern):
    require_equal_cuts(pattern, "one text")


def test_merges_are_not_dropped_by_chance(tmp_path):
    text = "a" * 1000
    plain = written(tmp_path, doubled(5))
    wanted, fingerprint = plain.encode([text]).ids.tolist(), plain.fingerprint
    encoder = written(tmp_path, doubled(5), dropout=0.5)
    exact = Encoder(encoder._path, engine="tokenizers")
    assert encoder.engine == "tiktoken"
    assert encoder.encode([text]).ids.tolist() == exact.encode([text]).ids.tolist() == wanted
    assert encoder.fingerprint == fingerprint
    (tmp_path / "saved").mkdir()
    encoder.save(tmp_path / "saved")
    assert Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json")).encode(text).ids == wanted


@pytest.mark.parametrize("before", [None, "true"])
def test_threads_leave_the_environment_as_it_was(monkeypatch, before):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if before is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
    first_left = threading.Event()

    def stay() -> None:
        with one_thread:
            inside.set()
            first_left.wait()

    inside, other = threading.Event(), threading.Thread(target=stay)
    with one_thread:
        other.start()
        inside.wait()
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    first_left.set()
    other.join()
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


def test_an_end_of_text_that_texts_can_have_says_so(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[SEP]": 1, "the": 2}, unk_token="[UNK]"))  # noqa: S106  # no secret
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[SEP]"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=r"texts can have the id of '\[SEP\]', so it cannot end them"):
        Encoder(tmp_path / "tokenizer.json", "[SEP]")


@pytest.mark.parametrize("texts", [[1, 2], b"ab", [["a"]], None, 5, pa.array([b"\xff"]), pa.array([["a"]])])
def test_what_is_not_text_is_one_sentence(tmp_path, texts):
    encoder = written(tmp_path, doubled(2))
    with pytest.raises(TokenizerError, match=r"encode takes a list of texts|not an array of texts"):
        encoder.encode(texts)
