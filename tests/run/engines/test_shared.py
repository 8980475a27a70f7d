"""Runs by several processes that share a folder, some of them killed; and the locks that they take."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from longcrawl.errors import RunError
from longcrawl.run.engines import Local, Shared, hold
from longcrawl.run.engines.hold import Heartbeat, Watched
from longcrawl.run.engines.shared import _Step

FILES, ROWS = 6, 20
MARKED = '''
import os, time, uuid
from pathlib import Path
from longcrawl.core.stages import Judge, stage

@stage
class Marked(Judge):
    """Keep all documents, and leave a file when a batch begins and when it ends; the first batch of one waits."""
    def checks(self, table):
        names, folder = table["id"].to_pylist(), Path(os.environ["MARKS"])
        if names:
            first = not list(folder.glob(f"began {names[0]} *"))
            (folder / f"began {names[0]} {os.readlink('/proc/self/ns/pid')} {os.getpid()} {uuid.uuid4()}").touch()
            while os.environ["WAITS"] in (names[0], "all") and first and not (folder / "go on").exists():
                time.sleep(0.01)
            while os.environ["WAITS"] == "for another" and len({one.name.split()[2] for one in folder.iterdir()}) < 2:
                time.sleep(0.01)
            time.sleep(0.05)
            (folder / f"ended {names[0]} {os.readlink('/proc/self/ns/pid')} {uuid.uuid4()}").touch()
        return []
'''

COMMAND = """
import sys
import limits
import longcrawl as lc
lc.run(sys.argv[1], sys.argv[2], engine=lc.engines.Shared(beat=0.2, stale=2))
"""

ALONE = """
import os, sys
import longcrawl as lc
recipe, out, package, marks = sys.argv[1:]
sys.path.append(package)
os.environ |= {"MARKS": marks, "WAITS": ""}
lc.run(recipe, out)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, set_limits: str) -> Path:
    """Return a folder with documents and a package of a stage that marks what it does."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "limits.py").write_text(set_limits)
    (folder / "marking.py").write_text(MARKED)
    for number in range(FILES):
        rows = [{"id": f"{number}-{row}", "text": f"some words {(row * number) % 7} of it " * 9} for row in range(ROWS)]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_recipe(folder: Path) -> Path:
    """Write a recipe; where marks go, and which task waits, is no part of it: the digest is always the same."""
    source = {"builder": "text", "id_field": "id", "data_files": [str(folder / f"{n}.jsonl") for n in range(FILES)]}
    stages = ["marking:Marked", "exact_documents", {"tokenize": {"tokenizer": "trained", "vocabulary_size": 300}}]
    spec = {"longcrawl": 1, "name": "it", "source": source, "stages": stages, "outputs": {"datatrove": {}}}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


class Machines:
    """Processes that each are alone in a name space of process ids, as on machines of their own."""

    def __init__(self, folder: Path, out: Path, marks: Path) -> None:
        marks.mkdir()
        self.out, self.marks, self.folder = out, marks, folder
        self.environment = os.environ | {"PYTHONPATH": str(folder), "MARKS": str(marks), "WAITS": ""}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, count: int, waits: str = "") -> None:
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", COMMAND]
        for _ in range(count):
            words_here = [*words, str(self.folder / "recipe.yaml"), str(self.out)]
            pipe = subprocess.PIPE
            environment = self.environment | {"WAITS": waits}
            self.running.append(subprocess.Popen(words_here, env=environment, stderr=pipe, text=True))

    def find(self, kind: str, name: str = "*") -> list[Path]:
        return list(self.marks.glob(f"{kind} {name} *"))

    def was_redone(self, name: str) -> bool:
        """Return whether a task was begun once more than it ended; a busy machine may do it twice at the same time."""
        ended = len(self.find("ended", name))
        return ended > 0 and len(self.find("began", name)) == ended + 1

    def kill(self, space: str) -> None:
        """Kill the machine of a name space, with all that runs on it."""
        for machine in list(self.running):
            children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()
            if space in [str(Path(f"/proc/{child}/ns/pid").readlink()) for child in children]:
                machine.kill()
                self.running.remove(machine)

    def signal(self, name: int) -> None:
        """Send a signal to all processes of the first machine."""
        for process in descendants(self.running[0].pid):
            os.kill(process, name)

    def end(self) -> list[str]:
        """Wait for all; return what they wrote last on stderr."""
        said = [machine.communicate(timeout=120)[1] for machine in self.running]
        return ["" if not machine.returncode else text for machine, text in zip(self.running, said, strict=True)]


@pytest.fixture(scope="module")
def whole(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, python: Callable[..., subprocess.CompletedProcess[str]]
) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    (folder / "alone").mkdir()
    words = (write_recipe(folder), out, folder, folder / "alone")
    assert python(ALONE, *words).returncode == 0
    return out


def descendants(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


spaces = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode != 0,
    reason="name spaces of process ids need rights that this user does not have",
)


@spaces
@pytest.mark.slow
def test_three_machines_give_the_files_of_one(folder, whole, tmp_path, directory_digest):
    machines = Machines(folder, tmp_path / "out", tmp_path / "marks")
    machines.start(3)
    assert machines.end() == ["", "", ""]
    assert directory_digest(tmp_path / "out") == directory_digest(whole)
    assert len({mark.name.split()[2] for mark in machines.find("began")}) > 1


@pytest.mark.slow
@spaces
def test_a_machine_that_is_gone_loses_the_lead(folder, whole, tmp_path, directory_digest):
    machines = Machines(folder, tmp_path / "out", tmp_path / "marks")
    machines.start(1, "3-0")
    wait_until(lambda: machines.find("began", "3-0"))
    machines.start(2)
    machines.kill(machines.find("began", "3-0")[0].name.split()[2])
    assert machines.end() == ["", ""]
    assert directory_digest(tmp_path / "out") == directory_digest(whole)
    assert machines.was_redone("3-0")


@spaces
@pytest.mark.slow
def test_a_machine_that_is_gone_loses_its_task(folder, whole, tmp_path, directory_digest):
    machines = Machines(folder, tmp_path / "out", tmp_path / "marks")
    machines.start(1, "for another")
    wait_until((tmp_path / "out" / "work" / "lock").exists)
    leads = hold.read_owner(tmp_path / "out" / "work" / "lock")["namespace"]
    machines.start(1, "all")
    wait_until(lambda: any(mark.name.split()[2] != leads for mark in machines.find("began")))
    (lost,) = (mark.name.split() for mark in machines.find("began") if mark.name.split()[2] != leads)
    machines.kill(lost[2])
    assert machines.end() == [""]
    assert directory_digest(tmp_path / "out") == directory_digest(whole)
    assert machines.was_redone(lost[1])


@spaces
@pytest.mark.slow
def test_a_machine_that_stood_still_for_long_finds_another_in_the_lead(folder, whole, tmp_path, directory_digest):
    machines = Machines(folder, tmp_path / "out", tmp_path / "marks")
    machines.start(1, "3-0")
    wait_until(lambda: machines.find("began", "3-0"))
    machines.signal(signal.SIGSTOP)
    machines.start(1)
    stopped = machines.running.pop(0)
    assert machines.end() == [""]
    assert directory_digest(tmp_path / "out") == directory_digest(whole)
    machines.running = [stopped]
    (tmp_path / "marks" / "go on").touch()
    machines.signal(signal.SIGCONT)
    _, said = stopped.communicate(timeout=120)
    assert stopped.returncode == 0
    assert "another process leads this run now, as this one showed no progress; this one helps" in said
    write_again = Machines(folder, tmp_path / "out", tmp_path / "other")
    write_again.start(1)
    assert write_again.end() == [""]
    assert directory_digest(tmp_path / "out") == directory_digest(whole)


@pytest.mark.slow
def test_an_error_of_one_process_ends_all(folder, tmp_path):
    work = tmp_path / "out" / "work"
    work.mkdir(parents=True)
    ready, others = multiprocessing.get_context("fork"), []
    answers = ready.Queue()

    def follow() -> None:
        try:
            with Shared().hold(work, lambda: False):
                answers.put("leads")
        except RunError as ended:
            answers.put(str(ended))

    with suppress(RunError), Shared().hold(work, lambda: False):
        others = [ready.Process(target=follow) for _ in range(2)]
        for other in others:
            other.start()
        time.sleep(0.5)
        raise RunError("no room")
    assert [answers.get(timeout=20) for _ in others] == ["the process that led this run has ended: no room"] * 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_results_of_another_user_are_not_read(tmp_path):
    step = _Step.post(tmp_path / "step", abs, [-1])
    step.do(0)
    assert step.result(0) == 1
    os.chown(step.file(0, "result"), 65_534, -1)
    with pytest.raises(RunError, match="00000.result belongs to another user and is not read"):
        step.result(0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_tasks_of_another_user_are_not_run(tmp_path):
    _Step.post(tmp_path / "step", abs, [-1])
    os.chown(tmp_path / "step" / "tasks.pickle", 65_534, -1)
    with pytest.raises(RunError, match="tasks.pickle belongs to another user, so its tasks are not run"):
        _Step.open(tmp_path / "step")


@pytest.mark.slow
def test_a_task_whose_process_is_killed_each_time_is_given_up(tmp_path):
    step = _Step.post(tmp_path / "step", os._exit, [9])
    for _ in range(3):
        killed = multiprocessing.get_context("fork").Process(target=step.do, args=(0,))
        killed.start()
        killed.join()
        assert killed.exitcode == 9
    step.do(0)
    with pytest.raises(RunError, match="^a task was started 3 times, and its process ended or hung each time: it may"):
        step.result(0)


def test_a_run_goes_on_where_another_machine_was_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(hold, "STALE", 0.5)
    (tmp_path / "lock").write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    with (
        pytest.warns(UserWarning, match="is locked by elsewhere: waiting up to 0 s"),
        Local().hold(tmp_path, lambda: False) as it,
    ):
        assert it


def test_a_run_of_another_machine_that_lives_is_left_alone(tmp_path):
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"owner": "x", "host": "elsewhere", "process": 1}))
    threading.Timer(0.5, os.utime, [lock]).start()
    with pytest.warns(match="elsewhere"), pytest.raises(RunError, match="is working in .*, process 1 on elsewhere"):
        Local().hold(tmp_path, lambda: False).__enter__()


def test_a_step_that_was_changed_is_not_run(tmp_path):
    _Step.post(tmp_path / "step", abs, [-1])
    (tmp_path / "step" / "tasks.pickle").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(FileNotFoundError):
        _Step.open(tmp_path / "step")


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # as a disk that does not answer


def compute() -> None:
    while True:
        pass


def wait_for_others(heartbeat: Heartbeat) -> None:
    while True:
        heartbeat.progress()
        time.sleep(0.1)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("proves", "act", "kept"),
    [
        ("progress", lambda _: stop(), False),
        ("progress", lambda _: threading.Lock().acquire() and threading.Event().wait(), False),
        ("progress", lambda _: compute(), True),
        ("progress", wait_for_others, True),
        ("life", lambda _: stop(), True),
    ],
    ids=["stopped", "deadlock", "computes", "waits for others", "life is enough"],
)
def test_a_process_that_hangs_loses_its_lease(tmp_path, proves, act, kept):
    def hold() -> None:
        heartbeat = Heartbeat(beat=0.05, proves=proves)
        heartbeat.take(tmp_path / "lock")
        act(heartbeat)

    owner = multiprocessing.get_context("fork").Process(target=hold)
    owner.start()
    wait_until((tmp_path / "lock").exists)
    watched, end = Watched(tmp_path / "lock", stale=0.6), time.monotonic() + 1.5
    while time.monotonic() < end and watched.taken_from is None:
        watched.remove_if_stale()
        time.sleep(0.02)
    assert (watched.taken_from is None) is kept
    assert (tmp_path / "lock").exists() is kept
    owner.kill()
    owner.join()


@pytest.mark.slow
def test_a_process_that_hangs_is_replaced_and_named(folder, whole, tmp_path, directory_digest):
    (tmp_path / "marks").mkdir()
    environment = os.environ | {"PYTHONPATH": str(folder), "MARKS": str(tmp_path / "marks"), "WAITS": "3-0"}
    words = [sys.executable, "-c", COMMAND, str(write_recipe(folder)), str(tmp_path / "out")]
    hangs = subprocess.Popen(words, env=environment)
    wait_until(lambda: list((tmp_path / "marks").glob("began 3-0 *")))
    hangs.send_signal(signal.SIGSTOP)
    other = subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, timeout=120, check=True)
    hangs.kill()
    hangs.wait()
    assert f"process {hangs.pid} on " in other.stderr
    assert "which leads the run, has shown no progress for 2 s: another process takes over" in other.stderr
    assert directory_digest(tmp_path / "out") == directory_digest(whole)


@pytest.mark.slow
def test_a_lease_is_kept_while_its_owner_computes_and_goes_with_it(tmp_path):
    context = multiprocessing.get_context("fork")

    def hold() -> None:
        heartbeat = Heartbeat(beat=0.05)
        heartbeat.take(tmp_path / "lock")
        os.kill(os.getpid(), signal.SIGSTOP)  # as a kernel that holds the interpreter

    owner = context.Process(target=hold)
    owner.start()
    wait_until((tmp_path / "lock").exists)
    watched = Watched(tmp_path / "lock", stale=0.5)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        watched.remove_if_stale()
        assert (tmp_path / "lock").exists()
        time.sleep(0.02)
    owner.kill()
    owner.join()
    wait_until(lambda: not (tmp_path / "lock").exists(), 5)
