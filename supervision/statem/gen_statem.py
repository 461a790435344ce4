"""GenStatem: a process that is in one of several states, and answers events as its state says.

The instance's fields are the data, an Enum's members are the states. A state function gets each event that comes while
the machine is in its state, matches it, and returns where to go and what to do on the way. What a state cannot deal
with yet it postpones. The order of events is OTP's: see `agenda`.

Two styles, chosen by the class: one function for each state, marked with `@state`, or `handle_event` overridden for
all of them. Kept out of OTP's: changing the style, or the class, of a machine that runs.

Any holder of its `Ref` sends it events; so do its own timers, and the machine itself. When it dies, all goes as with a
GenServer, and a caller whose event is queued or postponed hears of it too.
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
_VOID: Final = object()  # an entry that came to nothing
_NEXT: Any = Next  # so typed, checkers do not narrow to a result of unknowns


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
    """The state to begin in. A class whose `init` decides leaves it out; where both speak, they must agree."""
    state_enter: ClassVar[bool] = False
    """Whether a state is told with `Enter` that it is entered, before it gets any event."""
    exits: ClassVar[Mapping[Any, Collection[Any]]] = {}
    """For machines that override `handle_event`: where states may lead, as `to` says it in `@state`."""

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
        """Get ready; `start` returns when this does, before the first state is entered.

        Return `Next(state, …)` with the first state and actions, None for `initial`, `IGNORE` not to run, or
        `Stop(reason)`.
        """
        return None

    def handle_event(self, state: S, event: Event) -> Result[S] | Awaitable[Result[S]]:
        """Every event and enter call of the machine: by itself it leaves them to the function of the state."""
        result: Result[S] | Awaitable[Result[S]] = self._otp_functions[state](self, event)
        return result

    def handle_info(self, message: Any) -> Result[S] | Awaitable[Result[S]]:
        """Any message that a state would get as `Info`, for a machine that overrides this: one to which messages mean the same in all states.

        It returns what a state function does. What it postpones comes back to the state function, as `Info`.
        """
        return None

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """The machine ends for this reason: clean up. Not called when it is killed, or dies of an untrapped signal."""

    # --- for callbacks

    @property
    def state(self) -> S:
        """The state the machine is in; during a transition, the one that it goes to."""
        return self._otp_state

    @property
    def now(self) -> float:
        """The moment on the event loop's clock, for `At`."""
        return clock.now(self._otp_process.node.loop)

    def unexpected(self, event: Event) -> Keep:
        """For the last `case _`: refuse a `Call` or an `AskEvent`, report any other event, and stay as if it had not come."""
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
        process.idle_activity = DOZING  # a call runs no method: it is an event as any other, and waits its turn

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
            # Most of what such a machine gets changes nothing in it: an event and a turn are only made when something does (`_otp_took`).
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
        """The event that an entry of the mailbox is; None when it is none, `_VOID` when it has come to nothing."""
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
        """A call or cast by reference, if it names an event of ours with the right arguments. Else it is its sender's bug."""
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
        """`handle_info` has returned."""
        if value is None:
            self._otp_pending.cancel(EVENT_TIMER)
        else:
            turn = self._otp_transition = _Transition(Info(entry[1]), self._otp_state)
            self._otp_on_result(turn, value)

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
        turn = _Transition(None, first.state)
        self._otp_apply_actions(turn, first.actions)
        self._otp_state = first.state
        self._otp_transition = turn
        self._otp_finish_transition(turn, enter=True)

    def _otp_on_result(self, turn: _Transition, value: Any) -> None:
        """A state function, or an enter call, has returned."""
        try:
            outcome = self._otp_apply_result(turn, value)
        except BadReturn as error:
            message = f"{error}, after {safe_repr.message(self._otp_current_entry(turn))} in {state_name(turn.old)}"
            outcome = Crash(BadReturn(message))
        if isinstance(outcome, bool):
            self._otp_finish_transition(turn, enter=outcome)
        else:
            self._otp_transition = None
            self._otp_stop(outcome, self._otp_current_entry(turn))

    def _otp_apply_result(self, turn: _Transition, value: Any) -> bool | ExitReason:
        """Do as a result says; whether the state is to be entered, or why to stop."""
        match value:
            case None:
                return False
            case Keep():
                self._otp_apply_actions(turn, value.actions)
                return False
            case _ if isinstance(value, _NEXT):
                moved = self._otp_change_state(turn, value.state)
                self._otp_apply_actions(turn, value.actions)
                return moved
            case RepeatState():
                self._otp_apply_actions(turn, value.actions)
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

    def _otp_change_state(self, turn: _Transition, state: Any) -> bool:
        """Be in `state`; whether that is a change."""
        if _is_same_state(state, self._otp_state):
            return False
        if turn.entering:
            raise BadReturn(f"an enter call cannot change the state, to {state_name(state)}")
        self._otp_definition.check_state(state)
        self._otp_definition.check_exit(self._otp_state, state)
        self._otp_state = state
        return True

    def _otp_apply_actions(self, turn: _Transition, actions: Iterable[Any]) -> None:
        for action in actions:
            match action:
                case Reply() | Fail():
                    self._otp_reply(action)
                case After() | At() | Cancel() | UpdateTimeout():
                    key = timer_key(action.event)
                    turn.timings.pop(key, None)  # the last counts, and its place
                    turn.timings[key] = action
                case Postpone(on=on) if not (turn.entering and on):
                    turn.postpones = on
                case NextEvent(event=event) if not turn.entering:
                    turn.inserted.append(event)
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

    def _otp_finish_transition(self, turn: _Transition, *, enter: bool) -> None:
        """Enter the state if that is due, else end the transition and take what is next."""
        process = self._otp_process
        if enter and self.state_enter:
            turn.entering = True
            process.push_front((CONTINUE, Enter(turn.old)))
            return
        self._otp_transition = None
        agenda = self._otp_pending
        if turn.postpones and turn.event is not None:
            agenda.postpone(turn.event)
        if not _is_same_state(self._otp_state, turn.old):
            agenda.on_state_change()
        agenda.cancel(EVENT_TIMER)
        if turn.inserted:
            agenda.insert(turn.inserted)
        if turn.timings:
            agenda.set(turn.timings.values())
        following = agenda.take()
        if following is not None:
            process.push_front((CONTINUE, following))

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        turn = self._otp_transition
        if turn is None or entry[0] in (SYSTEM, TERMINATE):
            if entry[0] == SYSTEM and isinstance(error, Reject):
                entry[2].fail(error.error)
            else:
                self._otp_end_with_error(entry, error)
        elif isinstance(error, Reject) and isinstance(turn.event, Call | AskEvent) and not turn.entering:
            turn.event.caller.fail(error.error)
            self._otp_on_result(turn, None)
        else:
            self._otp_transition = None
            self._otp_end_with_error(self._otp_current_entry(turn), error)

    def _otp_on_exit(self, reason: ExitReason) -> None:
        self._otp_pending.close()
        self._otp_deferred = None

    # --- reports

    def _otp_summary(self) -> str:
        agenda = self._otp_pending
        parts = {"state": getattr(self, "_otp_state", None), "queued": agenda.waiting}
        parts |= {"postponed": tuple(agenda.postponed), "timers": agenda.timers}
        said = [f"{name}={safe_repr.short(value)}" for name, value in parts.items() if value]
        return ", ".join([*said, *filter(None, [self.report_state()])])

    def _otp_current_entry(self, turn: _Transition) -> MailboxEntry:
        """What is being handled, for reports."""
        event = Enter(turn.old) if turn.entering or turn.event is None else turn.event
        return entry_of(event)


