"""Long-range dependency by words: each measure against plain Python, statistics, and the stage in crawls and runs."""

import json
import math
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.ngrams import hash_units
from longcrawl.errors import StageError
from longcrawl.long import lexical
from longcrawl.long.lexical import FEWEST, GRAM

STAGE = lc.long.LexicalDependency
EDGES = [round(16 * 2 ** (number / 4)) for number in range(41)]


def hashed(words):
    return hash_units(pa.array([" ".join(words)], pa.large_string()), None)[0].tolist()


def plain_repeated(words):
    repeated, before = [False] * len(words), set()
    for start in range(len(words) - GRAM + 1):
        gram = tuple(words[start : start + GRAM])
        if gram in before:
            repeated[start : start + GRAM] = [True] * GRAM
        before.add(gram)
    return repeated


def plain_far_words(words, repeated, share, length, window, near):
    found = every = 0.0
    for number in range(near + 5, len(words) // window):
        places = range(number * window, (number + 1) * window)
        close = set(words[(number - near) * window : number * window])
        far = set(words[: (number - near) * window])
        for word in sorted({words[at] for at in places if not repeated[at]} - close):
            if share(word) < 0.2:
                chance = 1 - (1 - share(word)) ** ((number - near) * window / length)
                found += -math.log(share(word)) * ((word in far) - chance)
                every += -math.log(share(word))
    return found / every if every else 0.0


def plain_interleaving(words, repeated, share):
    gaps, last = [0] * 40, {}
    for at, word in enumerate(words):
        if repeated[at] or share(word) > 0.1:
            continue
        for before in last.get(word, [])[-8:]:
            gap = at - before
            if 16 <= gap < EDGES[-1]:
                gaps[next(number for number in range(40) if gap < EDGES[number + 1])] += 1
        last.setdefault(word, []).append(at)
    rates = []
    for number, gap in enumerate(gaps):
        middle = (EDGES[number] + EDGES[number + 1]) / 2
        if middle > 0.6 * len(words):
            break
        rates.append(gap / (EDGES[number + 1] - EDGES[number]) / max(len(words) - middle, 1))
    most = 0.0
    for first in range(6, len(rates) - 5):
        here, there = sum(rates[first - 1 : first + 2]), sum(rates[first + 3 : first + 6])
        if sum(gaps[first : first + 5]) >= FEWEST and here and there:
            most = max(most, math.log(there / here))
    return most


@st.composite
def documents(draw):
    """Words of one text, of several that were joined, or of two that alternate; some passages are repeated."""
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    size, turn = draw(st.sampled_from([0, 3, 200, 3_000])), draw(st.sampled_from([40, 150, 5_000]))
    words = []
    while len(words) < size:
        topic = chance.randrange(3)
        words += [f"w{topic if chance.random() < 0.7 else ''}x{int(chance.expovariate(0.05))}" for _ in range(turn)]
        if chance.random() < 0.3:
            words += words[:30]
    return words[:size]


@given(
    texts=st.lists(documents(), min_size=1, max_size=4),
    counted=st.integers(0, 2),
    window=st.sampled_from([5, 60]),
    near=st.sampled_from([1, 4]),
)
def test_measures_equal_plain_python(texts, counted, window, near, tmp_path_factory):
    others = [" ".join(f"w{number % 3}x{number}" for number in range(60)), "w0x1 wx1 wx2", "w0x1 wx1"]
    learnt = [*others, *counted * [" ".join(texts[0])]]
    path = tmp_path_factory.mktemp("words") / "words.parquet"
    stage = STAGE(statistics=str(path), window=window, near=near)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "PIECE", 100)
        found = lc.long.count_words([pa.table({"text": learnt})])
        found.save(path)
        measured = stage.measures(pa.array([" ".join(words) for words in texts], pa.large_string())).to_pylist()
    counts = dict(zip(found.words.tolist(), found.counts.tolist(), strict=True))
    for words, row in zip(texts, measured, strict=True):
        if len(words) < 12 * window:
            assert row is None
            continue
        units = hashed(words)
        repeated = plain_repeated(units)
        own = [set(units[at : at + 100]) for at in range(0, len(units), 100)]
        own *= counted * (words == texts[0]) * (len(words) > 100)

        def share(word, own=own):
            there = counts.get(word, 0) - sum(word in piece for piece in own)
            return (max(there, 0) + 0.3) / (found.pieces - len(own) + 1)

        far = plain_far_words(units, repeated, share, found.length, window, near)
        between, again = plain_interleaving(units, repeated, share), sum(repeated) / len(units)
        expected = {"far_words": far, "interleaving": between, "repetition": again}
        expected["score"] = far * math.sqrt(1 - again) * math.exp(-3 * between)
        assert row == pytest.approx(expected, abs=1e-9)


