"""Whether two checkouts write the same bytes: every shipped recipe on small made-up input, file by file.

    python benchmarks/same_bytes.py                              # this checkout, one process against two
    python benchmarks/same_bytes.py --against ../other           # two checkouts
    python benchmarks/same_bytes.py --write base.json            # keep the digests
    python benchmarks/same_bytes.py --digests base.json          # compare with digests that were kept

Inputs are made from seeds (``faults/_recipes.py``, ``longcrawl.run.samples``). Each recipe runs by ``python -m
longcrawl run`` in a process of its own, with the checkout first on PYTHONPATH and its ``.venv/bin/python`` if there
is one. Four more recipes have the rule sets, surveys and formats that no shipped recipe names. Files are compared by
SHA-256; in JSON, MASKED and the path of the temporary folder are left out. ``quickstart`` reads installed packages,
so both interpreters need the same numpy, pyarrow and datasets. The last line is the share of files that are the same.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks" / "faults"))

import _recipes  # noqa: E402  # found by the path above

from longcrawl.run import samples  # noqa: E402

MASKED = ("versions",)
"""Keys of JSON objects left out at any depth: versions of longcrawl, Python and the packages that a run used."""
OWN_DIGEST = "sha256"
"""Key at the top of a run's manifest: its own digest, which covers versions and absolute paths of inputs."""
CLEAN = "longcrawl64-clean"
SHIPPED = {
    "quickstart": "quickstart",
    "longcrawl64": CLEAN,
    CLEAN: CLEAN,
    "longcrawl64-select": CLEAN,
    "bucket-pretraining": "bucket-pretraining",
    "gpt-simple": "gpt-simple",
    "datatrove": "datatrove",
    "refinedweb": "refinedweb",
    "refinedweb-blocks": "refinedweb",
    "refinedweb-multilingual": "refinedweb",
    "finepdfs": "finepdfs",
    "longmino": "longmino",
}
"""Each shipped recipe, and the one whose small inputs it reads."""
RULES: list[Any] = [
    "c4_quality",
    {"personal_data": {}},
    {"signals": {}},
    {"line_corrections": {"on_unknown_language": "default"}},
    {"gopher_quality": {"min_words": 10}},
    {"fine_web_quality": {}},
    {"min_chars": {"n": 50}},
]
TOKENIZE = {"tokenize": {"tokenizer": "inputs/datatrove/tokenizer.json"}}
ORDERED: list[Any] = [
    {"min_words": {"n": 5}},
    {"lexical_dependency": {"min_score": 0}},
    {"min_hash": {"bands": 10, "rows": 4, "ngram": 3, "unit": "word"}},
    {"related": {}},
    TOKENIZE,
    {"windows": {"max_length": 64, "overlap_size": 0}},
]
TEXTS = {"builder": "text", "data_dir": "inputs/datatrove/texts"}
RELEASE = {"builder": "redpajama-v2", "data_dir": "inputs/release", "languages": ["en", "de"], "minhash": True}
SIGNED: list[Any] = [
    {"signal_rules": {"preset": "rpv2-card"}},
    "listed_duplicates",
    {"min_hash_signatures": {"column": "signature_sim0.9"}},
    TOKENIZE,
]
OWN: dict[str, dict[str, Any]] = {
    "rules": {"source": TEXTS, "stages": RULES, "outputs": {"parquet": {}}},
    "megatron": {"source": TEXTS, "stages": ORDERED, "outputs": {"megatron": {}}},
    "nanogpt": {"source": TEXTS, "stages": ["exact_documents", TOKENIZE], "outputs": {"nanogpt": {}}},
    "olmo-core": {"source": TEXTS, "stages": ["exact_documents", TOKENIZE], "outputs": {"olmo-core": {}}},
    "levanter": {"source": TEXTS, "stages": ["exact_documents", TOKENIZE], "outputs": {"levanter": {}}},
    "litdata": {"source": TEXTS, "stages": ["exact_documents", TOKENIZE], "outputs": {"litdata": {}}},
    "mds": {"source": TEXTS, "stages": ["exact_documents", TOKENIZE], "outputs": {"mds": {}}},
    "release": {"source": RELEASE, "stages": SIGNED, "outputs": {"composed": {"capacities": [256, 1024]}}},
}


