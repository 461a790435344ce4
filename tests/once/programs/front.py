"""A gateway: `front.py URL PROGRAM…` serves the server at that URL as `far`, and the program as `child`."""

from __future__ import annotations

import sys

from greenroom import Command, Host, HttpConfig, Server
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.client_targets import route_of
from greenroom.supervision import Backoff

SETTINGS = ClientSettings(request_timeout=2.0, backoff=Backoff(first=0.02, longest=0.3))
OPEN = BreakerSettings(failures=1_000_000)  # never opens: these tests are not about calls that a breaker refuses

if __name__ == "__main__":
    targets: dict[str, str | Command] = {"far": sys.argv[1], "child": Command(*sys.argv[2:])}
    specs = {
        name: UpstreamSpec(route_of(target), settings=SETTINGS, breaker=OPEN, intensity=1_000_000)
        for name, target in targets.items()
    }
    server = Server("front")
    server.mount(Host(specs), shared=True)
    server.run("http", config=HttpConfig(port=0))
