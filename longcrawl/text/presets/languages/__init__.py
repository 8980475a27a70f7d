"""Languages as data: one YAML file per language."""
