"""The table of commands, with their arguments and options. The code of each is loaded when it is used: `greenroom --help` costs no more than reading this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import click_app
from .click_app import CliCommand, CommandArgument, CommandGroup, CommandOption
from .serve_options import SERVE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET: Final = CommandArgument(
    "target",
    "where the server is: a URL, a name of your configuration, or module:server; or nothing, and a command after --",
    is_required=False,
    completes="target",
)
SIGNED: Final = CommandArgument("target", "a URL, or a name of your configuration", completes="name")
FILES: Final = CommandArgument(
    "files", "files to read instead of yours and the project's", is_required=False, many=True, path=True
)
JSON: Final = CommandOption("json", "answer as JSON, for programs", "flag")
YES: Final = CommandOption("yes", "do not ask: the answer is yes", "flag", short="y")
TIMEOUT: Final = CommandOption("timeout", "give up after so many seconds", "seconds", metavar="SECONDS")
HEADER: Final = CommandOption(
    "header", "a header for a URL, as Name: value; again for more", short="H", metavar="HEADER", multiple=True
)
ENV: Final = CommandOption(
    "env", "a variable for a command, as NAME=value; again for more", short="e", metavar="NAME=VALUE", multiple=True
)
CONFIG: Final = CommandOption(
    "config", "the configuration to look names up in, instead of yours and the project's", "path", metavar="FILE"
)
VERBOSE: Final = CommandOption(
    "verbose", "say what happens: logs, and the server's own standard error", "flag", short="v"
)
ACCOUNT: Final = CommandOption("account", "whose, for those who are several", metavar="NAME")
CONNECTING: Final = (JSON, TIMEOUT, HEADER, ENV, CONFIG, VERBOSE)

COMMANDS: Final[Sequence[CliCommand | CommandGroup]] = (
    CliCommand(
        "serve",
        "Serve a server: on stdin and stdout, or over HTTP",
        "greenroom.cli.serve_command:serve",
        CommandArgument(
            "server",
            "module:server, or file.py:server; the part behind the colon may be left out when there is only one",
            is_required=False,
            completes="file",
        ),
        *SERVE_OPTIONS,
        more="greenroom serve weather:server\ngreenroom serve weather.py --http 127.0.0.1:8000 --workers 2\n"
        "greenroom serve --config greenroom.toml --http 127.0.0.1:8000",
    ),
    CliCommand(
        "list",
        "What a server has: tools, resources, templates, prompts",
        "greenroom.cli.inspect_command:show",
        TARGET,
        CommandOption("only", "only these", choices=("tools", "resources", "templates", "prompts"), multiple=True),
        *CONNECTING,
        more="greenroom list http://127.0.0.1:8000/mcp\ngreenroom list -- uvx mcp-server-git",
        takes_command=True,
    ),
    CliCommand(
        "call",
        "Call a tool",
        "greenroom.cli.call_command:call",
        CommandArgument("words", "the target, the tool, and its arguments as key=value", many=True, completes="target"),
        CommandOption(
            "args-json", "all arguments as one JSON object; @file reads it from a file, - from stdin", metavar="JSON"
        ),
        CommandOption(
            "save", "write images, sounds and files of the answer into this folder", "path", metavar="FOLDER"
        ),
        YES,
        *CONNECTING,
        more="greenroom call weather:server forecast city=Oslo days:=3\ngreenroom call git_log max_count:=3 -- uvx mcp-server-git\n"
        "A value behind = is text unless the tool's schema says otherwise; behind := it is JSON.",
        takes_command=True,
    ),
    CliCommand(
        "read",
        "Read a resource",
        "greenroom.cli.call_command:read",
        CommandArgument(
            "words",
            "the target, and a URI, or a resource's name with the words of its template",
            many=True,
            completes="target",
        ),
        CommandOption("save", "write what is in it into this file, - for stdout", "path", metavar="FILE"),
        *CONNECTING,
        more="greenroom read weather:server weather://oslo",
        takes_command=True,
    ),
    CliCommand(
        "prompt",
        "Get a prompt",
        "greenroom.cli.call_command:prompt",
        CommandArgument(
            "words", "the target, the prompt, and its arguments as key=value", many=True, completes="target"
        ),
        *CONNECTING,
        takes_command=True,
    ),
    CliCommand(
        "inspect",
        "All that a server says of itself, and what is odd about it",
        "greenroom.cli.inspect_command:inspect",
        TARGET,
        CommandOption("save", "write all of it into this file, to compare with later", "path", metavar="FILE"),
        CommandOption("against", "say what is different from what was saved there", "path", metavar="FILE"),
        CommandOption("strict", "exit with 1 when something is odd", "flag"),
        *CONNECTING,
        takes_command=True,
    ),
    CliCommand(
        "install",
        "Write a server into the configuration of a program that uses servers",
        "greenroom.cli.install_command:install",
        TARGET,
        CommandOption(
            "to",
            "whose configuration",
            choices=("claude", "claude-code", "codex", "cursor", "gemini", "json", "vscode", "windsurf", "zed"),
            required=True,
        ),
        CommandOption("name", "what it is called there", metavar="NAME"),
        CommandOption("project", "into the configuration of this folder, instead of yours", "flag"),
        CommandOption("remove", "take it out again", "flag"),
        CommandOption("dry-run", "show what would be written, and write nothing", "flag"),
        *(HEADER, ENV, CONFIG, YES, JSON),
        more="greenroom install weather.py --to claude\ngreenroom install --to cursor --name git -- uvx mcp-server-git\n"
        "With --config greenroom.toml, all servers of that file are written as one entry, a gateway.",
        takes_command=True,
    ),
    CliCommand(
        "new",
        "Begin a server: a folder with its code, a test, a README and a server.json",
        "greenroom.cli.new_command:new",
        CommandArgument("name", "what it is called, or the folder it is to be in"),
        CommandOption("git", "make it a git repository, too", "flag"),
        JSON,
        more="greenroom new weather",
    ),
    CliCommand(
        "tree",
        "The processes of a server or host that runs, and what each is at; how each of a host's servers is",
        "greenroom.cli.tree_command:tree",
        CommandArgument(
            "which", "its name, its process's number or its socket, where more than one runs", is_required=False
        ),
        CommandOption("watch", "over and over, each second", "flag", short="w"),
        CommandOption("every", "each process, also where many are alike", "flag"),
        JSON,
        more="greenroom serve weather.py --http 8000 --inspect\ngreenroom tree weather --watch",
    ),
    CommandGroup(
        "config",
        "Look at your configuration",
        CliCommand(
            "check",
            "Say all that is wrong with it, with file and line",
            "greenroom.cli.config_command:check",
            *(FILES, CONFIG, JSON),
        ),
        CliCommand(
            "show", "Show which servers it comes to", "greenroom.cli.config_command:show", *(FILES, CONFIG, JSON)
        ),
        CliCommand(
            "effective",
            "Show whether a tool may be called, and the rule that decides",
            "greenroom.cli.config_command:effective",
            CommandArgument(
                "tools",
                "server:tool, a whole server, or Elicit(server); all there are without any",
                is_required=False,
                many=True,
                completes="name",
            ),
            *(CONFIG, TIMEOUT, JSON),
            more="greenroom config effective git:push",
        ),
        CliCommand(
            "schema", "The JSON Schema of greenroom.toml, for editors", "greenroom.cli.config_command:schema", JSON
        ),
    ),
    CliCommand(
        "login",
        "Sign in at a server, and keep the login",
        "greenroom.cli.login_command:login",
        SIGNED,
        CommandOption(
            "mcp-oauth-port",
            "where the browser comes back to on this machine; any free port without",
            "whole",
            metavar="PORT",
            variable="GREENROOM_MCP_OAUTH_PORT",
            most=65535,
        ),
        CommandOption("device", "with a code to type on another machine, where the server has such", "flag"),
        CommandOption("account", "as whom, for those who are several", metavar="NAME"),
        CommandOption("scope", "add this scope to the login; again for more", metavar="SCOPE", multiple=True),
        *(CONFIG, JSON),
        more="greenroom login calendar\ngreenroom login https://mcp.example.org/mcp --device",
    ),
    CliCommand(
        "logout",
        "Forget the login at a server, and have its tokens taken back",
        "greenroom.cli.login_command:logout",
        *(SIGNED, ACCOUNT, CONFIG, JSON),
    ),
    CliCommand(
        "whoami",
        "Where you are signed in, as whom, and for how long",
        "greenroom.cli.login_command:whoami",
        CommandArgument(
            "target",
            "a URL, or a name of your configuration; without it, all logins",
            is_required=False,
            completes="name",
        ),
        *(ACCOUNT, CONFIG, JSON),
    ),
    CliCommand(
        "check",
        "Have the official conformance suite judge a server (needs Node 22)",
        "greenroom.cli.check_command:check",
        CommandArgument(
            "target",
            "a URL, a name of your configuration that has one, or module:server or file.py, which is served for it",
            completes="target",
        ),
        CommandOption(
            "scenario",
            "run this one; again for more, instead of those that fit any server",
            metavar="NAME",
            multiple=True,
        ),
        CommandOption("suite", "a suite that is there already, instead of fetching it", metavar="FILE"),
        *(CONFIG, JSON),
        more="greenroom check weather.py",
        no_command_because="the suite speaks HTTP only, and what stood between would be judged instead: serve it over HTTP, and check the URL",
    ),
)


def run(words: Sequence[str]) -> int:
    """Do what was typed, and say how it went."""
    return click_app.run(COMMANDS, words)
