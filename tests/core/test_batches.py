"""Every stage in every call that `datasets` offers: the rows of ``Crawl | stage``, or one sentence; never a mask."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datasets import Dataset, DatasetDict, IterableDatasetDict
from datasets.table import InMemoryTable
from small_pdf import small_pdf

import longcrawl as lc
from longcrawl.core.stages import STAGES, Edit, Judge, Rewrite, Survey
from longcrawl.errors import StageError
from longcrawl.text.identify import model_file
from longcrawl.text.models import ModelScore

TIDE = "The tide was out, and the boats lay in the mud of the harbour until the evening came. " * 3
TEXTS = [TIDE, "short", TIDE, "Bread needs flour, water, salt and mostly time, which nobody has."]
TABLE = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "text": pa.array(TEXTS, pa.large_string()),
        "url": ["http://a.example/", "http://b.example/porn", "http://a.example/", None],
        "language": ["en", "de", "en", "en"],
        "duplicate": [False, True, False, False],
        "tokens": pa.array([[5, 6, 7, 8], [1], [2, 3, 4], [7, 8, 9]], pa.list_(pa.uint16())),
        "signals": [{"rps_doc_word_count": count} for count in (60.0, None, 70.0, 12.0)],
        "signature_sim0.8": [[bytes([number] * 52)] * 9 for number in (1, 2, 1, 3)],
    }
)
HTML = [f"<main><p>{text}</p></main>" if text != "short" else "" for text in TEXTS]
PAGES = TABLE.append_column("html", [HTML]).drop_columns("text")
FILES = TABLE.append_column("content", [[small_pdf(text) for text in TEXTS]]).drop_columns("text")
RULES = dict.fromkeys((rule.name for rule in lc.text.SignalRules().rules()), None) | {"min_word_count": 50}
"""Rules of the release for which the documents carry a signal."""
MADE = {
    "attention_dependency": lc.long.AttentionDependency("tiny", span=2, first=6, device="cpu"),
    "c4_quality": lc.text.C4Quality(min_sentences=1, min_words_per_line=None),
    "decontaminate": lc.dedup.Decontaminate((str(Path(__file__).parent / "opt_outs.txt"),), ngram=2),
    "dependency_score": lc.long.DependencyScore("tiny", segment=8, window=80, pairs=9, device="cpu"),
    "exact_documents": lc.dedup.ExactDocuments(),
    "exact_substring": lc.dedup.ExactSubstring(30, unit="character"),
    "extract_pdf": lc.text.ExtractPdf(),
    "extract_text": lc.text.ExtractText(engine="resiliparse"),
    "fast_text_classifier": lc.text.FastTextClassifier(str(model_file("lid.176")), "en", at_least=0.5),
    "fine_web_quality": lc.text.FineWebQuality(),
    "fix_text": lc.text.FixText(),
    "gopher_quality": lc.text.GopherQuality(min_words=10, min_stop_words=None),
    "gopher_repetition": lc.text.GopherRepetition(),
    "gzip_ratio": lc.long.GzipRatio(min_bytes=1, high_quantile=0.5, by="all", min_documents=1),
    "identify_language": lc.text.IdentifyLanguage(),
    "information_gain": lc.long.InformationGain("tiny", short_context=2, device="cpu"),
    "language": lc.text.Language(("en",)),
    "length_mix": lc.tokens.LengthMix(long_tokens=3, long_share=0.95, on_few_short="keep"),
    "lexical_dependency": lc.long.LexicalDependency(window=1),
    "line_corrections": lc.text.LineCorrections(on_unknown_language="keep"),
    "listed_duplicates": lc.dedup.ListedDuplicates(),
    "min_bytes": lc.text.MinBytes(50),
    "min_chars": lc.text.MinChars(50),
    "min_hash": lc.dedup.MinHash.preset("fineweb"),
    "min_hash_signatures": lc.dedup.MinHashSignatures(),
    "min_tokens": lc.tokens.MinTokens(2),
    "min_words": lc.text.MinWords(2),
    "opt_out": lc.text.OptOut((str(Path(__file__).parent / "opt_outs.txt"),)),
    "personal_data": lc.text.PersonalData(),
    "related": lc.long.Related(),
    "roll": lc.tokens.Roll(seed=3),
    "sequence_classifier": lc.text.SequenceClassifier("tiny", at_least=0.5, device="cpu"),
    "shuffle": lc.tokens.Shuffle(seed=1),
    "signal_rules": lc.text.SignalRules(thresholds=RULES, on_missing="keep"),
    "signals": lc.text.Signals(),
    "tokenize": lc.tokens.Tokenize("trained"),
    "truncate": lc.tokens.Truncate(2),
    "url_filter": lc.text.UrlFilter(),
    "urls": lc.dedup.Urls(),
    "windows": lc.tokens.Windows(2),
}
FORMATS = [None, "arrow", "numpy", "pandas", "polars", "torch"]
ONE_OF_EACH = ("min_words", "roll", "exact_documents")
CALLS = [
    pytest.param(
        name, form, marks=() if name in ONE_OF_EACH or (name, form) == ("c4_quality", None) else pytest.mark.slow
    )
    for name in sorted(MADE)
    for form in FORMATS
]
"""Every stage in every format: fast are one of each kind, and an edit that removes documents."""


@pytest.fixture(scope="module")
def made(tmp_path_factory, request):
    """Return a function that returns the stage of a name, fitted, and with a model if it takes one."""
    tasks = {ModelScore: "causal", lc.text.SequenceClassifier: "classifier"}

    @cache
    def make(name):
        stage, folder = MADE[name], tmp_path_factory.mktemp(name)
        for task in (task for kind, task in tasks.items() if isinstance(stage, kind)):
            for each in request.getfixturevalue("tiny_models").tiny(task):
                each.save_pretrained(folder)
            stage = replace(stage, model=str(folder))
        return stage.fit([TABLE], str(folder)) if stage.needs_fit else stage

    return make


def documents(stage):
    return Dataset({"html": PAGES, "content": FILES}.get(stage.looks_at, TABLE))


def plain(value):
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    listed = value.tolist() if hasattr(value, "tolist") else value  # of NumPy and of torch
    return [plain(each) for each in listed] if isinstance(listed, list) else listed


def rows(data):
    return [plain(row) for row in data.with_format(None)]


def call(data, method, stage, **settings):
    return rows(getattr(data, method)(stage, **settings))


def test_every_stage_is_called_here():
    shipped = [name for name, kind in STAGES.items() if kind.__module__.startswith("longcrawl.")]
    assert sorted(MADE) == sorted(shipped)


@pytest.mark.parametrize(("name", "form"), CALLS)
def test_a_call_gives_the_rows_of_a_crawl_or_one_sentence(made, name, form):
    if form is not None and form not in ("arrow", "numpy"):
        pytest.importorskip(form)
    stage = made(name)
    works = {Judge: "filter", Rewrite: "map", Edit: "map", Survey: None}
    method = next(works[kind] for kind in works if isinstance(stage, kind))
    whole = documents(stage)
    wanted = rows((lc.Crawl(whole) | stage).data)
    if isinstance(stage, Judge) or name in ("c4_quality", "extract_text"):
        assert 0 < len(wanted) < len(whole)  # or a filter that keeps all would pass
    for data in (whole.with_format(form), whole.to_iterable_dataset().with_format(form)):
        streams_columns = not isinstance(data, Dataset) and form in (None, "numpy", "torch")
        removes = set(whole.column_names) - set(wanted[0])
        if method is not None and not (streams_columns and removes):
            assert call(data, method, stage, batched=True) == wanted
        elif method is not None:
            with pytest.raises(StageError, match=rf'removes {removes.pop()}.*with_format\("arrow"\)'):
                call(data, method, stage, batched=True)
        for other in {"map", "filter"} - {method}:
            with pytest.raises(StageError, match=rf"^{name} .*lc\.Crawl\(dataset\) \| stage"):
                call(data, other, stage, batched=True)
        for each in ("map", "filter"):
            # `datasets` cannot filter rows of these formats one by one, whatever the function.
            theirs = each == "filter" and isinstance(data, Dataset) and form in ("arrow", "polars")
            with pytest.raises(
                AttributeError if theirs else StageError, match="'keys'" if theirs else r"lc\.Crawl\(dataset\) \| stage"
            ):
                call(data, each, stage)


ROWS = 1_100
OTHERS = pa.table(
    {
        "url": pa.array([None] * (ROWS - 1) + ["http://pier.example/"], pa.string()),
        "nothing": pa.nulls(ROWS, pa.string()),
        "score": pa.array([0.1, 1e300] * (ROWS // 2), pa.float64()),
        "offset": pa.array([2**24 + 1, None] * (ROWS // 2), pa.int64()),
        "hash": pa.array([2**63 + 1, 7] * (ROWS // 2), pa.uint64()),
        "view": pa.array(["one", None] * (ROWS // 2), pa.string_view()),
    }
)
"""Columns that formats change, as stages do not use them."""
SHORT = pa.array([[1, 2, 3], [4]] * (ROWS // 2), pa.list_(pa.uint16()))
TEXTS_OF_ALL = pa.array(["The boats are out at sea.", "A gull."] * (ROWS // 2), pa.string())
CHANGING = {
    "truncate": (OTHERS.append_column("tokens", SHORT), "tokens", [[1, 2], [4]] * (ROWS // 2)),
    "c4_quality": (OTHERS.append_column("text", TEXTS_OF_ALL), "text", ["The boats are out at sea."] * (ROWS // 2)),
}
"""A rewrite and an edit that drops every second document: documents, the column that changes, and its values."""


@pytest.mark.variants
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("removes", [None, "url", ["url", "hash"]], ids=str)
@pytest.mark.parametrize("name", CHANGING)
def test_columns_that_a_stage_does_not_use_keep_type_and_values(name, removes, form):
    if form in ("polars", "torch"):
        pytest.importorskip(form)
    documents, changes, wanted = CHANGING[name]
    stage = replace(MADE[name], min_sentences=1, min_words_per_line=4) if name == "c4_quality" else MADE[name]
    data = Dataset(InMemoryTable(documents)).with_format(form)
    made = data.map(stage, batched=True, remove_columns=removes)
    removed = [removes] if isinstance(removes, str) else removes or []
    assert made.column_names == [each for each in documents.column_names if each not in removed]
    assert {each: made.features[each] for each in made.column_names} == {
        each: data.features[each] for each in made.column_names
    }
    table = made.with_format("arrow")[:]
    assert table[changes].to_pylist() == wanted
    kept = documents.slice(0, ROWS).to_pylist()[:: ROWS // len(wanted)]
    for each in set(made.column_names) - {changes}:
        assert table[each].type == documents[each].type
        assert table[each].to_pylist() == [row[each] for row in kept]


@pytest.mark.parametrize("form", [None, "arrow", "numpy", "torch"])
def test_a_stream_has_the_other_columns_that_a_plain_function_gives(form):
    if form == "torch":
        pytest.importorskip(form)
    documents = CHANGING["truncate"][0].append_column("ratio", pa.array([float("nan"), 0.5] * (ROWS // 2)))
    stream = Dataset(InMemoryTable(documents.drop_columns("view"))).to_iterable_dataset().with_format(form)
    made = stream.map(MADE["truncate"], batched=True, batch_size=ROWS, remove_columns="url")
    plain = stream.map(lambda batch: batch, batched=True, batch_size=ROWS)
    for row, other in zip(rows(made), rows(plain), strict=True):
        assert list(row) == [each for each in other if each != "url"]
        assert repr({**row, "tokens": 0}) == repr({each: other[each] for each in row} | {"tokens": 0})


REMOVING = {
    "a keyword": lambda data, stage: data.map(stage, batched=True, remove_columns=["url"]),
    "a tuple": lambda data, stage: data.map(stage, batched=True, remove_columns=("url",)),
    "a position": lambda data, stage: data.map(
        stage, *([False] * isinstance(data, Dataset)), False, None, True, 1000, False, ["url"]
    ),
    "a partial": lambda data, stage: data.map(partial(stage), batched=True, remove_columns=["url"]),
    "a method": lambda data, stage: data.map(stage.__call__, batched=True, remove_columns=["url"]),
    "splits": lambda data, stage: (DatasetDict if isinstance(data, Dataset) else IterableDatasetDict)(train=data).map(
        stage, batched=True, remove_columns=["url"]
    )["train"],
}


@pytest.mark.variants
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("form", [None, "arrow"])
@pytest.mark.parametrize("how", REMOVING)
def test_every_spelling_of_remove_columns_is_honoured(how, form, streaming):
    data = Dataset(TABLE).select_columns(["id", "url", "tokens"])
    data = (data.to_iterable_dataset() if streaming else data).with_format(form)
    made = rows(REMOVING[how](data, MADE["truncate"]))
    assert made == [
        {"id": document, "tokens": tokens[:2]}
        for document, tokens in zip(TABLE["id"].to_pylist(), TABLE["tokens"].to_pylist(), strict=True)
    ]
    every = partial(data.map, MADE["truncate"], batched=True, remove_columns=["id", "url", "tokens"])
    if streaming and form == "arrow":
        with pytest.raises(StageError, match="'tokens', which truncate rewrites and a stream in the format 'arrow'"):
            rows(every())
    else:
        assert rows(every()) == [{"tokens": row["tokens"]} for row in made]


def test_a_stage_without_a_rewritten_column_must_not_lose_all():
    class Louder(Rewrite):
        name = "louder"

        def rewrite(self, table):
            return table.set_column(0, "text", pc.utf8_upper(table["text"]))

    data = Dataset.from_dict({"text": ["low"]})
    with pytest.raises(StageError, match="remove_columns names every column that documents have after louder"):
        data.map(Louder(), batched=True, remove_columns=["text"])


def test_a_stage_in_a_function_sees_the_columns_that_the_function_has_set():
    data = Dataset(TABLE).select_columns(["id", "url", "text"])
    stage = MADE["personal_data"]

    def masked(batch):
        batch["text"] = [f"{name}@quay.example" for name in batch["id"]]
        del batch["url"]
        return stage(batch)

    made = data.map(masked, batched=True)
    assert made.column_names == ["id", "text"]
    assert "quay" not in "".join(made["text"])


def test_a_column_that_makes_none_of_arrow_is_one_message():
    stream = Dataset(TABLE).select_columns(["id", "tokens"]).to_iterable_dataset()
    mixed = stream.map(lambda row: {"mixed": 1 if row["id"] == "a" else "b"})
    with pytest.raises(StageError, match=r"column 'mixed' cannot be converted to Arrow .*with_format"):
        rows(mixed.map(MADE["truncate"], batched=True))


@pytest.mark.parametrize("form", ["arrow", "polars"])
def test_datasets_itself_cannot_filter_single_rows_of_tables(form):
    """It asks a table for the keys of a dictionary before it calls anything, so no stage can answer for it."""
    if form == "polars":
        pytest.importorskip(form)
    called = []
    with pytest.raises(AttributeError, match="'keys'"):
        Dataset(TABLE).with_format(form).filter(called.append)
    assert called == []


@pytest.mark.variants
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "settings", [{"with_indices": True}, {"input_columns": ["id", "text"]}, {"fn_kwargs": {"least": 3}}], ids=str
)
@pytest.mark.parametrize("name", ["min_words", "roll", "c4_quality", "exact_documents"])
def test_a_call_with_more_than_a_batch_is_one_sentence(name, settings, streaming):
    data = Dataset(TABLE).to_iterable_dataset() if streaming else Dataset(TABLE)
    for method in ("map", "filter"):
        with pytest.raises(StageError, match=rf"^{name} (takes only batches of documents|needs all documents)"):
            call(data, method, MADE[name], batched=True, **settings)
        if "input_columns" in settings:
            with pytest.raises(StageError):
                call(data, method, MADE[name], batched=True, input_columns=["text"])


def test_workers_are_called_as_this_process_is(made):
    data = Dataset(TABLE)
    assert call(data, "filter", MADE["min_words"], batched=True, num_proc=2) == rows(
        (lc.Crawl(data) | MADE["min_words"]).data
    )
    with pytest.raises(StageError, match=r"tokenize changes documents.*write dataset.map\(stage, batched=True\)"):
        data.filter(made("tokenize"), batched=True, num_proc=2)


def test_a_dictionary_of_splits_is_no_way_around():
    splits = DatasetDict(train=Dataset(TABLE), test=Dataset(TABLE).select([0]))
    with pytest.raises(StageError, match=r"exact_documents needs all documents at once"):
        splits.filter(MADE["exact_documents"], batched=True)
    with pytest.raises(StageError, match=r"min_words chooses documents"):
        splits.map(MADE["min_words"], batched=True)


def test_a_stream_removes_the_column_if_it_is_named():
    stream = Dataset(PAGES).to_iterable_dataset()
    wanted = rows((lc.Crawl(Dataset(PAGES)) | MADE["extract_text"]).data)
    for columns in ("html", ["html"]):
        assert call(stream, "map", MADE["extract_text"], batched=True, remove_columns=columns) == wanted


def test_functions_of_the_user_take_what_they_want_of_a_stage(made):
    data = Dataset(TABLE)
    flagged = data.map(lambda batch: {"long": MADE["min_words"](batch)}, batched=True)
    assert flagged["long"][:] == [True, False, True, True]
    long = data.filter(lambda batch: [len(one) > 5 for one in made("tokenize")(batch)["tokens"]], batched=True)
    assert long["id"][:] == ["a", "c", "d"]
    sketches = data.with_format("arrow").map(MADE["shuffle"].sketch, batched=True)
    assert sketches.column_names == ["id", "sort_key"]
