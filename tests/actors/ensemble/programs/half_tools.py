"""The other tool, and a lifespan."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom import Server

half: Server = importlib.import_module("half_module").server


@half.tool
def elsewhere() -> str:
    return "elsewhere"


@half.lifespan
async def opened() -> AsyncGenerator[None]:
    yield
