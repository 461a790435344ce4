"""Lets the official SDK's models judge our values of revision 2026-07-28: `python -m tests.schema_suite.vectors PYTHON`, part of `make schemas`.

PYTHON is the interpreter of the environment with the SDK. A second argument is the folder of the specification's own example files, if you have a copy of it:
then each of them goes through our types and back as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.greenroom.protocol.stateless_vectors import VECTORS, round_trip

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT: Final = Path(__file__).parent / "python" / "sdk_models.py"
MISSING: Final = ["SubscriptionsListenResultResponse is no type of the models"]
"""The SDK's copy of the schema is older than this type."""
LASTS: Final = 60


def main(arguments: Sequence[str]) -> int:
    """Print what differs, and the totals; 1 if anything differs."""
    python, *folders = arguments
    judged = subprocess.run(
        [python, str(SCRIPT)], input=json.dumps(VECTORS), capture_output=True, text=True, timeout=LASTS, check=False
    )
    said = judged.stdout.splitlines()
    wrong = [line for line in said if line not in MISSING] + [line for line in MISSING if line not in said]
    if judged.returncode != 0:
        wrong.append(judged.stderr)
    files = [file for folder in folders for file in sorted(Path(folder).glob("*/*.json"))]
    for file in files:
        value = json.loads(file.read_text("utf-8"))
        if (back := round_trip(file.parent.name, value)) != value:
            wrong.append(f"{file.parent.name}/{file.name} became {json.dumps(back)}")
    print("\n".join(wrong))
    print(
        f"{sum(map(len, VECTORS.values()))} values of {len(VECTORS)} types, and {len(files)} example files, {len(wrong)} wrong"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
