"""The curator of an upstream: keeps what its server offers, all pages of all lists, and fetches anew what has changed.

It is told by the line: of a new handshake, after which everything is fetched, and of `list_changed`, after which that list is. Whatever
comes within a moment, or while it fetches, is one more fetch and not many; a list that turns out to be the same is not announced. When it
dies, what it had fetched stays, and its successor fetches again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.errors import TooManyPages
from greenroom.actors.client.seam import Phase
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.supervision import Backoff, GenServer, current_node, current_process

from .offering import LISTS, PARTS, Part

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from greenroom.actors.client.seam import Line
    from greenroom.supervision import Process

    from .upstream import Upstream


_CHANGED: Final = tuple(dict.fromkeys(each.changed for each in LISTS.values()))
_AGAIN: Final = Backoff(first=1.0, factor=2.0, longest=60.0, jitter=0.5)
"""How long to wait before lists that could not be had are asked for again."""


class Curator(GenServer):
    """One for each upstream. Two tasks follow the line, and a third one fetches."""

    def __init__(self, upstream: Upstream) -> None:
        """What it fetches goes there."""
        self._upstream = upstream
        self._wanted: set[Part] = set()
        self._fetching: asyncio.Task[None] | None = None
        self._generation: int | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def init(self) -> None:
        """Follow the line."""
        self._upstream.curator = self.pid
        self._tasks = [vital(self._follow()), vital(self._hear())]

    async def _follow(self) -> None:
        """How the connection is: after each handshake, everything is fetched."""
        upstream = self._upstream
        async for status in upstream.line.watch():
            upstream.refresh()
            if status.phase is Phase.READY and status.generation != self._generation:
                self._generation = status.generation
                self._fetch(upstream.lists, at_once=True)

    async def _hear(self) -> None:
        """What the server says of its lists."""
        async with self._upstream.line.listen(*_CHANGED) as updates:
            async for told in updates:
                kept = self._upstream.lists
                parts: tuple[Part, ...] = tuple(part for part in kept if told.gap or LISTS[part].changed == told.method)
                if parts:
                    self._fetch(parts)

    def complete(self) -> None:
        """Fetch the lists that are wanted now and were not kept until now."""
        upstream = self._upstream
        missing: tuple[Part, ...] = tuple(part for part in upstream.lists if part not in upstream.had)
        if missing and upstream.line.status.phase is Phase.READY:  # else the next handshake asks for it
            self._fetch(missing, pause=0.0)

    def _fetch(self, parts: tuple[Part, ...], *, at_once: bool = False, pause: float | None = None) -> None:
        self._wanted.update(parts)
        if at_once and self._fetching is not None:
            self._fetching.cancel()  # which waits for a connection that is gone, or to ask that one again
            self._fetching = None
        if self._fetching is None or self._fetching.done():
            settling = self._upstream.spec.settling if pause is None else pause
            self._fetching = vital(self._fetch_all(0.0 if at_once else settling))

    async def _fetch_all(self, pause: float) -> None:
        upstream = self._upstream
        tries = 0
        while self._wanted:
            await asyncio.sleep(pause)
            pause = upstream.spec.settling
            if upstream.line.status.phase is not Phase.READY:
                break  # the next handshake asks for everything
            parts, self._wanted = self._wanted, set()
            try:
                lists: dict[Part, list[Any]] = {
                    part: await every_entry(upstream.line, part, upstream.spec.settings.max_pages)
                    for part in PARTS
                    if part in parts
                }
            except GreenroomError as error:
                self._wanted |= parts
                upstream.troubled(error)
                pause = _AGAIN.delay(tries, current_node().random)
                tries += 1
            else:
                tries = 0
                upstream.publish(upstream.offering.with_lists(lists), parts)

    def report_state(self) -> str:
        """How much it keeps."""
        offering = self._upstream.offering
        return ", ".join(f"{len(offering.part(part))} {part}" for part in PARTS)


def parts_changed(method: str) -> tuple[Part, ...]:
    """The lists that this notification says have changed."""
    return tuple(part for part, each in LISTS.items() if each.changed == method)


async def every_entry(line: Line, part: Part, most: int) -> list[Any]:
    """One of a server's lists, over all pages; empty where it has none. Raises as `every_page`."""
    what, welcome = LISTS[part], line.welcome
    if welcome is None or what.capability not in welcome.capabilities:
        return []
    try:
        return await every_page(line, what.method, what.key, most)
    except PeerError as error:
        if error.code == ErrorCode.METHOD_NOT_FOUND:
            return []  # many declare resources, and know nothing of templates
        raise


