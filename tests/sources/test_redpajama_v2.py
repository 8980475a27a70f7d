"""RedPajama-V2: joined by id, broken in every way, streamed, sharded, over http; and the team's real release."""

import gzip
import hashlib
import json
import random
import re
from dataclasses import replace

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset

import longcrawl
from longcrawl.core.sources import BadFiles
from longcrawl.core.stages import Check
from longcrawl.errors import LedgerError, RunError, SourceError
from longcrawl.sources.redpajama_v2 import DOCUMENT_SIGNALS, LINE_SIGNALS, RedPajamaV2
from longcrawl.text.filters import SignalRules

HEAD = "2023-06/0000/en_head"
TEXTS = [f"Document {number}.\n• A line of it, with {number * 7} in it.\nThe end…" for number in range(12)]


@pytest.fixture
def release(tmp_path, make_release):
    documents = [{"text": text, "duplicate": number % 3 == 2} for number, text in enumerate(TEXTS)]
    parts = {
        HEAD: documents,
        "2023-06/0000/en_middle": ["Middle one.", "Middle two."],
        "2023-06/0000/en_tail": ["Tail."],
        "2023-06/0000/de_head": ["Ein deutscher Satz."],
        "2023-06/0001/en_head": ["Another shard."],
        "2022-49/0000/en_head": ["An older snapshot."],
    }
    return make_release(tmp_path / "release", parts)


def read(source, policy="error", part=None):
    """Read all parts, or one, and give the rows and what was bad."""
    bad_files = BadFiles(policy)
    parts = [found for found in source.splits()["train"] if part in (None, found.name)]
    tables = [table for one in parts for table in source.read(one, bad_files)]
    assert all(table.schema == source.schema() for table in tables)
    return [row for table in tables for row in table.to_pylist()], bad_files.found


def head(release, policy="error", **settings):
    return read(RedPajamaV2(data_dir=str(release), **settings), policy, HEAD)


def naive_signals(path):
    """Read a signals file the plain way: id -> the struct that the source should give."""
    found = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            spans = record["quality_signals"]
            values = {name: spans[name][0][2] if spans[name] else None for name in DOCUMENT_SIGNALS}
            signals = {name: None if value is None else float(value) for name, value in values.items()}
            for name in LINE_SIGNALS:
                total = 0.0
                for _, _, value in spans[name]:
                    total += 0.0 if value is None else value
                signals[f"{name}.sum"] = total
            found[record["id"]] = signals
    return found


def rewrite(path, change):
    """Pass the lines of a gzip file through a function."""
    with gzip.open(path, "rb") as file:
        lines = change(file.read().splitlines(keepends=True))
    with gzip.open(path, "wb") as file:
        file.writelines(lines)


def test_rows_hold_text_provenance_and_signals(release):
    rows, bad = head(release)
    assert bad == []
    assert [row["id"] for row in rows] == [f"{HEAD}.json.gz/{line}" for line in range(12)]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["duplicate"] for row in rows] == [line % 3 == 2 for line in range(12)]
    expected = naive_signals(release / f"quality_signals/{HEAD}.signals.json.gz")
    assert [row["signals"] for row in rows] == [expected[row["id"]] for row in rows]
    first = rows[0]
    assert first["signals"]["rps_lines_start_with_bulletpoint.sum"] == 1.0
    assert first["signals"]["ccnet_nlines"] == 3.0
    assert first["signals"]["rps_doc_ml_palm_score"] is None
    assert (first["url"], first["date"]) == (f"https://example.org/{HEAD}/0", "2023-02-03T04:05:06Z")
    assert (first["source"], first["language"], first["bucket"]) == ("redpajama-v2", "en", "head")
    assert (first["length"], first["perplexity"], first["title"]) == (len(TEXTS[0]), 321.5, "Document 0 of shard 0000")


def test_everything_is_joined_by_id_not_by_row(release):
    expected, _ = head(release, minhash=True)
    generator = random.Random(0)  # any order will do
    rewrite(release / f"quality_signals/{HEAD}.signals.json.gz", lambda lines: generator.sample(lines, len(lines)))
    for kind in ("duplicates", "minhash"):
        path = release / f"{kind}/{HEAD}.{kind}.parquet"
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.take(generator.sample(range(len(table)), len(table))), path)
    assert head(release, minhash=True) == (expected, [])
    assert expected[3]["signature_sim0.7"][0] == hashlib.shake_128(f"0 {TEXTS[3]}".encode()).digest(36)


