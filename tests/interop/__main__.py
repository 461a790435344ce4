"""The command: `python -m tests.interop [--only NAME] [--server PROGRAM…]`, which is `make interop`.

Every client plays its part against the playhouse, over HTTP (one server for all of them, one after the other; those that speak the
transport of 2024-11-05 over that as well) and over stdio (a server of its own, which has to be gone when the client is). A row is right when the client went through exactly the steps
that it has to, and ended with 0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.served_program import served

from .peers import ABROAD, ENDINGS, GATEWAY, GUESTS, HERE, MODULES, PEERS, SERVERS, Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

ENDS_WITHIN = 120
GONE_WITHIN = 10.0


@dataclass(frozen=True)
class Row:
    """The outcome of one client over one transport."""

    peer: Peer
    transport: str
    passed: tuple[str, ...]
    seconds: float
    wrong: str

    def __str__(self) -> str:
        verdict = f"WRONG\n{self.wrong}" if self.wrong else "right"
        count = f"{len(self.passed)}/{len(self.peer.steps)}"
        return (
            f"{self.peer.name:<24} {self.peer.mode:<10} {self.transport:<6} {count:>6} {self.seconds:6.1f} s  {verdict}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Have them all play, and print a row for each; 1 when one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description="Clients that others wrote.")
    parser.add_argument("--only", metavar="NAME", default="", help="those with NAME in their name, mode or transport")
    parser.add_argument(
        "--server", nargs="+", default=[sys.executable, str(HERE / "server.py")], help="another playhouse"
    )
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="interop-") as place:
        folder = Path(place)
        web, older = _chosen("http", options.only), [peer for peer in _chosen("sse", options.only) if peer.old]
        if web or older:
            with served(options.server, folder / "http.log") as url:
                rows += [_shown(play(peer, "http", [url], folder)) for peer in web]
                old = f"{url.removesuffix('/mcp')}/sse"
                rows += [_shown(play(peer, "sse", [old], folder)) for peer in older]
        rows += [_shown(play_on_stdio(peer, options.server, folder)) for peer in _chosen("stdio", options.only)]
        rows += [
            _shown(play_on_stdio(peer, options.server, folder)) for peer in _chosen("stdio", options.only, ENDINGS)
        ]
        guests = _chosen("signin", options.only, GUESTS)
        if guests:
            with served([sys.executable, str(HERE / "guarded.py")], folder / "guarded.log") as url:
                rows += [_shown(play(peer, "signin", [url], folder)) for peer in guests]
        bridged = _chosen("gateway", options.only, GATEWAY)
        if bridged:
            with served([sys.executable, "-m", "tests.interop.bridging_gateway"], folder / "gateway.log") as url:
                rows += [_shown(play(peer, "gateway", [url], folder)) for peer in bridged]
        rows += [_shown(play(peer, "abroad", [], folder)) for peer in _chosen("abroad", options.only, ABROAD)]
        rows += [_shown(play(peer, "beside", [], folder)) for peer in _chosen("beside", options.only, SERVERS)]
    wrong = sum(1 for row in rows if row.wrong)
    steps = sum(len(row.passed) for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} clients right, {steps} steps, {sum(row.seconds for row in rows):.0f} s")
    return 1 if wrong or not rows else 0


def _chosen(transport: str, only: str, peers: Sequence[Peer] = PEERS) -> list[Peer]:
    return [peer for peer in peers if only.lower() in f"{peer.name} {peer.mode} {transport}".lower()]


def _shown(row: Row) -> Row:
    print(row, flush=True)
    return row


def play(peer: Peer, transport: str, where: Sequence[str], folder: Path) -> Row:
    """Run a client's script to its end."""
    began = time.monotonic()
    environment = {**os.environ, "NODE_PATH": str(MODULES), "PYTHONDONTWRITEBYTECODE": "1"}
    problem = ""
    said = folder / "said"
    with said.open("w+", encoding="utf-8") as log:
        client = subprocess.Popen(
            [*peer.command, *where], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            code = client.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            problem = f"not done after {ENDS_WITHIN} s"
        else:
            problem = f"ended with {code}" if code else ""
        finally:
            client.kill()
            client.wait()
    told = said.read_text(encoding="utf-8", errors="replace")
    passed = tuple(line.removeprefix("ok ") for line in told.splitlines() if line.startswith("ok "))
    if not problem and passed != peer.steps:
        problem = f"these steps are missing: {', '.join(step for step in peer.steps if step not in passed) or 'none, but their order'}"
    return Row(peer, transport, passed, time.monotonic() - began, f"{problem}\n{told[-6000:]}" if problem else "")


def play_on_stdio(peer: Peer, server: Sequence[str], folder: Path) -> Row:
    """The same with a server that the client starts, and that has to end with it: it leaves its id in a file."""
    pids = folder / "pids"
    pids.write_text("")
    row = play(peer, "stdio", [*server, "stdio", str(pids)], folder)
    left = [int(line) for line in pids.read_text().splitlines()]
    deadline = time.monotonic() + GONE_WITHIN
    while (alive := [pid for pid in left if _lives(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)  # another's child: there is no event to wait for
    for pid in alive:
        os.kill(pid, 9)
    if row.wrong or not alive:
        return row
    return Row(peer, row.transport, row.passed, row.seconds, f"its server was still there after {GONE_WITHIN:g} s")


def _lives(pid: int) -> bool:
    """Whether the process still runs: a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"X", "Z"}


if __name__ == "__main__":
    sys.exit(main())
