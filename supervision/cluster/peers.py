"""The other nodes, as this one knows them: who is connected, who can be dialled, who has fallen silent.

Every node listens; two nodes that talk have one link, whoever began it. A node is lost when its link ends or nothing is heard of it for
`heartbeat * misses` seconds; who wants to know gets `NodeUp` and `NodeDown`. This is a table and no process: `peering` has the one that owns it.

When two dial each other at once, one link has to go, and both ends have to choose the same. Who dials knows whom before it proves itself, and
makes a note of it; who listens has the last word, and finds that note: the link that the node with the lesser name has dialled stays. No
link that is up ends of this, and who is turned away for it waits, and dials again if the other does not come.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.supervision.kernel.errors import ActorError, CallTimeout
from greenroom.supervision.kernel.pid import Pid, make_pid
from greenroom.supervision.kernel.reasons import NO_CONNECTION, NO_PROCESS
from greenroom.supervision.kernel.reports import Report

from .addresses import Listening
from .dialling import BUSY, Dialling
from .far import Held
from .link import LINGER_SECONDS, Link
from .sealing import check_key, greeting
from .silence import Silence
from .switch import Switch

if TYPE_CHECKING:
    from greenroom.supervision.behaviours.calls import Ref
    from greenroom.supervision.kernel.away import Away
    from greenroom.supervision.kernel.names import On
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.reasons import ExitReason

    from .sealing import Greeting

HEARTBEAT: Final = 1.0
MISSES: Final = 3
_HANDSHAKES: Final = 256
"""How many strangers may be shaking hands at once."""

_get_ident = threading.get_ident


class NodeUp(NamedTuple):
    """A node is connected."""

    name: str


class NodeDown(NamedTuple):
    """A node is not connected any more; `why` in words."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOffence(Report):
    """Something came over a connection that no node which holds the key would send; the connection was ended.

    `more` is how many others were since the last report: there is one a second at most.
    """

    level: ClassVar[int] = logging.WARNING

    what: str
    more: int = 0

    def __str__(self) -> str:
        return f"a connection was refused: {self.what}{f' (and {self.more} others)' if self.more else ''}"


