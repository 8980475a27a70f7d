"""Documents of one id: found before the first stage of a run; all but the first are left out where that is asked."""

import importlib
import json
import re
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import RecipeError, RunError
from longcrawl.publish.report.removed_documents import removed_documents
from longcrawl.publish.reread import run_url_hits
from longcrawl.run import part as ids
from longcrawl.run.engines import Local
from longcrawl.run.recipe import parse_recipe
from longcrawl.sources.text import Text
from longcrawl.sources.warc.source import Warc

JOB = importlib.import_module("longcrawl.run.job")
KEEP_FIRST = ["source.on_duplicate_ids=keep_first"]
MIN = {"min_chars": {"n": 1}}


def documents(*names: str, text: str = "") -> list[dict[str, str]]:
    return [{"id": name, "text": text or f"This is the text of document {name}."} for name in names]


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path: Path, rows: list[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_warc(path: Path, rows: list[dict[str, str]], status: int = 200) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = []
    for row in rows:
        head = f"HTTP/1.1 {status} Said\r\nContent-Type: text/plain\r\n\r\n"
        block = (head + row["text"]).encode()
        fields = f"WARC-Type: response\r\nWARC-Record-ID: <urn:{row['id']}>\r\nContent-Length: {len(block)}\r\n"
        address = f"WARC-Target-URI: http://example.org/{row['id']}\r\nContent-Type: application/http\r\n"
        records.append(f"WARC/1.0\r\n{fields}{address}\r\n".encode() + block + b"\r\n\r\n")
    path.write_bytes(b"".join(records))
    return path


WRITERS = {"jsonl": write_jsonl, "parquet": write_parquet, "warc": write_warc}


def write_recipe(folder: Path, *stages: object, **source: object) -> Path:
    spec = {
        "longcrawl": 1,
        "name": "ids",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(folder / "in"), **source},
        "stages": list(stages or (MIN, "exact_documents")),
        "outputs": {"parquet": {}},
    }
    if source.get("builder"):
        del spec["source"]["id_field"]
    path = folder / "ids.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def kept(out: Path) -> dict[str, str]:
    rows = pa.concat_tables([pq.read_table(file) for file in sorted((out / "parquet").glob("*.parquet"))]).to_pylist()
    return {row["id"]: row["text"] for row in rows}


def files_of(out: Path) -> dict[str, str]:
    files = json.loads((out / "manifest.json").read_bytes())["files"]
    return {name: entry["sha256"] for name, entry in files.items()}


@pytest.fixture
def three(tmp_path) -> Path:
    """Three files: one id three times with other texts, in one of them twice; one that only the last two have."""
    write_jsonl(tmp_path / "in/a.jsonl", documents("a", "x", "c") + documents("x", text="The second of this id."))
    write_jsonl(tmp_path / "in/b.jsonl", documents("d", "y") + documents("x", text="The third document of this id."))
    write_jsonl(tmp_path / "in/c.jsonl", documents("y", "e"))
    return write_recipe(tmp_path)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("num_proc", "kind"),
    [(1, "parquet"), (2, "jsonl")]
    + [
        pytest.param(*each, marks=pytest.mark.slow) for each in ((1, "jsonl"), (1, "warc"), (2, "parquet"), (2, "warc"))
    ],
)
def test_a_file_that_is_there_twice_stops_a_run_before_its_first_stage(tmp_path, kind, num_proc):
    one = WRITERS[kind](tmp_path / f"in/b.{kind}", documents("b", "c"))
    WRITERS[kind](tmp_path / f"in/a.{kind}", documents("a"))
    shutil.copy(one, tmp_path / f"in/z.{kind}")
    recipe = write_recipe(tmp_path, **({"builder": "warc"} if kind == "warc" else {}))
    example = "<urn:b>" if kind == "warc" else "b"
    said = (
        f"a run needs unique ids, but some occur more than once, such as {example!r}, in {one} and in "
        f"{tmp_path}/in/z.{kind}: remove one of the two from the source by naming all others, "
        "--set 'source.data_files=[FILE, FILE]', or keep the first document of each id, "
        "--set source.on_duplicate_ids=keep_first"
    )
    with pytest.raises(RunError, match=f"^{re.escape(said)}$"):
        lc.run(recipe, tmp_path / "out", num_proc)
    assert not (tmp_path / "out/work/segment-0").exists()
    assert sorted(path.name for path in (tmp_path / "out/work/ids").glob("*.hashes")) == [
        "00001.hashes",
        "00002.hashes",
    ]
    lc.run(recipe, tmp_path / "out", num_proc, KEEP_FIRST)
    assert sorted(kept(tmp_path / "out")) == [f"<urn:{name}>" if kind == "warc" else name for name in "abc"]


