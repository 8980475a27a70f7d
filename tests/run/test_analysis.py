"""Analysis of a dataset: counted file by file, equal to a naive count, shown in four ways."""

import importlib
import json
import random
from collections import Counter
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import Dataset

import longcrawl as lc
from longcrawl.errors import CorruptionError
from longcrawl.io.stored_tables import scan_tables
from longcrawl.publish.report import Analysis
from longcrawl.run.analysis import DomainCounts, analyse
from longcrawl.run.engines import Local

LANGUAGES = ["en", "en", "de", None]


def make_files(folder: Path, files: int = 5, rows: int = 300) -> tuple[list[Path], pa.Table]:
    chance = random.Random(4)
    tables, paths = [], []
    for number in range(files):
        lengths = [int(10 ** (4 * chance.random())) - 1 for _ in range(rows)]
        tables.append(
            pa.table(
                {
                    "id": [f"{number}-{row}" for row in range(rows)],
                    "text": pa.array(["é" * length for length in lengths], pa.large_string()),
                    "n_tokens": pa.array([length // 3 for length in lengths], pa.int64()),
                    "url": [
                        f"https://www.site{chance.randint(0, 60)}.org/{row}" if chance.random() < 0.9 else None
                        for row in range(rows)
                    ],
                    "language": [chance.choice(LANGUAGES) for _ in range(rows)],
                }
            )
        )
        paths.append(folder / f"{number}.parquet")
        pq.write_table(tables[-1], paths[-1], row_group_size=70)
    return paths, pa.concat_tables(tables)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[list[Path], pa.Table]:
    return make_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def counted(files) -> Analysis:
    return analyse(scan_tables(files[0]))


# -------------------- what is counted


def test_lengths_are_those_of_the_texts(files, counted):
    lengths = [len(text) for text in files[1]["text"].to_pylist()]
    characters, tokens = counted.lengths
    assert (characters.unit, tokens.unit) == ("characters", "tokens")
    assert characters.documents == Counter(length.bit_length() for length in lengths)
    for number, total in characters.total.items():
        assert total == sum(length for length in lengths if length.bit_length() == number)
    assert characters.mean == sum(lengths) / len(lengths)
    assert tokens.documents == Counter((length // 3).bit_length() for length in lengths)


def test_domains_are_hosts_without_www(files, counted):
    urls = files[1]["url"].to_pylist()
    naive = Counter(urlsplit(url).hostname.removeprefix("www.") for url in urls if url)
    assert counted.domains == dict(naive)
    assert list(counted.domains.values()) == sorted(naive.values(), reverse=True)
    assert (counted.distinct_domains, counted.without_url) == (len(naive), urls.count(None))
    assert counted.domains_error == 0


def test_languages_are_those_of_the_column(files, counted):
    naive = Counter(name or "" for name in files[1]["language"].to_pylist())
    assert counted.languages == dict(naive)
    assert next(iter(counted.languages)) == "en"


@pytest.mark.slow
@pytest.mark.parametrize("num_proc", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_and_files_do_not_matter(files, counted, tmp_path, num_proc):
    assert analyse(scan_tables(files[0]), Local(num_proc)) == counted
    assert list(analyse(scan_tables(files[0]), Local(num_proc)).domains) == list(counted.domains)
    pq.write_table(files[1], tmp_path / "one.parquet")
    assert analyse(scan_tables([tmp_path / "one.parquet"])) == counted


def test_columns_that_are_not_there_are_not_counted(tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "text": [["a"], ["b"]], "language": [1, 2]}), tmp_path / "a.parquet")
    assert analyse(scan_tables([tmp_path / "a.parquet"])) == Analysis(2)
    assert str(analyse(scan_tables([]))) == str(Analysis(2)) == ""


def test_a_broken_file_is_one_sentence(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(CorruptionError, match=r"a.parquet cannot be read \(.*\): longcrawl verify shows what is wrong"):
        analyse(scan_tables([tmp_path / "a.parquet"]))


def test_the_bound_of_what_was_forgotten_outlives_the_merging_of_parts():
    chance, naive, merged = random.Random(7), Counter(), DomainCounts(most=40)
    seen = 0
    for _ in range(6):
        part = DomainCounts(most=20)
        for _ in range(10):
            file = Counter(f"d{int(300 * chance.random() ** 3)}" for _ in range(150))
            part.add(file)
            naive.update(file)
        assert part.error > 0
        merged.merge(part)
        seen = max(seen, part.distinct)
    for name, count in naive.items():
        assert merged.counts.get(name, 0) <= count <= merged.counts.get(name, 0) + merged.error
    assert max(seen, len(merged.counts)) <= merged.distinct <= len(naive)


def test_an_analysis_of_several_files_says_what_was_forgotten_in_each(tmp_path, monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("longcrawl.run.analysis"), "DomainCounts", partial(DomainCounts, most=2)
    )
    naive, paths = Counter(), []
    for number, hosts in enumerate(["aaabbcccdde", "aabbffggghh"]):
        naive.update(hosts)
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"url": [f"//{host}.org" for host in hosts]}), paths[-1])
    found = analyse(scan_tables(paths))
    assert found.domains_error > 0
    for host, count in naive.items():
        assert found.domains.get(f"{host}.org", 0) <= count <= found.domains.get(f"{host}.org", 0) + found.domains_error


def test_rare_domains_are_forgotten_and_it_is_said_how_many_documents_that_may_be():
    chance, naive, counts = random.Random(6), Counter(), DomainCounts(most=50)
    for _ in range(40):
        file = Counter(f"d{int(500 * chance.random() ** 4)}" for _ in range(200))
        counts.add(file)
        naive.update(file)
    assert counts.error > 0
    assert 50 < counts.distinct <= len(naive)
    assert len(counts.counts) <= 100
    for name, count in counts.largest():
        assert count <= naive[name] <= count + counts.error
    said = str(Analysis(8_000, domains=dict(counts.largest()), domains_error=counts.error))
    assert f"rare domains were forgotten: a count may be {counts.error:,} too low" in said


# -------------------- how it is shown


SMALL = """\
  characters     documents    share                            of all characters
           0             1   25.0 %  ████████████                          0.0 %
           1             0    0.0 %                                        0.0 %
      2 to 3             2   50.0 %  ████████████████████████              0.5 %
      4 to 7             0    0.0 %                                        0.0 %
     8 to 15             0    0.0 %                                        0.0 %
    16 to 31             0    0.0 %                                        0.0 %
    32 to 63             0    0.0 %                                        0.0 %
   64 to 127             0    0.0 %                                        0.0 %
  128 to 255             0    0.0 %                                        0.0 %
  256 to 511             0    0.0 %                                        0.0 %
512 to 1,023             1   25.0 %  ████████████                         99.5 %
251 characters on average, 1,005 in all

domain     documents    share
a.org              2   50.0 %  ████████████████████████
b.org              1   25.0 %  ████████████
domains: 2; documents without a URL: 1

language     documents    share
none                 3   75.0 %  ████████████████████████
en                   1   25.0 %  ████████
languages: 1"""


@pytest.fixture
def small(tmp_path) -> Analysis:
    table = {"text": ["", "ab", "abc", "x" * 1000], "url": ["//a.org", "//b.org", None, "//www.a.org"]}
    pq.write_table(pa.table(table | {"language": [None, "en", None, None]}), tmp_path / "a.parquet")
    return analyse(scan_tables([tmp_path / "a.parquet"]))


def test_bars_in_a_terminal(small):
    assert str(small) == SMALL


def test_a_table_on_a_card(small):
    said = small.markdown()
    assert "| characters | documents | share | of all characters |\n| ---: | ---: | ---: | ---: |\n| `0` | 1 |" in said
    assert "| `a.org` | 2 | 50.0 % |\n| `b.org` | 1 | 25.0 % |\n\ndomains: 2; documents without a URL: 1.\n" in said


def test_bars_in_a_notebook(small):
    said = small._repr_html_()
    assert said.count("<table ") == said.count("</table>") == 3
    assert "<td style='text-align:left'>a.org</td>" in said
    assert "width:100.00%" in said


def test_what_stands_in_a_url_is_neither_markdown_nor_html_nor_a_command_to_a_terminal(tmp_path):
    urls = ["http://<b>x|y`z\x1b[31m/", f"http://{'l' * 99}/"]
    pq.write_table(pa.table({"url": urls}), tmp_path / "a.parquet")
    found = analyse(scan_tables([tmp_path / "a.parquet"]))
    for said in (str(found), found.markdown(), found._repr_html_()):
        assert "\x1b" not in said
        assert "l" * 59 + "…" in said
    assert r"| ``<b>x\|y`z?[31m`` |" in found.markdown()
    assert "<b>" not in found._repr_html_()


def test_it_goes_through_json(counted):
    assert Analysis.from_dict(json.loads(json.dumps(counted.as_dict()))) == counted


# -------------------- of runs


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "documents").mkdir()
    for part in range(3):
        rows = [
            {"id": f"{part}-{row}", "text": "word " * (3 * row), "url": f"https://s{row % 3}.org", "language": "en"}
            for row in range(20)
        ]
        (folder / "documents" / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    spec = {
        "longcrawl": 1,
        "name": "tiny",
        "source": {
            "builder": "text",
            "data_dir": str(folder / "documents"),
            "id_field": "id",
            "language_field": "language",
        },
        "stages": [{"min_chars": {"n": 100}}],
        "outputs": {"parquet": {"file_bytes": 3000, "heldout": 4}},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "tiny.yaml", folder / "out")
    return folder / "out"


def test_a_run_counts_all_that_it_has_written(run_folder):
    counted = lc.analysis(run_folder)
    assert counted.documents == lc.funnel(run_folder).kept
    assert counted.languages == {"en": counted.documents}
    assert counted.domains == {"s0.org": 12, "s1.org": 15, "s2.org": 12}
    assert counted == lc.analysis(run_folder / "parquet")
    assert json.loads((run_folder / "manifest.json").read_text())["analysis"] == counted.as_dict()
    card = (run_folder / "README.md").read_text()
    assert all(table.markdown() in card for table in counted.place_tables())


def test_a_rectangle_is_counted_by_its_rows(tmp_path):
    texts = [f"{number} " + "some words to tell " * number for number in range(1, 30)]
    rows = Dataset.from_dict({"id": [str(row) for row in range(29)], "text": texts, "url": ["http://a.org"] * 29})
    crawl = lc.Crawl(rows) | lc.tokens.Tokenize("trained", vocabulary_size=300) | lc.tokens.MinTokens(16)
    (crawl | lc.tokens.Truncate(16)).to_rectangle(tmp_path / "made", heldout=3)
    counted = lc.analysis(tmp_path / "made")
    (tokens,) = counted.lengths
    assert tokens.unit == "tokens"
    assert sum(tokens.total.values()) == sum(crawl.data["n_tokens"])
    assert counted.domains == {"a.org": counted.documents}
    assert counted.languages == {}
