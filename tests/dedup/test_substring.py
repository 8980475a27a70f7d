"""Exact-substring deduplication: spans against naive search and suffix arrays, characters, policies, memory, passes."""

# The alphabets are the point of some tests:
# ruff: noqa: RUF001

import importlib.util
import io
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import substring as benchmark
import zstandard
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.stages import Spans, SpanSurvey, WithSpans, first_failure
from longcrawl.dedup import repeats
from longcrawl.dedup.normalize import normalize
from longcrawl.dedup.repeats import ALL_BITS, TokenStore, find_repeats, separated
from longcrawl.dedup.substring import MASK_TYPE, UNITS, locate, make_unit
from longcrawl.errors import StageError
from longcrawl.tokens.bpe import _alphabet

SEEN = "A sentence that stands in two documents, word for word. "
TEXTS = {
    "a": "Alone at first. " + SEEN + "And alone in the end.",
    "b": SEEN + "Then something else, quite a lot of it, goes on and on and is never said again anywhere at all.",
    "c": "Nothing here was said before.",
    "d": "Nº 7. " + SEEN,
}


def naive_spans(documents, length):
    """Give, per document, [start, stop) of maximal stretches covered by windows that occur twice: by a dictionary."""
    places = {}
    for number, document in enumerate(documents):
        for start in range(len(document) - length + 1):
            places.setdefault(tuple(document[start : start + length]), []).append((number, start))
    covered = [[False] * len(document) for document in documents]
    for found in places.values():
        for number, start in found if len(found) > 1 else []:
            covered[number][start : start + length] = [True] * length
    spans = []
    for number, flags in enumerate(covered):
        edges = [place for place, (a, b) in enumerate(itertools.pairwise([False, *flags, False])) if a != b]
        spans += [(number, start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    return spans


def as_arrays(documents, dtype=np.uint16):
    tokens = np.array([token for document in documents for token in document], dtype)
    return tokens, np.concatenate([[0], np.cumsum([len(document) for document in documents], dtype=np.int64)])


def as_store(tokens, offsets):
    """Return a store of documents in memory; document d is ``tokens[offsets[d]:offsets[d + 1]]``."""
    return TokenStore(separated(tokens, offsets), offsets - offsets[0] + np.arange(len(offsets)))


def our_spans(store, length, folder, memory=1 << 26, hash_mask=ALL_BITS):
    """Return (document, start, stop) of all spans."""
    spans = []
    for ranges in find_repeats(store, length, memory, Path(folder), hash_mask):
        documents, inside = store.documents_of(ranges)
        spans += [(document, *span) for document, span in zip(documents.tolist(), inside.tolist(), strict=True)]
    return spans


def our_links(store, length, folder, memory=1 << 26, hash_mask=ALL_BITS):
    """Return (start, other start) of all spans, counted in the store."""
    found = [ranges[:, [0, 2]].tolist() for ranges in find_repeats(store, length, memory, Path(folder), hash_mask)]
    return [tuple(link) for links in found for link in links]


def naive_links(store, spans, length):
    """Return for the window at the start of each span the first other place where it stands."""
    tokens = store.tokens.tolist()
    starts = [int(store.bounds[document]) + start for document, start, _ in spans]
    windows = [(start, tokens[start : start + length]) for start in starts]
    ends = range(len(tokens) - length + 1)
    return [(at, next(o for o in ends if o != at and tokens[o : o + length] == window)) for at, window in windows]


alphabets = st.sampled_from([1, 2, 3, 250])
periodic = st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(1, 80)).map(
    lambda made: (made[0] * made[1])[:120]
)


@st.composite
def document_lists(draw):
    """Documents of few different tokens, some periodic, some with a part of another one in them."""
    largest = draw(alphabets) - 1
    plain = st.lists(st.integers(0, largest), max_size=150)
    documents = draw(st.lists(plain | periodic, max_size=6))
    for _ in range(draw(st.integers(0, 3)) if documents else 0):
        source, target = draw(st.sampled_from(documents)), draw(st.integers(0, len(documents) - 1))
        start = draw(st.integers(0, len(source)))
        at = draw(st.integers(0, len(documents[target])))
        documents[target] = documents[target][:at] + source[start : start + 60] + documents[target][at:]
    return documents


@pytest.mark.variants  # for each type the kernels are compiled again
@pytest.mark.parametrize("dtype", [np.uint16, np.uint8, np.uint32])
@given(
    documents=document_lists(),
    length=st.integers(1, 60),
    memory=st.sampled_from([1 << 10, 1 << 12, 1 << 26]),
    hash_mask=st.sampled_from([ALL_BITS, 0, 1, 0xFF << 32]),
)
@example(documents=[[0] * 500], length=50, memory=1 << 10, hash_mask=ALL_BITS)
@example(documents=[[0] * 49, [0] * 50, []], length=50, memory=1 << 26, hash_mask=0)
@example(documents=[[], [1], []], length=1, memory=1 << 26, hash_mask=ALL_BITS)
@settings(max_examples=2 * settings.default.max_examples // 3)
def test_spans_equal_a_dictionary_of_all_windows_whatever_collides(
    tmp_path_factory, documents, length, memory, hash_mask, dtype
):
    store = as_store(*as_arrays(documents, dtype))
    folder = tmp_path_factory.mktemp("passes")
    found = our_spans(store, length, folder, memory, hash_mask)
    assert found == naive_spans(documents, length)
    assert our_links(store, length, folder, memory, hash_mask) == naive_links(store, found, length)


@pytest.fixture(scope="module")
def real_tokens(real_data):
    """Return the ids of documents of real text by GPT-2's ranks, shuffled."""
    texts = []
    for name in ("short", "long"):
        with (real_data / f"{name}.jsonl.zst").open("rb") as packed:
            lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8")
            texts += [json.loads(line)["text"] for _, line in zip(range(400 if name == "short" else 20), lines)]  # noqa: B905  # some of the lines
    encoded = make_unit("token", str(real_data / "gpt2.tiktoken")).encode(pa.array(texts, pa.large_string()))
    documents = [encoded.ids[a:b] for a, b in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)]
    random.Random(1).shuffle(documents)
    return documents


def first_tokens(documents, count):
    ends = np.cumsum([len(document) for document in documents])
    chosen = documents[: int(np.searchsorted(ends, count)) + 1]
    tokens, offsets = np.concatenate(chosen), np.concatenate([[0], np.cumsum([len(each) for each in chosen])])
    assert len(tokens) >= count
    return tokens[:count], np.minimum(offsets, count)


def suffix_array_spans(kind, tokens, offsets, length):
    if kind == "divsufsort":
        pytest.importorskip("pydivsufsort", reason="pydivsufsort is in the extra 'test'")
        return benchmark.suffix_array_spans(tokens, offsets, length)
    return benchmark.doubling_spans(tokens, offsets, length)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["doubling", "divsufsort"])
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("length", [50, 7])
def test_spans_of_real_text_equal_those_of_a_suffix_array(real_tokens, tmp_path, kind, count, length):
    tokens, offsets = first_tokens(real_tokens, count)
    expected = suffix_array_spans(kind, tokens, offsets, length)
    found = our_spans(as_store(tokens, offsets), length, tmp_path)
    assert len(found) > 20
    assert [(offsets[d] + start, offsets[d] + stop) for d, start, stop in found] == list(map(tuple, expected.tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("documents", [[[0] * 30], [[1, 2, 3] * 20, [3, 1, 2] * 20], [], [[]], [[5] * 3, [5] * 4]])
def test_the_suffix_arrays_equal_a_dictionary_too(documents):
    for length in (1, 3, 8):
        tokens, offsets = as_arrays(documents)
        expected = [(offsets[d] + start, offsets[d] + stop) for d, start, stop in naive_spans(documents, length)]
        kinds = ["doubling", "divsufsort"] if len(tokens) and importlib.util.find_spec("pydivsufsort") else ["doubling"]
        for kind in kinds:
            assert list(map(tuple, suffix_array_spans(kind, tokens, offsets, length).tolist())) == expected


def spans_by_id(spans):
    return {tuple(row.values()) for row in spans.table.select(["id", "start", "end"]).to_pylist()}


def table_of(texts, ids=None):
    ids = [f"d{number:04d}" for number in range(len(texts))] if ids is None else ids
    return pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.large_string())})


