"""The line to one server of a federation, by its id: it outlives restarts and replacements, and each request passes the gate.

Who holds it need not know who runs behind it. What is asked while nobody does waits for whoever comes, within its deadline; what nobody may
ask just now fails at once, and says why.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Self

from greenroom.actors.client.errors import ClientClosed, InitTimeout, Parked, Unavailable
from greenroom.actors.client.readers import GAP
from greenroom.actors.client.seam import Phase, Status
from greenroom.supervision import NotRegistered

from .requests import GuardedRequest
from .specs import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Mapping
    from types import TracebackType

    from greenroom.actors.client.seam import Line, Told, Updates, Welcome
    from greenroom.supervision import Pid

    from .federation import Federation
    from .upstream import Upstream

_DEFAULT: Final[Any] = ...


class FederatedLine:
    """A `Line`, made by `Federation.line`."""

    __slots__ = ("_federation", "_id", "_who")

    def __init__(self, federation: Federation, id: str, who: Hashable) -> None:
        """`who` is on whose behalf it asks: where many wait, those take turns."""
        self._federation = federation
        self._id = id
        self._who = who

    def __repr__(self) -> str:
        return f"<FederatedLine {self._id}, {self.status.phase.value}>"

    @property
    def _upstream(self) -> Upstream | None:
        return self._federation.roster.get(self._id)

    @property
    def pid(self) -> Pid | None:
        """The connection's process, if it runs just now."""
        upstream = self._upstream
        return None if upstream is None else upstream.line.pid

    @property
    def name(self) -> str:
        """What the server is called here."""
        return str(self._id)

    @property
    def status(self) -> Status:
        """How it is."""
        upstream = self._upstream
        if upstream is None:
            return Status(Phase.CLOSED)
        if upstream.parked is not None:
            return Status(Phase.PARKED, upstream.parked, generation=upstream.line.status.generation)
        return upstream.line.status

    @property
    def welcome(self) -> Welcome | None:
        """What the server last said of itself."""
        upstream = self._upstream
        return None if upstream is None else upstream.line.welcome

    # --- asking

    def begin(  # noqa: PLR0913 - what can be said of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
    ) -> GuardedRequest:
        """Send a request, when it is its turn."""
        upstream = self._upstream
        seconds = timeout
        if timeout is _DEFAULT:
            seconds = None if upstream is None else upstream.spec.patience(method)
        request = GuardedRequest(
            method,
            params,
            seconds=seconds,
            wait=wait,
            who=self._who,
            progress=progress,
            token=token,
            idempotent=idempotent,
        )
        if upstream is None:
            request.fail(self._closed())
        else:
            upstream.gate.enter(request)
        return request

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"{self.name} is not in the federation any more")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self.begin(method, params, timeout=timeout, wait=wait).result()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something; that passes by the gate, and is not waited for."""
        upstream = self._upstream
        if upstream is None:
            raise self._closed()
        refusal = upstream.gate.refusal()
        if refusal is not None:
            raise refusal
        await upstream.line.notify(method, params)

    async def set_level(self, level: str, *, timeout: float | None = _DEFAULT) -> None:
        """Say what the server is to log, now, after each new handshake, and when another one takes its place."""
        upstream = self._upstream
        if upstream is None:
            raise self._closed()
        refusal = upstream.gate.refusal()
        if refusal is not None:
            raise refusal
        await upstream.set_level(level, upstream.spec.settings.request_timeout if timeout is _DEFAULT else timeout)

    async def ready(self, timeout: float | None = _DEFAULT) -> Welcome:
        """Wait until it is ready. Raises `Parked` and `ClientClosed` as soon as it is."""
        loop = asyncio.get_running_loop()
        upstream = self._upstream
        if timeout is _DEFAULT:
            timeout = 30.0 if upstream is None else upstream.spec.settings.init_timeout
        until = None if timeout is None else loop.time() + timeout
        while True:
            upstream = self._upstream
            if upstream is None:
                raise self._closed()
            _, state, cause = upstream.standing
            welcome = upstream.line.welcome
            if upstream.running and upstream.line.status.phase is Phase.READY and welcome is not None:
                return welcome
            why = cause if isinstance(cause, Exception) else None
            if state is State.NEEDS_SIGN_IN:
                raise copy(why) if why is not None else Parked(self.name)
            if state is State.PARKED:
                raise Parked(self.name, why)
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                if why is None:
                    raise InitTimeout(f"{self.name} is still {state.value} after {timeout:g} s")
                raise Unavailable(self.name, why, upstream.line.status.retry_in)
            await upstream.bell.wait(left)

    # --- hearing

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource, for as long as the block lasts."""
        return Relay(self._federation, self._id, lambda line: line.subscribe(uri))

    def listen(self, *methods: str) -> Updates:
        """Notifications of these methods, or of all."""
        return Relay(self._federation, self._id, lambda line: line.listen(*methods))

    async def watch(self) -> AsyncIterator[Status]:
        """The present status, and each one that comes after it; slow readers get the latest."""
        last: Status | None = None
        async for status in self._federation.news.reader(
            [self._id], lambda id: self.status if id == self._id else None
        ):
            if status != last:
                last = status
                yield status
            if status.phase is Phase.CLOSED:
                return

    # --- the connection

    def retry(self) -> None:
        """Try now: out of backoff or parked, and past the breaker's pause."""
        self._federation.retry(self._id)

    async def close(self, timeout: float | None = _DEFAULT) -> None:
        """Take the server out of the federation; what is under way has `timeout` seconds left."""
        try:
            await self._federation.stop(self._id, None if timeout is _DEFAULT else timeout)
        except NotRegistered:
            return


class Relay:
    """Updates of the server behind an id: when it is replaced the reader is told of a gap, and hears its successor.

    As any reader, it may be iterated without its block, and then listens for as long as the loop lasts.
    """

    def __init__(self, federation: Federation, id: str, open: Callable[[Line], Updates]) -> None:  # noqa: A002 - what it does
        """`open` asks a line for its updates."""
        self._federation = federation
        self._id = id
        self._open = open
        self._upstream: Upstream | None = None
        self._updates: Updates | None = None
        self._entered = False

    async def __aenter__(self) -> Self:
        if not await self._enter():
            raise ClientClosed(f"{self._id} is not in the federation")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        await self._leave()

    async def __aiter__(self) -> AsyncIterator[Told]:
        alone = not self._entered
        if alone:
            await self.__aenter__()
        try:
            while (updates := self._updates) is not None:
                async for told in updates:
                    yield told
                before = self._upstream
                await self._leave()
                while before is not None and self._awaits(before):
                    await before.bell.wait()
                if await self._enter():
                    yield GAP
        finally:
            if alone:
                await self.__aexit__(None, None, None)

    def _awaits(self, before: Upstream) -> bool:
        """Whether nobody has come yet: neither its processes again (they were parked, perhaps) nor another upstream."""
        there = self._federation.roster.get(self._id) is before and not before.gone
        return there and before.line.status.phase in (Phase.CLOSING, Phase.CLOSED)

    async def _enter(self) -> bool:
        upstream = self._federation.roster.get(self._id)
        if upstream is None:
            return False
        updates = self._open(upstream.line)
        await updates.__aenter__()
        self._upstream, self._updates = upstream, updates
        return True

    async def _leave(self) -> None:
        updates, self._updates = self._updates, None
        if updates is not None:
            await updates.__aexit__(None, None, None)
