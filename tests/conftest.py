"""What all tests share: where the repository is, and how examples are searched for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A slow machine is no failure, and a failure prints what replays it; pytest-randomly prints the seed of the order.
settings.register_profile("greenroom", deadline=None, print_blob=True)
settings.load_profile("greenroom")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository, which tests look at and never write to."""
    return Path(__file__).parents[1]
