"""Small runs of every output, and what is done with a finished run."""

import hashlib
import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from _campaign import SCRATCH
from _folder_target import DATA, FIXED, Act
from _inputs import train_tokenizer, write_texts
from _outcome import judge_sentence

TOKENS = [{"tokenize": {"tokenizer": "TOKENIZER"}}, "shuffle"]
STAGES: dict[str, Sequence[Any]] = {
    "rectangle": [*TOKENS[:1], {"min_tokens": {"n": 64}}, {"truncate": {"n": 64}}, "shuffle", "roll"],
    "composed": TOKENS,
    "parquet": [
        "exact_documents",
        {"min_chars": {"n": 150}},
        {"exact_substring": {"unit": "character", "min_tokens": 80, "policy": "cut"}},
    ],
    "datatrove": TOKENS,
    "gpt-simple": [TOKENS[0], {"windows": {"max_length": 64, "overlap_size": 8}}],
    "megatron": TOKENS,
    "nanogpt": TOKENS,
    "olmo-core": TOKENS,
    "levanter": TOKENS,
    "litdata": TOKENS,
    "mds": TOKENS,
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "composed": {"capacities": [64, 128, 256], "padding_threshold": 0.5},
    "parquet": {"heldout": 0.1},
}
COMPOSED_STEP = 512


def recipe_of(output: str, fixed: Path, stages: Sequence[Any] | None = None) -> Path:
    """Write inputs, a tokenizer and a recipe of this output to ``fixed``, all of them small."""
    write_texts(fixed / "in", files=2, count=30)
    tokenizer = str(train_tokenizer(fixed / "tokenizer.json"))
    spec = {
        "longcrawl": 1,
        "name": "small",
        "source": {"builder": "text", "data_dir": str(fixed / "in"), "id_field": "id"},
        "stages": yaml.safe_load(yaml.safe_dump(list(stages or STAGES[output])).replace("TOKENIZER", tokenizer)),
        "outputs": {output: OUTPUTS.get(output, {}) | ({"heldout": 0.1} if output == "rectangle" else {})},
    }
    path = fixed / "recipe.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), "utf-8")
    return path


def finished_run(output: str) -> Callable[[Path], None]:
    """Return what writes a finished run to ``data``; targets of one campaign share it."""

    def make(folder: Path) -> None:
        shutil.copytree(_made_once(output), folder, dirs_exist_ok=True)

    return make


def finished_output(output: str) -> Callable[[Path], None]:
    """Return what writes the output of a run alone to ``data``."""

    def make(folder: Path) -> None:
        shutil.copytree(_made_once(output) / DATA / output, folder / DATA)

    return make


def _made_once(output: str) -> Path:
    import longcrawl as lc

    made = SCRATCH / "runs" / output
    if not (made / DATA / "manifest.json").exists():
        lc.run(recipe_of(output, made / FIXED), made / DATA)
    return made


def problems(path: Path, **settings: Any) -> object:
    """Return what ``verify`` finds, each of which has to be a sentence."""
    import longcrawl as lc
    from longcrawl.errors import FormatError

    found = lc.verify(path, **settings)
    for problem in found.problems:
        outcome = judge_sentence(FormatError(problem))
        if outcome.word != "noticed":
            raise AssertionError(outcome.detail)
    return found.problems


def questions(folder: Path) -> Mapping[str, Act]:
    """Return what is asked of a finished run, without ``verify``; ``folder`` is that of the target."""
    import longcrawl as lc

    recipe = folder / FIXED / "recipe.yaml"
    return {
        "funnel": lambda run: str(lc.funnel(run)),
        "rates": lambda run: str(lc.removal_rates(run)),
        "why removed": lambda run: str(lc.why(run, "d13")),
        "why kept": lambda run: str(lc.why(run, "d3")),
        "why edited": lambda run: str(lc.why(run, "d10")),
        "clusters": lambda run: str(lc.clusters(run)),
        "inspect": lambda run: str(lc.inspect(run, row=1)),
        "analysis": lambda run: str(lc.analysis(run)),
        "removed": lambda run: repr(lc.removed_documents(run)),
        "report": lambda run: (lc.write_report(run), None)[1],
        "card": lambda run: (lc.card(run), None)[1],
        "run again": lambda run: str(lc.run(recipe, run).rates),
    }


def fed_by_rectangle(path: Path, engine: str = "auto") -> object:
    import longcrawl as lc

    batches = lc.loading.Rectangle(path, batch_size=4, context_length=32, prefetch="off", engine=engine)
    return _digest(batches[number] for number in range(min(len(batches), 200)))


def fed_by_windows(path: Path, **settings: Any) -> object:
    import longcrawl as lc

    windows = lc.loading.Windows(path, seq_len=31, tail="pad", pad_token=0, **({"positions": "index"} | settings))
    return _digest(windows[number] for number in range(min(len(windows), 500)))


def fed_by_packed(path: Path) -> object:
    import longcrawl as lc

    batches = lc.loading.Packed(path, max_length=256, batch_size=4)
    return _digest(itertools.islice(batches, 100))


def fed_by_buckets(path: Path) -> object:
    import longcrawl as lc

    batches = lc.loading.ComposedBatches(path, tokens_per_step=COMPOSED_STEP)
    return _digest(itertools.islice(batches, 200))


def _digest(batches: Any) -> str:
    """Return a digest of batches: mappings of arrays, or of lists of them."""
    digest = hashlib.sha256()
    for batch in batches:
        for name, values in sorted(batch.items()):
            for array in values if isinstance(values, list) else [values]:
                digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


FEEDS: dict[str, Act] = {
    "rectangle": fed_by_rectangle,
    "composed": fed_by_buckets,
    "datatrove": fed_by_windows,
    "gpt-simple": fed_by_windows,
    "megatron": fed_by_windows,
    "nanogpt": lambda path: fed_by_windows(path, format="nanogpt", positions="none"),
    "olmo-core": fed_by_windows,
    "levanter": fed_by_windows,
    "litdata": fed_by_windows,
    "mds": fed_by_windows,
}
"""Feed that reads each output."""
