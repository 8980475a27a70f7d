"""Personal data that a pattern and a check can tell: the stage, and what it looks for."""
