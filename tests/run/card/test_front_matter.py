"""The dataset card: what the Hub and plain `datasets` make of it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

import longcrawl as lc
from longcrawl.core import batches
from longcrawl.core.registry import plain_settings
from longcrawl.errors import RecipeError
from longcrawl.run.card.front_matter import (
    CardFacts,
    bibtex_problem,
    citations,
    front_matter,
    head_problems,
    yaml_block,
)
from longcrawl.run.card.sections import CardSource
from longcrawl.run.card.write import SECTIONS, elsewhere, local_paths, write_card
from longcrawl.run.recipe import parse_recipe

FACTS = {
    "pretty_name": "Tiny: a “test”, #1",
    "license": "other",
    "license_name": "my-terms",
    "license_link": "https://example.org/terms",
    "languages": ["en", "de"],
    "tags": ["made-up"],
}


def make_run(folder: Path, *, heldout: float = 2, few: int = 2, **card) -> Path:
    (folder / "documents").mkdir(parents=True)
    lines = [
        json.dumps(
            {"id": f"d{row}", "text": "word $PATH ${x} " * (few if row % 4 == 0 else 40), "url": f"https://x.org/{row}"}
        )
        for row in range(20)
    ]
    (folder / "documents" / "a.jsonl").write_text("\n".join(lines))
    spec = {
        "longcrawl": 1,
        "name": "tiny",
        "about": "Costs $5 & takes <b>no</b> time | at all.",
        "source": {"builder": "text", "data_dir": str(folder / "documents"), "id_field": "id"},
        "stages": [
            {"min_chars": {"n": 100}},
            {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300, "json_escaped": True}},
            {"truncate": {"n": 16}},
            "roll",
        ],
        "outputs": {"rectangle": {"heldout": heldout}},
        "card": card,
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "tiny.yaml", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("card"), **FACTS)


@pytest.fixture(scope="module")
def bare_folder(tmp_path_factory) -> Path:
    """Return a run that removed nothing, held nothing out and knows nothing of itself."""
    return make_run(tmp_path_factory.mktemp("bare"), heldout=0, few=20)


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


# -------------------- front matter


def test_the_hub_reads_the_front_matter(run_folder):
    card = DatasetCard.load(run_folder / "README.md")
    assert isinstance(card.data, DatasetCardData)
    told = card.data.to_dict()
    assert told["pretty_name"] == FACTS["pretty_name"]
    assert (told["license"], told["license_name"], told["license_link"]) == (
        "other",
        "my-terms",
        "https://example.org/terms",
    )
    assert told["language"] == ["en", "de"]
    assert told["size_categories"] == ["n<1K"]
    assert told["task_categories"] == ["text-generation"]
    assert told["tags"] == ["longcrawl", "pretokenized", "long-context", "made-up"]


@pytest.mark.slow
def test_the_front_matter_reads_itself_back(run_folder):
    card = DatasetCard.load(run_folder / "README.md")
    again = DatasetCardData(**yaml.safe_load(card.data.to_yaml()))
    assert again.to_dict() == card.data.to_dict()
    assert yaml_block(front_matter(run_folder, manifest_of(run_folder))) == f"---\n{card.data.to_yaml()}\n---\n"


@pytest.mark.slow
def test_a_run_that_knows_nothing_of_itself_has_a_card_too(bare_folder):
    told = DatasetCard.load(bare_folder / "README.md").data.to_dict()
    assert told["pretty_name"] == "tiny"
    assert told["license"] == "other"
    assert not {"language", "license_name", "license_link"} & set(told)
    config, edits = told["configs"]
    assert (config["config_name"], edits["config_name"]) == ("rows", "edits")
    assert [each["split"] for each in config["data_files"]] == ["train"]


@pytest.mark.parametrize(
    ("kept", "found", "told"),
    [
        (["de", "it"], {"de": 3}, ["de"]),
        (["eng_Latn", "de"], {"en": 3, "": 1}, ["en"]),
        (["de", "it"], {}, ["de", "it"]),
        (["de", "it"], {"": 3}, ["de", "it"]),
        (None, {"fr": 3, "de": 1, "": 1}, ["de", "fr"]),
    ],
)
def test_languages_are_those_that_were_kept_and_found(bare_folder, kept, found, told):
    manifest = manifest_of(bare_folder)
    manifest["recipe"]["stages"] += [] if kept is None else [{"language": {"keep": kept}}]
    manifest["analysis"]["languages"] = found
    assert front_matter(bare_folder, manifest)["language"] == told


@pytest.mark.variants
@pytest.mark.parametrize(
    ("name", "code", "tag"),
    [
        ("eng_Latn", "en", "en-Latn"),
        ("zh-Hans", "zh", "zh-Hans"),
        ("cmn_Hani", "cmn", "cmn-Hani"),
        ("pt-BR", "pt", "pt-BR"),
        ("iw", "he", None),
        ("swe", "sv", None),
        ("und", None, None),
        ("xx", None, None),
        ("no language | at all", None, None),
    ],
)
def test_languages_that_were_found_are_in_the_head_by_their_code(bare_folder, name, code, tag):
    manifest = manifest_of(bare_folder)
    manifest["analysis"]["languages"] = {name: 3, "de": 1}
    head = front_matter(bare_folder, manifest)
    assert sorted(head["language"]) == sorted({"de", code} - {None})
    assert head.get("language_bcp47") == ([tag] if tag else None)
    assert head_problems(head) == []
    said = SECTIONS["places"](CardSource(bare_folder, manifest))
    assert ("for which ISO 639 has no code." in said) == (code is None)
    assert name.replace("|", "\\|") in said


def test_a_language_that_the_recipe_alone_names_is_told(bare_folder):
    manifest = manifest_of(bare_folder)
    manifest["recipe"]["card"]["languages"] = ["en", "deu_Latn"]
    said = SECTIONS["places"](CardSource(bare_folder, manifest))
    assert said.endswith("The documents name no language; according to the recipe it is `en` and `deu_Latn`.")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("rows", "size"),
    [
        (999, "n<1K"),
        (1_000, "1K<n<10K"),
        (99_999, "10K<n<100K"),
        (999_999, "100K<n<1M"),
        (6_661_465, "1M<n<10M"),
        (10_000_000, "10M<n<100M"),
        (999_999_999, "100M<n<1B"),
        (1_000_000_000, "1B<n<10B"),
        (1_000_000_000_000, "n>1T"),
    ],
)
def test_the_size_category_is_one_that_the_hub_knows(run_folder, rows, size):
    manifest = manifest_of(run_folder)
    manifest["output"]["shapes"] = {"train": [rows - 1, 16], "heldout": [1, 16]}
    told = front_matter(run_folder, manifest)
    assert told["size_categories"] == [size]


# -------------------- what a reader of the folder gets

READ = """
import json, sys
from datasets import get_dataset_config_names, load_dataset

