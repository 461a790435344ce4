"""The server with fixed answers over stdio: a bare loop with almost no imports."""

import os
import re

_ID = re.compile(rb'"id": *("[^"]*"|\d+)')
_RESULT = b'{"content":[{"type":"text","text":"Curtain up: two hours of traffic on the stage."}],"isError":false}'
_TOOLS = b'{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}'
_HELLO = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fixed","version":"1"}}'
_UNKNOWN = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}\n'


def answer(line: bytes) -> bytes:
    """The response with its line break."""
    found = _ID.search(line)
    if found is None:
        return b""
    if b'"tools/call"' in line:
        result = _RESULT
    elif b'"initialize"' in line:
        result = _HELLO
    elif b'"tools/list"' in line:
        result = _TOOLS
    else:
        return _UNKNOWN % found[1]
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (found[1], result)


def serve() -> None:
    """Serve until the input ends."""
    kept = b""
    while chunk := os.read(0, 65536):
        *lines, kept = (kept + chunk).split(b"\n")
        said = b"".join(map(answer, lines))
        while said:
            said = said[os.write(1, said) :]


if __name__ == "__main__":
    serve()
