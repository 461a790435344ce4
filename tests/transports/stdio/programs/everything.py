"""A server with some of everything, which tests start as a program."""

# ruff: noqa: T201 - it prints where it must not, on purpose

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from greenroom import Accepted, Context, HttpConfig, Server

server = Server("everything", version="1.2", instructions="Try all of it.")


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
def noise(text: str) -> str:
    """Print where the protocol is, in every way that there is."""
    print("printed", text)
    sys.__stdout__.write("written\n")  # type: ignore[union-attr]
    os.write(1, b"from the descriptor\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    child = subprocess.run(["cat"], check=True, stdin=None, capture_output=True)
    subprocess.run(["echo", "from a child"], check=True)
    return f"{text}, and a child read {len(child.stdout)} bytes"


@server.tool
async def count(ctx: Context, to: int) -> int:
    """Report each step."""
    for number in range(to):
        await ctx.progress(number + 1, to)
        await asyncio.sleep(0)
    return to


@server.tool
async def wait_for_ever(ctx: Context) -> str:
    """End only when cancelled."""
    await ctx.info("waiting")
    await ctx.cancelled.wait()
    return "noticed"


@server.tool
def never_return() -> str:
    """Block a thread until the end of the program."""
    time.sleep(1_000_000)
    return ""


@server.tool
async def block_the_loop() -> str:
    """Do what must not be done."""
    print("blocking")
    time.sleep(1_000_000)  # noqa: ASYNC251 - that is the point
    return ""


@server.tool
async def hold_a_foreign_thread() -> str:
    """Leave a thread running that the interpreter would wait for."""
    _ = asyncio.get_running_loop().run_in_executor(None, time.sleep, 1_000_000)
    return "left"


_pool = ThreadPoolExecutor(1)


@server.tool
def leave_at_exit(what: str) -> str:
    """Leave something running that the interpreter waits for when it exits."""
    match what:
        case "pool":
            _pool.submit(time.sleep, 1_000_000)
        case "child":
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(1_000_000,), name="the-child").start()
        case _:
            atexit.register(time.sleep, 1_000_000)
    return "left"


@server.tool
def terminate_a_child() -> str:
    """Fork a child, and end it by a signal."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1_000_000,))
    child.start()
    child.terminate()
    child.join(10)
    code = child.exitcode
    child.kill()
    child.join()
    return f"ended by {code}"


@server.tool
async def swallow() -> str:
    """Refuse to be cancelled."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)


@server.tool
def big(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool
def leave() -> str:
    """Try to end the program."""
    sys.exit(3)


@dataclass
class Name:
    name: str


@server.tool
async def greet(ctx: Context) -> str:
    """Ask the user for a name."""
    match await ctx.elicit("Who are you?", Name):
        case Accepted(value=Name(name=name)):
            return f"Hello, {name}!"
        case other:
            return other.action


@server.resource("config://app", mime_type="application/json")
def config() -> dict[str, int]:
    """How it is set up."""
    return {"answer": 42}


@server.resource("weather://{city}")
def weather(city: str) -> str:
    """How it is there."""
    return f"sunny in {city}"


@server.prompt
def pack_for(city: str) -> str:
    """What to take along."""
    return f"What do I pack for {city}?"


@server.completion("city", prompt="pack_for")
def cities(value: str) -> list[str]:
    """Those that begin like that."""
    return [each for each in ("Oslo", "Osaka", "Paris") if each.startswith(value)]


if __name__ == "__main__":
    how, grace = sys.argv[1], float(sys.argv[2])
    print("before it runs")
    if how == "http":
        server.run("http", port=0, grace=grace, config=HttpConfig())
    else:
        server.run(grace=grace)
    print("after it ran")
