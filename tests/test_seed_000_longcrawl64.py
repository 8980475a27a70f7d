"""J. Buckman, "LongCrawl64: A Long-Context Natural-Language Dataset" (Manifest AI, 2024), sentence by sentence.

What the rows must be is worked out here by a second, plain path: gzip, json, pyarrow for the list of duplicates, and
the tokenizer's own library. It shares no code with longcrawl. Every sentence is tested for both recipes, on a small
release made here and, in `make slow` where LONGCRAWL_DATA names real input, on that.
"""

import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiktoken
import yaml
import zarr
from tiktoken.load import load_tiktoken_bpe

import longcrawl as lc

GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
SMALL = {"n_words": 60, "n_tokens": 512}
ARTICLE = {"n_words": 16_000, "n_tokens": 65_536}


@dataclass
class Document:
    """Result of the plain path for one document; ``left_at`` is None for a row of the rectangle."""

    left_at: str | None
    text: str
    url: str
    tokens: list[int] | None = None


@dataclass
class Made:
    """One run of a recipe, and what it should have made."""

    recipe: str
    release: Path
    folder: Path
    again: Path
    """The same run with two processes."""
    length: int
    end_of_text: int
    heldout: float
    documents: dict[str, Document]

    @property
    def rectangle(self) -> Path:
        return self.folder / "rectangle"

    @property
    def expected(self) -> dict[str, Document]:
        return {name: document for name, document in self.documents.items() if document.left_at is None}

    def array(self, split: str = "train") -> np.ndarray:
        return zarr.open(str(self.rectangle / split), mode="r")[:]

    def origins(self, split: str = "train") -> list[dict]:
        return pq.read_table(self.rectangle / "rows" / f"{split}.parquet").to_pylist()

    def rows(self) -> list[tuple[dict, np.ndarray]]:
        """Return every row with its origin, in the order of the shuffle: the held-out ones are its first."""
        splits = [split for split in ("heldout", "train") if (self.rectangle / split).exists()]
        return [pair for split in splits for pair in zip(self.origins(split), self.array(split), strict=True)]


# -------------------- the second, plain path


def plain_path(release: Path, encode: Callable[[str], list[int]], n_words: int, n_tokens: int, *, clean: bool):
    """Work out, document by document, which rule each English head or middle document leaves at."""
    documents: dict[str, Document] = {}
    first_with: dict[str, str] = {}
    for file in sorted(
        [*release.glob("documents/*/*/en_head.json.gz"), *release.glob("documents/*/*/en_middle.json.gz")]
    ):
        part = file.relative_to(release / "documents").as_posix()
        stem = part.removesuffix(".json.gz")
        with gzip.open(release / "quality_signals" / f"{stem}.signals.json.gz", "rt", encoding="utf-8") as lines:
            signals = {found["id"]: found["quality_signals"] for found in map(json.loads, lines)}
        listed = set(pq.read_table(release / "duplicates" / f"{stem}.duplicates.parquet")["doc_id"].to_pylist())
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                name, record = f"{part}/{number}", json.loads(line)
                text = record["raw_content"]
                documents[name] = Document(None, text, record["url"])
                documents[name].left_at = left_before_tokens(name, signals[name], listed, n_words, clean=clean)
    if clean:
        for name in sorted(documents):
            document = documents[name]
            if document.left_at is None and first_with.setdefault(document.text, name) != name:
                document.left_at = "exact_documents"
    for document in documents.values():
        if document.left_at is None:
            spelled = document.text if clean else json.dumps(document.text)[1:-1]
            document.tokens = encode(spelled)
            if len(document.tokens) < n_tokens:
                too_few_bytes = len(spelled.encode()) < n_tokens
                document.left_at = "min_bytes" if too_few_bytes else "min_tokens"
    return documents


def left_before_tokens(name: str, signals: dict, listed: set[str], n_words: int, *, clean: bool) -> str | None:
    def value(signal):
        return signals[signal][0][2]

    bullets = sum(span[2] for span in signals["rps_lines_start_with_bulletpoint"])
    cap = float("inf") if clean else 100_000
    good = (
        50 <= value("rps_doc_word_count") <= cap
        and 3 <= (value("rps_doc_mean_word_length") or 0) <= 10
        and (value("rps_doc_symbol_to_word_ratio") or 0) <= 0.1
        and bullets / value("ccnet_nlines") <= 0.9
        and value("rps_doc_frac_chars_top_2gram") <= 0.2
    )
    if not good:
        return "signal_rules"
    if name in listed:
        return "listed_duplicates"
    return "min_words" if value("rps_doc_word_count") < n_words else None


