"""A guest in a real Thespian system: every request is answered once, whatever happens to the node."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.actors.thespian_guests.programs import theirs

from greenroom import ConfigError
from greenroom.supervision.cluster.foreign_actor import is_simple, private_endpoint
from greenroom.supervision.cluster.thespian_patches import ActorExitRequest
from greenroom.thespian import (
    Answer,
    CallTool,
    Connect,
    Connected,
    Ended,
    Failed,
    GetPrompt,
    Guest,
    Listed,
    ListPrompts,
    ListResources,
    ListResourceTemplates,
    ListServers,
    ListTools,
    PromptMessages,
    ReadResource,
    Request,
    ResourceContents,
    Servers,
    Subscribe,
    Subscribed,
    ToolResult,
    Unsubscribe,
    Unsubscribed,
    Updated,
    ask,
)

from .systems import simple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .systems import NodeProgram

pytestmark = [
    pytest.mark.greenroom(clock="real"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # of Thespian's own endpoints
]
OF_PROCESSES = pytest.mark.parametrize("system", ["processes"], indirect=True)
SOON = 10.0
OSLO = {"city": "Oslo"}
A = TypeVar("A", bound=Answer)


class House:
    """A connected guest, and short methods for its requests."""

    def __init__(self, system: Any, node: NodeProgram, guest: Any = Guest) -> None:
        self.system = system
        self.guest = system.createActor(guest)
        self.hello = ask(system, self.guest, Connect(node.address, key_file=str(node.key)))

    def ask(self, request: Request, kind: type[A]) -> A:
        answer = ask(self.system, self.guest, request)
        assert isinstance(answer, kind), answer
        assert answer.ticket == request.ticket
        return answer

    def refusal(self, request: Request) -> str:
        return self.ask(request, Failed).reason


@pytest.fixture
def house(system: Any, node: NodeProgram) -> House:
    made = House(system, node)
    assert made.hello == Connected(node.address, ticket=made.hello.ticket)
    return made


def soon(true: Callable[[], object]) -> None:
    """Poll until it is so: there is no event for it."""
    late = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < late
        time.sleep(0.01)


def test_a_guest_request_always_gets_one_answer(house: House) -> None:
    called = house.ask(CallTool("weather", "forecast", OSLO), ToolResult)
    assert (called.text, called.is_error) == ("sunny in Oslo", False)
    failed = house.ask(CallTool("weather", "fail"), ToolResult)
    assert (failed.text, failed.is_error) == ("there is no weather today", True)
    assert house.ask(ReadResource("weather", "sky://now"), ResourceContents).text == "blue"
    prompt = house.ask(GetPrompt("weather", "pack", OSLO), PromptMessages)
    assert prompt.messages[0]["content"]["text"] == "what to pack for Oslo"
    servers = house.ask(ListServers(), Servers)
    assert servers.states["weather"] == "ready"
    assert servers.states["offline"] != "ready"


def test_lists_say_whose_they_are_and_who_is_away(house: House) -> None:
    tools = house.ask(ListTools("weather"), Listed).items["weather"]
    assert {tool["name"] for tool in tools} == {"forecast", "slow", "fail", "large", "change"}
    everywhere = house.ask(ListTools(), Listed)
    assert (list(everywhere.items), list(everywhere.away)) == (["weather"], ["offline"])
    assert house.ask(ListResources("weather"), Listed).items["weather"][0]["uri"] == "sky://now"
    assert house.ask(ListResourceTemplates("weather"), Listed).items == {"weather": []}
    assert house.ask(ListPrompts("weather"), Listed).items["weather"][0]["name"] == "pack"


def test_invalid_guest_requests_are_refused(house: House) -> None:
    assert house.refusal(CallTool("unknown", "forecast")) == "unknown_server"
    assert house.refusal(CallTool("weather", "nothing")) == "unknown_tool"
    assert house.refusal(CallTool("weather", "forecast", {"town": "Oslo"})) == "invalid_arguments"
    assert house.refusal(ReadResource("weather", "sky://never")) == "peer_error"
    assert house.refusal(CallTool("weather", 3)) == "bad_request"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert house.refusal(CallTool("weather", "forecast", {"city": object()})) in ("bad_request", "away")
    assert house.refusal(CallTool("weather", "forecast", {"city": "x" * 5_000_000})) == "too_large"
    assert len(house.ask(CallTool("weather", "large", {"size": 3_000_000}), ToolResult).text) == 3_000_000
    assert house.refusal(Request()) == "bad_request"
    assert house.ask(CallTool("weather", "forecast", OSLO), ToolResult).text == "sunny in Oslo"


def test_a_time_that_is_over_is_an_answer_and_the_work_is_given_up(house: House, node: NodeProgram) -> None:
    assert house.refusal(CallTool("weather", "slow", {"seconds": 60}, timeout=0.2)) == "timeout"
    soon(Path(f"{node.key}.cancelled").exists)
    assert house.ask(CallTool("weather", "forecast", OSLO), ToolResult).text == "sunny in Oslo"


def test_before_it_is_connected_it_says_so(system: Any, tmp_path: Path) -> None:
    guest = system.createActor(Guest)
    answer = ask(system, guest, CallTool("weather", "forecast", OSLO))
    assert isinstance(answer, Failed)
    assert answer.reason == "not_connected"
    away = ask(system, guest, Connect("unix:@greenroom-test-unused", key=b"k" * 32, timeout=0.2))
    assert isinstance(away, Failed)
    assert (away.reason, "refused" in away.text) == ("away", True)
    for request in (
        Connect("nowhere", key=b"k" * 32, timeout=0.2),
        Connect("unix:@x", key=b"k", timeout=0.2),
        Connect("unix:@x", key_file=str(tmp_path / "none"), timeout=0.2),
    ):
        refused = ask(system, guest, request)
        assert isinstance(refused, Failed)
        assert refused.reason == "refused"


def test_a_wrong_key_is_refused(system: Any, node: NodeProgram) -> None:
    guest = system.createActor(Guest)
    answer = ask(system, guest, Connect(node.address, key=b"another key than that", timeout=5))
    assert isinstance(answer, Failed)
    assert (answer.reason, "key" in answer.text) == ("refused", True)
    refused = ask(system, guest, CallTool("weather", "forecast", OSLO))
    assert isinstance(refused, Failed)
    assert refused.reason == "refused"
    right = ask(system, guest, Connect(node.address, key_file=str(node.key)))
    assert isinstance(right, Connected)


def test_a_node_that_dies_is_an_answer_at_once_and_one_that_comes_back_is_found(
    house: House, node: NodeProgram
) -> None:
    if is_simple(house.system):
        node.kill()
        assert house.refusal(CallTool("weather", "forecast", OSLO)) == "away"
    else:

        def kill() -> None:
            soon(Path(f"{node.key}.slow").exists)
            node.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        before = time.monotonic()
        lost = house.ask(CallTool("weather", "slow", {"seconds": 60}, timeout=60), Failed)
        assert (lost.reason, lost.data) == ("lost", {"maybe_done": True})
        assert time.monotonic() - before < SOON
        killer.join()
    assert house.refusal(CallTool("weather", "forecast", OSLO)) == "away"
    node.start()
    soon(lambda: isinstance(ask(house.system, house.guest, CallTool("weather", "forecast", OSLO)), ToolResult))


def test_a_node_that_is_stopped_is_a_timeout(house: House, node: NodeProgram) -> None:
    node.signal(signal.SIGSTOP)
    try:
        assert house.refusal(CallTool("weather", "forecast", OSLO, timeout=0.3)) == "timeout"
    finally:
        node.signal(signal.SIGCONT)
    assert house.ask(CallTool("weather", "forecast", OSLO), ToolResult).text == "sunny in Oslo"


def test_updates_are_messages_to_the_actor_that_subscribed(house: House, node: NodeProgram) -> None:
    """Two listeners follow one resource; one of them stops; the node dies and comes back."""
    system, guest = house.system, house.guest
    one, two = (system.createActor(f"{theirs.__name__}.Listener") for _ in range(2))

    def heard(who: Any, kind: type[Answer]) -> list[Any]:
        if is_simple(system):
            found: Any = system.ask(who, "heard", 1)
        else:
            with private_endpoint(system) as mine:
                found = mine.ask(who, "heard", SOON)
        return [each for each in found if isinstance(each, kind)]

    subscribe = Subscribe("weather", "sky://now")
    for who in (one, two):
        system.tell(who, (guest, subscribe))
        soon(partial(heard, who, Subscribed))
    house.ask(CallTool("weather", "change"), ToolResult)
    for who in (one, two):
        soon(partial(heard, who, Updated))
    first = heard(one, Updated)[0]
    assert (first.uri, first.gap, first.ticket) == ("sky://now", False, subscribe.ticket)
    system.tell(two, (guest, Unsubscribe("weather", "sky://now")))
    soon(lambda: heard(two, Unsubscribed))

    node.kill()
    assert house.refusal(CallTool("weather", "forecast", OSLO)) == "away"
    node.start()
    soon(lambda: isinstance(ask(system, guest, CallTool("weather", "forecast", OSLO)), ToolResult))
    soon(lambda: any(each.gap for each in heard(one, Updated)))
    before = len(heard(one, Updated))
    house.ask(CallTool("weather", "change"), ToolResult)
    soon(lambda: len(heard(one, Updated)) > before)
    assert len(heard(two, Updated)) == 1
    assert heard(one, Ended) == []


@OF_PROCESSES
def test_many_concurrent_calls_each_get_their_own_answer(house: House) -> None:
    answers: dict[int, Answer] = {}

    def one(number: int) -> None:
        answers[number] = ask(house.system, house.guest, CallTool("weather", "forecast", {"city": str(number)}))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = {number: answer.text for number, answer in answers.items() if isinstance(answer, ToolResult)}
    assert texts == {number: f"sunny in {number}" for number in range(16)}


@OF_PROCESSES
def test_more_than_it_takes_is_busy(house: House, node: NodeProgram) -> None:
    with private_endpoint(house.system) as mine:
        for _ in range(256):
            mine.tell(house.guest, CallTool("weather", "slow", {"seconds": 60}, timeout=60))
        busy = mine.ask(house.guest, CallTool("weather", "forecast", OSLO), SOON)
        assert isinstance(busy, Failed)
        assert busy.reason == "busy"
        node.kill()  # their own deadline would be a race: on a busy machine the first is over before the last is sent
        reasons = {mine.listen(SOON).reason for _ in range(256)}
    assert reasons == {"lost"}


@OF_PROCESSES
def test_a_guest_that_ends_answers_first(house: House) -> None:
    with private_endpoint(house.system) as mine:
        mine.tell(house.guest, CallTool("weather", "slow", {"seconds": 60}))
        mine.tell(house.guest, ActorExitRequest())
        answer = mine.listen(SOON)
    assert isinstance(answer, Failed)
    assert answer.reason == "closed"
    assert house.refusal(CallTool("weather", "forecast", OSLO, timeout=0.5)) == "away"


@OF_PROCESSES
def test_told_to_connect_anew_it_lets_go_of_what_was(house: House, node: NodeProgram) -> None:
    with private_endpoint(house.system) as mine:
        mine.tell(house.guest, CallTool("weather", "slow", {"seconds": 60}))
        mine.tell(house.guest, Connect(node.address, key_file=str(node.key)))
        answers = [mine.listen(SOON) for _ in range(2)]
    assert [type(answer) for answer in answers] == [Failed, Connected]


def test_invalid_messages_are_answered_and_harm_no_client(house: House) -> None:
    system = house.system
    if is_simple(system):
        answer = system.ask(house.guest, "hello", 1)
    else:
        with private_endpoint(system) as mine:
            answer = mine.ask(house.guest, "hello", SOON)
    assert isinstance(answer, Failed)
    assert answer.reason == "bad_request"
    assert house.ask(CallTool("weather", "forecast", OSLO), ToolResult).text == "sunny in Oslo"


class Looking(Guest):
    """As in a system that neither watches descriptors nor runs in the thread that asks."""

    def __init__(self, capabilities: Mapping[str, Any] | None = None) -> None:
        super().__init__({})


def test_a_guest_polls_where_the_system_does_not_watch_its_descriptor(system: Any, node: NodeProgram) -> None:
    guest = Looking if is_simple(system) else f"{__name__}.Looking"
    house = House(system, node, guest)
    assert isinstance(house.hello, Connected)
    assert house.ask(CallTool("weather", "forecast", OSLO), ToolResult).text == "sunny in Oslo"
    assert house.refusal(CallTool("weather", "slow", {"seconds": 60}, timeout=0.2)) == "timeout"


def test_a_guest_reaches_a_tcp_port_as_well(system: Any, tmp_path: Path) -> None:
    from .systems import NodeProgram  # noqa: PLC0415 - for type checkers above

    node = NodeProgram(tmp_path, "tcp:127.0.0.1:0").start()
    try:
        assert not node.address.endswith(":0")
        house = House(system, node)
        assert house.ask(CallTool("weather", "large", {"size": 1_000_000}), ToolResult).text == "x" * 1_000_000
        node.kill()
        assert house.refusal(CallTool("weather", "forecast", OSLO)) in ("away", "lost")
    finally:
        node.kill()


def test_a_thread_does_not_subscribe() -> None:
    with simple() as system:
        guest = system.createActor(Guest)
        assert isinstance(ask(system, guest, Subscribe("weather", "sky://now")), Failed)


@pytest.mark.parametrize("system", ["simple"], indirect=True)
def test_a_thread_subscribes_in_a_system_that_runs_in_it(house: House) -> None:
    assert isinstance(house.ask(Subscribe("weather", "sky://now"), Subscribed), Subscribed)
    assert isinstance(house.ask(Unsubscribe("weather", "sky://now"), Unsubscribed), Unsubscribed)


@OF_PROCESSES
def test_a_thread_does_not_subscribe_in_a_system_of_processes(house: House) -> None:
    with pytest.raises(ConfigError, match="have an actor send"):
        house.ask(Subscribe("weather", "sky://now"), Subscribed)


def test_messages_pickle_and_keep_their_secrets() -> None:
    for message in (Connect("unix:@x", key=b"secret"), CallTool("a", "b", {"c": 1}), Failed("lost", "why", {"x": 1})):
        assert pickle.loads(pickle.dumps(message)) == message
    assert "secret" not in repr(Connect("unix:@x", key=b"secret"))


PATCHES_NOTHING = """
import pkgutil, sys, importlib
import thespian.actors, thespian.system.multiprocTCPBase, thespian.system.simpleSystemBase, thespian.troupe, thespian.transient
import logging, signal, multiprocessing
def picture():
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "thespian"}
    modules["logging"], modules["signal"] = logging, signal
    found = {(name, word): value for name, module in modules.items() for word, value in vars(module).items()}
    for (name, word), value in tuple(found.items()):
        if isinstance(value, type) and value.__module__.startswith("thespian"):
            found.update({(name, word, each): it for each, it in vars(value).items()})
    return found
before = picture()
handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
import greenroom.thespian
for each in pkgutil.walk_packages(greenroom.actors.thespian_guests.__path__, "greenroom.actors.thespian_guests."):
    importlib.import_module(each.name)
after = picture()
changed = [key for key in before if before[key] is not after.get(key) and not key[-1].startswith("__")]
changed += [number for number, handler in handlers.items() if signal.getsignal(number) != handler]
print(len(before) > 1000, changed)
"""


def test_importing_greenroom_patches_nothing_of_theirs() -> None:
    done = subprocess.run([sys.executable, "-c", PATCHES_NOTHING], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "True []"
