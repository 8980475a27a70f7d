"""Token shards of datatrove, GPT-Simple, Megatron, nanoGPT and parquet, with a module for each format.

Each format's module begins with the specification of its files; ``base`` has the parts that formats share. ``shard`` is
an open shard of any format, ``spec`` specifies folders of shards, ``write`` is the output of a run, ``source`` reads
shards as rows, and ``convert`` converts between formats. Tokenisation as in GPT-Simple and datatrove is
:mod:`longcrawl.run.tokenize_files`. Feeds are in :mod:`longcrawl.loading`.
"""
