"""Subscriptions of a gateway's clients to resources of upstreams: one process for each, which follows the resource on the client's own connection.

A subscriber is a session of the handshake era, or the process of one `subscriptions/listen` of the stateless era; only it is notified. When the process
of a subscription has died (with the connection, or with its supervisor), the next sweep starts another one, and the subscriber is notified,
since the resource may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from greenroom.actors.catalogue import quota_key
from greenroom.actors.client.errors import ClientError, Unavailable
from greenroom.actors.context import peer_of
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
    from collections.abc import Awaitable, Callable, Hashable

    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.context import Context

Subscriber: TypeAlias = str | Pid
"""A session's id, or the pid of a listen process."""
MOST_EACH: Final = 10_000
"""The most subscriptions of one caller: each takes a process."""
MOST_SHARED: Final = 900
"""The most resources of one server that are followed on the connection that callers share: a server bounds them for a connection. One caller
has at most half of those that the others leave."""


class TooManySubscriptions(ClientError):
    """This caller follows as many resources as it may."""

    reason = "no_room"


@dataclass(eq=False, slots=True)
class _Subscription:
    """One subscription, from subscribe to unsubscribe. A later one to the same resource is another object."""

    server: str
    own: str
    context: Callable[[], Context]
    """Makes the context of its subscriber, which says on whose connection the resource is followed."""
    caller: Hashable
    is_shared: bool
    """Whether it is followed on a connection that callers share."""
    pid: Pid | None = None
    begins: bool = False

    @property
    def lost(self) -> bool:
        """Whether its process has died."""
        return not self.begins and (self.pid is None or not is_alive(self.pid))


class _SharedResources:
    """The resources of one server that are followed on a connection that callers share."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """How often each one is followed,"""
        self._by_caller: dict[Hashable, dict[str, int]] = {}
        """and how often by each caller."""

    def add(self, own: str, caller: Hashable) -> None:
        """Count one more follower. Raises `TooManySubscriptions`, unless the resource is followed already."""
        mine = self._by_caller.get(caller, {})
        if own not in self.counts:
            others = len(self.counts) - len(mine)
            if len(mine) >= max(1, (MOST_SHARED - others) // 2) or len(self.counts) >= MOST_SHARED:
                why = f"{len(mine)} resources are followed for this caller, and {others} for others, of {MOST_SHARED}"
                raise TooManySubscriptions(why)
        _increase(self.counts, own)
        _increase(self._by_caller.setdefault(caller, mine), own)

    def remove(self, own: str, caller: Hashable) -> None:
        """Count one follower less."""
        _decrease(self.counts, own)
        mine = self._by_caller[caller]
        _decrease(mine, own)
        if not mine:
            del self._by_caller[caller]


T = TypeVar("T", bound="Hashable")


def _increase(counts: dict[T, int], key: T) -> None:
    counts[key] = counts.get(key, 0) + 1


def _decrease(counts: dict[T, int], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


@dataclass(eq=False, repr=False)
class UpstreamSubscriptions:
    """All subscriptions of one gateway."""

    _connect: Callable[[str, Context], Awaitable[Line]]
    """Finds a client's connection to a server."""
    _notify: Callable[[Subscriber, str, dict[str, Any]], bool]
    """Sends a notification to a subscriber. False when it is gone."""
    _is_shared: Callable[[str, Context], bool]
    """Whether this caller's connection to a server is one that callers share."""

    def __post_init__(self) -> None:
        self._wanted: dict[Subscriber, dict[str, _Subscription]] = {}
        """By subscriber and URI."""
        self._counts: dict[Hashable, int] = {}
        """The number of subscriptions of each caller."""
        self._shared: dict[str, _SharedResources] = {}
        """The resources that are followed on shared connections, by server."""
        self.supervisor: Ref[TaskSupervisor] | None = None
        """The supervisor of the subscriptions' processes, once there is one."""

    def __len__(self) -> int:
        return sum(map(len, self._wanted.values()))

    def _find(self, subscriber: Subscriber, uri: str) -> _Subscription | None:
        return self._wanted.get(subscriber, {}).get(uri)

    async def begin(
        self, subscriber: Subscriber, uri: str, server: str, own: str, context: Callable[[], Context]
    ) -> None:
        """Subscribe to `uri`, which is `own` at the server. Raises the upstream's error, or `TooManySubscriptions`."""
        if self._find(subscriber, uri) is not None:
            return
        try:
            ctx = context()
        except ActorError as error:
            raise Unavailable(server, error) from error
        caller = quota_key(peer_of(ctx), ctx.session_id)
        wanted = _Subscription(server, own, context, caller, self._is_shared(server, ctx))
        self._count(wanted)
        self._wanted.setdefault(subscriber, {})[uri] = wanted
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
        if wanted is not None:
            self._discount(wanted)
            if wanted.pid is not None:
                exit(wanted.pid, SHUTDOWN)
        if not self._wanted.get(subscriber, True):
            del self._wanted[subscriber]

    def end_all(self, subscriber: Subscriber) -> None:
        """End all subscriptions of one subscriber."""
        for uri in tuple(self._wanted.get(subscriber, ())):
            self.end(subscriber, uri)

    def _count(self, wanted: _Subscription) -> None:
        """Count a subscription to its caller's share. Raises `TooManySubscriptions`."""
        server, own, caller = wanted.server, wanted.own, wanted.caller
        if self._counts.get(caller, 0) >= MOST_EACH:
            raise TooManySubscriptions(f"one caller may have {MOST_EACH} subscriptions")
        if wanted.is_shared:
            shared = self._shared.get(server) or _SharedResources()
            shared.add(own, caller)
            self._shared[server] = shared
        _increase(self._counts, caller)

    def _discount(self, wanted: _Subscription) -> None:
        _decrease(self._counts, wanted.caller)
        if wanted.is_shared:
            shared = self._shared[wanted.server]
            shared.remove(wanted.own, wanted.caller)
            if not shared.counts:
                del self._shared[wanted.server]

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
