"""G. Penedo et al., "The RefinedWeb Dataset for Falcon LLM" (2023), sentence by sentence.

Each test bears the sentence that it tests. Where the text of the paper that we have has lost a number, the test says
which one is taken and why.
"""

import pyarrow as pa
import pytest
import yaml
from datasets import Dataset, load_dataset

import longcrawl as lc
from longcrawl.text import refinedweb

PROSE = "Plain sentences, which no rule of the paper has anything against, are the rest of this document. " * 20


def test_the_map_of_the_package_has_every_step_of_the_recipe_in_the_order_of_the_paper():
    """Table 2 and Figure 2 outline the full MDR pipeline."""
    steps = dict(line.split()[-2:] for line in refinedweb.__doc__.splitlines() if line.endswith(".py"))
    recipe = lc.load_recipe("refinedweb")
    kinds = [type(recipe.source), *(type(stage) for _, stage in recipe.stages)]
    modules = {each.__name__: each.__module__.removeprefix("longcrawl.") for each in (*kinds, lc.text.format_text)}
    assert steps == {name: f"{module.replace('.', '/')}.py" for name, module in modules.items()}
    # URLs are last in the paper; the recipe compares those of all parts before any text.
    assert [*steps][-1] == "Urls"
    apart = ("Urls", "format_text")
    assert [name for name in steps if name not in apart] == [name for name in modules if name not in apart]


# Section 3.2, "Filtering: document-wise and line-wise", and G.2, "Line-wise filtering".


WORDS = "The people of this town have to be with each other and that is what they do. "


def rule_of(text: str, stage: lc.text.GopherQuality | lc.text.GopherRepetition, language: str = "en") -> str | None:
    """Return the rule by which a stage removes a document."""
    return stage.judge(pa.table({"text": [text], "language": [language]}))["rule"][0].as_py()


def numbered(count: int) -> str:
    return " ".join(f"word{number}" for number in range(count))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("\n".join(["the same line"] * 5 + [numbered(90)]), "max_duplicate_lines"),
        ("one\ntwo\n\n" * 2 + numbered(40).replace(" ", "\n"), "max_duplicate_paragraphs"),
        (" ".join(f"buy now {number}" for number in range(40)), "max_top_2gram"),
        (f"{numbered(20)} between {numbered(20)} {WORDS}", "max_duplicate_5grams"),
    ],
)
def test_a_document_with_excessive_line_paragraph_or_n_gram_repetitions_is_removed(text, rule):
    """Remove any document with excessive line, paragraph, or n-gram repetitions, by Rae et al. (2021)."""
    assert rule_of(text, lc.text.GopherRepetition()) == rule
    assert rule_of(PROSE[:90], lc.text.GopherRepetition()) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cheap shoes buy shoes online best shoes " * 20, "min_stop_words"),
        ("== ## == ## the of == ## == ## " * 20, "min_mean_word_length"),
        ("=*= --- =-= *** the of " * 20, "min_mean_word_length"),
        ("====== ----- ~~~~~ the of +++++ " * 20, "min_alphabetic_words"),
    ],
)
def test_lists_of_keywords_and_sequences_of_special_characters_are_filtered_out(text, rule):
    """Lists of keywords, or sequences of special characters, are not suitable: the quality heuristics filter them."""
    assert rule_of(text, lc.text.GopherQuality()) == rule
    assert rule_of(WORDS * 5, lc.text.GopherQuality()) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [(WORDS, "min_words"), (WORDS * 6000, "max_words"), ("#the #end #of #it and more " * 20, "max_hash_ratio")],
)
def test_outliers_in_overall_length_and_symbol_to_word_ratio_are_removed(text, rule):
    """Removing outliers in terms of overall length, symbol-to-word ratio, and other criteria."""
    assert rule_of(text, lc.text.GopherQuality()) == rule


