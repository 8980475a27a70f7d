"""An index on disk: what a dataset is known by, for the dumps that come later."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup import index as indexes
from longcrawl.dedup.index import open_index, take_ids, write_index
from longcrawl.errors import CorruptionError, FormatError
from longcrawl.io.files import file_entries
from longcrawl.io.structured import seal

few = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)


@given(few, few)
def test_an_index_finds_what_a_dictionary_finds(tmp_path_factory, kept, asked):
    folder = tmp_path_factory.mktemp("index")
    keys = np.array(kept, np.uint64).reshape(-1, 2)
    write_index(folder, "urls", {}, pa.array([str(at) for at in range(len(kept))], pa.string()), [keys])
    found = open_index(str(folder), "urls", {}).find(0, np.array(asked, np.uint64).reshape(-1, 2))
    first = {key: at for at, key in reversed(list(enumerate(kept)))}
    assert found.tolist() == [first.get(key, -1) for key in asked]


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_keys_of_one_word_are_found_band_by_band(tmp_path_factory, kept, asked):
    folder = tmp_path_factory.mktemp("index")
    bands = [np.array(kept, np.uint64)[:, None], np.array(kept, np.uint64)[:, None] * np.uint64(7)]
    write_index(folder, "min_hash", {"bands": 2}, pa.array(list(map(str, kept)), pa.string()), bands)
    index = open_index(str(folder), "min_hash", {"bands": 2})
    expected = [kept.index(key) if key in kept else -1 for key in asked]
    assert index.bands == 2
    for band, factor in enumerate((1, 7)):
        assert index.find(band, np.array(asked, np.uint64)[:, None] * np.uint64(factor)).tolist() == expected
    assert index.ids(np.array(expected, np.int64)).to_pylist() == [None if at < 0 else str(kept[at]) for at in expected]


def documents(ids, urls):
    return pa.table({"id": list(ids), "url": urls})


def test_a_later_part_leaves_out_what_an_earlier_one_kept(tmp_path):
    first = lc.dedup.Urls()
    sketches = first.sketch(documents("ab", ["http://a.org/1", "http://a.org/2"]))
    first.save_index(sketches, tmp_path / "first")
    second = lc.dedup.Urls(against=[str(tmp_path / "first")])
    second.prepare()
    later = documents("cdef", ["https://a.org/2/", "http://a.org/3", "http://a.org/3", None])
    removals = second.resolve(second.sketch(later)).to_pylist()
    assert [(row["id"], row["rule"], row["kept_id"]) for row in removals] == [
        ("c", "seen_before", "b"),
        ("e", "same_url", "d"),
    ]


def test_an_index_of_other_settings_is_refused_and_both_are_named(tmp_path):
    stage = lc.dedup.Urls(query="all")
    stage.save_index(stage.sketch(documents("a", ["http://a.org"])), tmp_path)
    both = (
        "has query all, here drop-tracking; it was made by urls with .*'all'.*, but this is urls with .*'drop-tracking'"
    )
    with pytest.raises(FormatError, match=both):
        lc.dedup.Urls(against=[str(tmp_path)]).prepare()
    with pytest.raises(FormatError, match="has stage urls, here exact_documents.*made by urls .* this is exact_doc"):
        lc.dedup.ExactDocuments(against=[str(tmp_path)]).prepare()
    with pytest.raises(FormatError, match="no index of urls at .*nowhere; a run writes one"):
        lc.dedup.Urls(against=[str(tmp_path / "nowhere")]).prepare()


def test_a_damaged_index_is_one_sentence(tmp_path):
    stage = lc.dedup.ExactDocuments()
    table = pa.table({"id": ["a"], "text": ["x"]})
    stage.save_index(stage.sketch(table), tmp_path)
    assert json.loads((tmp_path / "index.json").read_text())["documents"] == 1
    (tmp_path / "keys-000.npy").write_bytes(b"\x93NUMPY cut")
    with pytest.raises(CorruptionError, match="keys-000.npy has 10 bytes, expected "):
        lc.dedup.ExactDocuments(against=[str(tmp_path)]).resolve(stage.sketch(table))


@pytest.mark.parametrize(
    ("content", "said"), [(None, "is missing, though index.json"), (b"xx", "has 2 bytes, expected ")]
)
def test_damaged_ids_are_one_sentence(tmp_path, content, said):
    stage = lc.dedup.ExactDocuments()
    table = pa.table({"id": ["a"], "text": ["x"]})
    stage.save_index(stage.sketch(table), tmp_path)
    (tmp_path / "ids.arrow").unlink()
    if content is not None:
        (tmp_path / "ids.arrow").write_bytes(content)
    with pytest.raises(CorruptionError, match=rf"ids\.arrow {said}.*; build the index again$"):
        lc.dedup.ExactDocuments(against=[str(tmp_path)]).resolve(stage.sketch(table))


@given(st.lists(st.lists(st.text(max_size=3), max_size=4), max_size=5), st.data())
def test_ids_are_taken_from_their_chunks(chunks, data):
    ids = [name for chunk in chunks for name in chunk]
    column = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())
    places = data.draw(st.lists(st.integers(-1, len(ids) - 1), max_size=12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "CHUNK_IDS", 3)
        taken = take_ids(column, np.array(places, np.int64))
    assert taken.num_chunks == -(-len(places) // 3)
    assert taken.type == pa.string()
    assert taken.to_pylist() == [None if place < 0 else ids[place] for place in places]


@pytest.mark.slow
def test_ids_of_more_than_two_gib_are_taken():
    """Arrow's own ``take`` joins the chunks, whose offsets overflow."""
    chunk = pa.array(["a" * 60_000_000, "b" * 60_000_000])
    column = pa.chunked_array([chunk] * 20)
    assert column.nbytes > 1 << 31
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        column.take(pa.array([39, 0]))
    taken = take_ids(column, np.array([39, -1, 0]))
    assert taken[0].as_py() == "b" * 60_000_000
    assert taken[1].as_py() is None


