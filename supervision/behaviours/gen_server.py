"""GenServer: a process that keeps state and answers calls, one message at a time; and its base class, shared with GenStatem.

The instance is the state. A client calls methods by reference through a `Ref`; or sends any value, which reaches `handle_call`, `handle_cast` or `handle_info`.
`def` callbacks run at once and must not block; `async def` callbacks run in a worker task, and the server takes no other message until they are done.

Any holder of its `Ref` sends it messages. When it dies, each waiting caller gets the reason at once, links and monitors
fire, and its supervisor decides on a restart.
"""

from __future__ import annotations

from collections import deque
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast, final

from greenroom.supervision.kernel import clock, safe_repr, watchdog
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.errors import ActorError, Quit, StartIgnored
from greenroom.supervision.kernel.process import DOZING, IDLE, INLINE, READY, Behaviour, Process
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    CAST,
    CONTINUE,
    EXEMPT,
    IDLE_TIMEOUT,
    INFO,
    INIT,
    NORMAL,
    SIGNAL,
    STOP,
    SYSTEM,
    TELL,
    TERMINATE,
    TIMEOUT,
    Crash,
    Exit,
    ExitReason,
    MailboxEntry,
    is_orderly,
)
from greenroom.supervision.kernel.reports import CrashReport, Unexpected

from .process_start import start_error
from .refs import CALL_CODE, INLINE_CODE, SPECIAL_RESULTS, Ref
from .replies import ACTIONS, UNSET, Caller, Continue, EventTimeout, Ignore, NoReply, Reject, Reply, Stop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from greenroom.supervision.kernel.process_messages import Pid

    from .process_start import PendingStart


# --- The base of behaviours with callbacks: `init`, `terminate`, stopping, suspending and introspection.
# `terminate` comes before any waiting message, then the pending reply, then the exit. A system message (`introspect`) is no
# event: a suspended server handles it.


DEFERRED: Final = object()
"""The result of `_otp_handle` for an entry that a suspended server has deferred."""
_URGENT: Final = frozenset((SYSTEM, STOP, TERMINATE))


class BadReturn(ActorError):
    """A callback returned a wrong value; the server crashes, as of any bug."""