@pytest.mark.variants
@pytest.mark.parametrize("kind", WRITERS)
def test_one_record_in_two_files_stops_a_run(tmp_path, kind):
    WRITERS[kind](tmp_path / f"in/a.{kind}", documents("a", "b", "c"))
    WRITERS[kind](tmp_path / f"in/b.{kind}", documents("d", "b"))
    recipe = write_recipe(tmp_path, **({"builder": "warc"} if kind == "warc" else {}))
    with pytest.raises(RunError, match=f"such as '(<urn:)?b>?', in .*a.{kind} and in .*b.{kind}: remove one"):
        lc.run(recipe, tmp_path / "out")
    assert not (tmp_path / "out/work/segment-0").exists()


def test_the_ids_of_a_small_file_that_is_alone_are_compared_once_it_is_read(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "in/a.jsonl", documents("a", "b", "b"))
    recipe, out, other = write_recipe(tmp_path), tmp_path / "out", tmp_path / "other"
    with pytest.raises(RunError, match="some occur more than once, such as 'b', twice in .*a.jsonl: .*another folder"):
        lc.run(recipe, out)
    assert not (out / "work/ids/00000.json").exists()
    assert (out / "work/segment-0").exists()
    monkeypatch.setattr(ids, "SOON", 10)
    with pytest.raises(RunError, match="some occur more than once, such as 'b', twice in .*a.jsonl: remove"):
        lc.run(recipe, other)
    assert not (other / "work/segment-0").exists()


@pytest.mark.slow
def test_the_sentence_leads_on_in_the_same_folder(three, tmp_path):
    """Files have other numbers then, for which the ids that were listed before do not hold."""
    with pytest.raises(RunError, match=r"'x', in .*a.jsonl and in .*b.jsonl"):
        lc.run(three, tmp_path / "out")
    others = [str(tmp_path / f"in/{name}.jsonl") for name in "bc"]
    with pytest.raises(RunError, match=r"'y', in .*b.jsonl and in .*c.jsonl"):
        lc.run(three, tmp_path / "out", 1, [f"source.data_files={json.dumps(others)}"])
    lc.run(three, tmp_path / "out", 1, [f"source.data_files={json.dumps(others)}", *KEEP_FIRST])
    assert set(kept(tmp_path / "out")) == {"d", "y", "x", "e"}


@pytest.mark.parametrize("num_proc", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 3))])
def test_the_first_document_of_an_id_is_kept_and_the_others_are_accounted_for(three, tmp_path, num_proc):
    out = tmp_path / "out"
    summary = lc.run(three, out, num_proc, KEEP_FIRST)
    assert kept(out) == {row["id"]: row["text"] for row in documents("a", "x", "c", "d", "y", "e")}
    first, *others = summary.funnel
    assert (first.stage, first.documents_in, first.documents_out, first.rules) == (
        "duplicate_ids", 9, 6, {"duplicate_id": 3}
    )  # fmt: skip
    assert [row.removed for row in others] == [0, 0]
    ledger = pa.concat_tables([pq.read_table(file) for file in sorted((out / "ledger").glob("*.parquet"))])
    assert ledger["id"].to_pylist() == ["x", "x", "y"]
    assert set(ledger["stage"].to_pylist()) == {"duplicate_ids"}
    assert str(lc.why(out, "x")) == "x: kept\n  2 further documents of this id left out at duplicate_ids"
    assert str(lc.why(out, "y")) == "y: kept\n  1 further document of this id left out at duplicate_ids"
    assert str(lc.why(out, "a")) == "a: kept"
    assert "| duplicate_ids | 6 | 3 | 66.7" in (out / "README.md").read_text()
    assert yaml.safe_load((out / "recipe.yaml").read_text())["source"]["on_duplicate_ids"] == "keep_first"
    again = tmp_path / "again"
    lc.run(out / "recipe.yaml", again, 4 - num_proc)
    assert (again / "manifest.json").read_bytes() == (out / "manifest.json").read_bytes()
    assert lc.verify(out).problems == ()


