"""GenStatem: a process that is a state machine, whose state decides how it handles events.

The instance's fields are the data, an Enum's members are the states. The function of the current state gets each event, matches it, and returns the next state
and the actions of the transition. It postpones events that it cannot handle yet. The order of events is OTP's: see `PendingEvents`.

Two styles, chosen by the class: one function for each state, marked with `@state`, or `handle_event` overridden for
all of them. Not supported of OTP's: changing the style, or the class, of a running machine.

Any holder of its `Ref` sends it events; so do its own timers, and the machine itself. When it dies, links, monitors and
supervisors are told as with a GenServer, and callers whose events are queued or postponed get the reason too.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from greenroom.supervision.behaviours.gen_server import DEFERRED, BadReturn, CallbackServer
from greenroom.supervision.behaviours.replies import UNSET, Ignore, Reject, Stop
from greenroom.supervision.kernel import clock, safe_repr
from greenroom.supervision.kernel.process import DOZING
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    CAST,
    CONTINUE,
    INFO,
    INIT,
    SIGNAL,
    SYSTEM,
    TELL,
    TERMINATE,
    Crash,
    Exit,
    as_reason,
)

from . import machine_definition
from .events import (
    After,
    AskEvent,
    At,
    Call,
    Cancel,
    Cast,
    Enter,
    Event,
    EventTimeout,
    Fail,
    GenericTimeout,
    Info,
    Keep,
    Next,
    NextEvent,
    Postpone,
    Queued,
    RepeatState,
    Reply,
    StateTimeout,
    StopAndReply,
    TellEvent,
    UpdateTimeout,
    entry_of,
)
from .machine_definition import END, MachineDefinition, state_name

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping

    from greenroom.supervision.behaviours.process_start import PendingStart
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import ExitReason, MailboxEntry

    from .events import Result, TimeoutEvent, Timing
    from .machine_definition import EventSignature

S = TypeVar("S")
_VOID: Final = object()  # the result for an entry that is dropped
_NEXT: Any = Next  # typed as Any, so that checkers do not narrow to a result of unknown types


class _Transition:
    """One event from its state function to the end of its transition, enter calls included."""

    __slots__ = ("entering", "event", "inserted", "old", "postpones", "timings")

    def __init__(self, event: Queued | None, old: Any) -> None:
        self.event = event
        self.old = old
        self.entering = False
        self.postpones = False
        self.inserted: list[Queued] = []
        self.timings: dict[TimerKey, Timing] = {}


class GenStatem(CallbackServer, Generic[S]):
    """Derive from it; ``await start(Door, "1234")`` makes a process of it.

    ::

        class Door(GenStatem[DoorState]):
            initial = DoorState.LOCKED

            def __init__(self, code: str) -> None:
                self.code = code

            @event
            def unlock(self, code: str) -> bool:
                raise NotImplementedError

            @state(DoorState.LOCKED, to=(DoorState.OPEN,))
            def locked(self, event: Event) -> Result[DoorState]:
                match event:
                    case Call(Door.unlock, (self.code,)):
                        ...
    """

    __slots__ = ("_otp_pending", "_otp_state", "_otp_transition")

    _otp_definition: ClassVar[MachineDefinition] = MachineDefinition()
    _otp_functions: ClassVar[dict[Any, Callable[[Any, Event], Any]]] = {}
    initial: ClassVar[Any] = None
    """The first state. Leave it out if `init` decides; if both give a state, they must agree."""
    state_enter: ClassVar[bool] = False
    """Whether a state function gets `Enter` when its state is entered, before any event."""
    exits: ClassVar[Mapping[Any, Collection[Any]]] = {}
    """For machines that override `handle_event`: the allowed next states, as `to` in `@state`."""

    _otp_has_handle_info: ClassVar[bool] = False  # whether there is a `handle_info`
    _otp_shown_fields: ClassVar[dict[str, str]] = {"state": "_otp_state"}
    _otp_pending: PendingEvents
    _otp_state: S
    _otp_transition: _Transition | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._otp_has_terminate = vars(GenStatem)["terminate"] is not cls.terminate
        cls._otp_has_handle_info = vars(GenStatem)["handle_info"] is not cls.handle_info
        cls._otp_definition = machine_definition.read_definition(cls, GenStatem)
        cls._otp_functions = {each: getattr(cls, name) for each, name in cls._otp_definition.functions.items()}

    # --- callbacks

    def init(self) -> Next[S] | Ignore | Stop | Awaitable[Next[S] | Ignore | Stop | None] | None:
        """Initialise the machine; `start` returns when this does, before the first state is entered.

        Return `Next(state, …)` with the first state and actions, None for `initial`, `IGNORE` not to run, or
        `Stop(reason)`.
        """
        return None

    def handle_event(self, state: S, event: Event) -> Result[S] | Awaitable[Result[S]]:
        """Handle every event and enter call of the machine; by default it calls the function of the state."""
        result: Result[S] | Awaitable[Result[S]] = self._otp_functions[state](self, event)
        return result

    def handle_info(self, message: Any) -> Result[S] | Awaitable[Result[S]]:
        """Handle messages in place of the state functions; override it if they mean the same in all states.

        It returns the result of a state function. A postponed message comes back to the state function, as `Info`.
        """
        return None

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """Clean up before the exit. Not called when the machine is killed, or dies of an untrapped signal."""

    # --- for callbacks

    @property
    def state(self) -> S:
        """The current state; during a transition, the new one."""
        return self._otp_state

    @property
    def now(self) -> float:
        """The moment on the event loop's clock, for `At`."""
        return clock.now(self._otp_process.node.loop)

    def unexpected(self, event: Event) -> Keep:
        """For the last `case _`: refuse a `Call` or an `AskEvent`, report any other event, and keep the state."""
        if isinstance(event, Call | AskEvent):
            asked = safe_repr.message(entry_of(event))
            raise Reject(TypeError(f"{type(self).__name__} does not expect {asked} in {state_name(self._otp_state)}"))
        if not isinstance(event, Enter):
            self.report_unexpected("event", f"{safe_repr.message(entry_of(event))} in {state_name(self._otp_state)}")
        return Keep()

    # --- entries in

    def _otp_attach(self, process: Process) -> None:
        super()._otp_attach(process)
        self._otp_pending = PendingEvents(process)
        self._otp_transition = None
        process.idle_activity = DOZING  # a call runs no method: it is an event like any other, so none is run inline

    def _otp_enter_loop(self, process: Process, first: Next[Any] | None) -> None:
        self._otp_attach(process)
        self._otp_enter_first(Next(self.initial) if first is None else first)

    def _otp_idle_activity(self) -> int:
        return DOZING

    def _otp_resume(self) -> None:
        super()._otp_resume()
        if self._otp_process.limit is not None:
            self._otp_process.exempt -= len(self._otp_pending.postponed)

    def _otp_handle(self, entry: MailboxEntry) -> object:
        if self._otp_deferred is not None and self._otp_defer_if_suspended(entry):
            return DEFERRED
        if self._otp_has_handle_info and entry[0] in (INFO, SIGNAL):
            # Most messages change no state: the event and the transition are only made when `handle_info` returns a result.
            message = entry[1]
            if type(message) is not StatemTimer and not (type(message) is Exit and self._otp_is_parents_exit(entry)):
                return self.handle_info(message)
        event = self._otp_event(entry)
        if event is None:
            return self._otp_handle_common(entry)
        if event is _VOID:
            return _VOID
        if type(event) is not Enter:
            self._otp_transition = _Transition(event, self._otp_state)  # type: ignore[arg-type]
        return self.handle_event(self._otp_state, event)  # type: ignore[arg-type]

    def _otp_event(self, entry: MailboxEntry) -> object:
        """The event of a mailbox entry; None when the entry is no event, `_VOID` when it is dropped."""
        kind = entry[0]
        if kind in (CALL, CAST):
            return self._otp_method_event(entry)
        if kind == CONTINUE:
            return entry[1]
        if kind == ASK:
            return AskEvent(entry[1], entry[2])
        if kind == TELL:
            return TellEvent(entry[1])
        if kind in (INFO, SIGNAL) and not self._otp_is_parents_exit(entry):
            message = entry[1]
            return (
                (self._otp_pending.expired_event(message) or _VOID) if type(message) is StatemTimer else Info(message)
            )
        return None

    def _otp_method_event(self, entry: MailboxEntry) -> object:
        """The event of a call or cast by reference; a wrong method or wrong arguments are its sender's error."""
        method = entry[1]
        try:
            args, kwargs = self._otp_event_signature(method).arrange(entry[2], entry[3])
        except TypeError as error:
            if entry[0] == CALL:
                entry[4].fail(error)
            else:
                self.report_unexpected("cast", f"{safe_repr.message(entry)}: {error}")
            return _VOID
        return Call(method, args, kwargs, entry[4]) if entry[0] == CALL else Cast(method, args, kwargs)

    def _otp_event_signature(self, method: Any) -> EventSignature:
        shape = self._otp_definition.events.get(method) if isinstance(method, FunctionType) else None
        if shape is None:
            name = getattr(method, "__qualname__", safe_repr.short(method))
            raise TypeError(f"{name} is no event of {type(self).__name__}: mark the method with @event")
        return shape

    # --- what callbacks return

    def _otp_on_return(self, entry: MailboxEntry, value: Any) -> None:
        kind = entry[0]
        if value is DEFERRED or value is _VOID:
            return
        if self._otp_transition is not None and kind not in (SYSTEM, TERMINATE):
            self._otp_on_result(self._otp_transition, value)
        elif kind == INIT:
            self._otp_finish_start(entry, value)
        elif kind == TERMINATE:
            self._otp_end(entry, entry[1])
        elif kind == SYSTEM:
            entry[2].reply(value)
        elif kind in (INFO, SIGNAL):
            self._otp_on_info_return(entry, value)

    def _otp_on_info_return(self, entry: MailboxEntry, value: Any) -> None:
        """Handle the result of `handle_info`."""
        if value is None:
            self._otp_pending.cancel(EVENT_TIMER)
        else:
            transition = self._otp_transition = _Transition(Info(entry[1]), self._otp_state)
            self._otp_on_result(transition, value)

    def _otp_finish_start(self, entry: MailboxEntry, value: Any) -> None:
        name = type(self).__name__
        if not self._otp_definition.ready:
            raise TypeError(f"{name} is a base for classes that say what its states are")
        if isinstance(value, _NEXT):
            self._otp_enter_first(value)
        elif value is not None:
            self._otp_reject_start(entry, value)
            return
        elif self.initial is not None:
            self._otp_enter_first(Next(self.initial))
        else:
            raise BadReturn(f"init returned None, and {name} has no `initial` to begin in")
        starting: PendingStart = entry[3]
        starting.done()

    def _otp_enter_first(self, first: Next[Any]) -> None:
        self._otp_definition.check_state(first.state)
        if self.initial is not None and not _is_same_state(first.state, self.initial):
            raise BadReturn(f"init begins in {state_name(first.state)}, and `initial` is {state_name(self.initial)}")
        transition = _Transition(None, first.state)
        self._otp_apply_actions(transition, first.actions)
        self._otp_state = first.state
        self._otp_transition = transition
        self._otp_finish_transition(transition, enter=True)

    def _otp_on_result(self, transition: _Transition, value: Any) -> None:
        """Handle the result of a state function or an enter call."""
        try:
            outcome = self._otp_apply_result(transition, value)
        except BadReturn as error:
            message = f"{error}, after {safe_repr.message(self._otp_current_entry(transition))} in {state_name(transition.old)}"
            outcome = Crash(BadReturn(message))
        if isinstance(outcome, bool):
            self._otp_finish_transition(transition, enter=outcome)
        else:
            self._otp_transition = None
            self._otp_stop(outcome, self._otp_current_entry(transition))

    def _otp_apply_result(self, transition: _Transition, value: Any) -> bool | ExitReason:
        """Apply a result; returns whether the state is to be entered, or the reason to stop."""
        match value:
            case None:
                return False
            case Keep():
                self._otp_apply_actions(transition, value.actions)
                return False
            case _ if isinstance(value, _NEXT):
                moved = self._otp_change_state(transition, value.state)
                self._otp_apply_actions(transition, value.actions)
                return moved
            case RepeatState():
                self._otp_apply_actions(transition, value.actions)
                return True
            case Stop() if value.reply is UNSET:
                self._otp_definition.check_exit(self._otp_state, END)
                return as_reason(value.reason)
            case StopAndReply():
                self._otp_definition.check_exit(self._otp_state, END)
                for reply in value.replies:
                    self._otp_reply(reply)
                return value.reason
            case _:
                raise BadReturn(f"a state function returned {safe_repr.short(value)}")

    def _otp_change_state(self, transition: _Transition, state: Any) -> bool:
        """Set the state; whether it has changed."""
        if _is_same_state(state, self._otp_state):
            return False
        if transition.entering:
            raise BadReturn(f"an enter call cannot change the state, to {state_name(state)}")
        self._otp_definition.check_state(state)
        self._otp_definition.check_exit(self._otp_state, state)
        self._otp_state = state
        return True

    def _otp_apply_actions(self, transition: _Transition, actions: Iterable[Any]) -> None:
        for action in actions:
            match action:
                case Reply() | Fail():
                    self._otp_reply(action)
                case After() | At() | Cancel() | UpdateTimeout():
                    key = timer_key(action.event)
                    transition.timings.pop(key, None)  # the last action of a timer counts, also for the order
                    transition.timings[key] = action
                case Postpone(on=on) if not (transition.entering and on):
                    transition.postpones = on
                case NextEvent(event=event) if not transition.entering:
                    transition.inserted.append(event)
                case Postpone() | NextEvent():
                    raise BadReturn(f"an enter call cannot do {safe_repr.short(action)}")
                case _:
                    raise BadReturn(f"{safe_repr.short(action)} is no action")

    def _otp_reply(self, answer: Any) -> None:
        match answer:
            case Reply():
                answer.caller.reply(answer.value)
            case Fail():
                answer.caller.fail(answer.error)
            case _:
                raise BadReturn(f"StopAndReply takes Reply(…) and Fail(…), not {safe_repr.short(answer)}")

    def _otp_finish_transition(self, transition: _Transition, *, enter: bool) -> None:
        """Enter the state if needed, else end the transition and take the next event."""
        process = self._otp_process
        if enter and self.state_enter:
            transition.entering = True
            process.push_front((CONTINUE, Enter(transition.old)))
            return
        self._otp_transition = None
        pending = self._otp_pending
        if transition.postpones and transition.event is not None:
            pending.postpone(transition.event)
        if not _is_same_state(self._otp_state, transition.old):
            pending.on_state_change()
        pending.cancel(EVENT_TIMER)
        if transition.inserted:
            pending.insert(transition.inserted)
        if transition.timings:
            pending.set(transition.timings.values())
        following = pending.take()
        if following is not None:
            process.push_front((CONTINUE, following))

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        transition = self._otp_transition
        if transition is None or entry[0] in (SYSTEM, TERMINATE):
            if entry[0] == SYSTEM and isinstance(error, Reject):
                entry[2].fail(error.error)
            else:
                self._otp_end_with_error(entry, error)
        elif isinstance(error, Reject) and isinstance(transition.event, Call | AskEvent) and not transition.entering:
            transition.event.caller.fail(error.error)
            self._otp_on_result(transition, None)
        else:
            self._otp_transition = None
            self._otp_end_with_error(self._otp_current_entry(transition), error)

    def _otp_on_exit(self, reason: ExitReason) -> None:
        self._otp_pending.close()
        self._otp_deferred = None

    # --- reports

    def _otp_summary(self) -> str:
        pending = self._otp_pending
        parts = {"state": getattr(self, "_otp_state", None), "queued": pending.waiting}
        parts |= {"postponed": tuple(pending.postponed), "timers": pending.timers}
        said = [f"{name}={safe_repr.short(value)}" for name, value in parts.items() if value]
        return ", ".join([*said, *filter(None, [self.report_state()])])

    def _otp_current_entry(self, transition: _Transition) -> MailboxEntry:
        """The current event as a mailbox entry, for reports."""
        event = Enter(transition.old) if transition.entering or transition.event is None else transition.event
        return entry_of(event)


