"""An existing Thespian actor, offered as a tool without changes to it.

It runs in Thespian's simple system here; with `ActorSystem("multiprocTCPBase", {"Admin Port": 1900})` the actor is a process of its own.

Run it: `python examples/thespian_tool.py`. It prints

    convert takes amount, to, rounded
    12 EUR are 13.2 USD
    an unknown currency: Converter has failed at the message: KeyError: 'XYZ'
    a wrong argument: Invalid arguments for convert: amount: expected a number, got "much"
    an actor that never answers: Hermit has not answered within 0.2 s
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

# --- Thespian's side: two actors and their messages, without any MCP


@dataclass
class Convert:
    """Convert euros.

    Args:
        amount: The amount in euros.
        to: The target currency, as three letters.
        rounded: The number of digits.
    """

    amount: float
    to: str
    rounded: int = 2


@dataclass
class Converted:
    """The answer to `Convert`."""

    amount: float
    currency: str


class Converter(Actor):  # type: ignore[misc]
    """Answers every `Convert`."""

    RATES = {"USD": 1.1, "JPY": 160.0}  # noqa: RUF012 - a typical actor has such attributes

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's
        if isinstance(message, Convert):
            amount = round(message.amount * self.RATES[message.to], message.rounded)
            self.send(sender, Converted(amount, message.to))


class Hermit(Actor):  # type: ignore[misc]
    """Never answers."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        pass


# --- greenroom's side: the tools


def outcome(reply: Converted) -> str:
    """The text of a reply."""
    return f"{reply.amount:g} {reply.currency}"


def knock(times: int) -> str:
    """Make the message; the return value is sent to the actor."""
    return "knock " * times


async def main() -> None:
    """Offer both actors as tools, and call them."""
    system = ActorSystem("simpleSystemBase", logDefs=False)
    server = Server("thespian")
    server.thespian_tool(system, Converter, "convert", request=Convert, reply=outcome)
    server.thespian_tool(system, Hermit, request=knock, timeout=0.2)
    async with Client(server) as client:
        tool = next(tool for tool in await client.list_tools() if tool.name == "convert")
        print("convert takes", ", ".join(tool.input_schema["properties"]))
        print("12 EUR are", await client.call("convert", amount=12, to="USD"))
        for case, name, arguments in (
            ("an unknown currency", "convert", {"amount": 1, "to": "XYZ"}),
            ("a wrong argument", "convert", {"amount": "much", "to": "USD"}),
            ("an actor that never answers", "knock", {"times": 3}),
        ):
            reply = await client.call_tool(name, arguments)
            print(f"{case}: {reply.text}")
    system.shutdown()


if __name__ == "__main__":
    logging.getLogger("Thespian").setLevel(logging.CRITICAL)  # a failing actor is expected here
    asyncio.run(main())
