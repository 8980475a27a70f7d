"""Patterns of lines as data: one YAML file per named set."""
