"""A crawl: `crawl | stage` on data in memory, on disk and streaming, with a reason for every removed document."""

import random
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datasets import Dataset

import longcrawl as lc
from longcrawl.core.ledger import LEDGER_SCHEMA
from longcrawl.core.stages import Check
from longcrawl.errors import FormatError, LedgerError, LongCrawlError, StageError
from longcrawl.run.part import Tally, run_fused

WORDS = 12
ONLY_WORD_COUNT = {
    "min_word_count": 15,
    "max_word_count": None,
    "min_mean_word_length": None,
    "max_mean_word_length": None,
    "max_symbol_to_word_ratio": None,
    "max_bullet_line_fraction": None,
    "max_top_2gram_fraction": None,
}


def documents(count: int = 60) -> Dataset:
    chance = random.Random(3)
    rows = []
    for number in range(count):
        text = " ".join(chance.choices(["one", "two", "three", "four"], k=chance.randint(1, 30)))
        if number % 12 == 0:
            text = "the same text, more than once"
        signals = {"rps_doc_word_count": float(len(text.split()))}
        rows.append(
            {"id": f"d{number:03d}", "text": text, "language": ["en", "de", None][number % 3], "signals": signals}
        )
    return Dataset.from_list(rows)


@pytest.fixture
def crawl() -> lc.Crawl:
    return lc.Crawl(documents(), source="test")


@pytest.fixture(params=["in memory", "on disk", "indexed"])
def any_crawl(request, tmp_path) -> lc.Crawl:
    """Return the same documents as `datasets` holds them in its three ways."""
    data = documents()
    if request.param == "on disk":
        data.to_parquet(tmp_path / "data.parquet")
        data = Dataset.from_parquet(str(tmp_path / "data.parquet"), cache_dir=str(tmp_path))
    elif request.param == "indexed":
        data = data.select(range(59, -1, -1)).select(range(59, -1, -1))
    return lc.Crawl(data, source="test")


def texts_of(crawl: lc.Crawl) -> dict[str, str]:
    return dict(zip(crawl.data["id"][:], crawl.data["text"][:], strict=True))


# -------------------- judges


@pytest.mark.variants
def test_a_judge_removes_and_says_why(any_crawl):
    long = any_crawl | lc.text.MinWords(WORDS)
    before, after = texts_of(any_crawl), texts_of(long)
    assert after == {name: text for name, text in before.items() if len(text.split()) >= WORDS}
    for name, text in before.items():
        reason = long.why(name)
        if name in after:
            assert reason.stage is None
            assert str(reason) == f"{name}: kept"
        else:
            assert (reason.stage, reason.rule, reason.threshold) == ("min_words", "min_words", WORDS)
            assert reason.value == len(text.replace(",", "").split())


def test_the_crawl_before_stays_as_it_was(crawl):
    before = texts_of(crawl)
    longer = crawl | lc.text.MinWords(WORDS)
    assert texts_of(crawl) == before
    assert crawl.steps == ()
    assert crawl.ledger.num_rows == 0
    assert longer.steps == (lc.text.MinWords(WORDS),)


@pytest.mark.parametrize("stage", [lc.text.MinWords(2), lc.text.C4Quality(min_sentences=2, min_words_per_line=None)])
def test_ids_that_occur_twice_are_refused_where_a_document_leaves(stage):
    texts = ["Short.", "A longer one. And more.", "Another one. And more."]
    rows = {"id": ["a", "a", "b"], "text": texts}
    with pytest.raises(StageError) as raised:
        lc.Crawl(Dataset.from_dict(rows)) | stage
    assert str(raised.value) == f"{stage.name} needs unique ids, but 'a' occurs twice: drop one of the two"
    kept = lc.Crawl(Dataset.from_dict({"id": ["b", "b"], "text": texts[1:]})) | stage
    assert len(kept.data) == 2
    assert len((lc.Crawl(Dataset.from_dict(rows | {"id": ["a", "c", "b"]})) | stage).removed(stage.name)) == 1


