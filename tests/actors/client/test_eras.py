"""A client finds out which era a server speaks: by `server/discover`, by `initialize`, and again when a server has changed."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import ClientSettings
from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.connection_line import ConnectionLine
from greenroom.actors.client.era_verdicts import EraVerdicts
from greenroom.actors.client.errors import InitFailed, ProtocolVersionError
from greenroom.actors.client.handshake import read_discovery
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.server_connection import ServerConnection
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.supervision import start
from greenroom.transports.client.errors import ConnectionLost, HttpError

from .client_helpers import phase, playing
from .fake_server import SILENCE, Stage
from .stateless_stage import PREFIX, VERSION, discovered, in_turn, stateless_stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CALL: dict[str, Any] = {"name": "t", "arguments": {}}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
HELLO = ["server/discover", "initialize"]


def methods(stage: Stage) -> list[str]:
    return [request.method for request in stage.requests]


def refusal(*supported: str, code: int = -32022) -> PeerError:
    return PeerError(code, "Unsupported protocol version", {"supported": list(supported), "requested": VERSION})


def unknown_session() -> HttpError:
    """What a server with sessions answers to a request without one."""
    error = HttpError(400, "Missing session ID")
    error.answer = PeerError(-32600, "Missing session ID")
    return error


# --- the first request


@pytest.mark.row("26-S1", "26-V1")
async def test_a_server_that_answers_discover_gets_no_handshake() -> None:
    async with playing(stateless_stage()) as (line, stage):
        assert line.welcome is not None
        assert (line.welcome.version, line.welcome.server_info) == (VERSION, {"name": "stage", "version": "1"})
        assert await line.request("ping") == {}
        assert methods(stage) == ["server/discover", "server/discover"]
        assert [each for wire in stage.wires for each in wire.heard if not hasattr(each, "id")] == []


@pytest.mark.row("26-S1")
@pytest.mark.parametrize(
    "answer",
    [
        PeerError(-32601, "Method not found"),
        PeerError(-32602, "Invalid params"),
        PeerError(-32600, "Not initialized"),
        PeerError(-32000, "Bad Request: Unsupported protocol version"),
        PeerError(-32603, "Internal error"),
        PeerError(1, "odd"),
        {},
        {"protocolVersion": "2025-11-25"},
        discovered(supportedVersions=[]),
        discovered(supportedVersions=None),
        discovered(supportedVersions="2026-07-28"),
        discovered(supportedVersions=["2025-11-25"]),
        discovered(supportedVersions=[20260728, None, {}]),
    ],
    ids=repr,
)
async def test_any_other_answer_to_discover_is_that_of_an_older_server(answer: Any) -> None:
    stage = Stage()
    stage.answers["server/discover"] = answer
    async with playing(stage) as (line, _):
        assert line.welcome is not None
        assert line.welcome.version == "2025-11-25"
        assert await line.request("ping") == {}
        assert (methods(stage), len(stage.wires)) == ([*HELLO, "ping"], 1)


@pytest.mark.row("26-S1")
async def test_a_server_that_ignores_discover_gets_initialize_on_the_same_wire() -> None:
    stage = Stage()
    stage.answers["server/discover"] = SILENCE
    async with playing(stage, probe_timeout=4.0) as (line, _):
        assert (methods(stage), len(stage.wires)) == (HELLO, 1)
        assert line.process is not None
        assert 4.0 <= line.process.node.loop.time() < 5.0
        stage.wire.answer(stage.requests[0], discovered())  # late, and of no use any more
        assert await line.request("ping") == {}
        assert line.welcome is not None
        assert line.welcome.version == "2025-11-25"


@pytest.mark.row("26-S1")
async def test_a_server_that_dies_of_discover_gets_initialize_from_a_fresh_start_at_once() -> None:
    class Fragile(Stage):
        def open(self, owner: Any) -> Any:
            wire = super().open(owner)

            def exits(_: object) -> object:
                wire.end(ConnectionLost("exited with 1"))
                return SILENCE

            self.answers["server/discover"] = exits
            return wire

    async with playing(Fragile()) as (line, stage):
        first, second = ([each for each in wire.heard if isinstance(each, JsonRpcRequest)] for wire in stage.wires)
        assert ([each.method for each in first], [each.method for each in second]) == (
            ["server/discover"],
            ["initialize"],
        )
        assert line.process is not None
        assert line.process.node.loop.time() == 0.0
        assert line.status.attempts == 0


async def test_over_http_silence_says_nothing_about_the_era() -> None:
    stage = Stage()
    stage.is_http = True
    stage.answers["server/discover"] = SILENCE
    async with playing(stage, ready=False, probe_timeout=1.0, init_timeout=5.0, park_after=1) as (line, _):
        await phase(line, Phase.PARKED)
        assert methods(stage) == ["server/discover"]


# --- modes


@pytest.mark.parametrize("mode", ["legacy", "2025-11-25", "2024-11-05"])
async def test_a_handshake_mode_never_asks_discover(mode: str) -> None:
    async with playing(Stage(version="2024-11-05"), mode=mode) as (_, stage):
        assert methods(stage) == ["initialize"]
        assert stage.requests[0].params["protocolVersion"] == ("2025-11-25" if mode == "legacy" else mode)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (PeerError(-32601, "no"), InitFailed),
        (refusal("2025-11-25"), ProtocolVersionError),
        ({}, ProtocolVersionError),
        (unknown_session(), InitFailed),
    ],
)
async def test_a_pinned_stateless_client_never_sends_initialize_and_its_error_names_the_mode(
    answer: Any, kind: type[Exception]
) -> None:
    stage = Stage()
    stage.answers["server/discover"] = answer
    async with playing(stage, ready=False, mode=VERSION, park_after=1) as (line, _):
        with pytest.raises(InitFailed, match='write mode="auto"') as failed:
            await line.ready()
        assert type(failed.value) is kind
        assert set(methods(stage)) == {"server/discover"}


async def test_a_handshake_mode_is_named_by_the_error_of_a_server_without_one() -> None:
    for answer, named in ((refusal(VERSION), True), (refusal("2024-10-07"), False), (PeerError(-32601, "no"), False)):
        stage = stateless_stage(answers={"initialize": answer})
        async with playing(stage, ready=False, mode="legacy", park_after=1) as (line, _):
            with pytest.raises(InitFailed) as failed:
                await line.ready()
            assert ('no newer revision: where the server speaks one, write mode="auto"' in str(failed.value)) is named
            assert methods(stage) == ["initialize"]


async def test_an_unknown_mode_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="auto, legacy, 2026-07-28"):
        ClientSettings(mode="2027-01-01")


# --- versions


@pytest.mark.row("26-V4")
@pytest.mark.parametrize("mode", ["auto", VERSION])
async def test_a_server_that_refuses_the_revision_and_names_it_is_asked_again_under_a_new_id(mode: str) -> None:
    stage = stateless_stage()
    stage.answers["server/discover"] = in_turn(refusal(VERSION), discovered())
    async with playing(stage, mode=mode) as (line, _):
        assert line.welcome is not None
        assert line.welcome.version == VERSION
        first, second = stage.requests
        assert (first.method, second.method, first.id == second.id) == ("server/discover", "server/discover", False)


@pytest.mark.row("26-V4")
@pytest.mark.parametrize("supported", [("2027-01-01",), ("2027-01-01", "2028-01-01")])
async def test_a_server_without_a_common_revision_is_a_typed_error(supported: tuple[str, ...]) -> None:
    for answer in (refusal(*supported), discovered(supportedVersions=list(supported))):
        stage = stateless_stage(answers={"server/discover": answer})
        async with playing(stage, ready=False) as (line, _):
            with pytest.raises(ProtocolVersionError, match=", ".join(supported)):
                await line.ready()
            assert methods(stage) == ["server/discover"]
            assert line.phase is Phase.PARKED


async def test_a_server_that_refuses_its_own_revision_for_ever_is_not_asked_for_ever() -> None:
    stage = stateless_stage(answers={"server/discover": refusal(VERSION)})
    async with playing(stage, ready=False, park_after=1) as (line, _):
        await phase(line, Phase.PARKED)
        assert len(stage.requests) <= 3
        assert set(methods(stage)) == {"server/discover"}


@pytest.mark.row("26-V5")
@pytest.mark.parametrize(
    ("versions", "era"),
    [
        (["2025-11-25", VERSION], VERSION),
        ([VERSION, "2025-06-18"], VERSION),
        (["2027-01-01", VERSION], VERSION),
        (["2025-11-25"], "2025-11-25"),
        (["2027-01-01", "2025-06-18"], "2025-11-25"),
    ],
)
async def test_of_the_listed_revisions_one_without_a_handshake_comes_first(versions: list[str], era: str) -> None:
    for answer in (discovered(supportedVersions=versions), refusal(*versions)):
        stage = Stage()
        stage.answers["server/discover"] = in_turn(answer, discovered())
        async with playing(stage) as (line, _):
            assert line.welcome is not None
            assert line.welcome.version == era
            assert ("initialize" in methods(stage)) is (era != VERSION)


@pytest.mark.row("26-S1", "26-V4")
@settings(max_examples=examples(500))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([VERSION, "2025-11-25"]),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=12,
    ),
    st.integers(-33000, 10),
)
def test_whatever_a_server_says_has_one_reading(value: Any, code: int) -> None:
    """A welcome, or an error that says why there is none; a refusal never goes both ways."""
    said = {"supportedVersions": value, "capabilities": value, "_meta": value, "instructions": value}
    for found in (read_discovery(said, None), read_discovery(None, PeerError(code, "no", {"supported": value}))):
        assert (found.welcome is None) is (found.error is not None)
        assert not (found.welcome is not None and (found.may_initialize or found.ask_again))
        assert not (found.may_initialize and found.ask_again)
        assert len(str(found.error)) < 1000


# --- verdicts


@asynccontextmanager
async def endpoint(stage: Stage, verdicts: EraVerdicts, **settings: Any) -> AsyncGenerator[ConnectionLine]:
    """A connection to a server that is known by its name, with verdicts of its own."""
    stage.endpoint = "the server"  # type: ignore[attr-defined]
    line = ConnectionLine("stage", ClientSettings(**settings))
    line.verdicts = verdicts
    await start(ServerConnection, line, stage, ClientHandler())
    try:
        await line.ready()
        yield line
    finally:
        await line.close()


@pytest.mark.row("26-V10")
async def test_an_older_server_is_asked_once_for_its_era() -> None:
    verdicts = EraVerdicts()
    for expected in (HELLO, ["initialize"], ["initialize"]):
        stage = Stage()
        async with endpoint(stage, verdicts) as line:
            assert methods(stage) == expected
            await stage.wire.break_off(ConnectionLost("pulled out"))
            await line.ready()
            assert methods(stage) == [*expected, "initialize"]
    assert verdicts.of("the server") == "2025-11-25"


@pytest.mark.row("26-V10")
async def test_a_server_that_has_become_stateless_is_found_out_on_the_same_wire() -> None:
    verdicts = EraVerdicts()
    verdicts.learn("the server", "2025-11-25")
    for refused in (refusal(VERSION), PeerError(-32601, "Method not found: initialize"), PeerError(-32602, "no")):
        verdicts.learn("the server", "2025-11-25")
        stage = stateless_stage(answers={"initialize": refused})
        async with endpoint(stage, verdicts) as line:
            assert (methods(stage), len(stage.wires)) == (["initialize", "server/discover"], 1)
            assert line.welcome is not None
            assert line.welcome.version == VERSION
        assert verdicts.of("the server") == VERSION


@pytest.mark.row("26-V10")
async def test_a_server_that_has_become_older_is_found_out_too() -> None:
    verdicts = EraVerdicts()
    verdicts.learn("the server", VERSION)
    stage = Stage()
    async with endpoint(stage, verdicts):
        assert methods(stage) == HELLO
    assert verdicts.of("the server") == "2025-11-25"


@pytest.mark.row("26-V10")
@pytest.mark.parametrize("error", [refusal("2025-11-25"), refusal(), PeerError(-32600, "Bad Request: no session")])
async def test_a_call_that_meets_an_older_server_is_sent_again_after_a_handshake(error: PeerError) -> None:
    """The server has been replaced behind the same address: it did not execute the call, which is sent once more."""
    verdicts = EraVerdicts()
    stage = stateless_stage()
    stage.is_http = True

    def replaced(_: object) -> PeerError:
        older = Stage()
        older.answers["tools/call"] = DONE
        stage.answers = older.answers | {"initialize": older.answers["initialize"]}
        return error

    stage.answers["tools/call"] = replaced
    async with endpoint(stage, verdicts) as line:
        assert await line.request("tools/call", CALL) == DONE
        assert methods(stage) == ["server/discover", "tools/call", *HELLO, "tools/call"]
        first, second = stage.asked("tools/call")
        assert first.id != second.id
        assert ("_meta" in first.params, "_meta" in second.params) == (True, False)
        assert line.generation == 2
    assert verdicts.of("the server") == "2025-11-25"


@pytest.mark.row("26-V10")
@pytest.mark.parametrize(
    "error",
    [
        refusal(VERSION),
        PeerError(-32602, f"Missing params._meta[{PREFIX}protocolVersion]"),
        refusal(VERSION, code=-32600),
    ],
)
async def test_a_call_of_a_session_that_meets_a_stateless_server_is_sent_again_with_an_envelope(
    error: PeerError,
) -> None:
    verdicts = EraVerdicts()
    stage = Stage()

    def replaced(_: object) -> PeerError:
        stage.answers = stateless_stage(answers={"tools/call": DONE}).answers
        return error

    stage.answers["tools/call"] = replaced
    async with endpoint(stage, verdicts) as line:
        assert await line.request("tools/call", CALL) == DONE
        assert methods(stage) == [*HELLO, "tools/call", "server/discover", "tools/call"]
        assert f"{PREFIX}protocolVersion" in stage.asked("tools/call")[1].params["_meta"]
    assert verdicts.of("the server") == VERSION


@pytest.mark.row("26-V10", "26-M13")
@pytest.mark.parametrize("error", [refusal(VERSION), PeerError(-32600, "the tool says so")])
async def test_a_server_that_answers_so_without_having_changed_is_believed_at_once_or_after_one_look(
    error: PeerError,
) -> None:
    """Its answer is the answer; the next one of that kind costs no look at all."""
    stage = stateless_stage(answers={"tools/call": error})
    async with endpoint(stage, EraVerdicts()) as line:
        for _ in range(3):
            with pytest.raises(PeerError) as refused:
                await line.request("tools/call", CALL)
            assert refused.value.code == error.code
        assert len(stage.asked("tools/call")) <= 6
        assert len(stage.asked("server/discover")) <= 4
        assert "initialize" not in methods(stage)


async def test_a_pinned_client_takes_no_verdict_and_gives_none() -> None:
    verdicts = EraVerdicts()
    verdicts.learn("the server", "2025-11-25")
    async with endpoint(stateless_stage(), verdicts, mode=VERSION):
        assert verdicts.of("the server") == "2025-11-25"
    verdicts.clear()
    async with endpoint(Stage(), verdicts, mode="legacy"):
        assert len(verdicts) == 0


def test_verdicts_are_bounded_and_the_oldest_goes_first() -> None:
    verdicts = EraVerdicts(most=2)
    verdicts.learn("", VERSION)
    for name in ("a", "b", "a"):
        verdicts.learn(name, VERSION)
    verdicts.learn("a", "2025-11-25")
    verdicts.learn("c", VERSION)
    assert [verdicts.of(name) for name in ("", "a", "b", "c")] == [None, "2025-11-25", None, VERSION]
    verdicts.forget("a")
    assert (verdicts.of("a"), len(verdicts)) == (None, 1)
