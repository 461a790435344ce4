"""A visit: the process for one guest that is connected. It has the guest's requests under way, and what it has subscribed to.

Each request is a job of its own, linked to the visit; it is answered once, by the job or, when that has died, for it. When the link is over, or the
visit ends, so do they, and what they have asked of upstreams is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.client.errors import ClientError
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import LocalProtocolError, PeerError
from greenroom.protocol.json import is_object
from greenroom.supervision import NORMAL, Exit, GenServer, Ref, Stop, kill, spawn_link

from .answers import KINDS, failed, failure, line_of, outcome
from .wire import TO_GUEST, TO_NODE, BadItem, TooLarge, packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ExitReason, Pid
    from greenroom.supervision.cluster.link import Link

    from .answers import Asked

MOST: Final = 256
"""How many requests of one guest may be under way,"""
MOST_SUBSCRIPTIONS: Final = 1000
"""and how many resources it may follow."""
_LONGEST: Final = 24 * 3600.0
_BACKLOG: Final = 4 * TO_GUEST
"""How much may wait for a guest that does not read."""
_LARGE: Final = 4096


class Payload(NamedTuple):
    """To a visit: something has come."""

    data: bytes


class LinkOver(NamedTuple):
    """To a visit: the guest is gone."""


class Told(NamedTuple):
    """From a job: what its guest is to hear; `over` when that is its answer."""

    id: int
    item: list[Any]
    over: bool


class Visit(GenServer):
    """One guest."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, asked: Asked, link: Link) -> None:
        """Whom it asks, and how it is reached."""
        self._asked = asked
        self._link = link
        self._jobs: dict[int, Pid] = {}
        self._ids: dict[Pid, int] = {}
        self._follows: dict[tuple[str, str], Pid] = {}
        self._keys: dict[Pid, tuple[str, str]] = {}
        self._beginning: dict[tuple[str, str], list[int]] = {}

    def handle_info(self, message: Any) -> Stop | None:
        """The guest's words, and its jobs'."""
        match message:
            case Payload(data):
                return self._heard(data)
            case Told(id, item, over):
                self._tell(id, item, over=over)
                if item[0] == "ended":
                    self._follows.pop((item[1], item[2]), None)
            case Exit(pid, reason):
                self._ended(pid, reason)
            case LinkOver():
                return Stop(NORMAL)
            case _:
                pass
        return None

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Nobody is left to be told."""
        for pid in (*self._ids, *self._follows.values()):
            kill(pid)
        self._link.close()

    # --- what the guest says

    def _heard(self, data: bytes) -> Stop | None:
        try:
            for item in unpacked(data, TO_NODE):
                self._take(item)
        except BadItem as error:
            self._link.end(f"{error}")
            return Stop(NORMAL)
        return None

    def _take(self, item: list[Any]) -> None:
        match item:
            case ["ask", int(id), str(kind), fields, int() | float() as seconds] if (
                is_object(fields) and id not in self._jobs
            ):
                self._ask(id, kind, fields, min(max(0.0, float(seconds)), _LONGEST))
            case ["drop", int(id)]:
                pid = self._jobs.pop(id, None)
                if pid is not None:
                    self._ids.pop(pid, None)
                    kill(pid)
            case ["ping"]:
                self._post(["pong"])
            case _:
                raise BadItem(f"an item of the kind {str(item[0])[:40]!r} that this version does not know")

    def _ask(self, id: int, kind: str, fields: Mapping[str, Any], seconds: float) -> None:
        if kind == "Unsubscribe":
            key = (str(fields.get("server")), str(fields.get("uri")))
            pid = self._follows.pop(key, None)
            if pid is not None:
                kill(pid)
            self._answer(id, "Unsubscribed", {"server": key[0], "uri": key[1]})
        elif len(self._jobs) >= MOST:
            self._answer(id, *failed("busy", f"{MOST} requests of this guest are under way"))
        elif kind == "Subscribe":
            self._subscribe(id, fields, seconds)
        elif kind in KINDS:
            self._begin(id, spawn_link(_job, self._me, self._asked, id, kind, dict(fields), seconds))
        else:
            self._answer(id, *failed("bad_request", f"there is no request of the kind {kind[:40]!r}"))

    @property
    def _me(self) -> Ref[Visit]:
        return Ref(self.pid, None)

    def _begin(self, id: int, pid: Pid) -> None:
        self._jobs[id] = pid
        self._ids[pid] = id

    def _subscribe(self, id: int, fields: Mapping[str, Any], seconds: float) -> None:
        key = (str(fields.get("server")), str(fields.get("uri")))
        if key in self._beginning:
            self._beginning[key].append(id)  # what is heard of the first holds for it
        elif key in self._follows:
            self._answer(id, "Subscribed", {"server": key[0], "uri": key[1]})
        elif len(self._follows) >= MOST_SUBSCRIPTIONS:
            self._answer(id, *failed("busy", f"this guest follows {MOST_SUBSCRIPTIONS} resources already"))
        else:
            pid = spawn_link(_follow, self._me, self._asked, id, key, seconds)
            self._follows[key] = pid
            self._keys[pid] = key
            self._beginning[key] = []
            self._begin(id, pid)

    # --- what it hears

    def _tell(self, id: int, item: list[Any], *, over: bool) -> None:
        if not over:
            self._post(item)
            return
        pid = self._jobs.pop(id, None)
        if pid is None:
            return  # it was dropped
        self._ids.pop(pid, None)
        for each in (id, *self._also(pid)):
            self._answer(each, item[0], item[1])

    def _also(self, pid: Pid) -> list[int]:
        """Who waits for the same subscription."""
        key = self._keys.get(pid)
        return [] if key is None else self._beginning.pop(key, [])

    def _answer(self, id: int, kind: str, fields: Mapping[str, Any]) -> None:
        try:
            self._post(["answer", id, kind, dict(fields)])
        except (TooLarge, LocalProtocolError) as error:
            reason = "too_large" if isinstance(error, TooLarge) else "unsendable"
            self._post(["answer", id, *failed(reason, f"the answer cannot be sent: {error}")])

    def _post(self, item: list[Any]) -> None:
        data = packed(item, TO_GUEST)
        if self._link.waiting > _BACKLOG:
            self._link.end("it does not read what it has asked for")
            return
        self._link.post(data)
        if len(data) > _LARGE:
            self._link.flush()

    def _ended(self, pid: Pid, reason: ExitReason) -> None:
        """A job is over. One that has not answered has died."""
        also = self._also(pid)
        key = self._keys.pop(pid, None)
        follows = key is not None and self._follows.get(key) == pid
        if key is not None and follows:
            del self._follows[key]
        id = self._ids.pop(pid, None)
        if id is not None:
            del self._jobs[id]
        unanswered = also if id is None else [id, *also]
        for each in unanswered:
            self._answer(each, *failed("crashed", f"what was to answer it has ended: {reason}"))
        if key is not None and follows and not unanswered:
            self._post(["ended", *key, f"what followed it has ended: {reason}"])


async def _job(visit: Ref[Visit], asked: Asked, id: int, kind: str, fields: Mapping[str, Any], seconds: float) -> None:
    """A process: one request."""
    visit.send(Told(id, [*await outcome(asked, kind, fields, seconds)], over=True))


async def _follow(visit: Ref[Visit], asked: Asked, id: int, key: tuple[str, str], seconds: float) -> None:
    """A process: one resource, from its subscription on."""
    server, uri = key
    begun = False
    try:
        line = line_of(asked.federation, {"server": server})
        updates = line.subscribe(uri)
        async with asyncio.timeout(seconds):
            await updates.__aenter__()
        try:
            begun = True
            visit.send(Told(id, ["Subscribed", {"server": server, "uri": uri}], over=True))
            async for told in updates:
                visit.send(Told(id, ["updated", server, uri, told.gap], over=False))
        finally:
            await updates.__aexit__(None, None, None)
        why = "there is nothing more to hear of it"
    except TimeoutError:
        why = ""
        visit.send(Told(id, [*failed("timeout", f"no answer within {seconds:.3g} s")], over=True))
    except (GreenroomError, ClientError, PeerError) as error:
        why = str(error)
        if not begun:
            visit.send(Told(id, [*failure(error)], over=True))
    if begun:
        visit.send(Told(id, ["ended", server, uri, why], over=False))
