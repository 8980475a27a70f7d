"""What a run begins with: its folder, the files that it reads, that they are still the same, and versions."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any

from longcrawl.core.display import counted
from longcrawl.core.funnel import Funnel
from longcrawl.core.outputs import RESULTS
from longcrawl.core.registry import Implementation, installed_versions, is_ours
from longcrawl.core.sources import Part, Source, lacks_field
from longcrawl.core.stages import Stage
from longcrawl.errors import RunError, SourceError
from longcrawl.io.files import PARTIAL, content_digest, remove, whole_files
from longcrawl.io.place import given_url, is_there, names_in, open_place, takes_runs
from longcrawl.io.structured import Marker
from longcrawl.run.analysis import Lengths
from longcrawl.run.gathered_parts import GATHERED
from longcrawl.run.ids import IDS
from longcrawl.run.manifest import EMPTIED, INPUTS, MANIFEST, WORK
from longcrawl.run.recipe import Recipe
from longcrawl.run.stored_parts import part_marker
from longcrawl.run.summary import ComparedPlan
from longcrawl.sources.files import InputFile, changed_files
from longcrawl.urls import without_secrets

MOST_RULES = 5
AGAIN = "Restore it and type the same command again, or type it with another --out folder"


@contextmanager
def run_folder(out: str | Path) -> Iterator[Path]:
    """Return the folder of a run from the root, as workers may start in another folder; of a URL, its local place.

    Raises:
        RunError: it is a URL that no run can be written to.
    """
    if (url := given_url(out)) is None:
        yield Path(out).absolute()
        return
    if not takes_runs(url):
        sent = ", or send a finished run to a dataset with `longcrawl push FOLDER user/name`"
        raise RunError(
            f"a run is not written to {url}: choose a folder, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or "
            f"hf://buckets/USER/BUCKET/FOLDER{sent if url.startswith('hf:') else ''}"
        )
    with open_place(url) as folder:
        yield folder


def reject_other_contents(folder: Path, recipe: Recipe) -> None:
    """Check that a folder holds nothing but this recipe's run; one in which nothing is done yet is taken.

    Raises:
        RunError: it holds something else; the message says what to do.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is a file: choose another folder")
    if not is_there(folder / MANIFEST):
        _check_no_links(folder)
    written = folder / "recipe.yaml"
    if is_there(written):
        if _any_done(folder) and not _can_resume(folder, written.read_bytes(), recipe):
            raise RunError(
                f"{folder} holds the run of another recipe ({_difference(written, recipe)}): "
                "choose another folder, or remove it"
            )
    elif any(name not in (WORK, written.name) and PARTIAL not in name for name in names_in(folder)):
        raise RunError(f"{folder} is not empty and holds no run: choose another folder")


def check_plan(plan: ComparedPlan | None, recipe: Recipe) -> None:
    """Raise RunError where a run is to be compared with the plan of another recipe."""
    if plan is not None and plan.digest != recipe.digest:
        raise RunError(
            f"this plan is of recipe {plan.recipe!r}, digest {plan.digest}, not of {recipe.digest}: plan again"
        )


def check_output(recipe: Recipe) -> None:
    """Check that the stages of a recipe make what its output writes, and that its card can be written.

    Raises:
        StageError: they do not, or it cannot; the message says what to add.
    """
    recipe.output.writer([stage for _, stage in recipe.stages])
    RESULTS[recipe.output.name].check_card()


def _check_no_links(folder: Path) -> None:
    """Check for links in the folder of a run, which clears what it needs no more: that would be somebody else's."""
    paths = (Path(within, name) for within, folders, names in os.walk(folder) for name in sorted([*folders, *names]))
    link = next((path for path in paths if path.is_symlink()), None)
    if link is not None:
        raise RunError(
            f"{link} is a link to {link.readlink()}, and a run clears only what is in its own folder. Remove the "
            "link, or choose an --out folder on that disk"
        )


def _can_resume(folder: Path, written: bytes, recipe: Recipe) -> bool:
    """Return whether what is done in ``folder`` is of use to ``recipe``; ``written`` may be damaged."""
    if written == recipe.as_yaml().encode():
        return True
    begun = None if is_there(folder / MANIFEST) else Marker.read(folder / WORK / INPUTS)
    return begun is not None and begun.content["recipe"] == _first_pass(recipe)


def _first_pass(chosen: Recipe) -> dict[str, Any]:
    """Return the part of a recipe that decides what is spilled."""
    recipe = chosen.as_dict()
    ((name, settings),) = recipe["outputs"].items()
    free = chosen.output.second_pass
    kept = {field: value for field, value in settings.items() if field not in free}
    return {"source": recipe["source"], "stages": recipe["stages"], "parts": recipe["parts"], "outputs": {name: kept}}


def _any_done(folder: Path) -> bool:
    return bool(names_in(folder) - {"recipe.yaml", WORK}) or _any_part_done(folder)


