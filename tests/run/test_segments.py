"""Segments of a run: what goes into which part, and what progress counts."""

import multiprocessing
import time
from pathlib import Path

import datasets
import pytest

from longcrawl.core import display, progress
from longcrawl.core.progress import following, note_read, progress_file, read_progress, tell_progress
from longcrawl.io.structured import Marker
from longcrawl.run import segments
from longcrawl.run.engines import Local, Shared, local
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
        counts = {"bytes": (3_000_000, 1_000_000, 0)[int(marker.stem)]}
        Marker(marker, counts, {}).write()
        return counts

    shown = []
    for folder, sizes, done in (
        ("known", [3_000_000, 1_000_000, 0], 0),  # an empty file has a size
        ("begun", [3_000_000, 1_000_000, 0], 1),
        ("not", [3, None, 0], 0),
        ("empty", [0, 0, 0], 0),
    ):
        (tmp_path / folder).mkdir()
        markers = [tmp_path / folder / f"{number}.json" for number in range(3)]
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
    assert shown[2][-1].startswith("read: 3 of 3 parts")
    assert shown[3][-1].startswith("read: 3 of 3 parts")


def read_half(marker: Path) -> dict[str, int]:
    """Read half of a file, go on when the leader has seen that, and finish."""
    with following(progress_file(marker.parent / "work", marker)):
        note_read(1, 2)
        while not marker.with_suffix(".seen").exists():
            tell_progress()
            time.sleep(0.001)
    counts = {"bytes": 2_000_000}
    Marker(marker, counts, {}).write()
    return counts


@pytest.mark.variants
@pytest.mark.parametrize("engine", [Local(), Local(2), Shared()], ids=["alone", "processes", "shared"])
def test_progress_includes_what_running_tasks_have_read(tmp_path, capsys, monkeypatch, engine):
    markers = [tmp_path / f"{number}.json" for number in range(3)]

    def read_and_note(folder: Path) -> dict[str, float]:
        found = read_progress(folder)
        for name in found:
            markers[int(name[-1])].with_suffix(".seen").touch()
        return found

    monkeypatch.setattr(segments, "read_progress", read_and_note)
    for module in (progress, local):
        monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(display, "LINE_SECONDS", 0)
    (tmp_path / "work").mkdir()
    datasets.enable_progress_bars()
    try:
        with engine.hold(tmp_path / "work", lambda: False) as held:
            segments.do_once(
                tmp_path, read_half, markers, markers, held, "read", "files", sizes=[2_000_000] * 3, progress="bytes"
            )
    finally:
        datasets.disable_progress_bars()
    shown = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown[0] == "read: 0.00 of 6.00M B"
    assert shown[1] in ("read: 1.00M of 6.00M B", "read: 2.00M of 6.00M B")  # of two processes
    assert shown[-1] == "read: 6.00M of 6.00M B"
    assert not (tmp_path / "work" / "progress").exists()


def test_progress_includes_what_another_process_has_read(tmp_path, capsys, monkeypatch):
    """Both tasks wait until the leader has seen both at half, so that each process does one."""
    markers, done = [tmp_path / f"{number}.json" for number in range(2)], tmp_path / "done"

    def read_and_note(folder: Path) -> dict[str, float]:
        found = read_progress(folder)
        if len(found) == 2:
            for marker in markers:
                marker.with_suffix(".seen").touch()
        return found

    def help_leader() -> None:
        with Shared().hold(tmp_path / "work", done.exists) as leads:
            assert leads is None

    monkeypatch.setattr(segments, "read_progress", read_and_note)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    monkeypatch.setattr(display, "LINE_SECONDS", 0)
    (tmp_path / "work").mkdir()
    datasets.enable_progress_bars()
    helper = multiprocessing.get_context("fork").Process(target=help_leader)
    try:
        with Shared().hold(tmp_path / "work", done.exists) as held:
            assert held is not None
            helper.start()
            given = tmp_path, read_half, markers, markers, held, "read", "files"
            segments.do_once(*given, sizes=[2_000_000] * 2, progress="bytes")
            done.touch()
        helper.join(60)
        assert helper.exitcode == 0
    finally:
        datasets.disable_progress_bars()
        helper.kill()
    shown = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert "read: 2.00M of 4.00M B" in shown
    assert shown[-1] == "read: 4.00M of 4.00M B"


def test_neighbouring_inputs_go_to_different_parts():
    assert group_inputs(7, 3) == [[0, 3, 6], [1, 4], [2, 5]]
    assert group_inputs(2, 100) == [[0], [1]]
    assert group_inputs(3, 1) == [[0, 1, 2]]
