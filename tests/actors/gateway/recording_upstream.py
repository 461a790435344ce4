"""An upstream that does all that an upstream may do, and gateways in front of some."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from greenroom import Client, ClientSettings, Server, Settings, UrlElicitation, UrlElicitationRequired, resource_link
from greenroom.host import Host
from greenroom.protocol.errors import McpError
from greenroom.transports.client.memory_route import MemoryRoute
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.host import Consent


UNREACHABLE = "http://127.0.0.1:9/mcp"


FRAGILE = """
import os, signal, sys
from greenroom import Server

server = Server("fragile")

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def die() -> None:
    print("a secret", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

server.run()
"""


class Upstream:
    """A server that remembers, asks, tells and waits."""

    def __init__(self, name: str = "up") -> None:
        self.server = Server(name)
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.memory: dict[str, str] = {}
        server = self.server

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        def remember(ctx: Any, what: str) -> str:
            """A note that belongs to the session."""
            before = self.memory.get(ctx.session_id, "nothing")
            self.memory[ctx.session_id] = what
            return before

        @server.tool
        async def think(ctx: Any) -> str:
            ctx.info("thinking", logger="mind")
            return str((await ctx.sample("What now?")).text)

        @server.tool
        async def confirm(ctx: Any) -> str:
            answer = await ctx.elicit("Sure?", {"type": "object", "properties": {"yes": {"type": "boolean"}}})
            return str(answer.action)

        @server.tool
        async def count(ctx: Any, to: int) -> int:
            for done in range(to):
                ctx.progress(done + 1, to, f"step {done + 1}")
                await asyncio.sleep(0)
            return to

        @server.tool
        async def wait(ctx: Any) -> None:
            self.waiting.set()
            try:
                await ctx.cancelled.wait()
            finally:
                self.cancelled.set()

        @server.tool
        async def able(ctx: Any) -> list[str]:
            return sorted(ctx.client_capabilities)

        self._offer_more()

    def _offer_more(self) -> None:
        server = self.server

        @server.tool
        def link() -> Any:
            return resource_link("note://one", "one")

        @server.tool
        def fail() -> None:
            raise McpError(-32050, "own error", {"uri": "note://one", "k": 1})

        @server.tool
        async def chat(ctx: Any) -> None:
            ctx.debug("small talk")
            ctx.error("trouble")

        @server.tool
        def sign_in() -> None:
            raise UrlElicitationRequired(UrlElicitation("Sign in.", "https://example.org/{elicitation_id}", "visit-1"))

        @server.resource("note://one")
        def note() -> str:
            return "a note"

        @server.resource("note://{id}/more")
        def more(id: str) -> str:
            return f"more of {id}"

        @server.prompt
        def greet(name: str) -> str:
            return f"Greet {name}."

        @server.completion("name", prompt="greet")
        def names(value: str) -> list[str]:
            return [one for one in ("Ann", "Bob") if one.startswith(value)]


LEGACY = "legacy"
"""The mode of clients and upstreams in tests of sessions."""


def session_host(servers: Any = None, *, mode: str = LEGACY, **options: Any) -> Host:
    """A host whose connections begin with a handshake."""
    return Host(servers, settings=ClientSettings(mode=mode), **options)


def gateway(
    *upstreams: Upstream, consent: Consent | None = None, pins: Any = None, mode: str = LEGACY, **options: Any
) -> Server:
    server = Server("front", settings=Settings(page_size=4))
    servers: dict[str, Any] = {one.server.settings.name: one.server for one in upstreams}
    server.mount(session_host(servers, patience=1.0, consent=consent, pins=pins, mode=mode), **options)
    return server


def says(text: str) -> Callable[[Any], str]:
    def answer(_: Any) -> str:
        return text

    return answer


def agrees(form: Any) -> Any:
    return form.accept({"yes": True})


def client(
    server: Server | str,
    principal: str | None = None,
    *,
    mode: str = LEGACY,
    on_log: Callable[[Any], object] | None = None,
    **options: Any,
) -> Client:
    if principal is None or isinstance(server, str):
        return Client(server, mode=mode, on_log=on_log, **options)
    route = MemoryRoute(server.company, peer=Peer("memory", principal=principal))
    return Client(route, mode=mode, on_log=on_log, **options)


def run(main: Callable[[], Any]) -> None:
    asyncio.run(main())
