"""The model's workers: the behaviours of a plan's workers as code that runs in the model's world.

A worker knows nothing of supervisors; it handles one message after the other, and exits as they say.

"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, TypeAlias

from .example_plan import SETTLING, TERMINATE_GRACE, WorkerBlueprint, exact
from .model_processes import (
    IGNORED,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    Code,
    ModelProcess,
    Receive,
    Sleep,
    WaitCondition,
    crash,
    is_crash,
)
from .model_world import ModelWorld, never

Doing: TypeAlias = Generator[WaitCondition, Any, Any]
"""Code of a process."""

CRASHES: Final = {
    "raise": crash("Boom: raise"),
    "exit": crash("SystemExit: exit"),
    "interrupt": crash("KeyboardInterrupt: interrupt"),
    "cancel": crash("CancelledError: cancel"),
    "group": crash("BaseExceptionGroup: group (1 sub-exception)"),
    "quit_normal": NORMAL,
    "quit_shutdown": SHUTDOWN,
}
SIGNALLED: Final = {
    "signal_shutdown": SHUTDOWN,
    "signal_crash": crash("Boom: signal"),
    "signal_normal": NORMAL,
}


def worker(world: ModelWorld, plan: WorkerBlueprint) -> Callable[[ModelProcess], Code]:
    """The code of a worker with this blueprint."""

    def code(me: ModelProcess) -> Code:
        failure = plan.failures.get(me.number)
        if failure == "hang":
            yield Sleep(None)
        yield from _pause(exact(plan.init, me.role, "init"))
        match failure:
            case "raise":
                return crash("Boom: init")
            case "exit":
                return crash("SystemExit: init")
            case "stop":
                return "shutdown (init)"
            case "ignore":
                me.refused = IGNORED
                return NORMAL
            case _:
                world.begun(me, None)
                yield from settle(me)
        while True:
            message: tuple[Any, ...] = yield Receive()
            if plan.kind == "machine" and message[:2] == ("call", "work"):
                reason = yield from _work(world, me, message[2], message[3])
            else:
                reason = yield from _handle(world, me, message)
            if reason is not None:
                break
        if plan.kind == "machine" and message[:2] == ("call", "farewell"):
            message[-1].settle("answered")  # a state machine replies, then terminates
        if is_crash(reason):
            late = world.now + TERMINATE_GRACE
            world.at(late, f"{me} is cut short", lambda: world.condemn(me, reason), me.alive)
        yield from _pause(exact(plan.terminate, me.role, "terminate"))
        if message[:2] == ("call", "farewell"):
            message[-1].settle("answered")  # the caller of a stop gets its reply after terminate, even if that failed
        return crash("Boom: terminate") if plan.terminate_raises else reason

    return code


def settle(me: ModelProcess) -> Doing:
    """The pause of a process after a long init before it reads its mailbox.

    Without it, the process and its supervisor would continue at the same moment, and their order could not be predicted.

    """
    if me.mailbox:
        yield Sleep(exact(SETTLING, me, "settle"), lightly=True)


def _pause(seconds: float) -> Doing:
    if seconds:
        yield Sleep(seconds)


def _handle(world: ModelWorld, me: ModelProcess, message: tuple[Any, ...]) -> Generator[WaitCondition, Any, str | None]:
    """Handle one message; returns the reason if the process ends."""
    match message:
        case ("exit", source, reason):
            return reason if source is me.parent else None
        case ("stop", reason):
            return str(reason)
        case ("trouble", "unlink"):
            if me.parent is not None:
                world.part(me, me.parent)
        case ("trouble", "link", ModelProcess() as other):
            if other.alive():
                world.join(me, other)
            else:
                world.signal(me, other, NO_PROCESS)
        case ("trouble", "straggle"):
            me.straggler = True
        case ("trouble", "hang"):
            yield Sleep(None)
        case ("trouble", "task_exit", after):
            me.tasks = True
            late = world.now + after
            world.at(late, f"a task of {me}", lambda: world.condemn(me, CRASHES["exit"]), me.alive)
        case ("trouble", kind):
            return CRASHES[kind]
        case ("call", kind, seconds, call):
            return (yield from _answer(world, kind, seconds, call))
        case _:
            raise AssertionError(message)
    return None


def _work(world: ModelWorld, me: ModelProcess, seconds: float, call: Any) -> Generator[WaitCondition, Any, str | None]:
    """The working state of a machine: it waits for the end of the work or of the process, and postpones all else."""
    done = ("done", call)
    if seconds:
        world.at(world.now + seconds, f"{me} has worked", partial(_tell, world, me, done), me.alive)
    later: list[tuple[Any, ...]] = []
    message = (yield Receive()) if seconds else done
    while message is not done:
        match message:
            case ("exit", source, reason) if source is me.parent:
                return str(reason)
            case ("stop", reason):
                return str(reason)
            case _:
                later.append(message)
        message = yield Receive()
    call.settle("answered")
    me.mailbox.extendleft(reversed(later))
    return None


def _tell(world: ModelWorld, me: ModelProcess, message: tuple[Any, ...]) -> None:
    world.send(me, message)


def _answer(world: ModelWorld, kind: str, seconds: float, call: Any) -> Generator[WaitCondition, Any, str | None]:
    match kind:
        case "work":
            yield from _pause(seconds)
            call.settle("answered")
        case "later" if seconds:
            world.at(world.now + seconds, call.label, lambda: call.settle("answered"), never)
        case "echo" | "later":
            call.settle("answered")
        case "crash":
            return crash("Boom: call")
        case "farewell":
            return NORMAL
        case _:
            pass
    return None
