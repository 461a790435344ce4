"""Running a handler where it is to run: in the loop, in a thread, or in a thread with a loop of its own.

The caller is a worker, whose end is the handler's end if that is in the loop. A thread goes on, with its slot, until it returns; the
flag of its call tells it that nobody waits.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from greenroom.protocol.library_values import is_slow

from .cancellation import RequestCancelled
from .handlers import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping

    from .bulkheads import Bulkheads
    from .cancellation import Cancellation
    from .context import Context
    from .handlers import Handler


async def call(
    handler: Handler,
    ctx: Context,
    arguments: Mapping[str, Any],
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
) -> Any:
    """What the function returns, or raises. `key` is what the threads of one tool are counted under."""
    named = arguments if handler.context is None else {**arguments, handler.context: ctx}
    if handler.place is Place.LOOP:
        value = handler.function(**named)
    elif handler.place is Place.THREAD:
        value = await bulkheads.run(key, principal, handler.threads, handler.function, **named)
    else:
        return await bulkheads.run(
            key, principal, handler.threads, run_in_own_loop, ctx.cancelled, handler.function, named
        )
    if handler.is_async or inspect.isawaitable(
        value
    ):  # a `def` may return what is to be awaited: a lambda, a decorator
        return await value
    return value


async def written(
    handler: Handler,
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
    write: Callable[..., dict[str, Any]],
    value: Any,
    *more: Any,
) -> dict[str, Any]:
    """The result that `write` makes of what a function returned: in a thread if that takes long, as a picture does."""
    if is_slow(value):
        return await bulkheads.run(key, principal, handler.threads, write, value, *more)
    return write(value, *more)


def run_in_own_loop(
    cancelled: Cancellation, function: Callable[..., Coroutine[Any, Any, Any]], arguments: Mapping[str, Any]
) -> Any:
    """In a thread: run an `async def` to its end in a loop that is made for it. A cancelled call cancels it, as in the node's loop."""
    try:
        with asyncio.Runner() as runner:
            return runner.run(_cancellable(cancelled, function, arguments))
    except asyncio.CancelledError:
        cancelled.raise_if_set()
        # Its own doing; raised as it is, it would look as if whoever waits for this thread had been cancelled.
        raise RequestCancelled("by itself") from None


async def _cancellable(
    cancelled: Cancellation, function: Callable[..., Coroutine[Any, Any, Any]], arguments: Mapping[str, Any]
) -> Any:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return  # it is over, and its loop is closed

    forget = cancelled.subscribe(cancel)
    try:
        return await function(**arguments)
    finally:
        forget()
