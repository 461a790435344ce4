"""Chat rooms that are started on demand, each as a process of its own: a crash of one room does not affect the others.

Run it: `python examples/dynamic_supervisor.py`. It prints

    blue: guest says hello
    blue: cook says good morning
    red: waiter says any orders?
    blue has crashed because of 'crash me', and is started again on demand
    blue: guest says a new room?
    red: 1 line, blue: 1 line
"""

from __future__ import annotations

from contextlib import suppress

from greenroom.supervision import (
    AlreadyRegistered,
    DynamicSupervisor,
    GenServer,
    Options,
    ProcessExited,
    Ref,
    Registry,
    Supervisor,
    child,
    run,
    start,
    start_child,
    via,
    whereis,
)


class Room(GenServer):
    """A room that keeps the lines said in it."""

    def __init__(self, name: str) -> None:
        """A new room is empty, also one that was started again after a crash."""
        self.name = name
        self.lines: list[str] = []

    def say(self, who: str, text: str) -> None:
        """Add a line, or crash."""
        if text == "crash me":
            raise RuntimeError(text)
        self.lines.append(f"{who} says {text}")
        print(f"{self.name}: {self.lines[-1]}")

    def count(self) -> int:
        """The number of lines."""
        return len(self.lines)


def room(name: str) -> Ref[Room]:
    """A reference to the room of that name, whichever process it is now."""
    return Ref(via(Ref("registry"), name))


async def enter(name: str) -> Ref[Room]:
    """The room of that name, started if it does not run."""
    found = room(name)
    if whereis(via(Ref("registry"), name)) is None:
        spec = child(Room, name).but(restart="temporary", options=Options(name=found.target, label=name))
        with suppress(AlreadyRegistered):  # a concurrent caller has started it
            await start_child("rooms", spec)
    return found


async def main() -> None:
    """Start the rooms, and talk in them."""
    await start(
        Supervisor,
        [child(Registry).but(name="registry"), child(DynamicSupervisor).but(name="rooms")],
        strategy="rest_for_one",  # rooms cannot be found without the registry, so they restart with it
    )
    for name, who, text in (
        ("blue", "guest", "hello"),
        ("blue", "cook", "good morning"),
        ("red", "waiter", "any orders?"),
        ("blue", "cook", "crash me"),
        ("blue", "guest", "a new room?"),
    ):
        try:
            await (await enter(name)).call(Room.say, who, text)
        except ProcessExited:
            print(f"{name} has crashed because of {text!r}, and is started again on demand")
    red, blue = await room("red").call(Room.count), await room("blue").call(Room.count)
    print(f"red: {red} line, blue: {blue} line")


if __name__ == "__main__":
    run(main, log=False)
