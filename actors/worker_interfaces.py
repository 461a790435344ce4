"""The messages between a session and its workers: the job, its cancellation flag, its reply or error, and the server's hooks.

A worker sends `JobReply` or `JobError` once. A worker that dies without either has crashed, and the session replies
for it. The key is the session's own number for the call, never the peer's id.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from greenroom.errors import suggests
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.errors import McpError, RequestCancelled
from greenroom.supervision import current_node, current_process, exit, kill, link, safe_repr

from .settings import BadSetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.event_types import Outcome
    from greenroom.protocol.dialect import Dialect
    from greenroom.protocol.input_required import InputRequired, RecordedAnswer, RecordedAnswers
    from greenroom.protocol.wire_shapes import LogLevel
    from greenroom.supervision import Pid, Ref, Shutdown, Threads
    from greenroom.transports.interfaces import Peer

    from .bulkheads import Bulkheads
    from .call_events import ObservedCall
    from .catalogue import Catalogue, CatalogueRef, Kind
    from .context import Context
    from .settings import Settings


MethodHandler: TypeAlias = "Callable[[Job, Context], Awaitable[dict[str, Any]]]"
"""Answers a request with the whole result, in its wire form."""

AroundHook: TypeAlias = "Callable[[str, Context, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]"
"""Runs around each answer, with the method, the context, and a function to await for the result."""


class IsolatedRunner(Protocol):
    """Runs handlers in processes of their own."""

    async def run(self, job: Job, entry: Any) -> dict[str, Any]:
        """The result of a job whose entry has a pool. Raises the error that the peer gets instead."""
        ...


class WorkerServices(Protocol):
    """The parts of a company that a worker uses."""

    @property
    def settings(self) -> Settings:
        """The company's settings."""
        ...

    @property
    def catalogue_ref(self) -> CatalogueRef:
        """The reference to the current catalogue."""
        ...

    @property
    def bulkheads(self) -> Bulkheads:
        """The limits on threads."""
        ...

    @property
    def pools(self) -> IsolatedRunner:
        """The pools, which run handlers in processes of their own."""
        ...

    @property
    def method_handlers(self) -> Mapping[str, MethodHandler]:
        """The server's own code for methods that it answers instead of the catalogue."""
        ...

    @property
    def around(self) -> AroundHook | None:
        """The hook around every answer, if there is one."""
        ...

    def expect_elicitations(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """Note that a peer is about to get these URL elicitations, on behalf of a call, so that it can be told when its user is done."""

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """Announce a changed resource to the sessions that subscribed to it."""

    def list_changed(self, kind: Kind) -> None:
        """Announce a changed list to all sessions."""

    def completed(self, elicitation_id: str) -> bool:
        """Report that a user is done with a page. Returns whether a client may be told."""
        ...


_company_of_calls: Final[ContextVar[WorkerServices | None]] = ContextVar("greenroom_home", default=None)
# The server object that a worker process has imported runs nowhere, so what a handler announces through it goes to
# the company whose call is running.


def set_company_of_calls(services: WorkerServices) -> None:
    """In a worker process: the code of this context, also in threads that it is handed to, runs for a call of that company."""
    _company_of_calls.set(services)


def company_of_call() -> WorkerServices | None:
    """The company of the running call, as a worker process reaches it; None outside of a worker's calls."""
    return _company_of_calls.get()


class PeerChannel(Protocol):
    """The messages that a handler may send to the peer, through the session of its call. Safe to use from any thread."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification on the call's own stream. False when the peer will not get it."""
        ...

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        ...

    def touch(self, ahead: float = 0.0) -> None:
        """Restart the call's `call_timeout`, `ahead` seconds from now, for a report that is not sent to the peer."""
        ...

    async def ask(
        self, method: str, params: Mapping[str, Any], timeout: float | None, key: str | None = None
    ) -> dict[str, Any]:
        """Send a request to the peer and wait for its result.

        Raises `McpError` (what the peer answered, or that it has not declared the capability) and `CallTimeout`.
        """
        ...

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream and ask the peer to reconnect after so many seconds. The call goes on."""
        ...


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts about a session that a handler may read."""

    session_id: str = field(repr=False)
    version: str
    peer: Peer
    client_info: Mapping[str, Any]
    client_capabilities: Mapping[str, Any]
    state: Any = None
    """The result of the server's `init` hook for this session."""
    log_level: LogLevel | None = None
    """The lowest level of log messages that a request of the stateless era asks for; None for no messages. A session has its level elsewhere."""

    @property
    def dialect(self) -> Dialect:
        """The rules of the revision."""
        return dialect_of(self.version)


@dataclass(slots=True)
class Job:
    """One request for a worker: what to run, for which peer, and where the reply goes."""

    key: int
    session: Ref[Any]
    request_id: str | int
    method: str
    params: Mapping[str, Any]
    facts: SessionFacts
    peer_channel: PeerChannel
    cancelled: Cancellation
    services: WorkerServices
    task: str | None = None
    """The id of the task that this job belongs to. Then `session` is the task's process."""
    catalogue: Catalogue | None = None
    """The catalogue in which the peer's scopes were checked. A newer one is checked again."""
    task_starter: TaskStarter | None = None
    """Makes the call a task when its handler asks for that; None if it cannot become one."""
    input: RoundInput | None = None
    """The answers that came with the request, and how the call ends with questions; None where the client is asked while the call goes on."""
    observed: ObservedCall | None = None
    """The call that the job works for; None while nothing hears of calls."""

    @property
    def call(self) -> int:
        """The number of the call in events; 0 while nothing listens to them."""
        return 0 if self.observed is None else self.observed.number


class RoundInput(Protocol):
    """What a request of the stateless era brings from an earlier round of its call, and the way to the next round."""

    @property
    def responses(self) -> Mapping[str, dict[str, Any]] | None:
        """The responses in this request, by the keys of their questions."""
        ...

    @property
    def recorded(self) -> list[RecordedAnswer] | None:
        """The answers of earlier rounds; None when they were too many to keep."""
        ...

    @property
    def state(self) -> Any:
        """The author's value in the request's state."""
        ...

    def asking_result(self, required: InputRequired, answers: RecordedAnswers) -> dict[str, Any]:
        """The result that ends the call with questions. `answers` are those that were read. Raises `McpError`, and `LocalProtocolError`."""
        ...


class TaskStarter(Protocol):
    """Makes a running call a task."""

    async def start(self, job: Job, worker: Pid) -> PeerChannel | None:
        """Have a task take the job over from its call, which is answered with the task. Raises `McpError`: then the call goes on.

        Returns the peer channel of the task; None if the call stays one.
        """


class CallBecameTask(NamedTuple):
    """The call is answered with this result, and its worker works for a task from now on."""

    key: int
    result: dict[str, Any]


class JobReply(NamedTuple):
    """A job has its result.

    `body` is the whole encoded response: a result that cannot be encoded crashes its worker, not the session.
    """

    key: int
    body: bytes
    outcome: Outcome = "result"


class JobError(NamedTuple):
    """A job has ended in a JSON-RPC error."""

    key: int
    error: McpError
    outcome: Outcome = "error"


class JobAsks(NamedTuple):
    """A job in another process has ended with questions, which its own process asks."""

    key: int
    required: InputRequired


class EncodedResult(dict[str, Any]):
    """A result that another process has encoded already. The dict is empty; `body` is the whole response."""

    __slots__ = ("body", "outcome")

    def __init__(self, body: bytes, outcome: Outcome) -> None:
        super().__init__()
        self.body = body
        self.outcome: Outcome = outcome


class RemoteCrash(Exception):
    """A handler has crashed in a pool's process, which has made the reply. The cause is the handler's exception."""

    def __init__(self, ending: JobReply | JobError, error: Exception) -> None:
        """`ending` is sent to the session."""
        super().__init__(ending, error)
        self.ending = ending
        self.error = error


@cache
def request_observer() -> Callable[..., ObservedCall]:
    """`call_events.observe_request`. Only a program in which something hears of calls loads the module; an import for each call would cost it 2 us."""
    from .call_events import observe_request  # noqa: PLC0415 - see above

    return observe_request


# --- The cancellation flag of a call: set once, readable from any thread.
# The session owns it, and sets it when the peer cancels, when a deadline is over, or when the session ends. Code in
# the loop is also cancelled, some time later; for a thread this flag is all there is. It has a reason, and is never
# cleared.


_logger = logging.getLogger(__name__)
# One lock for all flags: it is held for a moment when a task or thread begins to wait and when a call is cancelled,
# which is rare. A lock for each would cost every call one.
_lock = threading.Lock()


class Cancellation:
    """Whether a call is cancelled, and why. Any thread may use it; `wait` works in any event loop."""

    __slots__ = ("_waiting", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._waiting: list[Callable[[], object]] | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def __repr__(self) -> str:
        return f"<Cancellation {'not cancelled' if self.reason is None else self.reason or 'cancelled'}>"

    def is_set(self) -> bool:
        """Whether the call is cancelled."""
        return self.reason is not None

    def set(self, reason: str = "") -> None:
        """Cancel the call. The first reason stays."""
        with _lock:
            if self.reason is not None:
                return
            self.reason = reason
            waiting, self._waiting = self._waiting, None
        for wake in waiting or ():
            try:
                wake()
            except Exception:
                # The canceller is a session, which must not die of another's callback.
                _logger.exception("a callback of a cancelled call failed")

    def raise_if_set(self) -> None:
        """Raise `RequestCancelled` if the call is cancelled."""
        if self.reason is not None:
            raise RequestCancelled(self.reason)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Call `wake` once, in the canceller's thread, or now if the call is cancelled already.

        Returns a function that unsubscribes it.
        """
        with _lock:
            if self.reason is None:
                if self._waiting is None:
                    self._waiting = []
                self._waiting.append(wake)
                return lambda: self._forget(wake)
        wake()
        return _no_op

    def _forget(self, wake: Callable[[], object]) -> None:
        with _lock:
            if self._waiting is not None and wake in self._waiting:
                self._waiting.remove(wake)

    async def wait(self) -> str:
        """Wait until the call is cancelled. Returns the reason."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(_set_done, over)
            except RuntimeError:
                return  # the loop is closed, so no task waits in it

        forget = self.subscribe(wake)
        try:
            await over
        finally:
            forget()
        return self.reason or ""

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Block this thread until the call is cancelled, at most so many seconds.

        Whether it is. Threads use it instead of `sleep`.
        """
        over = threading.Event()
        forget = self.subscribe(over.set)
        try:
            return over.wait(timeout)
        finally:
            forget()


def end_worker(worker: Pid, reason: Shutdown, grace: float, *, notice: float = 0.0) -> None:
    """End the worker of a finished call.

    It gets an exit signal after `notice` seconds, in which it may see its flag, and a kill `grace` seconds later.
    """
    # Timers of the loop, in the node's context, and not of the calling process: the caller may be gone before they fire.
    node = current_node()

    def end(act: Callable[[Pid], object]) -> None:
        if node.running:  # else the node has ended all of its processes
            act(worker)

    def tell(worker: Pid) -> None:
        exit(worker, reason)

    if notice > 0:
        node.loop.call_later(notice, end, tell, context=node.context)
    else:
        exit(worker, reason)
    node.loop.call_later(notice + grace, end, kill, context=node.context)


def _set_done(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _no_op() -> None:
    """The callback was called already, so there is nothing to unsubscribe."""


# --- The server's hooks: code that runs for a session, not for a call.
# Each runs in a worker of its own, as a tool does, so it may take long, fail or exit while the session stays
# responsive. A plain function runs in a thread.


@suggests("Hooks")
@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of a server. Each may be an `async def` or a plain function."""

    init: Callable[[Any], Any] | None = None
    """``init(facts)`` makes the state of a new session (`ctx.state`). If it raises, there is no session.

    `facts` are `session_id`, `version` (the revision), `client_info`, `client_capabilities`, and `peer`, with its `transport`, `address`, `auth` and `principal`.
    """
    roots_changed: Callable[[Any, Any], Any] | None = None
    """``roots_changed(params, facts)``: the peer's roots have changed."""
    level: Callable[[str, Any], Any] | None = None
    """``level(level, facts)``: the peer asks for another log level. If the hook raises, the level stays."""
    answers: Mapping[str, MethodHandler] = field(default_factory=dict[str, "MethodHandler"])
    """Code that answers a method instead of the catalogue, in a worker. Each gets the job and its context."""
    around: AroundHook | None = None
    """``await around(method, ctx, proceed)`` runs around every call, read, prompt and completion, in its worker.

    It awaits `proceed()` for the result, and returns that one or another, or raises as a tool may. Lists and pings
    run no code and do not pass through it.
    """

    def __post_init__(self) -> None:
        if self.around is not None and not _is_async(self.around):
            raise BadSetting("around", self.around, "an `async def` of the method, the context, and what to await")
        for name, taken in _HOOK_PARAMETERS.items():
            function = getattr(self, name)
            if function is not None and not accepts_arguments(function, len(taken)):
                raise BadSetting(name, function, f"a function of {len(taken)} ({', '.join(taken)}), or None")


_HOOK_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "init": ("facts",),
    "roots_changed": ("params", "facts"),
    "level": ("level", "facts"),
    "around": ("method", "ctx", "proceed"),
}
"""The arguments that each hook gets."""


def accepts_arguments(function: object, count: int) -> bool:
    """Whether the function can be called with `count` arguments, as far as its signature tells."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a C function without a signature
        return True
    return True


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - which kind it is


class HookReturned(NamedTuple):
    """A hook has returned this value."""

    key: int
    value: Any


async def run_hook(
    session: Ref[Any], key: int | None, threads: Threads, function: Callable[..., Any], *args: Any
) -> None:
    """Run a hook in the calling worker. With a `key`, its result or error goes to the session."""
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(*args)
        else:
            value = await threads.run(function, *args)
            if inspect.isawaitable(value):
                value = await value
    except McpError as error:
        if key is not None:
            session.send(JobError(key, error))
        return
    if key is not None:
        session.send(HookReturned(key, value))


class HookDone(NamedTuple):
    """A notified hook has ended."""


async def run_notified_hook(session: Ref[Any], threads: Threads, function: Callable[..., Any], *args: Any) -> None:
    """Run a hook whose result is not used, and tell the session when it has ended, however it ended."""
    link(session)
    try:
        await run_hook(session, None, threads, function, *args)
    finally:
        session.send(HookDone())


_SHORT_NAME: Final = 30
_SMALL_ID: Final = 10**9


async def run_job(work: Callable[[Job], Any], job: Job) -> None:
    """Run a job in the calling worker. The process's label, which trees and reports show, names the request.

    A session ends the workers of its calls with itself. A task's process is linked to its worker instead.
    """
    current_process("run a job").label = _label(job)
    if job.task is not None:
        link(job.session)
    if not job.cancelled:
        await work(job)


def _label(job: Job) -> str:
    about, id = job.params.get("name") or job.params.get("uri"), job.request_id
    if (
        type(about) is str and len(about) < _SHORT_NAME and type(id) is int and -_SMALL_ID < id < _SMALL_ID
    ):  # nearly all requests: `safe_repr` costs more, and these need no shortening
        return f"{job.method} {about!r} (request {id})"
    what = f"{job.method} {safe_repr.short(about)}" if isinstance(about, str) else job.method
    return f"{what} (request {safe_repr.short(id)})"  # the id leads from a peer's complaint to the report
