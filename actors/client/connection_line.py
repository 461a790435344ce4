"""`ConnectionLine`, the handle for requests to one server, and the connection behind it as the child of a supervisor.

::

    line = ConnectionLine("git", settings)
    Supervisor([connection_spec(route, handler, line=line)])
    await line.ready()
    tools = await line.request("tools/list")
    await line.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from contextlib import aclosing
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.process_names import CompanyKey, ProcessName
from greenroom.protocol.serialization import is_array, is_object
from greenroom.supervision import (
    CallTimeout,
    GreenroomError,
    ProcessExited,
    Ref,
    Wakeup,
    child,
    current_node,
    kill,
    wait_down,
)
from greenroom.supervision.event_bus import bus

from .client_handler import ClientHandler
from .era_verdicts import PROCESS_VERDICTS
from .errors import ClientClosed, InitTimeout, NotReady, RequestTimeout, Unavailable
from .followed_tasks import TaskRecords
from .interfaces import Phase, Status
from .notification_readers import NotificationReader, NotificationReaders
from .outgoing_envelope import ToolHeaders
from .pending_requests import PendingRequest
from .request_table import parked
from .response_cache import KEPT_METHODS
from .server_connection import ServerConnection
from .settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from greenroom.event_types import CallWay
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import ChildSpec, Pid, Process
    from greenroom.transports.client.interfaces import ClientWire, Headers, Route

    from .client_events import ClientCall, ClientSession
    from .interfaces import ServerWelcome
    from .response_cache import LineCache, Outcome

_DEFAULT: Final[Any] = ...
LOG_MESSAGE: Final = "notifications/message"
DEFAULT_LEVEL: Final = "info"
"""The level at which a server of ours begins in the handshake era, too."""
_UNSUBSCRIBE_TIMEOUT: Final = 5.0
MOST_NAMES: Final = 1000
"""How many names of one server's tools and prompts can be labels."""
LONGEST_NAME: Final = 256
"""The longest name that can be a label."""


