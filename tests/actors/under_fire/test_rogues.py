"""Programs that misbehave to order, with real pipes, beside one that does not: what each call ends as, and that the next request is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.example_counts import one_in

from greenroom import BadAnswer, ClientSettings, Command, Host, RequestLost, RequestTimeout
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.testing import MANNERS
from greenroom.transports.client.server_command import CommandLimits

from .bystanders import bystanders, ledger, rogue

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

ANSWERED: Final = ("echo",)
DIES: Final = RequestLost
DEAF: Final = (RequestTimeout, RequestLost)
"""Nor does it answer pings meanwhile, so it may be given up before the deadline."""
OUTCOMES: Final[dict[str, Any]] = {
    "well": ANSWERED,
    "garbage": ANSWERED,
    "only-garbage": RequestTimeout,
    "flood": ANSWERED,
    "flood-for-ever": DEAF,
    "twice": ANSWERED,
    "late": DEAF,
    "other-id": RequestTimeout,
    "silent": RequestTimeout,
    "half-line": DIES,
    "wrong-shape": BadAnswer,
    "huge": BadAnswer,
    "endless-line": DEAF,
    "exits": DIES,
    "segfaults": DIES,
    "asks": ANSWERED,
}
"""The outcome of a call of each rogue. A timeout means that nothing can be known earlier."""
DEADLINE: Final = 1.5
SLACK: Final = 5.0
"""The machine may be busy with other things. That a death is told as such, and not by the deadline, is in the kind of the error."""
LINE: Final = 1_000_000


def test_every_rogue_is_tried() -> None:
    assert set(OUTCOMES) == set(MANNERS)


def spec(command: Command) -> UpstreamSpec:
    """With short bounds, and without a breaker's opinion of who deserves to be asked."""
    return UpstreamSpec(
        Command(*command.words, limits=CommandLimits(grace=0.2, line=LINE)),
        settings=ClientSettings(
            request_timeout=DEADLINE, ping_interval=0.5, ping_timeout=0.5, ping_failure_threshold=2
        ),
        breaker=BreakerSettings(failures=1000),
    )


@pytest.mark.row("CT-10", "CT-11", "CL-10")
@pytest.mark.parametrize("manner", one_in(4, OUTCOMES))
async def test_each_manner(manner: str, tmp_path: Path) -> None:
    options = {"late": ("--seconds", "2.2"), "huge": ("--amount", f"{2 * LINE}"), "flood": ("--amount", "5000")}
    bad = spec(rogue(manner, *options.get(manner, ())))
    async with Host({"bad": bad, "good": ledger(tmp_path / "book")}) as host:
        words, good = host.server("bad"), host.server("good")
        await words.within(30).ping()  # its program may take long to start
        await good.call("where")
        async with bystanders([good]):
            loop = asyncio.get_running_loop()
            for _ in range(2):
                began = loop.time()
                outcome = await ended(words.call("echo", text="echo"))
                took = loop.time() - began
                expected = OUTCOMES[manner]
                assert outcome == expected if expected is ANSWERED else isinstance(outcome, expected), outcome
                assert took < DEADLINE + SLACK
                if isinstance(outcome, RequestLost):
                    assert outcome.maybe_done
            assert [tool.name for tool in await words.within(30).list_tools()] == ["echo", "count"]


async def ended(call: Any) -> object:
    """The one thing that it ends as."""
    try:
        return (await call,)
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
