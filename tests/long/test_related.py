"""Orders of related documents: each method against plain Python, in crawls, runs and samples, whatever the engine."""

import json
import math
import random
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.ngrams import hash_units
from longcrawl.errors import RecipeError, StageError
from longcrawl.long.lexical import read_statistics
from longcrawl.run.inputs import Batch, grouped_sketches
from longcrawl.tokens.measures import neighbours, relate, weigh

STAGE = lc.long.Related


def hashed(text):
    return hash_units(pa.array([text], pa.large_string()), None)[0].tolist()


def plain_terms(text, statistics):
    """Return the weights of a text's terms, and its keyword, 0 for none."""
    shares = ((statistics.counts + 0.3) / (statistics.pieces + 1)).tolist()
    shares = dict(zip(statistics.words.tolist(), shares, strict=True))
    counts = Counter(word for word in hashed(text) if shares.get(word, 1) <= 0.2)
    heavy = [((1 + math.log(count)) * -math.log(shares[word]), word) for word, count in counts.items()]
    heavy = sorted(heavy, key=lambda each: (-each[0], each[1]))[:32]
    common = [word for _, word in heavy if shares[word] >= 0.002]
    keyword = common[0] if common else max((word for _, word in heavy), key=lambda word: shares[word], default=0)
    length = math.sqrt(sum(weight**2 for weight, _ in heavy))
    return {word >> 32: round(weight / length * 16384) for weight, word in heavy}, keyword


def plain_order(stage, texts, ids, ranks, samples):
    """Return the order of documents as the stage's docstring has it."""
    statistics = read_statistics(stage.statistics)
    found = [plain_terms(text, statistics) for text in texts]
    keywords = [keyword or rank for (_, keyword), rank in zip(found, ranks, strict=True)]
    partitions = max(len(texts) // stage.pool_size, 1)
    by_partition = defaultdict(list)
    for number, keyword in enumerate(keywords):
        by_partition[(keyword >> 32) * partitions >> 32].append(number)
    order = []
    for _, numbers in sorted(by_partition.items()):
        numbers.sort(key=lambda number: (keywords[number], ranks[number], ids[number]))
        pools = max(len(numbers) // stage.pool_size, 1)
        for pool in range(pools):
            stop = None if pool + 1 == pools else stage.pool_size * (pool + 1)
            order += plain_pool(stage, numbers[stage.pool_size * pool : stop], texts, ids, ranks, samples, found)
    return order


def are_near(samples, one, other):
    equal = np.count_nonzero(samples[one] == samples[other])
    return samples.shape[1] > 0 and (equal / 128 - 1 / 256) / (1 - 1 / 256) >= 0.5


def plain_pool(stage, numbers, texts, ids, ranks, samples, found):
    def near(one, other):
        return are_near(samples, one, other)

    if stage.method != "keywords":
        numbers = sorted(numbers, key=lambda number: (ranks[number], ids[number]))
        place = {number: at for at, number in enumerate(numbers)}
        edges = defaultdict(dict)
        for one in numbers:
            products = {
                other: sum(weight * found[other][0].get(term, 0) for term, weight in found[one][0].items())
                for other in numbers
                if other != one and not near(one, other)
            }
            best = sorted((-product, place[other], other) for other, product in products.items() if product)
            for product, _, other in best[: stage.neighbours]:
                edges[one][other] = edges[other][one] = -product
        ranked = {one: sorted(edges[one], key=lambda other: (-edges[one][other], place[other])) for one in numbers}
        numbers = (plain_trees if stage.method == "tree" else plain_paths)(stage, numbers, ranked, texts)
    placed, waiting = [], []
    for number in numbers:
        if placed and near(placed[-1], number):
            waiting.append(number)
            continue
        placed.append(number)
        while waiting and not near(placed[-1], waiting[0]):
            placed.append(waiting.pop(0))
    order = []
    for at, number in enumerate(placed):
        order.append(number)
        if waiting and not any(near(each, waiting[0]) for each in placed[at : at + 2]):
            order.append(waiting.pop(0))
    return order + waiting


def plain_paths(stage, numbers, ranked, texts):
    left, paths = dict.fromkeys(numbers), []
    for start in sorted(numbers, key=lambda number: len(ranked[number])):
        if start in left:
            paths.append([])
        here = start if start in left else None
        while here is not None:
            del left[here]
            paths[-1].append(here)
            here = next((other for other in ranked[here] if other in left), None)
    return [number for path in sorted(paths, key=lambda path: numbers.index(path[0])) for number in path]


def plain_trees(stage, numbers, ranked, texts):
    left, order = dict.fromkeys(numbers), []
    for start in numbers:
        if start not in left:
            continue
        del left[start]
        tree, length = [start], len(texts[start])
        for here in tree:
            for other in [other for other in ranked[here] if other in left][: stage.branches]:
                if length < stage.tree_length:
                    del left[other]
                    tree.append(other)
                    length += len(texts[other])
        order += tree
    return order


@st.composite
def corpora(draw):
    """Texts of some topics, some of them copied with few changes, some empty."""
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    topics, texts = draw(st.integers(6, 12)), []
    for _ in range(draw(st.integers(2, 36))):
        topic = chance.randrange(topics)
        words = [f"t{topic}w{chance.randrange(9)}" for _ in range(chance.randrange(20))] + chance.choices("abcd", k=3)
        chance.shuffle(words)
        texts.append(" ".join(words))
        if chance.random() < 0.2:
            texts.append(texts[-1] + " a")
    return [*texts, "a b"]


@settings(deadline=None)
@given(
    texts=corpora(),
    method=st.sampled_from(["path", "tree", "keywords"]),
    near_duplicates=st.sampled_from(["apart", "allowed"]),
    pool_size=st.sampled_from([5, 100]),
    most=st.sampled_from([1, 3, 16]),
)
def test_orders_equal_plain_python(texts, method, near_duplicates, pool_size, most, tmp_path_factory):
    ids = [f"d{number}" for number in range(len(texts))]
    table = pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})
    of_method = {"tree": {"neighbours": most, "tree_length": 150}, "path": {"neighbours": most}, "keywords": {}}
    stage = STAGE(method, near_duplicates, pool_size=pool_size, seed=most, **of_method[method])
    stage = stage.fit([table], str(tmp_path_factory.mktemp("words")))
    sketches = stage.sketch(table)
    samples = np.zeros((len(ids), 0), np.uint8)
    if near_duplicates == "apart":
        samples = np.array([list(each) for each in sketches["sample"].to_pylist()], np.uint8)
    expected = plain_order(stage, texts, ids, sketches["rank"].to_pylist(), samples)
    assert stage.order(sketches).tolist() == expected
    # Neither the order in which documents come nor batches change anything.
    turned = pa.concat_tables([stage.sketch(table.slice(1)), stage.sketch(table.slice(0, 1))])
    assert [turned["id"][at].as_py() for at in stage.order(turned).tolist()] == [ids[at] for at in expected]


