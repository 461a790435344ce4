"""Runs in the environment of the official Python SDK: judges values by its models of revision 2026-07-28, which are generated from the schema.

Reads an object from each type's name to its values, and writes a line for each type that the models do not have, and for each value that they refuse or
do not know a member of.
"""

from __future__ import annotations

import json
import sys

import mcp_types._v2026_07_28 as models
from pydantic import TypeAdapter, ValidationError

for kind, values in json.load(sys.stdin).items():
    if not hasattr(models, kind):
        print(f"{kind} is no type of the models")
        continue
    judge = TypeAdapter(getattr(models, kind))
    for value in values:
        try:
            read = judge.dump_python(judge.validate_python(value), mode="json", by_alias=True, exclude_unset=True)
        except ValidationError as error:
            print(f"{kind}: {error}")
        else:
            if read != value:
                print(f"{kind}: {json.dumps(value)} became {json.dumps(read)}")
