"""Facts of a bucketed dataset: whether it is whole, one sample's text, its rows, and removals."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from composed_crawls import END, compose, documents

from longcrawl.formats import open_composed
from longcrawl.formats.buckets.write import ComposedOutput, ComposedResult

pytestmark = pytest.mark.usefixtures("small_files")
CAPACITIES = [16, 32]


@pytest.mark.slow
def test_rows_are_the_samples_without_their_padding(tmp_path):
    composed = compose(documents([5, 9, 30, 40] * 10), tmp_path / "out", CAPACITIES)
    rows = ComposedResult().token_rows(tmp_path / "out")
    assert {name: each.rows for name, each in rows.items()} == {"train": sum(map(len, composed.buckets))}
    read = pa.concat_tables(rows["train"].read(0, rows["train"].rows))
    expected = []
    for bucket in composed.buckets:
        samples = bucket.read(np.arange(len(bucket)))
        lengths = [int(sizes.sum()) for sizes in samples.piece_sizes]
        expected += [row[:length].tolist() for row, length in zip(samples.tokens, lengths, strict=True)]
    assert read["input_ids"].to_pylist() == expected
    assert read["n_tokens"].to_pylist() == [len(row) for row in expected]


def test_a_sample_is_shown_and_a_changed_file_is_named(tmp_path):
    compose(documents([20] * 30), tmp_path / "out", [32])
    result = ComposedResult()
    assert result.verify(tmp_path / "out").problems == ()
    said = str(result.inspect(tmp_path / "out", "train", 0))
    assert "split train: train/32 20 samples, uint16" in said
    assert "d10  https://www.site.org/10  tokens 0 to 11, cut" in said
    (tmp_path / "out/pieces/train/32/00000.parquet").write_bytes(b"PAR1")
    (problem,) = result.verify(tmp_path / "out").problems
    assert "pieces/train/32/00000.parquet" in problem


def test_without_a_document_all_others_are_there(tmp_path):
    compose(documents([5, 9, 30, 40] * 10), tmp_path / "out", CAPACITIES)
    settings = ComposedOutput(capacities=CAPACITIES, end_of_text=END)
    removal = ComposedResult().without(tmp_path / "out", pa.array(["d3", "d20", "nobody"]), settings)
    assert (removal.documents, removal.found, removal.kept[0]) == (2, 0, removal.kept[1])
    names = set()
    for bucket in open_composed(tmp_path / "out").buckets:
        for file in (tmp_path / "out/pieces" / bucket.path).glob("*.parquet"):
            names.update(pq.read_table(file)["id"].to_pylist())
    assert names == {f"d{number}" for number in range(40)} - {"d3", "d20"}
    assert ComposedResult().verify(tmp_path / "out").problems == ()