def planted(topics=8, documents=12, seed=0):
    """Return documents of topics, a near duplicate of each topic's first, in random order, and embeddings of topics."""
    chance, rows = random.Random(seed), []
    directions = np.random.default_rng(seed).normal(size=(topics, 24))
    for topic in range(topics):
        for number in range(documents):
            words = [f"topic{topic}word{chance.randrange(12)}" for _ in range(40)]
            words += [f"word{chance.randrange(200)}" for _ in range(40)]
            chance.shuffle(words)
            vector = directions[topic] + 0.3 * np.random.default_rng([topic, number]).normal(size=24)
            rows.append({"id": f"{topic}-{number}", "text": " ".join(words), "vector": vector.tolist()})
        rows.append(rows[-1] | {"id": f"{topic}-copy", "text": rows[-1]["text"] + " once more"})
    chance.shuffle(rows)
    return rows


def together(ids):
    """Return the share of neighbours of one topic."""
    topics = [each.split("-")[0] for each in ids]
    return sum(one == other for one, other in pairwise(topics)) / (len(ids) - 1)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({"method": "path"}, 0.9),
        ({"method": "tree", "tree_length": 3_000}, 0.6),
        ({"method": "keywords"}, 0.3),
        ({"method": "path", "vectors": "vector"}, 0.9),
        ({"method": "tree", "vectors": "vector", "branches": 1, "tree_length": 3_000}, 0.6),
    ],
)
def test_documents_of_one_topic_follow_each_other_and_copies_do_not(settings, least):
    crawl = lc.Crawl(planted()) | STAGE(**settings)
    ids = crawl.data["id"][:]
    assert sorted(ids) == sorted(row["id"] for row in planted())
    assert together(ids) > least > 2 * together([row["id"] for row in planted()])
    copies = {frozenset((f"{topic}-11", f"{topic}-copy")) for topic in range(8)}
    assert not copies & {frozenset(pair) for pair in pairwise(ids)}
    allowed = (lc.Crawl(planted()) | STAGE(**settings, near_duplicates="allowed")).data["id"][:]
    assert len(copies & {frozenset(pair) for pair in pairwise(allowed)}) >= 3