@pytest.mark.slow
def test_what_becomes_of_the_first_document_does_not_bring_another_one_back(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", documents("x", text="short") + documents("a"))
    write_jsonl(tmp_path / "in/b.jsonl", documents("x", "b"))
    recipe = write_recipe(tmp_path, {"min_chars": {"n": 10}}, "exact_documents", on_duplicate_ids="keep_first")
    lc.run(recipe, tmp_path / "out")
    assert set(kept(tmp_path / "out")) == {"a", "b"}
    said = "x: removed at min_chars, rule min_chars: 5 against 10\n"
    assert str(lc.why(tmp_path / "out", "x")) == f"{said}  1 further document of this id left out at duplicate_ids"
    shown = {each.reason.stage: each for each in removed_documents(tmp_path / "out")}
    assert shown["min_chars"].opening == "short"
    assert shown["duplicate_ids"].note == "An earlier document has the same id."
    lc.write_report(tmp_path / "out", tmp_path / "report.html")
    assert "duplicate_ids" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_ids_of_redpajama_v2_are_its_own_so_the_same_file_twice_is_no_error(tmp_path, make_release):
    texts = ["The text of one.", "The text of two."]
    make_release(tmp_path / "release", {"2023-06/0000/en_head": texts, "2023-06/0001/en_head": texts})
    recipe = write_recipe(tmp_path, builder="redpajama-v2", data_dir=str(tmp_path / "release"))
    lc.run(recipe, tmp_path / "out")
    assert lc.funnel(tmp_path / "out").kept == 2
    summary = lc.run(recipe, tmp_path / "first", 1, KEEP_FIRST)
    assert [row.removed for row in summary.funnel] == [0, 0, 2]
    assert kept(tmp_path / "first") == kept(tmp_path / "out")


@pytest.mark.slow
def test_records_that_are_no_documents_may_share_ids(tmp_path):
    write_warc(tmp_path / "in/a.warc", documents("a")).write_bytes(
        (tmp_path / "in/a.warc").read_bytes() + write_warc(tmp_path / "gone", documents("x"), 404).read_bytes()
    )
    write_warc(tmp_path / "in/b.warc", documents("x"))
    recipe = write_recipe(tmp_path, builder="warc")
    lc.run(recipe, tmp_path / "out")
    lc.run(recipe, tmp_path / "first", 1, KEEP_FIRST)
    assert set(kept(tmp_path / "out")) == set(kept(tmp_path / "first")) == {"<urn:a>", "<urn:x>"}


@pytest.mark.slow
@pytest.mark.parametrize("bits", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (0, 2))])
def test_other_ids_of_the_same_hash_are_no_duplicates(three, tmp_path, monkeypatch, bits):
    lc.run(three, tmp_path / "whole", 1, KEEP_FIRST)
    hashed = ids.keyed_hash
    monkeypatch.setattr(ids, "keyed_hash", lambda *words: hashed(*words) % (1 << bits))
    lc.run(three, tmp_path / "out", 1, KEEP_FIRST)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    only = f"source.data_files={tmp_path}/in/c.jsonl"
    lc.run(three, tmp_path / "alone", 1, [only])
    assert set(kept(tmp_path / "alone")) == {"y", "e"}


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), max_size=4), st.integers(0, 4))
@example([["a", "b", "a"], [], ["b"]], 0)
@example([["a"], ["b"]], 0)
def test_what_is_found_is_what_a_dictionary_finds(parts, bits):
    places = defaultdict(list)
    for number, names in enumerate(parts):
        for row, name in enumerate(names):
            places[name].append((number, row))
    expected = [(*place, name) for name in sorted(places) for place in places[name] if len(places[name]) > 1]
    hashed = ids.keyed_hash
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "keyed_hash", lambda *words: hashed(*words) % (1 << bits))
        paths = [write_jsonl(Path(folder, f"{number}.jsonl"), documents(*names)) for number, names in enumerate(parts)]
        source = Text(data_files=tuple(map(str, paths)) or ("none",), id_field="id", on_bad_files="skip")
        found = source.splits()["train"] if paths else []
        for policy, held in (("keep_first", 1 << 26), ("error", 1 << 26), ("keep_first", 0), ("error", 0)):
            patch.setattr(ids, "HELD", held)
            patch.setattr(ids, "PIECE", 2)
            work = Path(folder, f"{policy}-{held}")
            tasks = [ids.IdTask(work, number, part, source, policy) for number, part in enumerate(found)]
            for task in tasks:
                ids.list_ids(task)
            rows = ids.find_duplicates(tasks, Local())
            listed = list(zip(*(rows[name].to_pylist() for name in ("part", "row", "id")), strict=True))
            if policy == "keep_first":
                assert listed == expected
                ids.keep_first(work, rows)
                for number, names in enumerate(parts):
                    later = [row for row, name in enumerate(names) if places[name][0] != (number, row)]
                    assert ids.removed_rows(ids._file(work, number, "parquet"), ids.kept_marker(work)).tolist() == later
            else:
                assert set(listed) <= set(expected)
                assert bool(listed) == bool(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["find_duplicates", *(pytest.param(each, marks=pytest.mark.slow) for each in ("keep_first", "list_ids"))]
)
def test_a_run_that_was_stopped_while_it_looked_for_ids_ends_the_same(three, tmp_path, monkeypatch, place):
    lc.run(three, tmp_path / "whole", 1, KEEP_FIRST)
    asked, function = [], getattr(ids, place)

    def stop(task: object, *others: object) -> object:
        asked.append(task)
        if place != "list_ids" or len(asked) == 2:
            raise KeyboardInterrupt
        return function(task, *others)

    with monkeypatch.context() as patch:
        patch.setattr(ids, place, stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(three, tmp_path / "out", 1, KEEP_FIRST)
    lc.run(three, tmp_path / "out", 2, KEEP_FIRST)
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


@pytest.mark.slow
def test_killed_just_before_a_file_gets_its_name_a_run_that_keeps_the_first_ends_the_same(
    three, tmp_path, killed_before_renames
):
    recipe = yaml.safe_load(three.read_text())
    recipe["source"]["on_duplicate_ids"] = "keep_first"
    three.write_text(yaml.safe_dump(recipe))
    *killed, (was_killed, _, _, whole) = killed_before_renames(three, tmp_path / "out", 9).values()
    assert not was_killed
    assert len(killed) > 3
    assert [told for told in killed if told != [True, True, 0, whole]] == []


def stop_in_the_middle(recipe: Path, out: Path, *overrides: str) -> None:
    """Stop a run when two of three parts of its first segment are done."""
    done, run_part = [], JOB.run_part

    def work(task: object) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(task)
        return run_part(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JOB, "run_part", work)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, out, 1, overrides)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kept.json", "00001.parquet"])
