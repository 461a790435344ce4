"""`python -m greenroom.testing`: `replay` replays a run, `shrink` shrinks its fault plan, `rogue` runs a misbehaving server."""

from __future__ import annotations

import sys

from greenroom.supervision.testing import command_line

from . import rogue_servers


def main() -> int:
    """Run the command line. Returns the exit code."""
    if sys.argv[1:2] == ["rogue"]:
        return rogue_servers.main(sys.argv[2:])
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
