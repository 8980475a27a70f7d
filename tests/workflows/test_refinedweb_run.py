"""The recipes refinedweb and refinedweb-multilingual from archives to files: the same bytes however they are run."""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.display import plain
from longcrawl.errors import RunError
from longcrawl.publish.questions import overview

WORDS = {
    "en": "the of to and that have with be the of to and in is was were for not all had been which their people town "
    "harbour boats children morning river houses hill bread storm winter bells nobody afraid because long until old "
    "fishermen waiting brought baskets remember window garden letters evening street school teacher between",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es Leute Stadt Hafen "
    "Boote Kinder Morgen Fluss Häuser Hügel Brot Sturm Winter Glocken niemand Angst weil lange bis alten Fischer "
    "warteten brachten Körbe erinnern Fenster Garten Briefe Abend Straße Schule Lehrer zwischen wurden haben",
    "fr": "le la les de des et à en un une du dans que est pour qui sur pas plus avec ne se gens ville port bateaux "
    "enfants matin rivière maisons colline pain tempête hiver cloches personne peur parce long jusque vieux pêcheurs "
    "attendaient apportaient paniers souvenir fenêtre jardin lettres soir école maître entre étaient avaient leur",
    "es": "el la los las de que y en un una por con no se para su al lo como más del es gente ciudad puerto barcos "
    "niños mañana río casas colina pan tormenta invierno campanas nadie miedo porque largo hasta viejos pescadores "
    "esperaban traían cestos recuerdo ventana jardín cartas noche calle escuela maestro entre estaban habían",
    "nl": "de het een van en in is dat op te zijn met voor niet aan er om ook als dan maar bij mensen stad haven "
    "boten kinderen ochtend rivier huizen heuvel brood winter klokken niemand bang omdat lang totdat oude vissers "
    "wachtten brachten manden herinneren venster tuin brieven avond straat school leraar tussen werden hebben",
}
ARCHIVES, PARTS = 4, 2
STAGES = [
    "url_filter",
    "extract_text",
    "identify_language",
    "language",
    "gopher_repetition",
    "gopher_quality",
    "line_corrections",
    "urls",
    "min_hash",
    "exact_substring",
]
"""Figure 1 of the paper, top to bottom: 3.1, 3.2 and 3.3."""
SMALL = {
    "parts": PARTS,
    "stages.min_hash.unit": "word",
    "stages.min_hash.bands": 20,
    "stages.min_hash.rows": 10,
    "stages.exact_substring.unit": "character",
    "stages.exact_substring.min_tokens": 200,
}
"""No tokenizer is at hand offline; the rest is the recipe's."""
NOTICE = " ".join(random.Random("notice").choices(WORDS["en"].split(), k=60)) + "."
FOUND = {"en": 30, "de": 4, "es": 4, "fr": 4, "nl": 4}
KEPT = {"en": 17, "de": 4, "es": 4, "fr": 4}


def story(language: str, seed: object) -> list[str]:
    """Return six paragraphs of words of a language, so many that hardly any run of them comes twice."""
    chance = random.Random(f"{language} {seed}")
    sentences = [" ".join(chance.choices(WORDS[language].split(), k=14)) + "." for _ in range(18)]
    return [" ".join(sentences[place : place + 3]) for place in range(0, 18, 3)]


def record(name: str, url: str, paragraphs: list[str]) -> bytes:
    page = "".join(f"<p>{each}</p>" for each in paragraphs)
    html = f"<!DOCTYPE html><html><head><title>A page</title></head><body><article>{page}</article></body></html>"
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html.encode()
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{name}>\r\nWARC-Target-URI: {url}\r\n"
    head += f"WARC-Date: 2023-06-01T00:00:00Z\r\nContent-Type: application/http\r\nContent-Length: {len(block)}\r\n\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n", mtime=0)


