"""Edits of kept documents: every cut has a row with its place, rule and reason."""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset, load_dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.counts import EDITS, EditCounts, RuleEdits, add_edits
from longcrawl.core.funnel import Funnel, FunnelRow
from longcrawl.core.ledger import TextEdit, count_edits, edit_writer, open_ledger
from longcrawl.core.places import (
    EDIT_SCHEMA,
    PLACE_SCHEMA,
    edit_rows,
    make_places,
    replay,
)
from longcrawl.core.stages import STAGES, Check, Edit, Rewrite, stage
from longcrawl.errors import CorruptionError, LedgerError, RunError
from longcrawl.run.part import run_part

COPY = "See also: the list of all articles that somebody has written about it."
TEXTS = {
    "a": f"Of Paris and of London, a tale that goes on. {COPY}",
    "b": f"It was the best of times, it was the wörst. {COPY.upper()}\n3 likes\nIt was. Read more...\n",
    "c": "Nothing here was ever said before, and nobody says it again.",
    "d": f"Brief. {COPY}",
}


def crawl_of(texts: dict[str, str]) -> lc.Crawl:
    columns = {"id": list(texts), "text": list(texts.values()), "language": ["en"] * len(texts)}
    return lc.Crawl(Dataset.from_dict(columns))


def edited(texts: dict[str, str]) -> lc.Crawl:
    lines = lc.text.LineCorrections(max_removed_words=None)
    return crawl_of(texts) | lines | lc.dedup.ExactSubstring(30, unit="character")


@pytest.fixture(scope="module")
def crawl() -> lc.Crawl:
    return edited(TEXTS)


# -------------------- one document


def test_why_shows_what_was_cut_and_where_it_also_stands(crawl):
    assert str(crawl.why("a")).splitlines() == [
        "a: kept",
        "  exact_substring changed 1 place, 69 characters cut: cut 45-114, also in b at 44-113",
    ]
    assert str(crawl.why("b")).splitlines() == [
        "b: kept",
        "  line_corrections changed 2 places, 21 characters cut: counter 115-123; suffix 130-143",
        "  exact_substring changed 1 place, 69 characters cut: cut 44-113, also in a at 45-114",
    ]
    assert str(crawl.why("c")) == "c: kept"


def test_why_shows_what_was_cut_of_a_document_that_left(crawl):
    assert str(crawl.why("d")).splitlines() == [
        "d: removed at exact_substring, rule characters_left: 8 against 20",
        "  exact_substring changed 1 place, 69 characters cut: cut 7-76, also in a at 45-114",
    ]


def test_every_cut_names_a_place_that_holds_the_same(crawl):
    cuts = crawl.edits.filter(pc.equal(crawl.edits["stage"], "exact_substring"))
    assert cuts.num_rows == 3
    for row in cuts.to_pylist():
        other = crawl.why(row["also_id"]).edits[-1]
        assert (other.start, other.end) != (row["start"], row["end"]) or row["also_id"] != row["id"]
        text = TEXTS[row["id"]][row["start"] : row["end"]]
        assert text.lower() == TEXTS[row["also_id"]][other.start : other.end].lower() == COPY[:-1].lower()


def test_a_text_that_repeats_itself_names_itself():
    crawl = crawl_of({"a": "ab" * 40 + " and the end of it, which is said but once."})
    crawl |= lc.dedup.ExactSubstring(20, unit="character", text="raw")
    (edit,) = crawl.why("a").edits
    assert edit == TextEdit("exact_substring", "cut", "characters", 0, 80, 0, "a", (0, 80))


def test_at_most_ten_places_of_a_stage_are_printed():
    text = "".join(f"A line with words, number {number} of them.\n{number} likes\n" for number in range(12))
    crawl = crawl_of({"a": text}) | lc.text.LineCorrections(max_removed_words=None)
    reason = crawl.why("a")
    assert len(reason.edits) == 12
    said = str(reason)
    assert "line_corrections changed 12 places" in said
    assert said.count("counter ") == 10
    assert said.endswith("; and 2 more")