def _is_same_state(one: object, other: object) -> bool:
    """Whether two states are the same, also in type: 1 is not True."""
    return one is other or (type(one) is type(other) and one == other)


# --- The events that wait inside a machine besides its mailbox, and its timers.
# The order is OTP's. First come the events of `NextEvent`, then postponed ones that are retried, then those queued
# before; after them timeouts of 0 seconds in the order they were set; then the mailbox. A timer that
# runs out puts itself into the mailbox, behind the entries there, and is ignored unless it is still the machine's when it is
# taken; so a cancelled one is never seen, and one whose event was updated delivers the new event.
# Timers of one machine that fall due at the same instant come in the order in which they were started.

TimerKey: TypeAlias = "tuple[type[TimeoutEvent], Hashable]"
EVENT_TIMER: Final[TimerKey] = (EventTimeout, None)
STATE_TIMER: Final[TimerKey] = (StateTimeout, None)


def timer_key(event: TimeoutEvent) -> TimerKey:
    """The timer of this event: there is one for the state, one for events, and one for each name."""
    return (type(event), event.name if isinstance(event, GenericTimeout) else None)


class StatemTimer:
    """One start of a timer, which is also the message that it puts into the mailbox when it runs out."""

    __slots__ = ("due", "event", "key")

    def __init__(self, key: TimerKey, event: TimeoutEvent, due: float | None) -> None:
        """`due` is None for a timer of 0 seconds, and for one that has run out."""
        self.key = key
        self.event = event
        self.due = due

    def __repr__(self) -> str:
        return f"<Timer {self.event}>"


