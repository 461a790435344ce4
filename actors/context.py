"""The context of a call (`ctx`): facts about the call and its client, and messages and questions to the client.

It works the same in the loop, in a thread, and in an `isolation="thread"` loop of its own. Notifications (`progress`, `log`, `notify`) are sent at once, and
may be awaited or not. Questions (`sample`, `elicit`, `roots`, `request`) are awaited, in a plain thread through `wait`. After the call, notifications are
no-ops that return False, and questions raise `CallIsOver`.
"""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import CancelledError as FutureCancelled
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

from greenroom.errors import GreenroomError
from greenroom.protocol.extension_ids import declared_extensions
from greenroom.protocol.input_required import RecordedAnswers
from greenroom.protocol.revision_downgrade import downgrade, prepare_params
from greenroom.protocol.serialization import to_jsonable
from greenroom.protocol.wire_shapes import LOG_LEVELS, LogLevel
from greenroom.supervision.event_bus import bus

from .server_questions import Answers, ClientRequester, NotAwaited, returns_question

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping

    from greenroom.supervision import Pid
    from greenroom.transports.interfaces import Peer

    from .call_events import ObservedCall
    from .server_questions import AwaitableQuestion
    from .worker_interfaces import Cancellation, Job, PeerChannel, RoundInput, SessionFacts

T = TypeVar("T")


class CallIsOver(GreenroomError):
    """The call of this context is over, so its client can no longer be asked."""

    def __init__(self, what: str) -> None:
        """`what` is the method that was called."""
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}: the call is over; ask before the handler returns, and keep no context for later"


class SendOutcome:
    """The outcome of sending a notification: true when it was accepted. Awaiting it yields to other tasks, and is optional."""

    __slots__ = ("_accepted",)

    def __init__(self, accepted: bool) -> None:  # noqa: FBT001 - it is this value
        """`accepted` is whether the peer may get it."""
        self._accepted = accepted

    def __bool__(self) -> bool:
        return self._accepted

    def __repr__(self) -> str:
        return f"<SendOutcome {'sent' if self._accepted else 'not sent'}>"

    def __await__(self) -> Generator[None, None, bool]:
        # A bare yield is one turn of the loop, as `asyncio.sleep(0)`: a handler that only reports must not starve others.
        # A coroutine here would warn when it is not awaited, and awaiting is optional.
        yield
        return self._accepted


_SENT: Final = SendOutcome(accepted=True)
_NOT_SENT: Final = SendOutcome(accepted=False)


