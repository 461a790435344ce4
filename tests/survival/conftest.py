"""A server with tools that die, in this process, and what is left of it when it has stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .stage import Stage, descendants

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PROGRAMS = str(Path(__file__).parent / "programs")
if PROGRAMS not in sys.path:
    sys.path.append(PROGRAMS)  # where workers look too


@pytest.fixture
async def stage() -> AsyncGenerator[Stage]:
    """The server, and whoever calls it. Nothing of it is left."""
    before = descendants()
    async with Stage() as stage:
        yield stage
    assert descendants() == before
