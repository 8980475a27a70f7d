"""Targets that a run writes and reads back: work folder, saved indexes, ledger, outputs, descriptions."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from _campaign import Outcome, Target, apart
from _folder_target import DATA, FIXED, VERIFY, Act, FolderTarget
from _input_targets import (
    RELEASE,
    TEXTS,
    Files,
    Judge,
    Reading,
    SourceTarget,
    checksummed,
    decompress_zstd,
    same_texts_by_id,
)
from _inputs import (
    compress_gzip,
    compress_zstd,
    digest_of,
    documents,
    json_lines,
    parquet_bytes,
    release_files,
    web_records,
)
from _mutations import Mutation, flip
from _output_targets import description_targets
from _runs import FEEDS, fed_by_packed, fed_by_rectangle, finished_run, problems, questions, recipe_of
from _stopping import run_until_event

FLIP: tuple[Mutation, ...] = (flip,)
PIECES = 4
"""Members of a compressed file."""
STOPPED = {
    "parquet": ["exact_documents", {"min_hash": {"preset": "fineweb"}}],
    "composed": [{"tokenize": {"tokenizer": "TOKENIZER"}}, "shuffle"],
    "datatrove": [
        {"exact_substring": {"unit": "character", "min_tokens": 100}},
        {"tokenize": {"tokenizer": "TOKENIZER"}},
    ],
}
"""Runs that are stopped before they write their output: their stages leave every kind of file in ``work``."""


def input_targets() -> list[Target]:
    """Return a target for each kind of input file with checksums."""
    rows = documents(60, (20, 60))
    pieces = [json_lines(rows[start::PIECES]) for start in range(PIECES)]
    records = web_records(0, pages=20, paragraphs=3)
    release = {name: content for name, content in release_files(1, 20, (40, 90)).items() if "parquet" not in name}
    release = {name: content for name, content in release.items() if "middle" not in name}
    table = pa.Table.from_pylist(rows)

    def of(name: str, source: str, files: Files, judge: Judge, **settings: object) -> Target:
        return SourceTarget(f"input {name}", 3, source, lambda: files, ways=FLIP, settings=settings, judge=judge)

    gzipped, zstandard = checksummed(_strict_gzip), checksummed(decompress_zstd)
    return [
        of("jsonl.gz", "text", {"a.jsonl.gz": b"".join(map(compress_gzip, pieces))}, gzipped, **TEXTS),
        of("jsonl.zst", "text", {"a.jsonl.zst": b"".join(map(compress_zstd, pieces))}, zstandard, **TEXTS),
        of("txt.gz", "text", {"a.txt.gz": compress_gzip(b"\n".join(row["text"].encode() for row in rows))}, gzipped),
        of("warc.gz", "warc", {"a.warc.gz": b"".join(map(compress_gzip, records))}, checksummed(_strict_gzip, "html")),
        of(
            "warc.zst",
            "warc",
            {"a.warc.zst": b"".join(map(compress_zstd, records))},
            checksummed(decompress_zstd, "html"),
        ),
        of("one warc.gz", "warc", {"a.warc.gz": compress_gzip(b"".join(records))}, checksummed(_strict_gzip, "html")),
        of("parquet", "text", {"a.parquet": parquet_bytes(table, write_page_checksum=True)}, all_rows),
        of("release", "redpajama-v2", release, same_texts_by_id, **(RELEASE | {"duplicates": False})),
    ]


def _strict_gzip(content: bytes) -> bytes:
    import gzip

    return gzip.decompress(content)


def all_rows(files: Files, reading: Reading, whole: Reading) -> Outcome:  # noqa: ARG001  # as all judges
    """Every row is as it was, or is missing and reported."""
    wrong = [row for row in reading.rows if row not in whole.rows]
    if wrong:
        return Outcome("silent change", f"{len(wrong)} rows differ, such as {str(wrong[0])[:200]}")
    return Outcome(
        "legitimate" if reading.reported else "silent loss", f"{len(reading.rows)} of {len(whole.rows)} rows"
    )


def work_targets() -> list[Target]:
    return [_stopped_run(output) for output in STOPPED]


def _stopped_run(output: str) -> Target:
    """Return a run that is stopped once its stages are done; the same command finishes what is damaged of it."""

    def make(folder: Path) -> None:
        import longcrawl as lc

        recipe = recipe_of(output, folder / FIXED, STOPPED[output])
        apart(lambda: run_until_event(recipe, folder / DATA, f"{output}.partial", f"/{output}/"))
        if not any((folder / DATA / "work").rglob("*.json")) or (folder / DATA / "manifest.json").exists():
            raise AssertionError("the run was not stopped when its stages were done")
        shutil.copytree(folder / DATA, folder / FIXED / "run")
        lc.run(recipe, folder / FIXED / "run")

    def finish(folder: Path) -> Mapping[str, Act]:
        import longcrawl as lc

        recipe = folder / FIXED / "recipe.yaml"
        return {"same command": lambda run: (lc.run(recipe, run), digest_of(run))[1]}

    return FolderTarget(f"work {output}", 3, make, finish, damaged=("work/*", "ledger/*"), ways=FLIP, writes=True)


def finished_targets() -> list[Target]:
    """Return targets of finished runs: outputs under their feeds, and what questions read."""
    targets: list[Target] = []
    for output, feed in FEEDS.items():
        acts = {VERIFY: problems, "feed": _below(output, feed)}
        targets.append(
            FolderTarget(f"feed {output}", 4, finished_run(output), acts, damaged=(f"{output}/*",), ways=FLIP)
        )
    others = {
        "packed datatrove": ("datatrove", fed_by_packed),
        "packed gpt-simple": ("gpt-simple", fed_by_packed),
        "rectangle by zarr": ("rectangle", lambda path: fed_by_rectangle(path, "zarr")),
    }
    for name, (output, feed) in others.items():
        acts = {VERIFY: problems, "feed": _below(output, feed)}
        targets.append(FolderTarget(name, 2, finished_run(output), acts, damaged=(f"{output}/*",), ways=FLIP))
    return [*targets, *_questioned()]


def _below(name: str, act: Act) -> Act:
    return lambda folder: act(folder / name)


def _questioned() -> list[Target]:
    """Return targets of a run's files that only questions read; ``verify`` has to notice what they do not."""
    described = {"verify", "funnel", "rates", "run again", "card", "report"}

    def asked(folder: Path) -> Mapping[str, Act]:
        return {VERIFY: problems} | questions(folder)

    def of_description(folder: Path) -> Mapping[str, Act]:
        return {name: act for name, act in asked(folder).items() if name in described}

    def of_tables(folder: Path) -> Mapping[str, Act]:
        return {name: act for name, act in asked(folder).items() if name not in described or name == VERIFY}

    run = finished_run("parquet")
    return [
        FolderTarget("run manifest", 1, run, of_description, damaged=("manifest.json",), ways=FLIP, writes=True),
        FolderTarget(
            "run recipe and card",
            1,
            run,
            of_description,
            damaged=("recipe.yaml", "README.md"),
            ways=FLIP,
            noticed="by verify",
            writes=True,
        ),
        FolderTarget("run ledger", 2, run, of_tables, damaged=("ledger/*", "edits/*"), ways=FLIP, writes=True),
        FolderTarget("run parquet", 2, run, of_tables, damaged=("parquet/*",), ways=FLIP, writes=True),
    ]


def saved_targets() -> list[Target]:
    """Return a saved index and a plan, read as in fuzz.py, with one bit flipped."""
    chosen = []
    for target in description_targets():
        if isinstance(target, FolderTarget) and target.name in ("saved index", "plan", "unfinished push"):
            target.ways, target.noticed, target.weight = FLIP, "by use", 2
            chosen.append(target)
    return chosen
