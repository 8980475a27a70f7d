"""Encoders: two engines, the same ids; files of ranks and of merges, the same tokenizer."""

import base64
import itertools
import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from longcrawl.errors import TokenizerError
from longcrawl.tokens import encoders
from longcrawl.tokens.bpe import GPT2_PATTERN, byte_level_bpe, parse_ranks, recover_merges
from longcrawl.tokens.encoders import Encoder, load_encoder

SENTENCE = (
    "the crawl of a web page is a long walk; don't stop, we'll see 2024 café straße Москва 東京 \U0001f600 e\u0301"
)
WORDS = SENTENCE.split(" ")
ODD = ["\xa0", "\u3000", "\x1c", "\x85", "\u017f", "\u0131", "\u0301", "\u200d", "a" * 300, " " * 300, "<|endoftext|>"]
PIECES = [*WORDS, *(" " + word for word in WORDS), " ", "  ", "\n", "\t", "\r\n", "'", "'s", "'ll", "7", "!", *ODD]

ANY_TEXT = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.sampled_from(PIECES)).map("".join))


def write_trained(folder: Path, vocabulary_size: int = 600, **trainer_settings) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    settings = {"special_tokens": ["<|endoftext|>"], **trainer_settings}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, initial_alphabet=alphabet, show_progress=False, **settings
    )
    chance = random.Random(0)  # a test's choice
    texts = [" ".join(chance.choices(WORDS, k=50)) + "\n\n  aaaa aa aaa 11 111" for _ in range(100)]
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def changed(path: Path, change) -> str:
    """Write a copy of a tokenizer.json after ``change`` of its content."""
    document = json.loads(path.read_text())
    change(document)
    other = path.with_name(f"changed-{len(list(path.parent.iterdir()))}.json")
    other.write_text(json.dumps(document))
    return str(other)


def permute_ids(document) -> None:
    """Return every token another id, special ones too."""
    vocabulary = document["model"]["vocab"]
    names = sorted(vocabulary)
    random.Random(1).shuffle(names)  # as above
    document["model"]["vocab"] = {name: number for number, name in enumerate(names)}
    for added in document["added_tokens"]:
        added["id"] = document["model"]["vocab"][added["content"]]


def split_by(pattern: str):
    def change(document) -> None:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}

    return change


THREE_DIGITS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    return write_trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session", params=["as trained", "permuted ids", "three digits"])
def both(request, trained) -> tuple[Encoder, Encoder]:
    """Return one tokenizer under both engines."""
    change = {"permuted ids": permute_ids, "three digits": split_by(THREE_DIGITS)}.get(request.param)
    path = changed(trained, change) if change else str(trained)
    return load_encoder(path, engine="tiktoken"), load_encoder(path, engine="tokenizers")


@pytest.fixture(scope="session")
def rank_file(tmp_path_factory, trained) -> Path:
    """Return the trained tokenizer as a file of ranks."""
    ranks = byte_level_bpe(json.loads(trained.read_text())).ranks
    path = tmp_path_factory.mktemp("ranks") / "own.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


@settings(deadline=None)  # the first call compiles
@given(texts=st.lists(ANY_TEXT, max_size=4))
def test_engines_give_equal_ids(both, texts):
    fast, exact = both
    assert (fast.engine, exact.engine) == ("tiktoken", "tokenizers")
    ours, theirs = fast.encode(texts), exact.encode(texts)
    assert ours.offsets.tolist() == theirs.offsets.tolist()
    assert ours.ids.tolist() == theirs.ids.tolist()


@pytest.mark.variants
@pytest.mark.parametrize(
    "beyond", ["\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u202f", "\u205f", "\u3000", "é", "”", "東"]
)
def test_characters_beyond_ascii_between_any_neighbours(trained, beyond):
    """Every character of Unicode's whitespace beside every class of ASCII character, where pieces may be cut."""
    fast, exact = load_encoder(str(trained)), load_encoder(str(trained), engine="tokenizers")
    around = ["", "a", "7", "!", " ", "  ", "\n", "\n ", " a", "a ", "'s", " !", "a\n\n"]
    texts = [left + beyond + middle + right for left in around for middle in ("", beyond) for right in around]
    texts = [*texts, "x".join(texts), " ".join(texts)]
    assert fast.encode(texts).ids.tolist() == exact.encode(texts).ids.tolist()


