"""Token shards of datatrove, GPT-Simple, Megatron, nanoGPT, OLMo-core and parquet, with a module for each format.

Each format's module begins with the specification of its files, and ``spec`` with that of folders of shards.
"""
