"""Packed samples from token shards, in sequence or by a curriculum, with exact resume.

The bucket, the index in the bucket and the tokens of a sample are pure functions of its global number.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from longcrawl.core.registry import check_fields
from longcrawl.errors import FormatError, LoaderError, listed
from longcrawl.formats.shards.spec import SPLITS, find_format, named_split, shards_in
from longcrawl.loading.curriculum import (
    ConfiguredPhases,
    CurriculumPlan,
    MixBy,
    Mixing,
    OnExhausted,
    Phase,
    PhaseTotals,
    Picks,
    phases_of,
    plan_curriculum,
)
from longcrawl.loading.feed import Batch, Origin, TokenFacts, changed_values, check_ids, recorded_facts, warn_of_absent
from longcrawl.loading.planned_feed import CurriculumReport, MixedFeed, Stock
from longcrawl.loading.samples import LastBatch, Positions, Rows, ShardBucket, assemble, origins_of
from longcrawl.tokens.packing import AnyPacking, check_packing, plan_packing
from longcrawl.tokens.plan import Longs
from longcrawl.urls import is_url

SEARCHED = 1 << 20
"""Tokens of each shard that are searched for an end of text."""
BY_BUCKET = ("data", "packing")
"""State fields with one entry per bucket."""


@dataclass(frozen=True, eq=False, repr=False)
class Packed(MixedFeed):
    """Batches of packed samples for one rank of a trainer, from the token shards in ``path``, of any format.

    >>> mix = [Phase(5_000_000_000, {"web": 0.6, "code": 0.4}), Phase(5_000_000_000, {"web": 0.3, "code": 0.7})]
    >>> batches = Packed("data/tokenized", mix, max_length=2048, batch_size=8)  # doctest: +SKIP
    >>> for batch in batches:  # doctest: +SKIP
    ...     step(batch["input_ids"], batch["labels"])  # each (8, 2048) int64
    ...     checkpoint["data"] = batches.state_dict()

    With a curriculum, the buckets are the folders in ``path/split``. Without a curriculum, all shards below
    ``path/split`` form one bucket. If ``path`` has no split folders, the bucket has the shards of this split from all
    outputs below ``path``.

    A batch is a dictionary: ``input_ids``, ``labels``, ``position_ids`` and ``doc_ids``, int64 [batch_size,
    max_length], ``n_tokens``, int64 [batch_size], the number of tokens before the padding, and ``seq_lengths``, for
    each row an int64 array with the lengths of its pieces. Padding, if any, is the last piece. Labels are not shifted;
    they are -100 on padding, on the first token of each piece, on an overlap with the previous window and on tokens
    without loss in a loss mask. ``doc_ids`` number the pieces of a row from 0, including padding.

    Rank r gets every ``world_size``-th global sample of a step, starting with sample r. Iterating resumes after the
    last delivered batch and does not start over at the end of the plan: ``status`` is then "finished" or "halted".
    ``batches[i]`` is a pure function of ``i``.

    Attributes:
        path: folder of the shards.
        curriculum: phases, or mappings of their fields; empty to deliver all samples ``epochs`` times. A curriculum
            from :func:`longcrawl.loading.read_curriculum` also sets ``max_length`` and ``packing`` if they are omitted.
        split: "train", "val", "test" or another folder in ``path``; "val" also finds its usual synonyms.
        max_length: tokens per sample, including padding; None for 2,048.
        batch_size: samples per batch, on each rank.
        rank, world_size: index of this process, and number of processes that share the global samples.
        seed: seed of the order of samples and of the draws of a curriculum.
        shuffle: "keyed" for a separate order for each bucket and epoch, or "none" for the order of the packing.
        packing: "length-binned", the default for None, "best-fit", "first-fit", "in-order", "separate", or your own;
            see :func:`longcrawl.tokens.packing.plan_packing`.
        positions: "reset" counts ``position_ids`` from 0 in every piece, "continuous" through the row; they are 0 in
            padding.
        mix_by: whether weights are shares of "tokens" or of "samples". None means tokens, or samples if a
            configuration has no curriculum, as in GPT-Simple.
        on_exhausted: "error" rejects a curriculum in which a bucket runs dry, "halt" ends the feed there, and
            "renormalize" warns and continues without the bucket. If no bucket of a phase's mix has samples left, the
            next phase begins, with its own budget.
        epochs: how often samples may be delivered: one number, or a number per bucket.
        last_batch: "drop" omits samples at the end that do not fill a step; "fill" adds rows of padding. A rank may
            then have no target, so that its mean loss is NaN: divide by the targets of all ranks.
        training_tokens: tokens that the training run consumes; compared with the sum of the budgets.
        on_budget_mismatch: whether a difference of more than 5 % is an error or a warning.
        pad_token: id of the padding token, or None for the end of text of the shards or their output, or else 0.
        format: format of the shards, or None to detect it.
        end_of_text: id with which to open shards, or None for the id that a longcrawl output records.
        vocabulary_size: upper limit of ids, exclusive; a batch with a larger id raises an error.
        check: checks when a shard is opened: "sizes"; "ends", which adds document ends; or "everything", which also
            finds ids outside of the vocabulary before a batch is read.
        mixing: "random" to draw each sample's bucket independently, as GPT-Simple does, or "even" to give every stretch
            the shares of the mix.

    Raises:
        LoaderError: a field, a bucket or the curriculum does not fit the data; the message names values that do.
        CorruptionError: files of a shard contradict each other.
    """

    kind: ClassVar[str] = "packed"
    unit: ClassVar[str] = "samples"
    no_step: ClassVar[str] = (
        "the plan has {positions:,} samples, not one for each row of {feed.world_size} batches of {feed.batch_size}; "
        "lower batch_size or max_length, or set last_batch='fill'"
    )

    path: str | os.PathLike[str]
    curriculum: Sequence[Phase | Mapping[str, Any]] = ()
    split: str = "train"
    max_length: int = None  # type: ignore[assignment]  # __post_init__ sets a number
    batch_size: int = 1
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    shuffle: Literal["keyed", "none"] = "keyed"
    packing: AnyPacking = None  # type: ignore[assignment]  # __post_init__ sets a packing
    positions: Positions = "reset"
    mix_by: MixBy = None  # type: ignore[assignment]  # __post_init__ sets a unit
    on_exhausted: OnExhausted = "error"
    epochs: int | Mapping[str, int] = 1
    last_batch: LastBatch = "drop"
    training_tokens: int | None = None
    on_budget_mismatch: Literal["error", "warn"] = "error"
    pad_token: int | None = None
    format: str | None = None
    end_of_text: int | None = None
    vocabulary_size: int | None = None
    check: Literal["everything", "ends", "sizes"] = "ends"
    mixing: Mixing = "random"

    def __post_init__(self) -> None:
        given = self.curriculum
        configured = given if isinstance(given, ConfiguredPhases) else ConfiguredPhases()
        defaults = {
            "max_length": configured.max_length or 2048,
            "packing": "length-binned" if configured.packed else "separate",
            "mix_by": "samples" if configured.uniform else "tokens",
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "curriculum", phases_of(given, Phase))
        check_packing(self.packing, self.max_length, self.positions, self.pad_token)
        check_fields(self, LoaderError)
        if is_url(str(self.path)):
            raise LoaderError(f"{self.path}: Packed reads local folders: download it first")
        self.check_ranks(max_length=2, batch_size=1)
        if configured.uniform:
            self._draw_uniformly(configured.samples)
        self.check_epochs(self._folders)
        self._check_ids()
        self.check_plan()

    def _draw_uniformly(self, samples: int | None) -> None:
        """Make one phase of all buckets with equal weights, up to the first that runs dry if ``samples`` is unknown."""
        names = [name for name in _folders_in(self._folder) if not name.startswith(".")]
        if not names:
            return
        weights = dict.fromkeys(names, 1.0)
        object.__setattr__(self, "curriculum", (Phase(1, weights),))
        if samples is not None:
            budget = samples * self.world_size * self.max_length
        else:
            budget = sum(each.epochs * each.tokens for each in self._stock.values())
            if self.on_exhausted != "renormalize":
                plan = self._planned(self._epochs, "halt", (Phase(budget, weights),))
                budget = sum(plan.phases[0].tokens.values())
        object.__setattr__(self, "curriculum", (Phase(max(budget, 1), weights),))

    @property
    def _stock(self) -> dict[str, Stock]:
        return {
            name: Stock(len(bucket), int(bucket.sample_tokens.sum()), bucket.epochs)
            for name, bucket in self.buckets.items()
        }

    def _check_ids(self) -> None:
        shards = [shard for bucket in self.buckets.values() for shard in bucket.shards]
        types = [shard.tokens.dtype for shard in shards]
        self.recorded.check_end_of_text(self.end_of_text, types)
        self.recorded.check_padding(self.pad_token, self.vocabulary_size, types)
        if self.end_of_text is not None and self.recorded.end_of_text is None:
            warn_of_absent(self.end_of_text, self.path, (np.asarray(shard.tokens[:SEARCHED]) for shard in shards))

    @property
    def _folder(self) -> Path:
        try:
            return Path(self.path) / named_split(self.split, lambda name: (Path(self.path) / name).is_dir())
        except FormatError as several:
            raise LoaderError(f"{self.path}: {several}") from several

    @cached_property
    def _folders(self) -> dict[str, Path]:
        folder = self._folder
        if self.curriculum:
            return _folders_in(folder)
        if folder.is_dir():
            return {"": folder}
        splits = [name for name in _folders_in(Path(self.path)) if name in SPLITS]
        if splits or self.split not in SPLITS:
            raise LoaderError(f"no folder {folder}; splits in {self.path}: {listed(map(repr, splits))}")
        return {"": Path(self.path)}

    @cached_property
    def _shards(self) -> dict[str, list[Path]]:
        """Shards of the buckets in the curriculum; without a curriculum, "" is the bucket of all shards."""
        names = {name for phase in self._phases for name in phase.mix} if self.curriculum else {""}
        for name in sorted(names - set(self._folders)):
            raise LoaderError(
                f"the curriculum draws from bucket {name!r}, which is not a folder of {Path(self.path) / self.split}; "
                f"known: {listed(map(repr, self._folders))}"
            )
        found = {}
        for name in sorted(names):
            folder = self._folders[name]
            # A folder that is itself a split is taken whole, as "train".
            split = self.split if folder == Path(self.path) else "train"
            try:
                found[name] = shards_in(folder, self.format, split)
            except FormatError as missing:
                raise LoaderError(f"{_called(name)} is empty: {missing}") from missing
        return found

    @cached_property
    def recorded(self) -> TokenFacts:
        """Facts that the output of the shards records about its tokens."""
        return recorded_facts([str(path) for paths in self._shards.values() for path in paths])

    @cached_property
    def buckets(self) -> dict[str, ShardBucket]:
        """Open buckets of the curriculum; without a curriculum, "" has all shards."""
        self.recorded.check_vocabulary(self.vocabulary_size)
        return {name: self._open(name, paths) for name, paths in self._shards.items()}

    def _open(self, name: str, paths: Sequence[Path]) -> ShardBucket:
        end_of_text = self.recorded.end_of_text if self.end_of_text is None else self.end_of_text
        wanted = {"end_of_text": end_of_text, "vocabulary_size": self.vocabulary_size, "check": self.check}
        shards = []
        for path in paths:
            found = find_format(path, self.format)
            # Keep only the settings that the format has.
            shards.append(found.open(path, **found.settings("open", wanted)))
        lengths = np.concatenate([np.diff(shard.ends, prepend=0) for shard in shards]).astype(np.int64)
        if not lengths.any():
            raise LoaderError(
                f"{_called(name)} is empty: the shards in {paths[0].parent} have no tokens: replace them, or "
                "remove the bucket"
            )
        plan = plan_packing(lengths, self.max_length, self.packing)
        seed = self.seed if self.shuffle == "keyed" else None
        return ShardBucket(name, tuple(shards), plan, self.epochs_of(name), seed)

    @cached_property
    def plan(self) -> CurriculumPlan:
        """Bucket of every global sample."""
        if self.curriculum:
            return self._planned(self._epochs, self.on_exhausted)
        all_shards = self._stock[""]
        samples, tokens = all_shards.epochs * all_shards.samples, all_shards.epochs * all_shards.tokens
        return CurriculumPlan(("",), np.zeros(samples, np.uint8), (PhaseTotals(0, samples, {"": tokens}),))

    @cached_property
    def report(self) -> CurriculumReport:
        """Comparison of the requested mix with the available samples and the resulting plan."""
        padded = []
        if self.last_batch == "fill":
            padded = self.padded_ranks(len(self.plan) % self.step_size, "the last step", "last_batch")
        notes = [f"no phase draws from {name!r}" for name in self._folders if name not in self.buckets]
        for name, bucket in self.buckets.items():
            there, packed = sum(len(shard.tokens) for shard in bucket.shards), int(bucket.sample_tokens.sum())
            if there != packed:
                notes.append(f"the packing has {packed:,} of the {there:,} tokens of bucket {name!r} in its samples")
        return self.report_of(self.max_length, padded, notes)

    def _planned(
        self, epochs: Mapping[str, int], on_exhausted: OnExhausted, phases: Sequence[Phase] = ()
    ) -> CurriculumPlan:
        inventory = {
            name: replace(bucket, epochs=epochs[name]).tokens_by_place() for name, bucket in self.buckets.items()
        }
        given = {"seed": self.seed, "mix_by": self.mix_by, "mixing": self.mixing}
        return plan_curriculum(phases or self._phases, inventory, on_exhausted=on_exhausted, **given)  # type: ignore[arg-type]  # fields

    def stop(self, position: int) -> int:
        """Return the sample at which steps from a position on stop, a multiple of a step after it."""
        left = max(len(self.plan) - position, 0)
        steps = -(-left // self.step_size) if self.last_batch == "fill" else left // self.step_size
        return position + steps * self.step_size

    def read(self, step: int) -> Batch:
        """Return this rank's samples of the step that begins at global sample ``step``."""
        rows = Rows(self.batch_size, self.max_length, self.positions)
        batch = assemble(self._by_pick, *self._drawn_by_rank(step), self._padding, rows)
        if self.vocabulary_size is not None:
            sample = range(step + self.rank, step + self.step_size, self.world_size)
            what = f"of {self.path}, place"
            check_ids(
                batch["input_ids"], self.vocabulary_size, lambda row, at: f"sample {sample[row]:,} {what} {at:,},"
            )
        return batch

    def origins_at(self, position: int) -> list[Origin]:
        """Return the documents in this rank's samples of a step; columns are those of ``input_ids``."""
        return origins_of(self._by_pick, *self._drawn_by_rank(position))

    def _drawn_by_rank(self, step: int) -> tuple[Picks, Longs]:
        picks, places = self.plan.places(step, step + self.step_size)
        return picks[self.rank :: self.world_size], places[self.rank :: self.world_size]

    @cached_property
    def _by_pick(self) -> dict[int, ShardBucket]:
        return {pick: self.buckets[name] for pick, name in enumerate(self.plan.names) if name in self.buckets}

    @cached_property
    def _padding(self) -> int:
        if self.pad_token is not None:
            return self.pad_token
        recorded = [shard.end_of_text for bucket in self.buckets.values() for shard in bucket.shards]
        return next((each for each in recorded if each is not None), 0)

    def hand_out(self, step: int) -> None:
        """Record the delivery of a step; the last one may have rows of padding."""
        self.move_to(min(step + self.step_size, len(self.plan)))

    def identity(self, position: int) -> dict[str, Any]:
        """Return the settings, data and packing of each bucket, and the digest of the draws before a position."""
        return {
            **self.values_of("split", "max_length", "seed", "shuffle", "positions"),
            "pad_token": self._padding,
            "data": {name: bucket.data for name, bucket in self.buckets.items()},
            "packing": {name: bucket.packing_fingerprint for name, bucket in self.buckets.items()},
            "curriculum up to here": self.plan.fingerprint(position),
        }

    def changes(self, state: Mapping[str, Any]) -> list[str]:
        """List the differences between a state and this feed, ignoring buckets without delivered samples."""
        position, buckets = state["position"], self.buckets
        drawn = {self.plan.names[pick] for pick in np.unique(self.plan.picks[:position])} | {""} & set(buckets)
        changed = changed_values(state, self.identity(position), apart=BY_BUCKET)
        data, packing = (state[name] if isinstance(state[name], Mapping) else {} for name in BY_BUCKET)
        if not drawn <= set(data) or (changed and set(data) != set(buckets)):
            return [*changed, self.changed_buckets(data, buckets)]
        for name in sorted(drawn):
            changed += buckets[name].changes(data[name], packing.get(name))
        return changed


def _folders_in(folder: Path) -> dict[str, Path]:
    if folder.is_file():
        raise LoaderError(f"{folder} is a file: choose its folder, or read texts with lc.loading.Jsonl")
    if not folder.is_dir():
        raise LoaderError(f"no folder {folder}: check path and split")
    return {each.name: each for each in sorted(folder.iterdir()) if each.is_dir()}


def _called(name: str) -> str:
    return f"bucket {name!r}" if name else "the data"
