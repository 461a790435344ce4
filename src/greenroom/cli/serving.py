"""``greenroom serve``: a server of somebody's code, on stdin and stdout or over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .endings import FINE, Misused
from .loading import load_server


def serve(
    *,
    server: str,
    stdio: bool,
    http: str | None,
    workers: int | None,
    watch: bool,
    inspect: bool,
) -> int:
    """Serve it until a signal comes, or whoever is at the other end of stdin has gone."""
    if stdio and http is not None:
        raise Misused("either --stdio or --http: a server has one of them here")
    if workers is not None and http is None:
        raise Misused("--workers is for --http: on stdio there is one client, and one process")
    if watch:
        return _watched(server, http, workers, inspect=inspect)
    serve_once(server, http, workers, inspect=inspect)
    return FINE


def _watched(server: str, http: str | None, workers: int | None, *, inspect: bool) -> int:
    from .renewing import serve_again  # noqa: PLC0415 - for who is at work on it

    if http is None:
        raise Misused("--watch is for --http: a client on stdio would lose what it said with the process that heard it")
    place(http)
    words = [server, "--http", http]
    words += [] if workers is None else ["--workers", str(workers)]
    words += ["--inspect"] if inspect else []
    file = server if server.endswith(".py") else server.rpartition(":")[0]
    return serve_again(words, Path(file).resolve().parent if file.endswith(".py") else Path.cwd())


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
