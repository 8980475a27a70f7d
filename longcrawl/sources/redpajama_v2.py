"""RedPajama-V2 (v1.0.0): documents joined to their quality signals, duplicates and MinHash signatures.

On disk, in a local release or below a URL::

    documents/{snapshot}/{shard:04d}/{language}_{head|middle|tail}.json.gz
    quality_signals/{snapshot}/{shard:04d}/{language}_{head|middle}.signals.json.gz
    duplicates/{snapshot}/{shard:04d}/{language}_{head|middle}.duplicates.parquet
    minhash/{snapshot}/{shard:04d}/{language}_{head|middle}.minhash.parquet
    listings/{language}-{snapshot}-{head_middle|tail}.txt      lines "2023-06/0000/en_head"

The tail of a language has documents only. A document's id is ``{snapshot}/{shard}/{language}_{bucket}.json.gz/{line}``,
lines counted from 0 with those that cannot be read; everything is joined by it. Messages about lines count from 1, as
editors do.
"""

import copy
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from longcrawl.core import sources
from longcrawl.core.stages import Stage
from longcrawl.errors import SourceError
from longcrawl.printable import quoted
from longcrawl.sources.blocks import RECORD_BYTES, read_steps, stop_at_damage
from longcrawl.sources.files import DamagedFileError, absolute, fetch_texts, list_tree
from longcrawl.sources.json_lines import LineReader
from longcrawl.sources.parquet import read_columns
from longcrawl.storage.listing import unreachable, why_no_file
from longcrawl.text.rpv2.schema import LINE_SIGNALS, SIGNALS_TYPE, line_signals_type, signals_type
from longcrawl.urls import is_url, join, without_secrets

PUBLIC_RELEASE = "https://data.together.xyz/redpajama-data-v2/v1.0.0"
ENDING = ".json.gz"
PARTITIONS = ("head", "middle", "tail")
SIMILARITIES = ("0.7", "0.8", "0.9", "1.0")

