"""Evaluation sets: what is an item in each form that they come in, and passages against a dictionary of all n-grams."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import example, given
from hypothesis import strategies as st

from longcrawl.dedup import decontaminate
from longcrawl.dedup.decontaminate import EvaluationSet, Ngrams, read_evaluation_set

pytestmark = pytest.mark.usefixtures("cache")

QUESTION = "Which of the planets of the sun has the largest moon of all of them?"


def naive_words(text):
    """Return the words of a text and where each stands, without the marks around it."""
    found = [(match[0].strip(".,!?").lower(), match) for match in re.finditer(r"\S+", text)]
    places = []
    for word, match in found:
        start = match.start() + match[0].lower().index(word)
        places.append((start, start + len(word)))
    return [word for word, _ in found], places


def naive_find(texts, items, n, least):
    """Return the passages of each text with their items, and the greatest overlap, by lists of all n-grams."""
    words = [naive_words(item)[0] for item in items]
    passages, greatest = [], []
    for row, text in enumerate(texts):
        units, places = naive_words(text)
        runs, overlaps = [], [0.0]
        for number, item in enumerate(words):
            grams = {tuple(item[at : at + n]) for at in range(len(item) - n + 1)}
            hits = [at for at in range(len(units) - n + 1) if tuple(units[at : at + n]) in grams]
            theirs = {tuple(units[at : at + n]) for at in hits}
            covered = {
                at + k for at in range(len(item) - n + 1) if tuple(item[at : at + n]) in theirs for k in range(n)
            }
            if hits:
                overlaps.append(len(covered) / len(item))
            if not hits or overlaps[-1] < least:
                continue
            for at in hits:
                if runs and runs[-1][3] == number and at <= runs[-1][1]:
                    runs[-1][1] = at + n
                else:
                    runs.append([at, at + n, 0, number])
        reached = -1
        for start, stop, _, number in sorted(runs, key=lambda run: (run[0], -run[1], run[3])):
            if stop > reached:
                first = max(start, reached)
                passages.append((row, places[first][0], places[stop - 1][1], f"set#{number}"))
                reached = stop
        greatest.append(max(overlaps))
    return passages, greatest


@st.composite
def collections(draw):
    """Items of few words, and texts made of their pieces and of other words, over several lines."""
    word = st.sampled_from(["a", "b", "cé".replace("é", "e"), "d", "long"])
    items = draw(st.lists(st.lists(word, max_size=12), min_size=1, max_size=5))
    piece = st.lists(word, min_size=1, max_size=8) | st.sampled_from([item or ["a"] for item in items])
    texts = []
    for pieces in draw(st.lists(st.lists(piece, max_size=4), min_size=1, max_size=4)):
        flat = [word for each in pieces for word in each]
        marks = draw(st.lists(st.sampled_from([" ", "\n", ", ", "! ", "  "]), min_size=len(flat), max_size=len(flat)))
        case = draw(st.sampled_from([str, str.upper, str.title]))
        texts.append("".join(case(word) + mark for word, mark in zip(flat, marks, strict=True)))
    return [" ".join(item) for item in items], texts


@given(collections(), st.integers(1, 4), st.sampled_from([0.0, 0.5, 0.8, 1.0]))
@example((["a b c", "a b c d"], ["x a b c d y", "", "a b c a b c d"]), 3, 0.0)
def test_passages_equal_those_of_a_dictionary_of_all_ngrams(tmp_path_factory, made, n, least):
    items, texts = made
    folder = tmp_path_factory.mktemp("index")
    ngrams = Ngrams(n, "word", "gpt2")
    decontaminate.write_evaluation_index(folder, [EvaluationSet("set", pa.array(items, pa.large_string()))], ngrams)
    found = decontaminate.open_evaluation_indexes(ngrams, str(folder)).find(pa.array(texts, pa.large_string()), least)
    passages, greatest = naive_find(texts, items, n, least)
    rows = zip(found.rows.tolist(), *found.places.T.tolist(), found.items.to_pylist(), strict=True)
    assert list(rows) == passages
    assert found.overlaps.tolist() == pytest.approx(greatest)


# -------------------- evaluation sets


def test_evaluation_sets_come_in_any_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {"id": ["x", "y"], "question": ["one two", "three"], "choices": [["a b", "c"], []], "answer": [1, 2]}
    Path("exams").mkdir()
    data = Dataset.from_dict(rows)
    data.to_parquet("exams/test-00000.parquet")
    Path("lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    data.save_to_disk("disk")
    DatasetDict({"train": data.select([0]), "test": data}).save_to_disk("splits")
    expected = ["one two\na b\nc", "three\n"]
    named = {"exams/test-00000.parquet": "exams/test-00000", "lines.jsonl": "lines", "disk": "disk", "splits": "splits"}
    for given_name, name in named.items():
        found = read_evaluation_set(given_name, ())
        assert (found.name, found.items.to_pylist()) == (name, expected)
        assert read_evaluation_set(given_name, ("question", "prompt")).items.to_pylist() == ["one two", "three"]
    Path("words.txt").write_text("one two\nthree\n")
    Path("words.tsv").write_text("text\tn\none two\t1\nthree\t2\n")
    assert read_evaluation_set("words.txt", ()).items.to_pylist() == ["one two", "three"]
    assert read_evaluation_set("words.tsv", ()).items.to_pylist() == ["one two", "three"]


CHAT = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "Jupiter."}]


NESTED = {
    "chats": ({"prompt_id": "abc-1", "messages": CHAT}, f"abc-1\nuser\n{QUESTION}\nassistant\nJupiter."),
    "arc": ({"question": "Why?", "choices": {"text": ["a", "b"], "label": ["A", None]}}, "Why?\na\nb\nA"),
    "squad": ({"version": "1", "data": [{"qas": [{"id": "7", "question": QUESTION}]}]}, f"1\n{QUESTION}"),
    "images": ({"q": [{"image": {"bytes": b"", "path": "a.png"}, "text": "Who?", "n": 1}]}, "Who?"),
}


@pytest.mark.parametrize("name", NESTED)
def test_texts_inside_of_lists_and_structs_are_lines_of_an_item(name):
    row, item = NESTED[name]
    made = pa.Table.from_pylist([row])
    for columns in ((), tuple(row)):
        kept = decontaminate.keep_dataset(Dataset(made))
        assert read_evaluation_set(kept, columns).items.to_pylist() == [item]
