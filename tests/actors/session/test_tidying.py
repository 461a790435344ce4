"""When a crowd of sessions has gone, Python forgets by which names it has found methods; once, and not for a few."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from greenroom.actors import sessions as tidying
from greenroom.actors.sessions import CROWD, SOON, Tidy, Tidying
from greenroom.supervision import inbox

if TYPE_CHECKING:
    import pytest


async def test_a_crowd_that_goes_is_tidied_up_after_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []
    monkeypatch.setattr(tidying, "_forget", lambda: times.append(asyncio.get_running_loop().time()))
    async with inbox() as me:
        mine = Tidying()
        for _ in range(CROWD - 1):
            mine.went()
        await asyncio.sleep(10 * SOON)
        assert not len(me)
        for _ in range(3 * CROWD):
            mine.went()
        assert isinstance(await me.receive(), Tidy)
        mine.tidy()
        assert len(times) == 1
        await asyncio.sleep(10 * SOON)
        assert not len(me)


def test_this_python_can() -> None:
    assert callable(tidying._forget)
    tidying._forget()
