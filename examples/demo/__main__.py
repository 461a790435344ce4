"""`python -m examples.demo`: the demonstration as a program, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

from greenroom import program_runner
from greenroom.observe import Admin, new_links
from greenroom.supervision import Ref, child, spawn, wait_down
from greenroom.transports.listening_sockets import CannotListen

from .demo_client import run_tour, run_visits
from .demo_server import server
from .event_printer import EventPrinter
from .upstreams import host, library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
EVENT_PRINTER: Ref[EventPrinter] = Ref("the event printer of the demonstration", None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=_WHAT)
    parser.add_argument("--port", type=int, default=8000, help="the port to listen on (8000; 0 takes any free port)")
    parser.add_argument("--admin-port", type=int, help="the port of the observer (9091; any free port with --port 0)")
    parser.add_argument("--quiet", action="store_true", help="start without the built-in client")
    given = parser.parse_args(arguments)
    # The event printer prints one line per death; the log would add tracebacks.
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    begun = time.monotonic()
    admin_port = (9091 if given.port else 0) if given.admin_port is None else given.admin_port
    admin = Admin(port=admin_port, acts=True, faults=True, capture=True)
    try:
        spec = server.child_spec("http", host=HOST, port=given.port, admin=admin)
    except CannotListen as error:
        choose = "choose others with --port N and --admin-port N (make run PORT=N ADMIN_PORT=N)"
        print(f"greenroom: {error.strerror}: {choose}", file=sys.stderr)
        return 1
    print(textwrap.dedent(_GREETING).format(url=server.urls[0]), flush=True)

    def children() -> list[Any]:
        printer = child(EventPrinter, server.company, host, begun).but(name=EVENT_PRINTER.target)
        return [printer, library.child_spec(), host.child_spec(), spec]

    async def until(_: Callable[[], None]) -> None:
        EVENT_PRINTER.cast(EventPrinter.follow_clients)
        await host.catalogue()  # by then each upstream is connected or known to be down
        await EVENT_PRINTER.call(EventPrinter.show_tree)
        if not given.quiet:
            EVENT_PRINTER.cast(EventPrinter.say, "A client in the same process calls every tool once:")
            await wait_down(spawn(run_tour, server.company, EVENT_PRINTER), None)
            EVENT_PRINTER.cast(
                EventPrinter.say,
                "The client has left; these processes are alive. Now it is your turn; Ctrl-C stops in order.",
            )
            await EVENT_PRINTER.call(EventPrinter.show_tree)
            for each in new_links():  # the first one is far above by now
                EVENT_PRINTER.cast(EventPrinter.say, f"Watch it in a browser: {each}")
            spawn(run_visits, server.company)
        await asyncio.Event().wait()

    try:
        program_runner.run(children, until)
    except program_runner.GaveUp as error:
        print(f"greenroom: {error}", file=sys.stderr)
        return 1
    print("stopped in order", flush=True)
    return 0


_WHAT = "A supervised MCP server on loopback whose tools work, wait, fail, exit, block and stream, with three others behind it."
_GREETING = """\
    greenroom's demonstration serves on {url}

    Connect a client to it:
      claude mcp add --transport http greenroom-demo {url}
      npx @modelcontextprotocol/inspector --cli {url} --transport http --method tools/call --tool-name leave

    Watch tools die and the tree heal, in a browser, by the next line:
    """

if __name__ == "__main__":
    sys.exit(main())