class Context(ClientRequester):
    """The context of one call. A parameter annotated with it, or called `ctx`, gets it."""

    __slots__ = (
        "_answers",
        "_ask_timeout",
        "_facts",
        "_input",
        "_is_over",
        "_job",
        "_lock",
        "_loop",
        "_peer_channel",
        "_progress",
        "_questions",
        "_task_job",
        "assigns",
        "cancelled",
        "meta",
        "name",
        "observed",
        "params",
        "progress_token",
        "request_id",
        "request_state",
        "uri",
        "variables",
    )

    def __init__(
        self,
        facts: SessionFacts,
        peer_channel: PeerChannel,
        cancelled: Cancellation,
        request_id: str | int | None,
        params: Mapping[str, Any],
        ask_timeout: float | None = None,
    ) -> None:
        """The worker makes it, in the node's loop.

        `ask_timeout` is how long the peer may take unless a question says otherwise.
        """
        self._ask_timeout = ask_timeout
        self._facts = facts
        self._peer_channel = peer_channel
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._is_over = False
        self._questions: list[AwaitableQuestion[Any]] = []
        self._task_job: tuple[Job, Pid, asyncio.Lock] | None = None
        self.observed: ObservedCall | None = None
        self._job: Job | None = None
        self._progress = -math.inf
        self.cancelled = cancelled
        """True once the call is cancelled; `await ctx.cancelled.wait()`, `ctx.cancelled.wait_in_thread(seconds)`."""
        self.request_id = request_id
        self.params = params
        """The request's params, unchanged."""
        meta: Any = params.get("_meta")
        self.meta: Mapping[str, Any] = cast("Mapping[str, Any]", meta) if isinstance(meta, dict) else {}
        token = self.meta.get("progressToken")
        self.progress_token: str | int | None = token if type(token) is str or type(token) is int else None
        self._answers: Answers | None = None
        self._input: RoundInput | None = None
        self.request_state: Any = None
        """The `state` of the `InputRequired` with which this handler ended its earlier run; None in its first one."""
        self.name = ""
        """The registered name of the tool, resource, prompt or completion."""
        self.uri: str | None = None
        """The URI of the resource that is read."""
        self.variables: Mapping[str, str] = {}
        """The variables of a resource template, by name."""
        self.assigns: dict[str, Any] = {}
        """The values kept with `assign`, for this call."""

    def __repr__(self) -> str:
        return f"<Context of {self.name!r}, request {self.request_id!r}{', over' if self._is_over else ''}>"

    # --- facts

    @property
    def session_id(self) -> str:
        """The session's id; empty when there is none."""
        return self._facts.session_id

    @property
    def protocol_version(self) -> str:
        """The agreed revision."""
        return self._facts.version

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The client's name and version, as it says."""
        return self._facts.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """The client's declared capabilities."""
        return self._facts.client_capabilities

    @property
    def client_extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """The extensions of the protocol that the client has declared, with their settings; in the stateless era with this very request."""
        return declared_extensions(self._facts.client_capabilities)

    @property
    def state(self) -> Any:
        """The result of the server's `init` hook for this session."""
        return self._facts.state

    @property
    def auth(self) -> Any:
        """The caller's authentication; None without."""
        return self._facts.peer.auth

    @property
    def principal(self) -> Any:
        """The caller's principal; None without authentication."""
        return self._facts.peer.principal

    @property
    def answers(self) -> Answers:
        """The client's answers to the questions of an `InputRequired`, by question: `ctx.answers.get(question)`."""
        if self._answers is None:
            given = self._input
            self._answers = Answers() if given is None else Answers(given.responses, RecordedAnswers(given.recorded))
        return self._answers

    def set_input(self, given: RoundInput) -> None:
        """Give what the request has brought from an earlier round. The worker calls it."""
        self._input = given
        self.request_state = given.state

    def bring(self, answers: Answers, state: Any) -> None:
        """Give the answers to the questions of this handler's earlier runs, and its state. The worker calls it."""
        self._answers = answers
        self.request_state = state

    @property
    def tool_name(self) -> str:
        """The same as `name`."""
        return self.name

    @property
    def over(self) -> bool:
        """Whether the call has ended."""
        return self._is_over

    def assign(self, key: str, value: Any) -> Context:
        """Keep a value in `assigns`, for code that gets this context later in the same call."""
        self.assigns[key] = value
        return self

    def raise_if_cancelled(self) -> None:
        """Raise `RequestCancelled` if the call is cancelled."""
        self.cancelled.raise_if_set()

    # --- notifications

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> SendOutcome:
        """Report progress. Nothing is sent when the client has not asked for it, or when `done` has not grown.

        Either way the call's time of silence (`call_timeout`) begins anew.
        """
        _check_number(done)
        if total is not None:
            _check_number(total)
        with self._lock:  # two threads: progress must not decrease on the wire
            if self._is_over:
                return _NOT_SENT
            if self.progress_token is None or done <= self._progress:
                self._peer_channel.touch()
                return _NOT_SENT
            params: dict[str, Any] = {"progressToken": self.progress_token, "progress": done}
            if total is not None:
                params["total"] = total
            if message is not None:
                params["message"] = str(message)
            self._progress = done
            return self._outcome(self._emit("notifications/progress", params))

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> SendOutcome:
        """Send a log message to the client, unless the client asked for more severe ones only. `data` is any JSON value.

        Either way the call's time of silence (`call_timeout`) begins anew.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"level is one of {', '.join(get_args(LogLevel))}, not {level!r}")
        return _NOT_SENT if self._is_over else self._outcome(self._peer_channel.log(level, to_jsonable(data), logger))

    def debug(self, data: Any, logger: str | None = None) -> SendOutcome:
        """`log` at this level."""
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> SendOutcome:
        """`log` at this level."""
        return self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> SendOutcome:
        """`log` at this level."""
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> SendOutcome:
        """`log` at this level."""
        return self.log("error", data, logger)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> SendOutcome:
        """Send a notification of any kind, in order with the others of this call."""
        if not str(method).startswith("notifications/"):
            raise ValueError(f'a notification is called "notifications/…", not {method!r}')
        return _NOT_SENT if self._is_over else self._outcome(self._emit(method, to_jsonable(dict(params or {}))))

    def interrupt_stream(self, retry: float | None = None) -> bool:
        """Close the stream of the reply, and ask the client to reconnect for it after so many seconds."""
        return not self._is_over and self._peer_channel.interrupt_stream(retry)

    def _emit(self, method: str, params: dict[str, Any]) -> bool:
        return self._peer_channel.emit(method, downgrade(method, params, self._facts.version))

    @staticmethod
    def _outcome(taken: bool) -> SendOutcome:  # noqa: FBT001 - as above
        return _SENT if taken else _NOT_SENT

    # --- questions

    def note_question(self, question: AwaitableQuestion[Any]) -> None:
        """Remember a question of this call, which has to be awaited before the call ends."""
        self._questions = [*(each for each in self._questions if not each.is_started), question]

    def check_questions_awaited(self, error: BaseException | None = None) -> None:
        """Raise `NotAwaited` for a question that was never awaited; `error` is the exception that followed from it."""
        for each in self._questions:
            if not each.is_started:
                each.close()
                raise NotAwaited(each.what) from error

    @returns_question
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Send any request to the client. Raises `McpError` (its answer, or a capability that it has not declared), or `CallTimeout`.

        Params that no client would accept are refused at once, with `LocalProtocolError`. `timeout` is the company's
        `ask_timeout` unless given; `math.inf` waits for ever.
        """
        if self._is_over:
            raise CallIsOver(method)
        seconds = self._ask_timeout if timeout is None else timeout
        prepared = prepare_params(method, to_jsonable(dict(params or {})), self._facts.version)
        asking = self._peer_channel.ask(method, prepared, None if seconds == math.inf else seconds, key)
        del params, prepared  # the answer may take long: the channel keeps what it needs
        if asyncio.get_running_loop() is self._loop:
            return await asking
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop))

    # --- tasks

    def work_for(self, job: Job) -> None:
        """The code that has this context works for the job. The worker calls it."""
        self._job, self.observed = job, job.observed

    def may_become_task(self, job: Job, worker: Pid) -> None:
        """The call is a task, or can become one. The worker calls it."""
        self._task_job = (job, worker, asyncio.Lock())

    async def start_task(self) -> bool:
        """Make this call a task: the client gets the task's id now and the result later, and later questions are the task's.

        For a tool with `defer_task`. True if the call is a task now, or was one already. False if it stays a call, because the
        client cannot follow tasks. Raises `McpError` when its caller has too many.
        """
        self.cancelled.raise_if_set()
        if self._is_over:
            raise CallIsOver("ctx.start_task()")
        if asyncio.get_running_loop() is self._loop:
            return await self._start_task()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._start_task(), self._loop))

    async def _start_task(self) -> bool:
        if self._task_job is None:
            return False
        job, worker, lock = self._task_job
        async with lock:  # two coroutines of a handler may ask for it at once
            if job.task is None and job.task_starter is not None:
                self._peer_channel = await job.task_starter.start(job, worker) or self._peer_channel
        return job.task is not None

    # --- from threads

    def wait(self, awaitable: Awaitable[T], timeout: float | None = None) -> T:
        """Await something in the node's loop, and block this thread until it is done: for `def` handlers.

        Raises `RequestCancelled` as soon as the call is cancelled, and `TimeoutError` after `timeout` seconds.
        """
        if self._running_loop() is not None:
            _close_coroutine(awaitable)
            raise RuntimeError("ctx.wait() is for threads without an event loop: here, await it")
        if self._is_over or self.cancelled:
            _close_coroutine(awaitable)
            self.cancelled.raise_if_set()
            raise CallIsOver("ctx.wait()")
        future = asyncio.run_coroutine_threadsafe(_await(awaitable), self._loop)
        forget = self.cancelled.subscribe(future.cancel)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise
        except FutureCancelled:
            self.cancelled.raise_if_set()
            raise CallIsOver("ctx.wait()") from None
        finally:
            forget()
            if bus.tracer is not None and self._job is not None:
                bus.tracer.enter(
                    self._job.call
                )  # with an answer the next round may have begun, which is a call of its own

    @staticmethod
    def _running_loop() -> asyncio.AbstractEventLoop | None:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None

    def close(self) -> None:
        """Mark the call as over. The worker calls it."""
        with self._lock:  # a notification that a thread is just sending goes out before the reply
            self._is_over = True


def _check_number(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"progress is a finite number, not {value!r}")


def _close_coroutine(awaitable: object) -> None:
    if asyncio.iscoroutine(awaitable):
        awaitable.close()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


def peer_of(ctx: Context) -> Peer:
    """The peer of the call, as the transport and the authenticator know it: for parts of the company, not for handlers."""
    return ctx._facts.peer  # noqa: SLF001 - its own module
