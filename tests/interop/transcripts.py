"""Conversations with the official SDK, as they were on the wire: `python -m tests.interop.transcripts PYTHON` records them anew, with a PYTHON that has the SDK.

`make interop` plays against the SDKs themselves, which have to be installed for it. A transcript needs no SDK: a test plays the SDK's part of it line by
line, and has to hear from our part what the SDK heard, and accepted, when it was recorded.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from greenroom import Client, Command

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
SDK = HERE / "python" / "recorded.py"
STAGE = HERE / "stage.py"
PLAYER = HERE / "player.py"
SDK_CALLS_US = HERE / "recorded" / "sdk_calls_us.jsonl"
WE_CALL_THE_SDK = {
    "legacy": HERE / "recorded" / "we_call_the_sdk.jsonl",
    "2026-07-28": HERE / "recorded" / "we_call_the_sdk_without_sessions.jsonl",
}
"""By the mode of our client."""


def lines(transcript: Path) -> Iterator[tuple[str, Any]]:
    """The sender, client or server, and the message."""
    for line in transcript.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        yield entry["from"], entry["message"]


async def our_part(client: Client) -> list[Any]:
    """Our client's requests in order, and the values that it reads from the answers."""
    heard: list[Any] = [tool.name for tool in await client.list_tools()]
    heard.append(await client.call("add", a=1, b=2))
    heard.append((await client.call_tool("fail")).is_error)
    heard.append([resource.uri for resource in await client.list_resources()])
    heard.append((await client.read_resource("play://script")).text)
    heard.append([prompt.name for prompt in await client.list_prompts()])
    heard.append((await client.get_prompt("greet", {"name": "Ann"})).messages[0].content)
    await client.ping()
    return heard


def main(sdk: str) -> None:
    """Record all."""
    tee = (sys.executable, "-P", str(HERE / "transcripts.py"), "tee")
    SDK_CALLS_US.unlink(missing_ok=True)
    subprocess.run([sdk, SDK, "call", *tee, SDK_CALLS_US, sys.executable, STAGE], check=True)

    async def call(mode: str, transcript: Path) -> None:
        command = Command(*tee, str(transcript), sdk, str(SDK), "serve", inherit=True)
        async with Client(command, mode=mode) as client:
            print(await our_part(client))

    for mode, transcript in WE_CALL_THE_SDK.items():
        transcript.unlink(missing_ok=True)
        asyncio.run(call(mode, transcript))


def tee(transcript: Path, command: list[str]) -> None:
    """Be between a client and the server that is started by `command`, and write down what they say."""
    guard = threading.Lock()

    def pass_on(speaker: str, source: IO[bytes], to: IO[bytes]) -> None:
        for line in source:
            with guard, transcript.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"from": speaker, "message": json.loads(line)}, ensure_ascii=False) + "\n")
            to.write(line)
            to.flush()
        to.close()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        back = threading.Thread(target=pass_on, args=("server", server.stdout, sys.stdout.buffer))
        back.start()
        pass_on("client", sys.stdin.buffer, server.stdin)
        back.join()


if __name__ == "__main__":
    if sys.argv[1] == "tee":
        tee(Path(sys.argv[2]), sys.argv[3:])
    else:
        main(sys.argv[1])
