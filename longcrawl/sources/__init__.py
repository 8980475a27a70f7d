"""Sources of documents, read by ``load_dataset("longcrawl", NAME, …)`` and by recipes."""
