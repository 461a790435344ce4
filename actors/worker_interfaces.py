"""What a session and its workers say to each other: the job, whether it is still wanted, the two ways to end, and the server's own hooks.

A worker ends by sending `JobReply` or `JobError`; one that dies without either has crashed, and the session answers for it. The key is the
session's own number for the call, never the peer's id.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from greenroom.errors import suggests
from greenroom.protocol.errors import McpError, RequestCancelled
from greenroom.supervision import current_node, current_process, exit, kill, link, safe_repr

from .settings import BadSetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.supervision import Pid, Ref, Shutdown, Threads
    from greenroom.transports.interfaces import Peer

    from .bulkheads import Bulkheads
    from .catalogue import Catalogue, CatalogueRef, Kind
    from .context import Context
    from .settings import Settings


MethodHandler: TypeAlias = "Callable[[Job, Context], Awaitable[dict[str, Any]]]"
"""Answers a request with the whole result, as the wire has it."""

AroundHook: TypeAlias = "Callable[[str, Context, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]"
"""Stands around whatever answers: it gets the method, the context, and what to await for the result."""


class IsolatedRunner(Protocol):
    """An owner of processes that run handlers."""

    async def run(self, job: Job, entry: Any) -> dict[str, Any]:
        """The result of a job whose entry has a pool. Raises what the peer is to be told instead."""
        ...


class WorkerServices(Protocol):
    """What of the company a worker needs."""

    @property
    def settings(self) -> Settings:
        """How the company was set up."""
        ...

    @property
    def catalogue_ref(self) -> CatalogueRef:
        """Where the current catalogue stands."""
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
    def own(self) -> Mapping[str, MethodHandler]:
        """By method: what the server answers by code of its own, instead of from the catalogue."""
        ...

    @property
    def around(self) -> AroundHook | None:
        """What stands around all of that, if anything does."""
        ...

    def expect_elicitations(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """A peer is about to hear of these pages, on behalf of a call, and wants to know when its user has done with them."""

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed: tell the sessions that subscribed to it."""

    def list_changed(self, kind: Kind) -> None:
        """What is offered has changed."""

    def completed(self, elicitation_id: str) -> bool:
        """A user has done with the page that they were sent to. Returns whether a client may be told."""
        ...


_company_of_calls: Final[ContextVar[WorkerServices | None]] = ContextVar("greenroom_home", default=None)
# The server that a worker process has imported runs nowhere: what a handler says by it goes to the company whose call this is.


def set_company_of_calls(services: WorkerServices) -> None:
    """In a worker: from now on the code that runs in this context, and in threads that it is handed to, is of a call of that company."""
    _company_of_calls.set(services)


def company_of_call() -> WorkerServices | None:
    """The company to be told, as a worker reaches it; None outside of a worker's calls."""
    return _company_of_calls.get()


class PeerChannel(Protocol):
    """What a handler may say to the peer, through the session that its call belongs to. Safe to use from any thread."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification on the call's own stream. False when the peer will not get it."""
        ...

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        ...

    def touch(self, ahead: float = 0.0) -> None:
        """Begin the call's time of silence anew, `ahead` seconds from now: its handler has reported something that is not sent."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a request to the peer and wait for its result.

        Raises `McpError` (what the peer answered, or that it has not declared the capability) and `CallTimeout`.
        """
        ...

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream for now, asking the peer to come back after so many seconds; the call goes on."""
        ...


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a handler may know about the session that its call came through."""

    session_id: str = field(repr=False)
    version: str
    peer: Peer
    client_info: Mapping[str, Any]
    client_capabilities: Mapping[str, Any]
    state: Any = None
    """What the server's own `init` returned for this session."""


@dataclass(slots=True)
class Job:
    """One piece of user code to run for a peer."""

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
    """The task that this is the work of; then `session` is the process that keeps the task."""
    catalogue: Catalogue | None = None
    """The one in which the scopes of its peer were looked up; another one asks again."""


class JobReply(NamedTuple):
    """The work is done. `body` is the whole encoded response: what cannot be encoded has crashed its worker, not the session."""

    key: int
    body: bytes


class JobError(NamedTuple):
    """The work has ended in a JSON-RPC error."""

    key: int
    error: McpError


