"""Evaluation sets in training data: passages against a dictionary of all n-grams, policies, readers, reports, runs."""

import itertools
import json
import pickle
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from datasets.fingerprint import Hasher
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.places import replay
from longcrawl.dedup import decontaminate
from longcrawl.dedup.decontaminate import PRESETS, Ngrams, read_evaluation_set, widen
from longcrawl.errors import FormatError, LedgerError, StageError, TokenizerError
from longcrawl.run.recipe import parse_recipe

pytestmark = pytest.mark.usefixtures("cache")

QUESTION = "Which of the planets of the sun has the largest moon of all of them?"
SECOND = "A farmer has nine hens, and each lays two eggs a day: how many eggs in a week?"
PAGES = {
    "clean": "The tide was out, and the boats lay in the mud of the harbour until the evening came.",
    "verbatim": f"Quiz night at the inn. {QUESTION} Answers on Monday, as ever.",
    "shouted": "Quiz!\nWHICH of the planets -- of the Sun --\nhas the largest\tmoon of all of them? Nobody knew.",
    "half": "Which of the planets of the sun has the largest share of the light is not what he asked us then.",
    "both": f"{SECOND} {QUESTION}",
}


@pytest.fixture
def exam(tmp_path) -> str:
    path = tmp_path / "exam.jsonl"
    path.write_text("".join(json.dumps({"question": text, "n": 1}) + "\n" for text in (QUESTION, SECOND, "Why?")))
    return str(path)


def crawl_of(pages=PAGES):
    return lc.Crawl(Dataset.from_dict({"id": list(pages), "text": list(pages.values())}))


@given(st.data(), st.integers(0, 6), st.integers(0, 6))
def test_windows_and_short_pieces_go_as_in_characters(data, window, min_piece):
    length = data.draw(st.integers(1, 40))
    edges = sorted(data.draw(st.sets(st.integers(0, length), max_size=8)))
    places = np.array([*zip(edges[::2], edges[1::2], strict=False)], np.int64).reshape(-1, 2)
    rows = np.zeros(len(places), np.int64)
    gone = {at for start, stop in places for at in range(max(0, start - window), min(length, stop + window))}
    kept = "".join(" " if at in gone else "x" for at in range(length)).split()
    wide, pieces = widen(rows, places, np.array([length]), window, min_piece)
    assert all(start <= first <= last <= stop for (start, stop), (first, last) in zip(wide, places, strict=True))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(wide))
    left = length - int((wide[:, 1] - wide[:, 0]).sum())
    assert left == (sum(len(piece) for piece in kept if len(piece) >= min_piece) if len(places) else length)
    assert pieces[0] == (len(kept) if len(places) else 0)


def test_words_meet_across_lines_case_and_marks(exam):
    crawl = crawl_of() | lc.dedup.Decontaminate(against=[exam], ngram=8)
    assert crawl.data["id"][:] == ["clean"]
    assert str(crawl.why("shouted")).splitlines() == [
        "shouted: removed at decontaminate, rule contaminated: 1 against 0",
        "  decontaminate tagged 1 place: tag 6-79, also in exam#0",
    ]
    assert PAGES["shouted"][6:79].endswith("all of them")
    share = crawl_of() | lc.dedup.Decontaminate(against=[exam], ngram=8, min_overlap=0.9)
    assert share.data["id"][:] == ["clean", "half"]
    assert share.why("half").edits == ()


@pytest.mark.slow
def test_tokens_are_compared_as_words_are(exam, real_data):
    tokenizer = str(real_data / "gpt2.tiktoken")
    stage = lc.dedup.Decontaminate.preset("llama2", against=[exam], tokenizer=tokenizer)
    assert stage.unit == "token"
    crawl = crawl_of() | stage
    assert crawl.data["id"][:] == ["clean", "half"]
    for edit in crawl.why("both").edits:
        # The first word of an item is another token where a space is before it.
        whole = QUESTION[:-1] if edit.also_id == "exam#0" else SECOND[:-1]
        assert whole.endswith(PAGES["both"][edit.start : edit.end])


