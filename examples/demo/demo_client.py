"""A client in the same process that calls every tool of the demonstration once and prints the answers.

It shows each call, its answer, and that the tree is the same before and after, without an external client.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.wire_probe import WireProbe

from .event_printer import EventPrinter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.company import Company
    from greenroom.supervision import Ref

TOUR: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("add", {"a": 40, "b": 2}),
    ("fail", {}),
    ("crash", {}),
    ("leave", {}),
    ("raise_interrupt", {}),
    ("segfault", {}),
    ("add", {"a": 2, "b": 2}),
    ("stream", {"steps": 3}),
    ("block_alone", {"seconds": 0.5}),
    ("block", {"seconds": 1.5}),
    ("add", {"a": 1, "b": 1}),
    ("clock__now", {}),
    ("library__find", {"title": "erlang"}),
    ("shaky__count", {"to": 30}),
    ("clock__now", {}),
)


VISITS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("add", {"a": 40, "b": 2}),
    ("crash", {}),
    ("stream", {"steps": 3}),
    ("segfault", {}),
    ("library__find", {"title": "erlang"}),
    ("leave", {}),
    ("shaky__count", {"to": 3}),
    ("fail", {}),
)
PAUSE: Final = 1.5
"""Seconds between two visits."""


async def run_visits(company: Company) -> None:
    """Call one tool after the other without end, so that there is something to see: some of them die."""
    async with WireProbe(company) as probe:
        while True:
            for tool, arguments in VISITS:
                await asyncio.sleep(PAUSE)
                call = await probe.ask("tools/call", {"name": tool, "arguments": dict(arguments)})
                await probe.wait_for(partial(_answers, call), within=60.0, what=f"the answer to {tool}")
                probe.received.clear()


def _answers(call: int, message: Mapping[str, Any]) -> bool:
    return message.get("id") == call and "method" not in message


async def run_tour(company: Company, printer: Ref[EventPrinter]) -> None:
    """Connect, call every tool, and disconnect."""
    async with WireProbe(company) as probe:
        for tool, arguments in TOUR:
            written = ", ".join(f"{name}={value}" for name, value in arguments.items())
            printer.cast(EventPrinter.say, f"→ {tool}({written})")
            params = {"name": tool, "arguments": dict(arguments), "_meta": {"progressToken": tool}}
            answer = await _watched(probe, await probe.ask("tools/call", params), printer)
            printer.cast(EventPrinter.say, f"← {_words(answer)}")


def _words(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        return f"error {answer['error']['code']}: {str(answer['error']['message']).splitlines()[0]}"
    result = answer["result"]
    words = " ".join(str(block.get("text", "")) for block in result["content"])
    return f"isError: {words}" if result.get("isError") else words


async def _watched(probe: WireProbe, call: int, printer: Ref[EventPrinter]) -> dict[str, Any]:
    """The answer to a call; progress is printed as it arrives."""
    told = 0
    while True:
        seen = len(probe.received)
        for message in probe.received[told:]:
            if message.get("method") == "notifications/progress":
                printer.cast(EventPrinter.say, f"  … {message['params'].get('message')}")
            elif message.get("id") == call and "method" not in message:
                probe.received.clear()
                return message
        told = seen
        await _more_than(probe, seen, call)


async def _more_than(probe: WireProbe, seen: int, call: int) -> None:
    await probe.wait_for(lambda _: len(probe.received) > seen, within=30.0, what=f"the answer to call {call}")
