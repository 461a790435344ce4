"""`python -m greenroom.auth.testing [PORT]`: the authorization server for tests as a program, on this machine alone, until it is told to stop.

Every user is `ann`, and what is asked for is granted: it is for trying a client out, and for nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from .fake_auth_server import AuthorizationServer


async def serve(port: int) -> None:
    """Until a signal comes."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # as on Windows, where Ctrl-C ends it as it ends any program
            loop.add_signal_handler(number, told.set)
    idp = await AuthorizationServer().start(port=port)
    print(idp.issuer, flush=True)  # noqa: T201 - which is all that it has to say
    try:
        await told.wait()
    finally:
        await idp.stop()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