def test_masks_change_no_text_and_are_named(crawl):
    masked = crawl_of(TEXTS) | lc.dedup.ExactSubstring(30, policy="mask", unit="character")
    assert masked.data["text"][:] == [text for name, text in TEXTS.items() if name != "d"]
    assert "0 characters cut: mask 45-114, also in b at 44-113" in str(masked.why("a"))
    assert str(masked.funnel.rows[-1].edits) == "3 edited, 207 characters masked"


def test_truncated_tokens_are_listed():
    crawl = crawl_of(TEXTS) | lc.tokens.Tokenize("trained", vocabulary_size=300)
    tokens = dict(zip(crawl.data["id"], crawl.data["n_tokens"], strict=True))
    cut = crawl | lc.tokens.Truncate(10)
    assert cut.why("a").edits == (TextEdit("truncate", "cut", "tokens", 10, tokens["a"]),)
    row = cut.funnel.rows[-1]
    assert str(row.edits) == f"4 edited, {sum(tokens.values()) - 40:,} tokens cut"


# -------------------- the funnel


def test_the_funnel_counts_edited_documents_and_characters(crawl):
    lines, copies = crawl.funnel.rows
    assert lines.edits == EditCounts(1, "characters", {"counter": RuleEdits(1, 8, 8), "suffix": RuleEdits(1, 13, 13)})
    assert copies.edits == EditCounts(3, "characters", {"cut": RuleEdits(3, 207, 207)})
    shown = ["1 edited, 21 characters cut", "characters_left 1; 3 edited, 207 characters cut"]
    for text in (repr(crawl.funnel), crawl.funnel._repr_html_()):
        assert all(each in text for each in shown)
    assert "`characters_left` 1; 3 edited, 207 characters cut |" in crawl.funnel.markdown()


def test_a_funnel_without_edits_looks_as_before():
    row = FunnelRow("min_chars", 2, 1, {"min_chars": 1})
    assert "edited" not in repr(Funnel("text", 2, (row,)))
    assert Funnel("text", 2, (row,)).as_dict()["stages"][0]["edits"] is None


def test_a_funnel_survives_json(crawl):
    assert Funnel.from_dict(json.loads(json.dumps(crawl.funnel.as_dict()))) == crawl.funnel


def test_counts_of_batches_add_up(crawl):
    places = crawl.edits.filter(pc.equal(crawl.edits["stage"], "exact_substring"))
    table = pa.table(
        [pa.array([0, 1, 2], pa.int64()), *(places[name] for name in PLACE_SCHEMA.names[1:])], schema=PLACE_SCHEMA
    )
    whole = count_edits(table)
    assert add_edits([count_edits(table[:1]), None, count_edits(table[1:])]) == whole
    assert add_edits([None]) is None
    assert count_edits(table[:0]) is None


# -------------------- stages that do not know what they change


@stage
class LowerEverything(Rewrite):
    """Writes a text in lower case: a rewrite that says nothing of what it changes."""

    def rewrite(self, table):
        texts = pc.utf8_lower(table["text"])
        return table.set_column(table.column_names.index("text"), "text", texts)


@stage
class CutTheFirstWord(Edit):
    """Cuts a text up to its first space."""

    def edit(self, table):
        texts = pa.array([text.partition(" ")[2] for text in table["text"].to_pylist()])
        lengths = pc.utf8_length(texts)
        check = Check("left", lengths, pc.greater(lengths, 0), 1, "at_least")
        return table.set_column(table.column_names.index("text"), "text", texts), [check]


for made in (LowerEverything, CutTheFirstWord):
    del STAGES[made.name]  # which other modules' tests go through


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (LowerEverything(), {"a": (5, 16, 11), "b": (2, 6, 4)}),
        (CutTheFirstWord(), {"a": (0, 5, 0), "b": (0, 2, 0), "c": (0, 4, 0)}),
    ],
)
def test_stages_of_others_leave_a_trace_too(made, expected):
    crawl = crawl_of({"a": "keep ÄÖ, and CUT me", "b": "x ÜBERall it is", "c": "all low"}) | made
    rows = crawl.edits.to_pylist()
    assert {row["id"]: (row["start"], row["end"], row["replaced_by"]) for row in rows} == expected
    assert {row["rule"] for row in rows} == {"changed"}


