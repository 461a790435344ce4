"""Where guests are let in: a listener for keyed links, and a process for each guest that is there.

::

    guests (rest_for_one)
    ├─ visits     dynamic; a process per guest, temporary
    └─ doorman    listens, and sees to it that link and visit end together

Nothing listens unless it is asked for. The default is a socket in the abstract namespace, which only processes of the same user (and root's) are
let in by; a host and port can be named instead. Whoever connects proves that they hold the key before anything else is read of them.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.names import Key, Name
from greenroom.actors.tree import Tree
from greenroom.errors import ConfigError
from greenroom.supervision import (
    ActorError,
    Down,
    DynamicSupervisor,
    GenServer,
    Ref,
    child,
    current_node,
    monitor,
    send_after,
    spawn,
    spawn_link,
    start_child,
    wait_down,
)
from greenroom.supervision.cluster.link import Link
from greenroom.supervision.cluster.sealing import greeting

from .door import Door, check_address
from .keys import guests_key
from .knocking import stranger_at
from .reports import NameTaken, Offences
from .visit import LinkOver, Payload, Visit
from .wire import KIND, TO_NODE, payload_limit

if TYPE_CHECKING:
    from greenroom.supervision import ChildSpec, ExitReason, Node, Pid
    from greenroom.supervision.cluster.sealing import Greeting

    from .answers import Asked

MOST_GUESTS: Final = 64
_TURN: Final = 1.0
"""How often one that stands by looks whether it is its turn, in seconds."""
_MINE: Final = object()
_STRANGERS: Final = 16
"""How many may be shaking hands at once."""
_UNREAD: Final = 1000
"""How many payloads a guest may send before its process is there; of the largest, two."""


class _Found(NamedTuple):
    """To a doorman that stands by: who has its address."""

    stranger: str | None


class Reception:
    """The settings of one, and what is known of it while it runs."""

    def __init__(
        self,
        asked: Asked,
        key: bytes | str | os.PathLike[str],
        *,
        address: str | None = None,
        most_guests: int = MOST_GUESTS,
        name: str = "guests",
    ) -> None:
        """`asked` is whom they ask. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default a name that is made of `name`. Raises `ConfigError`."""
        self.asked = asked
        self.key = guests_key(key)
        self.address = check_address(address or f"unix:@greenroom-{os.geteuid()}-{name}")
        """Where guests connect; a port of 0 has become a real one when it runs."""
        self.most_guests = most_guests
        self._key = Key.new(name)
        self.guests: int = 0
        """How many are there."""
        self.stands_by = False
        """Whether an address that is taken is another node's of the same server: then this one waits for its turn."""
        self.doorman: Doorman | None = None
        """Who let them in last."""

    def __repr__(self) -> str:
        return f"<Reception at {self.address}, {self.guests} guests>"

    def name(self, role: str) -> Name:
        """What the process with that role is registered as."""
        return Name(self._key, role)

    def child_spec(self) -> ChildSpec[Any]:
        """All of it as a child, for any supervisor that has the federation before it."""
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor).but(id="visits", name=self.name("visits")),
            child(Doorman, self).but(id="doorman", name=self.name("doorman")),
        ]
        tree = child(Tree, children, intensity=5, period=10.0, strategy="rest_for_one")
        return tree.but(id=str(self._key), name=self.name("guests"))


