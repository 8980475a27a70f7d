"""The report of a run: what it says, that nothing in it can run or reach out, and what a browser makes of it."""

import base64
import dataclasses
import hashlib
import html
import html.parser
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.ledger import Clusters
from longcrawl.errors import CorruptionError, LedgerError, RunError
from longcrawl.publish.report.page import ReportPage, domain_table, length_tables
from longcrawl.publish.report.removed_documents import Place, passages
from longcrawl.run.analysis import Analysis, Lengths
from longcrawl.run.card.sections import CardSource
from longcrawl.run.card.write import SECTIONS
from longcrawl.run.manifest import check_manifest

ATTACK = "window.hacked = (window.hacked || 0) + 1"
HOSTILE = [
    f"</script><script>{ATTACK}</script>",
    f"<!-- </style><style>*{{display:none}}</style> <script>{ATTACK}//",
    f"\"'><img src=x onerror='{ATTACK}'><svg/onload='{ATTACK}'><iframe srcdoc='<script>parent.{ATTACK}</script>'>",
    f"</pre></details></main><base href='https://evil.example/'><form action=x><a href='javascript:{ATTACK}'>x</a>",
    "line\u2028separator\u2029 nul\x00 bell\x07 escape\x1b[31m \x85 \ufffe \u202etfel ${x} $title &lt;b&gt; ]]> {{x}}",
]
WORDS = "the tide was out and the boats lay on the sand with their masts to the wall of that old harbour to be fixed "
VOID = {"meta", "link", "wbr", "input"}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """Return a run that removed hostile pages by rules, and near copies of pages as duplicates."""
    folder = tmp_path_factory.mktemp("report")
    pages = [
        {"id": f"page {number} <i>{number}</i>", "text": text, "url": f"javascript:{ATTACK}//{number}"}
        for number, text in enumerate(HOSTILE)
    ]
    pages += [{"id": f"bare-{number}", "text": f"{attack} {WORDS * 3}"} for number, attack in enumerate(HOSTILE)]
    pages += [
        {"id": f"copy-{number}", "text": f"{attack} {WORDS * 3}".upper()} for number, attack in enumerate(HOSTILE)
    ]
    pages += [{"id": f"dots-{number}", "text": f"{number} " + "and so on... " * 40} for number in range(9)]
    pages += [
        {"id": f"kept-{number}", "text": f"{number} {WORDS * 4}", "url": "https://a.example/x"} for number in range(5)
    ]
    (folder / "pages.jsonl").write_text("\n".join(map(json.dumps, pages)))
    recipe = {
        "longcrawl": 1,
        "name": "hostile",
        "about": HOSTILE[0],
        "source": {"builder": "text", "data_files": [str(folder / "pages.jsonl")], "id_field": "id"},
        "stages": [
            {"min_chars": {"n": 300}},
            {"gopher_quality": {"min_words": 20}},
            {"exact_documents": {"text": "normalised"}},
        ],
        "outputs": {"parquet": {}},
    }
    (folder / "hostile.yaml").write_text(yaml.safe_dump(recipe))
    done = lc.run(folder / "hostile.yaml", folder / "run")
    assert "hostile is done in" in done._repr_html_()
    return folder / "run"


@pytest.fixture(scope="module")
def report(run_folder) -> Path:
    return lc.write_report(run_folder)


