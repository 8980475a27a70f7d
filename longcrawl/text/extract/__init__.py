"""Extraction of a page's main text from HTML."""