class KnownNames:
    """The tools and prompts that a server has announced, or has answered for. Their number is bounded, and none is forgotten: the bound is the one of labels."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()

    def __contains__(self, name: tuple[str, str]) -> bool:
        return name in self._names

    def add(self, method: str, name: str) -> None:
        """Add what is called by this method, under this name."""
        if len(self._names) < MOST_NAMES and len(name) <= LONGEST_NAME:
            self._names.add((method, name))

    def learn(self, method: str, entries: object) -> None:
        """Add the entries of a list, as the server has sent it."""
        for entry in entries if is_array(entries) else ():
            name = entry.get("name") if is_object(entry) else None
            if isinstance(name, str):
                self.add(method, name)


class ConnectionLine:
    """The handle for requests to one server, and the state that outlives the connection's process.

    The connection writes it, in the event loop; callers read it.
    """

    def __init__(self, name: str, settings: ClientSettings | None = None, *, patience: float | None = None) -> None:
        """`name` is the server's name in this program.

        `patience` bounds how long a request waits for the server to be ready; once an attempt has failed, requests are refused at once.
        Without it each request waits until its own deadline.
        """
        self.name = name
        self.settings = settings or ClientSettings()
        self.patience = patience
        self.forgiven_attempts = 0
        """Failed attempts that do not count: after `retry`, requests wait again as for a first start."""
        self.key = ProcessName(CompanyKey.new(name), "connection")
        """The registered name of the connection's process."""
        self.process: Process | None = None
        """The connection's process, while it runs."""
        self.phase = Phase.CONNECTING
        self.cause: Exception | None = None
        self.attempts = 0
        self.retry_at: float | None = None
        """The time of the next attempt, on the loop's clock."""
        self.generation = 0
        self.welcome: ServerWelcome | None = None
        self.ids = count(1)
        self.supervised = False
        """Whether a supervisor restarts the connection when it crashes."""
        self.held: list[PendingRequest] = []
        """Requests that were made while no process ran."""
        self.unread: dict[PendingRequest, None] = {}
        """Requests in the connection's mailbox: kept here too, since the mailbox is gone when the process dies."""
        self.level: str | None = None
        """The log level last set at the server; in the stateless era each request names it."""
        self.handler_wants_logs = False
        self.verdicts = PROCESS_VERDICTS
        """Which revision each endpoint spoke last."""
        self.era: str | None = None
        """The revision that this server spoke last; None where it has to be asked."""
        self.tool_headers = ToolHeaders()
        """Which arguments of listed tools their calls repeat in headers, over HTTP in the stateless era."""
        self.tools_changed: Callable[[], object] | None = None
        """Called as soon as the server announces a changed tool list; a queued notification would arrive after the next call has begun."""
        self.readers = NotificationReaders(self.settings.max_updates)
        self.cache: LineCache | None = None
        """Results that a server of the stateless era lets this client keep."""
        self.tasks = TaskRecords(self.readers)
        """The server's tasks that are followed, or were."""
        self.transport = self.address = self.http_version = ""
        """How the server is reached: `http`, `stdio` or `memory`, and host and port; known once its connection has begun."""
        self.way: CallWay = "client"
        self.host = ""
        """The host or the gateway that it belongs to; empty for a client's own."""
        self.session: ClientSession | None = None
        """The session that listeners of events hear of, while the connection is ready."""
        self.wire: ClientWire | None = None
        """The wire that was opened last."""
        self.known_names = KnownNames()
        """The tools and prompts that the server is known to have, for the labels of calls."""
        self._steady: Status | None = None
        """The status object while the connection is ready. It does not change then, and every call reads it, so it is made once."""
        self._changes = 0
        self._changed = Wakeup()

    def __repr__(self) -> str:
        return f"<ConnectionLine {self.key}, {self.phase.value}>"

    @property
    def pid(self) -> Pid | None:
        """The connection's process, while it runs."""
        return None if self.process is None else self.process.pid

    # --- status

    @property
    def status(self) -> Status:
        """The present status."""
        if self._steady is not None:
            return self._steady
        left = None
        if self.retry_at is not None and self.process is not None:
            left = max(0.0, self.retry_at - self.process.node.loop.time())
        elif self.attempts and self.phase in (Phase.CONNECTING, Phase.INITIALIZING):
            left = 0.0
        return Status(self.phase, self.cause, self.attempts, left, self.generation)

    @property
    def gone(self) -> bool:
        """Whether an attempt has failed since the server was last ready, so that no request waits for it."""
        unready = self.phase in (Phase.BACKOFF, Phase.CONNECTING, Phase.INITIALIZING)
        return unready and self.patience is not None and self.attempts > self.forgiven_attempts

    def move(
        self, phase: Phase, cause: Exception | None = None, attempts: int = 0, retry_at: float | None = None
    ) -> None:
        """Set the phase and its cause, and wake the watchers of the status."""
        self.phase, self.cause, self.attempts, self.retry_at = phase, cause, attempts, retry_at
        if self.session is not None and phase is not Phase.READY:
            session, self.session = self.session, None
            session.close(cause)
        self._steady = Status(phase, cause, attempts, None, self.generation) if phase is Phase.READY else None
        self.forgiven_attempts = min(self.forgiven_attempts, attempts)
        if phase is Phase.CLOSED:
            self.readers.end()
        else:
            self.readers.over = False
        self._changes += 1
        self._changed.wake()

    async def watch(self) -> AsyncGenerator[Status]:
        """The present status, and each one after it; slow readers get the latest."""
        while True:
            seen = self._changes
            yield self.status
            if seen == self._changes:
                await self._changed.wait()

    # --- requests

    def begin(  # noqa: PLR0913 - the options of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
        as_task: bool = False,
        call: ClientCall | None = None,
    ) -> PendingRequest:
        """Send a request. To be called in the event loop of the connection. `call` is the one that it belongs to, if that has begun already."""
        process = self.process
        loop = asyncio.get_running_loop() if process is None else process.node.loop
        if process is not None and threading.get_ident() != process.node.thread:
            process.node.check_thread("begin a request")
        id = next(self.ids)
        pending = PendingRequest(loop, id, method, params)
        seconds = self.settings.request_timeout if timeout is _DEFAULT else timeout
        if seconds is not None and not 0 < seconds < math.inf:
            if seconds != math.inf:
                if bus.listener is not None:
                    pending.call = call or self.start_call(loop, method, params, id)
                pending.settle(None, RequestTimeout(method, seconds))
                return pending
            seconds = None
        if self.cache is not None and method in KEPT_METHODS and self._is_kept(pending, self.cache, loop):
            return pending
        if bus.listener is not None:
            pending.call = call or self.start_call(loop, method, params, id)
        absent = process is None or process.life
        if absent and not (wait and seconds is not None and self._comes_back()):
            pending.settle(None, self._absent())
            return pending
        if not wait:
            pending.waits = False
        if as_task:
            pending.as_task = True
        if idempotent is not None:
            pending.idempotent = idempotent
        if progress or token is not None:
            pending.token = id if token is None else token
            pending.expect_progress(self.settings.max_progress)
        if process is None or process.life:
            pending.begin(current_node(), seconds)
            self.held = [each for each in self.held if not each.settled]
            self.held.append(pending)
            return pending
        pending.begin(process.node, seconds)
        pending.connection = process
        self.unread[pending] = None
        process.send(pending)
        return pending

    def start_call(
        self, loop: asyncio.AbstractEventLoop, method: str, params: Mapping[str, Any] | None, id: int
    ) -> ClientCall:
        """Announce a call to the listeners of events. To be called in its caller's context."""
        from .client_events import ClientCall  # noqa: PLC0415 - only a program with a listener loads the events

        return ClientCall(self.name, self, loop, method, params, id)

    def start_session(self, loop: asyncio.AbstractEventLoop, age: float | None = None) -> ClientSession:
        """Announce to the listeners of events that the connection is ready. With `age` it has been for so long, and nothing is announced."""
        from .client_events import ClientSession  # noqa: PLC0415 - as above

        self.session = session = ClientSession(self, loop, age)
        return session

    def transmit(
        self,
        wire: ClientWire,
        frame: bytes,
        id: RequestId | None = None,
        *,
        ordered: bool = False,
        mirrored: Headers = (),
    ) -> None:
        """Send a frame on a wire of the connection. Raises `WireFull`."""
        wire.send(frame, id, ordered=ordered, mirrored=mirrored)
        if bus.detail_listener is not None:
            from .client_events import report_sent  # noqa: PLC0415 - as above

            report_sent(self, frame)

    def announce_refusal(self, kind: str, setting: str, method: str) -> None:
        """Tell the listeners of events that a bound has refused a request: a word for it, and the name of the setting."""
        if bus.listener is not None:
            from .client_events import announce_refusal  # noqa: PLC0415 - as above

            announce_refusal(self, kind, setting, method)

    @property
    def server_process(self) -> int | None:
        """The operating system's process of a server that is run by a command, while the connection has it."""
        has_it = self.phase in (Phase.INITIALIZING, Phase.READY)
        return getattr(self.wire, "process_id", None) if has_it else None

    def use_cache(self, cache: LineCache) -> None:
        """Keep results in this cache from now on."""
        self.cache = cache
        self.readers.on_gap = cache.forget

    def _is_kept(self, pending: PendingRequest, cache: LineCache, loop: asyncio.AbstractEventLoop) -> bool:
        """Settle the request with a fresh result that is kept. Returns False where there is none; then its outcome goes through the cache."""
        key = cache.key(pending.method, pending.params)
        over = self.phase in (Phase.CLOSING, Phase.CLOSED)
        if key is None or over or (self.welcome is not None and not self.welcome.is_stateless):
            return False
        found = cache.fetch(key) if self.welcome is None else cache.look_up(key, loop.time())
        if isinstance(found, dict):
            if pending.method == "tools/list" and cache.has_headers:
                self.tool_headers.learn(found)  # another line may have fetched the page
            return pending.settle(found)
        fetch = found

        def judge(result: dict[str, Any] | None, error: BaseException | None) -> Outcome:
            hinted = self.welcome is not None and self.welcome.is_stateless
            return cache.settle(fetch, result, error, loop.time()) if hinted else (result, error)

        pending.judge = judge
        return False

    def _comes_back(self) -> bool:
        """Whether the supervisor will restart the process, and there is room for one more held request."""
        ends = self.phase in (Phase.CLOSING, Phase.CLOSED)
        return self.supervised and not ends and len(self.held) < self.settings.max_pending

    def _absent(self) -> Exception:
        if self.cause is not None:
            return Unavailable(self.name, self.cause)
        if self.phase is Phase.CONNECTING:
            return NotReady(
                f"the client of {self.name} is not open: write `async with client:` (`with` for a SyncClient), or start its child_spec()"
            )
        return ClientClosed("the client is closed: use it inside its `async with` block")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self.begin(method, params, timeout=timeout, wait=wait)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification. In the stateless era the news of a session is for no server, and is dropped."""
        try:
            await self._ref().call(ServerConnection.send_notification, method, params)
        except ProcessExited:
            raise self._absent() from None

    @property
    def wanted_level(self) -> str | None:
        """The level that a request of the stateless era names: the one that was set, or a default while log messages are read. None for no messages."""
        if self.level is not None:
            return self.level
        by_method = self.readers.by_method
        wanted = self.handler_wants_logs or (by_method and ("" in by_method or LOG_MESSAGE in by_method))
        return DEFAULT_LEVEL if wanted else None

    async def set_level(self, level: str, *, timeout: float | None = _DEFAULT) -> None:
        """Set the server's log level, now and after each reconnect; in the stateless era it goes with each request."""
        await self.begin("logging/setLevel", {"level": level}, timeout=timeout)
        self.level = level

    async def ready(self, timeout: float | None = _DEFAULT) -> ServerWelcome:
        """Wait until the connection is ready; by default for `init_timeout`."""
        seconds = self.settings.init_timeout if timeout is _DEFAULT else timeout
        try:
            async with asyncio.timeout(seconds), aclosing(self.watch()) as statuses:
                async for status in statuses:
                    if status.phase is Phase.READY:
                        assert self.welcome is not None
                        return self.welcome
                    if status.phase is Phase.PARKED:
                        raise parked(self)
                    if status.phase in (Phase.CLOSED, Phase.CLOSING):
                        raise self._absent()
        except TimeoutError:
            cause = self.cause
            if cause is None:
                raise InitTimeout(f"{self.name} is still {self.phase.value} after {seconds:g} s") from None
            raise Unavailable(self.name, cause, self.status.retry_in) from cause
        raise self._absent()

    # --- notifications

    def subscribe(self, uri: str) -> NotificationReader:
        """Updates of a resource, for as long as the block lasts."""
        readers = self.readers
        turn = readers.locks.setdefault(uri, asyncio.Lock())

        async def enter() -> None:
            async with turn:
                if uri not in readers.granted:
                    await self.request("resources/subscribe", {"uri": uri})
                    readers.granted.add(uri)

        async def leave() -> None:
            async with turn:
                if uri in readers.by_uri or uri not in readers.granted:
                    return
                readers.granted.discard(uri)
                with contextlib.suppress(GreenroomError):  # an unreachable server sends no updates either
                    await self.request("resources/unsubscribe", {"uri": uri}, timeout=_UNSUBSCRIBE_TIMEOUT, wait=False)

        return NotificationReader(readers, uri=uri, enter=enter, leave=leave)

    def listen(self, *methods: str) -> NotificationReader:
        """Notifications of these methods, or of all."""
        return NotificationReader(self.readers, methods, enter=lambda: self.readers.until_heard(methods))

    # --- the connection

    def _ref(self) -> Ref[ServerConnection]:
        process = self.process
        if process is None:
            raise self._absent()
        return Ref.of(process)

    def retry(self) -> None:
        """Leave backoff or parked, and connect now."""
        if self.process is not None and self.phase in (Phase.BACKOFF, Phase.PARKED):
            self.forgiven_attempts = self.attempts
            self.move(
                Phase.CONNECTING, self.cause, self.attempts
            )  # here and not in the process: requests made from now on wait for this attempt
            self._ref().cast(ServerConnection.retry)

    async def close(self, timeout: float | None = _DEFAULT) -> None:
        """Close the connection in order, by default within `close_grace`; then its process is killed."""
        process = self.process
        if process is None:
            self.move(Phase.CLOSED)
            for pending in self.held:
                pending.settle(None, self._absent())
            self.held.clear()
            return
        Ref.of(process).cast(ServerConnection.close)
        try:
            await wait_down(process.pid, self.settings.close_grace + 1.0 if timeout is _DEFAULT else timeout)
        except CallTimeout:
            kill(process.pid)
            await wait_down(process.pid, None)
            self.move(Phase.CLOSED)


def connection_spec(
    route: Route,
    handler: ClientHandler | None = None,
    *,
    line: ConnectionLine,
) -> ChildSpec[Ref[ServerConnection]]:
    """The connection behind `line` as a child of any supervisor. It is restarted when it crashes, and not when it was closed."""
    line.supervised = True
    spec = child(ServerConnection, line, route, handler or ClientHandler())
    return spec.but(id=line.name, restart="transient", shutdown=line.settings.close_grace + 1.0)
