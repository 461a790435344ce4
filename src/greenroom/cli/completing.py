"""What a shell offers for a target: the names of the configuration, and files of Python. A shell that asks gets words and nothing else, whatever is wrong with a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

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
