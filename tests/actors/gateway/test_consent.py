"""A host's rules and pins hold at a gateway as well, for each client's call and for each question of an upstream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Host, Server
from greenroom.host import Consent, ConsentQuestion, Permissions, Rule
from greenroom.protocol.errors import PeerError

from .recording_upstream import Upstream, agrees, client, gateway, run

if TYPE_CHECKING:
    from collections.abc import Mapping


def rules(*written: tuple[Any, str]) -> Permissions:
    return Permissions([Rule(verdict, pattern) for verdict, pattern in written])


@pytest.mark.row("CB-16")
@pytest.mark.parametrize("shared", [False, True])
def test_tools_denied_to_the_host_are_denied_to_its_clients(*, shared: bool) -> None:
    async def main() -> None:
        up = Upstream("one")
        consent = Consent(rules(("deny", "remember"), ("allow", "add")))
        async with client(gateway(up, consent=consent, shared=shared)) as peer:
            assert await peer.call("one__add", a=1, b=2) == 3
            for tool, why in (("remember", "deny: deny 'remember'"), ("able", "no user can be asked")):
                reply = await peer.call_tool(f"one__{tool}", {"what": "x"} if tool == "remember" else {})
                assert reply.is_error
                assert f"one:{tool} is not allowed" in reply.text
                assert why in reply.text
        assert up.memory == {}

    run(main)


@pytest.mark.row("CB-16")
def test_the_consent_question_names_the_clients_call() -> None:
    async def main() -> None:
        asked: list[tuple[str, Mapping[str, Any]]] = []

        def ask(question: ConsentQuestion) -> bool:
            asked.append((question.name, question.arguments))
            return bool(question.arguments["a"] == 1)

        async with client(gateway(Upstream("one"), consent=Consent(ask=ask))) as peer:
            assert await peer.call("one__add", a=1, b=2) == 3
            assert (await peer.call_tool("one__add", {"a": 2, "b": 2})).is_error
        assert asked == [("one:add", {"a": 1, "b": 2}), ("one:add", {"a": 2, "b": 2})]

    run(main)


def test_a_tool_that_is_not_as_it_was_pinned_is_asked_about() -> None:
    async def main() -> None:
        consent = Consent(rules(("allow", "*")))
        async with client(gateway(Upstream("one"), consent=consent, pins={"one:add": "0" * 64})) as peer:
            reply = await peer.call_tool("one__add", {"a": 1, "b": 2})
            assert reply.is_error
            assert "no user can be asked: check the tool, and pin it again" in reply.text

    run(main)


@pytest.mark.row("CB-13")
@pytest.mark.parametrize(
    ("written", "action"),
    [(("deny", "Elicit(one)"), "decline"), (("ask", "Elicit(one)"), "accept"), (("allow", "x"), "accept")],
)
def test_an_upstream_without_permission_to_ask_asks_no_client(written: tuple[Any, str], action: str) -> None:
    """Where it is not denied, the client's own user decides."""

    async def main() -> None:
        consent = Consent(rules(("allow", "*"), written))
        asked: list[Any] = []

        def answers(form: Any) -> Any:
            asked.append(form)
            return agrees(form)

        server = gateway(Upstream("one"), consent=consent)
        async with server.started(), client(server, "ann", elicitation=answers, url_elicitation=answers) as peer:
            assert await peer.call("one__confirm") == action
            with pytest.raises(PeerError) as caught:
                await peer.call("one__sign_in")
        assert len(asked) == (action == "accept")
        assert ("https://example.org" in str(caught.value.data)) is (action == "accept")
        if action == "decline":
            assert caught.value.data == {"server": "one", "reason": "consent_denied"}

    run(main)


@pytest.mark.row("CB-16")
def test_a_client_that_does_not_want_it_any_more_need_not_be_answered_for() -> None:
    async def main() -> None:
        asked, over = asyncio.Event(), asyncio.Event()

        async def ask(_: ConsentQuestion) -> bool:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                over.set()
            return True

        async with client(gateway(Upstream("one"), consent=Consent(ask=ask))) as peer:
            call = peer.start_tool("one__add", {"a": 1, "b": 2})
            await asked.wait()
            call.cancel()
            await asyncio.wait_for(over.wait(), 60)

    run(main)


@pytest.mark.row("CB-16")
def test_consent_for_a_replaced_server_does_not_hold_for_its_successor() -> None:
    class Moving(Host):
        """A host whose server is replaced while a client's own connection to it is opened."""

        def connection(self, id: str, handler: Any, caller: Any = None, principal: Any = None) -> Any:
            last = self.federation.serial(id) or 0

            def moved(_: str) -> int:
                return last + 1

            setattr(self.federation, "serial", moved)  # noqa: B010 - of this one alone
            return super().connection(id, handler, caller, principal)

    async def main() -> None:
        up, server = Upstream("one"), Server("front")
        server.mount(Moving({"one": up.server}))
        async with client(server) as peer:
            with pytest.raises(PeerError) as caught:
                await peer.call("one__remember", what="x")
            assert caught.value.data == {"server": "one", "reason": "unavailable", "maybeDone": False}
            assert up.memory == {}
            assert await peer.call("one__remember", what="x") == "nothing"

    run(main)


@pytest.mark.parametrize("shared", [False, True])
def test_a_server_removed_during_the_consent_question_is_unavailable(*, shared: bool) -> None:
    async def main() -> None:
        up = Upstream("one")

        async def ask(_: ConsentQuestion) -> bool:
            (mounted,) = server._gateways
            await mounted.host.remove("one")  # type: ignore[attr-defined]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
            return True

        server = gateway(up, consent=Consent(ask=ask), shared=shared)
        async with client(server) as peer:
            with pytest.raises(PeerError, match="'one' has not answered") as caught:
                await peer.call("one__remember", what="x")
            assert caught.value.data["server"] == "one"
            assert up.memory == {}
            with pytest.raises(PeerError, match="one__remember"):
                await peer.call("one__remember", what="x")

    run(main)
