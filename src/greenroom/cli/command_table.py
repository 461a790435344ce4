"""The table of commands with their arguments and options. A command's code is imported when the command runs, so `greenroom --help` imports only this table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import click_app
from .click_app import CliCommand, CommandArgument, CommandGroup, CommandOption
from .serve_options import SERVE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET: Final = CommandArgument(
    "target",
    "the server: a URL, a name in your configuration, or module:server; or omit it and write a command after --",
    is_required=False,
    completes="target",
)
SIGNED: Final = CommandArgument("target", "a URL, or a name in your configuration", completes="name")
FILES: Final = CommandArgument(
    "files", "configuration files to read instead of yours and the project's", is_required=False, many=True, path=True
)
JSON: Final = CommandOption("json", "print JSON, for programs", "flag")
YES: Final = CommandOption("yes", "do not ask: answer yes to every question", "flag", short="y")
TIMEOUT: Final = CommandOption("timeout", "give up after this many seconds", "seconds", metavar="SECONDS")
HEADER: Final = CommandOption(
    "header", "a header for a URL, as Name: value; repeat for more", short="H", metavar="HEADER", multiple=True
)
ENV: Final = CommandOption(
    "env",
    "an environment variable for a command, as NAME=value; repeat for more",
    short="e",
    metavar="NAME=VALUE",
    multiple=True,
)
CONFIG: Final = CommandOption(
    "config", "the configuration file to use instead of yours and the project's", "path", metavar="FILE"
)
VERBOSE: Final = CommandOption("verbose", "show the log and the server's standard error", "flag", short="v")
ACCOUNT: Final = CommandOption("account", "the account, if you have several", metavar="NAME")
ERA: Final = CommandOption(
    "era",
    "legacy: the revisions with a handshake; modern: revision 2026-07-28; auto: ask the server (default: as configured, or auto)",
    choices=("auto", "legacy", "modern"),
)
PROGRAM: Final = CommandArgument(
    "which", "the name, process number or socket of the program, if several run", is_required=False
)
FOLLOWING: Final = (
    CommandOption("last", "begin with so many events of before (20)", "whole", metavar="N", most=2000),
    CommandOption("follow", "go on with what happens from now on (on by default)", "switch"),
)
CONNECTING: Final = (JSON, ERA, TIMEOUT, HEADER, ENV, CONFIG, VERBOSE)

COMMANDS: Final[Sequence[CliCommand | CommandGroup]] = (
    CliCommand(
        "serve",
        "Serve a server on stdin and stdout, or over HTTP",
        "greenroom.cli.serve_command:serve",
        CommandArgument(
            "server",
            "module:server, or file.py:server; the part after the colon is optional if there is only one server",
            is_required=False,
            completes="file",
        ),
        *SERVE_OPTIONS,
        more="greenroom serve weather:server\ngreenroom serve weather.py --http 127.0.0.1:8000 --workers 2\n"
        "greenroom serve --config greenroom.toml --http 127.0.0.1:8000",
    ),
    CliCommand(
        "list",
        "List what a server offers: tools, resources, templates, prompts",
        "greenroom.cli.inspect_command:show",
        TARGET,
        CommandOption(
            "only",
            "list only this kind; repeat for more",
            choices=("tools", "resources", "templates", "prompts"),
            multiple=True,
        ),
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
            "args-json", "all arguments as one JSON object; @file reads them from a file, - from stdin", metavar="JSON"
        ),
        CommandOption("save", "save images, sounds and files of the answer in this folder", "path", metavar="FOLDER"),
        YES,
        *CONNECTING,
        more="greenroom call weather:server forecast city=Oslo days:=3\ngreenroom call git_log max_count:=3 -- uvx mcp-server-git\n"
        "A value after = is text unless the tool's schema says otherwise; after := it is JSON.",
        takes_command=True,
    ),
    CliCommand(
        "read",
        "Read a resource",
        "greenroom.cli.call_command:read",
        CommandArgument(
            "words",
            "the target, and a URI, or a resource's name with the values of its template",
            many=True,
            completes="target",
        ),
        CommandOption("save", "save the content in this file, - for stdout", "path", metavar="FILE"),
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
        "Show everything that a server declares, and what is odd about it",
        "greenroom.cli.inspect_command:inspect",
        TARGET,
        CommandOption("save", "save the result in this file, for a later comparison", "path", metavar="FILE"),
        CommandOption("against", "show the differences from a saved result", "path", metavar="FILE"),
        CommandOption("strict", "exit with 1 if something is odd", "flag"),
        *CONNECTING,
        takes_command=True,
    ),
    CliCommand(
        "install",
        "Add a server to the configuration of a program that uses servers",
        "greenroom.cli.install_command:install",
        TARGET,
        CommandOption(
            "to",
            "the program",
            choices=("claude", "claude-code", "codex", "cursor", "gemini", "json", "vscode", "windsurf", "zed"),
            required=True,
        ),
        CommandOption("name", "the server's name in that configuration", metavar="NAME"),
        CommandOption("project", "use the configuration of the project in this folder, instead of yours", "flag"),
        CommandOption("remove", "remove the server from the configuration", "flag"),
        CommandOption("dry-run", "show the change, and write nothing", "flag"),
        *(HEADER, ENV, CONFIG, YES, JSON),
        more="greenroom install weather.py --to claude\ngreenroom install --to cursor --name git -- uvx mcp-server-git\n"
        "With --config greenroom.toml, the servers of that file are added as one entry, a gateway.",
        takes_command=True,
    ),
    CliCommand(
        "new",
        "Create a server: a folder with its code, a test, a README and a server.json",
        "greenroom.cli.new_command:new",
        CommandArgument("name", "the server's name, or the path of its folder"),
        CommandOption("git", "make the folder a git repository", "flag"),
        JSON,
        more="greenroom new weather",
    ),
    CliCommand(
        "tree",
        "Show the processes of a running server or host, and the state of a host's servers",
        "greenroom.cli.tree_command:tree",
        PROGRAM,
        CommandOption("watch", "repeat every second", "flag", short="w"),
        CommandOption("every", "list every process, even if many are alike", "flag"),
        JSON,
        more="greenroom serve weather.py --http 8000 --inspect\ngreenroom tree weather --watch",
    ),
    CliCommand(
        "top",
        "Watch a running program: its calls, tree, tools, sessions, servers, crashes",
        "greenroom.cli.program_commands:top",
        PROGRAM,
        more="greenroom serve weather.py --http 8000 --inspect\ngreenroom top weather\n"
        "It needs textual: pip install 'greenroom[textual]'.",
    ),
    CliCommand(
        "status",
        "Show a running program in a line, and each server of its hosts in another",
        "greenroom.cli.program_commands:status",
        PROGRAM,
        CommandOption(
            "link", "print a fresh link to the program's page instead, which signs one browser in, once", "flag"
        ),
        JSON,
    ),
    CliCommand(
        "logs",
        "Follow the events of a running program, line by line",
        "greenroom.cli.program_commands:logs",
        PROGRAM,
        CommandOption(
            "kind",
            "only events of this kind: calls, sessions, questions, tasks, upstreams, pools, processes, loop, acts, or an event's own name; repeat for more",
            metavar="KIND",
            multiple=True,
        ),
        CommandOption("level", "only events of this level and above", choices=("debug", "info", "warning", "error")),
        CommandOption(
            "tool",
            "only events of the tool, prompt or server of this name; repeat for more",
            metavar="NAME",
            multiple=True,
        ),
        CommandOption(
            "outcome",
            "only calls that ended so: result, deadline, refused, …; repeat for more",
            metavar="OUTCOME",
            multiple=True,
        ),
        CommandOption(
            "stderr",
            "show what this server of the program writes to its standard error, instead of events",
            metavar="SERVER",
        ),
        *FOLLOWING,
        JSON,
        more="greenroom logs weather --level warning\ngreenroom logs my-host --kind upstreams --kind processes\ngreenroom logs my-host --stderr git",
    ),
    CliCommand(
        "calls",
        "Follow the calls of a running program, each as it ends",
        "greenroom.cli.program_commands:calls",
        PROGRAM,
        CommandOption("failed", "only calls that did not end with a result", "flag"),
        CommandOption(
            "tool", "only calls of this tool, prompt or resource; repeat for more", metavar="NAME", multiple=True
        ),
        CommandOption("slower", "only calls that took so long: 200ms, 1.5s, 2min", metavar="TIME"),
        *FOLLOWING,
        JSON,
        more="greenroom calls weather --failed\ngreenroom calls weather --tool forecast --slower 200ms --json",
    ),
    CliCommand(
        "wire",
        "Follow the messages of the protocol in a running program, without their arguments and results",
        "greenroom.cli.program_commands:wire",
        PROGRAM,
        CommandArgument("server", "only messages of this server", is_required=False),
        JSON,
        more="greenroom wire my-host git",
    ),
    CliCommand(
        "retry",
        "Try to start a server of a running host again at once; the host must allow acts",
        "greenroom.cli.program_commands:retry",
        CommandArgument("target", "the server's name in the host"),
        PROGRAM,
        JSON,
        more='greenroom retry git my-host\nThe program has to be started with --inspect-acts, or run(…, inspect="acts").',
    ),
    CliCommand(
        "park",
        "Stop a server of a running host until it is retried; the host must allow acts",
        "greenroom.cli.program_commands:park",
        CommandArgument("target", "the server's name in the host"),
        PROGRAM,
        JSON,
    ),
    CliCommand(
        "restart",
        "Restart a server of a running host, or a process; the program must allow acts",
        "greenroom.cli.program_commands:restart",
        CommandArgument("target", "the server's name in the host, or a process as `greenroom tree` shows it"),
        PROGRAM,
        JSON,
        more="greenroom restart git my-host\ngreenroom restart '<node.17>' weather",
    ),
    CommandGroup(
        "config",
        "Check and show your configuration",
        CliCommand(
            "check",
            "Show every mistake, with file and line",
            "greenroom.cli.config_command:check",
            *(FILES, CONFIG, JSON),
        ),
        CliCommand("show", "Show the configured servers", "greenroom.cli.config_command:show", *(FILES, CONFIG, JSON)),
        CliCommand(
            "effective",
            "Show whether a tool may be called, and the rule that decides",
            "greenroom.cli.config_command:effective",
            CommandArgument(
                "tools",
                "server:tool, a server, Elicit(server) or Skill(server); without any, all tools",
                is_required=False,
                many=True,
                completes="name",
            ),
            *(CONFIG, TIMEOUT, JSON),
            more="greenroom config effective git:push",
        ),
        CliCommand(
            "schema",
            "Print the JSON Schema of greenroom.toml, for editors",
            "greenroom.cli.config_command:schema",
            JSON,
        ),
    ),
    CliCommand(
        "login",
        "Sign in to a server, and keep the login",
        "greenroom.cli.login_command:login",
        SIGNED,
        CommandOption(
            "mcp-oauth-port",
            "the local port that the browser is sent back to (default: any free port)",
            "whole",
            metavar="PORT",
            variable="GREENROOM_MCP_OAUTH_PORT",
            most=65535,
        ),
        CommandOption(
            "device", "sign in with a code that you type on another machine, if the server supports it", "flag"
        ),
        CommandOption("account", "the account to sign in with, if you have several", metavar="NAME"),
        CommandOption("scope", "add this scope to the login; repeat for more", metavar="SCOPE", multiple=True),
        *(CONFIG, JSON),
        more="greenroom login calendar\ngreenroom login https://mcp.example.org/mcp --device",
    ),
    CliCommand(
        "logout",
        "Forget the login at a server, and revoke its tokens",
        "greenroom.cli.login_command:logout",
        *(SIGNED, ACCOUNT, CONFIG, JSON),
    ),
    CliCommand(
        "whoami",
        "Show where you are signed in, with which account, and for how long",
        "greenroom.cli.login_command:whoami",
        CommandArgument(
            "target",
            "a URL, or a name in your configuration; without it, all logins",
            is_required=False,
            completes="name",
        ),
        *(ACCOUNT, CONFIG, JSON),
    ),
    CliCommand(
        "check",
        "Test a server: with the official conformance suite (needs Node 22), or by the promises of the current revision",
        "greenroom.cli.check_command:check",
        CommandArgument(
            "target",
            "a URL, the name of a configured server with a URL, or module:server or file.py, which is served for the test",
            is_required=False,
            completes="target",
        ),
        CommandOption(
            "era",
            "legacy: the revisions with a handshake, by the official suite; modern: revision 2026-07-28, by requests of our own, which need no suite",
            choices=("legacy", "modern"),
            default="legacy",
        ),
        CommandOption(
            "scenario",
            "run this scenario, or with --era modern this check; repeat for more (default: all that fit any server)",
            metavar="NAME",
            multiple=True,
        ),
        CommandOption("suite", "use the suite at this path, instead of fetching it", metavar="FILE"),
        CommandOption(
            "second-header",
            "with --era modern, a header of another principal, to see that one cannot use what is the other's; repeat for more",
            metavar="HEADER",
            multiple=True,
        ),
        *(HEADER, ENV, CONFIG, JSON),
        more="greenroom check weather.py\ngreenroom check --era modern http://127.0.0.1:8000/mcp\n"
        "greenroom check --era modern -- python weather.py",
        takes_command=True,
    ),
)


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name and return its exit code."""
    return click_app.run(COMMANDS, words)
