"""The loop of a server: how an entry of its mailbox becomes a callback, and what the callback returns an action.

`GenServer` is this and the callbacks. The order is OTP's: what a callback asked to be done next comes before any message,
`terminate` comes before the answer of a call that stops, and the answer before the death. A system message (`introspect`)
is no message: it passes a suspended server, and leaves the event timer alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from greenroom.supervision.kernel import clock, describe, exits
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
    TIMEOUT,
    Entry,
    Exit,
)
from greenroom.supervision.kernel.process import DOZING, IDLE, Process
from greenroom.supervision.kernel.reasons import NORMAL, Crash, ExitReason, is_orderly
from greenroom.supervision.kernel.reports import Unexpected

from . import methods
from .actions import ACTIONS, UNSET, Continue, EventTimeout, Ignore, NoReply, Reject, Reply, Stop
from .calls import CALL_CODE, SPECIAL, Caller
from .reporting import crash_report
from .starting import failed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .starting import Starting

_KEPT: Final = object()
_URGENT: Final = frozenset((SYSTEM, STOP, TERMINATE))


_ANSWERABLE = (CALL, ASK, CAST)  # a method may be cast as well as called: then its answer is nobody's


class BadReturn(ActorError):
    """A callback returned what it must not; the server crashes of it, as it would of any bug."""


class _Timer:
    """One arming of the event timer: an entry that another one left in the mailbox is void."""

    __slots__ = ("handle",)

    def __init__(self) -> None:
        self.handle: asyncio.TimerHandle | None = None


class Serving(Behaviour):
    """The engine's side of a server."""

    __slots__ = ("_call", "_kept", "_process", "_timer")

    _methods: ClassVar[dict[Any, Callable[..., Any]]] = {}
    _special: ClassVar[frozenset[type]] = SPECIAL
    _terminates: ClassVar[bool] = False
    traps_exit: ClassVar[bool] = False
    """Whether the process traps exits from the start, so that `terminate` runs when its supervisor stops it."""
    terminate_grace: ClassVar[float | None] = 5.0
    """How long `terminate` may take after a crash, when nobody waits who could end it."""

    _process: Process
    _call: Caller[Any] | None
    _timer: _Timer | None
    _kept: deque[Entry] | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._methods = {}

    # --- callbacks: GenServer tells what they are for

    def init(self) -> Any:
        """Get ready."""

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        """Somebody asked."""

    def handle_cast(self, request: Any) -> Any:
        """Somebody told us."""

    def handle_info(self, message: Any) -> Any:
        """Any other message."""

    def handle_continue(self, token: Any) -> Any:
        """What was to be done next."""

    def terminate(self, reason: ExitReason) -> Any:
        """Clean up."""

    def report_state(self) -> str:
        """The state in a line."""
        return describe.fields(getattr(self, "__dict__", {}))

    # --- entries in

    @classmethod
    @final
    def _begin(cls, process: Process) -> None:
        cls.__new__(cls)._take(process)

    def _take(self, process: Process) -> None:
        self._process = process
        self._call = self._timer = self._kept = None
        process.behaviour = self
        process.trap_exit = process.trap_exit or self.traps_exit

    def _method(self, method: Any) -> Callable[..., Any]:
        """What to run for a method reference, when `_methods` does not know it yet."""
        return methods.find(type(self), method)

    def _handle(self, entry: Entry) -> object:
        kind = entry[0]
        timer = self._timer
        if self._process.resting:
            if self._kept is not None and kind not in _URGENT and not self._is_parents_exit(entry):
                self._keep(entry)
                return _KEPT
            if timer is not None and kind != SYSTEM and (kind != TIMEOUT or entry[2] is timer):
                self._disarm()
        if kind == CAST:
            method = entry[1]
            return (self._methods.get(method) or self._method(method))(self, *entry[2], **entry[3])
        if kind == CALL:
            method = entry[1]
            self._call = entry[4]
            return (self._methods.get(method) or self._method(method))(self, *entry[2], **entry[3])
        if kind == ASK:
            self._call = entry[2]
            return self.handle_call(entry[1], entry[2])
        if kind == TELL:
            return self.handle_cast(entry[1])
        if kind == CONTINUE:
            return self.handle_continue(entry[1])
        if kind == SYSTEM:
            self._call = entry[2]
            return entry[1](self)
        if kind == INIT:
            self.__init__(*entry[1], **entry[2])  # type: ignore[misc]
            return self.init()
        if kind == TERMINATE:
            return self.terminate(entry[1])
        return self._handle_message(entry, timer)

    def _handle_message(self, entry: Entry, timer: _Timer | None) -> object:
        kind = entry[0]
        if kind == STOP:
            self._stop(entry[1], entry)
        elif self._is_parents_exit(entry):
            self._stop(entry[1].reason)
        elif kind != TIMEOUT or entry[2] is timer:
            return self.handle_info(entry[1])
        return None

    def _is_parents_exit(self, entry: Entry) -> bool:
        message = entry[1]
        if type(message) is not Exit or entry[0] not in (INFO, SIGNAL):
            return False
        process = self._process
        parent = process.parent
        return message.pid == (process.node.root_pid() if parent is None else parent.pid)

    # --- what callbacks return

    def _done(self, entry: Entry, value: Any) -> None:
        kind = entry[0]
        if value is _KEPT:
            return
        if kind == TERMINATE:
            self._end(entry, entry[1])
        elif type(value) in ACTIONS:
            self._act(entry, value)
        elif kind in (CALL, SYSTEM):
            self._call = None
            entry[-1].reply(value)
        elif kind == CAST:
            pass
        elif kind == INIT:
            self._started(entry, value)
        elif value is not None or kind == ASK:
            self._bad_return(entry, value)

    def _act(self, entry: Entry, action: Any) -> None:
        kind = entry[0]
        if kind == INIT:
            self._started(entry, action)
            return
        match action:
            case Reply(value=value) if kind in _ANSWERABLE:
                self._call = None
                if kind != CAST:
                    entry[-1].reply(value)
                self._next(action)
            case NoReply():
                self._call = None
                self._next(action)
            case Stop(reason=reason, reply=reply) if reply is UNSET or kind in _ANSWERABLE:
                self._call = None
                owed = None if reply is UNSET or kind == CAST else (entry[-1], reply)
                self._stop(reason, entry, owed)  # type: ignore[arg-type]
            case _:
                self._bad_return(entry, action)

    def _next(self, action: Reply | NoReply) -> None:
        if action.idle_after is not None:
            self._arm(action.idle_after)
        elif isinstance(action.then, Continue):
            self._process.push_front((CONTINUE, action.then.token))
        elif action.then is not None:
            self._arm_event(action.then)

    def _started(self, entry: Entry, value: Any) -> None:
        starting: Starting = entry[3]
        process = self._process
        match value:
            case None:
                starting.done()
            case Continue(token=token):
                process.push_front((CONTINUE, token))
                starting.done()
            case EventTimeout():
                self._arm_event(value)
                starting.done()
            case NoReply():
                self._next(value)
                starting.done()
            case Ignore():
                starting.fail(StartIgnored(f"{process} chose not to run"))
                exits.condemn(process, NORMAL)
            case Stop(reason=reason, reply=reply) if reply is UNSET:
                self._not_started(entry, reason)  # type: ignore[arg-type]
            case _:
                self._failed(entry, BadReturn(f"init returned {describe.short(value)}"))

    def _not_started(self, entry: Entry, reason: ExitReason) -> None:
        if not is_orderly(reason):
            self._crashed(reason, entry, "init")
        starting: Starting = entry[3]
        starting.fail(failed(reason, self._process))
        exits.condemn(self._process, reason)

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
        if kind == INIT:
            self._not_started(entry, reason)
        elif kind == TERMINATE:
            if not is_orderly(reason):
                self._crashed(reason, entry[2], "terminate")
            self._end(entry, reason)
        else:
            self._stop(reason, entry)

    def _bad_return(self, entry: Entry, value: object) -> None:
        self._call = None
        message = f"a callback returned {describe.short(value)} after {describe.message(entry)}"
        self._stop(Crash(BadReturn(message)), entry)

    # --- the end

    def _stop(
        self, reason: ExitReason, entry: Entry | None = None, answer: tuple[Caller[Any], Any] | None = None
    ) -> None:
        """Begin to end: terminate comes next, before any message; then the answer that is owed; then the death."""
        process = self._process
        if entry is not None and not is_orderly(reason):
            self._crashed(reason, entry)
        ending = (TERMINATE, reason, entry, answer)
        if not self._terminates:
            self._end(ending, reason)
            return
        process.push_front(ending)
        if isinstance(reason, Crash) and self.terminate_grace is not None:
            node = process.node
            node.loop.call_later(self.terminate_grace, exits.condemn, process, reason, context=node.context)

    def _end(self, ending: Entry, reason: ExitReason) -> None:
        if ending[3] is not None:
            caller, value = ending[3]
            caller.reply(value)
        exits.condemn(self._process, reason)

    def _exiting(self, reason: ExitReason) -> None:
        if self._timer is not None:
            self._disarm()
        self._kept = None

    # --- reports

    def _report(self, error: BaseException) -> None:
        self._crashed(Crash(error), None, "task")

    def _crashed(self, reason: ExitReason, entry: Entry | None, during: str = "handler") -> None:
        self._process.node.reports.emit(crash_report(self, reason, entry, during))

    def _unexpected(self, kind: str, text: str) -> None:
        process = self._process
        process.node.reports.emit(Unexpected(pid=process.pid, label=process.label, kind=kind, message=text))

    # --- the event timer

    def _arm(self, seconds: float) -> None:
        """Nothing at all for so long. Unlike an event timeout, 0 is late when a message is waiting already."""
        if seconds > 0 or not self._process.mailbox:
            self._arm_for(seconds, IDLE_TIMEOUT)

    def _arm_event(self, timeout: EventTimeout) -> None:
        seconds = timeout.seconds
        if seconds is not None:
            now = clock.now(self._process.node.loop) if timeout.absolute else 0.0
            self._arm_for(seconds - now, timeout.message)

    def _arm_for(self, seconds: float, message: object) -> None:
        process = self._process
        timer = self._timer = _Timer()
        process.resting = DOZING
        entry = (TIMEOUT, message, timer)
        if seconds <= 0:
            process.push_front(entry)
            return
        node = process.node
        timer.handle = node.loop.call_later(seconds, process.deliver, entry, context=node.context)

    def _disarm(self) -> None:
        if self._timer is not None and self._timer.handle is not None:
            self._timer.handle.cancel()
        self._timer = None
        self._process.resting = IDLE if self._kept is None else DOZING

    # --- suspended

    def _set_aside(self) -> None:
        """Keep what comes until `_take_up`; only what is urgent is still done."""
        if self._kept is None:
            self._kept = deque()
            self._process.resting = DOZING

    def _keep(self, entry: Entry) -> None:
        assert self._kept is not None
        self._kept.append(entry)
        self._process.exempt -= entry[0] != SIGNAL  # a bound counts what is kept, too

    def _take_up(self) -> None:
        kept, self._kept = self._kept, None
        process = self._process
        for entry in reversed(kept or ()):
            process.push_front(entry)
        if process.limit is not None:
            process.exempt = sum(entry[0] == SIGNAL for entry in process.mailbox or ())
        if self._timer is None:
            process.resting = IDLE


def _does_not_fit(error: BaseException) -> bool:
    """Whether a call never began because its arguments do not fit the method: then it is the caller's fault alone."""
    trace = error.__traceback__
    if not isinstance(error, TypeError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code in _CALLING


_CALLING = (Serving._handle.__code__, CALL_CODE)