def write_archive(path: Path, number: int) -> Path:
    """Write an archive that has something for every stage; archives of one part share a text, all share one URL."""
    site = f"https://site{number}.example"
    pages = [(f"{site}/en{each}", story("en", (number, each))) for each in range(3)]
    pages += [(f"{site}/{each}", story(each, number)) for each in ("de", "fr", "es", "nl")]
    pages += [("https://xxx-porn.example/", story("en", (number, "bad")))]
    pages += [(f"{site}/figures", ["17 41 88 90 31 " * 40])]
    pages += [(f"{site}/again", ["The same line of the page again and again, and that is all of it. " * 30])]
    pages += [(f"{site}/short", ["This is a page that has to be short, and with that it ends."])]
    pages += [(f"{site}/copy", story("en", ("copy", number % PARTS)))] * (number >= PARTS)
    pages += [(f"{site}/original", story("en", ("copy", number % PARTS)))] * (number < PARTS)
    pages += [("https://everywhere.example/", [*story("en", (number, "url")), "3 likes"])]
    pages += [(f"{site}/notice", [*story("en", (number, "notice")), NOTICE])] * (number % PARTS == 0)
    path.write_bytes(b"".join(record(f"{number}-{place}", *page) for place, page in enumerate(pages)))
    return path


def settings(source: Path) -> list[str]:
    return [f"{name}={value}" for name, value in ({"source.data_dir": source} | SMALL).items()]


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("crawl")
    for number in range(ARCHIVES):
        write_archive(folder / f"{number}.warc.gz", number)
    return folder


