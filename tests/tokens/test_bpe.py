"""Encoding by kernels: the ids of tiktoken for every pattern that the scanner knows, and of a naive merge."""

import itertools
import json
import os
import random
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
import tiktoken
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shipped_tables import ship_arrays
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from longcrawl.errors import TokenizerError
from longcrawl.tokens import bpe, encoders
from longcrawl.tokens.bpe import (
    GPT2_PATTERN,
    PART,
    PATTERNS,
    ByteLevelBPE,
    byte_level_bpe,
    character_classes,
    make_merges,
    make_tables,
    merge_long,
    merge_parts,
    parse_ranks,
)
from longcrawl.tokens.encoders import BytePairs, Tiktoken, by_ranks

BYTES = {bytes([byte]): byte for byte in range(256)}

# Every class of characters, what contractions are made of, and what the patterns name by itself.
ATOMS = (
    *("a", "s", "ll", "ve", "don't", "WE'RE", "HTMLpage", "camelCase", "ABC", "'", "'S", "'Ll", "'\u017f", "\u017f"),
    *(
        "é",
        "e\u0301",
        "\u0301",
        "\u093e",
        "ǅ",
        "ʰ",
        "ª",
        "中",
        "ひらがな",
        "한",
        "µ",
        "İ",
        "Ω",
        "\U00010400",
        "\U0001d7d8",
    ),
    *("0", "12", "1234", "٣", "Ⅻ", "²", "\U0001f600", "\U0001f468\u200d\U0001f469", "\u200b", "\ue000", "\U000e0100"),
    *(" ", "  ", "\n", "\r\n", "\r", "\t", "\x0b", "\x85", "\xa0", "\u2028", "\u3000", "\x1c", "\ufeff", "\0"),
    *("!", "//", "/\n/", "...", "!\u0301", "_", "<|endoftext|>", "-\r\n\r\n", "$", "€", "a" * 70, " " * 70, "\n" * 20),
)
ANY_TEXT = st.one_of(
    st.lists(st.sampled_from(ATOMS), max_size=40).map("".join),
    st.text(st.characters(exclude_categories=["Cs"])),
)

ASCII_TEXT = st.text("aAbSs' \t\r\n/.!-019é", min_size=40, max_size=200)
"""More than the bytes that are looked at together."""