class Peers(Dialling):
    """One node's links to others."""

    def __init__(
        self, node: Node, key: bytes, *, heartbeat: float = HEARTBEAT, misses: int = MISSES, kind: str = "node"
    ) -> None:
        """Nothing is open yet."""
        super().__init__(node)
        self.silence = Silence(self, heartbeat, misses)
        self._key = check_key(key)
        self._kind = kind
        self._listening = Listening()
        self._watchers: dict[Ref[Any], None] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._offences = 0
        self._told_at: float | None = None
        self._empty: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Peers of {self.node.name}: {', '.join(self.connected) or 'nobody'}>"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where this node listens."""
        return self._listening.addresses

    @property
    def heartbeat(self) -> float:
        """How often each end of a link says something, in seconds."""
        return self.silence.heartbeat

    @property
    def misses(self) -> int:
        """After how many heartbeats without a word a node is lost."""
        return self.silence.misses

    @property
    def connected(self) -> tuple[str, ...]:
        """The names of the nodes that are."""
        return tuple(name for name, switch in self._switches.items() if switch.link is not None)

    def links(self) -> list[tuple[str, Link]]:
        """The links that are up, and to whom."""
        return [(name, switch.link) for name, switch in self._switches.items() if switch.link is not None]

    # --- open and close

    async def open(self, *, tcp: str | None = None) -> None:
        """Listen: on a unix socket of our own, and on the host `tcp` if one is given. From now on other nodes' pids work."""
        if self.node.elsewhere is not None:
            raise ActorError(f"{self.node!r} has its peers already")
        self.node.elsewhere = self
        self._open = True
        try:
            await self._listening.open(self._welcome, tcp)
        except BaseException:
            self._open, self.node.elsewhere = False, None
            raise
        self.silence.begin()

    def _welcome(self) -> Link:
        link = Link(self, dialling=False)
        self._links[link] = None
        strangers = [each for each, switch in self._links.items() if switch is None and not each.dialling]
        if len(strangers) > _HANDSHAKES:
            strangers[0].end("too many handshakes at once")  # the one that has been at it for longest makes room
        return link

    async def close(self) -> None:
        """As `end`."""
        self.end()

    def end(self) -> None:
        """Let go of every node, at once; what was said before is still sent, and `closed` waits for that. Again is nothing."""
        self._open = False
        for task in tuple(self._tasks):
            task.cancel()
        self.silence.end()
        self._listening.close()
        for link in tuple(self._links):
            link.close()
        for switch in tuple(self._switches.values()):
            self._lose(switch, "closed")
        for future in [each for waiting in self._waiting.values() for each in waiting if not each.done()]:
            future.set_exception(ActorError(f"{self!r} was closed"))
        self._waiting.clear()
        self._watchers.clear()
        if self.node.elsewhere is self:
            self.node.elsewhere = None

    async def closed(self) -> None:
        """Wait, once it is closed, until the last socket is, too; about a second at most."""
        if self._links:
            self._empty = self.node.loop.create_future()
            await asyncio.wait((self._empty,), timeout=2 * LINGER_SECONDS)

    # --- for the node

    def process(self, pid: Pid) -> Away | None:
        """The process with that pid of another node."""
        if _get_ident() != self.node.thread:
            return Held(self.node, pid, pid)
        switch = self._reach(pid.node)
        return None if switch is None else switch.process(pid)

    def named(self, name: On) -> Away | None:
        """The process with that name on another node. Raises `CannotTravel` for a name that cannot be said there."""
        if _get_ident() != self.node.thread:
            return Held(self.node, make_pid(name.node, 0, 0), name)
        switch = self._reach(name.node)
        return None if switch is None else switch.named(name)

    def absence(self, node: str) -> ExitReason:
        """Why there is nobody: a node that is connected has begun a new life, or it is not connected."""
        return NO_PROCESS if node in self._switches else NO_CONNECTION

    # --- for links

    def greet(self) -> tuple[bytes, Greeting]:
        """Who we are."""
        mine = greeting(self.node.name, self.node.incarnation, kind=self._kind, addresses=self.addresses)
        return self._key, mine

    def met(self, link: Link, peer: Greeting) -> str | None:
        """Somebody holds the key; why they are not wanted, or None."""
        name, life = peer.name, peer.incarnation
        if not self._open:
            return f"{self.node.name} is closing"
        if name == self.node.name:
            return f"it is called {name}, too: give each node a name of its own"
        switch = self._switches.get(name)
        if switch is not None and switch.link is not None:
            if (switch.life or 0) > life:
                return "a newer life of that node is connected already"
            if switch.life == life:
                # Both dialled at once, and this one has come late; or else it has lost the other, and then the silence will show.
                return BUSY
        mine = self._dialled.get(name)
        if mine is not None and mine is not link and not link.dialling:
            if self.node.name < name:
                return BUSY
            mine.end("the other end has dialled, too")
        if switch is not None and switch.link is not None:
            old = switch.link  # of a former life
            self._lose(switch, "it has connected anew")
            old.end("it has connected anew")
            switch = None
        self._join(link, switch, peer)
        return None

    def _join(self, link: Link, switch: Switch | None, peer: Greeting) -> None:
        name = peer.name
        if switch is None:
            switch = self._switches[name] = Switch(self.node, name)
        self._links[link] = switch
        if self._dialled.get(name) is link:
            del self._dialled[name]
        if peer.addresses:
            self._learned[name] = peer.addresses
        self.node.context.copy().run(switch.connect, link, peer.incarnation)
        link.arrive(name)
        for future in self._waiting.pop(name, ()):
            if not future.done():
                future.set_result(None)
        self._tell(NodeUp(name))

    def came(self, link: Link, payload: bytes) -> None:
        """Something was said; what it gives our processes to do is done at once."""
        switch = self._links.get(link)
        if switch is not None and switch.link is link:
            self.node.context.run(self.node.serve, lambda: switch.came(payload))

    def lost(self, link: Link, why: str) -> None:
        """A link is over."""
        switch = self._links.pop(link, None)
        peer = link.peer
        if peer is not None and self._dialled.get(peer.name) is link:
            del self._dialled[peer.name]
        if link.offence is not None and not (link.dialling and switch is None):  # else whoever dialled hears of it
            self._report(link.offence)
        link.fail(why)
        if switch is not None and switch.link is link:
            self._lose(switch, why)
        if not self._links and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _report(self, what: str) -> None:
        now = self.node.loop.time()
        if self._told_at is not None and now - self._told_at < 1:
            self._offences += 1
            return
        more, self._offences, self._told_at = self._offences, 0, now
        self.node.reports.emit(LinkOffence(pid=self.node.root_pid(), label="links", what=what, more=more))

    def _lose(self, switch: Switch, why: str) -> None:
        if self._switches.get(switch.name) is switch:
            del self._switches[switch.name]
        self.silence.forget(switch.name)
        was_up = switch.link is not None
        self.node.context.copy().run(switch.lose)
        if was_up:
            self._tell(NodeDown(switch.name, why))

    # --- who is there

    async def wait_for(self, name: str, timeout: float | None = 5.0) -> None:
        """Until that node is connected. Raises `CallTimeout`."""
        if name in self.connected:
            return
        future: asyncio.Future[None] = self.node.loop.create_future()
        waiting = self._waiting.setdefault(name, [])
        waiting.append(future)
        try:
            done, _ = await asyncio.wait((future,), timeout=timeout)
        finally:
            waiting.remove(future)
            if not waiting and self._waiting.get(name) is waiting:
                del self._waiting[name]
        if not done:
            raise CallTimeout(timeout or 0.0, f"node {name}", "connect")
        future.result()

    def watch(self, who: Ref[Any]) -> None:
        """Send `who` a `NodeUp` and a `NodeDown` for each from now on."""
        self._watchers[who] = None

    def unwatch(self, who: Ref[Any]) -> None:
        """No more."""
        self._watchers.pop(who, None)

    def _tell(self, event: NodeUp | NodeDown) -> None:
        for who in tuple(self._watchers):
            try:
                heard = self.node.context.copy().run(who.send, event)
            except ActorError:  # its name is in a registry that does not run now
                heard = False
            if not heard and isinstance(who.target, Pid) and self.node.process(who.target) is None:
                self._watchers.pop(who, None)

    def drained(self, name: str) -> bool:
        """Write what was said to that node, now; whether the system has taken all of it."""
        switch = self._switches.get(name)
        return switch is None or switch.link is None or switch.link.drained()

    def disconnect(self, name: str, why: str = "disconnected") -> None:
        """End the link to a node, at once."""
        switch = self._switches.get(name)
        if switch is not None and switch.link is not None:
            switch.link.end(why)

    def patient(self, name: str, on: bool) -> None:  # noqa: FBT001 - a switch
        """Whether that node may be silent for as long as it likes: what it is at has a deadline of its own."""
        if on:
            self.silence.allow(name)
        else:
            self.silence.forget(name)
            for connected, link in self.links():
                if connected == name:
                    link.heard = self.node.loop.time()
