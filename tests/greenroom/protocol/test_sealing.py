"""Sealed values: only the same keys, purpose and facts open them, and each seal has one text."""

from __future__ import annotations

import base64
import pickle
import secrets
import string
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.errors import ConfigError
from greenroom.protocol import sealing
from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.sealing import LONGEST_SEAL, MOST_KEYS, BadSeal, KeyRing, sealed_length

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = b"\x01" * 32, b"\x02" * 32
RING = KeyRing([OLD])
URL_SAFE = frozenset(string.ascii_letters + string.digits + "-_")


@given(st.binary(max_size=2000), st.binary(max_size=50), st.text(max_size=20))
def test_a_sealed_value_opens_with_the_same_purpose_and_facts(payload: bytes, bound: bytes, purpose: str) -> None:
    text = RING.seal(purpose, payload, bound)

    assert RING.open(purpose, text, bound) == payload
    assert set(text) <= URL_SAFE
    assert len(text) == sealed_length(len(payload))


@pytest.mark.row("26-R9")
@given(st.binary(max_size=100), st.data())
def test_a_change_of_any_bit_is_refused(payload: bytes, data: st.DataObject) -> None:
    text = RING.seal("a", payload)
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8

    assert_refused(RING, "a", base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode())


@pytest.mark.row("26-R9")
@given(st.binary(max_size=100), st.data())
def test_a_change_of_any_letter_is_refused(payload: bytes, data: st.DataObject) -> None:
    text = RING.seal("a", payload)
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from(sorted(URL_SAFE - {text[place]})))

    assert_refused(RING, "a", text[:place] + letter + text[place + 1 :])


@given(st.binary(max_size=30), st.data())
def test_no_other_text_stands_for_the_same_value(payload: bytes, data: st.DataObject) -> None:
    text = RING.seal("a", payload)
    place = data.draw(st.integers(0, len(text)))
    more = data.draw(st.text(st.sampled_from("= \n\t.+/A\x00é\ud800"), min_size=1, max_size=4))

    assert_refused(RING, "a", text[:place] + more + text[place:])
    if "-" in text or "_" in text:
        assert_refused(RING, "a", text.replace("-", "+").replace("_", "/"))


@given(st.binary(max_size=100), st.data())
def test_a_part_of_a_text_is_refused(payload: bytes, data: st.DataObject) -> None:
    text = RING.seal("a", payload)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(0, len(text)).filter(lambda end: (start, end) != (0, len(text))))

    assert_refused(RING, "a", text[start:end])


@given(st.text(max_size=300))
@example("")
@example("\ud800")
@example("A" * 43)
@example("AQ" + "A" * 60)
def test_any_text_that_was_not_sealed_is_refused(text: str) -> None:
    assert_refused(RING, "a", text)


@pytest.mark.parametrize(
    ("purpose", "bound"), [("a", b"y"), ("a", b""), ("a", b"xx"), ("b", b"x"), ("", b"x"), ("ax", b""), ("A", b"x")]
)
def test_another_purpose_or_other_facts_do_not_open(purpose: str, bound: bytes) -> None:
    assert_refused(RING, purpose, RING.seal("a", b"payload", b"x"), bound)


def test_a_ring_without_the_key_does_not_open() -> None:
    text = RING.seal("a", b"payload")

    assert_refused(KeyRing([NEW]), "a", text)


def test_an_old_key_opens_and_the_first_one_seals() -> None:
    text = RING.seal("a", b"payload")
    rotated = KeyRing([NEW, OLD])

    assert rotated.open("a", text) == b"payload"
    assert KeyRing([NEW]).open("a", rotated.seal("a", b"later")) == b"later"
    assert_refused(RING, "a", rotated.seal("a", b"later"))


def test_equal_values_have_different_texts() -> None:
    assert len({RING.seal("a", b"same") for _ in range(100)}) == 100


def test_a_text_reveals_neither_its_value_nor_a_key() -> None:
    raw = base64.urlsafe_b64decode(RING.seal("a", b"a long and secret payload") + "==")

    assert b"secret" not in raw
    assert all(OLD[at : at + 4] not in raw for at in range(28))


def test_every_refusal_has_one_message_and_a_reason_for_the_log() -> None:
    text = RING.seal("a", b"payload")
    causes = {
        "length": ["A" * (LONGEST_SEAL + 1), "", "AQID"],
        "text": [text + "=", text[:-1] + "é"],
        "version": ["Ag" + text[2:]],
        "key": [KeyRing([NEW]).seal("a", b"payload")],
        "tag": [RING.seal("b", b"payload")],
    }
    seen: set[str] = set()
    for reason, texts in causes.items():
        for each in texts:
            error = assert_refused(RING, "a", each)
            assert error.reason == reason
            seen.add(str(error))
    assert seen == {"the value was not sealed here for this use, or was changed"}


