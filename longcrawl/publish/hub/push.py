"""Push of a finished run to the Hub: token tables, files, card and tag.

Up to ``COMMIT_FILES`` changed files are one commit. Larger pushes take several commits. From the first to the last of
them, ``unfinished-push.json`` names the push, and no file on ``main`` shows readers how to load the data. Only a
complete push gets a tag.

Plain `datasets` reads neither Zarr nor token shards. ``tokens/`` has the rows of such an output as Parquet files, which
are written to ``.push`` and then moved. A list of the moves is written first, so that a repeated push completes them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from longcrawl.core.counts import EDITS, LEDGER, QUEUES
from longcrawl.core.display import counted
from longcrawl.core.outputs import RESULTS, TokenRows
from longcrawl.errors import FormatError, HubError, RunError, as_lines, check_word, warn_user
from longcrawl.formats.shards.parquet import row_groups
from longcrawl.formats.token_output import BEGINNING, TEXT, TOKENIZER, texts_of
from longcrawl.io.files import check_writable, checksum, file_entries, publish, remove, whole_file, write_text, writing
from longcrawl.io.stored_tables import GroupedTable, check_undamaged
from longcrawl.io.structured import Marker, seal, verify_files
from longcrawl.publish.hub import client
from longcrawl.run.card.front_matter import card_problems
from longcrawl.run.card.write import card, is_marked, local_paths
from longcrawl.run.engines.hold import LOCK, hold_alone
from longcrawl.run.engines.local import Local
from longcrawl.run.manifest import CARD, MANIFEST, TOKEN_TABLES, open_run, read_manifest, read_sealed
from longcrawl.run.segments import do_once

if TYPE_CHECKING:
    from huggingface_hub import HfApi


Tables = Literal["tokens", "text", "none"]
"""Content of token tables: the beginning of each text, the whole text, or no tables."""
PREPARING = ".push"
MOVES = "moves.json"
"""Marker in ``.push`` that lists the planned moves."""
FILE_TOKENS = 1 << 27
"""Approximate tokens per file: 200 to 300 MB, of which the Hub's viewer reads the first part."""
LEDGER_BYTES = 16 << 20
"""Most bytes of small files that are merged into one; larger files are not merged."""
MERGED = "merged-"
"""Name prefix of merged files, which are not merged again."""


@dataclass(frozen=True)
class _TableTask:
    file: Path
    rows: TokenRows
    start: int
    stop: int
    shown: str
    """Name of the text column: BEGINNING or TEXT."""
    decode: Callable[[pa.Table], pa.Table] | None
    """Adds the text column, or None without a tokenizer."""

    @property
    def marker(self) -> Path:
        return self.file.with_suffix(".json")


def write_tables(run: str | Path, tables: Tables = "tokens", num_proc: int = 1) -> None:
    """Write the token tables of a finished run, as a push would, so that plain `datasets` can load them.

    ``tables`` is "tokens", "text" or "none", as for :func:`push`. The bytes do not depend on ``num_proc``.
    """
    check_word("tables", tables, Tables, RunError)
    with open_run(run, "") as folder:
        check_writable(folder / TOKEN_TABLES)
        resume_moves(folder)
        prepare(folder, tables, num_proc)


def prepare(folder: Path, tables: Tables = "tokens", num_proc: int = 1) -> None:
    """Write missing token tables, merge small files of the ledgers, and update card and manifest.

    With "none", existing tables are removed, and nothing else is done. If a person has written the card, nothing is
    written, with a warning, because no configuration would name the tables.
    """
    manifest = read_sealed(folder)
    if not any(_to_do(folder, manifest, tables)):
        return
    file = folder / CARD
    if not is_marked(file.read_text("utf-8")) and checksum(file) != manifest["files"].get(CARD, {}).get("sha256"):
        warn_user(
            f"{file} has none of longcrawl's comments, so token tables cannot be listed in it and are not written: "
            "move it away and run `longcrawl card`, or push with --tables none"
        )
        return
    with _alone(folder) as beside:
        # Another push may have written them meanwhile.
        manifest = read_sealed(folder)
        tasks, merges, old = _to_do(folder, manifest, tables)
        if not (tasks or merges or old):
            return
        (beside / TOKEN_TABLES).mkdir(parents=True, exist_ok=True)
        markers = [task.marker for task in tasks]
        for task in tasks:
            if (begun := Marker.read(task.marker)) is not None and begun.content["shown"] != task.shown:
                remove(task.marker)
        if tasks:
            do_once(folder, _write_table, tasks, markers, Local(num_proc), TOKEN_TABLES, "files")
        made = {f"{TOKEN_TABLES}/{task.file.name}": Marker.open(task.marker, task.file) for task in tasks}
        entries = {name: next(iter(marker.files.values())) for name, marker in made.items()}
        for name, files in merges.items():
            merged, paths = beside / name, [folder / each for each in files]
            merged.parent.mkdir(exist_ok=True)
            check_undamaged(paths)
            with whole_file(merged) as partial_file, GroupedTable(partial_file) as written:
                read = [pq.read_table(file, partitioning=None) for file in paths]
                written.add(pa.concat_tables(read).combine_chunks())
        entries |= file_entries(beside, list(merges))
        replaced = [*old, *chain(*merges.values())]
        Marker(beside / MOVES, {"output": _identity(manifest), "made": entries, "replaced": replaced}, {}).write()
        _move(folder, beside)