def test_copies_that_nothing_is_left_to_put_between_come_last():
    rows = [{"id": f"c{number}", "text": "one text that all of these have"} for number in range(5)]
    rows += [{"id": f"o{number}", "text": f"another {number} about nothing of it"} for number in range(2)]
    ids = (lc.Crawl(rows) | STAGE()).data["id"][:]
    assert [name[0] for name in ids] in (list("cococcc"), list("ococccc"), list("cocoCcc"))


def write_parts(folder, parts, *, reverse=False):
    folder.mkdir()
    for part in range(parts):
        rows = [{name: row[name] for name in ("id", "text")} for row in planted()[part::parts]]
        name = parts - part if reverse else part
        lines = (json.dumps(row) + "\n" for row in (rows[::-1] if reverse else rows))
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def write_recipe(folder, **settings):
    stages = [
        {"related": {"pool_size": 30, **settings}},
        {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}},
    ]
    spec = {"longcrawl": 1, "name": "it", "stages": stages, "parts": 2}
    spec["source"] = {"builder": "text", "id_field": "id", "data_dir": str(folder)}
    spec["outputs"] = {
        "composed": {"capacities": [512, 1024], "planner": "interleaved", "chunk_tokens": 40, "heldout": 5}
    }
    recipe = folder.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump(spec))
    return recipe


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("related")
    recipe = write_recipe(write_parts(folder / "files", 3))
    lc.run(recipe, folder / "out")
    return recipe, folder / "out"


def order_of(run):
    files = sorted(run.glob("composed/documents/*/*.parquet"))
    return [name for file in files for name in pq.read_table(file)["id"].to_pylist()]


ENGINES = {
    "two processes": lambda: {"num_proc": 2},
    "one process": dict,
    "a shared folder": lambda: {"engine": lc.engines.Shared(beat=0.2, stale=2)},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=pytest.mark.slow if name == "two processes" else ()) for name in ENGINES]
)
def test_no_engine_changes_a_byte(one_run, tmp_path, small_limits, engine, directory_digest):
    """With limits so small that sketches meet in exchanges."""
    lc.run(one_run[0], tmp_path / "out", **ENGINES[engine]())
    assert directory_digest(tmp_path / "out") == directory_digest(one_run[1])


def test_another_output_says_that_neighbours_are_related(tmp_path):
    described = (lc.Crawl(planted()) | STAGE()).to_parquet(tmp_path / "out")
    assert (described["shuffled"], described["related"]) == (False, True)
    assert "Related documents follow each other." in lc.formats.ParquetResult().contents(described)


@pytest.mark.slow
def test_a_run_has_the_order_of_a_crawl_whatever_the_files(one_run, tmp_path):
    crawl = lc.Crawl(planted()) | STAGE(pool_size=30)
    ids = crawl.data["id"][:]
    assert order_of(one_run[1]) == [*ids[:5], *ids[5:]]
    recipe = write_recipe(write_parts(tmp_path / "files", 4, reverse=True))
    lc.run(recipe, tmp_path / "out")
    assert order_of(tmp_path / "out") == order_of(one_run[1])
    assert together(order_of(one_run[1])) > 0.5


def test_samples_hold_neighbours_and_the_measures_say_so(one_run):
    described = lc.formats.open_composed(one_run[1]).described["splits"]["train"]
    pieces = pq.read_table(one_run[1] / "composed/pieces/train").to_pylist()
    pairs = [(one, other) for one, other in pairwise(pieces) if one["sample"] == other["sample"]]
    pairs = [pair for pair in pairs if pair[0]["bucket"] == pair[1]["bucket"] and pair[0]["id"] != pair[1]["id"]]
    same = [one["id"].split("-")[0] == other["id"].split("-")[0] for one, other in pairs]
    assert len(pairs) == described["compared_pairs"] > 50
    assert sum(same) / len(same) > 0.5
    texts = {(piece["bucket"], piece["sample"]) for piece in pieces if piece["joined"]}
    assert len(texts) > 5
    assert described["related"] > described["related_by_chance"] + 0.01 > 0.01
    card = (one_run[1] / "README.md").read_text()
    assert f"| {described['related']:.3f} | {described['related_by_chance']:.3f} |" in card
    assert "Adjacent documents are related (path), not in random order." in card
    assert f"related {described['related']:.3f}" in str(lc.run(*one_run))


