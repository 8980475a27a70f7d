"""Sessions of Spark that a user may have: executors of little memory, and Spark Connect."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

import longcrawl as lc
from longcrawl.core.exchange import cut, key_ranges
from longcrawl.run.engines import Exchange, Local, Spark

cloudpickle = pytest.importorskip("pyspark", reason="PySpark is missing: pip install -e '.[spark]'").cloudpickle
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is missing: apt install openjdk-17-jre-headless"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file

ROWS, TASKS, WORDS = 5_000_000, 2, 8
PARTITIONS = 256
"""Up to 200 partitions Spark keeps a file open for each and sorts nothing."""


@pytest.fixture
def small_executors() -> Iterator[Spark]:
    """Two executors of 512 MB, of which a shuffle gets about 130."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.executor.memory", "512m")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield Spark(session)
    session.stop()


def make(task: int):
    """Yield 2,500,000 rows of 64 bytes: more than an executor has for a shuffle."""
    words = np.random.default_rng(task).integers(0, 1 << 64, (WORDS, ROWS // TASKS), np.uint64)
    rows = pa.table(list(words), names=[f"word_{word}" for word in range(WORDS)])
    yield from cut(rows, key_ranges(words[0], PARTITIONS))


def take(_: int, tables: Iterator[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).sort_by("word_0").combine_chunks()


@pytest.mark.slow
def test_executors_of_512_mb_spill_what_they_sort(small_executors, tmp_path):
    """Five million rows, 320 MB, to the files of processes of one machine."""
    steps = [Exchange(make, take, PARTITIONS, tmp_path / name) for name in ("local", "spark")]
    for engine, step in zip((Local(2), small_executors), steps, strict=True):
        engine.exchange(step, range(TASKS))
    assert sum(map(steps[0].rows, range(PARTITIONS))) == ROWS
    for number in range(PARTITIONS):
        files = [(tmp_path / name / f"{number:05d}.arrow").read_bytes() for name in ("local", "spark")]
        assert files[0] == files[1]
    stages = small_executors.session.sparkContext._jsc.sc().statusStore()
    assert stages.lastStageAttempt(0).memoryBytesSpilled() > 50 << 20


CONNECT = """
import os, sys

os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"
from pyspark.sql import SparkSession
import longcrawl as lc
from longcrawl.run import inputs

if __name__ == "__main__":
    inputs.HELD, inputs.TASK = 0, 1
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(session).__module__ == "pyspark.sql.connect.session"
    lc.run(sys.argv[1], sys.argv[2], engine=lc.engines.Spark(session))
    session.stop()
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("grpc_status") is None,
    reason="Spark Connect is missing: pip install 'pyspark[connect]'",
)
def test_a_session_of_spark_connect_makes_the_same_files(tmp_path, directory_digest):
    (tmp_path / "input").mkdir()
    for number in range(3):
        words = [[f"word{(row * place + number * (row % 3)) % 40}" for place in range(1, 30)] for row in range(30)]
        lines = [json.dumps({"id": f"{number}-{row}", "text": " ".join(each)}) + "\n" for row, each in enumerate(words)]
        (tmp_path / "input" / f"{number}.jsonl").write_text("".join(lines))
    near = {"min_hash": {"bands": 8, "rows": 2, "ngram": 2, "unit": "word"}}
    trained = {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300, "train_documents": 20}}
    spec = {
        "longcrawl": 1,
        "name": "connect",
        "source": {"builder": "text", "id_field": "id", "data_dir": str(tmp_path / "input")},
        "stages": ["exact_documents", near, trained, "shuffle"],
        "outputs": {"datatrove": {}},
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(spec))
    lc.run(recipe, tmp_path / "whole")
    (tmp_path / "run.py").write_text(CONNECT)
    words = [sys.executable, str(tmp_path / "run.py"), str(recipe), str(tmp_path / "out")]
    subprocess.run(words, check=True, cwd=Path.cwd())
    assert directory_digest(tmp_path / "out") == directory_digest(tmp_path / "whole")
