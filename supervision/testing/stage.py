"""One run of a test: an event loop of its own, on virtual time unless told otherwise, and a node in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from greenroom.supervision.kernel.node import Node

from .virtual_time import VirtualLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Clock = Literal["virtual", "real"]


def run(
    main: Callable[[], Awaitable[T]],
    *,
    node: Node | None = None,
    clock: Clock = "virtual",
    seed: int | random.Random | None = None,
    **options: Any,
) -> T:
    """Run an async function in a fresh loop, inside an open node; the options are `Node`'s."""
    if node is None:
        options.setdefault("watchdog", None)
        node = Node(seed=seed, **options)

    async def inside() -> T:
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.main = asyncio.current_task()
        async with node:
            return await main()

    factory = VirtualLoop if clock == "virtual" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        try:
            value = runner.run(inside())
        except BaseException as error:
            if isinstance(loop, VirtualLoop) and loop.deadlock is not None:
                raise loop.deadlock from error
            raise
        if isinstance(loop, VirtualLoop) and loop.deadlock is not None:
            raise loop.deadlock  # the main task was cancelled, and went on
        return value
