"""Gopher's rules as other projects read them."""
