"""An actor that a Thespian program has had for years, offered as a tool: nothing of it changes.

In Thespian's simple system, so that it can be run anywhere; with `ActorSystem("multiprocTCPBase", {"Admin Port": 1900})` the actor is a process of
its own.

Run it: `python examples/thespian_tool.py`. It prints

    convert takes amount, to, rounded
    12 EUR are 13.2 USD
    a currency that it does not know: Converter has failed at it: KeyError: 'XYZ'
    an argument that is none: Invalid arguments for convert: amount: expected a number, got "much"
    someone who never answers: Hermit has not answered within 0.2 s
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownArgumentType=false, reportIncompatibleMethodOverride=false
# Thespian ships no types.

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from thespian.actors import Actor, ActorSystem

from greenroom import Client, Server

# --- theirs: two actors and their messages, which know nothing of MCP


@dataclass
class Convert:
    """Convert euros.

    Args:
        amount: How many.
        to: Into what, as three letters.
        rounded: To how many digits.
    """

    amount: float
    to: str
    rounded: int = 2


@dataclass
class Converted:
    """The answer to that."""

    amount: float
    currency: str


class Converter(Actor):  # type: ignore[misc]
    """Answers every `Convert`."""

    RATES = {"USD": 1.1, "JPY": 160.0}  # noqa: RUF012 - as people write it

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's
        if isinstance(message, Convert):
            amount = round(message.amount * self.RATES[message.to], message.rounded)
            self.send(sender, Converted(amount, message.to))


class Hermit(Actor):  # type: ignore[misc]
    """Never answers."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        pass


# --- ours: the tools


def told(reply: Converted) -> str:
    """What the client gets of the reply."""
    return f"{reply.amount:g} {reply.currency}"


def knock(times: int) -> str:
    """Knock at the door. What this returns is sent."""
    return "knock " * times


async def main() -> None:
    """Offer both, and call them."""
    system = ActorSystem("simpleSystemBase", logDefs=False)
    server = Server("thespian")
    server.thespian_tool(system, Converter, "convert", request=Convert, reply=told)
    server.thespian_tool(system, Hermit, request=knock, timeout=0.2)
    async with Client(server) as client:
        tool = next(tool for tool in await client.list_tools() if tool.name == "convert")
        print("convert takes", ", ".join(tool.input_schema["properties"]))
        print("12 EUR are", await client.call("convert", amount=12, to="USD"))
        for case, name, arguments in (
            ("a currency that it does not know", "convert", {"amount": 1, "to": "XYZ"}),
            ("an argument that is none", "convert", {"amount": "much", "to": "USD"}),
            ("someone who never answers", "knock", {"times": 3}),
        ):
            reply = await client.call_tool(name, arguments)
            print(f"{case}: {reply.text}")
    system.shutdown()


if __name__ == "__main__":
    logging.getLogger("Thespian").setLevel(logging.CRITICAL)  # that an actor fails is what this is about
    asyncio.run(main())
