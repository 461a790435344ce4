"""A server that is set up to take more takes more: the bound on a body is the only one on a message's size."""

from __future__ import annotations

import json

from .engine_driver import Desk


async def test_a_larger_limit_holds_for_whole_messages() -> None:
    long = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"x": "y" * 5_000_000, "z": [0] * 600_000}}
    ).encode()
    assert (await Desk(max_body=8 * 1024 * 1024).post(long)).status == 200
    assert (await Desk().post(long)).status == 413
