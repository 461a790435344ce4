"""The links of one node: which nodes are connected, which can be dialled, and which have gone silent.

Every node listens; two nodes that talk have one link, whichever dialled. A node is lost when its link ends, or nothing is received from it for `heartbeat * misses`
seconds; watchers get `NodeUp` and `NodeDown`. This is a table and no process: a `Peering` owns it, and closes it when it ends.

When two nodes dial each other at once, both must keep the same link: the one that the node with the smaller name has dialled. The dialler knows its peer before it
proves itself, and notes it; the listener decides last, and finds that note. No link that is up is closed by this. A dialler that is refused for it waits, and
dials again if the other link does not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.process_start import Options
from greenroom.supervision.behaviours.refs import stop
from greenroom.supervision.behaviours.replies import Stop
from greenroom.supervision.kernel.api import is_alive
from greenroom.supervision.kernel.errors import ActorError, CallTimeout
from greenroom.supervision.kernel.process_messages import NO_CONNECTION, NO_PROCESS, Exit, Pid, make_pid
from greenroom.supervision.kernel.reports import Report

from . import link_protocol
from .addresses import NodeListener, dial
from .framing import LinkRefused, check_key, greeting
from .link import LINGER_SECONDS, Link, LinkOwner
from .remote_node import RemoteNode, handle_batch
from .remote_process import CrossThreadProcess
from .remote_spawn import SPAWN_SERVER, SpawnServer
from .value_codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.supervision.behaviours.refs import Ref
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import RemoteProcessBase
    from greenroom.supervision.kernel.process_lookup import On
    from greenroom.supervision.kernel.process_messages import ExitReason

    from .framing import Greeting

BUSY: Final = "it is dialling this node just now, or has a link to it"
_AGAIN: Final = 0.1
"""How long to wait for the other node's own dialling before one more try."""
HEARTBEAT: Final = 1.0
MISSES: Final = 3
_HANDSHAKES: Final = 256
"""How many unauthenticated connections may be in the handshake at once."""
_LOOKS: Final = 4
_BEAT: Final = encode([link_protocol.BEAT], "")

_get_ident = threading.get_ident


class NodeUp(NamedTuple):
    """A node is connected."""

    name: str


