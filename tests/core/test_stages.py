"""Stages as such: registry, settings, fingerprints, and the three ways to use one."""

import pickle
import re

import pyarrow as pa
import pytest
from datasets import Dataset
from datasets.fingerprint import Hasher

import longcrawl as lc
from longcrawl.core import registry
from longcrawl.core.batches import as_table
from longcrawl.core.stages import STAGES, Check, first_failure
from longcrawl.errors import StageError
from longcrawl.text.models import ModelScore

DOCUMENTS = {"id": ["a", "b", "c"], "text": ["one two three", "one", "one two"], "language": ["en", "de", "en"]}


def test_the_first_failed_check_speaks_and_an_unknown_value_fails():
    values = pa.array([1.0, 5.0, None])
    checks = [
        Check("low", values, pa.array([False, True, None]), 2.0),
        Check("high", values, pa.array([False, False, True]), 4.0),
    ]
    assert first_failure(3, checks).to_pylist() == [
        {"rule": "low", "value": 1.0, "threshold": 2.0},
        {"rule": "high", "value": 5.0, "threshold": 4.0},
        {"rule": "low", "value": None, "threshold": 2.0},
    ]


@pytest.mark.parametrize(
    ("checks", "sentence"),
    [
        (None, "a stage returned NoneType for its checks: return a list of Check"),
        ([True], "a stage returned bool among its checks"),
        ([Check("low", pa.nulls(3), pa.array([True]))], "passes of rule 'low' has 1 entries for 3 documents"),
        ([Check("low", pa.array([1.0]), pa.array([True] * 3))], "value of rule 'low' has 1 entries for 3 documents"),
        ([Check("low", 1.0, pa.array([True] * 3))], "value of rule 'low' is float: return an Arrow array"),
    ],
)
def test_checks_of_other_lengths_are_one_sentence(checks, sentence):
    with pytest.raises(StageError, match=re.escape(sentence)):
        first_failure(3, checks)


def test_a_judge_filters_plain_and_arrow_datasets_alike():
    stage = lc.text.MinWords(2)
    data = Dataset.from_dict(DOCUMENTS)
    plain = data.filter(stage, batched=True)
    arrow = data.with_format("arrow").filter(stage, batched=True)
    streamed = data.to_iterable_dataset().filter(stage, batched=True)
    crawled = (lc.Crawl(data) | stage).data
    assert plain["id"][:] == ["a", "c"]
    assert arrow.with_format(None)["id"][:] == ["a", "c"]
    assert [row["id"] for row in streamed] == ["a", "c"]
    assert crawled["id"][:] == ["a", "c"]


def test_a_stage_on_single_examples_says_how_to_call_it():
    with pytest.raises(StageError, match=r"batched=True"):
        Dataset.from_dict(DOCUMENTS).filter(lc.text.MinWords(2))


def test_a_missing_column_names_those_there_are():
    with pytest.raises(StageError, match="min_words needs a column 'text'; the documents have: id"):
        lc.text.MinWords(2).judge(pa.table({"id": ["a"]}))


@pytest.mark.parametrize("wrong", ["many", 1.5, True, None])
def test_a_wrong_value_is_refused_when_the_stage_is_made(wrong):
    with pytest.raises(StageError, match=r"MinWords.n takes a whole number"):
        lc.text.MinWords(wrong)


def test_a_wrong_choice_lists_the_choices():
    with pytest.raises(StageError, match=r"ExactDocuments.keep takes one of 'first', 'random', got 'best'"):
        lc.dedup.ExactDocuments(keep="best")