@pytest.mark.parametrize("output", ["parquet", "rectangle", "gpt_simple", "composed"])
@pytest.mark.parametrize("streaming", [False, True])
def test_ids_that_occur_twice_are_not_written(tmp_path, output, streaming):
    table = pa.table(
        {"id": ["a", "b", "b"], "text": ["x", "y", "z"], "tokens": pa.array([[1, 2]] * 3, pa.list_(pa.uint16()))}
    )
    data = Dataset(table).to_iterable_dataset() if streaming else Dataset(table)
    settings = {"parquet": {}, "rectangle": {"context_length": 2}, "composed": {"capacities": [4]}}.get(output, {})
    settings |= {} if output == "parquet" else {"end_of_text": 9}
    said = "two rows have the id 'b'" if streaming else "needs unique ids, but 'b' occurs twice, in rows 1 and 2: drop"
    with pytest.raises(FormatError if streaming else StageError, match=said):
        getattr(lc.Crawl(data), f"to_{output}")(tmp_path / "made", **settings)
    assert list(tmp_path.iterdir()) == []


def test_ids_that_occur_twice_are_not_pushed():
    with pytest.raises(StageError, match="push_to_hub needs unique ids, but 'b' occurs twice, in rows 0 and 1"):
        lc.Crawl({"id": ["b", "b"], "text": ["x", "y"]}).push_to_hub("me/twice", "private")


@pytest.mark.variants
def test_removed_documents_come_back_with_their_reasons(any_crawl):
    english = any_crawl | lc.text.Language(["en"])
    long = english | lc.text.MinWords(WORDS)
    gone = long.removed("min_words")
    before = texts_of(english)
    assert gone["id"][:] == [name for name in before if name not in texts_of(long)]
    assert gone["text"][:] == [before[name] for name in gone["id"][:]]
    assert gone["value"][:] == [len(before[name].replace(",", "").split()) for name in gone["id"][:]]
    assert set(gone["rule"][:]) == {"min_words"}
    assert set(gone["threshold"][:]) == {WORDS}
    assert {"rule", "value", "threshold", "kept_id"} <= set(gone.column_names)
    assert set(long.removed("language")["language"][:]) == {"de", None}


def test_nothing_removed_is_an_empty_dataset(crawl):
    gone = (crawl | lc.text.MinWords(0)).removed("min_words")
    assert len(gone) == 0
    assert {"id", "rule", "kept_id"} <= set(gone.column_names)


def test_removed_of_a_stage_that_was_not_passed_names_those_that_were(crawl):
    with pytest.raises(LedgerError, match="has no stage 'min_words'; it has: none"):
        crawl.removed("min_words")
    with pytest.raises(LedgerError, match="has no stage 'min_chars'; it has: language, min_words"):
        (crawl | lc.text.Language() | lc.text.MinWords(3)).removed("min_chars")


def test_a_second_stage_of_a_kind_has_its_own_label(crawl):
    twice = crawl | lc.text.MinWords(4) | lc.text.MinWords(WORDS)
    assert [row.stage for row in twice.funnel] == ["min_words", "min_words_2"]
    assert len(twice.removed("min_words")) + len(twice.removed("min_words_2")) == 60 - len(twice.data)
    assert min(twice.removed("min_words_2")["value"][:]) >= 4


def test_why_of_a_document_that_never_was(crawl):
    with pytest.raises(LedgerError, match="no document 'x' among the 60 of test"):
        (crawl | lc.text.MinWords(3)).why("x")


def test_the_funnel_counts_every_stage(crawl):
    done = crawl | lc.text.Language(["en"]) | lc.text.MinWords(WORDS) | lc.dedup.ExactDocuments()
    funnel = done.funnel
    assert (funnel.source, funnel.documents, funnel.kept) == ("test", 60, len(done.data))
    assert [row.stage for row in funnel] == ["language", "min_words", "exact_documents"]
    assert [row.documents_in for row in funnel] == [60, 20, funnel.rows[1].documents_out]
    assert sum(row.removed for row in funnel) == done.ledger.num_rows == 60 - len(done.data)
    assert done.ledger.schema == LEDGER_SCHEMA
    assert repr(done) == repr(funnel)
    assert done._repr_html_() == funnel._repr_html_()


def test_a_crawl_goes_on_when_nothing_is_left(crawl):
    nothing = crawl | lc.text.MinWords(1000)
    assert len(nothing.data) == 0
    stages = [lc.text.MinChars(1), lc.dedup.ExactDocuments(), lc.tokens.Shuffle()]
    done = nothing
    for stage in stages:
        done = done | stage
    assert done.funnel.emptied_by() == "min_words"
    assert done.funnel.kept == 0
    assert done.data.column_names == crawl.data.column_names


# -------------------- rewrites and surveys


def test_exact_duplicates_name_the_document_that_stays(any_crawl):
    unique = any_crawl | lc.dedup.ExactDocuments()
    texts = list(texts_of(unique).values())
    assert len(set(texts)) == len(texts)
    assert set(texts) == set(texts_of(any_crawl).values())
    assert unique.why("d012").kept_id == "d000"
    assert str(unique.why("d024")) == "d024: removed at exact_documents, rule same_text: a duplicate of d000"


