"""The handshake and the frames by themselves: bytes in, bytes out, and no peer without the key gets anywhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision.cluster import framing
from greenroom.supervision.cluster import framing as sealing
from greenroom.supervision.cluster.framing import (
    HEAD_BYTES,
    PIECE,
    Handshake,
    LinkRefused,
    Seal,
    Unframer,
    batch,
    check_key,
    frames,
    greeting,
)

KEY, OTHER = b"k" * 32, b"o" * 32


def ends(one: bytes = KEY, two: bytes = KEY) -> tuple[Handshake, Handshake]:
    """A dialler and a listener."""
    return (
        Handshake(one, greeting("one", 1, addresses=("unix:@one",)), dialling=True),
        Handshake(two, greeting("two", 2), dialling=False),
    )


def shake(dialler: Handshake, listener: Handshake) -> None:
    """Run the whole handshake."""
    hello = listener.take(dialler.first())
    assert hello is not None
    proof = dialler.take(hello)
    assert proof is not None
    assert listener.take(proof) is None


def test_both_ends_know_each_other_and_have_the_same_seals() -> None:
    dialler, listener = ends()
    shake(dialler, listener)
    assert dialler.done
    assert listener.done
    assert (dialler.peer.name, listener.peer.name) == ("two", "one")  # type: ignore[union-attr]
    assert listener.peer.addresses == ("unix:@one",)  # type: ignore[union-attr]
    for (out, _), (_, back) in ((dialler.seals(), listener.seals()), (listener.seals(), dialler.seals())):
        for number in range(3):
            assert back.check(0, out.mac(0, b"x%d" % number), b"x%d" % number)


def test_an_end_with_another_key_is_refused_by_the_other() -> None:
    dialler, listener = ends(KEY, OTHER)
    hello = listener.take(dialler.first())
    with pytest.raises(LinkRefused, match="key"):
        dialler.take(hello or b"")
    dialler, listener = ends(OTHER, KEY)
    listener.take(dialler.first())
    for proof in (b"", b"\0" * 32, dialler._sign(b"dialler"), listener._sign(b"listener")):
        with pytest.raises(LinkRefused, match="key"):
            listener.take(proof)
    assert not listener.done


def test_a_replayed_handshake_is_refused() -> None:
    dialler, listener = ends()
    first = dialler.first()
    hello = listener.take(first)
    proof = dialler.take(hello or b"")
    assert proof is not None
    again = Handshake(KEY, greeting("two", 2), dialling=False)
    again.take(first)
    with pytest.raises(LinkRefused, match="key"):
        again.take(proof)


def test_a_reflected_handshake_is_refused() -> None:
    dialler, listener = ends()
    hello = listener.take(dialler.first())
    assert hello is not None
    with pytest.raises(LinkRefused, match="key"):
        listener.take(hello[-32:])  # its own proof, sent back
    with pytest.raises(LinkRefused, match="key"):
        dialler.take(dialler.first() + hello[-32:])  # its own greeting, sent back
    with pytest.raises(LinkRefused):
        Handshake(KEY, greeting("one", 1), dialling=True).take(dialler.first())


def test_a_changed_greeting_is_found_out() -> None:
    dialler, listener = ends()
    hello = listener.take(dialler.first())
    assert hello is not None
    for place in range(len(hello)):
        bent = bytes((*hello[:place], hello[place] ^ 1, *hello[place + 1 :]))
        with pytest.raises(LinkRefused):
            Handshake.take(dialler, bent)
        dialler = Handshake(KEY, dialler._mine, dialling=True)


def test_another_version_is_said_to_be_one() -> None:
    old = msgspec.structs.replace(greeting("old", 1), version=99)
    _, listener = ends()
    with pytest.raises(LinkRefused, match=r"'old' speaks version 99 .* same version"):
        listener.take(msgspec.msgpack.encode(old))


@given(st.binary(max_size=200))
def test_whatever_is_said_instead_of_a_greeting_is_refused(noise: bytes) -> None:
    for end in ends():
        with pytest.raises(LinkRefused):
            end.take(noise)


def test_more_than_a_handshake_has_is_refused() -> None:
    dialler, listener = ends()
    shake(dialler, listener)
    for end in (dialler, listener):
        with pytest.raises(LinkRefused, match="more than a handshake has"):
            end.take(b"x")


def test_guessable_keys_are_refused_and_reprs_show_no_secrets() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        check_key(b"short")
    assert check_key(KEY) is KEY
    dialler, listener = ends()
    assert "an unknown peer" in repr(dialler)
    shake(dialler, listener)
    assert "two" in repr(dialler)
    for shown in (repr(dialler), repr(listener), repr(dialler.seals())):
        assert "kkkk" not in shown
        assert "key" not in shown


# --- frames


def sealed(payloads: list[bytes], key: bytes = KEY) -> list[bytes]:
    """The frames of some payloads."""
    seal = Seal(key)
    return [frame for payload in payloads for frame in frames(payload, seal)]


def _bent(frame: bytes, at: int) -> bytes:
    return bytes((*frame[:at], frame[at] ^ 0x40, *frame[at + 1 :]))


def drain(unframer: Unframer, made: list[bytes], found: list[bytes]) -> None:
    """Collect the payloads of some frames in `found`, until one raises."""
    for each in unframer.feed(b"".join(made)):
        found.append(each)  # noqa: PERF402 - as above


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_payloads_come_out_as_they_went_in_however_they_are_cut(payloads: list[bytes], data: Any) -> None:
    stream = b"".join(sealed(payloads))
    unframer, start = Unframer(Seal(KEY)), 0
    found: list[bytes] = []
    while start < len(stream):
        end = start + data.draw(st.integers(1, max(1, len(stream) - start)))
        found += unframer.feed(stream[start:end])
        start = end
    assert found == payloads


def test_a_handshake_works_byte_by_byte() -> None:
    payloads = [b"", b"a", b"b" * 100]
    unframer = Unframer(Seal(KEY))
    assert [each for byte in b"".join(sealed(payloads)) for each in unframer.feed(bytes((byte,)))] == payloads


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 17])
def test_a_long_one_goes_in_pieces(size: int) -> None:
    made = sealed([bytes(size), b"next"])
    assert len(made) == -(-size // PIECE) + 1
    assert max(map(len, made)) <= PIECE + HEAD_BYTES
    unframer = Unframer(Seal(KEY))
    assert [each for frame in made for each in unframer.feed(frame)] == [bytes(size), b"next"]


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=2, max_size=5), st.data())
def test_no_frame_can_be_changed_left_out_repeated_or_moved(payloads: list[bytes], data: Any) -> None:
    made: list[bytes] = sealed(payloads)
    place: int = data.draw(st.integers(0, len(made) - 2))
    match data.draw(st.sampled_from(["change", "leave out", "repeat", "swap", "another key"])):
        case "change":
            at: int = data.draw(st.integers(4, len(made[place]) - 1))
            made[place] = _bent(made[place], at)
        case "leave out":
            del made[place]
        case "repeat":
            made.insert(place, made[place])
        case "swap":
            made[place], made[place + 1] = made[place + 1], made[place]
        case _:
            made = sealed(payloads, OTHER)
            place = 0
    unframer = Unframer(Seal(KEY))
    found: list[bytes] = []
    with pytest.raises(LinkRefused):
        drain(unframer, made, found)
    assert found == payloads[: len(found)]
    assert len(found) <= place + 1


def test_too_much_is_refused_before_it_is_kept() -> None:
    head = (PIECE + 1).to_bytes(4, "big") + b"\0" + bytes(16)
    with pytest.raises(LinkRefused, match="no node of this version sends"):
        list(Unframer(Seal(KEY)).feed(head))
    unframer = Unframer(Seal(KEY), largest=PIECE + 5)
    with pytest.raises(LinkRefused, match="more than"):
        drain(unframer, sealed([bytes(PIECE + 6)]), [])
    unframer = Unframer(Seal(KEY), largest=5)
    assert list(unframer.feed(sealed([b"12345"])[0])) == [b"12345"]
    with pytest.raises(LinkRefused, match="more than"):
        list(Unframer(Seal(KEY), largest=5).feed(sealed([b"123456"])[0]))


def test_a_batch_is_a_list_of_what_was_encoded() -> None:
    items = [msgspec.msgpack.encode(each) for each in (1, "two", [3])]
    assert msgspec.msgpack.decode(batch(items)) == [1, "two", [3]]
    assert msgspec.msgpack.decode(batch([])) == []
    assert framing.LARGEST > PIECE > sealing.GREETING_LIMIT
