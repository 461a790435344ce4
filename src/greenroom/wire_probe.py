"""`WireProbe`, a raw peer for tests: it exchanges messages with a server in memory, sees every byte, and answers requests.

It is not a client: it enforces only JSON-RPC, so that a test can break all other rules.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.protocol.errors import ErrorCode, McpError, PeerError
from greenroom.protocol.jsonrpc import encode_error, encode_notification, encode_request, encode_result
from greenroom.transports.interfaces import Peer
from greenroom.transports.session_channel import MemoryPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.transports.interfaces import SessionRouter

    from .server import Server

Message: TypeAlias = dict[str, Any]

DEFAULT_WAIT: Final = 5.0


class WireEnded(ConnectionError):
    """The server closed the wire."""


class WireProbe:
    """``async with WireProbe(server) as probe``: the session is initialized then, unless `greet` is False.

    A `Server` runs as long as its probe; a company (which several probes may share) must be running already.
    """

    def __init__(
        self,
        server: Server | SessionRouter,
        *,
        version: str = LATEST_DIALECT.version,
        capabilities: Mapping[str, Any] | None = None,
        answers: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None,
        peer: Peer | None = None,
        greet: bool = True,
    ) -> None:
        """`answers` has, by method, functions of the params that answer the server's requests; they may be async."""
        self.version = version
        self.capabilities = dict(capabilities or {})
        self.answers = dict(answers or {})
        self.received: list[Message] = []
        """All messages from the server, in order."""
        self.welcome: dict[str, Any] = {}
        """The result of `initialize`."""
        self._greet = greet
        self._server = server
        self._peer = peer or Peer("memory", "probe")
        self._wire: MemoryPeer
        self._open = AsyncExitStack()
        self._ids = count(1)
        self._arrived = asyncio.Condition()
        self._ended = False
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            server: Any = self._server
            door: SessionRouter = (
                await opening.enter_async_context(server.started()) if hasattr(server, "started") else server
            )
            self._wire = await opening.enter_async_context(MemoryPeer(door, self._peer))
            opening.push_async_callback(self._close_server)
            self._spawn(self._read())
            if self._greet:
                await self.initialize()
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect, which ends the session."""
        await self._open.aclose()

    async def _close_server(self) -> None:
        self._ended = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- sending

    async def initialize(self) -> dict[str, Any]:
        """Send `initialize` and `notifications/initialized`."""
        params = {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "probe", "version": "1"},
        }
        self.welcome = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return self.welcome

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, within: float = DEFAULT_WAIT
    ) -> Any:
        """Send a request and wait for its result. An error is raised as `PeerError`."""
        answer = await self.answer(await self.ask(method, params), within=within)
        if "error" in answer:
            raise PeerError.from_wire(answer["error"])
        return answer["result"]

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and wait for its result in wire form."""
        return cast("dict[str, Any]", await self.request("tools/call", {"name": tool, "arguments": arguments}))

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request without waiting. Returns its id, for `answer` and `cancel`."""
        request_id = next(self._ids)
        await self.send(encode_request(request_id, method, None if params is None else dict(params)))
        return request_id

    async def answer(self, request_id: str | int | None, *, within: float = DEFAULT_WAIT) -> Message:
        """Wait for the message that answers a request."""
        return await self.wait_for(
            lambda message: "method" not in message and message.get("id") == request_id,
            within=within,
            what=f"the answer to request {request_id!r}",
        )

    async def cancel(self, request_id: str | int, reason: str | None = None) -> None:
        """Send a cancellation of a request."""
        params: dict[str, Any] = {"requestId": request_id}
        await self.notify("notifications/cancelled", params if reason is None else params | {"reason": reason})

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.send(encode_notification(method, None if params is None else dict(params)))

    async def send(self, frame: bytes) -> None:
        """Send these bytes unchanged."""
        await self._wire.send(frame)

    # --- receiving

    def notifications(self, method: str) -> list[dict[str, Any]]:
        """The params of the notifications received so far."""
        return [message.get("params", {}) for message in self.received if message.get("method") == method]

    async def wait_for_notifications(
        self, method: str, times: int = 1, *, within: float = DEFAULT_WAIT
    ) -> list[dict[str, Any]]:
        """Wait until a notification has come `times` times. Returns the params of all of them."""
        await self._wait(lambda: len(self.notifications(method)) >= times, within, f"{method} ({times} times)")
        return self.notifications(method)

    async def wait_for(
        self, wanted: Callable[[Message], bool], *, within: float = DEFAULT_WAIT, what: str = "that message"
    ) -> Message:
        """The first message, received or to come, for which `wanted` is true."""
        await self._wait(lambda: any(map(wanted, self.received)), within, what)
        return next(filter(wanted, self.received))

    async def ended(self, *, within: float = DEFAULT_WAIT) -> None:
        """Wait until the server has closed the wire."""
        await self._wait(lambda: self._ended, within, "the end of the wire")

    async def _wait(self, holds: Callable[[], bool], within: float, what: str) -> None:
        try:
            async with asyncio.timeout(within), self._arrived:
                await self._arrived.wait_for(lambda: holds() or self._ended)
        except TimeoutError:
            raise TimeoutError(
                f"{what} did not come within {within:g} seconds; {len(self.received)} messages have"
            ) from None
        if not holds():
            raise WireEnded(f"the wire has ended, but {what} did not come")

    async def _read(self) -> None:
        while frames := await self._wire.receive():
            for frame in frames:
                message: Message = json.loads(frame)
                self.received.append(message)
                if "method" in message and "id" in message:
                    self._spawn(self._reply(message))
            await self._wake_waiters()
        self._ended = True
        await self._wake_waiters()

    async def _wake_waiters(self) -> None:
        async with self._arrived:
            self._arrived.notify_all()

    async def _reply(self, message: Message) -> None:
        """Answer a request of the server."""
        function = self.answers.get(message["method"])
        if function is None:
            unknown = McpError(ErrorCode.METHOD_NOT_FOUND, f"this probe has no answer for {message['method']}")
            await self.send(encode_error(message["id"], unknown))
            return
        try:
            result = function(message.get("params", {}))
            if inspect.isawaitable(result):
                result = await result
        except McpError as error:
            await self.send(encode_error(message["id"], error))
        else:
            await self.send(encode_result(message["id"], result))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
