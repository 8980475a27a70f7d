"""Word lists that users bring: stop words, unwanted words and domain categories, and their form for the kernels."""

import gzip
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longcrawl.errors import StageError
from longcrawl.storage.files import reread_when_changed
from longcrawl.storage.structured import load_json

WordLists = Mapping[str, frozenset[str]]

_LANGUAGE_FILE = re.compile(r"(?P<language>[a-z]{2,3}(?:[-_][A-Za-z0-9]+)*)(?:\.txt|\.json)?")


class Vocabulary(NamedTuple):
    """Words of several languages, to be looked up by their letters: code points, or bytes of UTF-8."""

    table: npt.NDArray[np.int32]
    """Shape (a power of two,): open addressing, word number + 1, 0 where empty."""
    languages: npt.NDArray[np.int32]
    """Shape (words,): which list a word is of."""
    bounds: npt.NDArray[np.int64]
    """Shape (words + 1,): where each word starts in ``letters``."""
    letters: npt.NDArray[Any]
    """The words one after the other: uint32 code points or uint8 bytes."""
    longest: int
    """Letters of the longest word."""


class Phrases(NamedTuple):
    """Sequences of words, sorted by their first."""

    vocabulary: Vocabulary
    by_first_word: npt.NDArray[np.int64]
    """Shape (words of the vocabulary + 1,): the first phrase that begins with each word."""
    bounds: npt.NDArray[np.int64]
    """Shape (phrases + 1,): where each phrase starts in ``words``."""
    words: npt.NDArray[np.int32]


def make_vocabulary(
    words: Iterable[tuple[int, str]], letters: Literal["code points", "bytes"] = "code points"
) -> Vocabulary:
    """Make a vocabulary of pairs of a language's number and a word; words are numbered in sorted order."""
    from longcrawl.kernels.lookup import fill_table

    chosen = sorted({(language, word) for language, word in words if word})
    encoding, kind = ("utf-8", np.uint8) if letters == "bytes" else ("utf-32-le", np.uint32)
    spelled = [np.frombuffer(word.encode(encoding, "surrogatepass"), kind) for _, word in chosen]
    vocabulary = Vocabulary(
        np.zeros(1 << (4 * len(chosen)).bit_length(), np.int32),
        np.array([language for language, _ in chosen], np.int32),
        np.cumsum([0, *map(len, spelled)], dtype=np.int64),
        np.concatenate([np.zeros(0, kind), *spelled]),
        max(map(len, spelled), default=0),
    )
    fill_table(vocabulary)
    return vocabulary


def make_phrases(phrases: Iterable[tuple[int, str]]) -> Phrases:
    """Make phrases of pairs of a language's number and words joined by single spaces."""
    split = sorted({(language, tuple(phrase.split(" "))) for language, phrase in phrases})
    # An empty word is between two spaces in a row: no document ever has such a phrase.
    split = [(language, words) for language, words in split if all(words)]
    pairs = sorted({(language, word) for language, words in split for word in words})
    number = {pair: at for at, pair in enumerate(pairs)}
    firsts = [number[language, words[0]] for language, words in split]
    return Phrases(
        make_vocabulary(pairs),
        np.searchsorted(np.array(firsts, np.int64), np.arange(len(pairs) + 1)).astype(np.int64),
        np.cumsum([0, *(len(words) for _, words in split)], dtype=np.int64),
        np.array([number[language, word] for language, words in split for word in words], np.int32),
    )


@reread_when_changed(8)
def read_word_lists(path: str) -> WordLists:
    """Read lists by language: a JSON file of {language: [word, …]}, or a folder of LANGUAGE, LANGUAGE.txt or .json.

    A text file has one entry per line, a JSON file of a folder is a list. Space around an entry is dropped, other
    files of the folder are passed over.

    Raises:
        StageError: nothing is there, or it is not of that form.
    """
    place = Path(path)
    if place.is_dir():
        named = [(match["language"], file) for file in sorted(place.iterdir()) if (match := _named_by_language(file))]
        lists = {language: _entries(file) for language, file in named}
    else:
        found = _json(place)
        if not isinstance(found, dict):
            raise StageError(f"{path} holds no lists by language; it should be JSON like {{'en': ['the', 'of']}}")
        lists = {language: _words(words, place) for language, words in found.items()}
    if not lists:
        raise StageError(f"{path} holds no word list; name its files en.txt, de.txt, … or give a JSON file of lists")
    return lists


@reread_when_changed(2)
def read_domain_categories(path: str) -> Mapping[str, int]:
    """Read a JSON file, plain or .gz, of {domain: number}.

    Raises:
        StageError: nothing is there, or it is not of that form.
    """
    found = _json(Path(path))
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise StageError(f"{path} holds no domain categories; it should be JSON like {{'example.org': 5}}")
    return found


def _named_by_language(file: Path) -> re.Match[str] | None:
    return _LANGUAGE_FILE.fullmatch(file.name) if file.is_file() else None


def _entries(file: Path) -> frozenset[str]:
    return _words(_json(file) if file.suffix == ".json" else _read(file).splitlines(), file)


def _words(words: Any, file: Path) -> frozenset[str]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise StageError(f"{file} holds a list that is not one of words; it should be like ['the', 'of']")
    return frozenset(stripped for word in words if (stripped := word.strip()))


def _json(file: Path) -> Any:
    try:
        return load_json(_read(file))
    except StageError:
        raise
    except ValueError as error:
        raise StageError(f"{file} is not valid JSON ({error}); give a JSON file, or a folder of word lists") from error


def _read(file: Path) -> str:
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    except FileNotFoundError as error:
        raise StageError(f"{file} does not exist; give the path of a word list, or leave the field out") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StageError(f"{file} cannot be read as UTF-8 text: {error}; download it again") from error
