"""An services for every test of the registry that wants one."""

from __future__ import annotations

import pytest

from .registry_services import RegistryServices, start_registry


@pytest.fixture
async def services() -> RegistryServices:
    """One that is ready."""
    return await start_registry()