@pytest.mark.slow
def test_order_batches_and_passes_do_not_matter(tmp_path, monkeypatch):
    chance = random.Random(3)
    said = ["".join(chance.choices("abcdé ", k=chance.randint(30, 200))) for _ in range(40)]
    table = table_of(["".join(chance.choices(said, k=chance.randint(0, 6))) for _ in range(200)])
    expected = spans_by_id(
        lc.dedup.ExactSubstring(30, unit="byte", text="raw").resolve(
            lc.dedup.ExactSubstring(30, unit="byte", text="raw").sketch(table)
        )
    )
    assert len(expected) > 100
    for memory, batch in ((1 << 12, 1), (1 << 14, 7), (1 << 16, 64)):
        monkeypatch.setattr("longcrawl.dedup.substring.LEAST_MEMORY", 0)
        stage = lc.dedup.ExactSubstring(30, unit="byte", text="raw", memory=memory)
        shuffled = table.take(pa.array(chance.sample(range(200), 200)))
        sketches = [stage.sketch(shuffled.slice(at, batch)) for at in range(0, 200, batch)]
        folder = tmp_path / str(memory)
        assert spans_by_id(stage.find(sketches, str(folder))) == expected
        passes = len(list(folder.glob("windows-*.bin")))
        assert passes > 2 if memory == 1 << 12 else passes


