"""The Inspector's command line as a player: a process for each step, and what it prints is compared.

It makes a connection for each call, and declares neither sampling nor elicitation: what has not been declared is not asked.
`inspector.py MODE NODE INSPECTOR URL`, or a command in place of the address.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from play import EXTRAS, Wrong, same, words

SECONDS = 30


class Inspector:
    """One call of the command line after the other, with a home of its own."""

    def __init__(self, mode: str, node: str, program: str, where: list[str], home: Path) -> None:
        """`mode` is the era it asks for."""
        self.command = [node, program, *where]
        self.mode = mode
        self.stateless = mode != "legacy"
        self.environment = {**os.environ, "HOME": str(home)}

    def __call__(self, method: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Run a method. Returns the JSON from stdout, or from stderr for exit codes that mean an error. Fails for an exit code other than `code`."""
        options = ["--format", "json", "--protocol-era", self.mode, "--method", method, *arguments]
        done = subprocess.run(
            [*self.command, *options],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != code:
            raise Wrong(f"{method} {' '.join(arguments)} exited with {done.returncode}: {done.stdout}{done.stderr}")
        said = done.stdout if code in {0, 5} else done.stderr.strip().splitlines()[-1]
        result: dict[str, Any] = json.loads(said)
        return result.get("result", result)


def initialize(inspect: Inspector) -> None:
    hello = inspect("initialize")
    revision = "2026-07-28" if inspect.stateless else "2025-11-25"
    same("name", (hello["serverInfo"]["name"], hello["protocolVersion"]), ("playhouse", revision))
    same("instructions", hello["instructions"], "Break a leg.")


def listing(inspect: Inspector) -> None:
    names = [tool["name"] for tool in inspect("tools/list", "--strict")["tools"]]
    same("extras, of all pages", len([name for name in names if name.startswith("extra_")]), EXTRAS)
    same("each tool once", len(names), len(set(names)))


def calling(inspect: Inspector) -> None:
    five = inspect("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    same("2 + 3", (words(five), five["structuredContent"]), ("5", 5 if inspect.stateless else {"result": 5}))


def structure(inspect: Inspector) -> None:
    result = inspect("tools/call", "--tool-name", "forecast", "--tool-args-json", '{"city": "Oslo"}')
    same("city", (result["structuredContent"]["city"], len(result["structuredContent"]["days"])), ("Oslo", 2))


def errors(inspect: Inspector) -> None:
    failed = inspect("tools/call", "--tool-name", "fail", code=5)
    same("a tool that failed", (failed["isError"], words(failed)), (True, "The prop broke."))
    refusal = inspect("tools/call", "--tool-name", "refuse", code=1)
    same("a tool that refused", refusal["error"]["message"], "Not tonight.")


def progress(inspect: Inspector) -> None:
    same("the end", words(inspect("tools/call", "--tool-name", "count", "--tool-arg", "to=3")), "counted to 3")


def logging(inspect: Inspector) -> None:
    if inspect.stateless:
        refusal = inspect("logging/setLevel", "--log-level", "debug", code=1)["error"]["message"]
        same(f"no level for a session in {refusal!r}", "2026-07-28" in refusal, True)
        same("a call without a level", words(inspect("tools/call", "--tool-name", "narrate")), "told")
    else:
        same("level", inspect("logging/setLevel", "--log-level", "debug"), {})


def mirrored(inspect: Inspector) -> None:
    said = inspect("tools/call", "--tool-name", "seat", "--tool-arg", "section=Größe", "row=4")
    same("a seat", words(said), "Größe 4")


def undeclared(inspect: Inspector) -> None:
    for tool, arguments, feature in (
        ("ask_user", (), "elicitation"),
        ("ask_model", ("--tool-arg", "question=who"), "sampling"),
    ):
        refusal = inspect("tools/call", "--tool-name", tool, *arguments, code=1)["error"]["message"]
        same(f"{feature} is named in {refusal!r}", feature in refusal, True)


def roots(inspect: Inspector) -> None:
    same("it has none", words(inspect("tools/call", "--tool-name", "where")), "")


def load(inspect: Inspector) -> None:
    plan = ("--load", "--load-concurrency", "10", "--load-requests", "200")
    found = inspect("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3", *plan)
    same("how the calls went", (found["ok"], found["errors"], found["toolErrors"]), (200, 0, 0))


def resources(inspect: Inspector) -> None:
    same("resources", len(inspect("resources/list")["resources"]), 3)
    (template,) = inspect("resources/templates/list")["resourceTemplates"]
    same("template", template["uriTemplate"], "play://scene/{number}")
    (scene,) = inspect("resources/read", "--uri", "play://scene/4")["contents"]
    same("scene", scene["text"], "Scene 4")


def prompts(inspect: Inspector) -> None:
    same("prompts", [prompt["name"] for prompt in inspect("prompts/list")["prompts"]], ["greet", "invite"])
    said = inspect("prompts/get", "--prompt-name", "greet", "--prompt-args", "who=Ada", "mood=calm")
    same("message", said["messages"][0]["content"]["text"], "Greet Ada, calm.")


STEPS = (
    initialize,
    listing,
    calling,
    structure,
    errors,
    progress,
    logging,
    undeclared,
    roots,
    resources,
    prompts,
    mirrored,
    load,
)


def main() -> int:
    """Every step until one is wrong."""
    mode, node, program, *where = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        inspect = Inspector(mode, node, program, where, Path(home))
        for step in STEPS:
            try:
                step(inspect)
            except Exception as error:  # noqa: BLE001 - whatever it is, the step is wrong
                print(f"WRONG {step.__name__}: {error or type(error).__name__}", flush=True)
                return 1
            print(f"ok {step.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