@given(
    texts=st.lists(st.lists(st.sampled_from(["a", "b", "cé", "Ünd", "双城"]), max_size=12).map(" ".join), min_size=1),
    cut=st.integers(0, 5),
)
def test_statistics_equal_plain_python_in_any_order_and_batches(texts, cut):
    words = [hashed([text]) for text in texts]
    table = pa.table({"text": texts})
    if not any(words):
        with pytest.raises(StageError, match=r"^count_words needs documents with words to learn from"):
            lc.long.count_words([table])
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "PIECE", 4)
        found = lc.long.count_words([table])
        other = lc.long.count_words([table.slice(cut), table.slice(0, cut)])
    pieces = [set(each[at : at + 4]) for each in words for at in range(0, len(each), 4)]
    counts = {word: sum(word in piece for piece in pieces) for word in set().union(*pieces)}
    assert dict(zip(found.words.tolist(), found.counts.tolist(), strict=True)) == {
        word: count for word, count in counts.items() if count > 1
    }
    assert (found.pieces, found.length) == (len(pieces), sum(map(len, words)) / len(pieces))
    assert np.array_equal(found.words, other.words)
    assert np.array_equal(found.counts, other.counts)


def test_only_the_words_of_most_pieces_are_kept(monkeypatch):
    monkeypatch.setattr(lexical, "MOST_WORDS", 1)
    found = lc.long.count_words([pa.table({"text": ["a b", "a b", "b"]})])
    assert (found.words.tolist(), found.counts.tolist()) == (hashed(["b"]), [3])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "is missing|cannot be read"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "cannot be read"),
        (
            lambda file: pq.write_table(pa.table({"text": ["a"]}), file),
            "has no word statistics, only the columns",
        ),
    ],
)
def test_statistics_that_cannot_be_read_are_one_sentence(tmp_path, damage, message):
    file = tmp_path / "words.parquet"
    lc.long.count_words([pa.table({"text": ["a b", "a b"]})]).save(file)
    damage(file)
    with pytest.raises(StageError, match=rf"words\.parquet.*({message})|({message}).*words\.parquet"):
        lc.Crawl(Dataset.from_dict({"id": ["a"], "text": ["b"]})) | STAGE(statistics=str(file))


def corpus():
    """Return long texts whose names return, and as long ones of many short texts, each with names of its own."""
    chance = random.Random(0)

    def text(names, size):
        return [
            f"name{names}n{chance.randrange(400)}" if chance.random() < 0.2 else f"word{int(chance.expovariate(0.01))}"
            for _ in range(size)
        ]

    one = [text(number, 4_000) for number in range(6)]
    joined = [[word for part in range(20) for word in text(100 + 20 * number + part, 200)] for number in range(6)]
    short = [text(1_000 + number, 200) for number in range(60)]
    rows = [(f"one-{number}", words) for number, words in enumerate(one)]
    rows += [(f"joined-{number}", words) for number, words in enumerate(joined)]
    rows += [(f"short-{number}", words) for number, words in enumerate(short)]
    chance.shuffle(rows)
    return [{"id": name, "text": " ".join(words)} for name, words in rows]


