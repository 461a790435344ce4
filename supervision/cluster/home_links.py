"""The links of the application's node, shared by the clusters in it: one table, open as long as one of them is there."""

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
_YOURS: Final = "the usher is yours"


class HomeLinks(GenServer):
    """The first child of a cluster. The first one of a node opens the table, and the last one closes it."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, settings: ClusterSettings) -> None:
        """The `settings` of the cluster that is first count."""
        self._settings = settings

    async def init(self) -> None:
        """Open the links, unless that is done."""
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
            return  # they were opened by other code, which closes them as well
        users.append(self._me)
        self._otp_process.await_death(self)
        await self._have_usher()

    async def _have_usher(self) -> None:
        with contextlib.suppress(AlreadyRegistered):
            await Options(name=SPAWN_SERVER).start_link(SpawnServer)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """The process is gone, however it ended: the next one has the usher, and the last one closes the links."""
        users = _users.get(self._peers, [])
        users.remove(self._me)
        if users:
            users[0].send(_YOURS)
        else:
            self._peers.end()

    async def handle_info(self, message: object) -> Stop | None:
        """It takes over from one that goes; without its usher it is started anew."""
        if message == _YOURS:
            await self._have_usher()
        return Stop(message.reason) if isinstance(message, Exit) else None


def links_of_home() -> Peers:
    """Those of the node that runs here."""
    peers = current_node().remote_nodes
    if not isinstance(peers, Peers):
        raise ActorError("this node has no links to others: start the cluster's child spec in it first")
    return peers


def key_of_home() -> bytes:
    """What admits to them: the processes of the cluster inherit it."""
    return links_of_home()._key  # noqa: SLF001 - this is its only reader outside of the table
