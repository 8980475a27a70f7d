"""Find the packages of a distribution; pyproject.toml holds everything else."""

from setuptools import find_packages, setup

DATA = ("cards", "recipes", *(f"text.presets.{name}" for name in ("languages", "lines", "urls")))
"""Folders of files that are no packages of Python: ``longcrawl.recipes`` is a function."""

setup(
    packages=[*find_packages(include=["longcrawl", "longcrawl.*"]), *(f"longcrawl.{folder}" for folder in DATA)],
    package_dir={"longcrawl.cards": "cards"},
)
