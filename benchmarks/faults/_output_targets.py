"""Readers of what longcrawl and others write: token shards, rectangles, samples in buckets, runs, descriptions."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from _campaign import Target
from _folder_target import DATA, FIXED, VERIFY, Act, FolderTarget
from _inputs import WORDS, documents, train_tokenizer, write_files
from _mutations import BINARY, TEXT
from _runs import (
    fed_by_buckets,
    fed_by_rectangle,
    finished_output,
    finished_run,
    problems,
    questions,
    recipe_of,
)

SHARDS = {
    "datatrove": ".ds",
    "gpt-simple": ".bin",
    "levanter": "/input_ids/data/c/0",
    "litdata": ".bin",
    "mds": ".mds",
    "megatron": ".bin",
    "nanogpt": ".bin",
    "olmo-core": ".npy",
    "token-parquet": ".parquet",
}
KNOWN = {"end_of_text": 0, "vocabulary_size": 1000}


def _write_shard(name: str, checksums: Literal["with", "without"]) -> Callable[[Path], None]:
    """Return what writes a shard, with our checksums beside it, or as other projects write it."""

    def make(folder: Path) -> None:
        import numpy as np

        from longcrawl.formats.shards.spec import FORMATS

        chance = np.random.default_rng(0)
        tokens = [[*map(int, chance.integers(1, 1000, length)), 0] for length in (5, 40, 1, 300, 77, 12)]
        table = pa.table({"tokens": pa.array(tokens, pa.list_(pa.uint16()))})
        if name in ("datatrove", "olmo-core"):
            table = table.append_column("loss_mask", pa.array([[True] * len(each) for each in tokens]))
        settings = KNOWN | ({"tokenizer": "gpt2"} if name == "datatrove" else {})
        (folder / DATA).mkdir()
        FORMATS[name].write(table, folder / DATA / f"a{SHARDS[name]}", **settings)
        if checksums == "without":
            for beside in (folder / DATA).rglob("*.crc32c"):
                beside.unlink()

    return make


def _use_shard(name: str) -> Mapping[str, Act]:
    """Return everything that reads a shard by itself."""
    file = f"a{SHARDS[name]}"

    def opened(folder: Path) -> object:
        from longcrawl.formats.shards.spec import open_shard

        shard = open_shard(folder / file, name, **KNOWN)
        shard.documents(0, len(shard)).table().validate(full=True)
        return [shard.document(number).tolist() for number in range(len(shard))]

    def verified(folder: Path) -> object:
        found = problems(folder / file, format=name, **KNOWN)
        if not found:
            opened(folder)  # what verify is content with can be opened
        return found

    def converted(folder: Path) -> object:
        import longcrawl as lc

        target = ("token-parquet", ".parquet") if name != "token-parquet" else ("datatrove", ".ds")
        lc.convert(
            folder / file, folder / f"b{target[1]}", target[0], source_format=name, on_loss="warn", end_of_text=0
        )
        return None

    def windows(folder: Path) -> object:
        import longcrawl as lc

        found = lc.loading.Windows(folder / file, seq_len=16, format=name, **KNOWN)
        return [window["input_ids"].tolist() for window in (found[number] for number in range(min(len(found), 40)))]

    acts: dict[str, Act] = {VERIFY: verified, "open": opened, "convert": converted}
    return acts if name == "token-parquet" else acts | {"windows": windows}


def shard_targets() -> list[Target]:
    """Return a target for each format without checksums, which lets damage through to what parses it, and with them."""
    return [
        FolderTarget(
            f"shard {name}" if checksums == "without" else f"checked {name}",
            25 if checksums == "without" else 4,
            _write_shard(name, checksums),
            _use_shard(name),
            ways=BINARY,
            noticed="not always",
            writes=True,
        )
        for name in SHARDS
        for checksums in ("without", "with")
    ]


def _write_rectangle(zarr_format: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from datasets import Dataset

        import longcrawl as lc

        crawl = lc.Crawl(Dataset.from_list(documents(40)))
        tokenizer = str(train_tokenizer(folder / "tokenizer.json"))
        tokens = crawl | lc.tokens.Tokenize(tokenizer) | lc.tokens.MinTokens(64) | lc.tokens.Truncate(64)
        rows = tokens | lc.tokens.Shuffle(seed=0) | lc.tokens.Roll(seed=0)
        rows.to_rectangle(str(folder / DATA), heldout=0.1, zarr_format=zarr_format)

    return make


def _write_original(folder: Path) -> None:
    """Write arrays as the original LongCrawl64 has them, without any checksum."""
    import numcodecs
    import numpy as np
    import zarr

    for split, rows in (("train", 24), ("heldout", 8)):
        array = zarr.create_array(
            str(folder / DATA / f"{split}.zarr"),
            shape=(rows, 64),
            chunks=(8, 16),
            dtype="<u2",
            zarr_format=2,
            compressors=numcodecs.Blosc("lz4", shuffle=1),
            fill_value=0,
        )
        array[:] = np.random.default_rng(1).integers(1, 50_000, (rows, 64), dtype="u2")


def _inspect(path: Path) -> object:
    import longcrawl as lc

    return str(lc.inspect(path, row=1)), str(lc.analysis(path))


def _read_as_source(name: str) -> Act:
    def read(folder: Path) -> object:
        from longcrawl.core.sources import BadFiles, make_source

        source = make_source(name, {"data_dir": str(folder)})
        parts = [part for parts in source.splits().values() for part in parts]
        tables = (table for part in parts for table in source.read(part, BadFiles("error")))
        return [table.to_pydict() for table in tables]

    return read


def rectangle_targets() -> list[Target]:
    acts: dict[str, Act] = {
        VERIFY: problems,
        "feed": fed_by_rectangle,
        "source": _read_as_source("rectangle"),
    }
    with_inspection = acts | {"inspect": _inspect}
    return [
        FolderTarget("rectangle v3", 10, _write_rectangle(3), with_inspection, ways=TEXT, noticed="by verify"),
        FolderTarget("rectangle v2", 10, _write_rectangle(2), with_inspection, ways=TEXT, noticed="by verify"),
        FolderTarget("rectangle original", 10, _write_original, acts, ways=TEXT, noticed="not always"),
        FolderTarget(
            "composed",
            10,
            finished_output("composed"),
            {VERIFY: problems, "feed": fed_by_buckets, "inspect": _inspect_row},
            ways=TEXT,
            noticed="by verify",
        ),
    ]


def _inspect_row(path: Path) -> object:
    import longcrawl as lc

    return str(lc.inspect(path, row=1))


def run_targets() -> list[Target]:
    """Return targets of finished runs."""

    def asked(folder: Path) -> Mapping[str, Act]:
        return {VERIFY: problems} | questions(folder)

    def few(folder: Path) -> Mapping[str, Act]:
        chosen = ("why kept", "why removed", "why edited", "clusters", "inspect", "analysis", "removed")
        return {VERIFY: problems} | {name: act for name, act in questions(folder).items() if name in chosen}

    make = finished_run("parquet")
    described = ("manifest.json", "recipe.yaml", "README.md", "*.json")
    return [
        FolderTarget("run described", 2, make, asked, damaged=described, ways=TEXT, noticed="by verify", writes=True),
        FolderTarget(
            "run tables", 4, make, few, damaged=("ledger/*", "edits/*", "parquet/*"), ways=BINARY, noticed="by verify"
        ),
    ]


def _recipes(folder: Path) -> None:
    from importlib import resources

    shipped = resources.files("longcrawl").joinpath("recipes")
    names = ("quickstart", "longcrawl64", "refinedweb", "gpt-simple", "bucket-pretraining")
    write_files(folder / DATA, {f"{name}.yaml": shipped.joinpath(f"{name}.yaml").read_bytes() for name in names})


def _read_recipe(folder: Path) -> object:
    """Read the one that is damaged, and read it back from how it is written."""
    import yaml

    from longcrawl.run.recipe import load_recipe, parse_recipe

    texts = []
    for path in sorted(folder.iterdir()):
        recipe = load_recipe(path)
        if parse_recipe(yaml.safe_load(recipe.as_yaml())).digest != recipe.digest:
            raise AssertionError(f"{path.name} does not read back")
        texts.append(recipe.as_yaml())
    return texts


def _plan(folder: Path) -> None:
    import longcrawl as lc

    recipe = recipe_of("parquet", folder / FIXED)
    (folder / DATA).mkdir()
    lc.plan(recipe, documents=20).save(folder / DATA / "plan.json")


def _read_plan(folder: Path) -> object:
    import longcrawl as lc

    plan = lc.Plan.load(folder / "plan.json")
    return repr(plan), plan._repr_html_()  # what a notebook calls


def _unfinished(folder: Path) -> None:
    from longcrawl.publish.hub.client import UnfinishedPush

    push = UnfinishedPush("run-0123456789ab", frozenset({"a/b.parquet", "README.md"}))
    write_files(folder / DATA, {"unfinished-push.json": push.as_json()})


def _read_unfinished(folder: Path) -> object:
    from longcrawl.publish.hub.client import UnfinishedPush

    return sorted(UnfinishedPush.read((folder / "unfinished-push.json").read_bytes()).files)


def _read_remote(folder: Path) -> object:
    from longcrawl.publish.hub.client import read_remote

    return read_remote((folder / "manifest.json").read_bytes(), "manifest.json")


def _just_manifest(folder: Path) -> None:
    finished_run("parquet")(folder)
    for entry in list((folder / DATA).iterdir()):
        if entry.name not in ("manifest.json", "README.md"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _read_card(folder: Path) -> object:
    from longcrawl.publish.hub.client import read_card
    from longcrawl.run.card.front_matter import read_front_matter
    from longcrawl.run.card.write import merge

    card = (folder / "README.md").read_bytes().decode("utf-8", "replace")
    head = read_front_matter(card)
    merge(card, head, {})
    return read_card(folder / "README.md"), head


CURRICULUM = """
data:
  curriculum:
  - {duration_tokens: 5_000_000, mix: {web: 0.6, code: 0.4}}
  - {duration_tokens: 2_000_000, mix: {web: 1.0}}
  allow_bucket_exhaustion: true