class NodeDown(NamedTuple):
    """A node is not connected any more; `why` is a text."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOffence(Report):
    """A connection was closed because of data that no node with the key would send.

    `more` is how many others there were since the last report; there is at most one report a second.
    """

    level: ClassVar[int] = logging.WARNING

    what: str
    more: int = 0

    def __str__(self) -> str:
        return f"a connection was refused: {self.what}{f' (and {self.more} others)' if self.more else ''}"


_BETWEEN_OFFENCES: Final = 1.0


class OffenceReporter:
    """Reports such connections of one listener, at most once a second."""

    def __init__(self, label: str, now: Callable[[], float], report: Callable[[Report], None]) -> None:
        """`now` is the clock, and `report` takes the reports."""
        self._label = label
        self._now = now
        self._notify = report
        self._reported_at: float | None = None
        self._skipped = 0

    def note(self, pid: Pid, what: str) -> None:
        """Count one, and report it if the last report is old enough."""
        now = self._now()
        if self._reported_at is not None and now - self._reported_at < _BETWEEN_OFFENCES:
            self._skipped += 1
            return
        more, self._skipped, self._reported_at = self._skipped, 0, now
        self._notify(LinkOffence(pid=pid, label=self._label, what=what, more=more))


class Peers(LinkOwner):
    """One node's links to others."""

    def __init__(
        self, node: Node, key: bytes, *, heartbeat: float = HEARTBEAT, misses: int = MISSES, kind: str = "node"
    ) -> None:
        if not heartbeat > 0 or misses < 1:
            raise ValueError(
                f"heartbeat must be more than 0 seconds and misses at least 1, not {heartbeat!r} and {misses!r}"
            )
        self.node = node
        self._heartbeat = heartbeat
        self._misses = misses
        self._may_be_silent: set[str] = set()  # nodes that are allowed to be silent
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._key = check_key(key)
        self._kind = kind
        self._open = False
        self._listening = NodeListener()
        self._remotes: dict[str, RemoteNode] = {}
        self._links: dict[Link, RemoteNode | None] = {}
        self._dialled: dict[str, Link] = {}  # links in the handshake that this node has dialled, once the peer is known
        self._introduced: dict[str, tuple[str, ...]] = {}
        self._learned: dict[str, tuple[str, ...]] = {}  # addresses that connected nodes have announced
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watchers: dict[Ref[Any], None] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._offences = OffenceReporter("links", lambda: node.loop.time(), node.reports.emit)  # noqa: PLW0108 - the node has no loop yet
        self._empty: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Peers of {self.node.name}: {', '.join(self.connected) or 'no node'}>"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses on which this node listens."""
        return self._listening.addresses

    @property
    def connected(self) -> tuple[str, ...]:
        """The names of the connected nodes."""
        return tuple(name for name, remote in self._remotes.items() if remote.link is not None)

    def links(self) -> list[tuple[str, Link]]:
        """The links that are up, with their peers' names."""
        return [(name, remote.link) for name, remote in self._remotes.items() if remote.link is not None]

    # --- open and close

    async def open(self, *, tcp: str | None = None) -> None:
        """Listen on a unix socket of its own, and on the host `tcp` if one is given. From now on other nodes' pids can be used."""
        if self.node.remote_nodes is not None:
            raise ActorError(f"{self.node!r} has its peers already")
        self.node.remote_nodes = self
        self._open = True
        try:
            await self._listening.open(self._accept, tcp)
        except BaseException:
            self._open, self.node.remote_nodes = False, None
            raise
        self._schedule_heartbeat()

    def _accept(self) -> Link:
        link = Link(self, dialling=False)
        self._links[link] = None
        strangers = [each for each, remote in self._links.items() if remote is None and not each.dialling]
        if len(strangers) > _HANDSHAKES:
            strangers[0].end("too many handshakes at once")  # the oldest makes room
        return link

    async def close(self) -> None:
        """As `end`."""
        self.end()

    def end(self) -> None:
        """Drop all nodes at once. Items that were posted before are still sent; `closed` waits for that. Calling it again is a no-op."""
        self._open = False
        for task in tuple(self._tasks):
            task.cancel()
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        self._listening.close()
        for link in tuple(self._links):
            link.close()
        for remote in tuple(self._remotes.values()):
            self._lose(remote, "closed")
        for future in [each for waiting in self._waiting.values() for each in waiting if not each.done()]:
            future.set_exception(ActorError(f"{self!r} was closed"))
        self._waiting.clear()
        self._watchers.clear()
        if self.node.remote_nodes is self:
            self.node.remote_nodes = None

    async def closed(self) -> None:
        """Wait until the last socket of the closed table is closed; about a second at most."""
        if self._links:
            self._empty = self.node.loop.create_future()
            await asyncio.wait((self._empty,), timeout=2 * LINGER_SECONDS)

    # --- dialling

    async def connect(self, addresses: Sequence[str], timeout: float = 5.0) -> str:
        """Dial the first of these addresses that answers; returns the name of the node. Raises `LinkRefused`.

        When that node is connected already, the existing link stays.
        """
        wrong: list[str] = []
        for address in addresses:
            try:
                async with asyncio.timeout(timeout):
                    while (found := await self._try(address)) is None:
                        pass  # the other node's dialling came to nothing: dial once more
                    return found
            except TimeoutError:
                wrong.append(f"{address}: no answer within {timeout:g} s")
            except (OSError, LinkRefused) as error:
                wrong.append(f"{address}: {error}")
        raise LinkRefused(f"no node could be reached: {'; '.join(wrong) or 'no address was given'}")

    async def _try(self, address: str) -> str | None:
        """One handshake; None when the other end preferred its own link, and that did not come."""
        arrived: asyncio.Future[str] = self.node.loop.create_future()
        made: list[Link] = []

        def make() -> Link:
            link = Link(self, dialling=True)
            link.arrived, link.on_greeting = arrived, self._on_greeting
            made.append(link)
            self._links[link] = None
            return link

        try:
            await dial(self.node.loop, make, address)
            return await arrived
        except LinkRefused as error:
            peer = made[0].peer if made else None
            if peer is not None and peer.name in self.connected:
                return peer.name
            if peer is None or not str(error).endswith(BUSY):
                raise
            with contextlib.suppress(CallTimeout):
                await self.wait_for(peer.name, _AGAIN)
                return peer.name
            return None
        finally:
            for link in made:
                if not link.up:
                    link.end("given up")

    def introduce(self, name: str, addresses: Sequence[str]) -> None:
        """From now on, dial that node when there is something to send to it."""
        self._introduced[name] = tuple(addresses)

    def forget(self, name: str) -> None:
        """Do not dial that node any more; an existing link stays."""
        self._introduced.pop(name, None)
        self._learned.pop(name, None)

    def _remote_for(self, name: str) -> RemoteNode | None:
        remote = self._remotes.get(name)
        if remote is not None or not self._open:
            return remote
        addresses = dict.fromkeys((*self._learned.get(name, ()), *self._introduced.get(name, ())))
        if not addresses:
            return None
        remote = self._remotes[name] = RemoteNode(self.node, name)
        # a task of the node, not of the process that sends first: that one's end must not end the dialling
        task = self.node.loop.create_task(self._dial_for(remote, tuple(addresses)), context=self.node.context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return remote

    async def _dial_for(self, remote: RemoteNode, addresses: Sequence[str]) -> None:
        why = "another node answered"
        try:
            found = await self.connect(addresses)
            why = f"node {found} answered instead"
        except LinkRefused as error:
            why = str(error)
        finally:
            if remote.link is None and self._remotes.get(remote.name) is remote:
                self._lose(remote, why)

    def _on_greeting(self, link: Link, peer: Greeting) -> str | None:
        """The peer of a link that we dial is known: returns why not to go on, or None."""
        if peer.name == self.node.name:
            return f"it is called {peer.name}, too: give each node a name of its own"
        remote = self._remotes.get(peer.name)
        if remote is not None and remote.link is not None and remote.life == peer.incarnation:
            return "it is connected already"
        first = self._dialled.setdefault(peer.name, link)
        return None if first is link else BUSY

    # --- called by the node

    def process(self, pid: Pid) -> RemoteProcessBase | None:
        """The process of another node with that pid."""
        if _get_ident() != self.node.thread:
            return CrossThreadProcess(self.node, pid, pid)
        remote = self._remote_for(pid.node)
        return None if remote is None else remote.process(pid)

    def named(self, name: On) -> RemoteProcessBase | None:
        """The process with that name on another node. Raises `CannotTravel` for a name that cannot be encoded."""
        if _get_ident() != self.node.thread:
            return CrossThreadProcess(self.node, make_pid(name.node, 0, 0), name)
        remote = self._remote_for(name.node)
        return None if remote is None else remote.named(name)

    def absence(self, node: str) -> ExitReason:
        """Why a process of that node does not exist: the node has a new incarnation, or is not connected."""
        return NO_PROCESS if node in self._remotes else NO_CONNECTION

    # --- called by links

    def greet(self) -> tuple[bytes, Greeting]:
        """The key, and the greeting of this node."""
        mine = greeting(self.node.name, self.node.incarnation, kind=self._kind, addresses=self.addresses)
        return self._key, mine

    def on_handshake(self, link: Link, peer: Greeting) -> str | None:
        """The peer holds the key; returns why it is refused, or None."""
        name, life = peer.name, peer.incarnation
        if not self._open:
            return f"{self.node.name} is closing"
        if name == self.node.name:
            return f"it is called {name}, too: give each node a name of its own"
        remote = self._remotes.get(name)
        if remote is not None and remote.link is not None:
            if (remote.life or 0) > life:
                return "a newer life of that node is connected already"
            if remote.life == life:
                # Both have dialled at once, and this link is the later one; or the other end has lost the old link, which the heartbeats will show.
                return BUSY
        mine = self._dialled.get(name)
        if mine is not None and mine is not link and not link.dialling:
            if self.node.name < name:
                return BUSY
            mine.end("the other end has dialled, too")
        if remote is not None and remote.link is not None:
            old = remote.link  # of an earlier incarnation
            self._lose(remote, "it has connected anew")
            old.end("it has connected anew")
            remote = None
        self._join(link, remote, peer)
        return None

    def _join(self, link: Link, remote: RemoteNode | None, peer: Greeting) -> None:
        name = peer.name
        if remote is None:
            remote = self._remotes[name] = RemoteNode(self.node, name)
        self._links[link] = remote
        if self._dialled.get(name) is link:
            del self._dialled[name]
        if peer.addresses:
            self._learned[name] = peer.addresses
        self.node.context.copy().run(remote.connect, link, peer.incarnation)
        link.arrive(name)
        for future in self._waiting.pop(name, ()):
            if not future.done():
                future.set_result(None)
        self._notify(NodeUp(name))

    def on_payload(self, link: Link, payload: bytes) -> None:
        """Handle a payload, and run at once what it gives our processes to do."""
        remote = self._links.get(link)
        if remote is not None and remote.link is link:
            self.node.context.run(self.node.serve, lambda: handle_batch(remote, payload))

    def on_lost(self, link: Link, why: str) -> None:
        """A link is over."""
        remote = self._links.pop(link, None)
        peer = link.peer
        if peer is not None and self._dialled.get(peer.name) is link:
            del self._dialled[peer.name]
        if link.offence is not None and not (link.dialling and remote is None):  # else the dialler gets the error
            self._offences.note(self.node.root_pid(), link.offence)
        link.fail(why)
        if remote is not None and remote.link is link:
            self._lose(remote, why)
        if not self._links and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _lose(self, remote: RemoteNode, why: str) -> None:
        if self._remotes.get(remote.name) is remote:
            del self._remotes[remote.name]
        self._may_be_silent.discard(remote.name)
        was_up = remote.link is not None
        self.node.context.copy().run(remote.lose)
        if was_up:
            self._notify(NodeDown(remote.name, why))

    # --- which nodes are connected

    async def wait_for(self, name: str, timeout: float | None = 5.0) -> None:
        """Wait until that node is connected. Raises `CallTimeout`."""
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
        """Send `who` a `NodeUp` and a `NodeDown` for each change from now on."""
        self._watchers[who] = None

    def unwatch(self, who: Ref[Any]) -> None:
        """Stop sending to `who`."""
        self._watchers.pop(who, None)

    def _notify(self, event: NodeUp | NodeDown) -> None:
        for who in tuple(self._watchers):
            try:
                last_heard = self.node.context.copy().run(who.send, event)
            except ActorError:  # its name is in a registry that does not run now
                last_heard = False
            if not last_heard and isinstance(who.target, Pid) and self.node.process(who.target) is None:
                self._watchers.pop(who, None)

    def drained(self, name: str) -> bool:
        """Write what was sent to that node; True when the system has taken all of it."""
        remote = self._remotes.get(name)
        return remote is None or remote.link is None or remote.link.drained()

    def disconnect(self, name: str, why: str = "disconnected") -> None:
        """End the link to a node, at once."""
        remote = self._remotes.get(name)
        if remote is not None and remote.link is not None:
            remote.link.end(why)

    def allow_silence(self, name: str, on: bool) -> None:  # noqa: FBT001 - a switch
        """Set whether that node may be silent for any time, as when its work has a deadline of its own."""
        if on:
            self._may_be_silent.add(name)
        else:
            self._may_be_silent.discard(name)
            for connected, link in self.links():
                if connected == name:
                    link.last_heard = self.node.loop.time()

    # --- heartbeats
    # Links are checked four times per heartbeat, so that a silent node is given up within `heartbeat * misses` seconds of its last byte. A node whose own loop was held up
    # has not read either, so it gives up no other node in that check.

    def _schedule_heartbeat(self) -> None:
        step = self._heartbeat / _LOOKS
        self._due = self.node.loop.time() + step
        self._heartbeat_timer = self.node.loop.call_later(step, self._check_heartbeats, context=self.node.context)

    def _check_heartbeats(self) -> None:
        now = self.node.loop.time()
        beat = self._heartbeat / 2
        held_up = now - self._due >= beat
        # The last check before the time is over decides; with a single miss the whole time is waited.
        limit = self._heartbeat * self._misses - (self._heartbeat / _LOOKS if self._misses > 1 else 0.0)
        for name, link in self.links():
            if now - link.last_sent >= beat:
                link.post(_BEAT)
            if not held_up and name not in self._may_be_silent and now - link.last_heard > limit:
                link.end(f"nothing was heard of it for {now - link.last_heard:.1f} s")
        self._schedule_heartbeat()


# --- The process that owns a node's links


class Peering(GenServer):
    """Opens the links, and closes them when it ends. ``child(Peering, peers)`` is a supervisor's first child, so that it stops last."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, peers: Peers, tcp: str | None = None) -> None:
        """`tcp` is a host to listen on besides the unix socket."""
        self.peers = peers
        self.tcp = tcp

    async def init(self) -> None:
        """Open the links, and start the node's spawn server."""
        await self.peers.open(tcp=self.tcp)
        self._otp_process.add_exit_waiter(self)  # called also when it is killed, and `terminate` cannot run
        self._spawn_server = await Options(name=SPAWN_SERVER).start_link(SpawnServer)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Close the links, however the process ended."""
        self.peers.end()

    def handle_info(self, message: object) -> Stop | None:
        """End with the spawn server: the supervisor restarts both."""
        return Stop(message.reason) if isinstance(message, Exit) else None

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Stop the spawn server, so that a successor finds its name free, and close all links."""
        if is_alive(self._spawn_server):
            await stop(self._spawn_server)
        await self.peers.close()
        await self.peers.closed()