folder = sys.argv[1]
told = {}
for name in get_dataset_config_names(folder):
    for split, data in load_dataset(folder, name, cache_dir=sys.argv[2]).items():
        told[f"{name}/{split}"] = data.to_list()
told["default"] = load_dataset(folder, split="train", cache_dir=sys.argv[2]).to_list()
assert not [name for name in sys.modules if name.startswith("longcrawl")]
print(json.dumps(told))
"""


def read_without_longcrawl(folder: Path, cache: Path) -> dict[str, list[dict]]:
    answer = subprocess.run(
        [sys.executable, "-c", READ, folder, cache], capture_output=True, text=True, check=False, cwd=cache
    )
    assert answer.returncode == 0, answer.stderr
    told: dict[str, list[dict]] = json.loads(answer.stdout.splitlines()[-1])
    return told


def test_plain_datasets_loads_the_rows_and_the_ledger_from_the_folder(run_folder, tmp_path):
    told = read_without_longcrawl(run_folder, tmp_path)
    assert set(told) == {"rows/train", "rows/heldout", "ledger/removed", "edits/changed", "default"}
    assert told["rows/train"] == pq.read_table(run_folder / "rectangle/rows/train.parquet").to_pylist()
    assert told["rows/heldout"] == pq.read_table(run_folder / "rectangle/rows/heldout.parquet").to_pylist()
    assert told["default"] == told["rows/train"]
    assert [each["id"] for each in told["ledger/removed"]] == ["d0", "d4", "d8", "d12", "d16"]
    assert {each["stage"] for each in told["ledger/removed"]} == {"min_chars"}
    assert {(each["stage"], each["start"], each["unit"]) for each in told["edits/changed"]} == {
        ("truncate", 16, "tokens")
    }


@pytest.mark.slow
def test_a_run_that_removed_nothing_loads_too(bare_folder, tmp_path):
    told = read_without_longcrawl(bare_folder, tmp_path)
    assert set(told) == {"rows/train", "edits/changed", "default"}
    assert len(told["default"]) == 20


# -------------------- the text


def test_the_card_says_what_the_run_was(run_folder):
    text = DatasetCard.load(run_folder / "README.md").text
    assert "\n# Tiny: a “test”, #1\n" in text
    assert "Costs $5 & takes <b>no</b> time | at all." in text
    assert "| train | 13 | 16 | 208 |\n| heldout | 2 | 16 | 32 |" in text
    shown = text.replace("\u00a0", " ")
    assert "| min_chars | 15 | 5 | 75.0 % | 75.0 % | 9,600 | 98.4 % |" in shown
    assert "| tokenize | 15 | 0 | 75.0 % | 100.0 % |  |  |" in shown
    assert "| min_chars | `min_chars` | 5 | 25.0 % | 100.0 % |" in shown
    assert f"digest `{manifest_of(run_folder)['digest']}`" in text
    assert "rolled by an amount of its own" in text
    assert "Tokens are those of JSON-escaped text" in text
    assert "None: every input file was read whole." in text
    assert "$" not in text.replace("$5", "")


UNCOUNTED = {"characters": None, "edits": None}


def test_duplicates_are_told_as_far_as_they_are_known(bare_folder):
    manifest = manifest_of(bare_folder)
    assert "Duplicates were not looked for" in SECTIONS["duplicates"](CardSource(bare_folder, manifest))
    manifest["recipe"]["stages"].append({"exact_documents": {}})
    said = SECTIONS["duplicates"](CardSource(bare_folder, manifest))
    assert said.endswith("No document was removed as the duplicate of another one.")
    row = {"stage": "listed_duplicates_2", "in": 20, "out": 17, "rules": {"listed_duplicate": 3}} | UNCOUNTED
    manifest["funnel"]["stages"].append(row)
    said = SECTIONS["duplicates"](CardSource(bare_folder, manifest))
    assert said.endswith(
        "3 documents were removed by `listed_duplicates`, a list that does not name the documents they repeat."
    )


def answer(folder: Path, manifest: dict, question: str) -> str:
    said = SECTIONS["datasheet"](CardSource(folder, manifest))
    return said.partition(f"**{question}** ")[2].partition("\n")[0]


def test_the_datasheet_tells_what_is_cut_off(run_folder, bare_folder):
    tokens = [n for name in ("train", "heldout") for n in pq.read_table(
        run_folder / f"rectangle/rows/{name}.parquet")["n_tokens"].to_pylist()]  # fmt: skip
    share = 100 * (1 - 16 * len(tokens) / sum(tokens))
    assert min(tokens) > 16
    asked, manifest = "Is any information missing from instances?", manifest_of(run_folder)
    said = f"15 of 15 documents are longer than a row: {share:.1f} % of all tokens are cut off."
    assert answer(run_folder, manifest, asked) == said
    manifest["recipe"]["stages"] += [{"line_corrections": {}}, {"exact_substring": {"policy": "mask"}}]
    edits = {"documents": 2, "unit": "characters", "rules": {"counter": {"places": 3, "touched": 30, "removed": 30}}}
    row = {"stage": "line_corrections", "in": 15, "out": 15, "rules": {}, "characters": None, "edits": edits}
    manifest["funnel"]["stages"].append(row)
    taken = "Removed from documents: lines by `line_corrections` (30 characters of 2 documents)."
    assert answer(run_folder, manifest, asked) == f"{said} {taken}"
    row["edits"] = None
    assert answer(run_folder, manifest, asked) == said
    manifest["output"]["shapes"] = {"train": [13, 9_999], "heldout": [2, 9_999]}
    manifest["recipe"]["stages"] = [{"exact_substring": {"policy": "mask"}}]
    assert answer(run_folder, manifest, asked) == "Nothing is known to be missing."


def test_the_datasheet_tells_of_what_documents_name(bare_folder):
    manifest = manifest_of(bare_folder)
    told, asked = "What else is recorded about each instance?", "Is any information missing from instances?"
    manifest["analysis"]["languages"] = {"": 20}
    assert answer(bare_folder, manifest, told) == "Its id, its URL."
    assert "language" not in answer(bare_folder, manifest, asked)
    said = SECTIONS["places"](CardSource(bare_folder, manifest))
    assert "| none |" not in said
    assert "languages" not in said.partition("\n")[2]
    assert "language" not in str(CardSource(bare_folder, manifest).analysis)
    manifest["analysis"]["languages"] = {"en": 19, "": 1}
    assert answer(bare_folder, manifest, told) == "Its id, its URL, its language."
    assert answer(bare_folder, manifest, asked).endswith("1 document without a language.")
    split = {"documents": 20, "entries": 81, "tokens": 900, "shards": 1}
    manifest["output"] = {"format": "megatron", "splits": {"train": split}, "max_length": None, "shuffled": True}
    assert answer(bare_folder, manifest, "How many instances are there?") == "81 entries from 20 documents."
    assert answer(bare_folder, manifest, told) == "For each document its id, its URL, its language."


def test_the_datasheet_claims_no_relations_that_the_ledger_does_not_name(bare_folder):
    manifest, asked = manifest_of(bare_folder), "Are relations between instances recorded?"
    stages, rows = manifest["recipe"]["stages"], manifest["funnel"]["stages"]
    stages += [{"exact_documents": {}}, {"listed_duplicates": {}}]
    rows.append({"stage": "exact_documents", "in": 20, "out": 20, "rules": {}} | UNCOUNTED)
    assert answer(bare_folder, manifest, asked) == "No."
    rows.append({"stage": "listed_duplicates", "in": 20, "out": 18, "rules": {"listed_duplicate": 2}} | UNCOUNTED)
    no = "No: `listed_duplicates` does not name the document that a duplicate repeats."
    assert answer(bare_folder, manifest, asked) == no
    stages.append({"exact_documents": {}})
    rows.append({"stage": "exact_documents_2", "in": 18, "out": 17, "rules": {"same_text": 1}} | UNCOUNTED)
    assert answer(bare_folder, manifest, asked).startswith(
        "Only those of duplicates: `ledger/` names the document that"
    )


def test_the_figures_of_a_reference_stand_beside_the_funnel(run_folder):
    manifest = manifest_of(run_folder)
    manifest["recipe"]["reference"] = {"name": "A|B", "documents": {"truncate": 0.5}}
    said = SECTIONS["funnel"](CardSource(run_folder, manifest)).replace("\u00a0", " ")
    assert "| of all characters | A\\|B |" in said
    assert "| truncate | 15 | 0 | 75.0 % | 100.0 % |  |  | 50.0 % |" in said


def test_the_ledger_is_named_only_where_something_left(run_folder, bare_folder):
    asked = 'load_dataset("user/name", "ledger", split="removed")'
    assert asked in (run_folder / "README.md").read_text()
    assert "ledger" not in SECTIONS["load"](CardSource(bare_folder, manifest_of(bare_folder)))
    assert "ledger" not in SECTIONS["funnel"](CardSource(bare_folder, manifest_of(bare_folder)))


def test_the_recipe_on_the_card_is_the_recipe(run_folder):
    text = (run_folder / "README.md").read_text()
    (shown,) = [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]
    assert yaml.safe_load(shown) == yaml.safe_load((run_folder / "recipe.yaml").read_text())


@pytest.mark.parametrize(
    ("source", "stages", "said"),
    [
        ({"data_dir": "texts"}, [], "--set source.data_dir=FOLDER"),
        ({"data_files": ["/a/b.jsonl"]}, ["roll"], "--set 'source.data_files=[PATH]'"),
        ({"data_files": {"train": "a", "test": ["b"]}}, [], "--set 'source.data_files={train: PATH, test: PATH}'"),
        ({"data_files": "https://x.org/a.jsonl"}, [{"tokenize": {"tokenizer": "a/gpt2"}}], ""),
        ({"data_dir": "hf://datasets/a/b"}, [{"decontaminate": {"against": ["openai/gsm8k"]}}], ""),
        (
            {"data_dir": "hf://datasets/a/b"},
            [{"decontaminate": {"against": ["a/b", "exams/one.jsonl"]}}],
            "--set 'stages.decontaminate.against=[PATH]'",
        ),
        (
            {"data_dir": "hf://datasets/a/b"},
            [
                "exact_documents",
                {"exact_documents": {"against": ["one", "two"]}},
                {"tokenize": {"tokenizer": "t.json"}},
            ],
            "--set 'stages.exact_documents_2.against=[PATH]' --set stages.tokenize.tokenizer=PATH",
        ),
    ],
)
def test_what_differs_from_machine_to_machine_is_asked_for(run_folder, source, stages, said):
    spec = {"longcrawl": 1, "name": "a", "source": {"builder": "text", **source}, "stages": stages}
    spec["outputs"] = {"parquet": {}}
    recipe = parse_recipe(spec)
    assert elsewhere(recipe.as_dict()) == said
    sets = [each.strip("'") for each in shlex.split(said) if each != "--set"]
    again = parse_recipe(spec, [each.replace("PATH", "/other").replace("FOLDER", "/other") for each in sets])
    assert {path for paths in local_paths(again.as_dict()).values() for path in paths} <= {"/other"}
    shown = SECTIONS["made"](CardSource(run_folder, manifest_of(run_folder) | {"recipe": recipe.as_dict()}))
    assert ("append:\n\n```sh\n" + said + "\n" in shown) == bool(said)


@pytest.mark.parametrize("name", lc.recipes())
def test_shipped_recipes_name_no_path_of_a_machine(name):
    assert local_paths(lc.load_recipe(name).as_dict()) == {}


@pytest.mark.slow
def test_the_python_on_the_card_runs_in_the_folder(run_folder, python, monkeypatch):
    text = (run_folder / "README.md").read_text()
    local = text.replace("hf://datasets/user/name/", "").replace('"user/name"', f'"{run_folder}"')
    blocks = [block.partition("```")[0] for block in local.split("```python\n")[1:]]
    assert len(blocks) == 3
    code = "\n".join(blocks).replace("    break\n", "    print(batch['text'].shape)\n    break\n")
    monkeypatch.chdir(run_folder)
    answer = python(code + "\nprint(windows.num_rows, rows.num_rows, tokens.shape)")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-2:] == ["(8, 16)", "13 13 (13, 16)"]


def test_broken_input_is_listed_up_to_a_number(run_folder, tmp_path):
    manifest = manifest_of(run_folder)
    manifest["bad_files"] = [
        {"part": "p", "file": f"folder/{number}.gz", "reason": "is cut", "records_lost": number or None}
        for number in range(80)
    ]
    write_card(tmp_path, manifest)
    text = (tmp_path / "README.md").read_text()
    assert "80 input file(s) could not be read whole; `manifest.json` lists all." in text
    assert "- `folder/0.gz`: is cut (lost: an unknown number of records)" in text
    assert "- `folder/7.gz`: is cut (lost: 7 record(s))" in text
    assert text.count("is cut") == 50


@pytest.mark.parametrize(
    ("languages", "said"),
    [(["xx"], "language 'xx' is not a language code"), (["und"], "language 'und' is not a language code")],
)
def test_names_of_no_language_are_refused_in_a_recipe(languages, said):
    with pytest.raises(RecipeError, match=said):
        CardFacts(languages=languages)


@pytest.mark.parametrize(
    ("field", "value"), [("license", 3), ("languages", "en"), ("tags", [1]), ("pretty_name", ["a"])]
)
def test_facts_of_another_type_are_refused(field, value):
    with pytest.raises(RecipeError, match=rf"CardFacts\.{field} takes "):
        CardFacts(**{field: value})


# -------------------- citations

OWN = """@misc{smith2026pages,
  title = {Our {Pages}},
  note = {a brace: \\}}
}

