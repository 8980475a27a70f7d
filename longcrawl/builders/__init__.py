"""The `datasets` builder of longcrawl and the sources it reads; installed as ``longcrawl.builders``."""