@pytest.mark.slow
def test_names_that_return_tell_one_text_from_many():
    stage = STAGE(train_documents=None)
    crawl = lc.Crawl(Dataset.from_list(corpus())) | stage
    scores = {row["id"]: row["long_range"]["score"] for row in crawl.data if row["long_range"] is not None}
    kinds = {kind: [score for name, score in scores.items() if name.startswith(kind)] for kind in ("one", "joined")}
    assert {kind: len(found) for kind, found in kinds.items()} == {"one": 6, "joined": 6}
    assert min(kinds["one"]) > 2 * max(kinds["joined"])
    between = (min(kinds["one"]) + max(kinds["joined"])) / 2
    kept = lc.Crawl(Dataset.from_list(corpus())) | STAGE(train_documents=None, min_score=between)
    assert {re.sub(r"-\d+", "", name) for name in kept.data["id"]} == {"one", "short"}
    assert "min_score" in str(kept.why("joined-0"))
    long = lc.Crawl(Dataset.from_list(corpus())) | STAGE(train_documents=None, min_score=between, short="drop")
    assert sorted(long.data["id"]) == [f"one-{number}" for number in range(6)]


@pytest.mark.variants
@pytest.mark.parametrize(("num_proc", "sample"), [(1, None), (2, 30)])
def test_a_run_learns_what_a_crawl_learns(tmp_path, num_proc, sample):
    for part in range(3):
        rows = corpus()[part::3]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stages = [{"lexical_dependency": {"min_score": 0.1, "train_documents": sample}}]
    spec = {"longcrawl": 1, "name": "it", "stages": stages, "outputs": {"parquet": {}}}
    spec["source"] = {"builder": "text", "id_field": "id", "data_dir": str(tmp_path)}
    recipe = tmp_path / "it.yaml"
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "run", num_proc)
    kept = pq.read_table(sorted((tmp_path / "run/parquet").glob("*.parquet"))).to_pylist()
    crawl = lc.Crawl(Dataset.from_list(corpus())) | STAGE(min_score=0.1, train_documents=sample)
    assert {row["id"]: row["long_range"] for row in kept} == {row["id"]: row["long_range"] for row in crawl.data}
    assert 0 < len(kept) < len(corpus())


def test_statistics_that_were_changed_are_one_sentence(tmp_path):
    table = pa.table({"text": [" ".join(f"word{number % 40}" for number in range(3_000)), "word1 word2 word1"]})
    path, chance = tmp_path / "words.parquet", random.Random(0)
    lc.long.count_words([table]).save(path)
    whole, bare = path.read_bytes(), pq.read_table(path)
    about = bare.schema.metadata
    read = lexical.read_statistics(str(path))
    assert len(read.words) == 40
    for _ in range(300):
        changed = bytearray(whole)
        changed[chance.randrange(4, len(whole) - 4)] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            assert lexical.read_statistics.__wrapped__(str(path)).digest == read.digest  # not the cached ones
        except StageError as wrong:
            assert "write it again with lc.long.count_words" in str(wrong)  # noqa: PT017  # either is right
    for other in (
        bare.replace_schema_metadata(about | {b"pieces": b"many"}),
        bare.replace_schema_metadata(about | {b"documents": b"odd"}),
        bare.replace_schema_metadata({name: about[name] for name in about if name != b"sha256"}),
        pa.table({"text": ["a"]}),
    ):
        pq.write_table(other, path)
        with pytest.raises(StageError, match=r"words\.parquet .*: write it again with lc\.long\.count_words"):
            lc.long.LexicalDependency(statistics=str(path)).prepare()


def test_nothing_to_learn_from_is_one_sentence():
    with pytest.raises(StageError, match=r"^lexical_dependency needs documents with words to learn from"):
        lc.Crawl({"id": ["a"], "text": ["short"]}) | lc.text.MinChars(99) | STAGE()


def test_settings_that_cannot_be_are_one_sentence():
    for name in ("window", "near", "train_documents"):
        with pytest.raises(StageError, match=rf"^lexical_dependency\.{name} is 0: set it to 1 or more$"):
            STAGE(**{name: 0})
    with pytest.raises(StageError, match=r"^lexical_dependency has no statistics yet: call stage\.fit"):
        STAGE().measures(pa.array(["a"], pa.large_string()))
