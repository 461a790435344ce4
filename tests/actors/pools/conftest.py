"""A company whose workers run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .local_processes import House, LocalProvider

if TYPE_CHECKING:
    from collections.abc import Generator

from greenroom.actors.pools import handler_spec as loading


@pytest.fixture
def provider() -> LocalProvider:
    """Where its workers are."""
    return LocalProvider()


@pytest.fixture
def house(provider: LocalProvider) -> House:
    """Without any handlers yet."""
    return House(provider)


@pytest.fixture(autouse=True)
def _no_worker() -> Generator[None]:
    """What a worker main process says of its process is not true of this one."""
    yield
    loading._loader.is_worker = False
