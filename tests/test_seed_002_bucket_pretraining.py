"""H. Liu et al., "Bucket Pre-training is All You Need" (2024), sentence by sentence: algorithm and metrics.

Each test bears the sentence that it tests. The paper does not publish its lengths; those here are drawn from the
distribution that benchmarks/buckets.py fits to its Fixed rows. Two claims do not hold by its own definitions, and their
tests say so.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

import longcrawl as lc
from longcrawl.loading.buckets import plan_schedule
from longcrawl.loading.curriculum import BucketStock
from longcrawl.publish.compose import read_lengths
from longcrawl.tokens import Buckets, FixedLength, MultiBucket, Plan, measure

SIZES = (2048, 4096, 8192, 16384)
FIXED = {2048: (28.39, 2.85), 4096: (15.65, 5.70), 8192: (8.26, 11.39), 16384: (4.25, 22.74)}
"""Table 1: r_tru in percent and r_cat of the Fixed rows."""


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    """Draw 200,000 lengths: lognormal up to 935 tokens, a Pareto tail from there on."""
    chance = np.random.Generator(np.random.PCG64(1))
    drawn = np.exp(chance.normal(5.8584, 1.3956, 200_000))
    beyond = drawn > 935
    drawn[beyond] = 935 * chance.random(beyond.sum()) ** (-1 / 1.8419)
    return np.clip(drawn, 1, 2_000_000).astype(np.int64)


@pytest.fixture(scope="module")
def table(lengths) -> dict:
    strategies = [*map(FixedLength, SIZES), MultiBucket(SIZES), Buckets(SIZES)]
    return {each.label: measure(each.plan(lengths), each.label, each.capacities) for each in strategies}


def sample_sizes(plan: Plan) -> list[tuple[int, list[int]]]:
    """Return capacity and the sizes of its pieces of every sample."""
    return [
        (int(capacity), plan.sizes[low:high].tolist())
        for capacity, low, high in zip(plan.capacities, plan.bounds, plan.bounds[1:], strict=False)
    ]


# Section 1, "Introduction".


def test_all_data_are_randomly_concatenated_and_split_by_a_fixed_length(lengths):
    """All data are randomly concatenated, and then split according to fixed lengths: each input has a fixed length."""
    plan = FixedLength(2048).plan(lengths)
    assert set(plan.capacities.tolist()) == {2048}
    assert (plan.tokens[:-1] == 2048).all()
    first = plan.documents[plan.starts == 0]
    assert sorted(first.tolist()) == list(range(len(lengths)))
    assert abs(np.corrcoef(np.arange(len(first)), first)[0, 1]) < 0.01


def test_most_documents_fall_within_2k_tokens(lengths, table):
    """Figure 1: most are within 2k; fixed lengths of 4096 or longer need concatenating many short documents to fill."""
    within = lengths <= 2048
    assert within.mean() > 0.9
    for size in SIZES[1:]:
        plan = FixedLength(size).plan(lengths)
        short = np.bincount(np.repeat(np.arange(len(plan)), np.diff(plan.bounds)), within[plan.documents])
        assert np.median(short) >= size // 1024
        assert table[f"Fixed-{size}"].r_cat > size / 1024


@pytest.mark.slow
def test_most_of_our_documents_fall_within_2k_tokens(real_data):
    """Figure 1, on documents of ours: a significant majority are relatively short, most within 2k."""
    assert (read_lengths(f"{real_data}/*.jsonl.zst").tokens <= 2048).mean() > 0.5


def test_long_texts_must_be_split_into_multiple_segments():
    """Additionally, long texts must be split into multiple segments."""
    plan = FixedLength(2048).plan([10_000])
    assert sample_sizes(plan) == [(2048, [2048])] * 4 + [(2048, [1808])]


# Section 2, "Preliminary": equations 1 to 3.


def three_samples() -> Plan:
    """Two documents of 6 tokens, the second of them cut, in samples of 8, 4 and 4."""
    return Plan(
        np.array([6, 6]), np.array([8, 4, 4]), np.array([0, 1, 2, 3]),
        np.array([0, 1, 1]), np.array([0, 0, 4]), np.array([6, 4, 2]),
    )  # fmt: skip


def test_padding_ratio_is_the_proportion_of_padding_tokens():
    """Padding ratio: indicates the proportion of the padding token in the processed training data (equation 1)."""
    assert measure(three_samples()).r_pad == (2 + 0 + 2) / (8 + 4 + 4)


def test_truncation_ratio_is_the_share_of_original_documents_that_are_split():
    """Truncation ratio: the ratio of the original training data to be split; J(i) is 1 if it is (equation 2)."""
    assert measure(three_samples()).r_tru == 1 / 2
    assert measure(FixedLength(2).plan([100, 2])).r_tru == 1 / 2


def test_concatenation_ratio_is_documents_per_sample():
    """r_cat = M / C: the number of original documents / the number of training samples (equation 3)."""
    assert measure(three_samples()).r_cat == 2 / 3
    assert measure(three_samples()).pieces_per_sample == 3 / 3


# Section 3, "Method": Algorithm 1.


def test_four_kinds_of_buckets():
    """Predefine the bucket sets with different capacity, e.g. four kinds of buckets of 2048, 4096, 8192, 16384."""
    assert Buckets().capacities == SIZES
    assert Buckets([100, 300]).capacities == (100, 300)


def test_documents_come_in_descending_order_of_length():
    """The proposed method first sorts the input documents in descending order of length (line 1)."""
    plan = Buckets([10], 1, order="planned").plan([6, 9, 7, 10])
    assert plan.lengths[plan.documents].tolist() == [10, 9, 7, 6]
    given = Buckets([10], 1, order="planned").plan([10, 9, 7, 6])
    assert sample_sizes(given) == sample_sizes(plan)


@pytest.mark.parametrize(("length", "bucket"), [(1, 10), (10, 10), (11, 20), (20, 20), (21, 40), (40, 40), (41, 40)])
def test_a_bucket_is_selected_to_fit_the_longest_remaining_document(length, bucket):
    """It then iteratively selects a bucket to fit the longest remaining document (line 3)."""
    assert Buckets([10, 20, 40]).plan_pool([length]).capacities[0] == bucket


def test_documents_are_added_until_the_bucket_is_full_or_none_fits():
    """Documents are added to the current bucket until it's full or no remaining document fits (lines 4 to 6)."""
    plan = Buckets([100], 1, order="planned").plan([60, 50, 30, 25, 10])
    assert sample_sizes(plan) == [(100, [60, 30, 10]), (100, [50, 25])]