_RECORD = pa.schema(
    [
        pa.field("raw_content", pa.large_string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("date_download", pa.string()),
        pa.field("language", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("length", pa.int64()),
        pa.field("nlines", pa.int64()),
        pa.field("source_domain", pa.string()),
        pa.field("title", pa.string()),
        pa.field("cc_segment", pa.string()),
        pa.field("original_nlines", pa.int64()),
        pa.field("original_length", pa.int64()),
        pa.field("language_score", pa.float64()),
        pa.field("perplexity", pa.float64()),
        pa.field("bucket", pa.string()),
    ]
)
_OWN_FIELDS = list(_RECORD)[4:]

_PART = re.compile(r"(?P<snapshot>\d{4}-\d{2})/(?P<shard>\d+)/(?P<language>[^/_]+)_(?P<partition>head|middle|tail)")
_LISTING = re.compile(r"(?P<language>[^/-]+)-(?P<snapshot>\d{4}-\d{2})-(?P<kind>head_middle|tail)\.txt")


@sources.source("redpajama-v2")
class RedPajamaV2(sources.Source):
    """Documents of RedPajama-V2.

    Every row has ``id``, ``text`` (the release's ``raw_content``), ``url``, ``date``, ``source``, ``language``, the
    release's own fields under their names (``line_ids`` left out), ``duplicate`` (bool: the release lists the document
    as a duplicate; null where there is no list, as for the tail), ``signals`` (struct of float64: every
    document-level signal by name, and of every line-level signal the sum over the lines as ``NAME.sum``; null where
    the release has none), and on request ``line_signals`` (struct of lists of [start, end, value]) and
    ``signature_sim0.7`` to ``signature_sim1.0`` (lists of binary).

    Args:
        data_dir: a local release, or the URL of one.
        snapshots: such as "2023-06"; empty for all that a release holds, which over http must be named.
        languages: of de, en, es, fr, it in the public release.
        partitions: of head, middle and tail: perplexity, from low to high, and what no model could judge.
        shards: numbers of shards; None for all.
        signals: whether to read the quality signals, or the names of those to read, as ``signals`` has them; the others
            are not looked into.
        line_signals: names of line-level signals to give as lists, or "all".
        minhash: whether to read the MinHash signatures.
        duplicates: whether to read the lists of duplicates.
        max_record_bytes: how long a line of documents or signals is at most; a longer one is a bad record.
        fetch_documents: of which shards a run reads documents. "if_any_passes" leaves out those of which the first
            stages, by signals and duplicates alone, keep none, nor one without signals: outputs are the same, manifest
            and card count ``not_fetched``, the ledger does not have them, and of documents only damage is not noticed.
        on_bad_files: what a missing, cut or corrupt file does, and one whose ids are of another shard. Documents in
            gzip members before the damage are kept, none after it, since ids are the numbers of lines; where only
            signals, duplicates or signatures are damaged, the documents keep null ones.
        storage_options: what fsspec takes to open the stores that URLs name, such as ``{endpoint_url: …, anon: true}``.
            No credentials, which belong into the environment or a profile.
    """

    homepage: ClassVar[str] = "https://huggingface.co/datasets/togethercomputer/RedPajama-Data-V2"
    license: ClassVar[str] = "common-crawl-terms-of-use, https://commoncrawl.org/terms-of-use"

    data_dir: str = PUBLIC_RELEASE
    snapshots: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en",)
    partitions: tuple[str, ...] = ("head", "middle")
    shards: tuple[int, ...] | None = None
    signals: bool | tuple[str, ...] = True
    line_signals: tuple[str, ...] = ()
    minhash: bool = False
    duplicates: bool = True
    max_record_bytes: int = RECORD_BYTES
    fetch_documents: Literal["always", "if_any_passes"] = "always"
    on_bad_files: sources.OnBadFiles = "error"
    storage_options: sources.StorageOptions = None

    _stages: ClassVar[Sequence[Stage]] = ()
    """The stages of a run, of which the first ones may need signals and duplicates alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sources.check_record_bytes(self.max_record_bytes)
        _check_known("partition", self.partitions, PARTITIONS)
        _check_known("line signal", self.line_signals, (*LINE_SIGNALS, "all"))
        _check_known("signal", self._signals, [field.name for field in SIGNALS_TYPE])
        if not self.languages or not self.partitions:
            raise SourceError(
                f"source {self.name!r} needs at least one language and one partition; e.g. languages=['en']"
            )

    def settings(self) -> dict[str, Any]:
        """Return the fields as YAML-ready values; ``fetch_documents`` only if it is not the default."""
        settings = super().settings()
        if self.fetch_documents == "always":
            del settings["fetch_documents"]
        return settings

    @property
    def _line_signals(self) -> tuple[str, ...]:
        return LINE_SIGNALS if "all" in self.line_signals else tuple(dict.fromkeys(self.line_signals))

    @property
    def _signals(self) -> tuple[str, ...]:
        if isinstance(self.signals, tuple):
            return self.signals
        return tuple(field.name for field in SIGNALS_TYPE) if self.signals else ()

    def for_tokens(self, signals: Sequence[str]) -> Self:
        """Return the source with these signals alone."""
        known = [field.name for field in SIGNALS_TYPE]
        if self.signals is not True or not signals or not {*signals} <= {*known}:
            return self
        return replace(self, signals=tuple(name for name in known if name in signals))

    def for_stages(self, stages: Sequence[Stage]) -> Self:
        """Return the source that skips documents, if it may, of which these stages keep none."""
        first = itertools.takewhile(lambda stage: "keeps_unread" in vars(type(stage)), stages)
        source = copy.copy(self)  # each task carries it: with those stages that are asked
        vars(source)["_stages"] = tuple(first) if self.signals and self.fetch_documents == "if_any_passes" else ()
        return source

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of every table that ``read`` yields."""
        fields = [*sources.DOCUMENTS, *_OWN_FIELDS]
        if self.duplicates:
            fields.append(pa.field("duplicate", pa.bool_()))
        if self.signals:
            fields.append(pa.field("signals", signals_type(self._signals)))
        if self._line_signals:
            fields.append(pa.field("line_signals", line_signals_type(self._line_signals)))
        if self.minhash:
            fields += [pa.field(f"signature_sim{similarity}", pa.list_(pa.binary())) for similarity in SIMILARITIES]
        return pa.schema(fields)

    @property
    def unique_ids(self) -> bool:
        """True: ids are shards and numbers of lines."""
        return True

    def splits(self) -> dict[str, list[sources.Part]]:
        """List the shards asked for: those that listings name, and those in ``documents``, which listings may lack.

        Web servers list no folders, so there the listings of the wanted snapshots decide.

        Raises:
            SourceError: a snapshot, language or shard is not there, or nothing is.
            NotYetError: a server does not give a listing now.
        """
        base = absolute(self.located(self.data_dir))
        is_web = base.startswith(("http://", "https://"))
        found = self._listed(base, self._listings_by_name(base)) if is_web else self._found(base)
        found = sorted({match[0]: match for match in found}.values(), key=lambda match: match[0])
        wanted = [
            match for match in found if match["language"] in self.languages and match["partition"] in self.partitions
        ]
        wanted = [match for match in wanted if not self.snapshots or match["snapshot"] in self.snapshots]
        if self.shards is not None:
            _check_known("shard", self.shards, sorted({int(match["shard"]) for match in wanted}))
            wanted = [match for match in wanted if int(match["shard"]) in self.shards]
        if not wanted:
            raise SourceError(
                f"{without_secrets(base)} holds no documents of partitions {', '.join(self.partitions)} in "
                f"{', '.join(self.languages)}; set data_dir, snapshots, languages, partitions or shards to what it "
                "holds"
            )
        parts = [sources.Part(match[0], tuple(self._files(base, match[0]).values())) for match in wanted]
        return {"train": sorted([*parts, *_unreachable_parts(base)], key=lambda part: part.name)}

    def read(self, part: sources.Part, bad_files: sources.BadFiles) -> Iterator[pa.Table]:
        """Read the documents of one shard with all that is known about them."""
        if _PART.fullmatch(part.name) is None:
            bad_files.report(
                part.files[0], why_no_file(part.files[0]) or "is not the name of a part; its documents are not read"
            )
            return
        from longcrawl.sources.rpv2_signals import count_unread

        files = self._files(absolute(self.located(self.data_dir)), part.name)
        broken, known = len(bad_files.found), self._columns(part.name, files, bad_files)
        if self._stages and len(bad_files.found) == broken and (skipped := count_unread(known, self._stages)):
            bad_files.left_out["not_fetched"] += skipped
            return
        joined = {name: _Joined(table) for name, table in known.items()}
        schema, lost = self.schema(), sources.LostRecords(bad_files, files["documents"])
        reader, documents = LineReader(_RECORD), files["documents"]
        first = unread = 0
        try:
            for step in read_steps(
                documents,
                most_bytes=self.max_record_bytes,
                on_loss=stop_at_damage(lost),
                checksums=bad_files.when_to_check(documents),
                lines_read=lambda: reader.lines,
            ):
                if step is not None:
                    reader.add(step)
                    continue
                lines = reader.take()
                numbers = pa.array(lines.numbers + first).cast(pa.string())
                ids = pc.binary_join_element_wise(f"{part.name}.json.gz", numbers, "/")
                for number, reason in lines.lost:
                    lost.add(f"line {number + first + 1}", reason)
                first += lines.count
                unread += lines.count - len(ids)
                if len(ids):
                    yield self._table(ids, lines.table, joined, schema)
            lost.report()
            for name in [name for name, table in joined.items() if table.unmatched(unread)]:
                which = f"{joined[name].unmatched(unread)} of its {joined[name].table.num_rows} ids"
                bad_files.report(
                    files[name],
                    f"{which} are of none of the {first} lines of documents; one of the two files is another one",
                )
        except DamagedFileError as damage:
            lost.report(f"{damage}; {first} lines were read before that", damage.records_lost)
        bad_files.has_unchecked = False

    def _found(self, base: str) -> list[re.Match[str]]:
        """Return the parts that the wanted listings name, and all that lie in the folder ``documents``."""
        listings = [match for name in list_tree(join(base, "listings")) if (match := _LISTING.fullmatch(name))]
        # A remote release may have millions of files: of it, only the wanted snapshots are walked.
        folders = [f"{snapshot}/" for snapshot in self.snapshots if is_url(base)] or [""]
        names = [folder + name for folder in folders for name in list_tree(join(base, f"documents/{folder}"))]
        parts = [name.removesuffix(ENDING) for name in names if name.endswith(ENDING)]
        walked = [match for name in parts if (match := _PART.fullmatch(name))]
        if not listings and not walked:
            raise SourceError(
                f"{without_secrets(base)} is not a RedPajama-V2 release: it has neither listings/ nor "
                "documents/SNAPSHOT/SHARD/*.json.gz; set data_dir to the folder that holds documents/"
            )
        for what, asked in (("snapshot", self.snapshots), ("language", self.languages)):
            _check_known(what, asked, sorted({match[what] for match in [*listings, *walked]}), base)
        wanted = [
            match[0]
            for match in listings
            if match["language"] in self.languages
            and match["kind"] in self._kinds()
            and (not self.snapshots or match["snapshot"] in self.snapshots)
        ]
        return walked + self._listed(base, wanted)

    def _kinds(self) -> list[str]:
        return sorted({"tail" if partition == "tail" else "head_middle" for partition in self.partitions})

    def _listings_by_name(self, base: str) -> list[str]:
        """Name the listings of the wanted snapshots, where no server says which there are."""
        if not self.snapshots:
            raise SourceError(
                f"{without_secrets(base)} cannot be asked which snapshots it has: name them, e.g. snapshots=['2023-06']"
            )
        pairs = itertools.product(self.languages, self.snapshots, self._kinds())
        return [f"{language}-{snapshot}-{kind}.txt" for language, snapshot, kind in pairs]

    def _listed(self, base: str, listings: Sequence[str]) -> list[re.Match[str]]:
        found: list[re.Match[str]] = []
        for path, text in fetch_texts([join(base, f"listings/{name}") for name in listings]).items():
            if text is None:
                raise SourceError(
                    f"{without_secrets(path)} does not exist; snapshots are written like '2023-06', and the public "
                    "release has the languages de, en, es, fr, it"
                )
            for number, line in enumerate(text.splitlines(), 1):
                part = _PART.fullmatch(line.strip())
                if part is not None:
                    found.append(part)
                elif line.strip():
                    raise SourceError(
                        f"{without_secrets(path)}, line {number}: {quoted(line)} names no part such as "
                        "2023-06/0000/en_head. Fix the line"
                    )
        return found

    def _files(self, base: str, part: str) -> dict[str, str]:
        """Return the files that are read for a part, documents first."""
        files = {"documents": join(base, f"documents/{part}.json.gz")}
        if part.endswith("_tail"):
            return files
        if self.signals or self.line_signals:
            files["signals"] = join(base, f"quality_signals/{part}.signals.json.gz")
        if self.duplicates:
            files["duplicates"] = join(base, f"duplicates/{part}.duplicates.parquet")
        if self.minhash:
            files["minhash"] = join(base, f"minhash/{part}.minhash.parquet")
        return files

    def _columns(self, part: str, files: dict[str, str], bad_files: sources.BadFiles) -> dict[str, pa.Table]:
        """Read all that is joined to the documents: tables whose first column is their id, for each good file."""
        from longcrawl.sources.rpv2_signals import is_of_shard, read_signals

        tables = {}
        if "signals" in files:
            lost = sources.LostRecords(bad_files, files["signals"], "the documents without signals keep null ones")
            tables["signals"] = read_signals(
                files["signals"], self._signals, self._line_signals, lost, self.max_record_bytes
            )
        if "duplicates" in files:
            tables["duplicates"] = _read_parquet(files["duplicates"], {"doc_id": pa.string()}, bad_files)
        if "minhash" in files:
            columns = {f"signature_sim{similarity}": pa.list_(pa.binary()) for similarity in SIMILARITIES}
            tables["minhash"] = _read_parquet(files["minhash"], {"id": pa.string(), **columns}, bad_files)
        return {
            name: table
            for name, table in tables.items()
            if table is not None and is_of_shard(table, part, files[name], bad_files)
        }

    def _table(
        self, ids: pa.StringArray, records: pa.Table, joined: dict[str, "_Joined"], schema: pa.Schema
    ) -> pa.Table:
        """Join documents to the rows of each file that are theirs, null where it has none."""
        found: dict[str, Any] = {
            "id": ids,
            "text": records["raw_content"],
            "date": records["date_download"],
            "source": pa.repeat(self.name, len(ids)),
            **{name: records[name] for name in ("url", "language", *(field.name for field in _OWN_FIELDS))},
        }
        if "duplicates" in joined:
            found["duplicate"] = joined["duplicates"].find(ids).is_valid()
        for name in ("signals", "minhash"):
            if name in joined:
                values = joined[name].take(ids)
                found |= dict(zip(values.column_names, values.columns, strict=True))
        columns = [found[field.name] if field.name in found else pa.nulls(len(ids), field.type) for field in schema]
        return pa.table(columns, schema=schema)


class _Joined:
    """The rows of a file that are joined to documents by the first column, their id."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._ids = table[0].combine_chunks()
        self._matched = 0
        self._is_in_order = True
        """Whether the rows so far were those of all documents so far."""

    def find(self, ids: pa.StringArray) -> pa.Int32Array:
        """Return the first row of each id, null where there is none; the ids of two calls are never the same."""
        rows = pc.index_in(ids, value_set=self._ids)
        self._matched += len(ids) - rows.null_count
        self._is_in_order = False
        return rows

    def take(self, ids: pa.StringArray) -> pa.Table:
        """Return the other columns of the first row of each id; the ids of two calls are never the same."""
        values = self.table.remove_column(0)
        if self._is_in_order and ids.equals(self._ids.slice(self._matched, len(ids))):
            self._matched += len(ids)
            return values.slice(self._matched - len(ids), len(ids))
        return values.take(self.find(ids))

    def unmatched(self, most: int) -> int:
        """Return how many of the ids are of no document so far, 0 if they are no more than ``most``."""
        if self.table.num_rows - self._matched <= most:
            return 0
        rest = pc.count_distinct(self._ids).as_py() - self._matched
        return rest if rest > most else 0


def _read_parquet(path: str, columns: dict[str, pa.DataType], bad_files: sources.BadFiles) -> pa.Table | None:
    try:
        return read_columns(path, pa.schema(list(columns.items())))
    except DamagedFileError as damage:
        bad_files.report(path, f"{damage}; the documents keep null in its place")
        return None


def _unreachable_parts(base: str) -> list[sources.Part]:
    """Return links to nothing and folders that cannot be listed among the documents, for the policy to apply."""
    folder = join(base, "documents")
    if is_url(base):
        return []
    names = [name for name in list_tree(folder) if not name.endswith(ENDING)]
    return [sources.Part(name, (join(folder, name),)) for name in unreachable(folder, names)]


def _check_known(what: str, asked: tuple[Any, ...], known: Any, where: str = "the source") -> None:
    for value in asked:
        if value not in known:
            spelled = ", ".join(str(name) for name in known) or "none"
            raise SourceError(f"{without_secrets(where)} has no {what} {value!r}; known: {spelled}")
