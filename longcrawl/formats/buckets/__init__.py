"""Samples of several lengths, a folder for each."""
