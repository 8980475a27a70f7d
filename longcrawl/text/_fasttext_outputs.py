"""What fastText's classifiers make of texts, label by label, and how they learn it.

Sums are taken in fastText's order and in its precision, so that scores are equal in every bit.
"""

# Inside the kernels ints and numpy ints are one type, which mypy cannot know:
# mypy: disable-error-code="assignment, no-any-return, return-value, arg-type, operator, misc"

import math

import numpy as np

from longcrawl.kernels.compiling import allocating, compiled, forced_inline
from longcrawl.kernels.lookup import mixed
from longcrawl.text._fasttext_kernels import Bytes, Floats, Integers, Numbers, read_text, visit
from longcrawl.text._fasttext_memory import Memory, make_scratch
from longcrawl.text._fasttext_model import Vectors, Words

_LOWEST = np.float32(math.log(1e-5))
_LARGEST, _STEPS = np.float32(8), np.float32(512)
"""Of fastText's table of sigmoids."""


@forced_inline
def _product(vectors: Vectors, row: int, hidden: Floats) -> np.float32:
    total = np.float32(0)
    for at in range(len(hidden)):
        total += vectors.output[row, at] * hidden[at]
    return total * vectors.scales[row]


@forced_inline
def _log(value: np.float32) -> np.float32:
    return np.float32(math.log(value + 1e-5))


@forced_inline
def _right(vectors: Vectors, node: int, labels: int, hidden: Floats) -> np.float32:
    """Return the probability of the second node below a node of the tree."""
    product = _product(vectors, node - labels, hidden)
    return np.float32(1.0 / (np.float32(1) + np.float32(math.exp(-product))))


@compiled
def _best_of_tree(vectors: Vectors, hidden: Floats, nodes: Numbers, scores: Floats) -> tuple[int, np.float32]:
    """Walk down the tree, left first, past everything that cannot be better than what was found."""
    labels = (len(vectors.children) + 1) // 2
    best, best_score = -1, _LOWEST
    nodes[0], scores[0], waiting = 2 * labels - 2, 0, 1
    while waiting:
        waiting -= 1
        node, score = nodes[waiting], scores[waiting]
        if score < best_score:
            continue
        if vectors.children[node, 0] < 0:
            best, best_score = node, score
            continue
        right = _right(vectors, node, labels, hidden)
        nodes[waiting], scores[waiting] = vectors.children[node, 1], score + _log(right)
        nodes[waiting + 1] = vectors.children[node, 0]
        scores[waiting + 1] = score + _log(np.float32(1.0 - right))
        waiting += 2
    return best, np.float32(math.exp(best_score))


@compiled
def _one_of_tree(vectors: Vectors, hidden: Floats, label: int, nodes: Numbers) -> np.float32:
    """Return the probability of a label, 0 where fastText does not list it, as it is below 0.00001."""
    labels = (len(vectors.children) + 1) // 2
    nodes[0], depth = label, 1
    while nodes[depth - 1] != 2 * labels - 2:
        nodes[depth] = vectors.parents[nodes[depth - 1]]
        depth += 1
    score = np.float32(0)
    for place in range(depth - 1, 0, -1):
        node = nodes[place]
        if score < _LOWEST:
            return np.float32(0)
        right = _right(vectors, node, labels, hidden)
        is_right = vectors.children[node, 1] == nodes[place - 1]
        score += _log(right) if is_right else _log(np.float32(1.0 - right))
    return np.float32(0) if score < _LOWEST else np.float32(math.exp(score))


@forced_inline
def _sigmoid(value: np.float32) -> np.float32:
    """Return the entry of fastText's table of 513 sigmoids from -8 to 8."""
    if value < -_LARGEST:
        return np.float32(0)
    if value > _LARGEST:
        return np.float32(1)
    step = np.float32(np.int64((value + _LARGEST) * _STEPS / _LARGEST / np.float32(2)))
    rounded = step * np.float32(2) * _LARGEST / _STEPS - _LARGEST
    return np.float32(1.0 / (1.0 + np.float32(math.exp(-rounded))))


@compiled
def set_outputs(vectors: Vectors, hidden: Floats, scores: Floats) -> None:
    """Write what the model gives to each label: a probability of softmax, or a sigmoid each."""
    labels, highest, total = len(vectors.output), np.float32(-np.inf), np.float32(0)
    for label in range(labels):
        scores[label] = _product(vectors, label, hidden)
        highest = max(highest, scores[label])
    if vectors.separate:
        for label in range(labels):
            scores[label] = _sigmoid(scores[label])
        return
    for label in range(labels):
        # In double precision, as fastText does here and nowhere else.
        scores[label] = np.float32(math.exp(np.float64(scores[label] - highest)))
        total += scores[label]
    for label in range(labels):
        scores[label] /= total


@forced_inline
def _shown(score: np.float32) -> np.float32:
    """Return a probability as fastText's predict returns it, which takes a logarithm of 0.00001 more."""
    return np.float32(math.exp(_log(score)))


