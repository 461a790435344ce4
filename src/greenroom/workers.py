"""Serving on several processes: `server.run("http", workers=4)`. What stands in the tree of the program that was run, which itself serves nobody.

::

    workers (one_for_one)
    ├─ cluster      what starts processes, and ends with them
    ├─ handover     the listening sockets, which every process gets
    ├─ roster       tells each node where the others are
    ├─ wings        one_for_one, each restart a little later than the one before
    │   └─ wing …   rest_for_one: the process, and what serves in it
    └─ drain        the first to stop: has all of them let their peers go, at once

A process that ends takes its own sessions with it, and nobody else's; connections that nobody had accepted yet are the others'. The program's own end,
however it comes, is that of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.ensemble.desk import Desk
from greenroom.actors.ensemble.marks import MOST
from greenroom.actors.ensemble.spreading import Place
from greenroom.actors.ensemble.words import DESK
from greenroom.supervision import (
    ActorError,
    Backoff,
    ChildSpec,
    GenServer,
    On,
    Options,
    Ref,
    Supervisor,
    child,
)
from greenroom.supervision.cluster.cluster import Cluster, node_child
from greenroom.supervision.cluster.specs import ClusterSettings, NodeSpec
from greenroom.supervision.cluster.ushering import launch_on
from greenroom.supervision.cluster.utterances import PRINTED
from greenroom.transports.handover import handover_child, ticket
from greenroom.transports.shares import shared_page

from .errors import ConfigError
from .wing import WING, Wing

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from greenroom.supervision import ExitReason
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
_BACKOFF: Final = Backoff(first=0.05, factor=2.0, longest=5.0, jitter=0.25, quiet=30.0)
_ROSTER: Final = "greenroom.roster"
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
        self, count: int, application: Application, config: HttpConfig, binding: Binding, grace: float
    ) -> None:
        """`binding` is that of the whole, and has listened since it was made. They have `grace` seconds to let their peers go."""
        if config.is_tls:
            paths = {word: getattr(config, word) for word in ("certfile", "keyfile", "cacertfile")}
            config = replace(config, **{word: os.path.abspath(path) for word, path in paths.items() if path})  # noqa: PTH100
        self.names = tuple(f"worker-{number}" for number in range(1, count + 1))
        self._application = application
        self._config = config
        self._binding = binding
        self._grace = grace
        self._key = secrets.token_bytes(32)
        self._ticket = ticket()
        self._page = shared_page(count)
        self._cluster = Cluster(ClusterSettings(misses=HUNG, preload=_PRELOAD))
        self._known: dict[str, Sequence[str]] = {}

    def child_spec(self) -> ChildSpec[Any]:
        """The whole, as a child of the program's topmost supervisor."""
        children: list[ChildSpec[Any]] = [
            self._cluster.child_spec(),
            handover_child(self._binding, self._ticket, self._page),
            child(_Roster, self._known).but(name=_ROSTER),
            child(
                Supervisor,
                [self._wing(number) for number in range(len(self.names))],
                intensity=RESTARTS * len(self.names),
                period=60.0,
                backoff=_BACKOFF,
            ).but(id="wings"),
            child(_Drain, self.names, self._grace).but(shutdown=self._grace + 1.0),
        ]
        return child(Supervisor, children, intensity=5, period=10.0).but(id="workers")

    def _wing(self, number: int) -> ChildSpec[Any]:
        name = self.names[number]
        place = Place(number, self.names, self._key)
        spec = NodeSpec(name=name, start_timeout=_START, stop_timeout=_STOP)

        async def begin() -> Ref[Wing]:
            arguments = (self._application, self._config, place, self._ticket)
            wing = await launch_on(name, Options(name=WING), Wing, arguments, link=True)
            addresses = await wing.call(Wing.addresses)
            Ref[_Roster](_ROSTER).cast(_Roster.arrived, name, addresses)
            return wing

        children = [
            node_child(self._cluster, spec).but(id="process"),
            ChildSpec(id="serving", start=begin, shutdown=self._grace),
        ]
        return child(Supervisor, children, strategy="rest_for_one", intensity=0).but(id=name)


class _Roster(GenServer):
    """Brings nodes together: whoever comes is told of those who are there, and they of it."""

    def __init__(self, known: dict[str, Sequence[str]]) -> None:
        """`known` outlives this process."""
        self._known = known

    def arrived(self, name: str, addresses: Sequence[str]) -> None:
        """A node serves, there."""
        for other, theirs in self._known.items():
            if other != name:
                Ref[Desk](On(DESK, other)).cast(Desk.meet, name, addresses)
                Ref[Desk](On(DESK, name)).cast(Desk.meet, other, theirs)
        self._known[name] = addresses


class _Drain(GenServer):
    """The last child, and so the first to stop."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, names: Sequence[str], grace: float) -> None:
        """The nodes, and how long they may take together."""
        self._names = names
        self._grace = grace

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Have all of them accept nobody any more, and wait for what is running there."""
        wings = [Ref[Wing](On(WING, name), self._grace + 0.5) for name in self._names]
        await asyncio.gather(*(self._drained(wing) for wing in wings))

    async def _drained(self, wing: Ref[Wing]) -> None:
        with contextlib.suppress(ActorError):  # one that is being replaced just now has nothing to wait for
            await wing.call(Wing.drain)


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
            print(record.getMessage(), file=sys.stdout if record.levelno < logging.WARNING else sys.stderr, flush=True)