NO_EFFECT = {
    "gzip_ratio": [({"by": "all"}, {"low_quantile": 0.2}), ({"min_documents": 5}, {"high_quantile": 0.8})],
    "lexical_dependency": [({"short": "drop"}, {"min_score": 0.1})],
    "information_gain": [({"short": "drop"}, {"at_least": 0.1}), ({"short": "drop"}, {"top_fraction": 0.1})],
    "exact_substring": [
        ({"max_share": 0.5}, {"policy": "drop-partial"}),
        ({"min_characters": 5, "policy": "drop-any"}, {"policy": "cut"}),
    ],
    "decontaminate": [
        ({"window": 5}, {"policy": "cut"}),
        ({"min_piece": 5, "policy": "tag"}, {"policy": "cut"}),
        ({"max_pieces": 5}, {"policy": "cut"}),
        ({"min_characters": 5}, {"policy": "mask"}),
    ],
    "min_hash": [({"on_large_cluster": "error", "max_cluster": None}, {"max_cluster": 5})],
    "min_hash_signatures": [({"on_large_cluster": "keep", "max_cluster": None}, {"max_cluster": 5})],
    "personal_data": [
        ({"replacements": ["x"], "kinds": ["ip"], "policy": "tag"}, {"policy": "mask"}),
        ({"ips": "all", "kinds": ["email"]}, {"kinds": ["email", "ip"]}),
        ({"ipv6": "ignore", "kinds": ["email"]}, {"kinds": ["ip"]}),
        ({"phones": "american", "kinds": ["email"]}, {"kinds": ["phone"]}),
    ],
    "extract_text": [
        ({"favor": "recall", "engine": "resiliparse"}, {"engine": "blocks"}),
        ({"format": "markdown", "engine": "trafilatura"}, {"engine": "blocks"}),
        ({"max_seconds": 5.0, "engine": "blocks"}, {"engine": "resiliparse"}),
        ({"max_memory": 5_000_000, "engine": "blocks"}, {"engine": "trafilatura"}),
        ({"workers": 2, "engine": "blocks"}, {"engine": "trafilatura"}),
    ],
    "related": [({"branches": 5}, {"method": "tree"}), ({"neighbours": 5, "method": "keywords"}, {"method": "tree"})],
}
CASES = [(name, *case) for name, cases in NO_EFFECT.items() for case in cases]


@pytest.mark.parametrize(("name", "alone", "more"), CASES)
def test_a_setting_without_effect_is_refused(name, alone, more):
    field = next(iter(alone))
    with pytest.raises(
        StageError, match=rf"{name}\.{field} has no effect with .*: remove it, or set .*{next(iter(more))}"
    ):
        STAGES.make(name, alone)
    assert STAGES.make(name, alone | more).settings()[field] == registry.plain(alone[field])


def test_every_condition_is_tried_and_presets_leave_out_what_has_no_effect():
    stages = dict(STAGES.items())
    conditions = {(name, field) for name, stage in stages.items() for field in stage.only_with}
    scores = {(name, "short") for name, stage in stages.items() if issubclass(stage, ModelScore)}
    assert conditions == {(name, next(iter(alone))) for name, alone, _ in CASES} | {("related", "tree_length")} | scores
    assert lc.dedup.Decontaminate.preset("gpt3", against=["exam.jsonl"], policy="tag").window == 0
    assert lc.text.PersonalData.preset("dolma", policy="drop").replacements == ()
    with pytest.raises(StageError, match="window has no effect with policy 'tag': remove it, or set policy: cut"):
        lc.dedup.Decontaminate.preset("gpt3", against=["exam.jsonl"], policy="tag", window=9)


def test_every_stage_is_registered_under_its_snake_case_name():
    assert STAGES["min_words"] is lc.text.MinWords
    assert STAGES["listed_duplicates"] is lc.dedup.ListedDuplicates
    assert lc.text.MinWords(3).name == "min_words"


def test_fingerprints_are_equal_in_other_processes_and_change_with_settings_and_code(python):
    code = "import longcrawl as lc; from datasets.fingerprint import Hasher; print(Hasher.hash(lc.text.MinWords(7)))"
    seed, fingerprint = python(f"print(hash('a word')); {code}").stdout.split()
    assert int(seed) != hash("a word"), "PYTHONHASHSEED is set: it has to be random here"
    assert fingerprint == Hasher.hash(lc.text.MinWords(7))
    assert Hasher.hash(lc.text.MinWords(8)) != Hasher.hash(lc.text.MinWords(7))


def test_a_changed_code_version_changes_the_fingerprint(monkeypatch):
    before = Hasher.hash(lc.text.MinWords(7))
    monkeypatch.setattr(lc.text.MinWords, "code_version", "2")
    assert Hasher.hash(lc.text.MinWords(7)) != before


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_stage_pickles_and_lists_its_settings(name):
    made = STAGES[name]()
    assert pickle.loads(pickle.dumps(made)) == made
    assert type(made)(**made.settings()) == made


def test_batches_come_as_tables_or_mappings():
    table = pa.table({"id": ["a"]})
    assert as_table(table) is table
    assert as_table({"id": ["a"]}).equals(table)


def test_policies_are_words():
    """Policies are words: a boolean names a property of the text, or asks for columns."""
    known = {(stage, field) for stage in ("tokenize", "min_bytes") for field in ("json_escaped", "ensure_ascii")}
    known.add(("extract_text", "metadata"))
    booleans = {
        (name, field) for name, kind in STAGES.items() for field, hint in kind.__annotations__.items() if hint is bool
    }
    assert booleans <= known
