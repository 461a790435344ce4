"""The command line, `greenroom`. What it can do is a table in `words`; each command's code is loaded when it is used."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that was typed, and exit as it went."""
    try:
        from .door import run  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("greenroom: the command line needs an extra: pip install 'greenroom[cli]'")
    sys.exit(run(sys.argv[1:]))