def test_an_item_with_ngrams_of_many_is_found_among_the_first_of_them(tmp_path):
    texts = [f"Choose the right answer to the question below {number}" for number in range(200)]
    data = Dataset.from_dict({"question": texts})
    crawl = crawl_of({"a": texts[3] + " and more", "b": "Choose the right answer."})
    crawl |= lc.dedup.Decontaminate(against=[data], ngram=4, policy="tag")
    assert crawl.data["contamination"][0] == [{"item": "dataset#3", "start": 0, "end": len(texts[3])}]
    assert crawl.data["contamination"][1][0]["item"] == "dataset#0"


# -------------------- policies


def test_cuts_are_replayed_from_the_ledger(exam):
    crawl = crawl_of() | lc.dedup.Decontaminate(against=[exam], ngram=8, policy="cut", min_characters=0)
    texts = dict(zip(crawl.data["id"], crawl.data["text"], strict=True))
    assert texts["verbatim"] == "Quiz night at the inn. ? Answers on Monday, as ever."
    assert texts["both"] == "? ?"
    assert [edit.also_id for edit in crawl.why("both").edits] == ["exam#1", "exam#0"]
    for name, text in texts.items():
        assert replay(PAGES[name], crawl.edits.filter(pa.compute.equal(crawl.edits["id"], name))) == text


def test_the_definition_of_gpt3_cuts_windows_and_drops_documents_in_many_pieces(exam):
    around = "and so on and on it went for hours " * 20
    pages = {"once": f"{around}{QUESTION} {around}", "often": f"{around}{QUESTION} " * 12, "short": QUESTION + "tail"}
    crawl = crawl_of(pages) | lc.dedup.Decontaminate.preset("gpt3", against=[exam], ngram=8)
    (text,) = crawl.data["text"][:]
    assert len(text) == 2 * len(around) + 2 - 400  # the mark and the space behind the question are in the window
    assert crawl.funnel.rows[0].rules == {"characters_left": 1, "max_pieces": 1}
    assert str(crawl.why("often")).startswith("often: removed at decontaminate, rule max_pieces: 12 against 10")


def test_masks_and_tags_leave_texts_alone(exam):
    for policy, column in (("mask", "masked"), ("tag", "contamination")):
        fewest = {"min_characters": 0} if policy == "mask" else {}
        crawl = crawl_of() | lc.dedup.Decontaminate(against=[exam], ngram=8, policy=policy, **fewest)
        assert crawl.data["text"][:] == list(PAGES.values())
        spans = dict(zip(crawl.data["id"], crawl.data[column], strict=True))
        assert spans["clean"] == []
        (span,) = spans["verbatim"]
        assert PAGES["verbatim"][span["start"] : span["end"]] == QUESTION[:-1]
    twice = lc.dedup.Decontaminate(against=[exam], policy="mask")
    masked = crawl_of() | twice
    with pytest.raises(StageError, match="would shift what 'masked' points to"):
        _ = masked | twice


def test_presets_are_what_their_sources_say():
    assert {name: (each["ngram"], each["unit"], each["policy"]) for name, each in PRESETS.items()} == {
        "gpt3": (13, "word", "cut"),
        "llama2": (11, "token", "drop"),
        "tulu3": (8, "word", "drop"),
    }
    assert lc.dedup.Decontaminate.preset("tulu3", policy="tag").min_overlap == 0.5
    with pytest.raises(StageError, match="unknown preset 'gpt4'; known: gpt3, llama2, tulu3"):
        lc.dedup.Decontaminate.preset("gpt4")


def test_texts_are_explained_with_marks(exam):
    explanation = lc.text.explain(PAGES["verbatim"], lc.dedup.Decontaminate(against=[exam], ngram=8))
    assert explanation.verdict == "leaves"
    assert QUESTION[:-1] in str(explanation)


