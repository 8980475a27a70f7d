"""Descriptions that hold the SHA-256 of their own bytes."""

import json

import pytest

from longcrawl.io.structured import is_sealed, seal


@pytest.mark.parametrize("content", [{}, {"rows": 1}, {"a": [1, {"b": 'é\ud800 "sha256": "'}], "z": None}])
def test_a_seal_holds_for_the_bytes_as_they_were_written(tmp_path, content):
    file, written = tmp_path / "sealed.json", seal(content).encode("utf-8", "backslashreplace")
    file.write_bytes(written)
    assert is_sealed(file, json.loads(written))
    spaces = written.replace(b"\n ", b"\n  ", 1)
    others = [bytes([*written[:at], written[at] ^ 1, *written[at + 1 :]]) for at in range(len(written))]
    for changed in [written + b"\n", spaces, *others]:
        file.write_bytes(changed)
        try:
            found = json.loads(changed)
        except ValueError:
            continue
        assert not is_sealed(file, found)
