"""A setting that cannot be sent fails a reply, and the log says which setting and why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Server, Settings

if TYPE_CHECKING:
    import pytest


async def test_a_setting_that_cannot_be_sent_is_logged_and_its_client_learns_no_detail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("odd", settings=Settings(experimental={"x": {"y": object()}}))
    async with server.started() as company:
        with caplog.at_level(logging.ERROR, "greenroom.exchange"):
            error = await StatelessClient(company).error("server/discover")
    assert error == {"code": -32603, "message": "Internal error"}
    (record,) = (each for each in caplog.records if each.name == "greenroom.exchange")
    assert record.getMessage().startswith("server/discover has a reply that cannot be sent")
    assert record.exc_info is not None
    assert "object" in str(record.exc_info[1])
