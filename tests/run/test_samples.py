"""Samples: the same bytes for the same seed, and something in them for each filter."""

import pytest

import longcrawl as lc


def test_a_seed_makes_the_same_files(tmp_path, directory_digest):
    for seed, name in ((0, "a"), (0, "b"), (1, "c")):
        lc.samples.write_archive(tmp_path / name, seed=seed)
        lc.samples.write_texts(tmp_path / name / "texts.jsonl", pages=20, seed=seed)
    first, second, other = (directory_digest(tmp_path / name) for name in "abc")
    assert first == second != other


@pytest.mark.slow
def test_a_release_written_twice_is_the_same(tmp_path, directory_digest):
    release = lc.samples.write_release(tmp_path / "release")
    before = directory_digest(release)
    assert directory_digest(lc.samples.write_release(release)) == before
    crawl = lc.open(str(release), languages=["en"])
    long = crawl | lc.text.SignalRules("rpv2-card") | lc.dedup.ListedDuplicates() | lc.text.MinWords(16_000)
    assert [row.documents_out for row in long.funnel] == [296, 254, 9]
    assert set(long.funnel.rows[0].rules) == {
        "min_word_count", "max_word_count", "max_symbol_to_word_ratio", "max_bullet_line_fraction",
    }  # fmt: skip
    assert list((crawl | lc.text.Signals()).data["signals"]) == list(crawl.data["signals"])


def test_the_archive_has_pages_for_each_filter(tmp_path):
    crawl = lc.open(str(lc.samples.write_archive(tmp_path / "crawl"))) | lc.text.UrlFilter()
    assert sum(crawl.funnel.rows[0].rules.values()) == 2


def test_texts_have_copies_and_other_languages(tmp_path):
    crawl = lc.open(str(lc.samples.write_texts(tmp_path / "texts.jsonl", pages=40)))
    assert len(crawl.data) == 64
    assert len((crawl | lc.dedup.ExactDocuments()).data) == 56
    assert set(crawl.data["language"]) == {"en", "de"}
