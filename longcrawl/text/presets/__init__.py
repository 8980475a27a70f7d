"""Rule sets as data: one YAML file per named preset."""
