"""Listen processes: `subscriptions/listen` of the stateless era. A process for each one, with its own filter.

The process joins the company's subscriptions and watches tasks, and puts what its client asked for into the feed that the transport reads. The feed holds one
message for each changed list, resource and task at most: of several changes that the client has not read, the last one is sent. So memory is bounded by the filter.
The client ends it by leaving; the server ends it with a result. When the process dies, the feed ends without one, and the client knows that it has missed changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.jsonrpc import encode_notification, encode_result, is_object
from greenroom.supervision import (
    Continue,
    Down,
    DynamicSupervisor,
    GenServer,
    Options,
    Shutdown,
    child,
    demonitor,
    monitor,
    send_after,
    stopping,
)
from greenroom.transports.interfaces import FeedEvent

from .catalogue import MissingScopes, reached_entries
from .server_description import declared_capabilities
from .session_streams import FeedWaiter
from .settings import server_info
from .stateless_tasks import detailed_task, watch_tasks
from .subscriptions import (
    MAX_PER_SESSION,
    MAX_SESSION_CHARACTERS,
    MAX_URI_CHARACTERS,
    UPDATED,
    ChangeAnnouncement,
    Subscriptions,
)
from .task_record import TaskChanged, TaskRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.event_types import Outcome
    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId
    from greenroom.protocol.wire_shapes import ListenFilter
    from greenroom.supervision import ExitReason, Monitor, Ref

    from .call_events import ObservedCall
    from .company import Company
    from .exchange_table import ListenPlace
    from .mounted_entries import MountedEntries
    from .worker_interfaces import SessionFacts

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_TASK_CHANGED: Final = "notifications/tasks"
_REJOIN: Final = object()
_REJOIN_SECONDS: Final = 0.05
_LISTS: Final[Sequence[tuple[str, str, str, str]]] = (
    ("tools_list_changed", "toolsListChanged", "tools", "notifications/tools/list_changed"),
    ("prompts_list_changed", "promptsListChanged", "prompts", "notifications/prompts/list_changed"),
    ("resources_list_changed", "resourcesListChanged", "resources", "notifications/resources/list_changed"),
)
"""For each list: the filter's attribute, its name on the wire, the capability, and the notification."""
ENDED: Final = Shutdown("the client has stopped listening")


class HonouredFilter:
    """The announcements on one feed: the part of the client's wish that this server can honour."""

    __slots__ = ("lists", "task_ids", "uris")

    def __init__(self, lists: frozenset[str], uris: tuple[str, ...], task_ids: tuple[str, ...]) -> None:
        self.lists = lists
        """The notifications of changed lists."""
        self.uris = uris
        self.task_ids = task_ids

    def to_wire(self) -> dict[str, Any]:
        """The filter as it is acknowledged."""
        wire: dict[str, Any] = {name: True for _, name, _, notification in _LISTS if notification in self.lists}
        if self.uris:
            wire["resourceSubscriptions"] = list(self.uris)
        if self.task_ids:
            wire["taskIds"] = list(self.task_ids)
        return wire


def honoured_filter(company: Company, wish: ListenFilter, facts: SessionFacts) -> HonouredFilter:
    """The part of a wish that this server can honour, but for tasks and resources of upstreams, which are watched later. Raises `McpError` for one that it refuses.

    A resource that needs scopes which the caller lacks is refused with all the scopes that the wish needs, so that the caller can get them at once.
    """
    catalogue = company.catalogue_ref.current
    capabilities = declared_capabilities(company.settings, catalogue, facts.version)
    lists = frozenset(
        notification
        for attribute, _, capability, notification in _LISTS
        if getattr(wish, attribute) and capabilities.get(capability, {}).get("listChanged")
    )
    uris = tuple(dict.fromkeys(wish.resource_subscriptions or ()))
    ids = tuple(dict.fromkeys(wish.task_ids or ()))
    _check_bounds("resourceSubscriptions", uris)
    _check_bounds("taskIds", ids)
    decides_itself = "resources/subscribe" in company.method_handlers and catalogue.mounted is None
    if not capabilities.get("resources", {}).get("subscribe") or decides_itself:
        # A server that decides on subscriptions itself may refuse one, and has to begin each: all in a session.
        uris = ()
    missing: dict[str, None] = {}
    for uri in uris:
        try:
            reached_entries("resources/subscribe", {"uri": uri}, catalogue, facts.peer)
        except MissingScopes as error:
            missing.update(dict.fromkeys(error.scopes))
    if missing:
        raise MissingScopes(tuple(missing))
    return HonouredFilter(lists, uris, ids)


