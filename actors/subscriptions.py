"""The process that announces changes to sessions: changed lists to all, changed resources to those that subscribed.

Sessions join it; any process may cast `list_changed` and `resource_updated`. Changes are collected for a moment, so that a hundred registrations are one `list_changed` and a
hot resource one `updated`. Memory is bounded by the subscriptions, limited for each session, and by the mailbox. A change that found the mailbox full leaves a
gap, and after a gap each session is notified of everything that it waits for.

The subscriptions are kept in a `SubscriptionTable` that outlives this process, so its successor goes on with them. A session that dies is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.supervision import Down, GenServer, Options, Pid, Reject, child, demonitor, monitor, send, send_after

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from greenroom.supervision import ChildSpec, Monitor, Ref

    from .catalogue import Kind

MAX_PER_SESSION: Final = 1000
"""How many resources one session may subscribe to."""
MAX_URI_CHARACTERS: Final = 8 * 1024
"""How many characters the URI of a subscription may have."""
MAX_SESSION_CHARACTERS: Final = 256 * 1024
"""How many characters the URIs of one session may have together."""
MAILBOX_LIMIT: Final = 10_000
COLLECT_SECONDS: Final = 0.01
"""For how many seconds changes are collected."""

LIST_CHANGED: Final[Mapping[Kind, str | None]] = {
    "tool": "notifications/tools/list_changed",
    "resource": "notifications/resources/list_changed",
    "resource_template": "notifications/resources/list_changed",
    "prompt": "notifications/prompts/list_changed",
    "completion": None,
}
UPDATED: Final = "notifications/resources/updated"
_FLUSH: Final = object()


@dataclass(frozen=True, slots=True)
class ChangeAnnouncement:
    """Sent to a session: notify the peer of this, if it may get it."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SubscriptionTable:
    """The subscriptions of all sessions.

    It belongs to the company. Only the process writes to it, except for the mark of a gap.
    """

    __slots__ = ("gap", "lists", "sessions", "subscribers")

    def __init__(self) -> None:
        self.sessions: dict[Pid, dict[str, None]] = {}
        self.lists: dict[Pid, frozenset[str]] = {}
        """The notifications of changed lists that a process wants, where it does not want all."""
        self.subscribers: dict[str, dict[Pid, None]] = {}
        self.gap = False

    def remove_session(self, pid: Pid) -> None:
        """Remove a session."""
        self.lists.pop(pid, None)
        for uri in self.sessions.pop(pid, ()):
            self.leave(pid, uri)

    def add(self, pid: Pid, uri: str) -> None:
        """Add one subscription of a session that has joined."""
        self.sessions[pid][uri] = None
        self.subscribers.setdefault(uri, {})[pid] = None

    def leave(self, pid: Pid, uri: str) -> None:
        """Remove one subscription."""
        readers = self.subscribers.get(uri)
        if readers is not None:
            readers.pop(pid, None)
            if not readers:
                del self.subscribers[uri]


