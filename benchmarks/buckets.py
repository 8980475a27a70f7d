"""Bucket composition: planning speed, the tables of the paper from lengths fitted to it, and the trade-offs of fields.

    python benchmarks/buckets.py [--documents 1000000] [--data 'FOLDER/*.jsonl.zst'] [--peers-python PEERS/bin/python]

The paper, "Bucket Pre-training is All You Need", does not publish its lengths, but its Fixed rows say much of them. Cut
every N tokens, a document of L tokens is cut with probability min(L, N) / N, so r_tru is E[min(L, N)] / N, and r_cat is
N (1 - r_pad) / E[L]. A lognormal with a Pareto tail is fitted to these eight numbers. Its draws give Tables 1 and 2,
printed beside the paper's; Multi-Bucket and the method were not fitted. Then follow what P, pools, planners and smaller
buckets do on the same draws, the table of ``lc.compose``, and that of --data.

Speed: --documents documents are planned in one process, the best of --repeats, CPU time, after one warm-up; then 10,000
by Algorithm 1 spelled out line by line on a list, and both plans are asserted equal. PEERS is an environment with what
peers/trl.txt lists: TRL's best-fit packing ("bfd_split") of 20,000 documents in one batch, tokens moved, against ours
with the tokens gathered. The last line is seconds of the literal algorithm / ours.
"""

import argparse
import json
import subprocess
import tempfile
import time
from bisect import insort
from dataclasses import replace
from pathlib import Path

import numpy as np
from _measures import best

import longcrawl as lc

SIZES = np.array([2048, 4096, 8192, 16384])
PAPER = {
    "Fixed-2048": (0.03, 28.39, 2.85),
    "Fixed-4096": (0.05, 15.65, 5.70),
    "Fixed-8192": (0.08, 8.26, 11.39),
    "Fixed-16384": (0.1, 4.25, 22.74),
    "Multi-Bucket": (0.07, 26.8, 3.78),
    "Buckets": (0.28, 0.18, 2.31),
}
"""Table 1: r_pad and r_tru in percent, r_cat."""
PAPER_SHARES = (74.61, 17.52, 5.37, 2.49)
"""Table 2: "data ratio" of each bucket in percent."""
LONGEST = 2_000_000
"""Draws are cut here: the tail has a mean but no variance."""


def survival(parameters, x: np.ndarray) -> np.ndarray:
    """Return the share of documents longer than x: lognormal up to a point, Pareto from there on."""
    from scipy.stats import norm

    mu, sigma, log_join, exponent = parameters
    body = norm.sf((np.log(np.maximum(x, 1e-9)) - mu) / sigma)
    at_join = norm.sf((log_join - mu) / sigma)
    return np.where(x <= np.exp(log_join), body, at_join * (np.maximum(x, 1e-9) / np.exp(log_join)) ** -exponent)


def fit() -> tuple[np.ndarray, float]:
    """Fit the Fixed rows of Table 1; give the four parameters and the mean length."""
    from scipy.optimize import least_squares

    rows = np.array([PAPER[f"Fixed-{size}"] for size in SIZES])
    mean = (SIZES * (1 - rows[:, 0] / 100) / rows[:, 2]).mean()
    grid = np.concatenate([np.arange(0, 70_000, 4), np.geomspace(70_000, 1e8, 20_000)])

    def errors(parameters):
        shares = survival(parameters, grid)
        areas = np.concatenate([[0], np.cumsum((shares[1:] + shares[:-1]) / 2 * np.diff(grid))])
        shorter = np.interp(SIZES, grid, areas) / SIZES
        return np.append(shorter / (rows[:, 1] / 100) - 1, areas[-1] / mean - 1)

    return least_squares(errors, [5.8, 1.1, 7.5, 1.8]).x, mean


def draw(parameters: np.ndarray, documents: int) -> np.ndarray:
    """Return lengths of this distribution."""
    from scipy.stats import norm

    mu, sigma, log_join, exponent = parameters
    shares = np.random.default_rng(0).random(documents)
    at_join = norm.sf((log_join - mu) / sigma)
    body, tail = np.exp(mu + sigma * norm.isf(shares)), np.exp(log_join) * (shares / at_join) ** (-1 / exponent)
    return np.clip(np.where(shares > at_join, body, tail), 1, LONGEST).astype(np.int64)


def measured(strategy, lengths: np.ndarray):
    return lc.tokens.measure(strategy.plan(lengths), strategy.label, strategy.capacities)


