"""The driver of our client in a session, as the handshake era has it, for the fault trials."""

from __future__ import annotations

from . import fault_trials
from .faults_greenroom import Ours


class InSession(Ours):
    """The same with a handshake."""

    mode = "legacy"


if __name__ == "__main__":
    fault_trials.main(InSession)
