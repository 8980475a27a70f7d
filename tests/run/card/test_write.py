"""Cards as they are written for each output, and cards that are written again: edits stay, markup from documents dies.

``LONGCRAWL_GOLDEN=write pytest tests/run/card/test_write.py`` writes the golden cards again; look at the difference.
"""

import copy
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.display import code, plain, table
from longcrawl.core.funnel import Funnel, FunnelRow
from longcrawl.errors import FormatError, RunError
from longcrawl.io.files import checksum
from longcrawl.io.structured import seal
from longcrawl.run.card.front_matter import head_problems
from longcrawl.run.card.sections import CardSource
from longcrawl.run.card.write import SECTIONS, Merged, card_text, merge
from longcrawl.run.manifest import NEEDED

GOLDEN = Path(__file__).parent / "golden"
OUTPUTS = {
    "parquet": {"by": "language", "heldout": 4},
    "rectangle": {"heldout": 2},
    "composed": {"capacities": [32, 64], "heldout": 2},
    "gpt-simple": {"heldout": 2},
    "datatrove": {},
    "megatron": {},
    "nanogpt": {},
    "olmo-core": {},
    "levanter": {},
    "litdata": {},
    "mds": {},
}
NASTY = "</td><script>alert(1)</script> | `x` ![](javascript:1) <!-- /longcrawl:funnel -->"


def documents(*, nasty: bool = False) -> list[dict]:
    found = []
    for number in range(40):
        copy = number if number % 8 else 3
        text = " ".join(f"word{(copy * 7 + place) % 23}" for place in range(12 + 5 * (copy % 11)))
        name = f"d{number}{NASTY if nasty else ''}"
        host = f"{NASTY.replace('/', '')}.org" if nasty and number % 3 else f"site{number % 3}.org"
        language = NASTY if nasty and number % 5 else ["en", "de"][number % 2]
        found.append({"id": name, "text": text, "url": f"https://{host}/{number}", "language": language})
    return found


