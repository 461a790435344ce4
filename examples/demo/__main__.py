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
from greenroom.supervision import Ref, child, spawn, wait_down
from greenroom.transports.listening_sockets import CannotListen

from .demo_client import visit
from .demo_server import server
from .event_printer import Teller
from .upstreams import host, library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
TELLER: Ref[Teller] = Ref("the teller of the demonstration", None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=_WHAT)
    parser.add_argument("--port", type=int, default=8000, help="where it listens (8000; 0 takes any that is free)")
    parser.add_argument("--quiet", action="store_true", help="no visitor at the start: wait for yours")
    given = parser.parse_args(arguments)
    # The teller says it in one line; the whole story, with tracebacks, is for servers that are no demonstration.
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    begun = time.monotonic()
    try:
        spec = server.child_spec("http", host=HOST, port=given.port)
    except CannotListen as error:
        print(f"greenroom: {error.strerror}: choose another with --port N (make run PORT=N)", file=sys.stderr)
        return 1
    print(textwrap.dedent(_GREETING).format(url=server.urls[0]), flush=True)

    def children() -> list[Any]:
        teller = child(Teller, server.company, host, begun).but(name=TELLER.target)
        return [teller, library.child_spec(), host.child_spec(), spec]

    async def until(_: Callable[[], None]) -> None:
        await host.catalogue()  # each of the three has come up by then, or is known to be away
        await TELLER.call(Teller.show_tree)
        if not given.quiet:
            TELLER.cast(Teller.say, "A visitor in memory tries everything once:")
            await wait_down(spawn(visit, server.company, TELLER), None)
            TELLER.cast(
                Teller.say, "It has left, and this is who is still there. Now it is your turn; Ctrl-C stops in order."
            )
            TELLER.cast(Teller.show_tree)
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
    """

if __name__ == "__main__":
    sys.exit(main())
