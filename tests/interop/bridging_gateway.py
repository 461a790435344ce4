"""A gateway for clients that others wrote: `bridging_gateway.py PORT`.

Behind it are a server with sessions (`old`), one whose requests stand alone (`new`), and two programs that die when they are told to (`frail_old`, `frail_new`).
"""

from __future__ import annotations

import sys
import tempfile
from itertools import count
from pathlib import Path

from tests.actors.gateway.bridged_pair import FRAGILE_UPSTREAM, LEGACY, MODERN, BridgedUpstream

from greenroom import ClientSettings, Command, Server, Settings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.client_targets import route_of
from greenroom.host import Host

ERAS = {"old": LEGACY, "new": MODERN}


def upstream() -> BridgedUpstream:
    """A server whose list and resource change when a client wants that."""
    up, numbers = BridgedUpstream(), count(1)

    @up.server.tool
    def turn() -> str:
        up.server.notify_resource_updated("note://one")
        return "turned"

    @up.server.tool
    def grow() -> str:
        """Another tool; returns its name."""
        name = f"grown{next(numbers)}"
        up.server.registry.register_tool(name, lambda: "new")
        return name

    @up.server.tool
    async def ended() -> bool:
        """Whether the call that waits has been cancelled."""
        await up.cancelled.wait()
        return True

    return up


def main(port: int, folder: Path) -> None:
    """Serve until SIGTERM."""
    program = folder / "frail.py"
    program.write_text(FRAGILE_UPSTREAM)
    specs: dict[str, UpstreamSpec] = {}
    for name, mode in ERAS.items():
        settings = ClientSettings(mode=mode)
        specs[name] = UpstreamSpec(route_of(upstream().server), settings=settings)
        frail = Command(sys.executable, str(program), str(folder / f"{name}.log"))
        specs[f"frail_{name}"] = UpstreamSpec(route_of(frail), settings=settings)
    server = Server("front", version="1.0", settings=Settings(task_poll=0.05))
    server.mount(Host(specs, patience=20.0))
    server.run("http", port=port)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(int(sys.argv[-1]), Path(place))
