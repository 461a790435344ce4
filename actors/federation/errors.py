"""What a federation refuses, beyond what a client does: `CircuitOpen` and `Parked` are the client's own words.

::

    ClientError
    └─ UpstreamBusy        as many as may are under way, and as many wait; also a `Busy` of the supervision's
"""

from __future__ import annotations

from greenroom.actors.client.errors import ClientError
from greenroom.supervision import Busy


class UpstreamBusy(ClientError, Busy):
    """No room now. `retry_after` is in about how many seconds there may be some, where that can be guessed. Nothing was sent."""

    reason = "busy"
