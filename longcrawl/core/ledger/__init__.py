"""Why documents were removed, what was changed in them, and what a dataset holds."""
