"""The one file that knows click: commands that can be typed, with help and completion, and what a terminal shows.

Whatever a command raises ends here, as one line on stderr and an exit code; a traceback is shown only on request.
"""

from __future__ import annotations

import math
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import click
from click.shell_completion import CompletionItem

from greenroom.supervision import visible_text

from .exit_codes import INTERNAL, INTERRUPTED, OK, UsageError, escaped_for_terminal, exit_code_for, visible

if TYPE_CHECKING:
    from collections.abc import Sequence


# --- Commands, arguments and options: click's own, with what ours have besides.

OptionKind: TypeAlias = Literal["text", "flag", "switch", "whole", "seconds", "path", "json"]
"""A flag is off where it is not typed; a switch has a word for each of its positions, `--x` and `--no-x`, and none where neither is typed."""
CompletionSource: TypeAlias = Literal["", "target", "name", "file"]
"""Nothing; any target: configured names and files of Python; configured names only; files of Python only."""
_PATH: Final = click.Path(path_type=Path)


class _Seconds(click.ParamType):  # type: ignore[type-arg]  # it is generic since click 8.5
    """How long something may take."""

    name = "seconds"

    def __init__(self, *, zero: bool, otherwise: str) -> None:
        self._zero = zero
        self._least = f"{'0 or more' if zero else 'more than 0'}{otherwise}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not (0 < seconds < math.inf or (seconds == 0 and self._zero)):
            self.fail(f"{value!r} is no number of seconds, {self._least}.", param, ctx)
        return seconds


class _Integer(click.IntRange):
    name = "whole number"


class _Json(click.ParamType):  # type: ignore[type-arg]  # as above
    """A value as JSON."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from greenroom.protocol.errors import RemoteProtocolError  # noqa: PLC0415 - few options are JSON
        from greenroom.protocol.jsonrpc import decode  # noqa: PLC0415 - as above

        try:
            return decode(str(value).encode())
        except RemoteProtocolError as error:
            self.fail(f"{value!r} is no JSON: {error.message}.", param, ctx)


class CommandArgument(click.Argument):
    """A word that a command takes."""

    def __init__(
        self,
        name: str,
        about: str,
        *,
        is_required: bool = True,
        many: bool = False,
        path: bool = False,
        completes: CompletionSource = "",
    ) -> None:
        """`completes` is what a shell offers for it. That one of `many` is missing is told by the command."""
        kind = _PATH if path else click.STRING
        super().__init__([name], required=is_required and not many, nargs=-1 if many else 1, type=kind)
        self.is_required = is_required
        self.about = about
        self._completes = completes

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Of several words the first is the target."""
        completes = self._completes
        if not completes:
            return super().shell_complete(ctx, incomplete)
        if completes != "name" and self.nargs < 0 and ctx.params.get(self.name or ""):
            return []
        found: list[CompletionItem] = []
        if completes != "file":
            found += [
                CompletionItem(name, help=help_) for name, help_ in complete_names(incomplete, ctx.params.get("config"))
            ]
        if completes != "name":
            found += [CompletionItem(name) for name in complete_files(incomplete)]
            if not found:
                found.append(CompletionItem(incomplete, type="file"))
        return found


class CommandOption(click.Option):
    """An option of a command."""

    def __init__(  # noqa: PLR0913 - what there is to know of one
        self,
        name: str,
        about: str,
        kind: OptionKind = "text",
        *,
        short: str = "",
        choices: Sequence[str] = (),
        most: int | None = None,
        zero: bool = False,
        unset: str = "",
        variable: str = "",
        setting: str = "",
        section: str = "",
        **more: Any,
    ) -> None:
        """`unset` is what the word `none` stands for, where it may be typed instead of a number: "no limit", for example.

        `most` is the highest that a whole number may be, whose lowest is 1; with `zero`, a number of seconds may be 0. `variable` is the environment's that
        stands for it, which the command reads where nothing was typed. `setting` is what it changes, as `http.max_body` for a field of `HttpConfig`,
        `server.call_timeout` for one of `Settings`; both where it is in both. `section` is the heading under which the help lists it.
        """
        otherwise = f", or none for {unset}" if unset else ""
        if kind in ("flag", "switch"):
            more |= {"is_flag": True} if kind == "flag" else {"default": None}
        else:
            more["type"] = {
                "text": click.Choice(choices) if choices else click.STRING,
                "path": _PATH,
                "json": _Json(),
                "whole": _Integer(1, most),
                "seconds": _Seconds(zero=zero, otherwise=otherwise),
            }[kind]
        said = about + (f" [or {variable}]" if variable else "") + otherwise
        words = [f"--{name}/--no-{name}" if kind == "switch" else f"--{name}", name.replace("-", "_")]
        super().__init__([*words, *([f"-{short}"] if short else [])], help=said, **more)
        self.about, self.kind, self.unset, self.variable = about, kind, unset, variable
        self.setting, self.section = setting, section

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """What was typed, as its type; `none` as it is where that may be typed."""
        return value if self.unset and value == "none" else super().type_cast_value(ctx, value)


class _OutputClosed(Exception):
    """The reader of what a command writes has gone, as `head` does. Click would make an exit of a `BrokenPipeError`, with the code of a failure."""


