"""The table of commands, with their arguments and options. The code of each is loaded when it is used: `greenroom --help` costs no more than reading this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import door
from .door import Argument, Command, Group, Option
from .serve_options import SERVE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET: Final = Argument(
    "target",
    "where the server is: a URL, a name of your configuration, or module:server; or nothing, and a command after --",
    needed=False,
    completes="target",
)
SIGNED: Final = Argument("target", "a URL, or a name of your configuration", completes="name")
FILES: Final = Argument("files", "files to read instead of yours and the project's", needed=False, many=True, path=True)
JSON: Final = Option("json", "answer as JSON, for programs", "flag")
YES: Final = Option("yes", "do not ask: the answer is yes", "flag", short="y")
TIMEOUT: Final = Option("timeout", "give up after so many seconds", "seconds", metavar="SECONDS")
HEADER: Final = Option(
    "header", "a header for a URL, as Name: value; again for more", short="H", metavar="HEADER", multiple=True
)
ENV: Final = Option(
    "env", "a variable for a command, as NAME=value; again for more", short="e", metavar="NAME=VALUE", multiple=True
)
CONFIG: Final = Option(
    "config", "the configuration to look names up in, instead of yours and the project's", "path", metavar="FILE"
)
VERBOSE: Final = Option("verbose", "say what happens: logs, and the server's own standard error", "flag", short="v")
ACCOUNT: Final = Option("account", "whose, for those who are several", metavar="NAME")
CONNECTING: Final = (JSON, TIMEOUT, HEADER, ENV, CONFIG, VERBOSE)

COMMANDS: Final[Sequence[Command | Group]] = (
    Command(
        "serve",
        "Serve a server: on stdin and stdout, or over HTTP",
        "greenroom.cli.serving:serve",
        Argument(
            "server",
            "module:server, or file.py:server; the part behind the colon may be left out when there is only one",
            needed=False,
            completes="file",
        ),
        *SERVE_OPTIONS,
        more="greenroom serve weather:server\ngreenroom serve weather.py --http 127.0.0.1:8000 --workers 2\n"
        "greenroom serve --config greenroom.toml --http 127.0.0.1:8000",
    ),
    Command(
        "list",
        "What a server has: tools, resources, templates, prompts",
        "greenroom.cli.inspecting:show",
        TARGET,
        Option("only", "only these", choices=("tools", "resources", "templates", "prompts"), multiple=True),
        *CONNECTING,
        more="greenroom list http://127.0.0.1:8000/mcp\ngreenroom list -- uvx mcp-server-git",
        behind=True,
    ),
    Command(
        "call",
        "Call a tool",
        "greenroom.cli.calling:call",
        Argument("words", "the target, the tool, and its arguments as key=value", many=True, completes="target"),
        Option(
            "args-json", "all arguments as one JSON object; @file reads it from a file, - from stdin", metavar="JSON"
        ),
        Option("save", "write images, sounds and files of the answer into this folder", "path", metavar="FOLDER"),
        YES,
        *CONNECTING,
        more="greenroom call weather:server forecast city=Oslo days:=3\ngreenroom call git_log max_count:=3 -- uvx mcp-server-git\n"
        "A value behind = is text unless the tool's schema says otherwise; behind := it is JSON.",
        behind=True,
    ),
    Command(
        "read",
        "Read a resource",
        "greenroom.cli.calling:read",
        Argument(
            "words",
            "the target, and a URI, or a resource's name with the words of its template",
            many=True,
            completes="target",
        ),
        Option("save", "write what is in it into this file, - for stdout", "path", metavar="FILE"),
        *CONNECTING,
        more="greenroom read weather:server weather://oslo",
        behind=True,
    ),
    Command(
        "prompt",
        "Get a prompt",
        "greenroom.cli.calling:prompt",
        Argument("words", "the target, the prompt, and its arguments as key=value", many=True, completes="target"),
        *CONNECTING,
        behind=True,
    ),
    Command(
        "inspect",
        "All that a server says of itself, and what is odd about it",
        "greenroom.cli.inspecting:inspect",
        TARGET,
        Option("save", "write all of it into this file, to compare with later", "path", metavar="FILE"),
        Option("against", "say what is different from what was saved there", "path", metavar="FILE"),
        Option("strict", "exit with 1 when something is odd", "flag"),
        *CONNECTING,
        behind=True,
    ),
    Command(
        "install",
        "Write a server into the configuration of a program that uses servers",
        "greenroom.cli.installing:install",
        TARGET,
        Option(
            "to",
            "whose configuration",
            choices=("claude", "claude-code", "codex", "cursor", "gemini", "json", "vscode", "windsurf", "zed"),
            required=True,
        ),
        Option("name", "what it is called there", metavar="NAME"),
        Option("project", "into the configuration of this folder, instead of yours", "flag"),
        Option("remove", "take it out again", "flag"),
        Option("dry-run", "show what would be written, and write nothing", "flag"),
        *(HEADER, ENV, CONFIG, YES, JSON),
        more="greenroom install weather.py --to claude\ngreenroom install --to cursor --name git -- uvx mcp-server-git\n"
        "With --config greenroom.toml, all servers of that file are written as one entry, a gateway.",
        behind=True,
    ),
    Command(
        "new",
        "Begin a server: a folder with its code, a test, a README and a server.json",
        "greenroom.cli.starting:new",
        Argument("name", "what it is called, or the folder it is to be in"),
        Option("git", "make it a git repository, too", "flag"),
        JSON,
        more="greenroom new weather",
    ),
    Command(
        "tree",
        "The processes of a server or host that runs, and what each is at; how each of a host's servers is",
        "greenroom.cli.watching:tree",
        Argument("which", "its name, its process's number or its socket, where more than one runs", needed=False),
        Option("watch", "over and over, each second", "flag", short="w"),
        Option("every", "each process, also where many are alike", "flag"),
        JSON,
        more="greenroom serve weather.py --http 8000 --inspect\ngreenroom tree weather --watch",
    ),
    Group(
        "config",
        "Look at your configuration",
        Command(
            "check",
            "Say all that is wrong with it, with file and line",
            "greenroom.cli.configuring:check",
            *(FILES, CONFIG, JSON),
        ),
        Command("show", "Show which servers it comes to", "greenroom.cli.configuring:show", *(FILES, CONFIG, JSON)),
        Command(
            "effective",
            "Show whether a tool may be called, and the rule that decides",
            "greenroom.cli.configuring:effective",
            Argument(
                "tools",
                "server:tool, a whole server, or Elicit(server); all there are without any",
                needed=False,
                many=True,
                completes="name",
            ),
            *(CONFIG, TIMEOUT, JSON),
            more="greenroom config effective git:push",
        ),
        Command("schema", "The JSON Schema of greenroom.toml, for editors", "greenroom.cli.configuring:schema", JSON),
    ),
    Command(
        "login",
        "Sign in at a server, and keep the login",
        "greenroom.cli.signing_in:login",
        SIGNED,
        Option(
            "mcp-oauth-port",
            "where the browser comes back to on this machine; any free port without",
            "whole",
            metavar="PORT",
            variable="GREENROOM_MCP_OAUTH_PORT",
            most=65535,
        ),
        Option("device", "with a code to type on another machine, where the server has such", "flag"),
        Option("account", "as whom, for those who are several", metavar="NAME"),
        Option("scope", "add this scope to the login; again for more", metavar="SCOPE", multiple=True),
        *(CONFIG, JSON),
        more="greenroom login calendar\ngreenroom login https://mcp.example.org/mcp --device",
    ),
    Command(
        "logout",
        "Forget the login at a server, and have its tokens taken back",
        "greenroom.cli.signing_in:logout",
        *(SIGNED, ACCOUNT, CONFIG, JSON),
    ),
    Command(
        "whoami",
        "Where you are signed in, as whom, and for how long",
        "greenroom.cli.signing_in:whoami",
        Argument(
            "target",
            "a URL, or a name of your configuration; without it, all logins",
            needed=False,
            completes="name",
        ),
        *(ACCOUNT, CONFIG, JSON),
    ),
    Command(
        "check",
        "Have the official conformance suite judge a server (needs Node 22)",
        "greenroom.cli.checking:check",
        Argument(
            "target",
            "a URL, a name of your configuration that has one, or module:server or file.py, which is served for it",
            completes="target",
        ),
        Option(
            "scenario",
            "run this one; again for more, instead of those that fit any server",
            metavar="NAME",
            multiple=True,
        ),
        Option("suite", "a suite that is there already, instead of fetching it", metavar="FILE"),
        *(CONFIG, JSON),
        more="greenroom check weather.py",
        not_behind="the suite speaks HTTP only, and what stood between would be judged instead: serve it over HTTP, and check the URL",
    ),
)


def run(words: Sequence[str]) -> int:
    """Do what was typed, and say how it went."""
    return door.run(COMMANDS, words)
