"""A tool's call from its params to its result: styles of functions, what is checked, what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from greenroom.actors.context import Context
from greenroom.actors.settings import Settings
from greenroom.protocol.errors import McpError, ToolError
from greenroom.protocol.results import CallToolResult, Structured, WithMeta

from .desk import Desk, House


@pytest.mark.row("TF-01", "TF-03")
async def test_an_async_function_with_hints_is_a_tool(house: House, desk: Desk) -> None:
    async def greet(name: str, times: int = 1) -> str:
        return " ".join([f"Hello, {name}!"] * times)

    house.tool(greet)
    assert await desk.text("greet", name="Ada", times=2) == "Hello, Ada! Hello, Ada!"