def test_a_document_longer_than_its_bucket_is_cut_and_the_rest_goes_back():
    """Add d[0:b] to the bucket; d = d[b:] (lines 7 to 9)."""
    plan = Buckets([10], 1, order="planned").plan([25, 5])
    assert sample_sizes(plan) == [(10, [10]), (10, [10]), (10, [5, 5])]
    assert plan.starts[plan.documents == 0].tolist() == [0, 10, 20]


def test_remaining_space_is_filled_with_a_chunk_of_the_shortest_document():
    """The algorithm prioritizes filling it with a chunk of the shortest document to minimize padding (line 14)."""
    filled, padded = (Buckets([10], threshold, order="planned").plan([8, 7, 7, 4]) for threshold in (0, 1))
    assert sample_sizes(filled) == [(10, [8, 2]), (10, [7, 2, 1]), (10, [6])]
    assert (filled.documents[1], filled.starts[1]) == (3, 0)
    assert [measure(plan).r_pad for plan in (filled, padded)] == [4 / 30, 14 / 40]


@pytest.mark.parametrize(("gap", "padding"), [(4, 0), (5, 0), (3, 3)])
def test_padding_only_according_to_the_predefined_padding_ratio(gap, padding):
    """Only resorting to padding tokens if necessary according to the predefined padding ratio (lines 13 and 17)."""
    plan = Buckets([100], 0.03).plan_pool([100 - gap, 60, 60])
    assert plan.capacities[0] - plan.tokens[0] == padding


def test_remaining_space_is_the_capacity_that_is_not_used():
    """Line 12 gives the space used by its formula; its comment, "remaining space", is what can be filled."""
    plan = Buckets([100], 0.05).plan_pool([70, 50, 50])
    assert plan.sizes[:2].tolist() == [70, 30]