texts = st.text(st.sampled_from("aé漢😀 \n"), max_size=12)


# -------------------- edits give the text again

LINES = ["A line of text that stays here.", "3 likes", "END OF PAGE", "  12", "", "Gehört dazu. Read more...", "é漢😀."]


C4_LINES = ["It is a line that has words.", "too short", "A note[1] with two marks[edit].", "[12] At the start.", ""]


def runs_of(text, changes):
    """Group the changed lines: those discarded by one rule, with only blank lines between them, are one place."""
    changed, runs, before = {change.line: change for change in changes}, [], None
    for number, line in enumerate(text.split("\n"), 1):
        change = changed.get(number)
        if change and change.after is None and change.rule == before:
            runs[-1].append(change)
        elif change:
            runs.append([change])
        if line:
            before = change.rule if change and change.after is None else None
    return runs


@pytest.mark.parametrize("definitions", ["paper", "datatrove"])
@given(documents=st.lists(st.lists(st.sampled_from(C4_LINES), max_size=6).map("\n".join), min_size=1, max_size=4))
def test_the_lines_that_c4_cuts_are_listed(definitions, documents):
    table = pa.table({"id": [str(number) for number in range(len(documents))], "text": documents})
    c4 = lc.text.C4Quality(definitions, min_sentences=None)
    made = c4.trace(table)
    found = [[] for _ in documents]
    for row in made.places.to_pylist():
        found[row["document"]].append(row)
    for text, kept, rows in zip(documents, made.documents["text"].to_pylist(), found, strict=True):
        runs = runs_of(text, c4.changes(text))
        assert [row["rule"] for row in rows] == [run[0].rule for run in runs]
        for row, run in zip(rows, runs, strict=True):
            taken = text[row["start"] : row["end"]]
            if run[0].after is None:
                assert taken == taken.strip()
                assert [line for line in taken.split("\n") if line] == [change.before for change in run]
            else:
                assert taken in run[0].before
        removed = sum(row["end"] - row["start"] - row["replaced_by"] for row in rows)
        assert len("".join(text.split())) - len("".join(kept.split())) <= removed <= len(text) - len(kept)


def test_replayed_edits_give_the_kept_text(crawl):
    for name, kept in zip(crawl.data["id"], crawl.data["text"], strict=True):
        assert replay(TEXTS[name], crawl.edits.filter(pc.equal(crawl.edits["id"], name))) == kept


PIECES = [*LINES, *C4_LINES, "a@b.org and c@d.org", "Twice the same words in this one line.", "\r\n", "  ", "\t\n"]
EDITING = {
    "line_corrections": lc.text.LineCorrections(language="en", max_removed_words=None),
    "c4": lc.text.C4Quality(min_sentences=None),
    "c4_datatrove": lc.text.C4Quality("datatrove", min_sentences=None),
    "masked_mail": lc.text.PersonalData(kinds=["email"]),
    "removed_mail": lc.text.PersonalData(kinds=["email"], replacements=[""]),
    "tagged_mail": lc.text.PersonalData("tag", kinds=["email"]),
    "cut_passages": lc.dedup.ExactSubstring(12, unit="character", min_characters=0),
    "masked_passages": lc.dedup.ExactSubstring(12, unit="character", policy="mask", min_characters=0),
    "cut_items": lc.dedup.Decontaminate(
        against=[Dataset.from_dict({"item": [LINES[0]]})],
        ngram=3,
        policy="cut",
        window=2,
        min_piece=3,
        min_characters=0,
    ),
}
REPLAYED = ("line_corrections", "removed_mail", "tagged_mail", "cut_passages", "masked_passages", "cut_items")


