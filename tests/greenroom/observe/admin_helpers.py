"""An admin listener on a free port beside a server, and raw requests to it: exactly the bytes of the test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.transports.http.raw_http import HttpResponse, RawClient

from greenroom import Server
from greenroom.observe.admin_listener import AdminPart
from greenroom.observe.admin_settings import Admin
from greenroom.observe.readiness import missing_parts
from greenroom.supervision import Ref, Supervisor, start, stop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@dataclass
class RunningAdmin:
    """A running admin listener, and the browser of a test."""

    part: AdminPart
    server: Server
    top: Ref[Any]
    cookie: str = ""
    clients: list[RawClient] = field(default_factory=list[RawClient])

    @property
    def port(self) -> int:
        return self.part.access.port

    @property
    def own(self) -> dict[str, str]:
        """The headers of a request of the listener's own page."""
        return {"host": f"127.0.0.1:{self.port}", "cookie": self.cookie, "sec_fetch_site": "same-origin"}

    @property
    def posted(self) -> dict[str, str]:
        """The headers of a form or a script of the listener's own page."""
        return {**self.own, "origin": f"http://127.0.0.1:{self.port}", "x_csrf_token": self.csrf}

    @property
    def csrf(self) -> str:
        name, _, value = self.cookie.partition("=")
        assert name == self.part.access.cookie_name
        viewer = self.part.access.viewer_of(value, 0.0)
        assert viewer is not None
        return viewer.csrf

    async def client(self) -> RawClient:
        client = await RawClient.to(self.port)
        self.clients.append(client)
        return client

    async def ask(self, method: str, path: str, body: Any = None, **headers: Any) -> HttpResponse:
        """Send one request on a connection of its own."""
        client = await self.client()
        try:
            return await client.ask(method, path, body, **{"host": f"127.0.0.1:{self.port}", **headers})
        finally:
            client.abort()

    @property
    def link(self) -> str:
        """A new link, without scheme and host."""
        return self.part.new_link().partition(f":{self.port}")[2]

    async def sign_in(self) -> RunningAdmin:
        """Follow a link, as a browser does."""
        response = await self.ask("GET", self.link, sec_fetch_site="none", sec_fetch_mode="navigate")
        assert response.status == 303, response
        self.cookie = response.headers["set-cookie"].partition(";")[0]
        return self


@asynccontextmanager
async def running_admin(server: Server | None = None, **settings: Any) -> AsyncGenerator[RunningAdmin]:
    """Run a server with an admin listener, and stop both."""
    server = server or Server("weather")
    part = AdminPart(
        Admin(port=0, **settings), server.settings.name, lambda: missing_parts(server.company.process_name)
    )
    top = await start(Supervisor, part.around(server.child_spec()), intensity=0)
    running = RunningAdmin(part, server, top)
    try:
        yield running
    finally:
        for client in running.clients:
            client.abort()
        await stop(top, timeout=None)
