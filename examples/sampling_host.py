"""A host with a model and a user: a server asks both, and a slow answer delays no other request.

Run it: `python examples/sampling_host.py`. It prints

    the user is asked: Which town?
    the model is asked: Describe Oslo in a word.
    meanwhile: pong
    Oslo is rainy.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from greenroom import Accepted, Client, Context, ElicitationRequest, SamplingRequest, Server

server = Server("guide")


@dataclass
class Trip:
    """The form for the user."""

    town: str = "Oslo"


@server.tool
async def describe(ctx: Context) -> str:
    """Ask the user for a town, and the model for a description."""
    match await ctx.elicit("Which town?", Trip):
        case Accepted(trip):
            said = await ctx.sample(f"Describe {trip.town} in a word.")
            return f"{trip.town} is {said.text}."
        case _:
            return "Nowhere, then."


@server.tool
async def ping() -> str:
    """Answer at once."""
    return "pong"


async def main() -> None:
    """Run the host."""
    asked, enough = asyncio.Event(), asyncio.Event()

    def user(request: ElicitationRequest) -> Any:
        print("the user is asked:", request.message)
        return request.accept()  # as the form proposes

    async def model(request: SamplingRequest) -> str:
        print("the model is asked:", request.text)
        asked.set()
        await enough.wait()
        return "rainy"

    async with Client(server, elicitation=user, sampling=model) as client:
        describing = asyncio.ensure_future(client.call("describe"))
        await asked.wait()
        print("meanwhile:", await client.call("ping"))
        enough.set()
        print(await describing)


if __name__ == "__main__":
    asyncio.run(main())
