"""Gopher's and FineWeb's rules over raw text."""
