"""Our own playhouse at a port, in the plainest way that there is: one POST, one JSON answer."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from greenroom import HttpConfig

spec = spec_from_file_location("playhouse", Path(__file__).parents[1] / "interop" / "server.py")
assert spec is not None
assert spec.loader is not None
playhouse = sys.modules["playhouse"] = module_from_spec(spec)
spec.loader.exec_module(playhouse)

if __name__ == "__main__":
    playhouse.server.run("http", port=int(sys.argv[1]), config=HttpConfig(plain=True))
