"""Prints the events of the demonstration: a line for each death, each blocked loop, and each client that connects or disconnects."""

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
"""The interval at which clients are checked, in seconds."""


class EventPrinter(GenServer):
    """Prints a line per event on stdout. It gets reports of the node, and its own timer."""

    def __init__(self, company: Company, host: Host, begun: float) -> None:
        """`begun` is the start time, by `time.monotonic`."""
        self._company = company
        self._host = host
        self._begun = begun
        self._here: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._unsubscribe: Callable[[], None] = lambda: None

    def init(self) -> None:
        """Subscribe to the node's reports."""
        self._unsubscribe = current_node().reports.subscribe(self.ref().send)

    def follow_clients(self) -> None:
        """Look for clients and servers that come and go, from now on: when all parts of the program have started."""
        send_after(LOOK, self.pid, "look")

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for any reason
        """Unsubscribe."""
        self._unsubscribe()

    def say(self, text: str) -> None:
        """Print a line with the time."""
        lines = text.splitlines() or [""]
        print(
            f"{time.monotonic() - self._begun:7.2f}  {lines[0]}",
            *(f"{'':9}{line}" for line in lines[1:]),
            sep="\n",
            flush=True,
        )

    def show_tree(self) -> None:
        """Print the tree of processes."""
        self.say(draw(tree()))

    async def handle_info(self, message: Any) -> None:
        """Handle a report, or check the clients on the timer."""
        match message:
            case "look":
                await self._look()
                self._look_behind()
                send_after(LOOK, self.pid, "look")
            case CrashReport():
                self.say(
                    f"† {message.label} {message.pid}: {message.reason}. Its caller got an error, other calls were not affected."
                )
            case LoopBlocked():
                where = message.stack.strip().splitlines()
                self.say(f"! {message.label} {message.pid} blocks all calls, for {message.seconds:.1f} s now, at")
                self.say("\n".join(where[-2:]))
            case Leaked():
                self.say(f"! {message.label} {message.pid} does not end and was abandoned")
            case Report():
                pass
            case _:
                super().handle_info(message)

    async def _look(self) -> None:
        here = {card.id: _who(card) for card in await self._company.peers.all()}
        for id in here.keys() - self._here.keys():
            self.say(f"· {here[id]} has connected")
        for id in self._here.keys() - here.keys():
            self.say(f"· {self._here[id]} has disconnected")
        self._here = here

    def _look_behind(self) -> None:
        for id, standing in self._host.status().items():
            state = standing.state.value
            if self._states.get(id, state) != state:
                self.say(f"· the server {id} is {state}{_why(standing.cause)}")
            self._states[id] = state


def _why(cause: BaseException | None) -> str:
    if isinstance(cause, ProcessDied) and cause.signal is not None:
        return f": its process was ended by {cause.signal}, and is restarted"
    return "" if cause is None else f": {str(cause).splitlines()[0]}"


def _who(card: SessionInfo) -> str:
    """The name that a client reports, shortened and escaped."""
    return safe_repr.short(str(card.client_info.get("name", "a client")))
