"""However a reader comes and goes, it gets each event once and in order, or is told where some are missing.

A client that loses its connection comes back with the id of the last event that it has seen, or without one when it has seen none; what it was
handed may have been lost on the way. A plan is a list of what server, network and client do in turn.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.reply_sinks import StreamReplySink
from greenroom.actors.session_streams import TRUNCATED
from greenroom.actors.settings import Settings
from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.supervision.testing import run

if TYPE_CHECKING:
    from greenroom.transports.interfaces import Feed, FeedEvent

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 6)),
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.just(0)),
        st.tuples(st.just("take over"), st.just(0)),
    ),
    max_size=40,
)


class Client:
    """A reader that keeps the events it has seen, and resumes after them."""

    def __init__(self, reply_sink: StreamReplySink) -> None:
        self.reply_sink = reply_sink
        self.last: str | None = None
        self.seen: list[int | None] = []
        self.feed: Feed | None = None

    def come(self) -> Feed:
        if self.feed is None:
            self.feed = self.reply_sink.listen(self.last, LATEST_DIALECT)
        return self.feed

    async def read(self, lost: int = 0) -> None:
        """Read what there is; the last `lost` events do not arrive, and with them the connection is gone.

        The mark at the beginning always arrives: a client without it has nothing to come back with.
        """
        feed = self.come()
        events: list[FeedEvent] = []
        while more := await feed.next(0.01):
            events.extend(more)
        arrived = len(events) - lost if self.last is not None else max(1, len(events) - lost)
        for event in events[: max(0, arrived)]:
            self.see(event)
        if lost:
            feed.leave()
            self.feed = None

    def see(self, event: FeedEvent) -> None:
        if event.id:
            self.last = event.id
        if event.data == TRUNCATED:
            self.seen.append(None)
        elif event.data:
            self.seen.append(int(event.data))


async def play(steps: list[tuple[str, int]], kept: int) -> None:
    reply_sink = StreamReplySink(Settings(buffer_events=kept))
    client = Client(reply_sink)
    said = 0
    for step, number in steps:
        match step:
            case "say":
                for _ in range(number):
                    said += 1
                    reply_sink.notify(None, b"%d" % said, LATEST_DIALECT)
            case "read":
                await client.read()
            case "lose":
                await client.read(number)
            case "leave" if client.feed is not None:
                client.feed.leave()
                client.feed = None
            case "take over":
                before, client.feed = client.feed, None
                client.come()
                assert before is None or await before.next(0.01) is None
            case _:
                pass
    reply_sink.notify(None, b"%d" % (said + 1), LATEST_DIALECT)
    await client.read()
    check(client.seen, said + 1)


def check(seen: list[int | None], last: int) -> None:
    """In order, nothing twice, and nothing missing without a word."""
    assert seen[-1] == last, seen
    before, gap = 0, False
    for each in seen:
        if each is None:
            gap = True
            continue
        assert each > before, f"{each} comes again: {seen}"
        assert each == before + 1 or gap, f"something before {each} is missing without a word: {seen}"
        before, gap = each, False


@settings(max_examples=examples(300))
@given(steps=Steps, kept=st.sampled_from([3, 8, 100]))
def test_each_event_is_read_once_and_in_order_or_marked_as_missing(steps: list[tuple[str, int]], kept: int) -> None:
    run(partial(play, steps, kept))
