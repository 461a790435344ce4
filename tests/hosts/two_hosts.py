"""The fixtures of the scenarios: the application on the first host, machines on the second, and the allowed times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.supervision.cluster.engine_fixtures import Hand
from tests.supervision.cluster.machine_fixtures import Machines, Member, gathered

from .network import HERE, THERE

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from greenroom.supervision import Ref
    from greenroom.supervision.cluster.cluster import NodeOwner
    from greenroom.supervision.kernel.process_messages import Down

    from .network import Field

BEAT = 1.0
MISSES = 3
SILENT = BEAT * MISSES + BEAT
"""Until when a silent node has to be lost: three heartbeats, half of one since it is looked at twice in each, and half for a busy machine."""
PORT = 7400


def cluster(folder: Path) -> AbstractAsyncContextManager[Machines]:
    """On the first host; with its defaults."""
    return gathered(folder, port=PORT, listen=HERE, heartbeat=BEAT)


async def machine(stage: Machines, field: Field, name: str = "b", *more: str) -> Member:
    """Another one, on the second host, which has joined."""
    return await stage.joined(name, "--capability", "gpu=true", *more, listen=THERE, prefix=field.over_there)


async def ended(stage: Machines, ref: object) -> Any:
    """Why, of a monitor."""
    heard: Down = await stage.me.receive(lambda each: getattr(each, "ref", None) is ref, timeout=20)
    return heard.reason


async def placed(stage: Machines) -> tuple[Ref[NodeOwner], Ref[Hand], int]:
    """A node over there, a process on it, and the process that it is."""
    host = await stage.host(requires={"gpu": True})
    hand = await stage.hand(host)
    return host, hand, await hand.call(Hand.process_id)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self.began

    def __str__(self) -> str:
        return f"{self() * 1000:.0f} ms"
