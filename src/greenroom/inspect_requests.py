"""Answers the requests of one connection to the inspect socket.

The client is a program of the same user; it is not trusted to be well: a request has a bound and a time, an answer that is not read ends the connection, and events
that a slow client does not take are counted instead of kept.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.supervision import tracebacks
from greenroom.supervision.event_bus import bus

from .inspect_protocol import (
    DETAILS,
    LONGEST_REQUEST,
    ActRequest,
    FollowRequest,
    InspectRefusal,
    LinkRequest,
    SnapshotRequest,
    ViewRequest,
    event_filter,
    read_request,
)
from .observe.event_record import bounded
from .observe.event_views import notice
from .observe.observatory import BadQuery
from .observe.view_models import VIEW_TYPES
from .observe.view_rows import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .event_types import Event
    from .observe.observatory import Observatory
    from .observe.view_models import ActOutcome, View

log: Final = logging.getLogger("greenroom.inspect")

_FIRST: Final = 0.5
"""Seconds that a client has for its first request before it gets a snapshot: one of an older version sends none."""
_REST: Final = 10.0
"""Seconds from the first byte of a request to its end."""
_WRITE: Final = 10.0
"""Seconds in which a client has to take an answer."""
_IDLE: Final = 300.0
"""Seconds that a connection is kept without a request."""
MOST_CONNECTIONS: Final = 64
MOST_WAITING: Final = 1_000
"""The events that wait for a slow client; each has some kilobytes at most."""
_PRINCIPAL: Final = "the program's own user"
_ADMIN_LISTENER: Final = "greenroom.observe.admin_listener"


class EventFollower:
    """A listener of the bus that keeps a bounded number of events for one client. It may be called in any thread."""

    def __init__(self, matches: Callable[[Event], bool]) -> None:
        """`matches` decides which events are kept."""
        self._matches = matches
        self._loop = asyncio.get_running_loop()
        self._lock = threading.RLock()  # the collector of garbage may run code that emits in the middle of this
        self._waiting: list[Event] = []
        self._lost = 0
        self._wakeup = asyncio.Event()
        self._number = 0

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if not self._matches(event):
            return
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                self._lost += 1
                return
            self._waiting.append(bounded(event))
            is_first = len(self._waiting) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._wakeup.set)

    async def lines(self) -> bytes:
        """The next events as lines, once there are any. A line of the kind `Gap` says how many were lost after those before it."""
        await self._wakeup.wait()
        with self._lock:
            self._wakeup.clear()
            found, lost = self._waiting, self._lost
            self._waiting, self._lost = [], 0
        text = f"{lost} events are left out here: this reader was too slow"
        gap = Notice(number=self._number, at=time.time(), kind="Gap", level="warning", text=text, data={"lost": lost})
        return b"".join([*(self.line(each) for each in found), *([_line_of(gap)] if lost else [])])

    def line(self, event: Event) -> bytes:
        """An event as a line, without secrets."""
        self._number += 1
        return _line_of(notice(self._number, event.at, event, with_data=True))


def _line_of(notice: Notice) -> bytes:
    return msgspec.json.encode(notice) + b"\n"


class InspectConversation:
    """One connection of a client."""

    def __init__(self, program: InspectedProgram, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """`program` answers."""
        self._program = program
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()

    async def run(self) -> None:
        """Answer until the client has left, or cannot be understood."""
        try:
            if not await self._is_asking():
                await self._send(self._program.snapshot(), end=b"")
                return
            while line := await self._line():
                request = read_request(line)
                if isinstance(request, SnapshotRequest):
                    await self._send(self._program.snapshot(), end=b"")
                    return
                if isinstance(request, FollowRequest):
                    await self._follow(request)
                    return
                await self._answer(request)
        except InspectRefusal as refusal:
            await self._refuse(refusal)

    async def _answer(self, request: ViewRequest | ActRequest | LinkRequest) -> None:
        found: View | ActOutcome | str
        try:
            match request:
                case ViewRequest():
                    found = await self._program.view(request.name, request.query)
                case ActRequest():
                    found = await self._program.act(request)
                case LinkRequest():
                    found = self._program.observe_link()
        except InspectRefusal as refusal:
            await self._refuse(refusal)
        except Exception as error:  # noqa: BLE001 - one request that fails must not end the connection of a viewer
            tracebacks.log_error(log, "a request on the inspect socket failed")
            await self._refuse(
                InspectRefusal("failed", f"the program could not answer: {type(error).__name__}; its log says more")
            )
        else:
            await self._send({"ok": found})

    async def _refuse(self, refusal: InspectRefusal) -> None:
        await self._send({"error": str(refusal), "kind": refusal.kind})

    async def _send(self, answer: object, end: bytes = b"\n") -> None:
        await self._write(msgspec.json.encode(answer) + end)

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(_WRITE):
            self._writer.write(data)
            await self._writer.drain()

    # --- requests

    async def _is_asking(self) -> bool:
        """Whether a request begins. False for a client that only reads. Raises `ConnectionError` when the client has left."""
        reading = asyncio.ensure_future(self._reader.read(LONGEST_REQUEST))
        try:
            # `wait` leaves the read alone when the time is over: a loop that was blocked finds the data and the end of the time in the same turn.
            await asyncio.wait({reading}, timeout=_FIRST)
            if not reading.done():
                return False
            self._take(reading.result())
        finally:
            reading.cancel()
        return True

    def _take(self, part: bytes) -> None:
        if not part:
            raise ConnectionResetError
        self._buffer += part

    async def _line(self) -> bytes:
        """The next request. Raises `InspectRefusal`, `ConnectionError`, `TimeoutError`."""
        if not self._buffer:
            async with asyncio.timeout(_IDLE):
                self._take(await self._reader.read(LONGEST_REQUEST))
        async with asyncio.timeout(_REST):
            while (end := self._buffer.find(b"\n")) < 0:
                if len(self._buffer) > LONGEST_REQUEST:
                    break
                self._take(await self._reader.read(LONGEST_REQUEST))
        end = end if end >= 0 else len(self._buffer)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line or b" "

    # --- events

    async def _follow(self, request: FollowRequest) -> None:
        """Send events until the client leaves: it sends nothing more, so whatever is read is the end."""
        matches = event_filter(request)
        follower = EventFollower(matches)
        needs_details = any(each in request.kinds for each in (kind.__name__ for kind in DETAILS))
        unsubscribe = bus.subscribe(follower, details=needs_details) if request.is_live else None
        leaving = asyncio.ensure_future(self._reader.read(1))
        try:
            await self._send({"ok": True})
            for event in self._program.recent(min(request.last, MOST_WAITING), matches):
                await self._write(follower.line(event))
            while request.is_live:
                coming = asyncio.ensure_future(follower.lines())
                try:
                    both: set[asyncio.Future[Any]] = {coming, leaving}
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                    if leaving.done():
                        return
                    # Without a limit of time: a client that is stopped for a while loses events, and is told how many.
                    self._writer.write(coming.result())
                    await self._drained_or(leaving)
                finally:
                    coming.cancel()
        finally:
            leaving.cancel()
            if unsubscribe is not None:
                unsubscribe()

    async def _drained_or(self, leaving: asyncio.Future[bytes]) -> None:
        draining = asyncio.ensure_future(self._writer.drain())
        both: set[asyncio.Future[Any]] = {draining, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if draining.done():
            draining.result()
        else:
            draining.cancel()


class InspectedProgram:
    """What a program answers on its inspect socket."""

    def __init__(self, snapshot: Callable[[], dict[str, Any]], observatory: Observatory) -> None:
        """`snapshot` makes the snapshot that older versions read; `observatory`, which is started, has the views and the acts."""
        self.snapshot = snapshot
        self.observatory = observatory
        self._conversations: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Collect no more, and end all connections."""
        self.observatory.stop()
        for each in self._conversations:
            each.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client of the same user, unless there are too many."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._conversations) >= MOST_CONNECTIONS:
            return
        self._conversations.add(task)
        try:
            await InspectConversation(self, reader, writer).run()
            writer.close()
            async with asyncio.timeout(_WRITE):
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the client is gone, or does not take its answer, or the program ends: asyncio logs an error for a handler that ends as cancelled
        finally:
            # `close` alone would keep the connection, and what waits in it, for as long as the client does not read.
            writer.transport.abort()
            self._conversations.discard(task)

    def recent(self, most: int, matches: Callable[[Event], bool]) -> list[Event]:
        """The last events that match, in order, of those that are kept for the views: calls that ended, and what happened last."""
        record = self.observatory.record
        with record.lock:
            found = [event for _, _, event in record.notices if matches(event)]
            found += [each.ended for each in record.ended if each.ended is not None and matches(each.ended)]
        return sorted(found, key=lambda each: each.at)[-most:] if most > 0 else []

    async def view(self, name: str, query: dict[str, Any]) -> View:
        """A view. Raises `InspectRefusal`."""
        if name not in VIEW_TYPES:
            raise InspectRefusal("unknown", f"there is no view {name[:100]!r}: there are {', '.join(VIEW_TYPES)}")
        try:
            return await self.observatory.view(name, **query)
        except BadQuery as error:
            raise InspectRefusal("unknown", f"the view {name} cannot be asked so: {str(error)[:200]}") from None

    async def act(self, asked: ActRequest) -> ActOutcome:
        """Act on the program. Raises `InspectRefusal`."""
        if not self.observatory.may_act:
            raise InspectRefusal(
                "denied", 'this program allows no acts: start it with --inspect-acts, or run(…, inspect="acts")'
            )
        return await self.observatory.act(asked.act, asked.target, principal=_PRINCIPAL)

    def observe_link(self) -> str:
        """A fresh address of the page in the browser. Raises `InspectRefusal`."""
        module: Any = sys.modules.get(_ADMIN_LISTENER)
        links: Sequence[str] = () if module is None else module.new_links()
        if not links:
            raise InspectRefusal("unknown", "this program has no page: start it with --admin, or run(…, admin=Admin())")
        return links[0]
