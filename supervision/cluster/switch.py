"""Everything between this node and one other: the processes of it that are held here, the calls under way, and what waits to be said.

While the other is being dialled, what is said to it waits; when it is lost, everything that is held of it dies with `NoConnection`, and
callers, links and monitors hear of that as of any death. What comes from there is dealt with in `remote_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from greenroom.supervision.kernel import exits
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.messages import NO_CONNECTION, NO_PROCESS, Crash, Shutdown, make_pid

from . import items
from . import remote_process as incoming
from .addresses import CannotTravel
from .framing import LARGEST
from .remote_process import FarProcess
from .values import RemoteError, encode

if TYPE_CHECKING:
    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.kernel.messages import ExitReason, Pid
    from greenroom.supervision.kernel.names import On
    from greenroom.supervision.kernel.node import Node

    from .link import Link
    from .remote_process import FarCaller, FarWatch

ROOM: Final = 256 * 1024 * 1024
"""How many bytes may wait for one link; then casts say no, and calls raise `MailboxFull`."""


class Switch:
    """This node's half of what two nodes know of each other, from dialling to the loss."""

    def __init__(self, node: Node, name: str) -> None:
        """Not connected yet; the life of that node is not known."""
        self.node = node
        self.name = name
        self.life: int | None = None
        self.link: Link | None = None
        self.lost = False
        self.watches: dict[int, FarWatch] = {}  # theirs, of processes here
        self.callers: dict[int, FarCaller] = {}  # theirs, of processes here
        self.calls: dict[int, Caller[Any]] = {}  # ours
        self._numbers: dict[Caller[Any], int] = {}
        self._armed: dict[int, FarProcess] = {}  # our watches: a process that is watched is held by that
        self._far: WeakValueDictionary[Pid, FarProcess] = WeakValueDictionary()
        self._number = 0
        self._backlog: list[tuple[int | None, bytes]] = []
        self._backlog_bytes = 0

    def __repr__(self) -> str:
        return f"<Switch to {self.name}{', lost' if self.lost else '' if self.link else ', not connected yet'}>"

    # --- the link

    def connect(self, link: Link, life: int) -> None:
        """It is there. Items that were meant for another life of that node are dropped."""
        self.life, self.link = life, link
        backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
        for meant, item in backlog:
            if meant in (None, life):
                link.post(item)
        self._bury_all(NO_PROCESS, but=life)

    def lose(self) -> None:
        """The other node cannot be reached any more."""
        if self.lost:
            return
        self.lost, self.link = True, None
        self._backlog, self._backlog_bytes = [], 0
        for watch in tuple(self.watches.values()):
            watch.drop()
        for caller in tuple(self.callers.values()):
            caller.drop()
        self.watches.clear()
        self.callers.clear()
        self._bury_all(NO_CONNECTION)
        for ours in tuple(self.calls.values()):  # those to a name, whose process was not known
            ours.exited(NO_CONNECTION)
        self.calls.clear()
        self._numbers.clear()

    def _bury_all(self, reason: ExitReason, but: int | None = None) -> None:
        """All that are held, `but` not those of that life of the other node, nor those held by a name."""
        for far in dict.fromkeys((*self._armed.values(), *self._far.values())):
            if but is None or not (far.named or far.pid.incarnation == but):
                self.bury(far, reason)

    def bury(self, far: FarProcess, reason: ExitReason) -> None:
        """It is gone."""
        if not far.life:
            self._far.pop(far.pid, None)
            far.reason = reason
            exits.bury(far)

    # --- the processes of the other node

    def process(self, pid: Pid) -> FarProcess | None:
        """The process with that pid; None in another life of its node."""
        if self.link is not None and pid.incarnation != self.life:
            return None
        far = self._far.get(pid)
        if far is None:
            far = self._far[pid] = FarProcess(self.node, self, pid)
        return far

    def named(self, name: On) -> FarProcess:
        """The process that has that name there, if any has. Raises `CannotTravel`."""
        encode(name.name, self.node.name)
        return FarProcess(self.node, self, make_pid(self.name, self.life or 0, 0), name)

    def there(self, serial: int) -> FarProcess | None:
        """A process that the other node speaks of."""
        return None if self.life is None else self.process(make_pid(self.name, self.life, serial))

    def known(self, serial: int) -> FarProcess | None:
        """The same, if it is held here."""
        return None if self.life is None else self._far.get(make_pid(self.name, self.life, serial))

    # --- out

    @property
    def has_room(self) -> bool:
        """Whether anything more may be said now."""
        return (self._backlog_bytes if self.link is None else self.link.waiting) < ROOM

    def post(self, *item: Any) -> None:
        """Say something. Raises `CannotTravel`."""
        self._post(None, item)

    def post_to(self, far: FarProcess, *item: Any) -> None:
        """Say something to one process, and to no other that may have its number in another life. Raises `CannotTravel`."""
        self._post(None if far.named else far.pid.incarnation, item)

    def post_reason(self, *item: Any) -> None:
        """Say something that ends with a reason, whatever that is made of."""
        self._post_reason(None, item)

    def post_reason_to(self, far: FarProcess, *item: Any) -> None:
        """As `post_reason`, to one process."""
        self._post_reason(None if far.named else far.pid.incarnation, item)

    def _post_reason(self, life: int | None, item: tuple[Any, ...]) -> None:
        try:
            self._post(life, item)
        except CannotTravel:
            self._post(life, (*item[:-1], _told(item[-1])))

    def _post(self, life: int | None, item: tuple[Any, ...]) -> None:
        if self.lost:
            return
        encoded = encode(list(item), self.node.name)
        if len(encoded) > LARGEST - 5:
            raise CannotTravel(
                f"a message of {len(encoded)} bytes cannot travel to another node: at most {LARGEST - 5}"
            )
        if self.link is not None:
            self.link.post(encoded)
        else:
            self._backlog.append((life, encoded))
            self._backlog_bytes += len(encoded)

    # --- calls and watches of ours

    def call(self, far: FarProcess, caller: Caller[Any], kind: int, *rest: Any) -> None:
        """Ask something; the answer finds `caller`."""
        number = self._number = self._number + 1
        me = caller.process
        self.post_to(far, kind, number, None if me is None or me.away else me.pid.serial, far.to, *rest)
        if not self.lost:
            self.calls[number] = caller
            self._numbers[caller] = number

    def answered(self, number: int) -> Caller[Any] | None:
        """The answer to a call has come: the caller, if it still waits."""
        caller = self.calls.pop(number, None)
        if caller is not None:
            del self._numbers[caller]
        return caller

    def forget(self, far: FarProcess, caller: Caller[Any]) -> None:
        """The caller does not wait for that answer any more: say so, unless it has just come."""
        number = self._numbers.pop(caller, None)
        if number is not None:
            del self.calls[number]
            self.post_to(far, items.FORGET, number)

    def arm(self, far: FarProcess) -> int:
        """Ask to be told of its end."""
        number = self._number = self._number + 1
        self.post_to(far, items.WATCH, number, far.to)
        self._armed[number] = far
        return number

    def disarm(self, far: FarProcess, number: int) -> None:
        """No more."""
        if self._armed.pop(number, None) is not None:
            self.post_to(far, items.UNWATCH, number)

    def gone(self, number: int) -> FarProcess | None:
        """The end of a process that was watched has come."""
        return self._armed.pop(number, None)

    # --- in

    def came(self, payload: bytes) -> None:
        """What the other node said."""
        incoming.take(self, payload)


def _told(reason: ExitReason) -> ExitReason:
    """A reason that cannot travel, in words."""
    if isinstance(reason, Shutdown):
        try:
            return Shutdown(str(reason.detail))
        except Exception:  # noqa: BLE001 - whatever a user's __str__ does
            return Shutdown(object.__repr__(reason.detail))
    error = reason.error if isinstance(reason, Crash) else ActorError(str(reason))
    return Crash(RemoteError(type(error).__name__, str(reason)))
