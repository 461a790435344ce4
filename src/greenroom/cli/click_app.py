"""The command line's application on click: commands with help and completion, and output to a terminal. No other file imports click.

`run` turns an exception of a command into one line on stderr and an exit code; a traceback is shown with GREENROOM_TRACEBACK=1 and for internal errors.
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


# --- Commands, arguments and options: click's classes with the additions that the command table needs.

OptionKind: TypeAlias = Literal["text", "flag", "switch", "whole", "seconds", "path", "json"]
"""The type of an option's value. A flag is off unless typed; a switch has two spellings, `--x` and `--no-x`, and is None when neither is typed."""
CompletionSource: TypeAlias = Literal["", "target", "name", "file"]
"""The completions of a shell: nothing; targets (configured names and Python files); configured names only; Python files only."""
_PATH: Final = click.Path(path_type=Path)


class _Seconds(click.ParamType):  # type: ignore[type-arg]  # it is generic since click 8.5
    """A number of seconds, for a timeout or an interval."""

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
            self.fail(f"{value!r} is not a number of seconds, {self._least}.", param, ctx)
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
            self.fail(f"{value!r} is not JSON: {error.message}.", param, ctx)


class CommandArgument(click.Argument):
    """A positional argument of a command."""

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
        """`completes` is what a shell completes it with. With `many`, the command itself reports that the first word is missing."""
        kind = _PATH if path else click.STRING
        super().__init__([name], required=is_required and not many, nargs=-1 if many else 1, type=kind)
        self.is_required = is_required
        self.about = about
        self._completes = completes

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions for the word. Of several words only the first is a target."""
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

    def __init__(  # noqa: PLR0913 - the facts about an option
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
        """`unset` is the meaning of the word `none`, where it may be typed instead of a number: "no limit", for example.

        `most` is the upper bound of a whole number, whose lower bound is 1; with `zero`, a number of seconds may be 0. `variable` is the environment
        variable that the command reads when the option is not typed. `setting` names the field that the option sets: `http.max_body` for one of
        `HttpConfig`, `server.call_timeout` for one of `Settings`, or both. `section` is the heading under which the help lists the option.
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
        help_text = about + (f" [or {variable}]" if variable else "") + otherwise
        words = [f"--{name}/--no-{name}" if kind == "switch" else f"--{name}", name.replace("-", "_")]
        super().__init__([*words, *([f"-{short}"] if short else [])], help=help_text, **more)
        self.about, self.kind, self.unset, self.variable = about, kind, unset, variable
        self.setting, self.section = setting, section

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """The typed value converted to its type; the word `none` stays as it is when the option has `unset`."""
        return value if self.unset and value == "none" else super().type_cast_value(ctx, value)


class _OutputClosed(Exception):
    """The reader of stdout has closed the pipe, as `head` does. It replaces `BrokenPipeError`, which click would turn into exit code 1."""


class CliCommand(click.Command):
    """A command of the table; its module is imported when the command runs."""

    def __init__(
        self,
        name: str,
        about: str,
        run: str,
        *params: click.Parameter,
        more: str = "",
        takes_command: bool = False,
    ) -> None:
        """`run` names the code, as `module:function`: it gets the arguments and options as keywords and returns the exit code, or None for 0.

        `more` is the end of the help text: examples. With `takes_command`, a server's command may follow `--`.
        """
        listed = "\n".join(
            f"{str(each.name).upper()}: {each.about}" for each in params if isinstance(each, CommandArgument)
        )
        whole = f"{about}.\n\n\b\n{listed}" if listed else f"{about}."
        super().__init__(name, params=list(params), help=whole, short_help=about, epilog=more or None)
        self.run, self.takes_command = run, takes_command
        self._refused = f"greenroom {name} takes no command behind --"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reject a command behind `--` before other mistakes, where this command takes none."""
        if not self.takes_command and ctx.obj is not None and not {"-h", "--help"} & set(args):
            raise UsageError(self._refused)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Import the command's module and run its function."""
        module, _, name = self.run.partition(":")
        given = {**ctx.params, "command": ctx.obj} if self.takes_command else ctx.params
        try:
            return getattr(import_module(module), name)(**given)
        except BrokenPipeError as error:
            raise _OutputClosed from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section; options without a section come first."""
        listed: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                listed.setdefault(getattr(each, "section", "") or "Options", []).append(record)
        for heading, records in listed.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """Write the examples line by line; click would join them into a paragraph."""
        if self.epilog:
            formatter.write_paragraph()
            with formatter.indentation():
                for line in self.epilog.splitlines():
                    formatter.write_text(line)


class CommandGroup(click.Group):
    """A group of commands; an unknown command is answered with the nearest known name."""

    def __init__(self, name: str, about: str, *commands: click.Command, **more: Any) -> None:
        """`about` is the help text, and the short text in the list of the parent group."""
        super().__init__(name, commands, help=about, short_help=about, **more)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that the first word names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - only after a mistyped word

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            raise click.UsageError(f"{error.message}{f' Did you mean {near[0]!r}?' if near else ''}", ctx) from None


def run(commands: Sequence[click.Command], words: Sequence[str]) -> int:
    """Run the command that `words` name and return its exit code. The words behind `--` are a server's own command line."""
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
        # Python flushes stdout once more at exit; with the null device in place of the closed pipe that flush cannot fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - every error becomes one line and an exit code
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
            _print_error("this is an error in greenroom itself: please report it with the traceback above")
    else:
        _print_error(_error_text(error))
        cause = error.__cause__
        cause_is_shown = cause is None or isinstance(cause, FileNotFoundError) or _error_text(cause) in str(error)
        if cause is not None and not cause_is_shown:
            _print_error(f"because: {_error_text(cause)}")
    return code


