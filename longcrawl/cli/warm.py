"""``longcrawl warm``: compile kernels ahead, by doing on a few made-up documents what stages, outputs and feeds do."""

import gzip
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import longcrawl as lc
from longcrawl.cli.questions import USUAL
from longcrawl.core.display import progress_bar
from longcrawl.core.sources import BadFiles, LostRecords, make_source
from longcrawl.core.stages import STAGES
from longcrawl.dedup.substring import UNITS
from longcrawl.kernels.compiling import at_first_compile, count_compiled
from longcrawl.run.compile_ahead import apply_made_up, documents, made_up
from longcrawl.run.engines.local import map_tasks, usable_cpus
from longcrawl.run.recipe import parse_recipe

SHAPES: dict[str, Sequence[Any]] = {
    "composed": [{"composed": {"capacities": [32, 64]}}],
    "datatrove": [{"datatrove": {}}],
    "gpt-simple": [{"windows": {"max_length": 64, "overlap_size": 8}}, {"gpt-simple": {}}],
    "rectangle": [{"truncate": {"n": 64}}, {"shuffle": {"seed": 0}}, {"roll": {"seed": 0}}, {"rectangle": {}}],
}
"""Stages after tokenization, and the output."""
MADE_UP = {
    "exam.txt": documents()["text"][0].as_py(),
    "lists/porn/domains": "example1.org\n",
    "lists/porn/urls": "example2.org/page\n",
    "nested.jsonl": '{"text": "one", "metadata": {"url": "http://www.example.org"}}\n',
    "lines.txt": "\n".join(documents()["text"].to_pylist()),
}
"""Files that tasks read."""
VERIFIED = {"unit": "word", "bands": 20, "rows": 5, "verify": 0.5, "min_size_ratio": 0.5}
APPLIED: Sequence[Sequence[tuple[str, dict[str, Any]]]] = (
    [("gopher_quality", {}), ("gopher_repetition", {}), ("fine_web_quality", {})],
    [("line_corrections", {}), ("c4_quality", {})],
    [("personal_data", {})],
    [("signals", {})],
    [("extract_text", {"engine": "blocks"})],
    [("min_hash", VERIFIED | {"linkage": linkage}) for linkage in ("single", "star")],
    *([("exact_substring", {"unit": unit, "tokenizer": "tokenizer.json"})] for unit in UNITS),
    [("tokenize", {"tokenizer": "nfc.json"})],
    [("lexical_dependency", {"train_documents": None})],
    [("decontaminate", {"against": ["exam.txt"], "ngram": 5, "policy": "cut"})],
    [("url_filter", {"lists": "lists", "categories": ["porn"]})],
)
"""Stages that are applied to made-up documents; those of a task share kernels."""
READ: Sequence[tuple[str, dict[str, str]]] = (
    ("text", {"data_files": "nested.jsonl", "url_field": "metadata.url"}),
    ("text", {"data_files": "lines.txt", "unit": "line"}),
)


def compile_kernels(num_proc: int | None = None) -> dict[str, int]:
    """Compile the kernels of all stages, outputs and feeds; return the counts. By default each core has a process."""
    workers = num_proc or usable_cpus()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        numbers = range(len(tasks()))
        done = map_tasks(partial(_compile, Path(folder)), numbers, workers)
        compiled = sum(progress_bar(done, total=len(numbers), desc="warm", unit=" tasks"))
    return {"kernels": compiled, "seconds": round(time.monotonic() - started), "processes": workers}


def tasks() -> list[Callable[[Path], object]]:
    """Return functions of a folder that compile kernels, in tasks that share few; the longest tasks are first."""
    applied = [partial(apply, stages) for stages in APPLIED]
    written = [partial(write, shape) for shape in SHAPES]
    read = [partial(read_all, *each) for each in READ]
    return [explain, *applied, compare, *written, relate, score_by_classifier, *read, read_archive, read_release]


