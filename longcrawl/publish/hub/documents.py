"""Push of a crawl's documents to the Hub: one commit replaces everything from the push before.

Documents, ledger and edits are configurations with these names, stored as Parquet files in folders of the same names.
The rest of a repository does not change, including the text of its card. A repository with a run is rejected.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from longcrawl.core.outputs import without_content
from longcrawl.errors import FormatError, HubError, one_line
from longcrawl.io.files import checksum
from longcrawl.io.stored_tables import GroupedTable
from longcrawl.publish.hub import client
from longcrawl.run.card.front_matter import FRONT_MATTER, config_info, read_front_matter, yaml_block
from longcrawl.run.manifest import CARD, MANIFEST

if TYPE_CHECKING:
    import datasets
    from huggingface_hub import HfApi

DOCUMENTS = "documents"
SPLITS = {DOCUMENTS: "train", "ledger": "removed", "edits": "changed"}
"""Split of each configuration."""
OTHER_CARD = ".huggingface.yaml"
"""File that `datasets` prefers to the front matter of a card."""
BATCH = 200
GROUP_BYTES = 64 << 20
SHARD_BYTES = 500_000_000
"""Bytes of a file before compression, the default of `datasets`; doubled after every ``SHARDS`` files."""
SHARDS = 64
BODY = """
# {name}

Documents of a crawl, written by longcrawl: `load_dataset("{repo}")`. The configuration `ledger` has the documents that
were removed, each with its reason, and `edits` what was changed in texts; each is there if it has rows.
"""


def push_documents(
    repo: str,
    visibility: client.Visibility,
    documents: "datasets.Dataset | datasets.IterableDataset",
    ledger: pa.Table,
    edits: pa.Table,
) -> None:
    """Push documents as the default configuration, with the non-empty ledgers."""
    import datasets

    with client.hub_errors(repo, client.NOTHING_SENT):
        api = client.connect()
        there = client.read_repository(api, repo)
        client.check_same_visibility(repo, visibility, there)
        before = _card_there(repo, there) if there is not None else None
    beside = Path(datasets.config.HF_DATASETS_CACHE) / "longcrawl"
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="push-", dir=beside) as name:
        folder = Path(name)
        _write(folder / DOCUMENTS, SPLITS[DOCUMENTS], without_content(_document_tables(repo, documents)))
        for kind, table in (("ledger", ledger), ("edits", edits)):
            if table.num_rows:
                _write(folder / kind, SPLITS[kind], [table])
        (folder / CARD).write_text(_card(folder, repo, before), "utf-8")
        with client.hub_errors(repo):
            _commit(api, folder, repo, visibility, there)


def _card_there(repo: str, there: client.Repository) -> str | None:
    """Return the card of a repository, or None; reject files that documents would replace or be mixed with."""
    client.check_ignores_nothing(repo, there)
    if {MANIFEST, client.UNFINISHED} & there.files.keys():
        raise HubError(
            f"{repo} holds a run, or a part of one, and documents of a crawl cannot be pushed into it: choose another "
            "repository, or delete the run's files on the Hub"
        )
    if OTHER_CARD in there.files:
        raise HubError(
            f"{repo} holds {OTHER_CARD}, which overrides the configurations of {CARD}: delete it on the Hub, or "
            "choose another repository"
        )
    for file in there.files:
        kind, _, rest = file.partition("/")
        if kind in SPLITS and not re.fullmatch(rf"{SPLITS[kind]}-\d{{5}}-of-\d{{5}}\.parquet", rest):
            raise HubError(
                f"{repo} holds {file}, which was not pushed by a crawl of longcrawl: choose another repository, or "
                "delete it on the Hub"
            )
    if CARD not in there.files:
        return None
    content = client.fetch_file(repo, there, CARD)
    try:
        card = content.decode("utf-8")
        configs = read_front_matter(card).get("configs") or []
    except (UnicodeDecodeError, FormatError) as broken:
        raise HubError(
            f"{CARD} of {repo} cannot be read ({one_line(broken)}): fix it on the Hub, or delete it there"
        ) from broken
    if not isinstance(configs, list) or not all(isinstance(each, dict) for each in configs):
        raise HubError(f"configs of {CARD} of {repo} are not a list of objects: fix them on the Hub")
    if any(each.get("config_name") == "default" for each in configs):
        raise HubError(
            f"{CARD} of {repo} has a configuration 'default', which would be loaded instead of the documents: "
            "rename it there, or choose another repository"
        )
    return card


def _card(folder: Path, repo: str, before: str | None) -> str:
    """Return the card with longcrawl's configurations; other entries and the text are those of the card before."""
    configs: list[Any] = [
        {"config_name": kind, "data_files": [{"split": split, "path": f"{kind}/{split}-*"}]}
        for kind, split in SPLITS.items()
        if (folder / kind).is_dir()
    ]
    configs[0]["default"] = True
    infos: list[Any] = [config_info(folder, config) for config in configs]
    if before is None:
        head: Mapping[str, Any] = {"tags": ["longcrawl"]}
        body = BODY.format(name=repo.rpartition("/")[2], repo=repo)
    else:
        head, body = read_front_matter(before), FRONT_MATTER.sub("", before.replace("\r\n", "\n"))
    others = [each for each in head.get("configs") or [] if _name_of(each) not in SPLITS]
    configs += [{key: value for key, value in each.items() if key != "default"} for each in others]
    known = head.get("dataset_info") or []
    infos += [each for each in ([known] if isinstance(known, dict) else known) if _name_of(each) not in SPLITS]
    return yaml_block({**head, "configs": configs, "dataset_info": infos}) + body