def make_inputs(folder: Path) -> None:
    """Write what all recipes read, and the recipes of OWN."""
    inputs = folder / "inputs"
    for recipe in {*SHIPPED.values(), "datatrove"}:
        _recipes.make_inputs(recipe, inputs / recipe)
    samples.write_archive(inputs / "refinedweb" / "archives")
    samples.write_texts(inputs / "datatrove" / "texts" / "samples.jsonl")
    samples.write_release(inputs / "release")
    for name, parts in OWN.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"longcrawl": 1, "name": name} | parts), "utf-8")


def settings_of(recipe: str, checkout: Path) -> list[str]:
    """Return the settings that point a recipe to its inputs and lower its thresholds to their size."""
    if recipe in OWN:
        return []
    names = {
        name for stage in shipped(recipe, checkout)["stages"] for name in ([stage] if isinstance(stage, str) else stage)
    }
    small = _recipes.settings_of(SHIPPED[recipe], Path("inputs", SHIPPED[recipe]))
    return [each for each in small if not each.startswith("stages.") or each.split(".")[1] in names]


def shipped(recipe: str, checkout: Path) -> Any:
    return yaml.safe_load((checkout / "longcrawl" / "recipes" / f"{recipe}.yaml").read_text("utf-8"))


def masked(value: Any) -> Any:
    """Return a JSON value without the entries of MASKED, at any depth."""
    if isinstance(value, dict):
        return {key: masked(each) for key, each in value.items() if key not in MASKED}
    return [masked(each) for each in value] if isinstance(value, list) else value


def digest(file: Path, folder: Path) -> str:
    content = file.read_bytes().replace(os.fsencode(folder), b"FOLDER")
    if file.suffix == ".json" and file.name != "tokenizer.json":
        value = masked(json.loads(content))
        if file.name == "manifest.json":
            value.pop(OWN_DIGEST, None)
        content = json.dumps(value).encode()
    return hashlib.sha256(content).hexdigest()


def digests(folder: Path, checkout: Path, python: str, recipes: list[str], num_proc: int = 1) -> dict[str, str]:
    """Run recipes by the code of a checkout; return the digest of each file, and the error of each run that fails."""
    found = {}
    environment = os.environ | {"PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1"}
    for recipe in recipes:
        out = folder / "run"
        command = [python, "-m", "longcrawl", "run", f"{recipe}.yaml" if recipe in OWN else recipe, "--out", "run"]
        command += [f"--num-proc={num_proc}", *(f"--set={each}" for each in settings_of(recipe, checkout))]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            found[f"{recipe}: failed"] = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        files = sorted(file for file in out.rglob("*") if file.is_file())
        found |= {f"{recipe}/{file.relative_to(out).as_posix()}": digest(file, folder) for file in files}
        print(f"{checkout.name}: {recipe}, {len(files)} files", file=sys.stderr, flush=True)
        shutil.rmtree(out, ignore_errors=True)
    return found


def python_of(checkout: Path) -> str:
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--python", help="its interpreter")
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--against-python", help="its interpreter")
    parser.add_argument("--digests", type=Path, help="a file of --write, to compare with")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the digests of --checkout; compares nothing")
    parser.add_argument("--recipes", nargs="+", choices=[*SHIPPED, *OWN], default=[*SHIPPED, *OWN])
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    if missing := {file.stem for file in (checkout / "longcrawl" / "recipes").glob("*.yaml")} ^ set(SHIPPED):
        raise SystemExit(f"shipped recipes and SHIPPED differ: {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_inputs(folder)
        here = digests(folder, checkout, options.python or python_of(checkout), options.recipes)
        if options.digests:
            kept = json.loads(options.digests.read_text("utf-8"))
            there = {name: kept[name] for name in kept if re.split("[/:]", name)[0] in options.recipes}
        elif options.against:
            other = options.against.resolve()
            there = digests(folder, other, options.against_python or python_of(other), options.recipes)
        else:
            there = {} if options.write else digests(folder, checkout, sys.executable, options.recipes, 2)
    failed = {name: error for name, error in here.items() if name.endswith(": failed")}
    for name, error in failed.items():
        print(f"{name}: {error}")
    if options.write:
        options.write.write_text(json.dumps(here, indent=1), "utf-8")
        print(f"{len(here)} digests in {options.write}")
        return
    names = sorted({*here, *there})
    different = [name for name in names if here.get(name) != there.get(name)]
    for name in different:
        how = "differs" if name in here and name in there else f"only {'here' if name in here else 'there'}"
        print(f"{name} {how}")
    same = len(names) - len({*different, *failed})
    print(f"same_bytes ratio={same / len(names):.3f}")
    if options.against or options.digests:
        sys.exit(bool({*different, *failed}))


if __name__ == "__main__":
    main()
