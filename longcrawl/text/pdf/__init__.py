"""Extraction of text from PDF files."""