def test_shuffle_is_a_permutation(any_crawl):
    shuffled = any_crawl | lc.tokens.Shuffle(seed=4)
    assert texts_of(shuffled) == texts_of(any_crawl)
    assert shuffled.data["id"][:] != any_crawl.data["id"][:]
    assert shuffled.funnel.kept == 60


def test_rewrites_apply_in_order(crawl, tmp_path):
    done = crawl | lc.tokens.Tokenize("trained", vocabulary_size=300) | lc.tokens.Truncate(5) | lc.tokens.Roll()
    assert set(done.data.column_names) == {"id", "language", "signals", "tokens", "n_tokens", "roll"}
    assert [len(tokens) for tokens in done.data["tokens"]] == [min(count, 5) for count in done.data["n_tokens"]]
    encoder = done.steps[0].encoder()
    first = done.data[0]
    rolled_back = first["tokens"][first["roll"] :] + first["tokens"][: first["roll"]]
    assert crawl.data["text"][0].startswith(encoder.decode(rolled_back))


# -------------------- the three ways to use a stage


@pytest.mark.variants
@pytest.mark.parametrize(
    "stage",
    [
        lc.text.MinWords(WORDS),
        lc.text.MinChars(80),
        lc.text.Language(["en", "de"]),
        lc.text.MinBytes(80, json_escaped=True),
        lc.text.SignalRules("rpv2-card", thresholds=ONLY_WORD_COUNT),
    ],
    ids=lambda stage: stage.name,
)
def test_a_judge_removes_the_same_in_filter_in_a_stream_and_in_a_crawl(crawl, stage):
    crawled = (crawl | stage).data["id"][:]
    assert 0 < len(crawled) < 60
    assert crawl.data.filter(stage, batched=True, batch_size=7)["id"][:] == crawled
    assert crawl.data.with_format("arrow").filter(stage, batched=True)["id"].to_pylist() == crawled
    assert [row["id"] for row in crawl.data.to_iterable_dataset().filter(stage, batched=True)] == crawled
    streamed = lc.Crawl(crawl.data.to_iterable_dataset(num_shards=3)) | stage
    assert [row["id"] for row in streamed.data] == crawled


def test_a_rewrite_gives_the_same_in_map_in_a_stream_and_in_a_crawl(crawl):
    tokenize = (crawl | lc.tokens.Tokenize("trained", vocabulary_size=300)).steps[0]
    chain = [tokenize, lc.tokens.Truncate(6), lc.tokens.Roll(seed=1)]
    crawled, mapped, streamed = crawl, crawl.data, lc.Crawl(crawl.data.to_iterable_dataset())
    for stage in chain:
        crawled, streamed = crawled | stage, streamed | stage
        mapped = mapped.map(stage, batched=True, batch_size=7)
    expected = [(row["id"], row["tokens"], row["n_tokens"], row["roll"]) for row in crawled.data]
    assert [(row["id"], row["tokens"], row["n_tokens"], row["roll"]) for row in mapped] == expected
    assert [(row["id"], list(row["tokens"]), row["n_tokens"], row["roll"]) for row in streamed.data] == expected


# -------------------- streaming


def test_a_stream_keeps_no_ledger_and_says_so(crawl):
    streamed = lc.Crawl(crawl.data.to_iterable_dataset()) | lc.text.MinWords(WORDS)
    assert streamed.streaming
    assert repr(streamed) == "<streaming Crawl after min_words>"
    assert "streaming Crawl" in streamed._repr_html_()
    for question in (lambda: streamed.funnel, lambda: streamed.why("d000"), lambda: streamed.removed("min_words")):
        with pytest.raises(
            LedgerError, match="is filtered as it is read and keeps no ledger; open it with streaming=False"
        ):
            question()


def test_what_needs_all_documents_is_refused_on_a_stream(crawl):
    streamed = lc.Crawl(crawl.data.to_iterable_dataset())
    with pytest.raises(StageError, match="exact_documents needs all documents and cannot run on a stream"):
        streamed | lc.dedup.ExactDocuments()
    with pytest.raises(StageError, match="shuffle needs all documents and cannot run on a stream"):
        streamed | lc.tokens.Shuffle()
    with pytest.raises(StageError, match="tokenize must learn from all documents first"):
        streamed | lc.tokens.Tokenize("trained")