@pytest.fixture(scope="module", params=["refinedweb", pytest.param("refinedweb-multilingual", marks=pytest.mark.slow)])
def whole(request, tmp_path_factory, archives) -> tuple[str, Path]:
    """Return a recipe and the folder of its uninterrupted run in one process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    lc.run(request.param, out, 1, settings(archives))
    return request.param, out


def test_the_stages_are_those_of_the_paper_in_its_order():
    for name in ("refinedweb", "refinedweb-multilingual"):
        assert [label for label, _ in lc.load_recipe(name).stages] == STAGES


def test_the_recipe_for_new_crawls_differs_in_its_engine_alone():
    paper, new = (lc.load_recipe(name).as_dict() for name in ("refinedweb", "refinedweb-blocks"))
    paper["stages"][1]["extract_text"]["engine"] = "blocks"
    assert [new[key] for key in ("source", "stages", "parts", "outputs")] == [
        paper[key] for key in ("source", "stages", "parts", "outputs")
    ]


def command(name: str, source: Path, out: Path) -> list[str]:
    sets = [word for each in settings(source) for word in ("--set", each)]
    return [sys.executable, "-m", "longcrawl", "run", name, "--out", str(out), "--num-proc", "2", *sets]


def kill_a_run(words: list[str], out: Path, sign: str) -> None:
    """Start a run and kill it as soon as a file of it is seen; begin again where it was done before the kill came."""
    for _ in range(5):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        while not (out / sign).exists() and process.poll() is None:
            time.sleep(0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not (out / "manifest.json").exists():
            return
        shutil.rmtree(out)
    pytest.fail("every run was done before it could be killed")


def manifest_of(out: Path) -> dict:
    return json.loads((out / "manifest.json").read_text())


def ids_of(folder: Path) -> list[str]:
    return sorted(name for file in folder.rglob("*.parquet") for name in pq.read_table(file)["id"].to_pylist())


def test_every_stage_has_its_documents(whole):
    name, out = whole
    funnel = lc.funnel(out)
    assert [row.stage for row in funnel] == STAGES
    assert {row.stage: row.removed for row in funnel if row.removed} == {
        "url_filter": 4,
        "identify_language": 4,
        "language": 16 if name == "refinedweb" else 4,
        "gopher_repetition": 4,
        "gopher_quality": 4,
        "min_hash": 2,
        "urls": 3,
    }
    assert funnel.kept == sum(KEPT.values() if name == "refinedweb-multilingual" else [KEPT["en"]])


def test_corrected_lines_and_repeated_stretches_are_not_in_the_texts(whole):
    _, out = whole
    kept = [row for file in (out / "parquet").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(kept) == lc.funnel(out).kept
    assert sum(row["url"].endswith("/notice") for row in kept) == 2
    assert not any("3 likes" in row["text"] or NOTICE in row["text"] for row in kept)
    characters = {row.stage: row.characters for row in lc.funnel(out)}
    assert characters["min_hash"] - characters["exact_substring"] == pytest.approx(2 * len(NOTICE), abs=30)


def test_there_is_a_folder_for_each_language_of_the_multilingual_recipe(whole):
    name, out = whole
    folders = {folder.name: len(ids_of(folder)) for folder in (out / "parquet").iterdir() if folder.is_dir()}
    assert folders == (KEPT if name == "refinedweb-multilingual" else {})


def test_the_languages_of_the_crawl_are_in_manifest_card_and_inspection(whole):
    _, out = whole
    told = next(stage for stage in manifest_of(out)["funnel"]["stages"] if stage["stage"] == "identify_language")
    assert told["values"] == {"language": FOUND}
    assert list(told["values"]["language"]) == ["en", "de", "es", "fr", "nl"]
    assert "after identify_language; values of language: 5" in (out / "README.md").read_text()
    _, _, (table,) = overview(str(out))
    assert [tuple(row[:2]) for row in table.rows] == list(FOUND.items())
    shown = CliRunner().invoke(app, ["inspect", str(out)])
    assert str(table) in shown.output


def test_the_card_names_languages_that_were_kept_and_says_that_no_list_was_used(whole):
    name, out = whole
    card = (out / "README.md").read_text()
    languages = yaml.safe_load(card.split("---")[1])["language"]
    assert languages == (["en"] if name == "refinedweb" else ["de", "en", "es", "fr"])  # and no it
    words = lc.text.UrlFilter().warnings()[0]
    assert "no block list was used, and " in words
    assert f"> **Warning.** `url_filter`: {plain(words)}." in card.partition("## ")[0]  # before all else
    assert manifest_of(out)["warnings"] == {"url_filter": [words]}


def test_a_url_filter_with_lists_has_nothing_to_say(tmp_path):
    assert lc.text.UrlFilter(lists=str(tmp_path)).warnings() == ()
    assert "no words" in lc.text.UrlFilter(words=None).warnings()[0]


@pytest.mark.slow
def test_two_processes_make_the_same_files(whole, archives, tmp_path, directory_digest):
    name, out = whole
    lc.run(name, tmp_path / "out", 2, settings(archives))
    assert directory_digest(tmp_path / "out") == directory_digest(out)


@pytest.mark.slow
def test_a_killed_run_is_finished_with_the_same_files(whole, archives, tmp_path, directory_digest):
    name, out = whole
    signs = {"refinedweb": "work/segment-0/00001.json", "refinedweb-multilingual": "work/removed-0.json"}
    kill_a_run(command(name, archives, tmp_path / "out"), tmp_path / "out", signs[name])
    with pytest.raises(RunError, match="is not finished"):
        lc.funnel(tmp_path / "out")
    lc.run(name, tmp_path / "out", 1, settings(archives))
    assert directory_digest(tmp_path / "out") == directory_digest(out)


@pytest.mark.slow
def test_real_archives_are_read_whole_and_in_two_processes_to_the_same_files(real_data, tmp_path, directory_digest):
    """The four archives that are not broken."""
    names = ["pages-00000", "pages-00001", "pages-00002", "special-00000"]
    files = [str(real_data / "warc" / f"{name}.warc.gz") for name in names]
    sets = [f"source.data_files={json.dumps(files)}", *settings(real_data / "warc")[1:]]
    outs = [tmp_path / "one", tmp_path / "two"]
    for num_proc, out in enumerate(outs, start=1):
        lc.run("refinedweb-multilingual", out, num_proc, sets)
    assert directory_digest(outs[0]) == directory_digest(outs[1])
    funnel, manifest = lc.funnel(outs[0]), manifest_of(outs[0])
    assert funnel.documents == 313
    assert funnel.kept > 150
    left = [name for file in (outs[0] / "ledger").glob("*.parquet") for name in pq.read_table(file)["id"].to_pylist()]
    kept = ids_of(outs[0] / "parquet")
    assert len({*left, *kept}) == len(left) + len(kept) == funnel.documents
    (found,) = (row.values["language"] for row in funnel if row.values)
    assert sum(found.values()) == next(row.documents_out for row in funnel if row.stage == "identify_language")
    assert {folder.name for folder in (outs[0] / "parquet").iterdir() if folder.is_dir()} <= found.keys()
    assert manifest["warnings"].keys() >= {"url_filter"}