def show_tables(lengths: np.ndarray, mean: float) -> None:
    sizes = tuple(SIZES.tolist())
    strategies = [*map(lc.tokens.FixedLength, sizes), lc.tokens.MultiBucket(sizes), lc.tokens.Buckets(sizes)]
    rows = [measured(strategy, lengths) for strategy in strategies]
    print("\nTable 1: r_pad %, r_tru %, r_cat; the paper's, and of the draws")
    for row in rows:
        paper = "{:6.2f} {:6.2f} {:6.2f}".format(*PAPER[row.label])
        print(f"{row.label:13} {paper}   {100 * row.r_pad:8.4f} {100 * row.r_tru:6.2f} {row.r_cat:6.2f}")
    found = rows[-1]
    print(f"r_tru cannot be below {100 * found.r_tru_floor:.3f} %, the documents longer than {sizes[-1]:,}")
    least = sizes[0] * (1 - PAPER["Buckets"][0] / 100) / mean
    print(f"r_cat of the paper's method cannot be below {sizes[0]} x (1 - 0.0028) / {mean:.1f} = {least:.2f}")
    share = np.array(PAPER_SHARES) / 100
    of_samples = (share * SIZES).sum() / share.sum() / mean
    of_tokens = share.sum() / (share / SIZES).sum() / mean
    print(f"Table 2 gives r_cat {of_samples:.2f} if its ratios are of samples, {of_tokens:.2f} if of tokens")
    print("\nTable 2: bucket, the paper's data ratio %; share of samples, of tokens, of documents % of the draws")
    for each, paper in zip(found.buckets, PAPER_SHARES, strict=True):
        shares = (each.samples / found.samples, each.tokens / found.placed_tokens, each.documents / found.documents)
        print(f"{each.capacity:6} {paper:6.2f}   " + " ".join(f"{100 * value:6.2f}" for value in shares))
    within = [each.documents / each.samples for each in found.buckets]
    print(f"documents per sample in each bucket: {' '.join(f'{value:.2f}' for value in within)}")


def line(name: str, strategy, lengths: np.ndarray) -> None:
    row = measured(strategy, lengths)
    values = f"r_pad {100 * row.r_pad:.4f} %  r_tru {100 * row.r_tru:.4f} %  (floor {100 * row.r_tru_floor:.4f})"
    print(f"{name:50} {values}  r_cat {row.r_cat:.3f}")


def show_thresholds(sets: dict[str, np.ndarray]) -> None:
    print("\nthe threshold P and the planners")
    for name, lengths in sets.items():
        for threshold in (0, 0.005, 0.05, 1):
            for planner in ("algorithm-1", "exact-fill"):
                chosen = lc.tokens.Buckets(padding_threshold=threshold, planner=planner)
                line(f"{name}, P = {threshold}, {planner}", chosen, lengths)


def show_fields(lengths: np.ndarray) -> None:
    usual = lc.tokens.Buckets()
    print("\npools")
    for size in (512, 1_000, 5_000, 100_000, 1_000_000):
        line(f"pools of {size:,}", replace(usual, pool_size=size), lengths)
    print("\nsmaller buckets")
    for capacities in ((256, 512, 1024, *SIZES.tolist()), (512, 1024, *SIZES.tolist())):
        line(f"buckets from {capacities[0]}", replace(usual, capacities=capacities), lengths)
    print("\nsamples of one pool as planned: documents in the first and in the last tenth of those of 2,048 tokens")
    plan = replace(usual, order="planned", pool_size=len(lengths)).plan(lengths)
    counts = np.diff(plan.bounds)[plan.capacities == 2048]
    tenth = len(counts) // 10
    print(f"{counts[:tenth].mean():.1f} and {counts[-tenth:].mean():.1f} on average, at most {counts.max()}")


def literal(lengths: list[int], capacities: list[int], threshold: float) -> list[tuple[int, list]]:
    """Do what Algorithm 1 says with a list of documents, as ``lc.tokens.Buckets`` reads it."""
    left = sorted([-length, 0, document, 0] for document, length in enumerate(lengths) if length)
    turn, samples = 0, []
    while left:
        capacity = next((each for each in capacities if -left[0][0] <= each), capacities[-1])
        space, pieces, kept, rest = capacity, [], [], None
        for entry in left:
            length = -entry[0]
            if space and length <= space:
                pieces.append((entry[2], entry[3], length))
                space -= length
            elif not pieces:
                pieces.append((entry[2], entry[3], space))
                turn -= 1
                rest, space = [space - length, turn, entry[2], entry[3] + space], 0
            else:
                kept.append(entry)
        left = kept
        if rest:
            insort(left, rest)
        if left and space / capacity > threshold:
            at = next(at for at, entry in enumerate(left) if entry[0] == left[-1][0])
            length, _, document, start = left.pop(at)
            pieces.append((document, start, space))
            turn -= 1
            insort(left, [length + space, turn, document, start + space])
        samples.append((capacity, pieces))
    return samples


