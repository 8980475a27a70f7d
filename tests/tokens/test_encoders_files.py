"""Tokenizers as users have them: objects, saved folders and Hub ids, wherever a tokenizer is taken."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset
from huggingface_hub.errors import LocalEntryNotFoundError

import longcrawl as lc
from longcrawl.errors import TokenizerError
from longcrawl.tokens import encoders
from longcrawl.tokens.encoders import load_encoder, tokenizer_name

TEXTS = [
    "The tide was out, and the boats lay on the sand.",
    "",
    "Über das Meer — 海の上 🌊",
    "Bread needs flour, salt, water and time. <fin> is text.",
    " two  spaces\tand\nlines ",
] * 3


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Write no object into the cache folder of whoever runs the tests, and start no thread before later tests fork."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENIZERS_PARALLELISM", "false")
        patch.setattr(encoders, "cache_folder", lambda: folder)
        yield


def byte_level():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<fin>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    return made, "<fin>"


def unigram():
    """Return a tokenizer as those of SentencePiece are in `tokenizers`: pieces of words, bytes for the rest."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120,
        special_tokens=["<unk>", "</s>"],
        unk_token="<unk>",  # noqa: S106
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return made, "</s>"


@pytest.fixture(scope="module", params=[byte_level, unigram], ids=["bytes", "unigram"])
def tokenizer(request):
    from transformers import PreTrainedTokenizerFast

    made, end = request.param()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end)


@pytest.fixture(scope="module")
def wanted(tokenizer):
    """Return the ids of each text; a special token that a text spells out is text."""
    return [tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] for text in TEXTS]


@pytest.fixture(scope="module", params=["object", "tokenizers", "folder", "file"])
def given(request, tokenizer, tmp_path_factory):
    if request.param == "object":
        return tokenizer
    if request.param == "tokenizers":
        return tokenizer.backend_tokenizer
    folder = tmp_path_factory.mktemp("saved")
    tokenizer.save_pretrained(folder)
    return str(folder) if request.param == "folder" else folder / "tokenizer.json"


def ended(wanted, tokenizer):
    return [token for ids in wanted for token in (*ids, tokenizer.eos_token_id)]


@pytest.mark.variants
def test_every_stage_and_feed_takes_it(given, tokenizer, wanted, tmp_path):
    # A Tokenizer of `tokenizers` does not say which of its tokens ends a text.
    named = {"end_of_text": tokenizer.eos_token} if given is tokenizer.backend_tokenizer else {}
    stage = lc.tokens.Tokenize(given, **named)
    assert stage(pa.table({"text": TEXTS}))["tokens"].to_pylist() == wanted
    assert stage.encoder().end_of_text == tokenizer.eos_token_id
    again = lc.tokens.Tokenize(**stage.settings())
    assert again(pa.table({"text": TEXTS[:2]}))["tokens"].to_pylist() == wanted[:2]
    ids = load_encoder(given).encode([TEXTS[0].lower().replace(",", "").replace(".", "")]).ids.tolist()
    assert lc.dedup.MinHash(tokenizer=given, ngram=3).ngrams(TEXTS[0])[0] == tuple(ids[:3])
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    feed = lc.loading.Jsonl(tmp_path / "raw.jsonl", given, max_length=256, packing="separate", **named)
    rows = [batch["input_ids"][0, : int(batch["n_tokens"][0])].tolist() for batch in feed]
    assert rows == [[*ids, tokenizer.eos_token_id] for ids in wanted]
    overrides = [f"stages.tokenize.end_of_text={end}" for end in named.values()]
    lc.tokenize(tmp_path / "raw.jsonl", tmp_path / "shards", given, format="datatrove", overrides=overrides)
    (shard,) = (tmp_path / "shards/datatrove/train").glob("*.ds")
    assert lc.formats.open_shard(shard).tokens.tolist() == ended(wanted, tokenizer)


@pytest.mark.variants
def test_passages_take_one_that_stands_for_bytes(given, tokenizer):
    rows = {"id": ["a", "b"], "text": [f"{TEXTS[0]} One.", f"{TEXTS[0]} Two."]}
    stage = lc.dedup.ExactSubstring(8, tokenizer=given, min_characters=0)
    if "Ġthe" not in tokenizer.get_vocab():
        with pytest.raises(lc.LongCrawlError, match="cannot be mapped to bytes"):
            _ = lc.Crawl(Dataset.from_dict(rows)) | stage
        return
    crawl = lc.Crawl(Dataset.from_dict(rows)) | stage
    assert crawl.data["text"][1] in (". Two.", " Two.")