def _any_part_done(folder: Path) -> bool:
    return any(file.match("segment-*/*.json") for file in whole_files(folder / WORK))


def _difference(written: Path, recipe: Recipe) -> str:
    before, now = written.read_text("utf-8", "replace").splitlines(), recipe.as_yaml().splitlines()
    for old, new in zip(before, now, strict=False):
        if old != new:
            return f"there {old.strip()[:60]!r}, here {new.strip()[:60]!r}"
    return "one has more lines than the other"


def needed_source(recipe: Recipe) -> Source:
    """Return the source of a recipe, which reads no more than stages and output look at."""
    source, stages = recipe.source, [stage for _, stage in recipe.stages]
    used = [stage.used_signals() for stage in stages]
    if not recipe.output.keeps_columns and None not in used:
        source = source.for_tokens(list(dict.fromkeys(name for names in used for name in names or ())))
    return source.for_stages(stages)


def pin_inputs(
    folder: Path, recipe: Recipe, parts: Sequence[Part], stages: Mapping[str, str], indexes: Mapping[str, Any]
) -> None:
    """Record what a run begins with; check on resume that input, indexes, data files, tokenizer and code are the same.

    Raises:
        RunError: something has changed; the message names an input file.
    """
    content = hashlib.sha256(recipe.source.content().encode()).hexdigest()
    listing = {piece.name: [without_secrets(file) for file in piece.files] for part in parts for piece in part.each()}
    lists = recipe.source.lists()
    found: dict[str, Any] = {"content": content, "parts": listing, "lists": lists, "indexes": indexes, "stages": stages}
    if any(part.pieces for part in parts):
        found[GATHERED] = [len(part.each()) for part in parts]
    pinned = folder / WORK / INPUTS
    if _any_done(folder) and (is_there(pinned) or _any_part_done(folder)):
        before = _pinned(folder)
        _check_lists(folder, before.get("lists", {}), lists)
        _check_listing(folder, before.get("parts", {}), listing)
        if any(before.get(name) != value for name, value in found.items()):
            raise _changed(folder)
        _check_finished_parts(folder, parts)
    now, listed = found | {"recipe": _first_pass(recipe)}, Marker.read(pinned)
    if listed is None or listed.content != now:
        remove(folder / WORK / IDS)
    Marker(pinned, now, {}).write()


def stage_fingerprints(recipe: Recipe) -> dict[str, str]:
    """Return what changes with a stage, and with the code of what is not longcrawl's own, by label."""
    found = {label: _fingerprint(stage) for label, stage in recipe.stages}
    others = {name: json.dumps(about, sort_keys=True) for name, about in recipe.others.items()}
    return found | {name: f"{found.get(name, '')} {about}".strip() for name, about in others.items()}


def _fingerprint(stage: Stage) -> str:
    kind = type(stage)
    if not is_ours(kind):
        from datasets.fingerprint import Hasher

        return str(Hasher.hash(stage))
    named = [f"{kind.__module__}:{kind.__qualname__}", kind.code_version, stage.settings()]
    return hashlib.sha256(
        json.dumps([*named, *map(content_digest, stage.files())], sort_keys=True).encode()
    ).hexdigest()


def check_stages(folder: Path, stages: Mapping[str, str]) -> None:
    """Check that no data file of a stage has changed under the run.

    Raises:
        RunError: one has, and a part of the result was made with what it held before.
    """
    if _pinned(folder)["stages"] != stages:
        raise _changed(folder)


def _pinned(folder: Path) -> Mapping[str, Any]:
    """Return what a run began with.

    Raises:
        RunError: it is lost. Unlike other work it is not made again, since whatever is there now would be taken for it.
    """
    marker = Marker.read(folder / WORK / INPUTS)
    if marker is None:
        raise RunError(
            f"{folder / WORK / INPUTS} is missing or damaged, and nothing else records what {folder} was made of. "
            f"Remove {folder}, and type the same command again"
        )
    return marker.content


def _changed(folder: Path) -> RunError:
    return RunError(
        f"the input of {folder} has changed since the run began: choose another folder, or remove that folder"
    )