def test_a_group_without_documents_is_none_the_worse(tmp_path):
    stage = STAGE().fit([pa.table(_columns(planted()))], str(tmp_path))
    tables = [pa.table(_columns(planted())).slice(start, count) for start, count in ((0, 50), (50, 0), (50, 99))]
    sketches = [stage.sketch(table) for table in tables]
    batches = [Batch((number,), (table.num_rows,)) for number, table in enumerate(tables)]

    def read(inputs, columns=None):
        yield from (sketches[number] for number in inputs)

    decided = stage.exchange(grouped_sketches(tmp_path / "exchange", batches, read), lc.engines.Local())
    found = pa.concat_tables(decided.read(group) for group in range(3))
    assert found.equals(stage.find(iter(sketches), str(tmp_path)).table)


def _columns(rows):
    return {name: [row[name] for row in rows] for name in ("id", "text")}


@given(
    texts=st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=2, max_size=12), capacity=st.sampled_from([4, 20])
)
@example(texts=[[1], [1]], capacity=4)
def test_relatedness_equals_plain_python(texts, capacity):
    plan = lc.tokens.Buckets([capacity], planner="in-order").plan([len(text) for text in texts])
    pairs = []
    for low, high in zip(plan.bounds.tolist(), plan.bounds[1:].tolist(), strict=False):
        inside = plan.documents[low:high].tolist()
        pairs += [[one, other] for one, other in pairwise(inside) if one != other]
    assert neighbours(plan).tolist() == pairs
    having = Counter(token for text in texts for token in set(text))
    filled = sum(map(bool, texts))
    weights = [
        {token: (1 + math.log(count)) * math.log(filled / having[token]) for token, count in Counter(text).items()}
        for text in texts
    ]
    cosines = []
    for one, other in pairs:
        lengths = [math.sqrt(sum(weight**2 for weight in weights[each].values())) for each in (one, other)]
        product = sum(weight * weights[other].get(token, 0) for token, weight in weights[one].items())
        cosines.append(product / math.prod(lengths) if all(lengths) else 0)
    found = relate(neighbours(plan), weigh(np.array(text, np.uint16) for text in texts))
    assert found.compared_pairs == len(pairs)
    assert found.related == (pytest.approx(sum(cosines) / len(cosines), abs=1e-3) if cosines else None)


def test_a_comparison_says_how_related_neighbours_are_where_it_reads_tokens():
    topics = [[topic, topic + 1, topic + 2] * 5 for topic in range(0, 60, 3)]
    ordered = lc.compose(pa.table({"tokens": [each for each in topics for _ in range(4)]}), [64])
    apart = lc.compose(pa.table({"tokens": topics * 4}), [64])
    assert ordered["Buckets, in-order"].related > 0.7
    assert apart["Buckets, in-order"].related < 0.1
    assert ordered["Buckets, in-order"].related_by_chance < 0.1
    assert "related  chance  samples" in str(ordered)
    assert "mean cosine of the TF-IDF weights" in " ".join(str(ordered).split())
    lengths_alone = lc.compose([15] * 80, [64])
    assert "related" not in str(lengths_alone)
    assert {(row.related, row.related_by_chance) for row in lengths_alone} == {(None, None)}


