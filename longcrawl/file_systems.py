"""The file system behind a URL, whose package may not be installed."""

from typing import Any

from longcrawl.errors import SourceError
from longcrawl.unreadable import reason_of
from longcrawl.urls import without_secrets

__all__ = ["file_system_of"]

PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""What fsspec needs for the protocols of object stores."""


def file_system_of(url: str) -> tuple[Any, str]:
    """Return the file system of fsspec that a URL names, and the path in it.

    >>> file_system_of("file:///data/a.jsonl")[1]
    '/data/a.jsonl'

    Raises:
        SourceError: the protocol is unknown, or needs a package that is not installed.

    """
    import fsspec

    try:
        filesystem, inner = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as unknown:
        package = PACKAGES.get(url.partition("://")[0])
        fix = f"Type: pip install {package}" if package else "Install the package of its protocol, or check the URL"
        raise SourceError(f"{without_secrets(url)} cannot be reached ({reason_of(unknown)}). {fix}") from unknown
    return filesystem, str(inner)
