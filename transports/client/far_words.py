"""What a wire in another process and the one that stands for it here tell each other, and how what was heard is packed for the way.

::

    here -> there    SAY frame, id, ordered     FORGET id        AGREED version
                     HEARD mails, bytes         so much of what came has been passed on
                     TOLD number, ok, value     the answer to an ASK
                     CLOSE                      end in order
    there -> here    TOOK mails, bytes          so much of what was to be said has been handed to the server's wire
                     CAME packed, plain         what the server has said, parsed there, as one mail
                     ASK number, what, args     who we are: the credentials stay here
                     LINE text                  a line of the server's stderr
                     ENDED reason               the last

Messages travel as the values that the parser there has made of them. What the server has written is not read again here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.protocol.errors import PeerError
from greenroom.protocol.messages import Failure, Notification, Request, Response
from greenroom.supervision.cluster import values

from .seam import Broken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .seam import Heard

SAY: Final = 1
FORGET: Final = 2
AGREED: Final = 3
HEARD: Final = 4
TOLD: Final = 5
CLOSE: Final = 6

CAME: Final = 11
ASK: Final = 12
LINE: Final = 13
ENDED: Final = 14
TOOK: Final = 15

_RESPONSE, _FAILURE, _NOTIFICATION, _REQUEST, _BROKEN, _OTHER = range(6)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


def pack(heard: Sequence[Heard]) -> tuple[bytes, bool]:
    """As bytes, and whether they are plain msgpack: numbers with more than 64 bits are not."""
    items = [_packed(each) for each in heard]
    try:
        return _encode(items), True
    except OverflowError:
        return values.encode(items, ""), False


def unpack(data: bytes, *, plain: bool) -> list[Heard]:
    """What was packed."""
    return [_unpacked(*each) for each in (_decode(data) if plain else values.decode(data))]


def _packed(heard: Heard) -> list[Any]:
    match heard:
        case Response(id=id, result=result):
            return [_RESPONSE, id, result]
        case Notification(method=method, params=params):
            return [_NOTIFICATION, method, params]
        case Failure(id=id, error=error):
            return [_FAILURE, id, error.code, error.message, error.data]
        case Request(id=id, method=method, params=params):
            return [_REQUEST, id, method, params]
        case Broken(error=error, sample=sample):
            return [_BROKEN, values.encode(error.with_traceback(None), ""), error.answers, sample]
        case _:
            return [_OTHER, values.encode(heard, "")]


def _unpacked(kind: int, *parts: Any) -> Heard:
    if kind == _RESPONSE:
        return Response(*parts)
    if kind == _NOTIFICATION:
        return Notification(*parts)
    if kind == _REQUEST:
        return Request(*parts)
    if kind == _FAILURE:
        id, code, message, data = parts
        return Failure(id, PeerError(code, message, data))
    if kind == _BROKEN:
        error, answers, sample = parts
        broken = values.decode(error)
        broken.answers = answers
        return Broken(broken, sample)
    other: Heard = values.decode(parts[0])
    return other
