"""A part that was interrupted goes on after its checkpoints, with the same bytes."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import longcrawl as lc
from longcrawl.run import checkpoints, part

GROUPS = 12
STAGES = ["personal_data", {"min_chars": {"n": 100}}, "exact_documents", {"min_words": {"n": 20}}]


def write(folder, seed=0):
    chance = random.Random(seed)
    texts = [" ".join(chance.choices("abcdefgh", k=chance.choice([30, 90]))) for _ in range(10 * GROUPS)]
    texts[7] = texts[107] = "the same text, of somebody@example.org, in two row groups " * 3
    rows = [{"id": f"{row}", "text": text} for row, text in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "texts.parquet", row_group_size=10)


@pytest.fixture
def recipe(tmp_path):
    write(tmp_path)
    return write_recipe(tmp_path)


def write_recipe(folder, shortest=100):
    source = {"builder": "text", "data_files": str(folder / "texts.parquet"), "id_field": "id"}
    stages = [STAGES[0], {"min_chars": {"n": shortest}}, *STAGES[2:]]
    spec = {"longcrawl": 1, "name": "long", "source": source, "stages": stages, "outputs": {"parquet": {}}}
    file = folder / f"{shortest}.yaml"
    file.write_text(yaml.safe_dump(spec), "utf-8")
    return file


@pytest.fixture
def often(monkeypatch):
    """Have each table but the first saved at once."""
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)


@pytest.fixture
def interrupted(monkeypatch):
    """Return a function that runs a recipe up to the nth table, and one that counts the tables of another run."""
    run_stages, calls = part.run_fused, [0, 0]

    def stop_or_run(*given):
        calls[0] += 1
        if calls[0] == calls[1]:
            raise KeyboardInterrupt
        return run_stages(*given)

    monkeypatch.setattr(part, "run_fused", stop_or_run)

    def run_up_to(recipe, out, table):
        calls[:] = 0, table
        with pytest.raises(KeyboardInterrupt):
            lc.run(recipe, out)

    def tables_of(recipe, out):
        calls[:] = 0, -1
        lc.run(recipe, out)
        return calls[0]

    return run_up_to, tables_of


@pytest.mark.variants
@pytest.mark.parametrize("table", [GROUPS + 6, 1, 2, 9, GROUPS + 1])
def test_an_interrupted_part_goes_on_after_its_checkpoints(
    recipe, tmp_path, often, interrupted, table, directory_digest
):
    run_up_to, tables_of = interrupted
    assert tables_of(recipe, tmp_path / "run") == 2 * GROUPS
    run_up_to(recipe, tmp_path / "stopped", table)
    again = tables_of(recipe, tmp_path / "stopped")
    assert again == 2 * GROUPS - table + 1 + (table % GROUPS != 1)  # its first table is in no checkpoint
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")
    assert list((tmp_path / "run").glob("edits/*"))


def test_a_short_part_writes_no_checkpoint(recipe, tmp_path, interrupted):
    interrupted[0](recipe, tmp_path / "run", 9)
    assert not (tmp_path / "run" / "work" / checkpoints.CHECKPOINTS).exists()


def test_checkpoints_are_removed_with_their_part(recipe, tmp_path, often, interrupted):
    run_up_to, _ = interrupted
    run_up_to(recipe, tmp_path / "run", GROUPS + 6)
    assert [each.name for each in (tmp_path / "run" / "work" / checkpoints.CHECKPOINTS).iterdir()] == ["1-00000"]


@pytest.mark.slow
def test_tables_of_an_input_that_was_changed_are_made_again(recipe, tmp_path, often, interrupted, directory_digest):
    run_up_to, tables_of = interrupted
    run_up_to(recipe, tmp_path / "stopped", 9)
    write(tmp_path, seed=1)
    assert tables_of(recipe, tmp_path / "stopped") == tables_of(recipe, tmp_path / "run") == 2 * GROUPS
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_made_again(recipe, tmp_path, often, interrupted, directory_digest):
    run_up_to, tables_of = interrupted
    tables_of(recipe, tmp_path / "run")
    run_up_to(recipe, tmp_path / "stopped", 9)
    files = list((tmp_path / "stopped" / "work").rglob("*.arrows"))
    assert len(files) == 7
    files[3].write_bytes(files[3].read_bytes()[:-9] + b"12345 789")
    files[4].unlink()
    assert tables_of(recipe, tmp_path / "stopped") == 2 * GROUPS - 9 + 2 + 2
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")


@pytest.mark.slow
def test_another_recipe_takes_no_checkpoint(recipe, tmp_path, often, interrupted, directory_digest):
    run_up_to, tables_of = interrupted
    other = write_recipe(tmp_path, 50)
    tables_of(other, tmp_path / "run")
    run_up_to(recipe, tmp_path / "stopped", 9)
    for name in ("recipe.yaml", "edits"):
        lc.io.files.remove(tmp_path / "stopped" / name)
    assert tables_of(other, tmp_path / "stopped") == 2 * GROUPS
    assert directory_digest(tmp_path / "run") == directory_digest(tmp_path / "stopped")
