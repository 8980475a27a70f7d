"""Encodings of files: named, marked and detected, in pieces of any length, malformed, and in runs."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.sources import BadFiles
from longcrawl.errors import SourceError
from longcrawl.sources import blocks
from longcrawl.sources.encodings import (
    SAMPLE_BYTES,
    codec_name,
    detect_encoding,
    guess_encoding,
    is_wide,
    lossy_decoder,
    seems_binary,
)
from longcrawl.sources.text import Text

TEXTS = ["Пароход пришёл в порт, и весь город вышел на пристань.", "Лодка осталась возле причала; ждали до вечера."]
RECORDS = [json.dumps({"text": text}, ensure_ascii=False) for text in TEXTS]
FILES = {
    "a.jsonl": "\n".join(RECORDS) + "\n",
    "a.json": "[" + ",\n".join(RECORDS) + "]",
    "a.csv": "text\n" + "".join(f'"{text}"\n' for text in TEXTS),
    "a.tsv": "text\n" + "\n".join(TEXTS),
    "a.md": TEXTS[0],
    "lines.txt": "\n".join(TEXTS),
}
CODECS = ("cp1251", "koi8-r", "iso8859-5", "utf-16", "utf-16-be", "utf-32-le", "utf-8", "utf-8-sig", "gb18030")


def read(source, policy="error"):
    bad_files = BadFiles(policy)
    tables = [table for part in source.splits()["train"] for table in source.read(part, bad_files)]
    return [row for table in tables for row in table.to_pylist()], bad_files


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("name", "codec", "packed"),
    [
        pytest.param(name, codec, packed, marks=[] if (row, packed) == (column % 6, column % 2) else [pytest.mark.slow])
        for row, name in enumerate(FILES)
        for column, codec in enumerate(CODECS)
        for packed in (False, True)
    ],
)
def test_files_of_any_encoding_are_the_same_documents(tmp_path, monkeypatch, name, codec, packed):
    monkeypatch.setattr(blocks, "READ_BYTES", 5)  # pieces end within characters
    data = FILES[name].encode(codec)
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(data) if packed else data)
    unit = "line" if name == "lines.txt" else "file"
    rows, bad_files = read(Text(data_files=str(file), encoding=codec, unit=unit))
    assert [row["text"] for row in rows] == (TEXTS[:1] if name == "a.md" else TEXTS)
    plain = codec_name(codec) if codec != "utf-16" else "utf-16-le"
    assert bad_files.encodings == ({} if codec == "utf-8" else {plain: 1})
    if codec == "gb18030":  # Russian texts are hardly ever in it
        return
    detected, bad_files = read(Text(data_files=str(file), encoding="detect", unit=unit))
    assert detected == rows
    marked = codec in ("utf-16", "utf-8", "utf-8-sig")
    assert bad_files.encodings == {plain if marked else f"{plain}, guessed": 1}


@pytest.mark.variants
@pytest.mark.parametrize("name", FILES)
def test_what_is_not_utf8_names_its_likely_encoding_and_the_setting(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name].encode("cp1251"))
    unit = "line" if name == "lines.txt" else "file"
    with pytest.raises(
        SourceError, match="is not UTF-8.* its encoding seems to be cp1251: set encoding to that, or to"
    ):
        read(Text(data_files=str(tmp_path / name), unit=unit))
    (tmp_path / name).write_bytes(FILES[name].encode("utf-16-le"))
    with pytest.raises(SourceError, match="its encoding seems to be utf-16-le: set encoding to that"):
        read(Text(data_files=str(tmp_path / name), unit=unit))


@pytest.mark.parametrize("codec", ["euc_jp", "shift_jis", "cp1252", "utf-16-le"])
def test_a_line_that_is_malformed_in_its_encoding_is_lost_alone(tmp_path, codec):
    bad = {"cp1252": b"\x81", "utf-16-le": b"\x00\xd8a\x00"}.get(codec, b"\xff")
    lines = [f"{row}\n".encode(codec) for row in ("one", "two", "three")]
    (tmp_path / "a.txt").write_bytes(lines[0] + bad + lines[1] + lines[2])
    rows, bad_files = read(Text(data_files=str(tmp_path / "a.txt"), unit="line", encoding=codec), "skip")
    assert [(row["id"], row["text"]) for row in rows] == [("a.txt:0", "one"), ("a.txt:2", "three")]
    assert [(bad.reason, bad.records_lost) for bad in bad_files.found] == [(f"line 2 is not {codec}", 1)]


def test_damaged_utf8_is_not_taken_for_another_encoding(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(FILES["a.jsonl"].encode() + b'{"text": "\xff"}\n')
    for encoding in ("utf-8", "detect"):
        with pytest.raises(SourceError, match=r"line 3 is not (UTF-8|detect)") as failed:
            read(Text(data_files=str(tmp_path / "a.jsonl"), encoding=encoding))
        assert "seems to be" not in str(failed.value)


@pytest.mark.parametrize("encoding", ["klingon", "hex", "rot13", "idna", "unicode_escape", ""])
def test_unknown_encodings_are_refused(encoding):
    with pytest.raises(SourceError, match="^unknown encoding '.*': set encoding to 'utf-8', 'latin-1'"):
        Text(data_files="a.txt", encoding=encoding)


@given(
    st.text(max_size=40), st.sampled_from(["utf-16-le", "utf-32-be", "gb18030", "utf-7", "latin-1"]), st.integers(1, 9)
)
def test_pieces_decode_as_the_whole(text, codec, size):
    data = text.encode(codec, "ignore" if codec == "latin-1" else "strict")
    decoder = lossy_decoder(codec)
    text = "".join(map(decoder.decode, cut(data, size))) + decoder.decode(b"", final=True)
    decoded = text.encode("utf-8", "surrogatepass")
    assert decoded.decode() == data.decode(codec)


@given(
    st.binary(max_size=40),
    st.sampled_from(["utf-16-le", "gb18030", "euc_jp", "cp932", "big5", "cp1252"]),
    st.integers(1, 9),
)
def test_what_is_malformed_is_never_utf8_and_keeps_line_ends(data, codec, size):
    decoder = lossy_decoder(codec)
    text = "".join(map(decoder.decode, cut(data, size))) + decoder.decode(b"", final=True)
    decoded = text.encode("utf-8", "surrogatepass")
    try:
        expected = data.decode(codec)
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            decoded.decode()
        if not is_wide(codec):
            assert decoded.count(b"\n") == data.count(b"\n")
    else:
        assert decoded.decode() == expected


@pytest.mark.parametrize("codec", ["utf-8", "cp1251", "utf-16-le", "utf-16"])
@pytest.mark.parametrize("before", [0, 3, SAMPLE_BYTES + 7])
def test_what_is_detected_does_not_depend_on_pieces(codec, before):
    data = ("a line in front\n" * (before // 16) + "".join(TEXTS) * 3).encode(codec)
    found = {detect_encoding(cut(data, size)) for size in (1_000, 4_097, 70_001, len(data))}
    assert found == {"utf-16-le" if codec == "utf-16" else codec}


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"", "utf-8"),
        (b"plain", "utf-8"),
        ("naïve".encode("latin-1"), "cp1252"),
        ("“quoted” — and more".encode("cp1252"), "cp1252"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", None),
        (bytes(range(256)) * 20, None),
    ],
)
def test_few_bytes_and_binary_data(data, encoding):
    assert detect_encoding([data]) == encoding


def test_signs_that_stand_alone_are_of_western_texts():
    for sign in "×·•©°±§…":  # noqa: RUF001  # what it says
        text = f"<p>Size 4 {sign} 5, as on page 7</p><p>The boat came at noon and went.</p>\n" * 9
        data = text.encode("cp1252")
        assert data.decode(guess_encoding(data)) == text


def test_binary_data_is_no_document_in_any_encoding(tmp_path):
    assert seems_binary("a\0b")
    assert not seems_binary("\ta\r\n\f\x1b[0m é")
    for number, data in enumerate([b"text\0more", bytes(range(1, 32)) * 9, b"\x89PNG\r\n\x1a\n\0\0"]):
        (tmp_path / f"{number}.md").write_bytes(data)
    (tmp_path / "3.md").write_text("a text")
    for encoding in ("utf-8", "latin-1", "detect"):
        for unit in ("file", "line"):
            rows, bad_files = read(Text(data_dir=str(tmp_path), encoding=encoding, unit=unit), "skip")
            assert [row["text"] for row in rows] == ["a text"]
            assert len(bad_files.found) == 3


@pytest.mark.slow
def test_a_run_counts_files_by_encoding_and_does_not_depend_on_processes(tmp_path):
    (tmp_path / "in").mkdir()
    for number, codec in enumerate(["cp1251", "cp1251", "utf-8", "utf-16"] * 2):
        name, data = ("a.jsonl", FILES["a.jsonl"]) if number % 2 else ("a.csv", FILES["a.csv"])
        (tmp_path / "in" / f"{number}{name}").write_bytes(data.encode(codec))
    recipe = {
        "longcrawl": 1,
        "name": "encodings",
        "source": {"builder": "text", "data_dir": str(tmp_path / "in"), "encoding": "detect"},
        "stages": [{"min_words": {"n": 1}}],
        "outputs": {"parquet": {}},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    found = []
    for processes in (1, 2):
        out = tmp_path / f"out{processes}"
        lc.run(str(tmp_path / "recipe.yaml"), out, num_proc=processes)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["encodings"] == {"cp1251, guessed": 4, "utf-16-le": 2, "utf-8": 2}
        assert "cp1251, guessed 4" in (out / "README.md").read_text()
        found.append(manifest["files"])
    assert found[0] == found[1]
