"""Segments of a run: what goes into which part, and what progress counts."""

from pathlib import Path

import datasets
import pytest

from longcrawl.io.structured import Marker
from longcrawl.run.engines import Local
from longcrawl.run.segments import do_once, group_inputs


@pytest.mark.parametrize(("unit", "shown"), [("files", "2 files"), ("documents", "14 documents")])
def test_progress_counts_what_it_names(tmp_path, capsys, unit, shown):
    def write(marker: Path) -> dict[str, int]:
        Marker(marker, {"documents": 7}, {}).write()
        return {"documents": 7}

    markers = [tmp_path / "0.json", tmp_path / "1.json"]
    datasets.enable_progress_bars()
    try:
        do_once(tmp_path, write, markers, markers, Local(), "write", unit)
    finally:
        datasets.disable_progress_bars()
    assert f" {shown}, " in capsys.readouterr().err


def test_progress_counts_the_bytes_of_files_if_all_are_known(tmp_path, capsys):
    def write(marker: Path) -> dict[str, int]:
        counts = {"bytes": 3_000_000 if marker.stem == "0" else 1_000_000}
        Marker(marker, counts, {}).write()
        return counts

    shown = []
    for folder, sizes, done in (
        ("known", [3_000_000, 1_000_000], 0),
        ("begun", [3_000_000, 1_000_000], 1),
        ("not", [3, 0], 0),
    ):
        (tmp_path / folder).mkdir()
        markers = [tmp_path / folder / f"{number}.json" for number in range(2)]
        for marker in markers[:done]:
            write(marker)
        datasets.enable_progress_bars()
        try:
            do_once(tmp_path, write, markers, markers, Local(), "read", "documents", sizes=sizes, progress="bytes")
        finally:
            datasets.disable_progress_bars()
        shown.append(capsys.readouterr().err.splitlines())
    assert shown[0][0].startswith("read: 0.00 of 4.00M B")
    assert shown[0][-1].startswith("read: 4.00M of 4.00M B")
    assert shown[1][0].startswith("read: 3.00M of 4.00M B")
    assert shown[2][-1].startswith("read: 2 of 2 parts")


def test_neighbouring_inputs_go_to_different_parts():
    assert group_inputs(7, 3) == [[0, 3, 6], [1, 4], [2, 5]]
    assert group_inputs(2, 100) == [[0], [1]]
    assert group_inputs(3, 1) == [[0, 1, 2]]
