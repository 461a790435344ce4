"""Lending a feed to another node: the process that has it here, and gives the events to whoever asks there, a batch for each question.

So nothing is on its way that was not asked for, and what nobody has fetched stays where the session keeps it for those who come back. It is tied to
the desk that it was lent to: when that node is lost, nobody reads here any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.supervision import CallTimeout, link
from greenroom.supervision.kernel.routine import receive

if TYPE_CHECKING:
    from greenroom.supervision import Pid
    from greenroom.transports.seam import Feed

UNFETCHED: Final = 10.0
"""Seconds after which a feed that nobody has asked for is taken back: whoever was to have it has gone away meanwhile."""


async def lend(feed: Feed, home: Pid) -> None:
    """Until it has ended; whoever has it there ends this process when they leave."""
    patience: float | None = UNFETCHED
    try:
        link(home)
        while True:
            caller = await receive(timeout=patience)
            patience = None
            events = await feed.next()
            caller.reply(None if events is None else [tuple(event) for event in events])
            if events is None:
                return
    except CallTimeout:
        return
    finally:
        feed.leave()
