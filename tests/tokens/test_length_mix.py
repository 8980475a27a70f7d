"""Mixes of long and short documents: the share of tokens against every other choice, policies, and runs."""

import json
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.kernels.keyed_hash import keyed_hash

MIX = lc.tokens.LengthMix
LONG = 10


def documents(lengths):
    ids = [f"d{number}" for number in range(len(lengths))]
    return pa.table({"id": ids, "tokens": pa.array([[0] * length for length in lengths], pa.list_(pa.uint16()))})


def kept_of(stage, tables):
    fitted = stage.fit(tables, "")
    outcomes = [fitted.apply(table) for table in tables]
    kept = {row["id"] for each in outcomes for row in each.documents.to_pylist()}
    return kept, {row["id"]: row["rule"] for each in outcomes for row in each.removed.to_pylist()}


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    share=st.integers(1, 99),
    policy=st.sampled_from(["error", "keep", "cut"]),
    seed=st.integers(0, 3),
    chance=st.randoms(),
)
def test_the_share_is_the_nearest_that_a_prefix_of_hashes_has(lengths, share, policy, seed, chance):
    stage = MIX(long_tokens=LONG, long_share=share / 100, on_few_short=policy, seed=seed)
    table = documents(lengths)
    lengths = [length + (length > 0) for length in lengths]  # with the end of text
    shuffled = table.take(chance.sample(range(len(lengths)), len(lengths)))
    cut = chance.randint(0, len(lengths))
    tables = [shuffled[:cut], shuffled[cut:]]
    long, short = sum(each for each in lengths if each >= LONG), sum(each for each in lengths if each < LONG)
    if not long:
        with pytest.raises(StageError, match="^length_mix found no document of 10 tokens or more: lower long_tokens"):
            stage.fit(tables, "")
        return
    wanted = long * (1 - share / 100) / (share / 100)
    is_few = short < wanted
    if is_few and policy == "error":
        with pytest.raises(
            StageError, match=f"^length_mix needs .* for {long} of long ones, but there are {short}: add"
        ):
            stage.fit(tables, "")
        return
    kept, removed = kept_of(stage, tables)
    assert (kept, removed) == kept_of(stage, [table])
    ranked = dict(zip(table["id"].to_pylist(), keyed_hash(table["id"].to_pylist(), "length_mix", seed), strict=True))
    sides = {side: [] for side in ("long", "short")}
    for name, length in sorted(zip(ranked, lengths, strict=True), key=lambda pair: ranked[pair[0]]):
        sides["long" if length >= LONG else "short"].append((name, length))
    kept_long, kept_short = ([length for name, length in sides[side] if name in kept] for side in ("long", "short"))
    for side, own in (("long", kept_long), ("short", kept_short)):
        assert [name in kept for name, _ in sides[side]] == [at < len(own) for at in range(len(sides[side]))]
        assert {removed[name] for name, _ in sides[side][len(own) :]} <= {f"surplus_{side}"}
    assert len(kept) + len(removed) == len(lengths)
    if not (is_few and policy == "cut"):
        assert len(kept_long) == len(sides["long"])
    elif sum(kept_long) * (1 - share / 100) / (share / 100) > short:
        assert len(kept_long) == 1
    prefixes = [0, *accumulate(length for _, length in sides["short"])]
    wanted = sum(kept_long) * (1 - share / 100) / (share / 100)
    assert abs(sum(kept_short) - wanted) == pytest.approx(min(abs(each - wanted) for each in prefixes))


def test_a_mix_needs_its_fit_and_a_share():
    with pytest.raises(StageError, match="^length_mix has not counted the tokens yet: call stage.fit"):
        MIX().judge(documents([1]))
    with pytest.raises(StageError, match="^length_mix.long_share is 1: set it above 0 and below 1$"):
        MIX(long_share=1)


def test_the_error_names_a_share_that_works():
    table = documents([99, *[2] * 11])
    with pytest.raises(StageError, match=r"raise long_share to (0\.752), or set on_few_short"):
        MIX(long_tokens=LONG).fit([table], "")
    kept, removed = kept_of(MIX(long_tokens=LONG, long_share=0.752), [table])
    assert (len(kept), removed) == (12, {})


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "texts").mkdir()
    for part in range(4):
        lengths = [1_500 + 700 * part, 3_000 * part + 800, *range(20 + part, 320, 5)]
        rows = [{"id": f"{part}-{length}", "text": "tide and sand " * (length // 3)} for length in lengths]
        (tmp_path / "texts" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {"longcrawl": 1, "name": "it", "source": {"builder": "text", "data_dir": str(tmp_path / "texts")}}
    stages = [{"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}]
    stages += [{"length_mix": {"long_tokens": 1_024, "long_share": 0.6}}, "shuffle"]
    file = tmp_path / "it.yaml"
    file.write_text(yaml.safe_dump(spec | {"stages": stages, "outputs": {"composed": {"capacities": [512, 4_096]}}}))
    return file


@pytest.mark.slow
def test_a_run_has_the_share_on_its_card_with_any_number_of_processes(recipe, tmp_path, directory_digest):
    lc.run(recipe, tmp_path / "one")
    lc.run(recipe, tmp_path / "two", 2)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "two")
    found = pq.read_table(tmp_path / "one" / "composed" / "documents")
    lengths = found["n_tokens"].to_numpy()
    long = lengths[lengths >= 1_024].sum()
    shortest = lengths.sum() - long
    assert abs(shortest - long * 0.4 / 0.6) <= 1_024 / 2
    share, sides, left_out = json.loads((tmp_path / "one/manifest.json").read_text())["reports"]["length_mix"]
    assert share.startswith(f"{long / lengths.sum():.4%} of the tokens are in documents of 1,024 tokens or more, 60% ")
    assert f"{(lengths >= 1_024).sum()} documents with {long:,} tokens on the long side" in share
    assert "1,024 to 2,047 tokens: " in sides
    assert "removed to reach the share: 0 documents with 0 tokens of the long side" in left_out
    assert share in (tmp_path / "one/README.md").read_text()


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bytes(recipe, tmp_path, monkeypatch, directory_digest):
    lc.run(recipe, tmp_path / "whole")
    fit = MIX.fit_measures

    def stop(self, measures, directory):
        fit(self, measures, directory)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MIX, "fit_measures", stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, tmp_path / "out")
    lc.run(recipe, tmp_path / "out")
    assert directory_digest(tmp_path / "out") == directory_digest(tmp_path / "whole")
