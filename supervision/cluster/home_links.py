"""The links of the application's node, shared by all clusters in it: one table, open while at least one cluster runs."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakKeyDictionary

from greenroom.errors import ConfigError
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.process_start import Options
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import Stop
from greenroom.supervision.kernel.errors import ActorError, AlreadyRegistered
from greenroom.supervision.kernel.process_lookup import current_node, self_pid
from greenroom.supervision.kernel.process_messages import Exit

from .peers import Peers
from .remote_spawn import SPAWN_SERVER, SpawnServer

if TYPE_CHECKING:
    from greenroom.supervision.kernel.process_messages import ExitReason

    from .cluster_settings import ClusterSettings

_users: Final[WeakKeyDictionary[Peers, list[Ref[Any]]]] = WeakKeyDictionary()
_TAKE_SPAWN_SERVER: Final = "take the spawn server"


class HomeLinks(GenServer):
    """The first child of a cluster. The first in a node opens the links, and the last one closes them."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, settings: ClusterSettings) -> None:
        """The `settings` of the first cluster apply."""
        self._settings = settings

    async def init(self) -> None:
        """Open the links, unless they are open."""
        node, settings = current_node(), self._settings
        peers = node.remote_nodes
        key = settings.secret()
        if peers is None:
            peers = Peers(node, key or secrets.token_bytes(32), heartbeat=settings.heartbeat, misses=settings.misses)
            _users[peers] = []
            try:
                await peers.open(tcp=settings.tcp)
            except BaseException:
                await peers.close()
                raise
        self._peers = links_of_home()
        if key is not None and not (
            key == key_of_home() and any(each.startswith("tcp:") for each in self._peers.addresses)
        ):
            raise ConfigError(
                f"the links of {node!r} are open already, and not for other machines: start the cluster that has a `convention` "
                "before any other in this node"
            )
        self._me: Ref[HomeLinks] = Ref(self_pid())
        users = _users.get(self._peers)
        if users is None:
            return  # other code opened them, and closes them
        users.append(self._me)
        self._otp_process.add_exit_waiter(self)
        await self._have_spawn_server()

    async def _have_spawn_server(self) -> None:
        with contextlib.suppress(AlreadyRegistered):
            await Options(name=SPAWN_SERVER).start_link(SpawnServer)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Hand the spawn server to the next cluster, or close the links after the last; however this process ended."""
        users = _users.get(self._peers, [])
        users.remove(self._me)
        if users:
            users[0].send(_TAKE_SPAWN_SERVER)
        else:
            self._peers.end()

    async def handle_info(self, message: object) -> Stop | None:
        """Take over the spawn server from a cluster that has ended. When the spawn server dies, this process does, and both are restarted."""
        if message == _TAKE_SPAWN_SERVER:
            await self._have_spawn_server()
        return Stop(message.reason) if isinstance(message, Exit) else None


def links_of_home() -> Peers:
    """The links of the node that runs here."""
    peers = current_node().remote_nodes
    if not isinstance(peers, Peers):
        raise ActorError("this node has no links to others: start the cluster's child spec in it first")
    return peers


def key_of_home() -> bytes:
    """The key of those links, which the processes of the cluster inherit."""
    return links_of_home()._key  # noqa: SLF001 - this is its only reader outside of the table