def test_quality_filters_are_adapted_per_language():
    """These filters have to be adapted on a per language basis: English thresholds overfilter other languages."""
    german = "Die Leute von hier sind nicht so wie die anderen, und das ist auch gut für alle in der Stadt. " * 5
    assert rule_of(german, lc.text.GopherQuality(), "de") == "min_stop_words"
    assert rule_of(german, lc.text.GopherQuality(languages="gopher"), "de") is None


def corrected(*lines: str, **fields) -> list[str]:
    """Return the lines that the filter leaves of a document of these lines, prose before and after them."""
    table = pa.table({"text": ["\n".join([PROSE, *lines, PROSE])]})
    left = lc.text.LineCorrections(language="en", **fields).edit(table)[0]["text"][0].as_py().split("\n")
    assert (left[0], left[-1]) == (PROSE, PROSE)
    return left[1:-1]


def crawled(words: int, *lines: str, **fields) -> lc.Crawl:
    """Return a crawl of one document of these lines after this many words."""
    text = "\n".join(["word " * words, *lines])
    return lc.Crawl(Dataset.from_dict({"id": ["document"], "text": [text]})) | lc.text.LineCorrections(
        language="en", **fields
    )


def test_undesirable_lines_such_as_social_media_counters_and_navigation_buttons_are_targeted():
    """Undesirable lines (e.g., social media counters 3 likes, navigation buttons): a filter, targeting these items."""
    assert corrected("3 likes", "HOME", "Skip to content", "An ordinary line stays.") == ["An ordinary line stays."]


def test_a_document_that_loses_more_than_5_percent_is_removed_entirely():
    """If these corrections remove more than 5% of a document, we remove it entirely."""
    at_five = crawled(95, "A B C D E", counted="removed")
    assert at_five.data["text"][0] == "word " * 95 + "\n"
    above = crawled(94, "A B C D E F", counted="removed")
    assert len(above.data) == 0
    assert str(above.why("document")).splitlines()[0].endswith("rule max_removed_words: 0.06 against 0.05")


def test_documents_are_analysed_line_by_line():
    """We analyse documents line-by-line, and discard or edit the lines based on the following rules."""
    assert corrected("3 likes", "as 3 likes", "The news. Read more...") == ["as 3 likes", "The news."]


def test_a_line_mainly_of_uppercase_characters_is_discarded():
    """If it is mainly composed of uppercase characters (discard). More than half is taken for "mainly"."""
    assert corrected("ABCD", "ABCDEf gh", "ABCDef gh", "ABCdef") == ["ABCDef gh", "ABCdef"]


def test_a_line_only_of_numerical_characters_is_discarded():
    """If it is only composed of numerical characters (discard)."""
    assert corrected("2023", "20 23", "\u0662\u0660", "2023.", "in 2023") == ["2023.", "in 2023"]


def test_a_counter_is_discarded():
    """If it is a counter (e.g. 3 likes) (discard)."""
    assert corrected("3 likes", "1,204 comments", "(5K shares)", "3 likes are three") == ["3 likes are three"]


def test_a_short_line_that_matches_a_pattern_is_edited():
    """If it is short and matches a pattern (edit). The number is lost; 10 words is what reproductions of it take."""
    ten = "one two three four five six seven eight Read more..."
    assert corrected(ten, "nought " + ten) == ["one two three four five six seven eight", "nought " + ten]


def test_patterns_at_the_beginning_at_the_end_and_anywhere():
    """At the beginning (e.g. sign-in); at the end (e.g. Read more...); anywhere in the line (e.g. items in cart)."""
    lines = [
        "Sign-in to go on",
        "To go on sign-in",
        "The news. Read more...",
        "Read more... news",
        "My items in cart now",
    ]
    assert corrected(*lines) == ["to go on", "To go on sign-in", "The news.", "Read more... news", "My now"]


