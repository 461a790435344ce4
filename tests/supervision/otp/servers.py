"""The server of the cases of OTP's gen_server suite, and helpers of its tests."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from greenroom.supervision import (
    Caller,
    CrashReport,
    EventTimeout,
    GenServer,
    Node,
    NoReply,
    Pid,
    Quit,
    Reply,
    Report,
    Shutdown,
    Stop,
    Timeout,
    later,
    replying,
    send,
    stopping,
)

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason

IDLE = Timeout()


class Stopped(Exception):
    """An abnormal reason that a caller asked for."""


class Crashed(Exception):
    """The error of a crashing server."""


class Bailout(Exception):
    """The error of a failing start."""


class Parting(NamedTuple):
    """The processes that `terminate` sends a message to."""

    pid: Pid


class Subject(GenServer):
    """Does what it is told, and tells `hear` of it. `begin` is what its `init` returns, raises or sleeps."""

    def __init__(self, begin: Any = None, state: Any = None) -> None:
        self.begin = begin
        self.state = state
        self.owed: Caller[str] | None = None
        self.hear: Pid | None = None

    async def init(self) -> Any:
        match self.begin:
            case BaseException() as error:
                raise error
            case float(seconds):
                await asyncio.sleep(seconds)
                return None
            case (first, message):  # a message to itself, which must come after whatever `first` asks for
                send(self.pid, message)
                return first
            case outcome:
                return outcome

    # --- calls

    def started(self) -> str:
        return "ok"

    def ping(self) -> str:
        return "pong"

    def stop(self, reason: Any = None) -> str:
        return stopping("ok", Stopped() if reason is None else reason)

    def delayed_answer(self, seconds: float) -> str:
        self.owed = self.caller
        return NoReply(idle_after=seconds)  # type: ignore[return-value]

    def call_within(self, seconds: float) -> str:
        self.state = "call within"
        return replying("ok", idle_after=seconds)

    def next_call(self) -> bool:
        """Whether it comes within the time that `call_within` gave."""
        was, self.state = self.state, None
        return bool(was == "call within")

    def crash(self, error: BaseException) -> NoReturn:
        raise error

    def exit_shutdown(self, detail: object = None) -> NoReturn:
        raise Quit(Shutdown(detail))

    def stop_shutdown(self, detail: object = None) -> Any:
        return Stop(Shutdown(detail))

    def keep(self) -> Any:
        """Never answered by the server itself."""
        self.owed = self.caller
        return later()

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        """The answer is the request: an action is done, anything else is a bad return."""
        match request:
            case ("do", first, *messages):
                for message in messages:
                    send(self.pid, message)
                return Reply("ok", then=first)
            case action:
                return action

    # --- casts and messages

    def handle_cast(self, request: Any) -> Any:
        return self._told("cast", request)

    def handle_info(self, message: Any) -> Any:
        if message == IDLE and self.owed is not None:
            self.owed.reply("delayed")
            self.owed = None
            return None
        if message == IDLE and self.hear is None:
            self.state = None
            return None
        if message == IDLE:
            return self._say("delayed")
        return self._told("info", message)

    def _told(self, how: str, what: Any) -> Any:
        match what:
            case (Pid() as pid, "handle"):
                self.hear = pid
                return self._say(f"handled {how}")
            case (Pid() as pid, "delayed", float(seconds)):
                self.hear = pid
                return NoReply(idle_after=seconds)
            case (Pid() as pid, "stop"):
                self.hear = pid
                return Stop(Shutdown(Parting(pid)))
            case (Pid() as pid, "do", first, *messages):
                self.hear = pid
                for message in messages:
                    send(self.pid, message)
                return NoReply(then=first)
            case _:
                return self._say(what) if self.hear is not None else None

    def _say(self, what: Any) -> None:
        assert self.hear is not None
        send(self.hear, (self.pid, what))

    def handle_continue(self, token: Any) -> Any:
        match token:
            case (Pid() as pid, then):  # something else comes first
                send(pid, (self.pid, "before"))
                return NoReply(then=then)
            case EventTimeout():
                return NoReply(then=token)
            case Stop():
                return token
            case Pid() as pid:
                send(pid, (self.pid, "continue"))
                self.hear = pid
            case _:
                self._say(token)
        return None

    def terminate(self, reason: ExitReason) -> None:
        if isinstance(self.state, BaseException):
            raise self.state
        match reason:
            case Shutdown(detail=Parting(pid=pid)):
                send(pid, (self.pid, "stopped"))
            case _:
                pass


def raised_in(error: BaseException) -> str:
    """The function at the innermost end of the traceback."""
    return traceback.extract_tb(error.__traceback__)[-1].name


def crash_reports(node: Node) -> list[CrashReport]:
    """The crash reports of a node, from now on."""
    found: list[CrashReport] = []

    def take(report: Report) -> None:
        if isinstance(report, CrashReport):
            found.append(report)

    node.reports.subscribe(take)
    return found