def _name_of(entry: Any) -> str:
    return str(entry.get("config_name", "default")) if isinstance(entry, dict) else ""


def _document_tables(repo: str, documents: "datasets.Dataset | datasets.IterableDataset") -> Iterator[pa.Table]:
    """Yield documents in row groups with one schema, including the features that `datasets` records."""
    from datasets import Features
    from datasets.table import CastError, embed_table_storage, table_cast

    schema = None if documents.features is None else documents.features.arrow_schema
    held: list[pa.Table] = []

    def group() -> pa.Table:
        nonlocal schema
        try:
            if schema is None:  # The columns of a stream may only be known from its rows.
                unified = pa.unify_schemas([each.schema for each in held], promote_options="permissive")
                schema = Features.from_arrow_schema(unified).arrow_schema
            return pa.concat_tables([embed_table_storage(table_cast(each, schema)) for each in held])
        except (pa.ArrowInvalid, pa.ArrowTypeError, CastError) as wrong:
            raise HubError(
                f"nothing was pushed to {repo}, since its documents have different columns or types "
                f"({one_line(wrong)}): cast them first"
            ) from wrong

    written = False
    for table in documents.with_format("arrow").iter(BATCH):
        held.append(table)
        if sum(each.nbytes for each in held) >= GROUP_BYTES:
            yield group()
            held, written = [], True
    if held:
        yield group()
    elif not written:
        raise HubError(f"nothing was pushed to {repo}: no document remains, and `datasets` cannot load an empty split")


def _write(folder: Path, split: str, groups: Iterable[pa.Table]) -> None:
    """Write row groups to files with names that `datasets` expects: ``train-00000-of-00002.parquet``."""
    folder.mkdir()
    number, left = 0, iter(groups)
    group = next(left, None)
    while group is not None:
        size, most = 0, SHARD_BYTES << (number // SHARDS)
        with GroupedTable(folder / f"{number:05d}") as written:
            while group is not None and (not size or size + group.nbytes <= most):
                written.add(group)
                size += max(group.nbytes, 1)
                group = next(left, None)
        number += 1
    for file in sorted(folder.iterdir()):
        file.rename(folder / f"{split}-{file.name}-of-{number:05d}.parquet")


def _commit(
    api: "HfApi", folder: Path, repo: str, visibility: client.Visibility, there: client.Repository | None
) -> None:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    if there is None:
        api.create_repo(repo, repo_type="dataset", private=visibility == "private")
        there = client.read_repository(api, repo) or client.Repository(visibility, "", {}, {})
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    ours = {name for name in there.files if name.partition("/")[0] in SPLITS}
    operations: list[Any] = [CommitOperationDelete(name, is_folder=False) for name in sorted(ours - files.keys())]
    for name, path in files.items():
        found = there.files.get(name)
        if found is None or not found.is_like(path, checksum(path)):
            operations.append(CommitOperationAdd(name, path))
    if operations:
        title = "Documents of a crawl, by longcrawl"
        api.create_commit(repo, operations, commit_message=title, repo_type="dataset", parent_commit=there.head or None)
