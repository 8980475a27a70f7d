"""The folder and the manifest of a run."""
