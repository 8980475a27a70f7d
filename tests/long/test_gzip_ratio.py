"""Compression ratios: ratio and fitted bounds against plain Python, languages, and runs by any number of processes."""

import json
import random
import zlib
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.counts import LEDGER
from longcrawl.errors import StageError
from longcrawl.long.gzip_ratio import MEASURES

STAGE = lc.long.GzipRatio


def plain_ratio(text, min_bytes):
    content = (text or "").encode()
    return len(content) / len(zlib.compress(content, level=6, wbits=15)) if len(content) >= min_bytes else None


@given(
    texts=st.lists(st.none() | st.text(max_size=40).map(lambda text: text * (len(text) + 1)), max_size=6),
    min_bytes=st.integers(1, 60),
    cut=st.integers(0, 6),
)
def test_ratios_equal_plain_python(texts, min_bytes, cut):
    column = pa.array(texts, pa.large_string())
    assert STAGE(min_bytes=min_bytes).measures(column[cut:]).to_pylist() == [
        plain_ratio(text, min_bytes) for text in texts[cut:]
    ]


def plain_bounds(ratios, low, high):
    """Return the bounds by counting, with shares as exact fractions of the decimals that a recipe has."""

    def share(test):
        return Fraction(sum(map(test, ratios)), len(ratios))

    below = [bound for bound in ratios if share(lambda ratio: ratio < bound) <= Fraction(str(low))]  # noqa: B023
    above = [bound for bound in ratios if share(lambda ratio: ratio > bound) <= 1 - Fraction(str(high))]  # noqa: B023
    return max(below), min(above)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["de", "en", "ru"]), st.sampled_from([1.5, 2.0, 2.25, 3.1, 4.7])), min_size=1
    ),
    shares=st.tuples(st.integers(0, 99), st.integers(1, 100)).filter(lambda pair: pair[0] < pair[1]),
    min_documents=st.integers(1, 4),
    by=st.sampled_from(["language", "all"]),
    chance=st.randoms(),
)
def test_fitted_bounds_equal_plain_python_in_any_order_and_batches(rows, shares, min_documents, by, chance):
    low, high = (share / 100 for share in shares)
    groups = {}
    for language, ratio in rows:
        groups.setdefault(language if by == "language" else "", []).append(ratio)
    groups = {name: ratios for name, ratios in sorted(groups.items()) if len(ratios) >= min_documents}
    stage = STAGE(low_quantile=low, high_quantile=high, by=by, min_documents=min_documents)
    measures = [(language if by == "language" else "", ratio) for language, ratio in rows]
    chance.shuffle(measures)
    batch = chance.randint(1, 5)
    tables = [
        pa.table([list(each) for each in zip(*measures[at : at + batch], strict=True)], schema=MEASURES)
        for at in range(0, len(measures), batch)
    ]
    if not groups:
        with pytest.raises(StageError, match=r"^gzip_ratio fits its quantiles to . documents of .* only .: lower min_"):
            stage.fit_measures(tables, "")
        return
    fitted = stage.fit_measures(tables, "")
    expected = {name: plain_bounds(ratios, low, high) for name, ratios in groups.items()}
    if by == "all":
        assert (fitted.low, fitted.high) == expected[""]
    else:
        assert fitted.low == {name: bounds[0] for name, bounds in expected.items()}
        assert fitted.high == {name: bounds[1] for name, bounds in expected.items()}
    assert not fitted.needs_fit


def corpus():
    """Return texts in three scripts that differ in compression, a language with few texts, and short texts."""
    chance = random.Random(0)
    letters = {"en": "abcdefghijklmno", "ru": "абвгдежзийклмно", "ja": "あいうえおかきくけこさしすせ"}
    rows = []
    for language, alphabet in letters.items():
        for number in range(20):
            words = ["".join(chance.choices(alphabet, k=chance.randint(2, 8))) for _ in range(40 + 30 * number)]
            text = " ".join(chance.choices(words, k=1_500))
            rows.append({"id": f"{language}-{number}", "text": text, "language": language})
    rows += [{"id": f"fr-{number}", "text": "la mer " * 900 * (number + 1), "language": "fr"} for number in range(2)]
    rows += [{"id": "none", "text": "0" * 9_000, "language": None}, {"id": "short", "text": "0" * 99, "language": "en"}]
    chance.shuffle(rows)
    return rows


MIDDLE = {"low_quantile": 0.2, "high_quantile": 0.8, "min_bytes": 4_096, "min_documents": 5}


