"""Rooms that are opened when a visitor comes in, each its own process: a crash in one is no matter for the others.

Run it: `python examples/dynamic_supervisor.py`. It prints

    blue: guest says hello
    blue: cook says good morning
    red: waiter says is anybody here?
    blue has crashed of 'crash me', and will be opened anew
    blue: guest says where is everybody?
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
    """Remembers what was said in it."""

    def __init__(self, name: str) -> None:
        """A new room is empty, also one that had to be opened anew."""
        self.name = name
        self.lines: list[str] = []

    def say(self, who: str, text: str) -> None:
        """Say something to all."""
        if text == "crash me":
            raise RuntimeError(text)
        self.lines.append(f"{who} says {text}")
        print(f"{self.name}: {self.lines[-1]}")

    def count(self) -> int:
        """How many lines were said."""
        return len(self.lines)


def room(name: str) -> Ref[Room]:
    """The room of that name, whowaiterr runs it now."""
    return Ref(via(Ref("registry"), name))


async def enter(name: str) -> Ref[Room]:
    """The room of that name, opened if it is not."""
    found = room(name)
    if whereis(via(Ref("registry"), name)) is None:
        spec = child(Room, name).but(restart="temporary", options=Options(name=found.target, label=name))
        with suppress(AlreadyRegistered):  # then another caller was faster
            await start_child("rooms", spec)
    return found


async def main() -> None:
    """A short waiterning."""
    await start(
        Supervisor,
        [child(Registry).but(name="registry"), child(DynamicSupervisor).but(name="rooms")],
        strategy="rest_for_one",  # without the registry, no caller finds the rooms: they go with it
    )
    for name, who, text in (
        ("blue", "guest", "hello"),
        ("blue", "cook", "good morning"),
        ("red", "waiter", "is anybody here?"),
        ("blue", "cook", "crash me"),
        ("blue", "guest", "where is everybody?"),
    ):
        try:
            await (await enter(name)).call(Room.say, who, text)
        except ProcessExited:
            print(f"{name} has crashed of {text!r}, and will be opened anew")
    red, blue = await room("red").call(Room.count), await room("blue").call(Room.count)
    print(f"red: {red} line, blue: {blue} line")


if __name__ == "__main__":
    run(main, log=False)
