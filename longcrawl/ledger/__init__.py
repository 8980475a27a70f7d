"""Why documents left, what was changed in them, and what a dataset holds."""
