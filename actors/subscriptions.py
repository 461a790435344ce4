"""Subscriptions to changes: sessions join this process, and it tells them what their peers are to be told.

Changes are collected for a moment, so that a hundred registrations are one `list_changed` and a hot resource one `updated`. What
it holds is bounded: by the sessions' subscriptions, so many each, and by its mailbox. A change that found the mailbox full is not
lost in silence: it leaves a gap, and after a gap each session is told of everything that it waits for.

What sessions asked for stands on a `SubscriptionTable` that outlives this process: when it dies, its successor goes on with it. A session that
dies leaves with all it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.supervision import Down, GenServer, Options, Pid, Reject, child, demonitor, monitor, send, send_after

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from greenroom.supervision import ChildSpec, Monitor, Ref

    from .catalogue import Kind

MAX_PER_SESSION: Final = 1000
"""How many resources one session may subscribe to."""
MAX_URI_CHARACTERS: Final = 8 * 1024
"""How many characters the URI of such a resource may have."""
MAX_SESSION_CHARACTERS: Final = 256 * 1024
"""How many those of one session may have together."""
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
    """Sent to a session: tell your peer this, if it may be told."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SubscriptionTable:
    """What sessions asked for. Belongs to the company; only the process writes on it, but for the mark of a gap."""

    __slots__ = ("gap", "subscribers", "sessions")

    def __init__(self) -> None:
        """No session has joined."""
        self.sessions: dict[Pid, dict[str, None]] = {}
        self.subscribers: dict[str, dict[Pid, None]] = {}
        self.gap = False

    def remove_session(self, pid: Pid) -> None:
        """A session is gone."""
        for uri in self.sessions.pop(pid, ()):
            self.leave(pid, uri)

    def leave(self, pid: Pid, uri: str) -> None:
        """It does not want to hear of that any more."""
        readers = self.subscribers.get(uri)
        if readers is not None:
            readers.pop(pid, None)
            if not readers:
                del self.subscribers[uri]


class Subscriptions(GenServer):
    """One in each company. `Subscriptions.join` is a session's first word to it; `changed` and `updated` may come from any process."""

    def __init__(
        self, table: SubscriptionTable, per_session: int = MAX_PER_SESSION, window: float = COLLECT_SECONDS
    ) -> None:
        """`table` is what a predecessor left, or an empty one."""
        self._table = table
        self._per_session = per_session
        self._window = window
        self._lists: dict[str, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._monitors: dict[Pid, Monitor] = {}
        self._armed = False

    def init(self) -> None:
        """Monitor the sessions that were there before; changes that came between a predecessor and this process are a gap."""
        for pid in self._table.sessions:
            self._monitors[pid] = monitor(pid)
        if self._table.sessions:
            self._table.gap = True
            self._arm()

    # --- for sessions

    def join(self, pid: Pid) -> None:
        """Tell this session of lists that change, until it dies or leaves."""
        if pid not in self._monitors:
            self._table.sessions.setdefault(pid, {})
            self._monitors[pid] = monitor(pid)

    def leave(self, pid: Pid) -> None:
        """Tell it nothing any more."""
        watched = self._monitors.pop(pid, None)
        if watched is not None:
            demonitor(watched, flush=True)
        self._table.remove_session(pid)

    def subscribe(self, pid: Pid, uri: str) -> None:
        """Tell this session when that resource is updated. Raises `McpError` when it has too many already."""
        uris = self._table.sessions.get(pid, {})
        if len(uri) > MAX_URI_CHARACTERS:
            raise Reject(
                McpError(ErrorCode.INVALID_PARAMS, f"A URI to subscribe to may have {MAX_URI_CHARACTERS} characters")
            )
        if uri not in uris and (
            len(uris) >= self._per_session or len(uri) + sum(map(len, uris)) > MAX_SESSION_CHARACTERS
        ):
            message = f"Too many subscriptions: at most {self._per_session} in a session; unsubscribe from some first"
            raise Reject(McpError(ErrorCode.INVALID_PARAMS, message))
        self.join(pid)
        self._table.sessions[pid][uri] = None
        self._table.subscribers.setdefault(uri, {})[pid] = None

    def unsubscribe(self, pid: Pid, uri: str) -> None:
        """Not any more. It need not have been."""
        self._table.sessions.get(pid, {}).pop(uri, None)
        self._table.leave(pid, uri)

    def subscriptions(self, pid: Pid) -> list[str]:
        """What this session has subscribed to, in that order."""
        return list(self._table.sessions.get(pid, ()))

    # --- for code that changes something

    def changed(self, kind: Kind) -> None:
        """The list of that kind has changed."""
        method = LIST_CHANGED[kind]
        if method is not None and self._table.sessions:
            self._lists[method] = None
            self._arm()
        self.announce_missed()

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """That resource has changed; of several in a moment, the last one's `extra` is told."""
        if uri in self._table.subscribers:
            self._resources[uri] = extra
            self._arm()
        self.announce_missed()

    def announce_missed(self) -> None:
        """Tell each session of everything, if something was missed: a change that found the mailbox full came while what passes by here was in it."""
        if self._table.gap:
            self._arm()

    def handle_info(self, message: Any) -> None:
        """A session is gone, or it is time to tell."""
        match message:
            case Down(pid=Pid() as pid):
                self._monitors.pop(pid, None)
                self._table.remove_session(pid)
            case _ if message is _FLUSH:
                self._flush()
            case _:
                super().handle_info(message)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            send_after(self._window, self.pid, _FLUSH)

    def _flush(self) -> None:
        self._armed = False
        table = self._table
        if table.gap:
            table.gap = False
            self._lists = dict.fromkeys(method for method in LIST_CHANGED.values() if method is not None)
            self._resources = {uri: self._resources.get(uri, {}) for uri in table.subscribers}
        lists, self._lists = self._lists, {}
        resources, self._resources = self._resources, {}
        for method in lists:
            said = ChangeAnnouncement(method)
            for pid in table.sessions:
                send(pid, said)
        for uri, extra in resources.items():
            said = ChangeAnnouncement(UPDATED, {**extra, "uri": uri})
            for pid in table.subscribers.get(uri, ()):
                send(pid, said)

    def report_state(self) -> str:
        """How much is in it."""
        return f"{len(self._table.sessions)} sessions, {len(self._table.subscribers)} resources"


def subscriptions_child(
    name: Hashable, table: SubscriptionTable, per_session: int = MAX_PER_SESSION
) -> ChildSpec[Ref[Subscriptions]]:
    """The company's child, under that name. The table goes to every successor."""
    options = Options(mailbox=MAILBOX_LIMIT)
    return child(Subscriptions, table, per_session).but(id="subscriptions", name=name, options=options)


def announce_list_changed(subscriptions: Ref[Subscriptions], table: SubscriptionTable, kind: Kind) -> None:
    """The list of that kind has changed. Never waits; what finds no room leaves a gap."""
    if not subscriptions.cast(Subscriptions.changed, kind):
        table.gap = True


def announce_resource_updated(
    subscriptions: Ref[Subscriptions], table: SubscriptionTable, uri: str, extra: Mapping[str, Any]
) -> None:
    """A resource has changed. Never waits; what finds no room leaves a gap."""
    if not subscriptions.cast(Subscriptions.updated, uri, extra):
        table.gap = True


def announce_gap(subscriptions: Ref[Subscriptions], table: SubscriptionTable) -> None:
    """Something may have changed, and it is unknown what."""
    table.gap = True
    subscriptions.cast(Subscriptions.announce_missed)