class CliCommand(click.Command):
    """A command, whose code is loaded when it is used."""

    def __init__(
        self,
        name: str,
        about: str,
        run: str,
        *params: click.Parameter,
        more: str = "",
        takes_command: bool = False,
        no_command_because: str = "",
    ) -> None:
        """Its code is at `run`, `module:function`; that gets what was typed as keywords, and returns the exit code, or nothing for 0.

        `more` is what its help says besides: examples. With `takes_command`, a server's command may stand behind `--`; `no_command_because` is why it may not, where a user
        could expect that it may.
        """
        listed = "\n".join(
            f"{str(each.name).upper()}: {each.about}" for each in params if isinstance(each, CommandArgument)
        )
        whole = f"{about}.\n\n\b\n{listed}" if listed else f"{about}."
        super().__init__(name, params=list(params), help=whole, short_help=about, epilog=more or None)
        self.run, self.takes_command = run, takes_command
        self._refused = f"greenroom {name} takes no command behind --{f': {no_command_because}' if no_command_because else ''}"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A command behind `--` that may not be there is told before anything else."""
        if not self.takes_command and ctx.obj is not None and not {"-h", "--help"} & set(args):
            raise UsageError(self._refused)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Load its code, and run that."""
        module, _, name = self.run.partition(":")
        given = {**ctx.params, "command": ctx.obj} if self.takes_command else ctx.params
        try:
            return getattr(import_module(module), name)(**given)
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, heading by heading; those of no heading come first."""
        listed: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                listed.setdefault(getattr(each, "section", "") or "Options", []).append(record)
        for heading, records in listed.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """Line by line, as it was written."""
        if self.epilog:
            formatter.write_paragraph()
            with formatter.indentation():
                for line in self.epilog.splitlines():
                    formatter.write_text(line)


class CommandGroup(click.Group):
    """A group of them; an unknown word is answered with the nearest that there is."""

    def __init__(self, name: str, about: str, *commands: click.Command, **more: Any) -> None:
        """`about` is its help, and what the group that it is in says of it."""
        super().__init__(name, commands, help=about, short_help=about, **more)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - only after a mistyped word

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            raise click.UsageError(f"{error.message}{f' Did you mean {near[0]!r}?' if near else ''}", ctx) from None


def run(commands: Sequence[click.Command], words: Sequence[str]) -> int:
    """Do what was typed, and say how it went. What stands behind `--` is a server's own command line."""
    typed, command = _split_at_dashes(words)
    visible_text.escape_logged_text()
    try:
        code = _root_group(commands).main(typed, "greenroom", standalone_mode=False, obj=command)
    except click.Abort:
        _print_error("interrupted")
        return INTERRUPTED
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except _OutputClosed:
        # Python flushes stdout once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - an error of any kind is one line, and an exit code
        code = _report_error(error)
        if "--json" in typed:
            _error_as_json(error, code)
        return code
    return code if isinstance(code, int) else OK


def _split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    given = list(words)
    if "--" not in given:
        return given, None
    place = given.index("--")
    return given[:place], given[place + 1 :]


def _report_error(error: BaseException) -> int:
    code = exit_code_for(error)
    if isinstance(error, KeyboardInterrupt):
        _print_error("interrupted")
    elif code == INTERNAL or os.environ.get("GREENROOM_TRACEBACK"):
        import traceback  # noqa: PLC0415 - one is rarely shown

        echo(visible("".join(traceback.format_exception(error)), lines=True), error=True, newline=False)
        if code == INTERNAL:
            _print_error("this is a fault of greenroom itself: please report it, with what stands above")
    else:
        _print_error(_error_text(error))
        cause = error.__cause__
        said = cause is None or isinstance(cause, FileNotFoundError) or _error_text(cause) in str(error)
        if cause is not None and not said:
            _print_error(f"because: {_error_text(cause)}")
    return code


def _error_as_json(error: BaseException, code: int) -> None:
    """For a program that reads stdout: it gets JSON whatever comes of the command."""
    from .command_output import print_json  # noqa: PLC0415 - which writes by `echo`

    print_json({"error": {"kind": type(error).__name__, "message": _error_text(error), "exit_code": code}})


def _error_text(error: BaseException) -> str:
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.strerror:
        return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def _print_error(text: str) -> None:
    """An error, which may quote what a server says: each line of that stands indented, so that none looks like ours."""
    shown = visible(text, lines=True).replace("\n", "\n  ")
    echo(styled(f"greenroom: {shown}", "bad"), error=True)


def _wants_colour() -> bool | None:
    """False where colours are not wanted (https://no-color.org) or not shown; otherwise click looks whether there is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _root_group(commands: Sequence[click.Command]) -> click.Command:
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "color": _wants_colour()}
    about = "MCP servers, clients and hosts that go on when something breaks."
    group = CommandGroup("greenroom", about, *commands, context_settings=settings)
    told = {"package_name": "greenroom", "message": "greenroom %(version)s", "help": "say which version this is"}
    return click.version_option(None, "-V", "--version", **told)(group)


# --- for commands: what only a terminal has


def echo(text: str = "", *, error: bool = False, newline: bool = True) -> None:
    """Write a line. Nothing else of ours writes to a terminal, so whatever a server has said comes by here."""
    to_people = error or sys.stdout.isatty()
    click.echo(escaped_for_terminal(text) if to_people else text, err=error, nl=newline, color=_wants_colour())


def clear_screen() -> None:
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


def complete_names(begun: str, config: Path | None = None) -> list[tuple[str, str]]:
    """Those of the configured names that begin so, each with the line where it stands. A name that cannot be used is not offered."""
    from greenroom.config.config_reader import read  # noqa: PLC0415 - as all commands load what they need

    found = read() if config is None else read(config)
    return [(name, str(server.source)) for name, server in found.enabled.items() if name.startswith(begun)]


def complete_files(begun: str) -> list[str]:
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