def test_each_language_has_its_own_bounds():
    rows = {row["id"]: row for row in corpus()}
    crawl = lc.Crawl(Dataset.from_list(list(rows.values()))) | STAGE(**MIDDLE)
    ratios = {name: plain_ratio(row["text"], 4_096) for name, row in rows.items()}
    bounds = {}
    for language in ("en", "ja", "ru"):
        found = [ratios[name] for name, row in rows.items() if row["language"] == language and ratios[name]]
        bounds[language] = plain_bounds(found, 0.2, 0.8)
        assert sum(name.startswith(language) for name in crawl.data["id"]) == 12
    assert bounds["en"][1] < bounds["ru"][0]  # bounds of all together would keep neither
    assert {"fr-0", "fr-1", "none", "short"} <= set(crawl.data["id"])
    assert dict(zip(crawl.data["id"], crawl.data["gzip_ratio"], strict=True)) == {
        name: ratios[name] for name in crawl.data["id"]
    }
    gone = {row["id"]: (row["rule"], row["value"], row["threshold"]) for row in crawl.ledger.to_pylist()}
    assert gone == {
        name: ("gzip_ratio_low", ratio, low) if ratio < low else ("gzip_ratio_high", ratio, high)
        for name, ratio in ratios.items()
        for low, high in [bounds.get(rows[name]["language"], (None, None))]
        if low is not None and ratio is not None and not low <= ratio <= high
    }


def test_bounds_of_all_documents_remove_the_scripts_of_many_bytes():
    rows = [row for row in corpus() if row["language"] != "fr"]
    crawl = lc.Crawl(Dataset.from_list(rows)) | STAGE(**MIDDLE, by="all")
    kept = [name.partition("-")[0] for name in crawl.data["id"]]
    assert {language: kept.count(language) for language in ("en", "ja", "ru")} != dict.fromkeys(("en", "ja", "ru"), 12)
    assert isinstance(crawl.steps[-1].low, float)


def test_fixed_bounds_need_one_pass_and_match_languages_in_any_form():
    texts, names = ["ab" * 99, "ab" * 99, "ab" * 99, None], ["eng_Latn", "fr", None, "en"]
    table = pa.table({"id": list("abcd"), "text": texts, "language": names})
    stage = STAGE(high={"en": 3}, min_bytes=9)
    assert not stage.needs_fit
    assert stage.judge(table)["rule"].to_pylist() == ["gzip_ratio_high", None, None, None]
    everywhere = STAGE(low=99.5, min_bytes=9).judge(table.drop_columns(["language"]))
    assert everywhere["threshold"].to_pylist() == [99.5, 99.5, 99.5, None]
    assert STAGE(min_bytes=9).judge(table)["rule"].null_count == 4
    with pytest.raises(StageError, match=r"^gzip_ratio needs a column 'language'.*identify_language"):
        stage.judge(table.drop_columns(["language"]))


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "texts").mkdir()
    for part in range(5):
        rows = corpus()[part::5]
        (tmp_path / "texts" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"builder": "text", "id_field": "id", "language_field": "language", "data_dir": str(tmp_path / "texts")}
    spec = {"longcrawl": 1, "name": "it", "source": source, "outputs": {"parquet": {}}}
    file = tmp_path / "it.yaml"
    file.write_text(yaml.safe_dump(spec | {"stages": [{"min_chars": {"n": 9}}, {"gzip_ratio": MIDDLE}]}))
    return file


def kept_in(run):
    rows = pq.read_table(sorted((run / "parquet").glob("*.parquet"))).to_pylist()
    return {row["id"]: row["gzip_ratio"] for row in rows}


