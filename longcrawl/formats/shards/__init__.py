"""Token shards of datatrove, GPT-Simple, Megatron and nanoGPT, and the same in parquet: a module for each format.

Each of these modules begins with the specification of its files; ``base`` has what they share. ``shard`` is an open
shard of any format, ``spec`` a folder of them, ``write`` the output of a run, ``convert`` the way from one format to
another. Tokenisation as in GPT-Simple and datatrove is :mod:`longcrawl.run.tokenize_files`; feeds are in
:mod:`longcrawl.loading`.
"""
