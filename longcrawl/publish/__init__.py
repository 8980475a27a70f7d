"""Questions to runs and texts that exist."""
