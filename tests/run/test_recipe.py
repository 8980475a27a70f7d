"""Recipes: strict YAML, overrides, digest."""

import copy
import re
from pathlib import Path

import pytest
import yaml

import longcrawl as lc
from longcrawl.errors import LongCrawlError, RecipeError
from longcrawl.run.recipe import load_recipe, parse_recipe
from longcrawl.run.shipped import recipes

SPEC = {
    "longcrawl": 1,
    "name": "tiny",
    "about": "Made in a test.",
    "source": {"builder": "text", "data_dir": "documents"},
    "stages": [
        {"min_chars": {"n": 10}},
        "exact_documents",
        {"tokenize": {"tokenizer": "trained"}},
        {"truncate": {"n": 64}},
    ],
    "outputs": {"rectangle": {"heldout": 0.1}},
    "card": {"license": "mit"},
}


OUTPUTS = "composed, datatrove, gpt-simple, levanter, litdata, mds, megatron, nanogpt, olmo-core, parquet, rectangle"


def changed(**keys) -> dict:
    return {**copy.deepcopy(SPEC), **keys}


def test_a_recipe_is_its_source_stages_output_and_card():
    recipe = parse_recipe(SPEC)
    assert (recipe.name, recipe.about) == ("tiny", "Made in a test.")
    assert recipe.source.data_dir == "documents"
    assert [label for label, _ in recipe.stages] == ["min_chars", "exact_documents", "tokenize", "truncate"]
    assert recipe.stages[0][1] == lc.text.MinChars(10)
    assert recipe.output.heldout == 0.1
    assert recipe.card.license == "mit"


def test_a_second_stage_of_a_kind_is_labelled_with_its_number():
    recipe = parse_recipe(changed(stages=["min_chars", "min_words", {"min_chars": {"n": 5}}, "min_chars"]))
    assert [label for label, _ in recipe.stages] == ["min_chars", "min_words", "min_chars_2", "min_chars_3"]


def test_a_recipe_spells_every_field_and_reads_itself_back():
    recipe = parse_recipe(SPEC)
    told = recipe.as_dict()
    assert told["stages"][1] == {
        "exact_documents": {"keep": "first", "seed": 0, "against": [], "index": "none", "text": "raw"}
    }
    assert told["source"]["on_bad_files"] == "error"
    again = parse_recipe(yaml.safe_load(recipe.as_yaml()))
    assert again.as_yaml() == recipe.as_yaml()
    assert again.digest == recipe.digest


def test_characters_beyond_ascii_survive():
    recipe = parse_recipe(changed(about="Bücher, 本: “quoted” # and so on\nin two lines"))
    assert parse_recipe(yaml.safe_load(recipe.as_yaml())).about == recipe.about


def test_these_recipes_are_shipped():
    assert list(recipes()) == [
        "bucket-pretraining",
        "datatrove",
        "finepdfs",
        "gpt-simple",
        "longcrawl64",
        "longcrawl64-clean",
        "longcrawl64-select",
        "longmino",
        "quickstart",
        "refinedweb",
        "refinedweb-blocks",
        "refinedweb-multilingual",
    ]


