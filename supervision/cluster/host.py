"""A host: what stands in the application's tree for a node in a process of its own. It lives as long as that process does.

It starts when the node is ready, and ends with `Crash(NodeLost)` when the process has ended, so whoever supervises it decides whether there
is to be another. Stopping it stops the node in order; killing it kills the process.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.supervision.behaviours.caller import Stop
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.kernel.api import monitor
from greenroom.supervision.kernel.current import current_node, self_pid
from greenroom.supervision.kernel.errors import NotRegistered, ProcessExited
from greenroom.supervision.kernel.messages import Crash, Down, Exit

from .engine import Engine
from .node_records import Ended, Ending, EngineFailed, NodeFailed, NodeLost

if TYPE_CHECKING:
    from greenroom.supervision.behaviours.calls import Ref
    from greenroom.supervision.kernel.messages import ExitReason

    from .specs import NodeSpec

_numbers = itertools.count(1)
_LOOK: Final = 0.02
_LOOKS: Final = 100


class Host(GenServer):
    """One for each node that was started."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, engine: Ref[Engine], spec: NodeSpec) -> None:
        """`engine` is looked up by its name."""
        self._engine = engine
        self._spec = spec
        self.name = spec.name or f"{current_node().name}-{next(_numbers)}"
        self.os_pid = 0
        self.ending: Ending | None = None

    async def init(self) -> None:
        """Have the process started, and wait until its node is ready."""
        await self._await_engine()
        self._watch = monitor(self._engine)
        try:
            started = await self._engine.within(None).call(Engine.start_host, self_pid(), self.name, self._spec)
        except ProcessExited as gone:
            cause = gone.__cause__
            raise NodeFailed(self.name, str(cause if isinstance(cause, EngineFailed) else gone)) from gone
        self.os_pid = started.os_pid

    async def _await_engine(self) -> None:
        """When the engine has died, so have all nodes, and who starts those anew may be faster than who starts the engine anew."""
        for _ in range(_LOOKS):
            try:
                _ = self._engine.pid
            except NotRegistered:
                await asyncio.sleep(_LOOK)
            else:
                return

    # --- for others

    def node_name(self) -> str:
        """What its node is called: the first part of every pid there."""
        return self.name

    def process_id(self) -> int:
        """The process, as the system knows it."""
        return self.os_pid

    # --- its end

    def handle_info(self, message: Any) -> Stop | None:
        """The process has ended, or whoever could tell."""
        match message:
            case Ended():
                self.ending = message.ending
            case Down(ref=ref) if ref is self._watch:
                self.ending = Ending(lost=True)
            case Exit(reason=reason):
                return Stop(reason)
            case _:
                super().handle_info(message)
                return None
        return Stop(Crash(NodeLost(self.name, self.ending)))

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """End the process, in order first."""
        if self.ending is None:
            try:
                self.ending = await self._engine.within(None).call(Engine.end_host, self.name)
            except ProcessExited:
                self.ending = Ending(lost=True)
