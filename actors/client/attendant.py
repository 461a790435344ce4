"""Who takes notifications to the handler: one process, in the order in which they were said, with a bounded mailbox.

It begins with the handler's `init` and ends with its `terminate`. What the handler raises is this process's crash: it is reported, and
the next notification finds a new one.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from greenroom.supervision import Exit, receive, spawn_link, trap_exit
from greenroom.supervision.kernel.messages import INFO

from .handler import ClientHandler
from .seam import Told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Pid
    from greenroom.supervision.kernel.process import Process

    from .seam import Line
    from .settings import ClientSettings

_HEARD = ("init", "handle_notification", "terminate")


class Attendant:
    """The connection's side of it. Without a handler that listens there is no process."""

    def __init__(self, connection: Process, handler: ClientHandler, line: Line, settings: ClientSettings) -> None:
        """Nothing runs yet."""
        self._connection = connection
        self._handler = handler
        self._line = line
        self._settings = settings
        self._process: Process | None = None
        kind = type(handler)
        self.wanted = any(getattr(kind, name) is not getattr(ClientHandler, name) for name in _HEARD)
        """Whether the handler listens at all."""
        self.full = False
        """Whether the last one had to be dropped."""

    def begin(self) -> None:
        """Run, in the connection's process."""
        if self.wanted:
            pid = spawn_link(_attend, self._handler, self._line, self._settings.close_grace)
            self._process = self._connection.node.process(pid)
            assert self._process is not None
            self._process.limit = self._settings.max_updates

    def tell(self, method: str, params: Mapping[str, Any]) -> bool:
        """Pass it on. False when it had to be dropped, and the one before it had not."""
        if not self.wanted:
            return True
        if self._process is None:
            self.begin()
        assert self._process is not None
        before, self.full = self.full, not self._process.deliver((INFO, Told(method, params)))
        return before or not self.full

    def gone(self, pid: Pid) -> bool:
        """A linked process has ended; whether it was this one."""
        if self._process is None or self._process.pid != pid:
            return False
        self._process = None
        return True


async def _attend(handler: ClientHandler, line: Line, grace: float) -> None:
    trap_exit()
    await _done(handler.init(line))
    while True:
        message = await receive()
        if isinstance(message, Told):
            await _done(handler.handle_notification(message.method, dict(message.params)))
        elif isinstance(message, Exit):
            async with asyncio.timeout(grace):
                await _done(handler.terminate())
            return


async def _done(value: Any) -> None:
    if inspect.isawaitable(value):
        await value