@pytest.mark.parametrize("name", recipes())
def test_the_shipped_recipes_are_recipes(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.about == recipes()[name]
    assert recipe.about.endswith(".")


def test_recipes_can_be_listed_again_and_again():
    """The folder of the recipes is a package of the same name, which an import would put in the function's place."""
    assert lc.recipes() == lc.recipes()
    lc.load_recipe("quickstart")
    assert list(lc.recipes()) == sorted(lc.recipes())


def test_a_recipe_is_read_by_name_and_by_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    assert load_recipe(path).as_dict() == load_recipe(str(path)).as_dict() == parse_recipe(SPEC).as_dict()


# -------------------- what is wrong is said in one sentence

WRONG = [
    (
        changed(stage=[]),
        (
            "recipe 'tiny' has an unknown key 'stage'; known: longcrawl, name, about, source, stages, parts, "
            "outputs, card, reference"
        ),
    ),
    ({key: value for key, value in SPEC.items() if key != "outputs"}, "recipe 'tiny' lacks the key 'outputs'"),
    ({key: value for key, value in SPEC.items() if key != "name"}, "recipe 'without a name' lacks the key 'name'"),
    (changed(longcrawl=2), "recipe 'tiny' has schema version 2, but this longcrawl reads 1"),
    (
        changed(source="text"),
        "recipe 'tiny': source takes a mapping with the key 'builder', such as {builder: text, data_dir: docs}",
    ),
    (changed(source={"data_dir": "x"}), "recipe 'tiny': source takes a mapping with the key 'builder', such as "),
    (changed(source={"builder": "warcs"}), "recipe 'tiny': source 'warcs' is unknown; known: composed, datatrove, "),
    (changed(source={"builder": ["text"]}), "recipe 'tiny': source takes a mapping with the key 'builder', such as "),
    (
        changed(source={"builder": "text", "dir": "x"}),
        "recipe 'tiny': source 'text' has no field 'dir'; known: data_dir, ",
    ),
    (
        changed(source={"builder": "text", "unit": "page"}),
        "recipe 'tiny': source 'text': Text.unit takes one of 'file', 'line', got 'page'",
    ),
    (changed(stages={"min_chars": {}}), "recipe 'tiny': stages takes a list, such as [min_chars: {n: 200}]"),
    (
        changed(stages=["min_char"]),
        "recipe 'tiny': stage 1 'min_char' is unknown; did you mean 'min_chars', 'min_hash' or 'min_words'? ",
    ),
    (
        changed(stages=["min_chars", {"min_words": {"m": 1}}]),
        "recipe 'tiny': stage 2 'min_words' has no field 'm'; known: n",
    ),
    (
        changed(stages=[{"min_words": {"n": "many"}}]),
        "recipe 'tiny': stage 1 'min_words': MinWords.n takes a whole number, got 'many'",
    ),
    (
        changed(stages=[{"min_words": 5}]),
        "recipe 'tiny': stage 1 takes a name, or one name with its fields, such as min_chars: {n: 200}; got {'min",
    ),
    (changed(stages=[["min_words"]]), "recipe 'tiny': stage 1 takes a name, or one name with its fields, "),
    (
        changed(stages=[{"min_words": {}, "min_chars": {}}]),
        "recipe 'tiny': stage 1 takes a name, or one name with its fields, ",
    ),
    (
        changed(stages=[{"signal_rules": {"preset": "none"}}]),
        "recipe 'tiny': stage 1 'signal_rules': unknown preset 'none'; known: rpv2-card",
    ),
    (changed(outputs={"zarr": {}}), f"recipe 'tiny': output 'zarr' is unknown; known: {OUTPUTS}"),
    (changed(outputs="rectangle"), f"recipe 'tiny': outputs takes a mapping with one format; known: {OUTPUTS}"),
    (changed(outputs={}), f"recipe 'tiny': outputs takes a mapping with one format; known: {OUTPUTS}"),
    (changed(outputs={"rectangle": 5}), "recipe 'tiny': output 'rectangle' takes a mapping of its fields, got 5"),
    (
        changed(outputs={"rectangle": {"zarr": 3}}),
        "recipe 'tiny': output 'rectangle' has no field 'zarr'; known: checksum, codec, ",
    ),
    (
        changed(card={"licence": "mit"}),
        "recipe 'tiny': card has no field 'licence'; known: citation, contact, languages, license, ",
    ),
    (changed(card="mit"), "recipe 'tiny': card takes a mapping of its fields, got 'mit'"),
    (changed(card={"languages": "en"}), "recipe 'tiny': card: CardFacts.languages takes "),
]


@pytest.mark.parametrize(("spec", "said"), WRONG, ids=[said[:70] for _, said in WRONG])
def test_a_wrong_recipe_is_refused_with_one_sentence(spec, said):
    with pytest.raises(RecipeError) as raised:
        parse_recipe(spec)
    message = str(raised.value)
    assert message.startswith(said)
    assert "\n" not in message
    assert message.count("recipe 'tiny'") <= 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML"),
        ("name: a\nstages: []\nstages: [x]", "mine.yaml': the key 'stages' is given twice, in lines 2 and 3: keep one"),
        ("stages:\n- min_chars: {n: 3, n: 4}", "mine.yaml': the key 'n' is given twice, in line 2: keep one"),
        ("", "must be a mapping with the keys longcrawl, name, "),
        ("- a", "must be a mapping with the keys longcrawl, name, "),
        ("!!python/object/apply:os.system [ls]", "is not YAML"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError) as raised:
        load_recipe(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_recipe_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(
        RecipeError, match=r"unknown recipe 'longcrawl'; known: .*longcrawl64, longcrawl64-clean, .*, or the path"
    ):
        load_recipe("longcrawl")
    with pytest.raises(RecipeError, match=r"no recipe .*nothing\.yaml: check its path"):
        load_recipe(tmp_path / "nothing.yaml")


# -------------------- overrides


def with_overrides(tmp_path: Path, *overrides: str):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SPEC, sort_keys=False))
    return load_recipe(path, overrides)