class EncodedResult(dict[str, Any]):
    """A result that has been fitted and encoded in another process: the whole response, and nothing to look at."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        """As it is sent."""
        super().__init__()
        self.body = body


class RemoteCrash(Exception):
    """A handler has crashed in a process of its own, which has worded the answer; the cause is what it raised."""

    def __init__(self, ending: JobReply | JobError, error: Exception) -> None:
        """`ending` is what the peer is told."""
        super().__init__(ending, error)
        self.ending = ending
        self.error = error


# --- Whether a call is still wanted: a flag that is raised once, and that user code may look at from any thread.
# The session owns it, and raises it when the peer cancels, when a deadline is over or when the session ends. Code in the loop is
# cancelled besides, some time later; for a thread this flag is all there is. It says why, and is never taken down.


_logger = logging.getLogger(__name__)
# One for all: it is held for a moment when a task or thread begins to wait and when a call is cancelled, which is seldom.
_lock = threading.Lock()


class Cancellation:
    """Whether a call has been cancelled, and why. Any thread may use it; `wait` is for event loops, any of them."""

    __slots__ = ("_waiting", "reason")

    def __init__(self) -> None:
        """Not yet."""
        self.reason: str | None = None
        self._waiting: list[Callable[[], object]] | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def __repr__(self) -> str:
        return f"<Cancellation {'not cancelled' if self.reason is None else self.reason or 'cancelled'}>"

    def is_set(self) -> bool:
        """Whether it has been cancelled."""
        return self.reason is not None

    def set(self, reason: str = "") -> None:
        """Cancel: the result is not wanted any more. The first reason stays."""
        with _lock:
            if self.reason is not None:
                return
            self.reason = reason
            waiting, self._waiting = self._waiting, None
        for wake in waiting or ():
            try:
                wake()
            except Exception:
                # The canceller is a session, and must not die of a callback that is not its own.
                _logger.exception("a callback of a cancelled call failed")

    def raise_if_set(self) -> None:
        """Raise `RequestCancelled` when it is."""
        if self.reason is not None:
            raise RequestCancelled(self.reason)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have `wake` called once, by the canceller and in its thread, or now. Returns a function that takes that back."""
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
        """Wait until it is cancelled; returns why."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(_set_done, over)
            except RuntimeError:
                return  # that loop is closed, and no task waits in it

        forget = self.subscribe(wake)
        try:
            await over
        finally:
            forget()
        return self.reason or ""

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Block this thread until it is cancelled, at most so many seconds: what a thread sleeps with. Whether it is."""
        over = threading.Event()
        forget = self.subscribe(over.set)
        try:
            return over.wait(timeout)
        finally:
            forget()


def end_worker(worker: Pid, reason: Shutdown, grace: float, *, notice: float = 0.0) -> None:
    """End the worker of a call that is over, by an exit signal after `notice`, in which it may see its flag; `grace` later it is killed."""
    node = current_node()

    def end(act: Callable[[Pid], object]) -> None:
        if node.running:  # else it has ended all of its processes
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
    """There is nothing to take back."""


# --- The server's own code that runs for a session and not for a call: its `init`, and what it wants to hear of.
# Each runs in a worker of its own, as a tool does: it may take its time, fail or exit, and the session stays responsive. A plain function runs in
# a thread.


@suggests("Hooks")
@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a server wants to be called for. Each may be an `async def` or a plain function."""

    init: Callable[[Any], Any] | None = None
    """``init(facts)`` makes the state of a new session (`ctx.state`). If it raises, there is no session.

    `facts` are `session_id`, `version` (the revision), `client_info`, `client_capabilities`, and `peer`, with its `transport`, `address`, `auth` and `principal`.
    """
    roots_changed: Callable[[Any, Any], Any] | None = None
    """``roots_changed(params, facts)``: the peer's roots are others now."""
    level: Callable[[str, Any], Any] | None = None
    """``level(level, facts)``: the peer wants another log level; if it raises, the level stays."""
    answers: Mapping[str, MethodHandler] = field(default_factory=dict[str, "MethodHandler"])
    """By method: code that answers instead of the catalogue, in a worker as any other. Each gets the job and its context."""
    around: AroundHook | None = None
    """``await around(method, ctx, proceed)`` stands around every call, read, prompt and completion, in its worker: it awaits `proceed()` for the
    result, and returns that one or another; or raises, as a tool may. Lists and pings need no code, and do not come by."""

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
"""What each is called with."""


def accepts_arguments(function: object, count: int) -> bool:
    """Whether it can be called with so many things, as far as Python knows."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # one that is written in C does not say
        return True
    return True


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - which kind it is


class HookReturned(NamedTuple):
    """A hook to its session: this came of it."""

    key: int
    value: Any


async def run_hook(
    session: Ref[Any], key: int | None, threads: Threads, function: Callable[..., Any], *args: Any
) -> None:
    """Run it in the calling worker; the session hears what came of it if it waits for that (`key`)."""
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
    """A hook to its session: it has done with what the peer told it."""


async def run_notified_hook(session: Ref[Any], threads: Threads, function: Callable[..., Any], *args: Any) -> None:
    """Run a hook that nothing comes of; the session hears when it is over, whatever it was."""
    link(session)
    try:
        await run_hook(session, None, threads, function, *args)
    finally:
        session.send(HookDone())


_SHORT_NAME: Final = 30
_SMALL_ID: Final = 10**9


async def run_job(work: Callable[[Job], Any], job: Job) -> None:
    """Run a piece of a peer's work in the calling worker. Reports and drawings name it by what it does.

    A session ends the workers of its calls with itself; the process that keeps a task is linked to its worker instead.
    """
    current_process("do a peer's work").label = _label(job)
    if job.task is not None:
        link(job.session)
    if not job.cancelled:
        await work(job)


def _label(job: Job) -> str:
    about, id = job.params.get("name") or job.params.get("uri"), job.request_id
    if (
        type(about) is str and len(about) < _SHORT_NAME and type(id) is int and -_SMALL_ID < id < _SMALL_ID
    ):  # as most are
        return f"{job.method} {about!r} (request {id})"
    what = f"{job.method} {safe_repr.short(about)}" if isinstance(about, str) else job.method
    return f"{what} (request {safe_repr.short(id)})"  # by which a crash is found for a peer that complains
