"""What a run tells people: dataset cards."""
