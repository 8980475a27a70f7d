"""Clusters of duplicates: of ledgers made by hand, of crawls, and of runs whose source is read once more."""

import json
import random
import shutil

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
import yaml
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.ledger import LEDGER_SCHEMA, find_clusters, find_reason


def ledger(*rows):
    names = LEDGER_SCHEMA.names
    made = [dict(zip(names, (*row, *[None] * 6)[:6], strict=True)) for row in rows]
    return pads.dataset(pa.Table.from_pylist(made, schema=LEDGER_SCHEMA))


def left(name, stage, kept, value=None, rule="near_duplicate"):
    return (name, stage, rule, value, None, kept)


def members(clusters):
    return {cluster.kept.id: sorted(cluster.removed["id"].to_pylist()) for cluster in clusters}


STAGES = ["urls", "min_hash", "min_hash_2"]


def test_a_document_that_one_stage_kept_leads_on_to_what_a_later_one_kept():
    found = find_clusters(
        ledger(
            left("c", "min_hash", "d", 0.9), left("a", "urls", "b"), left("b", "min_hash", "d", 0.8),
            left("d", "min_hash_2", "e", 0.7), left("y", "urls", "z"),
        ),
        STAGES,
    )  # fmt: skip
    assert members(found) == {"e": ["a", "b", "c", "d"], "z": ["y"]}
    assert (found.count, found.removed) == (2, 5)
    assert found[0].size == 5
    assert found[0].similarity == (0.7, 0.7)  # those of b and c are to d
    assert found[1].similarity is None
    assert found[0].rules == {"urls near_duplicate": 1, "min_hash near_duplicate": 2, "min_hash_2 near_duplicate": 1}
    assert found[0].pair == ("e", "d")
    assert "; similarity 0.70 (3 others were duplicates of documents removed later)" in str(found[0])
    assert "removed: a (a duplicate of b), b (a duplicate of d, similarity 0.80), c (a duplicate of d" in str(found[0])


def test_a_chain_is_told_to_its_end_with_the_similarity_of_each_step():
    rows = ledger(
        left("a", "urls", "b"), left("b", "min_hash", "d", 0.8), left("d", "min_hash_2", "e", 0.7),
        ("e", "short", "min_chars", 3.0, 5.0), left("d", "urls", "x"),
    )  # fmt: skip
    reason = find_reason(rows, [*STAGES, "short"], "a")
    assert str(reason) == (
        "a: removed at urls, rule near_duplicate: a duplicate of b, which was removed at min_hash, rule "
        "near_duplicate: a duplicate of d, similarity 0.80, which was removed at min_hash_2, rule near_duplicate: "
        "a duplicate of e, similarity 0.70, which was removed at short, rule min_chars: 3 against 5"
    )
    assert reason.kept.kept.kept.kept is None
    seen = ledger(left("a", "urls", "b", rule="seen_before"), left("b", "min_hash", "d", 0.8))
    assert find_reason(seen, STAGES, "a").kept is None  # b is one of the earlier dataset


def test_one_stage_alone_is_seen_by_what_it_kept_and_what_became_of_that():
    rows = ledger(left("a", "urls", "b"), left("b", "min_hash", "d", 0.8))
    found = find_clusters(rows, STAGES, stage="urls")
    assert members(found) == {"b": ["a"]}
    assert "kept b, which was later removed at min_hash, rule near_duplicate: a duplicate of d" in str(found)


def test_a_kept_document_may_leave_later_and_an_earlier_one_of_its_id_does_not_count():
    rows = [left("a", "urls", "b"), ("b", "short", "min_chars", 3.0, 5.0), ("b", "long", "max_chars", 9.0, 8.0)]
    found = find_clusters(ledger(*rows), ["short", "urls", "long"])
    assert found[0].kept.stage == "long"
    assert find_clusters(ledger(*rows[:2]), ["short", "urls", "long"])[0].kept.stage is None


@pytest.mark.parametrize("rule", ["seen_before", "near_duplicate_of_earlier", "near_duplicate_of_earlier_2"])
def test_a_document_of_an_earlier_dataset_is_not_the_one_of_the_same_id_here(rule):
    seen = {"rule": rule}
    rows = [left("a", "urls", "a", **seen), left("b", "urls", "a", **seen), left("c", "min_hash", "d")]
    found = find_clusters(ledger(*rows, left("d", "min_hash_2", "a", **seen)), STAGES)
    assert members(found) == {"a": ["a", "b", "c", "d"]}
    assert found[0].earlier
    assert found[0].pair == ("a", "b")
    assert "kept a of an earlier dataset" in str(found)
    assert find_clusters(ledger(rows[0]), STAGES)[0].pair is None


def test_nothing_left_and_questions_without_an_answer():
    nothing = find_clusters(ledger(("a", "short", "min_chars", 3.0, 5.0)), ["short"])
    assert str(nothing) == "no clusters: no document was removed as a duplicate"
    with pytest.raises(lc.LongCrawlError, match="no stage 'gopher'; known: short"):
        find_clusters(ledger(), ["short"], stage="gopher")
    with pytest.raises(lc.LongCrawlError, match="ask for 1 or more"):
        find_clusters(ledger(), ["short"], most=0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=60))
