"""The one file that knows click: the table of commands as commands that can be typed, with help and completion.

Whatever a command raises ends here, as one line on stderr and an exit code; a traceback is shown only on request.
"""

from __future__ import annotations

import math
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from greenroom.supervision import spelling

from .endings import BROKEN, FINE, INTERRUPTED, Misused, code_of, tamed, visible
from .serve_options import SERVE_OPTIONS, Argument, Command, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class _Seconds(click.ParamType):  # type: ignore[type-arg]  # it is generic since click 8.5
    """How long something may take."""

    name = "seconds"

    def __init__(self, option: Option) -> None:
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value == "none" and self._option.unset:
            return "none"
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not (0 < seconds < math.inf or (seconds == 0 and self._option.zero)):
            least = "0 or more" if self._option.zero else "more than 0"
            self.fail(f"{value!r} is no number of seconds, {least}{_or_none(self._option)}.", param, ctx)
        return seconds


class _Whole(click.IntRange):
    name = "whole number"

    def __init__(self, option: Option) -> None:
        super().__init__(1, option.most)
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        typed: Any = value
        if typed == "none" and self._option.unset:
            return typed
        return super().convert(value, param, ctx)


_PATH: Final = click.Path(path_type=Path)


class _Json(click.ParamType):  # type: ignore[type-arg]  # as above
    """A value as JSON."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from greenroom.protocol.errors import RemoteProtocolError  # noqa: PLC0415 - few options are JSON
        from greenroom.protocol.json import decode  # noqa: PLC0415 - as above

        try:
            return decode(str(value).encode())
        except RemoteProtocolError as error:
            self.fail(f"{value!r} is no JSON: {error.message}.", param, ctx)


def _or_none(option: Option) -> str:
    return f", or none for {option.unset}" if option.unset else ""


_KINDS: Final[dict[str, Callable[[Option], Any]]] = {
    "text": lambda _: click.STRING,
    "json": lambda _: _Json(),
    "path": lambda _: _PATH,
    "choice": lambda option: click.Choice(list(option.choices)),
    "whole": _Whole,
    "seconds": _Seconds,
}


class _Unread(Exception):
    """The reader of what a command writes has gone, as `head` does. Click would make an exit of a `BrokenPipeError`, with the code of a failure."""


class _Typed(click.Command):
    """A command, with examples behind its help."""

    refused = ""
    """What to say where a server's command stands behind `--`, and may not; before anything is said of the other words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.refused and ctx.obj is not None and not {"-h", "--help"} & set(args):
            raise Misused(self.refused)
        return super().parse_args(ctx, args)

    sections: Mapping[str, str] = {}
    """Under which heading an option is listed, by its parameter's name; those of no heading come first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, heading by heading."""
        listed: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                listed.setdefault(self.sections.get(each.name or "", "Options"), []).append(record)
        *others, last = dict.fromkeys((*self.sections.values(), "Options"))
        for heading in (last, *others):
            if heading in listed:
                with formatter.section(heading):
                    formatter.write_dl(listed[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """Line by line, as it was written."""
        if self.epilog:
            formatter.write_paragraph()
            with formatter.indentation():
                for line in self.epilog.splitlines():
                    formatter.write_text(line)


class _Group(click.Group):
    """A group of them; an unknown word is answered with the nearest that there is."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - only after a mistyped word

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            raise click.UsageError(f"{error.message}{f' Did you mean {near[0]!r}?' if near else ''}", ctx) from None


def run(words: Sequence[str]) -> int:
    """Do what was typed, and say how it went. What stands behind `--` is a server's own command line."""
    typed, command = _split(words)
    spelling.spell_what_is_logged()
    try:
        code = _tree().main(typed, "greenroom", standalone_mode=False, obj=command)
    except click.Abort:
        _say("interrupted")
        return INTERRUPTED
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except _Unread:
        # Python flushes stdout once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - an error of any kind is one line, and an exit code
        code = _told(error)
        if "--json" in typed:
            _as_json(error, code)
        return code
    return code if isinstance(code, int) else FINE


def _split(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    given = list(words)
    if "--" not in given:
        return given, None
    place = given.index("--")
    return given[:place], given[place + 1 :]


def _told(error: BaseException) -> int:
    code = code_of(error)
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted")
    elif code == BROKEN or os.environ.get("GREENROOM_TRACEBACK"):
        import traceback  # noqa: PLC0415 - one is rarely shown

        echo(visible("".join(traceback.format_exception(error)), lines=True), error=True, newline=False)
        if code == BROKEN:
            _say("this is a fault of greenroom itself: please report it, with what stands above")
    else:
        _say(_text(error))
        cause = error.__cause__
        said = cause is None or isinstance(cause, FileNotFoundError) or _text(cause) in str(error)
        if cause is not None and not said:
            _say(f"because: {_text(cause)}")
    return code


def _as_json(error: BaseException, code: int) -> None:
    """For a program that reads stdout: it gets JSON whatever comes of the command."""
    from .showing import as_json  # noqa: PLC0415 - which writes by `echo`

    as_json({"error": {"kind": type(error).__name__, "message": _text(error), "exit_code": code}})


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.strerror:
        return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def _say(text: str) -> None:
    """An error, which may quote what a server says: each line of that stands indented, so that none looks like ours."""
    shown = visible(text, lines=True).replace("\n", "\n  ")
    echo(styled(f"greenroom: {shown}", "bad"), error=True)


def _coloured() -> bool | None:
    """False where colours are not wanted (https://no-color.org) or not shown; otherwise click looks whether there is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


# --- the table, as click has it


def _tree() -> click.Group:
    group = _Group(
        "greenroom",
        help="MCP servers, clients and hosts that go on when something breaks.",
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
            "color": _coloured(),
        },
    )
    told = {"package_name": "greenroom", "message": "greenroom %(version)s", "help": "say which version this is"}
    click.version_option(None, "-V", "--version", **told)(group)
    for each in COMMANDS:
        group.add_command(_made(each))
    return group


def _made(command: Command) -> click.Command:
    if command.commands:
        group = _Group(command.name, help=command.help, short_help=command.help)
        for each in command.commands:
            group.add_command(_made(each))
        return group
    params: list[click.Parameter] = [
        click.Argument(
            [each.name],
            required=each.needed and not each.many,
            nargs=-1 if each.many else 1,
            type=_PATH if each.path else click.STRING,
            shell_complete=_completion(each),
        )
        for each in command.arguments
    ]
    params += [_option(each) for each in command.options]
    listed = "\n".join(f"{each.name.upper()}: {each.help}" for each in command.arguments)
    made = _Typed(
        command.name,
        params=params,
        callback=_callback(command),
        help="\n\n".join(part for part in (f"{command.help}.", f"\b\n{listed}" if listed else "") if part),
        short_help=command.help,
        epilog=command.more or None,
    )
    made.sections = {each.name.replace("-", "_"): each.section for each in command.options if each.section}
    if not command.behind:
        why = f": {command.not_behind}" if command.not_behind else ""
        made.refused = f"greenroom {command.name} takes no command behind --{why}"
    return made


def _completion(argument: Argument) -> Any:
    """What a shell offers for it; of several words the first is the target."""
    if not argument.completes:
        return None

    def offered(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        if argument.completes != "name" and argument.many and ctx.params.get(argument.name):
            return []

        found: list[CompletionItem] = []
        if argument.completes != "file":
            found += [CompletionItem(name, help=help_) for name, help_ in names(begun, ctx.params.get("config"))]
        if argument.completes != "name":
            found += [CompletionItem(name) for name in programs(begun)]
            if not found:
                found.append(CompletionItem(begun, type="file"))
        return found

    return offered


def _option(option: Option) -> click.Option:
    names = [f"--{option.name}", option.name.replace("-", "_")] + ([f"-{option.short}"] if option.short else [])
    told: dict[str, Any] = {
        "help": option.help + (f" [or {option.variable}]" if option.variable else "") + _or_none(option)
    }
    if option.kind == "flag":
        return click.Option(names, is_flag=True, **told)
    if option.kind == "switch":
        names[0] += f"/--no-{option.name}"
        return click.Option(names, default=None, **told)
    if option.shown:
        told["metavar"] = option.shown
    if option.default is not None:
        told["default"] = option.default  # to click, None is a value as well
    return click.Option(names, type=_KINDS[option.kind](option), multiple=option.many, required=option.needed, **told)


def _callback(command: Command) -> Callable[..., Any]:
    module, _, name = command.run.partition(":")
    takes_command = command.behind

    def call(**given: Any) -> Any:
        if takes_command:
            given["command"] = click.get_current_context().obj
        try:
            return getattr(import_module(module), name)(**given)
        except BrokenPipeError as error:
            raise _Unread from error

    return call


# --- for commands: what only a terminal has


def echo(text: str = "", *, error: bool = False, newline: bool = True) -> None:
    """Write a line. Nothing else of ours writes to a terminal, so whatever a server has said comes by here."""
    to_people = error or sys.stdout.isatty()
    click.echo(tamed(text) if to_people else text, err=error, nl=newline, color=_coloured())


def wipe() -> None:
    """Begin anew at the top of the screen, where there is one."""
    click.clear()


def styled(text: str, style: str) -> str:
    """In colour, or bold, where a terminal shows it: `echo` leaves it out elsewhere."""
    known: dict[str, dict[str, Any]] = {
        "name": {"bold": True},
        "dim": {"dim": True},
        "good": {"fg": "green"},
        "bad": {"fg": "red"},
        "odd": {"fg": "yellow"},
    }
    return click.style(text, **known[style])


def is_terminal() -> bool:
    """Whether a user sits there who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


# --- What a shell offers for a target: the names of the configuration, and files of Python. A shell that asks gets words and nothing else, whatever is wrong with a file.

_MOST: Final = 200
"""Files that are offered: more than fit a screen."""


def names(begun: str, config: Path | None = None) -> list[tuple[str, str]]:
    """Those of the configured names that begin so, each with the line where it stands. A name that cannot be used is not offered."""
    from greenroom.config.reader import read  # noqa: PLC0415 - as all commands load what they need

    found = read() if config is None else read(config)
    return [(name, str(server.source)) for name, server in found.enabled.items() if name.startswith(begun)]


def programs(begun: str) -> list[str]:
    """The files of Python, and the folders, whose path begins so. None where the folder cannot be read."""
    folder, name = os.path.split(begun)
    try:
        there = sorted(os.scandir(folder or "."), key=lambda each: each.name)
    except OSError:
        return []
    found = [
        os.path.join(folder, each.name) + ("" if each.is_file() else os.sep)  # noqa: PTH118 - as it was typed, without ./
        for each in there
        if each.name.startswith(name)
        and (name.startswith(".") or not each.name.startswith((".", "__")))
        and (each.is_dir() or (each.name.endswith(".py") and each.name.isprintable()))
    ]
    return found[:_MOST]


# --- Every command, its arguments and options, as values. Nothing is imported for them: `greenroom --help` costs no more than reading this.
# A command's `run` is where its code is, `module:function`; it gets what was typed as keywords, and returns the exit code, or nothing for 0.

TARGET: Final = Argument(
    "target",
    "where the server is: a URL, a name of your configuration, or module:server; or nothing, and a command after --",
    needed=False,
    completes="target",
)
JSON: Final = Option("json", "answer as JSON, for programs", "flag")
CONNECTING: Final = (
    Option("timeout", "give up after so many seconds", "seconds", shown="SECONDS"),
    Option("header", "a header for a URL, as Name: value; again for more", short="H", shown="HEADER", many=True),
    Option("env", "a variable for a command, as NAME=value; again for more", short="e", shown="NAME=VALUE", many=True),
    Option("config", "the configuration to look names up in, instead of yours and the project's", "path", shown="FILE"),
    Option("verbose", "say what happens: logs, and the server's own standard error", "flag", short="v"),
)
YES: Final = Option("yes", "do not ask: the answer is yes", "flag", short="y")
FILES: Final = Argument("files", "files to read instead of yours and the project's", needed=False, many=True, path=True)
SIGNED: Final = Argument("target", "a URL, or a name of your configuration", completes="name")

COMMANDS: Final[Sequence[Command]] = (
    Command(
        "serve",
        "Serve a server: on stdin and stdout, or over HTTP",
        "greenroom.cli.serving:serve",
        (
            Argument(
                "server",
                "module:server, or file.py:server; the part behind the colon may be left out when there is only one",
                needed=False,
                completes="file",
            ),
        ),
        SERVE_OPTIONS,
        more="greenroom serve weather:server\ngreenroom serve weather.py --http 127.0.0.1:8000 --workers 2\n"
        "greenroom serve --config greenroom.toml --http 127.0.0.1:8000",
    ),
    Command(
        "list",
        "What a server has: tools, resources, templates, prompts",
        "greenroom.cli.inspecting:show",
        (TARGET,),
        (
            Option("only", "only these", "choice", choices=("tools", "resources", "templates", "prompts"), many=True),
            JSON,
            *CONNECTING,
        ),
        more="greenroom list http://127.0.0.1:8000/mcp\ngreenroom list -- uvx mcp-server-git",
        behind=True,
    ),
    Command(
        "call",
        "Call a tool",
        "greenroom.cli.calling:call",
        (Argument("words", "the target, the tool, and its arguments as key=value", many=True, completes="target"),),
        (
            Option(
                "args-json", "all arguments as one JSON object; @file reads it from a file, - from stdin", shown="JSON"
            ),
            Option("save", "write images, sounds and files of the answer into this folder", "path", shown="FOLDER"),
            YES,
            JSON,
            *CONNECTING,
        ),
        more="greenroom call weather:server forecast city=Oslo days:=3\ngreenroom call git_log max_count:=3 -- uvx mcp-server-git\n"
        "A value behind = is text unless the tool's schema says otherwise; behind := it is JSON.",
        behind=True,
    ),
    Command(
        "read",
        "Read a resource",
        "greenroom.cli.calling:read",
        (
            Argument(
                "words",
                "the target, and a URI, or a resource's name with the words of its template",
                many=True,
                completes="target",
            ),
        ),
        (Option("save", "write what is in it into this file, - for stdout", "path", shown="FILE"), JSON, *CONNECTING),
        more="greenroom read weather:server weather://oslo",
        behind=True,
    ),
    Command(
        "prompt",
        "Get a prompt",
        "greenroom.cli.calling:prompt",
        (Argument("words", "the target, the prompt, and its arguments as key=value", many=True, completes="target"),),
        (JSON, *CONNECTING),
        behind=True,
    ),
    Command(
        "inspect",
        "All that a server says of itself, and what is odd about it",
        "greenroom.cli.inspecting:inspect",
        (TARGET,),
        (
            Option("save", "write all of it into this file, to compare with later", "path", shown="FILE"),
            Option("against", "say what is different from what was saved there", "path", shown="FILE"),
            Option("strict", "exit with 1 when something is odd", "flag"),
            JSON,
            *CONNECTING,
        ),
        behind=True,
    ),
    Command(
        "install",
        "Write a server into the configuration of a program that uses servers",
        "greenroom.cli.installing:install",
        (TARGET,),
        (
            Option(
                "to",
                "whose configuration",
                "choice",
                choices=("claude", "claude-code", "codex", "cursor", "gemini", "json", "vscode", "windsurf", "zed"),
                needed=True,
            ),
            Option("name", "what it is called there", shown="NAME"),
            Option("project", "into the configuration of this folder, instead of yours", "flag"),
            Option("remove", "take it out again", "flag"),
            Option("dry-run", "show what would be written, and write nothing", "flag"),
            *CONNECTING[1:4],
            YES,
            JSON,
        ),
        more="greenroom install weather.py --to claude\ngreenroom install --to cursor --name git -- uvx mcp-server-git\n"
        "With --config greenroom.toml, all servers of that file are written as one entry, a gateway.",
        behind=True,
    ),
    Command(
        "new",
        "Begin a server: a folder with its code, a test, a README and a server.json",
        "greenroom.cli.starting:new",
        (Argument("name", "what it is called, or the folder it is to be in"),),
        (Option("git", "make it a git repository, too", "flag"), JSON),
        more="greenroom new weather",
    ),
    Command(
        "tree",
        "The processes of a server or host that runs, and what each is at; how each of a host's servers is",
        "greenroom.cli.watching:tree",
        (Argument("which", "its name, its process's number or its socket, where more than one runs", needed=False),),
        (
            Option("watch", "over and over, each second", "flag", short="w"),
            Option("every", "each process, also where many are alike", "flag"),
            JSON,
        ),
        more="greenroom serve weather.py --http 8000 --inspect\ngreenroom tree weather --watch",
    ),
    Command(
        "config",
        "Look at your configuration",
        commands=(
            Command(
                "check",
                "Say all that is wrong with it, with file and line",
                "greenroom.cli.configuring:check",
                (FILES,),
                (CONNECTING[3], JSON),
            ),
            Command(
                "show",
                "Show which servers it comes to",
                "greenroom.cli.configuring:show",
                (FILES,),
                (CONNECTING[3], JSON),
            ),
            Command(
                "effective",
                "Show whether a tool may be called, and the rule that decides",
                "greenroom.cli.configuring:effective",
                (
                    Argument(
                        "tools",
                        "server:tool, a whole server, or Elicit(server); all there are without any",
                        needed=False,
                        many=True,
                        completes="name",
                    ),
                ),
                (CONNECTING[3], CONNECTING[0], JSON),
                more="greenroom config effective git:push",
            ),
            Command(
                "schema",
                "The JSON Schema of greenroom.toml, for editors",
                "greenroom.cli.configuring:schema",
                (),
                (JSON,),
            ),
        ),
    ),
    Command(
        "login",
        "Sign in at a server, and keep the login",
        "greenroom.cli.signing_in:login",
        (SIGNED,),
        (
            Option(
                "mcp-oauth-port",
                "where the browser comes back to on this machine; any free port without",
                "whole",
                shown="PORT",
                variable="GREENROOM_MCP_OAUTH_PORT",
                most=65535,
            ),
            Option("device", "with a code to type on another machine, where the server has such", "flag"),
            Option("account", "as whom, for those who are several", shown="NAME"),
            Option("scope", "add this scope to the login; again for more", shown="SCOPE", many=True),
            CONNECTING[3],
            JSON,
        ),
        more="greenroom login calendar\ngreenroom login https://mcp.example.org/mcp --device",
    ),
    Command(
        "logout",
        "Forget the login at a server, and have its tokens taken back",
        "greenroom.cli.signing_in:logout",
        (SIGNED,),
        (Option("account", "whose, for those who are several", shown="NAME"), CONNECTING[3], JSON),
    ),
    Command(
        "whoami",
        "Where you are signed in, as whom, and for how long",
        "greenroom.cli.signing_in:whoami",
        (
            Argument(
                "target",
                "a URL, or a name of your configuration; without it, all logins",
                needed=False,
                completes="name",
            ),
        ),
        (Option("account", "whose, for those who are several", shown="NAME"), CONNECTING[3], JSON),
    ),
    Command(
        "check",
        "Have the official conformance suite judge a server (needs Node 22)",
        "greenroom.cli.checking:check",
        (
            Argument(
                "target",
                "a URL, a name of your configuration that has one, or module:server or file.py, which is served for it",
                completes="target",
            ),
        ),
        (
            Option(
                "scenario",
                "run this one; again for more, instead of those that fit any server",
                many=True,
                shown="NAME",
            ),
            Option("suite", "a suite that is there already, instead of fetching it", shown="FILE"),
            CONNECTING[3],
            JSON,
        ),
        more="greenroom check weather.py",
        not_behind="the suite speaks HTTP only, and what stood between would be judged instead: serve it over HTTP, and check the URL",
    ),
)
