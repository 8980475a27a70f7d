"""Let storage fail under a run: full, read-only, with files that change, with links, under several runs at once.

    python benchmarks/faults/storage.py --n 60 [--seed 1] [--minutes 10] [FAULT ...]

Each trial runs the recipe ``datatrove`` over small texts. It is survived if the run ends in one sentence or with the
bytes of an undisturbed run, if the same command then finishes with those bytes where storage works again, and if
nothing outside of the run's folder is touched. Inputs that change have to stop the run, unless its result is that of
either state. Full and read-only disks are file systems in memory in a mount namespace of their own; where the system
does not allow these, their trials are counted as n/a. The last line is trials survived / trials tried.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from _campaign import SCRATCH, Campaign, Outcome, Target, Trial, arguments, warm_up
from _forked_run import DONE, SENTENCE, ForkedRun, RunSpec, import_modules, imported_modules
from _inputs import digest_of, documents, json_lines, read_files
from _mounts import SmallDisk, own_namespace
from _outcome import judge_sentence
from _recipes import make_inputs, settings_of
from _stopping import on_change

from longcrawl.errors import LongCrawlError, RunError

RECIPE = "datatrove"
SHARED = SCRATCH / "shared"
PATIENCE = 90.0
OPERATIONS = 40
"""A run of these inputs changes files about so often."""


class Fault(Target):
    """One kind of fault under the recipe; inputs and the undisturbed run are shared by all kinds."""

    seconds = 300.0

    def make(self, folder: Path) -> None:  # noqa: ARG002  # all kinds share what they start from
        """Write inputs and run the recipe once, if no other kind has."""
        from longcrawl.run.job import run

        if not (SHARED / "modules").exists():
            make_inputs(RECIPE, SHARED / "in")
            run(RECIPE, SHARED / "out", 1, settings_of(RECIPE, SHARED / "in"))
            (SHARED / "modules").write_text("\n".join(imported_modules()))

    def open(self, folder: Path, scratch: Path) -> Trial:  # noqa: ARG002  # as above
        """Return what does one trial."""
        import_modules((SHARED / "modules").read_text().split("\n"))
        self.scratch, self.whole = scratch, scratch / "whole"
        self.out, self.source = scratch / "out", scratch / "in"
        shutil.copytree(SHARED / "in", self.source)
        if self.run(out=self.whole).wait(PATIENCE) != DONE:  # a manifest has the paths of its inputs
            raise AssertionError("the undisturbed run does not finish")
        refused = self.prepare()

        def trial(chance: random.Random) -> Outcome:
            if refused:
                return Outcome("n/a", refused)
            for used in (self.out, self.source):
                shutil.rmtree(used, ignore_errors=True)
            shutil.copytree(SHARED / "in", self.source)
            return self.fault(chance)

        return trial

    def prepare(self) -> str:
        """Return why this kind is not possible here, nothing where it is."""
        return ""

    @abstractmethod
    def fault(self, chance: random.Random) -> Outcome:
        """Do one trial."""

    def run(
        self, processes: int = 1, before: Callable[[], None] | None = None, out: Path | None = None, name: str = "log"
    ) -> ForkedRun:
        """Start the recipe; inputs are those of this trial."""
        settings = settings_of(RECIPE, self.source)
        return RunSpec(RECIPE, settings, out or self.out).start(processes, self.scratch / name, before)

    def ended(self, run: ForkedRun) -> Outcome | None:
        """Return what is wrong with how a run ended: neither done nor in one sentence."""
        code = run.wait(PATIENCE)
        if code is None:
            run.end()
            return Outcome("hang", run.said()[-600:])
        if code == SENTENCE:
            outcome = judge_sentence(RunError(run.said()))
            return None if outcome.survived else outcome
        return None if code == DONE else Outcome("traceback", f"ended with {code}: {run.said()[-900:]}")

    def finished(self, out: Path | None = None) -> Outcome:
        """Type the same command again, and compare what comes out."""
        run = self.run(out=out)
        wrong = self.ended(run)
        if wrong is not None:
            return wrong
        if run.code == SENTENCE:
            return Outcome("traceback", f"the same command does not finish: {run.said()}")
        return self.compared(out or self.out)

    def compared(self, out: Path) -> Outcome:
        """Compare a finished run with the undisturbed one."""
        if digest_of(out) == digest_of(self.whole):
            return Outcome("same")
        found, expected = read_files(out), read_files(self.whole)
        names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        return Outcome("silent change", f"{len(names)} files differ: {', '.join(names[:6])}")


class OnSmallDisk(Fault):
    """A fault of a disk of its own."""

    def prepare(self) -> str:
        """Make a mount namespace."""
        self.disk = SmallDisk(self.scratch / "disk")
        return own_namespace() or self.disk.mount(1 << 20)


class FullDisk(OnSmallDisk):
    """A disk that is full at some point, and has room later."""

    name, weight = "full disk", 4

    def fault(self, chance: random.Random) -> Outcome:
        """Run on a disk of 2 % to 200 % of what the run takes."""
        size = sum(map(len, read_files(self.whole).values()))
        self.disk.mount(max(16_384, int(size * chance.uniform(0.02, 2.0))))
        out = self.disk.folder / "out"
        wrong = self.ended(self.run(chance.choice((1, 2)), out=out))
        self.disk.remount("size=1g")
        return wrong or self.finished(out)


class ReadOnlyDisk(OnSmallDisk):
    """A disk that is read-only from the start, or from some operation on."""

    name, weight = "read-only disk", 3

    def fault(self, chance: random.Random) -> Outcome:
        """Run on it, make it writable, and run again."""
        self.disk.mount(1 << 28)
        out, operation = self.disk.folder / "out", chance.randrange(OPERATIONS)
        if operation == 0:
            self.disk.remount("ro")
        wrong = self.ended(self.run(1, self.at(operation, out), out=out))
        self.disk.remount("rw")
        return wrong or self.finished(out)

    def at(self, operation: int, out: Path) -> Callable[[], None]:
        """Return what makes the disk read-only at an operation, or as soon after it as no file is open."""
        seen = 0

        def change(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen >= operation:
                self.disk.remount("ro")

        return lambda: on_change(out, change)


class ReadOnlyRun(OnSmallDisk):
    """A finished run on a read-only disk, and everything that is asked of it."""

    name, weight = "read-only run", 2

    def fault(self, chance: random.Random) -> Outcome:
        """Ask one question."""
        import longcrawl as lc

        self.disk.mount(1 << 28)
        run = self.disk.folder / "run"
        shutil.copytree(self.whole, run)
        self.disk.remount("ro")
        ask = chance.choice((lc.funnel, lc.verify, lc.inspect, lc.write_report, lc.card, lc.clusters, lc.analysis))
        try:
            ask(run)
        except LongCrawlError as error:
            return judge_sentence(error)
        return Outcome("same")


class LargestFile(Fault):
    """A limit of the size of files."""

    name, weight = "largest file", 3

    def fault(self, chance: random.Random) -> Outcome:
        """Run under a limit, then without."""
        most = chance.choice((1, 2_000, 8_000, 20_000, 60_000))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))  # noqa: E731  # called in the run
        return self.ended(self.run(chance.choice((1, 2)), limit)) or self.finished()


class ChangedInput(Fault):
    """Inputs that are replaced, removed, cut or grown between a kill and the same command, or while a run reads."""

    name, weight = "changed input", 5

    def fault(self, chance: random.Random) -> Outcome:
        """Change one file at an operation of the run, which is killed there or goes on."""
        file = chance.choice(sorted((self.source / "texts").iterdir()))
        change, killed = self.change(file, chance), chance.random() < 0.5
        operation, seen = chance.randint(1, OPERATIONS), 0

        def at_operation(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen == operation:
                change()
                if killed:
                    os._exit(DONE)

        run = self.run(1, lambda: on_change(self.out, at_operation))
        wrong = self.ended(run)
        if wrong is None and killed:
            run = self.run()
            wrong = self.ended(run)
        if wrong is not None:
            return wrong
        return Outcome("noticed") if run.code == SENTENCE else self.of_either_state()

    def change(self, file: Path, chance: random.Random) -> Callable[[], object]:
        """Return one way to change a file."""
        content, row = file.read_bytes(), documents(1, (30, 40), chance.randrange(1_000))[0]
        other = content[:-200].replace(b"the ", b"any ") + content[-200:]
        ways: tuple[Callable[[], object], ...] = (
            lambda: file.write_bytes(json_lines([row])),
            lambda: file.write_bytes(content + json_lines([row | {"id": "new"}])),
            lambda: file.write_bytes(other),
            lambda: self._replace_unseen(file, other),
            lambda: file.unlink(missing_ok=True),
            lambda: (file.parent / "new.jsonl").write_bytes(json_lines([row | {"id": "new"}])),
            lambda: os.utime(file),
        )
        return chance.choice(ways)

    @staticmethod
    def _replace_unseen(file: Path, content: bytes) -> None:
        """Write other bytes of the same number, and keep the time of the last change."""
        status = file.stat()
        file.write_bytes(content)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    def of_either_state(self) -> Outcome:
        """Compare a result with that of the inputs before, and as they are now."""
        if digest_of(self.out) == digest_of(self.whole):
            return Outcome("same")
        fresh = self.run(out=self.scratch / "fresh")
        wrong = self.ended(fresh)
        found = digest_of(self.scratch / "fresh") if wrong is None and fresh.code == DONE else ""
        shutil.rmtree(self.scratch / "fresh", ignore_errors=True)
        if digest_of(self.out) == found:
            return Outcome("same")
        return Outcome("silent change", "the run finished with neither the inputs before nor those after the change")


class Links(Fault):
    """Links in the place of folders and inputs, loops, dangling links, a named pipe."""

    name, weight = "links", 3

    def fault(self, chance: random.Random) -> Outcome:
        """Make one of them."""
        return chance.choice((self.linked_output, self.linked_input, self.loop, self.pipe))(chance)

    def linked_output(self, chance: random.Random) -> Outcome:
        """Run into a folder whose output or work leads elsewhere: what is there stays."""
        victim = self.scratch / "victim"
        shutil.rmtree(victim, ignore_errors=True)
        victim.mkdir()
        for name in ("precious", "precious.partial-1", "00000_tokens.ds"):
            (victim / name).write_text("mine")
        before = read_files(victim)
        self.out.mkdir()
        (self.out / chance.choice((RECIPE, "work"))).symlink_to(victim)
        wrong = self.ended(self.run())
        lost = [name for name, content in before.items() if read_files(victim).get(name) != content]
        return wrong or (Outcome("silent loss", f"{lost} behind the link") if lost else Outcome("noticed"))

    def linked_input(self, chance: random.Random) -> Outcome:
        """Read a folder of which a part is linked: all of it counts."""
        folder = self.source / "texts"
        (self.source / "elsewhere").mkdir()
        for file in sorted(folder.iterdir())[: chance.randint(1, 3)]:
            file.rename(self.source / "elsewhere" / file.name)
        (folder / "linked").symlink_to(self.source / "elsewhere")
        return self.complete()

    def loop(self, chance: random.Random) -> Outcome:
        """Read a folder that is inside of itself, or has a link that leads nowhere."""
        folder = self.source / "texts"
        (folder / "loop").symlink_to(chance.choice((folder, self.source, folder / "loop")))
        if chance.random() < 0.5:
            (folder / "gone.jsonl").symlink_to("/gone/gone.jsonl")
        return self.complete()

    def pipe(self, _: random.Random) -> Outcome:
        """Read a folder with a pipe that nobody writes to."""
        os.mkfifo(self.source / "texts" / "pipe.jsonl")
        return self.complete()

    def complete(self) -> Outcome:
        """Run; a run that finishes has read every document."""
        import longcrawl as lc

        run = self.run()
        wrong = self.ended(run)
        if wrong is not None:
            return wrong
        if run.code == SENTENCE:
            return Outcome("noticed", run.said())
        count, whole = lc.funnel(self.out).documents, lc.funnel(self.whole).documents
        if count != whole:
            return Outcome("silent loss", f"{count} of {whole} documents")
        return Outcome("same")


class Together(Fault):
    """Several runs in one folder at once."""

    name, weight = "several runs", 2

    def fault(self, chance: random.Random) -> Outcome:
        """Start two or three, and finish."""
        runs = []
        for number in range(chance.choice((2, 3))):
            runs.append(self.run(chance.choice((1, 2)), name=f"log-{number}"))
            time.sleep(chance.random() * 0.3)
        wrong = [outcome for outcome in map(self.ended, runs) if outcome is not None]
        return wrong[0] if wrong else self.finished()


class Clock(Fault):
    """A clock that jumps."""

    name, weight = "clock", 1

    def fault(self, chance: random.Random) -> Outcome:
        """Run while time goes back and forth by 30 years."""
        jumps = random.Random(chance.random())
        now = time.time

        def jump() -> None:
            time.time = lambda: now() + jumps.choice((0, -1e9, 1e9))

        run = self.run(chance.choice((1, 2)), jump)
        return self.ended(run) or self.finished()


class OtherFolders(OnSmallDisk):
    """Folders for temporary files and caches that cannot be written; a new process reads where they are."""

    name, weight = "other folders", 1

    def fault(self, chance: random.Random) -> Outcome:
        """Run the command with such a folder."""
        self.disk.mount(65_536)
        if chance.random() < 0.5:
            self.disk.remount("ro")
        else:
            (self.disk.folder / "filler").write_bytes(bytes(60_000))
        named = chance.choice((("TMPDIR",), ("HF_HOME", "NUMBA_CACHE_DIR")))
        command = [sys.executable, "-m", "longcrawl", "run", RECIPE, "--out", str(self.out)]
        for setting in settings_of(RECIPE, self.source):
            command += ["--set", setting]
        environment = os.environ | dict.fromkeys(named, str(self.disk.folder))
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
        if "Traceback" in ended.stderr:
            return Outcome("traceback", f"{named}: {ended.stderr[-900:]}")
        return self.compared(self.out) if ended.returncode == 0 else self.finished()


def main() -> None:
    options = arguments(__doc__, 30).parse_args()
    warm_up(options.seed)
    kinds = (FullDisk, ReadOnlyDisk, ReadOnlyRun, LargestFile, ChangedInput, Links, Together, Clock, OtherFolders)
    Campaign("storage", [kind() for kind in kinds], options).run()


if __name__ == "__main__":
    main()
