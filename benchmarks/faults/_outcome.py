"""Outcomes of trials: which are acceptable, what counts as an error message, and limits of time and memory."""

import os
import resource
import signal
import traceback
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longcrawl.errors import LongCrawlError

SURVIVED = ("same", "noticed", "reported", "legitimate", "n/a")
"""Same result; a sentence; a report under on_bad_files; a difference that a format cannot notice; not possible here."""
FAILED = ("silent change", "silent loss", "traceback", "unclear sentence", "contradiction", "hang", "memory", "crash")

SECONDS = 20
"""Time limit for a trial, in seconds."""
GROWN_BYTES = 768 << 20
"""Bytes by which memory may grow in a trial."""
SENTENCE_CHARACTERS = 600

FULL = "FAULTS_FULL_TRACEBACKS"
"""Is set while one trial is repeated."""
PROJECT = Path(__file__).resolve().parents[2]


class HangError(BaseException):
    """A trial took too long; nothing that catches Exception hides it."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial."""

    word: str
    detail: str = ""
    faults: tuple[str, ...] = ()
    """Kinds of what was done, where a trial is more than one fault."""

    @property
    def survived(self) -> bool:
        return self.word in SURVIVED


def judge_sentence(error: LongCrawlError) -> Outcome:
    """Return "noticed" for an error of one sentence."""
    text = str(error)
    problems = {
        "is empty": not text.strip(),
        f"has {len(text):,} characters": len(text) > SENTENCE_CHARACTERS,
        "holds a traceback": "Traceback" in text,
        "holds control characters": any(unicodedata.category(each) == "Cc" for each in text),
    }
    found = [problem for problem, true in problems.items() if true]
    return Outcome("unclear sentence", f"{found[0]}: {text[:300]!r}") if found else Outcome("noticed", text)


def guarded(trial: Callable[[], Outcome], seconds: float = SECONDS) -> Outcome:
    """Do one trial in this process, with a limit of time; whatever it raises becomes its outcome."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        outcome = trial()
    except LongCrawlError as error:
        outcome = judge_sentence(error)
    except HangError:
        outcome = Outcome("hang", traceback.format_exc()[-900:])
    except MemoryError as failed:
        outcome = Outcome("memory", shortened(failed))
    except BaseException as failed:  # noqa: BLE001  # whatever it is, it should not have come out
        outcome = Outcome("traceback", shortened(failed))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024
    return Outcome("memory", f"grew by {grown >> 20} MB; {outcome}") if grown > GROWN_BYTES else outcome


def _too_long(*_: object) -> None:
    raise HangError


def shortened(failed: BaseException) -> str:
    """Return the class, first line and innermost places in this project of an error; all of it where FULL is set."""
    if FULL in os.environ:
        return "".join(traceback.format_exception(failed))
    frames = traceback.extract_tb(failed.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PROJECT)][-3:]
    places = " > ".join(f"{Path(each.filename).relative_to(PROJECT)}:{each.lineno} {each.name}" for each in ours)
    first = next(iter(str(failed).strip().splitlines()), "")
    return f"{type(failed).__name__}: {first[:300]} ({places})"
