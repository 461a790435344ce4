"""A raised body limit is the only limit on a message's size."""

from __future__ import annotations

import json

from .engine_driver import EngineDriver


async def test_a_larger_limit_holds_for_whole_messages() -> None:
    long = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"x": "y" * 5_000_000, "z": [0] * 600_000}}
    ).encode()
    assert (await EngineDriver(max_body=8 * 1024 * 1024).post(long)).status == 200
    assert (await EngineDriver().post(long)).status == 413
