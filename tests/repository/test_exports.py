"""Public names are exactly those that are listed, sorted, and importing them costs no more than `datasets`."""

import ast
import importlib
import json
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import longcrawl as lc

ROOT = Path(__file__).parents[2]
HEAVY = ("numba", "zarr", "transformers", "torch", "tokenizers", "tiktoken", "scipy", "matplotlib", "datasketch")


@pytest.mark.parametrize(
    "name",
    [
        "longcrawl",
        *(
            f"longcrawl.{each}"
            for each in ("text", "dedup", "run.engines", "tokens", "formats", "loading", "long", "loading.integrations")
        ),
    ],
)
def test_all_is_sorted_and_resolves(name):
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(module.__all__, key=lambda each: (not each.isupper(), each))
    assert all(getattr(module, each) is not None for each in module.__all__)


_NAMED = re.compile(r"(?<![\w.:/])(?:lc|longcrawl)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
"""A name as code and messages spell it, such as ``lc.loading.Packed``."""


def names_in(file: Path) -> list[str]:
    """Return the names of this package in the texts of a file: docstrings and messages."""
    constants = (node.value for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant))
    texts = "\n".join(each for each in constants if isinstance(each, str))
    # A role of Sphinx may name what is not exported.
    return _NAMED.findall(re.sub(r":\w+:`[^`]*`", "", texts))


@pytest.mark.slow
def test_names_in_messages_and_docstrings_exist():
    files = sorted((ROOT / "longcrawl").rglob("*.py"))
    named = {(name, file.name) for file in files for name in names_in(file)}
    assert ("loading.ComposedBatches", "spec.py") in named

    def exists(name: str) -> bool:
        found: object = lc
        for part in name.split("."):
            if not hasattr(found, part):
                return find_spec(f"longcrawl.{name}") is not None
            found = getattr(found, part)
        return True

    assert [each for each in sorted(named) if not exists(each[0])] == []


