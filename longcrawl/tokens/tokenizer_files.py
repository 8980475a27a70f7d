"""Where a tokenizer's `tokenizer.json` is: in a file or folder, on the Hub, or in the cache folder for an object."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from longcrawl.core.stages import Stage
from longcrawl.errors import MOST_QUOTED, TokenizerError, shortened, unreadable, warn_user
from longcrawl.io.files import content_digest, whole_file
from longcrawl.io.place import is_there
from longcrawl.io.structured import load_json
from longcrawl.kernels.code_points import cache_folder

CONFIGURATION = "tokenizer_config.json"

NAMING_END = (CONFIGURATION, "special_tokens_map.json")
"""Files beside a tokenizer that may name its ``eos_token``, the first that does counts."""

CONVERTIBLE = (CONFIGURATION, "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""Files of a folder without `tokenizer.json` of which `transformers` may make one."""

TAKEN = "a tokenizer.json, a folder that holds one, a *.tiktoken file or a Hub id"


def tokenizer_name(tokenizer: Any) -> str:
    """Return what names a tokenizer: a name or path as it is, and of an object the path of its content.

    A ``PreTrainedTokenizerFast``, or a ``Tokenizer`` of `tokenizers`, is written into a folder of
    ``$XDG_CACHE_HOME/longcrawl`` (``~/.cache/longcrawl``) that is named after its content, without truncation, padding
    and chat template. Stages and recipes then name this file.

    Raises:
        TokenizerError: it is not a tokenizer that `tokenizers` can write, or the folder cannot be written.
    """
    if isinstance(tokenizer, str | os.PathLike):
        return os.fspath(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", None) or tokenizer
    if not hasattr(backend, "to_str"):
        raise TokenizerError(f"a tokenizer is {TAKEN}, or a PreTrainedTokenizerFast, not a {type(tokenizer).__name__}")
    with unreadable("a tokenizer", TokenizerError, "leave out parts that are Python's, or pass a saved one"):
        spelled = backend.to_str()
    document = json.loads(spelled) | {"truncation": None, "padding": None}
    content = json.dumps(document, ensure_ascii=False).encode()
    end = getattr(tokenizer, "eos_token", None)
    configuration = json.dumps({"eos_token": end if isinstance(end, str) else None}).encode()
    name = hashlib.sha256(configuration + content).hexdigest()[:16]
    folder = cache_folder() / "tokenizers" / name
    try:
        for file, written in ((CONFIGURATION, configuration), ("tokenizer.json", content)):
            if not (folder / file).exists():
                with whole_file(folder / file) as beside:
                    beside.write_bytes(written)
    except OSError as failed:
        raise TokenizerError(
            f"{folder} cannot be written ({type(failed).__name__}): set XDG_CACHE_HOME, or pass a saved tokenizer"
        ) from failed
    return str(folder / "tokenizer.json")


def name_tokenizer(instance: Any) -> None:
    """Put the name of a tokenizer in place of an object in the field ``tokenizer`` of a frozen dataclass."""
    object.__setattr__(instance, "tokenizer", tokenizer_name(instance.tokenizer))


def tokenizer_file(tokenizer: str) -> Path:
    """Return the file of a tokenizer by its name, fetched from the Hub or converted where needed.

    Raises:
        TokenizerError: nothing is there, or it cannot be converted.
    """
    return local_file(tokenizer) or _from_hub(tokenizer)


def local_file(tokenizer: str) -> Path | None:
    """Return the file that ``tokenizer`` names on this machine; None when it names a repository on the Hub.

    Raises:
        TokenizerError: it is spelled as a path and nothing is there.
    """
    path = Path(tokenizer).expanduser()
    for file in (path, path / "tokenizer.json"):
        if _is_there(file) and file.is_file():
            return file.absolute()
    if present := [path / name for name in CONVERTIBLE if _is_there(path / name)]:
        return _converted(str(path.absolute()), tuple(content_digest(str(file)) for file in present))
    if (
        path.suffix in (".json", ".tiktoken")
        or path.is_absolute()
        or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", tokenizer)
    ):
        raise TokenizerError(f"no tokenizer at {shortened(tokenizer, MOST_QUOTED)!r}: pass {TAKEN}")
    return None


def _is_there(path: Path) -> bool:
    """Return whether there is a file or folder; what is too long for a path is none."""
    try:
        return is_there(path)
    except OSError as failed:
        if failed.errno != errno.ENAMETOOLONG:
            raise
        return False


def tokenizer_digest(tokenizer: str) -> str | None:
    """Return the SHA-256 of the file that ``tokenizer`` names on this machine; None for a repository on the Hub."""
    path = local_file(tokenizer)
    return None if path is None else content_digest(str(path))


class TokenizerStage(Stage):
    """A stage with a field ``tokenizer``: what its file holds is part of what the stage is."""

    tokenizer: str

    @property
    def uses_tokenizer(self) -> bool:
        """Whether its other fields have it look at tokens."""
        return getattr(self, "unit", "token") == "token"

    def __post_init__(self) -> None:
        name_tokenizer(self)
        super().__post_init__()

    def files(self) -> tuple[str, ...]:
        """Name the files of the tokenizer that are on this machine, after other data files."""
        file = local_file(self.tokenizer) if self.uses_tokenizer else None
        named = [] if file is None else [file, *(file.parent / name for name in NAMING_END)]
        return (*super().files(), *(str(each) for each in named if each.exists()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the digest of a local tokenizer, which is compared when the stage is made again."""
        make, arguments = super().__reduce__()[:2]
        digest = tokenizer_digest(self.tokenizer) if self.uses_tokenizer else None
        return restore_with_tokenizer, (make, arguments, digest)


def restore_with_tokenizer(make: Any, arguments: tuple[Any, ...], digest: str | None) -> Any:
    """Make a pickled stage with a field ``tokenizer`` again: `datasets` tells stages apart by what is pickled.

    Raises:
        TokenizerError: the tokenizer's file has changed.
    """
    made = make(*arguments)
    if digest is not None and tokenizer_digest(made.tokenizer) != digest:
        raise TokenizerError(f"{made.tokenizer} changed since the stage was saved: make the stage again")
    return made


def configured_end(path: Path) -> str | None:
    """Return the ``eos_token`` that the files beside a tokenizer name, if they do."""
    for name in NAMING_END:
        with suppress(OSError, ValueError):
            configuration = load_json((path.parent / name).read_bytes())
            end = configuration.get("eos_token") if isinstance(configuration, Mapping) else None
            end = end.get("content") if isinstance(end, Mapping) else end
            if isinstance(end, str):
                return end
    return None


@lru_cache(maxsize=8)
def _from_hub(repository: str) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        path = Path(hf_hub_download(repository, "tokenizer.json"))
        _fetch_configuration(repository)
    except (OSError, ValueError) as failed:
        was_asked = not isinstance(failed, LocalEntryNotFoundError)
        # transformers takes 2.5 s to import, and finds no more than the cache has where the Hub was not asked.
        if isinstance(failed, EntryNotFoundError) and (was_asked or _is_cached(repository)):
            with suppress(TokenizerError):
                return _converted(repository)
        offline = "HF_HUB_OFFLINE is set: unset it, or"
        missing = f"did not come from the Hub ({type(failed).__name__}):"
        raise TokenizerError(
            f"tokenizer {repository!r} is not a file here and {offline if constants.HF_HUB_OFFLINE else missing} "
            "set tokenizer= to the path of a tokenizer.json or *.tiktoken file, or to an object "
            "(--tokenizer PATH, of a run --set stages.STAGE.tokenizer=PATH)"
        ) from failed
    return path


def _fetch_configuration(repository: str) -> None:
    """Put the file that names the ``eos_token`` beside a tokenizer of the Hub, and warn if it cannot be known."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        hf_hub_download(repository, CONFIGURATION)
    except LocalEntryNotFoundError:
        warn_user(
            f"{CONFIGURATION} of {repository} is not in the cache, and the Hub was not reached: documents end with a "
            "usual token, which may not be its eos_token; set end_of_text, or load the tokenizer once with the Hub"
        )
    except EntryNotFoundError:
        pass  # the repository has none


def _is_cached(repository: str) -> bool:
    """Return whether the cache has files of which `transformers` may make a tokenizer."""
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(repository, name), str) for name in CONVERTIBLE)


@lru_cache(maxsize=8)
def _converted(name: str, _contents: tuple[str, ...] = ()) -> Path:
    """Return the file of what `transformers` makes of a folder, or of a repository, without `tokenizer.json`."""
    from transformers import AutoTokenizer

    try:
        return Path(tokenizer_name(AutoTokenizer.from_pretrained(name)))
    except Exception as failed:  # what it raises depends on the kind of tokenizer
        raise TokenizerError(
            f"{name} has no tokenizer.json, and transformers cannot make one ({type(failed).__name__}): save it again "
            "with AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER), where sentencepiece is installed"
        ) from failed
