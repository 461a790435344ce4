"""A house and a desk for every test of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .desk import Desk, House, open_desk

if TYPE_CHECKING:
    from greenroom.supervision.testing import Probe


@pytest.fixture
def house() -> House:
    """Without anything in it."""
    return House()


@pytest.fixture
async def desk(house: House, probe: Probe) -> Desk:
    """Where jobs are handed out."""
    return await open_desk(house, probe)