@pytest.mark.slow
def test_a_search_goes_on_with_the_pass_at_which_it_was_stopped(tmp_path, monkeypatch):
    chance = random.Random(4)
    said = ["".join(chance.choices("abcd", k=100)) for _ in range(60)]
    table = table_of(["".join(chance.choices(said, k=5)) for _ in range(100)])
    monkeypatch.setattr("longcrawl.dedup.substring.LEAST_MEMORY", 0)
    stage = lc.dedup.ExactSubstring(30, unit="byte", text="raw", memory=1 << 13)
    expected = stage.resolve(stage.sketch(table))
    done = []
    match, scan = repeats._Search._match_part, repeats._Search._find_runs

    def note(step, real):
        def run(self, share, *rest):
            if len(done) % 3 == 2:
                done.append("stopped")
                raise KeyboardInterrupt
            done.append((step, share[0]))
            return real(self, share, *rest)

        return run

    monkeypatch.setattr(repeats._Search, "_match_part", note("windows", match))
    monkeypatch.setattr(repeats._Search, "_find_runs", note("runs", scan))
    read = []

    def sketches():
        read.append(1)
        yield stage.sketch(table)

    for _ in range(50):
        try:
            found = stage.find(sketches(), str(tmp_path))
            break
        except KeyboardInterrupt:
            continue
    assert found.table.equals(expected.table)
    steps = [step for step in done if step != "stopped"]
    assert done.count("stopped") >= 2
    assert len(steps) == len(set(steps)) > 5
    assert len(read) == 1


def test_a_folder_of_another_search_is_refused(tmp_path):
    table = table_of(["abcdef" * 10])
    lc.dedup.ExactSubstring(10, unit="character", text="raw").find(
        [lc.dedup.ExactSubstring(10, unit="character", text="raw").sketch(table)], str(tmp_path)
    )
    other = lc.dedup.ExactSubstring(11, unit="character", text="raw")
    with pytest.raises(
        StageError,
        match=r"holds passes of a different search .*'min_tokens': 10.*: remove it, or choose",
    ):
        other.find([other.sketch(table)], str(tmp_path))


MEASURED = """
import sys, tempfile
from pathlib import Path
import numpy as np
import pyarrow as pa
from longcrawl.dedup.repeats import find_repeats
from longcrawl.dedup.repeats import store_tokens

def memory(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

def tokens(count):
    draw = np.random.default_rng(0)
    made = draw.integers(0, 50_000, count, dtype=np.uint16)
    for _ in range(count // 1000):  # spans that return
        length = draw.integers(30, 400)
        source, target = draw.integers(0, count - length, 2)
        made[target : target + length] = made[source : source + length]
    return made

def search(count, memory, folder):
    ids = tokens(count)
    offsets = np.arange(0, count + 1, count // 500)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids[: offsets[-1]]))
    store_tokens([pa.table({"id": [str(n) for n in range(len(lists))], "tokens": lists})], folder, "test")
    del ids, lists
    pa.default_memory_pool().release_unused()
    store = store_tokens([], folder, "test")
    return lambda: sum(len(ranges) for ranges in find_repeats(store, 50, memory, folder))

with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
    search(200_000, int(sys.argv[1]), Path(small))()
    run = search(20_000_000, int(sys.argv[1]), Path(large))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    found = run()
    print(found, memory("VmHWM") - before, len(list(Path(large).glob("windows-*.bin"))))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from Linux's /proc")
@pytest.mark.slow
@pytest.mark.parametrize("memory", [64 << 20, 128 << 20])
def test_a_search_keeps_to_its_memory(memory):
    command = [sys.executable, "-c", MEASURED, str(memory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found, peak, passes = map(int, done.stdout.split())
    assert found > 20_000
    assert peak <= memory, f"{peak:,} bytes in {passes} passes"


@pytest.mark.slow
def test_a_document_of_fifty_million_tokens():
    draw = np.random.default_rng(0)
    letters = draw.integers(ord("a"), ord("z") + 1, 50_000_000, dtype=np.uint8)
    letters[40_000_000:40_000_100] = letters[7:107]
    text = letters.tobytes().decode()
    stage = lc.dedup.ExactSubstring(50, unit="byte", text="raw")
    table = table_of([text, "short", text[-60:]])
    spans = stage.resolve(stage.sketch(table))
    assert spans_by_id(spans) == {
        ("d0000", 7, 107),
        ("d0000", 40_000_000, 40_000_100),
        ("d0000", 49_999_940, 50_000_000),
        ("d0002", 0, 60),
    }
    edited, checks = stage.edit_spans(table, spans)
    assert edited["text"][0].as_py() == text[:7] + text[107:40_000_000] + text[40_000_100:-60]
    assert first_failure(3, checks)["rule"].to_pylist() == [None, None, "characters_left"]


@pytest.mark.slow
def test_fifty_million_equal_tokens_are_one_span():
    stage = lc.dedup.ExactSubstring(50, unit="byte", text="raw", policy="drop-any")
    assert spans_by_id(stage.resolve(stage.sketch(table_of(["a" * 50_000_000])))) == {("d0000", 0, 50_000_000)}


CHARACTERS = "ab cdé\u0301漢字😀ΣИ \n"
texts = st.lists(st.text(st.sampled_from(CHARACTERS), max_size=40), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Train a small byte-level BPE, in which a character may be two tokens or share one with others."""
    chance = random.Random(5)
    rows = ["".join(chance.choices(CHARACTERS, k=200)) for _ in range(60)]
    stage = lc.tokens.Tokenize("trained", vocabulary_size=400)
    return stage.fit([pa.table({"text": rows})], str(tmp_path_factory.mktemp("tokenizer"))).tokenizer


