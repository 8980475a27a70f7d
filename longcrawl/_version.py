"""The version, apart from everything else so that any module can say it."""

__version__ = "0.1.0"
