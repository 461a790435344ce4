"""The command line, `greenroom`. The commands are a table in `command_table`; the code of a command is imported when it runs."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command in `sys.argv` and exit with its exit code."""
    _open_missing_streams()
    try:
        from .command_table import run  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("greenroom: the command line needs an extra: pip install 'greenroom[cli]'")
    sys.exit(run(sys.argv[1:]))


def _open_missing_streams() -> None:
    """Open missing standard streams on the null device.

    Without this, the first file or socket that the program opens would get descriptor 0, 1 or 2, and prints would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w"))
