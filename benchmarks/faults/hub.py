"""Let the Hub fail at random requests while a run is pushed, verified and read.

    python benchmarks/faults/hub.py --n 40 [--seed 1] [--minutes 10] [push verify read]

The Hub is the server of the tests, which speaks its protocol to the real `huggingface_hub`; it answers with 401 to 504,
drops connections before, in and after an answer, or is slow. A trial is survived if each attempt is done or ends in one
sentence, if the push ends once the Hub works again, with every file as it is here, and if the token is in no message,
log or file. Waiting is cut short. The last line is trials survived / trials tried.
"""

import contextlib
import importlib.util
import logging
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _campaign import SCRATCH, Campaign, Outcome, Target, Trial, arguments, log_of, warm_up
from _inputs import read_files
from _outcome import judge_sentence
from _runs import recipe_of

from longcrawl.errors import LongCrawlError

REQUESTS = (
    "PUT /lfs/", "POST .*/commit/", "POST .*/preupload", "POST .*batch", "GET .*tree", "GET /api",
    "POST /api/repos/create", "POST .*tag", "GET .*resolve", "HEAD", "POST", "GET", ".",
)  # fmt: skip
STATUSES = (401, 403, 404, 413, 429, 500, 503, 504)
ATTEMPTS = 4
"""Attempts with faults; later ones have none."""
MOST_ATTEMPTS = 8
LONGEST_WAIT = 0.005


