"""Subscriptions of a gateway's clients to resources of upstreams: one process for each, which follows the resource on the client's own connection.

A subscriber is a session of the handshake era, or the process of one `subscriptions/listen` of the stateless era; only it is notified. When the process
of a subscription has died (with the connection, or with its supervisor), the next sweep starts another one, and the subscriber is notified,
since the resource may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom.actors.client.errors import ClientError, Unavailable
from greenroom.actors.subscriptions import UPDATED
from greenroom.protocol.errors import PeerError
from greenroom.supervision import (
    SHUTDOWN,
    ActorError,
    Pid,
    Ref,
    TaskSupervisor,
    exit,
    is_alive,
    self_pid,
    supervise_job,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.context import Context

Subscriber: TypeAlias = str | Pid
"""A session's id, or the pid of a listen process."""


@dataclass(eq=False, slots=True)
class _Subscription:
    """One subscription, from subscribe to unsubscribe. A later one to the same resource is another object."""

    server: str
    own: str
    context: Callable[[], Context]
    """Makes the context of its subscriber, which says on whose connection the resource is followed."""
    pid: Pid | None = None
    begins: bool = False

    @property
    def lost(self) -> bool:
        """Whether its process has died."""
        return not self.begins and (self.pid is None or not is_alive(self.pid))


@dataclass(eq=False, repr=False)
class UpstreamSubscriptions:
    """All subscriptions of one gateway."""

    _connect: Callable[[str, Context], Awaitable[Line]]
    """Finds a client's connection to a server."""
    _notify: Callable[[Subscriber, str, dict[str, Any]], bool]
    """Sends a notification to a subscriber. False when it is gone."""

    def __post_init__(self) -> None:
        self._wanted: dict[Subscriber, dict[str, _Subscription]] = {}
        """By subscriber and URI."""
        self.supervisor: Ref[TaskSupervisor] | None = None
        """The supervisor of the subscriptions' processes, once there is one."""

    def __len__(self) -> int:
        return sum(map(len, self._wanted.values()))

    def _find(self, subscriber: Subscriber, uri: str) -> _Subscription | None:
        return self._wanted.get(subscriber, {}).get(uri)

    async def begin(
        self, subscriber: Subscriber, uri: str, server: str, own: str, context: Callable[[], Context]
    ) -> None:
        """Subscribe to `uri`, which is `own` at the server. Raises the upstream's error."""
        if self._find(subscriber, uri) is not None:
            return
        wanted = self._wanted.setdefault(subscriber, {})[uri] = _Subscription(server, own, context)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await self._start(subscriber, uri, wanted, ready)
            await ready
        except BaseException as error:
            if self._find(subscriber, uri) is wanted:
                self.end(subscriber, uri)
            if isinstance(error, ActorError):
                raise Unavailable(server, error) from error
            raise

    def end(self, subscriber: Subscriber, uri: str) -> None:
        """End a subscription; a no-op without one."""
        wanted = self._wanted.get(subscriber, {}).pop(uri, None)
        if wanted is not None and wanted.pid is not None:
            exit(wanted.pid, SHUTDOWN)
        if not self._wanted.get(subscriber, True):
            del self._wanted[subscriber]

    def end_all(self, subscriber: Subscriber) -> None:
        """End all subscriptions of one subscriber."""
        for uri in tuple(self._wanted.get(subscriber, ())):
            self.end(subscriber, uri)

    async def sweep(self, lives: Callable[[Subscriber], bool]) -> None:
        """End the subscriptions of subscribers that are gone, and restart processes that have died."""
        for subscriber, subscriptions in tuple(self._wanted.items()):
            if not lives(subscriber):
                self.end_all(subscriber)
                continue
            for uri, wanted in tuple(subscriptions.items()):
                if wanted.lost and self._find(subscriber, uri) is wanted:
                    try:
                        await self._start(subscriber, uri, wanted, None)
                    except ActorError:
                        return  # the supervisor is being restarted: try again at the next sweep

    async def _start(
        self, subscriber: Subscriber, uri: str, wanted: _Subscription, ready: asyncio.Future[None] | None
    ) -> None:
        if self.supervisor is None:
            raise Unavailable(wanted.server)
        wanted.begins = True
        try:
            wanted.pid = await supervise_job(self.supervisor, self._follow, subscriber, uri, wanted, ready)
        finally:
            wanted.begins = False

    async def _follow(
        self, subscriber: Subscriber, uri: str, wanted: _Subscription, ready: asyncio.Future[None] | None
    ) -> None:
        """The body of a subscription's process. After a restart it notifies once, since changes may have been missed."""
        why: Exception = Unavailable(wanted.server)
        try:
            if self._find(subscriber, uri) is not wanted:
                return
            wanted.pid = self_pid()
            line = await self._connect(wanted.server, wanted.context())
            async with line.subscribe(wanted.own) as updates:
                if ready is None:
                    self._notify(subscriber, UPDATED, {"uri": uri})
                elif not ready.done():
                    ready.set_result(None)
                async for _ in updates:
                    if not self._notify(subscriber, UPDATED, {"uri": uri}):
                        return
        except (ClientError, PeerError, ActorError) as error:
            why = error
        finally:
            if ready is not None and not ready.done():
                if self._find(subscriber, uri) is wanted:
                    ready.set_exception(why)
                else:
                    ready.set_result(None)  # the subscriber has unsubscribed meanwhile, or is gone: that is a success
