"""One run of a test: an event loop of its own, on virtual time unless told otherwise, and a node in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from greenroom.supervision.kernel.node import Node

from .virtual_time import Deadlock, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


def run(
    main: Callable[[], Awaitable[T]],
    *,
    node: Node | None = None,
    clock: Literal["virtual", "real"] = "virtual",
    seed: int | None = None,
    **options: Any,
) -> T:
    """Run an async function in a fresh loop, inside an open node; the options are `Node`'s."""
    if node is None:
        options.setdefault("watchdog", None)
        node = Node(seed=seed, **options)
    deadlock: Deadlock | None = None

    async def inside() -> T:
        task = asyncio.current_task()
        assert task is not None
        main_task = task
        loop = asyncio.get_running_loop()

        def wake(error: Deadlock) -> bool:
            # The main task hears of it where it waits, so that its own clean-up runs and the traceback shows the line.
            nonlocal deadlock
            if deadlock is not None:
                return False
            deadlock = error
            return main_task.cancel("deadlock")

        if isinstance(loop, VirtualLoop):
            loop.on_deadlock = wake
        async with node:
            return await main()

    factory = VirtualLoop if clock == "virtual" else asyncio.SelectorEventLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        try:
            return runner.run(inside())
        except asyncio.CancelledError as error:
            if deadlock is None:
                raise
            raise deadlock from error