def _is_same_state(one: object, other: object) -> bool:
    """Whether two states are the same one, strictly: 1 is not True."""
    return one is other or (type(one) is type(other) and one == other)


# --- What a machine has before it besides its mailbox: events that wait inside it, and its timers.
# The order is OTP's. Next comes what `NextEvent` put there, then what was postponed and is retried, then what was queued
# before; when all that is done, timeouts of 0 seconds in the order they were asked for; then the mailbox. A timer that
# runs out puts itself into the mailbox, behind what is there. It is void unless it is still the machine's when its turn
# comes; so a cancelled one never shows, and one whose content was updated brings the new content.
# Timers of one machine that fall due at the same instant come in the order in which they were started.

TimerKey: TypeAlias = "tuple[type[TimeoutEvent], Hashable]"
EVENT_TIMER: Final[TimerKey] = (EventTimeout, None)
STATE_TIMER: Final[TimerKey] = (StateTimeout, None)


def timer_key(event: TimeoutEvent) -> TimerKey:
    """Which timer brings this event: there is one for the state, one for events, and one for each name."""
    return (type(event), event.name if isinstance(event, GenericTimeout) else None)


class StatemTimer:
    """One start of a timer. It is the message that its end puts into the mailbox."""

    __slots__ = ("due", "event", "key")

    def __init__(self, key: TimerKey, event: TimeoutEvent, due: float | None) -> None:
        """`due` is None for one of 0 seconds, and for one that has rung: the clock has no more to do with it."""
        self.key = key
        self.event = event
        self.due = due

    def __repr__(self) -> str:
        return f"<Timer {self.event}>"


