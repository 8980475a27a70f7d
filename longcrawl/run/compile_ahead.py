"""Helper process that compiles a run's kernels from the last stage backwards, while the run starts at the first.

It applies the stages to made-up documents and writes nothing but compiled kernels. The run compiles each kernel that is
still missing, so the helper skips stages that need other columns, missing files, a GPU or another package.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from longcrawl.core.registry import is_ours
from longcrawl.core.stages import STAGES, SpanSurvey, Stage, Survey
from longcrawl.errors import LongCrawlError
from longcrawl.kernels.compiling import at_first_compile, never_wait
from longcrawl.run.engines.local import usable_cpus
from longcrawl.run.recipe import Recipe

DOCUMENTS = 40
SENTENCES = (
    "The river rose to the old bridge.",
    "They have seen the water of the lake.",
    "It was cold, and that was it.",
)
FOLDER = "compile-ahead"
"""Folder in a run's ``work`` for the helper's lock and files."""
PRIORITY = 1
"""Niceness added to the helper's process; low, because the run may wait for a kernel that the helper compiles."""
PAUSE = 0.2
"""Seconds between attempts to compile kernels that another process is compiling."""


@contextlib.contextmanager
def compiling_ahead(recipe: Recipe, work: Path) -> Iterator[None]:
    """Start the helper when the run compiles its first kernel; end it with the run."""
    started = list[subprocess.Popen[bytes]]()

    def start() -> None:
        if usable_cpus() > 1:
            started.append(_start(recipe, work / FOLDER))

    with at_first_compile(start):
        try:
            yield
        finally:
            for each in started:
                each.kill()
                each.communicate()


def _start(recipe: Recipe, folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True, exist_ok=True)
    ours = [stage for _, stage in recipe.stages if is_ours(type(stage)) and not stage.uses_gpu]
    given = {"folder": str(folder.resolve()), "stages": [[stage.name, stage.settings()] for stage in ours]}
    # The helper reads files from the Hub cache only; downloading is left to the run.
    command, environment = [sys.executable, "-m", "longcrawl.run.compile_ahead"], os.environ | {"HF_HUB_OFFLINE": "1"}
    nowhere = subprocess.DEVNULL
    helper = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere)  # noqa: S603  # this Python, our module
    assert helper.stdin is not None  # it is a pipe
    with contextlib.suppress(BrokenPipeError):
        helper.stdin.write(json.dumps(given).encode() + b"\n")
        helper.stdin.flush()
    return helper


def main() -> None:
    """Compile the kernels of the stages in a JSON line from stdin, until all are done or stdin is closed."""
    given = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_run, daemon=True).start()
    os.nice(PRIORITY)
    folder = Path(given["folder"])
    if not folder.is_dir():  # the run has ended
        return
    with contextlib.suppress(Timeout), FileLock(folder / "lock", blocking=False):  # one helper for all processes
        never_wait()
        compile_stages(given["stages"], folder)


def _end_with_run() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(0)


def compile_stages(named: Sequence[tuple[str, Mapping[str, Any]]], folder: Path) -> None:
    """Apply stages to made-up documents, last stage first; retry later if another process compiles the same kernels."""
    table = made_up()
    waiting = [STAGES.make(name, dict(settings)) for name, settings in reversed(named)]
    while waiting:
        blocked = []
        for stage in waiting:
            try:
                apply_made_up(stage, table, folder)
            except Timeout:
                blocked.append(stage)
            except (LongCrawlError, OSError, LookupError, pa.ArrowException):  # cannot be compiled ahead
                continue
        if blocked == waiting:
            time.sleep(PAUSE)
        waiting = blocked


def apply_made_up(stage: Stage, table: pa.Table, folder: Path) -> None:
    """Fit and apply a stage to documents, or have a survey decide about them."""
    fitted = stage.fit([table], str(folder))
    fitted.prepare()
    if isinstance(fitted, SpanSurvey):
        fitted.edit_spans(table, fitted.resolve(fitted.sketch(table)))
    elif isinstance(fitted, Survey) and not fitted.orders:
        fitted.resolve(fitted.sketch(table))
    else:
        fitted.apply(table)


def made_up() -> pa.Table:
    """Return made-up documents with every column that stages usually read."""
    table = documents()
    pages = [f"<main><h1>Title</h1><p>{text}</p></main>" for text in table["text"].to_pylist()]
    made = table.append_column("html", pa.array(pages, pa.large_string()))
    tokens = pa.array([[number, 1, 2, 3] for number in range(DOCUMENTS)], pa.list_(pa.uint16()))
    return made.append_column("tokens", tokens).append_column("n_tokens", pa.array([4] * DOCUMENTS, pa.int64()))


def documents() -> pa.Table:
    """Return made-up documents with bullets, repetitions, several alphabets and near-duplicates."""
    texts = []
    for number in range(DOCUMENTS):
        words = [f"{SENTENCES[(number + place) % 3]} Word{number * 97 + place} élan." for place in range(30)]
        lines = ["- " + words[0], *words[1:20], " ".join(words[20:]), words[1], "Wörter, слова, 言葉…"]
        texts.append("\n".join(lines) if number % 5 else SENTENCES[0] * 40)
    urls = [f"http://www.example{number % 7}.org/page/{number}?from=list" for number in range(DOCUMENTS)]
    ids = [f"document-{number}" for number in range(DOCUMENTS)]
    columns = {"id": ids, "url": urls, "text": pa.array(texts, pa.large_string()), "language": ["en"] * DOCUMENTS}
    return pa.table(columns)


if __name__ == "__main__":
    main()