@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_a_list_of_ids_that_is_damaged_is_made_again(three, tmp_path, kind, harm):
    lc.run(three, tmp_path / "whole", 1, KEEP_FIRST)
    stop_in_the_middle(three, tmp_path / "out", *KEEP_FIRST)
    file = tmp_path / "out/work/ids" / kind
    shutil.rmtree(tmp_path / "out/work/segment-0")
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:]) if harm == "flipped" else file.unlink()
    if kind == "kept.json":
        lc.run(three, tmp_path / "out", 1, KEEP_FIRST)
    else:
        with pytest.warns(UserWarning, match=r"00001.parquet|kept.json"):
            lc.run(three, tmp_path / "out", 1, KEEP_FIRST)
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


@pytest.mark.slow
def test_a_file_that_has_changed_since_its_ids_were_listed_is_named(three, tmp_path):
    stop_in_the_middle(three, tmp_path / "out", *KEEP_FIRST)
    file = tmp_path / "in/c.jsonl"
    write_jsonl(file, documents("a", "e"))
    with pytest.raises(RunError, match=rf"{file} has changed since .*out listed its ids. Restore it and run the same"):
        lc.run(three, tmp_path / "out", 1, KEEP_FIRST)
    write_jsonl(file, documents("y", "e"))
    lc.run(three, tmp_path / "out", 1, KEEP_FIRST)
    assert set(kept(tmp_path / "out")) == set("axcdye")