@pytest.mark.parametrize(
    ("override", "keys", "value"),
    [
        ("source.data_dir=other", ("source", "data_dir"), "other"),
        ("source.data_files=[a.jsonl, b.jsonl]", ("source", "data_files"), ["a.jsonl", "b.jsonl"]),
        ("source.data_dir=a=b", ("source", "data_dir"), "a=b"),
        ("source.language=null", ("source", "language"), None),
        ("stages.min_chars.n=30", ("stages", 0, "min_chars", "n"), 30),
        ("stages.exact_documents.keep=random", ("stages", 1, "exact_documents", "keep"), "random"),
        ("stages.tokenize.json_escaped=true", ("stages", 2, "tokenize", "json_escaped"), True),
        ("outputs.rectangle.heldout=7", ("outputs", "rectangle", "heldout"), 7),
        ("outputs.rectangle.zarr_format=2", ("outputs", "rectangle", "zarr_format"), 2),
        ("card.languages=[de, en]", ("card", "languages"), ["de", "en"]),
    ],
)
def test_overrides_take_yaml_values(tmp_path, override, keys, value):
    told = with_overrides(tmp_path, override).as_dict()
    for key in keys:
        told = told[key]
    assert told == value


def test_a_threshold_is_set_or_switched_off_one_by_one():
    overrides = [
        "stages.signal_rules.thresholds.max_word_count=null",
        "stages.signal_rules.thresholds.min_word_count=70",
    ]
    recipe = load_recipe("longcrawl64", overrides)
    rules = {rule.name: rule.bound for rule in recipe.stages[0][1].rules()}
    assert "max_word_count" not in rules
    assert rules["min_word_count"] == 70
    assert rules["max_mean_word_length"] == 10
    assert load_recipe("longcrawl64").as_dict()["stages"][0]["signal_rules"]["thresholds"] == {}


def test_an_override_adds_to_thresholds_that_a_recipe_sets():
    recipe = load_recipe("longcrawl64-clean", ["stages.signal_rules.thresholds.min_word_count=70"])
    assert recipe.stages[0][1].thresholds == {"max_word_count": None, "min_word_count": 70}


def test_the_second_stage_of_a_kind_is_overridden_by_its_label(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(changed(stages=["min_chars", {"min_chars": {"n": 5}}, "tokenize"])))
    recipe = load_recipe(path, ["stages.min_chars_2.n=6"])
    assert [stage.n for _, stage in recipe.stages[:2]] == [200, 6]


def test_later_overrides_win(tmp_path):
    assert with_overrides(tmp_path, "stages.min_chars.n=1", "stages.min_chars.n=2").stages[0][1].n == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("source", "--set takes PATH=VALUE, such as stages.min_words.n=20000, got 'source'"),
        ("source=text", "--set takes PATH=VALUE, such as stages.min_words.n=20000, got 'source=text'"),
        ("source.data_dir", "--set takes PATH=VALUE, such as stages.min_words.n=20000, got 'source.data_dir'"),
        (
            "sources.data_dir=x",
            "--set sources.data_dir: write source.FIELD, stages.STAGE.FIELD, outputs.FORMAT.FIELD, ",
        ),
        (
            "stages.min_chars=5",
            "--set stages.min_chars: write source.FIELD, stages.STAGE.FIELD, outputs.FORMAT.FIELD, ",
        ),
        ("name.x=y", "--set name.x: write source.FIELD, stages.STAGE.FIELD, outputs.FORMAT.FIELD, card.FIELD or parts"),
        ("source.data_dir=[", "--set source.data_dir: '[' is not YAML"),
        (
            "stages.min_words.n=5",
            "--set stages.min_words.n: the recipe has no stage 'min_words'; it has: min_chars, exact_",
        ),
        ("outputs.parquet.x=5", "--set outputs.parquet.x: the recipe has no 'parquet'; it has: rectangle"),
        (
            "card.pretty_name=One: two",
            "recipe 'tiny': card: CardFacts.pretty_name takes text or null, got {'One': 'two'}",
        ),
        ("stages.min_chars.m=5", "recipe 'tiny': stage 1 'min_chars' has no field 'm'; known: n"),
        ("stages.min_chars.n=few", "recipe 'tiny': stage 1 'min_chars': MinChars.n takes a whole number, got 'few'"),
        ("stages.min_chars.n.x=5", "--set stages.min_chars.n.x: 'n' is 10 and has no fields of its own"),
        (
            "stages.tokenize.tokenizer.x.y=5",
            "--set stages.tokenize.tokenizer.x.y: 'tokenizer' is 'trained' and has no fields",
        ),
    ],
)
def test_a_wrong_override_is_refused_with_one_sentence(tmp_path, override, said):
    with pytest.raises(RecipeError) as raised:
        with_overrides(tmp_path, override)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


