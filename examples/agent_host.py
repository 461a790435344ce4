"""A model and its servers: a host shows the model the servers' tools, makes its calls, and returns the results in the provider's format.

The model is a script here, with typical mistakes: it leaves out an argument, and calls a tool that does not exist. Replace it by any
provider's client: input and output are dictionaries in the provider's format.

Run it: `python examples/agent_host.py`. It prints

    the model is shown clock__now, library__borrow, library__search
    library__search wants {'words': 'erlang'}
      1: Programming Erlang
    library__borrow wants {'number': '1'}
      the arguments of library:borrow are wrong: number: expected an integer, got "1"; who: is missing
    library__borrow wants {'number': 1, 'who': 'Joe'}
      Joe has Programming Erlang until Friday
    clock__noon wants {}
      there is no tool called 'clock__noon'; did you mean clock__now?
    the model says: Enjoy your book, Joe.
"""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom import Host, Server

library = Server("library")
BOOKS = {1: "Programming Erlang", 2: "Smalltalk-80"}


@library.tool
def search(words: str) -> str:
    """Find books by words of their titles."""
    return "\n".join(f"{number}: {title}" for number, title in BOOKS.items() if words.lower() in title.lower())


@library.tool
def borrow(number: int, who: str) -> str:
    """Lend a book, by its number."""
    return f"{who} has {BOOKS[number]} until Friday"


clock = Server("clock")


@clock.tool
def now() -> str:
    """The time."""
    return "noon"


class ScriptedModel:
    """Answers like a provider's API: with blocks of text, and blocks of tool calls."""

    def __init__(self) -> None:
        """Prepare the answers."""
        self.script: list[tuple[str, dict[str, Any]]] = [
            ("library__search", {"words": "erlang"}),
            ("library__borrow", {"number": "1"}),
            ("library__borrow", {"number": 1, "who": "Joe"}),
            ("clock__noon", {}),
        ]

    def create(self, tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The next message of a conversation."""
        assert {"clock__now", "library__borrow"} <= {tool["name"] for tool in tools}
        turn = len(messages) // 2
        if turn == len(self.script):
            return {"stop_reason": "end_turn", "content": [{"type": "text", "text": "Enjoy your book, Joe."}]}
        name, arguments = self.script[turn]
        block = {"type": "tool_use", "id": f"use_{turn}", "name": name, "input": arguments}
        return {"stop_reason": "tool_use", "content": [block]}


async def main() -> None:
    """The loop of an agent: ask the model, make its calls, return the results."""
    model = ScriptedModel()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Lend me a book on Erlang."}]
    async with Host({"library": library, "clock": clock}) as host:
        tools = await host.to_anthropic()
        print("the model is shown", ", ".join(sorted(tool["name"] for tool in tools)))
        while (said := model.create(tools, messages))["stop_reason"] == "tool_use":
            messages.append({"role": "assistant", "content": said["content"]})
            results = [await host.run(block) for block in said["content"]]
            messages.append({"role": "user", "content": results})
            for block, result in zip(said["content"], results, strict=True):
                print(block["name"], "wants", block["input"])
                print(" ", *(part["text"] for part in result["content"]))
    print("the model says:", said["content"][0]["text"])


if __name__ == "__main__":
    asyncio.run(main())
