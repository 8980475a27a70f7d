"""Normalisation and the way back to the original: against plain Python over all of Unicode."""

# The alphabets are the point here:
# ruff: noqa: RUF001

import string
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
import regex as re
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.dedup.normalize import load_normal_forms, normalize, normalize_with_sources
from longcrawl.kernels import code_points

AWKWARD = (
    "abcXYZ  \n\t\x1c\x85\u00a0\u2028\u3000\0.,'-_$+<=>^`|~¿„“”…«»§€№"
    "éÉe\u0301\u0323ÅñçΣσςΟΔΥ\u0345İıſǅßﬁŒ가각한\u1112\u1161\u00ad\u200d\u2019\u0387·"
    "हिन्दी कि์ไทยแผ่น עִבְרִית العَرَبِيَّة 中文字。、！ᄒ\ufe0f😀👍🏽"
    "\u034f\u180e\u200b\u200c\u2060\u2063\u3164\ufeff\u2065\U000e0041"
    "\U0001d15e\U0001d165\U0001d16d\u302e\u302f\u1b44\u1baa\ua953\u0f73\u0344\u3099"
)
"""Letters that change in length, marks of every kind, and the few marks that stay and have a combining class."""

texts = st.text(st.sampled_from(AWKWARD), max_size=40) | st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(AWKWARD), max_size=40
)


SHOWS_NOTHING = re.compile(r"\p{Default_Ignorable_Code_Point}")


def plain(text: str) -> str:
    bare = "".join(
        each
        for each in SHOWS_NOTHING.sub("", text)
        if unicodedata.category(each)[0] != "P" and each not in string.punctuation
    ).lower()
    decomposed = unicodedata.normalize("NFD", bare)
    return " ".join("".join(each for each in decomposed if unicodedata.category(each) != "Mn").split())


def as_array(documents):
    return pa.array(documents, pa.large_string())


@given(st.lists(texts, max_size=5))
@example(["", " ", "!!!", "\u0301", " . ", "\0"])
@example(["ΟΔΟΣ", "ΟΔΟΣ.", "ΟΔΟΣ'Α", "'Σ'", "Α\u0301Σ\u0301", "ΑΣ\u00adΒ ΑΣ\u3164", "Σ ΑΣ Σ", "\u0345Σ", "aΣ𝐀"])
@example(["\U0001d15e\U0001d16d\u302e", "\U0001d16d\U0001d165\u302e", "a\u302e\u1b44\u0301\u1b44.\u302e\u1b44 \u1b44"])
@example(["a\u302e\u0e31\u1b44", "\u302e" * 40 + "\u1b44" * 40, "\u302e\u0f73\u1b44\u0344\u302f"])
@settings(max_examples=2 * settings.default.max_examples, deadline=None)  # the first call compiles the kernels
def test_normal_forms_equal_plain_python(documents):
    wanted = [plain(document) for document in documents]
    assert normalize(as_array(documents)).to_pylist() == wanted
    assert normalize_with_sources(as_array(documents)).texts.to_pylist() == wanted


@pytest.mark.slow
def test_every_character_by_itself_and_between_letters():
    characters = [each for each in map(chr, range(0x110000)) if unicodedata.category(each) not in ("Cn", "Co", "Cs")]
    characters += map(chr, range(0xE0000, 0xE1000))  # tags and variation selectors, also those not assigned yet
    for form in ("{}", "A{} B", "\u302e{}\u1b44"):
        documents = [form.format(character) for character in characters]
        for document, found in zip(documents, normalize(as_array(documents)).to_pylist(), strict=True):
            assert found == plain(document), ascii(document)


@pytest.mark.slow
def test_there_is_memory_for_every_form():
    from longcrawl.dedup.normalize import MOST_PER_BYTE

    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    assert max(len(plain(each).encode()) / len(each.encode()) for each in characters) == MOST_PER_BYTE


def test_null_and_slices_and_small_strings():
    array = pa.array(["left out", None, "É!", "", "Ab"], pa.string())[1:4]
    assert normalize(array).to_pylist() == ["", "e", ""]
    assert normalize(pa.array([], pa.string())).to_pylist() == []
    assert normalize(pa.array([None, None])).to_pylist() == ["", ""]


def plain_sources(text: str) -> list[int]:
    """Return where each byte of the normal form comes from, for texts in which no two marks change places."""
    sources, at, blank = [], 0, None
    for each in text:
        if each.isspace():
            blank = at if blank is None else blank
        elif form := plain(each).encode():
            if blank is not None and sources:
                sources.append(blank)
            sources += [at] * len(form)
            blank = None
        at += len(each.encode())
    return sources


@given(st.lists(texts.filter(lambda text: not set("\U0001d165\U0001d16d\u302e\u302f\u1b44\u1baa\ua953") & set(text))))
@example(["  a \t é  ", " ! x ,  - y . "])
@settings(deadline=None)
def test_every_byte_knows_where_it_comes_from(documents):
    found = normalize_with_sources(as_array(documents))
    wanted = [source for document in documents for source in plain_sources(document)]
    assert found.sources.tolist() == wanted


