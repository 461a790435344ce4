"""Server configuration files: any content is read or reported, and no secret is revealed."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.fuzz_target import Target, numbers, seeded

from greenroom.config.config_reader import read
from greenroom.config.config_schema import NAME
from greenroom.config.parsed_file import InvalidJson, JsonParser, load

SECRET = "hunter2-hunter2"
ENVIRONMENT = {"TOKEN": SECRET, "EMPTY": "", "URL": f"https://anna:{SECRET}@a.example/mcp"}
TEXTS = (
    b'[server.git]\ncommand = "uvx"\nargs = ["mcp-server-git", "${TOKEN}"]\nenv = { A = "${EMPTY:-b}" }\n',
    (
        b'[server.web]\ntransport = "http"\nurl = "${URL}"\nheaders = { Authorization = "Bearer ${TOKEN}" }\noauth = "auto"\n'
        b'[server.web.oauth_config]\nscopes = ["a"]\nport = 80\n'
    ),
    (
        b'[permissions]\ndeny = ["rm_*", "git:*", "Elicit(*)"]\nallow = ["mcp__git__log"]\n[server.git]\ncommand = "x"\n'
        b'[server.git.permissions]\nask = ["*"]\nallow = ["Elicit"]\n'
    ),
    b'[server.a]\ncommand = "x"\ndisabled = true\n[server.a.limits.tools."b c"]\noutput_tokens = 200\n[server.a.restart]\nfirst = 40\n',
    b"import = ['x.json', '~/y.json', '${TOKEN}.json']\n[[server]]\n",
    b'server.a.command = "x"\nserver.b = { comand = """\ny""", timeouts = { tool = 1e3 } }\n# \xc3\xa9\n',
    b'{"mcpServers": {"git": {"command": "uvx", "args": ["a"], "env": {"A": "${TOKEN}"}, "type": "stdio"}}}',
    b'{"servers": {"a b": {"url": "https://a.example", "headers": {"X": "${input:key}"}}}, "inputs": [{"id": "key"}],}',
    b'{// words\n"mcpServers": {"a": {"command": "${env:TOKEN}", "timeout": 5000, "autoApprove": ["x"]}, "a": {}} /* more */}',
)
WORDS = (
    *(b"[server.", b"[permissions]", b"command = ", b'"${TOKEN}"', b"${", b":-", b"}", b"]]", b"deny = [", b"'*'"),
    *(
        b'"mcpServers": {',
        b'"command": ',
        b'"env": {',
        b'"\\ud800"',
        b"//",
        b"/*",
        b'"""',
        b"'''",
        b"\r\n",
        b"\xef\xbb\xbf",
    ),
    *(
        b"9" * 400,
        b"1e999",
        b"nan",
        b"1979-05-27",
        b"\x1b[2J",
        "\u202e".encode(),
        "\u0456".encode(),
        b"\0",
        b"\xff",
        b".",
    ),
)
LONGEST = 3 * 4096 + 200
NAMES = re.compile(NAME.pattern)


@cache
def folder() -> Path:
    """The file's own folder."""
    path = tempfile.mkdtemp(prefix="greenroom-fuzz-")
    atexit.register(shutil.rmtree, path)
    return Path(path)


def check(data: bytes) -> None:
    front, text = numbers(data, 1)
    path = folder() / ("any.json" if front[0] & 1 else "any.toml")
    path.write_bytes(text)
    try:
        config = read(path, environment=ENVIRONMENT, project=folder())
        assert read(path, environment=ENVIRONMENT, project=folder()) == config
        beside(path, text)
    finally:
        path.unlink()
    told = [str(one) for one in config.mistakes]
    assert config.good or told
    for one in told:
        assert one.isprintable(), one
        assert len(one) <= LONGEST
    assert SECRET not in "\n".join(told) + repr(config.servers)
    assert not config.servers.keys() & config.failed.keys()
    if path.suffix == ".toml":
        assert all(NAMES.fullmatch(name) for name, one in config.servers.items() if one.source.file == str(path))
    if config.doubtful:
        assert all(rule.verdict != "allow" for rule in config.permissions.rules)
    for rule in config.permissions.rules:
        assert rule.where.rpartition(":")[2].isdigit()


def beside(path: Path, text: bytes) -> None:
    """The reference result, and the place of each part."""
    document = load(path)
    for offset in document.offsets.values():
        assert 0 <= offset <= len(text)
    try:
        written = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        assert not document.readable
        return
    if document.toml:
        try:
            value = tomllib.loads(written)
        except (ValueError, RecursionError):
            assert not document.readable
        else:
            assert not document.readable or same(document.value, value)
        return
    try:
        value = json.loads(written, parse_constant=none)
    except (ValueError, RecursionError):
        return  # such as comments or a trailing comma
    try:
        assert same(JsonParser(written).value, value)
    except InvalidJson as error:
        assert re.search(r"more than|more digits|surrogates", error.what), error.what


def none(word: str) -> Any:
    raise ValueError(word)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; NaN equals itself."""
    return repr(one) == repr(other)


TARGET = Target("configurations", check, lambda: seeded(TEXTS, b"\0", b"\1"), WORDS)
