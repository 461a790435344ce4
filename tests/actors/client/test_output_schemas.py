"""Output schemas are looked up once; a list that changes meanwhile does not change the check of a reply."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from greenroom.actors.client.errors import RequestTimeout
from greenroom.client import OutputSchemas
from greenroom.protocol.definitions import Tool
from greenroom.protocol.errors import PeerError

SCHEMA = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


class Words:
    """A client whose list changes while it is read."""

    def __init__(self, promises: OutputSchemas) -> None:
        self.line = SimpleNamespace(name="server", status=SimpleNamespace(generation=1))
        self.output_schemas = promises
        self.listed = 0
        self.changing = True

    async def list_tools(self) -> list[Tool]:
        self.listed += 1
        if self.changing:
            self.output_schemas.forget()
        return [Tool("add", {"type": "object"}, output_schema=SCHEMA)]


def test_a_list_that_changes_while_it_is_read_is_used_and_not_kept() -> None:
    promises = OutputSchemas()
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


def test_a_list_that_was_not_to_be_had_is_asked_for_again_and_one_that_was_refused_is_not() -> None:
    promises = OutputSchemas()
    words: Any = Words(promises)
    words.changing = False
    errors: list[Exception] = [RequestTimeout("tools/list", 1.0), PeerError(-32601, "no such list")]

    async def fail() -> list[Tool]:
        words.listed += 1
        raise errors[0]

    words.list_tools = fail

    async def main() -> None:
        await promises.of("add", words)
        await promises.of("add", words)
        assert words.listed == 2
        del errors[0]
        await promises.of("add", words)
        await promises.of("add", words)
        assert words.listed == 3

    asyncio.run(main())
