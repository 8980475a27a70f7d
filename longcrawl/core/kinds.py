"""Import paths of longcrawl's own stages, sources, outputs, results and shard formats, as ``module:Class`` by name.

A class is imported on first use. Each class decorated with ``@stage``, ``@source``, ``@output``, ``@result`` or
``@shard_format`` needs one line here; ``tests/core/test_kinds.py`` finds missing and wrong lines.
"""

from typing import Literal

EngineName = Literal["local", "shared", "spark"]
SOURCES = {
    "composed": "longcrawl.formats.buckets.source:ComposedSamples",
    "datatrove": "longcrawl.formats.shards.source:Datatrove",
    "gpt-simple": "longcrawl.formats.shards.source:GptSimple",
    "hub": "longcrawl.sources.hub:Hub",
    "installed": "longcrawl.sources.installed:Installed",
    "megatron": "longcrawl.formats.shards.source:Megatron",
    "nanogpt": "longcrawl.formats.shards.source:NanoGpt",
    "olmo-core": "longcrawl.formats.shards.source:OlmoCore",
    "rectangle": "longcrawl.formats.rectangle.source:Rectangle",
    "redpajama-v2": "longcrawl.sources.redpajama_v2:RedPajamaV2",
    "text": "longcrawl.sources.text:Text",
    "warc": "longcrawl.sources.warc.source:Warc",
}
STAGES = {
    "attention_dependency": "longcrawl.long.dependency:AttentionDependency",
    "c4_quality": "longcrawl.text.c4:C4Quality",
    "decontaminate": "longcrawl.dedup.decontaminate:Decontaminate",
    "dependency_score": "longcrawl.long.dependency:DependencyScore",
    "exact_documents": "longcrawl.dedup.exact:ExactDocuments",
    "exact_substring": "longcrawl.dedup.substring:ExactSubstring",
    "extract_pdf": "longcrawl.text.pdf.stage:ExtractPdf",
    "extract_text": "longcrawl.text.extract.stage:ExtractText",
    "fast_text_classifier": "longcrawl.text.classifiers:FastTextClassifier",
    "fine_web_quality": "longcrawl.text.gopher.stages:FineWebQuality",
    "gopher_quality": "longcrawl.text.gopher.stages:GopherQuality",
    "gopher_repetition": "longcrawl.text.gopher.stages:GopherRepetition",
    "gzip_ratio": "longcrawl.long.gzip_ratio:GzipRatio",
    "identify_language": "longcrawl.text.identify:IdentifyLanguage",
    "information_gain": "longcrawl.long.dependency:InformationGain",
    "language": "longcrawl.text.filters:Language",
    "length_mix": "longcrawl.tokens.length_mix:LengthMix",
    "lexical_dependency": "longcrawl.long.lexical:LexicalDependency",
    "line_corrections": "longcrawl.text.refinedweb.line_corrections:LineCorrections",
    "listed_duplicates": "longcrawl.dedup.exact:ListedDuplicates",
    "min_bytes": "longcrawl.text.filters:MinBytes",
    "min_chars": "longcrawl.text.filters:MinChars",
    "min_hash": "longcrawl.dedup.minhash:MinHash",
    "min_hash_signatures": "longcrawl.dedup.signatures:MinHashSignatures",
    "min_tokens": "longcrawl.tokens.shape:MinTokens",
    "min_words": "longcrawl.text.filters:MinWords",
    "opt_out": "longcrawl.text.refinedweb.opt_out:OptOut",
    "personal_data": "longcrawl.text.personal:PersonalData",
    "related": "longcrawl.long.related:Related",
    "roll": "longcrawl.tokens.shape:Roll",
    "sequence_classifier": "longcrawl.text.classifiers:SequenceClassifier",
    "shuffle": "longcrawl.tokens.shape:Shuffle",
    "signal_rules": "longcrawl.text.filters:SignalRules",
    "signals": "longcrawl.text.rpv2:Signals",
    "tokenize": "longcrawl.tokens.tokenize:Tokenize",
    "truncate": "longcrawl.tokens.shape:Truncate",
    "url_filter": "longcrawl.text.refinedweb.url_filter:UrlFilter",
    "urls": "longcrawl.dedup.exact:Urls",
    "windows": "longcrawl.tokens.shape:Windows",
}
OUTPUTS = {
    "composed": "longcrawl.formats.buckets.write:ComposedOutput",
    "datatrove": "longcrawl.formats.shards.write:DatatroveOutput",
    "gpt-simple": "longcrawl.formats.shards.write:GptSimpleOutput",
    "megatron": "longcrawl.formats.shards.write:MegatronOutput",
    "nanogpt": "longcrawl.formats.shards.write:NanoGptOutput",
    "olmo-core": "longcrawl.formats.shards.write:OlmoCoreOutput",
    "parquet": "longcrawl.formats.documents:ParquetOutput",
    "rectangle": "longcrawl.formats.rectangle.write:RectangleOutput",
}
RESULTS = {
    "composed": "longcrawl.formats.buckets.facts:ComposedResult",
    "datatrove": "longcrawl.formats.shards.facts:DatatroveResult",
    "gpt-simple": "longcrawl.formats.shards.facts:GptSimpleResult",
    "megatron": "longcrawl.formats.shards.facts:MegatronResult",
    "nanogpt": "longcrawl.formats.shards.facts:NanoGptResult",
    "olmo-core": "longcrawl.formats.shards.facts:OlmoCoreResult",
    "parquet": "longcrawl.formats.documents:ParquetResult",
    "rectangle": "longcrawl.formats.rectangle.write:RectangleResult",
}
SHARD_FORMATS = {
    "datatrove": "longcrawl.formats.shards.datatrove:Datatrove",
    "gpt-simple": "longcrawl.formats.shards.gpt_simple:GptSimple",
    "megatron": "longcrawl.formats.shards.megatron:Megatron",
    "nanogpt": "longcrawl.formats.shards.nanogpt:NanoGpt",
    "olmo-core": "longcrawl.formats.shards.olmo_core:OlmoCore",
    "token-parquet": "longcrawl.formats.shards.parquet:TokenParquet",
}
