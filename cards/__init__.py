"""Templates of dataset cards; installed as ``longcrawl.cards``."""