@pytest.mark.slow
def test_a_run_fits_what_a_crawl_fits_with_any_number_of_processes(recipe, tmp_path, directory_digest):
    lc.run(recipe, tmp_path / "one")
    lc.run(recipe, tmp_path / "two", 2)
    assert directory_digest(tmp_path / "one") == directory_digest(tmp_path / "two")
    crawl = lc.Crawl(Dataset.from_list(corpus())) | STAGE(**MIDDLE)
    assert kept_in(tmp_path / "one") == dict(zip(crawl.data["id"], crawl.data["gzip_ratio"], strict=True))
    removed = pq.read_table(sorted((tmp_path / "one" / LEDGER).glob("*.parquet"))).sort_by("id")
    columns = ["id", "rule", "value", "threshold"]
    assert removed.select(columns).to_pylist() == crawl.ledger.sort_by("id").select(columns).to_pylist()

    manifest = json.loads((tmp_path / "one/manifest.json").read_text())
    assert manifest["versions"]["zlib"] == zlib.ZLIB_RUNTIME_VERSION
    (report,) = manifest["reports"]["gzip_ratio"]
    assert report.startswith("bounds of the compression ratio of texts of 4,096 bytes or more: low: {")
    assert "bounds of the compression ratio" in (tmp_path / "one/README.md").read_text()
    shown = report.partition("more: ")[2].partition(";")[0]
    bounds = yaml.safe_load(f"{{{shown}}}")
    fitted = crawl.steps[-1]
    assert bounds == {"low": fitted.low, "high": fitted.high}
    spec = yaml.safe_load(recipe.read_text())
    spec["stages"][1] = {"gzip_ratio": bounds | {"min_bytes": 4_096}}
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "fixed")
    assert kept_in(tmp_path / "fixed") == kept_in(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("calls", [30, 90])
def test_a_stopped_run_goes_on_to_the_same_bytes(recipe, tmp_path, monkeypatch, directory_digest, calls):
    """The run stops while it measures for the fit, or after the fit while it judges documents."""
    lc.run(recipe, tmp_path / "whole")
    left, compress = iter(range(calls)), zlib.compress

    def stop(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return compress(*given)

    with monkeypatch.context() as patch:
        patch.setattr(zlib, "compress", stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, tmp_path / "out")
    lc.run(recipe, tmp_path / "out")
    assert directory_digest(tmp_path / "out") == directory_digest(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_that_goes_on_with_another_zlib_warns_once(recipe, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "1.1")
    with monkeypatch.context() as patch:
        patch.setattr(STAGE, "edit", stop)
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, tmp_path / "out")
    monkeypatch.setattr(zlib, "ZLIB_RUNTIME_VERSION", "1.2")
    with pytest.warns(UserWarning, match=r"out was started with zlib 1\.1 and continues with zlib 1\.2") as warned:
        lc.run(recipe, tmp_path / "out")
    assert len(warned) == 1
    assert json.loads((tmp_path / "out/manifest.json").read_text())["versions"]["zlib"] == "1.2"


def test_settings_that_cannot_be_are_one_sentence():
    for settings, message in [
        ({"low": 1.5, "high_quantile": 0.8}, "gzip_ratio has both bounds and quantiles: set low and high, or"),
        (
            {"low_quantile": 0.8, "high_quantile": 0.2},
            "gzip_ratio has low_quantile 0.8 and high_quantile 0.2: set them",
        ),
        ({"low_quantile": -0.1}, "gzip_ratio has low_quantile -0.1 and high_quantile 1: set them"),
        ({"low": {}}, r"gzip_ratio.low has no language: add one, such as \{en: 2.8\}"),
        ({"high": {"en": "x"}}, "gzip_ratio.high of en is 'x': set a ratio"),
        ({"low": -1.0}, "gzip_ratio.low is -1.0: set a ratio"),
        ({"high": 0}, "gzip_ratio.high is 0: set a ratio"),
        ({"low": 3, "high": 2}, "gzip_ratio keeps no long document: low 3 is above high 2"),
        ({"low": {"de": 2, "en": 3}, "high": {"eng": 2}}, "gzip_ratio keeps no long document of en: low 3 is above"),
        ({"low": 3, "high": {"en": 2}}, "gzip_ratio keeps no long document of en: low 3 is above high 2"),
        ({"high": {False: 2.0}}, "gzip_ratio.high has the language False: quote it"),
        ({"min_bytes": 0}, "gzip_ratio.min_bytes is 0: set it to 1 or more"),
        ({"low_quantile": 0.2, "min_documents": 0}, "gzip_ratio.min_documents is 0: set it to 1 or more"),
    ]:
        with pytest.raises(StageError, match=f"^{message}"):
            STAGE(**settings)
    assert STAGE(low={"en": 3}, high={"ru": 2, "eng_Latn": 3}).limits()
    table = pa.table({"id": ["a"], "text": ["a"], "language": ["en"]})
    with pytest.raises(StageError, match="^gzip_ratio has no bounds yet: call stage.fit"):
        STAGE(low_quantile=0.2).edit(table)
    with pytest.raises(StageError, match="^gzip_ratio fits its quantiles to 100 documents of 32,768 bytes or more"):
        lc.Crawl({"id": ["a"], "text": ["a"], "language": ["en"]}) | STAGE(low_quantile=0.2)
    assert replace(STAGE(low=2.0), low=None).limits() == ()