@pytest.mark.parametrize("name", UNITS)
@given(data=st.data(), documents=texts)
@settings(deadline=None)
def test_spans_become_the_whole_characters_inside_their_bytes(name, tokenizer, data, documents):
    unit = make_unit(name, tokenizer)
    array = pa.array(documents, pa.large_string())
    ids, offsets = unit.encode(array)
    rows, spans, expected = [], [], []
    for row, document in enumerate(documents):
        pieces = pieces_of(name, tokenizer, document)
        assert len(pieces) == offsets[row + 1] - offsets[row]
        edges = data.draw(st.lists(st.integers(0, len(pieces)), max_size=6, unique=True).map(sorted))
        for start, stop in zip(edges[::2], edges[1::2], strict=False):
            rows.append(row)
            spans.append([start, stop])
            expected.append(whole(document, len(b"".join(pieces[:start])), len(b"".join(pieces[:stop]))))
    found = locate(unit, array, np.array(rows, np.int64), np.array(spans, np.int64).reshape(-1, 2))
    for (start, stop), wanted in zip(found.tolist(), expected, strict=True):
        assert ((start, stop) if stop > start else None) == wanted
    assert ids.dtype in (np.uint8, np.uint16, np.uint32)
    assert not len(ids) or ids.max() < np.iinfo(ids.dtype).max


def pieces_of(name, tokenizer, document):
    """Return the bytes of each unit of a document."""
    if name == "character":
        return [character.encode() for character in document]
    if name == "byte":
        return [bytes([byte]) for byte in document.encode()]
    from tokenizers import Tokenizer

    spelled = {character: byte for byte, character in enumerate(_alphabet())}
    encoded = Tokenizer.from_file(tokenizer).encode(document, add_special_tokens=False)
    return [bytes(spelled[character] for character in token) for token in encoded.tokens]


def whole(document, start, stop):
    """Return the characters that lie in bytes [start, stop), or None."""
    at, inside = 0, []
    for number, character in enumerate(document):
        if at >= start and at + len(character.encode()) <= stop:
            inside.append(number)
        at += len(character.encode())
    return (inside[0], inside[-1] + 1) if inside else None


def naive_policy(documents, length, policy):
    """Return what is left of each document: (text, masked spans), or the rule, value and threshold of its leaving."""
    spans = {}
    for number, start, stop in naive_spans(documents, length):
        spans.setdefault(number, []).append((start, stop))
    left = []
    for number, text in enumerate(documents):
        mine = spans.get(number, [])
        repeated = {place for start, stop in mine for place in range(start, stop)}
        unique = "".join(character for place, character in enumerate(text) if place not in repeated)
        share = len(repeated) / max(len(text), 1)
        if mine and policy in ("cut", "mask") and len(unique) < 20:
            left.append(("characters_left", len(unique), 20))
        elif policy == "drop-partial" and share > 0.2:
            left.append(("repeated_share", share, 0.2))
        elif policy == "drop-any" and mine:
            left.append(("repeated_share", share, 0))
        else:
            left.append((unique if policy == "cut" else text, mine if policy == "mask" else None))
    return left