def test_datasets_of_one_name_are_told_apart_by_their_digests():
    sets = [Dataset.from_dict({"question": [text]}) for text in (QUESTION, SECOND)]
    crawl = crawl_of() | lc.dedup.Decontaminate(against=sets, ngram=8)
    first, second = sorted(edit.also_id for edit in crawl.why("both").edits)
    assert re.fullmatch(r"dataset-[0-9a-f]{16}#0", first)
    assert first != second


@pytest.mark.slow
def test_an_evaluation_set_of_the_hub_is_read_by_its_name(hub):
    from huggingface_hub import HfApi

    HfApi().create_repo("me/quiz", repo_type="dataset")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"question": [QUESTION]}), sink)
    content = sink.getvalue().to_pybytes()
    HfApi().upload_file(
        path_or_fileobj=content, path_in_repo="data/test.parquet", repo_id="me/quiz", repo_type="dataset"
    )
    crawl = crawl_of() | lc.dedup.Decontaminate(against=["me/quiz"], ngram=8)
    assert crawl.data["id"][:] == ["clean"]
    assert crawl.why("verbatim").edits[0].also_id == "quiz#0"
    assert read_evaluation_set("me/quiz@main:default:test", ()).items.to_pylist() == [QUESTION]


WRONG = [
    ({}, r"decontaminate\.against is empty: add evaluation sets, such as against: \[exam\.jsonl\]"),
    ({"against": ["nowhere.jsonl"]}, "no evaluation set at nowhere.jsonl: give a dataset"),
    ({"against": ["broken.jsonl"]}, r"broken\.jsonl cannot be read as an evaluation set"),
    ({"against": ["empty.jsonl"]}, r"empty\.jsonl has no rows: remove it"),
    ({"against": ["numbers.csv"]}, r"numbers\.csv has no text column; it has: a"),
    ({"against": ["numbers.csv"], "columns": ["q"]}, r"has none of the columns q; it has: a; set columns"),
    ({"against": ["a/exam.txt", "b/exam.txt"]}, "several evaluation sets are named exam: rename their files"),
    ({"against": [Dataset.from_dict({"n": [1]})]}, "the dataset has no text column; it has: n"),
    ({"against": [Dataset.from_dict({"q": ["a"]}).select([])]}, "the dataset has no rows: remove it"),
    ({"against": [Dataset.from_dict({"q": ["a"]})], "columns": ["p"]}, "set dataset has none of the columns p"),
    ({"against": [7]}, r"decontaminate\.against takes a dataset, .* not a int"),
    ({"ngram": 0}, r"decontaminate\.ngram is 0: set it to 1 or more"),
    ({"min_overlap": 2}, r"decontaminate\.min_overlap must be a share from 0 to 1, got 2"),
    ({"policy": "cut", "window": -1}, r"decontaminate\.window is -1: set it to 0 or more"),
]


@pytest.mark.variants
@pytest.mark.parametrize(("fields", "sentence"), WRONG)
def test_what_is_wrong_is_one_sentence(fields, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("broken.jsonl").write_text('{"question": "a')
    Path("empty.jsonl").touch()
    Path("numbers.csv").write_text("a\n1\n")
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "exam.txt").write_text("one\n")
    with pytest.raises(StageError, match=sentence):
        lc.dedup.Decontaminate(**fields).prepare()


def test_a_tokenizer_that_is_not_there_is_one_sentence(exam):
    stage = lc.dedup.Decontaminate(against=[exam], unit="token", tokenizer="nowhere/tokenizer.json")
    with pytest.raises(TokenizerError, match=r"decontaminate\.tokenizer: no tokenizer at .* or set unit='word'"):
        stage.prepare()