@pytest.mark.variants
@pytest.mark.parametrize("name", EDITING)
@given(documents=st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("\n".join), min_size=2, max_size=3))
def test_a_ledger_gives_the_edited_text_or_an_error(name, documents):
    ids = [f"d{number}" for number in range(len(documents))]
    crawl = lc.Crawl(pa.table({"id": ids, "text": documents})) | EDITING[name]
    for document, text, edited in zip(ids, documents, crawl.data["text"][:], strict=True):
        rows = crawl.edits.filter(pc.equal(crawl.edits["id"], document))
        if not rows.num_rows and name.startswith("c4"):
            assert edited.split() == text.split()
            continue
        try:
            assert replay(text, rows) == edited
        except LedgerError:
            assert name not in REPLAYED or name == "line_corrections"


def test_rows_of_several_documents_are_refused(crawl):
    with pytest.raises(LedgerError, match="the rows belong to 3 documents: keep only those"):
        replay(TEXTS["a"], crawl.edits)


def test_edits_of_another_text_are_refused(crawl):
    with pytest.raises(LedgerError, match="changed characters 45-114, which this text does not have"):
        replay("short", crawl.edits.filter(pc.equal(crawl.edits["id"], "a")))


# -------------------- runs


def write_run(folder: Path, parts: int = 3) -> Path:
    """Write documents that share lines and stretches across files, and a recipe that cuts both."""
    chance = random.Random(4)
    source = folder / "documents"
    source.mkdir(parents=True)
    shared = " ".join(f"{chance.choice('bcdfg')}{chance.choice('aeiou')}{number}" for number in range(30))
    for part in range(parts):
        rows = []
        for number in range(6):
            own = " ".join("".join(chance.choices("abcdefghij", k=5)) for _ in range(30))
            edge = part * 3 + number // 2  # no two copies have the same letter before them, or digit behind them
            middle = f"{'klmnopqrs'[edge]} {shared} {edge}" if number % 2 else "\n7 likes\n"
            rows.append({"id": f"{part}-{number}", "text": f"{own}{middle}{own[::-1]}"})
        (source / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stages = [
        {"line_corrections": {"language": "en", "max_removed_words": None}},
        {"exact_substring": {"min_tokens": 40, "unit": "character"}},
    ]
    spec = {
        "longcrawl": 1,
        "name": "cuts",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(source)},
        "stages": stages,
        "outputs": {"parquet": {}},
    }
    recipe = folder / "cuts.yaml"
    recipe.write_text(yaml.safe_dump(spec, sort_keys=False))
    return recipe


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("cuts")
    recipe = write_run(folder)
    lc.run(recipe, folder / "run")
    return recipe, folder / "run"


def test_a_run_keeps_its_edits_and_lists_them(finished):
    run = finished[1]
    names = sorted(f"edits/{file.name}" for file in (run / "edits").iterdir())
    assert names == [f"edits/{segment:02d}-{part:05d}.parquet" for segment in (0, 1) for part in range(3)]
    manifest = json.loads((run / "manifest.json").read_text())
    assert set(names) <= set(manifest["files"])
    assert not lc.verify(run).problems
    rows = load_dataset("parquet", data_files=str(run / "edits" / "*.parquet"), split="train")
    assert rows.column_names == EDIT_SCHEMA.names
    assert [row.edits.documents for row in lc.funnel(run)] == [9, 9]
    (run / names[0]).write_bytes((run / names[0]).read_bytes()[:-1] + b"x")
    assert lc.verify(run).problems
    with pytest.raises(CorruptionError, match=f"{names[0]} has been changed: its SHA-256 differs; longcrawl verify"):
        lc.why(run, "0-1")
    shutil.rmtree(run)
    lc.run(finished[0], run)


