"""Clients' subscriptions to resources of upstreams: for each a process, which hears of the resource on the client's own connection.

Who is told is the one session that subscribed, and nobody else who may have a resource of the same name. When such a process has died (with the
connection, or with its supervisor), another one takes its place, and the client is told that the resource may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.errors import ClientError
from greenroom.protocol.errors import PeerError
from greenroom.supervision import ActorError, kill, supervise_job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.client.seam import Line
    from greenroom.actors.context import Context
    from greenroom.supervision import Pid, Ref, TaskSupervisor

_UPDATED: Final = "notifications/resources/updated"


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
        self._wanted: dict[tuple[str, str], tuple[str, str]] = {}
        self._processes: dict[tuple[str, str], Pid] = {}
        self.supervisor: Ref[TaskSupervisor] | None = None
        """Whose children they are, once there is one."""

    async def begin(self, session: str, uri: str, server: str, own: str) -> None:
        """Follow what a server calls `own` for a session that knows it as `uri`. Raises why the upstream does not take it."""
        key = (session, uri)
        if key in self._processes or self.supervisor is None:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted[key] = (server, own)
        try:
            self._processes[key] = await supervise_job(self.supervisor, self._follow, key, ready)
            await ready
        except BaseException:
            self.end(session, uri)
            raise

    def end(self, session: str, uri: str) -> None:
        """Not any more. It need not have been."""
        self._wanted.pop((session, uri), None)
        pid = self._processes.pop((session, uri), None)
        if pid is not None:
            kill(pid)

    async def sweep(self, lives: Callable[[str], bool]) -> None:
        """End what belonged to sessions that have ended, and begin again with what has died."""
        for key in tuple(self._wanted):
            if not lives(key[0]):
                self.end(*key)
            elif key not in self._processes and self.supervisor is not None:
                try:
                    self._processes[key] = await supervise_job(self.supervisor, self._follow, key, None)
                except ActorError:
                    return  # its supervisor is away: at the next sweep

    async def _follow(self, key: tuple[str, str], ready: asyncio.Future[None] | None) -> None:
        """A process. What may have been missed is told as a change."""
        session, uri = key
        try:
            server, own = self._wanted[key]
            line = await self._way(server, self._outside(session))
            async with line.subscribe(own) as updates:
                if ready is None:
                    self._notify(session, _UPDATED, {"uri": uri})
                elif not ready.done():
                    ready.set_result(None)
                async for _ in updates:
                    if not self._notify(session, _UPDATED, {"uri": uri}):
                        return
        except (ClientError, PeerError, ActorError) as error:
            if ready is not None and not ready.done():
                ready.set_exception(error)
        finally:
            self._processes.pop(key, None)
            if ready is not None and not ready.done():
                ready.cancel()
