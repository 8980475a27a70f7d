"""Small models of fastText with random vectors, written as fastText writes them, whole or quantised."""

import struct

import numpy as np

LABELS = ("en", "de", "fra_Latn", "srp_Latn", "zxx")
VOCABULARY = ("</s>", "the", "boat", "船", "Boot")
LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}
DIMENSIONS = 5


def write_model(
    path,
    seed=0,
    loss="hs",
    labels=LABELS,
    buckets=50,
    ngrams=(2, 4),
    word_ngrams=1,
    version=12,
    *,
    vocabulary=VOCABULARY,
    dimensions=DIMENSIONS,
    quantised=(),
    kind=3,
):
    """Write a model and return its path.

    ``quantised`` names what is: "norms" of rows, "output" of labels, "pruned" buckets; an empty tuple is a ``.bin``.
    """
    random = np.random.default_rng(seed)
    header = [dimensions, 5, 5, 1, 5, word_ngrams, LOSSES[loss], kind, buckets, *ngrams, 100]
    parts = [struct.pack("<2i", 793712314, version), struct.pack("<12i", *header), struct.pack("<d", 1e-4)]
    kept = random.permutation(buckets)[: buckets // 2] if "pruned" in quantised else None
    entries, pruned = len(vocabulary) + len(labels), -1 if kept is None else len(kept)
    parts.append(struct.pack("<3i2q", entries, len(vocabulary), len(labels), 1000, pruned))
    for number, word in enumerate([*vocabulary, *(f"__label__{label}" for label in labels)]):
        parts.append(word.encode() + b"\0" + struct.pack("<qb", 100 - 7 * number, number >= len(vocabulary)))
    if kept is not None:
        parts.append(np.stack([kept, np.arange(len(kept))], axis=1).astype("<i4").tobytes())
    rows = len(vocabulary) + (buckets if kept is None else len(kept))
    parts.append(struct.pack("<b", bool(quantised)))
    parts += (
        _codes(random, rows, dimensions, norms="norms" in quantised) if quantised else _plain(random, rows, dimensions)
    )
    parts.append(struct.pack("<b", "output" in quantised))
    count = len(labels)
    parts += (
        _codes(random, count, dimensions, norms="norms" in quantised)
        if "output" in quantised
        else _plain(random, count, dimensions)
    )
    path.write_bytes(b"".join(parts))
    return path


def _plain(random, rows, dimensions):
    return [struct.pack("<2q", rows, dimensions), random.normal(0, 2, (rows, dimensions)).astype("<f4").tobytes()]


def _codes(random, rows, dimensions, *, norms):
    """Return codes of a product quantiser with two dimensions in a part, the last part being what remains."""
    width = 2
    parts, last = -(-dimensions // width), dimensions % width or width
    written = [struct.pack("<b2qi", norms, rows, dimensions, rows * parts)]
    written += [random.integers(0, 256, rows * parts).astype("u1").tobytes()]
    written += _centroids(random, dimensions, parts, width, last)
    if norms:
        written += [random.integers(0, 256, rows).astype("u1").tobytes(), *_centroids(random, 1, 1, 1, 1)]
    return written


def _centroids(random, dimensions, parts, width, last):
    header = struct.pack("<4i", dimensions, parts, width, last)
    return [header, random.normal(0, 2, dimensions * 256).astype("<f4").tobytes()]
