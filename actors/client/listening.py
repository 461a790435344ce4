"""`subscriptions/listen` of the stateless era: the one request by which a connection learns of changes, kept open while anything is wanted.

`Listening` is the connection's part: it knows what the readers, the handler and the client want, checks each message of a listen, and settles subscriptions by
the server's acknowledgement. A process of its own, linked to the connection, decides when to listen again, and owns the requests: when it dies they are
withdrawn, its crash is reported, and a successor listens again after a pause. Each time that changes may have been missed, the readers get a gap.

A changed wish opens a new listen. The former one is heard for a moment longer: over HTTP each has a connection of its own, and an announcement may be on its
way when the acknowledgement of the new one arrives. A change that both announce is told once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.auth.errors import SignInError
from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY
from greenroom.protocol.errors import BadAnswer, ErrorCode, LocalProtocolError, PeerError
from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.methods import TASKS_EXTENSION, is_declared
from greenroom.protocol.serialization import is_array
from greenroom.supervision import ActorError, Wakeup, send_after, spawn_link
from greenroom.transports.client.errors import ConnectionLost

from .errors import RequestLost, SubscriptionRefused
from .handshake import ConnectionReport
from .interfaces import Phase
from .notification_readers import UPDATED
from .pending_requests import InternalRequest, PendingRequest
from .request_table import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from greenroom.supervision import Pid, Process
    from greenroom.transports.client.interfaces import ClientWire

    from .client_handler import ClientHandler
    from .connection_line import ConnectionLine
    from .request_table import RequestTable

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
TASK_CHANGED: Final = "notifications/tasks"
_CANCELLED: Final = "notifications/cancelled"
_SUBSCRIBE: Final = "resources/subscribe"
_UNSUBSCRIBE: Final = "resources/unsubscribe"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_LISTS: Final = (
    (TOOLS_CHANGED, "toolsListChanged", "tools.listChanged"),
    ("notifications/prompts/list_changed", "promptsListChanged", "prompts.listChanged"),
    ("notifications/resources/list_changed", "resourcesListChanged", "resources.listChanged"),
)
"""For each list: the notification, its name in the filter, and the capability."""
LIST_CHANGES: Final = frozenset(method for method, _, _ in _LISTS)
_ONLY_BY_LISTEN: Final = LIST_CHANGES | {UPDATED, TASK_CHANGED, ACKNOWLEDGED}
"""Notifications that mean nothing without the id of a listen."""
_LASTING: Final = 5.0
"""A listen that lived for so many seconds has not failed when it ends: proxies and servers end streams now and then."""
_ENDED: Final = "the server has ended it"
_LINGER: Final = 1.0
"""Seconds for which a former listen is heard after the acknowledgement of its successor,"""
_MOST_FORMER: Final = 4
"""how many such there may be,"""
_MOST_KEYS: Final = 1024
"""and how many different things they may announce in that time."""
_REFUSALS: Final = 8
"""How many refused wishes are remembered."""
_SLOW: Final = 30.0
"""Seconds for an acknowledgement where requests have no time limit."""


# --- Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenFailed(ConnectionReport):
    """The server does not listen to changes for this client. Reported once until it does; `retry_in` is None when the same is not asked for again on this connection."""

    error: BaseException
    retry_in: float | None

    def __str__(self) -> str:
        then = "not asked again" if self.retry_in is None else f"asked again in {self.retry_in:.1f} s"
        return f"{self.server} announces no changes: {self.error}; it is {then}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenIncomplete(ConnectionReport):
    """The server honours less than was asked for, though it declares it: `missing` are notifications, and URIs of resources."""

    missing: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.missing[:_SHOWN]) + (" …" if len(self.missing) > _SHOWN else "")
        return f"{self.server} does not announce all that was asked for: {shown}"


_SHOWN: Final = 5


# --- What is wanted


@dataclass(frozen=True, slots=True)
class ListenWish:
    """The changes to listen to: notifications of changed lists, resources by URI, and tasks by id."""

    lists: frozenset[str] = frozenset()
    uris: frozenset[str] = frozenset()
    task_ids: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.lists or self.uris or self.task_ids)

    def is_within(self, other: ListenWish) -> bool:
        """Whether the other one has all of it."""
        return self.lists <= other.lists and self.uris <= other.uris and self.task_ids <= other.task_ids

    def to_wire(self) -> dict[str, Any]:
        """The filter of a listen."""
        wire: dict[str, Any] = {name: True for method, name, _ in _LISTS if method in self.lists}
        if self.uris:
            wire["resourceSubscriptions"] = sorted(self.uris)
        if self.task_ids:
            wire["taskIds"] = sorted(self.task_ids)
        return wire

    def declared_part(self, capabilities: Mapping[str, Any]) -> ListenWish:
        """The part that the server declares."""
        extensions = capabilities.get("extensions")
        has_tasks = is_object(extensions) and is_object(extensions.get(TASKS_EXTENSION))
        return ListenWish(
            frozenset(method for method, _, path in _LISTS if method in self.lists and is_declared(capabilities, path)),
            self.uris if is_declared(capabilities, "resources.subscribe") else frozenset(),
            self.task_ids if has_tasks else frozenset(),
        )

    def honoured_part(self, acknowledged: object) -> ListenWish:
        """The part that the server's acknowledgement grants, whatever else that contains."""
        if not is_object(acknowledged):
            return ListenWish()
        return ListenWish(
            frozenset(method for method, name, _ in _LISTS if method in self.lists and acknowledged.get(name) is True),
            self.uris.intersection(_texts(acknowledged.get("resourceSubscriptions"))),
            self.task_ids.intersection(_texts(acknowledged.get("taskIds"))),
        )

    def covers(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether a notification was asked for. An updated resource may be part of one that was asked for, so its URI is not compared."""
        if method == TASK_CHANGED:
            id = params.get("taskId")
            return isinstance(id, str) and id in self.task_ids
        return method in self.lists or (method == UPDATED and bool(self.uris))


def _texts(values: object) -> Iterable[str]:
    return (each for each in values if isinstance(each, str)) if is_array(values) else ()


# --- One listen


class ListenRequest(InternalRequest):
    """One `subscriptions/listen`, from its beginning to its end. Its owner repeats it, and nothing else does."""

    open_ended = True
    waits = False
    honoured: ListenWish | None = None
    """The part that the server honours; None before its acknowledgement."""
    begun_at = 0.0
    """When it was sent; later when it was acknowledged, and then when its successor was."""

    def __init__(self, listening: Listening, line: ConnectionLine, wish: ListenWish) -> None:
        """Made by `Listening`."""

        def ended(_: object, error: BaseException | None) -> None:
            listening.on_end(self, error)

        loop = listening.connection.node.loop
        super().__init__(line, loop, LISTEN, {"notifications": wish.to_wire()}, ended)
        self.wish = wish
        self.announced: dict[tuple[str, int], int] = {}
        """How often it has announced each thing, while there are former listens."""

    def own(self, process: Process) -> None:
        """Tie it to the process that keeps it open: it is withdrawn when that ends."""
        self._owner = process
        process.add_exit_waiter(self)

    def answers(self, wish: ListenWish) -> bool:
        """Whether no other listen is needed: all that is wanted was asked for, and no more than that is announced.

        A task that is not followed any more has mostly ended, and announces nothing; no other listen is opened for that.
        """
        honoured = self.honoured
        if honoured is None or not wish.is_within(self.wish):
            return False
        return honoured.lists <= wish.lists and honoured.uris <= wish.uris


class ListenDue(NamedTuple):
    """To the connection: the process that listens is to be started."""


class Listening:
    """The listens of one connection. In the handshake era it does nothing."""

    def __init__(
        self,
        connection: Process,
        line: ConnectionLine,
        handler: ClientHandler,
        requests: RequestTable,
        report: Callable[..., None],
    ) -> None:
        """`report` emits a report of the connection: its class, and its fields."""
        self.connection = connection
        self.current: ListenRequest | None = None
        """The listen that is acknowledged, and whose messages count."""
        self.process: Process | None = None
        """The process that keeps a listen open."""
        self._line = line
        self._requests = requests
        self._report = report
        self._handler_wants = handler.wants_list_changes()
        self._opening: ListenRequest | None = None
        """The listen that is not acknowledged yet."""
        self._former: list[ListenRequest] = []
        """Listens that have a successor, for as long as they are heard."""
        self._told: dict[tuple[str, int], int] = {}
        """How often each thing was told since there are former listens."""
        self._subscribers: dict[PendingRequest, None] = {}
        """Subscriptions that wait for an acknowledgement."""
        self._refused: dict[ListenWish, BaseException] = {}
        """The wishes that the server has refused on this connection, with its errors."""
        self._unknown: BaseException | None = None
        """The error of a server that has no such method."""
        self._is_reported = False
        self._missing: frozenset[str] = frozenset()
        """The notifications and resources that the last acknowledgement left out, which was reported."""
        self._may_have_missed = False
        self._failures = 0
        self._resume_at = 0.0
        self._starting = False
        self._changed = Wakeup()
        """Wakes the process: something is to be looked at."""
        self._progressed = Wakeup()
        """Wakes readers that wait for an acknowledgement."""
        requests.on_subscription = self.takes

    # --- what is wanted

    def wish(self) -> ListenWish | None:
        """The changes that are wanted and declared; None while the connection is not ready, or belongs to the handshake era."""
        line = self._line
        welcome = line.welcome
        if self._requests.wire is None or welcome is None or not welcome.is_stateless:
            return None
        readers = line.readers
        lists: Iterable[str]
        if self._handler_wants or "" in readers.by_method:
            lists = LIST_CHANGES
        else:
            lists = LIST_CHANGES.intersection(readers.by_method)
            if line.tools_changed is not None:
                lists |= {TOOLS_CHANGED}
        wanted = ListenWish(frozenset(lists), frozenset(readers.by_uri), frozenset(readers.followed_tasks))
        return wanted.declared_part(welcome.capabilities)

    def wake(self) -> None:
        """The wish may have changed. Changes of one turn of the loop are looked at once."""
        if self.process is not None:
            self._changed.wake()
        elif not self._starting and self.wish():
            self._starting = True
            self.connection.send(ListenDue())

    def hears(self, method: str) -> bool:
        """Whether the server has acknowledged that it announces these notifications."""
        current = self.current
        return current is not None and current.honoured is not None and method in current.honoured.lists

    async def until_heard(self, methods: tuple[str, ...]) -> None:
        """Wait until the server has acknowledged a listen to these notifications, or it is known that it does not soon."""
        lists = LIST_CHANGES.intersection(methods) if methods else LIST_CHANGES
        now = self.connection.node.loop.time
        until = now() + self._patience
        while lists and self._is_coming(lists) and (left := until - now()) > 0:
            await self._progressed.wait(left)

    def _is_coming(self, lists: frozenset[str]) -> bool:
        wish = self.wish()
        if wish is None or not (wanted := self._reachable(wish).lists & lists):
            return False
        current = self.current
        if current is not None and wanted <= current.wish.lists:
            return False
        return self._opening is not None or self._resume_at <= self.connection.node.loop.time()

    @property
    def _patience(self) -> float:
        return self._line.settings.request_timeout or _SLOW

    # --- events of the connection

    def on_ready(self) -> None:
        """The connection has opened, in either era. Listens before anything else is sent, and tells the gap of the stateless era."""
        line, again = self._line, self._line.generation > 1
        self._refused.clear()
        self._unknown = None
        self._missing = frozenset()
        self._is_reported = False
        self._failures, self._resume_at = 0, 0.0
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel("the connection has opened anew")
        wish = self.wish()
        if wish is None:
            self._close_all("the server announces changes without a listen now")
        if wish:
            self._may_have_missed = self._may_have_missed or again
            self.begin()
        elif again and wish is not None:
            line.readers.gap()
        self._progressed.wake()

    def begin(self) -> None:
        """Start the process, if it does not run, and listen. To be called in the connection's process."""
        self._starting = False
        if self.process is None and self._line.phase is not Phase.CLOSING:
            try:
                pid = spawn_link(self._keep_open)
            except ActorError:  # the node is closing
                return
            self.process = self.connection.node.process(pid)
            assert self.process is not None
            self.process.label = "listen"
        _ = self._advance()
        self._changed.wake()

    def on_exit(self, pid: Pid) -> bool:
        """A linked process has ended. Returns whether it was the one that listens; then a successor is started after a pause."""
        if self.process is None or self.process.pid != pid:
            return False
        self.process = None
        self._starting = True
        self._close_all("the process that listens has ended")
        send_after(self._pause(None), self.connection.pid, ListenDue())
        return True

    def close(self) -> None:
        """The connection's process has ended."""
        self._progressed.wake()

    def takes(self, entry: PendingRequest) -> bool:
        """Whether a request of the handshake era about subscriptions is settled here, by the acknowledgement of a listen."""
        if entry.method == _UNSUBSCRIBE:
            self._grant(entry)
        elif entry.method == _SUBSCRIBE and (entry.params or {}).get("uri") in self._line.readers.by_uri:
            self._subscribers[entry] = None
            self._settle_subscribers()
            self.wake()
        else:
            return False
        return True

    # --- messages of the server

    def filtered(self, wire: ClientWire, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The params of a notification of the stateless era, without the id of a listen; None for one that does not count."""
        if method == _CANCELLED:
            self._on_cancelled(wire, params.get("requestId"))
            return None
        meta = params.get("_meta")
        if not is_object(meta) or SUBSCRIPTION_ID_KEY not in meta:
            return None if method in _ONLY_BY_LISTEN else params
        id = meta[SUBSCRIPTION_ID_KEY]
        listen = self._find(wire, id)
        if method == ACKNOWLEDGED:
            if listen is not None and listen is self._opening:
                self._on_acknowledged(listen, params.get("notifications"))
            elif self._opening is not None and id == str(self._opening.id):
                told = f"the server acknowledged the listen {id!r}, and not {id}: it has to repeat the id with its type"
                self._end(self._opening, wire, BadAnswer(told))
            return None
        # Before its acknowledgement a listen counts only if no other one speaks.
        if listen is None or (listen is self._opening and self.current is not None):
            return None
        if not listen.wish.covers(method, params) or self._is_unwanted(listen, method, params):
            return None
        if self._former and self._is_told(listen, method, params):
            return None
        rest = {name: value for name, value in meta.items() if name != SUBSCRIPTION_ID_KEY}
        own = {name: value for name, value in params.items() if name != "_meta"}
        return {**own, "_meta": rest} if rest else own

    def _find(self, wire: ClientWire, id: object) -> ListenRequest | None:
        if type(id) is int:
            for listen in (self.current, self._opening, *self._former):
                if listen is not None and listen.id == id and listen.wire == wire.pid:
                    return listen
        return None

    def _is_unwanted(self, listen: ListenRequest, method: str, params: Mapping[str, Any]) -> bool:
        """Whether it is about a resource that was unsubscribed from while the listen was still heard."""
        if method != UPDATED:
            return False
        wanted, uri = self._line.readers.by_uri, params.get("uri")
        return not wanted or (isinstance(uri, str) and uri in listen.wish.uris and uri not in wanted)

    def _is_told(self, listen: ListenRequest, method: str, params: Mapping[str, Any]) -> bool:
        """Whether another listen has told this change: of the announcements of one thing, as many are told as the listen with the most has had."""
        about = params.get("taskId" if method == TASK_CHANGED else "uri")
        key = method, hash(about) if isinstance(about, str) else 0  # a server may name any resource, of any length
        count = listen.announced[key] = listen.announced.get(key, 0) + 1
        if count <= self._told.get(key, 0):
            return True
        self._told[key] = count
        if len(self._told) > _MOST_KEYS:
            self._end_former(len(self._former))
        return False

    def _end_former(self, count: int) -> None:
        """Close so many former listens, the oldest ones. With the last one it ends that two are compared."""
        closed, self._former = self._former[:count], self._former[count:]
        for listen in closed:
            listen.cancel("another listen has taken its place")
        if closed and not self._former:
            self._stop_comparing()

    def _stop_comparing(self) -> None:
        current, told = self.current, self._told
        if current is not None:
            # Where a former listen has announced more of something, an announcement of the present one may have been taken for an earlier change.
            if any(count < told.get(key, 0) for key, count in current.announced.items()):
                self._tell_gap()
            current.announced.clear()
        told.clear()

    def _on_cancelled(self, wire: ClientWire, id: object) -> None:
        """The server has ended a listen. It ends no other request this way."""
        listen = self._find(wire, id)
        if listen is not None:
            self._end(listen, wire, RequestLost(LISTEN, ConnectionLost(_ENDED)))

    def _end(self, listen: ListenRequest, wire: ClientWire, error: BaseException) -> None:
        self._requests.end(listen, error)
        wire.forget(listen.id)

    def _on_acknowledged(self, listen: ListenRequest, acknowledged: object) -> None:
        honoured = listen.honoured = listen.wish.honoured_part(acknowledged)
        listen.begun_at = self._now
        former, self.current, self._opening = self.current, listen, None
        self._is_reported = False
        lists, uris = listen.wish.lists - honoured.lists, listen.wish.uris - honoured.uris
        if new := sorted((lists | uris) - self._missing):
            self._report(ListenIncomplete, missing=tuple(new))
        self._missing = lists | uris
        self._line.readers.granted -= uris
        if former is not None:
            former.begun_at = self._now
            self._former.append(former)
            self._end_former(max(0, len(self._former) - _MOST_FORMER))
        listen.announced = dict(self._told)
        if self._may_have_missed:
            self._tell_gap()
        self._settle_subscribers()
        self._progressed.wake()
        self._changed.wake()

    def _tell_gap(self) -> None:
        self._may_have_missed = False
        self._line.readers.gap()
        if self._line.tools_changed is not None:
            self._line.tools_changed()

    def _grant(self, entry: PendingRequest) -> None:
        self._requests.pop(entry.id)
        entry.settle({})

    def _settle_subscribers(self, refused: frozenset[str] = frozenset(), error: BaseException | None = None) -> None:
        """Settle the subscriptions that the present listen answers, and fail those to resources that were refused with an error."""
        current = self.current
        for entry in tuple(self._subscribers):
            uri: Any = (entry.params or {}).get("uri")
            if entry.settled:
                pass
            elif current is not None and current.honoured is not None and uri in current.honoured.uris:
                self._grant(entry)
            elif current is not None and uri in current.wish.uris:
                self._requests.end(entry, SubscriptionRefused(uri))
            elif error is not None and uri in refused:
                self._requests.end(entry, error)
            else:
                continue
            del self._subscribers[entry]

    # --- the end of a listen

    def on_end(self, listen: ListenRequest, error: BaseException | None) -> None:
        """A listen was settled: by its result, an error, a loss, or because it was withdrawn."""
        if listen is self._opening:
            self._opening = None
            self._on_failure(listen.wish, error)
        elif listen is self.current:
            self.current = None
            self._may_have_missed = True
            if self._now - listen.begun_at >= _LASTING:
                self._failures = 0
            self._pause(error)
        elif listen in self._former:
            self._former.remove(listen)
            if error is not None and self._requests.wire is not None:
                self._may_have_missed = True
            if not self._former:
                self._stop_comparing()
            if self._may_have_missed and self.current is not None:
                self._tell_gap()
        self._changed.wake()

    def _on_failure(self, wish: ListenWish, error: BaseException | None) -> None:
        """An attempt has failed: it is made again after a pause, or not at all on this connection."""
        self._progressed.wake()
        if self._requests.wire is None:
            return  # the connection opens anew, and then listens again
        definite = error if error is not None and _is_definite(error) else None
        pause = self._pause(error) if definite is None else None
        if self.process is None or self.process.life:
            return  # its crash is reported
        if self._may_have_missed and self.current is None and (definite is not None or not self._is_reported):
            self._tell_gap()
            self._may_have_missed = definite is None  # until it is acknowledged more may be missed
        if definite is not None:
            self._refuse(wish, definite)
        if wish.task_ids and (definite is not None or not (wish.lists or wish.uris)):
            return  # the rest is asked for alone, and tasks are polled all the same
        if not self._is_reported:
            self._is_reported = True
            self._report(ListenFailed, error=error or ConnectionLost(_ENDED), retry_in=pause)

    def _refuse(self, wish: ListenWish, error: BaseException) -> None:
        """The server has refused a wish, and is not asked for the same again."""
        if len(self._refused) >= _REFUSALS:
            del self._refused[next(iter(self._refused))]
        self._refused[wish] = error
        if isinstance(error, PeerError) and error.code == ErrorCode.METHOD_NOT_FOUND:
            self._unknown = error
        elif wish.task_ids:
            return  # the resources are asked for without the tasks
        announced = self.current.honoured.uris if self.current is not None and self.current.honoured is not None else ()
        self._line.readers.granted.difference_update(wish.uris.difference(announced))
        self._settle_subscribers(wish.uris, error)

    def _refusal(self, wish: ListenWish) -> BaseException | None:
        """The error with which the server has refused this wish."""
        return self._unknown or self._refused.get(wish)

    def _reachable(self, wish: ListenWish) -> ListenWish:
        """The wish, or a part of it where the server has refused the whole: one task or resource that is gone would end all news."""
        for part in (wish, ListenWish(wish.lists, wish.uris)):
            if self._refusal(part) is None:
                return part
        lists = ListenWish(wish.lists)
        return lists if self.current is None and self._refusal(lists) is None else ListenWish()

    def _pause(self, error: BaseException | None) -> float:
        """Set the time of the next attempt, later after each failure and not before the server wants it. Returns the seconds until then."""
        backoff, random = self._line.settings.backoff, self.connection.node.random
        seconds = backoff.delay(self._failures, random)
        asked: Any = getattr(error, "retry_in", None)
        if isinstance(asked, int | float):
            seconds = max(seconds, min(asked, LONGEST))
        self._failures += 1
        self._resume_at = self._now + seconds
        return seconds

    def _close_all(self, reason: str) -> None:
        """Withdraw all listens."""
        for listen in (self._opening, self.current, *self._former):
            if listen is not None:
                listen.cancel(reason)

    # --- the process

    @property
    def _now(self) -> float:
        return self.connection.node.loop.time()

    async def _keep_open(self) -> None:
        while True:
            await self._changed.wait(self._advance())

    def _advance(self) -> float | None:
        """Take the steps that are due. Returns the seconds until another one is, or None where an event has to come first."""
        over = self._now - _LINGER
        self._end_former(sum(former.begun_at <= over for former in self._former))
        left = self._take_step()
        if not self._former:
            return left
        lingers = self._former[0].begun_at - over
        return lingers if left is None else min(left, lingers)

    def _take_step(self) -> float | None:
        wish = self.wish()
        if wish is None:
            return None
        opening, current = self._opening, self.current
        if opening is not None:
            left = opening.begun_at + self._patience - self._now
            if left > 0:
                return left
            opening.expire(self._patience)
            return self._take_step()
        if not wish:
            self._may_have_missed = False
            if current is not None:
                self.current = None
                current.cancel("nothing is listened to any more")
                self._end_former(len(self._former))
            return None
        here = self._requests.wire
        assert here is not None
        part = self._reachable(wish)
        if part.uris != wish.uris:
            self._settle_subscribers(wish.uris, self._refusal(ListenWish(wish.lists, wish.uris)))
        if not part or (current is not None and current.wire == here.pid and current.answers(part)):
            return None
        left = self._resume_at - self._now
        if left > 0:
            return left
        self._open(part)
        return self._patience

    def _open(self, wish: ListenWish) -> None:
        listen = self._opening = ListenRequest(self, self._line, wish)
        listen.begun_at = self._now
        listen.connection = self.connection
        assert self.process is not None
        listen.own(self.process)
        self._requests.take(listen)


def _is_definite(error: BaseException) -> bool:
    """Whether the same listen would be refused again on this connection.

    An internal error of the server may pass, as a loss does; other error answers, and settings that cannot be sent, stay.
    """
    if isinstance(error, BadAnswer | LocalProtocolError | SignInError):
        return True
    if isinstance(error, PeerError):
        return error.code != ErrorCode.INTERNAL_ERROR
    cause = getattr(error, "cause", None)
    return getattr(cause, "is_temporary", True) is False
