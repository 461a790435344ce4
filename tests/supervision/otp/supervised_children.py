"""The children of OTP's supervisor suite, and helpers that end them."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from greenroom.supervision import (
    IGNORE,
    KILLED,
    NORMAL,
    SHUTDOWN,
    Crash,
    Down,
    Exit,
    GenServer,
    Inbox,
    Pid,
    Quit,
    Ref,
    Shutdown,
    Stop,
    child,
    count_children,
    demonitor,
    exit,
    inbox,
    is_alive,
    kill,
    link,
    monitor,
    start_link,
    stopping,
    which_children,
)
from greenroom.supervision.supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from greenroom.supervision import ChildSpec
    from greenroom.supervision.kernel.process_messages import ExitReason

How = Literal["normal", "abnormal", "shutdown", "shutdown with info", "kill"]
HOUR = 3600.0
INFO = Shutdown("some info")


class Died(Exception):
    """The error of a worker that is told to crash."""


class Worker(GenServer):
    """Traps exits, stops when asked to, and can be kept busy."""

    traps_exit = True

    def __init__(self, extra: Any = None) -> None:
        self.extra = extra

    def finish(self) -> None:
        return stopping(None, NORMAL)

    def die(self) -> NoReturn:
        raise Died

    async def block(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def handle_info(self, message: Any) -> Stop | None:
        if isinstance(message, Exit):
            return Stop(message.reason)
        return None


class Slow(Worker):
    """Takes its time to terminate."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def terminate(self, reason: ExitReason) -> None:
        await asyncio.sleep(self.seconds)


class Bad(GenServer):
    """Ends with a reason of its own, whatever it is told."""

    traps_exit = True

    def __init__(self, reason: ExitReason | None = None) -> None:
        self.reason = reason

    def finish(self) -> Stop:
        return Stop(self.reason or NORMAL)

    def terminate(self, reason: ExitReason) -> None:
        if self.reason is not None:
            raise Quit(self.reason)


class Failing(Worker):
    """Starts the first time only, or all but the first time, or fails for a while."""

    def __init__(self, tries: list[str], outcomes: Callable[[int], str]) -> None:
        super().__init__()
        outcome = outcomes(len(tries))
        tries.append(outcome)
        if outcome == "error":
            raise Died("in init")
        self.outcome = outcome

    def init(self) -> Any:
        return IGNORE if self.outcome == "ignore" else None


class Dead(Worker):
    """Starts slowly, unless a switch makes it fail."""

    def __init__(self, switch: dict[str, bool]) -> None:
        super().__init__()
        self.switch = switch

    async def init(self) -> Stop | None:
        if self.switch["fail"]:
            await asyncio.sleep(2)
            return Stop(Crash(Died("error")))
        return None


def once(number: int) -> str:
    """The first start works, every later one fails."""
    return "error" if number else "ok"


def ignore_first(number: int) -> str:
    """The first start is ignored, every later one works."""
    return "ok" if number else "ignore"


def always(_: int) -> str:
    """Each start works."""
    return "ok"


def always_error(_: int) -> str:
    """No start works."""
    return "error"


def worker(id: str, **changes: Any) -> ChildSpec[Any]:
    """A permanent worker that gets a second to stop."""
    return child(Worker).but(id=id, shutdown=1.0).but(**changes)


def failing(id: str, outcomes: Callable[[int], str] = once, **changes: Any) -> ChildSpec[Any]:
    """A worker whose starts go as `outcomes` says; the counting is the spec's own."""
    return child(Failing, [], outcomes).but(id=id, shutdown=1.0).but(**changes)


@asynccontextmanager
async def office(
    children: Iterable[ChildSpec[Any]] = (), intensity: int = 2, period: float = HOUR, **flags: Any
) -> AsyncGenerator[tuple[Ref[Supervisor], Inbox]]:
    """A supervisor linked to the test, and the test's inbox."""
    async with inbox("test") as me:
        yield await start_link(Supervisor, children, intensity=intensity, period=period, **flags), me


def among(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run an async test as a process: its argument `me` is its inbox."""
    given = inspect.signature(test)

    async def as_process(**arguments: Any) -> None:
        async with inbox("test") as me:
            await test(me=me, **arguments)

    as_process.__name__, as_process.__doc__ = test.__name__, test.__doc__
    left = [parameter for name, parameter in given.parameters.items() if name != "me"]
    as_process.__signature__ = given.replace(parameters=left)  # type: ignore[attr-defined]
    return as_process


async def which(sup: Ref[Any]) -> list[tuple[Any, Pid | None]]:
    """Children as (id, pid), the last one first."""
    return [(one.id, one.pid) for one in await which_children(sup)]


async def pid_of(sup: Ref[Any], id: str) -> Pid:
    """The current pid of that child."""
    pid: Pid | None = dict(await which(sup))[id]
    assert pid is not None, f"{id} does not run"
    return pid


async def counts(sup: Ref[Any]) -> list[int]:
    """Specs, active, supervisors, workers."""
    return list(await count_children(sup))


async def gone(me: Inbox, pid: Pid) -> ExitReason:
    """Wait for a linked process's end."""
    message = await me.receive(lambda message: isinstance(message, Exit) and message.pid == pid, timeout=HOUR)
    reason: ExitReason = message.reason
    return reason


async def nothing_ends(me: Inbox, *pids: Pid) -> None:
    """Within a second, none of these ends, and no other process that the test is linked to."""
    await asyncio.sleep(1)
    assert not [message for message in me.pending() if isinstance(message, Exit)]
    assert all(is_alive(pid) for pid in pids)


async def end(me: Inbox, who: Pid | Ref[Any], how: How) -> None:
    """End a child by a crash or exit of its own, and check its reason. Later calls find the supervisor informed."""
    pid = who if isinstance(who, Pid) else who.pid
    ref: Ref[Worker] = Ref(pid)
    down = monitor(pid)
    expected: ExitReason
    match how:
        case "normal":
            ref.cast(Worker.finish)
            expected = NORMAL
        case "abnormal":
            ref.cast(Worker.die)
            expected = Crash(Died())
        case "shutdown":
            exit(pid, SHUTDOWN)
            expected = SHUTDOWN
        case "shutdown with info":
            exit(pid, INFO)
            expected = INFO
        case "kill":
            kill(pid)
            expected = KILLED
    message = await me.receive(lambda message: isinstance(message, Down) and message.ref is down, timeout=HOUR)
    if how == "abnormal":
        assert isinstance(message.reason, Crash)
        assert isinstance(message.reason.error, Died)
    else:
        assert message.reason == expected
    demonitor(down)


async def shut_down(me: Inbox, sup: Ref[Any]) -> None:
    """End a supervisor as its own supervisor would."""
    exit(sup, SHUTDOWN)
    assert await gone(me, sup.pid) == SHUTDOWN


async def link_all(*pids: Pid) -> None:
    """Hear of each of these."""
    for pid in pids:
        link(pid)