def test_threads_share_an_encoder(trained):
    encoder = load_encoder(str(trained))
    chance = random.Random(2)  # a test's choice
    batches = [[" ".join(chance.choices(PIECES, k=200)) + str(i) for i in range(20)] for _ in range(8)]
    wanted = [encoder.encode(batch).ids.tolist() for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        assert [given.ids.tolist() for given in pool.map(encoder.encode, batches * 4)] == wanted * 4


@settings(deadline=None)  # as above
@given(text=ANY_TEXT)
def test_ids_decode_to_their_text(both, text):
    for encoder in both:
        assert encoder.decode(encoder.encode([text]).ids) == text


def test_ids_are_those_of_plain_tokenizers(trained):
    from tokenizers import Tokenizer

    plain = Tokenizer.from_file(str(trained))
    texts = [" ".join(WORDS), "", "don't  stop\n\n", "東京2024"]
    ids, offsets = load_encoder(str(trained)).encode(texts)
    for i, text in enumerate(texts):
        assert ids[offsets[i] : offsets[i + 1]].tolist() == plain.encode(text).ids


def write_other(path: Path, kind: str) -> str:
    """Train a tokenizer that ranks cannot say."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    unknown = {"unk_token": "<unk>"}
    small = {"vocab_size": 200, "show_progress": False}
    made, trainer = {
        "Unigram": (models.Unigram(), trainers.UnigramTrainer(**small, **unknown)),
        "WordPiece": (models.WordPiece(**unknown), trainers.WordPieceTrainer(**small)),
        "SentencePiece": (models.BPE(fuse_unk=True, **unknown), trainers.BpeTrainer(**small)),
    }[kind]
    tokenizer = Tokenizer(made)
    if kind == "WordPiece":
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer.special_tokens = ["<unk>"]
    tokenizer.train_from_iterator([SENTENCE, "the web crawls on and on"] * 20, trainer)
    tokenizer.save(str(path))
    return str(path)


@pytest.mark.parametrize("kind", ["Unigram", "WordPiece", "SentencePiece"])
def test_batches_have_the_ids_of_single_texts(tmp_path, monkeypatch, kind):
    from tokenizers import Tokenizer

    path = write_other(tmp_path / "tokenizer.json", kind)
    plain, ours = Tokenizer.from_file(path), load_encoder(path)
    plain.encode_special_tokens = True
    texts = [None, SENTENCE, "", *WORDS, None, "", *PIECES, SENTENCE * 3, ""]
    wanted = [plain.encode(text, add_special_tokens=False).ids if text else [] for text in texts]
    for characters in (1, 50, 1 << 20):
        monkeypatch.setattr(encoders, "_BATCH", characters)
        ids, offsets = ours.encode(texts)
        assert [ids[start:stop].tolist() for start, stop in itertools.pairwise(offsets)] == wanted
    assert ours.engine == "tokenizers"
    assert len(ours.encode([]).ids) == 0


def test_engine_auto_takes_tiktoken_and_says_so(trained):
    encoder = load_encoder(str(trained))
    assert encoder.engine == "tiktoken"
    assert encoder.end_of_text == 0, "trainers put special tokens first"
    assert encoder.vocabulary_size == len(json.loads(trained.read_text())["model"]["vocab"])


def test_literal_special_token_is_text(both):
    for encoder in both:
        ids = encoder.encode(["page one<|endoftext|>page two"]).ids
        assert encoder.end_of_text not in ids
        assert len(ids) > 10
        assert encoder.decode([encoder.end_of_text]) == "<|endoftext|>"


def test_null_and_empty_texts_have_no_ids(both):
    for encoder in both:
        for texts in ([None, "a", ""], pa.array([None, "a", ""]), pa.chunked_array([[None], ["a", ""]], pa.string())):
            assert encoder.encode(texts).offsets.tolist() == [0, 0, 1, 1]
        assert encoder.encode([]).offsets.tolist() == [0]
        assert (
            encoder.encode(pa.array(["a", "the web", "b"])[1:2]).ids.tolist()
            == encoder.encode(["the web"]).ids.tolist()
        )


def test_lone_surrogate_is_one_sentence(both):
    for encoder in both:
        with pytest.raises(TokenizerError, match="lone surrogate"):
            encoder.encode(["fine", "bad \ud800 one"])


def test_invalid_utf8_is_one_sentence_and_leaves_no_trace(both):
    broken = pa.array([b"neverseen words before \xff\xc3", b"and wordsafter"]).view(pa.string())
    for encoder in both:
        with pytest.raises(TokenizerError, match="not valid UTF-8"):
            encoder.encode(broken)
    fast, exact = both
    text = "neverseen words before, otherunseen and wordsafter"
    assert fast.encode([text]).ids.tolist() == exact.encode([text]).ids.tolist()


def test_one_string_is_not_a_list_of_texts(both):
    with pytest.raises(TokenizerError, match=r"encode\(\[text\]\)"):
        both[0].encode("hello")


@pytest.mark.variants
@pytest.mark.parametrize("run", [" ", "a", "\n", "!", "7"])
def test_long_runs_end_and_agree(both, run):
    text = run * 200_000 + "x" + run * 1000
    fast, exact = both
    assert np.array_equal(fast.encode([text]).ids, exact.encode([text]).ids)


@pytest.mark.slow
def test_a_million_spaces_before_a_word(rank_file):
    encoder = load_encoder(str(rank_file))
    text = " " * 1_100_000 + "x"
    assert encoder.decode(encoder.encode([text]).ids) == text


def test_rank_file_equals_the_tokenizer_it_came_from(rank_file, trained, tmp_path):
    ranks, merges = load_encoder(str(rank_file)), load_encoder(str(trained))
    assert (ranks.engine, ranks.end_of_text) == ("tiktoken", ranks.vocabulary_size - 1)
    text = " ".join(WORDS) + " <|endoftext|>"
    shifted = merges.encode([text]).ids - 1  # the trained one has <|endoftext|> as id 0
    assert ranks.encode([text]).ids.tolist() == shifted.tolist()


def test_rank_file_under_both_engines_and_saved(rank_file, tmp_path):
    text = " ".join(WORDS) + "\n\n  <|endoftext|> 's\u017f"
    fast, exact = load_encoder(str(rank_file)), load_encoder(str(rank_file), engine="tokenizers")
    assert fast.save(tmp_path) == "tokenizer.json"
    again = load_encoder(str(tmp_path))
    assert fast.encode([text]).ids.tolist() == exact.encode([text]).ids.tolist() == again.encode([text]).ids.tolist()
    assert fast.fingerprint == exact.fingerprint == again.fingerprint
    assert (again.engine, again.end_of_text) == ("tiktoken", fast.end_of_text)
    assert fast.decode(fast.encode([text]).ids) == text


def test_saved_tokenizer_opens_in_tokenizers_with_equal_ids(both, tmp_path):
    from tokenizers import Tokenizer

    for encoder in both:
        encoder.save(tmp_path)
        plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert plain.encode("the café 2024").ids == encoder.encode(["the café 2024"]).ids.tolist()
        assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_recovered_merges_are_the_trained_ones(trained):
    from longcrawl.tokens.bpe import _alphabet

    document = json.loads(trained.read_text())
    spelled = [
        ["".join(_alphabet()[byte] for byte in part) for part in merge]
        for merge in recover_merges(byte_level_bpe(document).ranks)
    ]
    assert spelled == document["model"]["merges"]


def test_fingerprint_is_of_the_content_not_of_the_engine(both, trained):
    fast, exact = both
    assert fast.fingerprint == exact.fingerprint
    cut = changed(trained, lambda document: document["model"]["merges"].pop())
    assert load_encoder(cut, engine="tokenizers").fingerprint not in (
        fast.fingerprint,
        load_encoder(str(trained)).fingerprint,
    )


def test_dtype_follows_the_vocabulary(trained):
    def move_end_of_text(last):
        def change(document):
            document["model"]["vocab"]["<|endoftext|>"] = document["added_tokens"][0]["id"] = last

        return change

    small, large = (load_encoder(changed(trained, move_end_of_text(last))) for last in (65_535, 65_536))
    assert (small.vocabulary_size, small.dtype) == (65_536, np.uint16)
    assert (large.vocabulary_size, large.dtype) == (65_537, np.uint32)
    assert large.encode(["the"]).ids.dtype == np.uint32


NOT_RANKS = {
    "normalizer": lambda document: document.update(normalizer={"type": "NFKC"}),
    "prefix space": lambda document: document["pre_tokenizer"].update(add_prefix_space=True),
    "one pattern": lambda document: document.update(
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, document["pre_tokenizer"]],
        }
    ),
    "one id for two tokens": lambda document: document["model"]["vocab"].update({"the": 300}),
    "two of its added tokens are the same in NFC": lambda document: document["added_tokens"].extend(
        {**document["added_tokens"][0], "id": 700, "content": "the web", "special": special}
        for special in (True, False)
    ),
    "129 added tokens": lambda document: document["added_tokens"].extend(
        {**document["added_tokens"][0], "id": 700 + number, "content": f"<{number}>", "special": False}
        for number in range(129)
    ),
    "splits text differently": split_by(r"\p{L}+"),
    "cannot be made by merges": lambda document: document["model"]["merges"].reverse(),
}


@pytest.mark.variants
@pytest.mark.parametrize("reason", list(NOT_RANKS))
def test_what_ranks_cannot_say_goes_to_tokenizers(trained, reason):
    path = changed(trained, NOT_RANKS[reason])
    assert load_encoder(path).engine == "tokenizers"
    with pytest.raises(TokenizerError, match=reason):
        load_encoder(path, engine="tiktoken")


def test_every_split_of_a_token_as_a_merge_is_still_ranks(trained):
    """Llama 3's tokenizer.json lists all splits of each token, one after the other, and ignores merges for words."""

    def all_splits(document):
        model = document["model"]
        order = {name: number for number, name in enumerate(model["vocab"])}
        made = [left + right for left, right in model["merges"]]
        splits = lambda token: [(token[:i], token[i:]) for i in range(1, len(token))]  # noqa: E731  # one use, one line
        model["merges"] = [pair for token in made for pair in splits(token) if pair[0] in order and pair[1] in order]
        model["ignore_merges"] = True
        model["vocab"] = {name: number - 1 for name, number in model["vocab"].items() if number > 0}
        document["added_tokens"][0]["id"] = len(model["vocab"])

    path = changed(trained, all_splits)
    fast, exact = load_encoder(path, engine="tiktoken"), load_encoder(path, engine="tokenizers")
    text = " ".join(WORDS * 20)
    assert fast.encode([text]).ids.tolist() == exact.encode([text]).ids.tolist()
    assert fast.encode([text]).ids.tolist() == (load_encoder(str(trained)).encode([text]).ids - 1).tolist()


def test_end_of_text_by_name_or_by_custom(trained, tmp_path):
    own = write_trained(tmp_path / "own", special_tokens=["<pad>", "<end>"])
    assert load_encoder(str(own), end_of_text="<end>").end_of_text == 1
    with pytest.raises(TokenizerError, match=r"set end_of_text to one of '<pad>', '<end>'"):
        load_encoder(str(own), end_of_text="<|endoftext|>")
    unnamed = load_encoder(str(own))
    with pytest.raises(TokenizerError, match="that usually ends a text"):
        _ = unnamed.end_of_text
    with pytest.raises(TokenizerError, match="no special token 'a'"):
        load_encoder(str(own), end_of_text="a")


def test_decode_of_an_unknown_id(both):
    for encoder in both:
        with pytest.raises(TokenizerError, match="has no token 60000"):
            encoder.decode([60_000])


def test_encoder_pickles_as_its_file(both):
    for encoder in both:
        again = pickle.loads(pickle.dumps(encoder))  # our own bytes
        assert (again.engine, again.fingerprint) == (encoder.engine, encoder.fingerprint)


def test_loaded_once_until_the_file_changes(trained, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(trained.read_bytes())
    first = load_encoder(str(tmp_path))
    assert load_encoder(str(path)) is first
    path.write_text(path.read_text() + "\n")
    assert load_encoder(str(path)) is not first


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    """Keep tokenizers of any size in an empty folder."""
    monkeypatch.setattr(encoders, "_WORTH_KEEPING", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "longcrawl"


def described(path: Path | str) -> tuple:
    """Return all that a fresh encoder says of a file, and what it encodes to."""
    made = Encoder(Path(path))
    ids, lengths = made.encode([SENTENCE, None, "<|endoftext|> the"]).ids.tolist(), made.token_bytes.tolist()
    return made.engine, made.vocabulary_size, made.dtype, made.end_of_text, made.fingerprint, ids, lengths


@pytest.mark.variants
@pytest.mark.parametrize("change", [permute_ids, lambda _: None, split_by(THREE_DIGITS), split_by(r"\p{L}+|\P{L}")])
def test_a_kept_tokenizer_is_the_one_that_was_read(trained, cache, monkeypatch, change):
    path = changed(trained, change)
    monkeypatch.setattr(encoders, "_WORTH_KEEPING", 1 << 30)
    wanted = described(path)
    monkeypatch.setattr(encoders, "_WORTH_KEEPING", 0)
    assert not cache.exists()
    assert described(path) == wanted
    assert len(list(cache.iterdir())) == 2
    if wanted[0] == "tiktoken":
        for dear in ("Tokenizers", "byte_level_bpe", "require_equal", "load_json"):
            monkeypatch.setattr(encoders, dear, pytest.fail)
    assert described(path) == wanted


def test_what_is_kept_is_of_one_content_and_one_release(trained, rank_file, cache, monkeypatch):
    files = [trained, Path(changed(trained, permute_ids)), rank_file]
    wanted = [described(file) for file in files]
    assert [described(file) for file in files] == wanted
    assert len({each[4] for each in wanted}) == 3
    monkeypatch.setattr(encoders, "_fingerprint", lambda _: "of a later release")
    assert Encoder(trained).fingerprint == wanted[0][4]
    monkeypatch.setattr(encoders, "_stamp", lambda: "of a later release")
    assert Encoder(trained).fingerprint == "of a later release"


def test_damaged_and_read_only_caches_change_nothing(trained, cache, monkeypatch):
    wanted = described(trained)
    for kept in cache.iterdir():
        whole = kept.read_bytes()
        flipped = [
            whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
            for place in range(0, len(whole), len(whole) // 7)
        ]
        for damaged in (b"", whole[:-1], whole + b"\0", bytes(len(whole)), *flipped):
            kept.write_bytes(damaged)
            assert described(trained) == wanted
            assert kept.read_bytes() == whole
    monkeypatch.setenv("XDG_CACHE_HOME", str(trained))
    assert described(trained) == wanted


def test_threads_that_keep_one_tokenizer_at_once_agree(trained, cache):
    with ThreadPoolExecutor(8) as pool:
        assert len({str(each) for each in pool.map(described, [trained] * 16)}) == 1
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("name", ["missing.json", "missing.tiktoken", "/no/such/folder", "a b/c"])
def test_missing_file_says_what_to_pass(name):
    with pytest.raises(TokenizerError, match=r"pass a tokenizer\.json, a folder"):
        load_encoder(name)


def test_hub_id_offline_says_what_to_pass(monkeypatch, tmp_path):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TokenizerError, match=r"HF_HUB_OFFLINE is set: unset it, or .* tokenizer.json or \*.tiktoken"):
        load_encoder("no-such-user/no-such-tokenizer")


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"model": {}}', '{"model": {"type": "BPE", "vocab": 3, "merges": []}}']
)
def test_file_that_is_no_tokenizer(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_encoder(str(path))


def test_broken_rank_files(tmp_path, rank_file):
    lines = rank_file.read_bytes().splitlines(keepends=True)
    for content, message in (
        (b"".join(lines)[:-5] + b"\n", "not a base64 token and its rank|not 0 to"),
        (b"".join(lines[:-2] + lines[-1:]), "not 0 to"),
        (b"".join(lines[:255]), "1 of the 256 bytes"),
        (b"hello\n", "line 1"),
    ):
        path = tmp_path / f"{len(content)}.tiktoken"
        path.write_bytes(content)
        with pytest.raises(TokenizerError, match=message):
            load_encoder(str(path))


def test_rank_file_that_merges_cannot_make(tmp_path, rank_file):
    lines = rank_file.read_bytes().splitlines(keepends=True)
    path = tmp_path / "own.tiktoken"
    path.write_bytes(b"".join(lines) + base64.b64encode(b"qqqq") + b" %d\n" % len(lines))
    encoder = load_encoder(str(path))
    assert encoder.encode(["qqqq"]).ids.tolist() == [len(lines)]
    with pytest.raises(TokenizerError, match="cannot be made by merges"):
        encoder.save(tmp_path)


@pytest.mark.slow
def test_real_ranks_and_merges_equal_tiktoken(real_data):
    import tiktoken

    ranks, merges = (load_encoder(str(real_data / name)) for name in ("gpt2.tiktoken", "gpt2-tokenizer.json"))
    assert (ranks.engine, merges.engine) == ("tiktoken", "tiktoken")
    assert (ranks.vocabulary_size, ranks.end_of_text, ranks.dtype) == (50_257, 50_256, np.uint16)
    assert ranks.fingerprint == merges.fingerprint
    assert ranks.encode(["Hello world"]).ids.tolist() == [15496, 995]
    with zstandard.open(real_data / "short.jsonl.zst", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for number, line in enumerate(lines) if number % 20 == 0]
    own = tiktoken.Encoding(
        "gpt2",
        pat_str=GPT2_PATTERN,
        mergeable_ranks=parse_ranks((real_data / "gpt2.tiktoken").read_bytes(), "gpt2"),
        special_tokens={},
    )
    wanted = [token for text in texts for token in own.encode_ordinary(text)]
    assert len(wanted) > 100_000
    assert ranks.encode(texts).ids.tolist() == wanted
    assert merges.encode(texts).ids.tolist() == wanted
    assert (
        load_encoder(str(real_data / "gpt2-tokenizer.json"), engine="tokenizers").encode(texts).ids.tolist() == wanted
    )
