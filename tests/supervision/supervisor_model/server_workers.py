"""The workers of a plan on the real engine: the behaviour common to all kinds, and those that are servers.

They do what the plan says and log what happens to them; nothing here knows what is expected.

"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision import (
    IGNORE,
    NORMAL,
    SHUTDOWN,
    Continue,
    ExitReason,
    GenServer,
    Pid,
    Quit,
    Shutdown,
    Stop,
    later,
    link,
    stopping,
    unlink,
)
from greenroom.supervision.kernel.process_lookup import current_process

from .example_plan import SETTLING, TERMINATE_GRACE, WorkerBlueprint, blueprint, exact
from .run_log import Boom, RunLog

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from greenroom.supervision.kernel.process import Process


class PlanWorker:
    """The behaviour of a blueprint, for every kind of worker."""

    terminate_grace: ClassVar[float | None] = TERMINATE_GRACE

    def __init__(self, log: RunLog, role: str) -> None:
        """Log the start."""
        self.own_process = current_process("play a role")
        self.log = log
        self.role = role
        plan = blueprint(log.plan.tree, role)
        assert isinstance(plan, WorkerBlueprint)
        self.plan = plan
        self.number = log.born(self.own_process, role)

    def init(self) -> Any:
        """Succeed, or fail as the blueprint says for this start."""
        failure = self.plan.failures.get(self.number)
        if self.log.overrun:
            failure = "hang"
        if self.plan.init or failure == "hang":
            return self._slow_init(failure)
        return self._begin_well(failure)

    async def _slow_init(self, failure: str | None) -> Any:
        await self.pause(None if failure == "hang" else exact(self.plan.init, self.role, "init"))
        return self._begin_well(failure)

    def _begin_well(self, failure: str | None) -> Any:
        match failure:
            case "raise":
                raise Boom("init")
            case "exit":
                raise SystemExit("init")
            case "stop":
                return Stop(Shutdown("init"))
            case "ignore":
                return IGNORE
            case _:
                self.log.ready(self.own_process)
                self.log.enlist(self.own_process)
                return self.first(rest_after_init(self.log, self.own_process))

    def first(self, seconds: float) -> Any:
        """The pause after a long init."""
        raise NotImplementedError

    async def rest(self, seconds: float) -> None:
        """Pause."""
        await self.log.wake(self.log.node.loop.time() + seconds)

    def terminate(self, reason: ExitReason) -> Awaitable[None] | None:
        """Terminate in the planned time, or fail."""
        if self.plan.terminate:
            return self._slow_terminate()
        if self.plan.terminate_raises:
            raise Boom("terminate")
        return None

    async def _slow_terminate(self) -> None:
        await self.pause(exact(self.plan.terminate, self.role, "terminate"))
        if self.plan.terminate_raises:
            raise Boom("terminate")

    async def pause(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        while not self.log.over and (until is None or loop.time() < until):
            try:
                await self.log.wake(until)
            except asyncio.CancelledError:
                if not self.plan.stubborn:
                    raise

    def suffer(self, kind: str, after: float, other: Pid | None) -> Any:
        """Do a fault to this worker."""
        match kind:
            case "raise":
                raise Boom("raise")
            case "exit":
                raise SystemExit("exit")
            case "interrupt":
                raise KeyboardInterrupt("interrupt")
            case "cancel":
                raise asyncio.CancelledError("cancel")
            case "group":
                raise BaseExceptionGroup("group", [SystemExit("exit")])
            case "task_exit":
                self.task = asyncio.get_running_loop().create_task(self._fall_over(after))
            case "straggle":
                return self._leave_behind()
            case "link":
                link(other)
            case "quit_normal":
                raise Quit(NORMAL)
            case "quit_shutdown":
                return Stop(SHUTDOWN)
            case "unlink":
                assert self.own_process.parent is not None
                unlink(self.own_process.parent.pid)
            case "hang":
                return self.pause(None)
            case _:
                raise AssertionError(kind)
        return None

    async def _leave_behind(self) -> None:
        begun = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._straggle(begun))
        await begun.wait()

    async def _straggle(self, begun: asyncio.Event) -> None:
        begun.set()
        while not self.log.over:
            with suppress(asyncio.CancelledError):
                await self.log.wake(None)

    async def _fall_over(self, after: float) -> None:
        await asyncio.sleep(after)
        raise SystemExit("exit")


class ServerWorker(PlanWorker, GenServer):
    """A worker that is a server."""

    def first(self, seconds: float) -> Any:
        """Pause in `handle_continue`."""
        return Continue(seconds) if seconds else None

    async def handle_continue(self, token: float) -> None:
        """Pause."""
        await self.rest(token)

    def handle_info(self, message: Any) -> None:
        """Ignore exit signals of strangers."""

    # --- calls

    def echo(self, token: str, seconds: float) -> str:
        """Answer at once."""
        return token

    async def work(self, token: str, seconds: float) -> str:
        """Answer after a while, and handle nothing meanwhile."""
        await self.pause(seconds)
        return token

    def later(self, token: str, seconds: float) -> str:
        """Answer after a while, and handle messages meanwhile."""
        if not seconds:
            return token
        self.log.node.loop.call_later(seconds, self.caller.reply, token)
        return later()  # type: ignore[no-any-return]

    def never(self, token: str, seconds: float) -> str:
        """Never answer."""
        return later()  # type: ignore[no-any-return]

    def crash(self, token: str, seconds: float) -> str:
        """Crash."""
        raise Boom("call")

    def farewell(self, token: str, seconds: float) -> str:
        """Answer, and stop."""
        return stopping(token, NORMAL)

    def trouble(self, kind: str, after: float, other: Pid | None) -> Any:
        """Do a fault to this worker."""
        return self.suffer(kind, after, other)


class TrappingServerWorker(ServerWorker):
    """A worker that traps exits."""

    traps_exit: ClassVar[bool] = True


def rest_after_init(log: RunLog, process: Process) -> float:
    """The pause before handling messages that came during a long init; none if there are none."""
    return exact(SETTLING, log.name(process.pid), "settle") if process.mailbox else 0.0
