"""Filter, deduplicate and tokenise with datatrove, for ``whole_job.py``, where datatrove lives.

It is the order of FineWeb: Gopher's filters, C4's and FineWeb's; MinHash in its four steps; tokens. All of it runs in
this process. Prints JSON: CPU seconds of each part, and how many documents each filter let through.

C4's sentences are those of Punkt without its trained parameters, which are a download of their own. The last argument
is whose words are taken: "spacy", which datatrove takes, or "white-space", what white space parts.
"""

import json
import sys
import time
from pathlib import Path

import nltk.tokenize
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.word_tokenizers import SpaCyTokenizer
from nltk.tokenize.punkt import PunktSentenceTokenizer

PUNKT = PunktSentenceTokenizer()


def sentences(text: str, language: str = "english") -> list[str]:  # noqa: ARG001  # the name is datatrove's
    return PUNKT.tokenize(text)


def main() -> None:
    folder, out, tokenizer, words = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
    nltk.tokenize.sent_tokenize = sentences
    if words == "white-space":
        SpaCyTokenizer.word_tokenize = lambda _, text: text.split()
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    filters = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter()]
    kept, removed = str(out / "kept"), str(out / "removed")
    duplicates = MinhashDedupFilter(removed)
    parts = {
        "filters": [[JsonlReader(str(folder), glob_pattern="*.jsonl"), *filters, JsonlWriter(kept)]],
        "near duplicates": [
            [JsonlReader(kept), MinhashDedupSignature(str(out / "signatures"), config=config)],
            [MinhashDedupBuckets(str(out / "signatures"), str(out / "buckets"), config=config)],
            [MinhashDedupCluster(str(out / "buckets"), removed, config=config)],
        ],
        "tokens": [[JsonlReader(kept), duplicates, DocumentTokenizer(str(out / "tokens"), tokenizer, seed=0)]],
    }
    seconds, counts = {}, []
    for name, pipelines in parts.items():
        started = time.process_time()
        for number, pipeline in enumerate(pipelines):
            tasks = config.num_buckets if "Buckets" in type(pipeline[0]).__name__ else 1
            logs = str(out / "logs" / f"{name}-{number}")
            done = LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=logs).run()
            steps = zip(pipeline, done.stats, strict=True)
            counts += [
                int(told.stats["forwarded"].total)
                for step, told in steps
                if "FILTER" in step.type or step is duplicates
            ]
        seconds[name] = time.process_time() - started
    print(json.dumps({"seconds": seconds, "kept": counts}))


if __name__ == "__main__":
    main()