class CallbackServer(Behaviour):
    """The base of behaviours with callbacks."""

    __slots__ = ("_otp_deferred", "_otp_process")

    _otp_has_terminate: ClassVar[bool] = False  # whether there is a `terminate` to call
    traps_exit: ClassVar[bool] = False
    """Whether the process traps exits from the start, so that `terminate` runs when its supervisor stops it."""
    terminate_grace: ClassVar[float | None] = 5.0
    """How long `terminate` may take after a crash, when no supervisor bounds it."""

    _otp_shown_fields: ClassVar[
        dict[str, str]
    ] = {}  # names that `introspect` shows besides the fields, and their attributes
    _otp_process: Process
    _otp_deferred: deque[MailboxEntry] | None

    # --- callbacks, documented in the behaviours

    def init(self) -> Any:
        """Initialise the server."""

    def terminate(self, reason: ExitReason) -> Any:
        """Clean up."""

    def report_state(self) -> str:
        """The state as one line, for crash reports."""
        return safe_repr.fields(getattr(self, "__dict__", {}))

    # --- for callbacks

    @property
    def process(self) -> Process:
        """The process of this server, for code that builds on the engine."""
        return self._otp_process

    @property
    def pid(self) -> Pid:
        """The address of this process."""
        return self._otp_process.pid

    def ref(self) -> Ref[Any]:
        """A `Ref` of this server."""
        return Ref.of(self._otp_process)

    def report_unexpected(self, kind: str, text: str) -> None:
        """Report an `Unexpected` of this kind: a message without a handler, or a failure without a waiting caller."""
        process = self._otp_process
        process.node.reports.emit(Unexpected(pid=process.pid, label=process.label, kind=kind, message=text))

    # --- entries that all behaviours handle alike

    @classmethod
    @final
    def _otp_begin(cls, process: Process) -> None:
        # `__new__` without `__init__`: the constructor is user code, which has to run later, inside the process's own context and
        # crash boundary, and may already use `self.pid` and `self.ref()`. `_otp_set_up` calls it.
        cls.__new__(cls)._otp_attach(process)

    def _otp_attach(self, process: Process) -> None:
        self._otp_process = process
        self._otp_deferred = None
        process.behaviour = self
        if self.traps_exit:
            process.trap_exit = True

    def _otp_enter_loop(self, process: Process, first: Any) -> None:
        """Become the behaviour of a running process; `first` is the action before any message."""
        raise NotImplementedError

    def _otp_set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        return self.init()

    def _otp_handle_common(self, entry: MailboxEntry) -> object:
        """Handle an entry that is no event: a system message, `terminate`, or a request to stop."""
        kind = entry[0]
        if kind == SYSTEM:
            return entry[1](self)
        if kind == TERMINATE:
            return self.terminate(entry[1])
        if kind == STOP:
            self._otp_stop(entry[1], entry)
        else:
            self._otp_stop(entry[1].reason)
        return None

    def _otp_is_parents_exit(self, entry: MailboxEntry) -> bool:
        message = entry[1]
        if type(message) is not Exit or entry[0] not in (INFO, SIGNAL):
            return False
        process = self._otp_process
        parent = process.parent
        if parent is not None and (message.pid == parent.pid or not parent.is_remote):
            return message.pid == parent.pid
        return message.pid == process.node.root_pid()  # the closing node, also when the parent is on another node

    def _otp_reject_start(self, entry: MailboxEntry, value: object) -> None:
        """Handle a result of `init` with which the server does not start."""
        starting: PendingStart = entry[3]
        process = self._otp_process
        match value:
            case Ignore():
                starting.fail(StartIgnored(f"{process} chose not to run"))
                lifecycle.begin_exit(process, NORMAL)
            case Stop(reason=reason, reply=reply) if reply is UNSET:
                self._otp_fail_start(entry, reason)  # type: ignore[arg-type]
            case _:
                self._otp_end_with_error(entry, BadReturn(f"init returned {safe_repr.short(value)}"))

    def _otp_fail_start(self, entry: MailboxEntry, reason: ExitReason) -> None:
        if not is_orderly(reason):
            self._otp_crashed(reason, entry, "init")
        starting: PendingStart = entry[3]
        starting.fail(start_error(reason, self._otp_process))
        lifecycle.begin_exit(self._otp_process, reason)

    def _otp_end_with_error(self, entry: MailboxEntry, error: BaseException) -> None:
        """End the process because an invocation raised."""
        reason = error.reason if isinstance(error, Quit) else Crash(error)
        kind = entry[0]
        if kind == INIT:
            self._otp_fail_start(entry, reason)
        elif kind == TERMINATE:
            if not is_orderly(reason):
                self._otp_crashed(reason, entry[2], "terminate")
            self._otp_end(entry, reason)
        else:
            self._otp_stop(reason, entry)

    # --- the end

    def _otp_stop(
        self, reason: ExitReason, entry: MailboxEntry | None = None, answer: tuple[Caller[Any], Any] | None = None
    ) -> None:
        """Begin to stop: `terminate` comes next, before any message; then the pending reply; then the exit."""
        process = self._otp_process
        if entry is not None and not is_orderly(reason):
            self._otp_crashed(reason, entry)
        ending = (TERMINATE, reason, entry, answer)
        if not self._otp_has_terminate:
            self._otp_end(ending, reason)
            return
        process.push_front(ending)
        if isinstance(reason, Crash) and self.terminate_grace is not None:
            node = process.node
            node.loop.call_later(self.terminate_grace, lifecycle.begin_exit, process, reason, context=node.context)

    def _otp_end(self, ending: MailboxEntry, reason: ExitReason) -> None:
        if ending[3] is not None:
            caller, value = ending[3]
            caller.reply(value)
        lifecycle.begin_exit(self._otp_process, reason)

    # --- reports

    def _otp_report(self, error: BaseException) -> None:
        self._otp_crashed(Crash(error), None, "task")

    def _otp_crashed(self, reason: ExitReason, entry: MailboxEntry | None, during: str = "handler") -> None:
        self._otp_process.node.reports.emit(make_crash_report(self, reason, entry, during))

    def _otp_summary(self) -> str:
        """The state for crash reports: `report_state`, and what the behaviour adds."""
        return self.report_state()

    # --- suspended

    def _otp_idle_activity(self) -> int:
        """The activity of the process while it is idle and not suspended."""
        return IDLE

    def _otp_defer_if_suspended(self, entry: MailboxEntry) -> bool:
        """Defer an entry if the server is suspended and the entry is not urgent; whether it was deferred."""
        if self._otp_deferred is None or entry[0] in _URGENT or self._otp_is_parents_exit(entry):
            return False
        self._otp_deferred.append(entry)
        self._otp_process.exempt -= entry[0] not in EXEMPT  # the bound counts deferred entries too
        return True

    def _otp_suspend(self) -> None:
        """Defer entries until `_otp_resume`; only urgent ones are still handled."""
        if self._otp_deferred is None:
            self._otp_deferred = deque()
            self._otp_process.idle_activity = DOZING

    def _otp_resume(self) -> None:
        kept, self._otp_deferred = self._otp_deferred, None
        process = self._otp_process
        for entry in reversed(kept or ()):
            process.push_front(entry)
        if process.limit is not None:
            process.exempt = sum(entry[0] in EXEMPT for entry in process.mailbox or ())
        process.idle_activity = self._otp_idle_activity()


