"""One of several processes that serve: what runs in it, and how it is told to let its peers go.

The supervisor of a node's own: it imports the application, is handed the sockets that all accept on, and starts the company with a desk beside it. Who
starts it is the program that was run, from its own process, and to that it is linked: it ends when that does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import NotRegistered, Quit, Reject, Shutdown, Supervisor, current_node, terminate_child
from greenroom.transports.access_log import log as access
from greenroom.transports.handover import taken_over

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.actors.ensemble.spreading import Place
    from greenroom.supervision import ChildSpec, Continue, Ignore, NoReply, Stop
    from greenroom.transports.handover import Ticket
    from greenroom.transports.http_config import HttpConfig

    from .applications import Application

WING: Final = "greenroom.wing"
_INTENSITY: Final = 3

log: Final = logging.getLogger("greenroom.workers")


class Wing(Supervisor):
    """One on each node that serves."""

    def __init__(
        self,
        application: Application,
        config: HttpConfig,
        place: Place,
        ticket: Ticket,
        inspect: bool = False,  # noqa: FBT001, FBT002 - it comes from afar, in its place
        logs_access: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        """All of it has come from the program that was run. With `inspect` its user may look at this process as well.

        `logs_access` says whether that program writes an access log: what is logged here goes there.
        """
        super().__init__()
        self._logs_access = logs_access
        self._application = application
        self._config = config
        self._place = place
        self._ticket = ticket
        self._inspect = inspect
        self._company: Any = None
        self._serving: ChildSpec[Any] | None = None

    async def init(self) -> Continue | NoReply | Ignore | Stop | None:
        """Import, be handed the sockets, and have the desk ready."""
        try:
            server = await asyncio.to_thread(self._application.load)
        except (
            ConfigError
        ) as error:  # a message for the user, who hears it where the program was started: nothing has crashed
            raise Quit(Shutdown(error)) from None
        access.setLevel(logging.INFO if self._logs_access else logging.CRITICAL)
        binding = await taken_over(self._ticket, self._place.number)
        self._company = server.company.name("company")
        desk, self._serving = server.children_at(self._place, self._config, binding, inspect=self._inspect)
        super().__init__([desk], intensity=_INTENSITY)
        return await super().init()

    async def open(self) -> None:
        """Serve, if it does not yet. Where that cannot be (what a lifespan opens is away), all of this is of no use, and ends."""
        serving, self._serving = self._serving, None
        if serving is not None:
            try:
                await self.start_child(serving)
            except Reject as refused:  # else its caller alone would hear of it; whoever did not start has been reported
                raise Quit(Shutdown(refused.error)) from None

    def addresses(self) -> Sequence[str]:
        """Where the other nodes reach this one."""
        elsewhere: Any = current_node().elsewhere
        return tuple(elsewhere.addresses)

    async def drain(self) -> None:
        """Accept nobody any more, and let end what is running, within the listeners' grace."""
        with contextlib.suppress(NotRegistered):  # it has never served
            await terminate_child(self._company, "listeners")
