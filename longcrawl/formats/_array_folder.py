"""The folder that a rectangle lies in, local or behind a URL of fsspec."""

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from longcrawl.file_systems import file_system_of
from longcrawl.formats._byte_ranges import is_remote

__all__ = ["Folder", "open_folder"]


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
        self._files, self._path = file_system_of(self.root)

    def read(self, name: str) -> bytes | None:
        try:
            text: bytes = self._files.cat_file(f"{self._path}/{name}")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return text

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(f"{self._path}/{name}"))

    def names(self) -> list[str] | None:
        try:
            return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in self._files.ls(self._path, detail=False))
        except (OSError, NotImplementedError):
            return None


def open_folder(root: str) -> Folder:
    if root.startswith("file://"):
        return _LocalFolder(unquote(urlsplit(root).path))
    return _RemoteFolder(root) if is_remote(root) else _LocalFolder(root)