def test_why_of_a_run_says_what_that_of_a_crawl_says(finished):
    recipe, run = finished
    documents = [json.loads(line) for file in sorted(recipe.parent.glob("documents/*")) for line in file.open()]
    crawl = lc.Crawl(Dataset.from_list(documents))
    for _, each in lc.load_recipe(recipe).stages:
        crawl |= each
    for document in documents:
        said = str(lc.why(run, document["id"]))
        assert said == str(crawl.why(document["id"]))
        assert ("exact_substring changed 1 place" in said) == (int(document["id"][-1]) % 2 == 1)
        assert ("line_corrections changed 1 place" in said) == (int(document["id"][-1]) % 2 == 0)
    assert [row.edits for row in lc.funnel(run)] == [row.edits for row in crawl.funnel]
    with open_ledger(run / EDITS, EDIT_SCHEMA) as edits:
        rows = edits.to_table()
    kept = pads.dataset([str(file) for file in (run / "parquet").rglob("*.parquet")]).to_table(columns=["id", "text"])
    source = {document["id"]: document["text"] for document in documents}
    for row in kept.to_pylist():
        assert replay(source[row["id"]], rows.filter(pc.equal(rows["id"], row["id"]))) == row["text"]


class StoppedError(Exception):
    """A run that is stopped at a part."""


@pytest.mark.slow
def test_a_run_that_was_stopped_and_one_with_workers_have_the_same_edits(finished, tmp_path, monkeypatch):
    recipe, run = finished
    calls = []

    def stop(task):
        calls.append(task.number)
        if len(calls) > 4:
            raise StoppedError
        return run_part(task)

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["longcrawl.run.job"], "run_part", stop)
        with pytest.raises(StoppedError):
            lc.run(recipe, tmp_path / "stopped")
    lc.run(recipe, tmp_path / "stopped", num_proc=2)
    assert files_of(tmp_path / "stopped") == files_of(run)


def test_without_edits_there_is_no_file(tmp_path):
    with edit_writer(tmp_path / "edits" / "00-00000.parquet"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_finished_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("longcrawl.core.ledger.ROWS", 1)
    table = pa.table({"id": ["a"]})
    rows = edit_rows(table, make_places(np.zeros(1, np.int64), "cut", np.array([[0, 3]])), "cut_it")

    def write_and_fail():
        with edit_writer(tmp_path / "00-00000.parquet") as add:
            add(rows)
            raise StoppedError

    with pytest.raises(StoppedError):
        write_and_fail()
    assert not list(tmp_path.iterdir())
    with edit_writer(tmp_path / "00-00000.parquet") as add:
        add(rows)
    assert pq.read_table(tmp_path / "00-00000.parquet").equals(rows)


# -------------------- the card and the report


def test_the_card_and_the_report_say_what_was_cut(finished):
    run = finished[1]
    card = (run / "README.md").read_text("utf-8")
    cut = lc.funnel(run).rows[1].edits.removed
    assert f"| exact_substring | `cut` | characters | 9 | {cut:,} | {cut:,} |" in card
    assert "| line_corrections | `counter` | characters | 9 | 72 | 72 |" in card
    assert "lines by `line_corrections` (72 characters of 9 documents)" in card
    assert "not counted." not in card
    first = lc.why(run, "0-1").edits[0]
    assert f"| `0-1` | {first.start:,}-{first.end:,} | 8 |" in card
    assert "config_name: edits" in card
    page = lc.write_report(run).read_text("utf-8")
    section = page.partition('<section id="edits">')[2].partition("</section>")[0]
    assert "9 of 18 changed, in characters" in section
    assert f"{cut:,}" in section
    (run / "report.html").unlink()


def test_a_lost_edit_ledger_is_noticed(finished, tmp_path):
    copy = shutil.copytree(finished[1], tmp_path / "run")
    (copy / "edits" / "00-00001.parquet").unlink()
    assert any("edits/00-00001.parquet" in problem for problem in lc.verify(copy).problems)
    with pytest.raises(RunError, match=r"is missing edits/00-00001.parquet"):
        lc.card(copy)
    with pytest.raises(LedgerError, match=r"is missing edits/00-00001.parquet, which may have the document"):
        lc.why(copy, "1-0")
