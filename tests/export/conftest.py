"""The graph that the tests here share."""

from __future__ import annotations

import pytest

from support.exports import Made, bar_model


@pytest.fixture(scope="session")
def bars() -> Made:
    """GEM-FI on bytes, with spectral norms, a temperature and p-values within each class."""
    return bar_model()