def _check_lists(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in before.keys() & now.keys():
        old, new = before[name]["sha256"], now[name]["sha256"]
        if old != new:
            difference = f"its SHA-256 was {old[:12]} and is {new[:12]}"
            raise RunError(f"the list {name} has changed since {folder} read it: {difference}. {AGAIN}")


def _check_listing(folder: Path, before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> None:
    old, new = ({file for files in listing.values() for file in files} for listing in (before, now))
    changes = [f"{file} is new" for file in sorted(new - old)] + [f"{file} is gone" for file in sorted(old - new)]
    if changes:
        raise RunError(
            f"the input of {folder} has changed since the run began ({changes[0]}). Undo that and type the same "
            "command again, or type it with another --out folder"
        )


def files_read(results: Sequence[Mapping[str, Any]]) -> list[list[InputFile]]:
    """Return the files that were read for each part, of what the markers of the first segment hold."""
    return [[InputFile.from_mark(values) for values in each["inputs"]] for each in results]


def check_files(folder: Path, parts: Sequence[Part], read: Sequence[Sequence[InputFile]]) -> None:
    """Check that the files which were read are still the same.

    Raises:
        RunError: one is not, so that the manifest would name bytes which are not there any more.
    """
    known = [pair for part, files in zip(parts, read, strict=True) for pair in zip(part.files, files, strict=False)]
    for file, difference in changed_files(known):
        raise RunError(f"{file} has changed since {folder} read it: {difference}. {AGAIN}")


def _check_finished_parts(folder: Path, parts: Sequence[Part]) -> None:
    markers = Marker.read_all(part_marker(folder / WORK, 0, number) for number in range(len(parts)))
    done = [(part, marker.content) for part, marker in zip(parts, markers, strict=True) if marker is not None]
    check_files(folder, [part for part, _ in done], files_read([content for _, content in done]))


def described(parts: Sequence[Part], read: Sequence[Sequence[InputFile]]) -> dict[str, list[dict[str, Any]]]:
    """Return what a manifest says of the files that were read, by part."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part, files in zip(parts, read, strict=True):
        left = iter(files)
        found |= {each.name: [file.as_dict() for file in islice(left, len(each.files))] for each in part.each()}
    return found


def still_open(reasons: Sequence[str], parts: int, folder: Path) -> RunError:
    """Return the error of a run whose parts are not all read since servers did not give their files."""
    return RunError(
        f"{len(reasons):,} of {parts:,} parts of {folder} are still open, the first: {reasons[0].rstrip('.')}. "
        "What is finished is kept: the same command asks for these parts again"
    )


def train_parts(source: Source) -> list[Part]:
    """Return the parts of a source's split "train", which a run reads.

    Raises:
        RunError: it has no such split.
    """
    splits = source.splits()
    if "train" not in splits:
        raise RunError(f"source {source.name!r} has no split 'train', it has: {', '.join(splits)}")
    return splits["train"]


def source_lengths(results: Sequence[dict[str, Any]]) -> Lengths | None:
    """Return the lengths of the texts of all parts; None where one of them does not know."""
    if any("lengths" not in each for each in results):
        return None
    return reduce(add, (Lengths.from_dict(each["lengths"]) for each in results))


def rare_fields(source: Source, parts: Sequence[Part], results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the fields that settings name and that only some documents have.

    Raises:
        SourceError: there are documents, and none has one of the fields.
    """
    documents, counts = sum(each["documents"] for each in results), Counter[str]()
    if not documents:
        return []
    for each in results:
        counts.update(each["fields"])
    if missing := source.named_fields().keys() - counts.keys():
        lacks = lacks_field(source, missing, (piece for part in parts for piece in part.each()))
        raise SourceError(f"{lacks}, and choose another folder")
    return [
        f"{count:,} of {counted(documents, 'document')} have a value in the field {name!r}"
        for name, count in sorted(counts.items())
        if count < documents
    ]


def no_documents(
    source: str, recipe: Path, bad_files: Sequence[Mapping[str, Any]], left_out: Mapping[str, int]
) -> RunError:
    """Return the error of a source that gave nothing, with the first broken file and rules that excluded records."""
    message = f"source {source!r} produced no documents: check its settings in {recipe}"
    if bad_files:
        message += f"; {len(bad_files):,} input file(s) could not be read whole, the first: "
        message += f"{bad_files[0]['file']}: {bad_files[0]['reason']}"
    if left_out:
        largest = sorted(left_out.items(), key=lambda rule: (-rule[1], rule[0]))[:MOST_RULES]
        counted = ", ".join(f"{rule} {count:,}" for rule, count in largest)
        message += f"; {sum(left_out.values()):,} record(s) were left out by the source's rules: {counted}"
    if "not_fetched" in left_out:
        message += ". Those not fetched do not pass the first stages: change their fields with --set"
    return RunError(message)


def check_not_empty(funnel: Funnel, work: Path) -> None:
    """Check that documents remain; where none does, note the funnel in ``work``, from where ``why`` is answered.

    Raises:
        RunError: naming the stage that removed the last ones; the funnel is its note.
    """
    if (emptied := funnel.emptied_by()) is not None:
        last = next(row.documents_in for row in funnel if row.stage == emptied)
        Marker(work / EMPTIED, funnel.as_dict(), {}).write()
        error = RunError(
            f"no document remains: stage {emptied!r} removed the last {last:,}. "
            f"Change its fields with --set stages.{emptied}.FIELD=VALUE, and choose another folder"
        )
        error.add_note(repr(funnel))
        raise error


def recorded_versions(others: Iterable[Implementation] = ()) -> dict[str, str]:
    """Return the version of Python, of longcrawl, of each of these distributions and of those of others, by name."""
    return {**installed_versions()} | {each["package"]: each["version"] for each in others if "package" in each}
