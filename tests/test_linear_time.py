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

from longcrawl import markdown, printable
from longcrawl import urls as secrets
from longcrawl.builders import charsets, json_lines, redpajama_v2, warc, warc_http, warc_records
from longcrawl.dedup import ngrams, urls
from longcrawl.errors import FormatError
from longcrawl.formats import parquet, rectangle_verify
from longcrawl.report import domains, tables
from longcrawl.text import _language_codes, _marks, _url_matches, block_lists, formatting, identifiers, rpv2
from longcrawl.word_diff import diff_words

ROOT = Path(__file__).parent.parent
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


def page(text: str) -> object:
    return charsets.decode_page(text.encode("latin-1"), None, markup=True)


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

# What sees crawled bytes or text: a function that uses the pattern, and the texts that are worst for it.
CRAWLED: dict[str, tuple[Callable[[str], object], list[Text]]] = {
    "builders/charsets.py:_META": (
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
    "builders/charsets.py:_XML": (page, repeated("| |<?xml", "<?xml|  encoding|", "<?xml encoding=| |")),
    "builders/json_lines.py:_SURROGATE": (search(json_lines._SURROGATE), repeated("|\ud800|", "|a|")),
    "builders/redpajama_v2.py:_PART": (
        match(redpajama_v2._PART),
        repeated("2023-06/|0|", "2023-06/0/|a|", "2023-06/0/|a_|"),
    ),
    "builders/redpajama_v2.py:_LISTING": (match(redpajama_v2._LISTING), repeated("|a|", "|a-|", "a-2023-06-|t|")),
    "builders/warc.py:_MIME": (search(warc._MIME), repeated("|a|", "|a/|", "|a;|", "|/|")),
    "builders/warc.py:_NAMED": (warc._types, repeated('|"|', '|",|', "|,|", "|a|", '"|a|', '|"a|')),
    "builders/warc.py:_CHARSET": (search(warc._CHARSET), repeated(*SPACES, "charset=|'|", "charset='| |")),
    "builders/warc.py:_HTML": (match(warc._HTML), repeated("| |", "|<|", "| <|")),
    "builders/warc_http.py:_STATUS": (match(warc_http._STATUS), repeated("HTTP/|1|", "HTTP/1.|1|", "HTTP/1.1| |x")),
    "builders/warc_http.py:_HEADER_END": (search(warc_http._HEADER_END), repeated(*HEADERS)),
    "builders/warc_http.py:_CHUNK": (match(warc_http._CHUNK), repeated(*HEADERS)),
    "builders/warc_http.py:_LINE_END": (match(warc_http._LINE_END), repeated(*HEADERS)),
    "builders/warc_http.py:_BINARY": (search(warc_http._BINARY), repeated("|a|", "|\0|")),
    "builders/warc_http.py:_LENGTH": (match(warc_http._LENGTH), repeated("|1|")),
    "builders/warc_records.py:_VERSION": (
        match(warc_records._VERSION),
        repeated("WARC/|1|", "WARC/1.|1|", "WARC/1.0| |x", "WARC/1.0|\r|x"),
    ),
    "builders/warc_records.py:_NEXT_LINE": (
        search(warc_records._NEXT_LINE),
        repeated("|\n|", "|\nWARC/|", "|\nWARC/1|"),
    ),
    "builders/warc_records.py:_HEADER_END": (search(warc_records._HEADER_END), repeated(*HEADERS, "|\nWARC/|")),
    "builders/warc_records.py:_NEWLINES": (match(warc_records._NEWLINES), repeated(*HEADERS)),
    "builders/warc_records.py:_LENGTH": (match(warc_records._LENGTH), repeated("|1|")),
    "longcrawl/dedup/ngrams.py:_WORD": (ngrams.split_words, repeated("|a|", "|a |", "| |", "|双|", "|双a|")),
    "longcrawl/dedup/urls.py:TRACKING_PARAMETERS": (
        match(urls.TRACKING_PARAMETERS),
        repeated("utm_|a|", "aspsessionid|a|", "|a|"),
    ),
    "longcrawl/dedup/urls.py:_SHORT_SESSION": (
        search(urls._SHORT_SESSION),
        repeated("|sid=|", "sid=|a|", "sid=|0|", "|sid=a|"),
    ),
    "longcrawl/dedup/urls.py:_SESSION_IN_PATH": (search(urls._SESSION_IN_PATH), repeated("|;sid=|", ";sid=|a|")),
    "longcrawl/dedup/urls.py:_SCHEME": (match(urls._SCHEME), repeated("|a|", "|a:|", "a+|.|")),
    "longcrawl/dedup/urls.py:_AUTHORITY_END": (urls.normalise_url, repeated(*URLS)),
    "longcrawl/dedup/urls.py:_ESCAPE": (urls.normalise_url, repeated(*URLS)),
    "longcrawl/dedup/urls.py:_query": (urls.normalise_url, repeated(*URLS)),
    "longcrawl/report/domains.py:url_hosts": (arrow(domains.url_hosts), repeated(*URLS)),
    "longcrawl/text/_language_codes.py:_TAG": (
        _language_codes.parse_tag,
        repeated("en|-a|", "en|-latn|", "en-|a|", "|a|"),
    ),
    "longcrawl/text/_language_codes.py:_SCRIPT": (_language_codes.parse_tag, repeated("en|-lat|", "en|-latn0|")),
    "longcrawl/text/_marks.py:words": (lambda text: _marks._Text(text, "whitespace", 0).words, repeated(*BLANK)),
    "longcrawl/text/_marks.py:raw_lines": (lambda text: _marks._Text(text, "whitespace", 0).lines, repeated(*BLANK)),
    "longcrawl/text/_marks.py:_hash_signs": (
        lambda text: list(_marks._hash_signs(_marks._Text(text, "whitespace", 0))),
        repeated(*BLANK),
    ),
    "longcrawl/text/_marks.py:_ellipses": (
        lambda text: list(_marks._ellipses(_marks._Text(text, "whitespace", 0))),
        repeated(*BLANK),
    ),
    "longcrawl/text/_marks.py:_unspaced_letters": (
        lambda text: list(_marks._unspaced_letters(_marks._Text(text, "whitespace", 0))),
        repeated(*BLANK, "|双|"),
    ),
    "longcrawl/text/_url_matches.py:_BEYOND_ASCII": (
        search(_url_matches._BEYOND_ASCII),
        repeated("|%|", "|%e4|", "|%e4%|"),
    ),
    "longcrawl/text/block_lists.py:_DOTS": (
        block_lists.ascii_host,
        [
            *repeated("|.|", "|é|", "|é.|", "a|\u0315\u0300|"),
            lambda n: "".join(chr(0x100 + at % 20_000) for at in range(n)),
        ],
    ),
    "longcrawl/text/formatting.py:_URL": (
        formatting.format_text,
        repeated("|http://|", "|http://a |", "|www.|", "http://a|)|", "http://a|](|", "|w|"),
    ),
    "longcrawl/text/formatting.py:_BLANKS": (
        formatting.format_text,
        repeated("http://a| |", "|http://a   |", "| |http://a"),
    ),
    "longcrawl/text/formatting.py:format_text": (
        formatting.format_text,
        repeated(*BLANK, "http://a|\n |", "http://a| \n|x"),
    ),
    "longcrawl/text/identifiers.py:_stream_safe": (
        arrow(identifiers._stream_safe),
        repeated("a|\u0315\u0300|", "|\u0300a|"),
    ),
    "longcrawl/text/rpv2.py:_domains": (arrow(lambda url: pa.compute.extract_regex(url, rpv2._HOST)), repeated(*URLS)),
    "longcrawl/formats/parquet.py:folder_name": (folder_name, repeated("|a|", "|~|")),
    "longcrawl/formats/rectangle_verify.py:unescape": (
        rectangle_verify.unescape,
        repeated("|\\\\|", "|\\\\|a", "|\\n|", "|\\ud800|", "|a|\\u00"),
    ),
    "longcrawl/hub.py:_sentence": (
        search(HUB_STATUS),
        repeated("HTTP status |a|", "|HTTP status |", "|HTTP status a |"),
    ),
    "longcrawl/markdown.py:_MEANS_SOMETHING": (markdown.plain, repeated("|`|", "|*a|", "|a|")),
    "longcrawl/markdown.py:_longest_run": (markdown.fenced, repeated("|`|", "|`a|", "|a|")),
    "longcrawl/printable.py:_COMMANDS": (printable.printable, repeated("|\x1b|", "|\r|", "|\r\n|", "|a|")),
    "longcrawl/report/tables.py:_BREAKS": (search(tables._BREAKS), repeated("|_|", "|a|")),
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
    "longcrawl/word_diff.py:_WORD": (lambda text: diff_words(text, "b"), repeated(*BLANK)),
    "longcrawl/word_diff.py:_BREAKS": (lambda text: str(diff_words(text, "b")), repeated(*BLANK)),
}

# What sees nothing that a crawl holds, and why.
OWN: dict[str, str] = {
    "builders/files.py:match_remote": "the pattern of files that a user types",
    "builders/installed.py:_LICENCE": "names of files of installed packages",
    "builders/installed.py:_METADATA_FOLDER": "names of files of installed packages",
    "builders/installed.py:_normalized": "names of installed packages",
    "builders/register.py:_COMMENT": "the package's own modules",
    "builders/register.py:_IMPORT": "the package's own modules",
    "longcrawl/duplicates.py:direct": "names of rules, by RE2",
    "longcrawl/duplicates.py:_follow": "names of rules, by RE2",
    "longcrawl/fetch_lists.py:_CATEGORY": "names of folders in a list that a user fetches",
    "longcrawl/formats/_rectangle_layout.py:chunk_of_file": "names of files of an output",
    "longcrawl/formats/datatrove.py:_read_metadata": "the second line of a shard's metadata",
    "longcrawl/hub.py:NAME": "names of repositories that a user types",
    "longcrawl/hub.py:TOKEN": "a user's token",
    "longcrawl/remote_description.py:SHA256": "checksums of a manifest",
    "longcrawl/ledger.py:leads_on": "names of rules",
    "longcrawl/listing.py:match_files": "the pattern of files that a user types",
    "longcrawl/report/card_edits.py:_HEAD": "a run's README.md",
    "longcrawl/report/card_edits.py:_LAST": "a run's README.md",
    "longcrawl/report/card_edits.py:_SECTION": "a run's README.md",
    "longcrawl/report/card_head.py:_tag": "names of languages of a card",
    "longcrawl/report/card_head.py:head_of": "names of languages of a card",
    "longcrawl/report/card_paths.py:PATH": "values of a recipe",
    "longcrawl/report/card_rules.py:LANGUAGE": "values that a user types",
    "longcrawl/report/card_rules.py:NAME": "values that a user types",
    "longcrawl/report/card_rules.py:SPLIT": "names of splits",
    "longcrawl/report/card_sections.py:_load": "a template of the package",
    "longcrawl/report/citations.py:_COMMON_CRAWL_FILE": "paths of a recipe",
    "longcrawl/report/citations.py:_ENTRY": "a user's citation",
    "longcrawl/report/citations.py:_end_of": "a user's citation",
    "longcrawl/report/sections.py:(_CODE, _CODE_SPAN)": "sentences of the package",
    "longcrawl/stages.py:stage_name": "names of classes",
    "longcrawl/text/url_words.py:_part": "words of a list",
    "longcrawl/text/word_lists.py:_LANGUAGE_FILE": "names of files of word lists",
    "longcrawl/tokens/encoders.py:local_file": "the name of a tokenizer",
    "longcrawl/unfinished_push.py:TAG": "tags of a repository",
}

SMALL, FLOOR = 8_000, 0.1


def seconds(function, text) -> float:
    begin = time.perf_counter()
    function(text)
    return time.perf_counter() - begin


@pytest.mark.parametrize("key", CRAWLED)
def test_time_grows_with_the_length(key):
    function, texts = CRAWLED[key]
    for number, text in enumerate(texts):
        function(text(10))
        small, large = seconds(function, text(SMALL)), seconds(function, text(4 * SMALL))
        assert large < 8 * small + FLOOR, f"text {number} of {key}: {small:.3f} s, four times as long {large:.3f} s"


def patterns() -> set[str]:
    """List every regular expression as ``file:name``, the name of the variable or of the function that it is in."""
    found = set()
    for file in [*ROOT.glob("longcrawl/**/*.py"), *ROOT.glob("builders/*.py")]:
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