@given(texts, st.data())
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_a_span_of_the_normal_form_is_found_in_the_original(document, data):
    normalized = normalize_with_sources(as_array(["before", document]))
    form = plain(document).encode()
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(form))] * 2)))
    ((first, last),) = normalized.source_spans(np.array([1]), np.array([[start, stop]])).tolist()
    original = document.encode()[first:last].decode()
    assert not original or not (original[0].isspace() or original[-1].isspace())
    # Whether a sigma is final, and the order of marks, are decided by what stands around them.
    if not set("\U0001d165\U0001d16d\u302e\u302f\u1b44\u1baa\ua953\U0001d15e") & set(document):
        found = plain(original).replace("ς", "σ").encode()
        assert found in form.replace("ς".encode(), "σ".encode())[start:stop]


@pytest.mark.parametrize(
    ("document", "span", "original"),
    [
        ("Un café, s'il vous plaît!", "cafe sil", "café, s'il"),
        ("Un cafe\u0301, s'il", "cafe", "cafe\u0301"),
        ("one   two", "e two", "e   two"),
        ("One vil\u00adlage\u2060, two", "village", "vil\u00adlage\u2060"),
        ("\ufeffone \u200btwo", "one two", "\ufeffone \u200btwo"),
        ("\u00ad\u00adone (\u200btwo)", "two", "two"),
        ("one \u200b\u0301two", "two", "\u200b\u0301two"),
        ("one, (two) three", " two ", "two"),
        ("각 나", "\u11a8 \u1102\u1161", "나"),
        ("ab", "", ""),
    ],
)
def test_spans_keep_accents_and_leave_punctuation_at_the_ends(document, span, original):
    normalized = normalize_with_sources(as_array([document]))
    start = normalized.texts[0].as_py().encode().index(span.encode())
    ((first, last),) = normalized.source_spans([0], [[start, start + len(span.encode())]]).tolist()
    assert document.encode()[first:last].decode() == original


@pytest.mark.slow
def test_tables_that_are_not_shipped_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(code_points, "SHIPPED", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = load_normal_forms.__wrapped__()
    assert any("normal" in file.name for file in (tmp_path / "longcrawl").iterdir())
    again = load_normal_forms.__wrapped__()
    assert all(np.array_equal(one, other) for one, other in zip(made, again, strict=True))


@pytest.mark.slow
def test_real_text(real_data):
    import io
    import json

    import zstandard

    with (real_data / "short.jsonl.zst").open("rb") as packed:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), encoding="utf-8")
        documents = [json.loads(line)["text"] for line in lines][::15]
    found = normalize_with_sources(as_array(documents))
    assert found.texts.to_pylist() == list(map(plain, documents))
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, len(documents), 5000)
    lengths = np.array([len(text.as_py().encode()) for text in found.texts])[numbers]
    starts = rng.integers(0, lengths + 1)
    stops = np.minimum(starts + rng.integers(0, 400, 5000), lengths)
    spans = found.source_spans(numbers, np.stack([starts, stops], axis=1))
    same = 0
    for number, start, stop, (first, last) in zip(numbers, starts, stops, spans.tolist(), strict=True):
        wanted = found.texts[number].as_py().encode()[start:stop].decode(errors="ignore").strip()
        same += plain(documents[number].encode()[first:last].decode()) == wanted
    assert same > 4900  # the rest begins or ends inside a decomposed letter, or at a final sigma


PASSAGE = "The ferry from the island came in late because of the fog and nobody on the quay was surprised by it at all"
PLAIN_COPY = "A notice: " + PASSAGE + "."

STAGES = {
    "exact_documents": lc.dedup.ExactDocuments(text="normalised"),
    "min_hash": lc.dedup.MinHash.preset("fineweb", keep="first"),
    "exact_substring": lc.dedup.ExactSubstring(50, unit="character", min_characters=0),
    "decontaminate": lc.dedup.Decontaminate(
        against=[Dataset.from_dict({"item": [PASSAGE]})], policy="cut", min_characters=0
    ),
}
LEFT = {
    "exact_documents": [PLAIN_COPY],
    "min_hash": [PLAIN_COPY],
    "exact_substring": [".", "."],
    "decontaminate": ["A notice: .", None],
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "mark",
    [
        "\u00ad",
        *(pytest.param(mark, marks=pytest.mark.slow) for mark in "\u180e\u200b\u200c\u200d\u2060\u2063\ufeff\ufe0f"),
    ],
)
def test_characters_that_show_nothing_hide_no_copy_and_stay_in_other_texts(stage, mark):
    copy = PLAIN_COPY.replace("e", f"{mark}e{mark}").replace("The", f"{mark}The")
    other = f"Zw{mark}ischen den In{mark}seln f\u00e4hrt kein Schiff."
    made = lc.Crawl({"id": ["a", "b", "c"], "text": [PLAIN_COPY, copy, other]}) | STAGES[stage]
    *left, untouched = made.data["text"][:]
    assert untouched == other
    wanted = [f"A notic{mark}e{mark}: ." if text is None else text for text in LEFT[stage]]
    assert left == wanted
