"""Bucket pre-training: plans that compose documents into training samples."""
