"""An office for every test of the registry that wants one."""

from __future__ import annotations

import pytest

from .office import Office, open_office


@pytest.fixture
async def office() -> Office:
    """One that is ready."""
    return await open_office()