def test_documents_without_a_signals_record_keep_null(release):
    rewrite(release / f"quality_signals/{HEAD}.signals.json.gz", lambda lines: lines[:4] + lines[6:])
    rows, bad = head(release)
    assert bad == []
    assert [line for line, row in enumerate(rows) if row["signals"] is None] == [4, 5]


@pytest.mark.variants
@pytest.mark.parametrize("broken", [b"\n", b'{"raw_content": \n', b"\xff\xfe\n", b"[]\n"])
def test_a_line_that_cannot_be_read_keeps_its_number(release, broken):
    rewrite(release / f"documents/{HEAD}.json.gz", lambda lines: [*lines[:5], broken, *lines[6:]])
    rows, bad = head(release, "skip")
    assert [row["id"].rpartition("/")[2] for row in rows] == [str(line) for line in range(12) if line != 5]
    assert [row["duplicate"] for row in rows] == [line % 3 == 2 for line in range(12) if line != 5]
    assert all(row["signals"]["ccnet_length"] == len(row["text"]) for row in rows)
    if broken.strip():
        assert [found.records_lost for found in bad] == [1]
        with pytest.raises(SourceError, match=r"en_head.json.gz: line 6 .*set on_bad_files to 'warn' or 'skip'"):
            head(release)


def damage(path, how):
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "corrupt":
        path.write_bytes(data[: len(data) // 2] + b"\xff" * 30 + data[len(data) // 2 + 30 :])
    else:
        path.write_bytes(b"")


WAYS = ("missing", "cut", "corrupt", "empty")


@pytest.mark.variants
@pytest.mark.parametrize("how", WAYS)
def test_damaged_documents_keep_the_members_before_the_damage(tmp_path, make_release, how):
    generator = random.Random(0)  # incompressible text, so that half of the file is half of the rows
    texts = [generator.randbytes(400).hex() for _ in range(100)]
    release = make_release(tmp_path, {HEAD: texts})
    complete, _ = head(release)
    path = release / f"documents/{HEAD}.json.gz"
    with gzip.open(path) as file:
        lines = file.readlines()
    path.write_bytes(b"".join(gzip.compress(b"".join(lines[first : first + 10])) for first in range(0, 100, 10)))
    assert head(release) == (complete, [])
    damage(path, how)
    rows, bad = head(release, "skip")
    # Nobody knows how many lines a damaged member has, so nobody knows the ids of those after it.
    assert rows == complete[: len(rows)]
    assert len(rows) == (40 if how in ("cut", "corrupt") else 0)
    assert len(bad) == 1
    assert "missing" in bad[0].reason if how == "missing" else "lines were read before that" in bad[0].reason
    with pytest.raises(SourceError, match="on_bad_files"):
        head(release)
    with pytest.warns(UserWarning, match="en_head.json.gz"):
        assert head(release, "warn") == (rows, bad)


COMPANIONS = [
    ("quality_signals/{}.signals.json.gz", "signals"),
    ("duplicates/{}.duplicates.parquet", "duplicate"),
    ("minhash/{}.minhash.parquet", "signature_sim0.8"),
]


@pytest.mark.parametrize(("path", "column"), COMPANIONS)
def test_a_file_of_another_shard_is_a_bad_file(release, path, column):
    other = "2023-06/0001/en_head"
    (release / path.format(other)).replace(release / path.format(HEAD))
    if column == "duplicate":  # the other shard lists no duplicates, so this one's list is renamed
        table = pa.table({"doc_id": [f"{other}.json.gz/2", f"{HEAD}.json.gz/5"]})
        pq.write_table(table, release / path.format(HEAD))
    rows, bad = head(release, "skip", minhash=True)
    assert [row["text"] for row in rows] == TEXTS
    assert {row[column] for row in rows} == {None}
    assert [found.file for found in bad] == [str(release / path.format(HEAD))]
    assert f"belongs to another shard: 1 of its {1 + (column == 'duplicate')} ids" in bad[0].reason
    assert f"'{other}.json.gz/" in bad[0].reason
    with pytest.raises(SourceError, match=f"do not begin with {HEAD}.json.gz/.*on_bad_files"):
        head(release, minhash=True)


def test_an_id_that_is_shown_is_shortened(release):
    pq.write_table(pa.table({"doc_id": ["[" * 5_000]}), release / f"duplicates/{HEAD}.duplicates.parquet")
    _, bad = head(release, "skip")
    assert len(bad[0].reason) < 500


def test_a_list_of_duplicates_without_ids_names_its_columns(release):
    columns = {f"column {number}": [1] for number in range(3_000)}
    pq.write_table(pa.table(columns), release / f"duplicates/{HEAD}.duplicates.parquet")
    rows, bad = head(release, "skip")
    assert {row["duplicate"] for row in rows} == {None}
    assert bad[0].reason.startswith("has no column 'doc_id'; its columns: column 0, column 1")
    assert bad[0].reason.endswith("…; documents have null instead")
    assert len(bad[0].reason) < 300


def test_documents_of_another_shard_are_noticed_by_their_number(release):
    documents = release / f"documents/{HEAD}.json.gz"
    documents.write_bytes(
        gzip.compress(b"".join(gzip.decompress(documents.read_bytes()).splitlines(keepends=True)[:3]))
    )
    _, bad = head(release, "skip")
    assert {found.file for found in bad} >= {str(release / f"quality_signals/{HEAD}.signals.json.gz")}
    assert "match none of the 3 lines of documents; one of the two files is the wrong one" in bad[0].reason


def test_a_list_of_duplicates_may_be_empty(release):
    pq.write_table(pa.table({"doc_id": pa.array([], pa.string())}), release / f"duplicates/{HEAD}.duplicates.parquet")
    rows, bad = head(release)
    assert {row["duplicate"] for row in rows} == {False}
    assert bad == []


def test_a_file_that_says_nothing_of_any_document_is_reported(release):
    path = release / f"duplicates/{HEAD}.duplicates.parquet"
    pq.write_table(pa.table({"doc_id": [f"{HEAD}.json.gz/{line}" for line in (12, 99)]}), path)
    _, bad = head(release, "skip")
    assert [(found.file, found.reason) for found in bad] == [
        (str(path), "2 of its 2 ids match none of the 12 lines of documents; one of the two files is the wrong one")
    ]
    with pytest.raises(SourceError, match="one of the two files is the wrong one"):
        head(release)


@pytest.mark.variants
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("path", "column"), COMPANIONS)
def test_damaged_companions_leave_null(release, how, path, column):
    damage(release / path.format(HEAD), how)
    rows, bad = head(release, "skip", minhash=True)
    assert [row["text"] for row in rows] == TEXTS
    assert rows[-1][column] is None
    assert len(bad) == 1
    assert str(release / path.format(HEAD)) == bad[0].file
    with pytest.raises(SourceError, match="on_bad_files"):
        head(release, minhash=True)
    with pytest.warns(UserWarning, match="null"):
        head(release, "warn", minhash=True)


def test_a_signals_line_of_the_wrong_form_is_reported_once(release):
    def change(lines):
        odd = json.loads(lines[0])
        odd["quality_signals"]["rps_doc_word_count"] = [["a"]]
        return [json.dumps(odd).encode() + b"\n", b'{"id": 3}\n', b"not json\n", *lines[3:]]

    rewrite(release / f"quality_signals/{HEAD}.signals.json.gz", change)
    rows, bad = head(release, "skip")
    assert [row["signals"] is None for row in rows] == [True] * 3 + [False] * 9
    assert [found.records_lost for found in bad] == [3]


def test_signals_whose_checksum_is_wrong_are_not_used(release):
    path = release / f"quality_signals/{HEAD}.signals.json.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    sound, broken = gzip.compress(b"".join(lines[:6])), gzip.compress(b"".join(lines[6:]))
    path.write_bytes(sound + broken[:-5] + bytes([broken[-5] ^ 1]) + broken[-4:])
    rows, bad = head(release, "skip")
    assert [row["signals"] is None for row in rows] == [False] * 6 + [True] * 6
    assert [(found.file, found.records_lost) for found in bad] == [(str(path), 6)]
    with pytest.raises(
        SourceError, match=f"is corrupt at byte {len(sound):,}.* 6 lines seem to be lost, from line 7 on"
    ):
        head(release)


def test_signals_in_unusual_spellings_equal_json(release):
    odd = {
        "rps_doc_word_count": [[0.0, 5.5, 12345678901234567890]],
        "rps_doc_curly_bracket": [],
        "rps_doc_ml_palm_score": [[0, 1, 1e-30], [1, 2, 5]],
        "rps_doc_num_sentences": [[0, 1, 0.12345678901234567]],
        "rps_lines_num_words": [],
        "rps_lines_start_with_bulletpoint": [[0, 0, None]],
        "unknown": [[0, 1, {"nested": [1, "]"]}]],
    }

    def change(lines):
        record = json.loads(lines[0])
        record["quality_signals"] |= odd
        return [json.dumps(record, indent=1).replace("\n", " ").encode() + b"\n", *lines[1:]]

    path = release / f"quality_signals/{HEAD}.signals.json.gz"
    rewrite(path, change)
    rows, bad = head(release, line_signals=["all"])
    assert bad == []
    assert rows[0]["signals"] == naive_signals(path)[rows[0]["id"]]
    assert rows[0]["signals"]["rps_lines_start_with_bulletpoint.sum"] == 0.0
    assert rows[0]["line_signals"]["rps_lines_num_words"] == []
    assert rows[0]["line_signals"]["rps_lines_start_with_bulletpoint"] == [[0.0, 0.0, None]]


def test_line_signals_come_on_request(release):
    assert "line_signals" not in head(release)[0][0]
    rows, _ = head(release, line_signals=["rps_lines_num_words"])
    assert rows[0]["line_signals"] == {"rps_lines_num_words": [[0, 12, 2], [12, 42, 9], [42, 50, 2]]}
    rows, _ = head(release, line_signals=("all",), signals=False)
    assert set(rows[0]["line_signals"]) == set(LINE_SIGNALS)
    assert "signals" not in rows[0]
    with pytest.raises(SourceError, match=r"no line signal 'rps_lines_words'; known: .*rps_lines_num_words.*all"):
        RedPajamaV2(line_signals=("rps_lines_words",))


def test_the_tail_has_documents_only(release):
    rows, bad = read(RedPajamaV2(data_dir=str(release), partitions=("tail",), minhash=True, line_signals=("all",)))
    assert bad == []
    assert [(row["text"], row["signals"], row["duplicate"], row["signature_sim1.0"]) for row in rows] == [
        ("Tail.", None, None, None)
    ]


def test_columns_that_nobody_asked_for_are_not_read(release):
    for kind in ("quality_signals", "duplicates"):
        for path in (release / kind).rglob("*.*"):
            path.unlink()
    rows, bad = head(release, signals=False, duplicates=False)
    assert bad == []
    assert not {"signals", "duplicate", "line_signals", "signature_sim0.7"} & set(rows[0])


def names(release, **settings):
    return [part.name for part in RedPajamaV2(data_dir=str(release), **settings).splits()["train"]]


@pytest.mark.parametrize("listings", [True, False])
def test_parts_are_chosen_by_snapshot_language_partition_and_shard(tmp_path, make_release, listings):
    parts = ["2022-49/0000/en_head", "2023-06/0000/de_tail", "2023-06/0000/en_head", "2023-06/0001/en_middle"]
    release = make_release(tmp_path, {part: ["text"] for part in parts}, listings=listings)
    assert names(release) == [parts[0], parts[2], parts[3]]
    assert names(release, languages=["de"], partitions=["tail"]) == [parts[1]]
    assert names(release, snapshots=["2023-06"], partitions=["head"]) == [parts[2]]
    assert names(release, shards=[1]) == [parts[3]]
    with pytest.raises(SourceError, match=r"no snapshot '2023-6'; known: 2022-49, 2023-06"):
        names(release, snapshots=["2023-6"])
    with pytest.raises(SourceError, match=r"no language 'fr'; known: de, en"):
        names(release, languages=["fr"])
    with pytest.raises(SourceError, match=r"no shard 7; known: 0, 1"):
        names(release, shards=[7])
    with pytest.raises(SourceError, match=r"no partition 'heads'; known: head, middle, tail"):
        names(release, partitions=["heads"])
    with pytest.raises(SourceError, match="holds no documents of partitions head in de"):
        names(release, languages=["de"], partitions=["head"])


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_what_a_listing_lacks_and_documents_has_is_read(tmp_path, make_release, where):
    listed = ["2023-06/0000/en_head", "2023-06/0001/en_head"]
    unlisted = ["2023-06/0000/en_middle", "2023-06/0002/en_head", "2022-49/0000/en_head", "2023-06/0000/de_head"]
    release = make_release(tmp_path / "release", {part: [part] for part in listed})
    make_release(release, {part: [part] for part in unlisted}, listings=False)
    (release / "documents/2023-06/0001/en_head.json.gz").unlink()
    base = str(release)
    if where == "memory":
        base = f"memory://{tmp_path.name}"
        fsspec.filesystem("memory").put(str(release), f"/{tmp_path.name}", recursive=True)

    def parts(**settings):
        return [part.name for part in RedPajamaV2(data_dir=base, **settings).splits()["train"]]

    assert parts() == sorted([*listed, *unlisted[:3]])
    assert parts(snapshots=("2022-49",)) == ["2022-49/0000/en_head"]
    assert parts(snapshots=("2023-06",), shards=(2,)) == ["2023-06/0002/en_head"]
    assert parts(languages=("de",)) == ["2023-06/0000/de_head"]
    rows, bad = read(RedPajamaV2(data_dir=base), "skip")
    assert {row["text"] for row in rows} == {listed[0], *unlisted[:3]}
    assert "documents/2023-06/0001/en_head.json.gz" in {found.file.removeprefix(base + "/") for found in bad}
    with pytest.raises(SourceError, match=r"has no snapshot '2023-6'; known: .*2023-06"):
        parts(snapshots=("2023-6",))


def test_a_line_of_a_listing_that_names_no_part_is_an_error(release):
    listing = release / "listings/en-2023-06-head_middle.txt"
    listing.write_text(listing.read_text() + "\n2023-06/0003/en_head.json.gz\n")
    with pytest.raises(SourceError, match=r"line 5: '2023-06/0003/en_head.json.gz' does not name a part such as"):
        RedPajamaV2(data_dir=str(release)).splits()
    listing.write_bytes(b"\xff\xfe")
    with pytest.raises(SourceError, match="en-2023-06-head_middle.txt cannot be read .*UnicodeDecodeError"):
        RedPajamaV2(data_dir=str(release)).splits()


def test_a_folder_that_is_no_release_is_refused(tmp_path):
    with pytest.raises(SourceError, match="is not a RedPajama-V2 release"):
        names(tmp_path)
    with pytest.raises(SourceError, match="is not a RedPajama-V2 release"):
        names(tmp_path / "missing")
    with pytest.raises(SourceError, match="at least one language"):
        RedPajamaV2(languages=())


def test_blocks_do_not_change_rows(release, monkeypatch):
    expected, _ = head(release)
    monkeypatch.setattr("longcrawl.sources.blocks.read_steps.__defaults__", (2_000,))
    assert head(release) == (expected, [])


@pytest.fixture
def expected(release):
    return read(RedPajamaV2(data_dir=str(release)))[0]


@pytest.mark.slow
def test_load_dataset_streaming_processes_and_load_agree(release, expected, tmp_path, monkeypatch):
    settings = {"data_dir": str(release), "languages": ["en"], "split": "train"}
    loaded = load_dataset("longcrawl", "redpajama-v2", **settings)
    assert loaded.to_list() == expected
    assert loaded.features["text"].dtype == "large_string"
    assert loaded.features["signals"]["rps_doc_word_count"].dtype == "float64"
    streamed = load_dataset("longcrawl", "redpajama-v2", streaming=True, **settings)
    assert streamed.n_shards == 4
    assert list(streamed) == expected
    parallel = load_dataset("longcrawl", "redpajama-v2", num_proc=2, cache_dir=str(tmp_path / "cache"), **settings)
    assert parallel.to_list() == expected
    monkeypatch.chdir(release.parent)
    assert longcrawl.load("redpajama-v2", data_dir="release").to_list() == expected
    assert load_dataset("longcrawl", "redpajama-v2", data_dir="release", split="train").to_list() == expected


@pytest.mark.slow
def test_data_loader_workers_share_the_parts(release, expected):
    torch = pytest.importorskip("torch")
    streamed = load_dataset("longcrawl", "redpajama-v2", data_dir=str(release), streaming=True, split="train")
    loader = torch.utils.data.DataLoader(streamed, batch_size=None, num_workers=2)
    assert sorted(row["id"] for row in loader) == sorted(row["id"] for row in expected)


@pytest.mark.slow
def test_a_release_over_http(release, expected, web_server):
    url = web_server(release)
    source = RedPajamaV2(data_dir=url, snapshots=("2022-49", "2023-06"))
    assert read(source) == (expected, [])
    settings = {"data_dir": url, "snapshots": ["2022-49", "2023-06"], "split": "train"}
    assert load_dataset("longcrawl", "redpajama-v2", **settings).to_list() == expected
    assert list(load_dataset("longcrawl", "redpajama-v2", streaming=True, **settings)) == expected
    with pytest.raises(SourceError, match=r"set them, e.g. snapshots=\['2023-06'\]"):
        RedPajamaV2(data_dir=url).splits()
    with pytest.raises(
        SourceError, match=r"en-2023-6-head_middle.txt does not exist; snapshots are written like '2023-06'"
    ):
        RedPajamaV2(data_dir=url, snapshots=("2023-6",)).splits()
    (release / f"quality_signals/{HEAD}.signals.json.gz").unlink()
    rows, bad = read(source, "skip")
    assert len(rows) == len(expected)
    assert [found.file for found in bad] == [f"{url}/quality_signals/{HEAD}.signals.json.gz"]


@pytest.mark.slow
def test_processes_read_a_release_over_http(release, expected, web_server, tmp_path):
    settings = {"data_dir": web_server(release), "snapshots": ["2022-49", "2023-06"], "split": "train"}
    loaded = load_dataset("longcrawl", "redpajama-v2", num_proc=2, cache_dir=str(tmp_path / "cache"), **settings)
    assert loaded.to_list() == expected


def test_a_release_in_memory(release, expected):
    memory = fsspec.filesystem("memory")
    memory.put(str(release), "/rpv2", recursive=True)
    assert read(RedPajamaV2(data_dir="memory://rpv2")) == (expected, [])
    assert (
        list(load_dataset("longcrawl", "redpajama-v2", data_dir="memory://rpv2", streaming=True, split="train"))
        == expected
    )


def test_policies_reach_load_dataset(release, expected):
    damage(release / f"documents/{HEAD}.json.gz", "missing")
    settings = {"data_dir": str(release), "split": "train", "streaming": True}
    assert len(list(load_dataset("longcrawl", "redpajama-v2", on_bad_files="skip", **settings))) == len(expected) - 12
    with pytest.raises(SourceError, match="is missing"):
        list(load_dataset("longcrawl", "redpajama-v2", **settings))


def documents_per_file(contents):
    rows = (line.split("|") for line in contents.read_text(encoding="utf-8").splitlines() if line.startswith("| 20"))
    return {part.strip(): int(count) for _, part, count, _ in rows}


@pytest.mark.slow
def test_the_real_release_value_by_value(real_data):
    release = real_data / "rpv2"
    languages = ("de", "en", "es", "fr", "it")
    source = RedPajamaV2(data_dir=str(release), languages=languages, partitions=("head", "middle", "tail"))
    parts = source.splits()["train"]
    counted = {}
    for part in parts:
        rows = [row for table in source.read(part, BadFiles()) for row in table.to_pylist()]
        counted[part.name] = len(rows)
        with gzip.open(release / f"documents/{part.name}.json.gz", "rt", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        assert [row["id"] for row in rows] == [f"{part.name}.json.gz/{line}" for line in range(len(records))]
        assert [row["text"] for row in rows] == [record["raw_content"] for record in records]
        own = [name for name in records[0] if name in rows[0]]
        assert len(own) == 13
        assert [[row[name] for name in own] for row in rows] == [[record[name] for name in own] for record in records]
        if part.name.endswith("_tail"):
            assert {row["signals"] for row in rows} == {row["duplicate"] for row in rows} == {None}
            continue
        signals = naive_signals(release / f"quality_signals/{part.name}.signals.json.gz")
        assert [row["signals"] for row in rows] == [signals.get(row["id"]) for row in rows]
        listed = pq.read_table(release / f"duplicates/{part.name}.duplicates.parquet", partitioning=None)["doc_id"]
        assert [row["duplicate"] for row in rows] == [row["id"] in set(listed.to_pylist()) for row in rows]
    assert counted == documents_per_file(real_data / "CONTENTS.md")


@pytest.mark.slow
def test_real_line_signals_and_signatures(real_data):
    source = RedPajamaV2(data_dir=str(real_data / "rpv2"), snapshots=("2022-49",), minhash=True, line_signals=("all",))
    for part in source.splits()["train"]:
        table = pa.concat_tables(source.read(part, BadFiles()))
        with gzip.open(real_data / f"rpv2/quality_signals/{part.name}.signals.json.gz", "rt", encoding="utf-8") as file:
            expected = {record["id"]: record["quality_signals"] for record in map(json.loads, file)}
        for row in table.select(["id", "line_signals"]).to_pylist():
            assert row["line_signals"] == {name: expected[row["id"]][name] for name in LINE_SIGNALS}
        hashed = pq.read_table(real_data / f"rpv2/minhash/{part.name}.minhash.parquet", partitioning=None)
        signatures = dict(zip(hashed["id"].to_pylist(), hashed["signature_sim0.8"].to_pylist(), strict=True))
        assert table["signature_sim0.8"].to_pylist() == [signatures[name] for name in table["id"].to_pylist()]


@pytest.fixture
def shards(tmp_path, make_release):
    """A release in which one shard has no document of 100 words, one has two, and one has no signals for a long one."""
    long, short = "many words make a text long " * 20, "a few words"
    lists = {"2023-06/0000": [short] * 4, "2023-06/0001": [short, long, short, long + "too"]}
    lists["2023-06/0002"] = [{"text": short}, {"text": long + "again", "signals": None}]
    return make_release(tmp_path / "release", {f"{name}/en_head": texts for name, texts in lists.items()})


def recipe_of(release, tmp_path, *stages, fetch="if_any_passes"):
    source = {"builder": "redpajama-v2", "data_dir": str(release), "snapshots": ["2023-06"], "fetch_documents": fetch}
    recipe = {"longcrawl": 1, "name": "skips", "source": source, "stages": list(stages), "outputs": {"parquet": {}}}
    (path := tmp_path / f"{fetch}.yaml").write_text(yaml.safe_dump(recipe))
    return path


WORDS = {"signal_rules": {"thresholds": {"min_word_count": 100, "max_top_2gram_fraction": None}}}


@pytest.mark.slow
def test_documents_are_not_fetched_of_shards_in_which_the_first_rules_keep_none(shards, tmp_path, web_server):
    """The kept documents are the same, even if the documents of such a shard are missing."""
    stages = [WORDS, "listed_duplicates", {"min_words": {"n": 90}}, {"min_chars": {"n": 10}}]
    url = web_server(shards)
    longcrawl.run(recipe_of(url, tmp_path, *stages, fetch="always"), tmp_path / "all")
    for shard in ("0000", "0002"):
        (shards / f"documents/2023-06/{shard}/en_head.json.gz").unlink()
    longcrawl.run(recipe_of(url, tmp_path, *stages), tmp_path / "some")
    kept = [pq.read_table(sorted((tmp_path / out / "parquet").rglob("*.parquet"))) for out in ("all", "some")]
    assert kept[0].num_rows == 2
    assert kept[0].equals(kept[1])
    manifests = [json.loads((tmp_path / out / "manifest.json").read_text()) for out in ("all", "some")]
    assert [each["funnel"]["documents"] for each in manifests] == [10, 4]  # nobody knows of the one without signals
    assert [each["left_out"] for each in manifests] == [{}, {"not_fetched": 5}]
    assert manifests[1]["bad_files"] == []
    assert "not_fetched 5" in (tmp_path / "some/README.md").read_text()
    with pytest.raises(LedgerError, match="its source left out, by rule: not_fetched 5$"):
        longcrawl.why(tmp_path / "some", "2023-06/0000/en_head.json.gz/0")


@pytest.mark.variants
@pytest.mark.parametrize(
    "stages",
    [
        [],
        [{"min_chars": {"n": 100}}],
        [{"min_words": {"n": 100}}],  # a document without signals may have as many
        [{"signal_rules": WORDS["signal_rules"] | {"on_missing": "keep"}}],
        [{"signal_rules": WORDS["signal_rules"] | {"on_missing": "keep"}}, "listed_duplicates"],
        ["listed_duplicates"],
        [{"signal_rules": WORDS["signal_rules"] | {"thresholds": {"min_word_count": 3}}}],
    ],
)
def test_documents_are_fetched_where_some_may_be_kept(shards, tmp_path, stages):
    longcrawl.run(recipe_of(shards, tmp_path, *stages), tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["left_out"], manifest["funnel"]["documents"]) == ({}, 10)


def test_documents_are_fetched_where_their_signals_are_damaged(shards, tmp_path):
    source = RedPajamaV2(data_dir=str(shards), fetch_documents="if_any_passes")
    rules = [SignalRules(**WORDS["signal_rules"])]
    path = shards / "quality_signals/2023-06/0000/en_head.signals.json.gz"
    whole = path.read_bytes()

    def documents(named):
        return [row["id"][:12] for row in read(named, "skip")[0]]

    assert {*documents(source.for_stages(rules))} == {"2023-06/0001"}
    assert len(documents(source)) == len(documents(source.for_stages([]))) == 10
    assert len(documents(RedPajamaV2(data_dir=str(shards)).for_stages(rules))) == 10
    assert len(documents(replace(source, signals=False).for_stages(rules))) == 10
    for content in (b"", whole[:-9], gzip.compress(gzip.decompress(whole) + b"{}\n")):
        path.write_bytes(content)
        assert {*documents(source.for_stages(rules))} == {"2023-06/0000", "2023-06/0001"}
    path.unlink()
    assert {*documents(source.for_stages(rules))} == {"2023-06/0000", "2023-06/0001"}


class OtherRules(SignalRules):
    """Rules of another package, which look at more than those that they inherit from."""

    def checks(self, table):
        return [Check("any", pa.nulls(table.num_rows, pa.float64()), pa.array([True] * table.num_rows))]


def test_documents_are_fetched_where_another_class_decides_or_ids_are_not_those_of_documents(shards):
    source = RedPajamaV2(data_dir=str(shards), fetch_documents="if_any_passes")
    rules = SignalRules(**WORDS["signal_rules"])
    assert len(read(source.for_stages([OtherRules(**WORDS["signal_rules"])]))[0]) == 10
    assert len(read(source.for_stages([rules]))[0]) == 4
    assert len(read(source.for_stages([replace(rules, on_missing="error"), rules]))[0]) == 10
    part = "2023-06/0000/en_head"
    path = shards / f"quality_signals/{part}.signals.json.gz"
    lines = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(lines + lines))
    assert len(read(source.for_stages([rules]))[0]) == 8
    path.write_bytes(gzip.compress(lines))
    listed = pa.table({"shard_id": [part], "doc_id": [f"{part}.json.gz/9"], "digest": ["a"]})
    pq.write_table(listed, shards / f"duplicates/{part}.duplicates.parquet")
    assert len(read(source.for_stages([rules]), "skip")[0]) == 8


def test_a_run_that_fetches_no_documents_names_what_keeps_none(shards, tmp_path):
    rules = {"signal_rules": {"thresholds": {"min_word_count": 10_000_000, "max_word_count": None}}}
    with pytest.raises(RunError, match="not_fetched 9. Those not fetched do not pass the first stages: change their"):
        longcrawl.run(recipe_of(shards, tmp_path, rules), tmp_path / "out")


def test_a_plan_counts_what_a_run_fetches(shards, tmp_path):
    assert re.search(r"redpajama-v2 +4 ", str(longcrawl.plan(recipe_of(shards, tmp_path, WORDS))))


def test_recipes_without_the_field_keep_their_digests(shards):
    assert "fetch_documents" not in RedPajamaV2(data_dir=str(shards)).settings()
    assert RedPajamaV2(data_dir=str(shards), fetch_documents="if_any_passes").settings()["fetch_documents"]