def test_chains_end_where_a_walk_ends(steps):
    parents, rows = {}, []
    stages = [f"s{number}" for number in range(4)]
    for number, stage in enumerate(stages):
        heads = set()
        for document, at in steps:
            kept = (document * 7 + number) % 31
            if at == number and document not in {*parents, *heads} and kept not in parents and kept != document:
                heads.add(kept)
                parents[document] = kept
                rows.append(left(str(document), stage, str(kept)))
    expected = {}
    for document in parents:
        end = document
        while end in parents:
            end = parents[end]
        expected.setdefault(str(end), []).append(str(document))
    found = find_clusters(ledger(*rows), stages, most=100)
    assert members(found) == {end: sorted(each) for end, each in expected.items()}
    sizes = [cluster.size for cluster in found]
    assert sizes == sorted(sizes, reverse=True)


STORY = " ".join(f"word{number}" for number in range(300))
TEXTS = {
    "a": STORY,
    "b": STORY.replace("word150", "changed"),
    "c": STORY,
    "d": "something else <b>altogether</b> that is by itself",
    "e": STORY.replace("word20 ", ""),
}


def near(**settings):
    return lc.dedup.MinHash.preset("fineweb", keep="first", **settings)


def test_clusters_of_a_crawl_are_those_of_its_ledger_with_diffs_of_its_first_texts():
    crawl = lc.Crawl(Dataset.from_dict({"id": list(TEXTS), "text": list(TEXTS.values())}))
    found = (crawl | lc.dedup.ExactDocuments() | near() | lc.tokens.Tokenize("trained", vocabulary_size=300)).clusters()
    assert members(found) == {"a": ["b", "c", "e"]}
    assert found[0].diff is not None
    assert found[0].diff.differences == 1
    html = found._repr_html_()
    assert "<del" in html
    assert "4 documents, kept a" in html
    assert "[-" in str(found)
    assert repr(found) == str(found)
    with pytest.raises(lc.LongCrawlError, match="no stage 'urls'; known: exact_documents, min_hash"):
        (crawl | lc.dedup.ExactDocuments() | near()).clusters("urls")


def test_a_crawl_without_texts_says_so():
    data = Dataset.from_dict({"id": ["a", "b"], "url": ["http://x.org/1", "x.org/1/"]})
    found = (lc.Crawl(data) | lc.dedup.Urls()).clusters()
    assert members(found) == {"a": ["b"]}
    assert str(found).endswith("No diff: the documents have no column 'text'.")


@pytest.fixture(scope="module", params=["given ids", "own ids"])
def run(request, tmp_path_factory):
    """Return a run over two files that has an exact and a near duplicate, and its documents' folder."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "documents").mkdir()
    chance = random.Random(2)
    others = {f"o{number}": " ".join(f"x{chance.random()}" for _ in range(90)) for number in range(20)}
    for file, names in (("1", ["a", "b"]), ("2", ["c", "d", "e", *others])):
        lines = [json.dumps({"id": name, "text": (TEXTS | others)[name]}) for name in names]
        (folder / "documents" / f"{file}.jsonl").write_text("\n".join(lines))
    spec = {
        "longcrawl": 1,
        "name": "twice",
        "source": {"builder": "text", "data_dir": str(folder / "documents")},
        "stages": [
            {"exact_documents": {}},
            {"min_hash": {"bands": 14, "rows": 8, "unit": "word", "keep": "first"}},
            {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}},
            {"min_tokens": {"n": 64}},
            {"truncate": {"n": 64}},
        ],
        "outputs": {"rectangle": {"heldout": 0.1}},
    }
    if request.param == "given ids":
        spec["source"]["id_field"] = "id"
    (folder / "twice.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "twice.yaml", folder / "out")
    return folder


@pytest.mark.variants
def test_clusters_of_a_run_have_the_texts_of_its_source(run, longcrawl):
    found = lc.clusters(run / "out")
    (cluster,) = found
    assert (cluster.size, found.note) == (4, None)
    assert cluster.rules == {"exact_documents same_text": 1, "min_hash near_duplicate": 2}
    assert cluster.diff is not None
    assert cluster.diff.differences == 1
    assert 0.5 < cluster.similarity[0] <= cluster.similarity[1] <= 1
    assert len(lc.clusters(run / "out", stage="exact_documents")[0].removed) == 1
    answer = longcrawl("clusters", run / "out", "--most", 1)
    assert answer.stdout.rstrip("\n") == str(found)
    wrong = longcrawl("clusters", run / "out", "--stage", "x")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("LedgerError: no stage 'x'; known: exact_documents, min_hash, ")


@pytest.mark.variants
def test_where_the_source_is_gone_clusters_come_without_a_diff_and_one_sentence(run, tmp_path):
    with_diff = lc.clusters(run / "out")
    for file in sorted((run / "documents").glob("*")):
        shutil.move(file, tmp_path / file.name)
    try:
        found = lc.clusters(run / "out")
    finally:
        for file in tmp_path.glob("*.jsonl"):
            shutil.move(file, run / "documents" / file.name)
    assert found[0].diff is None
    assert members(found) == members(with_diff)
    assert found.note == f"No diff where a text is missing: {run}/documents/1.jsonl is gone"
    assert str(found).endswith(found.note)


@pytest.mark.variants
def test_a_package_that_is_gone_is_said_to_be_gone(run, tmp_path):
    out = shutil.copytree(run / "out", tmp_path / "out")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["recipe"]["source"] = {"builder": "installed"}
    manifest["inputs"] = {"no-such-package": []}
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert lc.clusters(out).note == "No diff where a text is missing: no-such-package is gone"