watchdog.mark_handler_runner(CallbackServer._otp_set_up.__code__, lambda frame: frame["self"]._otp_process)


# --- The crash report of a server: the message, the caller and the state.


def make_crash_report(
    server: CallbackServer, reason: ExitReason, entry: MailboxEntry | None, during: str
) -> CrashReport:
    """Make the report; `entry` is the entry being handled, None when a task of the server crashed."""
    process = server._otp_process
    try:
        state = server._otp_summary()
    except BaseException as broken:  # noqa: BLE001 - the report must be made whatever a user's report_state does
        state = f"(report_state raised {type(broken).__name__}: {broken})"
    caller: Caller[Any] | None = entry[-1] if entry is not None and entry[0] in (CALL, ASK) else None
    return CrashReport(
        pid=process.pid,
        label=process.label,
        kind=process.kind,
        reason=reason,
        last_message=None if entry is None else safe_repr.message(entry),
        state=state,
        ancestors=tuple(str(ancestor) for ancestor in process.ancestors()),
        during=during,
        client=None if caller is None or caller.process is None else str(caller.process),
        client_stack="" if caller is None else watchdog.caller_lines(caller.awaited_object, CALL_CODE),
    )


# --- The server with calls, casts and messages.


# --- The loop of a server: from a mailbox entry to a callback, and from its result to an action.
# `GenServer` adds the callbacks. The order is OTP's: a `Continue` comes before any message, `terminate` before the reply of
# a call that stops, and the reply before the exit. A system message (`introspect`) is no message: a suspended server handles
# it, and it does not affect the event timer.

_ANSWERABLE: Final = (CALL, ASK, CAST)  # a method may be cast as well as called: then its answer is dropped
_MESSAGES: Final = (INFO, SIGNAL)
_NO_MESSAGE: Final = frozenset((SYSTEM, TIMEOUT))  # a queued timeout is void once another is armed