def prepare(folder: Path) -> None:
    """Write made-up documents, a tokenizer trained on them, and one that also normalises texts to NFC."""
    table = documents()
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    for name, content in (MADE_UP | {"documents.jsonl": lines}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    trained = lc.tokens.Tokenize("trained", vocabulary_size=300).fit([table], str(folder / "trained"))
    tokenizer = Path(trained.tokenizer).rename(folder / "tokenizer.json")
    normalized = json.loads(tokenizer.read_text("utf-8")) | {"normalizer": {"type": "NFC"}}
    (folder / "nfc.json").write_text(json.dumps(normalized), "utf-8")


def explain(_: Path) -> None:
    """Do what ``longcrawl inspect --text`` does."""
    table = documents()
    stages = [STAGES.make(name, {}) for name in USUAL]
    for text in table["text"].to_pylist()[:2]:
        str(lc.text.explain(text, stages, "en"))


def apply(stages: Sequence[tuple[str, dict[str, Any]]], folder: Path) -> None:
    """Apply stages to made-up documents."""
    for name, settings in stages:
        table, stage = made_up() if name == "extract_text" else documents(), STAGES.make(name, settings)
        apply_made_up(stage, table, folder)
        if stage.edits and stage.needs == "batch":
            stage.trace(table)


def compare(folder: Path) -> None:
    """Find equal and nearly equal documents, also those of an earlier dataset."""
    for survey in (lc.dedup.ExactDocuments(), lc.dedup.Urls(), lc.dedup.MinHash(unit="word")):
        sketches = survey.sketch(documents())
        survey.resolve(sketches)
        survey.save_index(sketches, folder / survey.name)
    lc.dedup.MinHash(unit="word", against=(str(folder / "min_hash"),)).resolve(sketches)
    tokens = lc.dedup.MinHash(tokenizer=str(folder / "tokenizer.json"))
    tokens.resolve(tokens.sketch(documents()))


def score_by_classifier(folder: Path) -> None:
    """Train a classifier and score texts with it, and identify their languages with one of languages."""
    table, path = documents(), folder / "model.bin"
    lc.text.train_classifier(
        table.slice(0, 20), table.slice(20), path, ("en", "de"), dimensions=4, buckets=64, epochs=1
    )
    lc.text.FastTextClassifier(str(path), "en").apply(table)
    lc.text.IdentifyLanguage(str(path)).apply(table)


def relate(folder: Path) -> None:
    """Put related documents in order, and pack them so."""
    for method in ("path", "tree"):
        STAGES.make("related", {"method": method}).fit([documents()], str(folder)).prepare()
    lc.tokens.Buckets((8,), planner="interleaved", chunk_tokens=2).plan([9, 3, 2])


def read_release(folder: Path) -> None:
    """Read signals of RedPajama-V2."""
    from longcrawl.sources.redpajama_v2 import read_signals

    lines = [{"id": "a", "quality_signals": {"rps_doc_word_count": [[0, 1, 2.0]]}}]
    with gzip.open(folder / "a.signals.json.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    lost = LostRecords(BadFiles(), "a.signals.json.gz")
    read_signals(str(folder / "a.signals.json.gz"), ["rps_doc_word_count"], [], lost)


def read_archive(folder: Path) -> None:
    """Read pages of web archives, as many as are hashed side by side."""
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + "<p>Größe</p>".encode() * 10_000
    head = f"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: {len(block)}\r\n\r\n".encode()
    record = head + block + b"\r\n\r\n"
    (folder / "pages.warc").write_bytes(record)
    (folder / "pages.warc.gz").write_bytes(gzip.compress(record) * 20)
    read_all("warc", {"data_files": "pages.warc*"}, folder)


def read_all(name: str, settings: dict[str, Any], _: Path) -> None:
    """Read all documents of a source."""
    source = make_source(name, settings)
    for part in source.splits()["train"]:
        list(source.read(part, BadFiles()))


def write(shape: str, folder: Path) -> None:
    """Carry out a recipe from text to an output, and read it as a trainer does."""
    *stages, output = SHAPES[shape]
    spec = {
        "longcrawl": 1,
        "name": "warm",
        "about": "Compiles kernels.",
        "source": {"builder": "text", "data_files": "documents.jsonl"},
        "stages": [{"tokenize": {"tokenizer": "tokenizer.json"}}, *stages],
        "outputs": output,
        "card": {"pretty_name": "Warm"},
    }
    lc.run(parse_recipe(spec), shape)
    for batch in _read(shape, folder / shape / shape):
        np.asarray(batch)


def _read(shape: str, written: Path) -> Iterator[Any]:
    if shape == "rectangle":
        yield from lc.loading.Rectangle(written, batch_size=2).read(0).values()
    elif shape == "datatrove":
        windows = lc.loading.Windows(written, 16)
        yield from windows[0].values()
        yield from lc.loading.WindowMixture({"all": windows}, {"all": 1}).read(0).values()
    elif shape == "gpt-simple":
        yield from lc.loading.Packed(written, max_length=64, batch_size=1).read(0).values()


def _compile(folder: Path, number: int) -> int:
    before = count_compiled()
    with chdir(folder), redirect_stderr(io.StringIO()), at_first_compile(lambda: None):  # its runs need no helper
        tasks()[number](folder)
    return count_compiled() - before
