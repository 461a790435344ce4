"""`python -m greenroom.auth.testing [PORT]`: the fake authorization server as a program on 127.0.0.1, until it gets a signal.

Every user is `ann`, and every request is granted: it is only for trying out a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from .fake_auth_server import AuthorizationServer


async def serve(port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(
            NotImplementedError
        ):  # Windows has no signal handlers here; Ctrl-C ends the program anyway
            loop.add_signal_handler(number, stopped.set)
    idp = await AuthorizationServer().start(port=port)
    print(idp.issuer, flush=True)  # noqa: T201 - the issuer is the program's only output
    try:
        await stopped.wait()
    finally:
        await idp.stop()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