"""


def _curriculum(folder: Path) -> None:
    write_files(folder / DATA, {"curriculum.yaml": CURRICULUM.encode()})


def _read_curriculum(folder: Path) -> object:
    from longcrawl.loading import read_curriculum

    return read_curriculum(folder / "curriculum.yaml")


def _tokenizer(folder: Path) -> None:
    (folder / DATA).mkdir()
    train_tokenizer(folder / DATA / "tokenizer.json", 300)


def _use_tokenizer(folder: Path) -> object:
    import longcrawl as lc

    stage = lc.tokens.Tokenize(str(folder / "tokenizer.json"))
    stage.prepare()
    table = pa.table({"id": ["a", "b"], "text": ["The tide was out. " * 10, "\u4f60\u597d \U0001f600 \ud7ff"]})
    return stage.rewrite(table)["tokens"].to_pylist()


def _ranks(folder: Path) -> None:
    """Write tiktoken's file of ranks."""
    import base64

    pieces = [bytes([byte]) for byte in range(256)] + [word.encode() for word in WORDS[:40]]
    lines = (b"%s %d\n" % (base64.b64encode(piece), rank) for rank, piece in enumerate(dict.fromkeys(pieces)))
    write_files(folder / DATA, {"a.tiktoken": b"".join(lines)})


