"""Templates of dataset cards and of the report; installed as ``longcrawl.cards``."""
