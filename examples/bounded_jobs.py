"""A hundred jobs, at most eight at a time, some of which fail: the others succeed, and each failure has its reason.

Run it: `python examples/bounded_jobs.py`. It prints

    94 pages of 100
    page 13: crash: ValueError: unlucky
    page 26: crash: ValueError: unlucky
    page 39: crash: ValueError: unlucky
    page 50: killed
    page 52: crash: ValueError: unlucky
    page 65: crash: ValueError: unlucky
"""

from __future__ import annotations

import asyncio

from greenroom.supervision import Completed, Exited, stream
from greenroom.supervision.testing import run  # virtual time: the example takes no real time


async def fetch(number: int) -> str:
    """Stands for a request over the network."""
    await asyncio.sleep(3600 if number == 50 else 0.1)
    if number % 13 == 0 and number < 70:
        raise ValueError("unlucky")
    return f"page {number}"


async def main() -> None:
    """Run each job as a process of its own; a job that takes too long is killed."""
    pages: list[str] = []
    failures: list[str] = []
    number = 0
    async for outcome in stream(fetch, range(1, 101), limit=8, timeout=5.0, on_timeout="kill"):
        number += 1
        match outcome:
            case Completed(page):
                pages.append(page)
            case Exited(reason):
                failures.append(f"page {number}: {reason}")
    print(f"{len(pages)} pages of {number}")
    print(*failures, sep="\n")


if __name__ == "__main__":
    run(main, log=False)
