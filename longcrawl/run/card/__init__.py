"""The dataset card of a run."""
