"""The official SDK's part of a recorded conversation is played to us: our server answers its client, and our client asks its server, as when it was recorded."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from greenroom import Client, Command

from . import transcripts

WAIT = 60


@pytest.mark.row("OP-04")
def test_the_client_of_the_official_sdk_hears_from_us_what_it_accepted() -> None:
    said = list(transcripts.lines(transcripts.SDK_CALLS_US))
    assert {message.get("method") for speaker, message in said if speaker == "client"} >= {
        *("initialize", "notifications/initialized", "ping", "tools/list", "tools/call", "resources/list"),
        *("resources/read", "prompts/list", "prompts/get"),
    }
    asked = "".join(json.dumps(message) + "\n" for speaker, message in said if speaker == "client")
    done = subprocess.run(
        [sys.executable, transcripts.STAGE], input=asked, capture_output=True, text=True, check=True, timeout=WAIT
    )
    heard = {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}
    assert heard == {message["id"]: message for speaker, message in said if speaker == "server"}


@pytest.mark.row("OP-04")
@pytest.mark.parametrize("mode", transcripts.WE_CALL_THE_SDK)
def test_our_client_asks_the_server_of_the_official_sdk_what_it_answered(mode: str) -> None:
    async def call() -> list[Any]:
        player = Command(sys.executable, "-S", transcripts.PLAYER, str(transcripts.WE_CALL_THE_SDK[mode]))
        async with Client(player, mode=mode) as client:
            return await transcripts.our_part(client)

    *heard, greeting = asyncio.run(asyncio.wait_for(call(), WAIT))
    assert heard == [*("add", "fail"), 3, True, ["play://script"], "To be", ["greet"]]
    assert greeting.text == "Greet Ann"


def test_a_player_of_the_sdk_refuses_another_request_than_was_recorded() -> None:
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}) + "\n"
    done = subprocess.run(
        [sys.executable, "-S", transcripts.PLAYER, transcripts.WE_CALL_THE_SDK["legacy"]],
        input=request,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT,
    )
    assert done.returncode == 1
    assert "tools/list" in done.stderr
    assert done.stdout == ""
