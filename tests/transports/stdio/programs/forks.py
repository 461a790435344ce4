"""A server whose tools fork, and let their children continue in every possible way."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

from greenroom import Server
from greenroom.supervision import GenServer, start

server = Server("forks")


def go_on(how: str) -> str:
    """What the child does."""
    match how:
        case "exits":
            sys.exit(7)
        case "says why":
            sys.exit("for this reason")
        case "execs":
            os.execvp("no-such-program", ["no-such-program"])
        case "runs a loop":
            return asyncio.run(asyncio.sleep(0, "child"))
        case _:
            pass
    return "child"


def ended(pid: int) -> str:
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@server.tool
def in_a_thread(how: str) -> str:
    """The child's exit code."""
    pid = os.fork()
    return ended(pid) if pid else go_on(how)


@server.tool
async def at_once(how: str) -> str:
    """The same in the loop."""
    pid = os.fork()
    return ended(pid) if pid else go_on(how)


@server.tool
async def later_on(how: str) -> str:
    """The same in a handler that has waited."""
    await asyncio.sleep(0.001)
    pid = os.fork()
    return ended(pid) if pid else go_on(how)


@server.tool
async def that_waits() -> str:
    """The child waits for something that only its parent's loop could bring."""
    pid = os.fork()
    if not pid:
        await asyncio.sleep(0)
    return ended(pid)


@server.tool
async def in_a_task() -> str:
    """A task that the handler started forks."""

    async def forks() -> str:
        pid = os.fork()
        return ended(pid) if pid else "child"

    return await asyncio.create_task(forks())


class Forker(GenServer):
    """A plain handler, in the loop and without a task."""

    def handle_info(self, message: object) -> None:
        pid = os.fork()
        cast("asyncio.Future[str]", message).set_result(ended(pid) if pid else "child")


@server.tool
async def in_a_handler() -> str:
    """A process that handles a message forks."""
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    (await start(Forker)).send(answer)
    return await answer


@server.tool
async def in_a_call() -> str:
    """A process that replies at once forks."""

    class Answers(GenServer):
        def fork(self) -> str:
            pid = os.fork()
            return ended(pid) if pid else "child"

    return await (await start(Answers)).call(Answers.fork)


if __name__ == "__main__":
    server.run(grace=1)
