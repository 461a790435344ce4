"""The process that owns a node's links: they are open as long as it lives, and its end is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from greenroom.supervision.behaviours.actions import Stop
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.requests import stop
from greenroom.supervision.behaviours.starting import Options
from greenroom.supervision.kernel.api import is_alive
from greenroom.supervision.kernel.messages import Exit

from .ushering import USHER, Usher

if TYPE_CHECKING:
    from greenroom.supervision.kernel.reasons import ExitReason

    from .peers import Peers


class _Ending:
    """Told of the owner's end, however it ended."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        self._peers.end()


class Peering(GenServer):
    """``child(Peering, peers)`` in whatever tree the node has; the first child, so that it stops last."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, peers: Peers, tcp: str | None = None) -> None:
        """`tcp` is a host to listen on, besides the unix socket."""
        self.peers = peers
        self.tcp = tcp

    async def init(self) -> None:
        """Listen, and have an usher."""
        await self.peers.open(tcp=self.tcp)
        self._otp_process.await_death(_Ending(self.peers))  # also of one that is killed, and cannot let go itself
        self._usher = await Options(name=USHER).start_link(Usher)

    def handle_info(self, message: object) -> Stop | None:
        """Without its usher it is of little use: whoever started it starts both anew."""
        return Stop(message.reason) if isinstance(message, Exit) else None

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Let go of everybody; whoever comes next finds the usher's name free."""
        if is_alive(self._usher):
            await stop(self._usher)
        await self.peers.close()
        await self.peers.closed()