@pytest.mark.slow
@pytest.mark.parametrize("source", [Text, Warc])
def test_a_source_that_cannot_list_ids_is_compared_when_it_has_been_read(tmp_path, monkeypatch, source):
    """Such as remote files, which would be fetched twice."""
    kind = "warc" if source is Warc else "jsonl"
    WRITERS[kind](tmp_path / f"in/a.{kind}", documents("a", "x"))
    WRITERS[kind](tmp_path / f"in/b.{kind}", documents("x", "b"))
    recipe = write_recipe(tmp_path, **({"builder": "warc"} if source is Warc else {}))
    lc.run(recipe, tmp_path / "listed", 1, KEEP_FIRST)
    monkeypatch.setattr(source, "list_ids", lambda *_: None)
    said = (
        "needs unique ids, but some occur more than once, such as '(<urn:)?x>?', in .*a.* and in .*b.*: remove one .*"
    )
    with pytest.raises(RunError, match=f"{said}keep_first, and choose another folder$"):
        lc.run(recipe, tmp_path / "out")
    assert (tmp_path / "out/work/segment-0").exists()
    lc.run(recipe, tmp_path / "first", 1, KEEP_FIRST)
    assert files_of(tmp_path / "first") == files_of(tmp_path / "listed")


def test_ids_are_listed_by_workers_alone(tmp_path, monkeypatch):
    """Whether a source can list ids is asked of each part before its task is sent."""
    file = write_warc(tmp_path / "in/a.warc", documents("a"))
    source = Warc(data_files=str(file))
    part = source.splits()["train"][0]
    file.unlink()
    assert not ids.IdTask(tmp_path, 0, part, source, "error").waits
    monkeypatch.setattr(Warc, "_record_ids", lambda *_: 1 / 0)
    assert not ids.IdTask(tmp_path, 0, part, source, "error").waits


