"""A federation as one server: lists, forwarded requests, and messages back to the client of the call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Server, Settings, ToolFailed
from greenroom.protocol.errors import PeerError, RequestCancelled
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Progress


from .recording_upstream import UNREACHABLE, Upstream, agrees, client, gateway, run, says, session_host


def test_everything_is_listed_over_all_pages() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"), Upstream("two"))

        @server.tool
        def own() -> str:
            return "mine"

        async with client(server) as peer:
            names = [one.name for one in await peer.list_tools()]
            assert names == sorted(names)
            assert len(names) == 23
            assert {"one__add", "two__add", "own"} <= set(names)
            assert {one.uri for one in await peer.list_resources()} == {
                "upstream://one/note://one",
                "upstream://two/note://one",
            }
            assert "upstream://one/note://{id}/more" in {
                one.uri_template for one in await peer.list_resource_templates()
            }
            assert {one.name for one in await peer.list_prompts()} == {"one__greet", "two__greet"}
            assert await peer.call("own") == "mine"
            assert await peer.call("two__add", a=1, b=2) == 3

    run(main)


def test_resources_prompts_and_completions_come_through() -> None:
    async def main() -> None:
        async with client(gateway(Upstream("one"))) as peer:
            reply = await peer.read_resource("upstream://one/note://one")
            assert reply.text == "a note"
            assert reply.contents[0].uri == "upstream://one/note://one"
            assert (await peer.read_resource("upstream://one/note://7/more")).text == "more of 7"
            assert "Greet Ann." in str(await peer.get_prompt("one__greet", name="Ann"))
            assert list((await peer.complete("one__greet", "name", "A")).values) == ["Ann"]
            link = (await peer.call_tool("one__link")).content[0]
            assert link.uri == "upstream://one/note://one"
            assert (await peer.read_resource(link.uri)).text == "a note"
            with pytest.raises(PeerError) as caught:
                await peer.read_resource("upstream://one/note://none")
            assert caught.value.code == -32002
            assert caught.value.data["uri"] == "upstream://one/note://none"
            with pytest.raises(PeerError):
                await peer.read_resource("upstream://missing/note://one")

    run(main)


def test_the_upstreams_own_errors_are_the_clients() -> None:
    async def main() -> None:
        async with client(gateway(Upstream("one"))) as peer:
            with pytest.raises(PeerError) as caught:
                await peer.call("one__fail")
            assert (caught.value.code, caught.value.message) == (-32050, "own error")
            assert caught.value.data == {"uri": "upstream://one/note://one", "k": 1}
            reply = await peer.call_tool("one__add", {"a": 1})
            assert reply.is_error
            with pytest.raises(PeerError, match="one__nothing"):
                await peer.call_tool("one__nothing")

    run(main)


# --- both ways


def test_progress_and_log_messages_come_back() -> None:
    async def main() -> None:
        logged: list[tuple[str | None, Any]] = []
        server = gateway(Upstream("one"))
        async with client(
            server, sampling=says("x"), on_log=lambda said: logged.append((said.logger, said.data))
        ) as peer:
            steps: list[Progress] = []
            await peer.call_tool("one__count", {"to": 5}, on_progress=steps.append)
            assert [(one.progress, one.total, one.message) for one in steps] == [
                (n, 5, f"step {n}") for n in range(1, 6)
            ]
            await peer.call("one__think")
            assert logged == [("one.mind", "thinking")]

    run(main)


def test_a_question_goes_to_the_very_client_whose_call_it_is() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        async with (
            client(server, sampling=says("A")) as first,
            client(server, sampling=says("B"), elicitation=agrees) as second,
        ):
            for _ in range(5):
                answers = await asyncio.gather(*(one.call("one__think") for one in (first, second) * 4))
                assert answers == ["A", "B"] * 4
            assert await second.call("one__confirm") == "accept"
            assert await first.call("one__able") == ["sampling"]
            assert await second.call("one__able") == ["elicitation", "sampling"]

    run(main)


def test_a_principals_two_clients_are_not_taken_for_each_other() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        async with (
            server.started(),
            client(server, "ann", sampling=says("A")) as first,
            client(server, "ann", sampling=says("B")) as second,
        ):
            assert await first.call("one__think") == "A"
            assert await second.call("one__think") == "B"
            waiting = first.start_tool("one__wait")
            await up.waiting.wait()
            with pytest.raises(PeerError, match="not certain"):
                await second.call("one__think")  # both have calls under way on one connection
            waiting.cancel()
            with pytest.raises(RequestCancelled):
                await waiting
            await up.cancelled.wait()
            with pytest.raises(PeerError, match="not certain"):
                await second.call("one__think")  # the upstream may still be at what was given up

    run(main)


@pytest.mark.row("26-M17")
def test_calls_without_a_session_are_asked_each_for_itself_while_others_wait_for_their_users() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        async with server.started() as company:
            ann = StatelessClient(company, Peer("test", principal="ann"))
            confirm: dict[str, Any] = {"name": "one__confirm", "arguments": {}}
            asked = [await ann.result("tools/call", **confirm) for _ in range(3)]
            assert company.exchanges.parked == 3
            for each, action in reversed(list(zip(asked, ["accept", "decline", "cancel"], strict=True))):
                (key,) = each["inputRequests"]
                answer: dict[str, Any] = {
                    "inputResponses": {key: {"action": action, "content": {}}},
                    "requestState": each["requestState"],
                }
                result = await ann.result("tools/call", **confirm, **answer)
                assert result["content"][0]["text"] == action

    run(main)


def test_a_client_that_does_not_want_it_any_more_is_heeded() -> None:
    async def main() -> None:
        up = Upstream("one")
        async with client(gateway(up)) as peer:
            call = peer.start_tool("one__wait")
            await up.waiting.wait()
            call.cancel()
            await asyncio.wait_for(up.cancelled.wait(), 5)
            assert await peer.call("one__add", a=1, b=2) == 3

    run(main)


def test_a_client_that_goes_away_takes_its_calls_along() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        async with server.started():
            async with client(server) as peer:
                call = peer.start_tool("one__wait")
                await up.waiting.wait()
            await asyncio.wait_for(up.cancelled.wait(), 5)
            with pytest.raises(Exception, match="closed"):
                await call

    run(main)


def test_an_upstream_logs_what_its_client_wants_to_hear() -> None:
    async def main() -> None:
        heard: dict[str, list[Any]] = {"quiet": [], "curious": []}
        server = gateway(Upstream("one"))
        async with (
            server.started(),
            client(server, on_log=lambda said: heard["quiet"].append(said.data)) as quiet,
            client(server, on_log=lambda said: heard["curious"].append(said.data)) as curious,
        ):
            await quiet.set_log_level("error")
            await quiet.call("one__chat")
            await curious.call("one__chat")
            await curious.set_log_level("debug")
            await curious.call("one__chat")
        assert heard == {"quiet": ["trouble"], "curious": ["trouble", "small talk", "trouble"]}

    run(main)


def test_a_user_who_has_to_go_somewhere_first_is_sent_and_the_client_hears_when_they_are_back() -> None:
    async def main() -> None:
        up = Upstream("one")
        async with (
            client(gateway(up), url_elicitation=agrees) as peer,
            peer.listen("notifications/elicitation/complete") as told,
        ):
            with pytest.raises(PeerError) as caught:
                await peer.call("one__sign_in")
            assert caught.value.code == -32042
            assert caught.value.data["elicitations"][0]["url"] == "https://example.org/visit-1"
            assert up.server.elicitation_complete("visit-1")
            word = await anext(aiter(told))
            assert word.params["elicitationId"] == "visit-1"

    run(main)


def test_a_call_that_takes_too_long_is_given_up_upstream_too() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = Server("front", settings=Settings(call_timeout=0.2))
        server.mount(session_host({"one": up.server}))
        async with client(server) as peer:
            with pytest.raises(ToolFailed, match=r"'one__wait' timed out.*0\.2 s"):
                await peer.call("one__wait")
            await asyncio.wait_for(up.cancelled.wait(), 5)
            assert await peer.call("one__add", a=1, b=2) == 3

    run(main)


def test_over_http_it_is_the_same() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        async with server.started():
            url = await server.listen(port=0)
            async with (
                client(url, sampling=says("A")) as first,
                client(url, sampling=says("B"), elicitation=agrees) as second,
            ):
                answers = await asyncio.gather(*(one.call("one__think") for one in (first, second) * 3))
                assert answers == ["A", "B"] * 3
                assert await second.call("one__confirm") == "accept"
                steps: list[Progress] = []
                await first.call_tool("one__count", {"to": 3}, on_progress=steps.append)
                assert [one.progress for one in steps] == [1, 2, 3]
                assert await first.call("one__remember", what="x") == "nothing"
                assert await second.call("one__remember", what="y") == "nothing"
                call = first.start_tool("one__wait")
                await up.waiting.wait()
                call.cancel()
                await asyncio.wait_for(up.cancelled.wait(), 5)
            await server.stop_listening(url)

    run(main)


def researching(begun: asyncio.Event, ended: asyncio.Event) -> Server:
    up = Server("up")

    @up.tool(task_support="required")
    async def research(topic: str) -> str:
        return f"all of {topic}"

    @up.tool(task_support="required")
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    return up


async def test_a_tool_that_is_called_as_a_task_only_is_called_as_one_and_its_result_waited_for() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    server = Server("front")
    server.mount(session_host({"up": researching(begun, ended)}))
    async with client(server) as peer:
        tool = next(one for one in await peer.list_tools() if one.name == "up__research")
        assert tool.to_wire()["execution"] == {"taskSupport": "optional"}, "the gateway can wait for the task itself"
        assert await peer.call("up__research", topic="tea") == "all of tea"
        call = peer.start_tool("up__endless")
        await begun.wait()
        call.cancel()
        await ended.wait()
        assert await peer.call("up__research", topic="milk") == "all of milk"


async def test_removing_a_server_ends_a_call_that_is_made_as_a_task() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    host, server = session_host({"up": researching(begun, ended)}), Server("front")
    server.mount(host)
    async with client(server) as peer:
        call = peer.start_tool("up__endless")
        await begun.wait()
        await host.remove("up", grace=0)
        with pytest.raises(PeerError) as caught:
            await call
        assert caught.value.data == {"server": "up", "reason": "closed"}


@pytest.mark.parametrize("prefix", ["", "up:"])
def test_a_call_of_a_server_that_was_never_reached_is_an_error_at_once_with_its_reason(prefix: str) -> None:
    async def main() -> None:
        host, server = session_host({"gone": UNREACHABLE, "one": Upstream("one").server}, patience=5.0), Server("front")
        server.mount(host, prefix)
        public = prefix.replace(":", "__")
        async with client(server) as peer:
            await peer.list_tools()
            for call in (peer.call(f"{public}gone__x"), peer.get_prompt(f"{public}gone__x")):
                with pytest.raises(PeerError) as caught:
                    await call
                assert caught.value.code == -32603
                assert caught.value.data["server"] == "gone"
                assert caught.value.data["reason"] == "unavailable"
                assert caught.value.data["cause"] == "connect_failed"
            for name in ("missing__x", "gon__x", f"{public}one__x"):
                with pytest.raises(PeerError, match="Unknown tool"):
                    await peer.call(name)

    run(main)