def test_a_stream_can_be_written(crawl, tmp_path):
    tokenize = (crawl | lc.tokens.Tokenize("trained", vocabulary_size=300)).steps[0]
    stages = [tokenize, lc.tokens.MinTokens(8), lc.tokens.Truncate(8), lc.tokens.Roll()]
    whole, streamed = crawl, lc.Crawl(crawl.data.to_iterable_dataset())
    for stage in stages:
        whole, streamed = whole | stage, streamed | stage
    whole.to_rectangle(tmp_path / "whole", heldout=2)
    streamed.to_rectangle(tmp_path / "streamed", heldout=2)
    for file in (tmp_path / "whole").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "streamed" / file.relative_to(tmp_path / "whole")).read_bytes()


def test_a_stream_may_be_judged_again_and_again(crawl):
    stages = [lc.text.Language(["en", "de"]), lc.text.MinWords(4), lc.text.MinChars(30), lc.text.MinWords(WORDS)]
    whole, streamed = crawl, lc.Crawl(crawl.data.to_iterable_dataset(num_shards=2))
    for stage in stages:
        whole, streamed = whole | stage, streamed | stage
    assert [row["id"] for row in streamed.data] == whole.data["id"][:]
    assert 0 < len(whole.data) < 40


# -------------------- what is refused


def test_a_dictionary_of_splits_is_refused_and_a_split_offered():
    data = documents(6)
    for splits in (
        datasets.DatasetDict({"train": data, "test": data}),
        datasets.IterableDatasetDict({"train": data.to_iterable_dataset()}),
    ):
        with pytest.raises(LongCrawlError) as raised:
            lc.Crawl(splits)
        assert str(raised.value) == "a crawl is one split; choose one: data['train']"


@pytest.mark.parametrize("data", [None, "documents", 7, Path("a.jsonl")])
def test_what_holds_no_documents_is_refused(data):
    with pytest.raises(LongCrawlError, match=r"a crawl is made from a datasets\.Dataset, a table .* write lc\.open"):
        lc.Crawl(data)


@pytest.mark.parametrize("stage", [len, lc.text.MinWords, "min_words", None])
def test_what_is_no_stage_is_refused(crawl, stage):
    with pytest.raises(StageError, match=r"expected a stage such as lc\.text\.MinWords\(16_000\), got "):
        crawl | stage


def test_a_missing_column_names_those_there_are(crawl):
    with pytest.raises(
        StageError, match="roll needs a column 'tokens'; the documents have: id, text, language, signals"
    ):
        crawl | lc.tokens.Roll()
    with pytest.raises(StageError, match="min_words needs a column 'text'; the documents have: id, body"):
        lc.Crawl(Dataset.from_dict({"id": ["a"], "body": ["a"]})) | lc.text.MinWords(1)


def test_an_unknown_output_names_the_known_ones(crawl, tmp_path):
    with pytest.raises(
        StageError,
        match="output 'orc' is unknown; known: composed, datatrove, gpt-simple, levanter, litdata, mds, "
        "megatron, nanogpt, olmo-core, parquet, rectangle",
    ):
        crawl.write("orc", tmp_path / "out")
    with pytest.raises(AttributeError):
        crawl.to_orc(tmp_path / "out")


# -------------------- open


