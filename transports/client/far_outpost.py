"""The other end of a wire that runs in another process: opens the real one there, says what it is given, and sends back what is heard.

Two processes of that node, tied to each other: the outpost takes what comes from home, and the ear owns the wire. The ear stops reading when
too much of what it has sent was not taken at home; then the wire does, as with any owner that does not keep up.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.supervision import (
    SHUTDOWN,
    Exit,
    GenServer,
    NoConnection,
    Ref,
    Shutdown,
    Stop,
    exit,
    kill,
    receive,
    self_pid,
    spawn_link,
    trap_exit,
)
from greenroom.supervision.cluster import CannotTravel

from . import far_words as words
from .errors import ConnectFailed, ConnectionLost, TransportError, WireFull
from .seam import Inbound, Lost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ExitReason, Pid

    from .seam import Credentials, Wire
    from .tickets import Ticket

MAILS: Final = 32
"""How many mails may be on their way to home,"""
BYTES: Final = 4 * 1024 * 1024
"""and how much they may weigh: beyond that nothing more is read."""
OFTEN: Final = 64
"""After so many messages from home, it is told that they were taken;"""
MUCH: Final = 1024 * 1024
"""or after so many bytes."""


class Desk:
    """What stayed at home, as a route there sees it: the credentials, and whoever wants the lines of a program's stderr."""

    def __init__(self, home: Ref[Any]) -> None:
        """`home` is the wire that stands for this one there."""
        self._home = home
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}

    @property
    def credentials(self) -> Credentials:
        """Those that are at home."""
        return self

    def line(self, text: str) -> None:
        """The server has written this to stderr."""
        self._home.send([words.LINE, text])

    async def headers(self) -> Mapping[str, str]:
        """Who we are, asked for anew each time."""
        said: Mapping[str, str] = await self._ask("headers")
        return said

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """The server did not take that."""
        return bool(await self._ask("refused", status, challenge, dict(sent)))

    async def _ask(self, what: str, *args: Any) -> Any:
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._home.send([words.ASK, number, what, list(args)])
            return await asked
        finally:
            del self._asked[number]

    def told(self, number: int, *, ok: bool, value: Any) -> None:
        """Home has answered."""
        asked = self._asked.get(number)
        if asked is None or asked.done():
            return
        if ok:
            asked.set_result(value)
        else:
            asked.set_exception(value)


class Credit:
    """How much more may be sent before home has taken some of it."""

    def __init__(self) -> None:
        """All of it."""
        self._mails = 0
        self._bytes = 0
        self._free = False
        self._waiting: asyncio.Future[None] | None = None

    async def spend(self, size: int) -> None:
        """One more mail goes."""
        while not self._free and (self._mails >= MAILS or self._bytes >= BYTES):
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._mails += 1
        self._bytes += size

    def earn(self, mails: int, size: int) -> None:
        """So much was taken."""
        self._mails -= mails
        self._bytes -= size
        self._wake()

    def free(self) -> None:
        """Nobody takes anything any more, so nobody waits for that."""
        self._free = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Outpost(GenServer):
    """One for each wire."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, home: Pid, ticket: Ticket) -> None:
        """`home` is the wire that stands for this one; the ticket says where the server is."""
        self._home: Ref[Any] = Ref(home)
        self._ticket = ticket
        self._credit = Credit()
        self._desk = Desk(self._home)
        self._wire: Wire | None = None
        self._ear: Pid
        self._taken = [0, 0]

    async def init(self) -> None:
        """Begin the wire."""
        self._otp_process.await_death(self)
        begun = asyncio.get_running_loop().create_future()
        self._ear = spawn_link(_listen, self._home, self._ticket, self._desk, self._credit, begun)
        self._wire = await begun

    def handle_info(self, message: Any) -> Stop | None:
        """From home; or somebody has ended."""
        wire = self._wire
        match message:
            case [words.SAY, frame, id, ordered]:
                if wire is not None:
                    self._say(wire, frame, id, ordered=ordered)
            case [words.FORGET, id]:
                if wire is not None:
                    wire.forget(id)
            case [words.AGREED, version]:
                if wire is not None:
                    wire.agreed(version)
            case [words.HEARD, mails, size]:
                self._credit.earn(mails, size)
            case [words.TOLD, number, ok, value]:
                self._desk.told(number, ok=ok, value=value)
            case [words.CLOSE]:
                if wire is not None:
                    exit(wire.pid, SHUTDOWN)
            case Exit(pid=pid, reason=reason) if pid == self._ear:
                return Stop(reason)
            case _:
                super().handle_info(message)
        return None

    def _say(self, wire: Wire, frame: bytes, id: Any, *, ordered: bool) -> None:
        self._taken[0] += 1
        self._taken[1] += len(frame)
        if self._taken[0] >= OFTEN or self._taken[1] >= MUCH:
            self._home.send([words.TOOK, *self._taken])
            self._taken = [0, 0]
        try:
            wire.send(frame, id, ordered=ordered)
        except WireFull as full:
            if id is not None:
                data, plain = words.pack([Lost(id, full, resend=True)])
                self._home.send([words.CAME, data, plain])

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - the ear is told
        """It is gone, with home or without, and takes no more thanks: an ear that waits for some would never hear of it."""
        self._credit.free()


async def _listen(
    home: Ref[Any], ticket: Ticket, desk: Desk, credit: Credit, begun: asyncio.Future[Wire | None]
) -> None:
    """The ear."""
    trap_exit()
    try:
        wire = ticket.route(desk).open(self_pid())
    except Exception as error:  # noqa: BLE001 - a route is anybody's code, and this is an attempt in vain
        cause = error if isinstance(error, TransportError) else ConnectFailed(f"{type(error).__name__}: {error}")
        _last(home, Shutdown(cause))
        begun.set_result(None)
        return
    begun.set_result(wire)
    while True:
        message = await receive()
        if isinstance(message, Inbound):
            data, plain = words.pack(message.heard)
            await credit.spend(len(data))
            home.send([words.CAME, data, plain])
        elif isinstance(message, Exit):
            if message.pid == wire.pid:
                _last(home, message.reason)
                return
            if isinstance(message.reason, Shutdown | NoConnection):  # home's end, or that of the way there
                exit(wire.pid, SHUTDOWN)
            else:
                kill(wire.pid)


def _last(home: Ref[Any], reason: ExitReason) -> None:
    try:
        home.send([words.ENDED, reason])
    except CannotTravel:
        home.send([words.ENDED, Shutdown(ConnectionLost(f"the wire has ended: {reason}"))])
