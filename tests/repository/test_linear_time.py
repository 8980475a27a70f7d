"""Every regular expression of the package: in linear time on the worst text, or never on what a crawl holds.

A new pattern fails ``test_every_pattern_is_listed`` until it is in one of the two tables.
"""

import ast
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from longcrawl import errors
from longcrawl import urls as secrets
from longcrawl.core import addresses, display
from longcrawl.core.word_diff import diff_words
from longcrawl.dedup import exact, ngrams
from longcrawl.errors import FormatError
from longcrawl.formats import documents as parquet
from longcrawl.formats.token_output import unescape
from longcrawl.io import files
from longcrawl.publish.report import page as sections
from longcrawl.run import analysis
from longcrawl.sources import compressed, encodings, json_lines, redpajama_v2
from longcrawl.sources.warc import pages as warc_pages
from longcrawl.sources.warc import records as warc_records
from longcrawl.text import identify, mojibake, rpv2
from longcrawl.text import languages as _language_codes
from longcrawl.text.extract import stage, structured_data
from longcrawl.text.gopher import pages
from longcrawl.text.pdf import lines, paragraphs, rescue, right_to_left, running_lines, tables, words
from longcrawl.text.refinedweb import url_filter

ROOT = Path(__file__).parents[2]
FUNCTIONS = {"compile", "search", "sub", "match", "fullmatch", "split", "findall", "finditer"}

Text = Callable[[int], str]