def article_batches(array: np.ndarray, documents: int, context: int, pad: int) -> Iterator[dict[str, np.ndarray]]:
    """Return the minibatches as the article says in words: all rows of the first columns, then of the next columns."""
    padding = np.full((documents, 1), pad, array.dtype)
    for left in range(0, array.shape[1] - context + 1, context):
        for top in range(0, array.shape[0] - documents + 1, documents):
            targets = array[top : top + documents, left : left + context]
            yield {"text": np.concatenate([padding, targets[:, :-1]], axis=1), "targets": targets}


# -------------------- what is looked at


def prose(chance: random.Random, words: int) -> str:
    """Return text that passes the rules, with characters that JSON escapes."""
    said = ["".join(chance.choices("abcdefghijklmnopr", k=chance.randint(3, 8))) for _ in range(words)]
    for place in range(9, words, 10):
        said[place] += chance.choice([".\n", ' "so"', ", naïve", " 😀", " back\\slash", ".\n\n"])
    return " ".join(said)


def small_parts() -> dict[str, list]:
    chance = random.Random(64)
    parts: dict[str, list] = {}
    for part in ("2022-49/0000/en_head", "2023-06/0000/en_head", "2023-06/0000/en_middle", "2023-06/0001/en_head"):
        texts: list = [prose(chance, chance.randint(20, 420)) for _ in range(24)]
        long = prose(chance, 300)
        texts += [
            {"text": prose(chance, 330), "duplicate": True},
            {"text": prose(chance, 300), "signals": {"rps_doc_word_count": 150_000}},
            " ".join("".join(chance.choices("abcdefgh", k=14)) for _ in range(120)),
            "again and " * 200 + prose(chance, 100),
            "\n".join(f"• {prose(chance, 3)}" for _ in range(150)),
            prose(chance, 200) + " #" * 200,
            {"text": long, "signals": {"rps_doc_mean_word_length": None}},
            "one text in every part: " + prose(random.Random(1), 400),
        ]
        chance.shuffle(texts)
        parts[part] = texts
    # All long enough, but not of the partitions and languages that the article reads.
    parts["2023-06/0000/en_tail"] = [prose(chance, 400) for _ in range(3)]
    parts["2023-06/0000/de_head"] = [prose(chance, 400) for _ in range(3)]
    return parts


def train_tokenizer(texts: list[str], path: Path) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module")
def small_release(tmp_path_factory, make_release) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("small")
    parts = small_parts()
    texts = [each if isinstance(each, str) else each["text"] for part in parts.values() for each in part]
    return make_release(folder / "release", parts), train_tokenizer(texts, folder / "tokenizer.json")


def make_small(recipe: str, release: Path, tokenizer: Path, folder: Path) -> Made:
    from tokenizers import Tokenizer

    known = Tokenizer.from_file(str(tokenizer))
    words, tokens = SMALL["n_words"], SMALL["n_tokens"]
    overrides = [
        f"source.data_dir={release}",
        f"stages.tokenize.tokenizer={tokenizer}",
        f"stages.min_words.n={words}",
        *(f"stages.{stage}.n={tokens}" for stage in ("min_bytes", "min_tokens", "truncate")),
        "outputs.rectangle.heldout=0.1",
    ]
    lc.run(recipe, folder / "one", 1, overrides)
    lc.run(recipe, folder / "two", 2, overrides)
    documents = plain_path(
        release,
        lambda text: known.encode(text, add_special_tokens=False).ids,
        words,
        tokens,
        clean=recipe.endswith("clean"),
    )
    return Made(recipe, release, folder / "one", folder / "two", tokens, 0, 0.1, documents)


