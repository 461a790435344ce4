"""Serving on several processes: `server.run("http", workers=4)`. What stands in the tree of the program that was run, which itself serves nobody.

::

    workers (one_for_one)
    ├─ cluster      what starts processes, and ends with them
    ├─ handover     the listening sockets, which every process gets
    ├─ roster       tells each node where the others are
    ├─ wings        a station for each process, restarted a little later each time
    ├─ lookout      if somebody wants to look at all this
    └─ doors        open when all are there; the first to stop: has all of them let their peers go, at once

A process that ends takes its own sessions with it, and nobody else's; connections that nobody had accepted yet are the others'. The program's own end,
however it comes, is that of all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.ensemble.marks import MOST
from greenroom.actors.ensemble.spreading import Place
from greenroom.supervision import Backoff, ChildSpec, Supervisor, child
from greenroom.supervision.cluster.cluster import Cluster
from greenroom.supervision.cluster.specs import ClusterSettings, NodeSpec
from greenroom.supervision.cluster.utterances import PRINTED
from greenroom.supervision.kernel.spelling import visible
from greenroom.transports.access_log import is_on
from greenroom.transports.handover import handover_child, ticket
from greenroom.transports.shares import shared_page

from .errors import ConfigError
from .roster import ROSTER, Doors, Roster, porter_child
from .station import Station

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from greenroom.transports.binding import Binding
    from greenroom.transports.http_config import HttpConfig

    from .applications import Application

log: Final = logging.getLogger("greenroom.workers")

HUNG: Final = 30
"""Seconds without a sign of life after which a process is taken for hung, and replaced."""
RESTARTS: Final = 20
"""How often each may be replaced in a minute, before the program gives up."""
_START: Final = 120.0
_STOP: Final = 2.0
_BACKOFF: Final = Backoff(first=0.05, factor=2.0, longest=2.0, jitter=0.25, quiet=30.0)
"""With longer pauses there would not be so many in a minute, and nobody would ever give up."""
_PRELOAD: Final = (
    "greenroom.server",
    "greenroom.transports.listener",
    "greenroom.transports.quart_app",
    "greenroom.wing",
)


def check_workers(workers: Any) -> int:
    """How many. Raises `ConfigError`."""
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST:
        raise ConfigError(
            f"workers must be a whole number, 1 to {MOST}, or None to serve in this process, not {workers!r}"
        )
    return workers


class Workers:
    """All that a program has for its workers."""

    def __init__(
        self,
        count: int,
        application: Application,
        config: HttpConfig,
        binding: Binding,
        grace: float,
        seen: Sequence[ChildSpec[Any]] = (),
    ) -> None:
        """`binding` is that of the whole, and has listened since it was made. They have `grace` seconds to let their peers go.

        With `seen`, by which this program is looked at, each of them can be looked at as well.
        """
        if config.is_tls:
            paths = {word: getattr(config, word) for word in ("certfile", "keyfile", "cacertfile")}
            config = replace(config, **{word: os.path.abspath(path) for word, path in paths.items() if path})  # noqa: PTH100
        self.names = tuple(f"worker-{number}" for number in range(1, count + 1))
        self._application = application
        self._config = config
        self._binding = binding
        self._grace = grace
        self._seen = seen
        self._key = secrets.token_bytes(32)
        self._ticket = ticket()
        self._page = shared_page(count)
        self._cluster = Cluster(ClusterSettings(misses=HUNG, preload=_PRELOAD))
        self._known: dict[str, Sequence[str]] = {}
        self.doors = Doors(self.names, grace, close_sockets=binding.shut_down)
        """They open when all are there."""

    def child_spec(self) -> ChildSpec[Any]:
        """The whole, as a child of the program's topmost supervisor."""
        wings = [self._wing(number) for number in range(len(self.names))]
        often = RESTARTS * len(self.names)
        children: list[ChildSpec[Any]] = [
            self._cluster.child_spec(),
            handover_child(self._binding, self._ticket, self._page),
            child(Roster, self._known).but(id="roster", name=ROSTER),
            child(Supervisor, wings, intensity=often, period=60.0, backoff=_BACKOFF).but(
                id="wings", restart="transient", significant=True
            ),
            *self._seen,
            porter_child(self.doors),
        ]
        # Who gives up on the wings gives up on all of it: started anew, they would be counted from nothing.
        return child(Supervisor, children, intensity=5, period=10.0, auto_shutdown="any_significant").but(id="workers")

    def _wing(self, number: int) -> ChildSpec[Any]:
        name = self.names[number]
        place = Place(number, self.names, self._key)
        spec = NodeSpec(name=name, start_timeout=_START, stop_timeout=_STOP)
        wing = (self._application, self._config, place, self._ticket, bool(self._seen), is_on())
        made = child(Station, self._cluster.engine, spec, wing, self.doors, self._grace)
        return made.but(id=name, shutdown=self._grace + _STOP + 1.0)


@contextlib.contextmanager
def printing() -> Generator[None]:
    """While this lasts, what workers print is printed."""
    logger, echo = logging.getLogger(PRINTED), _Echo()
    before, level = logger.propagate, logger.level
    logger.addHandler(echo)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(echo)
        logger.propagate = before
        logger.setLevel(level)


class _Echo(logging.Handler):
    """Prints."""

    def emit(self, record: logging.LogRecord) -> None:
        """As a line where the worker has printed it."""
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            print(
                visible(record.getMessage(), lines=True),
                file=sys.stdout if record.levelno < logging.WARNING else sys.stderr,
                flush=True,
            )
