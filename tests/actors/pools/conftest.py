"""A company whose workers are rooms of its own node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .local import House, LocalPremises

if TYPE_CHECKING:
    from collections.abc import Generator

from greenroom.actors.pools import handler_spec as loading


@pytest.fixture
def premises() -> LocalPremises:
    """Where its workers are."""
    return LocalPremises()


@pytest.fixture
def house(premises: LocalPremises) -> House:
    """Without any handlers yet."""
    return House(premises)


@pytest.fixture(autouse=True)
def _no_worker() -> Generator[None]:
    """What a seat says of its process is not true of this one."""
    yield
    loading._loader.is_worker = False
