"""What is known of the ids of tokens, by the output beside them or their type, and whether settings contradict it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import CorruptionError, LoaderError, warn_user
from longcrawl.formats.shards.spec import FORMATS, KIND
from longcrawl.storage import sealed
from longcrawl.storage.file_systems import fetch
from longcrawl.urls import is_url

SPLITS = ("train", "val")
"""Folders of an output of longcrawl."""

SEARCHED_TOKENS = 1 << 22
"""In which an end of text is looked for; no document is nearly as long."""


@dataclass(frozen=True)
class TokenFacts:
    """What an output has recorded of its tokens; nothing of tokens that are in no output.

    Attributes:
        file: the description that says it.
        end_of_text: the id that documents end with.
        vocabulary_size: ids are below it.
        tokenizer: its fingerprint.
    """

    file: str = ""
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    tokenizer: str | None = None

    def check_end_of_text(self, token: int | None, types: Iterable["np.dtype[Any]"]) -> None:
        """Check an end of text against the one that is recorded, or else against the types of stored tokens."""
        if token is None:
            return
        if self.end_of_text is not None and token != self.end_of_text:
            raise LoaderError(
                f"end_of_text is {token:,} and {self.file} records {self.end_of_text:,}: leave end_of_text out"
            )
        if self.end_of_text is None:
            _check_id("end_of_text", token, self._limit(token, None, types))

    def check_vocabulary(self, vocabulary_size: int | None) -> None:
        """Check a vocabulary against the one that is recorded; a larger one is that of a padded embedding."""
        if vocabulary_size is not None and self.vocabulary_size is not None and vocabulary_size < self.vocabulary_size:
            raise LoaderError(
                f"vocabulary_size is {vocabulary_size:,} and {self.file} records {self.vocabulary_size:,}: leave "
                "vocabulary_size out"
            )

    def check_padding(
        self, token: int | None, vocabulary_size: int | None, types: Iterable["np.dtype[Any]"], made: Any = np.int64
    ) -> None:
        """Check that an id of padding is one of the vocabulary, or else of the ``types`` that tokens are stored in.

        Raises:
            LoaderError: it is not, or is none of ``made``, the type of tokens in a batch.
        """
        if token is not None:
            limit, what = self._limit(token, vocabulary_size, types)
            most = int(np.iinfo(made).max) + 1
            _check_id("pad_token", token, (limit, what) if limit <= most else (most, f"{np.dtype(made)} tokens"))

    def _limit(self, token: int, vocabulary_size: int | None, types: Iterable["np.dtype[Any]"]) -> tuple[int, str]:
        """Return what ids are below, and of what; types are looked at until one holds the token."""
        if vocabulary_size is not None:
            return vocabulary_size, f"a vocabulary of {vocabulary_size:,}"
        if self.vocabulary_size is not None:
            return self.vocabulary_size, f"the vocabulary of {self.vocabulary_size:,} that {self.file} records"
        limit, what = 0, "tokens"
        for each in types:
            limit, what = max((limit, what), (int(np.iinfo(each).max) + 1, f"{each} tokens"))
            if token < limit:
                break
        return limit, what


def _check_id(name: str, token: int, limit: tuple[int, str]) -> None:
    if not 0 <= token < limit[0]:
        raise LoaderError(f"{name} {token} is not an id of {limit[1]}: set it from 0 to {limit[0] - 1:,}")


def recorded_facts(paths: Sequence[str]) -> TokenFacts:
    """Return what the outputs that shards belong to have recorded.

    Raises:
        LoaderError: two outputs contradict each other.
        CorruptionError: a description was edited.
    """
    described: dict[str, _Description] = {}
    for folder, path in {path.rpartition("/")[0]: path for path in paths}.items():
        for output in _outputs(folder):
            found = None if output in described else _read_description(output, path)
            if found is not None:
                described[output] = found
    facts = [
        TokenFacts(each.file, *(each.content.get(name) for name in ("end_of_text", "vocabulary_size", "tokenizer")))
        for each in described.values()
    ]
    for one, other in pairwise(facts):
        for name in ("end_of_text", "vocabulary_size", "tokenizer"):
            if getattr(one, name) != getattr(other, name):
                raise LoaderError(
                    f"{one.file} and {other.file} record different values of {name}, {getattr(one, name)!r} and "
                    f"{getattr(other, name)!r}: open one of them at a time"
                )
    return facts[0] if facts else TokenFacts()


def output_of(path: str) -> tuple[str, dict[str, Any]] | None:
    """Return the output that a shard belongs to, its folder and its description; None where there is none."""
    for output in _outputs(path.rpartition("/")[0]):
        found = _read_description(output, path)
        if found is not None:
            return output, found.content
    return None


class _Description(NamedTuple):
    """Where the description of an output lies, and what it says."""

    file: str
    content: dict[str, Any]


def _outputs(folder: str) -> Iterator[str]:
    """Yield the folders that may be the output of shards in a folder, the innermost first."""
    steps = (folder if is_url(folder) else str(Path(folder).absolute())).split("/")
    for place in range(len(steps) - 1, 0, -1):
        if steps[place] in SPLITS:
            yield "/".join(steps[:place])


def _read_description(output: str, path: str) -> _Description | None:
    """Read the description of token shards in a folder; None where there is none."""
    for name in (name for name in FORMATS.loaded() if path.endswith(FORMATS[name].suffix)):
        file = f"{output}/{name}.json"
        try:
            text = fetch(file) if is_url(file) else Path(file).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        content = sealed.unsealed(text, file, "copy it back, or write the output again")
        if KIND in content:
            return _Description(file, content)
    return None


def warn_of_absent(token: int, where: object, blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Warn of an end of text that does not occur in blocks of tokens, from the beginning of ``where`` on."""
    searched = 0
    for block in blocks:
        if (block == token).any():
            return
        searched += len(block)
        if searched >= SEARCHED_TOKENS:
            break
    warn_user(
        f"end_of_text {token:,} is not among the first {searched:,} tokens of {where}: check that it is the id that "
        "documents end with"
    )


def check_ids(ids: npt.NDArray[Any], vocabulary_size: int, where: Callable[[int, int], str]) -> None:
    """Check ids, integers [rows, length], at the moment at which they would go into a model.

    Raises:
        CorruptionError: one is not below ``vocabulary_size``; ``where`` names its row and place.
    """
    # As unsigned numbers, so that an id that did not fit is none of the vocabulary.
    unsigned = ids.view(f"u{ids.itemsize}")
    if unsigned.size and int(unsigned.max()) >= vocabulary_size:
        row, place = (int(each) for each in np.argwhere(unsigned >= vocabulary_size)[0])
        raise CorruptionError(
            f"{where(row, place)} has id {int(unsigned[row, place]):,}, the vocabulary has {vocabulary_size:,}: check "
            "vocabulary_size, and that the data are of this tokenizer"
        )
