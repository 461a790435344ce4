"""After many sessions have ended, the interpreter's method cache is cleared once; after few it is not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from greenroom.actors import session_supervisor as tidying
from greenroom.actors.session_supervisor import (
    CLEARING_DELAY,
    ENDED_BEFORE_CLEARING,
    ClearMethodCache,
    MethodCacheClearing,
)
from greenroom.supervision import inbox

if TYPE_CHECKING:
    import pytest


async def test_the_method_cache_is_cleared_once_after_many_sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []
    monkeypatch.setattr(tidying, "_clear_method_cache", lambda: times.append(asyncio.get_running_loop().time()))
    async with inbox() as me:
        mine = MethodCacheClearing()
        for _ in range(ENDED_BEFORE_CLEARING - 1):
            mine.on_session_end()
        await asyncio.sleep(10 * CLEARING_DELAY)
        assert not len(me)
        for _ in range(3 * ENDED_BEFORE_CLEARING):
            mine.on_session_end()
        assert isinstance(await me.receive(), ClearMethodCache)
        mine.clear()
        assert len(times) == 1
        await asyncio.sleep(10 * CLEARING_DELAY)
        assert not len(me)


def test_this_python_can_clear_its_method_cache() -> None:
    assert callable(tidying._clear_method_cache)
    tidying._clear_method_cache()