def test_the_public_surface():
    assert lc.__all__ == [
        "Card", "Cluster", "ClusterPlan", "Clusters", "Crawl", "Fetched", "Funnel", "LongCrawlError", "Plan", "Push",
        "Reason", "Recipe", "RunSummary", "Takedown", "Trace", "analysis", "card", "clusters", "compose",
        "contamination", "convert", "dedup", "engines", "evaluate", "fetch", "first_recipe", "formats", "funnel",
        "inspect", "integrations", "load", "load_recipe", "loading", "long", "open", "page_blocks", "plan",
        "plan_cluster", "preview_run", "push", "queue", "recipes", "removal_rates", "removed_documents", "report",
        "run", "samples", "takedown", "text", "tokenize", "tokens", "trace", "verify", "why", "write_report",
        "write_tables",
    ]  # fmt: skip
    assert lc.text.__all__ == [
        "C4Quality", "Explanation", "ExtractPdf", "ExtractText", "FastTextClassifier", "FineWebQuality",
        "FittedThresholds", "FixText", "GopherQuality", "GopherRepetition", "IdentifyLanguage", "Language",
        "LineCorrections", "MinBytes", "MinChars", "MinWords", "OptOut", "PageExplanation", "PersonalData",
        "ProposedLines", "SequenceClassifier", "SignalRules", "Signals", "TrainedClassifier", "UrlFilter",
        "UrlHits", "UrlMatch", "explain", "explain_page", "find_language", "fit_thresholds", "format_text",
        "language_shares", "language_tables", "propose_lines", "read_languages", "rule_values",
        "train_classifier", "url_hits",
    ]  # fmt: skip
    assert lc.dedup.__all__ == [
        "TRACKING_PARAMETERS", "Decontaminate", "ExactDocuments", "ExactSubstring", "ListedDuplicates", "MinHash",
        "MinHashSignatures", "SimilarityCurve", "Urls", "ngram_hash", "normalise_url",
    ]  # fmt: skip
    assert lc.long.__all__ == [
        "AttentionDependency", "DependencyScore", "GzipRatio", "InformationGain", "LexicalDependency", "PositionGain",
        "Related", "TokenGains", "WordStatistics", "count_words",
    ]  # fmt: skip
    assert lc.engines.__all__ == ["Engine", "Exchange", "Local", "Shared", "Spark"]
    assert lc.tokens.__all__ == [
        "BestFit", "BinnedGreedy", "Buckets", "Comparison", "Composition", "DatasetDecomposition", "DocumentWindows",
        "FirstFit", "FixedLength", "Interleaved", "LengthMix", "MinTokens", "MultiBucket", "Packing", "Padded", "Plan",
        "Roll", "Shuffle", "TokenEntries", "Tokenize", "Truncate", "Windows", "compare_strategies",
        "default_strategies", "document_windows", "measure", "named_strategy",
    ]  # fmt: skip
    assert lc.formats.__all__ == [
        "Composed", "ComposedBucket", "ComposedOutput", "ComposedResult", "ComposedSamples", "Conversion",
        "DatatroveOutput", "DatatroveResult", "Documents", "GptSimpleOutput", "GptSimpleResult", "LevanterOutput",
        "LevanterResult", "LitdataOutput", "LitdataResult", "MdsOutput", "MdsResult", "MegatronOutput",
        "MegatronResult", "NanoGptOutput", "NanoGptResult", "OlmoCoreOutput", "OlmoCoreResult", "ParquetOutput",
        "ParquetResult", "RectangleOutput", "RectangleResult", "TokenShard", "datatrove", "gpt_simple", "levanter",
        "litdata", "mds", "megatron", "nanogpt", "olmo_core", "open_composed", "open_shard", "token_parquet",
        "verify_shard",
    ]  # fmt: skip
    assert lc.loading.__all__ == [
        "ComposedBatches", "ComposedPhase", "CurriculumPlan", "DatatroveFileDataset", "DatatroveFolderDataset",
        "Jsonl", "Origin", "Packed", "Phase", "Rectangle", "WindowBatches", "WindowMixture", "Windows", "collators",
        "plan_curriculum", "read_curriculum", "validate",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> tuple[Path, list[str], list[str]]:
    """Return a copy of our code, what importing it there imports that is heavy, and the files that were imported."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("longcrawl", "cards"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.nb?"))  # compiled kernels
    code = f"""
import json, sys, datasets
before = set(sys.modules)
import longcrawl
for public in longcrawl.__all__:
    getattr(longcrawl, public)
heavy = [name for name in {HEAVY!r} if name in sys.modules and name not in before]
import longcrawl.sources.warc.source
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("longcrawl")]
print(json.dumps([heavy, files]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return folder, *json.loads(result.stdout)


def test_importing_longcrawl_imports_nothing_heavier_than_datasets(checkout):
    _, heavy, _ = checkout
    assert heavy == []


def printed_by(code):
    """Return what a program prints where nothing is imported."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("first", ["longcrawl", "datasets"])
def test_the_builder_is_registered_whichever_is_imported_first(first):
    second = "datasets" if first == "longcrawl" else "longcrawl"
    code = f"""
import {first}, {second}
from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES as known
print(known["longcrawl"][0], datasets.__spec__.loader is datasets.__loader__, type(datasets.__loader__).__name__)
"""
    assert printed_by(code).split() == ["longcrawl.builders.longcrawl", "True", "SourceFileLoader"]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import longcrawl.loading", ("numpy", "pyarrow", "yaml")),
        ("import longcrawl.loading as loading; loading.Rectangle, loading.Packed, loading.Windows", ()),
        (
            "from longcrawl.core.stages import STAGES; list(STAGES), STAGES.loaded()",
            ("longcrawl.text", "longcrawl.dedup"),
        ),
        ("from longcrawl.core.sources import SOURCES; list(SOURCES), SOURCES.loaded()", ("longcrawl.sources",)),
    ],
)
def test_names_import_nothing_heavy(code, heavy):
    code = f"{code}\nimport sys\nprint(*sys.modules)"
    assert {*HEAVY, "pandas", "datasets", *heavy}.intersection(printed_by(code).split()) == set()


@pytest.mark.slow
def test_the_builder_imports_few_modules_of_ours(tmp_path):
    (tmp_path / "a.warc").write_text("WARC/1.0\r\n")
    code = f"""
import datasets, longcrawl, sys
datasets.load_dataset_builder("longcrawl", "warc", data_files={str(tmp_path / "a.warc")!r})
print(*(name for name in sys.modules if name.partition(".")[0] == "longcrawl"))
"""
    assert len(printed_by(code).split()) <= 50


def test_the_script_of_the_builder_is_that_of_the_package():
    script = runpy.run_path(str(ROOT / "builders" / "longcrawl.py"))
    assert script["LongCrawl"].BUILDER_CONFIG_CLASS is script["LongCrawlConfig"]


def test_help_imports_neither_datasets_nor_numpy():
    code = """
import sys
import longcrawl.cli
assert not {"datasets", "numpy", "pyarrow", "yaml"} & set(sys.modules), sorted(sys.modules)
print("typer" in sys.modules)
"""
    assert printed_by(code).strip() == "True"


@pytest.mark.slow
def test_a_function_keeps_its_name_when_its_package_is_imported():
    code = """
import longcrawl.run.job, longcrawl.run.plan.cluster, longcrawl.run.card.write
import longcrawl as lc
print(lc.run.__name__, lc.plan.__name__, lc.card.__name__, lc.open.__name__, longcrawl.run is lc.run)
"""
    assert printed_by(code).split() == ["run", "plan", "card", "open_crawl", "True"]


def test_builders_is_not_a_top_level_name(tmp_path):
    code = "import importlib.util; print(importlib.util.find_spec('builders'))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.strip() == "None"


@pytest.mark.slow
def test_a_checkout_imports_nothing_from_the_one_that_is_installed(checkout):
    folder, _, files = checkout
    assert len(files) > 50
    assert [file for file in files if not file.startswith(f"{folder}/")] == []