@pytest.fixture(scope="session")
def ranks() -> dict[bytes, int]:
    """Return the ranks of a small tokenizer, trained on the atoms in sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    chance = random.Random(0)  # a test's choice
    texts = [" ".join(chance.choices(ATOMS, k=60)) + " the theory of this thing" for _ in range(200)]
    tokenizer.train_from_iterator(texts, trainer)
    return dict(byte_level_bpe(json.loads(tokenizer.to_str())).ranks)


@pytest.fixture(scope="session")
def engines(ranks) -> dict[str, tuple[BytePairs, tiktoken.Encoding]]:
    return {pattern: pair(pattern, ranks) for pattern in PATTERNS}


def pair(pattern: str, ranks: dict[bytes, int], **settings) -> tuple[BytePairs, tiktoken.Encoding]:
    peer = tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return BytePairs(ByteLevelBPE(pattern, ranks, None), **settings), peer


def encoded(engine: BytePairs, texts: list[str]) -> list[list[int]]:
    ids, offsets = engine.encode_texts(pa.array(texts, pa.string()))
    return [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]


def test_classes_are_those_of_tiktoken_for_every_code_point():
    every = "".join(map(chr, itertools.chain(range(0xD800), range(0xE000, 0x110000))))
    wanted = np.full(0x110000, bpe.OTHER, np.uint8)
    for name in ("UPPER", "LOWER", "EITHER_CASE", "MARK", "NUMBER", "SPACE"):
        spelled = {"UPPER": r"[\p{Lu}\p{Lt}]+", "LOWER": r"\p{Ll}+", "EITHER_CASE": r"[\p{Lm}\p{Lo}]+"}
        pattern = spelled.get(name, {"MARK": r"\p{M}+", "NUMBER": r"\p{N}+", "SPACE": r"\s+"}.get(name))
        asked = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=BYTES, special_tokens={})
        found = bytes(asked.encode_ordinary(every)).decode()
        wanted[np.frombuffer(found.encode("utf-32-le"), np.uint32)] = getattr(bpe, name)
    if os.environ.get("LONGCRAWL_TABLES") == "write":
        ship_arrays(bpe.SHIPPED, {"tiktoken": {"classes": wanted}})
    classes = character_classes.__wrapped__()
    assert (classes.size, classes.dtype) == (wanted.size, wanted.dtype)
    assert np.flatnonzero(classes != wanted).tolist() == []


@pytest.mark.parametrize("name", ["gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_patterns_of_tiktoken_are_known(name, monkeypatch):
    """Its tables of names download ranks before they return the pattern; here they find none."""
    published = import_module("tiktoken_ext.openai_public")
    for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        monkeypatch.setattr(published, loader, lambda *_, **__: {})
    assert getattr(published, name)()["pat_str"] in PATTERNS


def test_pattern_of_a_letter_more_is_left_to_tiktoken(ranks):
    known, unknown = (ByteLevelBPE(GPT2_PATTERN + more, ranks, None) for more in ("", "|x"))
    assert isinstance(by_ranks(known, pytest.fail), BytePairs)
    assert isinstance(by_ranks(unknown, pytest.fail), Tiktoken)


@settings(deadline=None)  # the first call compiles
@given(texts=st.lists(ANY_TEXT | ASCII_TEXT, min_size=1, max_size=5))
def test_ids_are_those_of_tiktoken(engines, texts):
    for ours, peer in engines.values():
        assert encoded(ours, texts) == peer.encode_ordinary_batch(texts, num_threads=1)


@settings(deadline=None)
@given(texts=st.lists(ANY_TEXT | ASCII_TEXT, min_size=1, max_size=5), after=st.integers(0, 100))
def test_a_slice_has_the_ids_of_its_texts_whatever_stands_around_it(engines, texts, after):
    ours, peer = engines[GPT2_PATTERN]
    ids, offsets = ours.encode_texts(pa.array(["word ", *texts, "s" * after], pa.large_string())[1:-1])
    found = [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)]
    assert found == peer.encode_ordinary_batch(texts, num_threads=1)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # the limit is one for all
@given(texts=st.lists(ANY_TEXT | ASCII_TEXT, max_size=12))
def test_many_texts_have_the_ids_that_few_have(engines, texts, monkeypatch):
    """Ranks of 50 bytes are held at once here, of 4 MB otherwise, and of a longer text all."""
    monkeypatch.setattr(encoders, "_GROUP_BYTES", 50)
    ours, peer = engines[GPT2_PATTERN]
    assert encoded(ours, texts) == peer.encode_ordinary_batch(texts, num_threads=1)


@pytest.mark.parametrize(("greatest", "kind"), [(0xFFFF, np.uint16), (0x10000, np.uint32), (0x20000, np.uint32)])
def test_ids_of_16_bits_have_16_bits_and_others_more(ranks, greatest, kind):
    ids = np.uint32(greatest) - np.arange(len(ranks), dtype=np.uint32)
    engine, peer = BytePairs(ByteLevelBPE(GPT2_PATTERN, ranks, ids)), pair(GPT2_PATTERN, ranks)[1]
    first = next(token for token, rank in ranks.items() if rank == 0).decode()
    texts = [" the theory of this thing", "", "\U0001f600 123", first]
    wanted = [[greatest - rank for rank in found] for found in peer.encode_ordinary_batch(texts, num_threads=1)]
    assert encoded(engine, texts) == wanted
    assert wanted[-1] == [greatest]
    assert engine.encode_texts(pa.array(texts))[0].dtype == kind


@pytest.mark.variants
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_atom_beside_every_other(engines, pattern):
    ours, peer = engines[pattern]
    texts = [left + right + end for left in ATOMS for right in ATOMS for end in ("", "a", " ")]
    assert encoded(ours, texts) == peer.encode_ordinary_batch(texts, num_threads=1)


@settings(deadline=None)  # as above
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=3))
def test_forgetting_words_changes_nothing(ranks, texts):
    ours, peer = pair(GPT2_PATTERN, ranks, room=1)
    new = [f" {text} {number}x{number * 7919}q" for number in range(40) for text in texts]
    wanted = peer.encode_ordinary_batch(new, num_threads=1)
    assert encoded(ours, new) == encoded(ours, new[::-1])[::-1] == wanted


def test_a_word_beyond_the_limit_is_one_sentence(ranks, monkeypatch):
    ours, peer = pair(GPT2_PATTERN, ranks)
    monkeypatch.setattr(encoders, "LONGEST_PIECE", 1000)
    with pytest.raises(TokenizerError, match="a word of more than 1,000 bytes"):
        ours.encode("so " + "a" * 1001)
    text = "a" * 1000 + " " + "b" * 999
    assert ours.encode(text).tolist() == peer.encode_ordinary(text)


def merged(word: bytes, ranks: dict[bytes, int]) -> list[int]:
    """Join the neighbours of the lowest rank, the first of equal ones, until no two join."""
    if word in ranks:
        return [ranks[word]]
    parts = [word[place : place + 1] for place in range(len(word))]
    while True:
        joins = [
            (ranks.get(left + right, 1 << 30), place) for place, (left, right) in enumerate(itertools.pairwise(parts))
        ]
        rank, place = min(joins, default=(1 << 30, 0))
        if rank == 1 << 30:
            return [ranks[part] for part in parts]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


@settings(deadline=None)  # as above
@given(
    tokens=st.sets(st.text("ab", min_size=2, max_size=20), max_size=30),
    word=st.text("ab", min_size=1, max_size=300),
    chance=st.randoms(),
)
def test_merges_are_those_of_a_naive_search_for_any_ranks(tokens, word, chance):
    """Also where a token can not be reached, or a join brings a lower rank than its own."""
    shuffled = sorted(tokens)
    chance.shuffle(shuffled)
    ranks = BYTES | {token.encode(): 256 + number for number, token in enumerate(shuffled)}
    ours, _ = pair(GPT2_PATTERN, ranks, room=8)
    words = [word, word * 3, word[:20]]
    assert encoded(ours, words) == [merged(each.encode(), ranks) for each in words]


@given(tokens=st.sets(st.text("ab", min_size=2, max_size=20), max_size=30), seed=st.integers(0, 1 << 30))
def test_words_of_several_parts_have_the_ids_of_tiktoken_for_any_ranks(tokens, seed):
    chance = random.Random(seed)  # as above
    shuffled = sorted(tokens)
    chance.shuffle(shuffled)
    ours, peer = pair(GPT2_PATTERN, BYTES | {token.encode(): 256 + rank for rank, token in enumerate(shuffled)})
    word = "".join(chance.choices("ab", k=2 * PART + chance.randrange(1000))) + "ab" * chance.randrange(PART)
    assert encoded(ours, [word]) == [peer.encode_ordinary(word)]


@pytest.mark.variants
@pytest.mark.parametrize("letters", [20, 127, 383])
def test_parts_that_do_not_agree_are_encoded_again(letters):
    """Pairs of these letters join from the end of the alphabet: tokens at its beginning depend on where it ends."""
    alphabet = [chr(0x4E00 + number) for number in range(letters)]
    bytes_of = [*(letter.encode()[:2] for letter in alphabet), *map(str.encode, alphabet)]
    joined = [(left + right).encode() for left, right in itertools.pairwise(alphabet)][::-1]
    ranks = {token: rank for rank, token in enumerate([*BYTES, *dict.fromkeys(bytes_of), *joined])}
    ours, peer = pair(GPT2_PATTERN, ranks)
    for repeats in range(1, 6):
        word = "".join(alphabet) * (repeats * PART // (3 * letters))
        assert encoded(ours, [word, word[1:]]) == peer.encode_ordinary_batch([word, word[1:]], num_threads=1)


WORDS_OF_ONE_KIND = ["a", " ", "7", "\U0001f600", "\n", "!", "ab", "\r\n", "e\u0301", "the", "\t "]


@pytest.mark.variants
@pytest.mark.parametrize("run", WORDS_OF_ONE_KIND)
def test_a_long_word_has_the_ids_of_tiktoken(engines, run):
    text = run * (200_000 // len(run)) + "x" + run * 1000
    for ours, peer in list(engines.values())[::4]:
        assert encoded(ours, [text]) == [peer.encode_ordinary(text)]


@pytest.mark.slow
def test_a_long_word_of_chance_has_the_ids_of_tiktoken(engines):
    ours, peer = engines[GPT2_PATTERN]
    chance = random.Random(1)  # as above
    for letters in ("the", "0123456789", "thisofreyanlm"):
        text = "".join(chance.choices(letters, k=1_000_000))
        assert encoded(ours, [text]) == [peer.encode_ordinary(text)]


@pytest.mark.slow
@pytest.mark.parametrize("run", WORDS_OF_ONE_KIND)
def test_a_long_word_is_read_back_under_every_pattern(engines, ranks, run):
    text = run * (300_000 // len(run.encode()))
    tokens = np.array(sorted(ranks, key=ranks.__getitem__), object)
    for ours, _ in engines.values():
        assert b"".join(tokens[ours.encode(text)]) == text.encode()


@pytest.mark.slow
@pytest.mark.parametrize("run", WORDS_OF_ONE_KIND)
def test_parts_of_a_long_word_are_hardly_encoded_twice(ranks, run, monkeypatch):
    """The time of a part grows with its bytes alone, and that of a word with those of its parts."""
    sizes = []

    def merge(merges, at, length, out, written):
        sizes.append(length)
        return merge_long(merges, at, length, out, written)

    monkeypatch.setattr(bpe, "merge_long", merge)
    tables = make_tables(PATTERNS[GPT2_PATTERN], sorted(ranks, key=ranks.__getitem__), 8)
    for size in (300_000, 600_000):
        text = np.frombuffer(run.encode() * (size // len(run.encode())), np.uint8)
        sizes.clear()
        address, out = np.int64(text.ctypes.data), np.empty(len(text) + 3, np.uint32)
        bounds = tables.vocabulary.bounds
        merge_parts.py_func(tables.merges, bounds, address, len(text), out, 0, PART)
        assert sum(sizes) < 1.2 * len(text)


def test_the_kernel_is_compiled_early_for_the_types_it_encodes_with(ranks):
    """Other types would compile it twice, ten seconds each."""
    make_tables(PATTERNS[GPT2_PATTERN], sorted(ranks, key=ranks.__getitem__), 8)
    compiled = len(bpe.encode_texts._entry.signatures)
    assert len(BytePairs(ByteLevelBPE(GPT2_PATTERN, ranks, None)).encode("one text"))
    assert len(bpe.encode_texts._entry.signatures) == compiled


@pytest.mark.slow
@pytest.mark.parametrize("run", WORDS_OF_ONE_KIND)
def test_a_word_of_50_mb_ends(engines, ranks, run):
    text = run * (50_000_000 // len(run.encode()))
    ours, _ = engines[GPT2_PATTERN]
    tokens = np.array([token for token, _ in sorted(ranks.items(), key=lambda item: item[1])], object)
    assert b"".join(tokens[ours.encode(text)]) == text.encode()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["short.jsonl.zst", "long.jsonl.zst"])
def test_real_text_has_the_ids_of_tiktoken(real_data, name):
    ranks = parse_ranks((real_data / "gpt2.tiktoken").read_bytes(), "gpt2")
    with zstandard.open(real_data / name, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, 0, None, 8)]
    for pattern in PATTERNS:
        ours, peer = pair(pattern, ranks)
        assert encoded(ours, texts) == peer.encode_ordinary_batch(texts, num_threads=2)


def test_a_few_joins_that_have_no_place_in_a_small_table_get_a_larger_one():
    pairs = [(97, 258), (97, 259), (257, 258), (258, 257), (261, 258)]
    ranks = [(left << 42) | (right << 21) | (256 + rank) for rank, (left, right) in enumerate(pairs)]
    none = np.empty(0, np.uint32)
    merges = make_merges(none, none, np.array(ranks, np.uint64))
    assert len(merges.table) == 16
    assert set(ranks) <= set(merges.table.tolist())
