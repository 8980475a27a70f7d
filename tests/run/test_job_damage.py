"""Whatever happens to the files of a stopped run, it ends in the same bytes, or in one sentence."""

import hashlib
import importlib
import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import yaml

import longcrawl as lc
from longcrawl.core.stages import Segment
from longcrawl.errors import LongCrawlError, RunError
from longcrawl.io.structured import DamagedWorkError, Marker, seal
from longcrawl.run.engines import Local, hold
from longcrawl.run.segments import check_results

RUN, SEGMENTS, SURVEYS = (importlib.import_module(f"longcrawl.run.{name}") for name in ("job", "segments", "inputs"))
STOPS = {
    "in a search": (SURVEYS, "keep_spans"),
    "before the manifest": (RUN, "write_card"),
}
LOSSES = {
    "reading an input": (RUN, "run_part"),
    "a survey": (SURVEYS, "_decide"),
    "a search": (SURVEYS, "keep_spans"),
    "planning the output": (SEGMENTS, "check_plan"),
    "the analysis": (RUN, "analyse"),
    "the card": (RUN, "write_card"),
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    folder, chance = tmp_path_factory.mktemp("damage"), random.Random(3)
    (folder / "in").mkdir()
    for part in range(2):
        lines = []
        for number in range(12):
            words = " ".join(str(chance.randrange(5000)) for _ in range(60))
            text = (
                "the same text " * 20 if number == 3 else words + " a notice that is in many documents" * (number % 2)
            )
            lines.append(json.dumps({"id": f"{part}-{number}", "text": text}) + "\n")
        (folder / "in" / f"{part}.jsonl").write_text("".join(lines))
    spec = {
        "longcrawl": 1,
        "name": "damage",
        "source": {"builder": "text", "data_dir": str(folder / "in"), "id_field": "id"},
        "stages": [
            {"exact_documents": {"index": "save"}},
            {"exact_substring": {"unit": "character", "min_tokens": 20}},
            {"min_chars": {"n": 200}},
        ],
        "outputs": {"parquet": {}},
    }
    path = folder / "damage.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    lc.run(recipe, out)
    return out


def stop(recipe: Path, out: Path, where: str) -> None:
    """Run until the function that a stop is named for is called."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*STOPS[where], interrupt)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, out)


@pytest.mark.variants
@pytest.mark.parametrize("where", LOSSES)
def test_a_run_whose_lock_another_one_has_taken_writes_nothing_more(
    recipe, whole, tmp_path, monkeypatch, where, directory_digest
):
    """One that stood still for a minute removed what the other one was reading, and published its manifest."""
    out, here, seen = tmp_path / "out", tmp_path / "out/work/lock", list[dict[Path, int]]()
    lost = getattr(*LOSSES[where])

    def lose(*given: object, **named: object) -> object:
        done = lost(*given, **named)
        if not seen:
            here.write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
            seen.append(changes(out))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(*LOSSES[where], lose)
        patch.setattr(hold, "BEAT", 0.0)
        with pytest.raises(RunError, match="so another one leads the run in .*out"):
            lc.run(recipe, out)
    assert [changes(out)] == seen
    assert json.loads(here.read_text())["host"] == "elsewhere"
    here.unlink()
    lc.run(recipe, out)
    assert directory_digest(out) == directory_digest(whole)


def changes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.variants
@pytest.mark.parametrize("harm", ["flipped", "missing"])
@pytest.mark.parametrize("when", ["before the run goes on", "while it goes on"])
def test_a_run_that_lost_what_it_began_with_is_refused(recipe, tmp_path, monkeypatch, harm, when):
    """Nothing may be pinned in its place: inputs that have changed would be taken for those of the finished parts."""
    out = tmp_path / "out"
    stop(recipe, out, "in a search")
    inputs = out / "work" / "inputs.json"

    def damage(*_: object) -> None:
        content = bytearray(inputs.read_bytes())
        content[len(content) // 2] ^= 1
        inputs.write_bytes(content) if harm == "flipped" else inputs.unlink()

    if when == "while it goes on":
        check = RUN.inputs.check_stages
        monkeypatch.setattr(RUN.inputs, "check_stages", lambda *given: (damage(), check(*given)))
    else:
        damage()
    with pytest.raises(RunError, match=r"inputs\.json is missing or damaged, and nothing else records .*Remove "):
        lc.run(recipe, out)


def kinds(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the largest file of each kind: those of one folder with one ending."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    return {(path.parent.name, path.suffix): path for path in files if path.stat().st_size}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in a search", pytest.param("before the manifest", marks=pytest.mark.slow)])
def test_one_flipped_bit_of_a_stopped_run_changes_nothing(recipe, whole, tmp_path, where, directory_digest):
    """55 of 100 such bits gave another output, and nobody was told."""
    stop(recipe, tmp_path / "stopped", where)
    found = kinds(tmp_path / "stopped")
    assert len(found) >= 10
    told, chance = 0, random.Random(1)
    for file in found.values():
        out = tmp_path / "out"
        shutil.copytree(tmp_path / "stopped", out)
        damaged = out / file.relative_to(tmp_path / "stopped")
        content = bytearray(damaged.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        damaged.write_bytes(content)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                lc.run(recipe, out)
                assert directory_digest(out) == directory_digest(whole), damaged
            except LongCrawlError as sentence:
                told += str(damaged) in str(sentence)
        told += any("is done again" in str(each.message) for each in warned)
        shutil.rmtree(out)
    assert told >= 5


def test_what_is_gone_is_made_again(recipe, whole, tmp_path, directory_digest):
    out = tmp_path / "out"
    stop(recipe, out, "before the manifest")
    for path in ("ledger", "parquet", "work/spill", "work/segment-0/00000.arrow"):
        shutil.rmtree(out / path) if (out / path).is_dir() else (out / path).unlink()
    with pytest.warns(UserWarning, match="is missing"):
        lc.run(recipe, out)
    assert directory_digest(out) == directory_digest(whole)


@pytest.mark.slow
def test_documents_between_two_surveys_are_kept_once(recipe, whole, tmp_path, directory_digest):
    stop(recipe, tmp_path / "once", "in a search")
    assert {path.parent.name for path in (tmp_path / "once/work").glob("segment-*/*.arrow")} == {"segment-0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "keeps_documents", True)
        stop(recipe, tmp_path / "twice", "in a search")
    assert {path.parent.name for path in (tmp_path / "twice/work").glob("segment-*/*.arrow")} > {"segment-0"}
    for name in ("once", "twice"):
        lc.run(recipe, tmp_path / name)
        assert directory_digest(tmp_path / name) == directory_digest(whole)


@pytest.mark.slow
def test_documents_are_those_of_runs_that_keep_them_in_each_segment(recipe, tmp_path, directory_digest):
    """Three surveys and a trained tokenizer in a row, with one input of which no document is kept."""
    spec, again = yaml.safe_load(recipe.read_text()), tmp_path / "in"
    shutil.copytree(spec["source"]["data_dir"], again)
    copies = [json.loads(line) for line in (again / "0.jsonl").read_text().splitlines()]
    (again / "2.jsonl").write_text("".join(json.dumps(each | {"id": f"2-{each['id']}"}) + "\n" for each in copies))
    spec["source"]["data_dir"] = str(again)
    trained = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}
    surveys = [{"exact_documents": {"keep": "first"}}, {"min_hash": {"preset": "fineweb"}}]
    spec["stages"] = [*surveys, {"exact_documents": {"index": "save"}}, trained]
    spec["outputs"] = {"gpt-simple": {}}
    (path := tmp_path / "several.yaml").write_text(yaml.safe_dump(spec))
    lc.run(path, tmp_path / "once")
    # Of 24 documents and 12 copies, the text that is in both inputs stays once.
    assert json.loads((tmp_path / "once/manifest.json").read_text())["funnel"]["stages"][-1]["out"] == 23
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "keeps_documents", True)
        lc.run(path, tmp_path / "each", num_proc=2)
    assert directory_digest(tmp_path / "once") == directory_digest(tmp_path / "each")


def test_what_is_damaged_again_and_again_is_one_sentence(recipe, tmp_path, monkeypatch):
    def damaged(*_: object) -> None:
        raise DamagedWorkError("x.arrow has been changed: its SHA-256 differs")

    monkeypatch.setattr(SEGMENTS, "check_spill", damaged)
    with pytest.warns(UserWarning, match=r"x\.arrow"), pytest.raises(RunError, match="check disk and memory"):
        lc.run(recipe, tmp_path / "out")


def test_an_output_that_changes_before_it_is_sealed_is_noticed(recipe, tmp_path):
    out = tmp_path / "out"
    stop(recipe, out, "before the manifest")
    marker = next((out / "work/written").glob("*.json"))
    check_results(out, [marker], Local())
    file = next((out / "parquet").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedWorkError, match=r"parquet has been changed|parquet is missing or has been changed"):
        check_results(out, [marker], Local())


@pytest.mark.parametrize("content", [{}, {"a": {}}, {"é\ud800": [1, None], "b": {"c\n}": " }"}, "sha256": "x"}])
def test_a_sealed_description_is_what_json_writes_of_it_with_its_digest(content):
    unsealed = {name: value for name, value in content.items() if name != "sha256"}

    def spelled(entries: dict) -> bytes:
        return json.dumps(entries, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")

    digest = hashlib.sha256(spelled(unsealed)).hexdigest()
    assert seal(content).encode() == spelled(unsealed | {"sha256": digest}) + b"\n"


def test_markers_of_an_earlier_version_count_as_missing(tmp_path):
    (tmp_path / "00000.json").write_text('{"documents": 3}')
    assert Marker.read(tmp_path / "00000.json") is None


@pytest.mark.parametrize("name", ["work", "parquet", "ledger"])
def test_a_link_in_the_folder_of_a_run_is_refused_and_left_alone(recipe, tmp_path, name):
    """A run followed it, wrote there, and failed to clear it, or left it behind."""
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    theirs.mkdir()
    (theirs / "precious.partial-1").write_text("x")
    out.mkdir()
    (out / name).symlink_to(theirs)
    with pytest.raises(RunError, match=f"{name} is a link to .*theirs.*Remove the link"):
        lc.run(recipe, out)
    assert [path.name for path in theirs.iterdir()] == ["precious.partial-1"]
    assert [path.name for path in out.iterdir()] == [name]


@pytest.mark.slow
def test_a_trained_tokenizer_that_rots_is_trained_again(recipe, tmp_path, monkeypatch, directory_digest):
    """A letter of it that changed between training and use gave other tokens, and nobody was told."""
    spec = yaml.safe_load(recipe.read_text())
    spec["stages"] = [{"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}]
    trained = tmp_path / "trained.yaml"
    trained.write_text(yaml.safe_dump(spec))
    lc.run(trained, tmp_path / "whole")
    run_segment, done = RUN._Job._run_segment, []

    def rot_first(job, segment, *others):
        if segment.number == 1 and not done:
            (file,) = (tmp_path / "out/work/fit-0").rglob("tokenizer.json")
            text = file.read_text()
            assert '"1":' in text
            assert '"2":' in text
            file.write_text(text.replace('"1":', '"x":').replace('"2":', '"1":').replace('"x":', '"2":'))
            done.append(file)
        return run_segment(job, segment, *others)

    monkeypatch.setattr(RUN._Job, "_run_segment", rot_first)
    with pytest.warns(UserWarning, match=r"fit-0/.*tokenizer.json has been changed.*made again"):
        lc.run(trained, tmp_path / "out")
    assert directory_digest(tmp_path / "out") == directory_digest(tmp_path / "whole")
