"""A folder of files of which one is damaged, and everything that is done with it."""

import fnmatch
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from _campaign import Outcome, Target, Trial
from _inputs import fingerprint, read_files
from _mutations import Mutation, damage
from _outcome import judge_sentence, shortened

from longcrawl.errors import LongCrawlError

Act = Callable[[Path], object]
"""Uses the folder; what it returns is compared with what it returned of the whole folder."""
Noticed = Literal["by use", "by verify", "not always"]
"""Who has to notice a change: whatever reads it, ``verify`` at least, or nobody, as the format has no checksums."""

DATA, FIXED = "data", "fixed"
"""Below the folder of a target: what trials damage, and what they leave alone."""
VERIFY = "verify"


@dataclass(frozen=True)
class Used:
    """Result of an action: a digest of its value, or its error message."""

    value: str
    outcome: Outcome | None = None


class FolderTarget(Target):
    """Files of which one is damaged, and acts; the act "verify" returns problems, others what they have read.

    Args:
        name: of the target.
        weight: its share of trials.
        make: writes the files to ``data`` in a folder, and what acts need beside them to ``fixed``.
        acts: what is done with the damaged folder, by name.
        damaged: patterns of the paths that are damaged; all without one.
        ways: mutations.
        noticed: who has to notice that an act gives something else than before.
        writes: whether an act writes into the folder.

    """

    def __init__(
        self,
        name: str,
        weight: int,
        make: Callable[[Path], None],
        acts: Mapping[str, Act] | Callable[[Path], Mapping[str, Act]],
        *,
        damaged: Sequence[str] = ("*",),
        ways: Sequence[Mutation] = (),
        noticed: Noticed = "by use",
        writes: bool = False,
    ) -> None:
        self.name, self.weight, self.make_files, self.acts = name, weight, make, acts
        self.damaged, self.ways, self.noticed, self.writes = damaged, ways, noticed, writes

    def make(self, folder: Path) -> None:
        self.make_files(folder)

    def open(self, folder: Path, scratch: Path) -> Trial:
        acts = self.acts(folder) if callable(self.acts) else self.acts
        files = read_files(folder / DATA)
        names = [
            name
            for name, content in files.items()
            if content and any(fnmatch.fnmatch(name, pattern) for pattern in self.damaged)
        ]
        others = [content for name, content in files.items() if content and name in names]
        self._copy(folder / DATA, scratch / "whole")
        whole = {name: _use(act, scratch / "whole") for name, act in acts.items()}
        self._check_whole(whole)

        def trial(chance: random.Random) -> Outcome:
            name = chance.choice(names)
            place = scratch / f"{chance.getrandbits(64):x}"
            self._copy(folder / DATA, place)
            (place / name).unlink()  # it may be a link, or still be mapped
            (place / name).write_bytes(damage(files[name], chance, others, self.ways))
            try:
                outcome = self._judge({each: _use(act, place) for each, act in acts.items()}, whole)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            return Outcome(outcome.word, f"{name}: {outcome.detail}")

        return trial

    def _copy(self, source: Path, place: Path) -> None:
        shutil.copytree(source, place, copy_function=shutil.copyfile if self.writes else os.link)

    def _check_whole(self, whole: Mapping[str, Used]) -> None:
        for name, used in whole.items():
            if used.outcome is not None:
                raise AssertionError(f"{name} fails before anything is damaged: {used.outcome.detail}")

    def _judge(self, found: Mapping[str, Used], whole: Mapping[str, Used]) -> Outcome:
        sentences = [used.outcome for used in found.values() if used.outcome is not None]
        for act, used in found.items():
            if used.outcome is not None and not used.outcome.survived:
                return Outcome(used.outcome.word, f"{act}: {used.outcome.detail}")
        verified = VERIFY in found and found[VERIFY] != whole[VERIFY]
        changed = [
            name for name, used in found.items()
            if name != VERIFY and used.outcome is None and used.value != whole[name].value
        ]  # fmt: skip
        noticed = bool(sentences) or verified
        if not changed:
            return Outcome("noticed" if noticed else "same")
        if self.noticed == "not always" or (self.noticed == "by verify" and verified):
            return Outcome("noticed" if noticed else "legitimate")
        return Outcome("silent change", f"{', '.join(changed)} differ; verify {'notices' if verified else 'does not'}")


def _use(act: Act, folder: Path) -> Used:
    try:
        return Used(fingerprint(_without(act(folder), folder)))
    except LongCrawlError as error:
        return Used("", judge_sentence(error))
    except MemoryError:
        raise
    except Exception as failed:  # noqa: BLE001  # whatever it is, it should not have come out
        return Used("", Outcome("traceback", shortened(failed)))


def _without(value: object, folder: Path) -> object:
    """Return a value as a text that does not say where the folder is."""
    return repr(value).replace(str(folder), "")
