"""Programs, HTTP, and HTTP with sign-in each work alone and import no modules of the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = """
import sys
from greenroom.config.config_reader import read
from greenroom.config.configured_upstreams import spec_of
config = read(sys.argv[1], environment={})
assert config.good, config.mistakes
for server in config.servers.values():
    spec_of(server)
print(*sorted(name for name in sys.modules if name.startswith("greenroom.") or name in ("httpx", "keyring")))
"""
PROGRAM = "[server.a]\ncommand = 'uvx'\n"
WEB = "[server.b]\ntransport = 'http'\nurl = 'https://a.example/mcp'\n[server.c]\ntransport = 'sse'\nurl = 'https://a.example/sse'\n"
SIGNED = "[server.d]\ntransport = 'http'\nurl = 'https://d.example/mcp'\noauth = 'auto'\n"
HTTP = "greenroom.transports.client.http_route"
PROGRAMS = "greenroom.transports.client.server_command"
OAUTH = "greenroom.auth.client.oauth_login"


@pytest.mark.row("CB-20")
@pytest.mark.parametrize(
    ("text", "needed", "spared"),
    [
        (PROGRAM, {PROGRAMS}, {HTTP, OAUTH}),
        (WEB, {HTTP}, {OAUTH, PROGRAMS}),
        (PROGRAM + WEB + SIGNED, {HTTP, OAUTH, PROGRAMS}, set[str]()),
    ],
)
def test_each_stage_works_without_the_next(
    tmp_path_factory: pytest.TempPathFactory, text: str, needed: set[str], spared: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("stage")
    path = folder / "greenroom.toml"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(path)], capture_output=True, text=True, check=False, timeout=60, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert needed <= loaded
    assert not spared & loaded
