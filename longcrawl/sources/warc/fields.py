"""Header fields of records and of HTTP messages: ``Name: value``, a line each, up to an empty line."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

HEADER_BYTES = 1 << 20
"""How long the header of a record, or of an HTTP message, is at most."""

Name = Literal[
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "transfer-encoding",
    "warc-date",
    "warc-identified-content-language",
    "warc-identified-payload-type",
    "warc-record-id",
    "warc-target-uri",
    "warc-truncated",
    "warc-type",
]
NAMES: tuple[Name, ...] = get_args(Name)
"""The fields that are looked at, lower-cased as names are compared."""

Fields = Mapping[Name, str]
"""Values by name; of a field that is there twice, both, between them a comma."""

_LENGTH = re.compile(r"\d{1,18}")


class Message(NamedTuple):
    """An HTTP response: ``status`` is None where it has none that can be read."""

    status: int | None
    fields: Fields
    body: bytes | memoryview


def parse_fields(header: bytes, encoding: str = "latin-1") -> Fields:
    """Parse a header; indented lines continue the line before, and what has no colon is passed over."""
    values: dict[str, list[str]] = {}
    name = ""
    for line in header.decode(encoding, "replace").split("\n"):
        if line[:1] in (" ", "\t") and name:
            values[name].append(" " + line.strip())
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower() if colon else ""
        if name in values:
            values[name].append(", " + value.strip())
        elif name:
            values[name] = [value.strip()]
    return {name: "".join(values[name]) for name in NAMES if name in values}


def length_of(fields: Fields) -> int | None:
    """Return what Content-Length says, the first where it is there twice; None where that is no number."""
    length = fields.get("content-length", "").split(",")[0].strip()
    return int(length) if _LENGTH.fullmatch(length) else None
