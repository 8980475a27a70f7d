"""The shipped recipes over small inputs that are made here, a run of each in a second or a few."""

from collections.abc import Callable, Mapping
from pathlib import Path

from _inputs import train_tokenizer, write_archives, write_release, write_texts

MADE: Mapping[str, Callable[[Path], Path]] = {
    "texts": lambda folder: write_texts(folder, files=4, count=25),
    "release": lambda folder: write_release(folder, shards=2, count=8),
    "archives": lambda folder: write_archives(folder, files=3, pages=5),
}
TOKENIZER = "TOKENIZER"
SMALL: Mapping[str, tuple[str, ...]] = {
    "quickstart": (
        "source.packages=[numpy, pyarrow, datasets]",
        "stages.min_tokens.n=256",
        "stages.truncate.n=256",
        "stages.tokenize.vocabulary_size=400",
    ),
    "longcrawl64-clean": (
        "source.data_dir=release",
        f"stages.tokenize.tokenizer={TOKENIZER}",
        "stages.min_words.n=600",
        "stages.min_bytes.n=2000",
        "stages.min_tokens.n=512",
        "stages.truncate.n=512",
        "outputs.rectangle.heldout=2",
    ),
    "refinedweb": (
        "source.data_dir=archives",
        f"stages.min_hash.tokenizer={TOKENIZER}",
        f"stages.exact_substring.tokenizer={TOKENIZER}",
    ),
    "bucket-pretraining": (
        "source.data_dir=release",
        f"stages.tokenize.tokenizer={TOKENIZER}",
        "outputs.composed.capacities=[256, 512, 1024]",
        "outputs.composed.padding_threshold=0.5",
    ),
    "gpt-simple": (
        "source.data_dir=texts",
        f"stages.tokenize.tokenizer={TOKENIZER}",
        "stages.windows.max_length=128",
        "stages.windows.overlap_size=16",
    ),
    "datatrove": ("source.data_dir=texts", f"stages.tokenize.tokenizer={TOKENIZER}"),
    "finepdfs": ("source.data_dir=archives", "source.mimes=[text/html]"),
    "longmino": (
        "source.data_dir=texts",
        "stages.gzip_ratio.min_bytes=512",
        "stages.gzip_ratio.min_documents=5",
        f"stages.tokenize.tokenizer={TOKENIZER}",
        "stages.length_mix.long_tokens=128",
        "stages.length_mix.on_few_short=cut",
        "outputs.composed.capacities=[256, 512, 1024]",
    ),
}
"""Settings of each recipe; ``source.data_dir`` is one of MADE."""


def make_inputs(recipe: str, folder: Path) -> None:
    """Write what a recipe reads."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(folder / "tokenizer.json")
    for name, make in MADE.items():
        if f"source.data_dir={name}" in SMALL[recipe]:
            make(folder / name)


def settings_of(recipe: str, folder: Path) -> list[str]:
    """Return the overrides of a recipe whose inputs are in ``folder``."""
    found = []
    for setting in SMALL[recipe]:
        path, _, value = setting.partition("=")
        if path == "source.data_dir":
            value = str(folder / value)
        found.append(f"{path}={value.replace(TOKENIZER, str(folder / 'tokenizer.json'))}")
    return found