def test_a_document_whose_flagged_lines_hold_more_than_5_percent_of_its_words_is_discarded():
    """If the words in the flagged lines represent more than 5% of the total document words, it is discarded.

    The number is that of section 3.2. All words of a flagged line count, those that an edit leaves as well.
    """
    edited = "one two three four Read more..."
    assert len(crawled(94, edited).data) == 0
    assert crawled(114, edited).data["text"][0] == "word " * 114 + "\none two three four"
    assert len(crawled(94, edited, counted="removed").data) == 1


def test_the_filters_can_be_adapted_across_languages(tmp_path):
    """We note that they require adaptation across languages: patterns are data, and an unknown language is said."""
    german = {"counters": ["mal geteilt"], "suffixes": ["weiterlesen..."], "prefixes": ["anmelden"]}
    (tmp_path / "lines.yaml").write_text(yaml.safe_dump({"languages": {"de": german}}))
    stage = lc.text.LineCorrections(patterns=str(tmp_path / "lines.yaml"))
    changes = stage.changes("3 mal geteilt\nNeues. Weiterlesen...\n3 likes", "de")
    assert changes == [(1, "3 mal geteilt", None, "counter"), (2, "Neues. Weiterlesen...", "Neues.", "suffix")]
    with pytest.raises(lc.LongCrawlError, match="no line patterns for the language 'en', only for: de"):
        stage.changes("3 likes", "en")


# Section 3.1, "Document preparation: reading": WARC and WET.


def test_the_pipeline_starts_from_raw_warc_files_or_from_wet(tmp_path):
    """CommonCrawl is available in either WARC (raw HTML response), or WET files (preprocessed to only plain text)."""
    html = b"<html><body><p>A page</p></body></html>"
    blocks = {
        ("response", "application/http; msgtype=response"): b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
        + html,
        ("conversion", "text/plain"): b"A page",
    }
    for (kind, content_type), block in blocks.items():
        head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:{kind}>\r\nContent-Type: {content_type}\r\n"
        record = f"{head}WARC-Target-URI: https://a/\r\nContent-Length: {len(block)}\r\n\r\n".encode() + block
        (tmp_path / f"{kind}.warc").write_bytes(record + b"\r\n\r\n")
    wet, warc = lc.load("warc", data_dir=str(tmp_path))
    assert (warc["html"], warc["text"]) == (html.decode(), None)
    assert (wet["html"], wet["text"]) == (None, "A page")


def test_individual_files_correspond_to_a_page_at_a_given_url(tmp_path):
    """Individual files correspond to a page at a given URL; these constitute single documents/samples."""
    records = []
    for number in range(3):
        block = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{number}</p>".encode()
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://a/{number}\r\nContent-Length: {len(block)}"
        records.append(f"{head}\r\n\r\n".encode() + block + b"\r\n\r\n")
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    documents = lc.load("warc", data_dir=str(tmp_path))
    assert documents["url"] == [f"https://a/{number}" for number in range(3)]
    assert documents["html"] == [f"<p>{number}</p>" for number in range(3)]


# Section 3.1, "Document preparation": text extraction.


ARTICLE = [f"{name} was seen at the harbour on that day, and what was said there is told here." for name in "ABCD"]
PAGE = (
    "<html><head><title>Harbour</title></head><body><header><h2>The Daily Page</h2></header>"
    '<nav><ul class="menu"><li><a href="/a">World</a></li><li><a href="/b">Sport</a></li></ul></nav>'
    f"<main><article>{''.join(f'<p>{each}</p>' for each in ARTICLE)}</article></main>"
    '<div class="ad-banner advertisement"><p>Buy two boats and pay for one.</p></div>'
    "<footer><p>All rights reserved.</p></footer></body></html>"
)


def extracted(page: str, **fields) -> str:
    """Return the text of a page that stays."""
    (document,) = lc.text.ExtractText(**fields)(pa.table({"id": ["page"], "html": [page]})).to_pylist()
    return document["text"]