class OnTheHub(Target):
    """Something that is done over the network, with a run that is there or gets there."""

    seconds = 300.0

    def make(self, folder: Path) -> None:
        """Run a recipe that writes several files."""
        import longcrawl as lc

        recipe = recipe_of("parquet", folder / "fixed")
        lc.run(recipe, folder / "run", overrides=["outputs.parquet.file_bytes=4000", "card.license=mit"])

    def open(self, folder: Path, scratch: Path) -> Trial:
        """Return what does one trial, with a Hub of its own."""
        # A push writes to the folder of the run.
        self.run = shutil.copytree(folder / "run", scratch / "run")
        self.hub, self.token = signed_in(scratch)
        self.log = log_of(scratch)
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, force=True)
        self.prepare()

        def trial(chance: random.Random) -> Outcome:
            before = self.log.stat().st_size
            outcome = self.act(chance, f"me/r{chance.getrandbits(48):x}")
            self.hub.failures.clear()
            sys.stderr.flush()
            return self.leaked(before, scratch) or outcome

        return trial

    def prepare(self) -> None:
        """Do what all trials need before them."""

    def act(self, chance: random.Random, repo: str) -> Outcome:
        """Do one trial."""
        raise NotImplementedError

    def fail(self, chance: random.Random) -> None:
        """Let one to three requests fail."""
        self.hub.delay = chance.choice((0, 0, 0.01))
        for _ in range(chance.choice((1, 2, 3))):
            how: dict[str, Any] = {"times": chance.choice((1, 1, 2, 7))}
            kind = chance.choice(("status", "status", "status", "cut", "no answer"))
            if kind == "cut":
                how["cut_after"] = chance.choice((0, 10, 1_000))
            elif kind == "no answer":
                how["answer"] = False
            else:
                how["status"] = chance.choice(STATUSES)
                how["retry_after"] = 0 if how["status"] == 429 else None
            self.hub.fail(chance.choice(REQUESTS), **how)

    def attempt(self, work: Callable[[], object]) -> Outcome:
        """Return "same" if it is done, or how it ended."""
        try:
            work()
        except LongCrawlError as error:
            return judge_sentence(error)
        return Outcome("same")

    def leaked(self, before: int, scratch: Path) -> Outcome | None:
        """Return where the token is, if it is anywhere."""
        with self.log.open("rb") as log:
            log.seek(before)
            new = log.read()
        token = self.token.encode()
        if (place := new.find(token)) >= 0:
            return Outcome("silent change", f"the token is logged: {new[max(0, place - 200) : place]!r}")
        files = []
        for path in (path for folder in (scratch, SCRATCH / "hf") for path in folder.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # another worker has just removed it
                files += [str(path)] if path.is_file() and token in path.read_bytes() else []
        return Outcome("silent change", f"the token is in {files[:3]}") if files else None


class PushRun(OnTheHub):
    """A push that fails some times, and has to end whole."""

    name, weight = "push", 6

    def prepare(self) -> None:
        """Push once: that merges the run's ledgers, and each push after it sends the same files."""
        import longcrawl as lc

        lc.push(self.run, "me/first", "private")
        self.files = read_files(self.run)

    def act(self, chance: random.Random, repo: str) -> Outcome:
        """Push until it is done."""
        import longcrawl as lc

        failed = 0
        for attempt in range(MOST_ATTEMPTS):
            self.hub.failures.clear()
            if attempt < ATTEMPTS:
                self.fail(chance)
            outcome = self.attempt(lambda: lc.push(self.run, repo, "private"))
            if outcome.word == "same":
                break
            if not outcome.survived:
                return outcome
            failed += 1
        else:
            return Outcome("hang", f"a push does not end once the Hub works: {outcome.detail}")
        there = {name: blob.content for name, blob in self.hub.repositories[repo].files().items()}
        there.pop(".gitattributes", None)
        wrong = sorted(name for name in there.keys() | self.files.keys() if there.get(name) != self.files.get(name))
        if wrong:
            return Outcome("silent change", f"{', '.join(wrong[:6])} differ on the Hub")
        return Outcome("noticed" if failed else "same")


class ReadPushed(OnTheHub):
    """Reader of a run on the Hub; with a fault it returns the same or raises an error."""

    repo = "me/pushed"

    def prepare(self) -> None:
        """Push the run, and read it once."""
        import longcrawl as lc

        lc.push(self.run, self.repo, "private")
        self.whole = self.read()

    def read(self) -> object:
        """Return what is read."""
        raise NotImplementedError

    def act(self, chance: random.Random, repo: str) -> Outcome:  # noqa: ARG002  # the one that was pushed
        """Read while requests fail."""
        found: list[object] = []
        self.fail(chance)
        outcome = self.attempt(lambda: found.append(self.read()))
        if found and found[0] != self.whole:
            return Outcome("silent change", f"{str(found[0])[:300]} was read, {str(self.whole)[:300]} before")
        return outcome


class VerifyPushed(ReadPushed):
    """Verification over the network."""

    name, weight = "verify", 2

    def read(self) -> object:
        """Return the problems."""
        import longcrawl as lc

        return lc.verify(f"hf://datasets/{self.repo}").problems


class OpenPushed(ReadPushed):
    """A source over the network."""

    name, weight = "read", 2

    def read(self) -> object:
        """Return all texts."""
        from longcrawl.core.sources import BadFiles, make_source

        source = make_source("text", {"data_files": f"hf://datasets/{self.repo}/parquet/train-*.parquet"})
        parts = [part for parts in source.splits().values() for part in parts]
        tables = [table for part in parts for table in source.read(part, BadFiles("error"))]
        return sorted(text for table in tables for text in table["text"].to_pylist())


def signed_in(scratch: Path) -> tuple[Any, str]:
    """Start the server of the tests in this process, and sign `huggingface_hub` in to it."""
    import datasets
    from huggingface_hub import constants

    place = Path(__file__).resolve().parents[2] / "tests" / "hub_server.py"
    spec = importlib.util.spec_from_file_location("hub_server", place)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hub = module.HubServer()
    os.environ["HF_TOKEN"] = module.TOKEN
    constants.ENDPOINT = datasets.config.HF_ENDPOINT = hub.url
    constants.HUGGINGFACE_CO_URL_TEMPLATE = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    constants.HF_HUB_CACHE = str(scratch / "hub")
    constants.HF_HUB_DISABLE_XET = constants.HF_HUB_DISABLE_TELEMETRY = True
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = False
    wait = time.sleep
    time.sleep = lambda seconds: wait(min(seconds, LONGEST_WAIT))
    return hub, module.TOKEN


def main() -> None:
    options = arguments(__doc__, 30).parse_args()
    warm_up(options.seed)
    Campaign("hub", [PushRun(), VerifyPushed(), OpenPushed()], options).run()


if __name__ == "__main__":
    main()