def resume_moves(folder: Path) -> None:
    """Complete the moves of a push that was stopped before the last one."""
    if Marker.read(folder / PREPARING / MOVES) is not None:
        with _alone(folder) as beside:
            _move(folder, beside)


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """Yield the folder of prepared files, locked by this process; remove it afterwards if it is empty."""
    beside = folder / PREPARING
    with writing(beside, RunError, "make room for its token tables, or push with --tables none"):
        beside.mkdir(exist_ok=True)
        with hold_alone(beside, "push"):
            yield beside
        with suppress(OSError):
            beside.rmdir()


def _move(folder: Path, beside: Path) -> None:
    """Move prepared files to their places, and update card and manifest; can be repeated after a stop."""
    moves = Marker.read(beside / MOVES)
    if moves is None:
        return
    manifest = read_sealed(folder)
    if moves.content["output"] != _identity(manifest):
        return
    # Old ledgers and tables go first, because with both, each document would be counted twice.
    for name in moves.content["replaced"]:
        remove(folder / name)
    with suppress(OSError):
        (folder / TOKEN_TABLES).rmdir()
    for name in moves.content["made"]:
        if (beside / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            publish(beside / name, folder / name)
    kept = {name: entry for name, entry in manifest["files"].items() if name not in moves.content["replaced"]}
    files = dict(sorted((kept | moves.content["made"]).items()))
    write_text(folder / MANIFEST, seal({**manifest, "files": files}))
    card(folder)
    for made in beside.iterdir():
        if made.name != LOCK:
            remove(made)


def _identity(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the output's description, which differs for another run."""
    result = RESULTS[manifest["output"]["format"]]
    return str(manifest["files"].get(f"{result.name}/{result.description}", {}).get("sha256"))


def _table_files(manifest: Mapping[str, Any]) -> list[str]:
    return [name for name in manifest["files"] if name.startswith(f"{TOKEN_TABLES}/")]


def _to_do(
    folder: Path, manifest: Mapping[str, Any], tables: Tables
) -> tuple[list[_TableTask], dict[str, list[str]], list[str]]:
    """Return tables to write, ledger files to merge, and tables to remove."""
    tasks = _tasks(folder, manifest, tables)
    merges = {} if tables == "none" else _merges(manifest)
    return tasks, merges, _table_files(manifest) if tasks or tables == "none" else []


def _tasks(folder: Path, manifest: Mapping[str, Any], tables: Tables) -> list[_TableTask]:
    made = _table_files(manifest)
    # Existing tables are kept if their texts are as requested, whole or only the beginning.
    if tables == "none" or (made and (TEXT in pq.read_schema(folder / made[0]).names) == (tables == "text")):
        return []
    described = manifest["output"]
    output, shown = folder / described["format"], TEXT if tables == "text" else BEGINNING
    found, tasks, decode = RESULTS[described["format"]].token_rows(output), [], texts_of(output, described, shown)
    if decode is None and found and shown == TEXT:
        raise RunError(f"{output} has no {TOKENIZER} to decode its tokens: use --tables tokens")
    for split, rows in found.items():
        count = min(max(-(-rows.tokens // FILE_TOKENS), 1), rows.rows)
        bounds = [rows.rows * number // count for number in range(count + 1)]
        for number in range(count):
            file = folder / PREPARING / TOKEN_TABLES / f"{split}-{number:05d}-of-{count:05d}.parquet"
            tasks.append(_TableTask(file, rows, bounds[number], bounds[number + 1], shown, decode))
    return tasks


def _write_table(task: _TableTask) -> dict[str, Any]:
    tables = task.rows.read(task.start, task.stop)
    if task.decode is not None:
        tables = map(task.decode, tables)
    with whole_file(task.file) as beside, GroupedTable(beside) as written:
        first = next(tables)
        for group in row_groups(chain([first], tables), first.schema):
            written.add(group.combine_chunks())
    content = {"rows": task.stop - task.start, "shown": task.shown}
    Marker(task.marker, content, Marker.entries(task.marker, [task.file])).write()
    return content


def _merges(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the ledger files to merge, by the name of the merged file, in the order of names."""
    merges: dict[str, list[str]] = {}
    for kind in (LEDGER, EDITS, *QUEUES):
        groups: list[list[str]] = []
        size = 0
        for name, entry in sorted(manifest["files"].items()):
            if Path(name).parent != Path(kind) or not name.endswith(".parquet") or Path(name).name.startswith(MERGED):
                continue
            if not groups or size + entry["bytes"] > LEDGER_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(name)
            size += entry["bytes"]
        large = [group for group in groups if len(group) > 1]
        merges |= {f"{kind}/{MERGED}{number:05d}.parquet": group for number, group in enumerate(large)}
    return merges


COMMIT_FILES = 250
"""Most files per commit: few commits, as the Hub limits their rate, but none so large that it times out."""

TOO_MUCH = (413, 504)
"""Status codes of the Hub for a commit that is too large or takes too long; half of it may succeed."""

TAG_LENGTH = 12


@dataclass(frozen=True)
class Push:
    """Content of a planned or completed push."""

    repo: str
    visibility: client.Visibility
    send: Mapping[str, int]
    """Bytes by path of new and changed files."""
    unchanged: Mapping[str, int]
    """Bytes by path of files that are already on the Hub."""
    delete: tuple[str, ...]
    """Files of an earlier push that this run does not have."""
    tag: str
    """Tag of these bytes on the Hub: the first digits of the SHA-256 that manifest.json records of itself."""
    commits: int = 1
    """Number of commits, or 0 if nothing is sent or deleted."""
    commit: str | None = None
    """Commit that contains the run, or None for a dry run."""
    begins: bool = field(repr=False, default=False)
    """Whether the first of several commits is still to be made."""
    digests: Mapping[str, str] = field(repr=False, default_factory=dict)
    """SHA-256 by path of all files of the run."""
    problems: tuple[str, ...] = ()
    """Front matter entries of the card that the Hub would reject, as far as known here (dry run only)."""
    first: tuple[str, ...] = ()
    """Token tables that the push would first write and then send (dry run only)."""
    dropped: tuple[str, ...] = ()
    """Token tables that the push would first remove from the run (dry run only)."""
    unseen: bool = False
    """Whether a private repository of this name would be invisible, because nobody is signed in."""
    local: tuple[str, ...] = ()
    """Local paths in the recipe, which the card, the recipe and the manifest on the Hub reveal."""

    def __str__(self) -> str:
        size, same = sum(self.send.values()), sum(self.unchanged.values())
        sent, kept, gone = (counted(len(each), "file") for each in (self.send, self.unchanged, self.delete))
        summary = f"{sent} ({size:,} bytes) to send, {kept} ({same:,} bytes) unchanged, {gone} to delete"
        summary += f", in {self.commits:,} commits" if self.commits > 1 else ""
        if self.commit is not None:
            done = summary.replace("to send", "new or changed").replace("to delete", "deleted")
            return (
                f"{self.repo} ({self.visibility}) holds the run at {self.commit[:TAG_LENGTH]}, tag {self.tag}: {done}"
            )
        width = max((len(f"{each:,}") for each in self.send.values()), default=0)
        lines = [f"  {bytes_:>{width},}  {path}" for path, bytes_ in self.send.items()]
        lines += [f"  {'delete':>{width}}  {path}" for path in self.delete]
        lines += [f"  {'made first':>{width}}  {path}" for path in self.first]
        lines += [f"  {'removed first':>{width}}  {path}" for path in self.dropped if path not in self.first]
        lines += [f"{CARD} would be rejected: {problem}" for problem in self.problems]
        lines += [f"everybody who reads it sees this path of your machine: {path}" for path in self.local]
        if self.unseen:
            lines.append(f"you are not signed in: if {self.repo} exists and is private, less may be sent or deleted")
        tag = "tag known once its tables are written" if self.first or self.dropped else f"tag {self.tag}"
        return as_lines([f"{self.repo} ({self.visibility}), {tag}: {summary}", *lines])

    __repr__ = __str__


def push(
    run: str | Path,
    repo: str,
    visibility: client.Visibility | None = None,
    *,
    private: bool | None = None,
    dry_run: bool = False,
    instead_of: str | None = None,
    tables: Tables = "tokens",
    num_proc: int = 1,
) -> Push:
    """Send a finished run to a dataset repository of the Hub, and tag it.

    Plain `datasets` can load a pushed run: ``load_dataset("user/name", CONFIGURATION, revision=TAG)``. Call it again to
    resume a stopped push; files that are already on the Hub are not sent again. Files of an earlier run are deleted
    there, and all other files in the repository are kept.

    Args:
        run: the folder of a finished run, or its URL in a store. A remote run is fetched whole, and new token tables
            are also written to its store. Temporary files are not sent to the Hub.
        repo: ``user/name``; the repository is created if it does not exist.
        visibility: "private" or "public"; an existing repository must have this visibility.
        private: True or False instead of ``visibility``, as in `huggingface_hub` and `datasets`.
        dry_run: whether to only list what would be sent, without changes and without a token.
        instead_of: content to replace: the tag of another run's unfinished push, or README.md if it was edited there.
        tables: "tokens" first writes the tokens of the output to ``tokens/`` in the run as Parquet files, and merges
            small files of its ledgers. The tables are the default configuration, for outputs that plain `datasets`
            cannot load itself. They have the beginning of each decoded text. "text" writes the whole text instead:
            first check whether the licence of the crawl lets you share it. "none" writes no tables, and removes those
            of an earlier push.
        num_proc: number of processes that write the tables; the bytes do not depend on it.

    Raises:
        RunError: the run is not finished or not whole, or exceeds a limit of the Hub.
        HubError: the Hub rejects the push or cannot be reached; the message names the fix.
    """
    seen_by = client.visibility_of(repo, visibility, private)
    check_word("tables", tables, Tables, RunError)
    with open_run(run, "") as folder:
        resume_moves(folder)
        manifest = read_sealed(folder)
        _check_limits(folder, manifest)
        _check_whole(folder, manifest)
        client.read_card(folder / CARD)
        tasks, _, dropped = _to_do(folder, manifest, tables)
        first = [f"{TOKEN_TABLES}/{task.file.name}" for task in tasks]
        with client.hub_errors(repo, client.NOTHING_SENT):
            api = client.connect(signed_in=not dry_run)
            there = client.read_repository(api, repo)
            client.check_same_visibility(repo, seen_by, there)
        if not dry_run:
            prepare(folder, tables, num_proc)
            manifest, first, dropped = read_sealed(folder), [], []
            _check_limits(folder, manifest)
        card = client.read_card(folder / CARD)
        digests = {name: entry["sha256"] for name, entry in manifest["files"].items() if name not in dropped}
        # A person may edit the card of a finished run.
        digests |= {name: checksum(folder / name) for name in (CARD, MANIFEST)}
        if manifest["files"].get(CARD, {}).get("sha256", digests[CARD]) != digests[CARD]:
            warn_user(
                f"{folder / CARD} was edited and is pushed as it is, so longcrawl verify will report that it has been "
                f"changed: run longcrawl card {folder} and push again, which keeps your edits and has the manifest "
                "name them"
            )
        with client.hub_errors(repo, client.NOTHING_SENT):
            tag = f"{client.TAG_BEGINS}{manifest['sha256'][:TAG_LENGTH]}"
            earlier = _earlier(repo, there, {tag, instead_of}) if there else _Earlier()
            planned = _plan(folder, digests, repo, tag, there or client.Repository(seen_by, "", {}, {}), earlier)
            _check_instead_of(instead_of, planned, there, earlier)
            before = there.files.get(CARD) if there and not earlier.unfinished and instead_of != CARD else None
            if there and before and not before.is_like(folder / CARD, digests[CARD]):
                client.check_card_is_ours(api, repo, there.head)
            if dry_run:
                planned = replace(planned, problems=tuple(card_problems(card)), first=tuple(first))
                unseen = there is None and not client.is_signed_in()
                return replace(planned, dropped=tuple(dropped), unseen=unseen)
            if CARD in planned.send:
                client.check_front_matter(folder / CARD, card)
        with client.hub_errors(repo, client.SOME_SENT):
            return _carry_out(api, folder, planned, there)


def _check_limits(folder: Path, manifest: Mapping[str, Any]) -> None:
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    if beyond := client.over_limits(sizes):
        result = RESULTS[manifest["output"]["format"]]
        advice = result.smaller_files if max(sizes.values()) > client.FILE_BYTES else result.fewer_files
        raise RunError(f"{folder} does not fit on the Hub: {'; '.join(beyond)}: run its recipe again with {advice}")


def _check_whole(folder: Path, manifest: Mapping[str, Any]) -> None:
    others = {name: entry for name, entry in manifest["files"].items() if name != CARD}
    problem = next(verify_files(folder, others), None) if (folder / CARD).is_file() else f"{CARD} is missing"
    if problem is not None:
        raise RunError(f"{folder} was not pushed: {problem}. `longcrawl verify {folder}` lists all problems.")


@dataclass(frozen=True)
class _Earlier:
    files: frozenset[str] = frozenset()
    unfinished: str | None = None
    """Tag of a push that was stopped between two commits."""


def _earlier(repo: str, there: client.Repository, accepted: set[str | None]) -> _Earlier:
    """Find the files of an earlier push, from the manifest on the Hub or from the marker of an unfinished push."""
    files: frozenset[str] = frozenset()
    unfinished = None
    if MANIFEST in there.files:
        files = frozenset({*_manifest_files(repo, there), CARD, MANIFEST})
    if client.UNFINISHED in there.files:
        try:
            begun = client.UnfinishedPush.read(_fetch(repo, there, client.UNFINISHED))
        except FormatError as wrong:
            raise HubError(
                f"{repo} holds an {client.UNFINISHED} which is not in the form that this longcrawl writes: "
                "upgrade longcrawl, or delete it on the Hub"
            ) from wrong
        if begun.tag not in accepted:
            raise HubError(
                f"{repo} holds a part of {begun.tag}, whose push was stopped or is still running: push that run again "
                f"to finish it, or add --instead-of {begun.tag} to the command to replace it"
            )
        files, unfinished = files | begun.files, begun.tag
    return _Earlier(files, unfinished)


def _check_instead_of(
    instead_of: str | None, planned: Push, there: client.Repository | None, earlier: _Earlier
) -> None:
    """Check that ``instead_of`` names something replaceable, or that this push itself is already there."""
    own = earlier.unfinished == planned.tag or not (planned.send or planned.delete)
    if instead_of in (None, CARD, earlier.unfinished) or (own and client.TAG.fullmatch(str(instead_of))):
        return
    whole = ", ".join(sorted(tag for tag in there.tags if client.TAG.fullmatch(tag))) if there else ""
    found = f"a part of {earlier.unfinished}" if earlier.unfinished else f"no unfinished push, and {whole or 'no run'}"
    raise HubError(
        f"--instead-of {instead_of!r} matches nothing to replace, since {planned.repo} holds {found}: remove it"
    )


def _manifest_files(repo: str, there: client.Repository) -> set[str]:
    try:
        text = _fetch(repo, there, MANIFEST)
        manifest = client.read_remote(text, "it")
    except FormatError as wrong:
        raise _not_ours(repo, MANIFEST) from wrong
    if "longcrawl_run" not in manifest:
        raise _not_ours(repo, MANIFEST)
    if not client.is_intact(manifest, text):
        raise HubError(
            f"{repo} holds a {MANIFEST} that was changed after a run put it there, so the run's files "
            "are unknown: restore it from its history on the Hub, or choose another repository"
        )
    return set(manifest["files"])


def _fetch(repo: str, there: client.Repository, name: str) -> bytes:
    if there.files[name].size > client.DESCRIPTION_BYTES:
        raise _not_ours(repo, name)
    return client.fetch_file(repo, there, name)


def _not_ours(repo: str, name: str) -> HubError:
    return HubError(
        f"{repo} holds {name}, which was not pushed by a run of longcrawl: choose another repository, or delete it on "
        "the Hub"
    )


def _plan(
    folder: Path, digests: Mapping[str, str], repo: str, tag: str, there: client.Repository, earlier: _Earlier
) -> Push:
    same = {
        name
        for name, digest in digests.items()
        if name in there.files and there.files[name].is_like(folder / name, digest)
    }
    _check_ours(repo, digests, same, there, earlier)
    delete = tuple(sorted((earlier.files & there.files.keys()) - digests.keys()))
    changes = sum(not client.says_how_to_read(name) for name in digests.keys() - same) + len(delete)
    begins = changes > COMMIT_FILES and earlier.unfinished != tag
    if begins:
        same = {name for name in same if not client.says_how_to_read(name)}
    sizes = {name: (folder / name).stat().st_size for name in sorted(digests)}
    return Push(
        repo,
        there.visibility,
        {name: size for name, size in sizes.items() if name not in same},
        {name: size for name, size in sizes.items() if name in same},
        delete,
        tag,
        max(-(-changes // COMMIT_FILES), int(len(same) < len(digests) or earlier.unfinished is not None)),
        begins=begins,
        digests=digests,
        local=tuple(sorted(set(chain(*local_paths(read_manifest(folder)["recipe"]).values())))),
    )


def _check_ours(
    repo: str, digests: Mapping[str, str], same: set[str], there: client.Repository, earlier: _Earlier
) -> None:
    """Check that no other files would be overwritten, or be loaded with the files of the run."""
    client.check_ignores_nothing(repo, there)
    folders = {name.partition("/")[0] for name in digests if "/" in name}
    for name in there.files:
        changed = name in digests and name not in same
        among = name not in digests and name.partition("/")[0] in folders
        if (changed or among) and name not in earlier.files:
            raise _not_ours(repo, name)


def _carry_out(api: "HfApi", folder: Path, planned: Push, there: client.Repository | None) -> Push:
    if there is None:
        api.create_repo(planned.repo, repo_type="dataset", private=planned.visibility == "private")
        there = _found(api, planned.repo)
    commit = _commit(api, folder, planned, there)
    if commit != there.head:
        there = _found(api, planned.repo)
        for name, digest in planned.digests.items():
            if name not in there.files or not there.files[name].is_like(folder / name, digest):
                raise HubError(f"{planned.repo} does not hold {name} as sent: run the same command again")
    if planned.tag not in there.tags:
        api.create_tag(planned.repo, tag=planned.tag, revision=commit, repo_type="dataset", exist_ok=True)
    return replace(planned, commit=commit)


def _found(api: "HfApi", repo: str) -> client.Repository:
    there = client.read_repository(api, repo)
    if there is None:
        raise HubError(f"the Hub accepted {repo} but does not show it: run the same command again in a minute")
    return there


def _commit(api: "HfApi", folder: Path, planned: Push, there: client.Repository) -> str:
    from huggingface_hub.errors import HfHubHTTPError

    left = [part for part in _parts(folder, planned, there) if part]
    head, done = there.head, 0
    divisible = planned.begins or client.UNFINISHED in there.files
    while left:
        of = f", part {done + 1} of {done + len(left)}" if done or len(left) > 1 else ""
        try:
            head = api.create_commit(
                planned.repo, left[0], commit_message=planned.tag + of, repo_type="dataset", parent_commit=head
            ).oid
        except HfHubHTTPError as wrong:
            half = len(left[0]) // 2
            if not (divisible and half and wrong.response.status_code in TOO_MUCH):
                raise
            left[:1] = [left[0][:half], left[0][half:]]
        else:
            left, done = left[1:], done + 1
    return head


def _parts(folder: Path, planned: Push, there: client.Repository) -> list[list[Any]]:
    # Files that tell how to read the data are removed first and added last.
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    def says_how(operation: Any) -> bool:
        return client.says_how_to_read(operation.path_in_repo)

    deleted: list[Any] = [CommitOperationDelete(name, is_folder=False) for name in planned.delete]
    sent: list[Any] = [CommitOperationAdd(name, folder / name) for name in sorted(planned.send)]
    opening = [*filter(says_how, deleted)]
    changes = [*filterfalse(says_how, [*deleted, *sent])]
    parts = [changes[start : start + COMMIT_FILES] for start in range(0, max(len(changes), 1), COMMIT_FILES)]
    if planned.begins:
        begun = client.UnfinishedPush(planned.tag, frozenset({*planned.digests, *planned.delete}))
        gone = [
            name for name in planned.digests if client.says_how_to_read(name) and name in there.files.keys() - {CARD}
        ]
        opening += [CommitOperationDelete(name, is_folder=False) for name in gone]
        # First in the list, so that the first commit names the push even if it is split.
        opening[:0] = [
            CommitOperationAdd(client.UNFINISHED, begun.as_json()),
            CommitOperationAdd(CARD, begun.as_card()),
        ]
    parts[0] = opening + parts[0]
    parts[-1] += filter(says_how, sent)
    if planned.begins or client.UNFINISHED in there.files:
        parts[-1].append(CommitOperationDelete(client.UNFINISHED, is_folder=False))
    return parts