def test_remote_files_are_not_fetched_for_their_ids(web_server, tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", documents("a"))
    write_warc(tmp_path / "in/a.warc", documents("a"))
    server = web_server(tmp_path / "in")
    for source in (Text(data_files=f"{server}/a.jsonl", id_field="id"), Warc(data_files=f"{server}/a.warc")):
        assert source.list_ids(source.splits()["train"][0]) is None


@pytest.mark.variants
@pytest.mark.parametrize("stages", [(), (MIN,), (MIN, {"shuffle": {"seed": 0}})], ids=["none", "filter", "shuffle"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_run_without_stages_that_compare_documents_needs_unique_ids_too(tmp_path, kind, stages):
    WRITERS[kind](tmp_path / f"in/a.{kind}", documents("a", "b"))
    WRITERS[kind](tmp_path / f"in/b.{kind}", documents("c", "b"))
    recipe = write_recipe(tmp_path, **({"builder": "warc"} if kind == "warc" else {}))
    spec = yaml.safe_load(recipe.read_text()) | {"stages": [*stages]}
    recipe.write_text(yaml.safe_dump(spec))
    with pytest.raises(RunError, match=f"unique ids.* such as '(<urn:)?b>?', in .*a.{kind} and in .*b.{kind}: remove"):
        lc.run(recipe, tmp_path / "out")
    lc.run(recipe, tmp_path / "first", 1, KEEP_FIRST)
    assert {name.removeprefix("<urn:").removesuffix(">") for name in kept(tmp_path / "first")} == {*"abc"}


@pytest.mark.variants
@pytest.mark.parametrize("listed", [True, False])
def test_ids_are_compared_before_a_filter_removes_one_of_the_documents(tmp_path, monkeypatch, listed):
    write_jsonl(tmp_path / "in/a.jsonl", documents("x", text="short") + documents("a"))
    write_jsonl(tmp_path / "in/b.jsonl", documents("x", "b"))
    if not listed:
        monkeypatch.setattr(Text, "list_ids", lambda *_: None)
    with pytest.raises(
        RunError, match="unique ids, but some occur more than once, such as 'x', in .*a.jsonl and in .*b"
    ):
        lc.run(write_recipe(tmp_path, {"min_chars": {"n": 10}}), tmp_path / "out")


@pytest.mark.slow
def test_hashes_of_ids_that_are_damaged_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Text, "list_ids", lambda *_: None)
    for name in "ab":
        write_jsonl(tmp_path / f"in/{name}.jsonl", documents(name, f"{name}2"))
    recipe = write_recipe(tmp_path, MIN)
    lc.run(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(ids, "find_duplicates", lambda tasks, _: 1 / 0 if tasks else ids.ROWS.empty_table())
        with pytest.raises(ZeroDivisionError):
            lc.run(recipe, tmp_path / "out")
    (tmp_path / "out/work/ids/00001.hashes").write_bytes(b"12345678")
    with pytest.warns(UserWarning, match=r"00001.hashes"):
        lc.run(recipe, tmp_path / "out", 2)
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()


def test_damaged_records_are_reported_once_and_shift_no_rows(tmp_path):
    lines = [json.dumps(row) for row in documents("a", "x", "b")]
    lines[1:1] = ["{", json.dumps({"id": "a"})]  # the second has an id, and no text
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("\n".join(lines))
    write_jsonl(tmp_path / "in/b.jsonl", documents("c", "x", "b"))
    recipe = write_recipe(tmp_path, on_bad_files="skip")
    summary = lc.run(recipe, tmp_path / "out", 1, KEEP_FIRST)
    assert set(kept(tmp_path / "out")) == set("axbc")
    assert summary.bad_files == 1
    assert next(iter(summary.funnel)).removed == 2


@pytest.mark.slow
def test_hits_of_a_url_filter_count_no_document_that_was_left_out(tmp_path):
    rows = [{"id": name, "text": "Some text.", "url": f"http://{name}.example/porn"} for name in "ab"]
    write_jsonl(tmp_path / "in/a.jsonl", [*rows, *documents("c")])
    write_jsonl(tmp_path / "in/b.jsonl", rows)
    lc.run(write_recipe(tmp_path, "url_filter"), tmp_path / "out", 1, KEEP_FIRST)
    hits = run_url_hits(tmp_path / "out")
    assert (hits.documents, hits.dropped) == (3, 2)


@pytest.mark.slow
def test_a_plan_of_a_recipe_that_keeps_the_first_counts_it_alone(three):
    recipe = lc.load_recipe(three, KEEP_FIRST)
    planned = lc.plan(recipe)
    assert [row.stage for row in planned.rows] == ["text", "min_chars", "exact_documents", "parquet"]
    assert [round(row.documents.value) for row in planned.rows] == [9, 6, 6, 6]
    lc.run(recipe, three.parent / "out", plan=planned)
    became = {
        each["figure"]: each["became"] for each in json.loads((three.parent / "out/manifest.json").read_bytes())["plan"]
    }
    assert became["exact_documents: documents"] == 6


def test_the_policy_is_a_field_of_the_source_that_changes_a_recipe_only_where_it_is_set(three):
    recipe, spec = lc.load_recipe(three), yaml.safe_load(three.read_text())
    assert "on_duplicate_ids" not in recipe.as_yaml()
    spec["source"]["on_duplicate_ids"] = "error"
    assert parse_recipe(spec).digest == recipe.digest
    first = lc.load_recipe(three, KEEP_FIRST)
    assert first.digest != recipe.digest
    assert first.source == recipe.source
    assert parse_recipe(yaml.safe_load(first.as_yaml())) == first
    for wrong in ("keep", None, ["error"]):
        spec["source"]["on_duplicate_ids"] = wrong
        with pytest.raises(RecipeError, match=r"source.on_duplicate_ids takes one of 'error', 'keep_first', got"):
            parse_recipe(spec)


@pytest.mark.slow
def test_every_shipped_recipe_takes_the_policy():
    for name in lc.recipes():
        plain, first = lc.load_recipe(name), lc.load_recipe(name, KEEP_FIRST)
        assert plain.on_duplicate_ids == "error"
        assert "on_duplicate_ids" not in plain.as_yaml()
        assert first.as_dict()["source"]["on_duplicate_ids"] == "keep_first"
        assert plain.digest != first.digest
