"""A server with a database that is not always reachable: it starts without the connection, and answers "not now" until it has one.

A process that crashed whenever its database is down would exceed its supervisor's restart limit within a moment, and
take its siblings down. An unreachable database is not a bug but a state. So `init` does not connect; a timer does, with
back-off.

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
from greenroom.supervision.testing import run  # virtual time: the example takes no real time


class AwayError(Exception):
    """The database cannot be reached now."""


class Database:
    """Stands for a database that is up from the fifth second on."""

    async def connect(self) -> None:
        """Connect; fails before the fifth second."""
        if asyncio.get_running_loop().time() < 5:
            raise OSError("connection refused")

    async def fetch(self) -> str:
        """Return a row."""
        return "row 1"


class Rows(GenServer):
    """Owns the connection to the database."""

    def __init__(self, database: Database) -> None:
        """Make no connection yet: `__init__` cannot fail."""
        self.database = database
        self.connected = False
        self.pause = 0.5

    def init(self) -> Continue:
        """Start without a connection, so that the supervisor does not wait for the database."""
        return Continue("connect")

    async def handle_continue(self, token: object) -> None:
        """Try to connect, and retry later after a failure."""
        try:
            await self.database.connect()
        except OSError:  # the one expected failure; any other is a bug and may crash the process
            self.pause *= 2
            send_after(self.pause, self.pid, token)
        else:
            self.connected = True

    async def handle_info(self, message: object) -> None:
        """Retry on the timer."""
        await self.handle_continue(message)

    async def row(self) -> str:
        """Return a row, or raise `AwayError`: the caller decides whether to wait."""
        if not self.connected:
            raise Reject(AwayError(f"away, try again in {self.pause:g} s"))
        return await self.database.fetch()


async def main() -> None:
    """Ask for a row at several moments."""
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
