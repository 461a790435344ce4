"""Calls tools that accept only task calls (`execution.taskSupport` is `required`), for callers that want the result instead of a task.

Only lists of the handshake era say so. In the stateless era the server decides, and the connection follows the task of any call (`followed_tasks`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.serialization import is_object

from .errors import RequestTimeout
from .interfaces import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from .interfaces import Line, Pending

_STATUS: Final = "notifications/tasks/status"
_CANCEL_TIMEOUT: Final = 5.0
"""The timeout of `tasks/cancel`; the caller does not wait for it."""


def is_task_only(tool: Mapping[str, Any] | None) -> bool:
    """Whether the server refuses calls of this tool that are not task calls."""
    execution: Any = None if tool is None else tool.get("execution")
    return is_object(execution) and execution.get("taskSupport") == "required"


async def call_as_task(
    line: Line, params: Mapping[str, Any], *, on_progress: Callable[[Progress], object] | None = None, **options: Any
) -> dict[str, Any]:
    """Call the tool as a task, and wait for its result. One deadline holds for both, and a task whose caller leaves is cancelled.

    `on_progress` is called with the progress of the call and of the task; a server that reports none has its new status messages told instead.
    `options` are those of `Line.begin`. Raises what a call raises.
    """
    if on_progress is None:
        return await _called(line, params, None, options)
    async with _TaskReports(line, on_progress) as reports:
        return await _called(line, params, reports, options)


async def _called(
    line: Line, params: Mapping[str, Any], reports: _TaskReports | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    asks: dict[str, Any] = {} if reports is None else {"progress": True}
    pending = line.begin("tools/call", {"task": {}, **params}, as_task=True, **asks, **options)
    if reports is not None:
        reports.follow(pending)
    # A future filled by a callback, not a shielded task: asyncio would log the error of a request whose caller has left.
    answered: asyncio.Future[dict[str, Any]] = loop.create_future()
    pending.when_settled(partial(_settle, answered))
    try:
        begun = await answered
    except asyncio.CancelledError:
        pending.when_settled(
            lambda result, _: _cancel(line, result)
        )  # the task may have been created meanwhile: cancel it when its id is known
        raise
    id = _task_id(begun)
    if id is None:
        return begun  # the server has answered at once
    seconds: float | None = options.get("timeout")
    if seconds is not None:
        seconds = max(0.001, seconds - (loop.time() - began))
    ending = line.begin("tasks/result", {"taskId": id}, timeout=seconds, **asks)
    if reports is not None:
        reports.follow(ending)
        reports.listen(id)
    try:
        return await ending.result()
    except (asyncio.CancelledError, RequestTimeout):
        _cancel(line, begun)
        raise


def _settle(
    answered: asyncio.Future[dict[str, Any]], result: dict[str, Any] | None, error: BaseException | None
) -> None:
    if answered.done():
        return
    if error is None:
        answered.set_result({} if result is None else result)
    else:
        answered.set_exception(error)


def _task_id(begun: Mapping[str, Any] | None) -> str | None:
    """The id of a task in the reply: in an object of its own, or in the stateless era in the result itself."""
    if begun is None:
        return None
    task: Any = begun if begun.get("resultType") == "task" else begun.get("task")
    id: Any = task.get("taskId") if is_object(task) else None
    return id if isinstance(id, str) else None


class _TaskReports:
    """The progress and the status messages of a task, for one caller: a block that ends with the task."""

    def __init__(self, line: Line, tell: Callable[[Progress], object]) -> None:
        self._tell = tell
        self._updates = line.listen(_STATUS)
        self._tasks: list[asyncio.Task[None]] = []
        self._steps = 0.0
        self._has_progress = False

    async def __aenter__(self) -> Self:
        await self._updates.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._updates.__aexit__(None, None, None)

    def follow(self, pending: Pending) -> None:
        """Tell the progress of this request."""
        self._tasks.append(asyncio.create_task(self._follow(pending)))

    def listen(self, id: str) -> None:
        """Tell the status messages of this task, where sessions have them."""
        self._tasks.append(asyncio.create_task(self._listen(id)))

    async def _follow(self, pending: Pending) -> None:
        async for step in pending.progress(of_task=True):
            self._has_progress = True
            self._tell(step)

    async def _listen(self, id: str) -> None:
        last: str | None = None
        async for update in self._updates:
            message = update.params.get("statusMessage")
            if update.params.get("taskId") == id and isinstance(message, str) and message != last:
                last = message
                if not self._has_progress:
                    self._steps += 1
                    self._tell(Progress(self._steps, None, message))


def _cancel(line: Line, begun: Mapping[str, Any] | None) -> None:
    """Cancel the task, without waiting for the reply."""
    if (id := _task_id(begun)) is not None:
        _ = line.begin("tasks/cancel", {"taskId": id}, timeout=_CANCEL_TIMEOUT, wait=False)
