"""Runs the official test suite of JSON Schema: `python -m tests.schema_suite FOLDER`, which is `make schemas`.

Each test of drafts 2020-12 and 7 must get the suite's verdict. A schema may be refused for two reasons only, by decision: it leads out of its
document,
which is not fetched; or a part of it has an `$id`, or its root is no object. The refusals are counted, so that no other schema is refused unnoticed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from greenroom.protocol.schema_compiler import BadSchema
from greenroom.protocol.serialization import is_object
from greenroom.protocol.validation import Validator

DRAFTS: Final = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
REASONS: Final = ("only the root may have one", "leads out of the document", "a schema must be an object", "$schema: ")
REFUSED: Final = 81
"""The number of refused schemas, by draft."""


def main(folder: Path) -> int:
    """Print each verdict that differs, and the totals; 1 if anything differs."""
    right, refused = 0, 0
    wrong: list[str] = []
    for draft, dialect in DRAFTS.items():
        for file in sorted((folder / draft).glob("*.json")):
            for group in json.loads(file.read_text("utf-8")):
                where = f"{draft}/{file.stem}: {group['description']}"
                try:
                    validator = Validator(_with(dialect, group["schema"]))
                except BadSchema as error:
                    refused += 1
                    if not any(reason in str(error) for reason in REASONS):
                        wrong.append(f"{where}: refused, {error}")
                    continue
                for test in group["tests"]:
                    if (not validator.errors(test["data"])) is test["valid"]:
                        right += 1
                    else:
                        wrong.append(f"{where}: {test['description']}: should be {test['valid']}")
    print("\n".join(wrong))
    print(f"{right} verdicts right, {len(wrong)} wrong; {refused} schemas refused, {REFUSED} expected")
    return int(bool(wrong) or refused != REFUSED or not right)


def _with(dialect: str, schema: Any) -> Any:
    return {"$schema": dialect, **schema} if is_object(schema) else schema


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
