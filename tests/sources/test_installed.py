"""The documentation of installed packages: what is taken, what is left out, and that no machine shows in it."""

import sys
from importlib import metadata
from pathlib import Path

import pytest
from datasets import load_dataset

from longcrawl.core.sources import BadFile, BadFiles
from longcrawl.errors import SourceError
from longcrawl.sources import installed
from longcrawl.sources.installed import Installed


def install(site, name, version, files, *, description="A long description.", extra=""):
    """Lay a distribution out as pip does."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extra}"
    (info / "METADATA").write_text(f"{header}\n{description}\n")
    for path, content in files.items():
        target = site / path.replace("INFO", info.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    listed = [path.replace("INFO", info.name) for path in files]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in [f"{info.name}/METADATA", *listed]))


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def read(source=None, policy="error"):
    source, bad_files = source or Installed(), BadFiles(policy)
    parts = [part for part in source.splits()["train"] if part.name != "python/pydoc_data"]
    tables = [table for part in parts for table in source.read(part, bad_files)]
    assert all(table.schema == source.schema() for table in tables)
    return [row for table in tables for row in table.to_pylist()], bad_files.found


def test_descriptions_licences_and_documents_are_taken(site):
    files = {
        "INFO/licenses/LICENSE": "Licence.",
        "INFO/COPYING.LESSER": "Copying.",
        "INFO/top_level.txt": "alpha",
        "INFO/entry_points.txt": "[x]",
        "alpha/guide.md": "Guide.",
        "alpha/notes.rst": "Notes.",
        "alpha/LICENSE": "not in the metadata folder, no known ending",
        "alpha/data.txt": b"\xff\xfe not text",
        "alpha/empty.txt": " \n",
        "alpha/code.py": "print()",
        "../../share/alpha/README.txt": "Shared.",
    }
    install(site, "Alpha_Beta", "1.2", files, extra="Project-URL: Homepage, https://alpha.example\n")
    rows, bad = read()
    assert bad == []
    assert [(row["id"], row["text"]) for row in rows] == [
        ("alpha-beta/METADATA", "A long description."),
        ("alpha-beta/alpha/guide.md", "Guide."),
        ("alpha-beta/alpha/notes.rst", "Notes."),
        ("alpha-beta/dist-info/COPYING.LESSER", "Copying."),
        ("alpha-beta/dist-info/licenses/LICENSE", "Licence."),
        ("alpha-beta/share/alpha/README.txt", "Shared."),
    ]
    assert {(row["source"], row["url"], row["language"]) for row in rows} == {
        ("alpha-beta==1.2", "https://alpha.example", "en")
    }


def test_ids_do_not_depend_on_versions_or_folders(site, tmp_path, monkeypatch):
    install(site, "alpha", "1.0", {"INFO/LICENSE": "Licence.", "alpha/a.md": "A."})
    first = [row["id"] for row in read()[0]]
    other = tmp_path / "elsewhere" / "dist-packages"
    install(other, "alpha", "2.0", {"alpha/a.md": "A.", "INFO/LICENSE": "Licence."})
    monkeypatch.setattr(sys, "path", [str(other)])
    assert [row["id"] for row in read()[0]] == first
    assert not any(str(tmp_path) in name for name in first)


def test_longcrawl_and_what_is_not_installed_are_left_out(site, tmp_path, monkeypatch):
    install(site, "longcrawl", "0.1", {"longcrawl/a.md": "A."})
    install(site, "beta", "1", {})
    install(tmp_path / "project", "gamma", "1", {})
    monkeypatch.setattr(sys, "path", [str(tmp_path / "project"), str(site)])
    assert [part.name for part in Installed().splits()["train"]] == ["beta", "python/pydoc_data"]


def test_of_a_package_that_is_there_twice_the_first_one_counts(site, tmp_path, monkeypatch):
    second = tmp_path / "system" / "dist-packages"
    install(site, "alpha", "2", {}, description="new")
    install(second, "Alpha", "1", {}, description="old")
    monkeypatch.setattr(sys, "path", [str(site), str(second)])
    assert [row["text"] for row in read()[0]] == ["new"]


def test_recorded_files_that_are_missing_follow_the_policy(site):
    install(site, "alpha", "1", {"alpha/a.md": "A."})
    (site / "alpha/a.md").unlink()
    rows, bad = read(policy="skip")
    assert [row["id"] for row in rows] == ["alpha/METADATA"]
    assert bad == [BadFile("alpha/alpha/a.md", "is recorded but cannot be read: No such file or directory")]
    with pytest.raises(SourceError, match="alpha/a.md: is recorded but cannot be read"):
        read()
    assert Installed().on_bad_files == "skip"


def test_packages_can_be_named(site):
    install(site, "alpha", "1", {})
    install(site, "Beta_B", "1", {})
    assert [part.name for part in Installed(packages=("beta.b",)).splits()["train"]] == ["beta-b"]
    with pytest.raises(SourceError, match=r"no package 'delta' is installed; known: alpha, beta-b, python"):
        Installed(packages=("delta",)).splits()


def test_the_fingerprint_follows_versions(site):
    install(site, "alpha", "1", {})
    before = Installed().fingerprint()
    assert before == Installed().fingerprint()
    install(site, "beta", "1", {})
    assert Installed().fingerprint() != before


def test_a_package_without_a_description_has_no_document(site):
    install(site, "alpha", "1", {}, description="")
    install(site, "beta", "1", {}, description="UNKNOWN")
    assert read()[0] == []


def test_the_bytes_of_a_package_are_those_of_its_documents(site):
    install(site, "alpha", "1", {})
    info = site / "alpha-1.dist-info"
    (info / "RECORD").write_text("alpha/guide.md,sha256=x,700\nalpha/notes.txt,,\nalpha/code.py,sha256=x,9000\n")
    (part,) = (part for part in Installed().splits()["train"] if part.name == "alpha")
    assert Installed().part_bytes(part) == 700 + (info / "METADATA").stat().st_size


@pytest.mark.slow
def test_the_help_topics_of_python():
    rows = load_dataset("longcrawl", "installed", packages=["python"], split="train").to_list()
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert "python/pydoc_data/assignment" in {row["id"] for row in rows}
    assert {row["source"] for row in rows} == {"python==" + sys.version.split()[0].rstrip("+")}


@pytest.mark.slow
def test_this_environment():
    streamed = list(load_dataset("longcrawl", "installed", split="train", streaming=True))
    assert streamed == load_dataset("longcrawl", "installed", split="train").to_list()
    ids = [row["id"] for row in streamed]
    assert len(set(ids)) == len(ids) > 200
    assert "pyarrow/METADATA" in ids
    assert {row["source"] for row in streamed} >= {f"numpy=={metadata.version('numpy')}"}
    assert not any(name.startswith("longcrawl/") or str(Path.home()) in name for name in ids)
    assert {part.name for part in Installed().splits()["train"]} >= {*installed._distributions()}
