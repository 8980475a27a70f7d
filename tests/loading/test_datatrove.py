"""Datasets by datatrove's names: its items and its options."""

import json
from pathlib import Path

import fsspec
import numpy as np
import pytest
from window_shards import END, write

from longcrawl.errors import CorruptionError, LoaderError
from longcrawl.loading import DatatroveFileDataset, DatatroveFolderDataset


def test_datatroves_names_give_datatroves_items(tmp_path):
    torch = pytest.importorskip("torch")
    for number in range(4):
        write(tmp_path / f"{number}.ds", [31, 12], seed=number)
    folder = DatatroveFolderDataset(tmp_path, 4, return_positions=True)
    assert len(folder) == 32
    assert folder.lens == [0, 8, 16, 24, 32]
    assert folder[9]["input_ids"].dtype == folder[9]["positions"].dtype == torch.int64
    assert folder.current_file == 1
    assert folder.current_file_path == str(tmp_path / "1.ds")
    one = DatatroveFileDataset(tmp_path / "1.ds", 4, 2, return_positions=True, fsize=86)
    assert one.read_path == str(tmp_path / "1.ds")
    for items in (folder[8:10], folder[[8, -23]], folder[np.array([8, 9])], folder[torch.tensor([8, 9])]):
        assert [item["input_ids"].tolist() for item in items] == [one[at]["input_ids"].tolist() for at in (0, 1)]
    assert folder.current_file == 1
    with pytest.raises(TypeError, match="is not a whole number"):
        one[1.0]
    assert [item["input_ids"].tolist() for item in one] == [folder[8 + at]["input_ids"].tolist() for at in range(8)]
    by_token = DatatroveFolderDataset(tmp_path, 4, return_positions=True, positions_from_eos_token_id=END)
    assert all(torch.equal(by_token[at]["positions"], folder[at]["positions"]) for at in range(32))
    shuffled = DatatroveFolderDataset(tmp_path, 4, shuffle=True, seed=1)
    order = np.random.default_rng(1).permutation(4)
    assert [Path(file.path).name for file in shuffled.windows.files] == [f"{number}.ds" for number in order]
    assert "positions" not in shuffled[0]
    assert len(DatatroveFileDataset(tmp_path / "1.ds", 4, max_tokens=10)) == 2
    with pytest.raises(LoaderError, match="fsize 80"):
        DatatroveFileDataset(tmp_path / "1.ds", 4, fsize=80)
    with pytest.raises(CorruptionError):
        DatatroveFolderDataset(tmp_path, 4, token_size=4)


def test_a_folder_has_datatrove_s_names_and_options(tmp_path):
    pytest.importorskip("torch")
    write(tmp_path / "a.ds", [30, 20])
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/named/a.ds", (tmp_path / "a.ds").read_bytes())
    expected = [item["input_ids"].tolist() for item in DatatroveFolderDataset(tmp_path, 4)]
    for folder in ({"folder_path": tmp_path}, {"data_folder": (str(tmp_path), {})}):
        assert [item["input_ids"].tolist() for item in DatatroveFolderDataset(**folder, seq_len=4)] == expected
    remote = DatatroveFolderDataset(("memory://named", {"use_listings_cache": False}), 4, token_size=2)
    assert [item["input_ids"].tolist() for item in remote] == expected
    for wrong in ({}, {"data_folder": tmp_path, "folder_path": tmp_path}):
        with pytest.raises(LoaderError, match="needs one folder and a seq_len"):
            DatatroveFolderDataset(**wrong, seq_len=4)
    with pytest.raises(LoaderError, match="is local and has no options: pass only the folder"):
        DatatroveFolderDataset((str(tmp_path), {"anon": True}), 4)


def test_datatroves_patterns_and_sub_folders(tmp_path, monkeypatch):
    for name in ("a_shuffled.ds", "b.ds", "deep/c_shuffled.ds"):
        write(tmp_path / name, [30])

    def names(**options):
        files = DatatroveFolderDataset(tmp_path, 4, **options).windows.files
        return [str(Path(file.path).relative_to(tmp_path)) for file in files]

    assert names() == ["a_shuffled.ds", "b.ds", "deep/c_shuffled.ds"]
    assert names(recursive=False) == ["a_shuffled.ds", "b.ds"]
    assert names(filename_pattern="_shuffled.ds") == ["a_shuffled.ds", "deep/c_shuffled.ds"]
    assert names(filename_pattern="deep/*.ds") == ["deep/c_shuffled.ds"]
    # As nanotron's Nanoset asks for them, where the folder may be relative.
    assert names(filename_pattern=str(tmp_path / "*.ds"), recursive=False) == names(recursive=False)
    monkeypatch.chdir(tmp_path)
    assert [file.path for file in DatatroveFolderDataset("deep", 4, filename_pattern="deep/*.ds").windows.files] == [
        str(tmp_path / "deep" / "c_shuffled.ds")
    ]
    paths_file = tmp_path / "list.json"
    assert names(paths_file=paths_file) == names(paths_file=paths_file) == names()
    assert [entry["path"] for entry in json.loads(paths_file.read_text())] == names()
    write(tmp_path / "b.ds", [40])
    trusting = DatatroveFolderDataset(tmp_path, 4, shuffle=True, paths_file=paths_file, on_stale_paths="trust")
    assert {file.tokens for file in trusting.windows.files} == {30}