@pytest.mark.parametrize("planner", ["algorithm-1", "exact-fill"])
def test_empty_documents_are_removed(planner):
    """Line 20: a document of which nothing is left goes, whether it filled buckets to the last token or came empty."""
    plan = Buckets([10, 20], 1, planner=planner).plan_pool([0, 60, 0, 10, 0])
    assert sample_sizes(plan) == [(20, [20])] * 3 + [(10, [10])]
    assert plan.documents.tolist() == [1, 1, 1, 3]
    assert len(Buckets([10, 20], planner=planner).plan_pool([0, 0])) == 0


def test_the_process_repeats_until_all_documents_are_assigned(lengths):
    """This process repeats until all documents are assigned to buckets."""
    plan = Buckets().plan(lengths)
    assert np.array_equal(np.bincount(plan.documents, plan.sizes, len(lengths)), lengths)
    assert measure(plan).dropped == 0


def test_truncation_is_minimized(table):
    """Its ability to minimize truncation through a greedy strategy: only what is longer than every bucket is cut."""
    assert table["Buckets"].r_tru == table["Buckets"].r_tru_floor


def test_long_and_short_texts_are_modelled_simultaneously(table):
    """The use of multiple buckets allows for effective modeling of both long and short texts simultaneously."""
    assert all(bucket.samples > 1000 for bucket in table["Buckets"].buckets)


# Section 4.1, "Bucket Data Performance".


@pytest.mark.parametrize("size", SIZES)
def test_fixed_length_rows_of_table_1(table, size):
    """Fixed-2048, Fixed-4096, Fixed-8192, and Fixed-16384: these rows were fitted, so this tests the baseline."""
    row, (truncated, concatenated) = table[f"Fixed-{size}"], FIXED[size]
    assert 100 * row.r_tru == pytest.approx(truncated, rel=0.02)
    assert row.r_cat == pytest.approx(concatenated, rel=0.02)
    assert 100 * row.r_pad < 0.1


def test_documents_go_to_the_multi_bucket_of_their_length():
    """Documents shorter than 2048 go into the 2048 bucket, between 2048 and 4096 into the 4096 bucket, and so on."""
    given = [2000, 2048, 3000, 4096, 5000, 8192, 10_000, 16_384, 20_000]
    plan = MultiBucket().plan(given)
    for capacity, low, high in zip(plan.capacities, plan.bounds, plan.bounds[1:], strict=False):
        for document in plan.documents[low:high]:
            assert given[document] <= capacity or capacity == 16_384
            assert given[document] > capacity / 2 or capacity == 2048


def test_multi_bucket_row_of_table_1(table):
    """Multi-Bucket: 26.8 % and 3.78; nothing was fitted to this row."""
    assert 100 * table["Multi-Bucket"].r_tru == pytest.approx(26.8, rel=0.03)
    assert table["Multi-Bucket"].r_cat == pytest.approx(3.78, rel=0.03)


def test_truncation_is_far_below_fixed_length_and_multi_bucket(table):
    """A remarkably low truncation ratio of 0.18 %, substantially outperforming Fixed Length and Multi-Bucket."""
    assert 100 * table["Buckets"].r_tru == pytest.approx(0.18, abs=0.06)
    assert all(row.r_tru > 20 * table["Buckets"].r_tru for row in table.values() if row.label != "Buckets")


def test_truncation_of_fixed_length_decreases_with_length(table):
    """The truncation ratio for Fixed Length decreases with increasing length."""
    ratios = [table[f"Fixed-{size}"].r_tru for size in SIZES]
    assert ratios == sorted(ratios, reverse=True)


def test_concatenation_of_2_31_contradicts_equation_3(table):
    """r_cat = 2.31: with buckets from 2048 on and documents of 719 tokens, equation 3 gives 2.84 or more."""
    mean = np.mean(
        [size * (1 - pad) / FIXED[size][1] for size, pad in zip(SIZES, (3e-4, 5e-4, 8e-4, 1e-3), strict=True)]
    )
    assert mean == pytest.approx(719, abs=0.5)
    assert 2048 * (1 - 0.0028) / mean == pytest.approx(2.84, abs=0.005)
    assert table["Buckets"].r_cat >= table["Buckets"].r_cat_floor > 2.8