def make_run(folder: Path, output: str, *, nasty: bool = False, **settings) -> Path:
    source = folder / "documents"
    source.mkdir(parents=True)
    (source / "a.jsonl").write_text("\n".join(map(json.dumps, documents(nasty=nasty))))
    stages = [{"min_chars": {"n": 120}}, "exact_documents"]
    if output != "parquet":
        stages.append({"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}})
    if output == "rectangle":
        stages += [{"min_tokens": {"n": 44}}, {"truncate": {"n": 44}}, "roll"]
    spec = {
        "longcrawl": 1,
        "name": "tiny",
        "about": "Made in a test.",
        "source": {
            "builder": "text",
            "data_dir": str(source),
            "id_field": "id",
            "language_field": "language",
            "on_bad_files": "skip",
        },
        "stages": stages,
        "outputs": {output: settings},
        "card": {"license": "cc0-1.0", "contact": "<people@example.org>"},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(spec))
    lc.run(folder / "tiny.yaml", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Return a run for each output, made when it is first asked for."""

    class Runs(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            return self.setdefault(name, make_run(tmp_path_factory.mktemp(name), name, **OUTPUTS[name]))

    return Runs()


@pytest.fixture
def run_folder(runs, tmp_path) -> Path:
    """Return a copy of the run of parquet, to be changed."""
    return Path(shutil.copytree(runs["parquet"], tmp_path / "out"))


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def read(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


# -------------------- what cards say


def masked(card: str) -> str:
    """Leave out what depends on versions: the recipe with every field, numbers of bytes, digests."""
    card = re.sub(r"(?<=^```yaml\n).*?(?=^```$)", "…\n", card, flags=re.MULTILINE | re.DOTALL)  # every field there is
    card = re.sub(r"^Versions: .*$", "Versions: …", card, flags=re.MULTILINE)
    card = re.sub(r"\b(num_bytes|download_size|dataset_size): \d+", r"\1: …", card)
    card = re.sub(r"longcrawl \d+\.\d+\S*, with|version = \{[^}]*\}", "…", card)
    card = re.sub(r"digest `[0-9a-f]{16}`", "digest `…`", card)
    return re.sub(r"(<!-- longcrawl:\w+ )[0-9a-f]{12}|\"[0-9a-f]{12}\"", r"\1…", card)


@pytest.mark.variants
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if place > 3 else ()) for place, name in enumerate(OUTPUTS)],
)
def test_the_card_of_each_output_is_the_golden_one(runs, name):
    file, found = GOLDEN / f"{name}.txt", masked(read(runs[name]))
    if os.environ.get("LONGCRAWL_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, "utf-8")
    assert found == file.read_text("utf-8")


@pytest.mark.variants
@pytest.mark.parametrize("name", OUTPUTS)
def test_the_head_is_what_the_hub_takes(runs, name, hub):
    card = DatasetCard.load(runs[name] / "README.md")
    card.validate()
    head = card.data.to_dict()
    assert head_problems(head) == []
    for info in head["dataset_info"]:
        (config,) = [each for each in head["configs"] if each["config_name"] == info["config_name"]]
        for split, files in zip(info["splits"], config["data_files"], strict=True):
            found = [pq.read_table(file) for file in sorted(runs[name].glob(files["path"]))]
            assert split["num_examples"] == sum(each.num_rows for each in found)
            assert [feature["name"] for feature in info["features"]] == found[0].column_names


def test_the_head_says_what_the_hub_would_refuse():
    config = {"config_name": "a", "data_files": [{"split": "the rest", "path": "a.parquet"}], "default": True}
    wrong = {
        "license": ["mine"], "language": ["English"], "size_categories": ["many"], "source_datasets": ["a b"],
        "configs": [config, config | {"config_name": "b"}, config], "dataset_info": [{"config_name": "c"}],
    }  # fmt: skip
    said = head_problems(wrong)
    for what in ("license 'mine'", "'English'", "'many'", "'a b'", "'the rest'", "names 'c'", "two of configs"):
        assert any(what in problem for problem in said), what


def test_a_head_that_a_person_has_written_may_have_any_form():
    right = {
        "license": "mit", "language": "en", "size_categories": "n<1K",
        "configs": [{"config_name": "a", "data_files": "a/*.parquet"}, {"config_name": "b", "data_files": ["b", "c"]}],
        "dataset_info": {"config_name": "a"},
    }  # fmt: skip
    assert head_problems(right) == []
    wrong = {
        "license": {"name": "mit"}, "language": False, "size_categories": 3, "tags": [1, None], "source_datasets": "?",
        "configs": ["a", {"config_name": "b"}, {"config_name": "c", "data_files": [{"split": "train"}, {"path": "c"}]}],
        "dataset_info": "d",
    }  # fmt: skip
    said = " / ".join(head_problems(wrong))
    for what in (
        "license {'name': 'mit'} is not", "language False is not", "quote it: 'no'", "size_categories 3",
        "tags holds 1",
        "source_datasets '?'", "one of configs has no config_name", "'b' has no data_files",
        "'train' of 'c' has no path", "split None of 'c'", "dataset_info names 'd'",
    ):  # fmt: skip
        assert what in said, what


@pytest.mark.slow
def test_a_head_that_the_hub_refuses_is_kept_and_told(run_folder, hub):
    card = read(run_folder).replace("license: cc0-1.0", "license: mine", 1)
    (run_folder / "README.md").write_text(card.replace("- en\n", "- English\n", 1))
    planned = lc.push(run_folder, "me/tiny", "private", dry_run=True)
    told = lc.card(run_folder)
    assert told.kept == ("head language", "head license")
    assert [each[:30] for each in told.problems] == ["license 'mine' is not one that", "language 'English' is not a la"]
    assert str(told).splitlines()[1:] == [f"the Hub will reject its front matter: {each}" for each in told.problems]
    assert planned.problems == told.problems
    path = manifest_of(run_folder)["recipe"]["source"]["data_dir"]
    *_, refused, seen = str(planned).splitlines()
    assert refused == f"README.md would be rejected: {told.problems[1]}"
    assert seen == f"everybody who reads it sees this path of your machine: {path}"
    assert hub.repositories == {}
    (run_folder / "README.md").write_text(card.replace("license: mine", "license: mit", 1))
    assert lc.card(run_folder).problems == ()
    assert lc.push(run_folder, "me/tiny", "private", dry_run=True).problems == ()


def test_lengths_at_the_source_are_those_of_its_texts(runs):
    texts = [each["text"] for each in documents()]
    told = manifest_of(runs["parquet"])["source_lengths"]
    assert told["unit"] == "characters"
    assert told["documents"] == {
        str(b): n for b, n in sorted(Counter(len(each).bit_length() for each in texts).items())
    }
    assert sum(told["total"].values()) == sum(map(len, texts))


def test_a_rectangle_says_how_much_it_cut_and_filled(runs):
    (row,) = [line for line in read(runs["rectangle"]).splitlines() if re.match(r"\| train \|.* 1\.00 \|$", line)]
    tokens = pq.read_table(runs["rectangle"] / "rectangle/rows/train.parquet")["n_tokens"].to_numpy()
    kept = np.minimum(tokens, 44).sum()
    cut = (tokens > 44).sum()
    assert 0 < cut < len(tokens)
    cells = [f"{len(tokens)}", f"{cut}", f"{100 - 100 * kept / (44 * len(tokens)):.2f}"]
    cells += [f"{100 * cut / len(tokens):.2f}", f"{100 - 100 * kept / tokens.sum():.2f}", "1.00"]
    assert row == f"| train | {' | '.join(cells)} |"


@pytest.mark.parametrize(
    ("recipe", "capped"), [("longcrawl64", True), ("longcrawl64-clean", False), ("refinedweb", True)]
)
def test_a_cap_of_words_is_told(runs, recipe, capped):
    manifest = manifest_of(runs["parquet"]) | {"recipe": lc.load_recipe(recipe).as_dict()}
    source = CardSource(runs["parquet"], manifest)
    assert ("removes documents of more than 100,000 words" in SECTIONS["limits"](source)) == capped


# -------------------- what documents say is never markup


def test_ids_hosts_and_languages_cannot_be_markup(tmp_path):
    folder = make_run(tmp_path, "parquet", nasty=True)
    lc.card(folder, plots=True)
    card = read(folder)
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert any("script" in row for row in rows)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", card)  # code spans
    outside = re.sub(r"^<!-- /?longcrawl.*-->$", "", outside, flags=re.MULTILINE)
    assert "script>" not in outside.partition("## Known limits")[2]
    assert "<!--" not in outside.partition("## Known limits")[2]
    widths = [len(re.split(r"(?<!\\)\|", row)) for row in rows]
    for above, below, one, other in zip(rows, rows[1:], widths, widths[1:], strict=False):
        assert one == other or "---" not in below, (above, below)
    assert lc.card(folder).kept == ()
    for picture in (folder / "card").glob("*.svg"):
        assert "<script" not in picture.read_text()


@given(st.text(max_size=30))
@settings(max_examples=2 * settings.default.max_examples)
def test_a_code_span_ends_where_it_should(text):
    shown = code(text)
    ticks = re.match("`+", shown)[0]
    assert shown.endswith(ticks)
    assert ticks not in re.findall("`+", shown[len(ticks) : -len(ticks)])
    assert re.search(r"(?<!\\)\|", shown) is None
    assert re.search(r"[<>\n]|(?<!\\)[|`*\[]", plain(text)) is None
    assert "\n" not in shown


def test_funnels_with_strange_rules_stay_tables():
    funnel = Funnel("a|b", 2, (FunnelRow("c", 2, 1, {"`|<b>": 1}),))
    assert funnel.markdown().splitlines()[2:] == [r"| a\|b | 2 |  |  |", r"| c | 1 | 1 | `` `\|<b> `` 1 |"]
    assert table(["a"], [["b"]], 1) == "| a |\n| ---: |\n| b |"


# -------------------- manifests that lack entries


def write_manifest(folder: Path, manifest: dict) -> None:
    (folder / "manifest.json").write_text(seal(manifest))


def paths_of(block: dict, depth: int) -> list[tuple[str, ...]]:
    found = [(name,) for name in block]
    for name, value in block.items():
        if isinstance(value, dict) and depth > 1:
            found += [(name, *path) for path in paths_of(value, depth - 1)]
    return found


def without(manifest: dict, path: tuple[str, ...]) -> dict:
    changed = copy.deepcopy(manifest)
    block = changed
    for name in path[:-1]:
        block = block[name]
    del block[path[-1]]
    return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["parquet", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rectangle", "composed", "gpt-simple"))],
)
def test_whatever_a_manifest_lacks_is_said_in_a_sentence(runs, name, tmp_path):
    folder = Path(shutil.copytree(runs[name], tmp_path / "out"))
    manifest, refused = manifest_of(folder), set()
    for path in paths_of(manifest, 2):
        if path[0] not in ("sha256", "files", "recipe", "source_lengths"):
            write_manifest(folder, without(manifest, path))
            try:
                lc.card(folder)
            except RunError as wrong:
                assert str(wrong).count("\n") == 0  # noqa: PT017  # not every path is refused
                refused.add(".".join(path))
    assert refused >= {"longcrawl_run", *NEEDED} - {"recipe", "files"}
    assert refused >= {f"{block}.{each}" for block in ("funnel", "output") for each in NEEDED[block]}


# -------------------- cards that are written again


NAMES = ("one", "two", "three", "four")
HEAD = {"license": "mit", "language": ["en"], "tags": ["a", "b"]}


@given(
    st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(sorted(HEAD))),
    st.sets(st.sampled_from(sorted(HEAD))), st.booleans(),
)  # fmt: skip
@settings(max_examples=2 * settings.default.max_examples)
def test_edits_stay_and_all_else_is_new(edited, removed, changed, dropped, added):
    card = card_text(HEAD, {name: f"## {name}\n\nold {name}" for name in NAMES})
    for name in edited:
        card = card.replace(f"old {name}", f"my {name}")
    for name in removed:
        card = re.sub(rf"<!-- longcrawl:{name} .*?/longcrawl:{name} -->\n", "", card, flags=re.DOTALL)
    if added:
        card = card.replace("<!-- longcrawl:two", "## My own\n\nwords\n\n<!-- longcrawl:two")
    head, body = yaml.safe_load(card.split("---\n")[1]), card.split("---\n", 2)[2]
    head |= dict.fromkeys(changed, "mine")
    head = {name: value for name, value in head.items() if name not in dropped} | ({"doi": "10/1"} if added else {})
    card = f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n{body}"

    new_head = HEAD | {"language": ["en", "de"], "pretty_name": "New"}
    new = merge(card, new_head, {name: f"## {name}\n\nnew {name}" for name in (*NAMES, "five")})
    again = merge(new.text, new_head, {name: f"## {name}\n\nnew {name}" for name in (*NAMES, "five")})
    assert again == new
    for name in NAMES:
        assert (f"my {name}" in new.text) == (name in edited - removed)
        assert (f"new {name}" in new.text) == (name not in edited | removed)
        assert (name in new.kept) == (name in edited - removed)
        assert (f"{name} (removed)" in new.kept) == (name in removed)
    assert "new five" in new.text
    assert not added or "two" in removed or "## My own\n\nwords" in new.text
    told = yaml.safe_load(new.text.split("---\n")[1])
    expected = new_head | dict.fromkeys(changed, "mine")
    expected = {name: value for name, value in expected.items() if name not in dropped}
    assert told == expected | ({"doi": "10/1"} if added else {})


def test_a_card_without_edits_is_the_one_that_the_run_wrote(runs):
    for folder in runs.values():
        before = [checksum(folder / name) for name in ("README.md", "manifest.json")]
        assert lc.card(folder).kept == ()
        assert [checksum(folder / name) for name in ("README.md", "manifest.json")] == before


@pytest.mark.slow
def test_the_run_is_whole_with_an_edited_card_and_pictures(run_folder):
    text = read(run_folder).replace("Duplicates were looked for", "We looked for duplicates")
    text = text.replace("license: cc0-1.0", "license: mit", 1).replace(
        "## Broken input", "## Ours\n\nHello.\n\n## Broken input"
    )
    (run_folder / "README.md").write_text(text.replace("\n", "\r\n"), newline="")
    assert "README.md has " in str(lc.verify(run_folder))
    told = lc.card(run_folder, plots=True)
    assert told.kept == ("head license", "broken", "datasheet")
    assert str(told).endswith("is written with 5 pictures; kept your edits in: head license, broken, datasheet")
    assert lc.verify(run_folder).problems == ()
    card = read(run_folder)
    assert "## Ours\n\nHello.\n\n## Broken input" in card
    assert "We looked for duplicates" in card
    pictures = [run_folder / name for name in re.findall(r"\]\((card/\w+\.svg)\)", card)]
    assert sorted(pictures) == sorted((run_folder / "card").iterdir())
    assert set(told.pictures) <= set(manifest_of(run_folder)["files"])
    before = {path: checksum(path) for path in [*pictures, run_folder / "README.md", run_folder / "manifest.json"]}
    assert lc.card(run_folder, plots=True) == told
    said = CliRunner().invoke(app, ["card", str(run_folder)]).output
    assert said.endswith("README.md is written with 5 pictures; kept your edits in: head license, broken, datasheet\n")
    assert {path: checksum(path) for path in before} == before


def test_a_card_that_cannot_be_told_from_a_persons_stays(run_folder):
    (run_folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    with pytest.raises(RunError, match=r"README.md lacks the comments .* move it away"):
        lc.card(run_folder)
    manifest = manifest_of(run_folder)
    manifest["files"]["README.md"]["sha256"] = checksum(run_folder / "README.md")
    del manifest["source_lengths"]
    manifest["recipe"]["card"]["contact"] = None
    (run_folder / "manifest.json").write_text(seal(manifest))
    assert lc.card(run_folder).kept == ()
    assert "No contact is recorded" in read(run_folder)
    assert "The lengths of texts at the source were not counted" in read(run_folder)
    assert lc.verify(run_folder).problems == ()
    (run_folder / "README.md").unlink()
    assert lc.card(run_folder).kept == ()


def test_a_head_is_found_where_the_hub_finds_it(run_folder):
    card = read(run_folder)
    (run_folder / "README.md").write_text("\n" + card.replace("\n---\n", "\n--- \n", 1))
    assert lc.card(run_folder).kept == ()
    assert read(run_folder) == card


def test_what_is_broken_is_said_in_one_sentence(run_folder):
    card = read(run_folder)
    (run_folder / "README.md").write_text(card.replace("license: cc0-1.0", "license: }", 1))
    line = card[: card.index("license: cc0")].count("\n") + 1
    with pytest.raises(FormatError, match=rf"README.md, line {line}, column 10: the front matter is not YAML"):
        lc.card(run_folder)
    (run_folder / "README.md").write_text(card)
    ledger = next((run_folder / "ledger").iterdir())
    kept = ledger.read_bytes()
    ledger.unlink()
    with pytest.raises(
        RunError,
        match=rf"is missing ledger/{ledger.name}, which lists removed documents: restore it",
    ):
        lc.card(run_folder)
    ledger.write_bytes(kept)
    (run_folder / "manifest.json").write_text((run_folder / "manifest.json").read_text().replace("tiny", "tony"))
    with pytest.raises(RunError, match=r"manifest.json has been changed. `longcrawl verify"):
        lc.card(run_folder)


@pytest.mark.slow
def test_nothing_is_written_where_the_card_cannot_be(run_folder):
    (run_folder / "README.md").write_bytes(b"\xff")
    with pytest.raises(RunError, match="is not UTF-8"):
        lc.card(run_folder, plots=True)
    assert not (run_folder / "card").exists()
    (run_folder / "README.md").unlink()
    (run_folder / "card").write_text("")
    with pytest.raises(RunError, match="card is a file, but plots need a folder of this name: move it away"):
        lc.card(run_folder, plots=True)


def test_text_that_looks_like_the_marks_of_a_card_ends_no_section():
    marks = "a\n<!-- /longcrawl:one -->\nwords\n<!-- longcrawl:two 0123456789ab -->\n<!-- longcrawl {} -->"
    sections = {"one": marks, "two": "c"}
    card = card_text(HEAD, sections)
    assert merge(card, HEAD, sections) == Merged(card, (), HEAD)
    assert merge(card.replace("\nwords\n", "\nmine\n"), HEAD, sections | {"one": "d"}).kept == ("one",)


def test_what_is_no_finished_run_is_told_apart(run_folder, tmp_path):
    for path, said in (
        (
            tmp_path / "none",
            r"^no folder .*/none: name that of a run, which `longcrawl run RECIPE --out .*` would",
        ),
        (run_folder / "README.md", rf"README.md is a file: name the folder of a run, such as {run_folder}$"),
        (tmp_path, rf"holds no run, it has no manifest.json: name the folder of one, such as {run_folder}$"),
        (run_folder / "ledger", rf"holds no run, .* such as {run_folder}$"),
    ):
        with pytest.raises(RunError, match=said):
            lc.card(path)
    (run_folder / "manifest.json").write_text("{")
    with pytest.raises(
        RunError, match=rf"restore it from a good copy, or run the recipe again into another folder than {run_folder}"
    ):
        lc.card(run_folder)


def put(manifest: dict, path: str, value) -> dict:
    changed = copy.deepcopy(manifest)
    *above, last = path.split(".")
    block = changed
    for step in above:
        block = block[int(step) if isinstance(block, list) else step]
    block[int(last) if isinstance(block, list) else last] = value
    return changed


ODD = {
    "funnel.documents": ["x", -1, None, True], "funnel.stages": [{}, "x"], "funnel.stages.0": [1, {"stage": "a"}],
    "funnel.stages.0.out": [None, 1.5], "funnel.stages.0.rules": [[]], "funnel.stages.0.characters": ["many"],
    "analysis": [[], None, 3], "analysis.lengths": [{}], "analysis.lengths.0.documents": [{"a": 1}, {"1": "a"}],
    "analysis.languages": [[]], "bad_files": [{"a": 1}, 7], "bad_files.0": ["a.gz"],
    "inputs": [[], {"a": 3}, {"a": [3]}],
    "recipe.source": [{}, None, {"builder": 1}], "recipe.stages": ["roll"], "recipe.stages.0": ["roll"],
    "source_lengths": [[]], "left_out": [{"a": "b"}], "files.README.md": [1], "reports": [3],
}  # fmt: skip


@pytest.mark.variants
@pytest.mark.parametrize("path", ODD)
def test_odd_values_of_a_sealed_manifest_are_refused_by_their_path(run_folder, path):
    manifest = manifest_of(run_folder) | {"bad_files": [{"file": "a", "reason": "b", "records_lost": 1}]}
    for value in ODD[path]:
        changed = manifest | {"files": {"README.md": 1}} if path.startswith("files") else put(manifest, path, value)
        write_manifest(run_folder, changed)
        for ask in (lc.card, lc.funnel, lc.write_report):
            with pytest.raises(
                RunError, match=r"manifest.json is not a valid manifest: \S+ is .* and should be"
            ) as said:
                ask(run_folder)
            named = re.search(r"valid manifest: (\S+) is", str(said.value))[1].replace("[", ".").replace("]", "")
            assert named.startswith(path)


def test_what_only_a_card_finds_odd_is_a_sentence_too(run_folder):
    for path, value in (("output.splits", 3), ("recipe.reference", {"a": 1}), ("recipe.card.languages", 3)):
        write_manifest(run_folder, put(manifest_of(run_folder), path, value))
        with pytest.raises(RunError, match=rf"cannot be read \(.*\): run .* than {run_folder}$"):
            lc.card(run_folder)


@pytest.mark.slow
def test_the_card_is_pushed_with_its_pictures(run_folder, hub):
    drawn = lc.card(run_folder, plots=True).pictures
    lc.push(run_folder, "me/pictures", "private")
    sent = hub.repositories["me/pictures"].files()
    assert set(drawn) < set(sent)
    assert sent["README.md"].content.decode() == read(run_folder)
