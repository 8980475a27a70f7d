"""Dataset cards of runs: front matter, sections, datasheet and pictures."""
