"""A server that needs something outside, which is not always there: it starts without it, and says so until it is.

A process that crashed whenever its database is down would use up the patience of its supervisor within a moment, and
take its neighbours down with it. That the other side is away is no bug; it is a state. So `init` does not connect, the
server tries by a timer, and answers "not now" meanwhile.

Run it: `python examples/connection.py`. It prints

    0 s: away, try again in 1 s
    1 s: away, try again in 2 s
    3 s: away, try again in 4 s
    7 s: row 1
    8 s: row 1
"""

from __future__ import annotations

import asyncio

from greenroom.supervision import Continue, GenServer, Reject, send_after, start
from greenroom.supervision.testing import run  # the clock jumps: an example should not keep its reader waiting


class AwayError(Exception):
    """The other side cannot be reached now."""


class Database:
    """Stands for something outside, which is up from the fifth second on."""

    async def connect(self) -> None:
        """Fails before that."""
        if asyncio.get_running_loop().time() < 5:
            raise OSError("connection refused")

    async def fetch(self) -> str:
        """Some data."""
        return "row 1"


class Rows(GenServer):
    """Owns the connection."""

    def __init__(self, database: Database) -> None:
        """Nothing that can fail happens here."""
        self.database = database
        self.connected = False
        self.pause = 0.5

    def init(self) -> Continue:
        """The caller that starts us does not wait for the other side."""
        return Continue("connect")

    async def handle_continue(self, token: object) -> None:
        """Try, and try again later."""
        try:
            await self.database.connect()
        except OSError:  # the one failure that we expect; any other is a bug, and may crash us
            self.pause *= 2
            send_after(self.pause, self.pid, token)
        else:
            self.connected = True

    async def handle_info(self, message: object) -> None:
        """The time to try again has come."""
        await self.handle_continue(message)

    async def row(self) -> str:
        """A row, or `AwayError`: the caller decides whether it can wait."""
        if not self.connected:
            raise Reject(AwayError(f"away, try again in {self.pause:g} s"))
        return await self.database.fetch()


async def main() -> None:
    """Ask at several moments."""
    rows = await start(Rows, Database())
    loop = asyncio.get_running_loop()
    for moment in (0, 1, 3, 7, 8):
        await asyncio.sleep(moment - loop.time() + 0.001)
        try:
            answer = await rows.call(Rows.row)
        except AwayError as error:
            answer = str(error)
        print(f"{loop.time():.0f} s: {answer}")


if __name__ == "__main__":
    run(main)
