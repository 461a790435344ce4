"""The command `python -m tests.hosts [--only NAME]`, which is `make hosts`: two hosts, and the behaviour of a cluster on both.

The hosts are network namespaces with a cable between them, which takes root. In the first one is the application, which is this very
program, executed anew there; the second has member programs, and what they are made to suffer. Each act is a cluster of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.supervision.kernel.node import Node

from .network import Field, listening
from .scenarios import ACTS

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from .scenarios import Act

WITHIN = 60.0
"""Seconds that an act may take."""
ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up the hosts, and go to the first; or, when there already, have all acts played."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts")
    parser.add_argument("--only", help="only acts whose names have this in them")
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.hosts is not None:
        return play(Field(*given.hosts.split(",")), given.only or "")
    if os.geteuid() != 0:
        print("make hosts makes network namespaces, and has to be run by root", file=sys.stderr)
        return 2
    with hosts() as field:
        names = f"{field.here},{field.there}"
        only = [] if given.only is None else ["--only", given.only]
        inside = ["ip", "netns", "exec", field.here, sys.executable, "-m", "tests.hosts", "--hosts", names, *only]
        return subprocess.run(inside, cwd=ROOT, check=False, stdin=subprocess.DEVNULL).returncode


@contextmanager
def hosts() -> Generator[Field]:
    """Two of them, joined by a cable."""
    field = Field(f"gr{os.getpid()}a", f"gr{os.getpid()}b")
    field.build()
    try:
        yield field
    finally:
        field.remove()


def play(field: Field, only: str) -> int:
    """One act after the other; 1 when one was wrong."""
    logging.disable()  # each act kills processes, which is logged at length
    wrong = 0
    for name, act in ACTS.items():
        if only not in name:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                told = asyncio.run(_one(field, act, Path(folder)))
                left = sorted({*field.inside(field.there), *field.inside(field.here)} - {os.getpid()})
                assert not left, f"processes {left} are left"
                assert not listening(field.here), f"{listening(field.here)} is listened on still"
            except Exception:  # noqa: BLE001 - whatever it was, the next one is played
                wrong += 1
                logs = "".join(f"--- {path.name}\n{path.read_text()}" for path in Path(folder).rglob("*.log"))
                told = f"WRONG\n{traceback.format_exc()}\n{logs[-8000:]}"
                field.clear(but=os.getpid())
        print(f"{name:<58} {time.monotonic() - began:6.1f} s  {told}", flush=True)
    return 1 if wrong else 0


async def _one(field: Field, act: Act, folder: Path) -> str:
    field.heal()
    async with asyncio.timeout(WITHIN), Node("application", handle_sigint=False):
        return await act(field, folder)


if __name__ == "__main__":
    sys.exit(main())