def show_speed(lengths: np.ndarray, repeats: int) -> float:
    """Print what planning takes and give literal / ours for 10,000 documents."""
    usual = lc.tokens.Buckets()
    print("\nCPU seconds, ns per document")
    for count in (10_000, 100_000, len(lengths)):
        for name, strategy in (
            ("buckets", usual),
            ("buckets, not shuffled", replace(usual, order="planned")),
            ("buckets, one pool, not shuffled", replace(usual, order="planned", pool_size=len(lengths))),
            ("exact-fill, not shuffled", replace(usual, order="planned", planner="exact-fill")),
        ):
            some = lengths[:count]
            strategy.plan(some[:1000])
            taken = best(lambda strategy=strategy, some=some: strategy.plan(some), repeats)
            print(f"{count:9,} documents  {name:32} {taken:7.4f} s  {1e9 * taken / count:6.0f} ns")
    some = lengths[:10_000]
    started = time.process_time()
    expected = literal(some.tolist(), SIZES.tolist(), usual.padding_threshold)
    slow = time.process_time() - started
    plan = usual.plan_pool(some)
    pieces = list(zip(plan.documents.tolist(), plan.starts.tolist(), plan.sizes.tolist(), strict=True))
    found = [pieces[low:high] for low, high in zip(plan.bounds[:-1], plan.bounds[1:], strict=True)]
    assert list(zip(plan.capacities.tolist(), found, strict=True)) == expected, "the plans differ"
    fast = best(lambda: usual.plan_pool(some), 5 * repeats)
    print(f"10,000 documents spelled out: {slow:.2f} s, ours {1000 * fast:.2f} ms, equal plans")
    return slow / fast


def gathered(plan, tokens: np.ndarray) -> np.ndarray:
    """Move the tokens of a plan into samples, padded with zeros."""
    firsts = np.concatenate([[0], np.cumsum(plan.lengths)])[plan.documents] + plan.starts
    out = np.zeros((len(plan), plan.capacities[0]), tokens.dtype)
    flat, counts = out.reshape(-1), np.diff(plan.bounds)
    before = np.cumsum(plan.sizes) - plan.sizes
    of_sample = np.repeat(np.arange(len(plan)), counts)
    places = of_sample * out.shape[1] + before - before[plan.bounds[:-1]][of_sample]
    for place, first, size in zip(places.tolist(), firsts.tolist(), plan.sizes.tolist(), strict=True):
        flat[place : place + size] = tokens[first : first + size]
    return out


def against_trl(python: str, lengths: np.ndarray, repeats: int) -> None:
    tokens = np.zeros(lengths.sum(), np.int32)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "lengths.npy"), lengths)
        for size in (2048, 16384):
            script = Path(__file__).parent / "peers" / "trl_packing.py"
            command = [python, str(script), str(Path(folder, "lengths.npy")), str(size), str(repeats)]
            told = subprocess.run(command, check=True, capture_output=True, text=True)
            theirs = json.loads(told.stdout.splitlines()[-1])
            strategy = lc.tokens.BestFit(size)
            assert len(strategy.plan(lengths)) == theirs["samples"], "the numbers of samples differ"
            plan = best(lambda strategy=strategy: strategy.plan(lengths), repeats)
            moved = best(lambda strategy=strategy: gathered(strategy.plan(lengths), tokens), repeats)
            print(
                f"best-fit to {size:,}, {len(lengths):,} documents, {theirs['samples']:,} samples: TRL "
                f"{theirs['seconds']:.3f} s, ours {plan:.4f} s, with tokens {moved:.4f} s; ratio "
                f"{theirs['seconds'] / plan:.0f}, with tokens {theirs['seconds'] / moved:.0f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--data", help="as `longcrawl compose` takes it")
    parser.add_argument("--peers-python", help="the Python of an environment with TRL")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    parameters, mean = fit()
    mu, sigma, log_join, exponent = parameters
    print(f"fit: lognormal mu {mu:.4f} sigma {sigma:.4f} up to {np.exp(log_join):.0f}, then Pareto {exponent:.4f}")
    lengths = draw(parameters, options.documents)
    show_tables(lengths, mean)
    show_fields(lengths)
    print(f"\n{lc.compose(lengths)!r}")
    sets = {"all": lengths, "32 tokens and more": lengths[lengths >= 32]}
    if options.data:
        comparison = lc.compose(options.data)
        print(f"\n{options.data}: {comparison!r}\n\n{comparison['Buckets']}")
        sets["--data"] = comparison.lengths
    show_thresholds(sets)
    ratio = show_speed(lengths, options.repeats)
    if options.peers_python:
        against_trl(options.peers_python, lengths[:20_000], options.repeats)
    print(f"buckets ratio={ratio:.1f}")


if __name__ == "__main__":
    main()
