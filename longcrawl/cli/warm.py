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
from longcrawl.run.compile_ahead import documents, made_up
from longcrawl.run.engines.local import map_tasks, usable_cpus
from longcrawl.run.recipe import parse_recipe

SHAPES: dict[str, Sequence[Any]] = {
    "composed": [{"composed": {"capacities": [32, 64]}}],
    "datatrove": [{"datatrove": {}}],
    "gpt-simple": [{"windows": {"max_length": 64, "overlap_size": 8}}, {"gpt-simple": {}}],
    "rectangle": [{"truncate": {"n": 64}}, {"shuffle": {"seed": 0}}, {"roll": {"seed": 0}}, {"rectangle": {}}],
}
"""What follows on tokens, the output last."""
APPLIED = (
    ("gopher_quality", "gopher_repetition", "fine_web_quality"),
    ("line_corrections", "c4_quality"),
    ("personal_data",),
    ("signals",),
    ("extract_text",),
)
"""Stages that are applied to made-up documents; those of a task share kernels."""


def compile_kernels(num_proc: int | None = None) -> str:
    """Compile the kernels of all stages, outputs and feeds; return a message. By default each core has a process."""
    workers = num_proc or usable_cpus()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        numbers = range(len(tasks()))
        done = map_tasks(partial(_compile, Path(folder)), numbers, workers)
        compiled = sum(progress_bar(done, total=len(numbers), desc="warm", unit=" tasks"))
    return f"{compiled:,} kernels compiled in {time.monotonic() - started:.0f} s, by {workers} processes"


def tasks() -> list[Callable[[Path], object]]:
    """Return functions of a folder that compile kernels, in tasks that share few; the longest tasks are first."""
    written = [partial(write, shape) for shape in SHAPES]
    searched = [partial(search, unit) for unit in UNITS]
    applied = [partial(apply, stages) for stages in APPLIED]
    fitted = [normalize, find_long_range, relate, score_by_classifier]
    others = [decontaminate, filter_urls, read_lines, read_archive, read_release]
    return [explain, *applied, compare, verify_pairs, *written, *searched, *fitted, *others]


def prepare(folder: Path) -> None:
    """Write made-up documents and a tokenizer trained on them."""
    table = documents()
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    trained = lc.tokens.Tokenize("trained", vocabulary_size=300).fit([table], str(folder / "trained"))
    Path(trained.tokenizer).rename(folder / "tokenizer.json")


def explain(_: Path) -> None:
    """Do what ``longcrawl inspect --text`` does."""
    table = documents()
    stages = [STAGES.make(name, {}) for name in USUAL]
    for text in table["text"].to_pylist()[:2]:
        str(lc.text.explain(text, stages, "en"))


def apply(stages: Sequence[str], _: Path) -> None:
    """Apply stages to made-up documents."""
    for stage in (STAGES.make(name, {"engine": "blocks"} if name == "extract_text" else {}) for name in stages):
        stage.apply(made_up())
        if stage.edits:
            stage.trace(made_up())


def compare(folder: Path) -> None:
    """Find equal and nearly equal documents, also those of an earlier dataset."""
    for survey in (lc.dedup.ExactDocuments(), lc.dedup.Urls(), lc.dedup.MinHash(unit="word")):
        sketches = survey.sketch(documents())
        survey.resolve(sketches)
        survey.save_index(sketches, folder / survey.name)
    lc.dedup.MinHash(unit="word", against=(str(folder / "min_hash"),)).resolve(sketches)
    tokens = lc.dedup.MinHash(tokenizer=str(folder / "tokenizer.json"))
    tokens.resolve(tokens.sketch(documents()))


def verify_pairs(_: Path) -> None:
    """Find nearly equal documents and compare their n-grams."""
    for linkage in ("single", "star"):
        survey = lc.dedup.MinHash(unit="word", bands=20, rows=5, verify=0.5, linkage=linkage, min_size_ratio=0.5)
        survey.resolve(survey.sketch(documents()))


def search(unit: Any, folder: Path) -> None:
    """Find passages that occur twice."""
    survey = lc.dedup.ExactSubstring(unit=unit, tokenizer=str(folder / "tokenizer.json"))
    survey.edit_spans(documents(), survey.resolve(survey.sketch(documents())))


def normalize(folder: Path) -> None:
    """Encode by a tokenizer that normalises texts to NFC."""
    document = json.loads((folder / "tokenizer.json").read_text())
    path = folder / "nfc.json"
    path.write_text(json.dumps(document | {"normalizer": {"type": "NFC"}}))
    lc.tokens.Tokenize(str(path)).apply(documents())


def decontaminate(folder: Path) -> None:
    """Look documents up in an evaluation set."""
    exam = folder / "exam.txt"
    exam.write_text("\n".join(documents()["text"].to_pylist()[0].splitlines()))
    lc.dedup.Decontaminate(against=(str(exam),), ngram=5, policy="cut").apply(documents())


def find_long_range(folder: Path) -> None:
    """Measure what is far in documents."""
    lc.long.LexicalDependency(train_documents=None).fit([documents()], str(folder)).prepare()


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


def filter_urls(folder: Path) -> None:
    """Look URLs up in block lists."""
    listed = folder / "lists" / "porn"
    listed.mkdir(parents=True)
    (listed / "domains").write_text("example1.org\n")
    (listed / "urls").write_text("example2.org/page\n")
    lc.text.UrlFilter(lists=str(listed.parent), categories=("porn",)).apply(documents())


def read_lines(folder: Path) -> None:
    """Read each line of a text file as a document, and a field inside an object of JSON lines."""
    nested = folder / "nested.jsonl"
    nested.write_text('{"text": "one", "metadata": {"url": "http://www.example.org"}}\n')
    _read_all("text", {"data_files": str(nested), "url_field": "metadata.url"})
    lines = folder / "lines.txt"
    lines.write_text("\n".join(documents()["text"].to_pylist()))
    _read_all("text", {"data_files": str(lines), "unit": "line"})


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
    _read_all("warc", {"data_files": str(folder / "pages.warc*")})


def _read_all(name: str, settings: dict[str, Any]) -> None:
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
    with chdir(folder):
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
    with redirect_stderr(io.StringIO()), at_first_compile(lambda: None):  # its runs need no helper
        tasks()[number](folder)
    return count_compiled() - before