def test_only_the_main_content_is_extracted():
    """We want to extract only the main content of the page, ignoring menus, headers, footers, and ads among others."""
    assert extracted(PAGE).split("\n") == ARTICLE


def test_trafilatura_is_used_for_text_extraction():
    """We use trafilatura for text extraction. Its text is what stays where there is nothing to format."""
    trafilatura = pytest.importorskip("trafilatura")
    assert lc.text.ExtractText().engine == "trafilatura"
    expected = trafilatura.extract(PAGE, favor_precision=True, include_comments=False)
    assert extracted(PAGE) == expected == "\n".join(ARTICLE)


def test_new_lines_are_limited_to_two_consecutive_ones():
    """We limit new lines to two consecutive ones. A line of white space is taken for an empty one."""
    assert lc.text.format_text("one\ntwo\n\nthree\n\n\nfour\n \n\n\nfive") == "one\ntwo\n\nthree\n\nfour\n\nfive"
    page = PAGE.replace("</article>", "<pre>first\n\n\n\nlast</pre></article>")
    assert "first\n\nlast" in extracted(page, engine="resiliparse")


def test_all_urls_are_removed():
    """And remove all URLs. What begins with a scheme or www. is one; a bare example.org is a word."""
    assert lc.text.format_text("Read https://example.org/a?b=c or (www.example.org).") == "Read or."
    page = PAGE.replace(
        "</article>", "<p>More of it was written down at https://example.org/more for us.</p></article>"
    )
    assert "More of it was written down at for us." in extracted(page)


def test_text_extraction_is_language_agnostic():
    """Features such as text extraction are language-agnostic (Appendix D)."""
    greek, chinese = (
        "Στο λιμάνι το ήξεραν όλοι από νωρίς το πρωί εκείνης της ημέρας.",
        "那天海面平静,大家都知道船什么时候回来。",
    )
    page = PAGE.replace("</article>", f"<p>{greek}</p><p>{chinese}</p></article>")
    text = extracted(page)
    assert greek in text
    assert chinese in text


def test_a_page_without_text_leaves_with_a_reason():
    """Every document that leaves has a reason in the ledger; the paper does not say what becomes of empty pages."""
    crawl = lc.Crawl(Dataset.from_dict({"id": ["page", "empty"], "html": [PAGE, "<html></html>"]}))
    assert str((crawl | lc.text.ExtractText()).why("empty")) == (
        "empty: removed at extract_text, rule no_text: 0 against 1"
    )


# Section 3.1, language identification, and appendix D, "Multilingual RefinedWeb".


SPEECH = {
    "en": "The boat came back at noon, and everybody in the village went down to the harbour to see it.",
    "de": "Das Boot kam mittags zurück, und alle im Dorf gingen zum Hafen hinunter, um es zu sehen.",
    "fr": "Le bateau est revenu à midi, et tout le monde au village est descendu au port pour le voir.",
}


def identified(text: str, **fields) -> tuple[str | None, float, bool]:
    """Return language and score of a document, and whether it stays."""
    edited, (check,) = lc.text.IdentifyLanguage(**fields).edit(pa.table({"text": [text]}))
    return edited["language"][0].as_py(), edited["language_score"][0].as_py(), check.passes[0].as_py()


def test_the_fasttext_classifier_of_ccnet_at_the_document_level():
    """We use the fastText language classifier of CCNet at the document-level.

    A document has one language, whatever some of its lines are in. The model is the one that is published quantised.
    """
    language, score, _ = identified("\n".join([SPEECH["de"]] * 9 + [SPEECH["fr"]]))
    assert language == "de"
    assert score < identified(SPEECH["de"])[1]


def test_it_uses_characters_n_grams_and_supports_176_languages():
    """It uses characters n-gram and was trained on Wikipedia, supporting 176 languages."""
    from longcrawl.text.fasttext import read_model
    from longcrawl.text.identify import model_file

    model = read_model(model_file("lid.176"))
    assert len(set(model.labels)) == 176
    assert (model.words.shortest, model.words.longest) == (2, 4)
    assert identified("zurückgekommenes Dorfbootchen unterwegs")[0] == "de"


