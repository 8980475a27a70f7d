"""Documents taken out of runs of every output: gone by search, all else as it was, and only their files written."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import longcrawl as lc
from longcrawl.errors import CorruptionError, RunError
from longcrawl.formats.rectangle.spec import open_loss_mask, open_split
from longcrawl.formats.shards.spec import FORMATS
from longcrawl.run.takedown import Asked

WORDS, END = 30_000, 30_001
LENGTH, DOCUMENTS = 24, 4_500
GONE = [0, 1, 2, 77, 2047, 2048, 3000, 4497, 4499, *range(150, 4_250, 100)]
TOKENS: list[Any] = ["exact_documents", {"tokenize": {"tokenizer": "TOKENIZER"}}]
ROWS: list[Any] = [*TOKENS, {"min_tokens": {"n": LENGTH}}, {"truncate": {"n": LENGTH}}, "shuffle", "roll"]
TRAINED = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 400}}
INDEXED = {"exact_documents": {"index": "save"}}
MASKED = {"exact_substring": {"min_tokens": 25, "policy": "mask", "unit": "character"}}
RUNS: Mapping[str, tuple[list[Any], dict[str, Any]]] = {
    "rectangle": (ROWS, {"rectangle": {"heldout": 100}}),
    "rectangle-v2": (ROWS, {"rectangle": {"zarr_format": 2, "codec": "lz4"}}),
    "parquet": (
        [{"exact_documents": {"index": "save"}}, "shuffle"],
        {"parquet": {"file_bytes": 200_000, "heldout": 9}},
    ),
    "gpt-simple": (TOKENS, {"gpt-simple": {"shard_bytes": 20_000, "heldout": 50}}),
    "datatrove": ([*TOKENS, {"windows": {"max_length": 16, "overlap_size": 4}}, "shuffle"], {"datatrove": {}}),
    "nanogpt": (TOKENS, {"nanogpt": {"header": "llm.c", "shard_bytes": 60_000}}),
    "megatron": (TOKENS, {"megatron": {"shard_bytes": 60_000}}),
    "olmo-core": (TOKENS, {"olmo-core": {"shard_bytes": 60_000}}),
    "levanter": (TOKENS, {"levanter": {"shard_bytes": 60_000}}),
    "litdata": (TOKENS, {"litdata": {"shard_bytes": 60_000}}),
    "mds": (TOKENS, {"mds": {"shard_bytes": 60_000}}),
    "composed": (
        TOKENS,
        {
            "composed": {
                "capacities": [32, 64],
                "heldout": 60,
                "domains": "language",
                "planner": "interleaved",
                "chunk_tokens": 12,
            }
        },
    ),
    "composed-masked": ([TOKENS[0], MASKED, TRAINED], {"composed": {"capacities": [16, 64]}}),
    "composed-interleaved": (
        TOKENS,
        {"composed": {"strategy": "interleaved", "capacities": [64], "domains": "language", "padded_domains": ["de"]}},
    ),
    "composed-shards": (TOKENS, {"composed": {"capacities": [64], "format": "datatrove", "shard_bytes": 20_000}}),
}


FEW = ("rectangle", "composed")
"""Outputs that every run of the tests has."""


@pytest.fixture(scope="module")
def source(tmp_path_factory, write_word_tokenizer) -> Path:
    """Return documents of random words, two of which are duplicates, and a tokenizer of words."""
    folder = tmp_path_factory.mktemp("source")
    chance, lines = np.random.default_rng(0), []
    for number in range(DOCUMENTS):
        text = " ".join(f"w{each}" for each in chance.integers(0, WORDS, 24 + number % 20))
        url = f"https://{'gone' if number in GONE else 'kept'}.example/{number}"
        lines.append({"id": f"d{number}", "url": url, "text": text, "language": "en" if number % 3 else "de"})
    lines.append({**lines[77], "id": "copy"})
    lines.append({**lines[78], "id": "gone-copy"})
    (folder / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_word_tokenizer(folder / "tokenizer.json", WORDS, END)
    return folder


@pytest.fixture(scope="module")
def run_of(source, tmp_path_factory) -> Callable[..., Path]:
    """Return what carries out one of the runs, on all documents or without some."""
    made: dict[str, Path] = {}

    def run(kind: str, without: tuple[str, ...] = (), **settings: Any) -> Path:
        name = f"{kind}{without}{settings}"
        if name not in made:
            folder = tmp_path_factory.mktemp(kind)
            lines = (source / "all.jsonl").read_text().splitlines()
            kept = [line for line in lines if json.loads(line)["id"] not in without]
            (folder / "all.jsonl").write_text("".join(f"{line}\n" for line in kept))
            stages, outputs = json.loads(json.dumps(RUNS[kind]).replace("TOKENIZER", str(source / "tokenizer.json")))
            next(iter(outputs.values())).update(settings)
            given = {"builder": "text", "id_field": "id", "data_files": str(folder / "all.jsonl")}
            spec = {"longcrawl": 1, "name": "taken", "source": given, "stages": stages, "outputs": outputs}
            (folder / "recipe.yaml").write_text(json.dumps(spec))
            lc.run(folder / "recipe.yaml", folder / "run")
            made[name] = folder / "run"
        return made[name]

    return run


def rows_of(folder: Path) -> Iterator[tuple[Any, ...]]:
    for split in ("heldout", "train"):
        file = folder / "rows" / f"{split}.parquet"
        array = open_split(folder, split) if file.exists() else None
        rows = [array.read_chunk(row, 0) for row in range(array.layout.chunk_grid[0])] if array else []
        table = pq.read_table(file).to_pylist() if array else []
        for number, (document, row) in enumerate(zip(table, np.concatenate(rows) if rows else [], strict=True)):
            assert document.pop("row") == number
            yield split, *document.values(), row.tolist()


def texts_of(folder: Path) -> Iterator[tuple[Any, ...]]:
    for file in sorted(folder.glob("*.parquet")):
        yield from ((file.name.partition("-")[0], *row.values()) for row in pq.read_table(file).to_pylist())


def pieces_of(folder: Path) -> Iterator[tuple[Any, ...]]:
    for bucket in lc.formats.open_composed(folder).buckets:
        read, places = bucket.read(np.arange(len(bucket))), np.zeros(len(bucket), int)
        for file in sorted((folder / "pieces" / bucket.path).glob("*.parquet")):
            for piece in pq.read_table(file).to_pylist():
                sample, place = piece["sample"], places[piece["sample"]]
                stop = places[sample] = place + piece["length"]
                flags = read.loss_mask[sample, place:stop].tolist()
                about = (bucket.path, piece["id"], piece["start"], piece["document"])
                yield *about, read.tokens[sample, place:stop].tolist(), flags


def entries_of(folder: Path, name: str) -> Iterator[tuple[Any, ...]]:
    settings = {"token_size": 2} if name == "nanogpt" else {}
    for file in sorted((folder / "documents").rglob("*.parquet")):
        table = pq.read_table(file)
        shard = FORMATS[name].open(folder / table["shard"][0].as_py(), end_of_text=END, **settings)
        for row in table.to_pylist():
            entries = range(row["entry"], row["entry"] + row["entries"])
            yield row["shard"].partition("/")[0], row["id"], [shard.document(each).tolist() for each in entries]


def documents_of(run: Path) -> Iterator[tuple[Any, ...]]:
    """Return all that an output has of each document: where that is, its id, and its tokens or its text."""
    name = json.loads((run / "manifest.json").read_text())["output"]["format"]
    readers = {"rectangle": rows_of, "parquet": texts_of, "composed": pieces_of}
    return readers.get(name, partial(entries_of, name=name))(run / name)


def assert_samples_with_chunks_are_one_text(folder: Path) -> None:
    samples: dict[Any, list[Any]] = {}
    for file in sorted(folder.glob("pieces/**/*.parquet")):
        for piece in pq.read_table(file).to_pylist():
            samples.setdefault((file.parent, piece["sample"]), []).append(piece)
    texts = 0
    for pieces in samples.values():
        several = len({piece["id"] for piece in pieces}) < len(pieces)
        assert [piece["joined"] for piece in pieces] == [several and place > 0 for place in range(len(pieces))]
        texts += several
    assert 10 < texts < len(samples)


@pytest.mark.variants
@pytest.mark.parametrize("kind", [kind if kind in FEW else pytest.param(kind, marks=pytest.mark.slow) for kind in RUNS])
def test_documents_are_gone_and_all_else_is_as_it_was(run_of, tmp_path, source, directory_digest, kind):
    run = run_of(kind)
    before = directory_digest(run)
    # Of two duplicates, the one called copy was kept.
    gone = [*(f"d{number}" for number in GONE), "copy"]
    done = lc.takedown(run, tmp_path / "new", ids=gone, asked="2026-11-02")
    assert directory_digest(run) == before
    assert lc.verify(tmp_path / "new").problems == ()
    assert (done.documents, done.found) == (len(GONE), 0)
    # No window of 16 tokens has 20.
    assert done.windows > 30 or kind == "datatrove"

    if kind == "composed":
        assert_samples_with_chunks_are_one_text(tmp_path / "new" / "composed")
    there, now = list(documents_of(run)), list(documents_of(tmp_path / "new"))
    place = 1
    assert sorted(map(repr, now)) == sorted(repr(row) for row in there if row[place] not in gone)
    lines = {line["id"]: line["text"] for line in map(json.loads, (source / "all.jsonl").read_text().splitlines())}
    found = repr(now)
    for name in gone:
        words = [word if kind == "parquet" else word[1:] for word in lines[name].split()]
        separator = " " if kind == "parquet" else ", "
        for first in range(16 if "-" not in kind and kind not in ("datatrove", "composed") else 1):
            assert separator.join(words[first : first + 12]) not in found
    for file in (tmp_path / "new").rglob("*"):
        if file.suffix in (".json", ".parquet", ".arrow") and "takedown" not in file.name:
            text = file.read_bytes() if file.suffix == ".json" else b""
            assert not any(f'"{name}"'.encode() in text for name in gone)
    ledger = pads.dataset(str(tmp_path / "new/ledger")).to_table().to_pylist()
    assert not {row["id"] for row in ledger} & {*gone}
    assert "copy" not in {row["kept_id"] for row in ledger}

    changed = {*done.changed, *done.dropped, "README.md", "manifest.json", "takedown.json"}
    kept = [file.relative_to(run).as_posix() for file in run.rglob("*") if file.is_file()]
    same = [name for name in kept if name not in changed]
    assert all((run / name).samefile(tmp_path / "new" / name) for name in same)
    record = json.loads((tmp_path / "new/takedown.json").read_text())["takedowns"]
    assert [each["asked"] for each in record] == ["2026-11-02"]
    assert f"- 2026-11-02: {len(GONE)} documents" in (tmp_path / "new/README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("parquet", {"file_bytes": 500_000_000}),
        pytest.param("gpt-simple", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
        pytest.param("datatrove", {}, marks=pytest.mark.slow),
        pytest.param("nanogpt", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
        pytest.param("megatron", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
        pytest.param("olmo-core", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
        pytest.param("levanter", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
        pytest.param("litdata", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
        pytest.param("mds", {"shard_bytes": 500_000_000}, marks=pytest.mark.slow),
    ],
)
def test_files_are_those_of_a_run_that_never_had_them(run_of, tmp_path, kind, settings):
    # Held-out documents are the first of the order: without these another one would be held out.
    settings = {**settings, "heldout": 0}
    gone = ("d5", "d77", "copy", "d4000")
    lc.takedown(run_of(kind, **settings), tmp_path / "new", ids=gone)
    fresh = run_of(kind, gone, **settings)
    name = kind.partition("-v2")[0]
    files = {file.relative_to(fresh / name).as_posix() for file in (fresh / name).rglob("*") if file.is_file()}
    assert files == {
        file.relative_to(tmp_path / "new" / name).as_posix()
        for file in (tmp_path / "new" / name).rglob("*")
        if file.is_file()
    }
    assert {file: (fresh / name / file).read_bytes() for file in files} == {
        file: (tmp_path / "new" / name / file).read_bytes() for file in files
    }


def test_domains_and_urls_are_found_and_requests_add_up(run_of, tmp_path, longcrawl):
    run = run_of("rectangle")
    (tmp_path / "domains.txt").write_text("\ufeff*.Gone.example\nmünchen.example\n")
    done = longcrawl(
        "takedown", run, "--domains", tmp_path / "domains.txt", "--out", tmp_path / "one", "--asked", "2026-01-01"
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(GONE)} documents removed for 2 domains" in done.stdout
    assert "no document found for münchen.example" in done.stdout
    (tmp_path / "urls.txt").write_text("HTTP://www.kept.example:80/500/#top\n")
    second = lc.takedown(tmp_path / "one", tmp_path / "two", urls=tmp_path / "urls.txt", asked="2026-02-02")
    assert (second.documents, second.unmatched) == (1, ())
    record = json.loads((tmp_path / "two/takedown.json").read_text())["takedowns"]
    assert [(each["asked"], each["documents"]) for each in record] == [("2026-01-01", len(GONE)), ("2026-02-02", 1)]
    assert lc.verify(tmp_path / "two").problems == ()


def words_of(name: str) -> str:
    """Return words that are those of one id alone."""
    return " ".join(f"w{each}" for each in np.random.default_rng([*name.encode()]).integers(0, WORDS, 9))


@pytest.fixture
def run_with_ids(tmp_path) -> Callable[..., Path]:
    """Return what runs stages on documents of some ids."""

    def run(ids: Any, *stages: Any, output: str = "parquet", **settings: Any) -> Path:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        lines = [
            {"id": each, "text": f"Document {words_of(each)} {each} of all, mail me@example.org now."} for each in ids
        ]
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        given = {"builder": "text", "id_field": "id", "data_files": str(folder / "in.jsonl")}
        spec = {"longcrawl": 1, "name": "t", "source": given, "stages": [*stages], "outputs": {output: settings}}
        (folder / "recipe.yaml").write_text(json.dumps(spec))
        lc.run(folder / "recipe.yaml", folder / "run")
        return folder / "run"

    return run


IDS = [" a", "a", "b ", "b", "c\u2028", "c", "d\td", "e\ne", "\u00a0", '"f"', "f", "g\r"]


@pytest.mark.variants
@pytest.mark.parametrize("given", ["list", "lines", "crlf", "jsonl", "command"])
def test_ids_are_taken_as_they_are(run_with_ids, tmp_path, longcrawl, given):
    run, gone = run_with_ids(IDS, {"min_chars": {"n": 1}}), [" a", "b ", "c\u2028", "\u00a0", '"f"']
    if given in ("list", "jsonl"):
        gone += ["e\ne", "g\r"]
    end = "\r\n" if given == "crlf" else "\n"
    file = tmp_path / f"ids.{'jsonl' if given == 'jsonl' else 'txt'}"
    written = map(json.dumps, gone) if given == "jsonl" else gone
    file.write_bytes("".join(f"{each}{end}" for each in [*written, '"h "' if given == "jsonl" else "h "]).encode())
    if given == "command":
        done = longcrawl("takedown", run, "--ids", file, "--out", tmp_path / "new")
        assert "no document found for 'h '" in done.stdout, done.stderr
    else:
        assert lc.takedown(run, tmp_path / "new", ids=[*gone, "h "] if given == "list" else file).unmatched == ("h ",)
    left = pads.dataset(tmp_path / "new/parquet", format="parquet", exclude_invalid_files=True).to_table()["id"]
    assert left.to_pylist() == [each for each in IDS if each not in gone]
    with pytest.raises(RunError, match="holds none of the 1 entry: check 'a '"):
        lc.takedown(run, tmp_path / "none", ids=["a "])


@pytest.mark.slow
def test_lines_of_a_jsonl_file_are_strings(run_with_ids, tmp_path):
    (tmp_path / "ids.jsonl").write_text('"a"\n{"id": "b"}\n')
    with pytest.raises(RunError, match=r'ids.jsonl, line 2, is not a JSON string: write "ID"'):
        lc.takedown(run_with_ids("ab"), tmp_path / "none", ids=tmp_path / "ids.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stages", "output"),
    [
        ([{"personal_data": {"policy": "tag"}}], "parquet"),
        ([TOKENS[1], {"truncate": {"n": 9}}], "parquet"),
        ([MASKED], "parquet"),
        ([TOKENS[1]], "gpt-simple"),
    ],
    ids=["tags", "tokens", "masks", "shards"],
)
def test_columns_of_lists_are_those_of_a_run_without_the_document(
    run_with_ids, tmp_path, source, monkeypatch, stages, output
):
    monkeypatch.setattr("longcrawl.formats.order.ROW_GROUP", 200)
    stages = json.loads(json.dumps(stages).replace("TOKENIZER", str(source / "tokenizer.json")))
    whole, fresh = run_with_ids("abcdefgh", *stages, output=output), run_with_ids("abdefgh", *stages, output=output)
    lc.takedown(whole, tmp_path / "new", ids=["c"])
    files = [file.relative_to(fresh / output) for file in (fresh / output).rglob("*") if file.is_file()]
    differ = [
        str(file)
        for file in files
        if (tmp_path / "new" / output / file).read_bytes() != (fresh / output / file).read_bytes()
    ]
    assert differ == []


@pytest.mark.slow
def test_a_shard_without_documents_is_no_more(run_of, tmp_path):
    run = run_of("gpt-simple")
    table = pq.read_table(run / "gpt-simple/documents/train/00001.parquet")
    names = table["id"].to_pylist()
    done = lc.takedown(run, tmp_path / "new", ids=names)
    assert done.documents == len(names)
    shards = sorted(file.name for file in (tmp_path / "new/gpt-simple/train").glob("*.bin"))
    assert shards == sorted(file.name for file in (run / "gpt-simple/train").glob("*.bin"))[:-1]
    assert lc.verify(tmp_path / "new").problems == ()
    kept = {row[1] for row in documents_of(run)} - {*names}
    assert {row[1] for row in documents_of(tmp_path / "new")} == kept
    feed = lc.loading.Packed(tmp_path / "new/gpt-simple", max_length=64, batch_size=4)
    assert feed.origins(0)[0].document in kept


@pytest.mark.slow
def test_an_index_that_was_changed_is_not_sealed_again(run_of, tmp_path):
    run = shutil.copytree(run_of("parquet"), tmp_path / "run")
    (file,) = run.glob("index/*/ids.arrow")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"ids\.arrow has been changed: its SHA-256 differs; nothing is written"):
        lc.takedown(run, tmp_path / "new", ids=["d3"])
    assert not (tmp_path / "new").exists()
    with pytest.raises(RunError, match="is inside .*run, which is not changed: choose another --out"):
        lc.takedown(run, run / "new", ids=["d3"])


def test_domains_are_compared_as_urls_have_them(tmp_path):
    wanted = Asked.read(domains=["# a comment", "||München.example^", "0.0.0.0 other.example"])
    urls = pa.table({"id": ["a", "b"], "url": ["https://www.münchen.example/p", "https://xn--mnchen-3ya.example"]})
    pq.write_table(urls, tmp_path / "urls.parquet")
    assert wanted.find(pads.dataset(str(tmp_path / "urls.parquet"))).to_pylist() == ["a", "b"]
    assert wanted.unmatched() == ("0.0.0.0 other.example",)


@pytest.mark.slow
def test_an_index_forgets_documents(run_of, tmp_path, source):
    lc.takedown(run_of("parquet"), tmp_path / "new", ids=["d3", "d77"])
    lines = [json.loads(line) for line in (source / "all.jsonl").read_text().splitlines()[:80]]
    again = lc.Crawl([{"id": f"again-{line['id']}", "text": line["text"]} for line in lines])
    kept = again | lc.dedup.ExactDocuments(against=(str(tmp_path / "new"),))
    assert kept.data["id"] == ["again-d3", "again-d77"]


def test_only_removed_documents_are_taken_out_of_ledgers(run_of, tmp_path):
    done = lc.takedown(run_of("parquet"), tmp_path / "new", ids=["gone-copy"])
    assert (done.documents, done.ledger_rows) == (0, 1)
    assert lc.verify(tmp_path / "new").problems == ()
    with pytest.raises(lc.LongCrawlError, match="never had a document"):
        lc.why(tmp_path / "new", "gone-copy")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing to take down"),
        ({"ids": ["none", "of these"]}, "holds none of the 2 entries"),
        ({"domains": ["https://a.example/b"]}, "is not a domain"),
        ({"ids": "nowhere.txt"}, r"nowhere\.txt cannot be read"),
        ({"ids": ["d3"], "asked": "yesterday"}, r"--asked 'yesterday' is not a date: write it as 2026-11-02"),
    ],
)
def test_what_cannot_be_taken_out_is_named(run_of, tmp_path, given, message):
    with pytest.raises(RunError, match=message):
        lc.takedown(run_of("parquet"), tmp_path / "new", **given)
    assert not list(tmp_path.iterdir())
    (tmp_path / "new").mkdir()
    with pytest.raises(RunError, match="choose another --out"):
        lc.takedown(run_of("parquet"), tmp_path / "new", ids=["d3"])


@pytest.mark.slow
def test_a_push_sends_what_changed(run_of, tmp_path, hub):
    run = tmp_path / "run"
    shutil.copytree(run_of("gpt-simple"), run)
    lc.push(run, "me/taken", "private")
    names = pq.read_table(run / "gpt-simple/documents/train/00000.parquet")["id"].to_pylist()[:2]
    done = lc.takedown(run, tmp_path / "new", ids=names)
    pushed = lc.push(tmp_path / "new", "me/taken", "private")
    assert {*pushed.send} <= {*done.changed, "README.md", "manifest.json", "takedown.json"}
    assert {"gpt-simple/train/00000.bin", "takedown.json", "tokens/train-00000-of-00001.parquet"} <= {*pushed.send}
    assert "gpt-simple/train/00001.bin" in pushed.unchanged
    rows = pq.read_table(tmp_path / "new/tokens/train-00000-of-00001.parquet")
    assert not {*names} & {*rows["id"].to_pylist()}
    assert pa.types.is_list(rows.schema.field("input_ids").type)


@pytest.mark.slow
def test_loss_masks_move_with_their_rows(tmp_path, source):
    lines = [json.loads(line) for line in (source / "all.jsonl").read_text().splitlines()[:200]]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "texts.jsonl").write_text(
        "".join(json.dumps({"id": line["id"], "text": line["text"] + " " + lines[0]["text"]}) + "\n" for line in lines)
    )
    stages = [MASKED, TRAINED, {"truncate": {"n": 200}}, {"min_tokens": {"n": 200}}]
    given = {"builder": "text", "id_field": "id", "data_files": str(folder / "texts.jsonl")}
    text = json.dumps(
        {"longcrawl": 1, "name": "masks", "source": given, "stages": stages, "outputs": {"rectangle": {}}}
    )
    (folder / "recipe.yaml").write_text(text.replace("TOKENIZER", str(source / "tokenizer.json")))
    lc.run(folder / "recipe.yaml", folder / "run")

    def flags_of(run: Path) -> dict[str, list[bool]]:
        array = open_split(run / "rectangle")
        mask = np.concatenate([open_loss_mask(array).read_chunk(row, 0) for row in range(array.layout.chunk_grid[0])])
        names = pq.read_table(run / "rectangle/rows/train.parquet")["id"].to_pylist()
        return dict(zip(names, mask.tolist(), strict=True))

    before = flags_of(folder / "run")
    gone = sorted(before)[:3]
    lc.takedown(folder / "run", tmp_path / "new", ids=gone)
    assert lc.verify(tmp_path / "new").problems == ()
    assert flags_of(tmp_path / "new") == {name: flags for name, flags in before.items() if name not in gone}
    assert not all(map(all, before.values()))
