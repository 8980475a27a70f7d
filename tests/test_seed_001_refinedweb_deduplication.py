"""G. Penedo et al., "The RefinedWeb Dataset for Falcon LLM" (2023): deduplication, sentence by sentence.

Sections 3 ("Deduplication: fuzzy, exact, and across dumps"), G.3 and H. Each test bears the sentence that it tests.
"""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from datasets import Dataset

import longcrawl as lc
from longcrawl.dedup.normalize import normalize
from longcrawl.run.segments import group_inputs

VOCABULARY = [f"word{number}" for number in range(5_000)]
LICENCE = " ".join(random.Random(1).choices(VOCABULARY, k=400)) + " {owner} " + " ".join(VOCABULARY[:400])


def prose(seed: int, words: int = 300) -> str:
    return " ".join(random.Random(seed).choices(VOCABULARY, k=words))


def changed(text: str, share: float, seed: int) -> str:
    chance = random.Random(seed)
    return " ".join(f"new{number}" if chance.random() < share else word for number, word in enumerate(text.split()))


def crawl_of(**texts: str) -> lc.Crawl:
    return lc.Crawl(Dataset.from_dict({"id": list(texts), "text": list(texts.values())}))


def minhash(**fields) -> lc.dedup.MinHash:
    return lc.dedup.MinHash.preset("refinedweb", unit="word", **fields)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    texts = pa.table({"text": [" ".join(VOCABULARY)]})
    return (
        lc.tokens.Tokenize("trained", vocabulary_size=1_000).fit([texts], str(tmp_path_factory.mktemp("t"))).tokenizer
    )


# Section 3: MinHash.


def test_minhash_finds_templated_documents():
    """MinHash excels at finding templated documents: licenses with only specific entities differing."""
    owners = {f"licence{number}": LICENCE.format(owner=f"The {number} Authors") for number in range(5)}
    crawl = crawl_of(other=prose(2), **owners) | minhash()
    assert len(crawl.data) == 2
    assert "other" in crawl.data["id"][:]


def test_9000_hashes_per_document_are_calculated_over_5_grams():
    """We perform MinHash deduplication using 9,000 hashes per document, calculated over 5-grams."""
    assert (minhash().permutations, minhash().ngram) == (9_000, 5)


def test_450_bands_of_20_are_meant_by_20_buckets_of_450_hashes():
    """Divided into 20 buckets of 450 hashes: read literally nothing at 0.8 is found, so the formula counts."""
    assert lc.dedup.SimilarityCurve(bands=20, rows=450)(0.8) < 1e-40
    assert (minhash().bands, minhash().rows) == (450, 20)


def test_less_aggressive_settings_give_lower_deduplication_rates():
    """Less aggressive settings, such as the 10 hashes of The Pile, resulted in lower deduplication rates."""
    texts = {}
    for number in range(20):
        texts[f"{number}"] = prose(number)
        texts[f"{number}-changed"] = changed(prose(number), 0.02, number)
    few = lc.dedup.MinHash(bands=1, rows=10, unit="word")
    assert len((crawl_of(**texts) | minhash()).data) < len((crawl_of(**texts) | few).data)


# Section 3: exact substrings.


def test_exact_substring_works_at_the_level_of_sequences(tokenizer):
    """Matches that are exact token by token, such as disclaimers, which may not compromise the entire document."""
    notice = prose(10, 60)
    around = {"a": (f"{prose(11)} as", f"and {prose(12)}"), "b": (f"{prose(13)} but", f"when {prose(14)}")}
    crawl = crawl_of(**{name: f"{before} {notice} {after}" for name, (before, after) in around.items()})
    cut = crawl | lc.dedup.ExactSubstring(tokenizer=tokenizer)
    assert [text.split() for text in cut.data["text"]] == [" ".join(ends).split() for ends in around.values()]


