"""serve --admin as a real process: its link, its health while it serves and while it stops, and its options."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from .test_serve_command import SLOW, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

KEY = "a-key-of-more-than-thirty-two-letters"
BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture
def program(folder: Path) -> Iterator[Callable[..., Program]]:
    """Start a program; a program that still runs at the end of the test is killed by its pid."""
    started: list[Program] = []

    def start(*words: str) -> Program:
        started.append(Program(folder, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.kill(each.process.pid, signal.SIGKILL)
        each.process.communicate()


def get(where: str, path: str, **headers: str) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection(where, timeout=20)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    try:
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def test_the_link_is_on_stderr_and_the_program_is_ready_until_it_stops(
    program: Callable[..., Program], folder: Path
) -> None:
    (folder / "slow.py").write_text(SLOW)
    served = program("serve", "slow.py", "--http", "0", "--admin", "0", "--no-sessions", "--drain-grace", "20")
    link = re.fullmatch(r"greenroom: observe: http://([\d.:]+)(/observe/\?token=[\w-]+)", served.line())
    assert link is not None
    place = urlsplit(served.url()).netloc
    assert get(link[1], "/livez")[:2] == (200, '{"status": "ok"}\n')
    assert get(link[1], "/readyz")[0] == 200
    status, _, headers = get(link[1], link[2])
    assert (status, headers["location"]) == (303, "/observe/")
    assert get(link[1], "/observe/", cookie=headers["set-cookie"].partition(";")[0])[0] == 200

    connection = http.client.HTTPConnection(place, timeout=60)
    call: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "rest", "arguments": {}},
    }
    connection.request("POST", "/mcp", json.dumps(call), BOTH)
    while "begun" not in served.line():
        pass
    served.process.send_signal(signal.SIGTERM)
    assert "SIGTERM" in served.line()
    status, text = 200, ""
    while status == 200:  # the signal's line comes a turn of the loop before the program begins to drain
        status, text, _ = get(link[1], "/readyz")
    assert (status, text) == (503, '{"status": "unavailable", "reasons": ["the program is stopping"]}\n')
    assert get(link[1], "/livez")[0] == 200  # the call still runs, so the program drains
    connection.close()


def test_with_a_key_file_no_link_is_printed_and_the_key_is_asked_for(
    program: Callable[..., Program], folder: Path
) -> None:
    (folder / "key.txt").write_text(f"{KEY}\n")
    served = program("serve", "weather.py", "--http", "0", "--admin", "0", "--admin-key-file", "key.txt")
    line = served.line()
    assert "token" not in line
    where = urlsplit(line.rpartition(" ")[2]).netloc
    assert get(where, "/metrics")[0] == 401
    assert get(where, "/observe/", x_api_key=f"{KEY}x")[0] == 401
    assert get(where, "/observe/", x_api_key=KEY)[0] == 200
    assert get(where, "/readyz")[0] == 200
    assert served.end() == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--admin-faults",), 2, "--admin-faults is only for --admin"),
        (("--admin", "0.0.0.0:0"), 2, "--admin 0.0.0.0:0 can be reached from other machines"),
        (("--admin", "weather.py"), 2, "--admin is HOST:PORT, or a PORT of 127.0.0.1, not 'weather.py'"),
        (("--admin", "0", "--admin-key-file", "gone.txt"), 1, "gone.txt cannot be read"),
    ],
)
def test_options_that_do_not_fit_say_what_to_type(typed: Type, words: tuple[str, ...], code: int, says: str) -> None:
    seen = typed("serve", "weather.py", *words)

    assert (seen.code, seen.out) == (code, "")
    assert says in seen.err
