"""The `services` fixture of the registry tests."""

from __future__ import annotations

import pytest

from .registry_services import RegistryServices, start_registry


@pytest.fixture
async def services() -> RegistryServices:
    """A running registry."""
    return await start_registry()