class PendingEvents:
    """The queued and postponed events and the timers of one machine: it decides which event is next."""

    __slots__ = ("_alarm", "_process", "_queue", "_timers", "_zeros", "postponed")

    def __init__(self, process: Process) -> None:
        """`process` is the machine's process, whose mailbox gets the timers."""
        self._process = process
        self._queue: list[Queued] = []  # the next is the last
        self._zeros: list[StatemTimer] = []
        self._timers: dict[TimerKey, StatemTimer] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.postponed: list[Queued] = []

    # --- events

    def take(self) -> Queued | None:
        """Take the next waiting event; None when the mailbox comes next."""
        if self._queue:
            return self._queue.pop()
        while self._zeros:
            if (event := self.expired_event(self._zeros.pop(0))) is not None:
                return event
        return None

    def expired_event(self, timer: StatemTimer) -> TimeoutEvent | None:
        """The event of a timer that ran out; None when it was cancelled or restarted meanwhile."""
        if self._timers.get(timer.key) is not timer:
            return None
        del self._timers[timer.key]
        return timer.event

    def postpone(self, event: Queued) -> None:
        """Keep an event until the state changes. The bound of the mailbox counts it."""
        self.postponed.append(event)
        process = self._process
        if process.limit is not None:
            process.exempt -= 1

    def insert(self, events: list[Queued]) -> None:
        """Put these events before all others."""
        self._queue.extend(reversed(events))

    def on_state_change(self) -> None:
        """Retry the postponed events, and cancel the state timer."""
        if self.postponed:
            if self._process.limit is not None:
                self._process.exempt += len(self.postponed)
            self._queue.extend(reversed(self.postponed))
            self.postponed.clear()
        self.cancel(STATE_TIMER)

    # --- timers

    @property
    def timers(self) -> tuple[TimeoutEvent, ...]:
        """The events of the running timers."""
        return tuple(timer.event for timer in self._timers.values())

    @property
    def waiting(self) -> tuple[Queued, ...]:
        """The queued events, the next first; timeouts of 0 seconds are among `timers`."""
        return tuple(reversed(self._queue))

    def set(self, actions: Iterable[Timing]) -> None:
        """Apply timer actions, at most one for each timer."""
        now: float | None = None
        for action in actions:
            key = timer_key(action.event)
            match action:
                case Cancel():
                    self._timers.pop(key, None)
                case UpdateTimeout():
                    running = self._timers.get(key)
                    if running is None:
                        self._start(key, action.event, None)
                    else:
                        running.event = action.event
                case At(moment=moment) if moment < math.inf:
                    self._start(key, action.event, moment)
                case At() | After(seconds=None | math.inf):
                    self._timers.pop(key, None)
                case After(seconds=seconds):
                    if not seconds:
                        self._start(key, action.event, None)
                    else:
                        if now is None:
                            now = clock.now(self._process.node.loop)
                        self._start(key, action.event, now + seconds)
        self._arm_alarm()

    def cancel(self, key: TimerKey) -> None:
        """Stop a timer, if it runs."""
        if self._timers.pop(key, None) is not None:
            self._arm_alarm()

    def _start(self, key: TimerKey, event: TimeoutEvent, due: float | None) -> None:
        timer = StatemTimer(key, event, due)
        self._timers.pop(key, None)  # keeps the dict in the order of starts
        self._timers[key] = timer
        if due is None:
            self._zeros = [zero for zero in self._zeros if self._timers.get(zero.key) is zero]
            self._zeros.append(timer)

    # One loop timer for each machine: asyncio's heap does not keep the order of timers that fall due together.

    def _arm_alarm(self) -> None:
        """Set the loop's timer to the first due time."""
        first = min((timer.due for timer in self._timers.values() if timer.due is not None), default=None)
        alarm = self._alarm
        if alarm is not None:
            if alarm.when() == first:
                return
            alarm.cancel()
            self._alarm = None
        if first is not None:
            node = self._process.node
            self._alarm = node.loop.call_at(first, self._on_alarm, first, context=node.context)

    def _on_alarm(self, moment: float) -> None:
        self._alarm = None
        moment = max(moment, clock.now(self._process.node.loop))
        due = [timer for timer in self._timers.values() if timer.due is not None and timer.due <= moment]
        for timer in sorted(due, key=lambda timer: timer.due or 0.0):
            timer.due = None
            self._process.deliver_exempt((SIGNAL, timer))
        self._arm_alarm()

    def close(self) -> None:
        """Cancel everything: the machine has exited."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._timers.clear()
