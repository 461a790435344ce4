"""Races of results, cancellations, deadlines and deaths: each call gets at most one reply, and the right one.

An example is a plan: calls with what their workers do and when, what the peer and the fates do meanwhile, and the order in which
the node delivers. Times are quarters of a second, so that many things happen at one moment.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.session import SessionProcess
from greenroom.actors.settings import Settings
from greenroom.protocol.errors import McpError
from greenroom.supervision import ProcessExited, kill
from greenroom.supervision.kernel.process_lookup import current_node
from greenroom.supervision.testing import run
from greenroom.transports.interfaces import EncodedReply

from .session_client import ScriptedTools, SessionClient, echo, join, message, messages_in, open_company

if TYPE_CHECKING:
    from greenroom.actors.company import Company
    from greenroom.actors.worker_interfaces import Job
    from greenroom.transports.interfaces import FeedEvent

QUARTER = 0.25
DEADLINE = 2.0
GRACE = 0.5

Quarters = st.integers(0, 12)


@dataclass(frozen=True)
class Call:
    """One call: when it comes, what its worker does, and when the peer cancels it, if it does."""

    at: int
    takes: int
    says: tuple[int, ...]
    ends: str
    cancelled: int | None
    obeys: bool


@dataclass(frozen=True)
class Death:
    """One kill: when it comes, and of which process."""

    at: int
    victim: str


Calls = st.builds(
    Call,
    at=Quarters,
    takes=Quarters,
    says=st.lists(st.integers(0, 6), max_size=2).map(tuple),
    ends=st.sampled_from(["returns", "returns", "refuses", "raises", "exits", "never"]),
    cancelled=st.none() | Quarters,
    obeys=st.booleans(),
)
Deaths = st.builds(
    Death, at=Quarters, victim=st.sampled_from(["workers", "registry", "subscriptions", "session", "sessions"])
)
Seeds = st.none() | st.integers(0, 2**32)


class Crew(ScriptedTools):
    """Workers that do as the plan says."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__(echo=echo, **{f"call-{number}": partial(self.play, call) for number, call in enumerate(calls)})

    async def play(self, call: Call, job: Job) -> Any:
        for number, quarter in enumerate(call.says):
            await asyncio.sleep(quarter * QUARTER)
            job.peer_channel.emit("notifications/progress", {"progressToken": job.request_id, "progress": number})
        if call.obeys:
            waiting = asyncio.create_task(job.cancelled.wait())
            await asyncio.wait([waiting], timeout=call.takes * QUARTER)
            waiting.cancel()
        else:
            await asyncio.sleep(call.takes * QUARTER)
        match call.ends:
            case "refuses":
                raise McpError(-32099, "no")
            case "raises":
                raise ValueError("secret")
            case "exits":
                raise SystemExit(1)
            case "never":
                await asyncio.Event().wait()
            case _:
                pass
        return {"result of": job.request_id}


async def collect(player: SessionClient, number: int, call: Call) -> list[Any]:
    """Everything that answers one call: messages, `None` for silence, an exception for an end."""
    await asyncio.sleep(call.at * QUARTER)
    try:
        reply = await player.reply("tools/call", id=number, name=f"call-{number}", arguments={})
    except ProcessExited as error:
        return [error]
    if reply is None:
        return [None]
    if isinstance(reply, EncodedReply):
        return [message(reply.body)]
    events: list[FeedEvent] = []
    while (more := await reply.next()) is not None:
        events.extend(more)
    return [each for each in messages_in(events) if "id" in each] or [None]


async def cancel(player: SessionClient, number: int, call: Call) -> None:
    if call.cancelled is not None:
        await asyncio.sleep(call.cancelled * QUARTER)
        try:
            await player.cancel(number)
        except ProcessExited:
            return


async def die(company: Company, player: SessionClient, death: Death) -> None:
    await asyncio.sleep(death.at * QUARTER)
    if death.victim == "session":
        pid = company.peers.whereis(player.session.id)
        if pid is not None:
            kill(pid)
    else:
        kill(company.name(death.victim))


def check(number: int, call: Call, answers: list[Any], deaths: set[str]) -> None:
    """That this call has come to one end, and to one that it may have come to."""
    assert len(answers) == 1, answers
    (answer,) = answers
    if answer is None:
        assert call.cancelled is not None, "silence is for the cancelled"
        return
    if isinstance(answer, ProcessExited):
        assert deaths & {"session", "sessions"}
        return
    assert answer["id"] == number
    if "result" in answer and not answer["result"].get("isError"):
        assert call.ends == "returns"
        assert answer["result"] == {"result of": number}
    elif "result" in answer and "timed out" in answer["result"]["content"][0]["text"]:
        assert max(*call.says, call.takes, 0) * QUARTER >= DEADLINE or call.ends == "never"
    elif "result" in answer:
        assert call.ends in ("raises", "exits") or deaths & {"workers"}
    else:
        code, text = answer["error"]["code"], answer["error"]["message"]
        assert (code == -32099) == (text == "no")
        if code == -32099:
            assert call.ends == "refuses"
        else:
            assert deaths, text


async def play(calls: list[Call], deaths: list[Death]) -> None:
    company = await open_company(
        Crew(calls), settings=Settings(call_timeout=DEADLINE, cancel_grace=GRACE, max_in_flight=1000)
    )
    player = await join(company)
    watcher = await join(company)
    collecting = [asyncio.create_task(collect(player, *each)) for each in enumerate(calls)]
    doing = [asyncio.create_task(cancel(player, *each)) for each in enumerate(calls)]
    doing += [asyncio.create_task(die(company, player, each)) for each in deaths]
    await asyncio.gather(*doing)
    answers = await asyncio.wait_for(asyncio.gather(*collecting), 600)
    for number, call in enumerate(calls):
        check(number, call, answers[number], {each.victim for each in deaths})
    await asyncio.sleep(10)
    no_process_lingers()
    if not any(each.victim == "sessions" for each in deaths):
        assert "result" in await watcher.call("echo")
    assert "result" in await (await join(company)).call("echo")


def no_process_lingers() -> None:
    """Every session that lives has forgotten the calls, and every worker is gone."""
    for process in current_node().processes.values():
        if isinstance(process.behaviour, SessionProcess):
            assert not process.behaviour.calls.table.is_busy
            assert len(process.behaviour.questions.table) == 0
        assert not process.label.startswith("tools/call")


@settings(max_examples=examples(150))
@given(calls=st.lists(Calls, min_size=1, max_size=6), seed=Seeds)
@pytest.mark.row("TF-23")
@pytest.mark.row("TF-21")
def test_cancel_result_and_deadline_decide_once(calls: list[Call], seed: int | None) -> None:
    run(partial(play, calls, []), seed=seed)


@settings(max_examples=examples(150))
@given(calls=st.lists(Calls, min_size=1, max_size=5), deaths=st.lists(Deaths, max_size=3), seed=Seeds)
def test_no_call_waits_for_ever_whichever_process_dies(
    calls: list[Call], deaths: list[Death], seed: int | None
) -> None:
    run(partial(play, calls, deaths), seed=seed)