def test_a_text_that_is_too_long_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    monkeypatch.setattr(sealing, "_strictly_decoded", decoded.append)

    assert_refused(RING, "a", "A" * (LONGEST_SEAL + 1))
    with pytest.raises(BadSeal):
        RING.open("a", "A" * 101, longest=100)
    assert decoded == []


def test_a_caller_may_allow_fewer_letters() -> None:
    text = RING.seal("a", b"")

    assert RING.open("a", text, longest=len(text)) == b""
    with pytest.raises(BadSeal):
        RING.open("a", text, longest=len(text) - 1)


def test_what_could_not_be_opened_again_is_not_sealed() -> None:
    most = LONGEST_SEAL * 3 // 4 - 37

    assert RING.open("a", RING.seal("a", bytes(most))) == bytes(most)
    with pytest.raises(LocalProtocolError, match="too long to be sealed"):
        RING.seal("a", bytes(most + 1))


def test_programs_with_one_secret_share_their_ring() -> None:
    text = KeyRing.shared(b"secret").seal("a", b"payload")

    assert KeyRing.shared(b"secret").open("a", text) == b"payload"
    assert_refused(KeyRing.shared(b"another"), "a", text)
    assert_refused(KeyRing([b"secret".ljust(32, b"\0")]), "a", text)


def test_random_rings_differ() -> None:
    assert_refused(KeyRing.random(), "a", KeyRing.random().seal("a", b"payload"))


def test_the_format_stays_readable_by_later_versions() -> None:
    kept = "AYe8SQMN1580AAECAwQFBgcICQoLC05NG8Gx2xbsuBvAQjgDGHt6zAAQwwa4xQ"

    assert RING.open("a purpose", kept, b"facts") == b"a payload"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_keys_are_written_as_base64_of_either_alphabet(encode: Callable[[bytes], bytes]) -> None:
    for key in (b"\xfb\xff" * 16, OLD, secrets.token_bytes(32)):
        text = encode(key).decode()
        for written in (text, text.rstrip("="), f" {text}\n"):
            assert KeyRing.parse([written]).open("a", KeyRing([key]).seal("a", b"x")) == b"x"


def test_a_new_key_is_a_text_that_can_be_written_as_a_setting() -> None:
    first, second = KeyRing.new_key(), KeyRing.new_key()

    assert first != second
    assert repr(KeyRing.parse([first, second])) == "<KeyRing of 2 keys>"


GOOD = base64.b64encode(NEW).decode()


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([], "must have 1 to 16 keys, not 0"),
        ([GOOD, "hunter2!"], r"KEYS\[1\] is not base64"),
        ([GOOD, "QUJD"], r"KEYS\[1\] has 3 bytes, and must have 32"),
        ([""], r"KEYS\[0\] has 0 bytes"),
        ([NEW], r"KEYS\[0\] must be a text"),
        ([GOOD, GOOD.rstrip("=")], "has one key twice"),
        (GOOD, r'must be a list of keys: write KEYS=\["…"\]'),
        ([base64.b64encode(bytes([place]) * 32).decode() for place in range(MOST_KEYS + 1)], "not 17"),
    ],
)
def test_wrong_keys_are_named_by_their_setting_and_never_shown(texts: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        KeyRing.parse(texts, "KEYS")

    assert "hunter2" not in str(caught.value)
    assert GOOD not in str(caught.value)


def test_the_command_that_an_error_names_makes_a_key() -> None:
    with pytest.raises(ConfigError) as caught:
        KeyRing.parse(["x"])
    command = str(caught.value).partition('python -c "')[2].partition('"')[0]
    made = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)

    KeyRing.parse([made.stdout])


@pytest.mark.parametrize("keys", [[], [b"short"], ["x" * 32], [b"%c" % place * 32 for place in range(17)]])
def test_a_ring_needs_keys_of_32_bytes(keys: Any) -> None:
    with pytest.raises(ConfigError):
        KeyRing(keys)


def test_a_ring_shows_no_key() -> None:
    assert repr(RING) == "<KeyRing of 1 key>"
    assert not hasattr(RING, "__dict__")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(RING)


def test_cryptography_is_loaded_by_the_first_seal() -> None:
    code = (
        "import sys; from greenroom.protocol.sealing import KeyRing, BadSeal; ring = KeyRing.random()\n"
        "assert 'cryptography' not in sys.modules\n"
        "ring.seal('a', b'x'); assert 'cryptography' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def assert_refused(ring: KeyRing, purpose: str, text: str, bound: bytes = b"") -> BadSeal:
    with pytest.raises(BadSeal) as caught:
        ring.open(purpose, text, bound)
    return caught.value
