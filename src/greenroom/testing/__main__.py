"""`python -m greenroom.testing`: `replay` plays a run again, `rogue` is a server that misbehaves to order."""

from __future__ import annotations

import sys

from greenroom.supervision.testing import command_line

from . import rogue_servers


def main() -> int:
    """Returns the exit code."""
    if sys.argv[1:2] == ["rogue"]:
        return rogue_servers.main(sys.argv[2:])
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