@article{smith2027, title = {More}}"""


@pytest.mark.variants
@pytest.mark.parametrize(
    ("recipe", "keys"),
    [
        ("longcrawl64", ["weber2024redpajama", "buckman2024longcrawl64"]),
        ("longcrawl64-clean", ["weber2024redpajama", "buckman2024longcrawl64"]),
        ("bucket-pretraining", ["weber2024redpajama", "liu2024bucket"]),
        ("refinedweb", ["commoncrawl", "penedo2023refinedweb", "rae2021gopher", "lee2022deduplicating"]),
        ("refinedweb-blocks", ["commoncrawl", "penedo2023refinedweb", "rae2021gopher", "lee2022deduplicating"]),
        ("refinedweb-multilingual", ["commoncrawl", "penedo2023refinedweb", "rae2021gopher", "lee2022deduplicating"]),
        ("finepdfs", ["commoncrawl"]),
        ("longmino", ["olmo2025olmo3", "liu2024bucket"]),
        ("datatrove", ["penedo2024datatrove"]),
        ("gpt-simple", []),
        ("quickstart", ["buckman2024longcrawl64"]),
    ],
)
def test_citations_are_those_of_source_stages_and_output(bare_folder, recipe, keys):
    spelled = lc.load_recipe(recipe).as_dict() | {"name": "mine"}
    found = citations(spelled, {})
    assert [each.key for each in found] == keys
    assert all(bibtex_problem(each.bibtex) is None for each in found)
    used = {spelled["source"]["builder"], *spelled["outputs"], *(name for stage in spelled["stages"] for name in stage)}
    assert all(set(each.used) <= used for each in found)
    said = SECTIONS["citation"](CardSource(bare_folder, manifest_of(bare_folder) | {"recipe": spelled}))
    assert re.findall(r"^@\w+\{([^,]+),$", said, re.MULTILINE) == [*keys, "longcrawl"]
    assert ("It builds on" in said) == bool(keys)
    assert said.count("```") == 2


@pytest.mark.parametrize(
    ("file", "cited"),
    [
        ("s3://commoncrawl/crawl-data/CC-MAIN-2023-06/segments/1/warc/CC-MAIN-20230126-00000.warc.gz", True),
        ("CC-NEWS-20240101-00001.warc.gz", True),
        ("library/ACC-MAIN-1.warc.gz", False),
        ("library/pages-00000.warc.gz", False),
    ],
)
def test_web_archives_of_common_crawl_are_known_by_their_names(file, cited):
    recipe = {"source": {"builder": "warc"}, "stages": [], "outputs": {"parquet": {}}}
    assert [each.key for each in citations(recipe, {"a": ["b.warc.gz"], "c": [file]})] == ["commoncrawl"] * cited


def test_a_citation_of_the_recipe_comes_first(bare_folder):
    manifest = manifest_of(bare_folder)
    manifest["recipe"]["card"] = plain_settings(CardFacts(citation=OWN))
    said = SECTIONS["citation"](CardSource(bare_folder, manifest))
    assert said.index("Cite this dataset as:") < said.index(OWN) < said.index("buckman2024longcrawl64")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Smith, 2026", "citation is not BibTeX: write entries such as @misc"),
        ("  ", "citation is empty: remove it, or write"),
        ("@misc{a, title = {b}", "citation has an entry 'a' whose braces do not close"),
        ("@misc{a, title = {b}}}", "citation is not BibTeX"),
        ("@misc{a, title = {b}} and more", "citation is not BibTeX"),
        ("@misc{title = {b}}", "citation is not BibTeX"),
        (["@misc{a, title = {b}}"], r"CardFacts.citation takes text or null, got"),
    ],
)
def test_a_citation_that_is_no_bibtex_is_refused_in_a_sentence(value, said):
    with pytest.raises(RecipeError, match=said):
        CardFacts(citation=value)


def test_columns_have_the_types_that_datasets_gives_them():
    kinds = {str(kind): kind for kind in batches._PLAIN}
    schema = pa.schema(list(kinds.items()))
    plain = batches.plain_dtypes(schema)
    assert [{"name": name, "dtype": dtype} for name, dtype in plain.items()] == (
        datasets.Features.from_arrow_schema(schema)._to_yaml_list()
    )
    for other in (pa.list_(pa.int32()), pa.dictionary(pa.int32(), pa.string())):
        assert batches.plain_dtypes(pa.schema([("column", other)])) is None
    assert batches.plain_dtypes(schema.with_metadata({"huggingface": "{}"})) is None