def test_documents_whose_top_language_scores_below_0_65_are_removed():
    """We remove documents for which the top language scores below 0.65."""
    table = pa.table({"id": ["a", "b"], "text": [SPEECH["en"], "8 3 1 || 4 7 >> 22"]})
    crawl = lc.Crawl(Dataset(table)) | lc.text.IdentifyLanguage()
    assert crawl.data["id"][:] == ["a"]
    reason = crawl.why("b")
    assert (reason.rule, reason.threshold) == ("min_language_score", 0.65)
    assert reason.value < 0.65 <= crawl.data["language_score"][0]


@pytest.mark.parametrize(
    "text",
    ["", "2023-01-05 | 14.30 | 7,99 € | 8,49 €\n" * 20, "==== ---- ~~~~ ####\n" * 20, "x1f 0b7 a9c 44e d02 " * 20],
)
def test_this_usually_corresponds_to_pages_without_any_natural_text(text):
    """This usually corresponds to pages without any natural text."""
    assert not identified(text)[2]
    assert all(identified(speech)[2] for speech in SPEECH.values())


def test_the_data_is_classified_into_languages_by_contribution_in_descending_order():
    """Using the language identification filter, we classify data; the top languages in descending order."""
    texts = [SPEECH["en"]] * 3 + [SPEECH["fr"]] * 2 + [SPEECH["de"]]
    data = Dataset.from_dict({"id": list("abcdef"), "text": texts})
    shares = lc.text.language_shares(lc.Crawl(data) | lc.text.IdentifyLanguage())
    assert shares["language"].to_pylist() == ["en", "fr", "de"]
    assert shares["share"].to_pylist() == [3 / 6, 2 / 6, 1 / 6]


def test_the_pipeline_can_be_used_to_process_all_languages():
    """The MDR pipeline can be used to process all languages; specific filters need to be tuned for each of them."""
    texts = [f"{text} {text}\n3 likes\n" * 40 for text in SPEECH.values()]
    data = Dataset.from_dict({"id": list(SPEECH), "text": texts})
    crawl = lc.Crawl(data) | lc.text.IdentifyLanguage() | lc.text.Language(["en", "de"])
    assert crawl.data["language"][:] == ["en", "de"]
    tuned = crawl | lc.text.GopherQuality(languages="gopher")
    tuned = tuned | lc.text.LineCorrections(on_unknown_language="keep", max_removed_words=None)
    assert tuned.data["id"][:] == ["en", "de"]
    assert ["3 likes" in text for text in tuned.data["text"][:]] == [False, True]


# Section 3.1, "Document preparation", filtering URLs, and G.1, "URL filtering".


def filtered(*urls: str | None, **fields) -> list[str | None]:
    """Return the rule by which each URL leaves, None where it stays."""
    table = pa.table({"url": pa.array(urls, pa.string())})
    return lc.text.UrlFilter(**fields).judge(table)["rule"].to_pylist()


@pytest.fixture
def ut1(tmp_path):
    """Return a folder in UT1's layout, with domains made up."""
    lists = {"adult": "adult.example\n", "gambling": "casino.example\nblogs.example\n", "press": "news.example\n"}
    for category, domains in lists.items():
        (tmp_path / "ut1" / category).mkdir(parents=True)
        (tmp_path / "ut1" / category / "domains").write_text(domains)
    return str(tmp_path / "ut1")


def test_a_first_filtering_is_based_on_the_url_alone(ut1):
    """Before any compute-heavy processing, we perform a first filtering based on the URL alone."""
    assert filtered("http://a.adult.example/x", lists=ut1, categories=["adult"]) == ["blocked_domain"]
    page = "A long medical text on sex, and on porn. " * 20
    crawl = lc.Crawl(Dataset.from_dict({"id": ["page"], "text": [page], "url": ["http://clinic.example/advice"]}))
    assert len((crawl | lc.text.UrlFilter()).data) == 1


