"""A Thespian program as a client: an actor calls greenroom's servers, and is notified when a resource changes.

Here both run in one program: the node in a thread, and Thespian's simple system. They share only a key and an address; with
`ActorSystem("multiprocTCPBase")` and the node in another program, the actors stay unchanged.

Run it: `python examples/thespian_guest.py`. It prints

    connected: True
    the board has: post, wipe
    secretary: pinned 'lunch at one'
    secretary: the board has changed
    secretary: the board says 'lunch at one'
    secretary: wipe has failed: the sponge is missing
    without the node: away
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownArgumentType=false, reportIncompatibleMethodOverride=false
# Thespian ships no types.

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from thespian.actors import ActorSystem, ActorTypeDispatcher

from greenroom import Host, Server, ToolError
from greenroom.supervision import BackgroundNode
from greenroom.thespian import (
    CallTool,
    Connect,
    Connected,
    Failed,
    Guest,
    ListTools,
    ReadResource,
    ResourceContents,
    Subscribe,
    Subscribed,
    ToolResult,
    Updated,
    ask,
    new_key_file,
)

# --- greenroom's side: a host that accepts guests

board = Server("board")
_notes = ["nothing yet"]


@board.tool
def post(note: str) -> str:
    """Pin a note to the board."""
    _notes[0] = note
    board.notify_resource_updated("board://notes")
    return f"pinned {note!r}"


@board.tool
def wipe() -> None:
    """Take all notes down."""
    raise ToolError("the sponge is missing")


@board.resource("board://notes")
def notes() -> str:
    """The notes on the board."""
    return _notes[0]


# --- Thespian's side: an actor that gets the guest's address


class Secretary(ActorTypeDispatcher):  # type: ignore[misc]
    """Takes the next step after each answer. An update belongs to no request, and may arrive before the answer to the call that caused it."""

    def receiveMsg_ActorAddress(self, guest: Any, sender: Any) -> None:  # noqa: N802 - Thespian's
        self.guest, self.employer = guest, sender
        self.pinned = self.changed = False
        self.send(guest, Subscribe("board", "board://notes"))

    def receiveMsg_Subscribed(self, answer: Subscribed, sender: Any) -> None:  # noqa: ARG002, N802
        self.send(self.guest, CallTool("board", "post", {"note": "lunch at one"}))

    def receiveMsg_ToolResult(self, answer: ToolResult, sender: Any) -> None:  # noqa: ARG002, N802
        if answer.is_error:
            print("secretary: wipe has failed:", answer.text)
            self.send(self.employer, "done")
            return
        print("secretary:", answer.text)
        self.pinned = True
        self.read_the_board()

    def receiveMsg_Updated(self, update: Updated, sender: Any) -> None:  # noqa: ARG002, N802
        self.changed = True
        self.read_the_board()

    def read_the_board(self) -> None:
        if self.pinned and self.changed:
            print("secretary: the board has changed")
            self.send(self.guest, ReadResource("board", "board://notes"))

    def receiveMsg_ResourceContents(self, answer: ResourceContents, sender: Any) -> None:  # noqa: ARG002, N802
        print(f"secretary: the board says {answer.text!r}")
        self.send(self.guest, CallTool("board", "wipe"))

    def receiveMsg_Failed(self, answer: Failed, sender: Any) -> None:  # noqa: ARG002, N802
        print("secretary:", answer.reason, answer.text)


def main() -> None:
    """Connect both sides, and stop them."""
    system = ActorSystem("simpleSystemBase", logDefs=False)
    guest = system.createActor(Guest)
    with tempfile.TemporaryDirectory() as folder:
        key = new_key_file(Path(folder) / "guests.key")
        with BackgroundNode() as node:
            host = Host({"board": board})
            reception = host.admit_guests(key)
            node.run(host.open)
            hello = ask(system, guest, Connect(reception.address, key_file=str(key)))
            print("connected:", isinstance(hello, Connected))
            tools: Any = ask(system, guest, ListTools("board"))
            print("the board has:", ", ".join(tool["name"] for tool in tools.items["board"]))
            system.ask(system.createActor(Secretary), guest, 30.0)
            node.run(host.close)
        gone: Any = ask(system, guest, CallTool("board", "post", {"note": "hello?"}))
        print("without the node:", gone.reason)
    system.shutdown()


if __name__ == "__main__":
    main()
