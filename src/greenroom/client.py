"""`Client`: what a program writes to use a server: at a URL, in a process of its own, or in this very program.

::

    async with Client("http://127.0.0.1:8000/mcp") as client:      # or Client(Command("uvx", "mcp-server-git")), Client(server)
        days = await client.call("forecast", city="Oslo", into=list[Day])

It is no process. The connection behind it is one, which is supervised, comes back when it was lost, and lives in the loop's node, or in one that
is opened for it. A client is opened and closed from any task, in any order with others.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from greenroom.actors.client.errors import Unavailable
from greenroom.actors.client.line import ConnectionLine, connection_spec
from greenroom.actors.client.seam import Phase
from greenroom.actors.client.settings import ClientSettings

from .answering import Callbacks, check_callbacks, check_roots
from .client_tools import ClientTools, Promises
from .errors import suggests
from .hosting import Hosting
from .server import Server
from .targets import Guest, name_of, route_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from greenroom.actors.client.handler import ClientHandler
    from greenroom.actors.client.seam import Line, Progress, Status
    from greenroom.auth.client.door import Auth
    from greenroom.supervision import ChildSpec

    from .answering import Elicitor, Listener, Logger, Roots, Sampler, Usher
    from .targets import Target

_DEFAULT: Any = ...


@suggests("a client")
class Client(ClientTools):
    """A client of one server."""

    def __init__(  # noqa: PLR0913 - where, how, and a function for each thing that a server may ask or say
        self,
        target: Target,
        *,
        name: str | None = None,
        sampling: Sampler | None = None,
        elicitation: Elicitor | None = None,
        url_elicitation: Usher | None = None,
        roots: Roots | None = None,
        on_log: Logger | None = None,
        on_progress: Callable[[Progress], Any] | None = None,
        on_notification: Listener | None = None,
        handler: ClientHandler | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        timeout: float | None = _DEFAULT,
        client_info: Mapping[str, Any] | None = None,
        settings: ClientSettings | None = None,
        patient: bool = False,
        check_output: bool = True,
    ) -> None:
        """`target` is a URL, a `Command(…)` or its words in a list, a `Server`, or a route.

        `auth` is a bearer token, `OAuth(…)`, or another way to sign in there; a handshake then waits for the user as well.

        `sampling`, `elicitation`, `url_elicitation` and `roots` answer the server, `on_log`, `on_progress` and `on_notification` hear it, and
        `handler` does what is left over. `settings` has all that can be set, and what is given beside it wins: `timeout` is that of
        requests. A `patient` client waits for a server that is not there yet, as long as a handshake may take; others say at once why not.
        """
        given: dict[str, Any] = {} if client_info is None else {"client_info": client_info}
        if timeout is not _DEFAULT:
            given["request_timeout"] = timeout
        self.settings = replace(settings or ClientSettings(), **given)
        patience: float = getattr(auth, "patience", 0.0)
        if patience:  # a user who has to sign in first is slower than any server
            self.settings = replace(self.settings, init_timeout=self.settings.init_timeout + patience)
        functions = {"sampling": sampling, "elicitation": elicitation, "url_elicitation": url_elicitation}
        told = {"on_log": on_log, "on_progress": on_progress, "on_notification": on_notification}
        check_callbacks({**functions, **told, "roots": roots if callable(roots) else None})
        self._callbacks = Callbacks(
            sampling=sampling,
            elicitation=elicitation,
            url_elicitation=url_elicitation,
            roots=check_roots(roots),
            on_log=on_log,
            on_notification=on_notification,
            rest=handler,
        )
        declared: Any = self.settings.declared(self._callbacks.capabilities()).get("sampling")
        self._callbacks.model_uses_tools = isinstance(declared, dict) and "tools" in declared
        self.promises = Promises()
        self.on_progress = on_progress
        self.check_output = check_output
        self._most_pages = self.settings.max_pages
        self._patient = patient
        self._route = route_of(target, headers, auth)
        self._line = ConnectionLine(name or name_of(target, self._route), self.settings)
        self._line.board.tools_changed = self.promises.forget
        self._hosting = Hosting(self.child_spec)
        self._server = target if isinstance(target, Server) else None
        self._guests: list[Guest] = []

    def __repr__(self) -> str:
        return f"<Client of {self._line.name}, {self._line.status.phase.value}>"

    @property
    def line(self) -> Line:
        """The way to the server, as actors use it."""
        return self._line

    @property
    def name(self) -> str:
        """What the server is called here."""
        return self._line.name

    # --- life

    def child_spec(self) -> ChildSpec[Any]:
        """The connection as a child of anybody's supervisor: this client then speaks for as long as that lives, and needs no `async with`."""
        return connection_spec(self._route, self._callbacks, line=self._line)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Raises why not: a `TransportError`, or a `ClientError`. Each time that it is opened it has to be closed."""
        guest = None
        if self._server is not None:
            guest = Guest(self._server)
            await guest.enter()
        try:
            await self._hosting.hold()
            try:
                await self._connected()
            except BaseException:
                await self._hosting.let_go()
                raise
        except BaseException:
            if guest is not None:
                await guest.leave()
            raise
        if guest is not None:
            self._guests.append(guest)

    async def _connected(self) -> None:
        if self._patient:
            await self._line.ready()
            return
        async with aclosing(self._line.board.watch()) as statuses:
            async for status in statuses:
                if status.phase is Phase.READY:
                    return
                if status.phase in (Phase.BACKOFF, Phase.PARKED, Phase.CLOSED):
                    raise self._why_not(status)

    def _why_not(self, status: Status) -> Exception:
        return status.cause or Unavailable(self._line.name)

    async def close(self) -> None:
        """Let go of it. What is under way gets `ClientClosed`."""
        try:
            await self._hosting.let_go()
        finally:
            if self._guests:
                await self._guests.pop().leave()

    async def set_roots(self, roots: Roots) -> None:
        """You work elsewhere now: the server is told, and asks. Only for a client that was made with roots."""
        if self._callbacks.roots is None:
            raise ValueError(
                "this client has not declared that it has roots: give it some when it is made, Client(…, roots=[])"
            )
        self._callbacks.roots = check_roots(roots)
        await self.notify_roots_list_changed()

    def within(self, seconds: float | None) -> ClientTools:
        """The same words with another deadline: `await client.within(5).call("forecast")`. None waits for ever."""
        return Within(self, seconds)


class Within(ClientTools):
    """A client with another deadline."""

    _bounded = True

    def __init__(self, client: Client, seconds: float | None) -> None:
        """`seconds` for each request."""
        self._client = client
        self.timeout = seconds
        self.promises = client.promises
        self.on_progress = client.on_progress
        self.check_output = client.check_output
        self._most_pages = client._most_pages  # noqa: SLF001 - it is one client

    def __repr__(self) -> str:
        return f"{self._client!r}.within({self.timeout})"

    @property
    def line(self) -> Line:
        """The way to the server."""
        return self._client.line
