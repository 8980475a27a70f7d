"""Token shards of several trainers."""
