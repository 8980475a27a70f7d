"""Filtering by URL."""
