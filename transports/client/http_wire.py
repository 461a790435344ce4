"""The process between a connection and its server over HTTP: what waits to be sent, what is under way, and the session that all of it is in.

Its work is done in callbacks, as bytes come; the process itself only waits for its end. It is linked to the connection that opened it, which
hears of that end in any case. One wire is one session: when the server has forgotten that, what it cannot have seen is told so,
what is under way may still be answered for a moment, and the wire ends.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.messages import Failure, Limits, Response
from greenroom.supervision import SHUTDOWN, Exit, Quit, Shutdown, receive, spawn_link

from .errors import (
    ConnectFailed,
    HttpError,
    NotMcp,
    SessionGone,
    TransportError,
    WireFull,
    instance_of,
    is_not_done,
)
from .http_posts import Notice, Question
from .http_streams import Farewell, Listening, OldStream, Probe
from .interfaces import Broken, FixedHeaders, Gap, Inbound, Lost, process_of, unread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import Pid

    from .http_address import Address
    from .http_pool import Head
    from .http_posts import Visit
    from .http_route import HttpRoute
    from .interfaces import Carrier, Headers, Heard

_LINGER: Final = 1.0
"""Seconds that requests under way still have when the session is gone."""
_SOONEST: Final = 0.05
"""Seconds before a stream is opened again, though the server may say 0."""
_CROWD: Final = 64
"""How many mails wait for the connection before no more is read."""
_NOTICES: Final = 32
"""How many answers of ours, and notifications, are under way before no more is read: each has a connection of its own, so that one flood
of pings opened a thousand."""
_OLD: Final = frozenset({400, 404, 405})


class _End(NamedTuple):
    error: TransportError


class HttpWire:
    """The wire. What starts with an underscore is its own; the rest is for its visits, and what the seam asks for."""

    def __init__(self, route: HttpRoute, owner: Pid) -> None:
        """Of the calling process, which is the owner."""
        carrier = route.carrier()  # which may fail, and then there is to be no process yet
        self._owner = process_of(owner)
        self.pid: Pid = spawn_link(self._run)
        own = process_of(self.pid)
        own.trap_exit = True
        own.label = "http wire"
        self._process = own
        self._loop = own.node.loop
        self.description = route.description
        self.settings = route.settings
        self.address: Address = route.address
        self.place: Address = route.address
        """Where messages are posted to."""
        self.credentials = route.credentials
        self.known_headers: Mapping[str, str] | None = None
        """What says who we are, where that never changes."""
        if isinstance(route.credentials, FixedHeaders):
            self.known_headers = route.credentials._headers  # noqa: SLF001 - the same package: it is not to be asked in a task
        self._own_headers = route.headers
        self._last: tuple[Mapping[str, str], str, str, Headers] | None = None
        """The headers of the last message, and what they were made of: mostly they are those of the next one, too."""
        self.session = ""
        """Which session this is; empty while, or where, there is none."""
        self.response_limits = Limits.of_size(self.settings.max_response)
        self.event_limits = Limits.of_size(self.settings.max_event)
        self.carrier: Carrier = carrier(own)
        self._version = ""
        self.instance = ""
        """Which process has our session; empty where it does not say."""
        self._visits: dict[Notice, None] = {}
        self._asking: dict[RequestId, Question | Notice] = {}
        self._waiting: deque[Notice] = deque()
        self._weight = 0
        self._notices = 0  # of the visits, those that are no requests
        self._barrier: Notice | None = None
        self._listening: Listening | None = None
        self._old: OldStream | None = None
        self._tries_old = route.fallback
        self._gone: SessionGone | None = None
        self.in_doubt = False
        """Whether the stream of the session has ended, so that the server may have been started again without it."""
        self._probe: Probe | None = None
        self._probes = 0
        self._in_a_row = 0  # so many of the last that came were no messages
        self._closing = False
        self._over = False
        self._quiet: asyncio.Future[None] | None = None
        self.unsent = 0
        """How many notifications and answers of ours could not be delivered."""
        if route.old:
            self._open_old(None)

    # --- the seam

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:
        """Say one message."""
        if self._closing or self._over or self._process.life:
            return
        if self._gone is not None:
            if id is not None:
                self.heard((Lost(id, self._gone, resend=True),))
            return
        settings = self.settings
        if len(self._visits) + len(self._waiting) >= settings.max_connections + settings.max_waiting:
            raise WireFull(
                f"{len(self._visits) + len(self._waiting)} messages are under way to {self.description} already"
            )
        if self._weight + len(frame) > settings.max_waiting_bytes and self._weight:
            raise WireFull(f"{self._weight:,} bytes are under way to {self.description} already")
        if id is None or self._old is not None:
            visit = Notice(self, frame, id, ordered=ordered)
        else:
            visit = Question(self, frame, id, ordered=ordered)
        self._weight += len(frame)
        if id is not None:
            self._asking[id] = visit
            if self.in_doubt and self._barrier is None:
                self._ask_whether_it_is_there()
        if self._barrier is not None or self._waiting or (self._old is not None and not self._old.ready):
            self._waiting.append(visit)
        else:
            self._launch(visit)

    def forget(self, id: RequestId) -> None:
        """The caller does not wait for that answer any more."""
        visit = self._asking.pop(id, None)
        if visit is not None:
            visit.drop()
            self._leave(visit)

    def agreed(self, version: str) -> None:
        """The handshake is over."""
        self._version = version
        if self._old is None and self._listening is None and not self._process.life:
            self._loop.call_soon(self._listen, context=self._process.own_context())

    # --- sending

    def _ask_whether_it_is_there(self) -> None:
        """Nothing overtakes that: what comes meanwhile is sent when it is answered, or in another session."""
        self.in_doubt = False
        self._probes += 1
        probe = self._probe = Probe(self, self._probes)
        self._weight += len(probe.frame)
        self._launch(probe)

    def _launch(self, visit: Notice) -> None:
        self._visits[visit] = None
        self._notices += visit.id is None
        if visit.ordered:
            self._barrier = visit
        visit.go()

    def _drain(self) -> None:
        """Send what waits, up to the next that nothing may overtake."""
        if self._listening is None and self._version:
            self._listen()  # before what waits: a server that is asked something may ask back, and say it there
        while self._waiting and self._barrier is None and not (self._old is not None and not self._old.ready):
            self._launch(self._waiting.popleft())

    def _leave(self, visit: Notice) -> None:
        """That one is over, however."""
        if visit in self._visits:
            del self._visits[visit]
            self._notices -= visit.id is None
        elif visit in self._waiting:
            self._waiting.remove(visit)
        else:
            return
        self._weight -= len(visit.frame)
        if self._barrier is visit:
            self._barrier = None
        if self._probe is visit:
            self._probe = None
        if self._barrier is None and (self._waiting or (self._version and self._listening is None)):
            self._drain()
        if self._quiet is not None and not self._visits and not self._quiet.done():
            self._quiet.set_result(None)
        if self._gone is not None and not self._visits:
            self.end(self._gone)

    def _listen(self) -> None:
        """Open the stream for what belongs to no request, once nothing is on its way that has to come before."""
        if (
            self._listening is None
            and self._barrier is None
            and not (self._closing or self._over or self._gone or self._old or self._process.life)
        ):
            self._listening = Listening(self)
            self._listening.go()

    # --- for visits

    def headers(self, visit: Visit, credentials: Mapping[str, str]) -> Headers:
        """Those of a visit. Raises `ValueError` for credentials that are no headers."""
        session, version, last = self.session, "" if self._old is not None else self._version, self._last
        if visit.method == "POST" and last is not None and last[0] == credentials and last[1:3] == (session, version):
            return last[3]
        headers = request_headers(
            self._own_headers, credentials, login=visit.address.login, session=session, version=version
        )
        if visit.method != "POST":
            return (_STREAM, *visit.extra(), *headers)
        self._last = dict(credentials), session, version, (_BOTH, _JSON, *headers)
        return self._last[3]

    def captured(self, visit: Question, head: Head) -> None:
        """The server has said which session this is, or that there is none."""
        if not self._version:
            self.instance = instance_of(head)
        session = head.get(b"mcp-session-id")
        if session:
            if not can_be_sent_back(session):
                visit._fail(NotMcp(f"{self.address.origin} gave a session id that cannot be sent back"))  # noqa: SLF001
            else:
                self.session = session

    def heard(self, heard: Sequence[Heard]) -> None:
        """Tell the connection."""
        if self._probe is not None:
            heard = [each for each in heard if getattr(each, "id", None) != self._probe.id]
            if not heard:
                return
        for each in heard:
            if type(each) is Broken:
                self._in_a_row += 1
                if (
                    each.error.answers is not None
                ):  # it has no other, also where it comes on a stream of another request
                    self._asking.pop(each.error.answers, None)
            elif type(each) is not Lost and type(each) is not Gap:
                self._in_a_row = 0
                if type(each) is Response or type(each) is Failure:
                    self._asking.pop(each.id, None)  # type: ignore[arg-type]  # an id that is None is no request's
        if not self._closing:
            self._owner.send(Inbound(self.pid, heard))
        if self._in_a_row >= self.settings.quarantine and not self._over:
            what = f"{self.description} is no MCP server: {self._in_a_row} messages in a row were none"
            self._go_away(NotMcp(what))

    def crowded(self) -> bool:
        """Whether the connection has not caught up with what it was told, or the server with what was answered."""
        return self._notices > _NOTICES or unread(self._owner) > _CROWD

    def settled(self, visit: Notice, *, answered: bool = True) -> None:
        """It was taken note of, or answered."""
        if answered and type(visit) is Question and visit.id is not None:
            self._asking.pop(visit.id, None)
        self._leave(visit)

    def unheard(self, visit: Notice, error: TransportError, *, resend: bool) -> None:
        """It had no answer, and will have none."""
        if resend and isinstance(error, ConnectFailed) and self._is_away(visit):
            self._go_away(error)
            return
        if visit.id is not None:
            if self._asking.pop(visit.id, None) is not None:
                self.heard((Lost(visit.id, error, resend),))
        else:
            self.unsent += 1
            if visit.ordered:
                self.end(error)
        self._leave(visit)

    def _is_away(self, visit: Notice) -> bool:
        """Whether the server is gone altogether, with nothing left that it may have seen and could answer."""
        if not self._version or self._gone is not None or (self._listening is not None and self._listening.left):
            return False
        # Those that were taken note of, or whose stream is to be taken up again, are on no connection, and have been seen.
        return not any(each.seen for each in (*self._visits, *self._asking.values()) if each is not visit)

    def _go_away(self, error: TransportError) -> None:
        """End now, with what keeps us from it. A `ConnectFailed` says that what waits here was not seen: nothing may be sent any more."""
        self._over = True
        self._drop_all()
        self._waiting.clear()
        self.end(error)

    def _drop_all(self) -> None:
        for visit in (*self._visits, *self._waiting, self._listening, self._old):
            if visit is not None:
                visit.drop()

    def was_not_done(self, head: Head) -> bool:
        """Whether what was refused so can be sent again: a handshake in any case, and anything else that was surely not acted upon."""
        return not self._version or is_not_done(head, self.instance)

    def session_gone(self, visit: Notice | None, error: HttpError, *, unseen: bool) -> None:
        """The server does not know our session. What was surely not acted upon can be sent again, in another one."""
        if self._gone is None:
            self._gone = SessionGone(error.status, error.body, error.where)
            if self._listening is not None:
                self._listening.drop()
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                self.unheard(each, self._gone, resend=True)
            self.later(_LINGER, partial(self.end, self._gone))
        if visit is not None:
            self.unheard(visit, self._gone, resend=unseen)
        elif not self._visits:
            self.end(self._gone)

    def patience(self, retry: float | None) -> float:
        """How long to wait before a stream is opened again."""
        return self.settings.retry if retry is None else max(_SOONEST, min(retry, self.settings.max_retry))

    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    def later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Have something done in a while; a bug in it is this process's crash."""
        return self._loop.call_later(seconds, self._guarded, function, context=self._process.own_context().copy())

    def _guarded(self, function: Callable[[], None]) -> None:
        if self._process.life:
            return
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - whatever was raised is its crash
            self._process.crash(error)

    def task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done that waits, as a task of this process."""
        task = self._loop.create_task(coroutine, context=self._process.own_context().copy())
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._process.crash(error)

    # --- the old transport

    def falls_back(self, visit: Question, error: HttpError) -> bool:
        """The first request was refused in a way in which servers of the old transport refuse it: ask whether this is one."""
        if not self._tries_old or error.status not in _OLD or self.session or self._version:
            return False
        self._tries_old = False
        frame = visit.frame
        self._open_old(error)
        self._leave(visit)
        assert visit.id is not None
        if visit.id in self._asking:
            again = Notice(self, frame, visit.id, ordered=visit.ordered)
            self._asking[visit.id] = again
            self._weight += len(frame)
            self._waiting.appendleft(again)
        return True

    def _open_old(self, instead: HttpError | None) -> None:
        self._old = OldStream(self, instead)
        self._old.go()

    def old_ready(self, place: Address) -> None:
        """The old transport's stream has said where messages are posted to."""
        self.place = place
        self._drain()

    def old_over(self, error: TransportError) -> None:
        """The old transport's stream has ended, and the session with it."""
        assert self._old is not None
        for visit in (*self._waiting, *self._visits):
            if visit.id is not None and self._asking.pop(visit.id, None) is not None:
                self.heard((Lost(visit.id, error, resend=not self._old.ready),))
        self.end(error)

    # --- the process

    def end(self, error: TransportError) -> None:
        """There is no way to the server any more."""
        self._process.send(_End(error))

    async def _run(self) -> None:
        try:
            while True:
                message = await receive()
                if isinstance(message, _End):
                    raise Quit(Shutdown(message.error))
                if isinstance(message, Exit):
                    await self._farewell()
                    raise Quit(message.reason if isinstance(message.reason, Shutdown) else SHUTDOWN)
        finally:
            self._closing = True
            self._drop_all()
            await self.carrier.close()

    async def _farewell(self) -> None:
        """Say what is still to be said, and give the session back, within the grace."""
        self._closing = True
        for visit in (self._listening, self._probe, *self._asking.values()):
            if visit is not None:
                visit.drop()
                if isinstance(visit, Notice):
                    self._leave(visit)
        try:
            async with asyncio.timeout(self.settings.close_grace):
                if self._visits or self._waiting:
                    self._quiet = self._loop.create_future()
                    await self._quiet
                if self.session and self._gone is None and self._old is None:
                    goodbye = Farewell(self)
                    goodbye.go()
                    await goodbye.said.wait()
        except TimeoutError:
            pass