class PendingEvents:
    """Of one machine. It decides what is next, and knows nothing of states."""

    __slots__ = ("_alarm", "_process", "_queue", "_timers", "_zeros", "postponed")

    def __init__(self, process: Process) -> None:
        """`process` is whose mailbox the timers ring in."""
        self._process = process
        self._queue: list[Queued] = []  # the next is the last
        self._zeros: list[StatemTimer] = []
        self._timers: dict[TimerKey, StatemTimer] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.postponed: list[Queued] = []

    # --- events

    def take(self) -> Queued | None:
        """The next event of the machine's own; None when the mailbox comes next."""
        if self._queue:
            return self._queue.pop()
        while self._zeros:
            if (event := self.expired_event(self._zeros.pop(0))) is not None:
                return event
        return None

    def expired_event(self, timer: StatemTimer) -> TimeoutEvent | None:
        """The event of a timer whose turn has come; None when it was cancelled or started anew meanwhile."""
        if self._timers.get(timer.key) is not timer:
            return None
        del self._timers[timer.key]
        return timer.event

    def postpone(self, event: Queued) -> None:
        """Keep an event for another state. A bound of the mailbox counts it."""
        self.postponed.append(event)
        process = self._process
        if process.limit is not None:
            process.exempt -= 1

    def insert(self, events: list[Queued]) -> None:
        """These come before all others."""
        self._queue.extend(reversed(events))

    def on_state_change(self) -> None:
        """The state has changed: what was postponed is retried, and the state's time is over."""
        if self.postponed:
            if self._process.limit is not None:
                self._process.exempt += len(self.postponed)
            self._queue.extend(reversed(self.postponed))
            self.postponed.clear()
        self.cancel(STATE_TIMER)

    # --- timers

    @property
    def timers(self) -> tuple[TimeoutEvent, ...]:
        """What is to come, unless it is cancelled."""
        return tuple(timer.event for timer in self._timers.values())

    @property
    def waiting(self) -> tuple[Queued, ...]:
        """What is queued, the next first; zero timeouts are among `timers`."""
        return tuple(reversed(self._queue))

    def set(self, actions: Iterable[Timing]) -> None:
        """Start, update and cancel: at most one action for each timer."""
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
        self._timers.pop(key, None)  # so that the order in there is the order of starts
        self._timers[key] = timer
        if due is None:
            self._zeros = [zero for zero in self._zeros if self._timers.get(zero.key) is zero]
            self._zeros.append(timer)

    # The loop knows of one alarm for each machine: it can order timers that fall due together only by chance.

    def _arm_alarm(self) -> None:
        """Have the loop wake us when the first timer is due, and only then."""
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
        """The machine is gone."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._timers.clear()
