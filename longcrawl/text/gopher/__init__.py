"""Gopher's and FineWeb's rules for raw text."""
