"""The two hosts: network namespaces, the link between them, and the processes on each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from greenroom.supervision.cluster import os_processes

HERE = "10.211.0.1"
THERE = "10.211.0.2"


def ip(*words: str) -> str:
    """`ip`, and what it said."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Field:
    """Both by their names."""

    here: str
    there: str

    @property
    def over_there(self) -> tuple[str, ...]:
        """What a command begins with that is to be run on the second host."""
        return ("ip", "netns", "exec", self.there)

    def build(self) -> None:
        """Make them."""
        for name in (self.here, self.there):
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", self.here, "type", "veth", "peer", "name", "cable", "netns", self.there)
        for name, address in ((self.here, HERE), (self.there, THERE)):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")

    def remove(self) -> None:
        """Take them down, with the processes that are there still."""
        self.clear()
        for name in (self.here, self.there):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)

    def cut(self) -> None:
        """Pull the cable."""
        ip("-n", self.there, "link", "set", "cable", "down")

    def heal(self) -> None:
        """Plug it in."""
        ip("-n", self.there, "link", "set", "cable", "up")

    def inside(self, name: str) -> list[int]:
        """The processes on that host, without the one that was there to look."""
        return [pid for pid in map(int, ip("netns", "pids", name).split()) if os_processes.is_alive(pid)]

    def clear(self, but: int = 0) -> None:
        """End the processes on both hosts."""
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            left = [
                pid for name in (self.here, self.there) for pid in self.inside(name) if pid not in (but, os.getpid())
            ]
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def listening(name: str) -> set[tuple[str, int]]:
    """The addresses on that host that have a listener."""
    said = subprocess.run(
        ["ip", "netns", "exec", name, "ss", "-Htln"], check=True, capture_output=True, text=True
    ).stdout
    found = (line.split()[3].rpartition(":") for line in said.splitlines())
    return {(address, int(port)) for address, _, port in found}