class Reader(html.parser.HTMLParser):
    """Reads a page strictly: every tag is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.said, self.text = [], [], [], {}, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.text += "\n" * (tag in {"h2", "li", "p", "td", "th"})

    def handle_data(self, data):
        self.said.setdefault(self.open[-1] if self.open else "", []).append(data)
        self.text += data

    def handle_comment(self, data):
        raise AssertionError(data)


def sha256(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_page_is_well_formed_and_loads_nothing(report):
    page = Reader(report.read_text("utf-8"))
    assert page.open == []
    assert page.tags.count("script") == 2
    assert page.tags.count("style") == 1
    assert not {"img", "iframe", "base", "object", "embed", "a:"} & set(page.tags)
    names = {name for _, name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name in {"style", "src", "action", "srcdoc"}]
    links = [value for _, name, value in page.attributes if name == "href"]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


def test_the_policy_allows_one_script_and_one_style_sheet_and_no_request(report):
    text = report.read_text("utf-8")
    page = Reader(text)
    (policy,) = [value for tag, name, value in page.attributes if tag == "meta" and (value or "").startswith("default")]
    data, script = page.said["script"]
    (style,) = page.said["style"]
    assert policy == (
        f"default-src 'none'; script-src {sha256(script)}; style-src {sha256(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert not re.search("[<>&\u2028\u2029]", data)
    assert len(json.loads(data)["removed"]) == 15
    assert {each["domain"] for each in json.loads(data)["removed"]} == {""}


def test_no_address_and_no_language_ends_the_data_of_the_script(run_folder):
    manifest = json.loads((run_folder / "manifest.json").read_text())
    sample = lc.removed_documents(run_folder, most=1)
    document = dataclasses.replace(sample[0], url="https://a.example<!--<script>&/", language=HOSTILE[0])
    page = Reader(ReportPage(manifest, dataclasses.replace(sample, documents=(document,)), Clusters((), 0, 0)).html())
    assert page.open == []
    assert page.tags.count("script") == 2
    (told,) = json.loads(page.said["script"][0])["removed"]
    assert (told["domain"], told["language"]) == ("a.example<!--<script>&", HOSTILE[0])
    assert not re.search("[<>&]", page.said["script"][0])


def test_texts_stand_there_as_they_are(report):
    said = Reader(report.read_text("utf-8")).said
    shown = "".join(said["pre"])
    assert all(text in shown for text in HOSTILE[:4])
    assert "nul␀ bell␇ escape␛[31m \ufffd \ufffd" in shown
    assert said["mark"].count("...") >= 40
    assert HOSTILE[0] in said["p"]
    assert "page 0 <i>0</i>" in said["dd"]
    assert any("THE TIDE" in each for each in said["ins"] + said["del"])
    assert f"{len(HOSTILE[2])} against 300" in said["dd"]


def test_the_report_knows_the_limits_that_the_card_knows(run_folder, tmp_path):
    manifest = json.loads((run_folder / "manifest.json").read_text())
    manifest["recipe"]["stages"] += lc.load_recipe("longcrawl64").as_dict()["stages"]
    manifest["reports"] = {"url_filter": [f"no `list` | was used {HOSTILE[0]}"]}
    manifest |= {"left_out": {"status_301": 7}, "bad_files": [{"file": "a.gz", "reason": "is <cut>"}]}
    page = Reader(ReportPage(manifest, lc.removed_documents(run_folder), lc.clusters(run_folder)).html())
    section = page.text.rpartition("Known limits\n")[2].partition("Recipe\n")[0]
    card = SECTIONS["limits"](CardSource(run_folder, manifest))
    limits = re.sub(r"[`\\]", "", html.unescape(card)).split("\n- ")[1:]
    assert len(limits) == 4  # gopher_quality and signal_rules cap, a report, the sources
    assert "the longest books are missing" in limits[0]
    assert all(limit in re.sub("`", "", section) for limit in limits)
    assert f"no `list` | was used {HOSTILE[0]}" in section
    assert "excluded, by rule: status_301 7." in section
    assert "Not read completely: a.gz: is <cut>" in section


def rows_of(page: str, kind: str) -> list[list[str]]:
    (table,) = re.findall(rf'<table class="{kind}">(.*?)</table>', page, re.DOTALL)
    rows = re.findall("<tr>(.*?)</tr>", table.partition("</thead>")[2], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in row] for row in cells]


def test_lengths_at_the_source_stand_beside_those_that_were_kept(run_folder, report):
    pages = [json.loads(line)["text"] for line in (run_folder.parent / "pages.jsonl").read_text().splitlines()]
    kept = [text for file in (run_folder / "parquet").rglob("*.parquet") for text in pq.read_table(file)["text"]]
    came, stayed = (Counter(len(str(text)).bit_length() for text in texts) for texts in (pages, kept))
    rows = rows_of(report.read_text("utf-8"), "pairs")
    assert len(rows) == max(came) - min(came) + 1
    for bits, (_, _, *told) in enumerate(rows, min(came)):
        shares = f"{100 * came[bits] / len(pages):.1f} %", f"{100 * stayed[bits] / len(kept):.1f} %"
        assert told == [str(came[bits]), shares[0], str(stayed[bits]), shares[1]]
    assert f"At the source {sum(map(len, pages)):,} characters in all" in report.read_text("utf-8")


def test_lengths_in_other_units_stand_apart():
    characters, tokens = Lengths("characters", {5: 2}, {5: 40}), Lengths("tokens", {3: 2}, {3: 10})
    told = length_tables(characters, Analysis(2, (tokens,)))
    assert re.findall("<h3>(.*?)</h3>", told) == ["At the source, in characters", "Kept, in tokens"]
    assert "were not counted" in length_tables(None, Analysis(2, (tokens,)))
    assert length_tables(None, Analysis(0)) == ""


def test_domains_of_what_left_stand_beside_those_that_were_kept():
    analysis = Analysis(10, (), {"a.org": 7, "<b>": 2}, 2, without_url=1)
    told = domain_table(analysis, ["c.org", "a.org", "c.org", "c.org"], whole=True)
    assert rows_of(told, "sites") == [
        ["a.org", "", "7", "70.0 %", "", "1", "25.0 %"],
        ["<b>", "", "2", "20.0 %", "", "0", "0.0 %"],
        ["c.org", "", "0", "0.0 %", "", "3", "75.0 %"],
    ]
    assert "all 4 removed documents with a known URL" in told
    assert "<span>removed</span>" in told
    many = dataclasses.replace(analysis, distinct_domains=150, domains_error=3)
    sampled = domain_table(many, ["c.org", "a.org"], whole=False)
    assert rows_of(sampled, "sites")[1:] == [
        ["<b>", "", "2", "20.0 %", "", "", ""],
        ["c.org", "", "≤ 5", "", "", "1", "50.0 %"],
    ]
    assert "the 2 removed documents in the sample above that have a known URL" in sampled
    assert "removed, in the sample" in sampled
    assert rows_of(domain_table(analysis, [], whole=True), "sites")[0] == ["a.org", "", "7", "70.0 %"]
    assert domain_table(Analysis(1), [], whole=True) == ""


def test_the_bytes_depend_on_the_run_alone(run_folder, report, tmp_path):
    assert lc.write_report(run_folder, tmp_path / "again.html").read_bytes() == report.read_bytes()
    told = CliRunner().invoke(app, ["report", str(run_folder), "--out", str(tmp_path / "few.html"), "--per-rule", "1"])
    assert told.exit_code == 0
    assert told.stdout.strip() == str(tmp_path / "few.html")
    assert (tmp_path / "few.html").read_text().count('class="document"') == 3
    assert not lc.verify(run_folder).problems


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_page_takes_the_place_of_a_page_alone(run_folder, tmp_path):
    run = Path(shutil.copytree(run_folder, tmp_path / "run"))
    (run / "report.html").unlink(missing_ok=True)
    (run / "recipe.yaml").unlink()
    (tmp_path / "notes.html").write_text("<!DOCTYPE html><title>mine</title>")
    (tmp_path / "link").symlink_to("run/ledger")
    before = contents(run)
    data = next(name for name in before if name.startswith("parquet/"))
    own = ["manifest.json", "README.md", "recipe.yaml", "plan.json", data, "ledger/new.html", "card/funnel.svg"]
    refused = [(run / name, "belongs to the run: choose another file, such as") for name in own]
    refused += [
        (tmp_path / "link" / "new.html", "belongs to the run"),
        (tmp_path / "notes.html", "exists already: it is not a report, choose another file with --out"),
        (run, "is a folder: choose a file, such as"),
        (Path("/dev/null"), "exists already: it is not a report"),
        (tmp_path / "notes.html" / "x.html", "cannot be written .*: choose another file with --out"),
        (Path("/proc/x.html"), "cannot be written .*: choose another file with --out"),
        (tmp_path / ("n" * 300), "cannot be written .*: choose another file with --out"),
    ]
    for target, said in refused:
        # That so small a sample is refused later says that nothing was read before.
        with pytest.raises(RunError, match=f"^{re.escape(str(target))} {said}"):
            lc.write_report(run, target, per_rule=0)
    assert contents(run) == before
    assert (tmp_path / "notes.html").read_text().endswith("mine</title>")

    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "empty.html").touch()
    (tmp_path / "to-page").symlink_to("new/empty.html")
    page = lc.write_report(run, tmp_path / "new" / "deep" / "page.html", per_rule=1).read_bytes()
    assert lc.write_report(run, tmp_path / "to-page", per_rule=2) == tmp_path / "to-page"
    assert (tmp_path / "to-page").is_symlink()
    assert (tmp_path / "new" / "empty.html").read_bytes() != page
    assert lc.write_report(run, tmp_path / "to-page", per_rule=1).read_bytes() == page
    assert lc.write_report(run, per_rule=1) == run / "report.html"


def test_a_sample_has_some_of_each_rule_with_marks(run_folder):
    sample = lc.removed_documents(run_folder, per_rule=2)
    assert [(each.reason.stage, each.reason.rule) for each in sample] == [
        *[("min_chars", "min_chars")] * 2,
        *[("gopher_quality", "max_ellipsis_ratio")] * 2,
        *[("exact_documents", "same_text")] * 2,
    ]
    assert [each.text for each in sample[2].passages if each.kind == "marked"] == ["..."] * 40
    assert "Compared with" in sample[4].note
    fewer = lc.removed_documents(run_folder, per_rule=2, most=3)
    assert list(fewer) == [sample[0], sample[2], sample[4]]
    assert "<script" not in sample._repr_html_()
    assert "<script" not in lc.clusters(run_folder)[0]._repr_html_()
    with pytest.raises(LedgerError, match="ask for 1 or more"):
        lc.removed_documents(run_folder, per_rule=0)


def test_a_run_that_has_lost_its_source_and_its_ledger_has_a_report(run_folder, tmp_path):
    bare = Path(shutil.copytree(run_folder, tmp_path / "bare"))
    manifest = json.loads((bare / "manifest.json").read_text())
    manifest["recipe"]["source"]["data_files"] = ["gone.jsonl"]
    manifest["inputs"] = {name: [{"file": "gone.jsonl"}] for name in manifest["inputs"]}
    manifest["recipe"]["about"] = "half \ud800 of a pair"
    (bare / "manifest.json").write_text(json.dumps(manifest))
    text = lc.write_report(bare).read_text("utf-8")
    assert Reader(text).open == []
    assert "Texts are missing" in text
    assert "half \ufffd of a pair" in text
    shutil.rmtree(bare / "ledger")
    manifest["analysis"] |= {"domains": {}, "languages": {}, "lengths": []}
    (bare / "manifest.json").write_text(json.dumps(manifest))
    text = lc.write_report(bare).read_text("utf-8")
    assert Reader(text).open == []
    assert "The ledger of the run is missing." in text
    assert 'id="clusters"' not in text


def test_what_a_manifest_lacks_is_named(run_folder):
    manifest = json.loads((run_folder / "manifest.json").read_text())
    sample, clusters = lc.removed_documents(run_folder), lc.clusters(run_folder)
    for name, block in (("analysis.lengths", {"documents": 3}), ("output.dtype", {"format": "rectangle"})):
        told = check_manifest({**manifest, name.partition(".")[0]: block}, run_folder / "manifest.json")
        with pytest.raises(RunError, match=rf"manifest.json has no '{name}': run the recipe again, into another fold"):
            ReportPage(told, sample, clusters).html()


def test_a_ledger_that_is_not_that_of_the_funnel(run_folder, tmp_path):
    run = Path(shutil.copytree(run_folder, tmp_path / "run"))
    files = sorted((run / "ledger").glob("*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    whole = lc.removed_documents(run, per_rule=99)
    assert (whole.removed, len(whole), whole.note) == (rows, rows, None)
    files[0].unlink()
    there = rows - pq.read_metadata(run_folder / "ledger" / files[0].name).num_rows
    assert there
    part = lc.removed_documents(run, per_rule=99)
    assert (part.removed, len(part)) == (rows, there)
    assert part.summary().startswith(f"{there} of the {rows} removed documents")
    said = f"The ledger has {there} rows, but the funnel counts {rows} removed documents"
    page = Reader(lc.write_report(run).read_text("utf-8")).text
    assert page.count(said) == 1
    assert "longcrawl verify RUN lists missing" in page
    assert any(files[0].name in problem for problem in lc.verify(run).problems)

    manifest = json.loads((run / "manifest.json").read_text())
    lost = manifest["funnel"]["stages"].pop()["stage"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LedgerError, match=f"removed at '{lost}', a stage that the funnel .* longcrawl verify lists"):
        lc.write_report(run)
    ledger = pq.read_table(files[1])
    pq.write_table(ledger.drop_columns("rule"), files[1])
    with pytest.raises(CorruptionError, match=f"{files[1].name} has .* expected .*; longcrawl verify shows"):
        lc.write_report(run)
    del manifest["files"][f"ledger/{files[1].name}"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LedgerError, match="has rows without rule; longcrawl verify lists"):
        lc.write_report(run)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"recipe": None, "inputs": [], "funnel": 0, "output": ""},
            "lacks recipe, funnel, output: run the recipe again",
        ),
        ({"funnel": {"documents": 3}}, "lacks funnel.source, funnel.characters, funnel.stages: run the recipe again"),
        ({"output": {"format": "scroll"}}, "has the output 'scroll', but this longcrawl knows composed, "),
        ({"analysis": {"lengths": 3}}, "is not a valid manifest.*: run the recipe again"),
        (
            {
                "recipe": {
                    "name": "x",
                    "about": "",
                    "card": {"pretty_name": None},
                    "source": {"builder": "text"},
                    "stages": [],
                    "outputs": {},
                    "reference": {"a": 1},
                }
            },
            r"cannot be read \(TypeError: .*\): run the recipe again",
        ),
        ({"analysis": {"documents": 1, "lengths": [], "domains": None}}, "run the recipe again"),
        ({"analysis": []}, "run the recipe again"),
        ({"bad_files": {"file": "a.gz"}}, "run the recipe again"),
        ({"inputs": {"a.gz": [3]}}, "run the recipe again"),
        ({"funnel": {"source": "text", "documents": "x", "stages": []}}, "run the recipe again"),
        ({"recipe": {"name": "x", "source": {}, "stages": [], "outputs": {}}}, "run the recipe again"),
    ],
)
def test_what_is_no_whole_manifest_is_said_in_one_sentence(run_folder, tmp_path, change, said):
    manifest = json.loads((run_folder / "manifest.json").read_text()) | change
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=said):
        lc.write_report(tmp_path)
    for text in ('{"longcrawl_run": 1}', "[]"):
        (tmp_path / "manifest.json").write_text(text)
        told = CliRunner().invoke(app, ["report", str(tmp_path)])
        assert str(told.exception).endswith(f"run the recipe again, into another folder than {tmp_path}")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_a_page_is_small_whatever_is_in_it(run_folder):
    sample = lc.removed_documents(run_folder)
    manifest = json.loads((run_folder / "manifest.json").read_text())
    worst = tuple(passages("<" * 100_000, [Place(at, at + 1) for at in range(0, 100_000, 2)]))
    document = type(sample[0])(sample[0].reason, "u" * 9_999, "l" * 9_999, "o" * 90, worst, "n" * 9_999)
    page = ReportPage(manifest, type(sample)((document,) * 200, 200), lc.clusters(run_folder)).html()
    assert len(page) < 5_000_000


# -------------------- in a browser


@pytest.mark.parametrize(
    ("width", "scheme", "paper"),
    [(390, "dark", (18, 21, 24)), (820, "light", (245, 245, 242)), (1280, "light", (245, 245, 242))],
)
def test_the_page_fits_and_nothing_in_it_runs(browser, report, width, scheme, paper):
    browser.open(report, width, scheme)
    assert browser.ask("document.documentElement.scrollWidth") == width
    browser.ask("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.ask("document.documentElement.scrollWidth") == width
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == f"rgb{paper}"
    parts = "main > section, #filter, .drawn, pre"
    shown = f"[...document.querySelectorAll('{parts}')].filter((each) => each.checkVisibility())"
    assert browser.ask(f"{shown}.length") > 30
    assert browser.ask(f"{shown}.every((each) => each.getBoundingClientRect().width > 20)")
    assert browser.ask("getComputedStyle(document.querySelector('.sides')).display") == (
        "none" if width < 500 else "grid"
    )
    assert browser.ask("typeof window.hacked") == "undefined"
    assert browser.console() == []


def test_search_and_filters_by_keyboard(browser, report):
    browser.open(report, 1280, "light")
    shown = "[...document.querySelectorAll('.document')].filter((each) => each.checkVisibility()).length"
    assert browser.ask(shown) == 15
    browser.type("body", "/")
    assert browser.ask("document.activeElement.id") == "search"
    browser.type("#search", "Harbour EVIL.example")
    assert browser.ask(shown) == 1
    browser.type("#search", " nowhere")
    assert browser.ask("document.getElementById('count').textContent") == "Nothing matches."
    browser.type("#clear", "\ue007")
    browser.type("#stage", "gopher")
    assert browser.ask("document.getElementById('count').textContent") == "5 of 15 shown"
    browser.ask("document.querySelector('.reasons a[href]').click()")
    assert browser.ask("document.querySelector(location.hash).open")
    assert browser.ask("document.activeElement === document.querySelector(location.hash + ' summary')")
    end, home, up, down = "\ue010", "\ue011", "\ue013", "\ue015"
    for key, place in [(end, 4), (down, 4), (up, 3), (home, 0), (down, 1)]:
        browser.type(":focus", key)
        assert browser.ask("document.activeElement.parentElement.id") == f"removed-{place}"
    browser.type("#search", down)
    assert browser.ask("document.activeElement.parentElement.id") == "removed-0"
    browser.type("#clusters-list summary", down)
    assert browser.ask("document.activeElement === document.querySelectorAll('#clusters-list summary')[1]")
    assert browser.console() == []


def test_the_longest_names_fit(browser, run_folder, tmp_path):
    manifest = json.loads((run_folder / "manifest.json").read_text().replace("min_chars", "w" * 300))
    manifest["recipe"] |= {"name": "n" * 300, "about": "a" * 900}
    manifest["reports"] = {"r" * 300: ["s" * 900]}
    page = ReportPage(manifest, lc.removed_documents(run_folder), lc.clusters(run_folder)).html()
    (tmp_path / "long.html").write_text(page, "utf-8")
    browser.open(tmp_path / "long.html", 390, "light")
    for width in (390, 720, 1030, 1280):
        browser.look(width, "light")
        assert browser.ask("document.documentElement.scrollWidth") == width


def test_the_policy_holds_where_a_tag_has_slipped_through(browser, report, tmp_path):
    text = report.read_text("utf-8").replace(
        "</main>", f"<script>{ATTACK}</script><img src=x onerror='{ATTACK}'></main>"
    )
    (tmp_path / "broken.html").write_text(text, "utf-8")
    browser.open(tmp_path / "broken.html", 1280, "light")
    assert browser.ask("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in said for said in browser.console())
