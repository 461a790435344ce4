"""Code that never ends: a program that has abandoned it can exit all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio
from greenroom.supervision import GenServer, run, start

async def never():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

class Mule(GenServer):
    async def in_handler(self):
        await never()

    async def in_task(self):
        self.task = asyncio.create_task(never())

    async def in_its_finally(self):
        try:
            await asyncio.sleep(3600)
        finally:
            await never()

async def main():
    mule = await start(Mule)
    mule.cast(Mule.{method})
    await asyncio.sleep(0.01)

run(main, kill_grace=0.01, stop_grace=0.01, log=False)
print("ended")
"""


@pytest.mark.parametrize("method", ["in_handler", "in_task", "in_its_finally"])
def test_code_that_swallows_every_cancellation_cannot_keep_the_program_alive(method: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM.format(method=method)],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
