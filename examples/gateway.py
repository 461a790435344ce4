"""A gateway: one server in front of two upstreams, whose questions reach the client that has called, and an upstream that is down.

Run it: `python examples/gateway.py`. It prints

    offered: notes__add, notes__ask, weather__forecast, version
    Ann adds milk: milk
    Bob adds bread: milk, bread
    Bob is asked: May I tidy up?
    notes__ask: Bob says yes
    offline: the upstream server has not answered
    weather__forecast: sunny in Oslo
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from greenroom import Accepted, Client, Context, Host, PeerError, Server

if TYPE_CHECKING:
    from greenroom import ElicitationRequest

notes = Server("notes")
_notes: list[str] = []


@dataclass
class Consent:
    """A form with one field."""

    yes: bool


@notes.tool
async def add(what: str) -> str:
    """Add a note."""
    _notes.append(what)
    return ", ".join(_notes)


@notes.tool
async def ask(ctx: Context) -> str:
    """Ask the user of the calling client."""
    answer = await ctx.elicit("May I tidy up?", Consent)
    return "Bob says yes" if isinstance(answer, Accepted) and answer.value.yes else "not now"


weather = Server("weather")


@weather.tool
async def forecast(city: str) -> str:
    """Tomorrow's weather."""
    return f"sunny in {city}"


def agree(request: ElicitationRequest) -> Any:
    """Answer Bob's question."""
    print("Bob is asked:", request.message)
    return request.accept({"yes": True})


async def main() -> None:
    """Run a gateway and two clients. Over HTTP it is `front.run("http")`."""
    front = Server("front")

    @front.tool
    def version() -> str:
        """A tool of the gateway itself."""
        return "1.0"

    front.mount(Host({"notes": notes, "weather": weather, "offline": "http://127.0.0.1:9/mcp"}, patience=0.2))
    async with Client(front) as ann, Client(front, elicitation=agree) as bob:
        names = [tool.name for tool in await ann.list_tools()]
        print("offered:", ", ".join(sorted(names, key=lambda name: ("__" not in name, name))))
        print("Ann adds milk:", await ann.call("notes__add", what="milk"))
        print("Bob adds bread:", await bob.call("notes__add", what="bread"))
        print("notes__ask:", await bob.call("notes__ask"))
        try:
            await ann.read_resource("upstream://offline/note://1")
        except PeerError as error:
            print(f"{error.data['server']}: the upstream server has not answered")
        print("weather__forecast:", await ann.call("weather__forecast", city="Oslo"))


if __name__ == "__main__":
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)  # an upstream that is down is expected here
    asyncio.run(main())