def test_an_index_is_made_once_and_again_where_a_set_or_the_index_changes(exam, cache):
    stage = lc.dedup.Decontaminate(against=[exam], ngram=8)
    stage.prepare()
    (folder,) = [each for each in cache.iterdir() if each.is_dir()]
    made = (folder / "index.json").stat().st_mtime_ns
    before, used = Hasher.hash(stage), stage.used_indexes()
    pickle.loads(pickle.dumps(stage)).prepare()
    assert (folder / "index.json").stat().st_mtime_ns == made
    (folder / "positions.npy").write_bytes(b"not an array")
    decontaminate.kept_index([read_evaluation_set(exam, ())], Ngrams(8, "word", "gpt2"))
    assert (crawl_of() | stage).data["id"][:] == ["clean"]
    Path(exam).write_text(json.dumps({"question": SECOND}) + "\n")
    assert (crawl_of() | stage).data["id"][:] == ["clean", "verbatim", "shouted", "half"]
    assert Hasher.hash(stage) != before
    assert stage.used_indexes().keys() == used.keys() == {exam}
    assert stage.used_indexes() != used


def test_a_saved_index_stands_for_its_sets(exam, tmp_path):
    stage = lc.dedup.Decontaminate(against=[exam], ngram=8)
    stage.save_index_of_items(tmp_path / "index")
    Path(exam).unlink()
    other = lc.dedup.Decontaminate(against=[str(tmp_path / "index")], ngram=8)
    assert (crawl_of() | other).why("both").edits[0].also_id == "exam#1"
    with pytest.raises(FormatError, match="has ngram 8, here 9"):
        lc.dedup.Decontaminate(against=[str(tmp_path / "index")], ngram=9).prepare()
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(StageError, match="no evaluation set at"):
        other.prepare()


# -------------------- reports


def test_the_report_counts_by_evaluation_set_and_item(exam):
    crawl = crawl_of() | lc.dedup.Decontaminate(against=[exam], ngram=8)
    found = crawl.contamination()
    assert [row["item"] for row in found.table.to_pylist()] == [0, 1]
    assert found.table["documents"].to_pylist() == [4, 1]
    assert found.documents.to_pylist() == [{"stage": "decontaminate", "evaluation_set": "exam", "documents": 4}]
    assert str(found).splitlines()[1].split() == ["decontaminate", "exam", "2", "4", "5", "331"]
    clean = (crawl_of() | lc.text.MinChars(10_000) | lc.dedup.Decontaminate(against=[exam], ngram=8)).contamination()
    none = "exam: 3 items, 1 of which have fewer than 8 words and were not searched for"
    assert str(clean).splitlines() == ["no document contains an item of an evaluation set", none]
    assert str(crawl_of().contamination()).splitlines() == ["no document contains an item of an evaluation set"]


@pytest.mark.slow
def test_a_run_reports_what_it_had_of_each_set_whatever_its_processes(exam, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = random.Random(5)
    for part in range(3):
        rows = (
            {"id": f"{part}-{name}", "text": text}
            for name, text in sorted(PAGES.items(), key=lambda _: chance.random())
        )
        Path(f"part{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "longcrawl": 1,
        "name": "clean",
        "source": {"builder": "text", "data_files": "part*.jsonl", "id_field": "id"},
        "stages": [{"decontaminate": {"against": ["exam.jsonl"], "ngram": 8}}],
        "outputs": {"parquet": {}},
    }
    for name, processes in (("run", 1), ("other", 2)):
        lc.run(parse_recipe(spec), name, num_proc=processes)
    assert str(lc.contamination("run")) == str(lc.contamination("other"))
    assert lc.contamination("run").documents["documents"].to_pylist() == [12]
    assert "\nexam: 3 items, 1 of which have" in str(lc.contamination("run"))
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert list(manifest["indexes"]["decontaminate"]) == ["exam.jsonl"]
    card = Path("run/README.md").read_text()
    assert "exam: 3 items, 1 of which have fewer than 8 words and were not searched for" in card
    assert "| decontaminate | exam | 2 | 12 | 15 | 993 |" in card
    lc.run(parse_recipe(spec | {"stages": [{"min_chars": {"n": 1}}]}), "without")
    with pytest.raises(LedgerError, match="without has no stage decontaminate; it has: min_chars"):
        lc.contamination("without")
