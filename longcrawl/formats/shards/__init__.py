"""Token shards of datatrove, GPT-Simple, Megatron, nanoGPT and parquet, with a module for each format.

Each format's module begins with the specification of its files, and ``spec`` with that of folders of shards.
"""