def repeated(*patterns: str) -> list[Text]:
    """Make texts: each pattern is a prefix, a unit that is repeated, and an end, between bars."""
    return [
        lambda n, one=one: one.split("|")[0] + one.split("|")[1] * (n // len(one.split("|")[1])) + one.split("|")[2]
        for one in patterns
    ]


def search(pattern: re.Pattern) -> Callable[[str], object]:
    return lambda text: [
        match.end() for match in pattern.finditer(text if isinstance(pattern.pattern, str) else text.encode("latin-1"))
    ]


def match(pattern: re.Pattern) -> Callable[[str], object]:
    return lambda text: pattern.match(text if isinstance(pattern.pattern, str) else text.encode("latin-1"))


def match_whole(pattern: re.Pattern) -> Callable[[str], object]:
    return pattern.fullmatch


def join_lines(text: str) -> object:
    """Join a line to one that continues its last word."""
    joined = paragraphs.Paragraphs("join", "\n")
    line = lines.Line(f"{text}a-", 0, 0, 100, 10)
    joined.count_words([line])
    return [*joined.add([line, lines.Line(text, 0, -10, 100, 0)]), *joined.end()]


def page(text: str) -> object:
    return warc_pages.decode_page(text.encode("latin-1"), None, markup=True)


def arrow(function) -> Callable[[str], object]:
    return lambda text: function(pa.chunked_array([[text]]))


HUB_STATUS = re.compile(r"HTTP status \w+ error \((\d{3})")


def folder_name(text: str) -> None:
    with contextlib.suppress(FormatError):
        parquet.folder_name(text)


SPACES = ("charset=| |", "| |charset", "|charset=|", "|charset= |", "charset|\t|=")
HEADERS = (
    "| |",
    "|a|",
    "|\r|",
    "|\n|",
    "|\n\r|",
    "|\r\n|",
    "\n|\r|x",
    "|0|",
    "|;|",
    "0;|\r|",
    "0;|;|",
    "0;|a\r|",
    "1 | |x",
)
URLS = (
    "http://|a|",
    "http://|é|.de",
    "http://a|\u0315\u0300|.de/",
    "http://|.|",
    "http://|ä.|",
    "http://a.de/?|sid=|",
    "http://a.de/?|&|",
    "http://a.de/?s_id=|a|",
    "http://a.de/|;sid=|",
    "http://a.de/|%|",
    "http://a.de/|%e4|",
    "|a+.-|:",
    "http://|@|",
    "|[|",
    "http://|:|",
    "|/|",
)
BLANK = ("| |", "a| |", "a| |b", "|a |", "|\n|", "|\n |", "\n| |x", "|\t\n|", "|.|", "|…|", "|#|")
MARKUP = (
    *("|<a |", "<a |a|", "<a |a=|", '<a |a="|', "<a |a = |", "|<!--|", "<!--|-|", "|</|", "|<script|", "|</script |"),
    *("|<meta |", "<meta |a|", "|<time |", "<time |datetime |", "<time datetime|=|", "|<title |", "<title |a|"),
    *("</div|<|", "|a= |", "|/ |", "| //|", "|a|", "| |", "|éa|"),
)
LINES = (
    *BLANK,
    *(
        "|.|",
        "|. |",
        "|. |1",
        "|·|",
        "|-|",
        "|a-|",
        "|a|",
        "a|a|1",
        "|1|",
        "|1 / |",
        "|i|",
        "i|i|1",
        "|1.|",
        "A.|1.|x",
        "|(|",
    ),
    *(
        "|\ufefb|",
        "|\u0627|",
        "|L|",
        "|D|",
        "|DN|",
        "|LS|",
        "L|S|R",
        "|LS|R",
        "D|N|S",
        "|DP|",
        "|LPS|R",
        "|SPD|x",
        "|R|",
    ),
)
PDF_BYTES = (
    *(
        "| |",
        "|1 0 obj|",
        "|1 |",
        "1| |",
        "1 |0|",
        "/Type| |",
        "|/Type |",
        "|/Type/Pages|",
        "/Length| |1",
        "/Length 1| |",
    ),
    *(
        "/Length 1 |0|",
        "|/Length 1|",
        "/Encrypt| |",
        "/Encrypt 1| |",
        "/Encrypt |1|",
        "|/Encrypt 1 0|",
        "|stream\r|",
        "/N| |",
    ),
)

# What sees crawled bytes or text: a function that uses the pattern, and the texts that are worst for it.
HOSTS = [
    *repeated("|.|", "|é|", "|é.|", "a|\u0315\u0300|", "|1.|", "0x|f|", "|%31|", "|a.|1"),
    lambda n: "".join(chr(0x100 + at % 20_000) for at in range(n)),
]
CRAWLED: dict[str, tuple[Callable[[str], object], list[Text]]] = {
    "longcrawl/sources/warc/pages.py:_META": (
        page,
        repeated(
            "<meta |charset=|",
            "|<meta |",
            "|<!-- |",
            f"{'<meta ' * 80}charset=| |",
            "<meta charset=| |",
            "|<meta charset= |",
            "|<meta  charset|= ",
        ),
    ),
    "longcrawl/sources/warc/pages.py:_XML": (page, repeated("| |<?xml", "<?xml|  encoding|", "<?xml encoding=| |")),
    "longcrawl/sources/json_lines.py:_SURROGATE": (search(json_lines._SURROGATE), repeated("|\ud800|", "|a|")),
    "longcrawl/sources/redpajama_v2.py:_PART": (
        match(redpajama_v2._PART),
        repeated("2023-06/|0|", "2023-06/0/|a|", "2023-06/0/|a_|"),
    ),
    "longcrawl/sources/redpajama_v2.py:_LISTING": (
        match(redpajama_v2._LISTING),
        repeated("|a|", "|a-|", "a-2023-06-|t|"),
    ),
    "longcrawl/sources/encodings.py:_BEYOND_ASCII": (search(encodings._BEYOND_ASCII), repeated("|é|", "|a|")),
    "longcrawl/sources/encodings.py:_ALONE": (search(encodings._ALONE), repeated("|é|", "|aé|")),
    "longcrawl/sources/encodings.py:_CONTROLS": (search(encodings._CONTROLS), repeated("|\1|", "|a|")),
    "longcrawl/sources/compressed.py:_NOT_IN_TEXT": (search(compressed._NOT_IN_TEXT), repeated("|\1|", "|a|")),
    "longcrawl/sources/compressed.py:_OTHERS": (match(compressed._OTHERS), repeated("|BZh|", "|P|")),
    "longcrawl/io/files.py:_OF_JOBS": (
        files._OF_JOBS.fullmatch,
        repeated("_temporary|a|", "_temporary|a|-", "_committed_|1|."),
    ),
    "longcrawl/sources/encodings.py:_ENDS": (search(encodings._ENDS), repeated("|<|", "|a|")),
    "longcrawl/sources/warc/pages.py:_MIME": (search(warc_pages._MIME), repeated("|a|", "|a/|", "|a;|", "|/|")),
    "longcrawl/sources/warc/pages.py:_NAMED": (
        warc_pages.content_type_of,
        repeated('|"|', '|",|', "|,|", "|a|", '"|a|', '|"a|'),
    ),
    "longcrawl/sources/warc/pages.py:_CHARSET": (
        search(warc_pages._CHARSET),
        repeated(*SPACES, "charset=|'|", "charset='| |"),
    ),
    "longcrawl/sources/warc/pages.py:_HTML": (match(warc_pages._HTML), repeated("| |", "|<|", "| <|")),
    "longcrawl/sources/warc/pages.py:_XHTML": (match(warc_pages._XHTML), repeated("| |", "<?xml| |>", "<?xml>| |<")),
    "longcrawl/sources/warc/pages.py:_PDF": (match(warc_pages._PDF), repeated("| |", "|\0|", "| |%PDF")),
    "longcrawl/sources/warc/pages.py:_PDF_LINE": (search(warc_pages._PDF_LINE), repeated(*HEADERS, "|%PDF-|")),
    "longcrawl/sources/warc/pages.py:_STATUS": (
        match(warc_pages._STATUS),
        repeated("HTTP/|1|", "HTTP/1.|1|", "HTTP/1.1| |x"),
    ),
    "longcrawl/sources/warc/pages.py:_HEADER_END": (search(warc_pages._HEADER_END), repeated(*HEADERS)),
    "longcrawl/sources/warc/pages.py:_CHUNK": (match(warc_pages._CHUNK), repeated(*HEADERS)),
    "longcrawl/sources/warc/pages.py:_LINE_END": (match(warc_pages._LINE_END), repeated(*HEADERS)),
    "longcrawl/sources/warc/pages.py:_TRAILERS": (
        match(warc_pages._TRAILERS),
        repeated(*HEADERS, "|a:|", "|a: b\n|", "|a: b\n|x", "|a:\n| "),
    ),
    "longcrawl/sources/warc/pages.py:BINARY": (search(warc_pages.BINARY), repeated("|a|", "|\0|")),
    "longcrawl/sources/warc/records.py:_VERSION": (
        match(warc_records._VERSION),
        repeated("WARC/|1|", "WARC/1.|1|", "WARC/1.0| |x", "WARC/1.0|\r|x"),
    ),
    "longcrawl/sources/warc/records.py:_NEXT_LINE": (
        search(warc_records._NEXT_LINE),
        repeated("|\n|", "|\nWARC/|", "|\nWARC/1|"),
    ),
    "longcrawl/sources/warc/records.py:_HEADER_END": (
        search(warc_records._HEADER_END),
        repeated(*HEADERS, "|\nWARC/|"),
    ),
    "longcrawl/sources/warc/records.py:_NEWLINES": (match(warc_records._NEWLINES), repeated(*HEADERS)),
    "longcrawl/sources/warc/records.py:_LENGTH": (match(warc_records._LENGTH), repeated("|1|")),
    "longcrawl/dedup/ngrams.py:_WORD": (ngrams.split_words, repeated("|a|", "|a |", "| |", "|双|", "|双a|")),
    "longcrawl/dedup/exact.py:TRACKING_PARAMETERS": (
        match(exact.TRACKING_PARAMETERS),
        repeated("utm_|a|", "aspsessionid|a|", "|a|"),
    ),
    "longcrawl/dedup/exact.py:_SHORT_SESSION": (
        search(exact._SHORT_SESSION),
        repeated("|sid=|", "sid=|a|", "sid=|0|", "|sid=a|"),
    ),
    "longcrawl/dedup/exact.py:_SESSION_IN_PATH": (search(exact._SESSION_IN_PATH), repeated("|;sid=|", ";sid=|a|")),
    "longcrawl/dedup/exact.py:_SCHEME": (match(exact._SCHEME), repeated("|a|", "|a:|", "a+|.|")),
    "longcrawl/dedup/exact.py:_AUTHORITY_END": (exact.normalise_url, repeated(*URLS)),
    "longcrawl/dedup/exact.py:_query": (exact.normalise_url, repeated(*URLS)),
    "longcrawl/core/addresses.py:url_hosts": (arrow(analysis.url_hosts), repeated(*URLS)),
    "longcrawl/text/languages.py:_TAG": (
        _language_codes.parse_tag,
        repeated("en|-a|", "en|-latn|", "en-|a|", "|a|"),
    ),
    "longcrawl/text/languages.py:_SCRIPT": (_language_codes.parse_tag, repeated("en|-lat|", "en|-latn0|")),
    "longcrawl/text/gopher/pages.py:_matches": (
        lambda text: [pages.find_marks(text, rule) for rule in ("max_hash_ratio", "max_ellipsis_ratio")],
        repeated(*BLANK, "|#|", "|.|"),
    ),
    "longcrawl/text/gopher/pages.py:_unspaced_letters": (
        lambda text: pages.find_marks(text, "max_unspaced_letters"),
        repeated(*BLANK, "|双|"),
    ),
    "longcrawl/text/refinedweb/url_filter.py:_BEYOND_ASCII": (
        search(url_filter._BEYOND_ASCII),
        repeated("|%|", "|%e4|", "|%e4%|"),
    ),
    "longcrawl/core/addresses.py:_PLAIN": (addresses.spell_host, HOSTS),
    "longcrawl/core/addresses.py:_FORBIDDEN": (addresses.spell_host, HOSTS),
    "longcrawl/core/addresses.py:_NUMBER": (addresses.spell_host, HOSTS),
    "longcrawl/core/addresses.py:_ESCAPE": (addresses.plain_escapes, repeated("|%|", "|%7e|", "|ö%|")),
    "longcrawl/core/addresses.py:_DOT": (
        addresses.without_dot_segments,
        repeated("|/.|", "|/..|", "|/a/..|", "|/%2e|", "/|%2e|", "|/a|/.."),
    ),
    "longcrawl/text/refinedweb/url_filter.py:_PATH": (url_filter._without_dots, repeated(*URLS, "|/.|", ":|/|")),
    "longcrawl/text/extract/stage.py:_URL": (
        stage.format_text,
        repeated("|http://|", "|http://a |", "|www.|", "http://a|)|", "http://a|](|", "|w|"),
    ),
    "longcrawl/text/extract/stage.py:_BETWEEN": (
        stage.format_text,
        repeated("|(http://a |", "|http://a , |", "(|http://a,|)", "http://a|, |x", "|(|http://a"),
    ),
    "longcrawl/text/extract/stage.py:_BLANKS": (
        stage.format_text,
        repeated("http://a| |", "|http://a   |", "| |http://a"),
    ),
    "longcrawl/text/extract/stage.py:format_text": (
        stage.format_text,
        repeated(*BLANK, "http://a|\n |", "http://a| \n|x"),
    ),
    **{
        f"longcrawl/text/extract/structured_data.py:{name}": (search(pattern), repeated(*MARKUP))
        for name, pattern in vars(structured_data).items()
        if isinstance(pattern, re.Pattern)
    },
    **{
        f"longcrawl/text/pdf/{module.__name__.rpartition('.')[2]}.py:{name}": (
            (search if name == "_COUNTED" else use)(pattern),
            repeated(*(PDF_BYTES if module is rescue else LINES)),
        )
        for module, use in (
            *((each, search) for each in (lines, rescue, right_to_left, words)),
            *((each, match_whole) for each in (running_lines, tables)),
        )
        for name, pattern in vars(module).items()
        if isinstance(pattern, re.Pattern) and name not in ("RIGHT_TO_LEFT", "_FROM_LEFT", "_FROM_RIGHT")
    },
    **{
        f"longcrawl/text/mojibake.py:{name}": (search(pattern), repeated("|\ue000|", "|é|", *BLANK))
        for name, pattern in vars(mojibake).items()
        if isinstance(pattern, re.Pattern)
    },
    "longcrawl/text/pdf/right_to_left.py:RIGHT_TO_LEFT": (search(right_to_left.RIGHT_TO_LEFT), repeated(*LINES)),
    "longcrawl/text/pdf/right_to_left.py:(_FROM_LEFT, _FROM_RIGHT)": (
        lambda text: (right_to_left._FROM_LEFT.search(text), right_to_left._FROM_RIGHT.search(text)),
        repeated(*LINES),
    ),
    **{
        f"longcrawl/text/pdf/paragraphs.py:{name}": (join_lines, repeated(*LINES, "|-|\n", "|a-a|"))
        for name, pattern in vars(paragraphs).items()
        if isinstance(pattern, re.Pattern)
    },
    "longcrawl/text/extract/structured_data.py:_types": (
        lambda text: structured_data._types({"@type": text}),
        repeated("|/|"),
    ),
    "longcrawl/text/identify.py:_stream_safe": (
        arrow(identify._stream_safe),
        repeated("a|\u0315\u0300|", "|\u0300a|"),
    ),
    "longcrawl/text/rpv2.py:_domains": (
        arrow(lambda url: pa.compute.extract_regex(url, rpv2._HOST)),
        repeated(*URLS),
    ),
    "longcrawl/formats/documents.py:folder_name": (folder_name, repeated("|a|", "|~|")),
    "longcrawl/formats/token_output.py:unescape": (
        unescape,
        repeated("|\\\\|", "|\\\\|a", "|\\n|", "|\\ud800|", "|a|\\u00"),
    ),
    "longcrawl/publish/hub/client.py:_sentence": (
        search(HUB_STATUS),
        repeated("HTTP status |a|", "|HTTP status |", "|HTTP status a |"),
    ),
    "longcrawl/core/display.py:_MEANS_SOMETHING": (display.plain, repeated("|`|", "|*a|", "|a|")),
    "longcrawl/core/display.py:_longest_run": (display.fenced, repeated("|`|", "|`a|", "|a|")),
    "longcrawl/errors.py:_COMMANDS": (errors.printable, repeated("|\x1b|", "|\r|", "|\r\n|", "|a|")),
    "longcrawl/publish/report/page.py:_BREAKS": (search(sections._BREAKS), repeated("|_|", "|a|")),
    "longcrawl/urls.py:_OPTIONS": (
        search(secrets._OPTIONS),
        repeated("|://options:|", "://options:|a|", "|://options:a|", "|options:|"),
    ),
    "longcrawl/urls.py:_RUN": (secrets.hide_secrets, repeated(*URLS, "|://|", "://|@|", "|://a@|")),
    "longcrawl/urls.py:_HOST": (secrets.hide_secrets, repeated(*URLS, "|://|", "://|@|", "|://a@|")),
    "longcrawl/urls.py:_QUERY": (secrets.without_secrets, repeated(*URLS, "s3://a|?|", "s3://a?|b|", "s3://a|?b|")),
    "longcrawl/urls.py:_SECRET": (
        secrets.hide_secrets,
        repeated("https://a?|sig|=", "https://a?|-|=1", "https://a?|sig&|"),
    ),
    "longcrawl/urls.py:_hidden": (
        secrets.hide_secrets,
        repeated("https://a?|a|=1", "https://a?b=|)|", "https://a?|&b=|"),
    ),
    "longcrawl/core/word_diff.py:_WORD": (lambda text: diff_words(text, "b"), repeated(*BLANK)),
    "longcrawl/core/word_diff.py:_BREAKS": (lambda text: str(diff_words(text, "b")), repeated(*BLANK)),
}

# What sees nothing that a crawl holds, and why.
OWN: dict[str, str] = {
    "longcrawl/cli/commands.py:_BLOCK": "lines of an answer, matched from their start",
    "longcrawl/sources/files.py:match_remote": "the pattern of files that a user types",
    "longcrawl/sources/installed.py:_LICENCE": "names of files of installed packages",
    "longcrawl/sources/installed.py:_METADATA_FOLDER": "names of files of installed packages",
    "longcrawl/sources/installed.py:_normalized": "names of installed packages",
    "longcrawl/core/ledger.py:count_contamination": "places that longcrawl writes itself, by RE2",
    "longcrawl/core/ledger.py:direct": "names of rules, by RE2",
    "longcrawl/core/ledger.py:_follow": "names of rules, by RE2",
    "longcrawl/text/refinedweb/fetch_lists.py:_CATEGORY": "names of folders in a list that a user fetches",
    "longcrawl/formats/rectangle/spec.py:chunk_of_file": "names of files of an output",
    "longcrawl/formats/shards/datatrove.py:_read_metadata": "the second line of a shard's metadata",
    "longcrawl/urls.py:REPOSITORY": "names of repositories that a user types",
    "longcrawl/publish/hub/client.py:TOKEN": "a user's token",
    "longcrawl/core/fields.py:as_text": "times as Arrow spells them",
    "longcrawl/publish/hub/client.py:SHA256": "checksums of a manifest",
    "longcrawl/publish/hub/documents.py:_card_there": "names of files of a repository",
    "longcrawl/core/ledger.py:leads_on": "names of rules",
    "longcrawl/io/files.py:match_files": "the pattern of files that a user types",
    "longcrawl/run/card/front_matter.py:FRONT_MATTER": "a run's README.md",
    "longcrawl/run/card/write.py:_LAST": "a run's README.md",
    "longcrawl/run/card/write.py:_SECTION": "a run's README.md",
    "longcrawl/run/card/front_matter.py:front_matter": "names of languages of a card",
    "longcrawl/run/card/write.py:PATH": "values of a recipe",
    "longcrawl/run/card/front_matter.py:LANGUAGE": "values that a user types",
    "longcrawl/run/card/front_matter.py:NAME": "values that a user types",
    "longcrawl/run/card/front_matter.py:SPLIT": "names of splits",
    "longcrawl/run/card/write.py:_load": "a template of the package",
    "longcrawl/run/card/front_matter.py:_COMMON_CRAWL_FILE": "paths of a recipe",
    "longcrawl/run/card/front_matter.py:_ENTRY": "a user's citation",
    "longcrawl/run/card/front_matter.py:_end_of": "a user's citation",
    "longcrawl/publish/report/page.py:_CODE": "sentences of the package",
    "longcrawl/core/registry.py:stage_name": "names of classes",
    "longcrawl/text/refinedweb/url_filter.py:_part": "words of a list",
    "longcrawl/text/refinedweb/url_lists.py:_USUAL": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_HOST": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_URL": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_COSMETIC": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_OPTIONS": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_DNSMASQ": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_UNBOUND": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_BIND": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_DECIMAL": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_RECORD": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_COLUMN": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:parse_line": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:_address": "lines of a list, of 4,096 characters at most",
    "longcrawl/text/refinedweb/url_lists.py:read_host": "lines of a list, of 4,096 characters at most",
    "longcrawl/kernels/lookup.py:_LANGUAGE_FILE": "names of files of word lists",
    "longcrawl/text/extract/_trafilatura_engine.py:_BY_ATTRIBUTES": "expressions of trafilatura",
    "longcrawl/text/extract/_trafilatura_engine.py:_CONDITION": "expressions of trafilatura",
    "longcrawl/text/extract/_trafilatura_engine.py:_LITERAL": "expressions of trafilatura",
    "longcrawl/text/extract/_trafilatura_engine.py:_TEST": "expressions of trafilatura",
    "longcrawl/text/extract/_trafilatura_engine.py:__init__": "expressions of trafilatura",
    "longcrawl/text/extract/_trafilatura_engine.py:guarded": "expressions of trafilatura",
    "longcrawl/text/extract/_trafilatura_engine.py:hastened": "expressions of trafilatura",
    "longcrawl/tokens/encoders.py:_NO_OPERATOR": "the pattern of a tokenizer",
    "longcrawl/tokens/encoders.py:_READ_IN_TWO_WAYS": "the pattern of a tokenizer",
    "longcrawl/tokens/encoders.py:_cuts": "added tokens of a tokenizer, each spelled out",
    "longcrawl/tokens/encoders.py:_has": "added tokens of a tokenizer, by RE2",
    "longcrawl/tokens/encoders.py:local_file": "the name of a tokenizer",
    "longcrawl/publish/hub/client.py:TAG": "tags of a repository",
    "longcrawl/io/files.py:given_url": "the folder that a user types",
    "longcrawl/core/sources.py:_CREDENTIAL": "names of options that a user types",
    "longcrawl/run/engines/spark.py:ERROR": "errors of workers of a run",
    "longcrawl/run/engines/spark.py:_open_session": "the Spark master that a user types",
    "longcrawl/sources/warc/source.py:_SLICE": "the slice of a list that a user types",
    "longcrawl/run/first_recipe.py:_DATASET": "names of datasets",
    "longcrawl/run/first_recipe.py:_PAGE": "addresses of pages of datasets",
    "longcrawl/run/first_recipe.py:_RECTANGLE": "names of files",
    "longcrawl/run/first_recipe.py:_RPV2": "names of files",
    "longcrawl/run/first_recipe.py:_lines": "the name that a user types",
    "longcrawl/text/gopher/words.py:_properties": "a file of the package",
    "longcrawl/core/registry.py:_without_marks": "source code of longcrawl",
    "longcrawl/run/job.py:_PACKAGE": "messages about missing packages",
    "longcrawl/io/structured.py:_EXPONENT": "scalars of YAML, of which it reads 805 characters at most",
}

SMALL, FLOOR = 8_000, 0.1


def seconds(function, text) -> float:
    begin = time.process_time()
    function(text)
    return time.process_time() - begin


@pytest.mark.variants
@pytest.mark.parametrize("key", CRAWLED)
def test_time_grows_with_the_length(key):
    function, texts = CRAWLED[key]
    for number, text in enumerate(texts):
        function(text(10))
        small, large = (seconds(function, text(size)) for size in (SMALL, 4 * SMALL))
        if large >= 8 * small + FLOOR:
            # The garbage collector of a process with many tests behind it takes 0.17 s.
            small, large = (min(seconds(function, text(size)) for _ in range(2)) for size in (SMALL, 4 * SMALL))
        assert large < 8 * small + FLOOR, f"text {number} of {key}: {small:.3f} s, four times as long {large:.3f} s"


def patterns() -> set[str]:
    """List every regular expression as ``file:name``, the name of the variable or of the function that it is in."""
    found = set()
    for file in ROOT.glob("longcrawl/**/*.py"):
        source = file.read_text("utf-8")
        if "import re\n" in source or "_regex(" in source:
            for owner, node in named_nodes(ast.parse(source), ""):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_pattern(node.func):
                    found.add(f"{file.relative_to(ROOT).as_posix()}:{owner}")
    return found


def is_pattern(called: ast.Attribute) -> bool:
    is_re = isinstance(called.value, ast.Name) and called.value.id == "re" and called.attr in FUNCTIONS
    return is_re or called.attr.endswith("_regex")


def named_nodes(tree: ast.AST, owner: str) -> Iterator[tuple[str, ast.AST]]:
    """List all nodes with the function that they are in, or the module's variable that they are assigned to."""
    for node in ast.iter_child_nodes(tree):
        name = owner
        if isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(tree, ast.Module) and isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        yield name, node
        yield from named_nodes(node, name)


def test_every_pattern_is_listed():
    assert patterns() == set(CRAWLED) | set(OWN)
    assert not set(CRAWLED) & set(OWN)
