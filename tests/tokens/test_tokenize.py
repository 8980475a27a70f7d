"""The stage Tokenize: its columns, its settings, and the same result wherever it runs."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from datasets.fingerprint import Hasher

from longcrawl.errors import StageError, TokenizerError
from longcrawl.tokens.encoders import load_encoder
from longcrawl.tokens.tokenize import Tokenize, json_escape

TEXTS = ["The web, the crawl.", 'Say "hi"\nto the café <|endoftext|>', "", None, "東京 \U0001f600 the end"] * 4


@pytest.fixture(scope="module")
def documents() -> pa.Table:
    return pa.table({"id": [f"d{i}" for i in range(len(TEXTS))], "text": TEXTS, "url": ["u"] * len(TEXTS)})


@pytest.fixture(scope="module")
def fitted(documents, tmp_path_factory) -> Tokenize:
    return Tokenize("trained", vocabulary_size=300).fit([documents], str(tmp_path_factory.mktemp("fitted")))


def wanted(stage: Tokenize, texts: list[str | None]) -> list[list[int]]:
    encoder = load_encoder(stage.tokenizer)
    return [encoder.encode([text]).ids.tolist() for text in texts]


def test_text_gives_way_to_tokens(documents, fitted):
    table = fitted(documents)
    assert table.schema == pa.schema(
        [("id", pa.string()), ("url", pa.string()), ("tokens", pa.list_(pa.uint16())), ("n_tokens", pa.int64())]
    )
    assert table["tokens"].to_pylist() == wanted(fitted, TEXTS)
    assert table["n_tokens"].to_pylist() == [len(ids) for ids in table["tokens"].to_pylist()]
    assert table["id"].equals(documents["id"])


def test_null_and_empty_texts_have_no_tokens(fitted):
    for texts in (pa.array([None, ""]), pa.array([None, ""], pa.large_string()), pa.nulls(2)):
        assert fitted(pa.table({"text": texts}))["tokens"].to_pylist() == [[], []]
    assert fitted(pa.table({"text": pa.array([], pa.string())})).num_rows == 0


def test_sliced_and_chunked_tables(documents, fitted):
    whole = fitted(documents)
    assert fitted(documents.slice(3, 7)).equals(whole.slice(3, 7))
    chunks = pa.concat_tables([documents.slice(0, 6), documents.slice(6)])
    assert fitted(chunks).equals(whole)


def test_earlier_tokens_are_replaced(documents, fitted):
    counted = documents.append_column("n_tokens", pa.array([7] * len(TEXTS)))
    assert fitted(counted).equals(fitted(documents))


def test_tokens_decode_to_the_text(documents, fitted):
    for ids, text in zip(fitted(documents)["tokens"].to_pylist(), TEXTS, strict=True):
        assert fitted.encoder().decode(ids) == (text or "")


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_json_escaped_is_the_text_as_json_spells_it(documents, fitted, ensure_ascii):
    stage = Tokenize(fitted.tokenizer, json_escaped=True, ensure_ascii=ensure_ascii)
    escaped = [None if text is None else json.dumps(text, ensure_ascii=ensure_ascii)[1:-1] for text in TEXTS]
    assert stage(documents)["tokens"].to_pylist() == wanted(stage, escaped)
    assert json_escape('"é"\n', ensure_ascii) == ('\\"\\u00e9\\"\\n' if ensure_ascii else '\\"é\\"\\n')
    for ids, text in zip(stage(documents)["tokens"].to_pylist(), TEXTS, strict=True):
        assert json.loads(f'"{stage.encoder().decode(ids)}"') == (text or "")


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_dtype_as_asked(documents, fitted, dtype):
    table = Tokenize(fitted.tokenizer, dtype=dtype)(documents)
    assert str(table["tokens"].type.value_type) == dtype
    assert table["tokens"].to_pylist() == wanted(fitted, TEXTS)


def test_dtype_too_small_for_the_vocabulary(documents, fitted, tmp_path):
    document = json.loads(Path(fitted.tokenizer).read_text())
    document["model"]["vocab"]["<|endoftext|>"] = document["added_tokens"][0]["id"] = 70_000
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    assert Tokenize(str(path))(documents)["tokens"].type == pa.list_(pa.uint32())
    with pytest.raises(TokenizerError, match="70,001 ids: set it to 'auto'"):
        Tokenize(str(path), dtype="uint16")(documents)


def test_trained_needs_fit(documents, fitted, tmp_path):
    stage = Tokenize("trained")
    assert stage.needs_fit
    with pytest.raises(StageError, match=r"call stage\.fit\(tables, directory\) first"):
        stage(documents)
    assert not fitted.needs_fit
    assert fitted.fit([], str(tmp_path)) is fitted
    assert fitted.encoder().end_of_text == 0
    assert 257 <= fitted.encoder().vocabulary_size <= 300


def test_fit_on_escaped_text_learns_escapes(documents, tmp_path):
    stage = Tokenize("trained", json_escaped=True, vocabulary_size=270).fit([documents], str(tmp_path))
    plain = Tokenize("trained", vocabulary_size=270).fit([documents], str(tmp_path / "plain"))
    assert stage.json_escaped
    assert Path(stage.tokenizer).read_bytes() != Path(plain.tokenizer).read_bytes()


FIT = """
import random, sys
import pyarrow as pa
from longcrawl.tokens.tokenize import Tokenize
seed, directory = int(sys.argv[1]), sys.argv[2]
pairs = [(a, b) for a in ("web", "crawl", "page", "café") for b in ("long", "short", "東京")]
texts = [f"the {a} of {b} and {a}{b} don't" for a, b in pairs * 3]
random.Random(seed).shuffle(texts)
tables = [pa.table({"text": texts[: 5 + seed]}), pa.table({"text": texts[5 + seed :]})]
Tokenize("trained", vocabulary_size=400).fit(tables, directory)
"""


@pytest.mark.slow
def test_fit_depends_only_on_the_documents(tmp_path):
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "TOKENIZERS_PARALLELISM": "true"}
        subprocess.run([sys.executable, "-c", FIT, seed, tmp_path / seed], check=True, env=environment)
    (first,), (second,) = ([*(tmp_path / seed).rglob("*.json")] for seed in ("1", "2"))
    assert first.read_bytes() == second.read_bytes()
    assert first.relative_to(tmp_path / "1") == second.relative_to(tmp_path / "2")
    assert [path for path in (tmp_path / "1").rglob("*") if path.is_file()] == [first]


@pytest.mark.parametrize("form", [None, "arrow", "numpy"])
@pytest.mark.parametrize("engine", ["tiktoken", "tokenizers"])
def test_map_in_every_format(documents, fitted, form, engine, tmp_path):
    stage = fitted if engine == "tiktoken" else only_tokenizers(fitted, tmp_path)
    assert stage.encoder().engine == engine
    mapped = datasets.Dataset(documents).with_format(form).map(stage, batched=True, batch_size=7)
    assert (
        mapped.with_format("arrow")[:].select(["id", "tokens"]).to_pydict()
        == stage(documents).select(["id", "tokens"]).to_pydict()
    )
    assert mapped.features["tokens"] == datasets.List(datasets.Value("uint16"))
    assert set(mapped.column_names) == {"id", "url", "tokens", "n_tokens"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["tiktoken", "tokenizers"])
def test_map_in_two_processes(documents, fitted, engine, tmp_path):
    stage = fitted if engine == "tiktoken" else only_tokenizers(fitted, tmp_path)
    stage(documents)  # the engine has run before the fork
    mapped = datasets.Dataset(documents).map(stage, batched=True, batch_size=3, num_proc=2)
    assert mapped["tokens"][:] == stage(documents)["tokens"].to_pylist()


def only_tokenizers(fitted: Tokenize, folder: Path) -> Tokenize:
    """Return the same tokenizer with a normalizer that changes nothing here, which ranks cannot say."""
    document = json.loads(Path(fitted.tokenizer).read_text())
    document["normalizer"] = {"type": "NFKC"}
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(document))
    return Tokenize(str(path))


def test_streaming(documents, fitted):
    streamed = datasets.Dataset(documents).to_iterable_dataset(num_shards=2)
    mapped = streamed.with_format("arrow").map(fitted, batched=True, batch_size=4)
    assert pa.concat_tables(mapped.iter(7)).combine_chunks() == fitted(documents).combine_chunks()


def test_pickle_is_the_settings_and_the_content_of_the_file(fitted, tmp_path):
    assert pickle.loads(pickle.dumps(fitted)) == fitted  # our own bytes
    assert pickle.loads(pickle.dumps(Tokenize("trained"))) == Tokenize("trained")  # as above
    path = tmp_path / "tokenizer.json"
    path.write_bytes(Path(fitted.tokenizer).read_bytes())
    stage = Tokenize(str(path))
    before, pickled = Hasher.hash(stage), pickle.dumps(stage)
    assert Hasher.hash(Tokenize(str(path))) == before
    path.write_text(path.read_text() + "\n")
    assert Hasher.hash(stage) != before
    with pytest.raises(TokenizerError, match="changed since the stage was saved"):
        pickle.loads(pickled)  # as above


def test_map_does_not_reuse_the_cache_of_another_tokenizer(documents, tmp_path):
    path = tmp_path / "tokenizer.json"
    stage = Tokenize(str(path))
    data = datasets.Dataset(documents)
    counts = []
    for size in (257, 300):
        learned = Tokenize("trained", vocabulary_size=size).fit([documents], str(tmp_path / "fit"))
        path.write_bytes(Path(learned.tokenizer).read_bytes())
        counts.append(sum(data.map(stage, batched=True)["n_tokens"]))
    assert counts[0] > counts[1]


def test_wrong_settings_and_tables(documents, fitted):
    with pytest.raises(StageError, match="one of 'auto', 'uint16', 'uint32'"):
        Tokenize(dtype="int32")
    with pytest.raises(StageError, match="set it to 257 or more"):
        Tokenize("trained", vocabulary_size=256)
    with pytest.raises(StageError, match="tokenize needs a column 'text'"):
        fitted(documents.drop_columns(["text"]))
    with pytest.raises(StageError, match="strings in column 'text', but it holds int64"):
        fitted(pa.table({"text": [1, 2]}))
    with pytest.raises(TokenizerError, match="no tokenizer at"):
        Tokenize("no/such/tokenizer.json")(documents)
    with pytest.raises(TokenizerError, match="set end_of_text to one of"):
        Tokenize(fitted.tokenizer, end_of_text="</s>")(documents)


@pytest.mark.slow
def test_importing_the_stage_imports_no_tokenizer():
    code = (
        "import sys, longcrawl.tokens.tokenize, longcrawl.tokens.encoders; "
        "print([name for name in ('tokenizers', 'tiktoken', 'transformers', 'numba') if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert asked.stdout.strip() == "[]"