@pytest.mark.parametrize("policy", ["cut", "mask", "drop-partial", "drop-any"])
@given(
    documents=st.lists(
        st.lists(st.sampled_from(["ab ", "é漢字 ", "😀 xyz ", "a", "ΣИ"]), max_size=15).map("".join), max_size=6
    )
)
@settings(max_examples=settings.default.max_examples // 4)
def test_every_policy_does_what_it_says(policy, documents):
    stage = lc.dedup.ExactSubstring(8, policy=policy, unit="character", text="raw")
    table = table_of(documents)
    edited, checks = stage.edit_spans(table, stage.resolve(stage.sketch(table)))
    rows = edited.to_pylist()
    for row, verdict, expected in zip(
        rows, first_failure(len(rows), checks).to_pylist(), naive_policy(documents, 8, policy), strict=True
    ):
        if len(expected) == 3:
            assert tuple(verdict.values()) == pytest.approx(expected, abs=1e-12) or verdict["rule"] == expected[0]
            assert verdict["value"] == pytest.approx(expected[1])
            assert verdict["threshold"] == expected[2]
        else:
            assert verdict["rule"] is None
            assert row["text"] == expected[0]
            masked = [(span["start"], span["end"]) for span in row["masked"]] if policy == "mask" else None
            assert masked == expected[1]


def crawl_of(texts):
    return lc.Crawl(Dataset.from_dict({"id": list(texts), "text": list(texts.values())}))


COPY = "Naïve Café — “The QUICK, brown\n\tfox”: 3 €"
OTHER = "NAIVE cafe\u0301 the quick   Brown (fox) 3 €"
COPIES = {
    "a": "Something alone at first! " + COPY + ". Then more, alone 漢字",
    "b": "—— " + OTHER + " and what nobody else says, in quite other words…",
    "c": "Nothing here was said before.",
    "d": "nr. 7 " + OTHER.upper() + "?",
}
IN_THE_TEXT = {"a": COPY, "b": OTHER, "d": OTHER.upper()}
"""One sentence in three spellings, and each as it stands in its document."""


@pytest.mark.variants
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("policy", ["cut", "mask", "drop-partial", "drop-any"])
def test_copies_in_other_spellings_are_found_and_every_policy_takes_them_as_they_stand(unit, policy, tokenizer):
    length = {"token": 12, "character": 30, "byte": 30}[unit]
    stage = lc.dedup.ExactSubstring(length, policy=policy, unit=unit, tokenizer=tokenizer)
    crawl = crawl_of(COPIES) | stage
    left = dict(zip(crawl.data["id"][:], crawl.data["text"][:], strict=True))
    if policy == "cut":
        assert left == {name: COPIES[name].replace(IN_THE_TEXT.get(name, "\0"), "") for name in "abc"}
        assert crawl.why("d").rule == "characters_left"
    elif policy == "mask":
        assert left == {name: COPIES[name] for name in "abc"}
        masked = {row["id"]: [row["text"][s["start"] : s["end"]] for s in row["masked"]] for row in crawl.data}
        assert masked == {"a": [COPY], "b": [OTHER], "c": []}
    else:
        assert list(left) == ["c"]
        share = len(COPY) / len(COPIES["a"])
        assert crawl.why("a").value == pytest.approx(share)
    assert (
        len((crawl_of(COPIES) | lc.dedup.ExactSubstring(length, unit=unit, tokenizer=tokenizer, text="raw")).data) == 4
    )


@pytest.mark.parametrize(("text", "found"), [("normalised", 2), ("raw", 0)])
def test_what_is_compared_is_part_of_the_settings(text, found):
    stage = lc.dedup.ExactSubstring(5, unit="character", text=text)
    table = table_of(["ABCDEF one", "abcdéf two"])
    assert stage.settings()["text"] == text
    assert stage.resolve(stage.sketch(table)).table.num_rows == found


SPELLINGS = st.text(st.sampled_from("aAáeE\u0301ﬁß€ΣσςİDž\u1e9e가각한\u1112\u1161!-“ \n\t.漢字😀"), max_size=30)


@given(parts=st.lists(SPELLINGS, min_size=1, max_size=5), data=st.data(), length=st.integers(1, 12))
@settings(max_examples=settings.default.max_examples)
def test_a_masked_span_normalised_again_is_what_occurs_twice_up_to_characters_cut_at_its_ends(parts, data, length):
    pieces = [*parts, *(part.upper() for part in parts), *(f" {part}!" for part in parts)]
    documents = data.draw(st.lists(st.lists(st.sampled_from(pieces), max_size=4).map("".join), max_size=4))
    stage = lc.dedup.ExactSubstring(length, policy="mask", unit="character", min_characters=0)
    table = table_of(documents)
    spans = stage.resolve(stage.sketch(table))
    forms = [form.replace("ς", "σ") for form in normalize(table["text"].combine_chunks()).to_pylist()]
    in_forms = naive_spans(normalize(table["text"].combine_chunks()).to_pylist(), length)
    assert spans.table["start"].to_pylist() == [start for _, start, _ in in_forms]
    edited, _ = stage.edit_spans(table, spans)
    repeated = [
        [forms[row][start:stop] for number, start, stop in in_forms if number == row] for row in range(len(forms))
    ]
    for text, masked, expected in zip(documents, edited["masked"].to_pylist(), repeated, strict=True):
        assert all(one["end"] <= two["start"] for one, two in itertools.pairwise(masked))
        taken = [text[span["start"] : span["end"]] for span in masked]
        again = [form.replace("ς", "σ") for form in normalize(pa.array(taken, pa.large_string())).to_pylist()]
        # A syllable has up to three parts: two of them may be repeated alone, with a space beside them.
        whole = [form for form in expected if len(form) > 6]
        assert len([form for form in again if form]) == len(again)
        assert all(any(form in each for each in expected) for form in again)
        assert all(any(form in each and len(each) <= len(form) + 6 for form in again) for each in whole)


def test_of_a_syllable_that_is_repeated_in_part_nothing_is_taken():
    stage = lc.dedup.ExactSubstring(5, policy="mask", unit="character", min_characters=0)
    table = table_of(["xx abcd각", "yy abcd가"])
    edited, _ = stage.edit_spans(table, stage.resolve(stage.sketch(table)))
    taken = [
        [text[span["start"] : span["end"]] for span in spans]
        for text, spans in zip(table["text"].to_pylist(), edited["masked"].to_pylist(), strict=True)
    ]
    assert taken == [["abcd"], ["abcd가"]]


@pytest.mark.variants
@pytest.mark.parametrize("unit", ["character", "byte"])
def test_marks_that_change_places_give_spans_that_do_not_overlap(unit):
    marks = "\U0001d15e\U0001d16d\u302e\U0001d165a\u302e\u1b44"
    documents = [marks * 3 + "q", "w" + marks + "e" + marks[::-1], marks[2:] * 2]
    for length in (1, 2, 3, 5):
        stage = lc.dedup.ExactSubstring(length, policy="mask", unit=unit, min_characters=0)
        table = table_of(documents)
        edited, _ = stage.edit_spans(table, stage.resolve(stage.sketch(table)))
        for text, spans in zip(documents, edited["masked"].to_pylist(), strict=True):
            edges = [edge for span in spans for edge in (span["start"], span["end"])]
            assert edges == sorted(edges)
            assert all(span["start"] < span["end"] <= len(text) for span in spans)


def test_cut_takes_every_copy_and_the_ledger_says_who_left():
    crawl = crawl_of(TEXTS) | lc.dedup.ExactSubstring(20, unit="character", text="raw")
    # "Alone at first. A": the full stop before SEEN is followed by the same space in a and d.
    assert crawl.data.to_dict() == {
        "id": ["a", "b", "c"],
        "text": ["Alone at first" + "And alone in the end.", TEXTS["b"][len(SEEN) :], TEXTS["c"]],
    }
    assert str(crawl.why("d")).splitlines() == [
        "d: removed at exact_substring, rule characters_left: 4 against 20",
        "  exact_substring changed 1 place, 58 characters cut: cut 4-62, also in a at 14-72",
    ]
    assert crawl.removed("exact_substring")["text"][:] == [TEXTS["d"]]
    assert crawl.funnel.rows[-1].rules == {"characters_left": 1}


def test_masked_spans_are_a_column_beside_the_text():
    crawl = crawl_of(TEXTS) | lc.dedup.ExactSubstring(20, policy="mask", unit="character", text="raw")
    assert crawl.data["text"][:] == [TEXTS[name] for name in "abc"]
    masks = crawl.data.with_format("arrow")["masked"].combine_chunks()
    for name, masked in zip("abc", masks.to_pylist(), strict=True):
        assert all(TEXTS[name][span["start"] : span["end"]].strip(" .") in SEEN for span in masked)
        assert len(masked) == (name != "c")
    assert masks.type == MASK_TYPE


@pytest.mark.parametrize("policy", ["cut", "mask"])
def test_a_mask_is_not_lost_without_a_word(policy):
    crawl = crawl_of(TEXTS) | lc.dedup.ExactSubstring(20, policy="mask", unit="character", text="raw")
    with pytest.raises(StageError, match="would lose the column 'masked' of an earlier stage: drop it first"):
        crawl | lc.dedup.ExactSubstring(20, policy=policy, unit="character", text="raw")


@pytest.mark.variants
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("texts", [[], [None, None], ["", ""], [None, "", "x"], ["abcabcabcabc"]])
def test_empty_documents_and_null_texts_stay(unit, texts, tokenizer):
    stage = lc.dedup.ExactSubstring(50, unit=unit, tokenizer=tokenizer)
    table = table_of(texts)
    spans = stage.resolve(stage.sketch(table))
    edited, checks = stage.edit_spans(table, spans)
    assert spans.table.num_rows == 0
    assert edited.equals(table)
    assert first_failure(len(texts), checks)["rule"].null_count == len(texts)


def test_of_documents_that_are_all_the_same_nothing_is_left():
    crawl = crawl_of({f"{number:03d}": SEEN * 3 for number in range(300)}) | lc.dedup.ExactSubstring(
        20, unit="character", text="raw"
    )
    assert len(crawl.data) == 0
    assert crawl.funnel.rows[-1].rules == {"characters_left": 300}


def test_ids_that_occur_twice_are_refused_by_name():
    data = Dataset.from_dict({"id": ["x", "b", "b", "a", "a"], "text": ["one", "two", "three", "four", "five"]})
    with pytest.raises(StageError, match=r"exact_substring needs unique ids, '?(b|a|2)"):
        lc.Crawl(data) | lc.dedup.ExactSubstring(unit="byte", text="raw")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"min_tokens": 0}, r"min_tokens is 0: set it to 1 or more"),
        ({"memory": 1 << 20}, r"exact_substring\.memory is 1,048,576: set it to 67,108,864 or more"),
        (
            {"policy": "keep"},
            r"ExactSubstring.policy takes one of 'cut', 'mask', 'drop-partial', 'drop-any', got 'keep'",
        ),
        ({"unit": "words"}, r"ExactSubstring.unit takes one of 'token', 'character', 'byte', got 'words'"),
    ],
)
def test_wrong_settings_are_refused(settings, said):
    with pytest.raises(StageError, match=said):
        lc.dedup.ExactSubstring(**settings)