async def every_page(line: Line, method: str, key: str, most: int) -> list[Any]:
    """All entries of a list. Raises `ClientError`, and `PeerError` for what is no page."""
    entries: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await line.request(method, None if cursor is None else {"cursor": cursor})
        found = page.get(key)
        if not isinstance(found, list):
            raise BadAnswer(f"the server answered {method} without a list of {key}")
        entries += found
        following: Any = page.get("nextCursor")
        if following is None:
            return entries
        if not isinstance(following, str):
            raise BadAnswer(f"the server answered {method} with a cursor that is no text")
        cursor = following
        if cursor in seen or len(seen) + 1 >= most:
            again = "comes back to a page that was there before" if cursor in seen else f"has more than {most} pages"
            raise TooManyPages(f"{method} of {line.name} {again}")
        seen.add(cursor)


# --- The sentry of an upstream: while the breaker is open it sends the one probe, a ping, each time that it is due.
# It also wakes a connection that has given up, after a long while. When it dies in the middle of a probe, that one is taken for
# failed in time, and its successor sends the next.


class Sentry(GenServer):
    """One for each upstream. It has no messages: one task keeps watch."""

    def __init__(self, upstream: Upstream) -> None:
        """What it watches."""
        self._upstream = upstream
        self._wakings = 0
        self._task: asyncio.Task[None] | None = None

    def init(self) -> None:
        """Begin."""
        self._task = vital(self._watch())

    def _now(self) -> float:
        return self.process.node.now()

    async def _watch(self) -> None:
        upstream = self._upstream
        while True:
            ticket = upstream.breaker.probe(self._now())
            if ticket is not None:
                await self._probe(ticket)
                continue
            waits = [each for each in (upstream.breaker.retry_in(self._now()), self._wake()) if each is not None]
            await upstream.bell.wait(min(waits, default=None))

    async def _probe(self, ticket: int) -> None:
        upstream = self._upstream
        upstream.refresh()
        failure: GreenroomError | None = None
        try:
            await upstream.line.request("ping", timeout=upstream.breaker.settings.probe_timeout)
        except PeerError as error:  # a server that knows no ping is there as well
            if error.code in upstream.breaker.settings.peer_codes:
                failure = error
        except GreenroomError as error:
            failure = error
        upstream.breaker.probed(ticket, failed=failure is not None, now=self._now(), cause=failure)
        upstream.refresh()
        upstream.gate.pump()

    def _wake(self) -> float | None:
        """In how many seconds a connection that has given up is told to try again; None when it has not."""
        upstream = self._upstream
        if upstream.line.status.phase is not Phase.PARKED:
            upstream.wake_at = None
            if upstream.line.status.phase is Phase.READY:
                self._wakings = 0
            return None
        now = self._now()
        if upstream.wake_at is None:
            upstream.wake_at = now + upstream.spec.revive.delay(self._wakings, current_node().random)
        if upstream.wake_at <= now:
            upstream.wake_at = None
            self._wakings += 1
            upstream.line.retry()
            return None
        return upstream.wake_at - now


# --- Tasks without which a process is of no use: whatever one of them raises is the process's crash, which its supervisor hears of.
# Left to itself a task that has failed is a line in asyncio's log, and the process that it worked for stays, and does nothing any more.


def vital(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Have the calling process do it beside its messages."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_done, current_process("begin a vital task")))
    return task


def _done(process: Process, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        process.crash(error)
