"""What a stage, a source and an output are."""
