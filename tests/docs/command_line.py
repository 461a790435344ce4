"""The reference page of the command line: every command, argument and option, and what the exit codes mean.

``python tests/docs/command_line.py`` writes docs/reference/command-line.md; with ``--check`` it only reports whether the page is current.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.cli import exit_codes
from greenroom.cli.click_app import CliCommand, CommandArgument, CommandGroup, CommandOption
from greenroom.cli.command_table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import click

ROOT = Path(__file__).parents[2]
PAGE = "docs/reference/command-line.md"


def render() -> str:
    """The page."""
    lines = [
        "# The command line",
        "",
        "This page lists all commands of `greenroom`, with their arguments, options and exit codes. Install it with `pip install 'greenroom[cli]'`.",
        "[Use the command line](../how-to/use-the-command-line.md) introduces it; `python tests/docs/command_line.py` writes this page from the code.",
        "",
        "A *target* is the server that a command is for. It is one of these:",
        "",
        "- a URL;",
        "- a name in your [configuration](configuration.md);",
        "- `module:server` or `file.py:server` of Python code; the part after the colon is optional if there is only one server;",
        "- instead of a target, a server's own command after `--`.",
        "",
        "These environment variables apply to all commands:",
        "",
        "| Variable | Effect |",
        "| --- | --- |",
        "| `_GREENROOM_COMPLETE=bash_source` | `greenroom` prints the shell code that completes commands, options and the names in your configuration; also `zsh_source`, `fish_source` |",
        "| `NO_COLOR` | no colours; output that is not a terminal never has any |",
        "| `GREENROOM_TRACEBACK=1` | an error shows its traceback |",
    ]
    for command in COMMANDS:
        for path, each in _all(command, ()):
            lines += _section(path, each)
    lines += ["", "## Exit codes", "", "| Code | Meaning |", "| ---: | --- |"]
    lines += [f"| {code} | {meaning} |" for code, meaning in codes()]
    return "\n".join(lines) + "\n"


def codes() -> list[tuple[str, str]]:
    """The exit codes in the docstring of their module. A line that begins with spaces continues the one before."""
    found: list[tuple[str, str]] = []
    for line in (exit_codes.__doc__ or "").splitlines():
        code, _, meaning = line.partition("  ")
        if code.isdigit():
            found.append((code, meaning.strip()))
        elif found and not code and meaning:
            found[-1] = (found[-1][0], f"{found[-1][1]} {meaning.strip()}")
    return found


def _all(command: click.Command, path: Sequence[str]) -> Iterator[tuple[Sequence[str], CliCommand]]:
    here = (*path, str(command.name))
    if isinstance(command, CliCommand):
        yield here, command
    elif isinstance(command, CommandGroup):
        for each in command.commands.values():
            yield from _all(each, here)


def _section(path: Sequence[str], command: CliCommand) -> Iterator[str]:
    yield from ("", f"## {' '.join(path)}", "", f"{command.short_help}.", "")
    arguments = [each for each in command.params if isinstance(each, CommandArgument)]
    words = [f"{str(each.name).upper()}{'…' if each.nargs < 0 else ''}" for each in arguments]
    shown = [word if each.is_required else f"[{word}]" for word, each in zip(words, arguments, strict=True)]
    behind = " [-- COMMAND…]" if command.takes_command else ""
    yield from (
        "```console",
        f"$ greenroom {' '.join(path)}{''.join(f' {word}' for word in shown)} [OPTIONS]{behind}",
        "```",
        "",
    )
    for each in arguments:
        yield f"- `{str(each.name).upper()}`: {each.about}"
    section = ""
    for option in command.params:
        if not isinstance(option, CommandOption):
            continue
        if option.section != section:
            section = option.section
            yield from ("", f"{section}:", "")
        yield f"- `{_written(option)}`: {_about(option)}"
    if command.epilog:
        examples = [line for line in command.epilog.splitlines() if line.startswith("greenroom")]
        rest = [line for line in command.epilog.splitlines() if not line.startswith("greenroom")]
        yield from ("", "```console", *(f"$ {line}" for line in examples), "```")
        if rest:
            yield from ("", *rest)


def _written(option: CommandOption) -> str:
    if option.secondary_opts:
        return f"{option.opts[0]}/{option.secondary_opts[0]}"
    choices: Sequence[str] = getattr(option.type, "choices", ())
    value = "" if option.is_flag else f" {option.metavar or '|'.join(choices) or option.kind.upper()}"
    return option.opts[0] + value + "".join(f", {each}" for each in option.opts[1:])


def _about(option: CommandOption) -> str:
    unset = f", or `none` for {option.unset}" if option.unset else ""
    return option.about + (f" (or `{option.variable}`)" if option.variable else "") + unset


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description="The reference page of the command line.")
    parser.add_argument("--check", action="store_true", help="only report whether the page is current")
    page, fresh = root / PAGE, render()
    if not parser.parse_args(arguments).check:
        page.write_text(fresh, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == fresh:
        return 0
    sys.stderr.write(f"{PAGE} is out of date: run `python tests/docs/command_line.py`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
