"""Data files of stages: what they hold decides, in this process and in the next, and not when they were written."""

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, load_from_disk
from datasets.fingerprint import Hasher

import longcrawl as lc
from longcrawl.core.stages import STAGES, Stage
from longcrawl.io.files import content_digest, reread_when_changed, write_values

SHORT, LONG = "one two three four", "incomprehensibilities notwithstanding counterrevolutionaries"
DOCUMENTS = {"id": ["short", "long"], "text": [SHORT, LONG], "language": ["en", "en"]}
NEW_PROCESS = """
import sys
import datasets
import longcrawl as lc
datasets.disable_progress_bars()
data = datasets.load_from_disk(sys.argv[1])
judge = lc.text.GopherQuality(languages=sys.argv[2])
print(*data.filter(judge, batched=True)["id"], "|", *(lc.Crawl(data) | judge).data["id"])
"""


def write_thresholds(path: Path, longest: int) -> str:
    """Write thresholds of which only the mean length of words speaks; every number has as many digits."""
    others = [name for name in lc.text.GopherQuality.__dataclass_fields__ if name.startswith(("min_", "max_"))]
    bounds = dict.fromkeys(others) | {"max_mean_word_length": longest}
    path.write_text(json.dumps({"version": 1, "languages": {"en": bounds}}))
    return str(path)


def test_an_edited_file_is_judged_anew_in_the_same_process(tmp_path):
    path = tmp_path / "mine.yaml"
    judge = lc.text.GopherQuality(languages=write_thresholds(path, 10))
    Dataset.from_dict(DOCUMENTS).save_to_disk(tmp_path / "data")
    data = load_from_disk(tmp_path / "data")
    assert data.filter(judge, batched=True)["id"][:] == ["short"]
    assert (lc.Crawl(data) | judge).data["id"][:] == ["short"]
    write_thresholds(path, 99)
    assert data.filter(judge, batched=True)["id"][:] == ["short", "long"]
    assert (lc.Crawl(data) | judge).data["id"][:] == ["short", "long"]


@pytest.mark.slow
def test_an_edited_file_is_judged_anew_in_a_new_process_and_an_unchanged_one_is_not(tmp_path, python):
    Dataset.from_dict(DOCUMENTS).save_to_disk(tmp_path / "data")

    def fresh(*words: str) -> subprocess.CompletedProcess[str]:
        """Run where nothing is imported, and strings hash otherwise than in forked processes."""
        return subprocess.run([sys.executable, "-c", *words], capture_output=True, text=True, check=False)

    def judged(longest: int, run=python) -> tuple[str, set[Path]]:
        path = write_thresholds(tmp_path / "mine.yaml", longest)
        done = run(NEW_PROCESS, str(tmp_path / "data"), path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), set((tmp_path / "data").glob("cache-*"))

    first, made = judged(10)
    assert first == "short | short"
    assert judged(10, fresh) == (first, made)
    assert judged(99)[0] == "short long | short long"


def stages_with_files(folder: Path) -> list[tuple[Path, Stage]]:
    """Return a file and a stage that reads it for every field that names one."""
    thresholds, patterns = folder / "thresholds.yaml", folder / "patterns.yaml"
    words, model = folder / "words.json", folder / "model.bin"
    write_thresholds(thresholds, 10)
    patterns.write_text("languages: {en: {counters: [likes]}}\n")
    words.write_text('{"en": ["the"]}')
    model.write_bytes(b"a model")
    rules = [lc.text.GopherQuality, lc.text.GopherRepetition, lc.text.FineWebQuality]
    made = [(thresholds, kind(languages=str(thresholds))) for kind in rules]
    made += [(patterns, lc.text.LineCorrections(patterns=str(patterns)))]
    made += [(words, lc.text.C4Quality(bad_words=str(words)))]
    lists = ["stop_words", "bad_words", "domain_categories"]
    made += [(words, lc.text.Signals(**{field: str(words)})) for field in lists]
    made += _url_filters_with_files(folder)
    models = ["wikiref_model", "palm_model", "wikipedia_model"]
    return made + [(model, lc.text.Signals(**{field: str(model)})) for field in models]