class _Timer:
    """One arming of the event timer: mailbox entries of an earlier arming are ignored."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        self.handle: asyncio.TimerHandle | None = None


class GenServerLoop(CallbackServer):
    """The engine's side of a GenServer."""

    __slots__ = ("_otp_call", "_otp_timer")

    _otp_methods: ClassVar[dict[Any, Callable[..., Any]]] = {}
    _otp_special: ClassVar[frozenset[type]] = SPECIAL_RESULTS
    _otp_call: Caller[Any] | None
    _otp_timer: _Timer | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._otp_methods = {}

    # --- callbacks, documented in GenServer

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        """Handle a request sent by `ask`."""

    def handle_cast(self, request: Any) -> Any:
        """Handle a request sent by `tell`."""

    def handle_info(self, message: Any) -> Any:
        """Handle any other message."""

    def handle_continue(self, token: Any) -> Any:
        """Handle a `Continue`."""

    # --- entries in

    def _otp_attach(self, process: Process) -> None:
        self._otp_process = process
        self._otp_deferred = self._otp_call = self._otp_timer = None
        process.behaviour = self
        if self.traps_exit:
            process.trap_exit = True

    def _otp_enter_loop(self, process: Process, first: NoReply | None) -> None:
        self._otp_attach(process)
        if first is not None:
            self._otp_apply_next(first)

    def _otp_set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        value = self.init()
        return READY if value is None else value

    def _otp_method(self, method: Any) -> Callable[..., Any]:
        """The function to run for a method reference that is not in `_otp_methods` yet."""
        return find_method(type(self), method)

    def _otp_handle(self, entry: MailboxEntry) -> object:
        kind = entry[0]
        timer = self._otp_timer
        if self._otp_process.idle_activity:
            if self._otp_defer_if_suspended(entry):
                return DEFERRED
            if timer is not None and kind != SYSTEM and (kind != TIMEOUT or entry[2] is timer):
                self._otp_disarm()
        if kind == CAST:
            method = entry[1]
            return (self._otp_methods.get(method) or self._otp_method(method))(self, *entry[2], **entry[3])
        if kind == CALL:
            method = entry[1]
            self._otp_call = entry[4]
            return (self._otp_methods.get(method) or self._otp_method(method))(self, *entry[2], **entry[3])
        if kind in _MESSAGES and (type(entry[1]) is not Exit or not self._otp_is_parents_exit(entry)):
            return self.handle_info(entry[1])
        if kind == ASK:
            self._otp_call = entry[2]
            return self.handle_call(entry[1], entry[2])
        if kind == TELL:
            return self.handle_cast(entry[1])
        if kind == CONTINUE:
            return self.handle_continue(entry[1])
        if kind == TIMEOUT:
            return self.handle_info(entry[1]) if entry[2] is timer else None
        if kind == SYSTEM:
            self._otp_call = entry[2]
        return self._otp_handle_common(entry)

    # --- what callbacks return

    def _otp_on_return(self, entry: MailboxEntry, value: Any) -> None:
        kind = entry[0]
        if value is DEFERRED or (value is None and kind in _MESSAGES):
            return
        if kind == TERMINATE:
            self._otp_end(entry, entry[1])
        elif type(value) in ACTIONS:
            self._otp_apply_actions(entry, value)
        elif kind in (CALL, SYSTEM):
            self._otp_call = None
            entry[-1].reply(value)
        elif kind == CAST:
            pass
        elif kind == INIT:
            self._otp_finish_start(entry, value)
        elif value is not None or kind == ASK:
            self._otp_bad_return(entry, value)

    def _otp_apply_actions(self, entry: MailboxEntry, action: Any) -> None:
        kind = entry[0]
        if kind == INIT:
            self._otp_finish_start(entry, action)
            return
        match action:
            case Reply(value=value) if kind in _ANSWERABLE:
                self._otp_call = None
                if kind != CAST:
                    entry[-1].reply(value)
                self._otp_apply_next(action)
            case NoReply():
                self._otp_call = None
                self._otp_apply_next(action)
            case Stop(reason=reason, reply=reply) if reply is UNSET or kind in _ANSWERABLE:
                self._otp_call = None
                owed = None if reply is UNSET or kind == CAST else (entry[-1], reply)
                self._otp_stop(reason, entry, owed)  # type: ignore[arg-type]
            case _:
                self._otp_bad_return(entry, action)

    def _otp_apply_next(self, action: Reply | NoReply) -> None:
        if action.idle_after is not None:
            self._otp_arm(action.idle_after)
        elif isinstance(action.then, Continue):
            self._otp_process.push_front((CONTINUE, action.then.token))
        elif action.then is not None:
            self._otp_arm_event(action.then)

    def _otp_finish_start(self, entry: MailboxEntry, value: Any) -> None:
        starting: PendingStart = entry[3]
        process = self._otp_process
        match value:
            case None:
                starting.done()
            case Continue(token=token):
                process.push_front((CONTINUE, token))
                starting.done()
            case EventTimeout():
                self._otp_arm_event(value)
                starting.done()
            case NoReply():
                self._otp_apply_next(value)
                starting.done()
            case _:
                self._otp_reject_start(entry, value)

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        kind = entry[0]
        if kind in (CALL, ASK, SYSTEM):
            self._otp_call = None
            if isinstance(error, Reject):
                entry[-1].fail(error.error)
                return
            if kind != ASK and _does_not_fit(error):
                entry[-1].fail(error)
                return
        if kind == CAST and (isinstance(error, Reject) or _does_not_fit(error)):
            self.report_unexpected("cast", safe_repr.message(entry))
            return
        self._otp_end_with_error(entry, error)

    def _otp_bad_return(self, entry: MailboxEntry, value: object) -> None:
        self._otp_call = None
        message = f"a callback returned {safe_repr.short(value)} after {safe_repr.message(entry)}"
        self._otp_stop(Crash(BadReturn(message)), entry)

    def _otp_on_exit(self, reason: ExitReason) -> None:
        if self._otp_timer is not None:
            self._otp_disarm()
        self._otp_deferred = None

    # --- the event timer

    def _otp_arm(self, seconds: float) -> None:
        """Arm the idle timeout. Unlike an event timeout, 0 has no effect when a message is waiting already."""
        if seconds > 0 or all(entry[0] in _NO_MESSAGE for entry in self._otp_process.mailbox or ()):
            self._otp_arm_for(seconds, IDLE_TIMEOUT)

    def _otp_arm_event(self, timeout: EventTimeout) -> None:
        seconds = timeout.seconds
        if seconds is not None:
            now = clock.now(self._otp_process.node.loop) if timeout.absolute else 0.0
            self._otp_arm_for(seconds - now, timeout.message)

    def _otp_arm_for(self, seconds: float, message: object) -> None:
        process = self._otp_process
        timer = self._otp_timer = _Timer()
        process.idle_activity = DOZING
        entry = (TIMEOUT, message, timer)
        if seconds <= 0:
            process.push_front(entry)
            return
        node = process.node
        timer.handle = node.loop.call_later(seconds, process.deliver, entry, context=node.context)

    def _otp_disarm(self) -> None:
        if self._otp_timer is not None and self._otp_timer.handle is not None:
            self._otp_timer.handle.cancel()
        self._otp_timer = None
        self._otp_process.idle_activity = IDLE if self._otp_deferred is None else DOZING

    def _otp_idle_activity(self) -> int:
        return IDLE if self._otp_timer is None else DOZING


