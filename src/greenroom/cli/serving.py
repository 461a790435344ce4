"""``greenroom serve``: a server of somebody's code, on stdin and stdout or over HTTP."""

from __future__ import annotations

from typing import Any

from .endings import Misused
from .targets import load_server


def serve(
    *,
    server: str,
    stdio: bool,
    http: str | None,
    workers: int | None,
    inspect: bool,
) -> None:
    """Serve it until a signal comes, or whoever is at the other end of stdin has gone."""
    if stdio and http is not None:
        raise Misused("either --stdio or --http: a server has one of them here")
    if workers is not None and http is None:
        raise Misused("--workers is for --http: on stdio there is one client, and one process")
    serve_once(server, http, workers, inspect=inspect)


def serve_once(server: str, http: str | None, workers: int | None, *, inspect: bool) -> None:
    """Import it, and serve. On stdio, what its import prints goes to stderr: stdout belongs to the protocol from the first moment."""
    if http is None:
        from greenroom.transports.standard import StandardStreams  # noqa: PLC0415 - not for help

        streams = StandardStreams()
        try:
            found = load_server(server)
        finally:
            streams.give_back()
        found.run("stdio", inspect=inspect)
        return
    found = load_server(server)
    host, port = place(http)
    more: dict[str, Any] = {} if workers is None else {"workers": workers}
    found.run("http", host=host, port=port, inspect=inspect, **more)


def place(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or a port of this machine's own."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 1 << 16:
        raise Misused(f"--http is HOST:PORT, or a PORT of 127.0.0.1, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
