"""Sources of documents: what ``load_dataset("longcrawl", NAME, …)`` and recipes read."""