@pytest.mark.variants
@pytest.mark.parametrize("kind", ["table", "dataset", "stream", "crawl", "parquet", "jsonl"])
def test_tokens_beside_their_numbers_are_compared_too(kind, tmp_path, monkeypatch):
    tokens = [[topic, topic + 1, topic + 2] * 5 for topic in range(0, 60, 3) for _ in range(4)]
    alone, both = pa.table({"tokens": tokens}), pa.table({"n_tokens": [15] * 80, "tokens": tokens})
    monkeypatch.setattr("longcrawl.publish.compose._FEW_ROWS", 7)
    monkeypatch.setattr("longcrawl.tokens.measures.DOCUMENTS", 50)

    def given(table, name):
        rows = table.to_pylist()
        if kind == "parquet":
            pq.write_table(table, tmp_path / name)
        elif kind == "jsonl":
            (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            data = Dataset.from_list(rows)
            kinds = {"table": table, "dataset": data, "stream": data.to_iterable_dataset(), "crawl": lc.Crawl(data)}
            return kinds[kind]
        return tmp_path / name

    for named in ({}, {"end_of_text": 2}):
        found = lc.compose(given(both, f"both.{kind}"), [64], **named)
        expected = lc.compose(given(alone, f"alone.{kind}"), [64], **named)
        assert found.rows == expected.rows
        assert found.terminated == expected.terminated == (76 if named else 80)
        assert found["Buckets, in-order"].related > found["Buckets, in-order"].related_by_chance > 0


def test_what_would_part_neighbours_is_one_sentence(one_run, tmp_path):
    crawl = lc.Crawl(planted()) | STAGE() | lc.tokens.Tokenize("trained", vocabulary_size=300)
    with pytest.raises(
        StageError, match=r"^composed\.planner 'algorithm-1' would separate the documents that related puts"
    ):
        crawl.to_composed(tmp_path / "out", capacities=[512])
    with pytest.raises(
        StageError, match=r"^shuffle would undo the order in which related puts related documents: remove"
    ):
        _ = crawl | lc.tokens.Shuffle()
    recipe = yaml.safe_load(one_run[0].read_text()) | {"stages": ["related", "shuffle"], "outputs": {"parquet": {}}}
    (tmp_path / "it.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(RecipeError, match=r"shuffle would undo the order in which related puts"):
        lc.run(tmp_path / "it.yaml", tmp_path / "run")
    for name in ("best-fit", "decomposition"):
        with pytest.raises(
            StageError, match=rf"^the strategy '{name}' plans by length and not in order: choose buckets"
        ):
            lc.tokens.named_strategy(name, [512], planner="in-order")
    kept = [
        lc.tokens.named_strategy(name, [512], planner="in-order") for name in ("fixed", "multi-bucket", "first-fit")
    ]
    assert [each.order for each in kept] == ["given"] * 3


def test_settings_and_documents_that_cannot_be_are_one_sentence():
    for name in ("neighbours", "branches", "tree_length", "pool_size", "train_documents"):
        with pytest.raises(StageError, match=rf"^related\.{name} is 0: set it to 1 or more$"):
            STAGE("tree", **{name: 0})
    with pytest.raises(StageError, match=r"^Related\.method takes one of 'path', 'tree', 'keywords', got 'circle'"):
        STAGE("circle")
    with pytest.raises(StageError, match=r"^related\.method 'keywords' compares words: remove vectors"):
        STAGE("keywords", vectors="vector")
    rows = pa.table({"id": ["a", "b"], "text": ["a", "b"], "vector": [[1.0], [1.0, 2.0]], "words": ["a", "b"]})
    with pytest.raises(StageError, match=r"^related has no statistics yet: call stage\.fit"):
        STAGE().sketch(rows)
    with pytest.raises(
        StageError,
        match=r"^related\.vectors: lists of 'vector' have 1 and 2 numbers: make them "
        r"equally long",
    ):
        STAGE(vectors="vector").sketch(rows)
    with pytest.raises(StageError, match=r"^related\.vectors must be a column of lists of numbers, but 'words' is str"):
        STAGE(vectors="words").sketch(rows)
    infinite = pa.table({"id": ["a"], "text": ["a"], "vector": [[float("inf")]]})
    with pytest.raises(StageError, match=r"^related\.vectors: a number of 'vector' is null or not fin"):
        STAGE(vectors="vector").sketch(infinite)
    with pytest.raises(StageError, match=r"^related needs a column 'text'; the documents have: id, vector, words"):
        STAGE(vectors="vector").sketch(rows.slice(0, 1).drop_columns("text"))
    tokenized = lc.Crawl({"id": ["a"], "tokens": [[1]]})
    with pytest.raises(StageError, match=r"^related needs a column 'text'; the documents have: id, tokens"):
        _ = tokenized | STAGE()
    alone = STAGE(vectors="vector", near_duplicates="allowed")
    assert alone.sketch(rows.slice(0, 1).drop_columns("text")).num_rows == 1
    twice = pa.concat_tables([alone.sketch(rows.slice(0, 1))] * 2)
    with pytest.raises(StageError, match=r"related.*'a'"):
        alone.order(twice)


def test_signs_of_vectors_do_not_depend_on_batches():
    rows = pa.table({"id": [row["id"] for row in planted()], "vector": [row["vector"] for row in planted()]})
    stage = STAGE(vectors="vector", near_duplicates="allowed")
    parts = pa.concat_tables(stage.sketch(rows.slice(start, 7)) for start in range(0, len(rows), 7))
    assert parts.combine_chunks().equals(stage.sketch(rows).combine_chunks())
    none = stage.sketch(pa.table({"id": ["a"], "vector": pa.nulls(1, pa.list_(pa.float32()))}))
    assert pc.list_value_length(none["terms"]).to_pylist() == [0]
    mixed = pa.concat_tables([none, parts.slice(1)])
    assert sorted(stage.order(mixed).tolist()) == list(range(len(mixed)))
    other = stage.sketch(pa.table({"id": ["b"], "vector": [[1.0, 2.0]]}))
    with pytest.raises(StageError, match=r"^related\.vectors: lists have 2 and 24 numbers: make them equally long$"):
        stage.order(pa.concat_tables([other, parts]))
