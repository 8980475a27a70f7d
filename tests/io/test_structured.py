"""YAML and JSON that somebody wrote to do harm: limits hold before anything is made of it."""

import time

import pytest
import yaml

import longcrawl as lc
from longcrawl.errors import LoaderError, RecipeError, RunError
from longcrawl.io.structured import DEPTH, RepeatedKeyError, load_json, load_yaml
from longcrawl.loading import read_curriculum
from longcrawl.publish.hub.client import read_card

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
"""2 * 10**11 values in under a kilobyte."""
HOSTILE = {
    "list": "[" * 100_000,
    "mapping": "{a: " * 100_000,
    "block": "- " * 100_000,
    "bomb": BOMB,
    "merged": BOMB + "b: {<<: {c: *a11}}\n",
    "circle": "a: &a [*a]",
    "date": "a: 2024-13-45",
    "digits": "a: " + "9" * 5000,
    "float": "a: !!float x",
    "bool": "a: !!bool x",
    "time": "a: !!timestamp x",
    "int": "a: !!int ''",
    "python": "a: !!python/object/apply:os.system [ls]",
    "key": "{[a]: 1}",
    "surrogate": "a: \ud800",
}


@pytest.mark.variants
@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_one_kind_of_error_in_bounded_time(text, loader):
    begin = time.monotonic()
    with pytest.raises(yaml.YAMLError if text.isascii() else (yaml.YAMLError, UnicodeEncodeError)):
        load_yaml(text, loader)
    assert time.monotonic() - begin < 20


def test_aliases_of_people_stay():
    assert load_yaml("a: &a {n: 1}\nb: *a\nc: {<<: *a, m: 2}") == {"a": {"n": 1}, "b": {"n": 1}, "c": {"n": 1, "m": 2}}
    assert load_yaml("[" * DEPTH + "]" * DEPTH)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [{a: 1}]\n\na: 2", "the key 'a' is given twice, in lines 1 and 4: keep one"),
        ("- b\n- b:\n    m: 1\n    n: {x: 1, x: 2}", "the key 'x' is given twice, in line 4: keep one"),
        ("a: {b: &x c, 'b': *x}", "the key 'b' is given twice, in line 1"),
        ("a: b\nc: {n: a, n: b}", "the key 'n' is given twice, in line 2"),
        ("{yes: a, true: b}", "the key 'true' is given twice"),
        ("{1: a, 0x1: b}", "the key '0x1' is given twice"),
    ],
)
def test_a_key_that_is_given_twice_is_an_error_with_both_lines(text, said, loader):
    with pytest.raises(RepeatedKeyError, match=said):
        load_yaml(text, loader)


def test_equal_keys_of_several_mappings_stay():
    assert load_yaml("{1: a, '1': b, no: c, 'no': d}") == {1: "a", "1": "b", False: "c", "no": "d"}
    merged = "a: &a {n: 1}\nb: &b {<<: *a, n: 2}\nc: {<<: *b, n: 3}\nd: {<<: *b}"
    assert load_yaml(merged) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}, "d": {"n": 2}}
    assert load_yaml("[{a: a}, {a: {a: a}}]") == [{"a": "a"}, {"a": {"a": "a"}}]
    assert load_yaml("a: &a {n: 1}\nb: &b {m: 1}\nc: {<<: *a, <<: *b, n: 2}")["c"] == {"m": 1, "n": 2}
    assert load_yaml(merged.replace("n:", "rows:"))["d"] == {"rows": 2}
    several = "a: &a {rows: 1, bands: 1}\nb: &b {rows: 2, seed: 2}\nc: {<<: [*a, *b], seed: 3}"
    assert load_yaml(several)["c"] == {"rows": 1, "bands": 1, "seed": 3}
    with pytest.raises(yaml.YAMLError, match="expected a mapping"):
        load_yaml("a: {<<: 1}")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500, "{", '"', "9" * 5000])
def test_hostile_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        load_json(text)


@pytest.mark.variants
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "list" else ()) for name in HOSTILE if name != "surrogate"],
)
def test_every_reader_of_yaml_says_one_sentence(tmp_path, name):
    file = tmp_path / "hostile.yaml"
    file.write_text(HOSTILE[name])
    with pytest.raises(RecipeError, match="is not YAML"):
        lc.load_recipe(file)
    with pytest.raises(LoaderError, match="cannot be read as YAML"):
        read_curriculum(file)
    (tmp_path / "README.md").write_text(f"---\n{HOSTILE[name]}\n---\ntext\n")
    with pytest.raises(RunError, match="its YAML front matter is invalid"):
        read_card(tmp_path / "README.md")
    with pytest.raises(RecipeError, match="is not YAML"):
        lc.load_recipe("quickstart", [f"stages.min_chars.n={HOSTILE[name]}"])


@pytest.mark.parametrize("text", ['{"longcrawl_run":' * 50_000, '{"longcrawl_run": 1' + ', "a": [' * 200 + "]" * 200])
def test_a_hostile_manifest_is_one_sentence(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"is not JSON"):
        lc.funnel(tmp_path)
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(RunError, match=r"is not a plan"):
        lc.Plan.load(tmp_path / "plan.json")
