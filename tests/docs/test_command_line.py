"""The reference page of the command line is complete and current, and every command can be found."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from greenroom.cli.click_app import CliCommand, CommandArgument, CommandGroup, CommandOption
from greenroom.cli.command_table import COMMANDS

from . import command_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import click
    import pytest


def every(commands: Iterable[click.Command]) -> Iterator[click.Command]:
    for each in commands:
        yield each
        if isinstance(each, CommandGroup):
            yield from every(each.commands.values())


def test_the_page_is_current() -> None:
    assert command_line.main(["--check"]) == 0


def test_an_outdated_page_is_reported_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    assert command_line.main(["--check"], tmp_path) == 1
    assert "out of date" in capsys.readouterr().err
    assert command_line.main([], tmp_path) == 0
    assert command_line.main(["--check"], tmp_path) == 0


def test_the_code_of_every_command_is_where_the_table_says() -> None:
    for each in every(COMMANDS):
        assert isinstance(each, CliCommand) or (isinstance(each, CommandGroup) and each.commands)
        if isinstance(each, CliCommand):
            module, _, name = each.run.partition(":")
            assert callable(getattr(import_module(module), name))


def test_every_argument_and_option_is_explained() -> None:
    for each in every(COMMANDS):
        assert each.short_help
        assert all(isinstance(one, CommandArgument | CommandOption) and one.about for one in each.params)