def test_the_rules_are_a_blocklist_of_domains_and_a_score_of_words_weighed_by_severity(ut1):
    """(1) an aggregated blocklist of 4.6M domains; (2) a URL score, based on words that we weighed by severity."""
    urls = ["http://adult.example", "http://a.example/xvideos1", "http://a.example/porn", "http://a.example/sex-escort"]
    rules = ["blocked_domain", "strict_word", "hard_word", "max_soft_words"]
    assert filtered(*urls, "http://a.example/sex", lists=ut1, categories=["adult"]) == [*rules, None]


def test_medical_and_legal_pages_are_kept():
    """Word-based rules can easily result in medical and legal pages being blocked: one soft word does not."""
    urls = ["http://clinic.example/safe-sex-advice", "http://court.example/sex-offender-law", "http://dick.example/"]
    assert filtered(*urls) == [None] * 3


def test_the_list_is_broken_in_categories_some_of_which_are_selected(ut1):
    """This list is broken in categories (e.g. pornography, gambling); we outline the categories we selected."""
    urls = ["http://adult.example", "http://casino.example", "http://news.example"]
    assert filtered(*urls, lists=ut1, categories=["gambling"]) == [None, "blocked_domain", None]
    assert filtered(*urls, lists=ut1, categories=["adult", "gambling"]) == ["blocked_domain", "blocked_domain", None]


def test_domains_that_match_often_are_inspected_and_benign_ones_removed_from_the_list(ut1):
    """We manually inspected all URLs matched more than 4k times; benign domains we removed from the list."""
    urls = [f"http://{number}.blogs.example/" for number in range(4001)] + ["http://casino.example/"] * 4000
    stage = lc.text.UrlFilter(lists=ut1, categories=("gambling",))
    hits = lc.text.url_hits(pa.table({"url": urls}), stage, min_documents=4001)
    assert hits.table.select(["matched", "documents"]).to_pylist() == [{"matched": "blogs.example", "documents": 4001}]
    left = filtered(urls[0], urls[-1], lists=ut1, categories=["gambling"], allowed_domains=["blogs.example"])
    assert left == [None, "blocked_domain"]


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("strict", "http://foobann.edsub-wo.rdbar.com/any/bar"),
        ("hard", "http://www.foo.bannedword-bar.com"),
        ("soft", "http://www.foo.soft1-bar-soft2.com"),
    ],
)
def test_three_patterns_of_matching(tmp_path, kind, url):
    """Strict subword, hard whole word and soft words matching, each on the paper's own example."""
    lists = {"strict": ["bannedsubword"], "hard": ["bannedword"], "soft": ["soft1", "soft2"]}
    (tmp_path / "words.yaml").write_text(yaml.safe_dump({kind: lists[kind]}))
    rule = {"strict": "strict_word", "hard": "hard_word", "soft": "max_soft_words"}[kind]
    neutral = "http://www.foo.com/bannedwords-and-soft1"
    assert filtered(url, neutral, words=str(tmp_path / "words.yaml")) == [rule, None]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("strict_word", ["xvideos", "groupsex"]),
        ("hard_word", ["porn", "xxx", "orgy"]),
        ("max_soft_words", ["sex", "webcam", "escort", "dick"]),
    ],
)
def test_the_words_that_the_paper_names_are_shipped(kind, words):
    """Words such as xvideos, groupsex; porn, xxx, orgy; sex, webcam, escort; and "a single match of dick"."""
    soft = "-escort" if kind == "max_soft_words" else ""
    soft_too = "-sex" if kind == "max_soft_words" else ""
    assert filtered(*(f"http://a.example/{word}{soft}{soft_too}" for word in words)) == [kind] * len(words)


