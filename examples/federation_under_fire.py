"""Three servers behind one host, while a plan of faults runs: the result of each call, and the unchanged tree afterwards.

It runs on virtual time, so fourteen seconds take none.

Run it: `python examples/federation_under_fire.py`. It prints

    kill upstream shop/connection      shop RequestLost, bank done, post done
    kill upstream shop                 shop RequestLost, bank done, post done
    kill upstream shop/refresher       shop done, bank done, post done
    kill tools?call*                   shop done, bank ToolFailed, post done
    crash upstream bank/connection     shop done, bank RequestLost, post done
    kill upstreams/*/probe             shop done, bank done, post done
    nothing                            shop done, bank done, post done
    done twice: []
    the tree is the same: True
    started again: bank/connection, bank/probe, post/probe, shop/refresher, shop/probe
    violated invariants: []
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from greenroom import ClientError, Host, Server, ToolError
from greenroom.supervision import tree
from greenroom.testing import Fault, FaultPlan, inject, play

if TYPE_CHECKING:
    from typing import Any

    from greenroom.supervision import Branch

PLAN = FaultPlan.of(
    Fault(1.5, "kill", "upstream shop/connection"),
    Fault(3.5, "kill", "upstream shop"),
    Fault(5.5, "kill", "upstream shop/refresher"),
    Fault(7.5, "kill", "tools?call*", which=1),  # the call's process on the server's side; the second is the bank's
    Fault(9.5, "crash", "upstream bank/connection"),
    Fault(11.5, "kill", "upstreams/*/probe", which="all"),
)
"""Each in the middle of three calls. The post is spared."""

done: Counter[str] = Counter()


def serving(name: str) -> Server:
    """A server with one tool, which takes a second and must not run twice for one call."""
    server = Server(name)

    @server.tool
    async def order(number: int) -> str:
        await asyncio.sleep(1)
        done[f"{name} {number}"] += 1
        return "done"

    return server


async def outcome(host: Host, name: str, number: int) -> str:
    """The outcome of a call."""
    try:
        return f"{await host.call(f'{name}:order', number=number)}"
    except (ClientError, ToolError) as error:
        return type(error).__name__


def shape(branch: Branch) -> tuple[str, Any]:
    """The tree of child ids, independent of pids; short-lived processes are left out."""
    return branch.label, sorted(shape(each) for each in branch.children if each.id is not None)


def restarts(branch: Branch, above: str = "") -> dict[str, int]:
    """The number of restarts of each child."""
    path = f"{above}/{branch.id}".removeprefix("/")
    found = {path: branch.restarts} if branch.restarts else {}
    for each in branch.children:
        found |= restarts(each, path if branch.id is not None else "")
    return found


async def main() -> None:
    """Make seven rounds of calls, six of which meet a fault."""
    names = ("shop", "bank", "post")
    async with Host({name: serving(name) for name in names}) as host:
        await host.tools()
        upstreams = host.federation.upstreams
        before = shape(tree(upstreams))
        injection = await inject(PLAN)
        for number, fault in enumerate([*PLAN.faults, None], 1):
            await asyncio.sleep(1)
            heard = await asyncio.gather(*(outcome(host, name, number) for name in names))
            outcomes = ", ".join(f"{name} {what}" for name, what in zip(names, heard, strict=True))
            print(f"{f'{fault.what} {fault.target}' if fault else 'nothing':34} {outcomes}")
        await injection.close()
        print("done twice:", [what for what, times in done.items() if times > 1])
        print("the tree is the same:", shape(tree(upstreams)) == before)
        print("started again:", ", ".join(restarts(tree(upstreams))))


if __name__ == "__main__":
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)  # deaths are expected here
    played = play(main)
    print("violated invariants:", list(played.findings))
    if played.error is not None:
        raise played.error