def make_real(recipe: str, data: Path, folder: Path) -> Made:
    ranks = load_tiktoken_bpe(str(data / "gpt2.tiktoken"))
    gpt2 = tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50_256}
    )
    overrides = [f"source.data_dir={data / 'rpv2'}", f"stages.tokenize.tokenizer={data / 'gpt2.tiktoken'}"]
    lc.run(recipe, folder / "one", 1, overrides)
    lc.run(recipe, folder / "two", 2, overrides)
    documents = plain_path(
        data / "rpv2",
        gpt2.encode_ordinary,
        ARTICLE["n_words"],
        ARTICLE["n_tokens"],
        clean=recipe.endswith("clean"),
    )
    return Made(recipe, data / "rpv2", folder / "one", folder / "two", ARTICLE["n_tokens"], 50_256, 0.008, documents)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (size, recipe),
            id=f"{size}-{recipe}",
            marks=[pytest.mark.slow] * ((size, recipe) != ("small", "longcrawl64")),
        )
        for size in ("small", "real")
        for recipe in ("longcrawl64", "longcrawl64-clean")
    ],
)
def made(request, tmp_path_factory) -> Made:
    size, recipe = request.param
    folder = tmp_path_factory.mktemp(f"{size}-{recipe}")
    if size == "real":
        return make_real(recipe, request.getfixturevalue("real_data"), folder)
    return make_small(recipe, *request.getfixturevalue("small_release"), folder)


# -------------------- "How the dataset was constructed"


def test_filter_head_and_middle_by_the_metrics_keeping_only_high_quality_non_duplicated_long_documents(made):
    """We first use these metrics to filter head & middle, keeping only high-quality, non-duplicated documents ..."""
    names = [origin["id"] for origin, _ in made.rows()]
    assert sorted(names) == sorted(made.expected)
    reasons = {document.left_at for document in made.documents.values()}
    assert {"signal_rules", "listed_duplicates", "min_words", "min_tokens", None} <= reasons
    assert not any("_tail" in name or "/de_" in name for name in names)


def test_the_release_lists_duplicates_and_none_of_them_is_a_row(made):
    listed = {
        name
        for file in made.release.glob("duplicates/*/*/en_*.parquet")
        for name in pq.read_table(file)["doc_id"].to_pylist()
    }
    assert listed
    assert not listed & {origin["id"] for origin, _ in made.rows()}


def test_we_then_tokenize_each_one(made):
    """We then tokenize each one: every row, rolled back, is the first tokens of its document, token for token."""
    for origin, row in made.rows():
        tokens = made.expected[origin["id"]].tokens
        assert np.roll(row, -origin["roll"]).tolist() == tokens[: made.length]


def test_the_text_was_json_escaped_and_is_plain_in_the_clean_recipe(made):
    """The published tokens show it; the article does not mention it."""
    inspection = lc.inspect(made.folder, "train", 0)
    document = made.expected[inspection.row_id]
    assert len(inspection.text) > 200
    assert document.text.startswith(inspection.text.rstrip("\ufffd"))
    described = json.loads((made.rectangle / "rectangle.json").read_text())
    assert described["json_escaped"] is (made.recipe == "longcrawl64")


def test_we_then_further_discard_any_documents_shorter_than_64_kit(made):
    """We then further discard any documents shorter than 64 kibitokens; n_tokens is the length before truncation."""
    counts = {origin["id"]: origin["n_tokens"] for origin, _ in made.rows()}
    assert counts == {name: len(document.tokens) for name, document in made.expected.items()}
    assert min(counts.values()) >= made.length
    assert any(document.left_at in ("min_tokens", "min_bytes") for document in made.documents.values())


def test_longcrawl64_includes_all_documents_that_remain(made):
    """LongCrawl64 includes all documents that remain: each is one row, and the rows table says whose."""
    assert len(made.rows()) == len(made.expected)
    for split in ("train", "heldout"):
        origins = made.origins(split)
        assert [origin["row"] for origin in origins] == list(range(len(origins)))
        assert [origin["url"] for origin in origins] == [made.expected[origin["id"]].url for origin in origins]


def test_truncating_each_entry_to_be_exactly_64_kit(made):
    """Truncating each entry to be exactly 64 KiT."""
    assert {row.shape for _, row in made.rows()} == {(made.length,)}
    assert any(len(document.tokens) > made.length for document in made.expected.values())


def test_shuffling_the_dataset_along_the_document_dimension(made):
    """Shuffling the dataset along the document dimension: a permutation of all documents, in no order of theirs."""
    names = [origin["id"] for origin, _ in made.rows()]
    in_order = [name for name in made.documents if name in made.expected]
    assert len(set(names)) == len(names)
    assert set(names) == set(in_order)
    assert names != in_order
    places = np.array([in_order.index(name) for name in names])
    assert abs(np.corrcoef(places, np.arange(len(places)))[0, 1]) < 0.6


