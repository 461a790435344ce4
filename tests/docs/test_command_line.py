"""The reference page of the command line is complete and current, and every command can be found."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from greenroom.cli.door import COMMANDS

from . import command_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pytest

    from greenroom.cli.serve_options import Command


def every(commands: Sequence[Command]) -> Iterator[Command]:
    for each in commands:
        yield each
        yield from every(each.commands)


def test_the_page_is_current() -> None:
    assert command_line.main(["--check"]) == 0


def test_a_page_that_is_due_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    assert command_line.main(["--check"], tmp_path) == 1
    assert "out of date" in capsys.readouterr().err
    assert command_line.main([], tmp_path) == 0
    assert command_line.main(["--check"], tmp_path) == 0


def test_the_code_of_every_command_is_where_the_table_says() -> None:
    for each in every(COMMANDS):
        assert bool(each.run) is not bool(each.commands)
        if each.run:
            module, _, name = each.run.partition(":")
            assert callable(getattr(import_module(module), name))


def test_every_word_is_explained() -> None:
    for each in every(COMMANDS):
        assert each.help
        assert all(argument.help for argument in each.arguments)
        assert all(option.help for option in each.options)