def _does_not_fit(error: BaseException) -> bool:
    """Whether a call failed because its arguments do not fit the method, which is the caller's error alone."""
    # Python raises the same TypeError for a wrong call inside the method. The innermost frame of the traceback tells them apart:
    # when the arguments do not fit, the method's own frame never began. Binding `inspect.signature` first would cost each call
    # several microseconds.
    trace = error.__traceback__
    if not isinstance(error, TypeError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code in _CALLING_CODE


_CALLING_CODE = (GenServerLoop._otp_handle.__code__, Process.drain.__code__, CALL_CODE, INLINE_CODE)
watchdog.mark_handler_runner(GenServerLoop._otp_set_up.__code__, lambda frame: frame["self"]._otp_process)


__all__ = ["BadReturn", "CallbackResult", "GenServer", "InitResult"]

CallbackResult = Reply | NoReply | Stop
InitResult = Continue | EventTimeout | NoReply | Ignore | Stop


class GenServer(GenServerLoop):
    """Derive from it; ``await start(Counter, 2)`` makes a process of it.

    The constructor and `init` run in the new process. An error of either is raised from `start` as `StartFailed`.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._otp_has_terminate = cls.terminate is not GenServer.terminate

    # --- callbacks

    def init(self) -> InitResult | Awaitable[InitResult | None] | None:
        """Initialise the server; `start` returns when this does.

        Return None, `Continue(token)` to go on in `handle_continue` before any message, `NoReply(idle_after=…)` or
        `EventTimeout(…)` to be woken, `IGNORE` not to run, or `Stop(reason)`.
        """
        return None

    def handle_call(self, request: Any, caller: Caller[Any]) -> CallbackResult | Awaitable[CallbackResult]:
        """Handle a request sent by `ask`. Return `Reply(value)`, `NoReply()` to answer through `caller` later, or `Stop(…)`."""
        message = f"{type(self).__name__} answers no ask(): {safe_repr.short(request)}; call one of its methods instead"
        raise Reject(TypeError(message))

    def handle_cast(self, request: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Handle a request sent by `tell`."""
        self.report_unexpected("cast", safe_repr.short(request))
        return None

    def handle_info(self, message: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Handle any other message: `Down`, `Exit`, `Timeout`, and those of timers and plain `send`."""
        self.report_unexpected("message", safe_repr.short(message))
        return None

    def handle_continue(self, token: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Handle the `Continue(token)` that a callback returned, before any message."""
        message = f"{type(self).__name__} asked to continue with {token!r} but has no handle_continue"
        raise BadReturn(message)

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """Clean up before the exit. Not called when the server is killed, or dies of an untrapped signal."""

    # --- for callbacks

    @property
    def caller(self) -> Caller[Any]:
        """The caller of the current call. Keep it and return `later()` to answer it later."""
        call = self._otp_call
        if call is None:
            process = self._otp_process
            if process.activity != INLINE:
                message = "there is no caller: the current message is not a call"
                raise ActorError(message)
            call = self._otp_call = Caller(process.node, process, process.inline_caller)
        return call


# --- Method references: from the method that a client names to the function of the server.


def find_method(cls: type[GenServerLoop], method: Any) -> Callable[..., Any]:
    """The most derived override of `method`, cached in the class; a plain function is returned as it is.

    For anything else a function that rejects the call, so that the caller gets the error and the server goes on.
    """
    name = getattr(method, "__name__", None)
    if name is not None and any(vars(base).get(name) is method for base in cls.__mro__):
        function: Callable[..., Any] = getattr(cls, name)
        cls._otp_methods[method] = function
        return function
    if isinstance(method, MethodType) and any(vars(base).get(name or "") is method.__func__ for base in cls.__mro__):
        return _rejecting(f"{method.__qualname__} is bound to an instance: write {cls.__name__}.{name}")
    owner = getattr(method, "__qualname__", "").rpartition(".")[0]
    if isinstance(method, FunctionType) and owner and not owner.endswith(">"):
        return _rejecting(f"{method.__qualname__} is not a method of {cls.__name__}")
    if not callable(method):
        return _rejecting(f"{method!r} is not a method of {cls.__name__}: write {cls.__name__}.name_of_the_method")
    return cast("Callable[..., Any]", method)


def _rejecting(message: str) -> Callable[..., Any]:
    def refuse(_server: object, *_args: Any, **_kwargs: Any) -> None:
        raise Reject(TypeError(message))

    return refuse