def _error_as_json(error: BaseException, code: int) -> None:
    """Write the error as JSON: a program that reads stdout with --json gets JSON whether the command succeeds or fails."""
    from .command_output import print_json  # noqa: PLC0415 - that module imports this one

    print_json({"error": {"kind": type(error).__name__, "message": _error_text(error), "exit_code": code}})


def _error_text(error: BaseException) -> str:
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.strerror:
        return error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error) or type(error).__name__


def _print_error(text: str) -> None:
    """Print an error. Its later lines may quote a server: they are indented, so that no quoted line looks like one of greenroom's own."""
    shown = visible(text, lines=True).replace("\n", "\n  ")
    echo(styled(f"greenroom: {shown}", "bad"), error=True)


def _wants_colour() -> bool | None:
    """False where colours are switched off (https://no-color.org) or not supported; None lets click test whether the stream is a terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _root_group(commands: Sequence[click.Command]) -> click.Command:
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "color": _wants_colour()}
    about = "MCP servers, clients and hosts that keep running when a part fails."
    group = CommandGroup("greenroom", about, *commands, context_settings=settings)
    version_option = {
        "package_name": "greenroom",
        "message": "greenroom %(version)s",
        "help": "print the version",
    }
    return click.version_option(None, "-V", "--version", **version_option)(group)


# --- Output of commands to the terminal.


def echo(text: str = "", *, error: bool = False, newline: bool = True) -> None:
    """Write a line. Every output of the commands to a terminal passes this function, so a server's text is escaped in one place."""
    to_people = error or sys.stdout.isatty()
    click.echo(escaped_for_terminal(text) if to_people else text, err=error, nl=newline, color=_wants_colour())


def clear_screen() -> None:
    """Clear the screen, if stdout is a terminal."""
    click.clear()


def styled(text: str, style: str) -> str:
    """The text with a colour or bold; `echo` removes both when the output is not a terminal."""
    known: dict[str, dict[str, Any]] = {
        "name": {"bold": True},
        "dim": {"dim": True},
        "good": {"fg": "green"},
        "bad": {"fg": "red"},
        "odd": {"fg": "yellow"},
    }
    return click.style(text, **known[style])


def is_terminal() -> bool:
    """Whether stdin and stderr are a terminal, so that a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


# --- Completion of targets: names in the configuration and Python files. A shell gets words and nothing else; mistakes in a file are not printed here.

_MOST: Final = 200
"""How many files a completion lists: more than fit a screen."""


def complete_names(begun: str, config: Path | None = None) -> list[tuple[str, str]]:
    """The names of enabled servers that start with `begun`, each with its file and line."""
    from greenroom.config.config_reader import read  # noqa: PLC0415 - as all commands load what they need

    found = read() if config is None else read(config)
    return [(name, str(server.source)) for name, server in found.enabled.items() if name.startswith(begun)]


def complete_files(begun: str) -> list[str]:
    """The Python files and folders whose path starts with `begun`; none if the folder cannot be read."""
    folder, name = os.path.split(begun)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda each: each.name)
    except OSError:
        return []
    found = [
        os.path.join(folder, each.name) + ("" if each.is_file() else os.sep)  # noqa: PTH118 - as it was typed, without ./
        for each in entries
        if each.name.startswith(name)
        and (name.startswith(".") or not each.name.startswith((".", "__")))
        and (each.is_dir() or (each.name.endswith(".py") and each.name.isprintable()))
    ]
    return found[:_MOST]
