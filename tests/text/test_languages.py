"""Thresholds by language: reading tables, finding a document's language, and judging by them."""

import itertools
import string
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.errors import StageError
from longcrawl.run.recipe import parse_recipe
from longcrawl.text import find_language, language_tables, read_languages
from longcrawl.text import languages as codes
from longcrawl.text.filters import RULE_SETS
from longcrawl.text.languages import FIELDS

ENGLISH = ["the", "be", "to", "of", "and", "that", "have", "with"]
FINEWEB_2 = """
dup_line_frac: 0.25
dup_n_grams: [[5, 0.16], [6, 0.15], [7, 0.14], [8, 0.13], [9, 0.12], [10, 0.11]]
language_score: 0.8
line_punct_thr: 0.1
max_avg_word_length: 12
max_non_alpha_words_ratio: 0.81
min_avg_word_length: 2
new_line_ratio: 0.2
stopwords: [le, la, "l'"]
top_n_grams: [[2, 0.17], [3, 0.15], [4, 0.13]]
"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def table_of(path: Path, **languages) -> str:
    return write(path, yaml.safe_dump({"version": 1, "languages": languages}, allow_unicode=True))


def known(*names: str) -> dict:
    return {name: {} for name in names}


# -------------------- reading


def test_the_shipped_table_has_the_languages_of_redpajama_v2():
    assert language_tables() == ["gopher"]
    table = read_languages("gopher")
    assert list(table) == ["de", "en", "es", "fr", "it"]
    own = lc.text.GopherQuality()
    for language, fields in table.items():
        assert 8 <= len(fields["stop_words"]) == len(set(fields["stop_words"])) <= 12
        assert fields["max_mean_word_length"] >= own.max_mean_word_length
        assert fields["min_alphabetic_words"] <= own.min_alphabetic_words
        judge = lc.text.GopherQuality(language=language, languages="gopher", on_unknown_language="error")
        assert judge(pa.table({"text": ["…"]})) == [False]


def test_english_of_the_shipped_table_is_gophers_own():
    own = lc.text.GopherQuality()
    fields = read_languages("gopher")["en"]
    assert list(fields["stop_words"]) == ENGLISH
    assert fields == {name: getattr(own, name) for name in fields}


def test_tables_by_language_are_no_presets_of_signal_rules():
    assert not set(language_tables()) & set(RULE_SETS.names())


def test_a_table_is_read_once_immutable_and_independent_of_its_order(tmp_path):
    one = table_of(tmp_path / "one.yaml", fr={"min_words": 10, "max_words": None}, de={"stop_words": ["der", "die"]})
    text = "languages: {de: {stop_words: [der, die]}, fr: {max_words: null, min_words: 10}}\nversion: 1\n"
    other = write(tmp_path / "other.yaml", text)
    found = read_languages(one)
    assert found is read_languages(one)
    assert (
        found
        == read_languages(other)
        == {"de": {"stop_words": ("der", "die")}, "fr": {"max_words": None, "min_words": 10}}
    )
    assert [list(each.items()) for each in found.values()] == [
        list(each.items()) for each in read_languages(other).values()
    ]
    with pytest.raises(TypeError):
        found["it"] = {}
    with pytest.raises(TypeError):
        found["de"]["min_words"] = 1


def test_a_fineweb_2_file_gives_our_fields(tmp_path):
    found = read_languages(write(tmp_path / "fra_Latn.yml", FINEWEB_2))
    assert found == {
        "fra_Latn": {
            "max_duplicate_lines": 0.25,
            "max_duplicate_5grams": 0.16,
            "max_duplicate_6grams": 0.15,
            "max_duplicate_7grams": 0.14,
            "max_duplicate_8grams": 0.13,
            "max_duplicate_9grams": 0.12,
            "max_duplicate_10grams": 0.11,
            "max_top_2gram": 0.17,
            "max_top_3gram": 0.15,
            "max_top_4gram": 0.13,
            "min_language_score": 0.8,
            "min_terminal_lines": 0.1,
            "max_mean_word_length": 12,
            "min_mean_word_length": 2,
            "min_alphabetic_words": 0.81,
            "max_newline_ratio": 0.2,
            "stop_words": ("le", "la", "l'"),
            # What the pipeline does for every language.
            "min_stop_words": 2,
            "max_duplicate_paragraphs": None,
            "max_duplicate_paragraph_characters": None,
            "max_duplicate_line_characters": None,
            "max_short_lines": None,
            "max_later_line_characters": 0.1,
        }
    }  # fmt: skip


def test_a_bound_of_zero_switches_off_what_it_switches_off_in_fineweb_2(tmp_path):
    text = "dup_line_frac: 0.0\nmax_avg_word_length: 0\nline_punct_thr: 0\nnew_line_ratio: 0\nstopwords: [a]\n"
    found = read_languages(write(tmp_path / "tha_Thai.yml", text))["tha_Thai"]
    assert found["max_duplicate_lines"] is None
    assert found["max_mean_word_length"] is None
    assert found["min_terminal_lines"] == found["max_newline_ratio"] == 0
    assert "min_mean_word_length" not in found


def test_a_folder_of_fineweb_2_files_is_a_table(tmp_path):
    for name in ("fra_Latn.yml", "deu_Latn.yaml"):
        write(tmp_path / name, FINEWEB_2)
    write(tmp_path / "README.md", "other files are passed over")
    found = read_languages(str(tmp_path))
    assert list(found) == ["deu_Latn", "fra_Latn"]
    assert found["fra_Latn"] == read_languages(str(tmp_path / "fra_Latn.yml"))["fra_Latn"]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("languages", "said"),
    [
        ("{de: {max_word_length: 3}}", "de has an unknown field 'max_word_length'; known: max_bullet_lines, "),
        ("{de: {short_line: 3}}", "de has an unknown field 'short_line'"),
        ("{de: {min_words: many}}", "de.min_words takes a number, or null to switch it off, got 'many'"),
        ("{de: {min_words: true}}", "got True"),
        ("{de: {min_words: .nan}}", "got nan"),
        ("{de: {min_words: [1]}}", r"got \[1\]"),
        ("{de: 3}", "de takes a mapping such as"),
        ("{de: {stop_words: der}}", r"de.stop_words takes a list such as \[der, die\], got 'der'"),
        ("{de: {stop_words: []}}", r"de.stop_words takes a list .* min_stop_words: null needs none"),
        ("{de: {stop_words: null}}", "de.stop_words takes a list"),
        ("{it: {stop_words: [di, no]}}", "it.stop_words holds False, which is not text; quote it, such as 'no'"),
        ("{en: {stop_words: [on, the]}}", "en.stop_words holds True, which is not text; quote it"),
        ("{en: {stop_words: [1]}}", "en.stop_words holds 1, which is not text"),
        ("{en: {stop_words: [of the]}}", "holds 'of the'; a stop word is one word"),
        ("{en: {stop_words: ['']}}", "holds ''; a stop word is one word"),
        ("{no: {min_words: 3}}", "the language False is not text; quote it"),
        ("{de: {min_words: 3}, de: {min_words: 4}}", "the key 'de' is given twice, in line 2: keep one"),
        ("{de: {min_words: 3}, deu: {min_words: 4}}", "has one language twice, as 'de' and 'deu'; keep one of them"),
        ("{en-GB: {min_words: 3}, en-US: {min_words: 4}}", "has one language twice, as 'en-GB' and 'en-US'"),
        ("[de]", "languages takes a mapping such as {de: {max_mean_word_length: 14}}"),
        ("{}", "languages takes a mapping"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused_with_one_sentence(tmp_path, languages, said):
    path = write(tmp_path / "wrong.yaml", f"version: 1\nlanguages: {languages}\n")
    with pytest.raises(StageError, match=said) as error:
        read_languages(path)
    assert path in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("languages: {de: {min_words: 3}}", "has version None, but this longcrawl reads 1"),
        ("version: 2\nlanguages: {de: {min_words: 3}}", "has version 2, but this longcrawl reads 1"),
        ("version: 1\nlanguage: {de: {min_words: 3}}", "unknown key 'language'; known: version, languages"),
        ("version: 1", "languages takes a mapping"),
        ("- de", "takes version: 1 and languages"),
        ("", "takes version: 1 and languages"),
        ("{", "cannot be read as YAML"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, text, said):
    with pytest.raises(StageError, match=said):
        read_languages(write(tmp_path / "wrong.yaml", text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dup_line_frac: 0.2\ndup_lines: 3", "unknown key 'dup_lines'; FineWeb-2 has: dup_line_frac, dup_n_grams, "),
        ("dup_n_grams: 0.2", r"dup_n_grams takes pairs of n and a share, such as \[\[5, 0.15\]\], got 0.2"),
        ("top_n_grams: [[2]]", r"top_n_grams takes pairs of n and a share, such as \[\[2, 0.15\]\]"),
        ("top_n_grams: [[5, 0.1]]", "top_n_grams has n = 5; known: 2, 3, 4"),
        ("top_n_grams: [[two, 0.1]]", "top_n_grams has n = 'two'"),
        ("dup_line_frac: false", "fra_Latn.max_duplicate_lines takes a number, .* got False"),
        ("stopwords: [le, no]", "fra_Latn.stop_words holds False, which is not text; quote it"),
    ],
)
def test_a_wrong_fineweb_2_file_is_refused(tmp_path, text, said):
    with pytest.raises(StageError, match=said):
        read_languages(write(tmp_path / "fra_Latn.yml", text))


def test_what_names_no_table_is_refused(tmp_path, monkeypatch):
    with pytest.raises(StageError, match="unknown thresholds 'gophre'; known: gopher, or the path of a YAML file"):
        lc.text.GopherQuality(languages="gophre")
    with pytest.raises(StageError, match=r"holds no file such as fra_Latn.yml"):
        read_languages(str(tmp_path))
    with pytest.raises(StageError, match=r"is not named after a language; rename it, such as to fra_Latn.yml"):
        read_languages(write(tmp_path / "french.yml", FINEWEB_2))
    write(tmp_path / "fra_Latn.yml", FINEWEB_2)
    (tmp_path / "french.yml").replace(tmp_path / "fra_Latn.yaml")
    with pytest.raises(StageError, match="two files for 'fra_Latn'"):
        read_languages(str(tmp_path))
    # A folder of the name of a shipped table does not hide it.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gopher").mkdir()
    assert "en" in read_languages("gopher")


# -------------------- finding


@pytest.mark.variants
@pytest.mark.parametrize(
    ("names", "name", "found"),
    [
        # The very name comes first, whatever it is.
        (["fr", "fra_Latn"], "fra_Latn", "fra_Latn"),
        (["english"], "english", "english"),
        (["english"], "en", None),
        # Codes of two and three letters, case, separators, regions and variants.
        (["fra_Latn"], "fr", "fra_Latn"),
        (["fra_Latn"], "fra", "fra_Latn"),
        (["fra_Latn"], "fr-FR", "fra_Latn"),
        (["fr"], "fra_Latn", "fr"),
        (["pt"], "PT_br", "pt"),
        (["ca"], "ca-valencia", "ca"),
        (["heb_Hebr"], "iw", "heb_Hebr"),
        (["pt-BR"], "pt", "pt-BR"),
        # A script that is named decides; without one an entry is for all scripts.
        (["srp_Cyrl", "srp_Latn", "sr"], "sr-Latn-RS", "srp_Latn"),
        (["srp_Cyrl", "sr"], "sr-Latn", "sr"),
        (["srp_Cyrl"], "sr-Latn", None),
        (["zho_Hans", "zho_Hant", "zho_Hani"], "zh-Hant-TW", "zho_Hant"),
        (["zho_Hans", "zho_Hani"], "zh-Hant", "zho_Hani"),
        (["kor_Hang"], "ko-Kore", "kor_Hang"),
        # A document that names none: an entry without one, the usual script, the only one.
        (["srp_Cyrl", "srp_Latn", "sr"], "srp", "sr"),
        (["srp_Cyrl", "srp_Latn"], "sr", "srp_Cyrl"),
        (["hin_Latn", "hin_Deva"], "hi", "hin_Deva"),
        (["azj_Cyrl", "azj_Latn"], "azj", "azj_Latn"),
        (["zho_Hani", "zho_Latn"], "zh", "zho_Hani"),
        (["hin_Latn"], "hi", "hin_Latn"),
        (["xyz_Arab", "xyz_Latn"], "xyz", None),
        (["xyz_Arab"], "xyz", "xyz_Arab"),
        # Macrolanguages and their main members, after the language itself.
        (["cmn_Hani"], "zh", "cmn_Hani"),
        (["cmn_Hani"], "zh-Hans", "cmn_Hani"),
        (["zh"], "cmn", "zh"),
        (["cmn_Hani", "zho_Hani"], "zh", "zho_Hani"),
        (["nob_Latn", "nno_Latn"], "no", "nob_Latn"),
        (["nob_Latn", "nno_Latn"], "nn", "nno_Latn"),
        (["nob_Latn"], "nn", None),
        (["arb_Arab"], "ar", "arb_Arab"),
        (["yue_Hant"], "zh", None),
        # No language.
        (["fr"], "", None),
        (["fr"], "unknown", None),
        (["fr"], "f", None),
        (["fr"], "fr FR", None),
    ],
)  # fmt: skip
def test_a_language_is_found_in_the_documented_order(names, name, found):
    for order in itertools.permutations(names):
        assert find_language(known(*order), name) == found


letters = st.text(string.ascii_letters, min_size=2, max_size=3)
scripts = st.sampled_from(["", "_Latn", "-Hans", "_Hani", "-hant", "_Cyrl", "-Kore", "_Hang"])
regions = st.sampled_from(["", "-FR", "_419", "-valencia"])
listed = st.sampled_from(codes._ISO_639_1.split()).flatmap(lambda pair: st.sampled_from([pair[:2], pair[2:]]))
members = st.sampled_from(codes._MEMBERS.split()).flatmap(lambda pair: st.sampled_from([pair[:3], pair[3:]]))
tags = st.builds(lambda *parts: "".join(parts), letters | listed | members, scripts, regions)


@given(tags, tags)
def test_two_names_find_each_other_or_neither_does(one, other):
    assert (find_language(known(one), other) is None) == (find_language(known(other), one) is None)


@given(st.lists(tags, unique=True, max_size=6), tags, st.randoms())
def test_what_is_found_does_not_depend_on_the_order_of_the_table(names, name, chance):
    found = find_language(known(*names), name)
    chance.shuffle(names)
    assert find_language(known(*names), name) == found


def test_the_codes_are_whole():
    pairs = codes._ISO_639_1.split()
    assert all(len(pair) == 5 for pair in pairs)
    assert len({pair[:2] for pair in pairs}) == len(pairs) == 184 + 5
    three = {pair[2:] for pair in pairs}
    members = codes._MEMBERS.split()
    assert all(len(pair) == 6 and pair[:3] in three for pair in members)
    assert len({pair[3:] for pair in members}) == len(members)
    assert set(codes._MAIN_SCRIPTS) == three
    listed = [language for line in codes._SCRIPTS.splitlines() for language in line[5:].split()]
    assert len(set(listed)) == len(listed)


# -------------------- judging

GERMAN = "Der Vorstand und die Geschäftsführung sind für Rechtsschutzversicherungen nicht verantwortlich"
DOCUMENTS = {
    "id": ["a", "b", "c", "d"],
    "text": [GERMAN, "short words of the day", GERMAN, GERMAN],
    "language": ["deu_Latn", "en", "xx", None],
}
ONLY_LENGTH = dict.fromkeys(["min_words", "min_stop_words", "min_alphabetic_words", "min_mean_word_length"])


def length_table(tmp_path: Path) -> str:
    return table_of(tmp_path / "table.yaml", de={"max_mean_word_length": 20}, en={"max_mean_word_length": 3.5})


def test_thresholds_by_language_change_verdicts_and_the_ledger_has_them(tmp_path):
    crawl = lc.Crawl(Dataset.from_dict(DOCUMENTS))
    plain = crawl | lc.text.GopherQuality(**ONLY_LENGTH, max_mean_word_length=6)
    assert plain.data["id"][:] == ["b"]
    judged = crawl | lc.text.GopherQuality(**ONLY_LENGTH, max_mean_word_length=6, languages=length_table(tmp_path))
    assert judged.data["id"][:] == ["a"]
    assert [judged.why(name).threshold for name in "bcd"] == [3.5, 6, 6]
    assert judged.why("b").rule == "max_mean_word_length"


@pytest.mark.parametrize(("choice", "kept"), [("default", "a"), ("keep", "acd")])
def test_an_unknown_language_is_judged_by_the_stage_or_kept(tmp_path, choice, kept):
    judge = lc.text.GopherQuality(
        **ONLY_LENGTH, max_mean_word_length=6, languages=length_table(tmp_path), on_unknown_language=choice
    )
    crawl = lc.Crawl(Dataset.from_dict(DOCUMENTS)) | judge
    assert crawl.data["id"][:] == list(kept)


@pytest.mark.parametrize(("rows", "said"), [([0, 2], "the language 'xx'"), ([1, 3], "the language null")])
def test_an_unknown_language_is_an_error_where_that_is_chosen(tmp_path, rows, said):
    judge = lc.text.GopherQuality(**ONLY_LENGTH, languages=length_table(tmp_path), on_unknown_language="error")
    table = pa.table(DOCUMENTS)
    assert judge(table.take([0, 1])) == [True, False]
    with pytest.raises(StageError, match=f"{said}; .*table.yaml has: de, en; add it there, or set on_unknown_language"):
        judge(table.take(rows))


def test_stop_words_are_those_of_each_document_s_language():
    texts = ["der Hund und die Katze", "the dog and the cat", "der Hund und die Katze"]
    table = pa.table({"text": texts, "language": ["de", "en", "en"]})
    off = {"min_words": None, "min_alphabetic_words": None, "min_mean_word_length": None}
    assert lc.text.GopherQuality(**off)(table) == [False, True, False]
    assert lc.text.GopherQuality(**off, languages="gopher")(table) == [True, True, False]


def test_a_rule_that_the_table_switches_off_lets_pass(tmp_path):
    path = table_of(tmp_path / "table.yaml", de={"max_mean_word_length": None})
    table = pa.table(DOCUMENTS).slice(0, 1)
    assert lc.text.GopherQuality(**ONLY_LENGTH, max_mean_word_length=2)(table) == [False]
    assert lc.text.GopherQuality(**ONLY_LENGTH, max_mean_word_length=2, languages=path)(table) == [True]


def test_every_rule_set_takes_what_it_has_of_a_fineweb_2_file(tmp_path):
    path = write(tmp_path / "fra_Latn.yml", FINEWEB_2)
    text = "\n".join(["la même ligne, toujours la même"] * 3 + ["et le reste"] * 9)
    table = pa.table({"text": [text], "language": ["fr"]})
    thresholds = {}
    for rules in (lc.text.GopherQuality, lc.text.GopherRepetition, lc.text.FineWebQuality):
        thresholds |= {check.rule: check.threshold for check in rules(languages=path).checks(table)}
    chosen = {rule: bound[0].as_py() for rule, bound in thresholds.items()}
    assert (chosen["max_mean_word_length"], chosen["max_top_2gram"], chosen["max_newline_ratio"]) == (12, 0.17, 0.2)
    assert chosen["max_short_lines"] is None
    assert chosen["min_words"] == 50


def test_a_recipe_takes_a_table_by_name():
    stages = [
        {"gopher_quality": {"languages": "gopher", "on_unknown_language": "keep"}},
        {"tokenize": {"tokenizer": "trained"}},
    ]
    spec = {
        "longcrawl": 1,
        "name": "by-language",
        "source": {"builder": "text", "data_dir": "documents"},
        "stages": stages,
        "outputs": {"rectangle": {}},
    }
    recipe = parse_recipe(spec)
    again = parse_recipe(yaml.safe_load(recipe.as_yaml()))
    assert recipe.stages[0][1] == lc.text.GopherQuality(languages="gopher", on_unknown_language="keep")
    assert again.digest == recipe.digest
    assert again.stages[0] == recipe.stages[0]


def test_fields_are_those_of_the_rules():
    rules = (lc.text.GopherQuality, lc.text.GopherRepetition, lc.text.FineWebQuality)
    bounds = {name for rule in rules for name in rule.__dataclass_fields__ if name.startswith(("min_", "max_"))}
    assert sorted(bounds | {"min_language_score", "stop_words"}) == list(FIELDS)