def test_an_object_is_kept_by_its_content(tokenizer):
    file = Path(tokenizer_name(tokenizer))
    before = file.stat().st_mtime_ns
    tokenizer(TEXTS, padding="max_length", max_length=5, truncation=True) if tokenizer.pad_token else None
    tokenizer.backend_tokenizer.enable_truncation(5)
    assert Path(tokenizer_name(tokenizer)) == file
    assert file.stat().st_mtime_ns == before
    tokenizer.backend_tokenizer.no_truncation()
    assert (
        load_encoder(tokenizer).encode(TEXTS[:1]).ids.tolist() == load_encoder(str(file)).encode(TEXTS[:1]).ids.tolist()
    )


def test_texts_of_a_unigram_model_are_the_same_in_any_batches(monkeypatch):
    made, _ = unigram()
    encoder = load_encoder(made)
    whole = encoder.encode([*TEXTS, None])
    assert len(whole.offsets) == len(TEXTS) + 2
    monkeypatch.setattr("longcrawl.tokens.encoders._BATCH", 60)
    assert encoder.encode([*TEXTS, None]).ids.tolist() == whole.ids.tolist()
    assert [*whole.ids[: whole.offsets[1]]] == made.encode(TEXTS[0], add_special_tokens=False).ids


@pytest.mark.slow
def test_a_hub_id_is_taken_on_the_command_line(tmp_path):
    from transformers import PreTrainedTokenizerFast

    made, end = unigram()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end)
    repository = tmp_path / "hub/models--me--words"
    tokenizer.save_pretrained(repository / "snapshots/0123")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("0123")
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    command = [Path(sys.executable).with_name("longcrawl"), "tokenize", "raw.jsonl", "--tokenizer", "me/words"]
    command += ["--output-dir", "out", "--format", "datatrove"]
    offline = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (shard,) = (tmp_path / "out/datatrove/train").glob("*.ds")
    wanted = [made.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert lc.formats.open_shard(shard).tokens.tolist() == ended(wanted, tokenizer)


def test_a_folder_without_tokenizer_json_is_converted(tmp_path):
    made, _ = byte_level()
    made.model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    assert load_encoder(str(tmp_path)).encode(TEXTS[:1]).ids.tolist() == made.encode(TEXTS[0]).ids
    (tmp_path / "vocab.json").write_text("{")
    with pytest.raises(
        TokenizerError, match=r"has no tokenizer.json, and transformers cannot make one \(\w+\): save it"
    ):
        load_encoder(str(tmp_path))


OFFLINE = """
import sys
from longcrawl.errors import TokenizerError
from longcrawl.tokens.encoders import load_encoder
try:
    load_encoder("me/nothing")
except TokenizerError:
    assert "transformers" not in sys.modules, "importing it takes longer than all else"
    print(load_encoder("me/words").encode(["the text"]).ids.tolist())
"""


@pytest.mark.slow
def test_a_hub_id_without_tokenizer_json_is_converted_from_the_cache(tmp_path):
    made, _ = byte_level()
    snapshot = tmp_path / "hub/models--me--words/snapshots/0123"
    snapshot.mkdir(parents=True)
    made.model.save(str(snapshot))
    (snapshot / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    (snapshot / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (tmp_path / "hub/models--me--words/refs").mkdir()
    (tmp_path / "hub/models--me--words/refs/main").write_text("0123")
    offline = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", OFFLINE], env=offline, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == made.encode("the text").ids, done.stderr


class InPython:
    def pre_tokenize(self, text):
        raise NotImplementedError


def test_a_tokenizer_with_parts_in_python_is_refused():
    from tokenizers import pre_tokenizers

    made, _ = byte_level()
    made.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(InPython())
    with pytest.raises(TokenizerError, match=r"a tokenizer cannot be read \(Exception: .*\): remove parts"):
        lc.tokens.Tokenize(made)


def test_the_content_of_a_file_is_not_its_path(tmp_path, monkeypatch):
    made, _ = byte_level()
    for content in (made.to_str(), json.dumps({"model": "b" * 600})):
        with pytest.raises(TokenizerError, match=r"^no tokenizer at '\{.*…': pass a tokenizer.json, ") as refused:
            load_encoder(content)
        assert len(str(refused.value)) < 400
    monkeypatch.chdir(tmp_path)  # a path that is as long has a tokenizer
    for _ in range(8):
        Path("f" * 150).mkdir()
        os.chdir("f" * 150)
    made.save("tokenizer.json")
    assert len(str(Path.cwd())) > 1_000
    assert (
        load_encoder(str(Path("tokenizer.json").absolute())).encode(TEXTS[:1]).ids.tolist() == made.encode(TEXTS[0]).ids
    )


@pytest.mark.parametrize("name", ["a--b/c", "me/x..y", "x.git", "-a", "a" * 97, "a" * 300])
def test_a_name_that_no_repository_can_have_is_not_there(name):
    with pytest.raises(TokenizerError, match=rf"^tokenizer '{name}' is not a file here"):
        load_encoder(name)


class Named(pa.ExtensionType):
    def __init__(self, kind):
        super().__init__(kind, "longcrawl.test")

    def __arrow_ext_serialize__(self):
        return b""


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.bool_(), pa.timestamp("s"), pa.decimal128(19)])
def test_numbers_are_not_encoded_as_if_they_were_texts(kind):
    made, _ = byte_level()
    numbers = pa.array([1, 0, None]).cast(kind)
    named = pa.ExtensionArray.from_storage(Named(kind), numbers)
    for given in (numbers, numbers.dictionary_encode(), named):
        with pytest.raises(TokenizerError, match=r"^not an array of texts, but of .*: pass the column of texts"):
            load_encoder(made).encode(given)
    assert load_encoder(made).encode(pa.nulls(2)).offsets.tolist() == [0, 0, 0]


def test_an_engine_that_is_not_there_is_named():
    made, _ = byte_level()
    with pytest.raises(TokenizerError, match=r"^engine takes one of 'auto', 'tiktoken', 'tokenizers', got 'rust'"):
        load_encoder(made, engine="rust")


def test_what_is_no_tokenizer_is_named():
    with pytest.raises(TokenizerError, match=r"or a PreTrainedTokenizerFast, not a dict"):
        lc.tokens.Tokenize({})


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (lc.dedup.MinHash, r"min_hash.tokenizer: .* set tokenizer= to .*; or set unit='word', which needs none"),
        (lc.dedup.ExactSubstring, r"exact_substring.tokenizer: .* set tokenizer= to .*; or set unit='character'"),
        (
            lc.tokens.Tokenize,
            r"HF_HUB_OFFLINE is set: unset it, or set tokenizer= to the path .* \(--tokenizer PATH, of a run --set ",
        ),
    ],
)
def test_without_a_tokenizer_the_argument_is_named(stage, said, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    crawl = lc.Crawl(Dataset.from_dict({"id": ["a"], "text": ["A text."]}))
    with pytest.raises(TokenizerError, match=said):
        _ = crawl | stage(tokenizer="no-such-tokenizer")


ENDS = [("</s>", "<|endoftext|>"), ("<|im_end|>", "<|endoftext|>"), ("<s>", "</s>"), ("<|endoftext|>", "</s>")]
"""A tokenizer's end of text and its padding token."""


@pytest.fixture(scope="module")
def with_ends():
    """Return what makes a tokenizer that has several usual ends, by its eos_token and pad_token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>", "<|endoftext|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return lambda eos, pad: PreTrainedTokenizerFast(tokenizer_object=made, eos_token=eos, pad_token=pad)


def given_as(way: str, tokenizer, folder: Path):
    """Return a tokenizer in one of the ways that users have it."""
    if way == "object":
        return tokenizer
    tokenizer.save_pretrained(folder)
    if way == "special tokens":
        configuration = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"eos_token": {"content": configuration.pop("eos_token")}})
        )
        (folder / "tokenizer_config.json").write_text(json.dumps(configuration))
    return str(folder / "tokenizer.json") if way == "file" else str(folder)


@pytest.mark.variants
@pytest.mark.filterwarnings("ignore:.*documents end with")
@pytest.mark.parametrize(("eos", "pad"), ENDS)
@pytest.mark.parametrize("way", ["object", "folder", "file", "special tokens"])
def test_documents_end_with_the_tokenizers_own_eos_token(with_ends, eos, pad, way, tmp_path):
    tokenizer = with_ends(eos, pad)
    given = given_as(way, tokenizer, tmp_path / "saved")
    end, ids = tokenizer.eos_token_id, tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    crawl = lc.Crawl(Dataset.from_dict({"id": ["a"], "text": TEXTS[:1]})) | lc.tokens.Tokenize(given)
    for number, write in enumerate((crawl.to_gpt_simple, crawl.to_datatrove, crawl.to_megatron, crawl.to_nanogpt)):
        write(str(tmp_path / str(number)))
        (shard,) = (each for each in (tmp_path / str(number) / "train").iterdir() if each.suffix in (".bin", ".ds"))
        form = {"format": "nanogpt"} if number == 3 else {}
        assert lc.formats.open_shard(shard, **form).tokens.tolist() == [*ids, end]
    crawl.to_composed(tmp_path / "composed", capacities=[512])
    assert lc.formats.open_composed(tmp_path / "composed").described["end_of_text"] == end
    (tmp_path / "raw.jsonl").write_text(json.dumps({"text": TEXTS[0]}))
    feed = lc.loading.Jsonl(tmp_path / "raw.jsonl", given, max_length=len(ids) + 1)
    assert feed[0]["input_ids"].tolist() == [[*ids, end]]
    # A token that is named wins, whatever the tokenizer says.
    for name in ("<|endoftext|>", "<s>"):
        stage = lc.tokens.Tokenize(given, end_of_text=name)
        assert stage.encoder().end_of_text == tokenizer.convert_tokens_to_ids(name)
        assert lc.tokens.Tokenize(**stage.settings()).encoder().end_of_text == stage.encoder().end_of_text


def test_two_ends_are_named_by_a_warning(with_ends, tmp_path):
    with pytest.warns(UserWarning, match=r"documents end with '</s>', its eos_token, not with '<\|endoftext\|>'; set"):
        _ = load_encoder(given_as("folder", with_ends("</s>", "<s>"), tmp_path / "two")).end_of_text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = load_encoder(given_as("folder", with_ends("<|endoftext|>", "</s>"), tmp_path / "one")).end_of_text
        # Whoever names the end is not warned.
        _ = load_encoder(str(tmp_path / "two"), "<|im_end|>").end_of_text
        # tokenizer.json alone names no eos_token.
        (tmp_path / "alone").mkdir()
        shutil.copy(tmp_path / "two" / "tokenizer.json", tmp_path / "alone")
        assert load_encoder(str(tmp_path / "alone")).end_of_text == load_encoder(str(tmp_path / "one")).end_of_text
    configuration = tmp_path / "one" / "tokenizer_config.json"
    configuration.write_text(json.dumps({"eos_token": "<nowhere>"}))
    with pytest.warns(UserWarning, match="since its eos_token, '<nowhere>', is missing"):
        assert load_encoder(str(tmp_path / "one")).end_of_text == with_ends("<|endoftext|>", "</s>").eos_token_id


@pytest.mark.filterwarnings("ignore:.*documents end with '</s>'")
def test_a_tokenizer_of_the_hub_comes_with_its_eos_token(with_ends, tmp_path, monkeypatch):
    saved = tmp_path / "saved"
    with_ends("</s>", "<s>").save_pretrained(saved)
    asked = []

    def download(repository, file):
        asked.append((repository, file))
        if not (saved / file).exists():
            raise LocalEntryNotFoundError(file)
        return str(saved / file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    encoders._from_hub.cache_clear()
    assert load_encoder("org/own").end_of_text == 1
    assert asked == [("org/own", "tokenizer.json"), ("org/own", "tokenizer_config.json")]
    (saved / "tokenizer_config.json").unlink()
    with pytest.warns(UserWarning, match="tokenizer_config.json of org/other is not in the cache, and the Hub can"):
        assert load_encoder("org/other").end_of_text == 2
    encoders._from_hub.cache_clear()
