"""Errors that handlers raise in the stateless era: none makes a client repeat a call that has begun."""

from __future__ import annotations

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import McpError, Server


@pytest.mark.row("26-M11")
@pytest.mark.parametrize(("raised", "sent"), [(-32020, -32603), (-32022, -32603), (-32021, -32021), (1234, 1234)])
async def test_an_error_that_refuses_a_request_is_not_sent_for_a_call_that_has_begun(raised: int, sent: int) -> None:
    server = Server("relay")

    @server.tool
    def relay() -> None:
        raise McpError(raised, "of an upstream server", {"supported": ["2030-01-01"]})

    async with server.started() as company:
        error = await StatelessClient(company).error("tools/call", name="relay", arguments={})
        assert error == {"code": sent, "message": "of an upstream server", "data": {"supported": ["2030-01-01"]}}