def test_rolling_each_document_a_random_amount_along_the_sequence_dimension(made):
    """Rolling each document a random amount along the sequence dimension."""
    rolls = [origin["roll"] for origin, _ in made.rows()]
    assert all(0 <= roll < made.length for roll in rolls)
    assert len(set(rolls)) > 0.8 * len(rolls)
    quarters = {4 * roll // made.length for roll in rolls}
    assert quarters == {0, 1, 2, 3}


def test_predicting_tokens_from_the_start_of_a_document_conditional_on_tokens_from_its_end(made):
    """Footnote 3: this causes us to sometimes predict tokens from the start of a document after those of its end."""
    seams = 0
    for origin, row in made.rows():
        if roll := origin["roll"]:
            tokens = made.expected[origin["id"]].tokens[: made.length]
            assert (row[roll - 1], row[roll]) == (tokens[-1], tokens[0])
            seams += 1
    assert seams


def test_the_end_result_is_a_zarr_array_of_uint16s(made):
    """The end result is a Zarr array of uint16s, opened as the article opens it."""
    train = zarr.open(str(made.rectangle / "train"), mode="r")
    assert train.dtype == np.uint16
    assert train.shape[1] == made.length
    assert train.fill_value == made.end_of_text


def test_split_into_a_train_set_and_a_heldout_set(made):
    """Footnote 4: we split this into a train set and a heldout set."""
    train, heldout = ({origin["id"] for origin in made.origins(split)} for split in ("train", "heldout"))
    assert not train & heldout
    assert len(heldout) == max(1, round(made.heldout * len(made.expected)))
    assert train | heldout == set(made.expected)


@pytest.mark.variants
def test_the_ledger_explains_every_document_that_left(made):
    """Removed and kept are together what was read, and every document left where the plain path says."""
    ledger = datasets.Dataset.from_parquet([str(path) for path in sorted((made.folder / "ledger").glob("*.parquet"))])
    left = dict(zip(ledger["id"], ledger["stage"], strict=True))
    assert len(left) == len(ledger)
    kept = {origin["id"] for origin, _ in made.rows()}
    assert not kept & set(left)
    assert kept | set(left) == set(made.documents)
    assert left == {name: document.left_at for name, document in made.documents.items() if document.left_at}
    for name in sorted(made.documents)[:: max(1, len(made.documents) // 20)]:
        assert lc.why(made.folder, name).stage == made.documents[name].left_at


def test_the_funnel_counts_what_the_plain_path_counts(made):
    funnel = lc.funnel(made.folder)
    assert funnel.documents == len(made.documents)
    assert funnel.kept == len(made.expected)
    reasons = [document.left_at for document in made.documents.values()]
    assert {row.stage: row.removed for row in funnel if row.removed} == {
        stage: reasons.count(stage) for stage in set(reasons) - {None}
    }


def test_an_exact_copy_leaves_only_the_clean_recipe(made):
    """The article removes what the release lists; the clean recipe also keeps one of several equal texts."""
    texts = [document.text for document in made.expected.values()]
    if made.recipe.endswith("clean"):
        assert len(set(texts)) == len(texts)
        gone = [name for name, document in made.documents.items() if document.left_at == "exact_documents"]
        for name in gone:
            twin = lc.why(made.folder, name).kept_id
            assert made.documents[twin].text == made.documents[name].text
            assert twin < name
            assert made.documents[twin].left_at != "exact_documents"
    else:
        assert "exact_documents" not in {row.stage for row in lc.funnel(made.folder)}


@pytest.mark.parametrize("name", ["longcrawl64", "longcrawl64-clean", "longcrawl64-select"])
def test_all_recipes_have_the_numbers_of_the_article(name):
    """The small release is too short for them; `make slow` runs them on the real one."""
    shipped = yaml.safe_load((Path(lc.__file__).parent / f"recipes/{name}.yaml").read_text())
    named = [stage for stage in shipped["stages"] if isinstance(stage, dict)]
    numbers = {kind: fields["n"] for stage in named for kind, fields in stage.items() if "n" in (fields or {})}
    long = dict.fromkeys(("min_bytes", "min_tokens", "truncate"), ARTICLE["n_tokens"])
    assert numbers == {"min_words": ARTICLE["n_words"], **long}
    assert shipped["outputs"] == {"rectangle": {"heldout": 0.008}}


def test_the_clean_recipe_has_no_word_cap(made):
    rules = {rule for row in lc.funnel(made.folder) for rule in row.rules}
    if made.recipe.endswith("clean"):
        assert "max_word_count" not in rules
    elif made.length == SMALL["n_tokens"]:
        assert "max_word_count" in rules


def test_every_rule_of_the_card_has_removed_something(small_release, tmp_path):
    """Footnote 1: the same criteria as Gopher's, as the release's card words them; one document or more for each."""
    release, _ = small_release
    crawl = lc.Crawl(lc.load("redpajama-v2", data_dir=str(release))) | lc.text.SignalRules("rpv2-card")
    (row,) = crawl.funnel
    assert set(row.rules) == {
        "min_word_count",
        "max_word_count",
        "min_mean_word_length",
        "max_mean_word_length",
        "max_symbol_to_word_ratio",
        "max_bullet_line_fraction",
        "max_top_2gram_fraction",
    }


def test_two_processes_write_the_same_bytes(made, directory_digest):
    assert directory_digest(made.folder) == directory_digest(made.again)


def test_everything_verifies(made):
    assert lc.verify(made.folder).problems == ()


# -------------------- "How to use the dataset"


def test_to_train_with_context_length_64_kit_simply_iterate_through_the_rows(made):
    """To train with context length 64 KiT, simply iterate through the rows."""
    array = made.array()
    batches = list(lc.loading.Rectangle(made.rectangle, batch_size=1))
    assert len(batches) == len(array)
    for row, batch in zip(array, batches, strict=True):
        assert np.array_equal(batch["targets"][0], row)


@pytest.mark.parametrize(("fraction", "documents"), [(1 / 64, 5), (0.3, 8), (1, 1)])
def test_with_less_context_iterate_through_the_rows_and_then_the_columns(made, fraction, documents):
    """Iterate through the rows and then the columns, at any context length, throwing away edges."""
    array, context = made.array(), int(made.length * fraction)
    loader = lc.loading.Rectangle(made.rectangle, batch_size=documents, context_length=context)
    assert len(loader) == (array.shape[0] // documents) * (array.shape[1] // context)
    for batch, told in zip(loader, article_batches(array, documents, context, made.end_of_text), strict=True):
        assert np.array_equal(batch["targets"], told["targets"])
        assert np.array_equal(batch["text"], told["text"])


def test_throw_away_edges(made):
    """Rows that do not fill a batch and columns that do not fill a window are in no batch."""
    rows, length = made.array().shape
    documents, context = rows // 2 + 1, length // 2 + 1
    loader = lc.loading.Rectangle(made.rectangle, batch_size=documents, context_length=context)
    assert len(loader) == 1
    assert np.array_equal(loader[0]["targets"], made.array()[:documents, :context])


def test_text_is_the_targets_behind_a_padding_token(made):
    """Use the data as targets, and construct the inputs by adding a padding token and dropping the final element."""
    batch = lc.loading.Rectangle(made.rectangle, batch_size=2, context_length=made.length // 8)[1]
    assert np.array_equal(batch["text"][:, 1:], batch["targets"][:, :-1])
    assert (batch["text"][:, 0] == made.end_of_text).all()


def test_no_correlations_between_consecutive_minibatches(made):
    """Consecutive minibatches never share a document, but where the columns change."""
    array, context = made.array(), made.length // 4
    loader = lc.loading.Rectangle(made.rectangle, batch_size=3, context_length=context)
    places = {row[:context].tobytes(): number for number, row in enumerate(array)}
    column_of_batches = [
        {places[target.astype(np.uint16).tobytes()] for target in loader[index]["targets"]}
        for index in range(len(array) // 3)
    ]
    for one, other in itertools.pairwise(column_of_batches):
        assert not one & other


def test_the_heldout_set_loads_the_same_way(made):
    array = made.array("heldout")
    batches = list(lc.loading.Rectangle(made.rectangle, split="heldout", batch_size=1, context_length=made.length // 2))
    assert len(batches) == 2 * len(array)
    assert np.array_equal(batches[0]["targets"][0], array[0, : made.length // 2])
    assert np.array_equal(batches[-1]["targets"][0], array[-1, made.length // 2 :])


@pytest.mark.parametrize("fraction", [None, 0.25])
def test_the_rectangle_is_a_dataset_of_rows_or_windows(made, fraction):
    context = None if fraction is None else int(made.length * fraction)
    data = datasets.load_dataset(
        "longcrawl", "rectangle", data_dir=str(made.rectangle), context_length=context, split="train"
    )
    array, width = made.array(), context or made.length
    windows = made.length // width
    assert data.num_rows == len(array) * windows
    names = [origin["id"] for origin in made.origins()]
    for place in {0, 1, data.num_rows - 1}:
        example = data[place]
        row, start = divmod(place, windows)
        assert (example["row"], example["start"], example["id"]) == (row, start * width, names[row])
        assert example["tokens"] == array[row, start * width : (start + 1) * width].tolist()


# -------------------- sentences that stand alone


def test_rolling_12_5_7_4_21_by_3_would_yield_7_4_21_12_5():
    """Footnote 3: by "roll", we mean in the numpy.roll sense."""
    names = [f"document {number}" for number in range(100)]
    example = pa.array([[12, 5, 7, 4, 21]] * len(names), pa.list_(pa.uint16()))
    rolled = lc.tokens.Roll().rewrite(pa.table({"id": names, "tokens": example}))
    by_amount = dict(zip(rolled["roll"].to_pylist(), rolled["tokens"].to_pylist(), strict=True))
    assert by_amount[3] == [7, 4, 21, 12, 5]
    assert by_amount == {amount: np.roll([12, 5, 7, 4, 21], amount).tolist() for amount in range(5)}


def test_data_is_stored_as_compressed_chunks_of_2048_x_2048_tokens(tmp_path):
    """Under the hood, data is stored as compressed chunks of 2048 x 2048 tokens: the option ``zarr_format=2``."""
    chance = np.random.default_rng(0)
    rows = chance.integers(0, 400, (2050, 4096), dtype=np.uint16)
    lists = pa.ListArray.from_arrays(np.arange(0, rows.size + 1, 4096, dtype=np.int32), pa.array(rows.ravel()))
    data = datasets.Dataset(pa.table({"id": [f"d{number}" for number in range(len(rows))], "tokens": lists}))
    lc.Crawl(data).to_rectangle(tmp_path / "made", zarr_format=2, context_length=4096, end_of_text=0)
    told = json.loads((tmp_path / "made" / "train" / ".zarray").read_text())
    assert told["chunks"] == [2048, 2048]
    assert told["compressor"]["id"] == "blosc"
    assert sorted(path.name for path in (tmp_path / "made" / "train").glob("[0-9]*")) == ["0.0", "0.1", "1.0", "1.1"]
    assert np.array_equal(zarr.open(str(tmp_path / "made" / "train"), mode="r")[:], rows)
    batch = lc.loading.Rectangle(tmp_path / "made", batch_size=4, context_length=3000)[2]
    assert np.array_equal(batch["targets"], list(article_batches(rows, 4, 3000, 0))[2]["targets"])


def test_any_such_rectangle_will_consist_of_rows_uncorrelated_in_content_and_in_position():
    """Shuffling and rolling are uniform: no place of a document tells its row, no row tells its roll."""
    count, length = 4000, 64
    names = [f"2023-06/0000/en_head.json.gz/{number}" for number in range(count)]
    tokens = pa.array([list(range(length))] * count, pa.list_(pa.uint16()))
    crawl = lc.Crawl(datasets.Dataset(pa.table({"id": names, "tokens": tokens})))
    done = (crawl | lc.tokens.Shuffle() | lc.tokens.Roll()).data.with_format("arrow")[:]
    places = np.array([int(name.rsplit("/", 1)[1]) for name in done["id"].to_pylist()])
    rolls = done["roll"].to_numpy()
    assert sorted(places.tolist()) == list(range(count))
    # Four standard deviations of a correlation of independent values.
    limit = 4 / np.sqrt(count)
    assert abs(np.corrcoef(places, np.arange(count))[0, 1]) < limit
    assert abs(np.corrcoef(rolls, np.arange(count))[0, 1]) < limit
    assert abs(np.corrcoef(rolls, places)[0, 1]) < limit
    in_each = np.bincount(rolls, minlength=length)
    assert ((in_each - count / length) ** 2 / (count / length)).sum() < length + 4 * np.sqrt(2 * length)


def test_vocabulary_of_gpt2_fits_uint16_and_its_last_id_ends_a_text(real_data):
    encoder = lc.tokens.Tokenize(str(real_data / "gpt2.tiktoken")).encoder()
    assert encoder.vocabulary_size == 50_257
    assert encoder.end_of_text == 50_256
    assert encoder.dtype == np.uint16
