"""How long a program may take to stop, and how much of that its calls have: one setting, or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError, HttpConfig, Server, multi_worker_server, program_runner
from greenroom.run_options import grace_periods

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.transports.listening_sockets import Binding

TABLE = [
    # grace, drain_grace: of the program, of its calls
    (None, None, 5.0, 4.7),
    (8.0, None, 8.0, 7.7),
    (1.0, None, 1.0, 0.75),
    (0.0, None, 0.0, 0.0),
    (None, 9.0, 9.3, 9.0),
    (None, 2.0, 5.0, 2.0),
    (None, 0.0, 5.0, 0.0),
    (8.0, 3.0, 8.0, 3.0),
    (8.0, 8.0, 8.0, 7.7),
]


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize(("grace", "drain_grace", "program", "calls"), TABLE)
def test_calls_have_as_long_as_the_grace_or_their_own_setting_allows(
    monkeypatch: pytest.MonkeyPatch,
    grace: float | None,
    drain_grace: float | None,
    program: float,
    calls: float,
    workers: int | None,
) -> None:
    """`run` hands both to whatever serves: the listener in this program, or those of its workers."""
    seen: list[Any] = []
    listened = Server._http_listener
    shutdowns: list[Any] = []

    def listen(self: Server, config: HttpConfig, binding: Binding) -> Any:
        binding.close()
        spec = listened(self, config, binding)
        seen.append((-1.0, config.drain_grace))
        shutdowns.append(spec.shutdown)
        return spec

    def run(_: Callable[[], Any], *, grace: float, **_rest: object) -> None:
        seen[-1] = (grace, seen[-1][1])

    def run_workers(_: Server, config: HttpConfig, grace: float, _count: int, **_rest: object) -> None:
        seen.append((grace, config.drain_grace))

    monkeypatch.setattr(Server, "_http_listener", listen)
    monkeypatch.setattr(program_runner, "run", run)
    monkeypatch.setattr(multi_worker_server, "run_workers", run_workers)

    Server("s").run("http", config=HttpConfig(port=0, drain_grace=drain_grace), grace=grace, workers=workers)

    assert seen == [(pytest.approx(program), pytest.approx(calls))]
    assert all(calls < shutdown < calls + 2 for shutdown in shutdowns)


def test_calls_that_would_have_longer_than_their_program_are_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"drain_grace=9 is longer than grace=5, .* write grace=9 alone"):
        grace_periods(HttpConfig(drain_grace=9), 5.0)
    with pytest.raises(ConfigError, match="drain_grace=9"):
        Server("s").run("http", config=HttpConfig(port=0, drain_grace=9), grace=5)


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "5", True])
def test_a_grace_that_is_no_number_of_seconds_is_refused(grace: Any) -> None:
    with pytest.raises(ConfigError, match="grace must be a number of seconds, 0 or more"):
        Server("s").run(grace=grace)
