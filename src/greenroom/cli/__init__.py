"""The command line, `greenroom`. What it can do is a table in `commands`; each command's code is loaded when it is used."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command that was typed, and exit as it went."""
    _open_missing_streams()
    try:
        from .command_table import run  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("greenroom: the command line needs an extra: pip install 'greenroom[cli]'")
    sys.exit(run(sys.argv[1:]))


def _open_missing_streams() -> None:
    """A program that is started without a standard stream gets one that leads nowhere: else its number would be that of some socket."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
