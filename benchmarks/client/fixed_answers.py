"""A minimal MCP server of both eras over HTTP with fixed answers, as JSON or as a stream.

It is the same for all clients and several times as fast as any of them, so differences in the results are the clients'.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

SESSION = "0123456789abcdef"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ID = re.compile(rb'"id": *("[^"]*"|\d+)')
_RESULT = b'{"content":[{"type":"text","text":"Curtain up: two hours of traffic on the stage."}],"isError":false}'
_TOOLS = b'{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}'
_COMPLETE = _RESULT[:-1] + b',"resultType":"complete"}'
_LISTED = _TOOLS[:-1] + b',"resultType":"complete","ttlMs":0,"cacheScope":"private"}'
_HELLO = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fixed","version":"1"}}'
_DISCOVERED = (
    b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,'
    b'"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fixed","version":"1"}}}'
)
_TAKEN = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
_NONE = b"HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 0\r\n\r\n"
_UNKNOWN = b'{"code":-32601,"message":"Method not found"}'


class Fixed(asyncio.Protocol):
    """One HTTP connection."""

    def __init__(self) -> None:
        """Begin with an empty buffer."""
        self._transport: Any = None
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the complete requests."""
        data = self._kept + data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = data[:end]
            found = _LENGTH.search(head)
            after = end + 4 + (int(found[1]) if found else 0)
            if len(data) < after:
                break
            self._transport.write(answer(head, data[end + 4 : after]))
            data = data[after:]
        self._kept = data


def answer(head: bytes, body: bytes) -> bytes:
    """The whole HTTP response."""
    if not head.startswith(b"POST"):
        return _NONE
    found = _ID.search(body)
    if found is None:
        return _TAKEN
    is_modern = b"mcp-method:" in head.lower()
    if b'"initialize"' in body:
        return framed(
            b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (found[1], _HELLO), b"mcp-session-id: %b\r\n" % SESSION.encode()
        )
    if b'"server/discover"' in body:
        return framed(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (found[1], _DISCOVERED))
    if b'"tools/list"' in body:
        return framed(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (found[1], _LISTED if is_modern else _TOOLS))
    if b'"tools/call"' not in body:
        return framed(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (found[1], _UNKNOWN))
    said = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (found[1], _COMPLETE if is_modern else _RESULT)
    if not head.startswith(b"POST /stream"):
        return framed(said)
    event = b"event: message\r\ndata: %b\r\n\r\n" % said
    return (
        b"HTTP/1.1 200 OK\r\ndate: Wed, 18 Nov 2026 12:00:00 GMT\r\nserver: fixed\r\ncache-control: no-cache, no-transform\r\n"
        b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (len(event), event)
    )


def framed(body: bytes, more: bytes = b"") -> bytes:
    """A JSON response."""
    return (
        b"HTTP/1.1 200 OK\r\ndate: Wed, 18 Nov 2026 12:00:00 GMT\r\nserver: fixed\r\ncontent-type: application/json\r\n%b"
        b"content-length: %d\r\n\r\n%b" % (more, len(body), body)
    )


async def serve(port: int) -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(Fixed, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