def _url_filters_with_files(folder: Path) -> list[tuple[Path, Stage]]:
    domains, words = folder / "adult" / "domains", folder / "words.yaml"
    domains.parent.mkdir()
    domains.write_text("bad.example\n")
    words.write_text("hard: [porn]\n")
    return [
        (domains, lc.text.UrlFilter(lists=str(folder), categories=("adult",))),
        (domains, lc.text.UrlFilter(allow_list=str(domains))),
        (domains, lc.text.UrlFilter(curated_sources=str(domains))),
        (words, lc.text.UrlFilter(words=str(words))),
    ]


def test_every_field_that_names_a_file_counts_with_its_content(tmp_path):
    for file, stage in stages_with_files(tmp_path):
        before, content = Hasher.hash(stage), file.read_bytes()
        assert stage.files() == (str(file),)
        file.write_bytes(content + b"\n")
        assert Hasher.hash(stage) != before
        assert pickle.loads(pickle.dumps(stage)) == stage  # our own bytes
        file.write_bytes(content)
        os.utime(file, ns=(1, 1))
        assert Hasher.hash(stage) == before


def test_a_missing_file_pickles_and_is_another_than_the_file(tmp_path):
    path = tmp_path / "words.json"
    stage = lc.text.Signals(stop_words=str(path))
    missing = Hasher.hash(stage)
    assert pickle.loads(pickle.dumps(stage)) == stage  # our own bytes
    path.write_text("{}")
    assert Hasher.hash(stage) != missing


@pytest.mark.variants
@pytest.mark.parametrize("name", sorted(STAGES))
def test_stages_as_they_are_read_no_files_but_a_packages_model(name):
    files = [Path(file).name for file in STAGES[name]().files()]
    assert files == (["lid.176.ftz"] if name == "identify_language" else [])


def test_shipped_tables_are_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gopher").write_text("what happens to be here")
    assert lc.text.GopherQuality(languages="gopher").files() == ()


def test_a_folder_is_the_names_and_contents_of_its_files(tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    digests = [content_digest(str(folder))]
    for name, content in [("en.txt", "the"), ("de.txt", "der"), ("en.txt", "off"), ("en.txt", "the\n")]:
        (folder / name).write_text(content)
        digests.append(content_digest(str(folder)))
    (folder / "en.txt").rename(folder / "fr.txt")
    digests.append(content_digest(str(folder)))
    assert len(set(digests)) == len(digests)
    folder.rename(tmp_path / "elsewhere")
    assert content_digest(str(tmp_path / "elsewhere")) == digests[-1]
    assert content_digest(str(folder)) is None


def test_lists_that_changed_are_read_again_and_others_are_not(tmp_path):
    (tmp_path / "en.txt").write_text("the\n")
    stage = lc.text.Signals(stop_words=str(tmp_path))
    table = pa.table({"text": ["the cat"], "language": ["en"]})
    assert stage(table)["signals"][0]["rps_doc_stop_word_fraction"].as_py() == 0.5
    (tmp_path / "en.txt").write_text("the\ncat\n")
    assert stage(table)["signals"][0]["rps_doc_stop_word_fraction"].as_py() == 1.0
    reads = []

    @reread_when_changed(2)
    def read(path: str | None) -> str | None:
        reads.append(path)
        return path

    for path in [str(tmp_path), None, str(tmp_path), None]:
        assert read(path) == path
    assert reads == [str(tmp_path), None]
    (tmp_path / "de.txt").write_text("der\n")
    assert (read(str(tmp_path)), len(reads)) == (str(tmp_path), 3)


@pytest.mark.parametrize("count", [0, 1, 700, 100_000])
def test_values_that_the_disk_has_no_room_for_are_an_error(tmp_path, count):
    """A limit on the size of files stands for a full disk: both fail when the last bytes are flushed."""
    values, (before, most) = np.arange(count, dtype=np.int64), resource.getrlimit(resource.RLIMIT_FSIZE)
    write_values(tmp_path / "whole", values)
    assert np.array_equal(np.fromfile(tmp_path / "whole", np.int64), values)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, most))
    try:
        if count:
            with pytest.raises(OSError, match="File too large"):
                write_values(tmp_path / "cut", values)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert [file.name for file in tmp_path.iterdir()] == ["whole"]


def test_no_module_writes_arrays_by_numpys_own_files():
    """``ndarray.tofile`` ignores that the disk is full."""
    package = Path(lc.__file__).parent
    assert [str(file) for file in package.rglob("*.py") if ".tofile(" in file.read_text("utf-8")] == []
