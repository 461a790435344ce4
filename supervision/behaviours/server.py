"""What all behaviours with callbacks have in common: `init`, `terminate`, being stopped, suspended and looked into.

`GenServer` and `GenStatem` are this and their own events. It owns how a server begins and how it ends: `terminate` comes
before any message that waits, then the answer that is owed, then the death. A system message (`introspect`) is no
event: it passes a suspended server.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from greenroom.supervision.kernel import describe, exits, watchdog
from greenroom.supervision.kernel import watchdog as stacks
from greenroom.supervision.kernel.behaviour import Behaviour
from greenroom.supervision.kernel.errors import ActorError, Quit, StartIgnored
from greenroom.supervision.kernel.messages import (
    ASK,
    CALL,
    EXEMPT,
    INFO,
    INIT,
    NORMAL,
    SIGNAL,
    STOP,
    SYSTEM,
    TERMINATE,
    Crash,
    Entry,
    Exit,
    ExitReason,
    is_orderly,
)
from greenroom.supervision.kernel.process import DOZING, IDLE, Process
from greenroom.supervision.kernel.reports import CrashReport, Unexpected

from .caller import UNSET, Ignore, Stop
from .calls import CALL_CODE, Ref
from .starting import failed

if TYPE_CHECKING:
    from greenroom.supervision.kernel.messages import Pid

    from .caller import Caller
    from .starting import Starting

KEPT: Final = object()
"""What `_handle` returns for an entry that a suspended server has put aside."""
_URGENT: Final = frozenset((SYSTEM, STOP, TERMINATE))


class BadReturn(ActorError):
    """A callback returned what it must not; the server crashes of it, as it would of any bug."""


class Server(Behaviour):
    """The base of behaviours with callbacks."""

    __slots__ = ("_otp_kept", "_otp_process")

    _otp_terminates: ClassVar[bool] = False  # whether there is a `terminate` to call
    traps_exit: ClassVar[bool] = False
    """Whether the process traps exits from the start, so that `terminate` runs when its supervisor stops it."""
    terminate_grace: ClassVar[float | None] = 5.0
    """How long `terminate` may take after a crash, when no process waits that could end it."""

    _otp_shown: ClassVar[dict[str, str]] = {}  # what `introspect` shows besides the fields, and the attribute behind it
    _otp_process: Process
    _otp_kept: deque[Entry] | None

    # --- callbacks, of which the behaviours tell

    def init(self) -> Any:
        """Get ready."""

    def terminate(self, reason: ExitReason) -> Any:
        """Clean up."""

    def report_state(self) -> str:
        """What a crash report says of the state, in a line."""
        return describe.fields(getattr(self, "__dict__", {}))

    # --- for callbacks

    @property
    def process(self) -> Process:
        """This process: its node, its label, and who is told when it dies (`await_death`)."""
        return self._otp_process

    @property
    def pid(self) -> Pid:
        """The address of this process."""
        return self._otp_process.pid

    def ref(self) -> Ref[Any]:
        """A handle on this server, to give away."""
        return Ref.of(self._otp_process)

    def report_unexpected(self, kind: str, text: str) -> None:
        """Report an `Unexpected` of this kind: something came, or failed, that no caller waits for."""
        process = self._otp_process
        process.node.reports.emit(Unexpected(pid=process.pid, label=process.label, kind=kind, message=text))

    # --- entries that all of them treat alike

    @classmethod
    @final
    def _otp_begin(cls, process: Process) -> None:
        cls.__new__(cls)._otp_take(process)

    def _otp_take(self, process: Process) -> None:
        self._otp_process = process
        self._otp_kept = None
        process.behaviour = self
        if self.traps_exit:
            process.trap_exit = True

    def _otp_take_over(self, process: Process, first: Any) -> None:
        """Go on as the behaviour of a process that has run already; `first` is what to do before any message."""
        raise NotImplementedError

    def _otp_set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        self.__init__(*args, **kwargs)  # type: ignore[misc]
        return self.init()

    def _otp_handle_common(self, entry: Entry) -> object:
        """Begin with an entry that is no event: a system message, or the end."""
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

    def _otp_is_parents_exit(self, entry: Entry) -> bool:
        message = entry[1]
        if type(message) is not Exit or entry[0] not in (INFO, SIGNAL):
            return False
        process = self._otp_process
        parent = process.parent
        if parent is not None and (message.pid == parent.pid or not parent.away):
            return message.pid == parent.pid
        return message.pid == process.node.root_pid()  # also of one whose parent is on another node: this one closes

    def _otp_not_begun(self, entry: Entry, value: object) -> None:
        """`init` returned something else than a beginning."""
        starting: Starting = entry[3]
        process = self._otp_process
        match value:
            case Ignore():
                starting.fail(StartIgnored(f"{process} chose not to run"))
                exits.condemn(process, NORMAL)
            case Stop(reason=reason, reply=reply) if reply is UNSET:
                self._otp_not_started(entry, reason)  # type: ignore[arg-type]
            case _:
                self._otp_broke(entry, BadReturn(f"init returned {describe.short(value)}"))

    def _otp_not_started(self, entry: Entry, reason: ExitReason) -> None:
        if not is_orderly(reason):
            self._otp_crashed(reason, entry, "init")
        starting: Starting = entry[3]
        starting.fail(failed(reason, self._otp_process))
        exits.condemn(self._otp_process, reason)

    def _otp_broke(self, entry: Entry, error: BaseException) -> None:
        """An invocation raised: the process ends of its error."""
        reason = error.reason if isinstance(error, Quit) else Crash(error)
        kind = entry[0]
        if kind == INIT:
            self._otp_not_started(entry, reason)
        elif kind == TERMINATE:
            if not is_orderly(reason):
                self._otp_crashed(reason, entry[2], "terminate")
            self._otp_end(entry, reason)
        else:
            self._otp_stop(reason, entry)

    # --- the end

    def _otp_stop(
        self, reason: ExitReason, entry: Entry | None = None, answer: tuple[Caller[Any], Any] | None = None
    ) -> None:
        """Begin to end: terminate comes next, before any message; then the answer that is owed; then the death."""
        process = self._otp_process
        if entry is not None and not is_orderly(reason):
            self._otp_crashed(reason, entry)
        ending = (TERMINATE, reason, entry, answer)
        if not self._otp_terminates:
            self._otp_end(ending, reason)
            return
        process.push_front(ending)
        if isinstance(reason, Crash) and self.terminate_grace is not None:
            node = process.node
            node.loop.call_later(self.terminate_grace, exits.condemn, process, reason, context=node.context)

    def _otp_end(self, ending: Entry, reason: ExitReason) -> None:
        if ending[3] is not None:
            caller, value = ending[3]
            caller.reply(value)
        exits.condemn(self._otp_process, reason)

    # --- reports

    def _otp_report(self, error: BaseException) -> None:
        self._otp_crashed(Crash(error), None, "task")

    def _otp_crashed(self, reason: ExitReason, entry: Entry | None, during: str = "handler") -> None:
        self._otp_process.node.reports.emit(crash_report(self, reason, entry, during))

    def _otp_summary(self) -> str:
        """What a crash report says of the state: what `report_state` says, and what the behaviour knows besides."""
        return self.report_state()

    # --- suspended

    def _otp_rests(self) -> int:
        """How the process rests, once it may."""
        return IDLE

    def _otp_waits(self, entry: Entry) -> bool:
        """Put an entry aside if the server is suspended and it is not urgent; whether that was so."""
        if self._otp_kept is None or entry[0] in _URGENT or self._otp_is_parents_exit(entry):
            return False
        self._otp_kept.append(entry)
        self._otp_process.exempt -= entry[0] not in EXEMPT  # a bound counts what is kept, too
        return True

    def _otp_set_aside(self) -> None:
        """Keep what comes until `_take_up`; only what is urgent is still done."""
        if self._otp_kept is None:
            self._otp_kept = deque()
            self._otp_process.resting = DOZING

    def _otp_take_up(self) -> None:
        kept, self._otp_kept = self._otp_kept, None
        process = self._otp_process
        for entry in reversed(kept or ()):
            process.push_front(entry)
        if process.limit is not None:
            process.exempt = sum(entry[0] in EXEMPT for entry in process.mailbox or ())
        process.resting = self._otp_rests()


watchdog.runs_handlers(Server._otp_set_up.__code__, lambda frame: frame["self"]._otp_process)


# --- What a server says of its own crash: what it was at, for whom, and in what state.


def crash_report(server: Server, reason: ExitReason, entry: Entry | None, during: str) -> CrashReport:
    """The report; `entry` is what was being handled, None when a task of the server crashed."""
    process = server._otp_process
    try:
        state = server._otp_summary()
    except BaseException as broken:  # noqa: BLE001 - a report must come out whatever a user's summary does
        state = f"(report_state raised {type(broken).__name__}: {broken})"
    caller: Caller[Any] | None = entry[-1] if entry is not None and entry[0] in (CALL, ASK) else None
    return CrashReport(
        pid=process.pid,
        label=process.label,
        reason=reason,
        last_message=None if entry is None else describe.message(entry),
        state=state,
        ancestors=tuple(str(ancestor) for ancestor in process.ancestors()),
        during=during,
        client=None if caller is None or caller.process is None else str(caller.process),
        client_stack="" if caller is None else stacks.of_awaiter(caller.waited_for, CALL_CODE),
    )
