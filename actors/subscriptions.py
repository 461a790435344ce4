"""Subscriptions to changes: sessions join this process, and it tells them what their peers are to be told.

Changes are collected for a moment, so that a hundred registrations are one `list_changed` and a hot resource one `updated`. What
it holds is bounded: by the sessions' subscriptions, so many each, and by its mailbox. A change that found the mailbox full is not
lost in silence: it leaves a gap, and after a gap each session is told of everything that it waits for.

What sessions asked for stands on a `Board` that outlives this process: when it dies, its successor goes on with it. A session that
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

PER_SESSION: Final = 1000
"""How many resources one session may subscribe to."""
LONGEST: Final = 8 * 1024
"""How many characters the URI of such a resource may have."""
OF_ALL: Final = 256 * 1024
"""How many those of one session may have together."""
MAILBOX: Final = 10_000
WINDOW: Final = 0.01
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
class Announced:
    """Sent to a session: tell your peer this, if it may be told."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Board:
    """What sessions asked for. Belongs to the company; only the process writes on it, but for the mark of a gap."""

    __slots__ = ("gap", "readers", "sessions")

    def __init__(self) -> None:
        """No session has joined."""
        self.sessions: dict[Pid, dict[str, None]] = {}
        self.readers: dict[str, dict[Pid, None]] = {}
        self.gap = False

    def forget(self, pid: Pid) -> None:
        """A session is gone."""
        for uri in self.sessions.pop(pid, ()):
            self.leave(pid, uri)

    def leave(self, pid: Pid, uri: str) -> None:
        """It does not want to hear of that any more."""
        readers = self.readers.get(uri)
        if readers is not None:
            readers.pop(pid, None)
            if not readers:
                del self.readers[uri]


class Subscriptions(GenServer):
    """One in each company. `Subscriptions.join` is a session's first word to it; `changed` and `updated` may come from any process."""

    def __init__(self, board: Board, per_session: int = PER_SESSION, window: float = WINDOW) -> None:
        """`board` is what a predecessor left, or an empty one."""
        self._board = board
        self._per_session = per_session
        self._window = window
        self._lists: dict[str, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._monitors: dict[Pid, Monitor] = {}
        self._armed = False

    def init(self) -> None:
        """Monitor the sessions that were there before; changes that came between a predecessor and this process are a gap."""
        for pid in self._board.sessions:
            self._monitors[pid] = monitor(pid)
        if self._board.sessions:
            self._board.gap = True
            self._arm()

    # --- for sessions

    def join(self, pid: Pid) -> None:
        """Tell this session of lists that change, until it dies or leaves."""
        if pid not in self._monitors:
            self._board.sessions.setdefault(pid, {})
            self._monitors[pid] = monitor(pid)

    def leave(self, pid: Pid) -> None:
        """Tell it nothing any more."""
        watched = self._monitors.pop(pid, None)
        if watched is not None:
            demonitor(watched, flush=True)
        self._board.forget(pid)

    def subscribe(self, pid: Pid, uri: str) -> None:
        """Tell this session when that resource is updated. Raises `McpError` when it has too many already."""
        uris = self._board.sessions.get(pid, {})
        if len(uri) > LONGEST:
            raise Reject(McpError(ErrorCode.INVALID_PARAMS, f"A URI to subscribe to may have {LONGEST} characters"))
        if uri not in uris and (len(uris) >= self._per_session or len(uri) + sum(map(len, uris)) > OF_ALL):
            message = f"Too many subscriptions: at most {self._per_session} in a session; unsubscribe from some first"
            raise Reject(McpError(ErrorCode.INVALID_PARAMS, message))
        self.join(pid)
        self._board.sessions[pid][uri] = None
        self._board.readers.setdefault(uri, {})[pid] = None

    def unsubscribe(self, pid: Pid, uri: str) -> None:
        """Not any more. It need not have been."""
        self._board.sessions.get(pid, {}).pop(uri, None)
        self._board.leave(pid, uri)

    def subscriptions(self, pid: Pid) -> list[str]:
        """What this session has subscribed to, in that order."""
        return list(self._board.sessions.get(pid, ()))

    # --- for code that changes something

    def changed(self, kind: Kind) -> None:
        """The list of that kind has changed."""
        method = LIST_CHANGED[kind]
        if method is not None and self._board.sessions:
            self._lists[method] = None
            self._arm()
        self.missed()

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """That resource has changed; of several in a moment, the last one's `extra` is told."""
        if uri in self._board.readers:
            self._resources[uri] = extra
            self._arm()
        self.missed()

    def missed(self) -> None:
        """Tell each session of everything, if something was missed: a change that found the mailbox full came while what passes by here was in it."""
        if self._board.gap:
            self._arm()

    def handle_info(self, message: Any) -> None:
        """A session is gone, or it is time to tell."""
        match message:
            case Down(pid=Pid() as pid):
                self._monitors.pop(pid, None)
                self._board.forget(pid)
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
        board = self._board
        if board.gap:
            board.gap = False
            self._lists = dict.fromkeys(method for method in LIST_CHANGED.values() if method is not None)
            self._resources = {uri: self._resources.get(uri, {}) for uri in board.readers}
        lists, self._lists = self._lists, {}
        resources, self._resources = self._resources, {}
        for method in lists:
            said = Announced(method)
            for pid in board.sessions:
                send(pid, said)
        for uri, extra in resources.items():
            said = Announced(UPDATED, {**extra, "uri": uri})
            for pid in board.readers.get(uri, ()):
                send(pid, said)

    def report_state(self) -> str:
        """How much is in it."""
        return f"{len(self._board.sessions)} sessions, {len(self._board.readers)} resources"


def subscriptions_child(name: Hashable, board: Board, per_session: int = PER_SESSION) -> ChildSpec[Ref[Subscriptions]]:
    """The company's child, under that name. The board goes to every successor."""
    options = Options(mailbox=MAILBOX)
    return child(Subscriptions, board, per_session).but(id="subscriptions", name=name, options=options)


def tell_changed(subscriptions: Ref[Subscriptions], board: Board, kind: Kind) -> None:
    """The list of that kind has changed. Never waits; what finds no room leaves a gap."""
    if not subscriptions.cast(Subscriptions.changed, kind):
        board.gap = True


def tell_updated(subscriptions: Ref[Subscriptions], board: Board, uri: str, extra: Mapping[str, Any]) -> None:
    """A resource has changed. Never waits; what finds no room leaves a gap."""
    if not subscriptions.cast(Subscriptions.updated, uri, extra):
        board.gap = True


def tell_gap(subscriptions: Ref[Subscriptions], board: Board) -> None:
    """Something may have changed, and it is unknown what."""
    board.gap = True
    subscriptions.cast(Subscriptions.missed)