def test_a_unit_that_is_not_known_names_those_that_are():
    with pytest.raises(StageError, match="ExactSubstring.unit takes one of .token., .character., .byte., got .words."):
        lc.dedup.ExactSubstring(unit="words")


def test_a_tokenizer_whose_tokens_are_not_bytes_is_refused(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))  # noqa: S106  # no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(StageError, match="cannot be mapped to bytes .*: choose a byte-level BPE"):
        lc.dedup.ExactSubstring(tokenizer=str(tmp_path)).prepare()


def test_a_stream_is_refused():
    data = Dataset.from_dict({"id": ["a"], "text": ["b"]}).to_iterable_dataset()
    with pytest.raises(StageError, match="exact_substring needs all documents and cannot run on a stream"):
        lc.Crawl(data) | lc.dedup.ExactSubstring(unit="byte", text="raw")


def write_recipe(folder, texts, stages):
    (folder / "docs").mkdir(parents=True)
    for part in range(3):
        rows = [{"id": name, "text": text} for name, text in list(texts.items())[part::3]]
        (folder / "docs" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "longcrawl": 1,
        "name": "substring",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(folder / "docs")},
        "stages": stages,
        "outputs": {"rectangle": {"heldout": 0.0}},
    }
    (folder / "recipe.yaml").write_text(json.dumps(spec))
    return folder / "recipe.yaml"


