"""Find the packages of a distribution; pyproject.toml holds everything else."""

from setuptools import find_packages, setup

BESIDE = ("builders", "cards")
"""Folders that lie beside ``longcrawl`` and are installed inside it."""

DATA = ("recipes",)
"""A folder of files that is no package of Python, as ``longcrawl.recipes`` is a function."""

setup(
    packages=[
        *find_packages(include=["longcrawl", "longcrawl.*"]),
        *(f"longcrawl.{folder}" for folder in (*BESIDE, *DATA)),
    ],
    package_dir={f"longcrawl.{folder}": folder for folder in BESIDE},
)
