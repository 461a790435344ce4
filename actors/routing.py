"""Which requests are answered on the spot, and how long the others may take: loaded when the first one comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.protocol.messages import Request

    from .jobs import Facts, House


def at_once(request: Request, facts: Facts, house: House) -> bytes | None:
    """The response, or None when it takes a worker. Raises `McpError`."""
    if request.method in ("tools/call", "resources/read", "prompts/get", "completion/complete"):
        return None
    from .answers import at_once  # noqa: PLC0415 - see above

    return at_once(request, facts, house)


def timeout_of(request: Request, house: House) -> float | None:
    """The deadline that this call has of its own."""
    if request.method == "tools/call":
        tool = house.shelf.catalogue.tool(request.params["name"])
        if tool is not None:
            return tool.options.timeout
    return None
