"""One of many programs that share a login: `concurrent_login_program.py FOLDER ISSUER URL`. Each line on stdin is a round, in which the server refuses 100 requests at once."""

from __future__ import annotations

import asyncio
import sys

from greenroom.auth import FileStore, OAuth
from greenroom.supervision import Node

AT_ONCE = 100


async def main(folder: str, issuer: str, url: str) -> None:
    auth = OAuth(
        client_id="crowd",
        issuer=issuer,
        authorization_endpoint=f"{issuer}/authorize",
        token_endpoint=f"{issuer}/token",
        browser=None,
        store=FileStore(folder),
    )
    async with Node():
        credentials = auth.credentials(url)
        sent = await credentials.headers()
        print("ready", flush=True)  # noqa: T201 - the test waits for it
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            again = await asyncio.gather(*(credentials.refused(401, "Bearer", sent) for _ in range(AT_ONCE)))
            assert all(again)
            sent = await credentials.headers()
            print(sent["authorization"].removeprefix("Bearer "), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