def test_ids_in_several_batches(tmp_path):
    names = [f"document {number}" for number in range(50)]
    ids = pa.chunked_array([pa.array(names[:20]), pa.array(names[20:])])
    write_index(tmp_path, "urls", {}, ids, [np.arange(100, dtype=np.uint64).reshape(50, 2)])
    index = open_index(str(tmp_path), "urls", {})
    assert index.ids(np.array([49, 0, -1, 20])).to_pylist() == [names[49], names[0], None, names[20]]


def flip(file: Path, bit: int) -> None:
    """Flip one bit; the file's time moves on, as it does between two writes by hand."""
    content, moment = bytearray(file.read_bytes()), file.stat().st_mtime_ns
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    os.utime(file, ns=(moment + 10**9, moment + 10**9))


@pytest.mark.variants
@pytest.mark.parametrize("stage", ["exact_documents", "min_hash"])
def test_one_flipped_bit_of_an_index_is_one_sentence_or_harmless(tmp_path, stage):
    """22 of 60 such bits changed what was removed, and 4 ended the process."""
    make = {
        "exact_documents": lc.dedup.ExactDocuments,
        "min_hash": lambda **more: lc.dedup.MinHash(unit="word", ngram=2, bands=3, rows=2, verify=0.5, **more),
    }[stage]
    table = pa.table({"id": list("abc"), "text": ["one two three four", "five six seven", "eight nine ten eleven"]})
    sketches = make().sketch(table)
    make().save_index(sketches, tmp_path)
    later = make(against=[str(tmp_path)])
    expected = later.resolve(sketches)
    assert expected.num_rows == 3
    noticed = 0
    for file in sorted(tmp_path.iterdir()):
        for bit in range(0, 8 * file.stat().st_size, 41 if file.suffix == ".npy" else 203):
            flip(file, bit)
            try:
                assert later.resolve(sketches).equals(expected), (file, bit)
            except (CorruptionError, FormatError):
                noticed += 1
            flip(file, bit)
    assert noticed > 50


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of an index together with what its description says of it, as who means harm would."""
    (folder / name).write_bytes(content)
    described = json.loads((folder / "index.json").read_text())
    described["files"] |= file_entries(folder, [name])
    (folder / "index.json").write_text(seal(described))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((1, 3), np.uint64), "holds uint64 of shape"),
        (np.zeros((1, 2), np.float32), "holds float32"),
        (np.array([[None, None]]), "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_an_index_that_means_harm_is_one_sentence(tmp_path, array, said):
    stage = lc.dedup.ExactDocuments()
    table = pa.table({"id": ["a"], "text": ["x"]})
    stage.save_index(stage.sketch(table), tmp_path)
    made = io.BytesIO()
    if array is None:
        np.lib.format.write_array_header_1_0(made, {"descr": "<u8", "fortran_order": False, "shape": (10**15, 2)})
    else:
        np.save(made, array, allow_pickle=True)
    rewrite(tmp_path, "keys-000.npy", made.getvalue())
    with pytest.raises(CorruptionError, match=rf"keys-000\.npy {said}.*build the index again"):
        lc.dedup.ExactDocuments(against=[str(tmp_path)]).resolve(stage.sketch(table))


def test_a_row_beyond_the_documents_is_one_sentence(tmp_path):
    stage = lc.dedup.ExactDocuments()
    table = pa.table({"id": ["a"], "text": ["x"]})
    stage.save_index(stage.sketch(table), tmp_path)
    made = io.BytesIO()
    np.save(made, np.array([10**12]))
    rewrite(tmp_path, "rows-000.npy", made.getvalue())
    with pytest.raises(CorruptionError, match="refers to documents that it does not contain"):
        lc.dedup.ExactDocuments(against=[str(tmp_path)]).resolve(stage.sketch(table))
