"""The shipped recipes, one YAML file each."""
