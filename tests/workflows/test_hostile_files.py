"""Files that are damaged, or that somebody wrote to do harm: one sentence, never a traceback, and nothing wrong."""

import importlib.util
import json
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import longcrawl as lc
from longcrawl.errors import (
    CorruptionError,
    LongCrawlError,
    RunError,
    SourceError,
    TokenizerError,
    reason_of,
    unreadable,
)
from longcrawl.io.structured import seal
from longcrawl.run.recipe import parse_recipe
from longcrawl.tokens.encoders import load_encoder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return a small finished run with a ledger and parquet files."""
    folder = tmp_path_factory.mktemp("hostile")
    chance = random.Random(5)
    lines = []
    vocabulary = "tide boat mud bread flour water time rain stone river"
    for number in range(60):
        words = " ".join(chance.choices(vocabulary.split(), k=40))
        text = "the same words " * 20 if number % 7 == 0 else words
        lines.append(json.dumps({"id": f"d{number}", "text": text, "url": f"https://e{number % 3}.org/{number}"}))
    (folder / "documents").mkdir()
    (folder / "documents" / "a.jsonl").write_text("\n".join(lines))
    source = {"builder": "text", "data_dir": str(folder / "documents"), "id_field": "id", "url_field": "url"}
    recipe = {"longcrawl": 1, "name": "hostile", "source": source, "stages": ["exact_documents"]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"outputs": {"parquet": {}}}))
    lc.run(folder / "recipe.yaml", folder / "run")
    return folder / "run"


@pytest.fixture
def copy(run, tmp_path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> dict:
    """Return the content of a tokenizer.json."""
    stage = lc.tokens.Tokenize("trained", vocabulary_size=300)
    table = pa.table({"text": ["The tide was out and the boats lay in the mud. " * 5]})
    fitted = stage.fit([table], str(tmp_path_factory.mktemp("trained")))
    return json.loads(Path(fitted.tokenizer).read_text())


def set_in(document: dict, path: str, value) -> dict:
    """Return a copy with another value at a path such as ``model.merges.0``."""
    changed = json.loads(json.dumps(document))
    *above, last = path.split(".")
    place = changed
    for step in above:
        place = place[int(step) if isinstance(place, list) else step]
    place[int(last) if isinstance(place, list) else last] = value
    return changed


HOSTILE_VALUES = (None, -1, 1e400, 10**20, "", "a", [], {}, True, [[]], ["a"], {"type": "Split"}, "\ud800", [None], 0.5)
PLACES = (
    "model", "model.type", "model.vocab", "model.vocab.a", "model.merges", "model.merges.0", "model.merges.1",
    "added_tokens", "added_tokens.0", "added_tokens.0.id", "added_tokens.0.content", "added_tokens.0.special",
    "pre_tokenizer", "pre_tokenizer.type", "pre_tokenizer.use_regex", "normalizer", "decoder", "post_processor",
    "model.dropout", "model.unk_token", "model.byte_fallback", "truncation", "padding", "version",
)  # fmt: skip


@pytest.mark.variants
@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_tokenizer_is_one_sentence(tmp_path, tokenizer, place):
    for number, value in enumerate(HOSTILE_VALUES):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(set_in(tokenizer, place, value)))
        try:
            encoder = load_encoder(str(file), "<|endoftext|>")
            encoder.decode(encoder.encode(["The tide was out. ☂"]).ids.tolist())
            assert encoder.fingerprint
        except TokenizerError as wrong:
            said = str(wrong)
        else:
            continue
        assert str(file) in said
        assert len(said) < 600


@pytest.mark.variants
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"model": 3}', b"\xff\xfe", b'{"model":' * 60_000, b'{"model": {"a": 1}}']
)
def test_what_is_no_tokenizer_is_one_sentence(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: "):
        load_encoder(str(tmp_path))


def test_ids_are_limited_before_arrays_are_made_of_them(tmp_path, tokenizer):
    """An id of four billion would make arrays of as many entries."""
    changed = set_in(tokenizer, "model.vocab.a", 4_000_000_000)
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
    with pytest.raises(TokenizerError, match=r"has the id 4,000,000,000, but ids end at 16,777,215"):
        load_encoder(str(tmp_path))


PATTERNS = {
    "exponential": ("(a+)+$", "retry-limit-in-match over"),
    "exponential by a reference": (r"(a*)*\1b", None),
    "deep": ("(" * 50_000 + "a" + ")" * 50_000, "parse depth limit over"),
    "deep classes": ("[" * 50_000 + "a" + "]" * 50_000, "parse depth limit over"),
    "large": ("(?:a{100000}){100000}", "too big number for repeat range"),
    "recursive": (r"(?<n>a\g<n>?b)|\g<n>", None),
    "empty": ("", None),
    "matches nothing": ("(?:)", None),
}


@pytest.mark.variants
@pytest.mark.parametrize("engine", ["auto", "tokenizers"])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_hostile_pattern_of_a_tokenizer_ends(tmp_path, tokenizer, name, engine):
    """Both libraries give up after a number of steps; what one cannot do, or panics at, the other does."""
    pattern, given_up = PATTERNS[name]
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    bytes_only = {**tokenizer["pre_tokenizer"], "add_prefix_space": False, "use_regex": False}
    steps = {"type": "Sequence", "pretokenizers": [split, bytes_only]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"pre_tokenizer": steps}))
    said, ids = "", []
    try:
        ids = load_encoder(str(tmp_path), "<|endoftext|>", engine).encode(["a" * 5_000 + "!"]).ids
    except TokenizerError as wrong:
        said = str(wrong)
    assert (given_up or "") in said
    assert len(said) < 600
    assert bool(said) == (given_up is not None)
    assert (len(ids) > 0) == (given_up is None)


def test_a_panic_of_a_library_in_rust_is_one_sentence():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(SourceError, match=r"^x cannot be read \(PanicException: index out of bounds\): fetch it$"), \
            unreadable("x", SourceError, "fetch it"):  # fmt: skip
        raise panic("index out of bounds\nbacktrace")
    with pytest.raises(KeyboardInterrupt), unreadable("x", SourceError, "fetch it"):
        raise KeyboardInterrupt
    assert reason_of(ValueError("\x1b[31m" + "a" * 900)).startswith("ValueError: \\x1b[31m")


QUESTIONS = {
    "why removed": lambda run: lc.why(run, "d14"),
    "why kept": lambda run: lc.why(run, "d1"),
    "clusters": lambda run: str(lc.clusters(run)),
    "inspect": lambda run: str(lc.inspect(run, row=1)),
    "analysis": lambda run: str(lc.analysis(run / "parquet")),
    "removed": lambda run: str(lc.removed_documents(run)),
    "card": lambda run: str(lc.card(run)),
    "funnel": lambda run: f"{lc.funnel(run)!r}{lc.removal_rates(run)!r}",
    "verify": lambda run: str(lc.verify(run)),
}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))])
def test_damaged_tables_are_one_sentence(copy, seed):
    chance = random.Random(seed)
    folder = ("ledger", "parquet")[seed % 2]
    file = chance.choice(sorted((copy / folder).rglob("*.parquet")))
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 4))):
        place = max(len(content) - 1 - int(chance.expovariate(1 / 300)), 0)
        content[place] = chance.randrange(256)
    file.write_bytes(content if seed % 5 else content[: chance.randrange(len(content))])
    for question in QUESTIONS.values():
        said = ""
        try:
            question(copy)
        except LongCrawlError as wrong:
            said = str(wrong)
        assert "\n" not in said
        assert len(said) < 700


def test_a_changed_description_is_not_believed(copy):
    file = copy / "parquet" / "parquet.json"
    file.write_text(file.read_text().replace('"documents"', '"document5"', 1))
    for question in ("inspect", "analysis"):
        with pytest.raises(CorruptionError, match=r"parquet\.json has been changed"):
            QUESTIONS[question](copy)


@pytest.mark.variants
@pytest.mark.parametrize("name", ["manifest.json", "parquet/parquet.json"])
def test_descriptions_that_somebody_sealed_anew_are_one_sentence(copy, name):
    """Descriptions with other types or missing entries, each with the right SHA-256 of itself."""
    file = copy / name
    whole, chance = json.loads(file.read_text()), random.Random(name)
    values = (None, -1, 10**20, 1 << 62, "", "../../x", [], {}, True, [[]], ["a"], {"a": 1}, "\ud800", 0.5)
    for _ in range(60):
        changed = json.loads(json.dumps(whole))
        place = changed
        while isinstance(place[step := chance.choice([*place] if isinstance(place, dict) else range(len(place)))],
                         dict | list) and place[step] and chance.random() < 0.8:  # fmt: skip
            place = place[step]
        place[step] = chance.choice(values)
        file.write_bytes(seal(changed).encode("utf-8", "surrogatepass"))
        for question in chance.sample([*QUESTIONS], 2):
            said = ""
            try:
                QUESTIONS[question](copy)
            except LongCrawlError as wrong:
                said = str(wrong)
            assert "\n" not in said
            assert len(said) < 900


@pytest.mark.parametrize("text", ["[" * 5000, "a: &a [*a]", "- 1", "outputs: {parquet: 3}", "{}", "\ud800"])
def test_a_hostile_recipe_in_the_folder_of_a_run_is_one_sentence(copy, text):
    (copy / "recipe.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    (copy / "manifest.json").unlink()
    with pytest.raises(RunError, match=r"recipe\.yaml cannot be read|holds the run of another recipe"):
        lc.run("quickstart", copy)


LONG = "[" * 10_000
LONG_VALUES = {
    "name": {"name": LONG, "longcrawl": 9},
    "version": {"longcrawl": LONG},
    "parts": {"parts": LONG},
    "key": {LONG: 1},
    "value of a field": {"outputs": {"parquet": {"file_bytes": LONG}}},
    "name of a field": {"outputs": {"parquet": {LONG: 1}}},
    "stage": {"stages": [[LONG]]},
}


@pytest.mark.parametrize("where", LONG_VALUES)
def test_a_long_value_in_a_recipe_is_shown_in_part(run, where):
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    with pytest.raises(LongCrawlError) as wrong:
        parse_recipe(recipe | LONG_VALUES[where])
    assert "[[[[" in str(wrong.value)
    assert len(str(wrong.value)) < 700


@pytest.mark.parametrize(
    ("mode", "file", "fix"),
    [
        (0o555, "README.md cannot be written (", "make {} writable"),
        (0o600, "manifest.json cannot be read (", "ask the owner of {} for access"),
    ],
)
def test_the_card_of_a_run_that_may_not_be_used_is_one_sentence(copy, mode, file, fix):
    """Root may write anywhere, so a process without its rights does it."""
    (copy / "README.md").unlink()
    copy.chmod(mode)
    for above in copy.parents:
        if above.stat().st_uid == os.getuid() and "pytest-of-" in str(above):
            above.chmod(above.stat().st_mode | 0o011)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            lc.card(copy)
            said = "written"
        except BaseException as wrong:  # noqa: BLE001  # the parent asks which it was
            said = f"{type(wrong).__name__}: {wrong}"
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(reader, 10_000).decode()
    copy.chmod(0o755)
    assert said.startswith(f"RunError: {copy}/{file}"), said
    assert fix.format(copy) in said


@pytest.mark.parametrize(("protocol", "package"), [("gs", "gcsfs"), ("s3", "s3fs")])
def test_a_protocol_without_its_package_names_what_to_install(protocol, package):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    named, extra = f"{protocol}://bucket/a", package.removesuffix("fs")
    for use in (
        lambda: lc.open("text", data_dir=named),
        lambda: lc.open("warc", data_files=f"{named}/*.warc.gz"),
        lambda: lc.open("rectangle", data_dir=named),
        lambda: lc.verify(named),
        lambda: lc.loading.Rectangle(named, batch_size=1, context_length=4),
        lambda: lc.loading.Windows(f"{named}.ds", 4),
    ):
        with pytest.raises(SourceError, match=rf"cannot be reached .* Run pip install 'longcrawl\[{extra}\]'"):
            use()


def test_a_repository_that_the_hub_does_not_have_holds_no_files(hub):
    with pytest.raises(SourceError, match=r"hf://datasets/me/nothing holds no file that can be read"):
        lc.open("text", data_dir="hf://datasets/me/nothing")
    with pytest.raises(SourceError, match=r"no file matches 'hf://datasets/me/nothing/\*'"):
        lc.open("text", data_files="hf://datasets/me/nothing/*")


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_listing_that_the_hub_refuses_is_one_sentence_without_the_token(hub, monkeypatch, status):
    monkeypatch.setattr("longcrawl.io.file_systems.RETRY_SECONDS", 0.5)
    for settings in ({"data_dir": f"hf://datasets/me/listed{status}"}, {"data_files": f"hf://datasets/me/l{status}/*"}):
        hub.fail("GET /api/datasets", status=status, times=50)
        with pytest.raises(LongCrawlError) as refused:
            lc.open("text", **settings)
        hub.failures.clear()
        assert "\n" not in str(refused.value)
        assert hub.token not in repr(refused.value)
        assert "again" in str(refused.value)
