"""GenServer: a process that keeps state and answers calls, one message at a time.

The instance is the state. A client calls methods by reference through a `Ref`; or sends any value, which reaches
`handle_call`, `handle_cast` or `handle_info`. `def` callbacks run at once and must not block; `async def` callbacks
run in a worker task, and the server takes no other message until they are done.

Who sends it messages: anybody who has its `Ref`. What happens when it dies: whoever waits for it hears why at once,
links and monitors fire, and its supervisor decides.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

from greenroom.supervision.kernel import describe, exits
from greenroom.supervision.kernel.behaviour import Behaviour
from greenroom.supervision.kernel.errors import ActorError, Quit, StartIgnored
from greenroom.supervision.kernel.messages import (
    ASK,
    CALL,
    CAST,
    CONTINUE,
    IDLE_TIMEOUT,
    INFO,
    INIT,
    SIGNAL,
    STOP,
    SYSTEM,
    TELL,
    TERMINATE,
    Entry,
    Exit,
)
from greenroom.supervision.kernel.process import DOZING, IDLE, INLINE, Process
from greenroom.supervision.kernel.reasons import NORMAL, Crash, ExitReason, is_orderly
from greenroom.supervision.kernel.reports import CrashReport, Unexpected

from .actions import ACTIONS, UNSET, Continue, Ignore, NoReply, Reject, Reply, Stop
from .calls import CALL_CODE, SPECIAL, Caller, Ref
from .starting import failed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from greenroom.supervision.kernel.pid import Pid

    from .starting import Starting

Action = Reply | NoReply | Stop


class BadReturn(ActorError):
    """A callback returned what it must not; the server crashes of it, as it would of any bug."""


class GenServer(Behaviour):
    """Derive from it; ``await start(Counter, 2)`` makes a process of it.

    The constructor keeps the arguments, and runs in the new process, as `init` does. Whatever either raises is raised
    from `start` as `StartFailed`.
    """

    __slots__ = ("_call", "_idle", "_process")

    _methods: ClassVar[dict[Any, Callable[..., Any]]] = {}
    _special: ClassVar[frozenset[type]] = SPECIAL
    _terminates: ClassVar[bool] = False
    traps_exit: ClassVar[bool] = False
    """Whether the process traps exits from the start, so that `terminate` runs when its supervisor stops it."""
    terminate_grace: ClassVar[float | None] = 5.0
    """How long `terminate` may take after a crash, when nobody waits who could end it."""

    _process: Process
    _call: Caller[Any] | None
    _idle: asyncio.TimerHandle | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._methods = {}
        cls._terminates = cls.terminate is not GenServer.terminate

    # --- callbacks

    def init(self) -> Continue | NoReply | Ignore | Stop | Awaitable[Continue | NoReply | Ignore | Stop | None] | None:
        """Get ready; `start` returns when this does.

        Return None, `Continue(token)` to go on in `handle_continue` before any message, `NoReply(idle_after=…)`,
        `IGNORE` not to run, or `Stop(reason)`.
        """
        return None

    def handle_call(self, request: Any, caller: Caller[Any]) -> Action | Awaitable[Action]:
        """Somebody `ask`ed. Return `Reply(value)`, `NoReply()` to answer through `caller` later, or `Stop(…)`."""
        message = f"{type(self).__name__} answers no ask(): {describe.short(request)}; call one of its methods instead"
        raise Reject(TypeError(message))

    def handle_cast(self, request: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Somebody told us something."""
        self._unexpected("cast", request)
        return None

    def handle_info(self, message: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """Any other message: `Down`, `Exit`, `Timeout`, what timers and plain `send` bring."""
        self._unexpected("message", message)
        return None

    def handle_continue(self, token: Any) -> NoReply | Stop | Awaitable[NoReply | Stop | None] | None:
        """What a callback asked to be done next."""
        message = f"{type(self).__name__} asked to continue with {token!r} but has no handle_continue"
        raise BadReturn(message)

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """The server ends for this reason: clean up. Not called when it is killed, or dies of an untrapped signal."""

    def report_state(self) -> str:
        """What a crash report says of the state, in a line."""
        return describe.fields(getattr(self, "__dict__", {}))

    # --- for callbacks

    @property
    def pid(self) -> Pid:
        """The address of this process."""
        return self._process.pid

    @property
    def caller(self) -> Caller[Any]:
        """Whoever made the call that is being handled. Keep it, return `later()`, and answer it when you can."""
        call = self._call
        if call is None:
            process = self._process
            if process.activity != INLINE:
                message = "there is no caller: what is being handled is not a call"
                raise ActorError(message)
            call = self._call = Caller(process.node, process, process.asker)
        return call

    def ref(self) -> Ref[Any]:
        """A handle on this server, to give away."""
        return Ref.of(self._process)

    # --- the behaviour, as the engine drives it

    @classmethod
    @final
    def _begin(cls, process: Process) -> None:
        server = cls.__new__(cls)
        server._process = process
        server._call = None
        server._idle = None
        process.behaviour = server
        process.trap_exit = cls.traps_exit

    def _method(self, method: Any) -> Callable[..., Any]:
        """What to run for a method reference: the most derived override of it. Plain functions of the server stay."""
        cls = type(self)
        known = cls._methods.get(method)
        if known is not None:
            return known
        name = getattr(method, "__name__", None)
        if name is not None and any(vars(base).get(name) is method for base in cls.__mro__):
            function: Callable[..., Any] = getattr(cls, name)
            cls._methods[method] = function
            return function
        owner = getattr(method, "__qualname__", "").rpartition(".")[0]
        if isinstance(method, FunctionType) and owner and not owner.endswith("<locals>"):
            message = f"{method.__qualname__} is not a method of {cls.__name__}"
            return _refuse(TypeError(message))
        if not callable(method):
            message = f"{method!r} is not a method of {cls.__name__}: write {cls.__name__}.name_of_the_method"
            return _refuse(TypeError(message))
        return cast("Callable[..., Any]", method)

    def _handle(self, entry: Entry) -> object:
        if self._idle is not None:
            self._disarm()
        kind = entry[0]
        if kind == CAST:
            method = entry[1]
            return (self._methods.get(method) or self._method(method))(self, *entry[2], **entry[3])
        if kind == CALL:
            method = entry[1]
            self._call = entry[4]
            return (self._methods.get(method) or self._method(method))(self, *entry[2], **entry[3])
        if kind in (INFO, SIGNAL):
            return self._handle_message(entry[1])
        if kind == ASK:
            self._call = entry[2]
            return self.handle_call(entry[1], entry[2])
        if kind == TELL:
            return self.handle_cast(entry[1])
        if kind == CONTINUE:
            return self.handle_continue(entry[1])
        if kind == TERMINATE:
            return self.terminate(entry[1])
        if kind == SYSTEM:
            self._call = entry[2]
            return entry[1](self)
        if kind == STOP:
            self._stop(entry[1])
            return None
        self.__init__(*entry[1], **entry[2])  # type: ignore[misc]
        return self.init()

    def _handle_message(self, message: Any) -> object:
        if type(message) is Exit:
            process = self._process
            parent = process.parent
            if message.pid == (process.node.root_pid() if parent is None else parent.pid):
                self._stop(message.reason)
                return None
        return self.handle_info(message)

    def _done(self, entry: Entry, value: Any) -> None:
        kind = entry[0]
        if type(value) in ACTIONS:
            self._act(entry, value)
        elif kind in (CALL, SYSTEM):
            self._call = None
            entry[-1].reply(value)
        elif kind == CAST:
            pass
        elif kind == INIT:
            self._started(entry, value)
        elif kind == TERMINATE:
            exits.condemn(self._process, entry[1])
        elif value is not None or kind == ASK:
            self._bad_return(entry, value)

    def _act(self, entry: Entry, action: Any) -> None:
        kind = entry[0]
        if kind == INIT:
            self._started(entry, action)
            return
        match action:
            case Reply(value=value) if kind in (CALL, ASK):
                self._answer(entry, value)
            case NoReply():
                self._call = None
            case Stop(reason=reason, reply=reply):
                if reply is not UNSET:
                    if kind not in (CALL, ASK):
                        self._bad_return(entry, action)
                        return
                    self._answer(entry, reply)
                self._call = None
                self._stop(reason, entry)  # type: ignore[arg-type]
                return
            case _:
                self._bad_return(entry, action)
                return
        self._next(action)

    def _answer(self, entry: Entry, value: object) -> None:
        self._call = None
        entry[-1].reply(value)

    def _next(self, action: Reply | NoReply) -> None:
        if action.idle_after is not None:
            self._arm(action.idle_after)
        if action.then is not None:
            self._process.push_front((CONTINUE, action.then.token))

    def _started(self, entry: Entry, value: Any) -> None:
        starting: Starting = entry[3]
        process = self._process
        match value:
            case None:
                starting.done()
            case Continue(token=token):
                process.push_front((CONTINUE, token))
                starting.done()
            case NoReply():
                self._next(value)
                starting.done()
            case Ignore():
                exits.condemn(process, NORMAL)
                starting.done(StartIgnored(f"{process} chose not to run"))
            case Stop(reason=reason, reply=reply) if reply is UNSET:
                exits.condemn(process, reason)  # type: ignore[arg-type]
                starting.done(failed(reason, process))  # type: ignore[arg-type]
            case _:
                self._failed(entry, BadReturn(f"init returned {describe.short(value)}"))

    def _failed(self, entry: Entry, error: BaseException) -> None:
        kind = entry[0]
        if kind in (CALL, ASK, SYSTEM):
            self._call = None
            if isinstance(error, Reject):
                entry[-1].fail(error.error)
                return
            if kind != ASK and _does_not_fit(error):
                entry[-1].fail(error)
                return
        if kind == CAST and _does_not_fit(error):
            self._unexpected("cast", describe.message(entry))
            return
        reason = error.reason if isinstance(error, Quit) else Crash(error)
        process = self._process
        if kind == INIT:
            if not is_orderly(reason):
                self._report(error, entry, "init")
            starting: Starting = entry[3]
            exits.condemn(process, reason)
            starting.done(failed(reason, process))
        elif kind == TERMINATE:
            if not is_orderly(reason):
                self._report(error, entry, "terminate")
            exits.condemn(process, reason)
        else:
            self._stop(reason, entry)

    def _stop(self, reason: ExitReason, entry: Entry | None = None) -> None:
        """Begin to end: terminate comes next, before any message."""
        process = self._process
        crashed = isinstance(reason, Crash)
        if entry is not None and not is_orderly(reason):
            self._report(reason.error if isinstance(reason, Crash) else None, entry, reason=reason)
        if not self._terminates:
            exits.condemn(process, reason)
            return
        process.push_front((TERMINATE, reason))
        if crashed and self.terminate_grace is not None:
            node = process.node
            node.loop.call_later(self.terminate_grace, exits.condemn, process, reason, context=node.context)

    def _bad_return(self, entry: Entry, value: object) -> None:
        message = f"a callback returned {describe.short(value)} after {describe.message(entry)}"
        self._failed((INFO, entry), BadReturn(message))

    def _report(
        self,
        error: BaseException | None,
        entry: Entry | None = None,
        during: str = "handler",
        reason: ExitReason | None = None,
    ) -> None:
        process = self._process
        if reason is None:
            assert error is not None
            reason = Crash(error)
        try:
            state = self.report_state()
        except Exception as broken:  # noqa: BLE001 - a report must come out whatever a user's summary does
            state = f"(report_state raised {type(broken).__name__}: {broken})"
        process.node.reports.emit(
            CrashReport(
                pid=process.pid,
                label=process.label,
                reason=reason,
                last_message=None if entry is None else describe.message(entry),
                state=state,
                ancestors=tuple(str(ancestor) for ancestor in process.ancestors()),
                during="task" if entry is None else during,
            )
        )

    def _unexpected(self, kind: str, message: object) -> None:
        process = self._process
        text = message if isinstance(message, str) else describe.short(message)
        process.node.reports.emit(Unexpected(pid=process.pid, label=process.label, kind=kind, message=text))

    def _exiting(self, reason: ExitReason) -> None:
        if self._idle is not None:
            self._disarm()

    # --- the idle timeout

    def _arm(self, seconds: float) -> None:
        process = self._process
        if seconds <= 0:
            if not process.mailbox:
                process.push_front((INFO, IDLE_TIMEOUT))
            return
        node = process.node
        self._idle = node.loop.call_later(seconds, process.deliver, (INFO, IDLE_TIMEOUT), context=node.context)
        process.resting = DOZING

    def _disarm(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._process.resting = IDLE


def _refuse(error: TypeError) -> Callable[..., Any]:
    def refuse(_server: object, *_args: Any, **_kwargs: Any) -> None:
        raise Reject(error)

    return refuse


def _does_not_fit(error: BaseException) -> bool:
    """Whether a call never began because its arguments do not fit the method: then it is the caller's fault alone."""
    trace = error.__traceback__
    if not isinstance(error, TypeError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code in _CALLING


_CALLING = (GenServer._handle.__code__, CALL_CODE)
