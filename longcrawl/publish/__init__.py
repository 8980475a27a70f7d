"""Queries about finished runs, and their publication."""
