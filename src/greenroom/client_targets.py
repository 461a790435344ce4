"""Makes a route from a client's target: a URL, a command, a `Server` in this program, or a route."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from greenroom.protocol.serialization import is_array
from greenroom.supervision import node_of, whereis
from greenroom.transports.client.memory_route import MemoryRoute

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from greenroom.actors.company import Company
    from greenroom.auth.client.auth_option import Auth
    from greenroom.transports.client.interfaces import Credentials, Route

    from .server import Server

    Target: TypeAlias = str | Sequence[str] | Server | Company | Route


def server_of(target: object) -> Server | None:
    """The target, if it is a `Server` of this program. Looked up in `sys.modules`: a program without a server need not import the module for this."""
    module: Any = sys.modules.get("greenroom.server")
    ours = module is not None and isinstance(target, module.Server)
    return cast("Server", target) if ours else None


def route_of(target: Target, headers: Mapping[str, str] | None = None, auth: Auth | None = None) -> Route:
    """The route to this target. Raises `ConfigError`, which says what to write instead."""
    if isinstance(target, str) and target.lower().startswith(("http://", "https://")):
        from greenroom.transports.client.http_route import HttpRoute  # noqa: PLC0415 - a command needs none of it

        return HttpRoute(target, headers=headers, credentials=_credentials(auth, target))
    if headers or auth is not None:
        if hasattr(target, "credentials") or type(target).__name__ == "HttpRoute":
            raise ConfigError(
                "headers and auth are for a server at a URL; a route has its own: "
                "write Client(HttpRoute(url, headers=…, credentials=…)), or Client(url, headers=…, auth=…)"
            )
        raise ConfigError("headers and auth are for a server at a URL: a command gets its secrets with env=")
    server = server_of(target)
    if server is not None:
        return InProcessServer(server).route()
    if hasattr(target, "open") and hasattr(target, "description"):
        return cast("Route", target)
    if hasattr(target, "enter") and hasattr(target, "connect"):
        company = cast("Company", target)
        return MemoryRoute(company, description=company.settings.name)
    if is_array(target) and target and all(isinstance(word, str) for word in target):
        from greenroom.transports.client.server_command import Command  # noqa: PLC0415 - a URL needs none of it

        route: Route = Command(*target)
        return route
    raise ConfigError(_target_help(target))


def _credentials(auth: Auth | None, url: str) -> Credentials | None:
    if auth is None:
        return None
    from greenroom.auth.client.auth_option import credentials_for  # noqa: PLC0415 - a route without a login needs none of it

    return credentials_for(auth, url)


def _target_help(target: Any) -> str:
    if isinstance(target, str | PurePath):
        text = str(target)
        if text.endswith(".py"):
            return f"{text} is a file: write Command(sys.executable, {text!r})"
        if "://" in text:
            return f"{text.partition('://')[0]}:// is not supported: write a URL with http:// or https://"
        words = ", ".join(map(repr, text.split())) or "…"
        return f"{text!r} is not a URL; for a program write Command({words})"
    return f"a target is a URL, a Command(…), a Server or a route, not {target!r}"


def name_of(target: Target, route: Route) -> str:
    """The default name of the server at this target."""
    server = server_of(target)
    return route.description if server is None else server.settings.name


def origin_of(route: Route) -> str:
    """The identity of a server: its command and working directory, its address, or its name in this program. It may contain secrets: not to be shown."""
    words: Sequence[str] = getattr(route, "words", ())
    if not words:
        return route.description
    return "\0".join((*words, str(getattr(route, "cwd", None) or _here())))


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed
        return ""


class InProcessServer:
    """A server of this program as a target, which is started and stopped with its clients unless the program runs it itself."""

    def __init__(self, server: Server) -> None:
        """`server` is the target."""
        self._server = server
        self._runner = server._runner  # noqa: SLF001 - a client of a server in the same program shares its runner
        self._name = server.company.name("company")
        self._held = False
        self._wanted = False
        self._entering: asyncio.Task[None] | None = None

    def route(self) -> MemoryRoute:
        """The route to it; each new connection starts the server if need be."""
        company = self._server.company
        return MemoryRoute(company, prepare=self.prepare, description=company.settings.name)

    async def enter(self) -> None:
        """Start it, unless the program runs it itself."""
        self._wanted = True
        held = self._runner.is_active or node_of(asyncio.get_running_loop()) is None or whereis(self._name) is None
        if self._held:
            await self._runner.ensure()
        elif held:
            self._held = True
            try:
                await self._runner.acquire()
            except BaseException:
                self._held = False
                raise

    def begin(self) -> None:
        """The same without waiting. If the start fails, the connection reports that and tries again."""
        self._wanted = True
        _ = self._enter()  # a task of its own

    def _enter(self) -> asyncio.Task[None]:
        if self._entering is None or self._entering.done():
            self._entering = asyncio.get_running_loop().create_task(self.enter())
            self._entering.add_done_callback(_retrieve_error)
        return self._entering

    async def leave(self) -> None:
        """Release the server."""
        self._wanted = False
        entering, self._entering = self._entering, None
        if entering is not None and not entering.done():
            entering.cancel()
            await asyncio.wait((entering,))
        if self._held:
            self._held = False
            await self._runner.release()

    async def prepare(self) -> None:
        """Called before each session: start the server if it does not run."""
        starting = self._entering is not None and not self._entering.done()
        if starting or (self._wanted and whereis(self._name) is None):
            await asyncio.shield(self._enter())
        elif whereis(self._name) is None:
            await self._runner.ensure()


def _retrieve_error(entering: asyncio.Task[None]) -> None:
    if not entering.cancelled():
        entering.exception()  # marks the error as retrieved: the connection that waits for the start reports it


def in_process_server(target: object) -> InProcessServer | None:
    """The target as a server of this program; None for any other."""
    ours = server_of(target)
    return None if ours is None else InProcessServer(ours)


@asynccontextmanager
async def keep_running(guest: InProcessServer | None) -> AsyncGenerator[None]:
    """Start the in-process server for the block, and release it again if the block fails."""
    if guest is None:
        yield
        return
    guest.begin()
    try:
        yield
    except BaseException:
        await guest.leave()
        raise