def _check_bounds(name: str, texts: tuple[str, ...]) -> None:
    if (
        len(texts) > MAX_PER_SESSION
        or any(len(each) > MAX_URI_CHARACTERS for each in texts)
        or sum(map(len, texts)) > MAX_SESSION_CHARACTERS
    ):
        raise McpError(
            ErrorCode.INVALID_PARAMS,
            f'Invalid params: "notifications.{name}" may have {MAX_PER_SESSION} members of {MAX_URI_CHARACTERS} characters, and {MAX_SESSION_CHARACTERS} characters in all',
        )


class ListenFeed(FeedWaiter):
    """The messages of one listening client that it has not read."""

    __slots__ = ("_end_message", "_first", "_id", "_is_over", "_on_left", "_pending", "is_left")

    name = "changes"

    def __init__(self, id: RequestId, on_left: Callable[[], object]) -> None:
        """`on_left` is called when the reader leaves."""
        super().__init__()
        self._id = id
        self._on_left = on_left
        self.is_left = False
        """Whether its client has left it."""
        self._first: bytes | None = None
        self._pending: dict[tuple[str, str], bytes] = {}
        self._end_message: bytes | None = None
        self._is_over = False

    def acknowledge(self, body: bytes) -> None:
        """Set the first message."""
        self._first = body
        self.wake()

    def announce(self, method: str, about: str, body: bytes) -> None:
        """Add a message, in place of an unread one of the same kind about the same thing."""
        if not self._is_over:
            self._pending[method, about] = body
            self.wake()

    def end(self, body: bytes | None = None) -> None:
        """End the feed after what is unread, with a result or without."""
        if not self._is_over:
            self._is_over = True
            self._end_message = body
            self.wake()

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """The unread messages; empty after the timeout; None when the feed has ended."""
        while True:
            if self._first is not None:
                events = [FeedEvent("", self._first)]
                self._first = None
                return events
            pending, self._pending = self._pending, {}
            events = [FeedEvent("", body) for body in pending.values()]
            if self._end_message is not None:
                events.append(FeedEvent("", self._end_message, answers=self._id))
                self._end_message = None
            if events:
                return events
            if self._is_over:
                return None
            if not await self.wait(timeout):
                return []

    def leave(self) -> None:
        """The reader is gone: the process ends."""
        self.is_left = not self._is_over
        self._is_over = True
        self._pending.clear()
        self._end_message = None
        self._on_left()

    def finish(self) -> None:
        """End it in order: the reader gets the result, and then the feed has ended."""
        self._on_left()


