"""The Inspector's other command line as a player: one connection, kept by a process of its own, and a command for each step.

It is asked for elicitation, subscriptions, log messages and tasks, which the one for single calls cannot have.
`connection.py MODE NODE PROGRAM URL`, or a command in place of the address.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from play import DIAL, Wrong, same, words

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 30


class Connection:
    """Commands on one connection; the process that keeps it lives in a home of its own, and ends with `close`."""

    def __init__(self, node: str, program: str, home: str) -> None:
        """Nothing runs yet."""
        self.command = [node, program, "--format", "json", "--connection", "play"]
        self.stateless = False
        self.environment = {**os.environ, "HOME": home, "MCP_INSPECTOR_SECRET_STORE": "memory"}

    def __call__(self, *arguments: str) -> dict[str, Any]:
        """Run a command. Returns the JSON that it printed."""
        done = subprocess.run(
            [*self.command, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise Wrong(f"{' '.join(arguments)} exited with {done.returncode}: {done.stdout}{done.stderr}")
        said: dict[str, Any] = json.loads(done.stdout or "{}")
        return said

    def refused(self, why: str, *arguments: str) -> None:
        """A command that has to fail, and say why."""
        try:
            said = self(*arguments)
        except Wrong as error:
            if why not in str(error):
                raise
        else:
            raise Wrong(f"{' '.join(arguments)}: got {said}, not an error")

    def open(self, mode: str, where: list[str]) -> None:
        """Connect, in an era."""
        self.stateless = mode != "legacy"
        target = where if where[0].startswith("http") else ["--transport", "stdio", "--", *where]
        self("connect", "--era", mode, "--elicit", "form", *target)

    def follow(self, *arguments: str) -> Following:
        """A command that goes on printing."""
        return Following(
            subprocess.Popen(
                [*self.command, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def close(self) -> None:
        """End the connection, and the process that kept it."""
        self("disconnect", "play")
        self("daemon", "stop")


class Following:
    """The output of such a command, value by value, until `end`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """It runs already."""
        self.process = process
        self._values: SimpleQueue[dict[str, Any]] = SimpleQueue()
        Thread(target=lambda: [self._values.put(value) for value in self._read()], daemon=True).start()

    def _read(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        read = ""
        for line in self.process.stdout:
            read += line
            try:
                value: dict[str, Any] = json.loads(read)
            except ValueError:
                continue
            read = ""
            yield value

    def next(self, seconds: float = SECONDS) -> dict[str, Any]:
        """The next value. Raises `Empty` when none came in time."""
        return self._values.get(timeout=seconds)

    def end(self) -> None:
        """Enough."""
        self.process.terminate()
        self.process.wait()


def calling(connection: Connection) -> None:
    five = connection("tools/call", "add", "a:=2", "b:=3")
    same("2 + 3", (words(five), five["structuredContent"]), ("5", 5 if connection.stateless else {"result": 5}))


def elicitation(connection: Connection) -> None:
    asked = connection("tools/call", "ask_user")["elicitationPending"]
    same("the question", (asked["message"], asked["requestedSchema"]["required"]), ("Who comes?", ["name"]))
    answered = connection("elicitation/respond", asked["elicitationId"], "name:=Ada", "seats:=3")
    same("accepted", words(answered), "Ada takes 3")
    asked = connection("tools/call", "ask_user")["elicitationPending"]
    same("declined", words(connection("elicitation/respond", asked["elicitationId"], "--decline")), "decline")


def roots(connection: Connection) -> None:
    connection("roots/set", "--roots-json", '[{"uri": "file:///stage", "name": "stage"}]')
    same("roots", words(connection("tools/call", "where")), "file:///stage (stage)")


def subscription(connection: Connection) -> None:
    updates = connection.follow("resources/subscribe", DIAL)
    try:
        same("subscribed", updates.next(), {"type": "subscribed", "uri": DIAL})
        connection("tools/call", "turn", "value:=5")
        same("updated", updates.next(), {"type": "resources/updated", "uri": DIAL})
    finally:
        updates.end()
    same("the dial", connection("resources/read", DIAL)["contents"][0]["text"], "5")


def logging(connection: Connection) -> None:
    messages = connection.follow("logging/tail")
    # where there is no session, each call says its level
    level = ("--metadata", "io.modelcontextprotocol/logLevel=error") if connection.stateless else ()
    try:
        if not connection.stateless:
            connection("logging/setLevel", "error")
        # it does not say when it begins to listen
        for _ in range(5):
            connection("tools/call", "narrate", *level)
            with suppress(Empty):
                heard = messages.next(2)
                break
        else:
            raise Wrong("nothing was heard")
        same("the one that is loud", heard["message"]["params"]["data"], {"said": "loud"})
    finally:
        messages.end()


def extension(connection: Connection) -> None:
    """Tasks as an extension: the server decides what becomes one, and this client follows it to its end."""
    same("followed to its end", words(connection("tools/call", "rehearse", "lines:=3")), "rehearsed 3")
    asked = connection("tools/call", "cast_part")["elicitationPending"]
    same("the question of a task", (asked["message"], asked["origin"]), ("Who plays?", "task-input-required"))
    answered = connection("elicitation/respond", asked["elicitationId"], "name:=Ada")
    same("answered", words(answered), "Ada plays")
    connection.refused("What was it?", "tools/call", "forget")
    for method in ("tasks/get", "tasks/cancel"):
        connection.refused("Task not found", method, "task_missing")


def tasks(connection: Connection) -> None:
    done = connection("tools/call", "rehearse", "lines:=3", "--task")
    same("followed to its end", words(done), "rehearsed 3")
    begun = connection("tools/call", "rehearse", "lines:=0")["task"]
    same("not asked for, and begun", begun["status"], "working")
    id = begun["taskId"]
    same("as it is", connection("tasks/get", id)["task"]["raw"], begun)
    same("cancelled", connection("tasks/cancel", id)["cancelled"], True)
    connection.refused("ended already, and is cancelled", "tasks/cancel", id)
    connection.refused("cancelled", "tasks/result", id)
    connection.refused("Task not found", "tasks/get", "task_missing")
    listed = connection("tasks/list")["tasks"]
    same("all of them", [each["status"] for each in listed], ["completed", "cancelled"])
    same("its result", words(connection("tasks/result", listed[0]["taskId"])), "rehearsed 3")
    connection.refused("What was it?", "tools/call", "forget", "--task")
    asked = connection("tools/call", "cast_part")["elicitationPending"]
    same("the question", asked["message"], "Who plays?")
    answered = connection("elicitation/respond", asked["elicitationId"], "name:=Ada")
    same("answered", words(answered), "Ada plays")


STEPS = (calling, elicitation, roots, subscription, logging)


def main() -> int:
    """Every step until one is wrong."""
    mode, node, program, *where = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        connection = Connection(node, program, home)
        connection.open(mode, where)
        try:
            for step in (*STEPS, extension if connection.stateless else tasks):
                try:
                    step(connection)
                except Exception as error:  # noqa: BLE001 - whatever it is, the step is wrong
                    print(f"WRONG {step.__name__}: {error or type(error).__name__}", flush=True)
                    return 1
                print(f"ok {step.__name__}", flush=True)
        finally:
            connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
