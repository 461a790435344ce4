"""Prints what happens in the demonstration: one line for each death, for each blocked loop, and for each peer that comes or goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from greenroom.supervision import (
    CrashReport,
    GenServer,
    Leaked,
    LoopBlocked,
    Report,
    current_node,
    draw,
    safe_repr,
    send_after,
    tree,
)
from greenroom.transports.client.errors import ProcessDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.actors.company import Company
    from greenroom.actors.process_names import SessionInfo
    from greenroom.host import Host
    from greenroom.supervision import ExitReason

LOOK = 0.25
"""How often it looks who is there."""


class Teller(GenServer):
    """One line a happening, on stdout."""

    def __init__(self, company: Company, host: Host, begun: float) -> None:
        """`begun` is when the programme began, on the clock of `time.monotonic`."""
        self._company = company
        self._host = host
        self._begun = begun
        self._here: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._unsubscribe: Callable[[], None] = lambda: None

    def init(self) -> None:
        """Listen from now on."""
        self._unsubscribe = current_node().reports.subscribe(self.ref().send)
        send_after(LOOK, self.pid, "look")

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - why it ends is nothing to it
        """Listen no more."""
        self._unsubscribe()

    def say(self, text: str) -> None:
        """Print it, with the time."""
        lines = text.splitlines() or [""]
        print(
            f"{time.monotonic() - self._begun:7.2f}  {lines[0]}",
            *(f"{'':9}{line}" for line in lines[1:]),
            sep="\n",
            flush=True,
        )

    def show_tree(self) -> None:
        """Draw all processes that are alive."""
        self.say(draw(tree()))

    async def handle_info(self, message: Any) -> None:
        """A report, or time to look."""
        match message:
            case "look":
                await self._look()
                self._look_behind()
                send_after(LOOK, self.pid, "look")
            case CrashReport():
                self.say(
                    f"† {message.label} {message.pid}: {message.reason}. Its caller was told, nobody else noticed."
                )
            case LoopBlocked():
                where = message.stack.strip().splitlines()
                self.say(
                    f"! {message.label} {message.pid} keeps everybody waiting, for {message.seconds:.1f} s now, at"
                )
                self.say("\n".join(where[-2:]))
            case Leaked():
                self.say(f"! {message.label} {message.pid} does not end, and was left behind")
            case Report():
                pass
            case _:
                super().handle_info(message)

    async def _look(self) -> None:
        here = {card.id: _who(card) for card in await self._company.peers.all()}
        for id in here.keys() - self._here.keys():
            self.say(f"· {here[id]} has come")
        for id in self._here.keys() - here.keys():
            self.say(f"· {self._here[id]} has left")
        self._here = here

    def _look_behind(self) -> None:
        for id, standing in self._host.status().items():
            state = standing.state.value
            if self._states.get(id, state) != state:
                self.say(f"· the server {id} is {state}{_why(standing.cause)}")
            self._states[id] = state


def _why(cause: BaseException | None) -> str:
    if isinstance(cause, ProcessDied) and cause.signal is not None:
        return f": its process was ended by {cause.signal}, and is started again"
    return "" if cause is None else f": {str(cause).splitlines()[0]}"


def _who(card: SessionInfo) -> str:
    """What a client calls itself; it may call itself anything."""
    return safe_repr.short(str(card.client_info.get("name", "somebody")))
