"""``greenroom serve``: a server of somebody's code, on stdin and stdout or over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .endings import FINE, Misused
from .loading import blaming, load_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.transports.http_config import HttpConfig


def serve(  # noqa: PLR0913 - a keyword for each option
    *,
    server: str,
    stdio: bool,
    http: str | None,
    origin: Sequence[str],
    workers: int | None,
    watch: bool,
    inspect: bool,
) -> int:
    """Serve it until a signal comes, or whoever is at the other end of stdin has gone."""
    if stdio and http is not None:
        raise Misused("either --stdio or --http: a server has one of them here")
    if workers is not None and http is None:
        raise Misused("--workers is for --http: on stdio there is one client, and one process")
    if origin and http is None:
        raise Misused("--origin is for --http: on stdio nobody is a web page")
    if watch:
        return _watched(server, http, origin, workers, inspect=inspect)
    serve_once(server, http, origin, workers, inspect=inspect)
    return FINE


def _watched(server: str, http: str | None, origin: Sequence[str], workers: int | None, *, inspect: bool) -> int:
    from .renewing import serve_again  # noqa: PLC0415 - for who is at work on it

    if http is None:
        raise Misused("--watch is for --http: a client on stdio would lose what it said with the process that heard it")
    configured(http, origin)
    words = [server, "--http", http, *(word for each in origin for word in ("--origin", each))]
    words += [] if workers is None else ["--workers", str(workers)]
    words += ["--inspect"] if inspect else []
    file = server if server.endswith(".py") else server.rpartition(":")[0]
    return serve_again(words, Path(file).resolve().parent if file.endswith(".py") else Path.cwd())


def serve_once(server: str, http: str | None, origin: Sequence[str], workers: int | None, *, inspect: bool) -> None:
    """Import it, and serve. On stdio, what its import prints goes to stderr: stdout belongs to the protocol from the first moment."""
    if http is None:
        from greenroom.transports.standard import StandardStreams  # noqa: PLC0415 - not for help

        streams = StandardStreams()
        try:
            found = load_server(server)
        finally:
            streams.give_back()
        with blaming(server):
            found.run("stdio", inspect=inspect)
        return
    config = configured(http, origin)
    found = load_server(server)
    with blaming(server):
        found.run("http", config=config, inspect=inspect, workers=workers)


def configured(http: str, origin: Sequence[str]) -> HttpConfig:
    """Where to listen, and which pages may call. Raises `Misused`."""
    from greenroom.transports.http_checks import origin as parsed  # noqa: PLC0415 - not for help
    from greenroom.transports.http_config import HttpConfig, is_loopback  # noqa: PLC0415 - as above

    host, port = place(http)
    if not origin:
        if not is_loopback(host):
            raise Misused(
                f"{host} can be reached from other machines: say which web pages may call, with --origin and theirs, "
                "--origin none or --origin any; or listen on 127.0.0.1"
            )
        return HttpConfig(host=host, port=port)
    if len(origin) > 1 and {"none", "any"} & set(origin):
        raise Misused("--origin none and --origin any stand alone")
    if origin[0] in ("none", "any"):
        return HttpConfig(host=host, port=port, allowed_origins=() if origin[0] == "none" else "any")
    if wrong := [each for each in origin if each != "null" and parsed(each) is None]:
        raise Misused(f"--origin is written scheme://host[:port], or null, none or any, not {wrong[0]!r}")
    return HttpConfig(host=host, port=port, allowed_origins=tuple(origin))


def place(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or a port of this machine's own."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 1 << 16:
        raise Misused(f"--http is HOST:PORT, or a PORT of 127.0.0.1, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
