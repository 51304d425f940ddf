"""Data folders for the tests of data."""

from support.shelf import shelf, shrink

__all__ = ["shelf", "shrink"]