# --- What stands at the head of every request of a wire: what is accepted, who we are, which session and which revision it is.

_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_BOTH: Final = ("accept", "application/json, text/event-stream")
_STREAM: Final = ("accept", "text/event-stream")
_JSON: Final = ("content-type", "application/json")


def can_be_sent_back(session: str) -> bool:
    """Whether that is a session's id as it has to be: visible characters of ASCII, and not too many."""
    return _VISIBLE.fullmatch(session) is not None


def is_header(name: str, value: str) -> bool:
    """Whether a header can be made of them."""
    return _NAME.fullmatch(name) is not None and _VALUE.fullmatch(value) is not None


def request_headers(
    own: Headers, credentials: Mapping[str, str], *, login: str = "", session: str = "", version: str = ""
) -> Headers:
    """What every request says of the client and its session. Raises `ValueError` for credentials that are no headers.

    `own` are those of the route, and give way to `credentials`; `login` is what stood in the URL, and gives way to both.
    """
    given = {name.lower() for name in credentials}
    found = [each for each in own if each[0] not in given]  # a server that sees two refuses both
    if login and not any(name == "authorization" for name in (*given, *(name for name, _ in found))):
        found.append(("authorization", login))
    for name, value in credentials.items():
        if not is_header(name, value):
            raise ValueError("no header can be made of them")
        found.append((name.lower(), value))
    if session:
        found.append(("mcp-session-id", session))
    if version:
        found.append(("mcp-protocol-version", version))
    return tuple(found)
