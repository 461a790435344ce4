"""Helpers that start client connections without a supervisor, and read their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.connection_line import ConnectionLine
from greenroom.actors.client.server_connection import ServerConnection
from greenroom.supervision import start, start_link
from greenroom.supervision.introspect import get_state

if TYPE_CHECKING:
    from greenroom.actors.client.settings import ClientSettings
    from greenroom.transports.client.interfaces import Route


async def start_connection(
    route: Route,
    settings: ClientSettings | None = None,
    handler: ClientHandler | None = None,
    *,
    name: str = "server",
) -> ConnectionLine:
    """Start a connection without a supervisor. The handshake continues in the background: see `ready`."""
    line = ConnectionLine(name, settings)
    await start(ServerConnection, line, route, handler or ClientHandler())
    return line


async def start_link_connection(route: Route, *, name: str = "server") -> ConnectionLine:
    """The same, linked to the calling process, which becomes the parent."""
    line = ConnectionLine(name)
    await start_link(ServerConnection, line, route, ClientHandler())
    return line


async def snapshot(line: ConnectionLine) -> dict[str, Any]:
    """The state of a connection, after it has handled all earlier messages."""
    connection = await get_state(line.pid)
    requests, server_requests = connection["requests"], connection["server_requests"]
    return {
        "phase": line.phase.value,
        "wires": [wire.description for wire in connection["_wires"].values()],
        "waiting": [entry.id for entry in requests.table.values() if entry.wire is None],
        "under_way": {entry.id: entry.method for entry in requests.table.values() if entry.wire is not None},
        "strays": requests.strays,
        "server_requests": [request.method for request in server_requests._open.values()],
    }
