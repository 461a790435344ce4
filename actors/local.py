"""Calling what is registered from the program itself: no session, no wire, and what comes back is what the function returned.

The function runs in a process of its own all the same: that it exits is its own end, and not its caller's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.versions import LATEST
from greenroom.supervision import CallTimeout, Shutdown, exit, start_task_alone
from greenroom.transports.seam import Peer

from .calling import call
from .cancellation import Cancellation
from .catalogue import NotFound
from .context import Context
from .jobs import Facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .catalogue import Kind
    from .jobs import House


class _Nobody:
    """The voice of a call that has no peer."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:  # noqa: ARG002 - nobody hears it
        """To nobody."""
        return False

    def log(self, level: str, data: Any, logger: str | None) -> bool:  # noqa: ARG002 - same
        """To nobody."""
        return False

    def touch(self, ahead: float = 0.0) -> None:
        """A local call may be silent."""

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:  # noqa: ARG002
        """There is nobody to ask."""
        raise McpError(ErrorCode.METHOD_NOT_FOUND, f"There is no client to ask for {method}: this is a local call")

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no stream
        """There is none."""
        return False


_NOBODY: Final = _Nobody()
_GIVEN_UP: Final = Shutdown("the caller has given up")
_FACTS: Final = Facts("", LATEST, Peer("local"), {}, {})


async def call_locally(house: House, kind: Kind, name: str, arguments: Mapping[str, Any] | None) -> Any:
    """What the function returns. Raises `NotFound`, `Mismatch`, `CallTimeout` after the handler's own, or what it raises."""
    entry: Any = house.shelf.catalogue.find(kind, name)
    if entry is None:
        raise NotFound(kind, name)
    task = start_task_alone(_run, house, entry, dict(arguments or {}))
    try:
        outcome = await task.wait(entry.handler.timeout)
    except (asyncio.CancelledError, CallTimeout):
        exit(task.pid, _GIVEN_UP)
        raise
    if isinstance(outcome, _Raised):
        raise outcome.error
    return outcome


class _Raised:
    """An error on its way to the caller."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _run(house: House, entry: Any, arguments: dict[str, Any]) -> Any:
    cancelled = Cancellation()
    ctx = Context(_FACTS, _NOBODY, cancelled, None, {"arguments": arguments})
    ctx.name = entry.name
    try:
        return await _answer(house, entry, arguments, ctx)
    except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
        return _Raised(error)
    finally:
        cancelled.set("the caller is gone")
        ctx.close()


async def _answer(house: House, entry: Any, arguments: dict[str, Any], ctx: Context) -> Any:
    if entry.kind == "resource":
        ctx.uri = entry.uri
        named = {} if entry.whole is None else {entry.whole: arguments}
    else:
        named = entry.binder.bind(arguments)
    value = await call(entry.handler, ctx, named, house.bulkheads, (entry.kind, entry.name), None)
    ctx.check_asked()
    return value