def _use_ranks(folder: Path) -> object:
    import longcrawl as lc

    stage = lc.tokens.Tokenize(str(folder / "a.tiktoken"))
    stage.prepare()
    return stage.rewrite(pa.table({"id": ["a"], "text": ["The tide was out. " * 10]}))["tokens"].to_pylist()


def _saved_index(folder: Path) -> None:
    import longcrawl as lc

    stages = [{"exact_documents": {"index": "save"}}, {"min_hash": {"preset": "fineweb", "index": "save"}}]
    lc.run(recipe_of("parquet", folder / FIXED, stages), folder / DATA)


def _use_index(_: Path) -> Mapping[str, Act]:
    from datasets import Dataset

    import longcrawl as lc

    crawl = lc.Crawl(Dataset.from_list(documents(30)))
    preset = lc.dedup.MinHash.presets["fineweb"]
    return {
        "exact": lambda run: str((crawl | lc.dedup.ExactDocuments(against=(str(run),))).funnel),
        "min hash": lambda run: str((crawl | lc.dedup.MinHash(**preset, against=(str(run),))).funnel),
    }


def description_targets() -> list[Target]:
    def alone(name: str, weight: int, make: Callable[[Path], None], act: Act, **settings: Any) -> Target:
        return FolderTarget(name, weight, make, {"read": act}, **({"ways": TEXT, "noticed": "not always"} | settings))

    return [
        alone("recipe", 8, _recipes, _read_recipe),
        alone("plan", 20, _plan, _read_plan),
        alone("unfinished push", 40, _unfinished, _read_unfinished, noticed="by use"),
        alone("remote manifest", 20, _just_manifest, _read_remote, damaged=("manifest.json",)),
        alone("card", 10, _just_manifest, _read_card, damaged=("README.md",)),
        alone("curriculum", 20, _curriculum, _read_curriculum),
        alone("tokenizer.json", 15, _tokenizer, _use_tokenizer),
        alone("tiktoken ranks", 15, _ranks, _use_ranks),
        FolderTarget("saved index", 4, _saved_index, _use_index, damaged=("index/*",), ways=BINARY),
    ]
