"""Which requests are answered on the spot, and how long the others may take.

Everything that runs user code is a worker's job. What is only read from the catalogue is answered by the session itself, from one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.protocol.messages import Request

    from .jobs import Facts, House


def at_once(request: Request, facts: Facts, house: House) -> bytes | None:  # noqa: ARG001
    """The response, or None when it takes a worker. Raises `McpError`."""
    return None


def timeout_of(request: Request, house: House) -> float | None:
    """The deadline that this call has of its own."""
    if request.method == "tools/call":
        tool = house.shelf.catalogue.tool(request.params["name"])
        if tool is not None:
            return tool.options.timeout
    return None
