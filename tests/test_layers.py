"""Data flows one way: a module imports from its own layer or from those below."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    [
        "batches",
        "core_clock",
        "printable",
        "errors",
        "file_systems",
        "files",
        "data_files",
        "keyed_hash",
        "listing",
        "kinds",
        "parquet_pages",
        "markdown",
        "network",
        "places",
        "sealed",
        "fields",
        "registry",
        "hub",
        "stored_tables",
        "structured",
        "survey_reports",
        "unreadable",
        "urls",
        "user_warnings",
        "_adopt_builders",
        "_version",
    ],
    ["stages", "run_costs"],
    ["spans", "stage_order"],
    ["edit_ledger", "ledger", "word_diff"],
    ["duplicates", "removal_rates"],
    ["outputs", "results", "fused", "run_manifest"],
    ["crawl_batches"],
    ["crawl"],
    ["text"],
    ["tokens"],
    ["dedup"],
    ["formats"],
    ["builders"],
    ["loading"],
    ["engines", "report", "run_folder"],
    ["recipe", "part"],
    [
        "run_index",
        "run_inputs",
        "run_segments",
        "run_surveys",
        "run_target",
        "run_tasks",
        "run_versions",
        "source_texts",
    ],
    ["planning"],
    ["lengths"],
    ["run_summary"],
    ["run"],
    [
        "finished",
        "inspect_text",
        "fetch_lists",
        "run_url_hits",
        "compose",
        "tokenize_files",
        "card",
        "push",
        "pushed_card",
        "remote_description",
        "unfinished_push",
        "verify_url",
    ],
    ["removed_documents"],
    ["write_report"],
    ["cli", "cli_catalog", "cli_lists"],
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}
FILES = sorted([*ROOT.glob("longcrawl/**/*.py"), *ROOT.glob("builders/*.py")])


def layer_of(file: Path) -> str:
    relative = file.relative_to(ROOT)
    return "builders" if relative.parts[0] == "builders" else relative.parts[1].removesuffix(".py")


def imported_layers(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative imports hide layers"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "longcrawl" else [node.module]
            )
        found |= {name.split(".")[1] for name in names if name and name.startswith("longcrawl.")}
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_imports_point_downward(file):
    layer = layer_of(file)
    if layer == "__init__":
        return
    above = [name for name in imported_layers(file) if name in LEVEL and LEVEL[name] > LEVEL[layer]]
    assert not above, f"{layer} imports from the layers above it: {above}"


def test_every_module_has_a_layer():
    assert {layer_of(file) for file in FILES} - {"__init__"} <= set(LEVEL)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_files_stay_small(file):
    assert len(file.read_text("utf-8").splitlines()) <= 420
