"""Clients' subscriptions to resources of upstreams: for each a process, which hears of the resource on the client's own connection.

Who is told is the one session that subscribed, and nobody else who may have a resource of the same name. When such a process has died (with the
connection, or with its supervisor), another one takes its place, and the client is told that the resource may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.errors import ClientError, Unavailable
from greenroom.protocol.errors import PeerError
from greenroom.supervision import SHUTDOWN, ActorError, exit, is_alive, self_pid, supervise_job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.client.seam import Line
    from greenroom.actors.context import Context
    from greenroom.supervision import Pid, Ref, TaskSupervisor

_UPDATED: Final = "notifications/resources/updated"


class _Wanted:
    """One subscription, from when it is asked for until it is not wanted any more. A later one of the same resource is another."""

    __slots__ = ("begins", "own", "pid", "server")

    def __init__(self, server: str, own: str) -> None:
        self.server = server
        self.own = own
        self.pid: Pid | None = None
        self.begins = False

    @property
    def lost(self) -> bool:
        """Whether nobody is at it."""
        return not self.begins and (self.pid is None or not is_alive(self.pid))


class Following:
    """All of one gateway."""

    def __init__(
        self,
        way: Callable[[str, Context], Awaitable[Line]],
        outside: Callable[[str], Context],
        notify: Callable[[str, str, dict[str, Any]], bool],
    ) -> None:
        """`way` finds a client's connection to a server, `outside` makes the context of a session, `notify` tells a session."""
        self._way = way
        self._outside = outside
        self._notify = notify
        self._wanted: dict[tuple[str, str], _Wanted] = {}
        self.supervisor: Ref[TaskSupervisor] | None = None
        """Whose children they are, once there is one."""

    async def begin(self, session: str, uri: str, server: str, own: str) -> None:
        """Follow what a server calls `own` for a session that knows it as `uri`. Raises why the upstream does not take it."""
        key = (session, uri)
        if key in self._wanted:
            return
        wanted = self._wanted[key] = _Wanted(server, own)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await self._start(key, wanted, ready)
            await ready
        except BaseException as error:
            if self._wanted.get(key) is wanted:
                self.end(session, uri)
            if isinstance(error, ActorError):
                raise Unavailable(server, error) from error
            raise

    def end(self, session: str, uri: str) -> None:
        """Not any more. It need not have been."""
        wanted = self._wanted.pop((session, uri), None)
        if wanted is not None and wanted.pid is not None:
            exit(wanted.pid, SHUTDOWN)

    async def sweep(self, lives: Callable[[str], bool]) -> None:
        """End what belonged to sessions that have ended, and begin again with what has died."""
        for key, wanted in tuple(self._wanted.items()):
            if not lives(key[0]):
                self.end(*key)
            elif wanted.lost:
                try:
                    await self._start(key, wanted, None)
                except ActorError:
                    return  # its supervisor is away: at the next sweep

    async def _start(self, key: tuple[str, str], wanted: _Wanted, ready: asyncio.Future[None] | None) -> None:
        if self.supervisor is None:
            raise Unavailable(wanted.server)
        wanted.begins = True
        try:
            wanted.pid = await supervise_job(self.supervisor, self._follow, key, wanted, ready)
        finally:
            wanted.begins = False

    async def _follow(self, key: tuple[str, str], wanted: _Wanted, ready: asyncio.Future[None] | None) -> None:
        """A process. What may have been missed is told as a change."""
        session, uri = key
        why: Exception = Unavailable(wanted.server)
        try:
            if self._wanted.get(key) is not wanted:
                return
            wanted.pid = self_pid()
            line = await self._way(wanted.server, self._outside(session))
            async with line.subscribe(wanted.own) as updates:
                if ready is None:
                    self._notify(session, _UPDATED, {"uri": uri})
                elif not ready.done():
                    ready.set_result(None)
                async for _ in updates:
                    if not self._notify(session, _UPDATED, {"uri": uri}):
                        return
        except (ClientError, PeerError, ActorError) as error:
            why = error
        finally:
            if ready is not None and not ready.done():
                if self._wanted.get(key) is wanted:
                    ready.set_exception(why)
                else:
                    ready.set_result(None)  # whoever asked has unsubscribed meanwhile, or is gone