def test_a_match_has_50_tokens_or_more(tokenizer):
    """We remove any match of more than 50 consecutive tokens (G.3: of at least 50)."""
    stage = lc.dedup.ExactSubstring(tokenizer=tokenizer, policy="drop-any", text="raw")
    encoder = lc.tokens.Tokenize(tokenizer).encoder()
    words = prose(20, 200).split()
    tokens = [len(encoder.encode(pa.array([" " + " ".join(words[:count])])).ids) for count in range(1, 200)]
    least = next(count for count, has in enumerate(tokens, 1) if has >= 50)
    for count, left in ((least + 1, 0), (least // 2, 2)):
        shared = " ".join(words[:count])
        crawl = crawl_of(a=f"{prose(21)} {shared} {prose(22)}", b=f"{prose(23)} {shared} {prose(24)}") | stage
        assert len(crawl.data) == left


# Section 3: parts and URLs.


def test_each_part_has_a_hundredth_of_each_dump():
    """We split CommonCrawl into 100 parts, where each part contains a hundredth of each dump."""
    dumps = [f"2023-{dump:02d}/{file:03d}" for dump in (6, 14, 23) for file in range(300)]
    parts = group_inputs(len(dumps), 100)
    assert len(parts) == 100
    for part in parts:
        assert [
            sum(dumps[number].startswith(dump) for number in part) for dump in ("2023-06", "2023-14", "2023-23")
        ] == [3] * 3


def test_urls_kept_from_each_part_are_removed_from_subsequent_parts(tmp_path):
    """We keep a list of the URLs of all samples we have kept from each part, and remove them from subsequent parts."""
    for number in range(2):
        rows = [{"id": f"{number}-{name}", "text": f"{prose(number)} {name}", "url": url} for name, url in URLS.items()]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_in_parts(tmp_path, ["urls"], 2)
    assert "kept" in str(lc.why(tmp_path / "out", "0-page"))
    assert str(lc.why(tmp_path / "out", "1-page")) == "1-page: removed at urls, rule same_url: a duplicate of 0-page"


URLS = {"page": "https://example.org/page", "another": "https://example.org/another"}


def run_in_parts(folder: Path, stages: list, parts: int) -> None:
    spec = {
        "longcrawl": 1,
        "name": "parts",
        "source": {
            "builder": "text",
            "id_field": "id",
            "data_files": [str(path) for path in sorted(folder.glob("*.jsonl"))],
        },
        "stages": [*stages, {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}, {"truncate": {"n": 16}}],
        "parts": parts,
        "outputs": {"rectangle": {}},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "recipe.yaml", folder / "out")


def test_large_clusters_are_shared_across_parts_and_effectively_removed(tmp_path):
    """Most of the larger duplicate clusters (licences, common spams) will be shared across parts."""
    for number in range(4):
        texts = [LICENCE.format(owner=f"{number} {copy}") for copy in range(5)] + [prose(100 + number)]
        rows = [{"id": f"{number}-{place}", "text": text} for place, text in enumerate(texts)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_in_parts(tmp_path, [{"min_hash": {"unit": "word"}}], 2)
    assert next(iter(lc.funnel(tmp_path / "out"))).documents_out == 4 + 2  # one licence for each of two parts


# G.3.1: MinHash.


def test_small_interspersed_sections_are_found_by_minhash_and_not_by_exact_matching(tokenizer):
    """Sections small enough to not be identified by exact matching methods (anything smaller than 50 tokens)."""
    words = prose(30, 600).split()
    texts = {}
    for name in "ab":
        made = list(words)
        made[::40] = [f"{name}{place}" for place in range(len(made[::40]))]
        texts[name] = " ".join(made)
    crawl = crawl_of(**texts)
    long_spans = lc.dedup.ExactSubstring(200, unit="token", tokenizer=tokenizer, policy="drop-any")
    assert len((crawl | long_spans).data) == 2
    assert len((crawl | lc.dedup.MinHash.preset("fineweb")).data) == 1


def test_content_is_normalised():
    """Punctuation is removed, text lowercased, NFD applied, accents removed, and all whitespace normalized."""
    assert normalize(pa.array(["  “Ça  VA?” —\tOui,\n\noui!  "]))[0].as_py() == "ca va oui oui"


def test_text_is_tokenised_with_gpt_2_and_n_grams_are_a_set(tokenizer):
    """We tokenize the resulting text using the GPT-2 tokenizer and obtain the set of unique n-grams."""
    stage = lc.dedup.MinHash()
    assert (stage.unit, stage.tokenizer) == ("token", "gpt2")
    grams = lc.dedup.MinHash(tokenizer=tokenizer).ngrams(f"{prose(40, 30)} {prose(40, 30)}")
    assert len(grams) == len(set(grams)) > 0


def test_the_smallest_value_is_kept_of_each_hash_function():
    """For each hash function, the smallest value is kept from hashing every unique n-gram in the document."""
    stage = lc.dedup.MinHash(bands=4, rows=5, unit="word")
    words = prose(41, 60).split()
    whole = stage.signatures([" ".join(words)])[0]
    pieces = stage.signatures([" ".join(words[start : start + 5]) for start in range(56)])
    assert np.array_equal(whole, pieces.min(axis=0))


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
def test_the_ratio_of_matching_hashes_approximates_the_jaccard_similarity(share):
    """The ratio of matching hashes between two documents approximates the Jaccard similarity of their n-gram sets."""
    stage = minhash()
    texts = [prose(50, 1_000), changed(prose(50, 1_000), share, 51)]
    one, other = (set(stage.ngrams(text)) for text in texts)
    exact = len(one & other) / len(one | other)
    hashes = stage.signatures(texts)
    assert abs((hashes[0] == hashes[1]).mean() - exact) < 4 * (exact * (1 - exact) / 9_000) ** 0.5


def test_documents_are_duplicates_if_all_hashes_of_one_bucket_are_the_same():
    """We mark two documents as duplicates if their b minhashes are exactly the same on at least one bucket."""
    stage = lc.dedup.MinHash(bands=6, rows=3, unit="word")
    for seed in range(30):
        texts = [prose(seed, 200), changed(prose(seed, 200), 0.08, seed)]
        one, other = stage.signatures(texts).reshape(2, 6, 3)
        left = len((crawl_of(a=texts[0], b=texts[1]) | stage).data)
        assert left == (1 if (one == other).all(axis=1).any() else 2)


def test_the_probability_of_a_match_is_that_of_the_formula():
    """In a bucket s**b; in none of them (1 - s**b)**r; in at least one 1 - (1 - s**b)**r: 76 % and 99.4 %."""
    curve = minhash().curve
    for similarity in (0.3, 0.75, 0.8, 0.9):
        assert float(curve(similarity)) == pytest.approx(1 - (1 - similarity**20) ** 450)
    assert [int(1_000 * found) / 10 for found in curve([0.75, 0.8])] == [76.0, 99.4]


def test_documents_are_clustered_across_all_buckets():
    """If documents A and B match in one bucket and B and C in another, A-B-C becomes a cluster."""
    stage = lc.dedup.MinHash(bands=100, rows=2, unit="word", keep="first")
    a, c = prose(60, 100), prose(61, 100)
    crawl = crawl_of(a=a, b=f"{a} {c}", c=c)
    assert len((crawl_of(a=a, c=c) | stage).data) == 2
    assert (crawl | stage).data["id"][:] == ["a"]


def test_all_but_one_document_of_a_cluster_are_removed_at_random():
    """We randomly remove all but one of the documents in each cluster."""
    kept = set()
    for seed in range(4):
        crawl = crawl_of(**dict.fromkeys("abcd", prose(70))) | minhash(seed=seed)
        (name,) = crawl.data["id"][:]
        kept.add(name)
    assert len(kept) > 1


def test_false_positives_are_not_filtered_by_the_real_similarity():
    """Lee et al. (2022) also proposed the real Jaccard similarity: we decided to skip this step."""
    assert minhash().verify is None
    assert lc.dedup.MinHash.preset("lee2022").verify == 0.8


# G.3.2: exact substrings.


SHARED = "a notice that stands, character for character, in several documents of this dataset"


def exact(**fields) -> lc.dedup.ExactSubstring:
    return lc.dedup.ExactSubstring(50, unit="character", **fields)


def test_long_strings_present_in_several_documents_or_twice_in_one_are_found():
    """Long strings of text that are present, character for character, across multiple documents."""
    for texts in (
        {"a": f"{prose(80)} {SHARED}", "b": f"{SHARED} {prose(81)}"},
        {"a": f"{SHARED} {prose(82)} {SHARED}"},
    ):
        cut = crawl_of(**texts) | exact()
        assert all("notice" not in text for text in cut.data["text"])


def test_normalised_spans_are_reverted_to_the_original_span():
    """The same normalization as for MinHash; once duplicate spans are identified, we revert to the original span."""
    shouted = SHARED.upper().replace(" ", "  ").replace("A", "À")
    cut = crawl_of(a=f"{prose(83, 5)} {SHARED}", b=f"{shouted} {prose(84, 5)}") | exact()
    assert cut.data["text"][:] == [f"{prose(83, 5)} ", f" {prose(84, 5)}"]


def test_overlapping_ranges_are_merged():
    """If a match is longer than 50 tokens, there will be multiple overlapping duplicated ranges, which are merged."""
    stage = exact(policy="mask")
    masked = crawl_of(a=f"{prose(85, 9)} {SHARED}", b=f"{SHARED} {prose(86, 9)}") | stage
    for text, spans in zip(masked.data["text"], masked.data["masked"], strict=True):
        assert [text[span["start"] : span["end"]] for span in spans] == [SHARED]


def test_cut_discards_documents_with_fewer_than_20_characters_left():
    """ExactSubstr-Cut: we remove the spans, and discard documents where fewer than 20 characters are left."""
    texts = {"short": f"{'x' * 18} {SHARED}", "enough": f"{'y' * 19} {SHARED}", "third": f"{SHARED} {prose(87)}"}
    cut = crawl_of(**texts) | exact()
    assert cut.data["id"][:] == ["enough", "third"]
    assert (
        str(cut.why("short")).splitlines()[0]
        == "short: removed at exact_substring, rule characters_left: 19 against 20"
    )


def test_what_is_cut_is_explained():
    """ExactSubstr-Cut: spans are removed from texts that stay; of each it is known where the same text also stands."""
    texts = {"one": f"{prose(88, 30)} {SHARED}", "two": f"{SHARED} {prose(89, 30)}", "other": prose(90, 60)}
    cut = crawl_of(**texts) | exact()
    (edit,) = cut.why("one").edits
    start = texts["one"].index(SHARED)
    assert (edit.start, edit.end) == (start, start + len(SHARED))
    assert (edit.also_id, edit.also_place) == ("two", (0, len(SHARED)))
    assert cut.why("other").edits == ()
    assert (
        cut.funnel.rows[-1].edits.removed
        == 2 * len(SHARED)
        == sum(map(len, texts.values())) - sum(map(len, cut.data["text"]))
    )


def test_mask_leaves_the_dataset_unchanged_and_discards_by_characters_not_masked():
    """ExactSubstr-Mask: no loss on the spans; documents with fewer than 20 non-masked characters are discarded."""
    texts = {"short": f"{'x' * 18} {SHARED}", "enough": f"{'y' * 19} {SHARED}"}
    masked = crawl_of(**texts) | exact(policy="mask")
    assert masked.data["id"][:] == ["enough"]
    assert masked.data["text"][0] == texts["enough"]


@pytest.mark.parametrize(("words", "left"), [(30, 0), (80, 2)])
def test_drop_partial_removes_a_document_of_which_more_than_20_percent_is_duplicated(words, left):
    """ExactSubstr-DropPartial: if more than 20% of the document is duplicated, we remove the entire document."""
    texts = {"a": f"{prose(88, words)} {SHARED}", "b": f"{prose(89, words)} {SHARED}"}
    share = len(SHARED) / len(texts["a"])
    assert (share > 0.2) == (left == 0)
    assert len((crawl_of(**texts) | exact(policy="drop-partial")).data) == left


def test_drop_any_removes_a_document_with_a_duplicated_span_in_it():
    """ExactSubstr-DropAny: we drop any document with a duplicated span in it."""
    texts = {"a": f"{prose(90, 900)} {SHARED}", "b": f"{prose(91, 900)} {SHARED}", "c": prose(92)}
    assert (crawl_of(**texts) | exact(policy="drop-any")).data["id"][:] == ["c"]


def test_cutting_is_the_default():
    """Following ablations in Section E.1, we choose to stick with the vanilla approach, ExactSubstr-Cut."""
    stage = lc.dedup.ExactSubstring()
    assert (stage.policy, stage.min_tokens, stage.min_characters, stage.max_share) == ("cut", 50, 20, 0.2)


def test_minhash_keeps_one_copy_and_exact_deduplication_removes_all():
    """While MinHash keeps one copy of the duplicated documents, our exact deduplication removes all copies."""
    crawl = crawl_of(a=f"{prose(93)} {SHARED}", b=f"{prose(93)} {SHARED}")
    assert len((crawl | minhash()).data) == 1
    assert len((crawl | exact()).data) == 0


# H: samples of duplicates.


def test_duplicates_by_get_parameters_are_found():
    """A large number of duplicate pairs were due to different URL GET parameters without different content."""
    urls = [
        f"https://example.org/page?id=7&{more}" for more in ("utm_source=a", "utm_source=b", "ref=home", "PHPSESSID=1")
    ]
    data = Dataset.from_dict({"id": list("abcd"), "text": ["the same"] * 4, "url": urls})
    assert len((lc.Crawl(data) | lc.dedup.Urls()).data) == 1


def test_the_largest_clusters_can_be_looked_at():
    """We report the 8 largest duplicate clusters found by MinHash."""
    texts = {f"{family}-{copy}": prose(family) for family in range(10) for copy in range(family + 1)}
    found = (crawl_of(**texts) | minhash()).clusters(most=8)
    assert [cluster.size for cluster in found] == [10, 9, 8, 7, 6, 5, 4, 3]
