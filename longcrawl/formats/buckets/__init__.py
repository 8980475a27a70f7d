"""Bucketed datasets: training samples of several lengths (buckets), with a folder for each length; see ``spec``."""
