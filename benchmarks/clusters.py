"""Clusters out of band keys: ten million keys per band, and the memory that resolving a million documents takes.

    python benchmarks/clusters.py [--keys 10000000] [--documents 1000000] [--large 300000]

First one band of --keys random keys, of which a fifth are copies of others: packing a document's number into its key,
sorting and linking, against ``numpy.argsort`` of the keys and linking in its order. Both forests are asserted to be
those of scipy's connected components. CPU time of one process, the best of --repeats.

Then --documents sketches with ids of 40 characters are resolved in a process of their own, at 14 bands of 8 with a
tenth of near-duplicates, all alike, and at 450 bands of 20 (--large of them), for its CPU time and its peak memory with
everything in it; the sketches are in memory as a run reads them. A run with ``parts: N`` holds a part at a time.

A fiftieth of --documents is resolved with ``verify=0.8`` too, 700 n-grams each. A tenth of these are in families of
1,000 that share every band key: in every other one any two are 0.9 similar, in those between 0.67, the worst case for
verification, since all pairs have to be looked at. The last line is argsort seconds / ours.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
from _measures import best


def keys_with_copies(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 1 << 64, count, dtype=np.uint64)
    copies = rng.integers(0, count, count // 5)
    keys[rng.integers(0, count, count // 5)] = keys[copies]
    return keys


def one_band(count: int, repeats: int) -> float:
    """Print what each step of one band takes and give argsort / ours."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from longcrawl.dedup.clusters import Conditions, find_roots, link_band, pack_keys

    keys, conditions = keys_with_copies(count), Conditions()
    bits = (count - 1).bit_length()
    packed, parents = np.empty(count, np.uint64), np.arange(count, dtype=np.uint32)
    link_band(np.zeros(2, np.uint64), 1, np.zeros(2, np.uint64), conditions, np.arange(2, dtype=np.uint32))

    def pack_and_sort() -> None:
        pack_keys(keys, bits, packed)
        packed.sort()

    def link() -> None:
        parents[:] = np.arange(count, dtype=np.uint32)
        link_band(packed, bits, keys, conditions, parents)

    def argsort() -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        return order, np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])

    pack_and_sort()
    steps = {
        "pack and sort": best(pack_and_sort, repeats),
        "link": best(link, repeats),
        "argsort": best(argsort, repeats),
    }
    for name, seconds in steps.items():
        print(f"{name:14} {1e9 * seconds / count:6.1f} ns per key")
    find_roots(parents)
    order, same = argsort()
    graph = coo_array((np.ones(len(same)), (order[same], order[same + 1])), shape=(count, count))
    groups, labels = connected_components(graph, directed=False)
    first = np.full(groups, count)
    np.minimum.at(first, labels, np.arange(count))
    assert np.array_equal(parents, first[labels]), "the forests differ"
    print(
        f"{count - groups:,} links agree with scipy's; in memory are {8 + 8 + 4} bytes per document and band at a time"
    )
    return (steps["argsort"] + steps["link"]) / (steps["pack and sort"] + steps["link"])


FAMILY = 1000
NGRAMS = 700


def ngrams_of_families(numbers: np.ndarray, in_family: np.ndarray) -> np.ndarray:
    """Return n-grams, uint32 [documents, NGRAMS] and sorted; in families all but some are those of the first."""
    rng = np.random.default_rng(int(numbers[0]))
    grams = rng.integers(0, 1 << 32, (len(numbers), NGRAMS), dtype=np.uint32)
    for at in np.flatnonzero(in_family):
        family = int(numbers[at]) // FAMILY
        common = (NGRAMS * 95 if family % 2 else NGRAMS * 80) // 100
        grams[at, :common] = np.random.default_rng([family, 1]).integers(0, 1 << 32, NGRAMS, dtype=np.uint32)[:common]
    grams.sort(axis=1)
    return grams


def resolve(documents: int, bands: int, rows: int, share: float, verify: float) -> dict[str, float]:
    """Resolve synthetic sketches in this process; ``share`` of the documents are copies of another, or in families."""
    import pyarrow as pa

    from longcrawl.dedup import MinHash
    from longcrawl.kernels.texts import fixed_binary

    stage = MinHash(bands=bands, rows=rows, unit="word", max_cluster=None, verify=verify or None)
    rng = np.random.default_rng(0)
    chunks = []
    for first in range(0, documents, 1000):
        size = min(1000, documents - first)
        keys = rng.integers(0, 1 << 64, (size, bands), dtype=np.uint64)
        more = {}
        if verify:
            numbers = np.arange(first, first + size)
            in_family = numbers < share * documents
            keys[in_family] = numbers[in_family, None] // FAMILY
            grams = pa.array(ngrams_of_families(numbers, in_family).ravel())
            more["ngrams"] = pa.LargeListArray.from_arrays(pa.array(np.arange(size + 1) * NGRAMS), grams)
        else:
            keys[rng.random(size) < share] = 7
        chunks.append(
            pa.table(
                {
                    "id": [f"2023-06/0001/en_head.json.gz/{number:011d}" for number in range(first, first + size)],
                    "bands": fixed_binary(keys.view(np.uint8)),
                    "sample": fixed_binary(rng.integers(0, 256, (size, min(bands * rows, 128)), dtype=np.uint8)),
                    "n_ngrams": pa.array(np.full(size, NGRAMS, np.int32)),
                }
                | more
            )
        )
    sketches = pa.concat_tables(chunks)
    stage.resolve(sketches[:10])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    removed = stage.resolve(sketches).num_rows
    taken = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "removed": removed,
        "seconds": taken,
        "sketches": sketches.nbytes / documents,
        "peak": peak * 1024 / documents,
        "added": (peak - before) * 1024 / documents,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    ratio = one_band(options.keys, options.repeats)
    for bands, rows, documents, share, verify in (
        (14, 8, options.documents, 0.1, 0.0),
        (14, 8, options.documents, 1.0, 0.0),
        (450, 20, options.large, 0.1, 0.0),
        (14, 8, options.documents // 50, 0.1, 0.8),
    ):
        order = [sys.executable, __file__, "--resolve", *map(str, (documents, bands, rows, share, verify))]
        found = json.loads(subprocess.run(order, capture_output=True, text=True, check=True).stdout)
        print(
            f"{documents:,} documents at {bands} bands of {rows}{f', verify={verify}' if verify else ''}, "
            f"{found['removed']:,} removed: "
            f"{found['seconds']:.1f} s; bytes per document: {found['sketches']:.0f} in sketches, "
            f"{found['added']:.0f} more while resolving, "
            f"{found['peak']:.0f} in all ({found['peak'] * documents / 1e9:.2f} GB)"
        )
    print(f"clusters ratio={ratio:.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--resolve"]:
        count, bands, rows, share, verify = sys.argv[2:]
        print(json.dumps(resolve(int(count), int(bands), int(rows), float(share), float(verify))))
    else:
        main()