def test_breaking_up_adult_keywords_does_not_help():
    """We ban any URL matching a banned word in its substrings (fraudulent websites break up adult keywords).

    The paper's example breaks one up by full stops and hyphens; parts of a URL are taken to be words of their own.
    """
    urls = [
        "http://x-v.ideos.example/",
        "http://a.example/X_VI.DEOS",
        "http://myxvideosonline.example/",
        "http://x.example/v",
        "http://a.example/groups/experts",
    ]
    assert filtered(*urls) == ["strict_word"] * 3 + [None] * 2
    assert filtered(urls[-1], strict_in="url") == ["strict_word"]


def test_a_minimum_of_two_matches_is_required_of_soft_words():
    """For the soft word matching, a minimum of two matches are required. Two different words are taken for it."""
    urls = ["http://sex.example/", "http://sex.example/sex", "http://sex.example/webcam"]
    assert filtered(*urls) == [None, None, "max_soft_words"]


def test_words_inside_of_neutral_words_do_not_match():
    """We avoided partial unclear matches (e.g., ass), that may be part of neutral words (e.g., massachusetts)."""
    assert (
        filtered("http://massachusetts.example/", "http://essex.example/webcams", "http://x.example/pornic")
        == [None] * 3
    )


@pytest.mark.parametrize(
    "source", ["en.wikipedia.org", "arxiv.org", "stackexchange.com", "github.com", "ncbi.nlm.nih.gov"]
)
def test_common_sources_of_curated_data_are_excluded(source):
    """We exclude common online sources of curated data: Wikipedia, arXiv, etc. (Table 14); subdomains go too."""
    urls = [f"https://{source}/page", f"http://any.{source}/", "http://good.example/" + source]
    assert filtered(*urls) == ["curated_source", "curated_source", None]
    assert filtered(*urls, curated_sources=None) == [None] * 3


# Appendices C, "Dataset analysis", and D, "Multilingual RefinedWeb".


@pytest.fixture
def written(tmp_path):
    """Return a crawl of documents whose lengths, sites and languages are known, written by language."""
    texts = ["a" * 2**power for power in range(12)]
    hosts = ["www.wordpress.com"] * 6 + ["blog.wordpress.com"] * 4 + ["example.de:80"] * 2
    languages = ["en"] * 7 + ["de"] * 3 + ["ru"] * 2
    rows = {"id": [str(row) for row in range(12)], "text": texts, "language": languages}
    crawl = lc.Crawl(Dataset.from_dict(rows | {"url": [f"http://{host}/{row}" for row, host in enumerate(hosts)]}))
    crawl.to_parquet(tmp_path / "web", by="language")
    return tmp_path / "web"


def test_we_provide_some_key_metrics_document_lengths_and_top_domain_names(written):
    """We provide key metrics: document lengths in Figure 5(a), and a breakdown of the top domain names in 5(b)."""
    found = lc.analysis(written)
    assert found.lengths[0].documents == {power + 1: 1 for power in range(12)}
    assert list(found.domains.items()) == [("wordpress.com", 6), ("blog.wordpress.com", 4), ("example.de", 2)]


def test_languages_are_told_by_their_relative_contribution_in_descending_order(written):
    """Figure 6 shows the top 20 languages, based on their relative contribution in descending order."""
    found = lc.analysis(written)
    assert list(found.languages.items()) == [("en", 7), ("de", 3), ("ru", 2)]
    assert [line.split()[2] for line in str(found).splitlines()[-4:-1]] == ["58.3", "25.0", "16.7"]


def test_each_language_gets_an_output_of_its_own(written):
    """The MDR pipeline can be used to process all languages: one run, one output for each."""
    assert sorted(path.name for path in written.iterdir() if path.is_dir()) == ["de", "en", "ru"]
    assert load_dataset(str(written), "ru", split="train")["id"][:] == ["10", "11"]