class ListenProcess(GenServer):
    """The process of one listen feed."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        company: Company,
        request: JsonRpcRequest,
        facts: SessionFacts,
        wanted: HonouredFilter,
        place: ListenPlace,
        observed: ObservedCall | None = None,
    ) -> None:
        """`place` is given back when the process ends."""
        self._observed = observed
        self._company = company
        self._place = place
        self._id = request.id
        self._meta = {SUBSCRIPTION_ID_KEY: request.id}
        self._facts = facts
        self._filter = wanted
        self._monitor: Monitor | None = None
        self.feed: ListenFeed
        self._own_ref: Ref[ListenProcess]

    def init(self) -> Continue | None:
        """Watch what the filter names, and acknowledge it, at once or as soon as the upstreams have begun."""
        own = self._own_ref = self.ref()
        self.feed = ListenFeed(self._id, lambda: own.cast(ListenProcess.finish))
        self.process.add_exit_waiter(self)
        wanted = self._filter
        if self._mounted is not None and (wanted.uris or wanted.lists):
            return Continue(None)
        self._begin()
        return None

    async def handle_continue(self, token: Any) -> None:  # noqa: ARG002 - there is one only
        """Begin the subscriptions at upstreams: what they cannot follow is not acknowledged."""
        wanted, mounted = self._filter, self._mounted
        assert mounted is not None
        wanted.uris = tuple(await mounted.listen(self.pid, self._facts, wanted.uris, lists=bool(wanted.lists)))
        self._begin()

    @property
    def _mounted(self) -> MountedEntries | None:
        return self._company.catalogue_ref.current.mounted

    def _begin(self) -> None:
        own, wanted, watched = self._own_ref, self._filter, list[TaskRecord]()
        if wanted.task_ids:
            # The extension was checked before, so this finds the tasks that the caller may see.
            watched = watch_tasks(self._company, self._facts, wanted.task_ids, own)
            wanted.task_ids = tuple(record.id for record in watched)
        self._join()
        self.feed.acknowledge(self._encoded(_ACKNOWLEDGED, {"notifications": wanted.to_wire()}))
        for record in watched:
            if record.status != "working":  # it has changed before this client could listen, and may not change again
                own.send(TaskChanged(record))

    def open_feed(self) -> ListenFeed:
        """The feed, for its reader."""
        return self.feed

    def finish(self) -> None:
        """End the feed with its result."""
        self._send_result()
        return stopping(None, ENDED)

    def handle_info(self, message: Any) -> None:
        """Put an announced change into the feed."""
        match message:
            case ChangeAnnouncement(method=method, params=params):
                if method == UPDATED or method in self._filter.lists:
                    self._announce(method, str(params.get("uri", "")), params)
            case TaskChanged(record=record):
                self._announce(_TASK_CHANGED, record.id, detailed_task(self._company.tasks, record))
            case Down(ref=ref):
                if ref is self._monitor:
                    self._join()
            case _ if message is _REJOIN:
                self._join()
            case _:
                super().handle_info(message)

    def terminate(self, reason: ExitReason) -> None:
        """The server stops: the client gets the result."""
        if isinstance(reason, Shutdown):
            self._send_result()

    def on_exit(self, reason: ExitReason) -> None:
        """Runs however the process ended: end the feed, and release what the filter holds."""
        if self._observed is not None:
            self._observed.end(self._outcome(reason))
        self.feed.end()
        if self._mounted is not None:
            self._mounted.stop_listening(self.pid)
        self._company.tasks.watchers.unwatch(self._filter.task_ids, self._own_ref)
        self._place.give_back()

    def _outcome(self, reason: ExitReason) -> Outcome:
        if self.feed.is_left:
            return "cancelled"  # that is how a client ends a listen
        if isinstance(reason, Shutdown):
            return "result"
        return "worker_crashed" if self._company.exchanges.is_supervised else "process_ended"

    def _join(self) -> None:
        """Register with the subscriptions' process, and again with its successor."""
        wanted = self._filter
        if not wanted.lists and not wanted.uris:
            return
        if self._monitor is not None:
            demonitor(self._monitor)
            self._monitor = None
        subscriptions = self._company.subscriptions
        if subscriptions.cast(Subscriptions.listen, self.pid, wanted.lists, wanted.uris):
            self._monitor = monitor(subscriptions)
        else:
            send_after(_REJOIN_SECONDS, self._own_ref, _REJOIN)

    def _announce(self, method: str, about: str, params: Mapping[str, Any]) -> None:
        try:
            self.feed.announce(method, about, self._encoded(method, params))
        except LocalProtocolError as error:
            self.report_unexpected("announcement", f"{method}: {error}")

    def _encoded(self, method: str, params: Mapping[str, Any]) -> bytes:
        meta: Any = params.get("_meta")
        tagged: dict[str, Any] = {**meta, **self._meta} if is_object(meta) else self._meta
        return encode_notification(method, {**params, "_meta": tagged})

    def _send_result(self) -> None:
        result = STATELESS_DIALECT.finish(
            "subscriptions/listen", {"_meta": self._meta}, server_info(self._company.settings)
        )
        self.feed.end(encode_result(self._id, result))

    def report_state(self) -> str:
        """The numbers of lists, resources and tasks."""
        wanted = self._filter
        return f"listens to {len(wanted.lists)} lists, {len(wanted.uris)} resources and {len(wanted.task_ids)} tasks"


async def open_listen_feed(
    company: Company,
    request: JsonRpcRequest,
    facts: SessionFacts,
    wanted: HonouredFilter,
    place: ListenPlace,
    observed: ObservedCall | None = None,
) -> ListenFeed:
    """Start the process, and return its feed. Raises `ActorError` when it cannot be started, and gives the place back."""
    spec = child(ListenProcess, company, request, facts, wanted, place, observed)
    spec = spec.but(restart="temporary", options=Options(label="listen"))
    supervisor: Ref[DynamicSupervisor] = company.exchanges.supervisor
    try:
        process: Ref[ListenProcess] = await supervisor.call(DynamicSupervisor.start_child, spec)
        return await process.within(None).call(ListenProcess.open_feed)
    except BaseException:
        place.give_back()  # also where the client no longer waits, and sees no error
        raise
