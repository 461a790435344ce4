"""The program for a machine that takes nodes of other machines' applications: ``python -m greenroom.supervision.cluster.member --help``.

It runs in the foreground until it is stopped: a node with a machine host, and below it a daemon with the machine's Thespian system. However it ends, nothing of the
applications is left on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError, GreenroomError
from greenroom.supervision.behaviours.process_start import start
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.kernel.api import wait_down
from greenroom.supervision.kernel.node import Node
from greenroom.supervision.kernel.visible_text import EscapingFormatter, visible
from greenroom.supervision.supervisors.child_spec import REST_FOR_ONE, child
from greenroom.supervision.supervisors.supervisor import Supervisor

from .cluster_settings import ClusterSettings
from .daemon_protocol import MACHINE_HOST
from .home_links import HomeLinks
from .key_files import write_key
from .machine_host import MachineHost
from .machines import NODE, parse_capability
from .node_engine import NodeEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("greenroom.machine")

_ENGINE: Final = "greenroom.engine"
_WRONG: Final = 2
_BROKEN: Final = 1
_ENOUGH: Final = 10.0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m greenroom.supervision.cluster.member",
        description="Take nodes of a cluster's applications on this machine, until stopped.",
    )
    add = parser.add_argument
    add("--convention", metavar="HOST:PORT", help="where the leader of the cluster listens: the application's machine")
    add("--key-file", metavar="FILE", help="the cluster's key, in a file that only its owner can read")
    add(
        "--listen", metavar="ADDRESS", help="this machine's address in the cluster's network; nothing listens elsewhere"
    )
    add("--port", type=int, default=0, help="for Thespian; a free one by default")
    add(
        "--name",
        default=socket.gethostname(),
        help="what this machine is called in the cluster; its host name by default",
    )
    add(
        "--capability",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what nodes can require: gpu=true, cores=8, zone=b",
    )
    add("--nodes", metavar="N", type=int, default=None, help="how many nodes it takes at most; no limit by default")
    add("--path", metavar="DIRECTORY", action="append", default=[], help="where the applications' modules are found")
    add("--preload", metavar="MODULE", action="append", default=[], help="import it once, before any node is started")
    add(
        "--heartbeat",
        metavar="SECONDS",
        type=float,
        default=1.0,
        help="a node that is silent for three of them is lost",
    )
    add("--verbose", action="store_true", help="log more")
    add("--new-key", metavar="FILE", help="make a key, write it to a new file, and end")
    return parser


def settings_of(arguments: argparse.Namespace) -> ClusterSettings:
    """The settings from the command line. Raises `ConfigError`."""
    for name in ("convention", "key_file", "listen"):
        if getattr(arguments, name) is None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is missing: a machine needs --convention, --key-file and --listen"
            )
    return ClusterSettings(
        convention=arguments.convention,
        key_file=arguments.key_file,
        listen=arguments.listen,
        port=arguments.port,
        machine=arguments.name,
        capabilities=dict(map(parse_capability, arguments.capability)),
        room=arguments.nodes,
        preload=tuple(arguments.preload),
        heartbeat=arguments.heartbeat,
    )


async def serve(settings: ClusterSettings) -> int:
    """Run until a signal comes; returns the exit code."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    async with Node(NODE + settings.machine, handle_sigint=False):
        engine: Ref[NodeEngine] = Ref(_ENGINE)
        children = [
            child(HomeLinks, settings),
            child(NodeEngine, settings).but(name=_ENGINE, shutdown=_ENOUGH),
            child(MachineHost, engine).but(name=MACHINE_HOST),
        ]
        tree = await start(
            Supervisor, children, strategy=REST_FOR_ONE, intensity=settings.intensity, period=settings.period
        )
        down = asyncio.ensure_future(wait_down(tree, timeout=None))
        stop = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((down, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not down.done():
            down.cancel()
            log.info("machine %s stops", settings.machine)
            return 0
        log.error("machine %s has failed: %s", settings.machine, down.result())
        return _BROKEN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    given = _options().parse_args(arguments)
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.DEBUG if given.verbose else logging.INFO, handlers=[shown])
    try:
        if given.new_key is not None:
            write_key(given.new_key)
            return 0
        settings = settings_of(given)
        sys.path[:0] = [os.path.abspath(each) for each in given.path]  # noqa: PTH100 - sys.path has texts
        return asyncio.run(serve(settings))
    except GreenroomError as error:
        print(visible(f"{_options().prog}: {error}", lines=True), file=sys.stderr)  # noqa: T201 - it is a program
        return _WRONG if isinstance(error, ConfigError) else _BROKEN


if __name__ == "__main__":
    sys.exit(main())