def test_concatenation_is_lower_than_that_of_longer_samples_but_not_than_all(table, lengths):
    """Lower than all Fixed Length methods and Multi-Bucket: that takes samples shorter than Fixed-2048 has."""
    found = table["Buckets"].r_cat
    assert found < table["Fixed-4096"].r_cat < table["Fixed-8192"].r_cat < table["Fixed-16384"].r_cat
    assert table["Fixed-2048"].r_cat < table["Multi-Bucket"].r_cat < found
    assert measure(Buckets((256, 512, 1024, *SIZES)).plan(lengths)).r_cat < 2.31


def test_padding_is_marginal_and_higher_than_of_fixed_length(table, lengths):
    """The padding ratio of our method is slightly higher: 0.28 %; pools of 700 documents give about that."""
    assert table["Fixed-2048"].r_pad < table["Buckets"].r_pad < 0.0028
    small = measure(Buckets(pool_size=700).plan(lengths))
    assert 100 * small.r_pad == pytest.approx(0.28, abs=0.08)
    assert small.r_tru == table["Buckets"].r_tru


# Section 4.2, "Training Performance": what of Table 2 is composition.


def test_the_majority_of_data_falls_into_the_2048_bucket(table):
    """The majority of data (74.61 %) falls into the 2048 bucket; as length increases, the data ratio decreases."""
    found = table["Buckets"]
    shares = [bucket.samples / found.samples for bucket in found.buckets]
    assert shares == sorted(shares, reverse=True)
    assert shares == pytest.approx([0.7461, 0.1752, 0.0537, 0.0249], abs=0.07)


def test_a_greedy_plan_may_not_be_the_optimum(lengths):
    """The greedy nature may not yield the absolute optimal solution (section 6): exact-fill pads less, cutting none."""
    web = lengths[lengths >= 32]
    greedy, exact = (measure(Buckets(planner=planner).plan(web)) for planner in ("algorithm-1", "exact-fill"))
    assert exact.r_pad < greedy.r_pad
    assert exact.r_tru == greedy.r_tru


# What is written: section 3, Algorithm 1 and section 4.1.