class Doorman(GenServer):
    """Listens. It is the `Party` of every link, too."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, reception: Reception) -> None:
        """For whom."""
        self._reception = reception
        self._node: Node
        self._offences: Offences
        self._door = Door()
        self._stranger: str | None = None
        self._told = False
        self._looks = False
        self._links: dict[Link, Pid | None] = {}
        self._early: dict[Link, list[bytes]] = {}

    # --- the process

    async def init(self) -> None:
        """Listen. Whoever did before is gone, killed perhaps, and could not close."""
        self._node = node = current_node()
        self._offences = Offences(str(self._reception.name("doorman")), node.loop.time, node.reports.emit)
        reception = self._reception
        if reception.doorman is not None:
            reception.doorman.shut()
        reception.doorman = self
        spawn(_shut_after, self)
        await self._listen()

    async def _listen(self) -> None:
        reception = self._reception
        try:
            reception.address = await self._door.open(self._welcome, reception.address)
        except (OSError, ValueError) as error:
            if reception.stands_by and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                self._stand_by()
                return
            raise ConfigError(f"guests cannot be let in at {reception.address}: {error}") from error

    def _stand_by(self) -> None:
        """Try again, and see meanwhile who it is that has the address."""
        send_after(_TURN, self.pid, _MINE)
        if not self._looks:
            self._looks = True
            spawn_link(_look, Ref[Doorman](self.pid, None), self._reception)

    def _found(self, stranger: str | None) -> None:
        """Told once, when it was so twice running: one that is about to close answers nobody either."""
        self._looks = False
        before, self._stranger = self._stranger, stranger
        if stranger is None:
            self._told = False
        elif before is not None and not self._told:
            self._told = True
            address, label = self._reception.address, str(self._reception.name("doorman"))
            self._node.reports.emit(NameTaken(pid=self.pid, label=label, address=address, why=stranger))

    async def admit(self, link: Link) -> None:
        """A guest has shaken hands: give it a process."""
        if link not in self._early:
            return  # gone again
        try:
            spec = child(Visit, self._reception.asked, link, self.pid).but(id=link, restart="temporary")
            visit = await start_child(self._reception.name("visits"), spec)
        except ActorError as error:
            link.end(str(error))
            return
        monitor(visit)
        for data in self._early.pop(link, ()):  # none, if it has left meanwhile
            visit.send(Payload(data))
        if link.over:
            visit.send(LinkOver())
        else:
            self._links[link] = visit.pid

    async def handle_info(self, message: Any) -> None:
        """A visit has ended: so does its link. Or it may be our turn to listen."""
        if message is _MINE:
            await self._listen()
        if isinstance(message, _Found):
            self._found(message.stranger)
        if isinstance(message, Down):
            for link, pid in tuple(self._links.items()):
                if pid is not None and pid == message.pid:
                    link.end("its process has ended")

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Let nobody in any more; who is there goes."""
        self.shut()

    def shut(self) -> None:
        """Close all that is open. Again is nothing."""
        self._door.close()
        for link in tuple(self._links):
            link.end("closed")

    # --- the party of its links; called by the loop, outside of any process

    def _welcome(self) -> Link:
        link = Link(self, dialling=False, largest=payload_limit(TO_NODE))
        self._links[link] = None
        strangers = [each for each in self._links if not each.up]
        if len(strangers) > _STRANGERS:
            strangers[0].end("too many handshakes at once")
        return link

    def greet(self) -> tuple[bytes, Greeting]:
        """Who we are."""
        return self._reception.key, greeting(self._node.name, self._node.incarnation, kind="host")

    def met(self, link: Link, peer: Greeting) -> str | None:
        """Somebody holds the key."""
        if peer.kind != KIND:
            return "only guests are let in here: a node has other doors"
        if sum(each.up for each in self._links) >= self._reception.most_guests:
            return f"there are {self._reception.most_guests} guests already"
        self._early[link] = []
        self._reception.guests = 1 + sum(each.up for each in self._links)
        self._in_the_node(lambda: Ref[Doorman](self.pid, None).cast(Doorman.admit, link))
        return None

    def came(self, link: Link, payload: bytes) -> None:
        """A guest has said something."""
        early = self._early.get(link)
        if early is not None:
            early.append(payload)
            if len(early) > _UNREAD or sum(map(len, early)) > 2 * payload_limit(TO_NODE):
                link.end("it says too much at once")
            return
        pid = self._links.get(link)
        if pid is not None:
            self._in_the_node(lambda: Ref[Visit](pid, None).send(Payload(payload)))

    def lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - whatever it was
        """A guest is gone, or a stranger."""
        if link.offence is not None:
            self._offences.note(self.pid, link.offence)
        pid = self._links.pop(link, None)
        self._early.pop(link, None)
        self._reception.guests = sum(each.up for each in self._links)
        if pid is not None:
            self._in_the_node(lambda: Ref[Visit](pid, None).send(LinkOver()))

    def _in_the_node(self, say: Any) -> None:
        if self._node.running:
            self._node.context.copy().run(say)


async def _shut_after(doorman: Doorman) -> None:
    """A process: whoever kills a doorman leaves its sockets to us."""
    await wait_down(doorman.pid, None)
    doorman.shut()


async def _look(doorman: Ref[Doorman], reception: Reception) -> None:
    """A process: who it is may take its time to say so."""
    doorman.send(_Found(await stranger_at(reception.address, reception.key)))
