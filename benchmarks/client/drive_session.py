"""The driver of our client in a session, as the handshake era has it."""

from __future__ import annotations

import asyncio

from .drive_greenroom import main

if __name__ == "__main__":
    asyncio.run(main("legacy"))