def test_an_override_of_a_recipe_without_stages_or_outputs_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"longcrawl": 1, "name": "x", "source": "text", "stages": 3, "outputs": 4}))
    for override in ("source.data_dir=x", "stages.min_chars.n=3", "outputs.rectangle.heldout=3"):
        with pytest.raises(LongCrawlError) as raised:
            load_recipe(path, [override])
        assert "\n" not in str(raised.value)


# -------------------- the digest


def test_the_digest_is_of_every_field(tmp_path):
    overrides = [
        "source.data_dir=x",
        "source.on_bad_files=skip",
        "stages.min_chars.n=11",
        "stages.exact_documents.seed=1",
        "stages.tokenize.vocabulary_size=500",
        "stages.truncate.n=65",
        "outputs.rectangle.heldout=0.2",
        "outputs.rectangle.codec=lz4",
        "card.license=other",
    ]
    digests = {with_overrides(tmp_path, override).digest for override in overrides}
    digests |= {parse_recipe(changed(name="other")).digest, parse_recipe(changed(about="other")).digest}
    digests |= {parse_recipe(changed(stages=SPEC["stages"][::-1])).digest, parse_recipe(SPEC).digest}
    assert len(digests) == len(overrides) + 4


def test_the_digest_does_not_change_with_the_way_a_recipe_is_spelled():
    spelled = changed(stages=[{"min_chars": {"n": 10}}, {"exact_documents": {"seed": 0}}, *SPEC["stages"][2:]])
    assert parse_recipe(spelled).digest == parse_recipe(SPEC).digest


def test_the_digest_changes_with_the_code_version_of_a_stage(monkeypatch):
    before = parse_recipe(SPEC).digest
    monkeypatch.setattr(lc.tokens.Truncate, "code_version", "1000")
    assert parse_recipe(SPEC).digest != before


def test_a_preset_is_spelled_out(tmp_path):
    recipe = parse_recipe(changed(stages=[{"min_hash": {"preset": "lee2022", "verify": 0.9}}, *SPEC["stages"]]))
    assert recipe.stages[0][1] == lc.dedup.MinHash.preset("lee2022", verify=0.9)
    told = recipe.as_dict()["stages"][0]["min_hash"]
    assert (told["bands"], told["verify"]) == (450, 0.9)
    assert "preset" not in told
    assert parse_recipe(yaml.safe_load(recipe.as_yaml())).digest == recipe.digest


def test_a_preset_that_is_set_replaces_what_presets_are_about(tmp_path):
    path = tmp_path / "recipe.yaml"
    spelled = lc.dedup.MinHash.preset("lee2022", keep="longest", max_cluster=7).settings()
    path.write_text(yaml.safe_dump(changed(stages=[{"min_hash": spelled}, *SPEC["stages"]])))
    chosen = load_recipe(path, ["stages.min_hash.preset=fineweb", "stages.min_hash.rows=9"]).stages[0][1]
    assert chosen == lc.dedup.MinHash.preset("fineweb", rows=9, keep="longest", max_cluster=7)


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (
            {"min_hash": {"preset": "fine"}},
            "'min_hash': unknown preset 'fine'; known: fineweb, finepdfs, lee2022, refinedweb",
        ),
        ({"min_hash": {"preset": ["fineweb"]}}, "'min_hash': unknown preset ['fineweb']; known: fineweb,"),
        ({"min_hash": {"preset": "fineweb", "band": 3}}, "'min_hash' has no field 'band'; known: against,"),
        ({"min_chars": {"preset": "x"}}, "'min_chars' has no field 'preset'; known: n"),
    ],
)
def test_a_wrong_preset_is_one_sentence(stage, said):
    with pytest.raises(RecipeError, match=re.escape(said)):
        parse_recipe(changed(stages=[stage]))
