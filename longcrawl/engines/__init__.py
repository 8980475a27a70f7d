"""Where the parts of a run execute."""
