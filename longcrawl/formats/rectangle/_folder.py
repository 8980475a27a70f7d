"""The folder that a rectangle lies in, local or behind a URL of fsspec."""

from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from longcrawl.errors import NotYetError
from longcrawl.storage.file_systems import exists, fetch, file_system_of
from longcrawl.storage.network import ask
from longcrawl.urls import is_url


class Folder(Protocol):
    """The little that is asked of a folder, local or remote."""

    root: str

    def read(self, name: str) -> bytes | None: ...
    def exists(self, name: str) -> bool: ...
    def names(self) -> list[str] | None: ...


class _LocalFolder:
    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"

    def read(self, name: str) -> bytes | None:
        try:
            return Path(self.root, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, name: str) -> bool:
        return Path(self.root, name).is_file()

    def names(self) -> list[str] | None:
        return sorted(entry.name for entry in Path(self.root).iterdir()) if Path(self.root).is_dir() else None


class _RemoteFolder:
    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        try:
            return fetch(f"{self.root}/{name}")
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        return exists(f"{self.root}/{name}")

    def names(self) -> list[str] | None:
        files, path = file_system_of(self.root)
        try:
            listed = ask(self.root, partial(files.ls, path, detail=False))
        except (FileNotFoundError, NotYetError):
            return None
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in listed)


def open_folder(root: str) -> Folder:
    if root.startswith("file://"):
        return _LocalFolder(unquote(urlsplit(root).path))
    return _RemoteFolder(root) if is_url(root) else _LocalFolder(root)
