"""A server whose lists and resources change when a tool is called. As a program it serves stdio."""

from __future__ import annotations

import os

from greenroom import Server


def make_server() -> Server:
    """The server."""
    server = Server("changes")
    server.resource("test://a", name="a")(lambda: "A")
    server.resource("test://b", name="b")(lambda: "B")
    server.prompt("greet")(lambda: "Hello")

    @server.tool
    def touch(uri: str) -> None:
        server.notify_resource_updated(uri)

    @server.tool
    def grow() -> None:
        server.registry.register_tool("new", lambda: "")

    @server.tool
    def crash() -> None:
        os._exit(7)

    return server


if __name__ == "__main__":
    make_server().run()
