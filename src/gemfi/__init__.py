"""gemfi: single-pass uncertainty for PyTorch classifiers."""

from gemfi._version import __version__

__all__ = ["__version__"]
