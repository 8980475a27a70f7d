"""Source of web archives (WARC and WET files)."""
