"""Start a Thespian system on a port, and leave: it stays."""

from __future__ import annotations

import sys
from pathlib import Path

from thespian.actors import ActorSystem  # pyright: ignore[reportMissingTypeStubs]

sys.path.insert(0, str(Path(__file__).parents[4]))  # where it looks for actors

ActorSystem("multiprocTCPBase", {"Admin Port": int(sys.argv[1])}, logDefs={"version": 1})