class Subscriptions(GenServer):
    """The subscriptions' process of a company.

    `join` is a session's first call; `list_changed` and `resource_updated` may come from any process.
    """

    def __init__(
        self, table: SubscriptionTable, per_session: int = MAX_PER_SESSION, window: float = COLLECT_SECONDS
    ) -> None:
        """`table` is a predecessor's, or an empty one."""
        self._table = table
        self._per_session = per_session
        self._window = window
        self._lists: dict[str, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._monitors: dict[Pid, Monitor] = {}
        self._flush_scheduled = False

    def init(self) -> None:
        """Monitor the sessions of a predecessor. Changes between the predecessor's death and now are a gap."""
        for pid in self._table.sessions:
            self._monitors[pid] = monitor(pid)
        if self._table.sessions:
            self._table.gap = True
            self._schedule_flush()

    # --- for sessions

    def join(self, pid: Pid) -> None:
        """Announce changed lists to this session, until it dies or leaves."""
        if pid not in self._monitors:
            self._table.sessions.setdefault(pid, {})
            self._monitors[pid] = monitor(pid)

    def listen(self, pid: Pid, lists: frozenset[str], uris: Sequence[str]) -> None:
        """Announce to this process changes of those lists and resources alone. Its limits were checked before."""
        self.join(pid)
        self._table.lists[pid] = lists
        for uri in uris:
            self._table.add(pid, uri)

    def leave(self, pid: Pid) -> None:
        """Announce nothing more to this session."""
        watched = self._monitors.pop(pid, None)
        if watched is not None:
            demonitor(watched, flush=True)
        self._table.remove_session(pid)

    def subscribe(self, pid: Pid, uri: str) -> None:
        """Announce updates of that resource to this session. Raises `McpError` when it has too many subscriptions."""
        uris = self._table.sessions.get(pid, {})
        if len(uri) > MAX_URI_CHARACTERS:
            raise Reject(
                McpError(
                    ErrorCode.INVALID_PARAMS, f"A URI to subscribe to may have at most {MAX_URI_CHARACTERS} characters"
                )
            )
        if uri not in uris and (
            len(uris) >= self._per_session or len(uri) + sum(map(len, uris)) > MAX_SESSION_CHARACTERS
        ):
            message = f"Too many subscriptions: at most {self._per_session} in a session; unsubscribe from some first"
            raise Reject(McpError(ErrorCode.INVALID_PARAMS, message))
        self.join(pid)
        self._table.add(pid, uri)

    def unsubscribe(self, pid: Pid, uri: str) -> None:
        """Remove a subscription; it need not exist."""
        self._table.sessions.get(pid, {}).pop(uri, None)
        self._table.leave(pid, uri)

    def subscriptions(self, pid: Pid) -> list[str]:
        """The resources that this session has subscribed to, in that order."""
        return list(self._table.sessions.get(pid, ()))

    # --- for code that changes something

    def list_changed(self, kind: Kind) -> None:
        """The list of that kind has changed."""
        method = LIST_CHANGED[kind]
        if method is not None and self._table.sessions:
            self._lists[method] = None
            self._schedule_flush()
        self.announce_missed()

    def resource_updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """That resource has changed. Of several changes within the window, the last one's `extra` is sent."""
        if uri in self._table.subscribers:
            self._resources[uri] = extra
            self._schedule_flush()
        self.announce_missed()

    def announce_missed(self) -> None:
        """After a gap, announce everything to every session.

        A change that found the mailbox full arrived while the messages that now pass by here were in it.
        """
        if self._table.gap:
            self._schedule_flush()

    def handle_info(self, message: Any) -> None:
        """Remove a dead session, or announce the collected changes."""
        match message:
            case Down(pid=Pid() as pid):
                self._monitors.pop(pid, None)
                self._table.remove_session(pid)
            case _ if message is _FLUSH:
                self._flush()
            case _:
                super().handle_info(message)

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            send_after(self._window, self.pid, _FLUSH)

    def _flush(self) -> None:
        self._flush_scheduled = False
        table = self._table
        if table.gap:
            table.gap = False
            self._lists = dict.fromkeys(method for method in LIST_CHANGED.values() if method is not None)
            self._resources = {uri: self._resources.get(uri, {}) for uri in table.subscribers}
        lists, self._lists = self._lists, {}
        resources, self._resources = self._resources, {}
        for method in lists:
            announcement = ChangeAnnouncement(method)
            for pid in table.sessions:
                wanted = table.lists.get(pid)
                if wanted is None or method in wanted:
                    send(pid, announcement)
        for uri, extra in resources.items():
            announcement = ChangeAnnouncement(UPDATED, {**extra, "uri": uri})
            for pid in table.subscribers.get(uri, ()):
                send(pid, announcement)

    def report_state(self) -> str:
        """The numbers of sessions and resources."""
        return f"{len(self._table.sessions)} sessions, {len(self._table.subscribers)} resources"


def subscriptions_child(
    name: Hashable, table: SubscriptionTable, per_session: int = MAX_PER_SESSION
) -> ChildSpec[Ref[Subscriptions]]:
    """The child spec of the subscriptions' process. The table goes to every successor."""
    options = Options(mailbox=MAILBOX_LIMIT)
    return child(Subscriptions, table, per_session).but(id="subscriptions", name=name, options=options)


def announce_list_changed(subscriptions: Ref[Subscriptions], table: SubscriptionTable, kind: Kind) -> None:
    """The list of that kind has changed. Never waits; a full mailbox leaves a gap."""
    if not subscriptions.cast(Subscriptions.list_changed, kind):
        table.gap = True


def announce_resource_updated(
    subscriptions: Ref[Subscriptions], table: SubscriptionTable, uri: str, extra: Mapping[str, Any]
) -> None:
    """A resource has changed. Never waits; a full mailbox leaves a gap."""
    if not subscriptions.cast(Subscriptions.resource_updated, uri, extra):
        table.gap = True


def announce_gap(subscriptions: Ref[Subscriptions], table: SubscriptionTable) -> None:
    """Changes may have been missed, and it is unknown which. Never waits."""
    table.gap = True
    subscriptions.cast(Subscriptions.announce_missed)
