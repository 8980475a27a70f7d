"""A plan's figures for a cluster, computed by hand from constants that the tests set."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longcrawl as lc
from longcrawl.cli.commands import app
from longcrawl.core.stages import Survey
from longcrawl.errors import RunError
from longcrawl.run.plan.cluster import CONSTANTS, ClusterPlan, ClusterRow, extrapolate
from longcrawl.run.plan.estimates import Estimate, Plan, PlanRow, exact
from longcrawl.run.plan.run_plan import ScaledUp
from longcrawl.run.recipe import Recipe, parse_recipe

ROOT = Path(__file__).parents[3]
MILLION = 1_000_000
BY_HAND = {
    "local_task_seconds": (50, "ms"),
    "shared_task_seconds": (100, "ms"),
    "spark_task_seconds": (200, "ms"),
    "partition_bytes": (100, "MiB"),
    "row_seconds": (2, "µs"),
    "row_bytes": (16, "B"),
    "hash_bytes": (40, "B"),
    "band_seconds": (3, "µs"),
    "band_bytes": (20, "B"),
    "choice_seconds": (10, "µs"),
    "choice_bytes": (100, "B"),
    "edge_seconds": (50, "ns"),
    "edges": (0.5, ""),
    "label_bytes": (4, "B"),
    "passage_factor": (3, ""),
    "passage_bytes": (0.5, "B"),
    "related_bytes": (300, "B"),
    "layout_bytes": (100, "B"),
}

UNITS = {"ms": 1e-3, "µs": 1e-6, "ns": 1e-9, "B": 1, "MiB": 1 << 20, "GiB": 1 << 30, "": 1}


@pytest.fixture(autouse=True)
def constants(monkeypatch):
    """Replace the constants; return what they were."""
    before = list(CONSTANTS.values())
    for name, (number, unit) in BY_HAND.items():
        monkeypatch.setitem(CONSTANTS, name, float(number * UNITS[unit]))
    return before


def recipe_of(*stages: object, output: str = "parquet", **more: object) -> Recipe:
    source = {"builder": "text", "data_dir": "texts", "id_field": "id"}
    spec = {"longcrawl": 1, "name": "small", "source": source, "stages": list(stages), "outputs": {output: {}}}
    return parse_recipe(spec | more)


def scaled(recipe: Recipe, *figures: tuple[float, ...], **waited: float) -> ScaledUp:
    """Make a plan of documents, seconds and bytes of disk for each row; a document has 1,000 characters."""
    labels = [recipe.source.name, *(label for label, _ in recipe.stages), recipe.output.name]
    rows = [
        PlanRow(label, exact(documents), exact(1000 * documents), exact(seconds), exact(disk))
        for label, (documents, seconds, disk) in zip(labels, figures, strict=True)
    ]
    plan = Plan(recipe.name, "0", "a sample", tuple(rows), None, exact(3e9))
    return ScaledUp(plan, {label: exact(waited.get(label, 0.0)) for label in labels}, 0.0)


def only(estimate: Estimate) -> float:
    assert estimate.low == estimate.value == estimate.high
    return estimate.value


DEDUPLICATED = ("exact_documents", {"min_hash": {"bands": 14, "rows": 8}}, "shuffle")
FIGURES = (
    (1.0 * MILLION, 3600.0, 0.0),
    (0.8 * MILLION, 1800.0, 1e9),
    (0.5 * MILLION, 7200.0, 2e9),
    (0.5 * MILLION, 10.0, 0.0),
    (0.5 * MILLION, 100.0, 2e9),
)


def test_figures_are_those_computed_by_hand():
    recipe = recipe_of(*DEDUPLICATED)
    made = extrapolate(
        scaled(recipe, *FIGURES, exact_documents=600, min_hash=720), recipe, files=1000, cores=100, longest=2.0
    )
    text, same, near, order, parquet, engine = made.rows
    # Ids: a row of 2 µs and 16 bytes for each of a million documents.
    assert (only(text.seconds), only(text.shuffled)) == pytest.approx((3600 + 2, 16e6))
    # 600 of 1,800 seconds were spent for all documents at once, and become a row of 2 µs and 40 bytes each.
    assert (only(same.seconds), only(same.shuffled)) == pytest.approx((1200 + 2, 40e6))
    # 0.8 million documents of 14 bands: 11.2 million rows of 3 µs and 20 bytes. 10 µs for each choice, 100 bytes for
    # each of 0.3 million that leave.
    assert only(near.seconds) == pytest.approx(6480 + 33.6 + 8)
    assert near.shuffled.value == pytest.approx(224e6 + 30e6)
    # Half an edge of 50 ns for each band in one task; at least one for each that leaves, at most one for each band.
    assert near.alone == Estimate(*(pytest.approx(each) for each in (7 * 0.8 * 0.05, 0.3 * 0.05, 14 * 0.8 * 0.05)))
    assert only(order.seconds) == 10
    # Counted, then sorted; each document of 4,000 bytes goes once to the task that writes it.
    assert (only(parquet.seconds), only(parquet.shuffled)) == pytest.approx((100 + 2, 2e9 + 8e6))
    # Two surveys make three segments; four stages shuffle, in partitions of 100 MiB: 1, 1, 3 and 20.
    assert only(engine.seconds) == pytest.approx(0.1 * (1000 * (3 + 4) + 25))
    assert all(only(row.memory) == 2 * 2**30 for row in made.rows)

    spread = 3602 + 1202 + 6521.6 + 10 + 102 + 702.5
    assert made.core_hours.value == pytest.approx((spread + 0.28) / 3600)
    longest = 2 * (spread - 702.5) / 1000
    assert only(made.longest) == pytest.approx(longest)
    assert made.wall_hours.value == pytest.approx((spread / 100 + 0.28 + longest) / 3600)
    assert made.shuffled.value == pytest.approx(16e6 + 40e6 + 254e6 + 2.008e9)
    name, share = made.decides
    assert (name, share) == ("min_hash", pytest.approx(65.216 / (spread / 100 + 0.28 + longest)))
    shown = str(made)
    assert "small over 1,000 files on 100 cores with the engine shared, estimated from a sample;" in shown
    assert "core-hours: 3.4" in shown
    assert (
        "wall: 2.41 min (2.4 min to 2.41 min) = all cores 2.02 min + in one task 0.28 s + the longest part 23 s"
        in shown
    )
    assert "shuffled: 2.32 GB" in shown
    assert "disk at its fullest: 8 GB" in shown
    assert "peak memory of a task: 2.15 GB, every stage" in shown
    assert shown.endswith("decides: min_hash, 45.1 % of the wall hours")


@pytest.mark.parametrize(("engine", "seconds"), [("local", 0.05), ("shared", 0.1), ("spark", 0.2)])
def test_tasks_cost_what_those_of_the_engine_do(engine, seconds):
    recipe = recipe_of("shuffle")
    figures = ((1.0 * MILLION, 3600.0, 0.0), (0.5 * MILLION, 10.0, 0.0), (0.5 * MILLION, 100.0, 2e9))
    made = extrapolate(scaled(recipe, *figures), recipe, files=1000, cores=100, engine=engine)
    assert only(made.rows[-1].seconds) == pytest.approx(seconds * (1000 * (1 + 2) + 1 + 20))


def test_the_union_find_holds_numbers_and_decides_where_cores_are_many():
    recipe = recipe_of(*DEDUPLICATED)
    many = [(documents * 10_000, seconds, disk) for documents, seconds, disk in FIGURES]
    made = extrapolate(scaled(recipe, *many), recipe, files=90_000, cores=90_000)
    assert only(made.rows[2].memory) == 8e9 * 8  # more documents than numbers of 4 bytes count
    assert made.largest.stage == "min_hash"
    assert made.decides[0] == "min_hash, in one task"
    parts = recipe_of(*DEDUPLICATED, parts=100)
    apart = extrapolate(scaled(parts, *many), parts, files=90_000, cores=90_000)
    assert only(apart.rows[2].memory) == 2 * 2**30  # 80 million documents each
    assert apart.rows[2].alone.value == pytest.approx(made.rows[2].alone.value / 100)
    assert apart.rows[2].shuffled == made.rows[2].shuffled
    one = recipe_of("exact_documents", {"min_hash": {"bands": 1, "rows": 128}}, "shuffle")
    assert extrapolate(scaled(one, *FIGURES), one, files=9, cores=9).rows[2].alone.value == pytest.approx(0.4 * 0.05)


def test_passages_are_searched_in_tasks_by_the_text():
    recipe = recipe_of("exact_substring")
    figures = (MILLION, 1000.0, 0.0), (MILLION, 900.0, 1e9), (MILLION, 50.0, 1e9)
    row = extrapolate(scaled(recipe, *figures, exact_substring=300), recipe, files=10, cores=1).rows[1]
    assert (only(row.seconds), only(row.shuffled)) == pytest.approx((600 + 3 * 300, 0.5e9))
    assert only(row.alone) == 0


def test_related_documents_are_ordered_in_tasks_by_their_sketches():
    recipe = recipe_of("related")
    figures = (MILLION, 1000.0, 0.0), (MILLION, 900.0, 1e9), (MILLION, 50.0, 1e9)
    row = extrapolate(scaled(recipe, *figures, related=300), recipe, files=10, cores=1).rows[1]
    assert (only(row.seconds), only(row.shuffled)) == pytest.approx((900 + 2, 316e6))
    assert only(row.alone) == 0


class Mine(Survey):
    """A survey of another package, which holds what nobody knows."""

    name = "mine"

    def sketch(self, table):
        return table

    def resolve(self, sketches):
        return sketches


def test_what_is_not_known_to_exchange_stays_in_one_task():
    recipe = recipe_of("shuffle")
    recipe = replace(recipe, stages=(("mine", Mine()),))
    figures = (MILLION, 1000.0, 0.0), (MILLION, 900.0, 1e9), (MILLION, 50.0, 1e9)
    made = extrapolate(scaled(recipe, *figures, mine=300), recipe, files=10, cores=10)
    assert (only(made.rows[1].seconds), only(made.rows[1].alone), only(made.rows[1].memory)) == (600, 300, inf)
    assert "peak memory of a task: ?, mine" in str(made)
    assert made.decides[0] == "mine, in one task"
    learned = recipe_of({"tokenize": {"tokenizer": "trained"}})
    made = extrapolate(scaled(learned, *figures, tokenize=300), learned, files=10, cores=10)
    assert (only(made.rows[1].seconds), only(made.rows[1].alone)) == (600, 300)
    assert made.rows[1].memory == made.rows[0].memory


def test_buckets_are_laid_out_by_one_task():
    recipe = recipe_of("tokenize", "shuffle", output="composed")
    figures = [(1000.0 * MILLION, 1000.0, 0.0)] * 4
    assert only(extrapolate(scaled(recipe, *figures), recipe, files=10, cores=10).rows[3].memory) == 100e9


@pytest.mark.parametrize("bands", [1, 14, 450])
def test_ends_of_intervals_are_in_order(bands):
    recipe = recipe_of("exact_documents", {"min_hash": {"bands": bands, "rows": 8}})
    made = scaled(recipe, (MILLION, 1.0, 0.0), (MILLION, 60.0, 0.0), (MILLION / 2, 60.0, 0.0), (MILLION / 2, 1.0, 0.0))
    # Most of the time was waited for, and the upper end of that is further from its value.
    waited = {label: Estimate(50.0, 30.0, 120.0) for label in made.waited}
    plan = extrapolate(made._replace(waited=waited), recipe, files=1000, cores=100)
    for row in plan.rows:
        for each in (row.seconds, row.alone, row.shuffled, row.memory, *filter(None, [row.documents])):
            assert each.low <= each.value <= each.high, row
    for each in (plan.core_hours, plan.wall_hours, plan.spread, plan.shuffled):
        assert each.low <= each.value <= each.high


def test_cores_without_a_file_do_not_count():
    recipe = recipe_of(source={"builder": "text", "data_dir": "texts"})  # whose ids are unique
    made = extrapolate(scaled(recipe, (MILLION, 1000.0, 0.0), (MILLION, 0.0, 0.0)), recipe, files=10, cores=40)
    assert made.busy == 10
    # One segment of 10 tasks of 0.1 s; the longest file is as long as the mean, 100 s.
    assert only(made.wall_hours) == pytest.approx((1001 / 10 + 100) / 3600)
    assert "30 of 40 cores have nothing to read: use 10 cores or fewer" in str(made)
    assert made.shuffled == exact(0.0)


def test_more_files_have_more_of_what_the_sample_has(recipe):
    plan = lc.plan(recipe, documents=160)
    same = lc.plan_cluster(recipe, documents=160, cores=2)
    assert (same.files, same.sample) == (4, "160 documents of 4 parts")
    assert [row.documents for row in same.rows[:-1]] == [row.documents for row in plan.rows]
    assert only(same.rows[1].documents) == plan.rows[1].documents.value
    assert only(same.read) == sum(file.stat().st_size for file in Path("texts").iterdir())
    assert (same.input_files, same.segments) == (4, 3)
    more = lc.plan_cluster(recipe, documents=160, files=4000, cores=2)
    for few, many in zip(same.rows[:3], more.rows[:3], strict=True):
        assert many.documents.value == pytest.approx(1000 * few.documents.value)
        assert many.documents.low <= many.documents.value <= many.documents.high
    assert more.rows[0].documents.low < 160_000 < more.rows[0].documents.high  # four files do not tell of all others
    # Of more files more may be copies, and what remains is no more than the share of the sample.
    assert more.rows[2].documents.low < 1000 * same.rows[2].documents.low
    assert more.rows[2].shuffled.value == pytest.approx(1000 * same.rows[2].shuffled.value)
    assert more.written.value > 100 * same.written.value
    assert (more.read.value, more.input_files) == (pytest.approx(1000 * same.read.value), 4000)
    assert more.requests == 1000 * same.requests == 4000 * 3 * CONSTANTS["file_requests"]
    assert 1 < more.longest.value / (sum(row.seconds.value for row in more.rows[:-1]) / 4000) < 1.5
    assert more.rows[3].alone.value > 0  # a tokenizer is trained on all documents


def test_the_command_line_has_files_and_cores(recipe):
    command = ["plan", recipe, "--documents", "80", "--files", "90000", "--cores", "4096"]
    shown = CliRunner().invoke(app, command, catch_exceptions=False).output
    assert (
        "planned over 90,000 files on 4,096 cores with the engine shared, estimated from 80 documents of 4 files"
        in shown
    )
    for said in ("input: ", "core-hours: ", "wall: ", "shuffled: ", "peak memory of a task: ", "output: ", "decides: "):
        assert f"\n{said}" in shown
    assert "memory of a task" in shown.splitlines()[0]


def test_input_that_lists_no_files_has_its_bytes_alone():
    rows = ClusterRow("installed", exact(9.0), exact(1.0)), ClusterRow("engine", None, exact(1.0))
    one = exact(2e6)
    made = ClusterPlan("it", "9 documents", 3, 2, "shared", rows, one, one, one, read=one, tasks=3)
    assert "\ninput: 2 MB\n" in str(made)
    assert "\ninput: 2 MB in 3 files\n" in str(replace(made, input_files=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--files", "9"], "--files is for cluster estimates: add --cores, such as --cores 4096"),
        (["--cores", "9", "--save", "p.json"], "--save cannot be combined with a cluster estimate"),
        (["--engine", "spark"], "--engine spark is for cluster estimates: add --cores"),
        (["--cores", "0"], "--files and --cores must be 1 or more, got --cores 0"),
        (["--cores", "9", "--files", "-3"], "--files and --cores must be 1 or more, got --files -3 and --cores 9"),
        (["--cores", "9", "--files", "3"], "--files 3 is less than the 4 files that were sampled: sample fewer"),
    ],
)
def test_bad_values_are_one_sentence(recipe, options, message):
    asked = CliRunner().invoke(app, ["plan", recipe, *options])
    assert isinstance(asked.exception, RunError)
    assert str(asked.exception).startswith(message)


def test_one_file_does_not_tell_of_others(recipe):
    only_one = ["source.data_dir=null", "source.data_files=texts/0.jsonl"]
    with pytest.raises(RunError, match=r"--files 9 needs a sample of 2 files, but the source has 1: add more files"):
        lc.plan_cluster(recipe, files=9, cores=1, overrides=only_one)
    assert lc.plan_cluster(recipe, files=1, cores=1, overrides=only_one).files == 1


def test_a_sample_that_is_empty_after_a_stage_says_so(recipe):
    made = lc.plan_cluster(recipe, files=100, cores=2, documents=40, overrides=["stages.min_chars.n=100000"])
    assert [row.stage for row in made.rows] == ["text", "min_chars", "engine"]
    assert "no document of the sample remains after 'min_chars', so later stages are missing" in str(made)


def test_the_documentation_has_the_constants(constants):
    text = (
        (ROOT / "docs" / "plan.md").read_text("utf-8").partition("| what | takes | source |\n")[2].partition("\n\n")[0]
    )
    takes = [row.split(" | ")[1].partition(" ") for row in text.splitlines()[1:]]
    assert [float(number) * UNITS[unit] for number, _, unit in takes] == pytest.approx(constants)