@pytest.fixture
def many_texts():
    chance = random.Random(6)
    said = [" ".join(chance.choices(["one", "two", "é", "漢字", "four"], k=30)) for _ in range(40)]
    return {
        f"{number:03d}": " ".join(chance.choices(said, k=2))
        + " ".join(chance.choices("abcdefgh", k=chance.randint(1, 300)))
        for number in range(90)
    }


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cut", pytest.param("drop-partial", marks=pytest.mark.slow)])
def test_a_run_gives_what_a_crawl_gives_and_the_same_bytes_with_two_processes(tmp_path, many_texts, policy, tokenizer):
    stages = [
        {"min_chars": {"n": 100}},
        "exact_documents",
        {"exact_substring": {"min_tokens": 40, "policy": policy, "unit": "character", "text": "raw"}},
        "exact_documents",
        {"tokenize": {"tokenizer": tokenizer}},
        {"min_tokens": {"n": 30}},
        {"truncate": {"n": 30}},
        "shuffle",
    ]
    recipe = write_recipe(tmp_path, many_texts, stages)
    ran = lc.run(recipe, tmp_path / "one")
    crawl = crawl_of(many_texts) | lc.text.MinChars(100) | lc.dedup.ExactDocuments()
    crawl = crawl | lc.dedup.ExactSubstring(40, policy=policy, unit="character", text="raw") | lc.dedup.ExactDocuments()
    crawl = crawl | lc.tokens.Tokenize(tokenizer) | lc.tokens.MinTokens(30)
    assert [(row.stage, row.documents_out, dict(row.rules)) for row in ran.funnel][:6] == [
        (row.stage, row.documents_out, dict(row.rules)) for row in crawl.funnel
    ]
    assert ran.funnel.rows[2].removed > 0
    lc.run(recipe, tmp_path / "two", num_proc=2)
    files = [
        sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*")) for name in ("one", "two")
    ]
    assert files[0] == files[1]
    assert all(
        (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
        for file in files[0]
        if (tmp_path / "one" / file).is_file()
    )
    assert lc.why(tmp_path / "one", next(iter(many_texts))).stage == crawl.why(next(iter(many_texts))).stage


@pytest.mark.slow
def test_a_run_stopped_between_two_passes_goes_on_there(tmp_path, many_texts, tokenizer, monkeypatch):
    monkeypatch.setattr("longcrawl.dedup.substring.LEAST_MEMORY", 0)
    settings = {"min_tokens": 20, "unit": "character", "text": "raw", "memory": 1 << 13}
    stages = [{"exact_substring": settings}, {"tokenize": {"tokenizer": tokenizer}}, {"truncate": {"n": 10}}, "shuffle"]
    recipe = write_recipe(tmp_path, many_texts, stages)
    whole = lc.run(recipe, tmp_path / "whole")
    match, done = repeats._Search._match_part, []

    def stop(self, share, *rest):
        done.append(share[0])
        if len(done) == 3:
            raise KeyboardInterrupt
        return match(self, share, *rest)

    monkeypatch.setattr(repeats._Search, "_match_part", stop)
    with pytest.raises(KeyboardInterrupt):
        lc.run(recipe, tmp_path / "stopped")
    ended = lc.run(recipe, tmp_path / "stopped")
    assert done[:4] == [0, 1, 2, 2]
    assert len(done) == len(set(done)) + 1
    assert ended.funnel == whole.funnel
    assert (tmp_path / "stopped" / "manifest.json").read_bytes() == (tmp_path / "whole" / "manifest.json").read_bytes()


def test_what_applies_spans_is_an_edit_named_after_its_survey():
    stage = lc.dedup.ExactSubstring(20, unit="character", text="raw")
    table = table_of(list(TEXTS.values()), list(TEXTS))
    edit = WithSpans(stage, stage.resolve(stage.sketch(table)))
    assert isinstance(stage, SpanSurvey)
    assert edit.name == "exact_substring"
    assert edit(table)["id"].to_pylist() == ["a", "b", "c"]


def test_spans_are_found_by_id_and_pickle_without_what_was_asked():
    import pickle

    rows = [(0, "x", 1, 2), (0, "x", 4, 5), (3, "y", 0, 9)]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    spans = Spans(pa.table(columns, names=["document", "id", "start", "end"]))
    before = pickle.dumps(spans)
    found, chosen = spans.rows_of(pa.array(["n", "y", "m", "x"]))
    assert (found.tolist(), spans.units(chosen).tolist()) == ([1, 3, 3], [[0, 9], [1, 2], [4, 5]])
    assert [each.tolist() for each in spans.rows_of(pa.array(["n"]))] == [[], []]
    assert pickle.dumps(spans) == before
    assert pickle.loads(before).table.equals(spans.table)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cut", "mask"])
def test_real_text_by_tokens_of_gpt2(real_data, policy):
    with (real_data / "short.jsonl.zst").open("rb") as packed:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8")
        rows = [json.loads(line) for line in lines][::5]
    data = Dataset.from_dict({"id": [row["id"] for row in rows], "text": [row["text"] for row in rows]})
    stage = lc.dedup.ExactSubstring(policy=policy, tokenizer=str(real_data / "gpt2.tiktoken"))
    crawl = lc.Crawl(data) | stage
    again = crawl | lc.dedup.ExactSubstring(50, policy="drop-any", tokenizer=stage.tokenizer)
    texts = dict(zip(data["id"][:], data["text"][:], strict=True))
    assert len(data) > len(crawl.data) > len(data) // 2
    if policy == "mask":
        masked = [(texts[row["id"]], span) for row in crawl.data for span in row["masked"]]
        assert len(masked) > 100
        assert all(texts[row["id"]] == row["text"] for row in crawl.data)
        encoder = make_unit("token", stage.tokenizer)
        counts = np.diff(encoder.encode(pa.array([text[s["start"] : s["end"]] for text, s in masked])).offsets)
        assert np.median(counts) >= 50
        assert again.funnel.rows[-1].removed > 0
    else:
        # What is cut leaves its neighbours side by side, so a few new windows may repeat; hardly any do.
        assert again.funnel.rows[-1].removed < 0.02 * len(crawl.data)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "drop-partial", "max_share": 20}, "exact_substring.max_share must be a share from 0 to 1, got 20"),
        (
            {"policy": "drop-partial", "max_share": -0.1},
            "exact_substring.max_share must be a share from 0 to 1, got -0.1",
        ),
        ({"min_characters": -5}, "exact_substring.min_characters is -5: set it to 0 or more"),
    ],
)
def test_numbers_out_of_bounds_are_one_sentence(settings, said):
    with pytest.raises(StageError, match=said):
        lc.dedup.ExactSubstring(**settings)
