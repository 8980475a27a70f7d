"""Run datatrove's pipeline as it is, or with our words and sentences; migration.py runs this where it is installed.

    python migration_datatrove.py DOCUMENTS OUT TOKENIZER own|ours own|ours

The fourth argument is about words, the last one about sentences: "own" for spaCy's, "ours" for what white space parts,
and for what ends in marks. OUT gets what each step removed, what was kept, and tokens.
"""

import re
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    c4_filters,
    fineweb_quality_filter,
    gopher_quality_filter,
    gopher_repetition_filter,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers.jsonl import JsonlWriter

SENTENCE_END = re.compile(r"""[.!?]+["'”’»›)\]}.!?]*(?=\s|\Z)""")  # noqa: RUF001  # quotation marks as they are printed


def sentences(line: str, _: str) -> list[str]:
    """Part a line as ``C4Quality`` does."""
    return [piece for piece in SENTENCE_END.split(line) if re.search(r"\w", piece)]


def take_ours(words: str, ends: str) -> None:
    """Let filters part words and sentences as longcrawl does."""
    if words == "ours":
        for module in (gopher_repetition_filter, gopher_quality_filter, fineweb_quality_filter):
            module.split_into_words = lambda text, _: text.split()
    if ends == "ours":
        c4_filters.split_into_sentences = sentences


def main() -> None:
    documents, out, tokenizer, words, ends = sys.argv[1:]
    take_ours(words, ends)

    def removed(name: str) -> JsonlWriter:
        return JsonlWriter(f"{out}/removed/{name}", compression=None)

    def run(name: str, *pipeline: object, tasks: int = 1) -> None:
        LocalPipelineExecutor(list(pipeline), tasks=tasks, logging_dir=f"{out}/logs/{name}").run()

    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    run(
        "filters",
        JsonlReader(documents),
        GopherRepetitionFilter(exclusion_writer=removed("gopher_repetition")),
        GopherQualityFilter(exclusion_writer=removed("gopher_quality")),
        C4QualityFilter(exclusion_writer=removed("c4_quality")),
        FineWebQualityFilter(exclusion_writer=removed("fine_web_quality")),
        JsonlWriter(f"{out}/filtered", compression=None),
    )
    run("signatures", JsonlReader(f"{out}/filtered"), MinhashDedupSignature(f"{out}/signatures", config=config))
    run("buckets", MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config), tasks=config.num_buckets)
    run("clusters", MinhashDedupCluster(f"{out}/buckets", f"{out}/duplicates", config=config))
    run(
        "tokens",
        JsonlReader(f"{out}/filtered"),
        MinhashDedupFilter(f"{out}/duplicates", exclusion_writer=removed("min_hash")),
        JsonlWriter(f"{out}/kept", compression=None),
        DocumentTokenizer(f"{out}/tokens", tokenizer_name_or_path=tokenizer, shuffle_documents=False),
    )
    print(sum(1 for _ in Path(out, "kept").glob("*")), "files")


if __name__ == "__main__":
    main()
