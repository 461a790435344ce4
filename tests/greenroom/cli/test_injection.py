"""Text of a peer, a repository or a configuration is never interpreted: by a shell, a browser's command line, or another program's file."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from greenroom import Client, Command
from greenroom.auth import SignInError, open_browser
from greenroom.cli import terminal_prompts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

WORDS: Final = [
    "$(touch owned)",
    "`touch owned`",
    "; touch owned;",
    "| touch owned",
    "&& touch owned",
    "> owned",
    "a\ntouch owned\n",
    "a\r\ntouch owned",
    "--config=owned",
    "-oProxyCommand=touch owned",
    "'; touch owned; '",
    '"; touch owned; "',
    "%s %d {0} {x}",
    "~/x *",
    "\\",
]
URLS: Final = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<script>",
    "file:///etc/passwd",
    "vbscript:x",
    "--help",
    "-new-window",
    "https://a.example/\r\nHost: b",
    "https://a.example/\n--flag",
    "https://a.example/`touch owned`",
    "https://a.example/'; touch owned; '",
    'https://a.example/" & do shell script "touch owned',
    "https://a.example/ --flag",
    "https://a.example/<x>",
    "https://a.example\\@b.example/",
    "https://a.example/\u202egpj",
    " https://a.example/",
]


class Question:
    """A request of a server to open a page."""

    def __init__(self, url: str) -> None:
        self.url, self.server, self.message = url, "sky", "Look:"
        self.call_text, self.warnings = "", ()
        self.answers: list[str] = []

    def accept(self) -> None:
        self.answers.append("accept")

    def decline(self) -> None:
        self.answers.append("decline")


@pytest.mark.parametrize("url", URLS)
async def test_no_browser_gets_what_is_no_plain_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)

    async def confirmed(*_: object, **__: object) -> bool:
        return True

    question: Any = Question(url)
    prompt: Any = SimpleNamespace(confirmed=confirmed)
    await terminal_prompts._open_page(question, prompt)
    assert question.answers == ["decline"]
    with pytest.raises(SignInError):
        await open_browser(url)
    assert opened == []


async def test_a_plain_address_is_opened_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def note(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", note)

    async def confirmed(*_: object, **__: object) -> bool:
        return True

    url = "https://a.example/b%20c?d=e&f=$(x);#part"
    question: Any = Question(url)
    prompt: Any = SimpleNamespace(confirmed=confirmed)
    await terminal_prompts._open_page(question, prompt)
    assert (question.answers, opened) == (["accept"], [url])


TELLING: Final = """
import json, sys
from greenroom import Server
server = Server("telling")
words = sys.argv[1:]
@server.tool
def told() -> list[str]:
    return words
server.run()
"""


@pytest.mark.greenroom(clock="real")
async def test_a_server_is_started_with_its_words_as_they_are_and_no_shell(folder: Path) -> None:
    (folder / "telling.py").write_text(TELLING)
    async with asyncio.timeout(30), Client(Command(sys.executable, "telling.py", *WORDS)) as client:
        assert await client.call("told") == WORDS
    assert not (folder / "owned").exists()


def test_install_writes_quoted_data_only(typed: Type, folder: Path) -> None:
    words = [word for word in WORDS if "\n" not in word and "\r" not in word]
    assert typed("install", "--to", "cursor", "--project", "--yes", "--name", "sky", "--", "sh", *words).code == 0
    entry = json.loads((folder / ".cursor" / "mcp.json").read_text())["mcpServers"]["sky"]
    assert entry["args"] == words
    assert not (folder / "owned").exists()


@pytest.mark.parametrize("name", ["$(x)", "a;b", "-x", "../x y", "a`b`", "x\n", "a'b", "{title}", "class", "\u202ea"])
def test_a_new_server_is_called_what_is_a_name_and_nothing_else(typed: Type, folder: Path, name: str) -> None:
    before = sorted(each.name for each in folder.parent.rglob("*"))
    assert typed("new", "--", name).code != 0
    assert sorted(each.name for each in folder.parent.rglob("*")) == before