def test_open_is_a_crawl_of_the_builder(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one two"}\n{"text": "three"}\n')
    crawl = lc.open("text", data_dir=str(tmp_path))
    assert crawl.data["text"][:] == ["one two", "three"]
    assert crawl.funnel.source == "text"
    assert (crawl | lc.text.MinWords(2)).why("a.jsonl:1").value == 1
    streamed = lc.open("text", data_dir=str(tmp_path), streaming=True)
    assert [row["text"] for row in (streamed | lc.text.MinWords(2)).data] == ["one two"]


@lc.core.stages.stage
class ShoutLess(lc.core.stages.Edit):
    """Lower the text; a document that had more than ``most`` capitals leaves."""

    most: int = 3

    def edit(self, table):
        texts = table["text"].combine_chunks()
        capitals = pc.count_substring_regex(texts, "[A-Z]")
        lowered = table.set_column(table.column_names.index("text"), "text", pc.utf8_lower(texts))
        return lowered, [Check("capitals", capitals, pc.less_equal(capitals, self.most), self.most, "at_most")]


del lc.core.stages.STAGES[ShoutLess.name]  # which other modules' tests go through


def test_an_edit_corrects_documents_and_says_which_leave():
    data = Dataset.from_dict({"id": ["a", "b", "c"], "text": ["Fine", "TOO LOUD", "Also Fine"]})
    crawl = lc.Crawl(data) | ShoutLess()
    assert texts_of(crawl) == {"a": "fine", "c": "also fine"}
    assert crawl.data.column_names == data.column_names
    assert str(crawl.why("b")).splitlines() == [
        "b: removed at shout_less, rule capitals: 7 against 3",
        "  shout_less changed 1 place, 0 characters cut: changed 0-8, replaced by 8",
    ]
    assert crawl.removed("shout_less")["text"][:] == ["TOO LOUD"]
    assert [row.removed for row in crawl.funnel] == [1]
    assert (lc.Crawl(data) | ShoutLess(most=9)).data["text"][:] == ["fine", "too loud", "also fine"]


def test_an_edit_works_alone_and_on_a_stream():
    data = Dataset.from_dict({"id": ["a", "b"], "text": ["Fine", "TOO LOUD"]})
    assert data.map(ShoutLess(), batched=True)["text"][:] == ["fine"]
    for kind in (None, "arrow"):
        stream = data.to_iterable_dataset().with_format(kind).map(ShoutLess(), batched=True)
        assert [row["text"] for row in stream.with_format(None)] == ["fine"]
    assert [row["text"] for row in (lc.Crawl(data.to_iterable_dataset()) | ShoutLess()).data] == ["fine"]


def test_an_edit_runs_fused():
    tally = Tally()
    table = pa.table({"id": ["a", "b"], "text": ["Fine", "TOO LOUD"]})
    [kept] = run_fused([("shout_less", ShoutLess())], [table], tally)
    assert kept["text"].to_pylist() == ["fine"]
    assert tally.table().to_pylist()[0]["rule"] == "capitals"
    edits = {"documents": 2, "unit": "characters", "rules": {"changed": {"places": 2, "touched": 9, "removed": 0}}}
    counts = {"stage": "shout_less", "in": 2, "out": 1, "rules": {"capitals": 1}, "characters": len("fine")}
    assert [row.as_dict() for row in tally.rows.values()] == [counts | {"edits": edits}]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_a_stage_lacks_is_said_before_any_document_is_read(tmp_path, streaming):
    read = []

    def rows():
        read.append(True)
        yield {"id": "a", "text": "x"}

    data = datasets.IterableDataset.from_generator(rows)
    crawl = lc.Crawl(data if streaming else documents())
    stage = lc.tokens.Tokenize(tokenizer=str(tmp_path / "none.json"))
    with pytest.raises(LongCrawlError, match="no tokenizer at"):
        crawl | stage
    assert not read


def test_a_wrong_index_is_refused_before_anything_is_sketched(crawl, tmp_path, monkeypatch):
    sketched = []
    plain = lc.dedup.ExactDocuments.sketch
    monkeypatch.setattr(
        lc.dedup.ExactDocuments, "sketch", lambda self, table: sketched.append(len(table)) or plain(self, table)
    )
    with pytest.raises(LongCrawlError, match="no index of exact_documents"):
        crawl | lc.dedup.ExactDocuments(against=[str(tmp_path)])
    assert not sketched


@pytest.mark.variants
def test_a_crawl_saves_the_index_of_what_it_keeps(any_crawl, tmp_path):
    with pytest.warns(UserWarning, match=r'call crawl.save_index\("exact_documents", FOLDER\)') as caught:
        once = any_crawl | lc.dedup.ExactDocuments(index="save")
    assert caught[0].filename == __file__
    done = once | lc.text.MinWords(20) | lc.text.MinChars(1)
    done.save_index("exact_documents", tmp_path / "index")
    later = any_crawl | lc.dedup.ExactDocuments(against=[str(tmp_path / "index")])
    seen = later.ledger.filter(pc.equal(later.ledger["rule"], "seen_before"))
    assert sorted(seen["kept_id"].unique().to_pylist()) == sorted(done.data["id"][:])
    with pytest.raises(LedgerError, match="no stage 'min_words' with an index; it has: exact_documents"):
        done.save_index("min_words", tmp_path / "other")
    with pytest.raises(LedgerError, match="it has: none"):
        any_crawl.save_index("urls", tmp_path / "other")


def test_large_clusters_warn_where_the_stage_is_applied(crawl):
    with pytest.warns(UserWarning, match="more than max_cluster=1 documents") as caught:
        crawl | lc.dedup.MinHash.preset("fineweb", max_cluster=1)
    assert caught[0].filename == __file__
