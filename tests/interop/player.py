"""A server that says what a transcript says, to the client that asks what it was asked: `player.py TRANSCRIPT`. It ends with 1 at the first other message."""

from __future__ import annotations

import json
import sys
from pathlib import Path

for entry in map(json.loads, Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()):
    if entry["from"] == "server":
        sys.stdout.write(json.dumps(entry["message"]) + "\n")
        sys.stdout.flush()
        continue
    asked = json.loads(sys.stdin.readline() or "null")
    expected = entry["message"]
    if asked != expected:
        sys.exit(f"asked: {json.dumps(asked)}\nrecorded: {json.dumps(expected)}")
sys.stdin.read()
