"""Files that docs/cluster.md sends to a cluster: the Slurm script, and the parts of the Dockerfile that run here."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer
import yaml

from longcrawl.cli.commands import app

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "slurm.sbatch"
DOCKERFILE = ROOT / "Dockerfile"
SRUN = """#!/bin/bash
# Two tasks of a job step: the command behind the options, twice at once.
while [[ $1 == -* ]]; do echo "option $1"; shift; done
"$@" > first & one=$!
"$@" > second & other=$!
wait $one && wait $other
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with documents, a recipe, and a command ``srun``."""
    for number in range(3):
        rows = [{"id": f"{number}-{row}", "text": f"some words {row % 7} of it " * 9} for row in range(20)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"builder": "text", "id_field": "id", "data_files": "*.jsonl"}
    stages = ["exact_documents", {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}]
    spec = {"longcrawl": 1, "name": "it", "source": source, "stages": stages, "outputs": {"datatrove": {}}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "srun").chmod(0o755)
    return tmp_path


def submit(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"SLURM_JOB_ID": "7"} | variables | {"LONGCRAWL_VENV": str(Path(sys.executable).parent.parent)}
    script = shutil.copy(SCRIPT, folder / "bin" / "slurm_script")  # as slurmd does
    command = ["bash", script, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_batch_script_runs_a_recipe_by_two_processes(folder, longcrawl, monkeypatch):
    done = submit(folder, "recipe.yaml", "run", "--set", "stages.tokenize.vocabulary_size=280")
    assert done.returncode == 0, done.stderr[-2000:]
    assert all("it is done in" in (folder / name).read_text() for name in ("first", "second"))
    monkeypatch.chdir(folder)
    assert (
        longcrawl("run", "recipe.yaml", "--out", "alone", "--set", "stages.tokenize.vocabulary_size=280").returncode
        == 0
    )
    assert (folder / "run" / "manifest.json").read_bytes() == (folder / "alone" / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("statuses", "limit", "finished", "exits", "queued"),
    [
        ("130 137", "reached", False, 137, "requeue 7\n"),  # a killed process does not hide those that were stopped
        ("137 0", "", False, 137, None),
        ("137 0", "", True, 0, None),
        pytest.param("0 130", "reached", False, 130, "requeue 7\n", marks=pytest.mark.slow),
        pytest.param("253 130", "reached", False, 253, "requeue 7\n", marks=pytest.mark.slow),  # Slurm's out of memory
        pytest.param("0 137", "reached", True, 0, None, marks=pytest.mark.slow),
        pytest.param("130 130", "", False, 130, None, marks=pytest.mark.slow),  # stopped by the user
        pytest.param("1 1", "reached", False, 1, None, marks=pytest.mark.slow),
        pytest.param("1 1", "", True, 1, None, marks=pytest.mark.slow),
        pytest.param("0 0", "", True, 0, None, marks=pytest.mark.slow),
    ],
)
def test_only_a_time_limit_queues_a_job_again(folder, statuses, limit, finished, exits, queued):
    commands = {
        "srun": """#!/bin/bash
# Two tasks, which end by scancel if the limit is reached, and the highest of their statuses.
if [ -n "$LIMIT" ]; then
    kill -USR1 $PPID
    until [ -e stopped ]; do sleep 0.02; done
fi
exit "$(printf '%s\\n' $STATUSES | sort -n | tail -1)"
""",
        "scancel": '#!/bin/bash\necho "$@" > stopped\n',
        "scontrol": '#!/bin/bash\necho "$@" >> queued\n',
    }
    for name, text in commands.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    if finished:
        (folder / "run").mkdir()
        (folder / "run" / "manifest.json").write_text("{}")
    done = submit(folder, "recipe.yaml", "run", STATUSES=statuses, LIMIT=limit)
    assert done.returncode == exits
    assert ("more memory" in done.stderr) is (exits > 130 and not queued)
    assert (folder / "queued").exists() is (queued is not None)
    if queued:
        assert (folder / "queued").read_text() == queued
        assert (folder / "stopped").read_text() == "--signal=INT 7\n"
        array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
        submit(folder, "recipe.yaml", "run", STATUSES=statuses, LIMIT=limit, **array)
        assert (folder / "queued").read_text() == f"{queued}requeue 7_3\n"  # not all jobs of the array


def test_the_batch_script_says_what_it_takes(folder):
    done = submit(folder, "recipe.yaml")
    assert (done.returncode, done.stderr) == (
        2,
        "usage: sbatch examples/slurm.sbatch RECIPE OUT [other options of longcrawl run]\n",
    )


def test_slurm_reads_the_options_of_the_batch_script():
    lines = SCRIPT.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    commands = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH ")]
    assert options
    assert max(options) < commands  # sbatch reads none behind the first command
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", lines[number]) for number in options)


def test_commands_for_clusters_have_options_that_there_are():
    """The page writes no option that longcrawl has not; Slurm's and Spark's are not known here."""
    command = typer.main.get_command(app)
    text = (ROOT / "docs" / "cluster.md").read_text().replace("\\\n", "")
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).splitlines()
    found = [re.search(r"(?:longcrawl|submit\.py) (run|plan) (.*)", line.partition("  #")[0]) for line in lines]
    named = {(each[1], option) for each in found if each for option in re.findall(r"--[a-z-]+", each[2])}
    assert ("run", "--engine") in named
    for verb, option in named:
        assert any(option in each.opts for each in command.commands[verb].params), (verb, option)


def test_the_image_starts_runs_as_the_page_says():
    (made,) = re.findall(r"printf '(.*)' > /opt/bin/submit.py", DOCKERFILE.read_text())
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert f"printf '{made}' > submit.py" in page
    assert "local:///opt/bin/submit.py run" in page


def test_the_image_installs_what_there_is():
    text = DOCKERFILE.read_text().replace("\\\n", "")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (named,) = re.findall(r'pip install .*"/tmp/longcrawl\[([\w,]+)\]"', text)
    assert set(named.split(",")) == {"spark", "warc", "language", "s3", "gcs"} <= set(extras)
    (version,) = re.findall(r"^ARG SPARK=(\d+\.\d+)\.\d+$", text, re.MULTILINE)
    assert tuple(map(int, version.split("."))) >= (4, 1)
    assert "pyspark>=4.1" in extras["spark"][0]
    assert re.search(r"^pyspark==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_the_image_has_kernels_for_any_user():
    text = DOCKERFILE.read_text().replace("\\\n", "")
    (steps,) = re.findall(r"^RUN (mkdir .*longcrawl warm .*)$", text, re.MULTILINE)
    folders = dict(re.findall(r"(NUMBA_CACHE_DIR|XDG_CACHE_HOME)=(\S+)", text))
    assert f"chmod -R a+rwX {folders['NUMBA_CACHE_DIR']} {folders['XDG_CACHE_HOME']} " in steps
    assert text.index(steps) < text.index("\nUSER spark")


def test_the_image_has_what_a_wheel_is_built_from():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in kept)
    (built,) = re.findall(r"^ +cp -r (.*) \"\$work/source\"$", (ROOT / ".ci" / "wheel").read_text(), re.MULTILINE)
    assert set(kept) == {*built.split(), "constraints.txt"}
    assert not any(fnmatch(name, "*__pycache__*") for name in kept)
