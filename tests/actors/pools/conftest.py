"""A company whose workers run in this process."""

from __future__ import annotations

import pytest

from .local_processes import House, LocalProvider


@pytest.fixture
def provider() -> LocalProvider:
    """Where its workers are."""
    return LocalProvider()


@pytest.fixture
def house(provider: LocalProvider) -> House:
    """Without any handlers yet."""
    return House(provider)