@compiled
def _best_of_all(vectors: Vectors, hidden: Floats, scores: Floats) -> tuple[int, np.float32]:
    """Return the best label, the last one of several, and its probability."""
    set_outputs(vectors, hidden, scores)
    best, highest = -1, np.float32(-np.inf)
    for label in range(len(vectors.output)):
        logarithm = _log(scores[label])
        if logarithm >= highest:
            best, highest = label, logarithm
    return best, np.float32(math.exp(highest))


@allocating
def classify(
    words: Words, vectors: Vectors, data: Bytes, offsets: Integers, memory: Memory, labels: Numbers, scores: Floats
) -> None:
    """Write the best label of every text, int32, -1 where none has a score, and its probability, float32.

    ``words``, ``vectors`` and ``memory`` are of one model; what is in the memory makes no difference but to speed. Each
    line end counts as a space, and a word ``</s>`` as none.
    """
    hidden, scratch = np.zeros(vectors.rows.shape[1], np.float32), make_scratch(words, offsets)
    nodes = np.zeros(len(vectors.output) + 2, np.int32)
    waiting = np.zeros(len(vectors.output) + 2, np.float32)
    for text in range(len(offsets) - 1):
        read_text(words, vectors.rows, data[offsets[text] : offsets[text + 1]], scratch, memory, hidden, False)
        if len(vectors.children):
            labels[text], scores[text] = _best_of_tree(vectors, hidden, nodes, waiting)
        else:
            labels[text], scores[text] = _best_of_all(vectors, hidden, waiting)


@allocating
def score_labels(
    words: Words, vectors: Vectors, data: Bytes, offsets: Integers, memory: Memory, wanted: Numbers, scores: Floats
) -> None:
    """Write the probabilities of wanted labels, float32 [texts, wanted]; NaN for a text of which nothing is known.

    Arguments are those of :func:`classify`, but that a word ``</s>`` ends a text, as it does for fastText.
    """
    hidden, scratch = np.zeros(vectors.rows.shape[1], np.float32), make_scratch(words, offsets)
    nodes = np.zeros(len(vectors.output) + 2, np.int32)
    every = np.zeros(len(vectors.output) + 2, np.float32)
    for text in range(len(offsets) - 1):
        taken = data[offsets[text] : offsets[text + 1]]
        if not read_text(words, vectors.rows, taken, scratch, memory, hidden, True):
            scores[text, :] = np.nan
        elif len(vectors.children):
            for place in range(len(wanted)):
                scores[text, place] = _one_of_tree(vectors, hidden, wanted[place], nodes)
        else:
            set_outputs(vectors, hidden, every)
            for place in range(len(wanted)):
                scores[text, place] = _shown(every[wanted[place]])


@allocating
def train(
    words: Words,
    vectors: Vectors,
    data: Bytes,
    offsets: Integers,
    memory: Memory,
    order: Integers,
    labels: Numbers,
    rates: Floats,
) -> float:
    """Learn from texts, one after the other as ``order`` has them; return the sum of their losses.

    Rows and output of the softmax are changed as fastText changes them: by the gradient of the text's own label, which
    for the rows is divided by how many there are.

    Args:
        words: of the model.
        vectors: likewise; its rows and its output change.
        data: the bytes of all texts.
        offsets: int64 [texts + 1], where each begins.
        memory: of these words.
        order: int64 [steps], the text of each step.
        labels: int32 [texts], the label of each.
        rates: float32 [steps], the learning rate of each.
    """
    output, count = vectors.output, len(vectors.output)
    hidden, scratch = np.zeros(vectors.rows.shape[1], np.float32), make_scratch(words, offsets)
    gradient, scores = np.zeros_like(hidden), np.zeros(count, np.float32)
    loss = 0.0
    for step in range(len(order)):
        text, target = order[step], labels[order[step]]
        taken = data[offsets[text] : offsets[text + 1]]
        found = read_text(words, vectors.rows, taken, scratch, memory, hidden, True)
        if not found:
            continue
        set_outputs(vectors, hidden, scores)
        loss -= math.log(max(scores[target], 1e-38))
        gradient[:] = 0
        for label in range(count):
            wanted = np.float32(1) if label == target else np.float32(0)
            step_size = rates[step] * (wanted - scores[label])
            for place in range(len(hidden)):
                gradient[place] += output[label, place] * step_size
                output[label, place] += hidden[place] * step_size
        gradient *= np.float32(1.0 / found)
        visit(words, vectors.rows, taken, scratch, memory, gradient, True, True)
    return loss


@compiled
def set_first_rows(rows: Floats, seed: int) -> None:
    """Set rows to numbers between -1 / dimensions and 1 / dimensions that only depend on place and seed."""
    dimensions = rows.shape[1]
    for row in range(len(rows)):
        for place in range(dimensions):
            number = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(row * dimensions + place)
            drawn = np.uint64(mixed(np.uint64(mixed(number * np.uint64(0xD1B54A32D192ED03))))) >> np.uint64(40)
            rows[row, place] = np.float32((np.float64(drawn) / 8388608.0 - 1.0) / dimensions)