PAD = 1


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write documents of few and of many tokens into four buckets; give them and the folder."""
    chance = np.random.Generator(np.random.PCG64(2))
    sizes = np.minimum(np.exp(chance.normal(3.4, 1.2, 600)).astype(int) + 1, 900)
    documents = [chance.integers(2, 60_000, size).tolist() for size in sizes]
    table = pa.table({"id": [str(n) for n in range(600)], "tokens": pa.array(documents, pa.list_(pa.uint16()))})
    folder = tmp_path_factory.mktemp("composed") / "out"
    crawl = lc.Crawl(Dataset(table))
    crawl.to_composed(folder, capacities=[64, 128, 256, 512], padding_threshold=0.05, end_of_text=PAD)
    return [[*tokens, PAD] for tokens in documents], folder


def pieces_of(folder) -> list[dict]:
    return pq.read_table(sorted((folder / "pieces").rglob("*.parquet"))).to_pylist()


def test_each_of_the_samples_of_a_bucket_has_its_fixed_length(written):
    """We predefine four buckets with commonly used sequence lengths: 2048, 4096, 8192, and 16384."""
    buckets = lc.formats.open_composed(written[1]).buckets
    assert [each.capacity for each in buckets] == [64, 128, 256, 512]
    for bucket in buckets:
        assert bucket.read(range(len(bucket))).tokens.shape == (len(bucket), bucket.capacity)


def test_documents_are_split_with_a_special_token(written):
    """All data are concatenated, and then split (with a special token): a piece that ends a document ends with it."""
    documents, folder = written
    composed, place = lc.formats.open_composed(folder), {}
    for row in pieces_of(folder):
        here = (row["bucket"], row["sample"])
        place[here] = place.get(here, 0) + row["length"]
        last = composed.bucket(row["bucket"]).read([row["sample"]]).tokens[0, place[here] - 1]
        assert row["tail"] == (row["start"] + row["length"] == len(documents[row["document"]]))
        assert (last == PAD) == row["tail"]


def test_the_integrity_of_the_original_data_is_preserved(written):
    """Preserving the integrity of the original data: what fits into a bucket is whole, unless it fills a gap."""
    documents, folder = written
    cut = {row["id"] for row in pieces_of(folder) if not (row["head"] and row["tail"])}
    long = {str(number) for number, tokens in enumerate(documents) if len(tokens) > 512}
    assert long <= cut
    told = lc.formats.open_composed(folder).described["splits"]["train"]
    assert told["r_tru"] == len(cut) / 600
    assert len(cut - long) <= 2


def test_line_17_appends_padding_tokens_to_the_bucket(written):
    """Line 17: add [pad_id] x r to bucket. It is the end-of-text token here, and no loss is due on it."""
    for bucket in lc.formats.open_composed(written[1]).buckets:
        samples = bucket.read(range(len(bucket)))
        for tokens, mask, sizes in zip(samples.tokens, samples.loss_mask, samples.piece_sizes, strict=True):
            assert (tokens[sizes.sum() :] == PAD).all()
            assert mask.tolist() == [True] * int(sizes.sum()) + [False] * int(bucket.capacity - sizes.sum())


def test_lines_14_and_15_leave_the_rest_of_a_document_for_another_sample(written):
    """Lines 14 and 15: D[-1][0:r] is added to the bucket, and D[-1][r:] is what is left of the document."""
    documents, folder = written
    tokens = [np.full(len(each), -1) for each in documents]
    composed, place = lc.formats.open_composed(folder), {}
    for row in pieces_of(folder):
        here = (row["bucket"], row["sample"])
        sample, first = composed.bucket(row["bucket"]).read([row["sample"]]).tokens[0], place.get(here, 0)
        place[here] = first + row["length"]
        assert (tokens[row["document"]][row["start"] : row["start"] + row["length"]] == -1).all()
        tokens[row["document"]][row["start"] : row["start"] + row["length"]] = sample[first : place[here]]
    assert all(found.tolist() == wanted for found, wanted in zip(tokens, documents, strict=True))


# The feed: section 4.2, "Training Performance".


def paper_stock(samples: int) -> list[BucketStock]:
    """Return four buckets with the data ratios of table 2."""
    return [
        BucketStock("", size, int(samples * share))
        for size, share in zip(SIZES, (0.7461, 0.1752, 0.0537, 0.0249), strict=True)
    ]


def test_all_ranks_of_a_step_are_within_the_same_bucket(written):
    """A bucket sampling algorithm to ensure that data across all GPUs of the same step resides within one bucket."""
    composed = lc.formats.open_composed(written[1])
    feeds = [lc.loading.ComposedBatches(composed, 1024, rank=rank, world_size=2) for rank in range(2)]
    capacities = set()
    for batches in zip(*feeds, strict=True):
        shapes = {batch["input_ids"].shape for batch in batches}
        assert len(shapes) == 1
        rows, capacity = shapes.pop()
        assert rows * capacity * 2 == 1024
        capacities.add(capacity)
    assert capacities == {64, 128, 256, 512}


@pytest.mark.parametrize(("size", "batch"), [(2048, 24), (4096, 12), (8192, 6), (16384, 3)])
def test_all_buckets_have_the_same_global_batch_of_6_million_tokens(size, batch):
    """All buckets maintain a consistent global batch size: 2048 * 24 samples * 16 nodes * 8 GPUs (table 2)."""
    tokens = 2048 * 24 * 16 * 8
    plan = plan_schedule(paper_stock(400_000), tokens, "mixed", "drop", 0)
    step = plan.capacities.tolist().index(size)
    capacity, picks, _ = plan.step(step)
    assert (capacity, len(picks) / (16 * 8)) == (size, batch)
    assert {plan.samples.names[pick] for pick in picks} == {str(size)}


def test_long_and_short_context_lengths_are_trained_simultaneously():
    """Efficient and effective training dynamics for both long and short context length simultaneously."""
    plan = plan_schedule(paper_stock(400_000), 2048 * 24 * 16 * 8, "mixed", "drop", 0)
    quarters = np.array_split(plan.capacities, 4)
    assert all(set(quarter.tolist()) == set(SIZES) for quarter in quarters)
