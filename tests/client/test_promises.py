"""What tools promise is looked up once; a list that changes meanwhile changes no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from greenroom.client_tools import Promises
from greenroom.protocol.definitions import Tool

SCHEMA = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


class Words:
    """A client whose list changes while it is read."""

    def __init__(self, promises: Promises) -> None:
        self.line = SimpleNamespace(name="server", status=SimpleNamespace(generation=1))
        self.promises = promises
        self.listed = 0
        self.changing = True

    async def list_tools(self) -> list[Tool]:
        self.listed += 1
        if self.changing:
            self.promises.forget()
        return [Tool("add", {"type": "object"}, output_schema=SCHEMA)]


def test_a_list_that_changes_while_it_is_read_is_used_and_not_kept() -> None:
    promises = Promises()
    words: Any = Words(promises)

    async def main() -> None:
        assert (await promises.of("add", words)).schema == SCHEMA
        assert (await promises.of("add", words)).schema == SCHEMA
        assert words.listed == 2
        words.changing = False
        for _ in range(3):
            assert (await promises.of("add", words)).schema == SCHEMA
        assert words.listed == 3

    asyncio.run(main())
